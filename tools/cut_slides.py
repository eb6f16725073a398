"""Cuts a notebook into slides, by the slide type of each cell and a few rules.

An author chooses a slide type for every cell, in JupyterLab under Property Inspector. The text of
a notebook is too long to be shown: most of it becomes the notes of the speaker.

In Markdown, for `slide` and `subslide` alike:
    A heading opens a slide, and so does a paragraph that begins with **Predict**: the question is
    the heading of its slide, and what answers it comes as a step.
    Equations, tables, lists and fenced text are shown, one to a slide. The next one opens another
    slide under the same heading.
    A paragraph is spoken. One that ends in a colon is spoken where the next thing is shown. One
    that begins in bold, as **Notice** does, carries the point: it is also shown, as a step, as far
    as its first sentences.
    A paragraph that begins in italics, as *The misconception.*, and all that follows it in its cell
    are spoken.
    What stands before the first heading or question comments on the code before, and a question is
    answered by the code after it: where that is skipped, so is the comment, or the question. So
    is a last sentence that ends in a colon.
    Nothing is said to a heading under which nothing is shown. Hints (`<details>`) are left out, and
    so is what a section of exercises says to all of them.
    The symbols of an equation stand with it where they are few: a table right behind it.
    A figure alone has its title to say what it shows. What else stands without words shows the
    words that led to it, or else those that follow; a table those that follow, or else those that
    led to it, unless they end in a colon; a question those that follow its answer. A list shows
    words that end in a colon. The same words stand on one slide only: on the next one what is left
    of them is the question or the colon in which they end.
    A sentence, or a line of a list or a table, that points elsewhere on the page, as (below), is
    spoken and not shown; so is a sentence about the figure where there is none.
    A slide to which nothing is said tells the alt text of its figure or reads its list; else it
    keeps the last words before it, once, and then tells its heading.

In code:
    `slide` opens a slide with the code and its output, `subslide` one with the output alone. They
    complete the slide before where it has only a heading. Of a cell that draws, only the figure is
    shown, and what it prints is spoken; of code that is too long to stand above its output, only
    the output. The explanation of a number is left out where there is something else to show;
    else its symbols are.

Elsewhere:
    `fragment` stays on the slide before and comes as a step: all of the Markdown, or the output of
    the code. What comes first under a heading that is no question needs no step.
    `-` stays on the slide before, shown at once. `notes` is spoken. `skip` is left out; its
    headings still name what follows. A cell that holds the answer to an exercise must be skipped.
"""

import ast
import html
import re
import struct
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, takewhile
from typing import NamedTuple

from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode

TYPES = ("slide", "subslide", "fragment", "notes", "skip", "-")
OPENING = ("slide", "subslide")
# How far a paragraph that carries the point is shown.
POINT = 200
# How long an equation may be, in letters of its source, before its parts stand on several lines.
EQUATION = 100
# How many lines of code and output one slide holds.
LINES = 18
# How far a stored picture, of 100 dots an inch, may be blown up.
ZOOM = 1.8
# How wide a figure may be for its height to stand beside words, and beside the heading alone.
BESIDE_WORDS, BESIDE_HEADING = 1.8, 1.5
# What a figure and the words beside it share, and how high it may be there; how wide the words are.
BESIDE, HIGH = 1182, 704
WORDS_WIDE = (276, 340)
# How many symbols stand with their equation.
SYMBOLS = 4
# What a block begins with; the first that fits.
KINDS = {
    "heading": r"#+ ",
    "predict": r"\*\*Predict\b",
    "point": r"\*\*",
    "aside": r"\*[^*]+(\*[.:]|[.:]\*)",
    "math": r"\$\$",
    "table": r"\|",
    "list": r"- |\d+\. ",
    "fence": r"```",
}
WORDS = ("point", "text")
LOOKS = ("math", "table", "list", "fence")
# A section whose first words are about working in the notebook.
EXERCISES = "Exercises"
# What points at a part of the page that may not be on the slide.
POINTING = re.compile(
    r"\b(first|second|third|last) cell\b|\(below\)|, below[.:]|\bBelow\b"
    r"|\b(as|figure|last) above\b|\babove as\b|\b(shown|question) at the top\b"
    r"|\bend of this section\b|^Step \d+\.$"
)
# What points at a figure, which may stand on another slide.
AT_FIGURE = re.compile(r"\b(the|both) (figures?|picture)\b")
SENTENCE = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][\"*])|(?<=[.?!]\*\*))\s+(?=[\"*A-Z\d])")
CLOSED = re.compile(r"`[^`\n]+`|\$[^$\n]+\$|\([^()\n]*\)")
# Code holds no links, whatever it looks like.
LINK = re.compile(r"```.*?```|`[^`\n]+`|\[(?P<text>[^\]\n]+)\]\((?P<target>[^)\s]+)\)", re.S)


class Piece(NamedTuple):
    """One thing on a slide.

    Args:
        kind: What it is, as the style sheet calls it.
        html: What it looks like.
        step: Whether it comes later than the slide.
        width: Of a figure, in dots.
        height: Of a figure, in dots.
        alt: What a figure shows, in words.
    """

    kind: str
    html: str
    step: bool = False
    width: int = 0
    height: int = 0
    alt: str = ""


@dataclass
class Slide:
    """What stands on a slide, and what is said to it.

    Args:
        heading: As HTML.
        kicker: The section that it stands in, as HTML; may be empty.
        cell: The id of the cell that opened it.
        question: Whether what follows is an answer.
        shown: From top to bottom.
        notes: Pieces of HTML.
        lead: The words that led to what is shown, as Markdown; may be empty.
        answer: The first words after what is shown, as Markdown; may be empty.
        place: Where these stand among what is shown.
    """

    heading: str
    kicker: str
    cell: str
    question: bool = False
    lead: str = ""
    answer: str = ""
    place: int = 0
    shown: list[Piece] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def looks(self) -> list[Piece]:
        """What is there to be looked at."""
        return [piece for piece in self.shown if piece.kind not in WORDS]

    @property
    def words(self) -> list[Piece]:
        """What is there to be read."""
        return [piece for piece in self.shown if piece.kind in WORDS]

    def caption(self, used: str) -> str:
        """Put words to what stands without any.

        Args:
            used: What stands on the slide before.

        Returns:
            The Markdown from which the words were taken; may be empty.
        """
        kinds = {piece.kind for piece in self.shown}
        told = kinds & {*WORDS} or kinds == {"figure"}
        if told or (kinds == {"list"} and not self.lead.endswith(":")):
            return ""
        lead = _leading(self.lead) if self.lead == used else self.lead
        first, second = (lead, True), (self.answer, False)
        if "table" in kinds and not lead.endswith(":"):
            first, second = second, first
        for words, above in [(self.answer, False)] if self.question else [first, second]:
            kept = words if above else words.removesuffix(_leading(words)).strip()
            if text := _caption(kept, "figure" in kinds):
                piece = Piece("text", markdown(text), step=self.question)
                self.shown.insert(0 if above else self.place, piece)
                return words
        return ""

    @property
    def halves(self) -> bool:
        """Whether a figure stands beside heading and words, where it can be larger than below."""
        if [piece.kind for piece in self.looks] != ["figure"]:
            return False
        [figure] = self.looks
        return figure.width / figure.height < (BESIDE_WORDS if self.words else BESIDE_HEADING)

    @property
    def words_width(self) -> int:
        """How wide the words beside a figure are, in dots: they leave it what it needs."""
        [figure] = self.looks
        needed = round(figure.width * min(1, HIGH / figure.height))
        return min(max(BESIDE - needed, WORDS_WIDE[0]), WORDS_WIDE[1])


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
        notebook: With outputs. Its first heading is that of the deck; what else the first cell
            says is spoken to the title.

    Returns:
        The title slide, then the others.

    Raises:
        ValueError: If a slide type is unknown, an answer would be shown, or a figure has no text
            that says what it shows.
    """
    deck = _Deck()
    cells = notebook.cells
    for place, cell in enumerate(cells):
        if cell.cell_type == "code":
            deck.code(cell, slide_type(cell))
        else:
            before, after = _left_out(cells[:place][::-1]), _left_out(cells[place + 1 :])
            deck.markdown(cell, slide_type(cell), before, after)
    return deck.finished()


def _left_out(cells: list[NotebookNode]) -> bool:
    """Tell whether the code up to the next Markdown is skipped, where there is any."""
    code = [slide_type(cell) for cell in takewhile(lambda cell: cell.cell_type == "code", cells)]
    return bool(code) and set(code) == {"skip"}


class _Deck:
    """The slides so far, and the headings under which the next one opens."""

    def __init__(self) -> None:
        self.slides = [Slide("", "", "")]
        self.section = self.topic = ""
        # A skipped heading stands over what comes next, and no slide bears it yet.
        self.stale = False
        self.held = ""
        # The last words, until something is shown.
        self.lead = ""
        # How deep the heading stands that opened the last slide; beyond all headings if none did.
        self.level = 9

    @property
    def slide(self) -> Slide:
        return self.slides[-1]

    def open(self, cell: str, heading: str = "", question: bool = False, level: int = 9) -> None:
        """Begin a slide, in place of one that has nothing to show and to ask.

        What was to be said to that one is said here, unless another section begins.
        """
        notes = []
        if len(self.slides) > 1 and not self.slide.shown and not self.slide.question:
            notes = self.slides.pop().notes if level > self.level else self.slides.pop() and []
        self.level = level
        running = self.topic or self.section
        kicker = running if heading else self.section if self.topic else ""
        self.slides.append(Slide(heading or running, kicker, cell, question, notes=notes))
        self.stale = False

    def finished(self) -> list[Slide]:
        """Give the slides, each with something to say."""
        self.release()
        last: list[str] = []
        for slide in self.slides:
            alts = [f"<p>{html.escape(piece.alt)}</p>" for piece in slide.looks if piece.alt]
            lists = [piece.html for piece in slide.looks if piece.kind == "list"]
            own = slide.notes or alts or lists
            slide.notes = own or last or [f"<p>{slide.heading}</p>"]
            last = own[-1:]
        used = ""
        for slide in self.slides[1:]:
            used = slide.caption(used)
        return self.slides

    def name(self, block: str) -> int:
        """Take a heading over, and give its level."""
        level, title = re.fullmatch(r"(#+) +(?:\d+\. )?(.+?)\s*", block).groups()
        if level == "##":
            self.section, self.topic = inline(title), ""
        elif len(level) > 2:
            self.topic = inline(title)
        self.stale, self.lead = True, ""
        return len(level)

    @property
    def _in_exercises(self) -> bool:
        return self.section == EXERCISES and not self.topic

    def release(self) -> None:
        """Say what was held back."""
        if self.held:
            self.slide.notes.append(markdown(self.held))
        self.held = ""

    def speak(self, piece: str) -> None:
        """Say what was held back, and a piece."""
        self.release()
        self.slide.notes.append(piece)

    def show(self, piece: Piece) -> None:
        """Put a piece on the slide; the first one under a heading needs no step."""
        waits = piece.step and bool(self.slide.shown or self.slide.question)
        if not self.slide.shown:
            self.slide.lead = self.lead
        self.lead = ""
        self.slide.shown.append(piece._replace(step=waits))

    def room(self, cell: str) -> None:
        """Open a slide, unless the last one waits for something to look at."""
        if self.stale or self.slide.looks or len(self.slides) == 1:
            self.open(cell)

    def markdown(self, cell: NotebookNode, chosen: str, before: bool, after: bool) -> None:
        """Take a Markdown cell over, block by block.

        Args:
            cell: The cell.
            chosen: Its slide type.
            before: Whether the cell before, on which it may comment, is left out.
            after: Whether the cell after, which may answer it, is left out.
        """
        comments, aside, last = True, False, ""
        parts = list(blocks(cell.source))
        for place, (kind, block) in enumerate(parts, 1):
            if after and kind == "text" and block.endswith(":") and place == len(parts):
                block = block[: max(_ends(block), default=0)]
            comments = comments and kind not in ("heading", "predict")
            aside = aside or (kind == "aside" and chosen in OPENING)
            if kind == "heading":
                self._heading(block, cell.id, "notes" if aside else chosen)
            elif chosen == "skip" or (comments and before):
                continue
            elif kind == "predict" and after:
                self.lead = ""
            elif not block or (kind == "text" and chosen in OPENING and self._in_exercises):
                continue
            elif chosen == "notes":
                self.speak(markdown(block))
            elif kind == "predict":
                self.open(cell.id, inline(block), question=True)
            else:
                if kind == "point" and block.endswith(":") and not comments:
                    self.room(cell.id)
                joined = last == "math" and (kind == "math" or self._takes(kind, block))
                self._block("spoken" if aside else kind, block, cell.id, chosen, joined)
            last = kind

    def _takes(self, kind: str, block: str) -> bool:
        """Tell whether a table names the few symbols of the one equation of the slide."""
        few = block.startswith("| symbol") and len(block.splitlines()) - 2 <= SYMBOLS
        return kind == "table" and few and len(self.slide.looks) == 1

    def _heading(self, block: str, cell: str, chosen: str) -> None:
        level = self.name(block)
        if level == 1:
            self.stale = False
        elif chosen in (*OPENING, "fragment"):
            self.open(cell, level=level)

    def _block(self, kind: str, block: str, cell: str, chosen: str, joined: bool) -> None:
        """Show or say what is neither a heading nor a question."""
        opens = chosen in OPENING
        figure = any(piece.kind == "figure" for piece in self.slide.looks)
        shown = _without_pointing(kind, block, figure)
        if kind in LOOKS and shown:
            if opens and not joined:
                self.room(cell)
            self.release()
            self.show(Piece(kind, markdown(shown), chosen == "fragment" or self.slide.question))
        elif kind == "point" or (kind in ("text", *LOOKS) and not opens):
            self.speak(markdown(block))
            point = _sentences(shown) if kind == "point" else block
            if point:
                self.show(Piece(kind, markdown(point), step=chosen != "-"))
        else:
            self.release()
            if kind == "text":
                self._lead(block)
            if kind == "text" and block.endswith(":"):
                self.held = block
            else:
                self.speak(markdown(block))

    def _lead(self, block: str) -> None:
        """Remember words that may be shown; what stands in parentheses is said in passing."""
        if block.startswith("("):
            return
        self.lead = block
        if self.slide.shown and not self.slide.answer and not self.stale:
            self.slide.answer, self.slide.place = block, len(self.slide.shown)

    def code(self, cell: NotebookNode, chosen: str) -> None:
        """Take a code cell over."""
        if chosen == "skip":
            return
        if chosen == "notes":
            texts = filter(None, map(_text, cell.outputs))
            self.speak("".join(f"<pre>{html.escape(text)}</pre>" for text in texts))
            return
        if chosen in OPENING:
            self.room(cell.id)
        self.release()
        step = chosen == "fragment" or self.slide.question
        told = [output for output in cell.outputs if not _explains(output)] or cell.outputs
        outputs = [piece for output in told for piece in _shown(output, cell.id, step)]
        drawn = any(piece.kind == "figure" for piece in outputs)
        printed = [piece for piece in outputs if piece.kind == "printed"]
        if drawn and printed:
            self.speak("".join(piece.html for piece in printed))
            outputs = [piece for piece in outputs if piece.kind != "printed"]
        lines = sum(text.count("\n") + 1 for text in (cell.source, *map(_text, told)))
        if chosen in ("slide", "-") and not drawn and (lines <= LINES or not outputs):
            outputs = [Piece("run", _run(cell.source, outputs))]
        for piece in outputs:
            self.show(piece)


def blocks(source: str) -> Iterator[tuple[str, str]]:
    """Cut Markdown at its blank lines, outside of fences, equations and hints.

    Args:
        source: Markdown.

    Yields:
        The kind of a block (heading, predict, point, aside, text, math, table, list, fence) and
        the block, with links to other decks. Hints are left out.
    """
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

    if block.startswith("$$") and "\\begin" not in block and len(block) > EQUATION:
        lines = re.split(r"(?:\\qquad\s*)+", block.strip("$ \n"))
        block = "$$\\begin{gathered}" + "\\\\[0.7em]".join(lines) + "\\end{gathered}$$"
    return _renderer().render(LINK.sub(turn, block)).strip()


def inline(text: str) -> str:
    """Render a line of Markdown as HTML without a paragraph around it."""
    return markdown(text).removeprefix("<p>").removesuffix("</p>")


@cache
def _renderer() -> MarkdownWithMath:
    return MarkdownWithMath(renderer=IPythonRenderer(escape=False, exclude_anchor_links=True))


def _highlighted(code: str) -> str:
    return Highlight2HTML(pygments_lexer="python")(code)


def _ends(text: str) -> list[int]:
    """Tell where the sentences end, except for the last one."""
    # Code, equations and what stands in parentheses may hold a point that ends nothing.
    masked = CLOSED.sub(lambda found: "X" * len(found[0]), text)
    return [found.start() for found in SENTENCE.finditer(masked)]


def _points(sentence: str, figure: bool) -> bool:
    """Tell whether a sentence points at what does not stand on its slide."""
    return bool(POINTING.search(sentence) or (not figure and AT_FIGURE.search(sentence)))


def _without_pointing(kind: str, block: str, figure: bool) -> str:
    """Take out what points elsewhere on the page.

    Args:
        kind: What the block is.
        block: Markdown.
        figure: Whether a figure stands on its slide.

    Returns:
        The block without such lines of a list or a table; a point and text up to the first such
        sentence. May be empty.
    """
    if kind in ("list", "table"):
        kept = [line for line in block.splitlines() if not POINTING.search(line)]
        return "\n".join(kept)
    if kind in WORDS:
        around = [0, *_ends(block), len(block)]
        sentences = [block[start:end] for start, end in pairwise(around)]
        kept = takewhile(lambda sentence: not _points(sentence.strip(), figure), sentences)
        return "".join(kept)
    return block


def _leading(words: str) -> str:
    """Give the question or the sentence with a colon in which words end, if they do."""
    last = words[max(_ends(words), default=0) :]
    return last.strip() if last.endswith((":", "?")) else ""


def _caption(words: str, figure: bool) -> str:
    """Shorten the words that lead to something; those that end in a colon end beside it."""
    around = [0, *_ends(words), len(words)]
    sentences = [words[start:end].strip() for start, end in pairwise(around)]
    kept = [sentence for sentence in sentences if not _points(sentence, figure)]
    text = " ".join(kept)
    if len(text) <= POINT:
        return text
    if not words.endswith(":"):
        return _sentences(text)
    ends = [" ".join(kept[start:]) for start in range(len(kept))]
    return next((end for end in ends if len(end) <= POINT), kept[-1])


def _sentences(text: str) -> str:
    """Keep the first sentence, and the next ones as long as all stay short."""
    ends = _ends(text)
    # What ends in no point goes on in an equation or a figure, and says nothing without it.
    if not ends or re.search(r"[.?!][\"*)]*$", text):
        ends.append(len(text))
    return text[: max([end for end in ends if end <= POINT] or ends[:1])]


def _text(output: NotebookNode) -> str:
    """Give what an output says in text.

    Returns:
        The text; empty for a figure, and for what a page folds away, as a figure in words.
    """
    data = output.get("data", {})
    if "image/png" in data or data.get("text/html", "").startswith("<details>"):
        return ""
    return (output.get("text") or data.get("text/plain", "")).rstrip()


def _explains(output: NotebookNode) -> bool:
    """Tell whether an output is the explanation of a number."""
    return bool(re.match(r"\S.*\n( +code: .*\n)?( *= .*\n?)+$", _text(output)))


def _is_source(text: str) -> bool:
    """Tell whether a text is the source of functions or classes, and nothing else."""
    if not re.match(r"(@|def |class )", text):
        return False
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _shown(output: NotebookNode, cell: str, step: bool) -> Iterator[Piece]:
    """Render an output as HTML; what a page folds away is left out."""
    data = output.get("data", {})
    text = _text(output)
    if "image/png" in data:
        alt = output.metadata.get("image/png", {}).get("alt", "")
        if not alt:
            raise ValueError(f"cell {cell}: the picture has no alt text")
        yield _picture("".join(data["image/png"].split()), alt, step)
    elif _is_source(text):
        yield Piece("code", _highlighted(text), step)
    elif _explains(output):
        lines = [line for line in text.splitlines() if not re.match(r" .*\[", line)]
        yield Piece("printed", f"<pre>{html.escape(chr(10).join(lines))}</pre>", step)
    elif text and "text/html" in data:
        yield Piece("html", data["text/html"], step)
    elif text:
        yield Piece("printed", f"<pre>{html.escape(text)}</pre>", step)


def _picture(png: str, alt: str, step: bool) -> Piece:
    # The header of a PNG holds its size at this place.
    width, height = struct.unpack(">II", b64decode(png)[16:24])
    sizes = f'width="{round(ZOOM * width)}" height="{round(ZOOM * height)}"'
    source = f"data:image/png;base64,{png}"
    picture = f'<img src="{source}" alt="{html.escape(alt)}" {sizes}>'
    return Piece("figure", picture, step, width, height, alt)


def _run(code: str, outputs: list[Piece]) -> str:
    """Render code above its output; one blank line is enough."""
    code = re.sub(r"\n{3,}", "\n\n", code)
    above = f'<div class="code">{_highlighted(code)}</div>'
    if not outputs:
        return above
    step = " fragment" if outputs[0].step else ""
    below = "".join(f'<div class="{piece.kind}">{piece.html}</div>' for piece in outputs)
    return f'<div class="below">{above}<div class="result{step}">{below}</div></div>'
