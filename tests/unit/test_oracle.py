"""Every tensor of the Transformer equals the tensor that the NumPy oracle computes."""

import oracle
import pytest
import torch
from pairs import pairwise, spelled

from twelve import Transformer
from twelve_lab import Trace, example

distinct = example.distinct
SWITCHES = {
    "num_heads": (1, 2, 3),
    "norm_first": (True, False),
    "activation": ("relu", "gelu"),
    "padding": (True, False),
    "tie_weights": (True, False),
    "scale_embedding": (True, False),
}


def run_oracle(model: Transformer, data, *, padding: bool, **switches) -> oracle.Steps:
    src, tgt = data.src.numpy(), data.tgt.numpy()
    weights = oracle.weights_of(model)
    masks = {
        "src_mask": oracle.padding_mask(src) if padding else None,
        "tgt_mask": oracle.causal_mask(tgt.shape[1]),
    }
    num_layers = len(model.encoder.layers)
    return oracle.run(weights, src, tgt, num_layers=num_layers, **masks, **switches)


def without_padding(switches: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in switches.items() if name != "padding"}


@pytest.mark.parametrize("switches", pairwise(**SWITCHES), ids=spelled)
def test_every_tensor_of_the_example_equals_the_oracle(switches):
    model = example.model(**without_padding(switches))
    expected = run_oracle(model, example, **switches)
    oracle.compare(example.trace(**switches, on="cpu"), expected)


DISTINCT = pairwise(**{name: SWITCHES[name] for name in SWITCHES if name != "num_heads"})


@pytest.mark.parametrize("switches", DISTINCT, ids=spelled)
def test_every_tensor_at_distinct_sizes_equals_the_oracle(switches):
    model = distinct.model(**without_padding(switches))
    masks = {"src_mask": distinct.src_mask} if switches["padding"] else {}
    with Trace(model) as trace, torch.no_grad():
        model(distinct.src, distinct.tgt, tgt_mask=distinct.tgt_mask, **masks)
    oracle.compare(trace, run_oracle(model, distinct, **switches, num_heads=3))
