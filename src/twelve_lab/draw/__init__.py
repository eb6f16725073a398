"""Figures: one call draws each, with an alt text and its values as text.

Matplotlib is imported only when a figure is drawn.
"""

from twelve_lab.draw.architecture import plan, without_source
from twelve_lab.draw.averages import groups
from twelve_lab.draw.charts import bars, curves
from twelve_lab.draw.dependency import influence
from twelve_lab.draw.drawing import Drawing, live
from twelve_lab.draw.embedding_lookup import lookup
from twelve_lab.draw.heads import heads
from twelve_lab.draw.products import matmul
from twelve_lab.draw.residual_stream import stream
from twelve_lab.draw.rotation import rotated_query, rotation
from twelve_lab.draw.shared_heads import shared_heads
from twelve_lab.draw.storage import storage
from twelve_lab.draw.tensors import attention, tensor
from twelve_lab.draw.walk import walk

__all__ = [
    "Drawing",
    "attention",
    "bars",
    "curves",
    "groups",
    "heads",
    "influence",
    "live",
    "lookup",
    "matmul",
    "plan",
    "rotated_query",
    "rotation",
    "shared_heads",
    "storage",
    "stream",
    "tensor",
    "walk",
    "without_source",
]
