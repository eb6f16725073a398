"""The tasks of all steps by name, in the order of the course."""

from twelve.lab.check import (
    attention,
    decoder,
    embedding,
    encoder,
    feed_forward,
    generation,
    linear,
    masks,
    multi_head_attention,
    normalization,
    positional_encoding,
    residual,
    training,
    transformer,
)
from twelve.lab.check.table import Target

STEPS = (
    linear, embedding, positional_encoding, attention, masks, multi_head_attention, normalization,
    residual, feed_forward, encoder, decoder, transformer, training, generation,
)  # fmt: skip

TARGETS: dict[str, Target] = {target.name: target for step in STEPS for target in step.TARGETS}
