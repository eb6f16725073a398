"""Lesson 10: mistakes in a stack of layers."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.encoder import Encoder
from twelve.feed_forward import FeedForward
from twelve.masks import causal_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import run_layer
from twelve_lab.exercises.numbers import seeded, vectors
from twelve_lab.exercises.residual import residual
from twelve_lab.experiments.influence import influence

_Masked = Callable[[Tensor, Tensor | None], Tensor]
_Norm = Callable[[Tensor], Tensor]


def _stack_cases() -> Cases:
    return {"2 layers": (_maker(), 2), "3 layers": (_maker(), 3), "6 layers": (_maker(), 6)}


def _maker() -> Callable[[], nn.Module]:
    """Return a function that builds layers with different weights, the same on every machine."""
    draw = seeded()

    def make() -> nn.Module:
        layer = nn.Linear(3, 3, bias=False)
        layer.weight.data = draw(3, 3)
        return layer

    return make


def _look_into(layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor]:
    """Return each layer's matrix, the number of layers, and the parameters for an optimizer."""
    owner = nn.Module()
    owner.layers = layers
    counted = torch.tensor([len(set(layers)), len(list(owner.parameters()))])
    return torch.stack([layer.weight.detach() for layer in layers]), counted


@task(_stack_cases, observe=_look_into, measures="building and registering separate layers")
def stack(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    """make, a function that builds a layer, num_layers -> as many layers, whose weights an
    optimiser finds
    """
    return nn.ModuleList(make() for _ in range(num_layers))


@solved(stack)
def _fresh_layers(make: Callable[[], nn.Module], num_layers: int) -> nn.Sequential:
    return nn.Sequential(*[make() for _ in range(num_layers)])


@mistake(
    stack,
    "layers-cloned",
)
def layers_cloned(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    """All layers are copies of one layer and start with equal weights: build each separately."""
    layer = make()
    return nn.ModuleList(copy.deepcopy(layer) for _ in range(num_layers))


mistake(
    stack,
    "layers-shared",
    "The list contains the same layer several times, so that all of them share their weights: "
    "build a new layer for each entry.",
    line=("make() for _ in range(num_layers)", "[make()] * num_layers"),
)
mistake(
    stack,
    "layers-in-list",
    "A plain list hides its layers from the optimizer, which would train none of them: use "
    "nn.ModuleList or nn.Sequential.",
    by=lambda make, num_layers: [make() for _ in range(num_layers)],
    step="a1",
)
again(stack, "layers-cloned", by=lambda *given: [*layers_cloned.wrong(*given)])
again(stack, "layers-shared", by=lambda make, num_layers: [make()] * num_layers)
misconception(
    stack,
    "Your stack has one layer too few.",
    line=("range(num_layers)", "range(num_layers - 1)"),
)
misconception(
    stack,
    "Your stack has one layer, whatever num_layers is.",
    line=("range(num_layers)", "range(1)"),
)
misconception(
    stack,
    "Your stack has one layer too many.",
    line=("range(num_layers)", "range(num_layers + 1)"),
)


def _masked(encoder: nn.Module) -> list[_Masked]:
    return [
        lambda x, src_mask, layer=layer: layer(x, src_mask=src_mask) for layer in encoder.layers
    ]


def _encoder_cases() -> Cases:
    twelve, larger = example.model().encoder, example.distinct.model().encoder
    x, mask = seeded()(2, 5, 24), example.distinct.src_mask.clone()
    return {
        "twelve numbers": (vectors(), _masked(twelve), twelve.norm, example.src_mask.clone()),
        "no padding": (x, _masked(larger), larger.norm, None),
        "all sizes differ": (x.clone(), _masked(larger), larger.norm, mask),
    }


@task(_encoder_cases, forbidden=("for",), measures="passing on stream and mask, the last norm once")
def encoder(x: Tensor, layers: Sequence[_Masked], norm: _Norm, src_mask: Tensor | None) -> Tensor:
    """x (batch, src, d_model), layers, a list of functions of x and src_mask, norm, src_mask ->
    (batch, src, d_model)
    """
    for layer in layers:
        x = layer(x, src_mask)
    return norm(x)


@solved(encoder)
def _read_sentence(
    x: Tensor, layers: Sequence[_Masked], norm: _Norm, src_mask: Tensor | None
) -> Tensor:
    if not layers:
        return norm(x)
    return _read_sentence(layers[0](x, src_mask), layers[1:], norm, src_mask)


mistake(
    encoder,
    "norm-never-applied",
    "The last norm is never called, so that the stack returns the unnormalised sum: return "
    "norm(x).",
    line=("norm(x)", "x"),
)
mistake(
    encoder,
    "padding-mask-missing",
    "The padding of the source is visible somewhere: pass src_mask to every attention that reads "
    "the source.",
    line=("layer(x, src_mask)", "layer(x, None)"),
)
again(
    encoder,
    "padding-mask-missing",
    by=lambda x, layers, norm, src_mask: encoder(layers[0](x, src_mask), layers[1:], norm, None),
)
misconception(
    encoder,
    "You applied the norm after every layer: apply it once, after the last layer.",
    line=(
        "x = layer(x, src_mask)\n    return norm(x)",
        "x = norm(layer(x, src_mask))\n    return x",
    ),
)
misconception(
    encoder,
    "You applied the last norm at every level of the recursion: which level has no layer left?",
    line=("return norm(x)", "for _ in [*layers, norm]:\n        x = norm(x)\n    return x"),
)
misconception(
    encoder,
    "You applied the norm once for each layer: apply it only where no layer is left.",
    line=("return norm(x)", "for _ in layers:\n        x = norm(x)\n    return x"),
)
misconception(
    encoder,
    "You applied the norm before the stack: apply it after the stack.",
    by=lambda x, layers, norm, src_mask: encoder(norm(x), layers, lambda y: y, src_mask),
)
misconception(
    encoder,
    "Each layer reads the original x, so that only one of them counts: pass it the output of the "
    "layer before.",
    by=lambda x, layers, *rest: encoder(x, layers[-1:], *rest),
)
misconception(
    encoder,
    "Only the first layer runs: what happens to the rest of the list?",
    line=("in layers", "in layers[:1]"),
)
misconception(
    encoder,
    "The layers run in reversed order: start with the first.",
    line=("in layers", "in layers[::-1]"),
)
misconception(
    encoder,
    "You added x to the output of a layer: the layers contain the residual sums already.",
    line=("= layer(", "= x + layer("),
)


class _EncoderLayer(nn.Module):
    """Layer(d_model, num_heads, d_ff), x (batch, src, d_model), src_mask -> (batch, src,
    d_model)
    """

    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.look = MultiHeadAttention(d_model, num_heads)
        self.think = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = self.looked(x, src_mask)
        return x + self.think(self.norm2(x))

    def looked(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        normed = self.norm1(x)
        return x + self.look(normed, normed, normed, src_mask)


def _encoder_layer_cases() -> Cases:
    draw, layer = seeded(), example.model().encoder.layers[0]
    numbers = [number.clone() for number in layer.state_dict().values()]
    few = dict(zip(_EncoderLayer(3, 3, 4).state_dict(), numbers, strict=True))
    shapes = {name: one.shape for name, one in _EncoderLayer(24, 3, 96).named_parameters()}
    many = {name: draw(*shape) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    x = draw(2, 5, 24)
    return {
        "twelve numbers": (vectors(), example.src_mask.clone(), (3, 3, 4), few),
        "no padding": (x, None, (24, 3, 96), many),
        "all sizes differ": (x.clone(), example.distinct.src_mask.clone(), (24, 3, 96), many),
    }


def _run_encoder_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, src_mask, sizes, numbers = given
    return run_layer(answer, sizes, numbers, x, src_mask)


encoder_layer = task(
    _encoder_layer_cases,
    name="encoder_layer",
    measures="two residual sums, each with its own norm",
    run=_run_encoder_layer,
)(_EncoderLayer)


@solved(encoder_layer)
class _ReadingLayer(nn.Module):
    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.look, self.think = MultiHeadAttention(d_model, num_heads), FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x, src_mask=None):
        asking = self.norm1(x)
        x = x + self.look(asking, asking, asking, src_mask)
        return x + self.think(self.norm2(x))


def _layer_that_runs(forward: Callable[..., Tensor]) -> type[_EncoderLayer]:
    return type("_LayerThatRuns", (_EncoderLayer,), {"forward": forward})


_Add = Callable[[Tensor, _Norm, _Norm], Tensor]


def _layer_that_adds(first: _Add, second: _Add) -> type[_EncoderLayer]:
    def forward(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = first(x, lambda read: self.look(read, read, read, src_mask), self.norm1)
        return second(x, self.think, self.norm2)

    return _layer_that_runs(forward)


again(
    encoder_layer,
    "padding-mask-missing",
    by=_layer_that_runs(lambda self, x, src_mask: _EncoderLayer.forward(self, x)),
)
# In both sums, or in one of them.
for _id, (_add, *_) in residual.mistakes.items():
    for _both in ((_add, _add), (_add, residual), (residual, _add)):
        again(encoder_layer, _id, by=_layer_that_adds(*_both))


def _query_normed(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    x = x + self.look(self.norm1(x), x, x, src_mask)
    return x + self.think(self.norm2(x))


def _norm_behind(x: Tensor, sublayer: _Norm, norm: _Norm) -> Tensor:
    return x + norm(sublayer(x))


misconception(
    encoder_layer,
    "The second sum starts from the original x, so that the attention is lost: start from the "
    "first sum.",
    by=_layer_that_runs(
        lambda self, x, src_mask: x + self.think(self.norm2(self.looked(x, src_mask)))
    ),
)
misconception(
    encoder_layer,
    "The feed-forward layer reads the original x: pass it the first sum.",
    by=_layer_that_runs(
        lambda self, x, src_mask: self.looked(x, src_mask) + self.think(self.norm2(x))
    ),
)
misconception(
    encoder_layer,
    "You use norm1 twice and never norm2: each sublayer has its own norm.",
    by=_layer_that_runs(
        lambda self, x, src_mask: (y := self.looked(x, src_mask)) + self.think(self.norm1(y))
    ),
)
misconception(
    encoder_layer,
    "You normalised only the query: keys and values come from the normalised x too.",
    by=_layer_that_runs(_query_normed),
)
misconception(
    encoder_layer,
    "Your feed-forward layer comes first: the attention comes first.",
    by=_layer_that_runs(
        lambda self, x, src_mask: self.looked(x + self.think(self.norm2(x)), src_mask)
    ),
)
misconception(
    encoder_layer,
    "You applied the norms after the sublayers: apply them before.",
    by=_layer_that_adds(_norm_behind, _norm_behind),
)


@question(measures="the output shape of a stack, with padding")
def memory_shape() -> tuple[int, ...]:
    """the memory of 3 sentences of 2, 5 and 4 words -> (batch, src, d_model)"""
    longest = max(2, 5, 4)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return tuple(Encoder(30, 6, num_layers=4)(torch.zeros(3, longest, 30)).shape)


@question(decimals=3, measures="that a sublayer with output 0 adds nothing to the stream")
def without_thinking(
    *, add: Callable[[Tensor, Tensor], Tensor] = torch.add, last_norm: bool = True, word: int = 1
) -> list[float]:
    """the memory of fish, three numbers, where the feed-forward layer gives zeros"""
    encoder = example.model().encoder.requires_grad_(False)
    layer = encoder.layers[0]
    x = layer.self_attention_residual(vectors(), lambda q: layer.self_attention(q, q, q))
    y = add(x, torch.zeros_like(x))
    return (encoder.norm(y) if last_norm else y)[1, word].tolist()


def _on_the_road(stage: str) -> list[float]:
    return example.trace()[stage].value[1, 1].tolist()


again(without_thinking, "norm-never-applied", last_norm=False)
again(without_thinking, "residual-missing", add=lambda x, answer: answer)
misconception(
    without_thinking,
    "This is fish in the unchanged memory, with its feed-forward layer.",
    by=partial(_on_the_road, "memory"),
)
misconception(
    without_thinking,
    "This is the output of the norm before the attention: what is the input of the last norm now?",
    by=partial(_on_the_road, "encoder.layers.0.self_attention_residual.norm.output"),
)
misconception(without_thinking, "These are the numbers of dog.", word=0)


def _who_hears(mask: Tensor) -> frozenset[str]:
    grid = influence(example.model().encode, example.src, vocab_size=4, src_mask=mask).grid
    names = [word for line in example.words["src"] for word in line]
    return frozenset(names[row] for row, column in grid.nonzero().tolist() if row != column)


@question(options=tuple(example.vocabulary), measures="reading two combined masks as a map")
def who_hears() -> frozenset[str]:
    """the words that depend on another word, under padding mask and causal mask"""
    return _who_hears(example.src_mask & causal_mask(2))


again(who_hears, "causal-triu", by=lambda: _who_hears(example.src_mask & causal_mask(2).mT))
misconception(
    who_hears,
    'You let "cat" attend to "<pad>", which the padding mask always hides.',
    by=lambda: _who_hears(causal_mask(2)),
)
misconception(
    who_hears,
    "This is right under the padding mask alone: the causal mask hides later positions too.",
    by=lambda: _who_hears(example.src_mask),
)
misconception(
    who_hears,
    '"dog" comes before "fish": what does the causal mask say about that?',
    by=lambda: _who_hears(example.src_mask) - {"<pad>"},
)
misconception(
    who_hears,
    '"<pad>" comes first in its sentence: to which positions may it attend?',
    by=lambda: _who_hears(example.src_mask) - {"dog"},
)
misconception(
    who_hears,
    "At least one word does: in one of the two sentences a real word follows another.",
    by=lambda: _who_hears(causal_mask(2) & causal_mask(2).mT),
)
