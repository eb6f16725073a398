"""The smaller instruments: influence, check_axes, device, example."""

import inspect
import itertools
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

import twelve
from twelve_lab import AxisError, check_axes, device, example, expect, influence, source
from twelve_lab.show.format import format_number

MASKS = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}


class Documented:
    """Something with docstrings to leave out."""

    size = 3

    def first(self):
        """Do one thing.

        At length.
        """

        def inner():
            return self.size

        # The comment stays.
        return inner()

    def second(self):
        """Do another."""
        return 2


class Summer:
    """Two tables of different sizes; a target position sums the source and its own past."""

    src_embedding = SimpleNamespace(vocab_size=3)
    tgt_embedding = SimpleNamespace(vocab_size=4)

    def __init__(self):
        self.tried = set()

    def __call__(self, src, tgt):
        self.tried |= {*tgt.flatten().tolist()}
        return (src.sum(1, keepdim=True) + tgt.cumsum(1)).double().unsqueeze(-1)


class Keeper(nn.Module):
    """Computes nothing and keeps what it was given."""

    def forward(self, *inputs):
        self.inputs = inputs


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


def test_sentences_of_unequal_length_have_rows_and_columns_of_their_own():
    short, long = torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64)
    found = influence(Summer(), short, long, of="src")
    assert torch.equal(found.grid, grid("xx", "xx", "xx"))
    assert found.outputs == ("out 0,0", "out 0,1", "out 0,2")
    assert found.tokens == ("src 0,0", "src 0,1")
    found = influence(Summer(), short, long, of="tgt")
    assert torch.equal(found.grid, grid("x..", "xx.", "xxx"))
    assert found.tokens == ("tgt 0,0", "tgt 0,1", "tgt 0,2")


def test_the_ids_that_are_tried_are_those_of_the_table_that_is_asked_about():
    model = Summer()
    influence(model, torch.tensor([[1]]), torch.tensor([[1]]), of="tgt")
    assert model.tried == {0, 1, 2, 3}


@pytest.mark.parametrize("special", [0, 3])
def test_every_id_is_tried_the_first_and_the_last_too(special):
    found = influence(
        lambda ids: (ids == special).double().unsqueeze(-1), torch.tensor([[1, 2]]), vocab_size=4
    )
    assert torch.equal(found.grid, grid("x.", ".x"))


def test_a_number_that_becomes_nan_has_moved():
    found = influence(
        lambda ids: torch.where(ids == 3, torch.nan, 1.0).unsqueeze(-1),
        torch.tensor([[1, 2]]),
        vocab_size=4,
    )
    assert torch.equal(found.grid, grid("x.", ".x"))


def test_a_move_beyond_the_tolerance_counts_in_any_feature():
    def small(ids):
        return torch.stack([torch.zeros(ids.shape), 1e-6 * ids], dim=-1)

    ids = torch.tensor([[1]])
    assert influence(small, ids, vocab_size=2).grid.all()
    assert not influence(small, ids, vocab_size=2, tolerance=1e-5).grid.any()


@pytest.mark.parametrize("same", [torch.nan, torch.inf])
def test_an_output_that_is_no_number_and_stays_so_has_not_moved(same):
    found = influence(lambda ids: torch.full((*ids.shape, 1), same), example.src, vocab_size=4)
    assert not found.grid.any()


def test_influence_computes_no_gradient():
    asked = []

    def model(ids):
        asked.append(torch.is_grad_enabled())
        return ids.double().unsqueeze(-1)

    influence(model, example.src, vocab_size=2)
    assert set(asked) == {False}


def test_influence_refuses_what_it_cannot_answer():
    with pytest.raises(ValueError, match="of must be"):
        influence(example.model(), example.src, of="tgt")
    with pytest.raises(ValueError, match="give vocab_size"):
        influence(lambda ids: ids, example.src)
    with pytest.raises(ValueError, match=r"must be \(batch, position, \.\.\.\), got \(2, 2\)"):
        influence(lambda ids: ids.double(), example.src, vocab_size=4)
    with pytest.raises(ValueError, match=r"got \(3, 2, 1\) for a batch of 2"):
        influence(lambda ids: torch.zeros(3, 2, 1), example.src, vocab_size=4)


def test_a_check_of_the_axes_passes_what_is_right():
    trace = check_axes(
        lambda d_model, num_heads: twelve.MultiHeadAttention(d_model, num_heads),
        "batch tgt d_model", "batch src d_model", "batch src d_model",
    )  # fmt: skip
    assert trace["scores"].shape == (2, 3, 4, 5)


def test_a_check_of_the_axes_finds_the_split_that_is_silent_at_223():
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
        check_axes(lambda num_heads: Split(num_heads), "batch src d_model")


def test_check_axes_fills_parameters_by_name_and_leaves_defaults_alone():
    layer = Keeper()

    def build(
        d_model, num_heads, d_k, d_v, d_ff, vocab_size, src_vocab_size, tgt_vocab_size,
        num_layers, max_len, d_in, d_out, batch=7,
    ):  # fmt: skip
        layer.sizes = locals()
        return layer

    check_axes(build)
    assert {name: size for name, size in layer.sizes.items() if name != "layer"} == {
        "d_model": 24, "num_heads": 3, "d_k": 8, "d_v": 6, "d_ff": 96, "vocab_size": 11,
        "src_vocab_size": 11, "tgt_vocab_size": 13, "num_layers": 2, "max_len": 32, "d_in": 24,
        "d_out": 96, "batch": 7,
    }  # fmt: skip


def test_check_axes_fills_inputs_by_axis_the_same_every_time():
    axes = ("batch head query key", "tgt src seq", "d_k d_v", "d_model d_ff vocab")
    first, second = Keeper(), Keeper()
    check_axes(lambda: first, *axes)
    check_axes(lambda: second, *axes)
    shapes = [tuple(found.shape) for found in first.inputs]
    assert shapes == [(2, 3, 4, 5), (4, 5, 5), (8, 6), (24, 96, 13)]
    pairs = zip(first.inputs, second.inputs, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_check_axes_hands_a_tensor_over_as_it_is():
    layer, ids = Keeper(), torch.tensor([[1, 2]])
    check_axes(lambda: layer, ids)
    assert layer.inputs[0] is ids


def test_check_axes_goes_where_the_weights_are():
    layer = Keeper()
    layer.weight = nn.Parameter(torch.empty(1, device="meta"))
    check_axes(lambda: layer, "batch d_model")
    assert layer.inputs[0].device.type == "meta"


def test_check_axes_computes_in_float64_and_leaves_the_default_as_it_was():
    torch.set_default_dtype(torch.float32)
    trace = check_axes(lambda d_model: twelve.FeedForward(d_model), "batch src d_model")
    assert trace["activated"].value.dtype == torch.float64
    with pytest.raises(ZeroDivisionError):
        check_axes(lambda: 1 // 0)
    assert torch.get_default_dtype() == torch.float32


def test_check_axes_refuses_sizes_it_does_not_know():
    with pytest.raises(ValueError, match="no size for 'width'"):
        check_axes(lambda width: nn.Identity(), "batch src d_model")
    with pytest.raises(ValueError, match="no size for axis 'word'"):
        check_axes(lambda: nn.Identity(), "batch word")
    with pytest.raises(ValueError, match="name its sizes"):
        check_axes(lambda *sizes: nn.Identity())


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


def test_blanks_around_the_name_do_not_count(monkeypatch):
    monkeypatch.setenv("TWELVE_DEVICE", " cpu ")
    assert device() == torch.device("cpu")


@pytest.mark.parametrize(("present", "expected"), [(True, "cuda"), (False, "cpu")])
def test_without_a_name_it_is_cuda_where_there_is_one(monkeypatch, present, expected):
    monkeypatch.setenv("TWELVE_DEVICE", " ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    assert device() == torch.device(expected)


def test_a_cuda_device_must_be_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ValueError, match="device='cuda:1', but 1 CUDA devices are present"):
        device("cuda:1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="device='cuda', but 0 CUDA devices are present"):
        device("cuda")


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


def test_the_example_has_words_for_its_ids():
    assert example.words == {
        "src": [["<pad>", "cat"], ["dog", "fish"]],
        "tgt": [["<start>", "cat"], ["<start>", "fish"]],
        "vocab": ["<pad>", "cat", "dog", "fish"],
        "seq": [["<pad>", "cat"], ["dog", "fish"]],
    }


def test_the_example_takes_longer_sentences_than_its_own():
    ids = torch.ones(1, 8, dtype=torch.int64)
    assert example.model()(ids, ids).shape == (1, 8, 4)


def test_building_leaves_the_default_dtype_as_it_was():
    torch.set_default_dtype(torch.float32)
    for build in (example.model, example.distinct.model):
        assert next(build().parameters()).dtype == torch.float64
    with pytest.raises(ValueError, match="activation"):
        example.model(activation="tanh")
    assert torch.get_default_dtype() == torch.float32


def test_the_walk_runs_where_it_is_told_and_else_where_the_variable_says(monkeypatch):
    monkeypatch.setenv("TWELVE_DEVICE", "toaster")
    assert example.trace(on="meta")["logits"].value.device.type == "meta"
    with pytest.raises(ValueError, match="TWELVE_DEVICE='toaster' is no device"):
        example.trace()


def test_the_example_refuses_other_numbers_of_heads():
    with pytest.raises(ValueError, match="num_heads must be 1, 2 or 3, got 4"):
        example.model(num_heads=4)


def test_the_distinct_size_example_is_the_same_every_time_and_its_sizes_all_differ():
    distinct = example.distinct
    sizes = [size for name, size in vars(distinct.sizes).items()]
    assert len(set(sizes)) == len(sizes)
    one, two = distinct.model(), distinct.model()
    for left, right in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(left, right)
    # The layers of a stack differ, and so do norms from their start of ones and zeros.
    assert not torch.equal(
        one.encoder.layers[0].self_attention.w_q.weight,
        one.encoder.layers[1].self_attention.w_q.weight,
    )
    assert distinct.src_mask.tolist()[0][0][0] == [True, True, True, False, False]
    assert not one.training
    again = type(distinct)()
    for name in ("src", "tgt", "labels", "src_mask", "tgt_mask"):
        assert torch.equal(getattr(again, name), getattr(distinct, name))


def test_the_switches_of_the_distinct_size_example_reach_its_model():
    model = example.distinct.model(num_heads=2, fused=True)
    attention = model.decoder.layers[1].cross_attention
    assert (attention.num_heads, attention.fused, model.encoder.norm.fused) == (2, True, True)


def test_the_ids_of_the_distinct_size_example_hold_no_padding_but_that_of_the_first_sentence():
    distinct, sizes = example.distinct, example.distinct.sizes
    assert (distinct.src == 0).nonzero().tolist() == [[0, 3], [0, 4]]
    assert distinct.tgt.shape == distinct.labels.shape == (sizes.batch, sizes.tgt)
    for ids in (distinct.tgt, distinct.labels):
        assert ids.min() > 0
        # Beyond the source's vocabulary, so that neither table can stand in for the other.
        assert sizes.src_vocab <= ids.max() < sizes.tgt_vocab


def assert_no_value_is_near_a_rounding_boundary(*runs: dict[str, Any]) -> int:
    """So what is printed does not depend on the last bits, which differ between devices."""
    traces = [example.trace(**switches, on="cpu") for switches in runs]
    for trace in traces:
        for name, entry in trace.items():
            for number in entry.value.double().flatten().tolist():
                texts = {format_number(number + step) for step in (-1e-8, 0.0, 1e-8)}
                assert len(texts) == 1, (name, number)
    return sum(map(len, traces))


def test_no_value_of_the_runs_of_the_course_lies_near_a_rounding_boundary():
    seen = assert_no_value_is_near_a_rounding_boundary(*example.CONFIGURATIONS.values())
    assert seen == 766


@pytest.mark.slow
def test_no_value_of_any_run_lies_near_a_rounding_boundary():
    values = {
        "num_heads": (1, 2, 3), "norm_first": (True, False), "activation": ("relu", "gelu"),
        "padding": (True, False), "tie_weights": (True, False), "scale_embedding": (True, False),
    }  # fmt: skip
    runs = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    assert assert_no_value_is_near_a_rounding_boundary(*runs) == 7872


def test_expect_prints_the_error_that_came(capsys):
    with expect(ValueError):
        raise ValueError("x has 3 rows\nand a second line")
    assert capsys.readouterr().out == "ValueError: x has 3 rows\n"


def test_expect_names_the_kind_that_came_and_needs_no_message(capsys):
    with expect(LookupError):
        raise KeyError
    with expect(ValueError):
        raise ValueError("\n  the second line\n")
    assert capsys.readouterr().out == "KeyError\nValueError: the second line\n"


def test_expect_fails_where_nothing_is_raised_and_lets_other_errors_through():
    with pytest.raises(AssertionError, match="expected to raise ValueError"), expect(ValueError):
        pass
    with pytest.raises(KeyError), expect(ValueError):
        raise KeyError("other")


def test_source_shows_the_code_without_its_docstrings():
    text = repr(source(twelve.Linear.forward))
    assert text.startswith("def forward(self, x:")
    assert '"""' not in text
    assert "return F.linear(x, self.weight, self.bias)" in text
    whole = source(twelve.scaled_dot_product_attention)
    assert "# A dot product of d_k unit-variance terms" in repr(whole)
    assert "Args:" not in repr(whole)
    assert "-&gt; Float[Tensor, &quot;*batch query d_v&quot;]:" in whole._repr_html_()
    for line in repr(source(twelve.LayerNorm)).splitlines():
        assert line in inspect.getsource(twelve.LayerNorm)


def test_source_leaves_out_docstrings_and_nothing_else():
    lines = [
        "class Documented:",
        "    size = 3",
        "",
        "    def first(self):",
        "        def inner():",
        "            return self.size",
        "",
        "        # The comment stays.",
        "        return inner()",
        "",
        "    def second(self):",
        "        return 2",
    ]
    assert repr(source(Documented)).splitlines() == lines
