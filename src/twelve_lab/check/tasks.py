"""The tasks and questions of all steps, in the order of the course."""

from twelve_lab.check.declare import Question, Target
from twelve_lab.course import step_of
from twelve_lab.exercises import (
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

STEPS = (
    linear, embedding, positional_encoding, attention, masks, multi_head_attention, normalization,
    residual, feed_forward, encoder, decoder, transformer, training, generation,
)  # fmt: skip

TARGETS: dict[str, Target] = {target.name: target for step in STEPS for target in step.TARGETS}


def _exercises() -> dict[str, Target | Question]:
    """Put each exercise under the number of the notebook whose stem its file has."""
    found: dict[str, Target | Question] = {}
    for module in STEPS:
        number = step_of(module.__name__.rpartition(".")[2])
        for one in (*module.QUESTIONS, *module.TARGETS):
            found[f"{number}-{one.name.replace('_', '-')}"] = one
    return found


EXERCISES = _exercises()
