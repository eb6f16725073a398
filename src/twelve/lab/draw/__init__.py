"""Figures, one call each, every one with alt text and its numbers in print.

Nothing here imports matplotlib until a figure is drawn.
"""

from twelve.lab.draw.averages import groups
from twelve.lab.draw.charts import bars, curves
from twelve.lab.draw.course import strip
from twelve.lab.draw.drawing import Drawing
from twelve.lab.draw.heads import heads
from twelve.lab.draw.journey import walk
from twelve.lab.draw.plan import plan
from twelve.lab.draw.products import matmul
from twelve.lab.draw.reach import influence
from twelve.lab.draw.storage import memory
from twelve.lab.draw.stream import stream
from twelve.lab.draw.tensors import attention, mask, tensor
from twelve.lab.draw.waves import positions, rotation
from twelve.lab.draw.words import lookup

__all__ = [
    "Drawing",
    "attention",
    "bars",
    "curves",
    "groups",
    "heads",
    "influence",
    "lookup",
    "mask",
    "matmul",
    "memory",
    "plan",
    "positions",
    "rotation",
    "stream",
    "strip",
    "tensor",
    "walk",
]
