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


def run_oracle(weights: dict, data, *, padding: bool, **switches) -> oracle.Steps:
    src, tgt = data.src.numpy(), data.tgt.numpy()
    return oracle.run(
        weights,
        src,
        tgt,
        src_mask=oracle.padding_mask(src) if padding else None,
        tgt_mask=oracle.causal_mask(tgt.shape[1]),
        **switches,
    )


def oracle_weights(model: Transformer) -> dict:
    """Arrange a model's weights for the oracle: every matrix (in, out)."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}

    def norm(path: str) -> dict[str, np.ndarray]:
        return {"weight": state[f"{path}.weight"], "bias": state[f"{path}.bias"]}

    def attention(path: str) -> dict[str, np.ndarray]:
        return {name: state[f"{path}.{name}.weight"].T for name in ("w_q", "w_k", "w_v", "w_o")}

    def feed_forward(path: str) -> dict[str, np.ndarray]:
        matrices = {f"w_{name}": state[f"{path}.{name}.weight"].T for name in ("up", "down")}
        return matrices | {f"b_{name}": state[f"{path}.{name}.bias"] for name in ("up", "down")}

    def stack(side: str, parts: dict) -> dict:
        layers = [
            {name: arrange(f"{side}.layers.{index}.{name}") for name, arrange in parts.items()}
            | {
                f"{name}_norm": norm(f"{side}.layers.{index}.{name}_residual.norm")
                for name in parts
            }
            for index in range(2)
        ]
        return {"layers": layers, "norm": norm(f"{side}.norm") if model.encoder.norm else None}

    encoder = {"self_attention": attention, "feed_forward": feed_forward}
    decoder = {"self_attention": attention, "cross_attention": attention}
    output = {"w": state["output_projection.weight"].T}
    if "output_projection.bias" in state:
        output["b"] = state["output_projection.bias"]
    return {
        "src_embedding": state["src_embedding.weight"],
        "tgt_embedding": state["tgt_embedding.weight"],
        "encoder": stack("encoder", encoder),
        "decoder": stack("decoder", decoder | {"feed_forward": feed_forward}),
        "output": output,
    }


def compare(trace: Trace, expected: oracle.Steps) -> None:
    assert list(trace) == list(expected)
    for name, value in expected.items():
        assert trace[name].shape == value.shape, name
        np.testing.assert_allclose(trace[name].value, value, rtol=0.0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("switches", pairwise(**SWITCHES), ids=spelled)
def test_every_tensor_of_the_example_equals_the_oracle(switches):
    weights = oracle.example_weights(example.weights(), switches["num_heads"])
    compare(example.trace(**switches, on="cpu"), run_oracle(weights, example, **switches))


DISTINCT = pairwise(**{name: SWITCHES[name] for name in SWITCHES if name != "num_heads"})


@pytest.mark.parametrize("switches", DISTINCT, ids=spelled)
def test_every_tensor_at_distinct_sizes_equals_the_oracle(switches):
    padding, options = switches["padding"], {k: v for k, v in switches.items() if k != "padding"}
    model = distinct.model(**options)
    with Trace(model) as trace, torch.no_grad():
        model(
            distinct.src,
            distinct.tgt,
            src_mask=distinct.src_mask if padding else None,
            tgt_mask=distinct.tgt_mask,
        )
    expected = run_oracle(oracle_weights(model), distinct, **switches, num_heads=3)
    compare(trace, expected)


def test_distinct_sizes_are_all_different():
    sizes = vars(distinct.sizes).values()
    assert len(set(sizes)) == len(sizes)
    assert distinct.src.shape == (distinct.sizes.batch, distinct.sizes.src)
    assert distinct.tgt.shape == (distinct.sizes.batch, distinct.sizes.tgt)
    hidden = ~distinct.src_mask
    assert hidden.sum() == 2 and hidden[0, 0, 0, 3:].all()


def test_oracle_and_package_have_the_same_example():
    data = oracle.EXAMPLE
    assert example.src.tolist() == [list(row) for row in data.src_ids]
    assert example.tgt.tolist() == [list(row) for row in data.tgt_ids]
    assert example.labels.tolist() == [list(row) for row in data.labels]
    assert example.embedding_rows == data.embedding


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
    assert abs(oracle.loss(logits.numpy(), example.labels.numpy()) - loss) < 1e-12
