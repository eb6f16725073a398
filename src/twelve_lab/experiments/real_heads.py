"""What heads of a real language model look at, in sentences that a reader can judge.

tools/write_heads.py measured them on SmolLM2-135M-Instruct, in float32, and wrote heads.json.
"""

import json
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from twelve_lab.device import device


class RealHeads(NamedTuple):
    """Heads that read one sentence.

    Attributes:
        tokens: The sentence.
        heads: "26.0" is head 0 of layer 26, both counted from 0. The others are its control, or the
            same head after a change, as in "18.6 without 16.0".
        weights: Of each head; measured to four decimals.
        right: Of a hundred other sentences of the kind, how many hold what is claimed: of the model
            as it is and without a head, or head by head. Of "repeat" four words of each count.
            Empty where nothing was counted.
    """

    tokens: list[str]
    heads: list[str]
    weights: Float[Tensor, "head query key"]
    right: dict[str, int]


def read(name: str) -> RealHeads:
    """Read what heads do with a sentence.

    Args:
        name: Of the sentence, as "agreement".

    Raises:
        ValueError: If no sentence has this name.
    """
    sentences = _measured()["sentences"]
    if name not in sentences:
        raise ValueError(f"real_heads.read: there are {', '.join(sentences)}, got {name!r:.40}")
    found = sentences[name]
    length = len(found["tokens"])
    weights = torch.zeros(len(found["heads"]), length, length, device=device())
    for head, rows in zip(weights, found["heads"].values(), strict=True):
        for query, row in enumerate(rows):  # what comes later has no number
            head[query, : query + 1] = torch.tensor(row)
    return RealHeads(found["tokens"], list(found["heads"]), weights, found.get("right", {}))


def by_distance(what: str) -> dict[str, Float[Tensor, " distance"]]:
    """Read how head 16.0 sees keys 0, 1, 2, ... tokens back, on average over ten texts.

    Args:
        what: "weight" or "score", the latter before softmax.

    Returns:
        Of the model as it is, "turned"; and without the rotation in layer 16, "not turned". The
        first token is left out: weight rests on it wherever it stands.

    Raises:
        ValueError: If what is neither.
    """
    found = _measured()["by distance"]
    if what not in found:
        raise ValueError(f"real_heads.by_distance: there are {', '.join(found)}, got {what!r:.40}")
    return {name: torch.tensor(line, device=device()) for name, line in found[what].items()}


def _measured() -> dict[str, Any]:
    return json.loads((files("twelve_lab") / "heads.json").read_text())
