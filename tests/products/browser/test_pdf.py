"""The book as one file to print: cover, contents, chapters, answers, bookmarks, links and tags.

To print the whole book takes minutes, and happens once a week. What holds for every book is held by
one of four chapters too, which the same commands print.
"""

import re
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import nbformat
import pikepdf
import pytest

from tests.products.browser.conftest import ROOT
from tools import draw_cover, write_book, write_pdf
from twelve_lab import example
from twelve_lab.course import STEPS, workshops_of
from twelve_lab.draw.threads import STATIONS

# The width of what is printed, 170 mm, in the pixels of the page.
PAPER = round(170 / 25.4 * 96 / write_pdf.SCALE)
WEEKLY = pytest.mark.weekly
PAINTS = {"Tj", "TJ", "'", '"', "f", "F", "f*", "S", "s", "B", "B*", "b", "b*", "Do", "sh", "EI"}


class Printed(NamedTuple):
    """What stands on a page: in tags, as artifacts, and how much is neither or both."""

    text: list[str]
    artifacts: list[str]
    astray: int


# What the made-up chapters hold is what the real ones do: anchors, topics, code, equations, answers
# that are folded, and links to and fro.
ONE = """(one)=
# One

Words, and [the other](two.md#a-topic-of-two).

## A topic of one

$$ a^2 + b^2 = c^2 $$

```python
print(1)
```
"""
TWO = """# Two

Which is it?

<details><summary>Hint 1</summary>
<p>Look at <a href="#one">the first</a>.</p>
</details>
<details><summary>Hint 2</summary>
<p>Look again.</p>
</details>
<div class="cell"><details class="admonition hide above-input">
<summary><p class="collapsed">A solution</p><p class="expanded">Hide it</p></summary>
<p>It is the second.</p></details></div>

## A topic of two

<div class="cell">
<details class="admonition hide below-input">
<summary><p class="collapsed">What it prints</p><p class="expanded">Hide it</p></summary>
<p>Forty-two.</p></details></div>
<div class="live"><iframe srcdoc="Alive"></iframe></div>

| a | b |
|---|---|
| 1 | 2 |

## Another topic

### Again

### Again

Read [one](one.md) again, or [elsewhere](https://example.org).
"""
THREE = f"# Three\n\n{'Words on paper. ' * 1500}\n\n## A late topic\n\nThe end.\n"
FOUR = "# Four\n\nThe last.\n"
FEW = {"The lessons": ["docs/one", "docs/two"], "To look up": ["docs/three", "docs/four"]}
WHOLE = "the whole book"


def few(root, bound):
    """Give the pages of a book of four chapters, as tools/write_book.py gives the course's."""
    assert bound
    lists = f"{write_book._contents(FEW)}{write_book._chapters(FEW)}"
    yield "index.md", f"# Twelve Numbers\n\nWords.\n\n{lists}"
    for name, text in zip(("one", "two", "three", "four"), (ONE, TWO, THREE, FOUR), strict=True):
        yield f"docs/{name}.md", text


@pytest.fixture(scope="module", params=["four chapters", pytest.param(WHOLE, marks=WEEKLY)])
def pdf(request, browser, tmp_path_factory):
    file = ROOT / write_pdf.PDF
    if request.param == WHOLE:
        assert file.exists(), f"{file.name} is missing: run make pdf"
    else:
        folder = tmp_path_factory.mktemp("pdf")
        file = folder / "four.pdf"
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(write_book, "pages", few)
            patch.setattr(write_book, "downloads", lambda root: {})
            patch.setattr(write_pdf.browser, "launched", lambda: nullcontext(browser))
            write_pdf.write(file)
    with pikepdf.open(file) as opened:
        yield opened


@pytest.fixture(scope="module")
def bookmarks(pdf):
    """The bookmarks below the title of the book."""
    with pdf.open_outline() as outline:
        (book,) = outline.root
        assert book.title == "Twelve Numbers"
        return list(book.children)


@pytest.fixture(scope="module")
def parts(pdf, bookmarks, number):
    """The bookmarks of the parts, which hold the chapters."""
    names = [name for name in pdf.Root.Dests if re.fullmatch(r"/part-\d", name)]
    pages = {number(pdf.Root.Dests[name]) for name in names}
    found = [mark for mark in bookmarks if number(mark.destination) in pages]
    assert len(found) == len(names) > 1
    return found


@pytest.fixture(scope="module")
def chapters(bookmarks, parts):
    """The bookmarks of the topics, of each chapter and of the answers."""
    front = [mark.title for mark in bookmarks[:3]]
    assert front == ["How to read this book", "Contents", "Topics"]
    rest = [part.children if part in parts else [part] for part in bookmarks[2:]]
    return [chapter for group in rest for chapter in group]


@pytest.fixture(scope="module")
def number(pdf):
    """Number the page that a destination names, from 0."""
    places = {page.objgen: place for place, page in enumerate(pdf.pages)}
    return lambda destination: places[destination[0].objgen]


def letters(font) -> dict[bytes, str]:
    """Read which letter each code of a font stands for."""
    table = font.ToUnicode.read_bytes().decode()
    found = {}
    for block in re.findall(r"beginbfchar(.*?)endbfchar", table, re.DOTALL):
        for code, letter in re.findall(r"<(\w+)> <(\w+)>", block):
            found[bytes.fromhex(code)] = bytes.fromhex(letter).decode("utf-16-be")
    for block in re.findall(r"beginbfrange(.*?)endbfrange", table, re.DOTALL):
        for first, last, letter in re.findall(r"<(\w+)> <(\w+)> <(\w+)>", block):
            for step in range(int(last, 16) - int(first, 16) + 1):
                code = (int(first, 16) + step).to_bytes(2, "big")
                found[code] = chr(int(letter, 16) + step)
    return found


def read(page, fonts) -> Printed:
    """Read a page, one string for each run of letters."""
    text, artifacts, astray, marks, runs = [], [], 0, [], []
    for operands, operator in pikepdf.parse_content_stream(page):
        name = str(operator)
        if name in ("BMC", "BDC"):
            marks.append(str(operands[0]))
        elif name == "EMC":
            marks.pop()
        elif name == "Tf":
            font = page.Resources.Font[str(operands[0])]
            if font.objgen not in fonts:
                fonts[font.objgen] = letters(font)
            letter = fonts[font.objgen]
        elif name == "BT":
            runs = artifacts if "/Artifact" in marks else text
            runs.append("")
        elif name == "Tj":
            codes = bytes(operands[0])
            pairs = [codes[at : at + 2] for at in range(0, len(codes), 2)]
            runs[-1] += "".join(letter.get(pair, "?") for pair in pairs)
        if name in PAINTS and (not marks or ("/Artifact" in marks and len(marks) > 1)):
            astray += 1
    return Printed(text, [run for run in artifacts if run.strip()], astray)


@pytest.fixture(scope="module")
def printed(pdf):
    """Every page as it is read, from 0."""
    fonts = {}
    return [read(page, fonts) for page in pdf.pages]


@pytest.fixture(scope="module")
def contents(printed, chapters, parts, number):
    """The lines before the first part, as they are printed: titles with the pages they name.

    First the parts and the chapters, then the chapters with their topics.
    """
    brief, topics = [], []
    first = number(chapters[0].destination)
    for place in range(2, number(parts[0].destination)):
        lines = brief if place < first else topics
        title = []
        for run in printed[place].text:
            if re.fullmatch(r"\d+", run.strip()):
                lines.append((" ".join(title), int(run)))
                title = []
            elif run.strip():
                title.append(run.strip())
    return brief, topics


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_each_notebook_is_a_chapter_in_reading_order(chapters, parts):
    titles = [f"{step.number} {step.title[0].upper()}{step.title[1:]}" for step in STEPS]
    lessons, practice, reference = ([one.title for one in part.children] for part in parts)
    assert [title.casefold() for title in lessons] == [title.casefold() for title in titles]
    workshops = [nbformat.read(path, as_version=4).cells[0] for path in workshops_of(ROOT)]
    seconds = [title.source.splitlines()[0].removeprefix("# ") for title in workshops]
    assert practice == [*seconds, "Spot the bug"]
    assert {"Glossary", "Reference", "Troubleshooting"} <= set(reference)
    found = [chapter.title for chapter in chapters]
    assert len(found) == len(set(found))


def test_each_chapter_begins_on_a_page_of_its_own(chapters, number):
    starts = [number(chapter.destination) for chapter in chapters]
    assert starts[0] == 3
    assert all(before < after for before, after in pairwise(starts))


def test_no_page_is_blank(printed):
    assert [place for place, page in enumerate(printed, 1) if not page.text] == []


def test_the_contents_number_the_pages_on_which_parts_and_chapters_begin(
    contents, bookmarks, parts, printed, number
):
    brief, _ = contents
    marks = [
        one for mark in bookmarks[3:] for one in (mark, *(mark.children if mark in parts else []))
    ]
    assert len(brief) == len(marks)
    for mark, (line, page) in zip(marks, brief, strict=True):
        assert line.endswith(mark.title)
        assert mark.title in [run.strip() for run in printed[page - 1].text[:2]]
        assert page == number(mark.destination) + 1


def test_the_topics_stand_on_the_pages_that_the_contents_name(contents, printed):
    _, topics = contents
    pages = [page for _, page in topics]
    assert pages == sorted(pages)
    for title, page in topics:
        there = "".join(printed[page - 1].text)
        assert title.removeprefix("Topics ").replace(" ", "") in there.replace(" ", ""), page


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_hundreds_of_topics_are_listed_and_linked(pdf, contents):
    titles = {title for title, _ in contents[1]}
    assert len(titles) > 250
    assert {"05 Masks", "First try: the average", "Reference"} <= titles
    assert sum("/Dest" in link for page in pdf.pages for link in page.get("/Annots", [])) > 900


@pytest.mark.parametrize("pdf", ["four chapters"], indirect=True)
def test_the_headings_that_stand_once_are_topics(contents):
    _, topics = contents
    assert topics[:5] == [
        ("Topics One", 6), ("A topic of one", 6), ("Two", 7), ("A topic of two", 7),
        ("Another topic", 7),
    ]  # fmt: skip
    assert [title for title, _ in topics[5:]] == ["Three", "A late topic", "Four"]


def test_each_line_of_the_contents_leads_to_the_page_that_it_names(pdf, contents, number):
    brief, topics = contents
    shown = [page for _, page in brief + topics]
    front = pdf.pages[: shown[0] - 1]
    links = [str(link.Dest) for page in front for link in page.get("/Annots", [])]
    led = [number(pdf.Root.Dests[f"/{name.removeprefix('/')}"]) + 1 for name in links]
    assert led == shown


def test_each_page_names_its_chapter_and_its_number(printed, bookmarks, chapters, parts, number):
    heads = {number(mark.destination): mark.title for mark in (bookmarks[1], *chapters)}
    own = {number(part.destination) for part in parts}
    # The words over the threads of the cover are part of the picture; the guide has no number.
    assert "1" not in printed[0].artifacts
    assert printed[1].artifacts == []
    head = None
    for place in range(2, len(printed)):
        head = heads.get(place, head)
        asked = [] if place in own else [head, "Twelve Numbers"]
        # An arrow before a way to an answer is no word.
        told = [run for run in printed[place].artifacts if run.strip() != "→"]
        assert told == [*asked, str(place + 1)], f"page {place + 1}"


def test_every_font_is_embedded(pdf):
    fonts = {
        font.objgen: font for page in pdf.pages for font in page.Resources.get("/Font", {}).values()
    }
    told = [font.get("/DescendantFonts", [font])[0] for font in fonts.values()]
    assert told
    for font in told:
        inside = font.get("/FontDescriptor", {})
        assert font.Subtype == "/Type3" or {"/FontFile2", "/FontFile3"} & set(inside.keys())


@pytest.mark.parametrize("pdf", ["four chapters"], indirect=True)
def test_answers_stand_at_the_end_and_lead_to_and_fro(pdf, printed, chapters, number):
    asked, told = number(chapters[2].destination), number(chapters[-1].destination)
    assert chapters[-1].title == "Answers"
    question, answers = (" ".join(printed[place].text) for place in (asked, told))
    for hidden in ("Look at", "Look again", "It is the second", "Forty-two"):
        assert hidden not in question
        assert answers.count(hidden) == 1
    assert answers.index("Hint 2") < answers.index("It is the second") < answers.index("Forty-two")
    assert f"Hints and answer: page {told + 1}" in " ".join(question.split())
    assert f"What it prints: page {told + 1}" in " ".join(question.split())
    assert f"A topic of two , page {asked + 1}" in " ".join(answers.split())
    for here, there in ((asked, told), (told, asked)):
        links = [str(link.Dest) for link in pdf.pages[here].Annots if "/Dest" in link]
        reached = [number(pdf.Root.Dests[f"/{name.removeprefix('/')}"]) for name in links]
        assert reached.count(there) >= 2


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_no_chapter_holds_an_answer_or_a_tree_of_the_project(printed, chapters, number):
    answers = number(chapters[-1].destination)
    before, after = (" ".join(" ".join(page.text) for page in pages)
                     for pages in (printed[:answers], printed[answers:]))  # fmt: skip
    assert not re.search(r"Hint \d|is wrong ?:", before)
    assert len(re.findall(r"Hint \d", after)) > 200
    assert len(re.findall(r"is wrong ?:", after)) == 64
    assert "everything that teaches; imports the layers" not in before + after


@pytest.mark.parametrize("pdf", ["four chapters"], indirect=True)
def test_what_a_chapter_leaves_of_its_last_page_is_squared(printed, chapters, number):
    last = [number(chapters[place + 1].destination) - 1 for place in (1, 3)]
    assert last[0] > number(chapters[1].destination) - 1
    for page in (printed[number(chapters[1].destination)], printed[last[1]]):
        assert "Room for your own sums" in " ".join(page.text)


def test_nothing_is_live_on_paper(pdf, printed):
    assert "Alive" not in " ".join(" ".join(page.text) for page in printed)


def test_the_cover_is_drawn_from_the_values_of_a_run():
    run = example.trace(on="cpu")
    drawn = draw_cover.cover(run)
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', drawn)]
    assert len(dots) == 12 * 13
    # The first thread: the first number at each station.
    values = [run[name].value.flatten()[0].item() for name in STATIONS]
    assert dots[:13] == pytest.approx(
        [draw_cover.LEFT + draw_cover.UNIT * value for value in values], abs=0.01
    )
    assert draw_cover.cover(example.trace(on="cpu", scale_embedding=True)) != drawn


def test_all_that_is_printed_is_tagged_or_an_artifact(printed):
    assert [place for place, page in enumerate(printed, 1) if page.astray] == []


def test_no_heading_stands_alone_at_the_foot_of_a_page(printed, chapters, number):
    def below(items):
        for item in items:
            yield item
            yield from below(item.children)

    for heading in below(chapters):
        page = printed[number(heading.destination)]
        last = page.text[-1].strip()
        assert not (last and last == heading.title), heading.title


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_the_reference_takes_no_more_than_a_tenth_of_the_book(chapters, number, pdf):
    at = next(place for place, one in enumerate(chapters) if one.title == "Reference")
    length = number(chapters[at + 1].destination) - number(chapters[at].destination)
    assert length <= len(pdf.pages) / 10


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_the_bookmarks_of_a_notebook_are_its_headings(chapters):
    masks = next(chapter for chapter in chapters if chapter.title == "05 Masks")
    cells = nbformat.read(ROOT / "notebooks" / "05_masks.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert [section.title for section in masks.children] == re.findall(r"^## (.+)$", text, re.M)
    exercises = next(section for section in masks.children if section.title == "Exercises")
    assert [one.title for one in exercises.children] == re.findall(r"^### (.+)$", text, re.M)


def test_every_link_leads_into_the_file_or_to_an_address(pdf):
    names = set(pdf.Root.Dests.keys())
    links = [link for page in pdf.pages for link in page.get("/Annots", [])]
    inside = [str(link.Dest) for link in links if "/Dest" in link]
    outside = [str(link.A.URI) for link in links if "/A" in link]
    assert inside
    assert {f"/{name.removeprefix('/')}" for name in inside} <= names
    assert [address for address in outside if not address.startswith("https://")] == []


@WEEKLY
@pytest.mark.parametrize("pdf", [WHOLE], indirect=True)
def test_a_link_leads_into_the_chapter_that_it_names(pdf, chapters, number):
    starts = [number(chapter.destination) for chapter in chapters]
    checked = 0
    for place, step in enumerate(STEPS, 1):
        prefix = f"/notebooks-{Path(step.notebook).stem}-"
        for name, destination in pdf.Root.Dests.items():
            if name.startswith(prefix) and not re.search(r"-answer-\d+$", name):
                checked += 1
                # The last lesson is followed by the page of a part.
                assert starts[place] <= number(destination) < starts[place + 1], name
    assert checked > 150


def test_a_link_to_a_chapter_leads_to_its_first_page(pdf, chapters, number):
    # The anchors that Sphinx sets in front of a chapter end up on the page before it.
    assert [name for name in pdf.Root.Dests if name.startswith("/document-")] == []
    starts = {number(chapter.destination) for chapter in chapters[1:]}
    assert starts <= {number(destination) for destination in pdf.Root.Dests.values()}


def test_a_screen_reader_is_told_the_language_and_the_headings(pdf):
    assert str(pdf.Root.Lang) == "en"
    assert bool(pdf.Root.MarkInfo.Marked)
    assert str(pdf.docinfo.Title) == "Twelve Numbers"


@WEEKLY
def test_nothing_is_cut_at_the_edge_of_the_paper(browser):
    page = browser.new_page(viewport={"width": PAPER, "height": 1100})
    write_pdf.bind(page)
    cut = page.eval_on_selector_all(
        "main pre, main table, .contents a",
        "all => all.filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)"
        ".map(e => e.textContent.slice(0, 60))",
    )
    over = "(e) => e.firstElementChild.getBoundingClientRect().width > e.clientWidth + 1"
    equations = 'mjx-container[display="true"]'
    assert page.locator(equations).count() > 40
    too_wide = f"all => all.filter({over}).length"
    assert page.eval_on_selector_all(equations, too_wide) == 0
    page.close()
    assert cut == []


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path.name} is a folder, and a file is needed"):
        write_pdf.write(tmp_path)


def test_a_line_of_the_contents_that_leads_nowhere_is_an_error(pdf):
    with pytest.raises(ValueError, match="a line names nowhere, and no page holds it"):
        write_pdf.page_numbers(pdf, ["nowhere"])
