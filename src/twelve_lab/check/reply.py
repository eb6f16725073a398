"""Show a verdict: as a small card in a notebook, as text everywhere else."""

import html
import re
import sys
from collections.abc import Sequence

from twelve_lab.show.faces import HAPPY, picture
from twelve_lab.show.palette import AXIS_STYLES, QUIET
from twelve_lab.show.wide import fill, joined

FACE = 44  # pixels
# Text and background colours come from the page, in light and dark mode.
_CARD = (
    "display:flex;gap:14px;align-items:center;box-sizing:border-box;max-width:46em;"
    "padding:8px 14px;border:1px solid {quiet};border-left:6px solid {edge};border-radius:8px;"
    "font:14px/1.45 system-ui,sans-serif"
)
_RIGHT, _WRONG = AXIS_STYLES["head"].colour, AXIS_STYLES["d_k"].colour
# The boundary between fault and advice in a message: between two sentences, or at a colon.
# Chinese uses full-width marks without a space.
_BETWEEN = re.compile(
    r"(?<=[.?!]) (?=[^\Wa-z_]|\")|(?<=:) (?=[a-z])|(?<=[\u3002\uff1f\uff01\uff1a])"
)


def as_text(opening: str, message: str, note: str = "") -> str:
    """Format a reply as text, wrapped at 88 columns: a notebook breaks longer lines within words.

    Args:
        opening: The exercise, and whether it is solved.
        message: The message of the verdict.
        note: The note of the verdict, on its own line.
    """
    return "\n".join(
        fill(part, 88, break_long_words=False, break_on_hyphens=False)
        for part in (joined(opening, message), note)
        if part
    )


def as_card(
    opening: str, message: str, note: str = "", *, ok: bool, more: Sequence[str] = ()
) -> str:
    """Format a reply as HTML. A right answer has a face, and a wrong one has its fault in bold.

    Args:
        opening: The exercise, and whether it is solved.
        message: The message of the verdict.
        note: The note of the verdict.
        ok: Whether the answer is right.
        more: The cases that passed, and the next exercise.
    """
    first, *rest = _BETWEEN.split(message, maxsplit=1)
    head = f"<b>{html.escape(opening)}</b>" if ok else html.escape(opening)
    lead = html.escape(first) if ok else f"<b>{html.escape(first)}</b>"
    lines = [head, joined(lead, *map(html.escape, rest))]
    lines += [f"<small>{html.escape(part)}</small>" for part in (note, *more) if part]
    style = _CARD.format(quiet=QUIET, edge=_RIGHT if ok else _WRONG)
    face = f'<div style="flex:none">{picture(HAPPY, FACE)}</div>' if ok else ""
    # Not a div: the book removes the padding of every div.
    return f'<section class="reply" style="{style}">{face}<div>{"<br>".join(lines)}</div></section>'


def write(text: str) -> None:
    """Print a text, with ? in place of characters that stdout cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding))


def reply(
    opening: str, message: str, note: str = "", *, ok: bool, more: Sequence[str] = ()
) -> None:
    """Print a reply, or display its card in a notebook.

    Args:
        opening: The exercise, and whether it is solved.
        message: The message of the verdict.
        note: The note of the verdict.
        ok: Whether the answer is right.
        more: The cases that passed, and the next exercise; only the card shows them.
    """
    text = as_text(opening, message, note)
    # Do not import IPython elsewhere, because the import is slow.
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if getattr(shell, "kernel", None) is None:
        write(text)
        return
    from IPython.display import display

    card = as_card(opening, message, note, ok=ok, more=more)
    display({"text/html": card, "text/plain": text}, raw=True)
