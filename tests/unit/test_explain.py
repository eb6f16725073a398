"""Explain any number: the arithmetic is that of the run, for every element there is."""

import itertools
import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tests.operations import ON_A_GPU, OPERATIONS, SLOWLY, TAKEN_APART, X, Z, run
from twelve import LearnedPositionalEncoding, RMSNorm, SwiGLU
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.explain.explanation import Element
from twelve_lab.explain.expression import (
    Apply,
    Dot,
    Leaf,
    Number,
    Total,
    Writer,
    add,
    call,
    compute,
    divide,
    multiply,
    subtract,
)  # fmt: skip
from twelve_lab.explain.formulas import FORMULAS, expression_of

CONFIGURATIONS = [
    {**switch, "padding": padding}
    for padding in (True, False)
    for switch in (
        {}, {"num_heads": 1}, {"num_heads": 2}, {"norm_first": False}, {"activation": "gelu"},
        {"tie_weights": True}, {"scale_embedding": True}, {"fused": True},
        {"fused": True, "num_heads": 2, "norm_first": False},
    )
]  # fmt: skip
SISTER = [{"decoder_only": True, **more} for more in (
    {}, {"num_kv_heads": 2, "tie_weights": False}, {"padding": False},
)]  # fmt: skip


def calculate(explanation):
    """Evaluate an expression with nothing but `math` and three plain functions at hand."""
    allowed = {"math": math, "max": max, "min": min, "abs": abs}
    return eval(explanation.expression, {"__builtins__": {}, **allowed})


def check_all(trace, depth=1, text=True, step=1):
    """Recompute every element; return how many there were and how many are exact."""
    count = exact = 0
    for entry in trace.values():
        for index in list(itertools.product(*map(range, entry.shape)))[::step]:
            explanation = entry.explain(*index, depth=depth)
            value = entry.value[index].item()
            assert explanation.value == value or math.isnan(value)
            result = calculate(explanation)
            assert result == value or math.isclose(result, value, rel_tol=1e-9, abs_tol=1e-9)
            if text and "the same number moved" in explanation.text:
                assert result == value
            count += 1
            exact += result == value
    return count, exact


@pytest.mark.parametrize("configuration", CONFIGURATIONS[:10] + SISTER, ids=str)
def test_every_tensor_of_every_configuration_is_explained(configuration):
    trace = example.trace(on="cpu", **configuration)
    for number, entry in enumerate(trace.values()):
        for place in {number, 5 * number + 7}:
            index = torch.unravel_index(torch.tensor(place % entry.value.numel()), entry.shape)
            explanation = entry.explain(*index)
            result, value = calculate(explanation), entry.value[index].item()
            assert explanation.value == value
            assert result == value or result == pytest.approx(value, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("configuration", CONFIGURATIONS + SISTER, ids=str)
def test_every_element_of_every_configuration_is_explained(configuration):
    count, exact = check_all(example.trace(on="cpu", **configuration))
    print(f"{count} elements explained, {exact} of them to the last bit")
    assert count >= (150 if configuration.get("decoder_only") else 500)


def test_elements_at_distinct_sizes_are_explained():
    distinct = example.distinct
    model = distinct.model()
    with Trace(model) as trace:
        model(distinct.src, distinct.tgt, src_mask=distinct.src_mask, tgt_mask=distinct.tgt_mask)
    assert check_all(trace, text=False, step=37)[0] > 300


@pytest.mark.parametrize("depth", [2, 5, 9])
def test_an_unfolded_expression_still_gives_the_value(depth):
    trace = example.trace(on="cpu")
    for index in [(0, 0, 1), (1, 1, 2)]:
        explanation = trace["logits"].explain(*index, depth=depth)
        assert calculate(explanation) == pytest.approx(explanation.value, abs=1e-9)


def check_both_ways(trace):
    """Compare every element and every gradient of `run` with what torch computed."""
    for index in itertools.product(*map(range, trace["y"].shape)):
        explanation = trace["y"].explain(*index)
        value = trace["y"].value[index].item()
        assert explanation.value == value
        # A conversion to single precision rounds, and is written as the same number.
        assert calculate(explanation) == pytest.approx(float(value), rel=1e-7, abs=1e-9)
    if trace["y"].tensor.requires_grad:
        for index in itertools.product(*map(range, trace["x"].shape)):
            gradient = trace["x"].explain_grad(*index)
            assert gradient.total == pytest.approx(gradient.value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() | FORMULAS.keys() - ON_A_GPU))
def test_every_formula_gives_the_number_and_its_gradient(name):
    for function in OPERATIONS[name]:
        trace = run(function, X)
        check_both_ways(trace)
        made = [block.made for block in trace.graph.tape.blocks if block.made]
        assert name in FORMULAS.keys() & {operation.name for operation in made}


@pytest.mark.parametrize(
    "function",
    [
        *TAKEN_APART.values(),
        *(pytest.param(each, marks=pytest.mark.slow) for each in SLOWLY.values()),
    ],
    ids=[*TAKEN_APART, *SLOWLY],
)
def test_an_operation_without_a_formula_is_taken_apart_as_torch_does_it(function):
    check_both_ways(run(function, X))


@pytest.mark.parametrize(
    "function",
    [
        SLOWLY["gelu by tanh"], SLOWLY["layer_norm's mean"], TAKEN_APART["addmm"],
        lambda x: torch.addmm(x[:, :2], Z, Z.T, beta=5),
        lambda x: torch.div(x, Z, rounding_mode="floor"), lambda x: x.max(1).indices,
        # The bits of whole numbers are no truth.
        lambda x: (9 * x).long() & 3, lambda x: (9 * x).long() | 1, lambda x: ~(9 * x).long(),
    ],
)  # fmt: skip
def test_a_form_of_an_operation_that_a_formula_does_not_mean_gets_none(function):
    trace = run(function, X)
    block = trace.graph.tape.named["y"]
    assert block.made.name in FORMULAS
    assert expression_of(block.made, 0, trace.graph.tape.value) is None


def test_of_equal_numbers_the_first_gets_the_gradient_of_max():
    trace = run(lambda x: x.max(0).values, torch.tensor([1.0, 3.0, 3.0]))
    assert [trace["x"].explain_grad(i).total for i in range(3)] == [0, 1, 0]
    check_both_ways(trace)
    check_both_ways(run(F.relu, torch.tensor([0.0, -1.0, 1.0])))


def test_what_is_random_is_not_made_again():
    with Trace() as trace:
        y: Float[Tensor, " n"] = torch.native_dropout(X[0], 0.5, True)[0]
    assert y.shape == (3,)
    with pytest.raises(ValueError, match="no formula for the operation aten::native_dropout"):
        trace["y"].explain(0)


def test_a_number_of_complex_numbers_is_no_constant():
    with Trace() as trace:
        y: Float[Tensor, " n"] = torch.fft.fft(X[0]).abs() + 1
        z: Float[Tensor, " n"] = y * 2
        pair: Float[Tensor, "rows two"] = torch.view_as_real(torch.fft.rfft(X[0]))
    assert z.shape == (3,) and pair.shape == (2, 2)
    with pytest.raises(ValueError, match="computed by aten::abs of complex128 numbers"):
        trace["y"].explain(0)
    with pytest.raises(ValueError, match="computed by aten::view_as_real of complex128 numbers"):
        trace["pair"].explain(0, 1)
    assert "y[n 2]·2" in str(trace["z"].explain(2))


def test_the_text_writes_symbols_digits_and_the_result():
    trace = example.trace(on="cpu", num_heads=1)
    explanation = trace["encoder.layers.0.self_attention.scores"].explain(1, 0, 1, 0)
    query = trace["encoder.layers.0.self_attention.query_heads"].value[1, 0, 1].tolist()
    key = trace["encoder.layers.0.self_attention.key_heads"].value[1, 0, 0].tolist()
    lines = explanation.text.splitlines()
    assert lines[0] == "encoder.layers.0.self_attention.scores[batch 1, head 0, query 1, key 0]"
    assert lines[1] == "  code: query @ key.transpose(-2, -1) / math.sqrt(d_k)"
    assert lines[2] == (
        "  = (query_heads[batch 1, head 0, query 1, d_k :] · "
        "key_heads[batch 1, head 0, key 0, d_k :]) / sqrt(3)"
    )
    assert lines[3].count("·") == 3 and lines[3].endswith(" / sqrt(3)")
    for number in (*query, *key):
        assert f"{number:.4f}" in lines[3]
    assert lines[4] == f"  = {explanation.value:.4f}"


def test_a_moved_number_a_constant_and_a_given_one_are_called_so():
    trace = example.trace(on="cpu")
    attention = "encoder.layers.0.self_attention"
    moved = trace[f"{attention}.query_heads"].explain(1, 2, 0, 0)
    assert "= projected_query[batch 1, query 0, head*d_k 2], the same number moved" in moved.text
    hidden = trace[f"{attention}.masked_scores"].explain(0, 0, 0, 0)
    assert hidden.text.endswith("= -inf, a constant of the code")
    assert hidden.inputs == []
    row = trace["src_embedding.vectors"].explain(0, 1, 0)
    assert "= weight[1, 0], the same number moved" in row.text and row.expression == "0.82"


def test_inputs_lead_down_to_the_table_and_the_positions():
    trace = example.trace(on="cpu")
    (first, second) = trace["positional_encoding.encoded"].explain(0, 1, 2).inputs
    assert str(first) == "src_embedding.vectors[batch 0, src 1, d_model 2]"
    assert (second.name, second.index) == ("positional_encoding.positions", (1, 2))
    assert "code:" in str(trace["positional_encoding.encoded"].explain(0, 1, 2))
    assert "code:" not in str(trace["positional_encoding.encoded"].explain(0, 1, 2, depth=2))
    deeper = trace["positional_encoding.encoded"].explain(0, 1, 2, depth=2).inputs
    assert [(e.name, e.index) for e in deeper] == [
        ("src_embedding.weight", (1, 2)), ("positional_encoding.table", (1, 2)),
    ]  # fmt: skip
    assert sum(e.value for e in deeper) == trace["src_input"].value[0, 1, 2].item()


def test_a_constant_is_written_as_a_root_where_it_is_one_and_inputs_are_listed_once():
    with Trace() as trace:
        x: Float[Tensor, ""] = torch.tensor(2.0) * 1
        y: Float[Tensor, ""] = (x * math.sqrt(3) > -math.sqrt(3)) * x / 0.75 - x * math.inf
    assert y == -math.inf and trace["y"].explain().inputs == [Element("x", (), (), 2.0)]
    assert "= (x·sqrt(3) > (-1.73205))·x / 0.75 - x·inf\n" in str(trace["y"].explain())
    html = trace["y"].explain()._repr_html_()
    assert "sqrt(3) &gt; (-1.73205)" in html and "math.sqrt(3) > " not in html


def test_only_a_whole_axis_of_one_tensor_is_written_as_a_slice():
    with Trace() as trace:
        a: Float[Tensor, "row column"] = torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * 1
        b: Float[Tensor, " column"] = a[1] * 2
        whole: Float[Tensor, ""] = a[1].sum()
        mixed: Float[Tensor, ""] = torch.stack([a[0, 0], a[1, 1]]).sum()
        both: Float[Tensor, ""] = torch.stack([a[0, 0], b[1]]).sum()
        turned: Float[Tensor, ""] = b.flip(0).sum()
        mean: Float[Tensor, ""] = a[:, 0].mean()
    assert (whole, mixed, both, turned, mean) == (7, 5, 9, 14, 2)
    for name, written in {
        "whole": "sum(a[row 1, column :])", "mixed": "a[row 0, column 0] + a[row 1, column 1]",
        "both": "a[row 0, column 0] + b[column 1]", "turned": "b[column 1] + b[column 0]",
        "mean": "sum(a[row :, column 0]) / 2",
    }.items():  # fmt: skip
        assert f"  = {written}\n" in str(trace[name].explain())


def test_a_long_sum_is_shortened_and_says_how_long_it_is():
    with Trace() as trace:
        four: Float[Tensor, " 1"] = torch.arange(1.0, 5.0).square().sum(0, keepdim=True)
        five: Float[Tensor, " 1"] = torch.arange(1.0, 6.0).square().sum(0, keepdim=True)
        x: Float[Tensor, " n"] = torch.arange(1.0, 10.0)
        total: Float[Tensor, " 1"] = (x * x).sum(0, keepdim=True)
    text = trace["total"].explain(0).text
    assert "… + 9.0000·9.0000 [9 terms]" in text
    assert (four, five) == (30, 55)
    assert "= 1^2 + 2^2 + 3^2 + 4^2\n" in str(trace["four"].explain(0))
    assert "= 1^2 + 2^2 + 3^2 + … + 5^2 [5 terms]\n" in str(trace["five"].explain(0))
    assert total.item() == 285


@pytest.mark.parametrize(
    "layer",
    [SwiGLU(3, 4), RMSNorm(3), LearnedPositionalEncoding(3, max_len=4), RMSNorm(3, fused=True)],
    ids=lambda layer: type(layer).__name__,
)
def test_the_layers_beside_the_model_are_explained(layer):
    x = example.trace(on="cpu")["src_input"].value
    layer = layer.double()
    with Trace() as trace:
        y: Float[Tensor, "batch seq d_model"] = layer(x)
    assert torch.equal(y, layer(x))
    assert check_all(trace)[0] >= 12


def test_a_learners_own_code_is_explained():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    with Trace() as trace:
        split: Float[Tensor, "batch head seq d_k"] = x.view(2, 3, 2, 2).transpose(1, 2)
        named: Float[Tensor, "batch head seq d_k"] = rearrange(x, "b s (h d) -> b h s d", h=2)
        merged: Float[Tensor, "batch seq d_model"] = rearrange(split * 2, "b h s d -> b s (h d)")
        sliced: Float[Tensor, "batch two chosen"] = merged[:, 1:, [3, 0]]
        doubled: Float[Tensor, "batch seq twice"] = repeat(x.sum(-1), "b s -> b s t", t=2)
        joined: Float[Tensor, "batch seq wide"] = torch.cat([doubled, x], -1)
        stacked: Float[Tensor, "pair batch seq"] = torch.stack([x[..., 0], x[..., 1] - 1])
        hidden: Float[Tensor, "batch seq d_model"] = x.masked_fill(x < 0, 0.0)
        chosen: Float[Tensor, "batch seq d_model"] = torch.where(x > 0, x, -x)
        lower: Float[Tensor, "batch seq d_model"] = x.tril()
        windows: Float[Tensor, "window d_model"] = (x * 3)[1].as_strided((5, 4), (2, 1), 12)
        mixed: Float[Tensor, "batch seq other"] = torch.einsum("bsd,bod->bso", x, x)
        centred: Float[Tensor, "batch seq d_model"] = (x - x.mean(1, keepdim=True)) / x.std()
        waves: Float[Tensor, "batch seq d_model"] = x.sin() ** 2 + x.cos().square() + x.abs()
        soft: Float[Tensor, "batch seq d_model"] = x.softmax(1) * x.sigmoid() + x.exp().log()
    assert torch.equal(split, named)
    assert merged.shape == (2, 3, 4) and sliced.shape == (2, 2, 2) and joined.shape == (2, 3, 6)
    assert windows.shape == (5, 4)
    assert {t.shape for t in (hidden, chosen, lower, centred, waves, soft)} == {x.shape}
    assert mixed.shape == (2, 3, 3) and stacked.shape == (2, 2, 3)
    assert check_all(trace)[0] > 200


def test_what_is_filled_in_place_is_explained_through_every_view():
    x = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    with Trace() as trace:
        y = x * 1.5
        row = y[1]
        row[2:] = 7.0
        y[0].copy_(x[2] + 1)
        y += 0.25
        y[:, 0].mul_(2)
        y.masked_fill_(x == 5, -1.0)
        y[2, 2:].zero_()
        after: Float[Tensor, "a b"] = y
        late: Float[Tensor, " b"] = row.clone()
    assert torch.equal(late, after[1]) and late[1] == -1
    assert check_all(trace) == (16, 16)
    assert trace["late"].explain(1).text.endswith("-1.0000, a constant of the code")


def test_the_loss_is_explained_and_ignored_labels_do_not_count():
    model = example.model()
    with Trace(model) as trace:
        logits = model(
            example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask
        )
        loss: Float[Tensor, ""] = F.cross_entropy(logits.reshape(-1, 4), example.labels.flatten())
        summed: Float[Tensor, ""] = F.cross_entropy(
            logits.reshape(-1, 4), example.labels.flatten(), reduction="sum"
        )
        single: Float[Tensor, " token"] = F.cross_entropy(
            logits.reshape(-1, 4), example.labels.flatten(), reduction="none"
        )
    explanation = trace["loss"].explain()
    assert calculate(explanation) == pytest.approx(loss.item(), abs=1e-12)
    assert explanation.value == pytest.approx(1.048250, abs=1e-6)
    assert {e.name for e in explanation.inputs} == {"logits"}
    assert {e.index[:2] for e in explanation.inputs} == {(0, 0), (1, 0), (1, 1)}
    assert calculate(trace["summed"].explain()) == pytest.approx(summed.item(), abs=1e-12)
    assert [calculate(trace["single"].explain(i)) for i in range(4)] == pytest.approx(
        single.tolist(), abs=1e-12
    )


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_packages_own_loss_is_explained_forwards_and_backwards(label_smoothing):
    model = example.model()
    with Trace(model, grad=True) as trace:
        logits = model(
            example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask
        )
        loss = cross_entropy(logits, example.labels, label_smoothing=label_smoothing)
    loss.backward()
    for depth in (1, 2, 3):
        written = trace["cross_entropy.loss"].explain(depth=depth)
        assert calculate(written) == pytest.approx(loss.item(), abs=1e-12)
    assert "(True + False + True + True)" in str(trace["cross_entropy.loss"].explain())
    for name in ("logits", "tgt_embedding.vectors"):
        for index in itertools.product(*map(range, trace[name].shape)):
            gradient = trace[name].explain_grad(*index)
            assert gradient.total == pytest.approx(gradient.value, abs=1e-12)


def test_comparisons_and_truth_are_explained():
    with Trace() as trace:
        x: Float[Tensor, " seq"] = torch.tensor([1.0, -2.0, 3.0])
        y: Float[Tensor, " seq"] = torch.tensor([1.0, 2.0, 0.5])
        above: Bool[Tensor, " seq"] = x > y
        other: Bool[Tensor, " seq"] = (x != y) & ~above | (x + 1 <= 2 * y - 3)
        odd: Bool[Tensor, " seq"] = (x < y) == (y >= 2)
        chosen: Float[Tensor, " seq"] = above * x + (odd == other) * y
    assert str(trace["above"].explain(2)).endswith("= 3.0000 > 0.5000\n  = True")
    for name in ("above", "other", "odd", "chosen"):
        for place in range(3):
            for depth in (1, 2, 5):
                written = trace[name].explain(place, depth=depth)
                assert calculate(written) == trace[name].value[place], (name, place, depth)
    assert chosen.tolist() == [0.0, 2.0, 3.0]


def test_huge_scores_do_not_overflow():
    with Trace() as trace:
        soft: Float[Tensor, " key"] = torch.tensor([900.0, 901.0], dtype=torch.float64).softmax(0)
        log: Float[Tensor, " key"] = torch.tensor([900.0, 901.0], dtype=torch.float64).log_softmax(
            0
        )
        top: Float[Tensor, ""] = torch.tensor([900.0, 901.0], dtype=torch.float64).logsumexp(0)
    assert soft.sum() == 1 and log.shape == (2,) and top > 901
    assert check_all(trace)[0] == 5


def test_every_gradient_is_the_sum_of_what_came_through_later_numbers():
    trace = example.trace(on="cpu", grad=True)
    logits = trace["logits"].tensor
    F.cross_entropy(logits.reshape(-1, 4), example.labels.flatten()).backward()
    count = 0
    for name, entry in trace.items():
        if not entry.tensor.requires_grad:
            continue
        for index in itertools.product(*map(range, entry.shape)):
            found = entry.explain_grad(*index)
            assert found.value == entry.grad[index].item()
            if name != "logits":
                assert found.total == pytest.approx(found.value, abs=1e-12)
            count += 1
    print(f"{count} gradients explained")
    assert count > 900


def test_a_gradient_says_through_which_numbers_it_came():
    trace = example.trace(on="cpu", grad=True)
    trace["logits"].tensor[1, 1, 2].backward()
    scores = "encoder.layers.0.self_attention.scores"
    text = trace["encoder.layers.0.self_attention.key_heads"].explain_grad(1, 1, 1, 0).text
    assert text.startswith("gradient of encoder.layers.0.self_attention.key_heads[batch 1, head 1")
    assert f"through {scores}[batch 1, head 1, query 0, key 1]" in text
    end = trace["logits"].explain_grad(1, 1, 2)
    assert end.text.endswith("= 1.0000, from what came after the trace")


def test_a_gradient_writes_its_six_largest_shares_and_the_rest_in_one():
    factors = torch.tensor([1.0, -8.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0])
    with Trace(grad=True) as trace:
        x: Float[Tensor, ""] = torch.tensor(1.0, requires_grad=True) * 1.0
        y: Float[Tensor, " n"] = x * factors
    y.backward(torch.tensor([9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5]))
    with torch.no_grad():
        lines = trace["x"].explain_grad().text.splitlines()
    assert lines[0] == "gradient of x" and len(lines) == 9
    assert lines[1] == "  + 9.0000 · 1.0000 = 9.0000 through y[n 0]"
    assert lines[2] == "  + 1.0000 · -8.0000 = -8.0000 through y[n 1]"
    assert [line[-2] for line in lines[3:7]] == list("6452")
    assert lines[7:] == ["  + 5.0000 through 2 others", "  = 25.0000"]
    with Trace(grad=True) as trace:
        x: Float[Tensor, ""] = torch.tensor(1.0, requires_grad=True) * 1.0
        y: Float[Tensor, " six"] = x * factors[:6]
    y.sum().backward()
    text = trace["x"].explain_grad().text
    assert len(text.splitlines()) == 8 and "others" not in text


def test_the_table_in_a_notebook_frames_what_was_used_and_escapes_names():
    trace = example.trace(on="cpu")
    html = trace["memory"].explain(1, 1, 0)._repr_html_()
    assert "<pre" in html and "box-shadow" in html
    scores = trace["encoder.layers.0.self_attention.scores"].explain(1, 1, 1, 0)._repr_html_()
    assert scores.count("box-shadow") == 2
    weights = trace["encoder.layers.0.self_attention.weights"].explain(1, 2, 1, 0)._repr_html_()
    assert weights.count("<table") == 1 and "batch 1, head 2" in weights
    assert "<script" not in html and "http" not in html and " id=" not in html


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ((0, 0), r"logits has 3 axes \(batch 2, tgt 2, vocab 4\), but"),
        ((0, 0, 4), "logits: vocab 4 is out of range, its size is 4"),
        ((0, 0, -5), "vocab -5 is out of range"),
        (((0, 0, 0),), r"one whole number for each axis .*, not \(\(0, 0, 0\),\)"),
        ((0, 0.5, 0), "one whole number for each axis"),
    ],
)
def test_explain_refuses_an_index_that_does_not_fit(index, message):
    logits = example.trace(on="cpu")["logits"]
    with pytest.raises(ValueError, match=message):
        logits.explain(*index)
    assert logits.explain(-1, -2, -4).text == logits.explain(1, 0, 0).text


@pytest.mark.parametrize("depth", [0, "x", 1.5])
def test_explain_refuses_a_depth_that_is_no_count(depth):
    with pytest.raises(ValueError, match=f"whole number of at least 1, got {depth!r}"):
        example.trace(on="cpu")["logits"].explain(0, 0, 0, depth=depth)


def test_explain_refuses_arithmetic_that_is_too_long(monkeypatch):
    logits = example.trace(on="cpu")["logits"]
    monkeypatch.setattr("twelve_lab.explain.graph.MOST", 300)
    message = (
        r"depth=40 takes [\d,]+ numbers from step 7 on, more than the 300 .* with depth=6 or less"
    )
    with pytest.raises(ValueError, match=message):
        logits.explain(0, 0, 0, depth=40)
    assert logits.explain(0, 0, 0, depth=6).depth == 6


def test_explain_says_what_the_trace_has_to_keep():
    with Trace(explain=False) as bare:
        y: Float[Tensor, " n"] = torch.ones(2) + 1
    assert y.sum() == 4
    with pytest.raises(ValueError, match="y: no operation was kept; trace with explain=True"):
        bare["y"].explain(0)
    with pytest.raises(ValueError, match="no gradient was kept"):
        example.trace(on="cpu")["logits"].explain_grad(0, 0, 0)


def test_an_unknown_operation_is_named_and_can_be_taught(monkeypatch):
    with Trace() as trace:
        y: Float[Tensor, " n"] = F.softsign(torch.tensor([0.5, -1.0], dtype=torch.float64)).lgamma()
    monkeypatch.setitem(FORMULAS, "lgamma", lambda at: call("lgamma", at(0)))
    assert y.shape == (2,) and check_all(trace)[0] == 2
    with Trace() as trace:
        best: Float[Tensor, ""] = y.argmax()
    assert best == 1
    message = "no formula for the operation aten::argmax; add one to FORMULAS in twelve_lab.explain"
    with pytest.raises(ValueError, match=message):
        trace["best"].explain()
    # The same where torch cannot take it apart after all.
    broken = {torch.ops.aten.argmax.default: lambda *_: torch.ones(2) @ torch.ones(3)}
    monkeypatch.setattr("twelve_lab.explain.tape.decomposition_table", broken)
    with pytest.raises(ValueError, match=message):
        trace["best"].explain()


def test_dropout_in_training_is_explained():
    torch.manual_seed(0)
    layer = nn.Dropout(0.5)
    with Trace() as trace:
        y: Float[Tensor, " n"] = layer(torch.arange(1.0, 9.0, dtype=torch.float64))
    assert 0 < (y == 0).sum() < 8
    assert check_all(trace)[0] == 8


def test_numbers_that_were_changed_out_of_sight_are_not_explained_wrongly():
    with Trace() as trace:
        x = torch.ones(3, dtype=torch.float64) * 2
        x.numpy()[0] = 9.0
        y: Float[Tensor, " n"] = x + 1
    assert y.tolist() == [10, 3, 3]
    assert trace["y"].explain(1).value == 3
    with pytest.raises(ValueError, match=r"y\[n 0\]: .* gives 3.0, but the run holds 10.0"):
        trace["y"].explain(0)


@pytest.mark.parametrize(
    ("dtype", "off", "seen"),
    [(torch.float64, 3e-9, True), (torch.float64, 1e-9, False),
     (torch.float32, 3e-4, True), (torch.float32, 1e-4, False), (torch.float16, 0.2, True)],
)  # fmt: skip
def test_how_much_may_be_changed_out_of_sight_follows_the_precision(dtype, off, seen):
    with Trace() as trace:
        x = torch.ones(1, dtype=dtype) * 2
        x.numpy()[0] += off
        y: Float[Tensor, " n"] = x * 1.5
    assert y.dtype == dtype
    with pytest.raises(ValueError, match="out of sight") if seen else nullcontext():
        trace["y"].explain(0)


def test_numbers_put_in_by_index_are_explained():
    x = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    with Trace() as trace:
        y = x + 0.5
        y[torch.tensor([0, 2])] = x[1] * 10
        y[x > 10] = -1.0
        y[:, torch.tensor([1])] = 7.0
        put: Float[Tensor, "a b"] = y
        copied: Float[Tensor, "a b"] = x.index_copy(0, torch.tensor([1]), x[:1] * 2)
        spread: Float[Tensor, "a b"] = x.scatter(1, torch.tensor([[1], [0], [3]]), x[:, :1] - 4)
        masked: Float[Tensor, "a b"] = x.masked_scatter(x > 8, x * 2)
    assert put[0, 0] == 40 and put[2, 3] == -1 and (put[:, 1] == 7).all()
    assert copied[1, 3] == 6 and spread[2, 3] == masked[2, 3] == 4
    assert check_all(trace) == (48, 48)


def test_conversions_are_explained_with_the_number_they_give():
    x = torch.tensor([1.75, -2.5, 0.1], dtype=torch.float64)
    with Trace() as trace:
        whole: Float[Tensor, " n"] = (x * 3).long()
        half: Float[Tensor, " n"] = (x * 3).float()
        wide: Float[Tensor, " n"] = (x.float() * 3).double()
    assert whole.tolist() == [5, -7, 0]
    for name, tensor in (("whole", whole), ("half", half), ("wide", wide)):
        for index in range(3):
            explanation = trace[name].explain(index)
            assert explanation.value == tensor[index].item()
            assert calculate(explanation) == pytest.approx(explanation.value, abs=1e-6)
    assert "trunc(" in trace["whole"].explain(0).text


def test_a_name_keeps_its_own_type_and_shape():
    with Trace() as trace:
        y = torch.tensor([1.0, 2.0]) * 2
        whole: Float[Tensor, " n"] = y.long()
        column: Float[Tensor, "n one"] = y.view(2, 1)
        named: Float[Tensor, " n"] = y * 1.0
        again: Float[Tensor, " n"] = named
    assert whole.shape == (2,) and column.shape == (2, 1) and again is named
    assert str(trace["whole"].explain(1)).endswith("\n  = 4")
    assert trace["column"].explain(1, 0).target.index == (1, 0)
    assert "named[n 1], the same number moved" in str(trace["again"].explain(1))


def test_a_change_in_place_does_not_reach_a_view_of_another_type():
    with Trace() as trace:
        x = torch.tensor([1.0, 2.0]) * 2
        bits = x.view(torch.int32)  # two for each number
        x.add_(1)
        y: Float[Tensor, " n"] = x * 3
    assert bits.shape == (4,) and y[0] == 9
    assert check_all(trace) == (2, 2)


def test_added_values_are_not_taken_for_put_ones():
    first = (torch.tensor([0, 0]),)
    with Trace() as trace:
        y = X * 2
        y.index_put_(first, Z, accumulate=True)
        inside: Float[Tensor, "a b"] = y
        beside: Float[Tensor, "a b"] = X.index_put(first, Z, accumulate=True)
    assert torch.allclose(inside[0], 2 * X[0] + Z.sum(0)) and beside.shape == X.shape
    for name in trace:
        with pytest.raises(ValueError, match="no formula for the operation aten::index_put"):
            trace[name].explain(0, 0)


def test_constants_put_around_or_among_numbers_keep_their_value():
    with Trace() as trace:
        padded: Float[Tensor, " n"] = F.pad(X[0] * 2, (1, 1), value=3.0)
        empty: Float[Tensor, " n"] = F.pad(X[0] * 2, (1, 1))
        hot: Float[Tensor, "place word"] = F.one_hot(torch.tensor([1, 2]), 3)
        six: Float[Tensor, " three"] = (X[0] * 2).scatter(0, torch.tensor([1]), 6.0)
    assert (padded[0], empty[0], six[1]) == (3, 0, 6) and hot.sum() == 2
    assert str(trace["padded"].explain(0)).endswith("= 3.0000, a constant of the code")
    assert check_all(trace)[0] == 5 + 5 + 6 + 3


def test_a_number_is_not_its_own_consumer():
    with Trace(grad=True) as trace:
        start = torch.tensor([1.0, 2.0], requires_grad=True) * 1.0
        x: Float[Tensor, " n"] = start.detach().requires_grad_()
        y: Float[Tensor, " n"] = x * x
        unused: Float[Tensor, " n"] = x * 3
    y.sum().backward()
    assert unused.grad is None
    given = trace["x"].explain_grad(1)
    assert [str(element) for element, _, _ in given.parts] == ["y[n 1]"]
    assert given.total == given.value == 4
    assert trace["y"].explain_grad(0).parts == []


def test_brackets_stand_where_the_order_of_operations_needs_them():
    x, y = Leaf(0), Leaf(1)
    numbers = [2.0, -3.0]
    whole = Total((Apply("**", (x, Number(2))), multiply(y, x)))
    for tree, wanted in {
        subtract(x, subtract(y, x)): "2.0 - (-3.0 - 2.0)",
        subtract(x, y): "2.0 - (-3.0)",
        add(x, add(y, x)): "2.0 + (-3.0 + 2.0)",
        add(add(x, y), x): "2.0 + (-3.0) + 2.0",
        divide(x, multiply(y, x)): "2.0 / ((-3.0) * 2.0)",
        multiply(divide(x, y), x): "2.0 / (-3.0) * 2.0",
        Apply("**", (Apply("**", (x, x)), y)): "(2.0 ** 2.0) ** (-3.0)",
        Apply("**", (x, Apply("**", (x, y)))): "2.0 ** (2.0 ** (-3.0))",
        Apply("neg", (Apply("**", (x, x)),)): "-2.0 ** 2.0",
        Apply("**", (Apply("neg", (x,)), x)): "(-2.0) ** 2.0",
        Apply("neg", (add(x, y),)): "-(2.0 + (-3.0))",
        Apply("==", (Apply("<", (x, y)), Apply("<", (y, x)))): "(2.0 < (-3.0)) == (-3.0 < 2.0)",
        divide(whole, x): "(2.0 ** 2 + (-3.0) * 2.0) / 2.0",
        divide(Total((x,)), x): "2.0 / 2.0",
        add(whole, x): "(2.0 ** 2 + (-3.0) * 2.0) + 2.0",
        subtract(Apply("==", (x, x)), Apply("<", (x, y))): "(2.0 == 2.0) - (2.0 < (-3.0))",
        add(x, whole): "2.0 + (2.0 ** 2 + (-3.0) * 2.0)",
        multiply(Dot((x, y), (y, x)), x): "(2.0 * (-3.0) + (-3.0) * 2.0) * 2.0",
        call("max", x, call("exp", y)): "max(2.0, math.exp(-3.0))",
    }.items():
        text = Writer(numbers.__getitem__).write(tree)
        assert text == wanted
        exact = compute(tree, lambda cell: torch.tensor(numbers[cell])).item()
        assert eval(text, {"math": math}) == pytest.approx(exact, abs=1e-15)
