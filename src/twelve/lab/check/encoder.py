"""Step 10: what a stack of layers invites."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from twelve.encoder import Encoder
from twelve.feed_forward import FeedForward
from twelve.lab import example
from twelve.lab.check import residual
from twelve.lab.check.built import run_layer
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.lab.influence import influence
from twelve.masks import causal_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.normalization import LayerNorm

_Masked = Callable[[Tensor, Tensor | None], Tensor]


def _stack(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    return nn.ModuleList(make() for _ in range(num_layers))


def _stack_cases() -> Cases:
    return {"2 layers": (_maker(), 2), "3 layers": (_maker(), 3), "6 layers": (_maker(), 6)}


def _maker() -> Callable[[], nn.Module]:
    """Make the same layers on every machine, each with weights of its own."""
    draw = seeded()

    def make() -> nn.Module:
        layer = nn.Linear(3, 3, bias=False)
        layer.weight.data = draw(3, 3)
        return layer

    return make


def _look_into(layers: Sequence[nn.Module]) -> tuple[Tensor, Tensor]:
    """Show each layer's matrix, how many layers there are, and what an optimiser would find."""
    owner = nn.Module()
    owner.layers = layers
    counted = torch.tensor([len(set(layers)), len(list(owner.parameters()))])
    return torch.stack([layer.weight.detach() for layer in layers]), counted


def _layers_cloned(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    layer = make()
    return nn.ModuleList(copy.deepcopy(layer) for _ in range(num_layers))


def _layers_shared(make: Callable[[], nn.Module], num_layers: int) -> nn.ModuleList:
    return nn.ModuleList([make()] * num_layers)


def _layers_in_list(make: Callable[[], nn.Module], num_layers: int) -> list[nn.Module]:
    return [make() for _ in range(num_layers)]


def _encoder(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for layer in layers:
        x = layer(x, src_mask)
    return norm(x)


def _encoder_cases() -> Cases:
    twelve, larger = example.model().encoder, example.companion.model().encoder
    x, mask = seeded()(2, 5, 24), example.companion.src_mask.clone()
    return {
        "twelve numbers": (vectors(), _masked(twelve), twelve.norm, example.src_mask.clone()),
        "no padding": (x, _masked(larger), larger.norm, None),
        "all sizes differ": (x.clone(), _masked(larger), larger.norm, mask),
    }


def _masked(encoder: nn.Module) -> list[_Masked]:
    return [
        lambda x, src_mask, layer=layer: layer(x, src_mask=src_mask) for layer in encoder.layers
    ]


def _norm_never_applied(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for layer in layers:
        x = layer(x, src_mask)
    return x


def _padding_mask_missing(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for layer in layers:
        x = layer(x, None)
    return norm(x)


def _mask_for_the_first(
    x: Tensor, layers: list[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for place, layer in enumerate(layers):
        x = layer(x, None if place else src_mask)
    return norm(x)


class _EncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.look = MultiHeadAttention(d_model, num_heads)
        self.think = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)

    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = self.add(x, lambda normed: self.look(normed, normed, normed, src_mask), self.norm1)
        return self.add(x, self.think, self.norm2)

    def add(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return x + sublayer(norm(x))


class _LayerWithoutMask(_EncoderLayer):
    def forward(self, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


def _layer_that_adds(add: Callable[..., Tensor]) -> type[_EncoderLayer]:
    return type("_LayerThatAdds", (_EncoderLayer,), {"add": staticmethod(add)})


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
        "all sizes differ": (x.clone(), example.companion.src_mask.clone(), (24, 3, 96), many),
    }


def _run_encoder_layer(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    x, src_mask, sizes, numbers = given
    return run_layer(answer, sizes, numbers, x, src_mask)


def _memory_shape() -> tuple[int, ...]:
    longest = max(2, 5, 4)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return tuple(Encoder(30, 6, num_layers=4)(torch.zeros(3, longest, 30)).shape)


def _without_thinking(
    add: Callable[[Tensor, Tensor], Tensor] = torch.add, *, last_norm: bool = True
) -> list[float]:
    encoder = example.model().encoder.requires_grad_(False)
    layer = encoder.layers[0]
    x = layer.self_attention_residual(vectors(), lambda q: layer.self_attention(q, q, q))
    y = add(x, torch.zeros_like(x))
    return (encoder.norm(y) if last_norm else y)[1, 1].tolist()


def _who_hears(mask: Tensor) -> frozenset[str]:
    grid = influence(example.model().encode, example.src, vocab_size=4, src_mask=mask).grid
    names = [word for line in example.words["src"] for word in line]
    return frozenset(names[row] for row, column in grid.nonzero().tolist() if row != column)


QUESTIONS = (
    Question(
        name="memory_shape",
        contract="the memory of 3 sentences of 2, 5 and 4 words -> (batch, src, d_model)",
        right=_memory_shape,
    ),
    Question(
        name="without_thinking",
        contract="the memory of fish, three numbers, where the feed-forward layer answers zeros",
        right=_without_thinking,
        wrong={
            "norm-never-applied": partial(_without_thinking, last_norm=False),
            "residual-missing": partial(_without_thinking, lambda x, answer: answer),
        },
        decimals=3,
    ),
    Question(
        name="who_hears",
        contract="the words that hear another word, under padding mask and causal mask",
        right=lambda: _who_hears(example.src_mask & causal_mask(2)),
        wrong={
            "padding-mask-missing": lambda: _who_hears(causal_mask(2)),
            "causal-triu": lambda: _who_hears(example.src_mask & causal_mask(2).mT),
        },
        options=tuple(example.vocabulary),
    ),
)

TARGETS = (
    Target(
        name="stack",
        contract="make, a function that builds a layer, num_layers -> as many layers, whose "
        "weights an optimiser finds",
        right=_stack,
        cases=_stack_cases,
        observe=_look_into,
    ),
    Target(
        name="encoder",
        contract="x (batch, src, d_model), layers, a list of functions of x and src_mask, norm, "
        "src_mask -> (batch, src, d_model)",
        right=_encoder,
        cases=_encoder_cases,
    ),
    Target(
        name="encoder_layer",
        contract="Layer(d_model, num_heads, d_ff), x (batch, src, d_model), src_mask -> (batch, "
        "src, d_model)",
        right=_EncoderLayer,
        cases=_encoder_layer_cases,
        also={
            "padding-mask-missing": _LayerWithoutMask,
            **{
                mistake.id: _layer_that_adds(mistake.wrong)
                for mistake in residual.MISTAKES
                if mistake.target == "residual"
            },
        },
        run=_run_encoder_layer,
    ),
)

_LAYER = "EncoderLayer(d_model, num_heads, d_ff, norm_first=norm_first, fused=fused, **layer)"
_LAYERS = (
    "        self.layers = nn.ModuleList(\n"
    f"            {_LAYER}\n"
    "            for _ in range(num_layers)\n"
    "        )\n"
)

MISTAKES = (
    Mistake(
        id="norm-never-applied",
        sentence="The last norm is there and never called, so what leaves the stack is the bare "
        "sum: return norm(x).",
        step="10",
        target="encoder",
        wrong=_norm_never_applied,
        plant=Plant("encoder", "return x if self.norm is None else self.norm(x)\n", "return x\n"),
    ),
    Mistake(
        id="padding-mask-missing",
        sentence="The layers do not get the mask, so words hear the padding: hand it to each.",
        step="10",
        target="encoder",
        wrong=_padding_mask_missing,
        variants=(_mask_for_the_first,),
        plant=Plant("encoder", "x = layer(x, src_mask=src_mask)\n", "x = layer(x)\n"),
    ),
    Mistake(
        id="layers-cloned",
        sentence="All layers are copies of one and start equal: build each one afresh.",
        step="10",
        target="stack",
        wrong=_layers_cloned,
        variants=(lambda make, num_layers: [*_layers_cloned(make, num_layers)],),
        plant=Plant(
            "encoder",
            _LAYERS,
            "        import copy\n\n"
            f"        one = {_LAYER}\n"
            "        self.layers = nn.ModuleList(copy.deepcopy(one) for _ in range(num_layers))\n",
        ),
    ),
    Mistake(
        id="layers-shared",
        sentence="The list holds one layer several times, so all of them have the same weights "
        "for ever: build a new one for each place.",
        step="10",
        target="stack",
        wrong=_layers_shared,
        variants=(lambda make, num_layers: [make()] * num_layers,),
        plant=Plant(
            "encoder",
            _LAYERS,
            f"        one = {_LAYER}\n        self.layers = nn.ModuleList([one] * num_layers)\n",
        ),
    ),
    Mistake(
        id="layers-in-list",
        sentence="A plain list hides its layers from the optimiser, which would train none of "
        "them: put them into nn.ModuleList.",
        step="a1",
        target="stack",
        wrong=_layers_in_list,
        plant=Plant(
            "encoder",
            _LAYERS,
            f"        self.layers = [\n            {_LAYER}\n"
            "            for _ in range(num_layers)\n        ]\n",
        ),
    ),
)
