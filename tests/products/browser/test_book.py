"""The book in Chromium: its pages, links, search, live model and reading order.

`make check` opens one page of each kind; the weekly tests open all pages.
"""

import html
import io
import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread
from playwright.sync_api import expect

from tests.course.notebook_rules import code_cells
from tests.products.browser.conftest import PHONE, ROOT, grave, written
from tools import write_book
from twelve_lab import messages
from twelve_lab.course import DRILLS, STEPS, pages

BOOK = ROOT / "build" / "book"
STEMS = [Path(step.notebook).stem for step in STEPS]
MODULES = [*(step for step in STEPS if step.module), *(drill for drill in DRILLS if drill.exports)]
PAGES = sorted(
    path.relative_to(BOOK).as_posix()
    for path in BOOK.rglob("*.html")
    if not any(part.startswith("_") for part in path.relative_to(BOOK).parts)
)
# Standalone pages, which test_explorer_page.py and test_exercises_page.py open.
ALONE = {f"{root}{page}" for root in ("", "zh/") for page in ("index.html", "exercises/index.html")}
OFTEN = ("course.html", "notebooks/04_attention.html", "zh/notebooks/04_attention.html")
weekly = pytest.mark.weekly
EACH_PAGE = [
    pytest.param(page, marks=[weekly] * (page not in OFTEN)) for page in PAGES if page not in ALONE
]
HEADINGS = "main h1, main h2, main h3, main h4, main h5, main h6"
# For each fault: a selector, and the condition that makes a selected element faulty.
FAULTS = {
    "image not loaded": (".bd-main img", "!(e.complete && e.naturalWidth)"),
    "image without alt text": (".bd-main img", "!e.alt.trim()"),
    "table without a header": (".bd-main table", "!e.querySelector('th')"),
    "code cut off": (".cell_input pre", "e.scrollWidth > e.clientWidth"),
    "broken equation": ("mjx-merror", "true"),
    "silent equation": ("mjx-container:not(:has(mjx-assistive-mml))", "true"),
    "equation not typeset": (".math:not(:has(mjx-container svg))", "true"),
    "page too wide": ("html", "e.scrollWidth > e.clientWidth"),
}
# Inline equations that are scaled to less than 0.8 of their natural size.
SHRUNK = """all => all.filter(e => e.clientWidth < 0.8 * e.viewBox.baseVal.width / 1000
  * parseFloat(getComputedStyle(e).fontSize)).map(e => e.parentElement.textContent)"""


@pytest.fixture(scope="module")
def site(serve):
    return serve(written("book"))


def opened(tab, address, theme="light"):
    """Open a page in a colour theme, and wait until its equations are typeset."""
    tab.emulate_media(color_scheme=theme)
    tab.goto(address)
    tab.add_style_tag(content="* { transition: none !important }")  # colours would fade
    tab.evaluate("window.MathJax ? MathJax.startup.promise.then(() => true) : true")


def test_book_has_a_page_for_every_notebook_document_and_module():
    notebooks = {f"{path.relative_to(ROOT).with_suffix('')}.html" for path in pages(ROOT)}
    docs = {f"docs/{path.stem}.html" for path in (ROOT / "docs").glob("*.md")}
    modules = {f"reference/{step.stem}.html" for step in MODULES}
    others = {"course.html", "CONTRIBUTING.html", "search.html"} | ALONE
    assert modules and notebooks | docs | modules | others <= set(PAGES)


@pytest.mark.parametrize("page", EACH_PAGE)
def test_page_is_complete_accessible_and_fits_a_phone(tab, site, page):
    opened(tab, f"{site}/{page}")
    visible = "all => all.filter(e => e.offsetParent).map(e => +e.tagName[1])"
    levels = tab.eval_on_selector_all(HEADINGS, visible)
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for fault, (selector, condition) in FAULTS.items():
        faulty = f"all => all.filter(e => {condition}).map(e => e.outerHTML.slice(0, 200))"
        assert tab.eval_on_selector_all(selector, faulty) == [], fault
    theme = "document.documentElement.dataset.theme"
    assert tab.evaluate(theme) == "light" and grave(tab) == []
    tab.set_viewport_size(PHONE)
    assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert tab.eval_on_selector_all(".math mjx-container > svg", SHRUNK) == []
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function(f"{theme} === 'dark'")
    assert grave(tab, "color-contrast", "link-in-text-block") == []


# Search.


def searched(tab, words):
    """Search for words; return the links of the results."""
    tab.locator(".search-button__button:visible").first.click()
    field = tab.locator('input[name="q"]:visible').first
    field.fill(words)
    field.press("Enter")
    tab.locator("#search-results ul.search li a").first.wait_for()
    # The number of results appears after the last result.
    expect(tab.locator("#search-summary, .search-summary")).to_contain_text("found")
    return tab.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")


def test_search_lists_lessons_first_and_shows_a_sentence(tab, site):
    opened(tab, f"{site}/course.html")
    links = searched(tab, "mask")
    assert len(links) > 8 and all("/notebooks/" in link for link in links[:8])
    expect(tab.locator("#search-results .context").nth(2)).to_be_visible()
    for text in tab.locator("#search-results .context").all_inner_texts():
        assert "System Settings" not in text and "\\" not in text and len(text) <= 245


@weekly
@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("equal scores share", "05_masks"),  # these words also occur separately, further up
        ("even a perfect answer has a loss", "mistakes"),
    ],
)
def test_search_result_scrolls_to_the_match(tab, site, words, page):
    opened(tab, f"{site}/course.html")
    searched(tab, words)
    tab.locator(f'#search-results li a[href*="{page}"]').first.click()
    tab.wait_for_url(f"**/{page}.html*")
    expect(tab.locator(".found")).to_be_in_viewport()
    assert words in tab.inner_text(".found").lower()
    assert tab.evaluate("scrollY") > 720
    tab.goto(f"{site}/notebooks/04_attention.html")  # opened without a search
    tab.wait_for_load_state()
    expect(tab.locator(".found")).to_have_count(0)
    assert tab.evaluate("scrollY") == 0


# Other languages.


TRANSLATED = ["notebooks/04_attention.html"] + [
    pytest.param(f"{page}.html", marks=weekly) for page in ("index", "search", "exercises/index")
]


@pytest.mark.parametrize("page", TRANSLATED)
def test_language_switch_leads_to_the_chinese_page_and_back(tab, site, page):
    tab.goto(f"{site}/{page}")
    for name, root, tag in (("中文", "zh/", "zh"), ("English", "", "en")):
        switch = tab.get_by_role("link", name=name, exact=True)
        assert switch.get_attribute("hreflang") == switch.get_attribute("lang")
        switch.press("Enter")
        tab.wait_for_url(re.compile(rf"^{site}/{root}{page}"))
        assert tab.locator("html").get_attribute("lang").startswith(tag)
    tab.goto(f"{site}/zh/notebooks/04_attention.html")
    assert tab.locator("html").get_attribute("lang") == "zh-CN"


@weekly
def test_page_without_a_translation_leads_to_the_chinese_course_and_is_linked_there(tab, site):
    tab.goto(f"{site}/notebooks/workshop/04_attention.html")
    tab.get_by_role("link", name="中文").click()
    tab.wait_for_url(f"{site}/zh/course.html")
    tab.goto(f"{site}/zh/notebooks/04_attention.html")
    tab.locator('main a[hreflang="en"][href*="/workshop/"]').first.click()
    tab.wait_for_url(f"{site}/notebooks/workshop/04_attention.html")


@pytest.mark.parametrize(
    ("words", "first"), [("注意力", "04_attention"), ("多头注意力的掩码", "05_masks")]
)
def test_chinese_search_finds_the_words_of_a_query(tab, site, words, first):
    tab.goto(f"{site}/zh/search.html?q={words}")
    results = tab.locator("#search-results li a")
    results.first.wait_for()
    assert f"/zh/notebooks/{first}.html" in results.first.evaluate("link => link.href")


@weekly
def test_verdict_on_the_chinese_page_of_exercises_is_in_chinese(tab, site):
    tab.goto(f"{site}/zh/exercises/index.html#01-projected")
    tab.locator("body[data-python=ready]").wait_for(timeout=60_000)
    tab.locator(".cm-content").press("Control+A")
    tab.keyboard.insert_text("three_features = [1, 2, 3]")
    tab.keyboard.press("Control+Enter")
    expect(tab.locator("#verdict")).to_contain_text("✗ 01-projected：", timeout=30_000)
    tab.get_by_role("link", name="English").press("Enter")
    tab.wait_for_url(f"{site}/exercises/index.html#01-projected")


def test_book_without_a_translated_notebook_names_the_command_that_builds_it(monkeypatch, tmp_path):
    monkeypatch.setattr(write_book.write_exercises_page, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"README.zh.md is missing: run make zh"):
        write_book.write(tmp_path / "book")
    assert messages.current() == "en"


# Without a server.


@weekly
def test_search_works_from_a_disk(browser):
    # Not in `tab`: the browser blocks the excerpts of the results, and logs an error.
    page = browser.new_page()
    page.goto((BOOK / "course.html").as_uri())
    assert any("05_masks" in link for link in searched(page, "fully masked row"))
    page.close()


@weekly
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_reader_chooses_light_or_dark(tab, site, theme):
    other = {"light": "dark", "dark": "light"}[theme]
    opened(tab, f"{site}/notebooks/04_attention.html", other)
    background = "getComputedStyle(document.body).backgroundColor"
    before = tab.evaluate(background)
    tab.locator("button.theme-switch-button:visible").first.click()
    tab.locator(
        f'[data-mode="{theme}"]:visible, [data-bs-theme-value="{theme}"]:visible'
    ).first.click()
    assert tab.evaluate("document.documentElement.dataset.theme") == theme
    assert tab.evaluate(background) != before
    # A figure has the brightness of the page, and text of the opposite brightness.
    figure = tab.locator(".cell_output img").first
    dots = imread(io.BytesIO(figure.screenshot()))[..., :3].mean(-1)
    (corner, *_), most = dots[0], np.median(dots)
    assert (corner > 0.9, most > 0.9, dots.min() < 0.2, dots.max() > 0.8) == (
        theme == "light", theme == "light", True, True,
    )  # fmt: skip
    tab.goto(f"{site}/notebooks/05_masks.html")
    assert tab.evaluate("document.documentElement.dataset.theme") == theme


# The live model.


def test_live_page_is_the_first_page_without_frame_and_sidebar(tab, site):
    tab.goto(site)
    assert tab.locator("iframe, nav").count() == 0
    expect(tab.locator("#stage .teach")).to_be_in_viewport(ratio=1)
    tab.locator("#src .n").first.click()
    assert tab.evaluate("scrollY") == 0
    tab.keyboard.press("ArrowUp")
    expect(tab).to_have_url(re.compile("#w=6:0.8&at="))
    loss = tab.evaluate("twelve.loss()")
    tab.reload()
    tab.wait_for_function("window.twelve")
    assert tab.evaluate("twelve.loss()") == loss
    tab.locator("#src .n[aria-pressed]").nth(1).click()  # masks fish
    tab.locator("#dare-hide a").click()
    tab.wait_for_url("**/notebooks/05_masks.html")
    tab.locator("a.logo:visible").first.click()
    tab.wait_for_url("**/index.html")
    tab.locator("#course").click()
    tab.wait_for_url("**/notebooks/00_start_here.html")


@weekly
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_live_page_and_live_parts_have_the_theme_that_the_reader_chose(tab, site, theme):
    other = {"light": "dark", "dark": "light"}[theme]
    opened(tab, f"{site}/notebooks/04_attention.html", other)
    tab.evaluate("theme => localStorage.setItem('theme', theme)", theme)
    tab.evaluate("theme => localStorage.setItem('mode', theme)", theme)
    tab.reload()
    frame = tab.locator("iframe.live")
    frame.scroll_into_view_if_needed()
    inside = tab.frame_locator("iframe.live").locator("html")
    expect(inside).to_have_attribute("data-theme", theme)
    # The iframe is transparent: its corner has the colour of the surrounding page.
    corner = imread(io.BytesIO(frame.screenshot()))[1, 1, :3]
    page = imread(io.BytesIO(tab.locator("article h1").first.screenshot()))[0, 0, :3]
    assert corner.tolist() == page.tolist()
    tab.goto(f"{site}/index.html")
    assert tab.locator("html").get_attribute("data-theme") == theme


@weekly
@pytest.mark.parametrize("name", ["04_attention", "05_masks", "08_residual"])
def test_part_of_the_live_model_is_not_cut_off_on_a_phone(tab, site, name):
    tab.set_viewport_size(PHONE)
    opened(tab, f"{site}/notebooks/{name}.html")
    tab.locator("iframe.live").scroll_into_view_if_needed()
    inside = tab.frame_locator("iframe.live").locator("body")
    expect(inside).to_have_attribute("data-ready", "true")
    bottom = inside.evaluate("body => body.getBoundingClientRect().bottom")
    assert 500 < bottom <= tab.locator("iframe.live").evaluate("e => e.clientHeight")


# Layout.


def test_lesson_has_a_large_question_lines_of_70_characters_and_folded_drawing_code(tab, site):
    tab.set_viewport_size({"width": 1440, "height": 900})
    opened(tab, f"{site}/notebooks/04_attention.html")
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    title, question = tab.locator("article h1"), tab.locator("article h2").first
    assert question.inner_text().startswith(STEPS[4].question)
    assert question.evaluate(size) > 2 * title.evaluate(size)
    # The last line of a paragraph may be short.
    measure = """all => all.map(e =>
      [e.textContent.length, e.clientHeight / parseFloat(getComputedStyle(e).lineHeight)])"""
    lengths = tab.eval_on_selector_all("section > p:not(:has(.math, code))", measure)
    long = [(length, round(lines)) for length, lines in lengths if round(lines) > 2]
    assert len(long) > 5
    assert all(50 * (lines - 1) < length < 75 * lines for length, lines in long)
    fold = tab.locator(".cell", has_text="How this figure is made")
    expect(fold.locator("img")).to_be_visible()
    code = fold.locator(".cell_input")
    expect(code).to_be_hidden()
    fold.locator("summary").first.click()
    expect(code).to_contain_text("draw.")
    expect(tab.locator("#pst-back-to-top")).to_have_count(0)


@weekly
@pytest.mark.parametrize(("width", "file"), [(1280, "data:"), (390, "walk_narrow.svg")])
def test_phone_shows_the_narrow_walk(tab, site, width, file):
    tab.set_viewport_size({"width": width, "height": 844})
    opened(tab, f"{site}/notebooks/00_start_here.html")
    picture = tab.locator("picture img")
    assert file in picture.evaluate("e => e.currentSrc")
    box = picture.bounding_box()
    assert box["height"] > 400 and 0 < box["x"] and box["x"] + box["width"] < width


@weekly
def test_printed_columns_stay_aligned_on_a_phone(tab, site):
    tab.set_viewport_size(PHONE)
    opened(tab, f"{site}/notebooks/16_rotary_positions.html")
    printed = tab.locator(".cell_output pre", has_text="most frequent at 0")
    text = printed.first.inner_text().strip()
    height = """e => {
      const { lineHeight, paddingTop, paddingBottom } = getComputedStyle(e);
      return (e.clientHeight - parseFloat(paddingTop) - parseFloat(paddingBottom))
        / parseFloat(lineHeight);
    }"""
    assert round(printed.first.evaluate(height)) == len(text.splitlines()) > 4
    assert printed.first.evaluate("e => e.scrollWidth > e.clientWidth && e.tabIndex === 0")


@weekly
def test_card_of_a_lesson_has_a_figure_and_leads_to_the_lesson(tab, site):
    opened(tab, f"{site}/course.html")
    links = "all => all.map((link) => link.getAttribute('href'))"
    targets = [step.notebook.replace(".ipynb", ".html") for step in STEPS]
    assert tab.eval_on_selector_all(".lessons a", links) == targets
    assert tab.locator(".lessons img").count() >= 20
    # Three cards are side by side, wider together than a column of text.
    rows = "all => all.slice(4, 7).map(e => e.getBoundingClientRect().top)"
    assert len(set(tab.eval_on_selector_all(".lessons li", rows))) == 1
    picture = tab.locator(".lessons img").nth(4)
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    tab.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.wait_for_url("**/04_attention.html")
    tab.go_back()
    tab.locator(".lessons a").nth(5).focus()
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/05_masks.html")


# The files, without a browser.


def neighbour(page: Path, side: str) -> Path:
    """Return the page that the link "next" or "previous" leads to."""
    (target,) = re.findall(rf'<a class="{side}"\s+href="([^"]+)"', page.read_text("utf-8"))
    return (page.parent / target).resolve()


def test_next_and_previous_links_follow_the_reading_order():
    page = BOOK / "course.html"
    for stem in STEMS:
        page = neighbour(page, "right-next")
        assert page.stem == stem
    for stem in STEMS[-2::-1]:
        page = neighbour(page, "left-prev")
        assert page.stem == stem


def test_lesson_links_to_its_module_and_downloads_its_notebook():
    for step in STEPS:
        page = BOOK / step.notebook.replace(".ipynb", ".html")
        links = map(unquote, re.findall(r'<a\b[^>]* href="([^"]+)"', page.read_text("utf-8")))
        links = list(links)
        if step.module:
            assert any(link.endswith(f"reference/{step.stem}.html") for link in links)
        downloads = [page.parent / link for link in links if "_downloads/" in link]
        (notebook,) = [path for path in downloads if path.name == Path(step.notebook).name]
        assert notebook.read_bytes() == (ROOT / step.notebook).read_bytes()


def test_reference_describes_every_public_name_with_readable_annotations():
    for step in MODULES:
        page = (BOOK / "reference" / f"{step.stem}.html").read_text(encoding="utf-8")
        signatures = [
            html.unescape(re.sub(r"<[^>]+>", "", signature))
            for signature in re.findall(r'<dt class="sig .*?</dt>', page, re.DOTALL)
        ]
        assert not [signature for signature in signatures if "jaxtyping." in signature]
        has_shapes = step.stem != "pretrained"  # this module reads files and takes no tensors
        assert any("Tensor, '" in signature for signature in signatures) == has_shapes
        source = (ROOT / step.source).read_text()
        for name in re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", source, re.M):
            assert any(name in signature for signature in signatures), f"{name} is not described"


# What tools/write_book.py passes to Sphinx.


@pytest.fixture(scope="module")
def staged():
    """Return the pages of the book and the pages of the PDF."""
    return [dict(write_book.pages(ROOT, bound=bound)) for bound in (False, True)]


def test_output_that_a_reader_predicts_is_folded(staged):
    for name in ("notebooks/04_attention.ipynb", "notebooks/workshop/04_attention.ipynb"):
        own = code_cells(nbformat.read(ROOT / name, as_version=4))
        staged_cells = code_cells(nbformat.reads(staged[0][name], as_version=4))
        folded = {cell.id for cell in own if cell.metadata.get("jupyter", {}).get("outputs_hidden")}
        assert folded
        hidden = [cell for cell in staged_cells if "hide-output" in cell.metadata.get("tags", [])]
        assert {cell.id for cell in hidden} == folded
        assert {cell.metadata["mystnb"]["code_prompt_show"] for cell in hidden} == {
            "What it prints"
        }


def test_code_that_only_draws_is_folded(staged):
    assert write_book.only_draws("run = model.trace(x)\ndraw.plan(run, title='A plan')")
    for code in ("x.trace(y)", "draw.plan(run)\nprint(1)", "draw.attention(query.softmax(-1))"):
        assert not write_book.only_draws(code)
    cells = code_cells(nbformat.reads(staged[0]["notebooks/04_attention.ipynb"], as_version=4))
    prompts = {cell.id: cell.metadata.get("mystnb", {}).get("code_prompt_show") for cell in cells}
    folded = [id for id, prompt in prompts.items() if prompt == "How this figure is made"]
    assert folded == ["04-heads"]


def test_parts_of_the_book_and_of_the_pdf_have_their_order(staged):
    parts = [["The course", "To play with", "Workshops", "By hand"],
             ["The lessons", "The workshops", "By hand"]]  # fmt: skip
    for written_pages, expected in zip(staged, parts, strict=True):
        captions = re.findall(r":caption: (.+)\n:hidden:\n\n\S+", written_pages["course.md"])
        assert captions[: len(expected)] == expected


def test_home_page_is_the_readme_with_cards_and_without_the_project_tree(staged):
    site_pages, bound = staged
    home, overview = site_pages["course.md"], site_pages["overview.md"]
    order = ["# ", '<a href="index.html"', "## ", "04 Attention", "```sh"]
    positions = [home.index(words) for words in order]
    assert positions == sorted(positions)
    assert not re.search(r"\.gif|^\| 04", home, re.M)
    assert overview.startswith("# Overview\n\n## ")
    assert "## The tree" not in home + overview + bound["course.md"]
    assert "overview.md" not in bound and ".gif" not in bound["course.md"]


def test_link_to_a_missing_file_is_an_error(tmp_path):
    for folder in ("docs", "notebooks"):
        (tmp_path / folder).mkdir()
    (tmp_path / "README.md").write_text("# A\n\n[b](docs/b.md)\n")
    with pytest.raises(ValueError, match=r"README.md: a link leads to docs/b.md"):
        list(write_book.pages(tmp_path))
