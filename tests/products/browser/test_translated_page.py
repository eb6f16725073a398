"""The live page in another language translates every visible label."""

import re

import pytest

from tests.course.test_messages import live_page, page_data, pseudo_translation
from twelve_lab import messages

# Return the texts, accessible names and tooltips of the page.
SHOWN = """() => {
  const shown = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const { parentElement, data } = texts.currentNode;
    if (!parentElement.closest("script, noscript")) shown.push(data);
  }
  for (const name of ["aria-label", "title"]) {
    for (const node of document.querySelectorAll(`[${name}]`)) shown.push(node.getAttribute(name));
  }
  return shown;
}"""


@pytest.fixture
def pseudo():
    before = messages.use(pseudo_translation())
    yield
    messages.use(before)


def test_no_label_of_the_page_stays_untranslated(tab, tmp_path, pseudo):
    html, path = live_page(), tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    tab.goto(path.as_uri())
    tab.locator("body[data-ready]").wait_for()
    tab.get_by_role("button", name="⟦Teach it⟧").click()
    tab.locator("#next .n").first.click()
    tab.locator("#about").wait_for()
    # Names of tensors and axes, code, and the words of the sentences stay untranslated.
    data = page_data(html)
    names = set(re.findall(r"[A-Za-z]+", str([data["runs"], data["vocab"], "word, out, in"])))
    for text in tab.evaluate(SHOWN):
        while text != (text := re.sub(r"⟦[^⟦⟧]*⟧", "", text)):
            pass
        assert set(re.findall(r"[A-Za-z]{2,}", text)) <= names, text
