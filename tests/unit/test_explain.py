"""explain: evaluating the explained arithmetic reproduces every element of a run."""
# ruff: noqa: F841 (a trace reads the local variables)

import copy
import functools
import itertools
import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from tests.operations import OPERATIONS, SLOWLY, TAKEN_APART, X, Z, efficient, run
from twelve import LearnedPositionalEncoding, RMSNorm, SwiGLU
from twelve.fast import make_fast
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.explain.explanation import Element
from twelve_lab.explain.formulas import FORMULAS, expression_of

MASKS = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
ATTENTION = "encoder.layers.0.self_attention"


@pytest.fixture(scope="module")
def trace():
    torch.set_default_dtype(torch.float64)
    return example.trace(on="cpu")


def calculate(explanation):
    """Evaluate the expression of an explanation with only `math` and three builtins."""
    allowed = {"math": math, "max": max, "min": min, "abs": abs}
    return eval(explanation.expression, {"__builtins__": {}, **allowed})


def check_elements(trace, step=1, tolerance=1e-9):
    """Recompute every step-th element, and return the number of elements checked."""
    count = 0
    for entry in trace.values():
        for index in list(itertools.product(*map(range, entry.shape)))[::step]:
            explanation = entry.explain(*index)
            value = entry.value[index].item()
            assert explanation.value == value or math.isnan(value)
            result = calculate(explanation)
            assert result == value or math.isclose(result, value, rel_tol=tolerance, abs_tol=1e-9)
            count += 1
    return count


def check_gradients(entry):
    for index in itertools.product(*map(range, entry.shape)):
        gradient = entry.explain_grad(*index)
        assert gradient.value == entry.grad[index].item()
        assert gradient.total == pytest.approx(gradient.value, rel=1e-6, abs=1e-9)


CONFIGURATIONS = [
    *example.CONFIGURATIONS.values(),
    {"num_heads": 2, "norm_first": False, "padding": False},
    {"decoder_only": True, "num_kv_heads": 2, "tie_weights": False},
]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=str)
def test_explain_recomputes_every_tensor_of_every_configuration(configuration, step):
    # The first element of each tensor is always checked.
    assert check_elements(example.trace(on="cpu", **configuration), step) >= 50


def test_explain_recomputes_elements_at_distinct_sizes():
    distinct = example.distinct
    model = distinct.model()
    with Trace(model) as trace:
        model(distinct.src, distinct.tgt, src_mask=distinct.src_mask, tgt_mask=distinct.tgt_mask)
    assert check_elements(trace, step=61) > 100
    cross = trace["decoder.layers.1.cross_attention.scores"]
    assert (cross.axes, cross.shape) == (("batch", "head", "query", "key"), (2, 3, 4, 5))


@pytest.mark.parametrize("depth", [2, 5, 9])
def test_explain_unfolds_to_a_depth(trace, depth):
    explanation = trace["logits"].explain(1, 1, 2, depth=depth)
    assert calculate(explanation) == pytest.approx(explanation.value, abs=1e-9)


def check_both_ways(trace):
    """Recompute every element and gradient of a trace from `run`, and compare with torch."""
    # A conversion to float32 rounds, but the explanation shows a plain copy.
    check_elements({"y": trace["y"]}, tolerance=1e-7)
    if trace["y"].tensor.requires_grad:
        check_gradients(trace["x"])


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() | FORMULAS.keys()))
def test_formula_gives_the_number_and_its_gradient(name):
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
def test_explain_decomposes_an_operation_without_a_formula(function):
    check_both_ways(run(function, X))


OTHER_FORMS = [
    SLOWLY["gelu by tanh"], SLOWLY["layer_norm's mean"], TAKEN_APART["addmm"],
    lambda x: torch.addmm(x[:, :2], Z, Z.T, beta=5),
    lambda x: torch.div(x, Z, rounding_mode="floor"), lambda x: x.max(1).indices,
    # Formulas for booleans do not apply to bitwise operations on integers.
    lambda x: (9 * x).long() & 3, lambda x: (9 * x).long() | 1, lambda x: ~(9 * x).long(),
]  # fmt: skip


@pytest.mark.parametrize("function", OTHER_FORMS)
def test_formula_does_not_apply_to_other_forms_of_its_operation(function):
    trace = run(function, X)
    block = trace.graph.tape.named["y"]
    assert block.made.name in FORMULAS
    assert expression_of(block.made, 0, trace.graph.tape.value) is None


def test_gradient_of_max_goes_to_the_first_of_equal_numbers():
    trace = run(lambda x: x.max(0).values, torch.tensor([1.0, 3.0, 3.0]))
    assert [trace["x"].explain_grad(i).total for i in range(3)] == [0, 1, 0]
    check_both_ways(run(F.relu, torch.tensor([0.0, -1.0, 1.0])))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_explain_names_a_conversion_that_rounds(dtype):
    with Trace() as trace:
        x: Float[Tensor, " n"] = torch.tensor([0.1, 0.2]) + 1
        y: Float[Tensor, " n"] = x.to(getattr(torch, dtype)).double() * 2
    explanation = trace["y"].explain(0)
    assert f"= {dtype}(x[n 0])·2\n  = {dtype}(1.1000)·2\n" in explanation.text
    assert calculate(explanation) == 2.2


def test_explain_names_a_moved_number_and_a_constant(trace):
    moved = trace[f"{ATTENTION}.query_heads"].explain(1, 2, 0, 0)
    assert "copied from projected_query[batch 1, query 0, head*d_k 2]\n" in moved.text
    hidden = trace[f"{ATTENTION}.masked_scores"].explain(0, 0, 0, 0)
    assert hidden.text.endswith("= -inf, a constant of the code") and hidden.inputs == []
    row = trace["src_embedding.vectors"].explain(0, 1, 0)
    assert "copied from weight[1, 0]\n" in row.text and row.expression == "0.82"


def test_explain_lists_inputs_down_to_weights_and_buffers(trace):
    encoded = trace["positional_encoding.encoded"]
    for depth, inputs in {
        1: [("src_embedding.vectors", (0, 1, 2)), ("positional_encoding.positions", (1, 2))],
        2: [("src_embedding.weight", (1, 2)), ("positional_encoding.table", (1, 2))],
    }.items():
        explanation = encoded.explain(0, 1, 2, depth=depth)
        assert [(element.name, element.index) for element in explanation.inputs] == inputs
        assert ("code:" in str(explanation)) == (depth == 1)
        total = sum(element.value for element in explanation.inputs)
        assert total == trace["src_input"].value[0, 1, 2].item()
    with Trace() as traced:
        x: Float[Tensor, ""] = torch.tensor(2.0) * 1
        y: Float[Tensor, ""] = (x * math.sqrt(3) > -math.sqrt(3)) * x / 0.75 - x * math.inf
    explanation = traced["y"].explain()
    assert explanation.value == -math.inf and explanation.inputs == [Element("x", (), (), 2.0)]
    assert "= (x·sqrt(3) > (-1.73205))·x / 0.75 - x·inf\n" in str(explanation)
    assert "sqrt(3) &gt; (-1.73205)" in explanation._repr_html_()


@pytest.mark.parametrize(
    "layer",
    [SwiGLU(3, 4), LearnedPositionalEncoding(3, max_len=4), nn.Dropout(0.5), make_fast(RMSNorm(3))],
    ids=lambda layer: type(layer).__name__,
)
def test_explain_recomputes_other_layers(layer):
    x = torch.arange(1.0, 13.0, dtype=torch.float64).view(2, 2, 3) / 9
    with Trace() as trace:
        y: Float[Tensor, "batch seq d_model"] = layer.double()(x)
    assert check_elements(trace) >= 12


def test_explain_recomputes_code_of_a_learner():
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    n = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    with Trace() as trace:
        split: Float[Tensor, "batch head seq d_k"] = x.view(2, 3, 2, 2).transpose(1, 2)
        named: Float[Tensor, "batch head seq d_k"] = rearrange(x, "b s (h d) -> b h s d", h=2)
        merged: Float[Tensor, "batch seq d_model"] = rearrange(split * 2, "b h s d -> b s (h d)")
        sliced: Float[Tensor, "batch two chosen"] = merged[:, 1:, [3, 0]]
        doubled: Float[Tensor, "batch seq twice"] = repeat(x.sum(-1), "b s -> b s t", t=2)
        joined: Float[Tensor, "batch seq wide"] = torch.cat([doubled, x], -1)
        stacked: Float[Tensor, "pair batch seq"] = torch.stack([x[..., 0], x[..., 1] - 1])
        lower: Float[Tensor, "batch seq d_model"] = x.tril()
        windows: Float[Tensor, "window d_model"] = (x * 3)[1].as_strided((5, 4), (2, 1), 12)
        mixed: Float[Tensor, "batch seq other"] = torch.einsum("bsd,bod->bso", x, x)
        put = n + 0.5
        put[torch.tensor([0, 2])] = n[1] * 10
        put[n > 10] = -1.0
        put[:, torch.tensor([1])] = 7.0
        after_put: Float[Tensor, "a b"] = put
        copied: Float[Tensor, "a b"] = n.index_copy(0, torch.tensor([1]), n[:1] * 2)
        spread: Float[Tensor, "a b"] = n.scatter(1, torch.tensor([[1], [0], [3]]), n[:, :1] - 4)
        masked: Float[Tensor, "a b"] = n.masked_scatter(n > 8, n * 2)
        padded: Float[Tensor, " n"] = F.pad(n[0] * 2, (1, 1), value=3.0)
        zeros: Float[Tensor, " n"] = F.pad(n[0] * 2, (1, 1))
        hot: Float[Tensor, "place word"] = F.one_hot(torch.tensor([1, 2]), 3)
    assert len(trace) == 17
    assert check_elements(trace) == sum(entry.value.numel() for entry in trace.values())
    assert copied[1, 3] == 6 and spread[2, 3] == masked[2, 3] == 4
    assert put[0, 0] == 40 and put[2, 3] == -1 and (put[:, 1] == 7).all()
    assert str(trace["padded"].explain(0)).endswith("= 3.0000, a constant of the code")


def test_explain_follows_in_place_changes_through_views():
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
        z = torch.tensor([1.0, 2.0]) * 2
        bits = z.view(torch.int32)  # a view as two integers for each float64
        z.add_(1)
        other: Float[Tensor, " n"] = z * 3
    assert torch.equal(late, after[1]) and late[1] == -1
    assert bits.shape == (4,) and other[0] == 9
    assert check_elements(trace) == 12 + 4 + 2
    assert trace["late"].explain(1).text.endswith("-1.0000, a constant of the code")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_explain_recomputes_torch_cross_entropy_and_skips_ignored_labels(reduction):
    model, labels = example.model(), example.labels.flatten()
    with Trace(model) as trace:
        logits = model(example.src, example.tgt, **MASKS).reshape(-1, 4)
        loss: Float[Tensor, "*token"] = F.cross_entropy(logits, labels, reduction=reduction)
    indices = list(itertools.product(*map(range, loss.shape)))
    explanations = [trace["loss"].explain(*index) for index in indices]
    expected = loss.flatten().tolist()
    assert [calculate(each) for each in explanations] == pytest.approx(expected, abs=1e-12)
    used = {element.index[:2] for each in explanations for element in each.inputs}
    assert used == {(0, 0), (1, 0), (1, 1)}


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_explain_recomputes_our_cross_entropy_and_its_gradients(label_smoothing):
    model = example.model()
    with Trace(model, grad=True) as trace:
        logits = model(example.src, example.tgt, **MASKS)
        loss = cross_entropy(logits, example.labels, label_smoothing=label_smoothing)
    loss.backward()
    for depth in (1, 3):
        explanation = trace["cross_entropy.loss"].explain(depth=depth)
        assert calculate(explanation) == pytest.approx(loss.item(), abs=1e-12)
    assert "(True + False + True + True)" in str(trace["cross_entropy.loss"].explain())
    for name in ("logits", "tgt_embedding.vectors"):
        check_gradients(trace[name])


def test_explain_grad_of_every_number_is_the_sum_over_its_consumers():
    trace = example.trace(on="cpu", grad=True)
    logits = trace["logits"].tensor
    F.cross_entropy(logits.reshape(-1, 4), example.labels.flatten()).backward()
    entries = [entry for entry in trace.values() if entry.tensor.requires_grad]
    assert sum(entry.value.numel() for entry in entries) > 900
    for entry in entries:
        if entry.name != "logits":
            check_gradients(entry)
    key = trace[f"{ATTENTION}.key_heads"].explain_grad(1, 1, 1, 0)
    assert key.text.startswith(f"gradient of {ATTENTION}.key_heads[batch 1, head 1")
    assert f"through {ATTENTION}.scores[batch 1, head 1, query 0, key 1]" in key.text
    end = trace["logits"].explain_grad(1, 1, 2)
    assert end.value == trace["logits"].grad[1, 1, 2]
    assert end.text.endswith(f"= {end.value:.4f}, from what came after the trace")


def test_explain_grad_ends_at_a_detached_number():
    with Trace(grad=True) as trace:
        start = torch.tensor([1.0, 2.0], requires_grad=True) * 1.0
        x: Float[Tensor, " n"] = start.detach().requires_grad_()
        y: Float[Tensor, " n"] = x * x
        unused: Float[Tensor, " n"] = x * 3
    y.sum().backward()
    gradient = trace["x"].explain_grad(1)
    assert [str(element) for element, _, _ in gradient.parts] == ["y[n 1]"]
    assert gradient.total == gradient.value == 4
    assert trace["y"].explain_grad(0).parts == []


BAD_PLACES = [
    ((0, 0), 1, r"logits has 3 axes \(batch 2, tgt 2, vocab 4\), but"),
    ((0, 0, 4), 1, "logits: vocab 4 is out of range, its size is 4"),
    ((0, 0, -5), 1, "vocab -5 is out of range"),
    (((0, 0, 0),), 1, r"one whole number for each axis .*, not \(\(0, 0, 0\),\)"),
    ((0, 0.5, 0), 1, "one whole number for each axis"),
    ((0, 0, 0), 0, "whole number of at least 1, got 0"),
    ((0, 0, 0), "x", "whole number of at least 1, got 'x'"),
]


@pytest.mark.parametrize(("index", "depth", "message"), BAD_PLACES)
def test_explain_rejects_a_bad_index_or_depth(trace, index, depth, message):
    with pytest.raises(ValueError, match=message):
        trace["logits"].explain(*index, depth=depth)
    assert trace["logits"].explain(-1, -2, -4).text == trace["logits"].explain(1, 0, 0).text


def test_explain_rejects_arithmetic_that_is_too_long(trace, monkeypatch):
    monkeypatch.setattr("twelve_lab.explain.graph.MOST", 300)
    message = r"depth=40 takes [\d,]+ numbers from step 7 on, more than the 300 .* depth=6 or less"
    with pytest.raises(ValueError, match=message):
        trace["logits"].explain(0, 0, 0, depth=40)
    assert trace["logits"].explain(0, 0, 0, depth=6).depth == 6


def many(function, times):
    return lambda x: functools.reduce(lambda h, _: function(h), range(times), x)


TOO_LONG = {
    "encoder layer": lambda x: nn.TransformerEncoderLayer(16, 2).eval()(x.repeat(1, 4, 1)),
    "doubled 20 times": many(lambda h: h * h, 20),
    "nested": many(torch.sin, 1000),
    "nested formulas": many(lambda h: F.silu(h + 1.0) * 0.9, 90),
}


@pytest.mark.parametrize("function", TOO_LONG.values(), ids=TOO_LONG)
def test_explain_rejects_unnamed_arithmetic_that_is_too_long(function):
    trace = run(function, torch.rand(1, 1, 16))
    for explain in (trace["y"].explain, trace["x"].explain_grad):
        with pytest.raises(ValueError, match=r"y: the arithmetic .* annotate a tensor in between"):
            explain(0, 0, 0)


def test_explain_recomputes_a_long_sum():
    check_both_ways(run(torch.sum, torch.arange(5000.0)))


FIRST_TWICE = torch.tensor([0, 0])
WITHOUT_FORMULA = [
    (lambda x: torch.native_dropout(x, 1.0, True)[0], "aten::native_dropout"),
    (lambda x: efficient(x, 0.5), "aten::_scaled_dot_product_efficient_attention"),
    (lambda x: x.argmax(-1), "aten::argmax"),
    (lambda x: x.index_put((FIRST_TWICE,), Z, accumulate=True), "aten::index_put"),
    (lambda x: (x * 2).index_put_((FIRST_TWICE,), Z, accumulate=True), "aten::index_put"),
    (lambda x: torch.fft.fft(x).abs() + 1, "aten::abs of complex128 numbers"),
    (lambda x: torch.view_as_real(torch.fft.rfft(x)), "view_as_real of complex128 numbers"),
]


@pytest.mark.parametrize(("function", "operation"), WITHOUT_FORMULA)
def test_explain_names_an_operation_without_a_formula(function, operation):
    trace = run(function, X)
    with pytest.raises(ValueError, match=operation):
        trace["y"].explain(*(0 for _ in trace["y"].shape))


@pytest.mark.parametrize(
    ("dtype", "change", "noticed"),
    [(torch.float64, 3e-9, True), (torch.float64, 1e-9, False),
     (torch.float32, 3e-4, True), (torch.float32, 1e-4, False), (torch.float16, 0.2, True)],
)  # fmt: skip
def test_explain_rejects_numbers_changed_outside_torch(dtype, change, noticed):
    with Trace() as trace:
        torch.ones(2, dtype=torch.bfloat16) * 2  # this precision must not loosen the check
        x = torch.ones(2, dtype=dtype) * 2
        x.numpy()[0] += change
        y: Float[Tensor, " n"] = x * 1.5
    assert trace["y"].explain(1).value == 3
    with pytest.raises(ValueError, match="out of sight") if noticed else nullcontext():
        trace["y"].explain(0)


@pytest.mark.parametrize("fast", [False, True])
def test_explain_under_inference_mode_writes_what_it_writes_without(fast):
    runs = []
    for mode in (torch.no_grad, torch.inference_mode):
        model = make_fast(example.model()) if fast else example.model()
        with mode(), Trace(model) as run_of_mode:
            model(example.src, example.tgt, **MASKS)
        runs.append(run_of_mode)
    plain, inference = runs
    assert not plain.diff(inference) and list(plain) == list(inference)
    for name, entry in plain.items():
        last = [-1] * len(entry.axes)
        assert inference[name].explain(*last, depth=2).text == entry.explain(*last, depth=2).text


def test_explain_works_on_a_copy_of_a_trace(trace):
    for entry in (copy.deepcopy(trace)["memory"], copy.deepcopy(trace["memory"])):
        assert entry.explain(0, 0, 0).text == trace["memory"].explain(0, 0, 0).text
