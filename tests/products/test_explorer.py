"""The live page without a browser: its engine, run by Node, computes the same numbers as PyTorch.

tests/products/browser/test_explorer_page.py opens the page.
"""

import base64
import json
import math
import random
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tests.course.test_messages import page_data
from tests.operations import MASK, OPERATIONS, TAKEN_APART, X, run
from tests.products.pytorch_runs import ATTENTION, FIRST, LABELS, TITLES, Run, differences, layout
from tests.products.pytorch_runs import program as program_of
from twelve import LearnedPositionalEncoding, RMSNorm, SwiGLU
from twelve.fast import make_fast
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explain.explanation import Explanation
from twelve_lab.explain.expression import call
from twelve_lab.explain.formulas import FORMULAS
from twelve_lab.explorer import page, write_explorer
from twelve_lab.explorer.program import FUNCTIONS, LIVE, Program

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).parent / "engine_runner.mjs"
CHANGES = 200
TWO_OFTEN = [
    pytest.param(title, marks=[] if title in (FIRST, TITLES[-1]) else pytest.mark.weekly)
    for title in TITLES
]
# PyTorch recomputes these tensors; the page keeps the value of a changed element.
HELD = ("src_mask", "key_mask", "mask", "memory")


def test_bundle_is_built_from_the_modules(tmp_path):
    if not (ROOT / "node_modules/.bin/esbuild").exists():
        pytest.skip("esbuild is not installed: `npm ci` installs it")
    built = tmp_path / "bundle.js"
    command = ["npm", "run", "--silent", "bundle", "--", f"--outfile={built}"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    stored = ROOT / "src/twelve_lab/explorer/bundle.js"
    assert built.read_bytes() == stored.read_bytes(), "run `make catalogue`"


def ask(runs, *orders) -> list:
    """Run the engine in Node, and return its answers, except those of orders that return nothing.

    Args:
        runs: Programs of the engine, or names of configurations.
        orders: The name of each order and its arguments; engine_runner.mjs lists the orders.
    """
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    runs = [program_of(run) if isinstance(run, str) else run for run in runs]
    request = json.dumps({"runs": runs, "orders": orders})
    done = subprocess.run(["node", RUNNER], input=request, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [answer for answer in json.loads(done.stdout) if answer is not None]


def unpack(text: str) -> Tensor:
    """Unpack base64-encoded values and gradients, shape (2, count)."""
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float64).view(2, -1)


def tensors_of(data: dict, numbers: Tensor) -> dict[str, Tensor]:
    """Split the numbers of a program into tensors, keyed by name."""
    sizes = [math.prod(tensor["shape"]) for tensor in data["tensors"]]
    names = [tensor["name"] for tensor in data["tensors"]]
    return dict(zip(names, numbers.split(sizes, dim=-1), strict=True))


# Random changes.


def random_change(choice, title, labels):
    """Choose an input of a run and a new value, and keep at least one label that is not ignored."""
    places = layout(title)
    weights = [tensor["name"] for tensor in program_of(title)["tensors"] if tensor["weight"]]
    embeddings = [name for name in weights if name.endswith("embedding.weight")]
    held = [name for name in (*HELD, "tgt_mask") if name in places]
    ids = [name for name in ("src", "tgt", "ids", LABELS) if name in places]
    name = choice.choice([*map(choice.choice, (embeddings, weights, held)), *ids])
    element = choice.randrange(places[name][1].numel())
    if name.endswith("mask"):
        return name, element, choice.randrange(2)
    if name in ids:
        others = [label for n, label in enumerate(labels.flatten().tolist()) if n != element]
        ignored = [-100] * (name == LABELS and any(label >= 0 for label in others))
        return name, element, choice.choice([0, 1, 2, 3, *ignored])
    return name, element, choice.choice([choice.uniform(-2, 2), choice.gauss(0, 5), 0.0])


def walk(title, changes):
    """Change a number, or restore one with probability 0.25; yield each order and the run."""
    choice, here, restored = random.Random(title), Run(title), 0
    for _ in range(changes):
        labels = here.given()[LABELS]
        name, element, *value = random_change(choice, title, labels)
        # Do not restore labels: all of them might then be ignored.
        restorable = [change for change in here.changed if change[0] != LABELS]
        if restorable and choice.random() < 0.25:
            (name, element), value = choice.choice(restorable), []
            del here.changed[name, element]
            restored += 1
        else:
            here.changed[name, element] = value[0]
        yield ["put" if value else "restore", name, element, *value], here
    assert restored > changes / 10


@pytest.mark.parametrize("title", TWO_OFTEN)
def test_engine_equals_pytorch_after_random_changes(title, unchecked):
    every = 10 if title == FIRST else 20
    orders, states = [["numbers"]], [({}, Run(title).numbers())]
    for number, (order, here) in enumerate(walk(title, CHANGES), 1):
        orders.append(order)
        if number % every == 0:
            orders.append(["numbers"])
            states.append((dict(here.changed), here.numbers()))
    answers = map(unpack, ask([title], *orders))
    for numbers, (changed, wanted) in zip(answers, states, strict=True):
        assert differences(title, numbers, wanted, 1e-9 if changed else 1e-12) == [], changed
    losses = {wanted[0, -1].item() for _, wanted in states}
    assert len(losses) > len(states) / 2  # most changes have an effect


def test_explaining_reports_a_number_set_by_hand_and_changes_nothing():
    *answers, before, text, after = ask(
        [FIRST], ["takes", "src", 0, 4], ["takes", "src", 0, 3], ["takes", "src", 1, 1],
        ["takes", "tgt_mask", 1, 0.5], ["explain_one", "memory", 8], ["put", "memory", 8, 2],
        ["explain_one", "memory", 8], ["restore", "memory", 8], ["explain_one", "memory", 8],
    )  # fmt: skip
    assert answers == [False, True, True, False]
    assert text == "memory[batch 1, src 0, d_model 2]\n  = 2.0000, held fast by you"
    trace = example.trace(loss=True, on="cpu")
    assert before == after == trace["memory"].explain(1, 0, 2).text


@pytest.mark.parametrize("title", [FIRST, TITLES[-1]])
def test_page_explains_every_number_in_the_words_of_python(title, unchecked):
    trace, texts = Run(title).trace(explain=True)[0], []
    for name in layout(title):
        block, code = trace.graph.tape.named[name], trace[name].code if name in trace else ""
        elements = range(block.start, block.start + block.values.numel())
        texts += [Explanation(trace.graph, element, 1, code).text for element in elements]
    assert len(texts) > 500 and ask([title], ["explain"]) == [texts]


# Operations.


def test_engine_has_every_function_that_a_program_may_hold():
    (operations,) = ask([], ["operations"])
    assert set(operations) == FUNCTIONS | {"sum", "dot"}


EQUAL = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
# The first of equal maxima gets the gradient; slopes are 0 where a factor is infinite or masked.
CORNERS = {
    "max of ties": (lambda x: x.max(1).values, EQUAL), "relu at 0": (torch.relu, EQUAL - 2),
    "min of ties": (lambda x: x.min(1).values, EQUAL), "power 0": (lambda x: x**0, EQUAL - 2),
    "base 0": (lambda x: 0.0**x, EQUAL),
    "infinite slope": (lambda x: x.masked_fill(MASK, 0.0).sqrt(), X),
}  # fmt: skip


def test_every_formula_gives_the_numbers_gradients_and_words_of_python():
    tried = [(name, function, X) for name in sorted(FORMULAS)
             for function in OPERATIONS[name]]  # fmt: skip
    tried += [(f"{name}, taken apart", function, X) for name, function in TAKEN_APART.items()]
    tried += [(name, *corner) for name, corner in CORNERS.items()]
    traces = [run(function, numbers) for _, function, numbers in tried]
    runs, orders = [Program(trace).data for trace in traces], []
    for index, trace in enumerate(traces):
        orders += [["choose", index], ["numbers"], ["explain"]]
        orders += [["back", "y", element] for element in range(trace["y"].value.numel())]
    answers = iter(ask(runs, *orders))
    for (name, *_), trace, data in zip(tried, traces, runs, strict=True):
        y, values, words = trace["y"], tensors_of(data, unpack(next(answers))), next(answers)
        # The engine does not round when an operation converts to single precision.
        wanted = y.value.double().flatten()
        assert torch.allclose(values["y"][0], wanted, rtol=1e-7, atol=1e-12), name
        gradient = sum(
            (element + 1) * tensors_of(data, unpack(next(answers)))["x"][1]
            for element in range(y.value.numel())
        )
        if y.tensor.requires_grad:
            wanted = trace["x"].grad.double().flatten()
            assert torch.allclose(gradient, wanted, rtol=1e-6, atol=1e-9), name
        # torch computes `any` and `all` with sums, the engine with conditions. Python explains
        # fused attention as one division, the engine as one softmax for each key. The engine does
        # not name conversions between types.
        if not name.startswith(("any", "all", "_scaled_dot", "_to_copy", "convert_element")):
            explained = [y.explain(*index).text for index in product(*map(range, y.shape))]
            assert words[-len(explained) :] == explained, name
    assert next(answers, None) is None


def test_engine_computes_erf_and_the_limits_of_every_function():
    points = [0.0, 1e-9, 0.3, 1.0, 2.4999, 2.5, 3.0, 4.5, 5.99, 6.01, 30.0, math.inf]
    inf = math.inf
    wanted = {
        ("max", 1, math.nan, 3): math.nan, ("min", 2, -inf): -inf, ("pick", 2, 5, 6): math.nan,
        ("safe_softmax", 1, -inf, -inf): 0.0, ("softmax", 0, -inf, -inf): math.nan,
        ("softmax", 1, 1000, 1001): 1 / (1 + math.exp(-1)), ("/", -1, 0): -inf,
        ("AND", 1, 0): 0.0, ("OR", 0, 1): 1.0, ("NOT", 0): 1.0, ("IF", 0, -inf, 7): 7.0,
        ("logsumexp", 800, 800): 800 + math.log(2), ("sum",): 0.0, ("dot", 1, 2, 3, 4): 11.0,
    }  # fmt: skip
    for x in (*points, *(-point for point in points)):
        sigmoid = torch.tensor(x).sigmoid().item()
        wanted |= {("erf", x): math.erf(x), ("erfc", x): math.erfc(x), ("sigmoid", x): sigmoid}
    # JSON has no infinity and no nan.
    orders = [[name, *(x if math.isfinite(x) else str(x) for x in xs)] for name, *xs in wanted]
    numbers = map(float, ask([], *(["compute", *order] for order in orders)))
    for (order, value), number in zip(wanted.items(), numbers, strict=True):
        assert number == pytest.approx(value, rel=1e-12, abs=1e-300, nan_ok=True), order


# Gradients and learning.


def test_gradient_is_the_sum_over_all_numbers_computed_from_it():
    numbers, slopes = ask(
        [FIRST], ["put", "src_embedding.weight", 7, -1.25], ["put", "memory", 4, 0.5],
        ["numbers"], ["slopes"],
    )  # fmt: skip
    gradients = unpack(numbers)[1]
    total = torch.zeros(len(gradients))
    for later, place, slope in slopes:
        total[place] += gradients[later] * slope
    total[-1] = 1  # the loss
    assert torch.allclose(total, gradients, atol=1e-12)


def test_learning_is_gradient_descent_on_every_weight():
    model, losses = example.model(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    for _ in range(31):
        loss = cross_entropy(model(example.src, example.tgt, **masks), example.labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    home, learned, numbers, undone, after, again = ask(
        [FIRST], ["numbers"], ["begin"], ["learn", 0.3, 30], ["numbers"], ["undo"], ["numbers"],
        ["learn", 0.3, 1],
    )  # fmt: skip
    assert learned == pytest.approx(losses, abs=1e-9) and learned[-1] < learned[0] / 2
    assert unpack(numbers)[0, -1].item() == pytest.approx(losses[-1], abs=1e-9)
    assert undone and after == home and len(again) == 2


# The state of a page.


SOME = (
    ["put", "src_embedding.weight", 7, 0.25], ["put", "src", 0, 2], ["put", "tgt_mask", 1, 1],
    ["put", "memory", 5, -1.5], ["put", f"{ATTENTION}.masked_scores", 2, "-inf"],
)  # fmt: skip


def test_address_replays_every_action_in_its_order():
    place = layout(FIRST)["memory"][0] + 6
    orders = [*SOME, ["learn", 0.3, 9], ["put", "memory", 5, 2], ["learn", 1, 2],
              ["put", "src_embedding.weight", 6, 1.87], ["restore", "memory", 5]]  # fmt: skip
    *_, numbers, address = ask([FIRST, "GELU"], ["choose", 1], *orders, ["numbers"],
                               ["address", place])  # fmt: skip
    assert address == (
        "run=1&w=7:0.25&n=src:0:2&n=tgt_mask:1:1&n=memory:5:-1.5"
        f"&n={ATTENTION}.masked_scores:2:-Infinity&l=9x0.3&n=memory:5:2&l=2x1&w=6:1.87"
        "&n=memory:5:&at=memory:6"
    )
    opened, again, after, _, start = ask(
        [FIRST, "GELU"], ["open", address], ["numbers"], ["address", place], ["open", ""],
        ["address", -1],
    )  # fmt: skip
    assert opened == [place, []] and again == numbers and after == address and start == ""


# Invalid parts of an address, each of which is skipped.
BROKEN = (
    "n=memory:12:1", "n=memory:0.5:1", "n=memory::1", "n=memory:0:%20", "n=memory:0:NaN",
    "n=memory:0:1:2", "n=memory:0", "n=nothing:0:1", "n=src:0:4", f"n={LABELS}:0:-7",
    "n=tgt_mask:0:2", "w=999:1", "w=0", "w=0:cat", "w=0:1:2", "l=3", "l=0x1", "l=2x0", "l=2xcat",
    "l=9999x1", "l=1x2x3", "run=9", "run=cat", "at=nothing:0", "at=memory:12", "at=memory",
)  # fmt: skip


def test_broken_address_is_reported_and_the_rest_is_kept():
    partly = f"run=7&n=src:0:3&n=memory:0:dog&n={LABELS}:2:-100&at=memory:3"
    orders = [order for address in BROKEN for order in (["open", address], ["numbers"])]
    home, *answers, opened, written, place = ask(
        [FIRST], ["numbers"], *orders, ["open", partly], ["written"], ["place", "memory", [0, 1, 0]]
    )
    for address, opening, numbers in zip(BROKEN, answers[::2], answers[1::2], strict=True):
        assert opening == [-1, [address.replace("%20", " ")]], address
        assert numbers == home, address
    assert opened == [place, ["run=7", "n=memory:0:dog"]] and written == ["src", LABELS]


def test_undo_goes_back_step_by_step_and_start_again_can_be_undone():
    orders = [order for change in SOME for order in (["begin"], change, ["before"], ["numbers"])]
    home, *answers = ask(
        [FIRST], ["numbers"], *orders, ["reset"], ["numbers"], ["before"],
        *[["undo"], ["numbers"]] * (len(SOME) + 1), ["undo"], ["written"],
    )  # fmt: skip
    count = 2 * len(SOME)
    seen = [home, *answers[1:count:2]]
    # "before" returns the values and gradients before the last change.
    assert answers[:count:2] == seen[:-1]
    again, before, *undone, nothing, written = answers[count:]
    assert again == before == home and undone[::2] == [True] * len(seen)
    assert undone[1::2] == seen[::-1]
    assert nothing is False and written == []


def test_actions_go_along_to_a_configuration_with_the_same_tensor():
    changes = [
        ["put", "src_embedding.weight", 7, 0.25], ["put", "src", 0, 2],
        ["put", f"{ATTENTION}.w_o.weight", 4, 8.0], ["put", "output_projection.weight", 3, 9.0],
    ]  # fmt: skip
    w_o = f"{ATTENTION}.w_o.weight"
    (here, tied, missing, was, back, undone, two, of_another_size, none, _, _, learned, _,
     replayed) = ask(
        [FIRST, "tied output", "2 heads of width 2"], *changes, ["numbers"],
        ["choose", 1], ["numbers"], ["missing"], ["was", "memory", 3], ["undo"], ["numbers"],
        ["reset"], *changes[:3], ["choose", 2], ["numbers"], ["missing"], ["was", w_o, 0],
        ["open", ""], ["learn", 0.3, 3], ["choose", 1], ["numbers"],
        ["open", "run=1&l=3x0.3"], ["numbers"],
    )  # fmt: skip
    assert missing == ["output_projection.weight"]
    # In that run w_o has shape (3, 4): the same index would be a different entry.
    assert of_another_size == [w_o] and none == "none"
    for title, numbers, kept in (
        ("tied output", tied, changes[:3]), ("2 heads of width 2", two, changes[:2]),
    ):  # fmt: skip
        run = Run(title)
        run.changed = {(name, element): value for _, name, element, value in kept}
        assert differences(title, unpack(numbers), run.numbers()) == []
    assert was == unpack(here)[0, layout(FIRST)["memory"][0] + 3].item()
    assert back is True and undone == here and learned == replayed


def test_place_errors_name_the_tensor_and_its_shape():
    name = f"{ATTENTION}.weights"
    wrong = [[1, 2, 0], [1, 3, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0.5]]
    place, *errors, unknown = ask(
        [FIRST], ["place", name, [1, 2, 0, 1]], *(["place", name, index] for index in wrong),
        ["place", "memroy", [0]],
    )  # fmt: skip
    assert place == layout(FIRST)[name][0] + 21
    for error, index in zip(errors, wrong, strict=True):
        assert error["error"].startswith(f"{name} has the sizes [2,3,2,2]")
        assert error["error"].endswith(str(index).replace(" ", ""))
    assert unknown["error"] == 'no tensor is named "memroy"'


# Custom layers.


LAYERS = {
    "SwiGLU": lambda: SwiGLU(3, 4), 
    "positions": lambda: LearnedPositionalEncoding(3, max_len=4),
    "fast RMSNorm": lambda: make_fast(nn.Sequential(RMSNorm(3))),
}  # fmt: skip


@pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)
def test_own_layer_follows_a_change_of_each_of_its_weights(build):
    layer, x = build().double(), torch.randn(2, 2, 3)
    weights = dict(layer.named_parameters())

    def trace_again():
        with Trace(layer, grad=True) as trace:
            z: Float[Tensor, "batch seq d_model"] = x * 1.0
            y: Float[Tensor, ""] = layer(z).square().sum()
        assert z.shape == (2, 2, 3)
        y.backward()
        return trace

    trace = trace_again()
    data = Program(trace).data
    changes = [(name, weight.numel() - 1, 0.5 + n) for n, (name, weight) in
               enumerate(weights.items())]  # fmt: skip
    home, changed = ask([data], ["numbers"], *(["put", *each] for each in changes), ["numbers"])
    for numbers in (home, changed):
        for name, (values, gradients) in tensors_of(data, unpack(numbers)).items():
            wanted = weights[name] if name in weights else trace[name].value
            assert torch.allclose(values, wanted.flatten(), atol=1e-9), name
            if name in weights:
                assert torch.allclose(gradients, weights[name].grad.flatten(), atol=1e-9), name
        for name, element, number in changes:
            weights[name].data.view(-1)[element] = number
            weights[name].grad = None
        trace = trace_again()


# The page.


def test_page_is_small_requests_nothing_and_carries_every_run(tmp_path):
    path = tmp_path / "new" / "walk.html"
    assert main(["explorer", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 250_000
    assert "default-src 'none'" in text
    inside = text.replace("data:,", "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn|@import|\burl\(|^import |^export ", inside, re.MULTILINE)
    data = page_data(text)
    assert data["vocab"] == list(example.vocabulary)
    assert data["runs"] == [{"title": title, **program_of(title)} for title in TITLES]


def test_program_names_axes_words_and_code_of_each_tensor():
    tensors = {tensor["name"]: tensor for tensor in program_of(FIRST)["tensors"]}
    weights = tensors[f"{ATTENTION}.weights"]
    assert weights["axes"] == ["batch", "head", "query", "key"] and weights["shape"] == [2, 3, 2, 2]
    assert weights["words"][2:] == ["src", "src"] and "softmax(-1)" in weights["code"]
    assert tensors["decoder.layers.0.cross_attention.weights"]["words"][2:] == ["tgt", "src"]
    assert tensors["logits"]["words"] == [None, "tgt", list(example.vocabulary)]
    types = [tensors[name]["type"] for name in ("tgt_mask", "src", "logits")]
    assert types == ["bool", "int", "float"]
    # The decoder-only model reads a single text, whatever the names of its axes.
    mask = next(tensor for tensor in program_of(TITLES[-1])["tensors"] if tensor["name"] == "mask")
    assert mask["words"][2:] == ["ids", "ids"]


def test_partial_page_contains_its_title_lead_and_panels():
    panels = [{"title": "Attention", "panel": "attention", "of": ATTENTION}]
    part = {"title": "Drag a query", "lead": "One head.", "panels": panels}
    data = page_data(page({"a run": example.trace(on="cpu")}, example.words, part))
    assert {key: data[key] for key in part} == part


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda x: x * 1j, "z: holds no plain numbers"),
        (lambda x: torch.native_dropout(x, 1.0, True)[0], "no formula .*dropout"),
        (torch.lgamma, "z: the page cannot compute lgamma"),
    ],
)
def test_explorer_refuses_what_the_page_cannot_compute(tmp_path, monkeypatch, compute, message):
    monkeypatch.setitem(LIVE, "lgamma", lambda at: call("lgamma", at(0)))
    with Trace() as trace:
        z: Float[Tensor, " n"] = compute(X[0])
    assert z.shape == (3,)
    with pytest.raises(ValueError, match=f"'the run': {message}"):
        trace.explorer(tmp_path / "a.html")
    assert not any(tmp_path.iterdir())


def test_write_explorer_refuses_empty_and_large_runs_and_other_files(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.html"
    with pytest.raises(ValueError, match="at least one run"):
        write_explorer(path, {})
    with Trace() as empty:
        pass
    with pytest.raises(ValueError, match="'the run': the run holds no tensor"):
        empty.explorer(path)
    monkeypatch.setattr("twelve_lab.explorer.LARGEST", 50_000)
    with pytest.raises(ValueError, match=r"would take \d+,\d+ bytes, more than 50,000"):
        example.trace(on="cpu").explorer(path)
    assert not path.exists()
    assert main(["explorer", str(tmp_path / "walk.pdf")]) == 1
    assert "give a name that ends in .html" in capsys.readouterr().err
