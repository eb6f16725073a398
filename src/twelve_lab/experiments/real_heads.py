"""What the heads of a real language model attend to, and which of its embeddings are similar.

tools/write_heads.py measured the data in heads.json on SmolLM2-135M-Instruct, in float32.
"""

import json
from importlib.resources import files
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from twelve_lab.device import device


class RealHeads(NamedTuple):
    """Attention weights of some heads in one sentence.

    Attributes:
        tokens: Tokens of the sentence.
        heads: "26.0" is head 0 of layer 26, both counted from 0. Other keys are controls, or
            the same head after an ablation, such as "18.6 without 16.0".
        weights: Attention weights of each head, rounded to four decimals.
        right: Number of sentences, out of a hundred similar ones, for which the claim holds: for
            the unchanged model and without a head, or head by head. "repeat" counts four words of
            each sentence. Empty if the claim was not counted.
    """

    tokens: list[str]
    heads: list[str]
    weights: Float[Tensor, "head query key"]
    right: dict[str, int]


def read(name: str) -> RealHeads:
    """Read the attention weights for a sentence.

    Args:
        name: Name of a sentence, such as "agreement".

    Raises:
        ValueError: If no sentence has this name.
    """
    sentence = _look_up("read", "sentences", name=name)
    tokens, heads = sentence["tokens"], sentence["heads"]
    weights = torch.zeros(len(heads), len(tokens), len(tokens), device=device())
    for head, rows in zip(weights, heads.values(), strict=True):
        for query, row in enumerate(rows):  # masked keys are not stored
            head[query, : query + 1] = torch.tensor(row)
    return RealHeads(tokens, list(heads), weights, sentence.get("right", {}))


def by_distance(what: str) -> dict[str, Float[Tensor, " distance"]]:
    """Read the averages of head 16.0 for keys 0, 1, 2, ... tokens back, over ten texts.

    Args:
        what: "weight", or "score" for the value before softmax.

    Returns:
        "rotated" for the unchanged model, "not rotated" without the rotation in layer 16. The first
        token is excluded, because it receives weight at every distance.

    Raises:
        ValueError: If `what` is neither "weight" nor "score".
    """
    averages = _look_up("by_distance", "by distance", what=what)
    return {name: torch.tensor(line, device=device()) for name, line in averages.items()}


def nearest_tokens(word: str) -> dict[str, float]:
    """Read the tokens whose embeddings are nearest to that of a word.

    Args:
        word: "dog", "three" or "Paris".

    Returns:
        The cosine similarity of the embeddings, for the seven nearest of 49,152 tokens and for
        " bridge" as a control. A leading space is part of the token.

    Raises:
        ValueError: If the word was not measured.
    """
    return _look_up("nearest_tokens", "nearest", word=word)


def continued(text: str) -> dict[str, str]:
    """Read the model's greedy continuation of a text, ten tokens long.

    Args:
        text: "Once upon a time, a dog and a fish" or "The capital of France is".

    Returns:
        "complete" for the unchanged model, "without rotation" with no rotation in any layer.

    Raises:
        ValueError: If the text was not measured.
    """
    return _look_up("continued", "continued", text=text)


def _look_up(function: str, section: str, **argument: str) -> dict[str, Any]:
    """Read one entry of heads.json.

    Raises:
        ValueError: If the section has no entry for the argument.
    """
    entries = json.loads((files("twelve_lab") / "heads.json").read_text())[section]
    ((name, value),) = argument.items()
    if value not in entries:
        known = ", ".join(map(repr, entries))
        raise ValueError(f"real_heads.{function}: {name} must be one of {known}, got {value!r:.40}")
    return entries[value]
