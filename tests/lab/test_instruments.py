"""The smaller instruments: influence, shadow, device, example."""

import inspect
import itertools
import math

import pytest
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

import twelve
from twelve.lab import AxisError, device, example, expect, influence, shadow, source
from twelve.lab.format import rounding_margin

MASKS = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}


def grid(*rows):
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


def test_a_sentence_does_not_see_the_other_nor_its_own_padding():
    found = influence(example.model(), example.src, example.tgt, of="src", **MASKS)
    assert torch.equal(found.grid, grid(".x..", ".x..", "..xx", "..xx"))
    assert found.outputs == ("out 0,0", "out 0,1", "out 1,0", "out 1,1")
    assert found.tokens == ("src 0,0", "src 0,1", "src 1,0", "src 1,1")


def test_without_the_padding_mask_the_padding_is_seen():
    found = influence(
        example.model(), example.src, example.tgt, of="src", tgt_mask=example.tgt_mask
    )
    assert torch.equal(found.grid, grid("xx..", "xx..", "..xx", "..xx"))


def test_no_target_position_sees_a_later_one():
    found = influence(example.model(), example.src, example.tgt, of="tgt", **MASKS)
    assert torch.equal(found.grid, grid("x...", "xx..", "..x.", "..xx"))
    assert "True" in repr(found)


def test_sequence_first_positions_mix_batch_and_sequence_up():
    """The map finds with no reference what no shape check sees."""

    class Confused(nn.Module):
        def forward(self, ids):
            vectors = torch.nn.functional.one_hot(ids, 4).double()
            return vectors.transpose(0, 1).cumsum(1).transpose(0, 1)  # sums over the batch

    found = influence(Confused(), example.src, vocab_size=4)
    assert torch.equal(found.grid, grid("x...", ".x..", "x.x.", ".x.x"))


def test_influence_refuses_what_it_cannot_answer():
    with pytest.raises(ValueError, match="of must be"):
        influence(example.model(), example.src, of="tgt")
    with pytest.raises(ValueError, match="give vocab_size"):
        influence(lambda ids: ids, example.src)
    with pytest.raises(ValueError, match=r"must be \(batch, position, \.\.\.\), got \(2, 2\)"):
        influence(lambda ids: ids.double(), example.src, vocab_size=4)


def test_a_shadow_run_passes_what_is_right():
    trace = shadow(
        lambda d_model, num_heads: twelve.MultiHeadAttention(d_model, num_heads),
        "batch tgt d_model", "batch src d_model", "batch src d_model",
    )  # fmt: skip
    assert trace["scores"].shape == (2, 3, 4, 5)


def test_a_shadow_run_finds_the_split_that_is_silent_at_223():
    class Split(nn.Module):
        def __init__(self, num_heads):
            super().__init__()
            self.num_heads = num_heads

        def forward(self, x: Float[Tensor, "batch seq d_model"]):
            heads: Float[Tensor, "batch head seq d_k"] = rearrange(
                x, "b s (h k) -> b s h k", h=self.num_heads
            )
            back: Float[Tensor, "batch seq head*d_k"] = x
            return heads, back

    with pytest.raises(AxisError, match=r"has seq=3, but .* has seq=5"):
        shadow(lambda num_heads: Split(num_heads), "batch src d_model")


def test_shadow_refuses_sizes_it_does_not_know():
    with pytest.raises(ValueError, match="no size for 'width'"):
        shadow(lambda width: nn.Identity(), "batch src d_model")
    with pytest.raises(ValueError, match="no size for axis 'word'"):
        shadow(lambda: nn.Identity(), "batch word")
    with pytest.raises(ValueError, match="name its sizes"):
        shadow(lambda *sizes: nn.Identity())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("toaster", "TWELVE_DEVICE='toaster' is no device"),
        ("mps", "the trace needs float64"),
        ("cuda:99", "CUDA devices are present"),
    ],
)
def test_a_device_that_cannot_serve_is_named(monkeypatch, value, message):
    monkeypatch.setenv("TWELVE_DEVICE", value)
    with pytest.raises(ValueError, match=message):
        device()
    assert device("cpu").type == "cpu"


def test_the_variable_names_the_device(monkeypatch):
    monkeypatch.setenv("TWELVE_DEVICE", "cpu")
    assert device() == torch.device("cpu")


def test_the_example_starts_from_these_twelve_numbers():
    trace = example.trace(on="cpu")
    assert trace["src_embedding.vectors"].value.tolist() == [
        [[0, 0, 0], [0.82, 0.15, 0.36]],
        [[0.7, 0.2, 0.4], [0.6, 0.3, 0.5]],
    ]
    last = math.sin(10000 ** (-2 / 3))
    expected = [
        [[0, 1, 0], [0.82 + math.sin(1), 0.15 + math.cos(1), 0.36 + last]],
        [[0.7, 1.2, 0.4], [0.6 + math.sin(1), 0.3 + math.cos(1), 0.5 + last]],
    ]
    torch.testing.assert_close(trace["src_input"].value, torch.tensor(expected))


def test_the_example_holds_no_random_number():
    one, two = example.model(), example.model()
    pairs = zip(one.state_dict().items(), two.state_dict().values(), strict=True)
    assert all(torch.equal(left, right) for (_, left), right in pairs)
    learned = {name for name, _ in one.named_parameters()}
    written = {name for name in learned if not name.endswith(("norm.weight", "norm.bias"))}
    assert len(written) == 2 + 3 * 4 + 2 * 4 + 2
    assert next(one.parameters()).dtype == torch.float64
    assert not one.training


def test_the_example_refuses_other_numbers_of_heads():
    with pytest.raises(ValueError, match="num_heads must be 1, 2 or 3, got 4"):
        example.model(num_heads=4)


def test_the_companion_is_the_same_every_time_and_its_sizes_all_differ():
    companion = example.companion
    sizes = [size for name, size in vars(companion.sizes).items()]
    assert len(set(sizes)) == len(sizes)
    one, two = companion.model(), companion.model()
    for left, right in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(left, right)
    # The layers of a stack differ, and so do norms from their start of ones and zeros.
    assert not torch.equal(
        one.encoder.layers[0].self_attention.w_q.weight,
        one.encoder.layers[1].self_attention.w_q.weight,
    )
    assert companion.src_mask.tolist()[0][0][0] == [True, True, True, False, False]


def test_no_traced_value_lies_near_a_rounding_boundary():
    """So what is printed does not depend on the last bits, which differ between devices."""
    switches = itertools.product((1, 2, 3), (True, False), ("relu", "gelu"), *((True, False),) * 3)
    seen = 0
    for heads, pre, activation, padding, tied, scaled in switches:
        trace = example.trace(
            num_heads=heads, norm_first=pre, activation=activation, padding=padding,
            tie_weights=tied, scale_embedding=scaled, on="cpu",
        )  # fmt: skip
        for name, entry in trace.items():
            assert rounding_margin(entry.value) > 1e-8, name
            seen += 1
    assert seen == 7872


def test_expect_prints_the_error_that_came(capsys):
    with expect(ValueError):
        raise ValueError("x has 3 rows\nand a second line")
    assert capsys.readouterr().out == "ValueError: x has 3 rows\n"


def test_expect_fails_where_nothing_is_raised_and_lets_other_errors_through():
    with pytest.raises(AssertionError, match="expected to raise ValueError"), expect(ValueError):
        pass
    with pytest.raises(KeyError), expect(ValueError):
        raise KeyError("other")


def test_source_shows_the_code_without_its_docstrings():
    text = repr(source(twelve.Linear.forward))
    assert text.startswith("def forward(self, x:")
    assert '"""' not in text
    assert "product = x @ self.weight.T" in text
    whole = source(twelve.scaled_dot_product_attention)
    assert "# A dot product of d_k unit-variance terms" in repr(whole)
    assert "Args:" not in repr(whole)
    assert "-&gt; Float[Tensor, &quot;*batch query d_v&quot;]:" in whole._repr_html_()
    for line in repr(source(twelve.LayerNorm)).splitlines():
        assert line in inspect.getsource(twelve.LayerNorm)
