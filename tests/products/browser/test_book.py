"""The book as its readers meet it: every page in light and in dark, its links, search, explorer."""

import html
import io
import re
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import expect

from tests.course.figures import picture_of
from tests.products.browser.conftest import ROOT, grave, watched, written
from tools import write_book
from twelve_lab.course import STEPS, find_step, pages

BOOK = ROOT / "build" / "book"
STEMS = [Path(step.notebook).stem for step in STEPS]
MODULES = {step.number: path for step in STEPS
           if (path := ROOT / step.source).exists()}  # fmt: skip
PAGES = sorted(
    path.relative_to(BOOK).as_posix()
    for path in BOOK.rglob("*.html")
    if not path.relative_to(BOOK).parts[0].startswith("_")
)
# The explorer alone: test_explorer_page.py holds it.
ALONE = "walk.html"
# In the dark the colours of a page are others, and nothing else is.
COLOURS = ("color-contrast", "link-in-text-block")
# A page of each kind is opened by `make check`, and the others once a week.
OFTEN = {
    "index.html", "search.html", "notebooks/04_attention.html",
    "notebooks/workshop/04_attention.html", "reference/attention.html", "docs/glossary.html",
}  # fmt: skip
FRAMED = [page for page in PAGES if page != ALONE]
BY_TURNS = [pytest.param(page, marks=[pytest.mark.weekly] * (page not in OFTEN)) for page in FRAMED]
HEADINGS = "main h1, main h2, main h3, main h4, main h5, main h6"


class Read(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        self.loaded += [found[name] for name in ("src", "data") if found.get(name)]
        if tag == "link" and found.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(found["href"])


@cache
def read(path: Path) -> Read:
    return Read(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def site(serve):
    return serve(written("book"))


@pytest.fixture(scope="module")
def shown(request, second_window, site):
    """A page in the light, opened once for all that is asked of it."""
    with watched(second_window) as tab:
        opened(tab, f"{site}/{request.param}")
        yield tab


def opened(tab, address, theme="light"):
    """Open a page in a theme, and wait until its equations are set."""
    tab.emulate_media(color_scheme=theme)
    tab.goto(address)
    tab.add_style_tag(content="* { transition: none !important }")  # else colours are on their way
    tab.evaluate("window.MathJax ? MathJax.startup.promise.then(() => true) : true")


def test_the_book_has_a_page_for_everything():
    notebooks = {f"{path.relative_to(ROOT).with_suffix('')}.html" for path in pages(ROOT)}
    docs = {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    modules = {f"reference/{step.stem}.html" for step in STEPS if step.module}
    others = {"index.html", "CONTRIBUTING.html", "search.html", ALONE}
    assert len(modules) == 19
    assert notebooks | docs | modules | others <= set(PAGES)


@pytest.mark.parametrize("shown", BY_TURNS, indirect=True)
def test_a_page_is_whole(shown):
    assert shown.evaluate("document.documentElement.lang") == "en"
    visible = "all => all.filter(e => e.offsetParent).map(e => +e.tagName[1])"
    levels = shown.eval_on_selector_all(HEADINGS, visible)
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    broken = "all => all.filter(e => !(e.complete && e.naturalWidth)).map(e => e.src)"
    assert shown.eval_on_selector_all(".bd-main img", broken) == []
    silent = "all => all.filter(e => !e.alt.trim()).map(e => e.src)"
    assert shown.eval_on_selector_all(".bd-main img", silent) == []
    headless = "all => all.filter(e => !e.querySelector('th')).map(e => e.textContent)"
    assert shown.eval_on_selector_all(".bd-main table", headless) == []
    assert shown.locator("mjx-merror").count() == 0
    assert shown.locator("mjx-container:not(:has(mjx-assistive-mml))").count() == 0
    assert shown.locator(".math:not(:has(mjx-container svg))").count() == 0
    cut = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
    assert shown.eval_on_selector_all(".cell_input pre", cut) == []
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert shown.evaluate(wide) <= 0


@pytest.mark.parametrize("shown", BY_TURNS, indirect=True)
def test_on_a_phone_a_page_is_no_wider_than_its_screen(shown):
    before = shown.viewport_size
    shown.set_viewport_size({"width": 390, "height": 844})
    wide = shown.evaluate("document.documentElement.scrollWidth")
    shown.set_viewport_size(before)
    assert wide == 390


@pytest.mark.parametrize("shown", BY_TURNS, indirect=True)
def test_in_the_light_and_in_the_dark_a_page_is_open_to_everybody(shown):
    theme = "document.documentElement.dataset.theme"
    assert shown.evaluate(theme) == "light"
    assert grave(shown) == []
    shown.emulate_media(color_scheme="dark")
    shown.wait_for_function(f"{theme} === 'dark'")
    assert grave(shown, *COLOURS) == []


def searched(tab, words):
    """Search as a reader does, and list where the findings lead."""
    tab.locator(".search-button__button:visible").first.click()
    field = tab.locator('input[name="q"]:visible').first
    field.fill(words)
    field.press("Enter")
    tab.locator("#search-results ul.search li a").first.wait_for()
    return tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")


@pytest.mark.weekly
def test_search_finds_a_phrase_and_leads_there(tab, site):
    opened(tab, f"{site}/index.html")
    place = next(link for link in searched(tab, "a row with nothing allowed") if "05_masks" in link)
    tab.goto(place)
    assert "a row with nothing allowed" in tab.inner_text("main").lower()


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("mean of the squared distances", "07_normalization"),
        ("equal scores share", "05_masks"),  # these words also stand apart, further up
        ("even a perfect answer costs", "mistakes"),
    ],
)
def test_search_leads_to_the_place(tab, site, words, page):
    opened(tab, f"{site}/index.html")
    searched(tab, words)
    tab.locator(f'#search-results li a[href*="{page}"]').first.click()
    tab.wait_for_url(f"**/{page}.html*")
    expect(tab.locator(".found")).to_be_in_viewport()
    assert words in tab.inner_text(".found").lower()
    assert tab.evaluate("scrollY") > 720
    tab.goto(f"{site}/notebooks/04_attention.html")  # which nobody has searched
    tab.wait_for_load_state()
    expect(tab.locator(".found")).to_have_count(0)
    assert tab.evaluate("scrollY") == 0


def test_the_pages_work_from_a_disk(tab):
    for page in ("index.html", "notebooks/04_attention.html", ALONE):
        opened(tab, (BOOK / page).as_uri())
    opened(tab, (BOOK / "notebooks" / "05_masks.html").as_uri())
    assert tab.locator("mjx-container svg").count() > 5


@pytest.mark.weekly
def test_search_works_from_a_disk(browser):
    # Not in `tab`: the browser refuses the excerpts of the findings, and says so in its console.
    page = browser.new_page()
    page.goto((BOOK / "index.html").as_uri())
    assert any("05_masks" in link for link in searched(page, "fully masked row"))
    page.close()


@pytest.mark.weekly
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_reader_chooses_light_or_dark(tab, site, theme):
    other = {"light": "dark", "dark": "light"}[theme]
    opened(tab, f"{site}/notebooks/04_attention.html", other)
    ground = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(ground)
    tab.locator("button.theme-switch-button:visible").first.click()
    tab.locator(
        f'[data-mode="{theme}"]:visible, [data-bs-theme-value="{theme}"]:visible'
    ).first.click()
    assert tab.evaluate("document.documentElement.dataset.theme") == theme
    assert tab.evaluate(ground) != before
    # The paper of a figure is that of the page, and its text the other way round.
    figure = tab.locator(".cell_output img").first
    dots = imread(io.BytesIO(figure.screenshot()))[..., :3].mean(-1)
    (corner, *_), most = dots[0], np.median(dots)
    assert (corner > 0.9, most > 0.9, dots.min() < 0.2, dots.max() > 0.8) == (
        theme == "light", theme == "light", True, True,
    )  # fmt: skip
    tab.goto(f"{site}/notebooks/05_masks.html")
    assert tab.evaluate("document.documentElement.dataset.theme") == theme


def neighbour(page: Path, side: str) -> Path:
    """Follow the link to the next or the previous page."""
    (target,) = re.findall(rf'<a class="{side}"\s+href="([^"]+)"', page.read_text("utf-8"))
    return (page.parent / target).resolve()


def test_next_and_previous_lead_through_the_course_in_reading_order():
    page = BOOK / "index.html"
    for stem in STEMS:
        page = neighbour(page, "right-next")
        assert page.stem == stem
    for stem in STEMS[-2::-1]:
        page = neighbour(page, "left-prev")
        assert page.stem == stem


def test_the_live_model_opens_the_home_page_and_is_as_high_as_it_needs(tab, site):
    opened(tab, f"{site}/index.html")
    assert tab.locator("article p, article iframe").nth(1).evaluate("e => e.tagName") == "IFRAME"
    frame = tab.frame_locator("iframe.explorer")
    before = frame.locator("#learning .n").inner_text()
    dial = frame.locator("#words input.n").last
    dial.fill("0.9")
    dial.press("Enter")
    expect(frame.locator("#learning .n")).not_to_have_text(before)
    inner = "document.scrollingElement.scrollHeight <= innerHeight"
    tab.wait_for_function(f"frames[0].{inner.replace('innerHeight', 'frames[0].innerHeight')}")


@pytest.mark.weekly
def test_what_the_live_model_says_stays_in_view_while_a_number_of_it_is_dragged(tab, site):
    opened(tab, f"{site}/index.html")
    foot = tab.locator(".live-foot")
    expect(foot).to_contain_text("✓ dog, right")
    expect(foot).to_be_in_viewport(ratio=1)
    dial = tab.frame_locator("iframe.explorer").locator("#words input.n").nth(6)
    dial.fill("2")
    dial.press("Enter")
    expect(foot).to_contain_text("✗ fish, wrong")
    tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(foot).to_be_hidden()


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["04_attention", "05_masks"])
def test_on_a_phone_a_part_of_the_live_model_is_seen_whole(tab, site, name):
    tab.set_viewport_size({"width": 390, "height": 844})
    opened(tab, f"{site}/notebooks/{name}.html")
    tab.locator("iframe.live").scroll_into_view_if_needed()
    inside = tab.frame_locator("iframe.live").locator("body")
    expect(inside).to_have_attribute("data-ready", "true")
    bottom = inside.evaluate("body => body.getBoundingClientRect().bottom")
    assert 700 < bottom <= tab.locator("iframe.live").evaluate("e => e.clientHeight")


@pytest.mark.weekly
def test_on_a_phone_printed_columns_stay_beside_each_other(tab, site):
    tab.set_viewport_size({"width": 390, "height": 844})
    opened(tab, f"{site}/notebooks/16_rotary_positions.html")
    printed = tab.locator(".cell_output pre", has_text="percent right")
    text = printed.first.inner_text().strip()
    height = """e => {
      const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(e);
      return (e.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom))
        / parseFloat(lineHeight);
    }"""
    assert round(printed.first.evaluate(height)) == len(text.splitlines()) == 5
    assert printed.first.evaluate("e => e.scrollWidth > e.clientWidth && e.tabIndex === 0")


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("16_rotary_positions", "#the-table-of-angles-in-other-code"),
        ("17_grouped_query_attention", "#names-in-other-code"),
        ("18_decoder_only", "[id^=open-modeling-llama-py]"),
    ],
)
def test_on_a_phone_names_of_other_code_stand_above_what_they_mean(tab, site, name, section):
    tab.set_viewport_size({"width": 390, "height": 844})
    opened(tab, f"{site}/notebooks/workshop/{name}.html")
    tables = tab.locator(f"{section} .table")
    assert tables.count() > 0
    aside = "all => all.filter(e => e.scrollWidth > e.parentElement.clientWidth).length"
    assert tables.evaluate_all(aside) == 0


def test_every_lesson_has_a_card_with_its_figure(tab, site):
    opened(tab, f"{site}/index.html")
    links = "all => all.map((link) => link.getAttribute('href'))"
    pages_ = [step.notebook.replace(".ipynb", ".html") for step in STEPS]
    assert tab.eval_on_selector_all(".lessons a", links) == pages_
    assert tab.locator(".lessons img").count() >= 20
    tab.set_viewport_size({"width": 390, "height": 844})
    assert tab.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.weekly
def test_all_of_a_card_leads_to_its_lesson_also_by_the_keyboard(tab, site):
    opened(tab, f"{site}/index.html")
    picture = tab.locator(".lessons img").nth(4)
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url("**/04_attention.html")
    tab.go_back()
    tab.locator(".lessons a").nth(5).focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/05_masks.html")


@pytest.mark.parametrize("words", ["mask", "softmax", "dropout"])
def test_search_finds_lessons_first_and_shows_a_sentence(tab, site, words):
    opened(tab, f"{site}/index.html")
    searched(tab, words)
    expect(tab.locator("#search-results .context").nth(2)).to_be_visible()
    # The summary appears once the last result is listed.
    expect(tab.locator("#search-summary, .search-summary")).to_contain_text("found")
    found = tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    assert len(found) > 8 and all("/notebooks/" in link for link in found[:8])
    for text in tab.locator("#search-results .context").all_inner_texts():
        assert "System Settings" not in text and "\\" not in text and len(text) <= 245


def test_no_link_is_broken_and_nothing_comes_from_elsewhere():
    for page in PAGES:
        found = read(BOOK / page)
        for target in found.loaded:
            assert not urlsplit(target).netloc, f"{page} loads {target}"
        for target in found.links + found.loaded:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            place = (BOOK / page).parent / unquote(parts.path) if parts.path else BOOK / page
            assert place.is_file(), f"{page} leads to {target}"
            if parts.fragment and place.suffix == ".html":
                assert unquote(parts.fragment) in read(place).ids, f"{page} leads to {target}"


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.number)
def test_a_notebook_leads_to_its_module_and_to_what_can_be_taken_along(step):
    page = BOOK / step.notebook.replace(".ipynb", ".html")
    links = [unquote(link) for link in read(page).links]
    if step.number in MODULES:
        assert any(link.endswith(f"reference/{step.stem}.html") for link in links)
    taken = [page.parent / link for link in links if "_downloads/" in link]
    (notebook,) = [path for path in taken if path.name == Path(step.notebook).name]
    assert notebook.read_bytes() == (ROOT / step.notebook).read_bytes()


HOME = """# A

One sentence.

![A film.](film.gif)

What to do.

```sh
make b
```

## The course

| step |
|---|
| 04 |

Each opens on its own.

## Who it is for

All.

## Installation

Wait.

## More

Much.

## The tree

b

## Where it comes from

Here.
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one step, whose workshop asks for two predictions."""
    monkeypatch.setattr(write_book, "STEPS", (find_step("04"),))
    for folder in ("docs", "notebooks/workshop"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text(HOME)
    (tmp_path / "CONTRIBUTING.md").write_text("# A\n\n![b](b)\n")
    for name in ("b", "film.gif"):
        (tmp_path / name).touch()
    picture = new_output("display_data", {"text/html": picture_of("A picture.")})
    folded = {"jupyter": {"outputs_hidden": True}}
    cells = [
        new_markdown_cell("# 04\n\n[lesson](../04_attention.ipynb)"),
        new_code_cell("import torch"),
        new_code_cell("print(1)", metadata={**folded, "tags": ["idea"]}),
        new_code_cell("draw.tensor(x)", metadata=folded, outputs=[picture]),
        new_code_cell("print(2)"),
    ]
    workshop = new_notebook(cells=cells)
    nbformat.write(workshop, tmp_path / "notebooks/workshop/04_attention.ipynb")
    cells[0].source = "# 04\n\n[workshop](workshop/04_attention.ipynb)"
    nbformat.write(workshop, tmp_path / "notebooks/04_attention.ipynb")
    return tmp_path


@pytest.mark.parametrize("name", ["notebooks/04_attention", "notebooks/workshop/04_attention"])
def test_what_a_reader_predicts_is_folded(project, name):
    written = dict(write_book.pages(project))[f"{name}.ipynb"]
    _, _, printed, drawn, shown = [
        cell.metadata for cell in nbformat.reads(written, as_version=4).cells
    ]
    for cell in (printed, drawn):
        assert cell["tags"] == ["hide-output"]
        assert cell["mystnb"]["code_prompt_show"] == "What it prints"
    assert not {"tags", "mystnb"} & set(shown)


def test_the_course_comes_first_then_what_to_play_with_and_the_workshops(project):
    lesson, workshop, play = "notebooks/04_attention", "notebooks/workshop/04_attention", [
        "docs/spot_the_bug"]  # fmt: skip
    for bound, parts in (
        (False, {"The course": [lesson], "To play with": play, "Workshops": [workshop]}),
        (True, {"The lessons": [lesson], "The workshops": [workshop, *play]}),
    ):
        index = dict(write_book.pages(project, bound=bound))["index.md"]
        trees = re.findall(r":caption: (.+)\n:hidden:\n\n((?:\S.*\n)+)", index)
        found = {caption: names.split()[:-1] for caption, names in trees[: len(parts)]}
        assert list(found.items()) == list(parts.items())


def test_the_home_page_is_the_readme_with_cards_and_without_what_is_of_no_use_there(project):
    written = dict(write_book.pages(project))
    home, overview = written["index.md"], written["overview.md"]
    order = ["# A", "One sentence.", "<iframe", "## The course", "04 Attention", "Each opens",
             "## Who it is for", "## Installation", "make b", "Wait."]  # fmt: skip
    places = [home.index(words) for words in order]
    assert places == sorted(places)
    assert not re.search(r"film|\| 04|What to do|## More", home)
    assert overview == "# Overview\n\n## More\n\nMuch.\n\n## Where it comes from\n\nHere.\n"
    bound = dict(write_book.pages(project, bound=True))
    assert "course.md" not in bound and "## The tree" not in bound["index.md"]
    assert not any("film" in text for text in bound.values())


@pytest.mark.parametrize("step", [step for step in STEPS if step.module], ids=lambda s: s.number)
def test_the_reference_describes_every_name_with_readable_annotations(step):
    page = (BOOK / "reference" / f"{step.stem}.html").read_text(encoding="utf-8")
    signatures = [
        html.unescape(re.sub(r"<[^>]+>", "", found))
        for found in re.findall(r'<dt class="sig .*?</dt>', page, re.DOTALL)
    ]
    assert not [found for found in signatures if "jaxtyping." in found]
    # What reads a file is handed no tensor.
    has_shapes = step.stem != "pretrained"
    assert any("Tensor, '" in found for found in signatures) == has_shapes
    for name in re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", (ROOT / step.source).read_text(), re.M):
        assert any(name in found for found in signatures), f"{name} is not described"


def test_a_link_to_nothing_is_an_error(tmp_path):
    for folder in ("docs", "notebooks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "README.md").write_text("# A\n\n[b](docs/b.md)\n")
    with pytest.raises(ValueError, match=r"README.md: a link leads to docs/b.md"):
        list(write_book.pages(tmp_path))
