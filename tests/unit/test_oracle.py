"""Every tensor of the Transformer equals an oracle in NumPy, written from the equations alone."""

import numpy as np
import oracle
import pytest
import torch
import torch.nn.functional as F
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
LOSSES = [
    ({}, 1.048250),
    ({"tie_weights": True}, 1.451602),
    ({"norm_first": False}, 1.404333),
    ({"activation": "gelu"}, 1.022050),
    ({"num_heads": 1}, 1.062053),
]


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


def test_distinct_sizes_are_all_different():
    sizes = vars(distinct.sizes).values()
    assert len(set(sizes)) == len(sizes)
    assert distinct.src.shape == (distinct.sizes.batch, distinct.sizes.src)
    assert distinct.tgt.shape == (distinct.sizes.batch, distinct.sizes.tgt)
    hidden = ~distinct.src_mask
    assert hidden.sum() == 2 and hidden[0, 0, 0, 3:].all()


def test_source_input_of_the_example_is_embedding_plus_position():
    expected = [
        [[0.0, 1.0, 0.0], [1.661471, 0.690302, 0.362154]],
        [[0.7, 1.2, 0.4], [1.441471, 0.840302, 0.502154]],
    ]
    src_input = example.trace(on="cpu")["src_input"].value
    np.testing.assert_allclose(src_input, expected, rtol=0.0, atol=5e-7)  # six decimals are given


@pytest.mark.parametrize(("switches", "expected"), LOSSES)
def test_loss_of_each_configuration_of_the_example(switches, expected):
    logits = example.trace(**switches, on="cpu")["logits"].value
    loss = F.cross_entropy(logits.flatten(0, 1), example.labels.flatten()).item()
    assert abs(loss - expected) < 5e-7  # six decimals are given
