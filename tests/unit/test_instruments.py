"""The smaller instruments: influence, check_axes, device, example."""

import itertools
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import twelve
from twelve_lab import AxisError, check_axes, device, example, expect, influence
from twelve_lab.course import find_step


class Summer:
    """Model with two vocabulary sizes; each position sums the source and the target up to it."""

    src_embedding = SimpleNamespace(vocab_size=3)
    tgt_embedding = SimpleNamespace(vocab_size=4)

    def __init__(self):
        self.tried = set()

    def __call__(self, src, tgt):
        self.tried |= {*tgt.flatten().tolist()}
        return (src.sum(1, keepdim=True) + tgt.cumsum(1)).double().unsqueeze(-1)


class Keeper(nn.Module):
    """Model that stores its inputs and returns None."""

    def forward(self, *inputs):
        self.inputs = inputs


def grid(*rows):
    return torch.tensor([[mark == "x" for mark in row] for row in rows])


MODELS = [
    (lambda ids: ids == 0, ("x.", ".x")),  # influence tries the first and the last id
    (lambda ids: ids == 3, ("x.", ".x")),
    (lambda ids: torch.where(ids == 3, torch.nan, 1.0), ("x.", ".x")),
    (lambda ids: torch.full(ids.shape, torch.nan), ("..", "..")),
    (lambda ids: torch.full(ids.shape, torch.inf), ("..", "..")),
    (lambda ids: ids.add_(1), ("x.", ".x")),  # modifies its input
    (lambda ids: torch.where(ids > 1, -(2**63), 0), ("x.", ".x")),
]


@pytest.mark.parametrize(("model", "rows"), MODELS)
def test_influence_compares_every_id_and_every_kind_of_number(model, rows):
    result = influence(lambda ids: model(ids)[..., None], torch.tensor([[1, 2]]), vocab_size=4)
    assert torch.equal(result.grid, grid(*rows))


def test_influence_of_sentences_of_unequal_length():
    short, long = torch.ones(1, 2, dtype=torch.int64), torch.ones(1, 3, dtype=torch.int64)
    result = influence(Summer(), short, long, of="src")
    assert torch.equal(result.grid, grid("xx", "xx", "xx"))
    assert result.outputs == ("out 0,0", "out 0,1", "out 0,2")
    assert result.tokens == ("src 0,0", "src 0,1")
    model = Summer()
    result = influence(model, short, long, of="tgt")
    assert model.tried == {0, 1, 2, 3}  # all ids of the target vocabulary
    assert torch.equal(result.grid, grid("x..", "xx.", "xxx"))
    assert result.tokens == ("tgt 0,0", "tgt 0,1", "tgt 0,2")


def test_influence_counts_a_change_above_the_tolerance():
    def small(ids):
        return torch.stack([torch.zeros(ids.shape), 1e-6 * ids], dim=-1)

    ids = torch.tensor([[1]])
    assert influence(small, ids, vocab_size=2).grid.all()
    assert not influence(small, ids, vocab_size=2, tolerance=1e-5).grid.any()


BAD_INPUT = [
    (example.model(), {"of": "tgt"}, "of must be"),
    (lambda ids: ids, {}, "give vocab_size"),
    (example.model(), {"vocab_size": -1}, "vocab_size must be an integer of .*, got -1"),
    (example.model(), {"vocab_size": True}, "vocab_size must be an integer of .*, got True"),
    (example.model(), {"tolerance": -1.0}, "tolerance must be at least 0, got -1.0"),
    (example.model(), {"tolerance": True}, "tolerance must be at least 0, got True"),
    (example.model(), {"src": [[1]]}, "src must be a tensor of int64 .*, got a list"),
    (example.model(), {"tgt": torch.tensor([1])}, r"tgt must be .*, got shape \(1,\)"),
    (example.model(), {"src": torch.ones(2, 0).long()}, r"src must be .*, got shape \(2, 0\)"),
    (lambda ids: ids.double(), {"vocab_size": 4}, r"\(batch, position, .*in shape \(2, 2\)"),
    (lambda ids: torch.zeros(3, 2, 1), {"vocab_size": 4}, r"\(3, 2, 1\) for a batch of 2"),
    (lambda ids: (ids,), {"vocab_size": 4}, "got a tuple for a batch of 2"),
    (lambda ids: torch.rand(2, 2, 1), {"vocab_size": 4}, r"one output .* call model.eval\(\)"),
]


@pytest.mark.parametrize(("model", "options", "message"), BAD_INPUT)
def test_influence_rejects_bad_input(unchecked, model, options, message):
    with pytest.raises(ValueError, match=message):
        influence(model, **{"src": example.src} | options)


def test_check_axes_reveals_a_wrong_split_of_heads():
    def build(num_heads):
        def split(x: Float[Tensor, "batch seq d_model"]):
            heads: Float[Tensor, "batch head seq d_k"] = x.unflatten(-1, (num_heads, -1))
            return heads

        return split

    with pytest.raises(AxisError, match=r"has seq=3, but .* has seq=5"):
        check_axes(build, "batch src d_model")


def test_check_axes_fills_inputs_by_axis_the_same_every_time():
    axes = ("batch head query key", "tgt src seq", "d_k d_v", "d_model d_ff vocab")
    first, second = Keeper(), Keeper()
    check_axes(lambda: first, *axes)
    check_axes(lambda: second, *axes)
    shapes = [tuple(x.shape) for x in first.inputs]
    assert shapes == [(2, 3, 4, 5), (4, 5, 5), (8, 6), (24, 96, 13)]
    assert all(map(torch.equal, first.inputs, second.inputs))
    ids = torch.tensor([[1, 2]])
    first.weight = nn.Parameter(torch.empty(1, device="meta"))
    check_axes(lambda: first, "batch d_model", ids)
    assert first.inputs[0].device.type == "meta" and first.inputs[1] is ids


def test_check_axes_without_weights_takes_the_default_device(monkeypatch):
    # get_default_device raises on PyTorch 2.6 to 2.8 after set_default_device(None).
    monkeypatch.delattr(torch, "get_default_device")
    keeper = Keeper()
    with torch.device("meta"):
        check_axes(lambda: keeper, "batch d_model")
    assert keeper.inputs[0].device.type == "meta"


def test_check_axes_computes_in_float64_and_leaves_the_default_as_it_was():
    torch.set_default_dtype(torch.float32)
    trace = check_axes(lambda d_model: twelve.FeedForward(d_model), "batch src d_model")
    assert trace["activated"].value.dtype == torch.float64
    with pytest.raises(ZeroDivisionError):
        check_axes(lambda: 1 // 0)
    for build in (example.model, example.distinct.model):
        assert next(build().parameters()).dtype == torch.float64
    with pytest.raises(ValueError, match="activation"):
        example.model(activation="tanh")
    assert torch.get_default_dtype() == torch.float32


BAD_BUILDS = [
    (lambda width: nn.Identity(), "batch src d_model", "no size for 'width'"),
    (lambda: nn.Identity(), "batch word", "no size for axis 'word'"),
    (lambda *sizes: nn.Identity(), "batch", "name its sizes"),
    (lambda d_model: None, "batch d_model", "build must return a layer, got a NoneType"),
]


@pytest.mark.parametrize(("build", "axes", "message"), BAD_BUILDS)
def test_check_axes_rejects_unknown_sizes_and_what_is_no_layer(build, axes, message):
    with pytest.raises(ValueError, match=message):
        check_axes(build, axes)


DEVICES = [
    (" cpu ", 1, "cpu"),
    (" ", 1, "cuda"),
    (" ", 0, "cpu"),
    ("cuda:0", 1, "cuda:0"),
    ("toaster", 1, "TWELVE_DEVICE='toaster' is no device"),
    ("mps", 1, "the trace needs float64"),
    ("cuda:1", 1, "TWELVE_DEVICE='cuda:1', but 1 CUDA devices are present"),
    ("cuda", 0, "but 0 CUDA devices are present"),
]


@pytest.mark.parametrize(("name", "present", "expected"), DEVICES)
def test_device_comes_from_the_variable(monkeypatch, name, present, expected):
    monkeypatch.setenv("TWELVE_DEVICE", name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    if " " in expected:
        with pytest.raises(ValueError, match=expected):
            device()
    else:
        assert device() == torch.device(expected)
    assert device("cpu").type == "cpu"


def test_example_has_no_random_weight():
    model, again = example.model(), example.model()
    pairs = zip(model.state_dict().values(), again.state_dict().values(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    assert not model.training
    with pytest.raises(ValueError, match="num_heads must be 1, 2 or 3, got 4"):
        example.model(num_heads=4)


# The first operation on "meta" makes torch load its compiler, which is slow.
@pytest.mark.parametrize("on", ["cpu", pytest.param("meta", marks=pytest.mark.slow)])
def test_example_trace_runs_on_the_device_of_its_argument_or_variable(on, monkeypatch):
    monkeypatch.setenv("TWELVE_DEVICE", "toaster")
    assert example.trace(on=on)["logits"].value.device.type == on
    with pytest.raises(ValueError, match="TWELVE_DEVICE='toaster' is no device"):
        example.trace()


@pytest.mark.slow
def test_example_is_the_same_wherever_it_is_imported_first():
    program = (
        "import torch\n"
        "with torch.inference_mode(), torch.device('meta'):\n"
        "    from twelve_lab import example\n"
        "for kept in (vars(example), vars(example.distinct)):\n"
        "    tables = [x for x in kept.values() if isinstance(x, torch.Tensor)]\n"
        "    print({x.device.type for x in tables}, any(x.is_inference() for x in tables))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "{'cpu'} False\n" * 2, done.stderr


def test_distinct_example_is_the_same_every_time_and_its_sizes_differ():
    distinct, again = example.distinct, type(example.distinct)()
    sizes = vars(distinct.sizes).values()
    assert len(set(sizes)) == len(sizes)
    for name in ("src", "tgt", "labels", "src_mask", "tgt_mask"):
        assert torch.equal(getattr(again, name), getattr(distinct, name))
    model, same = distinct.model(), distinct.model()
    assert all(map(torch.equal, model.parameters(), same.parameters())) and not model.training
    # The layers of a stack have different weights.
    first, second = (layer.self_attention.w_q.weight for layer in model.encoder.layers)
    assert not torch.equal(first, second)


ALL_SWITCHES = {
    "num_heads": (1, 2, 3), "norm_first": (True, False), "activation": ("relu", "gelu"),
    "padding": (True, False), "tie_weights": (True, False), "scale_embedding": (True, False),
}  # fmt: skip
ALL_RUNS = [
    dict(zip(ALL_SWITCHES, values, strict=True))
    for values in itertools.product(*ALL_SWITCHES.values())
]


@pytest.mark.parametrize(
    "runs",
    [[*example.CONFIGURATIONS.values()], pytest.param(ALL_RUNS, marks=pytest.mark.weekly)],
    ids=["course", "all"],
)
def test_no_value_of_the_example_lies_near_a_rounding_boundary(runs):
    """Printed values must not depend on the last bits, which differ between devices."""
    for switches in runs:
        for name, entry in example.trace(**switches, on="cpu").items():
            # Ties, and values up to 1e-8 below a tie, round away from zero.
            fourth_decimals = (entry.value.double().abs() + 1e-8) * 1e4
            distance = (fourth_decimals % 1 - 0.5).abs()
            assert not (distance <= 1e-4).any(), name


def test_expect_prints_the_kind_and_the_first_line_of_the_error(capsys):
    for error in (ValueError("x has 3 rows\nand a second line"), KeyError(), ValueError("\n  b\n")):
        with expect(Exception):
            raise error
    assert capsys.readouterr().out == "ValueError: x has 3 rows\nKeyError\nValueError: b\n"


def test_expect_fails_without_an_error_and_passes_other_errors():
    with pytest.raises(AssertionError, match="expected to raise ValueError"), expect(ValueError):
        pass
    with pytest.raises(KeyError), expect(ValueError):
        raise KeyError("other")


def test_find_step_by_number_and_stem():
    assert find_step(4) == find_step("04") == find_step("attention")
    assert find_step("06").notebook == "notebooks/06_multi_head_attention.ipynb"
    with pytest.raises(ValueError, match="step 'zz' is not one of 00, 01"):
        find_step("zz")
