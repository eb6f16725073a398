"""The trace of a run: names, axes, values, gradients, and no cost while it is off."""

import gc
import json
import weakref

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import twelve
from twelve.lab import AxisError, Trace, example
from twelve.lab.steps import STEPS


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


class Ops(TorchDispatchMode):
    """List the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


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


def test_the_companion_tells_every_axis_from_every_other():
    companion = example.companion
    model = companion.model()
    with Trace(model) as traced:
        model(companion.src, companion.tgt,
              src_mask=companion.src_mask, tgt_mask=companion.tgt_mask)  # fmt: skip
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


def test_a_learners_own_module_is_traced_like_ours():
    module = LearnerAttention(3)
    with Trace(module) as traced:
        module(torch.ones(2, 5, 3))
    assert list(traced) == ["asked", "matches", "blended", "blended#2"]
    assert traced["matches"].axes == ("batch", "query", "key")
    assert traced["matches"].step == ""


def test_without_a_model_the_class_gives_the_name_and_a_second_call_its_number():
    module = LearnerAttention(3)
    with Trace() as traced:
        kept: Float[Tensor, "batch seq d_model"] = module(torch.ones(2, 5, 3))
        module(torch.ones(2, 4, 3))
    assert "kept" in traced
    assert kept.shape == traced["kept"].shape
    assert traced["LearnerAttention#2.matches"].shape == (2, 4, 4)


def test_a_forward_that_calls_the_one_it_overrides_is_one_call():
    class Louder(LearnerAttention):
        def forward(self, x: Float[Tensor, "batch seq d_model"]):
            louder: Float[Tensor, "batch seq d_model"] = 2 * super().forward(x)
            return louder

    module = Louder(3)
    with Trace(module) as traced:
        module(torch.ones(2, 5, 3))
    assert list(traced) == ["asked", "matches", "blended", "blended#2", "louder"]


def test_a_function_called_inside_a_module_files_its_tensors_under_the_module():
    layer = twelve.MultiHeadAttention(6, 2)
    with Trace(layer) as traced:
        layer(*(torch.ones(2, 5, 6),) * 3)
    assert "scores" in traced
    assert traced["scores"].axes == ("batch", "head", "query", "key")


def test_two_sizes_under_one_name_raise_and_name_both_tensors():
    def confused(x: Float[Tensor, "batch query d"]):
        turned: Float[Tensor, "batch d query"] = x
        return turned

    with (
        pytest.raises(
            AxisError, match=r"confused\.turned has d=5, but confused argument x has d=3"
        ),
        Trace(),
    ):
        confused(torch.ones(2, 5, 3))


def test_after_an_error_tracing_is_off():
    import sys

    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError), Trace():
        1 // 0  # noqa: B018 (only the error is wanted)
    assert sys.gettrace() is before


def test_off_it_leaves_the_same_operations_as_on():
    model = example.model()
    with Ops() as off:
        run(model)
    with Trace(model) as traced, Ops() as on:
        run(model)
    assert len(traced) == 86
    assert len(off.names) > 100
    assert on.names == off.names


def test_off_it_retains_nothing():
    model = example.model()
    kept = []
    model.encoder.layers[0].self_attention.w_q.register_forward_hook(
        lambda module, inputs, output: kept.append(weakref.ref(output))
    )
    with torch.no_grad():
        run(model)
    gc.collect()
    assert len(kept) == 1
    assert kept[0]() is None


def test_on_it_does_not_keep_the_graph_alive_unless_gradients_are_asked_for():
    model = example.model()
    with Trace(model) as traced:
        output = weakref.ref(run(model))
    gc.collect()
    assert output() is None
    with pytest.raises(ValueError, match=r"logits: no gradient was kept; .* grad=True"):
        _ = traced["logits"].grad


def test_gradients_are_those_of_autograd():
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
    with pytest.raises(KeyError, match=r"near to it: .*self_attention\.scores"):
        trace["scores"]
    with pytest.raises(KeyError, match="holds none"):
        Trace()["logits"]


def test_diff_names_the_first_tensor_at_which_two_runs_part(trace):
    assert not trace.diff(example.trace(on="cpu"))
    gelu = trace.diff(example.trace(activation="gelu", on="cpu"))
    assert gelu.name == "encoder.layers.0.feed_forward.activated"
    assert gelu.index == (0, 0, 0)
    assert "0.0000 here, -0.1466 there" in repr(gelu)
    unmasked = trace.diff(example.trace(padding=False, on="cpu"))
    assert unmasked.name == "encoder.layers.0.self_attention.masked_scores"
    heads = trace.diff(example.trace(num_heads=1, on="cpu"))
    assert heads.reason == "shape (2, 3, 2, 1) here, (2, 1, 2, 3) there"


def test_diff_sees_a_tensor_that_only_the_other_run_has(trace):
    bigger = example.trace(on="cpu")
    bigger._entries["extra"] = bigger["logits"]
    assert trace.diff(bigger).name == "extra"


def test_infinities_are_equal_to_themselves_and_differ_from_numbers():
    def scores(x):
        filled: Float[Tensor, "query key"] = x
        return filled

    runs = []
    for values in ([1.0, -torch.inf], [1.0, -torch.inf], [1.0, -1e9], [1.0, torch.nan]):
        with Trace() as traced:
            scores(torch.tensor([values]))
        runs.append(traced)
    assert not runs[0].diff(runs[1])
    assert runs[0].diff(runs[2]).index == (0, 1)
    assert runs[0].diff(runs[3]).largest == torch.inf
    assert not runs[3].diff(runs[3])


def test_the_ledger_names_every_tensor_with_its_axes(trace):
    ledger = repr(trace)
    assert all(name in ledger for name in trace)
    assert "cross_attention.context" in ledger
    assert "batch 2, head 3, query 2, d_v 1" in ledger
    assert "86 tensors" in ledger
    assert repr(Trace()) == "Trace: no tensor yet"
    page = trace._repr_html_()
    assert page.count("<tr>") == 87
    assert "id=" not in page


def test_every_step_of_the_ledger_is_a_step_of_the_course(trace):
    numbers = {step.number for step in STEPS}
    assert {entry.step for entry in trace.values()} <= numbers


def test_the_plain_form_is_exact_json_with_infinities_as_strings(trace):
    steps = json.loads(json.dumps(trace.steps(), allow_nan=False))
    assert [step["name"] for step in steps] == list(trace)
    masked = next(step for step in steps if step["name"].endswith("0.self_attention.masked_scores"))
    assert masked["axes"] == ["batch", "head", "query", "key"]
    assert masked["shape"] == [2, 3, 2, 2]
    assert masked["values"][0][0][0][0] == "-inf"
    logits = torch.tensor(steps[-1]["values"])
    assert torch.equal(logits, trace["logits"].value)


def test_an_entry_shows_its_numbers_with_named_axes(trace):
    text = repr(trace["src_input"])
    assert text.startswith("src_input\n(batch=2, src=2, d_model=3)")
    assert "1.6615" in text
    assert "1.6615" in trace["src_input"]._repr_html_()


def test_fused_kernels_leave_nothing_to_trace_inside():
    fused = example.trace(fused=True, on="cpu")
    assert not any(name.endswith((".scores", ".weights", ".mean")) for name in fused)
    torch.testing.assert_close(fused["logits"].value, example.trace(on="cpu")["logits"].value)
