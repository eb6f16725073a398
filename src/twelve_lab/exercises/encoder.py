"""Step 10: what a stack of layers invites."""

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
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.check.modules import run_layer
from twelve_lab.exercises import residual
from twelve_lab.exercises.numbers import seeded, vectors
from twelve_lab.trace.influence import influence

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
    twelve, larger = example.model().encoder, example.distinct.model().encoder
    x, mask = seeded()(2, 5, 24), example.distinct.src_mask.clone()
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


def _norm_after_each(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for layer in layers:
        x = norm(layer(x, src_mask))
    return x


def _norm_again(
    x: Tensor,
    layers: Sequence[_Masked],
    norm: Callable[[Tensor], Tensor],
    src_mask: Tensor | None,
    *,
    also_below: bool,
) -> Tensor:
    x = _encoder(x, layers, norm, src_mask)
    for _ in layers[0 if also_below else 1 :]:
        x = norm(x)
    return x


def _norm_first(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    return _norm_never_applied(norm(x), layers, norm, src_mask)


def _stack_that_adds(
    x: Tensor, layers: Sequence[_Masked], norm: Callable[[Tensor], Tensor], src_mask: Tensor | None
) -> Tensor:
    for layer in layers:
        x = x + layer(x, src_mask)
    return norm(x)


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
        x = self.looked(x, src_mask)
        return x + self.think(self.norm2(x))

    def looked(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        normed = self.norm1(x)
        return x + self.look(normed, normed, normed, src_mask)


_Add = Callable[[Tensor, Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], Tensor]


def _layer_that_runs(forward: Callable[..., Tensor]) -> type[_EncoderLayer]:
    return type("_LayerThatRuns", (_EncoderLayer,), {"forward": forward})


def _norm_behind(
    x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: Callable[[Tensor], Tensor]
) -> Tensor:
    return x + norm(sublayer(x))


def _layer_that_adds(first: _Add, second: _Add) -> type[_EncoderLayer]:
    def forward(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None = None) -> Tensor:
        x = first(x, lambda read: self.look(read, read, read, src_mask), self.norm1)
        return second(x, self.think, self.norm2)

    return _layer_that_runs(forward)


def _one_norm(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    x = self.looked(x, src_mask)
    return x + self.think(self.norm1(x))


def _sum_from_the_start(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    return x + self.think(self.norm2(self.looked(x, src_mask)))


def _both_read_the_start(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    return self.looked(x, src_mask) + self.think(self.norm2(x))


def _query_normed(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    x = x + self.look(self.norm1(x), x, x, src_mask)
    return x + self.think(self.norm2(x))


def _think_first(self: _EncoderLayer, x: Tensor, src_mask: Tensor | None) -> Tensor:
    return self.looked(x + self.think(self.norm2(x)), src_mask)


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


def _memory_shape() -> tuple[int, ...]:
    longest = max(2, 5, 4)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        return tuple(Encoder(30, 6, num_layers=4)(torch.zeros(3, longest, 30)).shape)


def _without_thinking(
    add: Callable[[Tensor, Tensor], Tensor] = torch.add, *, last_norm: bool = True, word: int = 1
) -> list[float]:
    encoder = example.model().encoder.requires_grad_(False)
    layer = encoder.layers[0]
    x = layer.self_attention_residual(vectors(), lambda q: layer.self_attention(q, q, q))
    y = add(x, torch.zeros_like(x))
    return (encoder.norm(y) if last_norm else y)[1, word].tolist()


def _on_the_road(stage: str) -> list[float]:
    return example.trace()[stage].value[1, 1].tolist()


def _who_hears(mask: Tensor) -> frozenset[str]:
    grid = influence(example.model().encode, example.src, vocab_size=4, src_mask=mask).grid
    names = [word for line in example.words["src"] for word in line]
    return frozenset(names[row] for row, column in grid.nonzero().tolist() if row != column)


_SUMS = {mistake.id: mistake.wrong for mistake in residual.MISTAKES if mistake.target == "residual"}
_sum = next(target.right for target in residual.TARGETS if target.name == "residual")

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
        slips={
            "That is fish in the memory as it was, with its thinking.": partial(
                _on_the_road, "memory"
            ),
            "That is the norm in front of the look: what does the last norm read now?": partial(
                _on_the_road, "encoder.layers.0.self_attention_residual.norm.output"
            ),
            "These are the numbers of dog.": partial(_without_thinking, word=0),
        },
    ),
    Question(
        name="who_hears",
        contract="the words that hear another word, under padding mask and causal mask",
        right=lambda: _who_hears(example.src_mask & causal_mask(2)),
        wrong={"causal-triu": lambda: _who_hears(example.src_mask & causal_mask(2).mT)},
        options=tuple(example.vocabulary),
        slips={
            'You let "cat" hear "<pad>", which the padding mask hides from every look.': (
                lambda: _who_hears(causal_mask(2))
            ),
            "That is the map under the padding mask alone: now later places are hidden as well.": (
                lambda: _who_hears(example.src_mask)
            ),
            '"dog" stands in front of "fish": what does the causal mask say to that?': (
                lambda: _who_hears(example.src_mask) - {"<pad>"}
            ),
            '"<pad>" stands first in its sentence: which places may it look at?': (
                lambda: _who_hears(example.src_mask) - {"dog"}
            ),
            "Not nobody: in one of the two sentences a real word has a real word before it.": (
                lambda: _who_hears(causal_mask(2) & causal_mask(2).mT)
            ),
        },
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
        slips={
            "Your stack holds one layer less than asked for.": (
                lambda make, num_layers: _stack(make, num_layers - 1)
            ),
            "Your stack holds one layer, however many are asked for.": lambda make, _: _stack(
                make, 1
            ),
            "Your stack holds one layer more than asked for.": (
                lambda make, num_layers: _stack(make, num_layers + 1)
            ),
        },
    ),
    Target(
        name="encoder",
        contract="x (batch, src, d_model), layers, a list of functions of x and src_mask, norm, "
        "src_mask -> (batch, src, d_model)",
        right=_encoder,
        cases=_encoder_cases,
        slips={
            "The norm runs after every layer: call it once, on what leaves the last one.": (
                _norm_after_each
            ),
            "The last norm runs at every level of your calls: which one has no layer left?": (
                partial(_norm_again, also_below=True)
            ),
            "The norm runs once for each layer: call it only where no layer is left.": (
                partial(_norm_again, also_below=False)
            ),
            "The norm stands in front of your stack, and is due behind it.": _norm_first,
            "Each layer reads the x that came in, so only one of them counts: it must read what "
            "the one before it left.": (
                lambda x, layers, norm, src_mask: norm(layers[-1](x, src_mask))
            ),
            "Only the first layer runs: what happens to the rest of the list?": (
                lambda x, layers, norm, src_mask: norm(layers[0](x, src_mask))
            ),
            "The layers run from the last to the first: turn their order round.": (
                lambda x, layers, norm, src_mask: _encoder(x, layers[::-1], norm, src_mask)
            ),
            "You add x to what a layer gives: the sums stand inside the layers already.": (
                _stack_that_adds
            ),
        },
        avoid=("a loop",),
    ),
    Target(
        name="encoder_layer",
        contract="Layer(d_model, num_heads, d_ff), x (batch, src, d_model), src_mask -> (batch, "
        "src, d_model)",
        right=_EncoderLayer,
        cases=_encoder_layer_cases,
        also={
            "padding-mask-missing": _layer_that_runs(
                lambda self, x, src_mask: _EncoderLayer.forward(self, x)
            ),
            **{id: _layer_that_adds(add, add) for id, add in _SUMS.items()},
        },
        halves={
            id: (_layer_that_adds(add, _sum), _layer_that_adds(_sum, add))
            for id, add in _SUMS.items()
        },
        slips={
            "The second sum starts from the x that came in, so what look has added is lost: start "
            "from what look has left.": _layer_that_runs(_sum_from_the_start),
            "What thinks is given the x that came in: give it what look has left.": (
                _layer_that_runs(_both_read_the_start)
            ),
            "You use norm1 twice and never norm2: each sublayer has a norm of its own.": (
                _layer_that_runs(_one_norm)
            ),
            "Only the query has gone through the norm: keys and values are read from the normed x "
            "as well.": _layer_that_runs(_query_normed),
            "Your layer thinks before it looks.": _layer_that_runs(_think_first),
            "The norms stand behind the sublayers, and are due in front of them.": (
                _layer_that_adds(_norm_behind, _norm_behind)
            ),
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
        sentence="Somewhere the padding of the source is not hidden, so words hear it: hand "
        "src_mask to every look at the source.",
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
        "them: put them into nn.ModuleList or nn.Sequential.",
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
