"""Teaching instruments that observe the layers; no layer imports them."""

from twelve_lab import example
from twelve_lab.device import device
from twelve_lab.example.check_axes import check_axes
from twelve_lab.experiments import real_heads
from twelve_lab.experiments.contributions import Contributions, contributions
from twelve_lab.experiments.exchanged_parts import exchanged_parts
from twelve_lab.experiments.influence import Influence, influence
from twelve_lab.experiments.without import without
from twelve_lab.explorer import write_explorer
from twelve_lab.messages import language
from twelve_lab.notebook import expect, source
from twelve_lab.show.show import show
from twelve_lab.spreadsheet import write_sheet
from twelve_lab.trace.axes import AxisError
from twelve_lab.trace.trace import WRITERS, Trace
from twelve_lab.trace.traced import Traced

__all__ = [
    "AxisError",
    "Contributions",
    "Influence",
    "Trace",
    "Traced",
    "check_axes",
    "contributions",
    "device",
    "example",
    "exchanged_parts",
    "expect",
    "influence",
    "language",
    "real_heads",
    "show",
    "source",
    "without",
]

WRITERS.update(explorer=write_explorer, spreadsheet=write_sheet)
