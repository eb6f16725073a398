"""The slides in a real browser: all can be reached, read, spoken to and printed."""

import io
import re
from pathlib import Path

import pikepdf
import pytest

from tests.products.browser.conftest import grave, watched, written
from tests.products.test_cut_slides import text_of
from tools.write_slides import Deck, decks
from twelve_lab.course import STEPS

FILES = [f"{Path(step.notebook).stem}.html" for step in STEPS]
# Every slide is looked at as it is printed. Three decks are walked through as well, the others
# once a week.
OFTEN = ("00_start_here", "06_multi_head_attention", "12_transformer")
BY_TURNS = [
    pytest.param(file, marks=[pytest.mark.weekly] * (Path(file).stem not in OFTEN))
    for file in FILES
]
# The smallest type, in the pixels of a slide of 1280 by 720: of words, and of code and numbers.
WORDS, NUMBERS = 18, 16
# The smallest type in a picture, as it is stored (10.5 points at 100 dots an inch) and shown.
STORED, SHOWN = 14.6, 14.0
# The share of its size at which a picture has more room than it needs, and at which it is blurred.
ROOMY, BLURRED = 1.05, 1.81

# An equation in HTML, but not in code.
EQUATION = re.compile(r"\$\$.+?\$\$|\$[^$]+\$", re.S)
READY = "window.Reveal?.isReady() && document.fonts.status === 'loaded'"
WHERE = "({slide: Reveal.getIndices().h, more: Reveal.availableFragments().next})"
# What is wrong with the slides that are shown, with all their steps.
FAULTS = """([words, numbers]) =>
[...document.querySelectorAll("section.present")].flatMap((slide) => {
  const faults = [];
  const name = (part) => `${part.localName}.${part.className}: ${part.textContent.slice(0, 40)}`;
  const hidden = "aside.notes, mjx-assistive-mml";
  const inside = (part, box, what) => {
    const [a, b] = [part.getBoundingClientRect(), box.getBoundingClientRect()];
    const out = Math.max(b.left - a.left, b.top - a.top, a.right - b.right, a.bottom - b.bottom);
    if (a.width && out > 2) faults.push(`${out.toFixed(0)} px out of the ${what}: ${name(part)}`);
  };
  for (const part of slide.querySelectorAll("*")) {
    if (part.closest(hidden)) continue;
    inside(part, slide, "slide");
    const body = part.parentElement.closest(".body");
    // The strokes of a letter may reach over its line.
    if (body && !part.closest("mjx-container")) inside(part, body, "body");
  }
  const foot = slide.querySelector("footer").getBoundingClientRect();
  for (const part of slide.querySelectorAll(".words > *")) {
    const edge = part.getBoundingClientRect();
    if (edge.bottom > foot.top) faults.push(`over the footer: ${name(part)}`);
  }
  const texts = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const part = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || part.closest(`${hidden}, mjx-container`)) continue;
    const size = parseFloat(getComputedStyle(part).fontSize);
    const floor = part.closest("pre, code, .html, table") ? numbers : words;
    if (size < floor) faults.push(`${size} px: ${name(part)}`);
    if (!part.closest("pre, code") && /\\$|\\\\[a-zA-Z]/.test(texts.currentNode.data)) {
      faults.push(`not rendered: ${texts.currentNode.data}`);
    }
    const clear = getComputedStyle(part.closest(".fragment") ?? part).opacity === "1";
    const visible = getComputedStyle(part).visibility === "visible";
    if (!visible || !clear) faults.push(`hidden: ${name(part)}`);
  }
  for (const part of slide.querySelectorAll("mjx-container")) {
    if (part.closest(hidden)) continue;
    if (parseFloat(getComputedStyle(part).fontSize) < words) faults.push("a small equation");
    if (!part.getBoundingClientRect().width) faults.push("an empty equation");
  }
  for (const part of slide.querySelectorAll(".math")) {
    if (!part.querySelector("mjx-container[display]")) faults.push(`no equation: ${name(part)}`);
  }
  for (const part of slide.querySelectorAll("mjx-merror, [data-mjx-error]")) {
    faults.push(`no equation: ${part.textContent}`);
  }
  for (const picture of slide.querySelectorAll("img")) {
    const {width, height} = picture.getBoundingClientRect();
    if (!picture.naturalWidth || Math.min(width, height) < 60) faults.push("no picture");
    // What does not keep its form in a box of another form is cut, or drawn out.
    const form = picture.naturalWidth / picture.naturalHeight;
    const whole = getComputedStyle(picture).objectFit === "contain";
    if (!whole && Math.abs(width / height / form - 1) > 0.02) faults.push("not a whole picture");
  }
  const heading = slide.querySelector("h1, h2");
  if (!heading?.textContent.trim()) faults.push("no heading");
  const edge = heading?.getBoundingClientRect().left - slide.getBoundingClientRect().left;
  if (edge < 40) faults.push("no margin");
  if (!slide.querySelector("aside.notes")?.textContent.trim()) faults.push("no notes");
  return faults.map((fault) => `slide ${slide.id}: ${fault}`);
})"""
# The headings and what is said to them, without equations.
TOLD = """() => [...document.querySelectorAll(".pdf-page > section")].map((slide) =>
  ["h1, h2", "aside.notes"].map((part) => {
    const copy = slide.querySelector(part).cloneNode(true);
    copy.querySelectorAll("mjx-container").forEach((equation) => equation.remove());
    return copy.textContent;
  }))"""
# How large a picture is shown, by the heading of its slide; the smallest where there are two. It
# may be smaller than its box, which it does not fill both ways.
SHARES = """slides => Object.fromEntries(slides.flatMap((slide) =>
  [...slide.querySelectorAll("img")].map((picture) => [
    slide.querySelector("h1, h2").textContent,
    Math.min(
      picture.getBoundingClientRect().width / picture.naturalWidth,
      picture.getBoundingClientRect().height / picture.naturalHeight,
    ),
  ])).sort((one, other) => other[1] - one[1]))"""


@pytest.fixture(scope="module")
def address(serve) -> str:
    return serve(written("slides"))


@pytest.fixture(scope="module")
def cut() -> dict[str, Deck]:
    return {deck.file: deck for deck in decks()}


@pytest.fixture(scope="module")
def printed(request, second_window, address):
    """A deck as it is printed, opened once for all that is asked of it: its name, and the tab."""
    with watched(second_window) as tab:
        opened_for_print(tab, f"{address}/{request.param}")
        yield request.param, tab


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def steps(deck: Deck) -> list[int]:
    """Count what comes step by step on each slide; none on the last one, which leads on."""
    return [sum(piece.step for piece in slide.shown) for slide in deck.slides] + [0]


def told(deck: Deck) -> list[list[list[str]]]:
    """Give the words of each heading and of what is said to it; the last slide leads on."""
    parts = [[slide.heading, "\n".join(slide.notes)] for slide in deck.slides]
    parts[0][0] = f"{deck.step.number} {deck.step.title}"
    return [[words_of(EQUATION.sub("", text_of(part))) for part in pair] for pair in parts]


def opened(tab, address: str) -> None:
    tab.goto(address)
    tab.wait_for_function(READY)


def opened_for_print(tab, address: str) -> None:
    """Open a deck as it is printed: all slides below each other."""
    opened(tab, f"{address}?print-pdf")
    tab.wait_for_selector(".pdf-page >> nth=4")


@pytest.mark.parametrize("file", BY_TURNS)
def test_the_arrow_key_leads_through_a_deck_that_can_be_read(file, tab, address, cut):
    wanted = steps(cut[file])
    opened(tab, f"{address}/{file}")
    assert tab.evaluate("Reveal.getTotalSlides()") == len(wanted)
    places, faults = [], []
    for _ in range(sum(wanted) + len(wanted)):
        place = tab.evaluate(WHERE)
        places.append(place["slide"])
        if not place["more"]:
            faults += tab.evaluate(FAULTS, [WORDS, NUMBERS])
        tab.keyboard.press("ArrowRight")
    assert places == [slide for slide, more in enumerate(wanted) for _ in range(more + 1)]
    assert faults == []


@pytest.mark.parametrize("printed", FILES, indirect=True)
def test_the_slides_stand_in_order_each_with_what_is_said_to_it(printed, cut):
    file, tab = printed
    found = [[words_of(part) for part in pair] for pair in tab.evaluate(TOLD)]
    assert found[:-1] == told(cut[file])
    pictures = tab.locator(".pdf-page > section img").evaluate_all("all => all.map((a) => a.alt)")
    assert pictures == [
        piece.alt for slide in cut[file].slides for piece in slide.looks if piece.alt
    ]


@pytest.mark.parametrize("printed", FILES, indirect=True)
def test_axe_finds_nothing_serious_on_any_slide_and_all_can_be_printed(printed, cut):
    file, tab = printed
    # reveal.js leaves the mark of what is not on the screen, and axe-core would pass it over.
    slides = tab.locator(".pdf-page > section")
    slides.evaluate_all(
        "all => all.forEach((one) => ['hidden', 'aria-hidden'].map((a) => one.removeAttribute(a)))"
    )
    assert slides.count() == len(steps(cut[file]))
    assert tab.evaluate(FAULTS, [WORDS, NUMBERS]) == []
    assert grave(tab) == []


@pytest.mark.parametrize("printed", FILES, indirect=True)
def test_the_smallest_type_in_a_figure_can_be_read(printed, cut):
    file, tab = printed
    shares = tab.locator(".pdf-page > section").evaluate_all(SHARES)
    assert len(shares) == len(
        {slide.heading for slide in cut[file].slides for piece in slide.looks if piece.alt}
    )
    shown = tab.locator(".pdf-page > section:has(.words .text)").evaluate_all(
        "all => all.map((slide) => slide.querySelector('h1, h2').textContent)"
    )
    assert all(share < BLURRED for share in shares.values())
    # Words give way to a figure that needs their room, and to no other.
    told = {text_of(slide.heading) for slide in cut[file].slides if slide.words and slide.looks}
    lost = [heading for heading in shares if heading in told and heading not in shown]
    assert [heading for heading in lost if shares[heading] > ROOMY] == []
    sizes = {heading: STORED * share for heading, share in shares.items()}
    assert {heading: size for heading, size in sizes.items() if size < SHOWN} == {}


def test_axe_finds_nothing_serious_on_the_list_and_on_a_slide_with_its_controls(tab, address):
    tab.goto(f"{address}/index.html")
    assert grave(tab) == []
    opened(tab, f"{address}/{FILES[4]}#/2")
    assert grave(tab) == []


def test_a_deck_opens_from_a_disk(tab):
    opened(tab, (written("slides") / FILES[4]).as_uri())
    assert tab.locator("mjx-container").count() > 20
    tab.keyboard.press("End")
    assert tab.evaluate("Reveal.isLastSlide()")


def test_the_list_leads_to_every_deck_and_back(tab, address):
    tab.goto(f"{address}/index.html")
    links = tab.locator("tbody a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert links == FILES
    tab.locator("tbody a").first.click()
    tab.wait_for_function(READY)
    tab.locator("section.present a", has_text="Twelve Numbers").click()
    assert tab.url == f"{address}/index.html"


def test_the_last_slide_leads_to_both_neighbours(tab, address):
    for link, file in (("13 training", FILES[13]), ("11 decoder", FILES[11])):
        opened(tab, f"{address}/{FILES[12]}")
        tab.keyboard.press("End")
        tab.locator("section.present a", has_text=link).click()
        tab.wait_for_function(READY)
        assert tab.url.startswith(f"{address}/{file}")


def test_the_speakers_view_opens_with_the_notes(fresh_tab, address):
    tab = fresh_tab
    opened(tab, f"{address}/{FILES[4]}")
    # To a slide with equations in its notes.
    tab.evaluate(
        "Reveal.slide([...document.querySelectorAll('.slides > section')]"
        ".findIndex((slide) => slide.querySelectorAll('.notes mjx-container').length > 3))"
    )
    asked = []
    tab.context.on("request", lambda request: asked.append(request.url))
    with tab.context.expect_page() as opening:
        tab.keyboard.press("s")
    view = opening.value
    notes = tab.locator("section.present aside.notes")
    value = view.locator(".speaker-controls-notes .value")
    value.wait_for()
    assert value.inner_text().split()[:5] == notes.text_content().split()[:5]
    # Equations are told as on the slides, once.
    assert value.locator("mjx-container svg").count() > 3
    assert value.locator("mjx-assistive-mml").count() == 0
    with_deck = [url for url in asked if FILES[4] in url]
    assert with_deck
    assert [url for url in asked if not url.startswith((address, "about:", "data:"))] == []


@pytest.mark.parametrize("file", [FILES[4], FILES[-1]])
def test_a_deck_prints_one_page_a_slide(file, tab, address, cut):
    opened_for_print(tab, f"{address}/{file}")
    printed = pikepdf.open(io.BytesIO(tab.pdf(prefer_css_page_size=True, print_background=True)))
    assert len(printed.pages) == len(steps(cut[file]))
    # Pictures are drawn: no page holds dots.
    assert not any(page.get_images() for page in printed.pages)
    left, bottom, right, top = map(float, printed.pages[0].mediabox)
    assert (right - left) / (top - bottom) == pytest.approx(1280 / 720, rel=0.01)


def test_a_live_part_runs_on_its_slide_and_is_light(tab, address):
    opened(tab, f"{address}/{FILES[4]}")
    tab.evaluate(
        "Reveal.slide([...document.querySelectorAll('.slides > section')]"
        ".findIndex((slide) => slide.querySelector('iframe')))"
    )
    frame = tab.frame_locator("section.present iframe")
    dial = frame.locator("input.n").first
    after = frame.locator("button.n, span.n")
    before = after.all_inner_texts()
    dial.fill("0.9")
    dial.press("Enter")
    tab.wait_for_timeout(100)
    assert after.all_inner_texts() != before
    assert frame.locator("html").get_attribute("data-theme") == "light"
    # Larger than on a page: nothing is too small for the last row.
    larger = "e => e.getBoundingClientRect().width / e.offsetWidth"
    zoom = tab.locator("section.present iframe").evaluate(larger)
    assert zoom == pytest.approx(1.4 * tab.evaluate("Reveal.getScale()"), rel=0.01)
