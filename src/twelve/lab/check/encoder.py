"""Step 10: what a stack of layers invites."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from twelve.lab import example
from twelve.lab.check.numbers import seeded, vectors
from twelve.lab.check.table import Cases, Mistake, Plant, Target

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
    """Show each layer's matrix, and how many matrices an optimiser would find."""
    owner = nn.Module()
    owner.layers = layers
    found = torch.tensor(len(list(owner.parameters())))
    return torch.stack([layer.weight.detach() for layer in layers]), found


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
    return [lambda x, mask, layer=layer: layer(x, src_mask=mask) for layer in encoder.layers]


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


TARGETS = (
    Target(
        name="stack",
        contract="make, a function that builds a layer, num_layers -> the layers, found by an "
        "optimiser",
        right=_stack,
        cases=_stack_cases,
        observe=_look_into,
    ),
    Target(
        name="encoder",
        contract="x (batch, src, d_model), layers, each a function of x and a mask, norm, "
        "src_mask or None -> (batch, src, d_model)",
        right=_encoder,
        cases=_encoder_cases,
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
        plant=Plant("encoder", "x = layer(x, src_mask=src_mask)\n", "x = layer(x)\n"),
    ),
    Mistake(
        id="layers-cloned",
        sentence="All layers are copies of one and start equal: build each one afresh.",
        step="10",
        target="stack",
        wrong=_layers_cloned,
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
