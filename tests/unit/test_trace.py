"""The trace of a run: names, axes, values, gradients, and no cost while tracing is off."""

import dataclasses
import gc
import json
import math
import re
import sys
import threading
import weakref

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import twelve
from twelve_lab import AxisError, Trace, example
from twelve_lab.trace.annotations import PACKAGE
from twelve_lab.trace.summary import plain, summary_html
from twelve_lab.trace.trace import _step


class LearnerAttention(nn.Module):
    """Attention as a learner might write it in a notebook."""

    def __init__(self, d_model):
        super().__init__()
        self.w_q = twelve.Linear(d_model, d_model)

    def forward(self, x: Float[Tensor, "batch seq d_model"]):
        asked: Float[Tensor, "batch query d_model"] = self.w_q(x)
        matches: Float[Tensor, "batch query key"] = asked @ x.transpose(1, 2)
        for _ in range(2):
            blended: Float[Tensor, "batch query d_model"] = matches.softmax(-1) @ x
        return blended


def halve(x):
    halved: Float[Tensor, "batch n"] = x / 2
    return halved


class Halver(nn.Module):
    """Module whose forward has no annotations, unlike its other method."""

    def forward(layer, x):
        return halve(halve(x))

    def double(self, x):
        doubled: Float[Tensor, "batch n"] = 2 * x
        return doubled


class Turned(nn.Module):
    """Module whose forward swaps the names of two axes."""

    def forward(self, x: Float[Tensor, "row column"]):
        turned: Float[Tensor, "column row"] = x
        return turned


class Louder(LearnerAttention):
    """Module whose forward calls super().forward."""

    def forward(self, x: Float[Tensor, "batch seq d_model"]):
        louder: Float[Tensor, "batch seq d_model"] = 2 * super().forward(x)
        return louder


class Around(nn.Module):
    """Module that wraps another module."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x)


class Outer(nn.Module):
    """Module that calls itself recursively through a wrapper."""

    def forward(self, x):
        seen: Float[Tensor, "rows n"] = x
        return Around(self)(seen[1:]) if len(seen) > 1 else seen


class Ops(TorchDispatchMode):
    """Record the names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # otherwise, the first operation imports the compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def run_cell(path, code):
    """Run the code of a notebook cell and return its namespace."""
    path.write_text(code)
    names = {"torch": torch, "Float": Float, "Tensor": Tensor, "Trace": Trace}
    exec(compile(code, str(path), "exec"), names)
    return names


def traced_scores(*rows):
    with Trace() as traced:
        scores: Float[Tensor, "query key"] = torch.tensor(rows)  # noqa: F841
    return traced


def run(model):
    return model(example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask)


@pytest.fixture(scope="module")
def trace():
    return example.trace(on="cpu")


@pytest.fixture(autouse=True)
def _hook():
    """Check that no test leaves a trace function installed."""
    before = sys.gettrace()
    yield
    assert sys.gettrace() is before


def test_trace_keeps_copies_of_the_values_of_the_run(trace):
    torch.testing.assert_close(trace["logits"].value, run(example.model()).detach())
    with Trace() as traced:
        count: Float[Tensor, "rows n"] = 3  # not a tensor
        first: Float[Tensor, "rows n"] = torch.ones(1, count) * 2
        first.zero_()
    assert list(traced) == ["first"] and traced["first"].value.tolist() == [[2, 2, 2]]


MINE, LOUDER, X = LearnerAttention(3).double(), Louder(3).double(), torch.ones(2, 5, 3).double()
ATTENTION = ["asked", "matches", "blended", "blended#2"]
HALVER = nn.Sequential(Halver())
# A module to trace (or None), the code to run, and the expected tensor names.
RUNS = {
    "a learner's module": (MINE, lambda m: m(X), ATTENTION),
    "super().forward": (LOUDER, lambda m: m(X), [*ATTENTION, "louder"]),
    "no model": (
        None, lambda _: LOUDER(X), [f"Louder.{name}" for name in (*ATTENTION, "louder")]
    ),
    "a second run": (
        MINE,
        lambda m: [(m(X), halve(torch.ones(2, 3))) for _ in range(2)],
        [*ATTENTION, "halve.halved", "asked#2", "matches#2", "blended#3", "blended#4",
         "halve#2.halved"],
    ),
    "a module that calls itself": (
        None, lambda _: Outer()(torch.ones(2, 3)), ["Outer.seen", "Outer#2.seen"]
    ),
    "a module around the traced one": (
        HALVER, lambda m: Around(m)(torch.ones(2, 3)), ["0.halved", "0.halved#2"]
    ),
    "a forward without annotations, and a method": (
        HALVER,
        lambda m: (m(torch.ones(2, 3)), m[0].double(m[0].double(torch.ones(2, 3)))),
        ["0.halved", "0.halved#2", "0.doubled", "0.doubled#2"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("model", "run", "names"), RUNS.values(), ids=RUNS)
def test_trace_names_tensors_by_module_call_and_variable(model, run, names):
    with Trace(model) as traced:
        run(model)
    assert list(traced) == names
    assert {entry.step for entry in traced.values()} == {""}


def test_trace_does_not_reuse_the_name_of_a_deleted_module():
    with Trace():
        module = Halver()
        module(torch.ones(2, 3))
        alive = weakref.ref(module)
        del module
        gc.collect()
        # The open trace keeps the module alive, so no other object can reuse its address.
        assert alive() is not None


def test_trace_of_a_cell_has_no_prefix(tmp_path):
    line = 'x: Float[Tensor, "rows"] = torch.ones(2)\n'
    cell = run_cell(tmp_path / "cell.py", f"with Trace() as trace:\n    {line}")
    assert list(cell["trace"]) == ["x"]
    with Trace() as traced:
        run_cell(tmp_path / "other.py", line)
    assert list(traced) == ["x"]


def test_trace_gives_the_file_of_a_learner_no_step(tmp_path):
    function = 'def f():\n    x: Float[Tensor, "rows"] = torch.ones(2)\n'
    f = run_cell(tmp_path / "attention.py", function)["f"]
    with Trace() as traced:
        f()
    assert traced["f.x"].step == ""
    (tmp_path / "link").symlink_to(PACKAGE)
    assert _step(str(tmp_path / "link" / "attention.py")) == "04"


def test_trace_does_not_reuse_the_axes_of_a_deleted_tensor():
    def lends():
        lent: Float[Tensor, "batch tgt"] = torch.ones(2, 3)
        return lent.shape

    def asks(x: Float[Tensor, "batch seq"]):
        asked: Float[Tensor, "batch seq"] = x
        return asked

    with Trace() as traced:
        for _ in range(5):
            lends()
            asks(torch.ones(2, 3))
    assert {entry.axes for name, entry in traced.items() if "asked" in name} == {("batch", "seq")}


def confused(x: Float[Tensor, "batch query d"]):
    turned: Float[Tensor, "batch d query"] = x
    return turned


def merged(x: Float[Tensor, "batch head d_k"]):
    flat: Float[Tensor, "batch head*d_k"] = x.sum(-1)
    return flat


CONTRADICTIONS = [
    (lambda: confused(torch.ones(2, 5, 3)), r"confused\.turned has d=5, but confused arg"),
    (lambda: merged(torch.ones(2, 3, 4)), r"merged\.flat has head\*d_k=3, but .* gives 12"),
    (lambda: [halve(torch.ones(n, 3)) for n in (2, 5)], r"halve#2\.halved has batch=5, but"),
    (lambda: Turned()(torch.ones(2, 3)), "column=2, but Turned argument x has column=3"),
]


@pytest.mark.parametrize(("run", "message"), CONTRADICTIONS)
def test_trace_raises_an_axis_error_that_names_both_tensors(run, message):
    with pytest.raises(AxisError, match=message), Trace():
        run()


def test_trace_closes_after_an_error_and_can_be_reopened():
    trace = Trace()
    with trace:
        halve(torch.ones(2, 3))
        with pytest.raises(AxisError):
            Turned()(torch.ones(2, 3))
        halve(torch.ones(2, 3))  # not recorded after the error
    with pytest.raises(ZeroDivisionError), trace:
        1 // 0  # noqa: B018 (only the error is wanted)
    assert list(trace) == ["halve.halved"]
    with trace:
        halve(torch.ones(2, 3))
    assert list(trace) == ["halve.halved", "halve#2.halved"]


def test_trace_that_cannot_begin_leaves_no_hook():
    def opens(x: Float[Tensor, "n n"]):
        with traced:
            halve(x)

    traced = Trace()
    with pytest.raises(AxisError, match="opens argument x has n=3"):
        opens(torch.ones(2, 3))
    with Ops() as ops:
        torch.ones(2)
    assert len(ops.names) == 1
    opens(torch.ones(2, 2))
    assert list(traced) == ["halve.halved"]


def test_trace_rejects_a_second_open_trace():
    with Trace() as outer:
        for inner in (Trace(), outer):
            with pytest.raises(RuntimeError, match="another trace is open in this thread"), inner:
                pass
        halve(torch.ones(2, 3))
    assert list(outer) == ["halve.halved"]
    assert outer["halve.halved"].explain(0, 0).value == 0.5


def test_trace_does_not_record_another_thread():
    with Trace() as traced:
        thread = threading.Thread(target=halve, args=(torch.ones(2, 3),))
        thread.start()
        thread.join()
    with pytest.raises(KeyError, match=r"holds none: .* in the thread that opened it"):
        traced["halve.halved"]


def test_trace_stays_open_between_yields():
    def generator():
        with Trace() as traced:
            halve(torch.ones(2, 3))
            yield traced

    steps = generator()
    traced = next(steps)
    halve(torch.ones(2, 3))
    steps.close()
    assert list(traced) == ["halve.halved", "halve#2.halved"]


def test_trace_rejects_a_model_that_is_no_module():
    with pytest.raises(ValueError, match=r"must be a torch.nn.Module, got 'x'; .* Trace\(\)"):
        Trace("x")


def test_trace_adds_no_operation_to_the_run():
    model = example.model()
    with Ops() as off:
        run(model)
    with Trace(model) as traced, Ops() as on:
        run(model)
    assert len(traced) == 86
    assert len(off.names) > 100
    assert on.names == off.names


def test_trace_keeps_no_tensor_and_no_module_alive():
    def runs():
        module = LearnerAttention(3)
        beside = torch.ones(2)
        with Trace() as traced:
            asked = weakref.ref(module(torch.ones(2, 5, 3)))
            gone = asked() is None
        return traced, gone, weakref.ref(module), weakref.ref(beside)

    traced, gone, module, beside = runs()
    gc.collect()
    assert len(traced) == 4
    assert gone and module() is None and beside() is None
    weight = torch.ones(2, 3, requires_grad=True)
    with Trace():
        assert not halve(weight).retains_grad
    with Trace(grad=True):
        assert halve(weight).retains_grad


def test_trace_only_keeps_named_tensors_and_checks_all_axes():
    model = example.model()
    names = ("encoder.layers.0.self_attention.weights", "*.feed_forward.output")
    with Trace(model, only=names) as traced:
        model(example.src, example.tgt)
    assert list(traced) == [
        "encoder.layers.0.self_attention.weights",
        "encoder.layers.0.feed_forward.output",
        "decoder.layers.0.feed_forward.output",
    ]
    whole = example.trace(padding=False, on="cpu")
    assert torch.equal(traced[names[0]].value, whole[names[0]].value)
    with pytest.raises(ValueError, match="weights: no operation was kept; trace with explain=True"):
        traced[names[0]].explain(0, 0, 0, 0)
    with pytest.raises(AxisError, match="halved is annotated"), Trace(only="another"):
        halve(torch.zeros(3))


@pytest.mark.parametrize("only", [5, None, ["logits", 5]])
def test_trace_only_rejects_what_is_no_name(unchecked, only):
    with pytest.raises(ValueError, match="Trace: only must be names of tensors, got"):
        Trace(only=only)


def test_trace_only_rejects_a_name_without_a_tensor():
    with pytest.raises(ValueError, match=r"only='scoers' names no tensor; near to it: scores"):
        with Trace(only=["scoers", "two"]):
            scores: Float[Tensor, "one n"] = torch.zeros(1, 1)  # noqa: F841
            two: Float[Tensor, "one n"] = torch.zeros(1, 1)  # noqa: F841
    with pytest.raises(ZeroDivisionError), Trace(only="scores"):
        raise ZeroDivisionError  # Trace does not suppress errors of the block


def test_trace_gradients_are_those_of_autograd():
    with pytest.raises(ValueError, match="no gradient was kept"):
        _ = example.trace(on="cpu")["logits"].grad
    traced = example.trace(grad=True, on="cpu")
    logits = traced["logits"].tensor
    with pytest.raises(ValueError, match="memory: no gradient yet"):
        _ = traced["memory"].grad
    logits.square().sum().backward()
    torch.testing.assert_close(traced["logits"].grad, 2 * traced["logits"].value)
    assert traced["memory"].grad.abs().sum() > 0
    with pytest.raises(ValueError, match="depends on no parameter"):
        _ = traced["positional_encoding.positions"].grad


NEAREST = [
    ("encoder.layers.0.self_attention.score", r"encoder\.layers\.0\.self_attention\.scores"),
    ("my.scores", r"encoder\..*self_attention\.scores"),
    # Similar names rank above names with the same ending.
    ("decoder.layers.0.cros_attention.weights", r"decoder.layers.0.cross_attention.weights"),
    ("mean", r"[^,]*, [^,]*, [^,]*$"),
]


@pytest.mark.parametrize(("name", "message"), NEAREST)
def test_trace_names_the_nearest_tensors_for_an_unknown_name(trace, name, message):
    with pytest.raises(KeyError) as error:
        trace[name]
    assert re.search(f"near to it: {message}", error.value.args[0])


def test_trace_rejects_an_index(trace):
    with pytest.raises(KeyError, match="no tensor is named 0: a trace is asked by name"):
        trace[0]
    assert 0 not in trace


def test_diff_names_the_first_tensor_that_differs(trace):
    same = trace.diff(example.trace(on="cpu"))
    assert not same and repr(same) == "the two runs agree in all 86 tensors"
    gelu = trace.diff(example.trace(activation="gelu", on="cpu"))
    assert (gelu.name, gelu.index) == ("encoder.layers.0.feed_forward.activated", (0, 0, 0))
    assert gelu.compared == list(trace).index(gelu.name)
    assert "first at [batch 0, src 0, d_ff 0]: 0.0000 here, -0.1466 there" in repr(gelu)
    heads = trace.diff(example.trace(num_heads=1, on="cpu"))
    assert heads.reason == "shape (2, 3, 2, 1) here, (2, 1, 2, 3) there"


def test_diff_names_a_tensor_of_only_one_run(trace):
    bigger = example.trace(on="cpu")
    bigger._entries["extra"] = bigger["logits"]
    result = trace.diff(bigger)
    assert (result.name, result.compared) == ("extra", 86)
    assert "only the other run" in result.reason
    assert bigger.diff(trace).name == "extra"


INF = torch.inf
DIFFERENCES = [
    ([1.0, 2.0], [1.0, 2.0 + 1e-10], {}, None, None),
    ([1.0, 2.0], [1.0, 2.0 + 2e-9], {}, (0, 1), pytest.approx(2e-9)),
    ([1.0, 2.0], [1.5, 2.0], {"tolerance": 0.25}, (0, 0), 0.5),
    ([1.0, 2.0], [1.5, 2.0], {"tolerance": 0.5}, None, None),
    ([1.0, 1.0, 1.0], [1.0, 0.5, 4.0], {}, (0, 1), 3.0),
    ([True, False], [True, True], {}, (0, 1), 1.0),
    ([1.0, -INF], [1.0, -INF], {}, None, None),
    ([1.0, torch.nan], [1.0, torch.nan], {}, None, None),
    ([1.0, -INF], [1.0, -1e9], {}, (0, 1), INF),
    ([1.0, -INF], [1.0, torch.nan], {}, (0, 1), INF),
    # float64 rounds both to 2**53.
    ([2**53], [2**53 + 1], {}, (0, 0), 1.0),
    ([2**53], [2**53 + 1], {"tolerance": 1}, None, None),
    # int64 cannot hold the difference.
    ([-(2**63)], [0], {}, (0, 0), 2.0**63),
    ([2**63 - 1], [-(2**63)], {}, (0, 0), 2.0**64),
    ([1 + 1j, 1 + 1j], [1 + 1j, 1 + 3j], {}, (0, 1), 2.0),
]


@pytest.mark.parametrize(("here", "there", "options", "index", "largest"), DIFFERENCES)
def test_diff_gives_the_first_index_and_the_largest_difference(
    here, there, options, index, largest
):
    difference = traced_scores(here).diff(traced_scores(there), **options)
    assert bool(difference) == (index is not None)
    if difference:
        assert (difference.index, difference.largest) == (index, largest)


def test_diff_rejects_bad_input(unchecked, trace):
    with pytest.raises(ValueError, match="other must be a trace, got a NoneType"):
        trace.diff(None)
    for tolerance in (torch.nan, -1, "1", True):
        with pytest.raises(ValueError, match="tolerance must be at least 0, got"):
            trace.diff(trace, tolerance=tolerance)


def test_trace_summary_names_every_tensor_with_its_axes(trace):
    lines = [line.split() for line in repr(trace).splitlines()]
    assert [line[1] for line in lines[1:-1]] == list(trace) and lines[-1] == ["86", "tensors"]
    assert "07 encoder.norm.mean batch 2, src 2, 1".split() in lines
    assert repr(Trace()) == "Trace: no tensor yet"
    page = trace._repr_html_()
    assert page.count(">86 tensors</caption>") == 1 and page.count("<tr ") == 87
    with Trace() as traced:
        halve(torch.ones(2, 3))
    assert "      halve.halved  batch 2, n 3" in repr(traced).splitlines()
    page = summary_html({"entry": dataclasses.replace(traced["halve.halved"], name="<b>")})
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_trace_steps_are_exact_json_with_infinities_as_strings(trace):
    steps = json.loads(json.dumps(trace.steps(), allow_nan=False))
    assert [step["name"] for step in steps] == list(trace)
    masked = next(step for step in steps if step["name"].endswith("0.self_attention.masked_scores"))
    assert masked["axes"] == ["batch", "head", "query", "key"]
    assert masked["shape"] == [2, 3, 2, 2] and masked["values"][0][0][0][0] == "-inf"
    assert torch.equal(torch.tensor(steps[-1]["values"]), trace["logits"].value)
    values = plain(torch.tensor([[math.nan, math.inf], [-math.inf, 0.1]]))
    assert values == [["nan", "inf"], ["-inf", 0.1]]
    assert plain(torch.tensor([True, False])) == [True, False]
