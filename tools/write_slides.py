"""Write a deck of slides for each lesson with nbconvert's reveal.js exporter.

Usage: python -m tools.write_slides [FOLDER]

FOLDER is build/slides by default. The decks load only files inside FOLDER, so they also work
without a server. Workshops have no slides.

The author chooses a slide type for every cell, in JupyterLab under Property Inspector:

Markdown, `slide`: a `##` heading opens a slide, and so does the last paragraph of a cell with the
    tag `predict`, whose answer then comes as a step. Equations, tables, lists and fenced text are
    shown. A paragraph becomes speaker's notes; the paragraph before something that is shown is
    shown above it, cut to its first sentences. `skip` leaves the cell out.
Code: `slide` shows the code and its output, `subslide` the output alone, each on a new slide;
    `fragment` shows the output on the slide before, as a step. A figure is shown without its code.
    `notes` is spoken, and `skip` leaves the cell out. An answer to an exercise must be skipped.
"""

import html
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

from tools.command import run
from tools.write_solutions import apart
from twelve_lab.course import STEPS, Step
from twelve_lab.draw.drawing import Picture, stored

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
MODULES = ROOT / "node_modules"
SLIDES = Path("build/slides")
ASSETS = {
    "reset.css": "reveal.js/dist/reset.css",
    "dist/reveal.css": "reveal.js/dist/reveal.css",
    "dist/theme/white.css": "reveal.js/dist/theme/white.css",
    "reveal.js": "reveal.js/dist/reveal.js",
    "notes.js": "reveal.js/dist/plugin/notes.js",
    "mathjax.js": "mathjax/es5/tex-svg-full.js",
}
TYPES = ("slide", "subslide", "fragment", "notes", "skip")
BLOCK = re.compile(r"^```[^`]*```$|^\$\$[^$]*\$\$$|(?:^.*\S.*\n?)+", re.M)
SHOWN = re.compile(r"```|\$\$|\||- |\d+\. ")
HINTS = re.compile(r"<details>.*?</details>", re.S)
SENTENCE_END = re.compile(r"(?<=[.?!:])\s+(?=[\"*A-Z])")
LIVE = '<iframe class="live"'
# Links in code stay as they are.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\[(?P<text>[^\]\n]+)\]\((?P<target>[^)\s]+)\)", re.S)
MAX_WORDS = 120  # characters of a paragraph to show, unless its first sentence is longer


@dataclass
class Slide:
    """A slide: heading, cells to look at, and speaker's notes as Markdown."""

    section: str
    shown: list[NotebookNode] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    question: str = ""
    led: int = 0  # number of notes before the cell that is shown last

    @property
    def heading(self) -> str:
        """The heading as Markdown; a question has its section's heading above it."""
        if self.question:
            return f'<p class="kicker">{self.section}</p>\n\n## {self.question}'
        return f"## {self.section}"

    def cells(self) -> list[NotebookNode]:
        """Return the slide as notebook cells with slide types."""
        shown = self.shown or [_markdown("\n\n".join(self.notes))]
        notes = "\n\n".join(self.notes) or shown[-1].metadata.get("alt", self.heading)
        return [_markdown(self.heading, "slide"), *shown, _markdown(notes, "notes")]


def slide_type(cell: NotebookNode) -> str:
    """Return the slide type of a cell.

    Raises:
        ValueError: If the type is unknown, or if an answer to an exercise would be shown.
    """
    chosen = cell.metadata.get("slideshow", {}).get("slide_type")
    if chosen not in TYPES:
        raise ValueError(f"cell {cell.id}: slide type must be one of {TYPES}, got {chosen!r}")
    if cell.metadata.get("nbgrader", {}).get("solution") and chosen != "skip":
        raise ValueError(f"cell {cell.id}: the slide type of an answer must be skip, got {chosen}")
    return chosen


def cut(notebook: NotebookNode) -> list[Slide]:
    """Split a lesson into slides; the first slide contains the cells before the first heading.

    Raises:
        ValueError: If a slide type is wrong or a figure has no alt text.
    """
    deck = [Slide("")]
    for cell in notebook.cells:
        chosen = slide_type(cell)
        if chosen == "skip":
            continue
        if cell.cell_type == "markdown":
            _cut_markdown(deck, cell.source, asks="predict" in cell.metadata.get("tags", []))
        else:
            _cut_code(deck, cell, chosen)
    return deck


def _cut_markdown(deck: list[Slide], source: str, *, asks: bool) -> None:
    blocks = [linked(match[0].strip()) for match in BLOCK.finditer(HINTS.sub("", source))]
    for place, block in enumerate(blocks, 1):
        if block.startswith("##"):
            if len(deck) > 1 and not (deck[-1].shown or deck[-1].notes):
                deck.pop()  # a heading directly below another heading replaces its slide
            deck.append(Slide(block.lstrip("# ")))
        elif asks and place == len(blocks):
            section = deck[-1].section
            # A heading without visible content becomes the line above the question.
            notes = deck.pop().notes if not deck[-1].shown else []
            deck.append(Slide(section, notes=notes, question=block))
        elif not SHOWN.match(block):
            deck[-1].notes.append(block)
        elif len(deck) > 1:
            # An equation stays with the paragraph or list before it.
            before = deck[-1].shown[-1:]
            joins = block.startswith("$$") and before and before[0].cell_type == "markdown"
            _show(deck, [_markdown(block)], opens=not joins)


def _cut_code(deck: list[Slide], cell: NotebookNode, chosen: str) -> None:
    outputs = [output for output in cell.outputs if not _html(output).startswith("<details>")]
    live = [output for output in outputs if LIVE in _html(output)]
    outputs = [output for output in outputs if output not in live]
    figures = [_figure(output, cell.id) for output in outputs if stored(output.get("data", {}))]
    printed = [f"```\n{output.text}\n```" for output in outputs if "text" in output]
    if chosen == "notes":
        deck[-1].notes += printed
        return
    if figures:
        _show(deck, figures, opens=chosen != "fragment")
        deck[-1].notes += printed
    elif outputs or chosen == "slide":
        source = re.sub(r"\n{3,}", "\n\n", cell.source)  # blank lines waste space on a slide
        shown = new_code_cell(source, outputs=outputs)
        shown.metadata.transient = {"remove_source": chosen != "slide"}
        _show(deck, [shown], opens=chosen != "fragment")
    if live:
        title = re.search(r' title="([^"]+)"', _html(live[0]))[1]
        part = new_code_cell(outputs=live, metadata={"transient": {"remove_source": True}})
        deck.append(Slide(title, [part], [f"{title}: change a number and see what follows."]))


def _show(deck: list[Slide], cells: list[NotebookNode], *, opens: bool) -> None:
    """Add cells to the current slide, or to a new slide with the same heading."""
    slide = deck[-1]
    lead = slide.notes[-1] if len(slide.notes) > slide.led else ""
    if opens and slide.shown:
        slide = Slide(slide.section, notes=[slide.notes.pop()] if lead else [])
        deck.append(slide)
    step = not opens or slide.question
    slide.led = len(slide.notes)
    if lead and not slide.shown and not slide.question:
        slide.shown.append(_markdown(f'<div class="words">\n\n{shortened(lead)}\n\n</div>'))
    for cell in cells:
        cell.metadata.slideshow = {"slide_type": "fragment" if step and slide.shown else "-"}
    slide.shown += cells


def shortened(paragraph: str) -> str:
    """Return the last sentence of a paragraph that ends in a colon, otherwise the first ones."""
    first, *others = SENTENCE_END.split(paragraph)
    if paragraph.endswith(":"):
        return others[-1] if others else first
    for sentence in others:
        if len(first) + len(sentence) >= MAX_WORDS:
            break
        first += f" {sentence}"
    return first


def linked(text: str) -> str:
    """Point links between lessons to their decks, and replace all other links with their text."""

    def replace(match: re.Match[str]) -> str:
        if match["target"] is None:
            return match[0]
        lesson = re.fullmatch(r"(\w+)\.ipynb(?:#.*)?", match["target"])
        return f"[{match['text']}]({lesson[1]}.html)" if lesson else match["text"]

    return LINK.sub(replace, text)


def deck(notebook: NotebookNode, place: int) -> NotebookNode:
    """Return the notebook of a deck: title, slides, and a link to the next deck.

    Args:
        notebook: The lesson.
        place: Position of its step in the course.
    """
    step = STEPS[place]
    title, opening, *slides = cut(notebook)
    title.section = _name(step)
    # The heading of the opening slide is the question; its paragraphs become speaker's notes.
    title.notes += opening.notes
    title.shown = [_markdown(f"{step.question}\n\n`{step.contract}`")]
    if figure := central_figure(notebook):
        image = f'<img src="{figure.source}" alt="">'  # a later slide describes it
        title.shown.append(_markdown(f'<div class="cover">{image}</div>'))
    last = Slide("The end of the course")
    if place + 1 < len(STEPS):
        after = STEPS[place + 1]
        last = Slide(f"Next: {_link(after)}", notes=[after.question])
    if place:
        last.notes.append(f"Before: {_link(STEPS[place - 1])}")
    last.notes.append("[All decks](index.html)")
    cells = [cell for slide in (title, *slides, last) for cell in slide.cells()]
    cells[0].source = f"# {_name(step)}"
    return nbformat.v4.new_notebook(cells=cells, metadata={"title": _name(step)})


def central_figure(notebook: NotebookNode) -> Picture | None:
    """Return the figure of a lesson's main idea, else the first figure, or None.

    Args:
        notebook: The lesson, with outputs.
    """
    cells = sorted(notebook.cells, key=lambda cell: "idea" not in cell.metadata.get("tags", []))
    outputs = (output for cell in cells for output in cell.get("outputs", []))
    return next(filter(None, (stored(output.get("data", {})) for output in outputs)), None)


def write(folder: Path, modules: Path = MODULES) -> list[str]:
    """Write all decks with their assets, and return a message with the number of decks.

    Args:
        folder: Destination; existing content is removed.
        modules: Folder in which npm installed reveal.js and MathJax.

    Raises:
        ValueError: If a file is missing, or a cell cannot be shown with its slide type.
        OSError: If something cannot be read or written.
    """
    apart(folder, NOTEBOOKS)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} must be a folder, got a file")
    for path in ASSETS.values():
        if not (modules / path).is_file():
            raise ValueError(f"{modules / path} is missing: `make slides` installs it")
    exporter = SlidesExporter(
        template_name="slides", extra_template_basedirs=[str(ROOT)], reveal_url_prefix="assets",
        reveal_theme="white", exclude_input_prompt=True, exclude_output_prompt=True,
        exclude_anchor_links=True,
    )  # fmt: skip
    pages = {}
    for place, step in enumerate(STEPS):
        try:
            lesson = nbformat.read(ROOT / step.notebook, as_version=4)
            pages[_file(step)], _ = exporter.from_notebook_node(deck(lesson, place))
        except ValueError as error:
            raise ValueError(f"{Path(step.notebook).name}: {error}") from None
    pages["index.html"] = exporter.environment.get_template("list.html.j2").render(
        decks=[(_file(step), _name(step), step) for step in STEPS]
    )
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in ASSETS.items():
        (folder / "assets" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(modules / path, folder / "assets" / name)
    for name in ("slides.css", "slides.js"):
        shutil.copyfile(ROOT / "slides" / name, folder / "assets" / name)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [f"written: {len(STEPS)} decks, listed in {folder / 'index.html'}"]


def _markdown(source: str, chosen: str = "-", **metadata: str) -> NotebookNode:
    return new_markdown_cell(source, metadata={"slideshow": {"slide_type": chosen}, **metadata})


def _html(output: NotebookNode) -> str:
    return output.get("data", {}).get("text/html", "")


def _figure(output: NotebookNode, cell: str) -> NotebookNode:
    picture = stored(output.data)
    if not picture.alt:
        raise ValueError(f"cell {cell}: the figure has no alt text")
    image = f'<img src="{picture.source}" alt="{html.escape(picture.alt)}">'
    claim = f'<p class="claim">{html.escape(picture.title)}</p>'
    return _markdown(f'{claim}<div class="figure">{image}</div>', alt=picture.alt)


def _file(step: Step) -> str:
    return f"{Path(step.notebook).stem}.html"


def _name(step: Step) -> str:
    return f"{step.number} {step.title}"


def _link(step: Step) -> str:
    return f"[{_name(step)}]({_file(step)})"


if __name__ == "__main__":
    sys.exit(run(write, SLIDES, __doc__.splitlines()[0]))
