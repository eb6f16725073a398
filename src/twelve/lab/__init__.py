"""The teaching instruments: everything that looks at the layers and that no layer needs."""

from twelve.lab import example
from twelve.lab.axes import AxisError
from twelve.lab.device import device
from twelve.lab.expect import expect
from twelve.lab.influence import Influence, influence
from twelve.lab.shadow import shadow
from twelve.lab.show import show
from twelve.lab.source import source
from twelve.lab.trace import Trace
from twelve.lab.traced import Traced

__all__ = [
    "AxisError",
    "Influence",
    "Trace",
    "Traced",
    "device",
    "example",
    "expect",
    "influence",
    "shadow",
    "show",
    "source",
]
