"""Swapped parts: run a trained language model with parts of the original Transformer."""

from contextlib import ExitStack
from typing import Any, NamedTuple

import torch

from twelve import FeedForward, LanguageModel, LayerNorm, PositionalEncoding, RMSNorm
from twelve.generation import greedy_decode
from twelve_lab.experiments.without import put_method, without


class Exchanged(NamedTuple):
    """The predictions of the model with one part swapped.

    Attributes:
        name: The part and its replacement.
        probability: Probability of the word after the text.
        text: Greedy continuation of the text.
    """

    name: str
    probability: float
    text: str


@torch.no_grad()
def exchanged_parts(
    model: LanguageModel, tokenizer: Any, text: str, word: str, *, tokens: int = 8
) -> list[Exchanged]:
    """Swap the parts of a language model one at a time, keeping its weights.

    Args:
        model: A language model, restored afterwards.
        tokenizer: Its tokenizer, from `load`.
        text: The beginning of a text.
        word: Word whose probability after the text is measured, including its leading space.
        tokens: Number of tokens to generate.

    Returns:
        One entry for the unchanged model, then one for each swap.
    """
    ids = torch.tensor([tokenizer.encode(text).ids], device=model.embedding.weight.device)
    wanted = tokenizer.encode(word).ids[0]
    results = []
    for name in ("nothing", *EXCHANGES):
        with ExitStack() as back:
            if name != "nothing":
                EXCHANGES[name](model, back)
            probability = model(ids)[0, -1].softmax(-1)[wanted].item()
            written = greedy_decode(model, ids, max_len=ids.size(1) + tokens)
        new = tokenizer.decode(written[0, ids.size(1) :].tolist())
        results.append(Exchanged(name, probability, new))
    return results


def _norm(model: LanguageModel, back: ExitStack) -> None:
    for norm in [part for part in model.modules() if isinstance(part, RMSNorm)]:
        exchanged = LayerNorm(norm.d_model, eps=norm.eps).to(norm.weight)
        exchanged.weight.copy_(norm.weight)
        put_method(back, norm, "forward", exchanged.forward)


def _no_position(model: LanguageModel, back: ExitStack) -> None:
    back.enter_context(without(model, "rotation"))


def _added_position(model: LanguageModel, back: ExitStack) -> None:
    _no_position(model, back)
    add = PositionalEncoding(model.embedding.d_model, max_len=model.max_len)
    add = add.to(model.embedding.weight)
    back.enter_context(model.embedding.register_forward_hook(lambda *run: add(run[-1])))


def _relu_gate(model: LanguageModel, back: ExitStack) -> None:
    for layer in model.layers:
        back.callback(setattr, layer.feed_forward, "activation", layer.feed_forward.activation)
        layer.feed_forward.activation = "relu"


def _plain_relu(model: LanguageModel, back: ExitStack) -> None:
    for layer in model.layers:
        swiglu = layer.feed_forward
        exchanged = FeedForward(model.embedding.d_model, swiglu.up.d_out, bias=False)
        exchanged.up, exchanged.down = swiglu.up, swiglu.down
        put_method(back, swiglu, "forward", exchanged.forward)


EXCHANGES = {
    "RMSNorm by LayerNorm": _norm,
    "rotation by nothing": _no_position,
    "rotation by added sinusoids": _added_position,
    "SiLU by ReLU in the gate": _relu_gate,
    "SwiGLU by a plain ReLU layer": _plain_relu,
}
