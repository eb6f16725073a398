"""Convert a figure to a small SVG whose colours follow the page around it.

Matplotlib writes the SVG with letters as paths, so every browser draws them at the measured size.
This module then makes the file about three times smaller, because notebooks store it, and adds
the colours of dark mode. In an `<img>`, an SVG follows the colour scheme of the page.
"""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from twelve_lab.show.palette import DPI, by_night

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Remove text that browsers do not need: pattern -> replacement, applied in this order.
_SHORTER = (
    (r"<!--.*?-->", ""),
    (r"\s+", " "),
    (r"> <", "><"),
    # Letters and markers are referenced by id: "DejaVuSans-41", and "m" with a hash.
    (r' id="(?!DejaVu|NotoSans|m[0-9a-f]{10}").*?"', ""),
    (r"<g>(<path [^>]*/>)</g>", r"\1"),
    # A tenth of a point is finer than a pixel. Numbers below 1 are scales: keep their digits.
    (r"\b([1-9]\d*\.\d)\d+", r"\1"),
    (r'transform="translate\(([\d.]+) 0\)"/>', r'x="\1"/>'),
    ("xlink:href", "href"),
    ("DejaVuSans-Bold-", "b"),
    ("DejaVuSans-", "n"),
    ("NotoSansCJKsc-Regular-", "c"),
    (r" ?([zMLQC]) ?", r"\1"),
    ("; stroke-linejoin: miter", ""),
    (r"(?<=[:;]) ", ""),
    ('"', "'"),
)


def to_svg(figure: Figure, title: str = "", description: str = "") -> str:
    """Return a figure as SVG without double quotes; the text is deterministic.

    Args:
        figure: The figure, measured in inches.
        title: Title of the file, for screen readers.
        description: Description of the file, for screen readers.
    """
    import matplotlib as mpl

    written = io.StringIO()
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "twelve"}):
        figure.savefig(written, format="svg", metadata=metadata)
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :].rstrip()
    for pattern, shorter in _SHORTER:
        svg = re.sub(pattern, shorter, svg)
    width, height = (round(side * DPI) for side in figure.get_size_inches())
    svg = re.sub(r"width='.*?' height='.*?'", f"width='{width}' height='{height}'", svg, count=1)
    colours = sorted(set(re.findall(r"(fill|stroke):(#\w{6})", svg)))
    dark = "".join(
        f"[style*='{kind}:{colour}']{{{kind}:{by_night(colour, line=kind == 'stroke')}!important}}"
        for kind, colour in colours
    )
    named = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>" if title else ""
    style = f"<style>@media(prefers-color-scheme:dark){{{dark}}}</style>"
    head, rest = svg.split(">", 1)
    return f"{head}>{named}{style}{rest}"
