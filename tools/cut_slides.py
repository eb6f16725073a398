"""Cuts a notebook into slides, by the slide type of each cell.

An author chooses a slide type for every cell, in JupyterLab under Property Inspector. A slide holds
a heading, something to look at, and few words; all prose is spoken, and becomes the notes.

Markdown, `slide` or `subslide`:
    A heading opens a slide, and so does a paragraph that begins with **Predict**: the question is
    the heading of its slide, and what answers it comes as a step.
    Equations, tables, lists and fenced text are shown, one on a slide: the next one opens another
    under the same heading. Only an equation stays with what stands right before it.
    A paragraph is spoken. The one right before what is shown stands above it; where there is none,
    or at a question, the one right behind stands below. One that leads on, as it ends in no full
    stop, is shown in its last sentence, any other in its first; one in parentheses is not shown.
    Under a heading with nothing to look at the paragraphs are shown. Hints (`<details>`) are not.
    Words give way to a figure that needs their room: slides/slides.js sees to it.
Code:
    `slide` shows the code and its output, `subslide` the output alone, each on a slide of its own.
    Of a cell that draws, only the figure is shown, and what it prints is spoken. A live part of the
    page has the slide behind it to itself.
All cells:
    `fragment` stays on the slide before and comes as a step, all of the Markdown or the output of
    the code; `-` stays there too, at once, code and all. `notes` is spoken. `skip` is left out, but
    for what stands before a heading: that is about the code before. A cell that holds the answer to
    an exercise must be skipped.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

from twelve_lab.draw.drawing import stored

TYPES = ("slide", "subslide", "fragment", "notes", "skip", "-")
OPENING = ("slide", "subslide")
# How far a paragraph is shown, in letters of its source, unless its first sentence is longer.
WORDS = 200
# What a block begins with; all others are paragraphs.
KINDS = {"heading": r"#+ ", "question": r"\*\*Predict\b", "math": r"\$\$", "table": r"\|",
         "list": r"- |\d+\. ", "fence": r"```"}  # fmt: skip
LOOKS = ("math", "table", "list", "fence")
SENTENCE = re.compile(r"[.?!][\"*)]*\s+(?=[\"*`$A-Z\d-])")
# What may hold a full stop that ends nothing.
CLOSED = re.compile(r"`[^`\n]+`|\$[^$\n]+\$|\([^()\n]*\)")
# Code holds no links, whatever it looks like.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\[(?P<text>[^\]\n]+)\]\((?P<target>[^)\s]+)\)", re.S)


class Piece(NamedTuple):
    """One thing on a slide: its kind, as the style sheet calls it, and its HTML.

    Args:
        step: Whether it comes later than the slide.
        alt: What a figure shows, in words.
    """

    kind: str
    html: str
    step: bool = False
    alt: str = ""

    @property
    def told(self) -> str:
        """What is said of it where it cannot be seen, as HTML."""
        return f"<p>{html.escape(self.alt)}</p>" if self.alt else self.html


@dataclass
class Slide:
    """What stands on a slide, from top to bottom, and what is said to it, all of it as HTML.

    Args:
        kicker: The heading over a question, to which what is shown is the answer; else empty.
        cell: The id of the cell that opened it.
    """

    heading: str = ""
    kicker: str = ""
    cell: str = ""
    shown: list[Piece] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def looks(self) -> list[Piece]:
        """What is there to be looked at."""
        return [piece for piece in self.shown if piece.kind != "text"]

    @property
    def words(self) -> list[Piece]:
        """What is there to be read."""
        return [piece for piece in self.shown if piece.kind == "text"]


def slide_type(cell: NotebookNode) -> str:
    """Read the slide type of a cell.

    Raises:
        ValueError: If there is no such type, or an answer would be shown.
    """
    chosen = cell.metadata.get("slideshow", {}).get("slide_type", "-")
    if chosen not in TYPES:
        raise ValueError(f"cell {cell.id}: slide type {chosen!r} is not one of {', '.join(TYPES)}")
    if cell.metadata.get("nbgrader", {}).get("solution") and chosen != "skip":
        raise ValueError(f"cell {cell.id} is an answer, and {chosen!r} would show it: mark it skip")
    return chosen


def cut(notebook: NotebookNode) -> list[Slide]:
    """Cut a notebook into slides.

    Args:
        notebook: With outputs. What its first cell says is spoken to the title.

    Returns:
        The title slide, then the others.

    Raises:
        ValueError: If a slide type is unknown, an answer would be shown, or a figure has no text
            that says what it shows.
    """
    deck, before = _Deck(), "skip"
    for cell in notebook.cells:
        chosen = slide_type(cell)
        if cell.cell_type == "code":
            deck.code(cell, chosen)
        else:
            deck.markdown(cell, chosen, before)
        before = chosen if cell.cell_type == "code" else "skip"
    deck.settle()
    for slide, part in reversed(deck.live):
        place = next(n for n, other in enumerate(deck.slides) if other is slide)
        deck.slides.insert(place + 1, part)
    last: list[str] = []
    for slide in deck.slides:
        # A slide to which nothing is said is told itself, or else the one before.
        told = [one.told for one in slide.looks if one.kind in ("figure", "list")]
        slide.notes, last = slide.notes or told or last or [slide.heading], told
    return deck.slides


class _Deck:
    """The slides so far, the heading under which the next one opens, and the words before it."""

    def __init__(self) -> None:
        self.slides, self.section, self.lead = [Slide()], "", ""
        # The slide behind which a live part stands, and its own.
        self.live: list[tuple[Slide, Slide]] = []

    @property
    def empty(self) -> bool:
        """Whether the last slide is a heading with nothing to look at."""
        slide = self.slides[-1]
        return len(self.slides) > 1 and not slide.shown and not slide.kicker

    def settle(self) -> None:
        """Show the paragraphs of a slide that has nothing else to show."""
        if self.empty:
            self.slides[-1].shown = [Piece("text", note) for note in self.slides[-1].notes]

    def markdown(self, cell: NotebookNode, chosen: str, before: str) -> None:
        """Take a Markdown cell over, block by block; before is the type of the code before it."""
        parts, last = list(blocks(cell.source)), ""
        if chosen == "skip":
            kinds = [kind for kind, _ in parts]
            about = kinds.index("heading") if "heading" in kinds and before != "skip" else 0
            parts, chosen = parts[:about], "slide"
        for kind, block in parts:
            if kind == "heading":
                if block.startswith("##") and chosen != "notes":
                    self.settle()
                    self.section, self.lead = inline(block.lstrip("# ")), ""
                    self.slides.append(Slide(self.section, "", cell.id))
            elif kind == "text" or chosen == "notes":
                self.speak(block, chosen)
            elif kind == "question":
                notes = self.slides.pop().notes if self.empty else []
                self.slides.append(Slide(inline(block), self.section, cell.id, notes=notes))
            else:
                joins = kind == "math" and last in LOOKS
                piece = Piece(kind, markdown(block), step=chosen == "fragment")
                self.show([piece], cell.id, chosen in OPENING and not joins)
            last = kind

    def speak(self, block: str, chosen: str) -> None:
        """Say a paragraph, and show it if its type, or what stands without words, asks for it."""
        slide = self.slides[-1]
        slide.notes.append(markdown(block))
        self.lead = block if chosen in OPENING and not block.startswith("(") else ""
        bare = {piece.kind for piece in slide.looks} - {"list"} and not slide.words
        if chosen in ("fragment", "-"):
            slide.shown.append(Piece("text", markdown(block), step=chosen == "fragment"))
        elif bare and self.lead and not leads_on(block):
            words = markdown(shortened(block))
            slide.shown.append(Piece("text", words, step=bool(slide.kicker)))
            self.lead = ""

    def show(self, pieces: list[Piece], cell: str, opens: bool) -> None:
        """Put pieces below the words that lead to them, on a slide of their own if it opens one."""
        lead, self.lead = self.lead, ""
        if len(self.slides) == 1 or (opens and self.slides[-1].looks):
            notes = [self.slides[-1].notes.pop()] if lead else []
            self.slides.append(Slide(self.section, "", cell, notes=notes))
        slide = self.slides[-1]
        first = not slide.looks
        if lead and not slide.words and not slide.kicker:
            slide.shown.append(Piece("text", markdown(shortened(lead))))
        for piece in pieces:
            # What comes first under a heading needs no step.
            step = bool(slide.kicker) if first else piece.step
            slide.shown.append(piece._replace(step=step and piece.kind != "code"))

    def code(self, cell: NotebookNode, chosen: str) -> None:
        """Take a code cell over."""
        outputs = [] if chosen == "skip" else cell.outputs
        pieces = [piece for output in outputs if (piece := _shown(output, cell.id))]
        parts = [piece for piece in pieces if piece.kind == "live" and chosen != "notes"]
        pieces = [piece for piece in pieces if piece.kind != "live"]
        figures = [piece for piece in pieces if piece.kind == "figure"]
        shown = [] if chosen == "notes" else figures or pieces
        spoken = [piece.told for piece in pieces if piece not in shown]
        if chosen in ("notes", "skip"):
            self.lead = ""
        if chosen in ("slide", "-") and not figures:
            source = re.sub(r"\n{3,}", "\n\n", cell.source)
            shown = [Piece("code", Highlight2HTML(pygments_lexer="python")(source)), *shown]
        if shown:
            shown = [piece._replace(step=chosen == "fragment") for piece in shown]
            self.show(shown, cell.id, chosen in OPENING)
        self.slides[-1].notes += spoken
        for part in parts:
            title = re.search(r' title="([^"]+)"', part.html)[1]
            said = [f"<p>{title}: what the figure before shows, and can be changed.</p>"]
            self.live.append((self.slides[-1], Slide(title, "", cell.id, [part], said)))


def blocks(source: str) -> Iterator[tuple[str, str]]:
    """Cut Markdown into kinds and blocks, at its blank lines; hints are left out."""
    source = re.sub(r"<details>.*?</details>", "", source, flags=re.S)
    for found in re.finditer(r"^```[^`]*```$|^\$\$[^$]*\$\$$|(?:^.*\S.*\n?)+", source, re.M):
        block = found[0].strip()
        yield next((kind for kind, start in KINDS.items() if re.match(start, block)), "text"), block


def markdown(block: str) -> str:
    """Render Markdown as HTML, with links that lead to decks; other links become text."""

    def turn(found: re.Match[str]) -> str:
        if found["target"] is None:
            return found[0]
        deck = re.fullmatch(r"(\w+)\.ipynb(?:#.*)?", found["target"])
        return f"[{found['text']}]({deck[1]}.html)" if deck else found["text"]

    renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
    return MarkdownWithMath(renderer=renderer).render(LINK.sub(turn, block)).strip()


def inline(text: str) -> str:
    """Render a line of Markdown as HTML without a paragraph around it."""
    return markdown(text).removeprefix("<p>").removesuffix("</p>")


def leads_on(block: str) -> bool:
    """Tell whether a paragraph leads to what follows: it ends in no full stop."""
    return not re.search(r"[.?!][\"*)]*$", block)


def shortened(block: str) -> str:
    """Give the last sentence of a paragraph that leads on, else the first ones that stay short."""
    masked = CLOSED.sub(lambda found: "X" * len(found[0]), block)
    ends = [found.end() for found in SENTENCE.finditer(masked)]
    if leads_on(block):
        return block[ends[-1] :] if ends else block
    ends.append(len(block))
    return block[: max([end for end in ends if end <= WORDS] or ends[:1])].strip()


def _shown(output: NotebookNode, cell: str) -> Piece | None:
    """Render an output; gives none for what a page folds away, as a figure in words."""
    data = output.get("data", {})
    if picture := stored(data):
        if not picture.alt:
            raise ValueError(f"cell {cell}: the picture has no alt text")
        alt = html.escape(picture.alt)
        return Piece("figure", f'<img src="{picture.source}" alt="{alt}">', alt=picture.alt)
    page, text = data.get("text/html", ""), output.get("text") or data.get("text/plain", "")
    if live := re.search(r'<iframe class="live".*</iframe>', page, re.S):
        return Piece("live", live[0])
    if page.startswith("<details>") or not text.strip():
        return None
    written = f"<pre>{html.escape(text.rstrip())}</pre>"
    # An explanation begins with its text; the tables behind it are left out.
    page = written if page.startswith("<div><pre") else page
    return Piece("html", page) if page else Piece("printed", written)
