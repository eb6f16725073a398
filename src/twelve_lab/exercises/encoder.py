"""Lesson 10: mistakes in a stack of layers."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.encoder import Encoder
from twelve.feed_forward import FeedForward
from twelve.masks import causal_mask, padding_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.modules import run_layer
from twelve_lab.exercises.numbers import distinct_ids, seeded, vectors
from twelve_lab.experiments.influence import influence

_Masked = Callable[[Tensor, Tensor | None], Tensor]
_Norm = Callable[[Tensor], Tensor]


def _stack_cases() -> Cases:
    return {"2 layers": (_maker(), 2), "3 layers": (_maker(), 3), "6 layers": (_maker(), 6)}


def _maker() -> Callable[[], nn.Module]:
    """Return a function that builds layers with distinct weights, reproducible on every machine."""
    draw = seeded()

    def make() -> nn.Module:
        layer = nn.Linear(3, 3, bias=False)
        layer.weight.data = draw(3, 3)
        return layer

    return make


def _look_into(layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor]:
    """Return each layer's weight, and count layers, parameters and trainable parameters."""
    owner = nn.Module()
    owner.layers = layers
    trained = [weight for weight in owner.parameters() if weight.requires_grad]
    counted = torch.tensor([len(set(layers)), len(list(owner.parameters())), len(trained)])
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


@mistake(stack, "layers-cloned")
def layers_cloned(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    "All layers are copies of one layer and start with equal weights: build each one separately."
    layer = make()
    return nn.ModuleList(copy.deepcopy(layer) for _ in range(num_layers))


_BUILT = "make() for _ in range(num_layers)"
mistake(
    stack,
    "layers-shared",
    "The list contains the same layer several times, so all of them share their weights: build a "
    "new layer for each entry.",
    {f"nn.ModuleList({_BUILT})": "nn.ModuleList([make()] * num_layers)"},
)
mistake(
    stack,
    "layers-in-list",
    "A plain list hides its layers from the optimizer, which would train none of them: use "
    "nn.ModuleList or nn.Sequential.",
    {f"nn.ModuleList({_BUILT})": f"[{_BUILT}]"},
    step="a1",
)
again(stack, "layers-cloned", by=lambda *given: [*layers_cloned.wrong(*given)])
again(stack, "layers-shared", {f"nn.ModuleList({_BUILT})": "[make()] * num_layers"})
notes(
    stack,
    {
        "Your layers are frozen, so an optimizer cannot train them.": {
            f"nn.ModuleList({_BUILT})": f"nn.ModuleList({_BUILT}).requires_grad_(False)"
        },
        "Your stack has one layer too few.": {"range(num_layers)": "range(num_layers - 1)"},
        "Your stack has only one layer, whatever num_layers is.": {"range(num_layers)": "range(1)"},
        "Your stack has one layer too many.": {"range(num_layers)": "range(num_layers + 1)"},
    },
)


def _masked(encoder: nn.Module) -> list[_Masked]:
    return [
        lambda x, src_mask, layer=layer: layer(x, src_mask=src_mask) for layer in encoder.layers
    ]


def _encoder_cases() -> Cases:
    twelve, larger = example.model().encoder, example.distinct.model().encoder
    x, mask = seeded()(3, 7, 24), padding_mask(distinct_ids())
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


_LAYER = "layer(x, src_mask)"
_LOOP = f"for layer in layers:\n    x = {_LAYER}"
mistake(
    encoder,
    "norm-never-applied",
    "The last norm is never called, so the stack returns the unnormalised sum: return norm(x).",
    {"return norm(x)": "return x"},
)
mistake(
    encoder,
    "padding-mask-missing",
    "The padding of the source is visible somewhere: pass src_mask to every attention that reads "
    "the source.",
    {_LAYER: "layer(x, None)"},
)
again(
    encoder, "padding-mask-missing", {_LAYER: "layer(x, src_mask if layer is layers[0] else None)"}
)
notes(
    encoder,
    {
        "You applied the norm after every layer: apply it once, after the last layer.": {
            _LAYER: f"norm({_LAYER})",
            "return norm(x)": "return x",
        },
        "You applied the last norm at every level of the recursion: which level has no layer "
        "left?": {"return norm(x)": "for _ in [*layers, norm]:\n    x = norm(x)\nreturn x"},
        "You applied the last norm more than once: apply it only where no layer is left.": {
            "return norm(x)": "for _ in layers:\n    x = norm(x)\nreturn x"
        },
        "You applied the norm before the stack: apply it after the stack.": {
            _LOOP: f"x = norm(x)\n{_LOOP}",
            "return norm(x)": "return x",
        },
        "Each layer reads the original x, so only one of them counts: pass it the output of "
        "the layer before.": {_LOOP: "x = layers[-1](x, src_mask)"},
        "Only the first layer runs: what happens to the rest of the list?": {
            _LOOP: "x = layers[0](x, src_mask)"
        },
        "The layers run in reversed order: start with the first.": {
            _LOOP: _LOOP.replace("in layers", "in layers[::-1]")
        },
        "You added x to the output of a layer: the layers already contain the residual sums.": {
            _LAYER: f"x + {_LAYER}"
        },
    },
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
        normed = self.norm1(x)
        x = x + self.look(normed, normed, normed, src_mask)
        return x + self.think(self.norm2(x))


def _encoder_layer_cases() -> Cases:
    draw, layer = seeded(), example.model().encoder.layers[0]
    numbers = [number.clone() for number in layer.state_dict().values()]
    few = dict(zip(_EncoderLayer(3, 3, 4).state_dict(), numbers, strict=True))
    shapes = {name: one.shape for name, one in _EncoderLayer(24, 4, 96).named_parameters()}
    many = {name: draw(*shape) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    x, mask = draw(3, 7, 24), padding_mask(distinct_ids())
    return {
        "twelve numbers": (vectors(), example.src_mask.clone(), (3, 3, 4), few),
        "no padding": (x, None, (24, 4, 96), many),
        "all sizes differ": (x.clone(), mask, (24, 4, 96), many),
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


_LOOK = "self.look(normed, normed, normed, src_mask)"
_FIRST, _SECOND = f"forward: x = x + {_LOOK}", "forward: return x + self.think(self.norm2(x))"
again(
    encoder_layer,
    "padding-mask-missing",
    {f"forward: {_LOOK}": "self.look(normed, normed, normed)"},
)
# Both sums are wrong, or one of them.
_OVERWRITTEN = "x = self.norm2(x)\nreturn x + self.think(x)"
for _id, _first, _second in (
    ("residual-overwritten", f"x = normed + {_LOOK}", _OVERWRITTEN),
    ("residual-missing", f"x = {_LOOK}", "return self.think(self.norm2(x))"),
    ("norm-bypassed", "x = x + self.look(x, x, x, src_mask)", "return x + self.think(x)"),
    (
        "norm-order",
        "x = self.norm1(x + self.look(x, x, x, src_mask))",
        "return self.norm2(x + self.think(x))",
    ),
):
    again(encoder_layer, _id, {_FIRST: _first, _SECOND: _second})
    again(encoder_layer, _id, {_FIRST: _first})
    again(encoder_layer, _id, {_SECOND: _second})
notes(
    encoder_layer,
    {
        "The second sum starts from the original x, so the attention is lost: start from the "
        "first sum.": {
            _FIRST: f"y = x + {_LOOK}",
            _SECOND: "return x + self.think(self.norm2(y))",
        },
        "The feed-forward layer reads the original x: pass it the first sum.": {
            _FIRST: f"y = x + {_LOOK}",
            _SECOND: "return y + self.think(self.norm2(x))",
        },
        "You use norm1 twice and never norm2: each sublayer needs its own norm.": {
            _SECOND: "return x + self.think(self.norm1(x))"
        },
        "You normalised only the query: take the keys and values from the normalised x too.": {
            f"forward: {_LOOK}": "self.look(normed, x, x, src_mask)"
        },
        "Your feed-forward layer comes first: the attention must come first.": {
            "forward: normed = self.norm1(x)": "x = x + self.think(self.norm2(x))\n"
            "normed = self.norm1(x)",
            _SECOND: "return x",
        },
        "Both sublayers read the output of norm1: normalise the first sum for the second.": {
            _SECOND: "return x + self.think(normed)"
        },
        "You normalised the result of the layer: leave the sums unchanged.": {
            _SECOND: "return self.norm2(x + self.think(self.norm2(x)))"
        },
        'Your mask hides what must be visible: True means "may attend".': {
            f"forward: {_LOOK}": "self.look(normed, normed, normed, None if src_mask is None else "
            "~src_mask)"
        },
        "You applied the norms after the sublayers: apply them before.": {
            _FIRST: "x = x + self.norm1(self.look(x, x, x, src_mask))",
            _SECOND: "return x + self.norm2(self.think(x))",
        },
    },
)


@question(measures="the output shape of a stack, with padding")
def memory_shape() -> tuple[int, ...]:
    """the memory of 3 sentences of 2, 5 and 4 words -> (batch, src, d_model)"""
    longest = max(2, 5, 4)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return tuple(Encoder(30, 6, num_layers=4)(torch.zeros(3, longest, 30)).shape)


@question(decimals=3, measures="that a sublayer with output 0 adds nothing to the stream")
def without_thinking() -> list[float]:
    """the memory of fish, three numbers, where the feed-forward layer gives zeros"""
    encoder = example.model().encoder.requires_grad_(False)
    layer = encoder.layers[0]
    x = layer.self_attention_residual(vectors(), lambda q: layer.self_attention(q, q, q))
    y = x + torch.zeros_like(x)
    return encoder.norm(y)[1, 1].tolist()


def _on_the_road(stage: str) -> list[float]:
    return example.trace()[stage].value[1, 1].tolist()


again(without_thinking, "norm-never-applied", {"encoder.norm(y)[1, 1]": "y[1, 1]"})
again(without_thinking, "residual-missing", {"x + torch.zeros_like(x)": "torch.zeros_like(x)"})
notes(
    without_thinking,
    {
        "This is fish in the unchanged memory, with its feed-forward layer.": partial(
            _on_the_road, "memory"
        ),
        "This is the output of the norm before the attention: what is the input of the last norm "
        "now?": partial(_on_the_road, "encoder.layers.0.self_attention_residual.norm.output"),
        "These are the numbers of dog.": {"X[1, 1]": "X[1, 0]"},
    },
)


@question(options=tuple(example.vocabulary), measures="reading two combined masks as a map")
def who_hears() -> frozenset[str]:
    """the words that depend on another word, under padding mask and causal mask"""
    mask = example.src_mask & causal_mask(2)
    grid = influence(example.model().encode, example.src, vocab_size=4, src_mask=mask).grid
    names = [word for line in example.words["src"] for word in line]
    return frozenset(names[row] for row, column in grid.nonzero().tolist() if row != column)


again(who_hears, "causal-triu", {"causal_mask(2)": "causal_mask(2).mT"})
notes(
    who_hears,
    {
        'You let "cat" attend to "<pad>", which the padding mask always hides.': {
            "example.src_mask & causal_mask(2)": "causal_mask(2)"
        },
        "This is right with only the padding mask: the causal mask hides later positions too.": {
            "example.src_mask & causal_mask(2)": "example.src_mask"
        },
        '"dog" comes before "fish": what does the causal mask say about that?': {"dog", "fish"},
        '"<pad>" comes first in its sentence: to which positions may it attend?': {"<pad>", "fish"},
        "At least one word does: in one of the two sentences a real word follows another.": set(),
    },
)
