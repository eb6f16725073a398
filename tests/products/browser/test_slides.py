"""The decks in Chromium: they fit, can be navigated and printed, and are accessible."""

import io
from operator import ne
from pathlib import Path

import pikepdf
import pytest

from tests.products.browser.conftest import grave, written
from twelve_lab.course import STEPS

FILES = [f"{Path(step.notebook).stem}.html" for step in STEPS]
DECK = FILES[4]
OTHERS = [pytest.param(file, marks=[pytest.mark.weekly] * (file != DECK)) for file in FILES]
READY = "window.Reveal?.isReady() && document.fonts.status === 'loaded'"
SLIDES = ".pdf-page > section:not(.stack)"
# The smallest font sizes of text and of outputs, in pixels of a slide of 1280 by 720, and the
# smallest scale of a figure.
SMALLEST, OUTPUT, SCALE = 16, 24, 0.96
FAULTS = """(slides, [smallest, output, scale]) => slides.flatMap((slide) => {
  const faults = [];
  const tooLarge = (part) =>
    part.scrollHeight > part.clientHeight + 1 || part.scrollWidth > part.clientWidth + 1;
  if (tooLarge(slide)) faults.push("cut off");
  const texts = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const part = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || part.closest("mjx-container, aside, iframe")) continue;
    const least = part.closest(".jp-OutputArea-output") ? output : smallest;
    if (parseFloat(getComputedStyle(part).fontSize) < least) faults.push("small type");
    if (!part.closest("pre, code") && /\\$|\\\\[a-zA-Z]/.test(texts.currentNode.data)) {
      faults.push(`not typeset: ${texts.currentNode.data}`);
    }
  }
  for (const pre of slide.querySelectorAll(".jp-OutputArea-output pre")) {
    const lines = pre.textContent.trimEnd().split("\\n");
    const fits = lines.every(({ length }) => length <= 83);
    const height = lines.length * parseFloat(getComputedStyle(pre).lineHeight);
    if (fits && pre.clientHeight > height + 2) faults.push("broken line");
  }
  const figures = slide.querySelectorAll(".figure img");
  for (const { naturalWidth, naturalHeight, width, height } of figures) {
    if (!(Math.min(width / naturalWidth, height / naturalHeight) >= scale)) faults.push("figure");
  }
  if (slide.querySelector("mjx-merror")) faults.push("equation");
  if (!slide.querySelector("h1, h2")?.textContent.trim()) faults.push("no heading");
  if (!slide.querySelector("aside.notes")?.textContent.trim()) faults.push("no notes");
  return faults.map((fault) => `${slide.querySelector("h1, h2")?.textContent}: ${fault}`);
})"""


@pytest.fixture(scope="module")
def address(serve) -> str:
    return serve(written("slides"))


def opened(tab, address: str) -> None:
    tab.goto(address)
    tab.wait_for_function(READY)


@pytest.mark.parametrize("file", OTHERS)
def test_printed_deck_fits_and_has_no_serious_violation(file, tab, address):
    opened(tab, f"{address}/{file}?print-pdf")
    tab.wait_for_selector(f"{SLIDES} >> nth=4")
    slides = tab.locator(SLIDES)
    assert slides.evaluate_all(FAULTS, [SMALLEST, OUTPUT, SCALE]) == []
    # reveal.js hides off-screen slides from axe-core.
    slides.evaluate_all(
        "all => all.forEach((one) => ['hidden', 'aria-hidden'].map((a) => one.removeAttribute(a)))"
    )
    assert grave(tab) == []
    pdf = pikepdf.open(io.BytesIO(tab.pdf(prefer_css_page_size=True, print_background=True)))
    assert len(pdf.pages) == slides.count()


def test_deck_opens_from_a_disk(tab):
    opened(tab, (written("slides") / DECK).as_uri())
    assert tab.locator("mjx-container").count() > 20
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("Reveal.getIndices().h") == 1


@pytest.mark.weekly
def test_list_and_last_slide_lead_to_decks(tab, address):
    tab.goto(f"{address}/index.html")
    assert grave(tab) == []
    links = tab.locator("tbody a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert links == FILES
    for link, file in ((STEPS[13], FILES[13]), (STEPS[11], FILES[11])):
        opened(tab, f"{address}/{FILES[12]}")
        tab.keyboard.press("End")
        tab.locator("section.present a", has_text=f"{link.number} {link.title}").first.click()
        tab.wait_for_function(READY)
        assert tab.url.startswith(f"{address}/{file}")


@pytest.mark.weekly
def test_speakers_view_shows_the_notes(fresh_tab, address):
    tab = fresh_tab
    opened(tab, f"{address}/{DECK}#/8")
    with tab.context.expect_page() as opening:
        tab.keyboard.press("s")
    value = opening.value.locator(".speaker-controls-notes .value")
    value.wait_for()
    notes = tab.locator("section.present:not(.stack) aside.notes")
    assert value.inner_text().split()[:5] == notes.text_content().split()[:5]


@pytest.mark.weekly
def test_live_part_runs_on_its_slide_in_the_light_theme(tab, address):
    opened(tab, f"{address}/{DECK}")
    tab.evaluate(
        "Reveal.slide([...document.querySelectorAll('.slides > section')]"
        ".findIndex((slide) => slide.querySelector('iframe')))"
    )
    frame = tab.frame_locator("section.present:not(.stack) iframe")
    numbers = frame.locator(".n")
    before = numbers.all_inner_texts()
    numbers.first.press("+")
    tab.wait_for_timeout(100)
    assert sum(map(ne, numbers.all_inner_texts(), before)) > 3
    assert frame.locator("html").get_attribute("data-theme") == "light"
