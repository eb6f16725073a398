"""The trace of a run: names, axes, values, gradients, and no cost while it is off."""

import dataclasses
import gc
import json
import math
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
    """What somebody might write in a notebook."""

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
    """A forward without an annotation of its own, and a method beside it."""

    def forward(layer, x):
        return halve(halve(x))

    def double(self, x):
        doubled: Float[Tensor, "batch n"] = 2 * x
        return doubled


class Turned(nn.Module):
    """A forward that confuses its axes."""

    def forward(self, x: Float[Tensor, "row column"]):
        turned: Float[Tensor, "column row"] = x
        return turned


class Louder(LearnerAttention):
    """A forward that calls the one that it overrides."""

    def forward(self, x: Float[Tensor, "batch seq d_model"]):
        louder: Float[Tensor, "batch seq d_model"] = 2 * super().forward(x)
        return louder


class Relay(nn.Module):
    def forward(self, x, outer):
        return outer(x, self)


class Outer(nn.Module):
    """A module that calls itself through another."""

    def forward(self, x, relay=None):
        seen: Float[Tensor, "batch n"] = x
        return seen if relay is not None else Relay()(seen, self)


class Around(nn.Module):
    """A module that holds another."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return self.inside(x)


class Ops(TorchDispatchMode):
    """List the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # or the first operation imports the compiler

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def run_cell(path, code):
    """Run the code of a notebook cell and return its names."""
    path.write_text(code)
    names = {"torch": torch, "Float": Float, "Tensor": Tensor, "Trace": Trace}
    exec(compile(code, str(path), "exec"), names)
    return names


def traced_scores(*rows):
    def scores(x):
        filled: Float[Tensor, "query key"] = x
        return filled

    with Trace() as traced:
        scores(torch.tensor(rows))
    return traced


def run(model):
    return model(example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask)


@pytest.fixture(scope="module")
def trace():
    return example.trace(on="cpu")


def test_the_main_configuration_gives_these_tensors_in_order(trace):
    assert len(trace) == 86
    names = list(trace)
    assert names[0] == "src_embedding.vectors"
    assert names[-1] == "logits"
    assert names.index("memory") < names.index("tgt_input") < names.index("decoder_output")
    assert [name for name in names if name.startswith("positional_encoding#2")] == [
        "positional_encoding#2.positions",
        "positional_encoding#2.encoded",
    ]


@pytest.mark.parametrize(
    ("name", "axes", "shape", "step"),
    [
        ("src_input", ("batch", "src", "d_model"), (2, 2, 3), "12"),
        ("positional_encoding.positions", ("src", "d_model"), (2, 3), "03"),
        ("encoder.norm.mean", ("batch", "src", "1"), (2, 2, 1), "07"),
        ("decoder.layers.0.cross_attention.scores", ("batch", "head", "query", "key"),
         (2, 3, 2, 2), "04"),
        ("decoder.layers.0.self_attention.merged", ("batch", "query", "head*d_v"), (2, 2, 3), "06"),
        ("decoder.layers.0.feed_forward.activated", ("batch", "tgt", "d_ff"), (2, 2, 4), "09"),
        ("logits", ("batch", "tgt", "vocab"), (2, 2, 4), "12"),
    ],
)  # fmt: skip
def test_every_axis_has_its_name(trace, name, axes, shape, step):
    entry = trace[name]
    assert (entry.axes, entry.shape, entry.step) == (axes, shape, step)


def test_the_distinct_sizes_tell_every_axis_from_every_other():
    distinct = example.distinct
    model = distinct.model()
    with Trace(model) as traced:
        model(distinct.src, distinct.tgt,
              src_mask=distinct.src_mask, tgt_mask=distinct.tgt_mask)  # fmt: skip
    cross = traced["decoder.layers.1.cross_attention.scores"]
    assert dict(zip(cross.axes, cross.shape, strict=True)) == {
        "batch": 2, "head": 3, "query": 4, "key": 5,
    }  # fmt: skip
    assert traced["decoder.layers.0.cross_attention.merged"].shape == (2, 4, 18)


def test_the_values_are_those_of_the_run(trace):
    model = example.model()
    torch.testing.assert_close(trace["logits"].value, run(model).detach())
    weights = trace["encoder.layers.0.self_attention.weights"].value
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 2))


def test_a_value_is_a_copy_that_later_writes_do_not_reach():
    def overwrites(x):
        first: Float[Tensor, "rows n"] = x * 2
        first.zero_()
        return first

    with Trace() as traced:
        overwrites(torch.ones(1, 3))
    assert traced["overwrites.first"].value.tolist() == [[2, 2, 2]]


MINE, LOUDER, X = LearnerAttention(3).double(), Louder(3).double(), torch.ones(2, 5, 3).double()
ATTENTION = ["asked", "matches", "blended", "blended#2"]
HALVER = nn.Sequential(Halver())
# A module, what runs while it is traced, and the names of the tensors.
RUNS = {
    "a learner's module": (MINE, lambda m: m(X), ATTENTION),
    "super().forward": (LOUDER, lambda m: m(X), [*ATTENTION, "louder"]),
    "no model": (
        None,
        lambda _: LOUDER(X),
        [f"Louder.{name}" for name in (*ATTENTION, "louder")],
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


def test_without_a_model_the_class_gives_the_name_and_a_second_call_its_number():
    module = LearnerAttention(3)
    with Trace() as traced:
        kept: Float[Tensor, "batch seq d_model"] = module(torch.ones(2, 5, 3))
        module(torch.ones(2, 4, 3))
    assert "kept" in traced
    assert kept.shape == traced["kept"].shape
    assert traced["LearnerAttention#2.matches"].shape == (2, 4, 4)


def test_modules_that_are_gone_do_not_lend_their_names_to_later_ones():
    with Trace() as traced:
        module = Halver()
        module(torch.ones(2, 3))
        alive = weakref.ref(module)
        del module
        gc.collect()
        # As long as the block is open nothing else can stand at its address.
        assert alive() is not None
    gc.collect()
    assert alive() is None
    assert list(traced) == ["Halver.halved", "Halver.halved#2"]


def test_the_top_level_of_a_cell_is_traced_without_a_prefix(tmp_path):
    line = 'x: Float[Tensor, "rows"] = torch.ones(2)\n'
    cell = run_cell(tmp_path / "cell.py", f"with Trace() as trace:\n    {line}")
    assert list(cell["trace"]) == ["x"]
    with Trace() as traced:
        run_cell(tmp_path / "other.py", line)
    assert list(traced) == ["x"]


def test_a_learners_file_is_no_step_whatever_its_name(tmp_path):
    function = 'def f():\n    x: Float[Tensor, "rows"] = torch.ones(2)\n'
    f = run_cell(tmp_path / "attention.py", function)["f"]
    with Trace() as traced:
        f()
    assert traced["f.x"].step == ""
    assert _step(str(PACKAGE / "attention.py")) == "04"
    assert _step(str(PACKAGE / "own" / "attention.py")) == ""


def test_a_tensor_that_is_gone_does_not_lend_its_axes_to_a_later_one():
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


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: confused(torch.ones(2, 5, 3)),
            r"confused\.turned has d=5, but confused arg",
        ),
        (lambda: merged(torch.ones(2, 3, 4)), r"merged\.flat has head\*d_k=3, but .* gives 12"),
        (
            lambda: [halve(torch.ones(n, 3)) for n in (2, 5)],
            r"halve#2\.halved has batch=5, but",
        ),
        (lambda: Turned()(torch.ones(2, 3)), "column=2, but Turned argument x has column=3"),
    ],
)
def test_trace_raises_an_axis_error_that_names_both_tensors(run, message):
    with pytest.raises(AxisError, match=message), Trace():
        run()


def test_trace_ends_with_an_error_and_can_be_opened_again():
    before, trace = sys.gettrace(), Trace()
    with trace:
        halve(torch.ones(2, 3))
        with pytest.raises(AxisError):
            Turned()(torch.ones(2, 3))
        halve(torch.ones(2, 3))  # not recorded after the error
    with pytest.raises(ZeroDivisionError), trace:
        1 // 0  # noqa: B018 (only the error is wanted)
    assert sys.gettrace() is before
    assert list(trace) == ["halve.halved"]
    with trace:
        halve(torch.ones(2, 3))
    assert list(trace) == ["halve.halved", "halve#2.halved"]


def test_trace_ignores_values_that_are_no_tensors():
    def counts():
        count: Float[Tensor, "rows n"] = 3
        return (lambda: 2)() + count

    with Trace() as traced:
        assert counts() == 5
    assert not traced


def test_a_trace_that_cannot_begin_leaves_nothing_on():
    def opens(x: Float[Tensor, "n n"]):
        with traced:
            halve(x)

    before, traced = sys.gettrace(), Trace()
    with pytest.raises(AxisError, match="opens argument x has n=3"):
        opens(torch.ones(2, 3))
    assert sys.gettrace() is before
    with Ops() as ops:
        torch.ones(2)
    assert len(ops.names) == 1
    assert traced._lines.here is None
    opens(torch.ones(2, 2))
    assert list(traced) == ["halve.halved"]


def test_tracing_ends_even_where_the_record_fails_to_close(monkeypatch):
    def fails(*arguments):
        raise ZeroDivisionError

    before, trace = sys.gettrace(), Trace()
    leave = trace.graph.tape.__exit__
    monkeypatch.setattr(type(trace.graph.tape), "__exit__", fails)
    with pytest.raises(ZeroDivisionError), trace:
        pass
    assert sys.gettrace() is before
    leave(None, None, None)


def test_a_second_trace_is_refused_while_one_is_open():
    before = sys.gettrace()
    with Trace() as outer:
        for inner in (Trace(), outer):
            with pytest.raises(RuntimeError, match="another trace is open in this thread"), inner:
                pass
        halve(torch.ones(2, 3))
    assert list(outer) == ["halve.halved"]
    assert outer["halve.halved"].explain(0, 0).value == 0.5
    assert sys.gettrace() is before


def test_what_runs_in_another_thread_is_not_recorded_and_the_error_says_so():
    with Trace() as traced:
        thread = threading.Thread(target=halve, args=(torch.ones(2, 3),))
        thread.start()
        thread.join()
    with pytest.raises(KeyError, match=r"holds none: .* in the thread that opened it"):
        traced["halve.halved"]


def test_between_the_yields_of_a_generator_the_block_stays_open():
    def generator():
        with Trace() as traced:
            halve(torch.ones(2, 3))
            yield traced

    before = sys.gettrace()
    steps = generator()
    traced = next(steps)
    halve(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="another trace is open"), Trace():
        pass
    steps.close()
    assert sys.gettrace() is before
    assert list(traced) == ["halve.halved", "halve#2.halved"]
    assert "yields" in Trace.__doc__ and "thread" in Trace.__doc__


def test_a_model_that_is_no_module_is_refused():
    with pytest.raises(
        ValueError, match=r"model must be a torch\.nn\.Module, got 'x'; .* Trace\(\)"
    ):
        Trace("x")


def test_off_it_leaves_the_same_operations_as_on():
    model = example.model()
    with Ops() as off:
        run(model)
    with Trace(model) as traced, Ops() as on:
        run(model)
    assert len(traced) == 86
    assert len(off.names) > 100
    assert on.names == off.names


def test_a_trace_keeps_nothing_of_the_run_but_copies():
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
    assert gone
    assert module() is None
    assert beside() is None
    assert not traced._known and not traced.graph.tape._cells
    weight = torch.ones(2, 3, requires_grad=True)
    with Trace():
        assert not halve(weight).retains_grad
    with Trace(grad=True):
        assert halve(weight).retains_grad


def test_the_gradient_of_a_weight_can_be_read_where_it_got_a_name():
    weight = torch.ones(3, requires_grad=True)

    def weighs(x):
        held: Float[Tensor, " n"] = weight
        return (held * x).sum()

    with Trace(grad=True) as traced:
        weighs(torch.arange(3.0)).backward()
    assert traced["weighs.held"].grad.tolist() == [0.0, 1.0, 2.0]


def test_parameters_and_buffers_bring_their_names_into_the_arithmetic():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))
            self.register_buffer("table", torch.tensor([5.0, 7.0]))

        def forward(self, x):
            scaled: Float[Tensor, " n"] = x * self.weight + self.table
            return scaled

    model = nn.Sequential(Scaled())
    with Trace(model) as traced:
        model(torch.tensor([1.0, 10.0]))
    text = traced["0.scaled"].explain(1).text
    assert "weight[1] + table[1]" in text


def test_an_argument_and_the_code_of_its_function_stand_in_the_arithmetic():
    def half(given: Float[Tensor, "batch n"]):
        halved: Float[Tensor, "batch n"] = given / 2
        return halved

    outside = torch.ones(2, 3)
    with Trace() as traced:
        half(outside)
    assert traced["half.halved"].code == "given / 2"
    assert "given[batch 1, n 2] / 2" in traced["half.halved"].explain(1, 2).text


def test_only_what_is_named_is_kept_and_every_axis_is_checked_all_the_same():
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
    with pytest.raises(ValueError, match="no operation was kept"):
        traced[names[0]].explain(0, 0, 0, 0)
    with pytest.raises(AxisError, match="halved is annotated"), Trace(only="another"):
        halve(torch.zeros(3))


def test_a_second_assignment_has_its_number_where_only_that_is_kept():
    with Trace(only="twice#2") as traced:
        for number in (1.0, 2.0):
            twice: Float[Tensor, "one n"] = torch.full((1, 1), number)  # noqa: F841
    assert list(traced) == ["twice#2"] and traced["twice#2"].value.item() == 2.0


def test_a_name_that_nothing_had_is_noticed_at_the_end_and_the_nearest_are_named():
    with pytest.raises(ValueError, match=r"only='scoers' names no tensor; near to it: scores"):
        with Trace(only=["scoers", "two"]):
            scores: Float[Tensor, "one n"] = torch.zeros(1, 1)  # noqa: F841
            two: Float[Tensor, "one n"] = torch.zeros(1, 1)  # noqa: F841
    with pytest.raises(ZeroDivisionError), Trace(only="scores"):
        raise ZeroDivisionError  # what the block raises is not hidden


def test_gradients_are_those_of_autograd():
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


def test_a_wrong_name_is_answered_with_the_nearest(trace):
    with pytest.raises(KeyError, match=r"near to it: encoder\.layers\.0\.self_attention\.scores"):
        trace["encoder.layers.0.self_attention.score"]
    with pytest.raises(KeyError, match=r"near to it: encoder\..*self_attention\.scores"):
        trace["my.scores"]
    # A name that is nearly right comes before one that ends alike.
    with pytest.raises(KeyError, match=r"near to it: decoder\.layers\.0\.cross_attention\.weights"):
        trace["decoder.layers.0.cros_attention.weights"]
    with pytest.raises(KeyError, match=r"near to it: \w+"):
        trace["???"]
    with pytest.raises(KeyError) as error:
        trace["mean"]
    assert error.value.args[0].count(", ") == 2
    with pytest.raises(KeyError, match="holds none"):
        Trace()["logits"]
    with pytest.raises(KeyError, match="no tensor is named 0: a trace is asked by name"):
        trace[0]
    assert 0 not in trace


def test_diff_names_the_first_tensor_at_which_two_runs_part(trace):
    assert not trace.diff(example.trace(on="cpu"))
    gelu = trace.diff(example.trace(activation="gelu", on="cpu"))
    assert gelu.name == "encoder.layers.0.feed_forward.activated"
    assert gelu.index == (0, 0, 0)
    assert "first at [batch 0, src 0, d_ff 0]: 0.0000 here, -0.1466 there" in repr(gelu)
    assert gelu.compared == list(trace).index(gelu.name)
    start = f"{gelu.compared} tensors agree; the first different tensor is encoder"
    assert repr(gelu).startswith(start)
    unmasked = trace.diff(example.trace(padding=False, on="cpu"))
    assert unmasked.name == "encoder.layers.0.self_attention.masked_scores"
    heads = trace.diff(example.trace(num_heads=1, on="cpu"))
    assert heads.reason == "shape (2, 3, 2, 1) here, (2, 1, 2, 3) there"


def test_diff_names_a_tensor_that_only_one_run_has(trace):
    bigger = example.trace(on="cpu")
    bigger._entries["extra"] = bigger["logits"]
    found = trace.diff(bigger)
    assert (found.name, found.compared) == ("extra", 86)
    assert "only the other run" in found.reason
    assert bigger.diff(trace).name == "extra"
    assert repr(trace.diff(trace)) == "the two runs agree in all 86 tensors"


INF = torch.inf


@pytest.mark.parametrize(
    ("here", "there", "index", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.0 + 1e-10], None, None),
        ([1.0, 2.0], [1.0, 2.0 + 2e-9], (0, 1), pytest.approx(2e-9)),
        ([1.0, 1.0, 1.0], [1.0, 0.5, 4.0], (0, 1), 3.0),
        ([True, False], [True, True], (0, 1), 1.0),
        ([1.0, -INF], [1.0, -INF], None, None),
        ([1.0, torch.nan], [1.0, torch.nan], None, None),
        ([1.0, -INF], [1.0, -1e9], (0, 1), INF),
        ([1.0, -INF], [1.0, torch.nan], (0, 1), INF),
    ],
)
def test_diff_gives_the_first_index_and_the_largest_difference(here, there, index, largest):
    found = traced_scores(here).diff(traced_scores(there))
    assert bool(found) == (index is not None)
    if found:
        assert (found.index, found.largest) == (index, largest)


def test_diff_counts_a_difference_of_the_tolerance_as_equal():
    here, there = traced_scores([1.0, 2.0]), traced_scores([1.5, 2.0])
    assert here.diff(there, tolerance=0.25)
    assert not here.diff(there, tolerance=0.5)


def test_the_summary_names_every_tensor_with_its_axes(trace):
    summary = repr(trace)
    assert all(name in summary for name in trace)
    assert "cross_attention.context" in summary
    assert "batch 2, head 3, query 2, d_v 1" in summary
    assert "86 tensors" in summary
    assert repr(Trace()) == "Trace: no tensor yet"
    lines = [line.split() for line in summary.splitlines()]
    assert "07 encoder.norm.mean batch 2, src 2, 1".split() in lines
    page = trace._repr_html_()
    assert page.count(">86 tensors</caption>") == 1
    assert page.count("<tr ") == 87
    assert "id=" not in page


def test_the_summary_of_a_learners_own_code_names_no_step():
    with Trace() as traced:
        halve(torch.ones(2, 3))
    assert repr(traced).splitlines() == [
        "step  name          axes = sizes",
        "      halve.halved  batch 2, n 3",
        "1 tensor",
    ]
    page = summary_html({"entry": dataclasses.replace(traced["halve.halved"], name="<b>")})
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_the_plain_form_is_exact_json_with_infinities_as_strings(trace):
    steps = json.loads(json.dumps(trace.steps(), allow_nan=False))
    assert [step["name"] for step in steps] == list(trace)
    masked = next(step for step in steps if step["name"].endswith("0.self_attention.masked_scores"))
    assert masked["axes"] == ["batch", "head", "query", "key"]
    assert masked["shape"] == [2, 3, 2, 2]
    assert masked["values"][0][0][0][0] == "-inf"
    logits = torch.tensor(steps[-1]["values"])
    assert torch.equal(logits, trace["logits"].value)
    values = plain(torch.tensor([[math.nan, math.inf], [-math.inf, 0.1]]))
    assert values == [["nan", "inf"], ["-inf", 0.1]]
    assert plain(torch.tensor([True, False])) == [True, False]
