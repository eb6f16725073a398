"""Say what came of an answer: as a small card in a notebook, and as text everywhere else."""

import html
import re
import sys
import textwrap
from collections.abc import Sequence

from twelve_lab.show.faces import HAPPY, picture
from twelve_lab.show.palette import AXIS_STYLES, QUIET

FACE = 44  # pixels
# Letters and ground are those of the page around it, in the light and in the dark.
_CARD = (
    "display:flex;gap:14px;align-items:center;box-sizing:border-box;max-width:46em;"
    "padding:8px 14px;border:1px solid {quiet};border-left:6px solid {edge};border-radius:8px;"
    "font:14px/1.45 system-ui,sans-serif"
)
_RIGHT, _WRONG = AXIS_STYLES["head"].colour, AXIS_STYLES["d_k"].colour
# Behind what was done, before what to do instead: between two sentences, or behind a colon.
_BETWEEN = re.compile(r"(?<=[.?!]) (?=[A-Z\"])|(?<=:) (?=[a-z])")


def as_text(opening: str, message: str, note: str = "") -> str:
    """Write a reply in lines of a page's width: a notebook breaks longer ones within words.

    Args:
        opening: The exercise, and whether it is solved.
        message: What is to be said.
        note: What could be nicer; it begins a line.
    """
    return "\n".join(
        textwrap.fill(part, 88, break_long_words=False, break_on_hyphens=False)
        for part in (f"{opening} {message}", note)
        if part
    )


def as_card(
    opening: str, message: str, note: str = "", *, ok: bool, more: Sequence[str] = ()
) -> str:
    """Write a reply as HTML: what is right has a face, what is wrong what was done, bold.

    Args:
        opening: The exercise, and whether it is solved.
        message: What is to be said.
        note: What could be nicer.
        ok: Whether the answer is right.
        more: What it was held against, what is next.
    """
    first, *rest = _BETWEEN.split(message, maxsplit=1)
    head = f"<b>{html.escape(opening)}</b>" if ok else html.escape(opening)
    lead = html.escape(first) if ok else f"<b>{html.escape(first)}</b>"
    lines = [head, " ".join([lead, *map(html.escape, rest)])]
    lines += [f"<small>{html.escape(part)}</small>" for part in (note, *more) if part]
    style = _CARD.format(quiet=QUIET, edge=_RIGHT if ok else _WRONG)
    face = f'<div style="flex:none">{picture(HAPPY, FACE)}</div>' if ok else ""
    # No div: the book takes the room from the sides of one.
    return f'<section class="reply" style="{style}">{face}<div>{"<br>".join(lines)}</div></section>'


def reply(
    opening: str, message: str, note: str = "", *, ok: bool, more: Sequence[str] = ()
) -> None:
    """Show a reply, as a card where this is a notebook.

    Args:
        opening: The exercise, and whether it is solved.
        message: What is to be said.
        note: What could be nicer.
        ok: Whether the answer is right.
        more: What it was held against, what is next: only the card has room for it.
    """
    said = as_text(opening, message, note)
    # Who runs no IPython has not loaded it, and waits for nothing.
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if getattr(shell, "kernel", None) is None:
        print(said)
        return
    from IPython.display import display

    drawn = as_card(opening, message, note, ok=ok, more=more)
    display({"text/html": drawn, "text/plain": said}, raw=True)
