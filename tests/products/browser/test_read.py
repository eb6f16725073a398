"""The book marks the pages already read; the browser stores the marks."""

import pytest

from tests.products.browser.conftest import grave, written
from twelve_lab.course import STEPS

PAGES = [step.notebook.replace(".ipynb", ".html") for step in STEPS]
TICKED = ".bd-sidebar-primary a:has(.tick)"
# Make the browser refuse to store our marks, but not the settings of the theme.
REFUSE = """for (const name of ["getItem", "setItem"]) {
  const own = Storage.prototype[name];
  Storage.prototype[name] = function (key, ...rest) {
    if (/twelve|terms/.test(key)) throw new DOMException("refused", "SecurityError");
    return own.call(this, key, ...rest);
  };
}"""


@pytest.fixture(scope="module")
def site(serve):
    return serve(written("book"))


@pytest.fixture(params=["server", pytest.param("file", marks=pytest.mark.weekly)])
def book(request, site):
    """Return the address of the book, on a server and on disk."""
    return site if request.param == "server" else written("book").as_uri()


def ticked(tab):
    return [name.strip() for name in tab.locator(TICKED).all_text_contents()]


def test_lesson_is_marked_as_read_at_its_end_and_names_the_next_lesson(tab, book):
    tab.goto(f"{book}/{PAGES[4]}")
    bar, button = tab.locator(".reading"), tab.locator(".reading button")
    assert ticked(tab) == [] and button.text_content() == "Mark as read"
    bar.scroll_into_view_if_needed()
    tab.locator(TICKED).wait_for()
    assert ticked(tab) == ["04 Attention ✓"]
    assert bar.locator("[role=status]").text_content() == (
        f"1 of {len(STEPS)} lessons read. Next unread: 05 Masks."
    )
    bar.locator("a").click()
    tab.wait_for_url(f"{book}/{PAGES[5]}")
    assert ticked(tab) == ["04 Attention ✓"]
    assert tab.get_by_role("link", name="04 Attention read").count() == 1


@pytest.mark.weekly
def test_button_toggles_the_mark_by_keyboard_and_is_accessible(tab, site):
    tab.goto(f"{site}/{PAGES[0]}")
    tab.add_style_tag(content="* { transition: none !important }")
    button = tab.locator(".reading button")
    button.focus()
    tab.locator(TICKED).wait_for()
    for theme in ("dark", "light"):
        tab.emulate_media(color_scheme=theme)
        assert grave(tab) == []
    for text, marks in (("Mark as unread", 1), ("Mark as read", 0), ("Mark as unread", 1)):
        assert (button.text_content(), len(ticked(tab))) == (text, marks)
        tab.keyboard.press("Enter")
    tab.reload()
    button.scroll_into_view_if_needed()
    tab.wait_for_timeout(200)
    assert ticked(tab) == []  # a reader's "unread" stays


@pytest.mark.weekly
def test_home_page_counts_the_lessons_read_and_names_the_next_until_it_is_reset(tab, site):
    tab.goto(f"{site}/course.html")
    assert not tab.locator(".reading").is_visible()
    names = [page.removesuffix(".html") for page in PAGES[:2]]
    keep = "names => localStorage.setItem('twelve-numbers-read', JSON.stringify(names))"
    tab.evaluate(keep, dict.fromkeys(names, True))
    tab.reload()
    bar = tab.locator(".reading")
    assert f"2 of {len(STEPS)} lessons read. Next unread: 02 Embedding." in bar.text_content()
    assert tab.locator("article a:has(.tick)").count() >= 2
    bar.get_by_role("button", name="Forget").click()
    assert not bar.is_visible() and tab.locator(".tick").count() == 0
    tab.evaluate(keep, {page.removesuffix(".html"): True for page in PAGES})
    tab.reload()
    assert "That is the whole course." in bar.text_content()
    assert bar.evaluate("e => e.classList.contains('done')")


@pytest.mark.weekly
@pytest.mark.parametrize("text", ["{", "[1, null]"])
def test_invalid_stored_marks_are_ignored(tab, site, text):
    tab.goto(f"{site}/{PAGES[1]}")
    tab.evaluate("text => localStorage.setItem('twelve-numbers-read', text)", text)
    tab.reload()
    assert ticked(tab) == [] and tab.locator(".reading button").count() == 1


@pytest.mark.weekly
def test_without_storage_there_is_no_button_and_no_error(fresh_tab, book):
    tab = fresh_tab
    tab.add_init_script(REFUSE)
    for page in ("course.html", PAGES[2]):
        tab.goto(f"{book}/{page}")
        tab.wait_for_load_state()
        assert tab.locator(".reading").count() == 0
