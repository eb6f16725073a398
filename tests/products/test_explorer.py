"""The explorer without a browser: its arithmetic under node, the same as PyTorch's in every number.

tests/products/browser/test_explorer_page.py holds the page that is made of it.
"""

import base64
import itertools
import json
import math
import random
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tests.operations import MASK, ON_A_GPU, OPERATIONS, TAKEN_APART, X, run
from tests.products.pytorch_runs import ATTENTION, FIRST, TITLES, Run, differences, layout, program
from twelve import LearnedPositionalEncoding, RMSNorm, SwiGLU, TokenEmbedding
from twelve.masks import padding_mask
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explain.explanation import Explanation
from twelve_lab.explain.expression import call
from twelve_lab.explain.formulas import FORMULAS
from twelve_lab.explorer import LARGEST, page, write_explorer
from twelve_lab.explorer.program import FUNCTIONS, LIVE, Program

RUNNER = Path(__file__).parent / "engine_runner.mjs"
CHANGES = 200
MASKS = ("src_mask", "key_mask", "mask")  # those that follow the ids
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="no node on this machine: the engine was not run"
)


def test_the_bundle_is_built_from_the_modules(tmp_path):
    root = Path(__file__).parents[2]
    if not (root / "node_modules/.bin/esbuild").exists():
        pytest.skip("esbuild is not installed: `npm ci` installs it")
    built = tmp_path / "bundle.js"
    command = ["npm", "run", "--silent", "bundle", "--", f"--outfile={built}"]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    stored = root / "src/twelve_lab/explorer/bundle.js"
    assert built.read_bytes() == stored.read_bytes(), "run `make catalogue`"


def plain(number):
    """Write a number as the page's programs do: JSON knows no infinity."""
    return number if math.isfinite(number) else str(number)


def unpacked(text):
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float64)


def told(runs, *orders):
    """Give orders to the engine under node, and read its answers."""
    asked = json.dumps({"runs": runs, "orders": orders})
    done = subprocess.run(["node", RUNNER], input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
@pytest.mark.parametrize("title", TITLES)
def test_a_program_gives_every_number_and_every_gradient_of_its_run(title):
    trace = example.trace(loss=True, grad=True, on="cpu", **example.CONFIGURATIONS[title])
    (numbers,) = told([program(title)], ["numbers"])
    wanted = Run(title).numbers()
    assert list(layout(title))[-len(trace) :] == list(trace)
    assert set(wanted) >= set(layout(title))
    assert differences(title, *map(unpacked, numbers), wanted, 1e-12) == []
    for name, entry in trace.items():
        assert torch.equal(wanted[name][0].detach(), entry.value)


# --- changes ---


def random_change(choice, title, ids):
    """Choose a number that is given to a run, and another number for it.

    Args:
        choice: What chooses.
        title: Of the configuration.
        ids: The labels as they are: one must be left that counts.
    """
    places = layout(title)
    weights = [tensor["name"] for tensor in program(title)["tensors"] if tensor["weight"]]
    given = [each for each in ("src", "tgt", "ids") if each in places]
    kind = choice.choice(["embedding", "weight", "mask", *given, "label"])
    name = {
        "embedding": choice.choice([each for each in weights if each.endswith("embedding.weight")]),
        "weight": choice.choice(weights),
        "mask": choice.choice([each for each in (*MASKS, "tgt_mask") if each in places]),
        "label": "cross_entropy.labels",
    }.get(kind, kind)  # fmt: skip
    element = choice.randrange(places[name][1].numel())
    if kind == "mask":
        return name, element, choice.randrange(2)
    if kind == "label":
        others = [id for n, id in enumerate(ids.flatten().tolist()) if n != element]
        counts = any(id >= 0 for id in others)
        return name, element, choice.choice([0, 1, 2, 3, *[-100] * counts])
    if kind in given:
        return name, element, choice.randrange(4)
    return name, element, choice.choice([choice.uniform(-2, 2), choice.gauss(0, 5), 0.0])


def walk(title, changes):
    """Change numbers, some of them back again; yields the order, and the run in PyTorch."""
    choice, here = random.Random(title), Run(title)
    taken_back = []
    for _ in range(changes):
        if here.changed and choice.random() < 0.25:
            name, element = choice.choice(list(here.changed))
            value = here.changed.pop((name, element))
            if name == "cross_entropy.labels" and (here.inputs()[name] < 0).all():
                here.changed[name, element] = value  # none would count
                continue
            taken_back.append(name)
            yield ["restore", name, element], here
        else:
            labels = here.inputs()["cross_entropy.labels"]
            name, element, value = random_change(choice, title, labels)
            here.changed[name, element] = value
            yield ["put", name, element, value], here
    assert len(taken_back) > changes / 10


@needs_node
@pytest.mark.parametrize("title", TITLES)
def test_after_random_changes_every_number_and_gradient_is_that_of_pytorch(title, unchecked):
    every = 1 if title == FIRST else 10
    orders, wanted = [], []
    for number, (order, here) in enumerate(walk(title, CHANGES), 1):
        orders.append(order)
        if number % every == 0:
            orders.append(["numbers"])
            wanted.append((dict(here.changed), here.numbers()))
    answers = [answer for answer in told([program(title)], *orders) if answer is not None]
    assert len(answers) == len(wanted) >= CHANGES / every * 0.9
    moved = set()
    for numbers, (changed, after) in zip(answers, wanted, strict=True):
        assert differences(title, *map(unpacked, numbers), after) == [], changed
        moved.add(round(after["cross_entropy.loss"][0].item(), 9))
    assert len(moved) > len(answers) / 2  # most changes are felt


@needs_node
@pytest.mark.parametrize("title", [FIRST, "post-norm", "fused kernels"])
def test_a_number_of_memory_that_is_held_is_held_in_all_that_follows(title):
    start, shape = layout(title)["memory"]
    here = Run(title)
    here.changed["memory", 8] = -0.75
    wanted = here.numbers()
    here.changed.clear()
    _, numbers, _, after = told(
        [program(title)], ["put", "memory", 8, -0.75], ["numbers"], ["restore", "memory", 8],
        ["numbers"],
    )  # fmt: skip
    assert shape == (2, 2, 3)
    assert unpacked(numbers[0])[start + 8] == -0.75
    assert differences(title, *map(unpacked, numbers), wanted) == []
    assert differences(title, *map(unpacked, after), here.numbers(), 1e-12) == []


@needs_node
def test_a_held_attention_weight_is_used_in_place_of_its_softmax(monkeypatch):
    held = {}

    def dropout(weights, p):
        assert p == 0
        if not held:  # the encoder's self-attention comes first
            held["weights"] = weights.clone()
            held["weights"][1, 2, 0, 1] = 0.9
            held["weights"].retain_grad()
            return held["weights"]
        return weights

    monkeypatch.setattr("twelve.attention.F", SimpleNamespace(dropout=dropout))
    wanted = Run(FIRST).numbers()
    name = f"{ATTENTION}.weights"
    element = 1 * 12 + 2 * 4 + 0 * 2 + 1
    _, numbers = told([program(FIRST)], ["put", name, element, 0.9], ["numbers"])
    # The trace has the softmax, the engine what is used in its place.
    assert wanted[name][0][1, 2, 0, 1] != 0.9
    wanted[name] = (held["weights"], held["weights"].grad)
    assert held["weights"].grad[1, 2, 0, 1] != 0
    assert differences(FIRST, *map(unpacked, numbers), wanted) == []


@needs_node
def test_to_ask_whether_a_number_can_stand_there_changes_none():
    _, before, *answers, after = told(
        [program(FIRST)], ["put", "src", 0, 2], ["numbers"], ["takes", "src", 0, 4],
        ["takes", "src", 0, 3], ["takes", "src", 1, 1], ["takes", "tgt_mask", 1, 0.5], ["numbers"],
    )  # fmt: skip
    assert answers == [False, True, True, False] and after == before


# --- words ---


def texts_of(title, trace):
    """Let Python explain every number of a run, in the order of its program."""
    found = []
    for tensor in program(title)["tensors"]:
        name = tensor["name"]
        block = trace.graph.tape.named[name]
        code = trace[name].code if name in trace else ""
        cells = range(block.start, block.start + block.values.numel())
        found += [Explanation(trace.graph, cell, 1, code).text for cell in cells]
    return found


@needs_node
@pytest.mark.parametrize("title", TITLES)
def test_every_number_is_explained_in_the_words_of_python_before_and_after_changes(
    title, unchecked
):
    here, orders = Run(title), [["explain"]]
    wanted = [texts_of(title, here.trace(explain=True)[0])]
    # Not a cell of a mask that follows the ids: it would be given in PyTorch, and is held here.
    changes = [order for order, _ in walk(title, 60) if order[1] not in MASKS]
    for number, (order, name, element, *value) in enumerate(changes):
        orders.append([order, name, element, *value])
        here.changed.pop((name, element), None)
        if value:
            here.changed[name, element] = value[0]
        if number % 20 == 19:
            orders.append(["explain"])
            wanted.append(texts_of(title, here.trace(explain=True)[0]))
    answers = [answer for answer in told([program(title)], *orders) if answer is not None]
    assert len(answers) == len(wanted) >= 3
    for texts, python in zip(answers, wanted, strict=True):
        assert len(texts) == len(python) > (500 if title == "decoder-only" else 800)
        for mine, theirs in zip(texts, python, strict=True):
            # Fused attention is one division for the reader in Python, and here a softmax for each
            # key, since any mask may come: the digits are others, the number is the same.
            if title == "fused kernels" and ".merged[" in theirs:
                assert mine.splitlines()[:2] == theirs.splitlines()[:2]
                assert mine.splitlines()[-1] == theirs.splitlines()[-1]
            else:
                assert mine == theirs


@needs_node
def test_a_held_number_says_so():
    _, text, _, after = told(
        [program(FIRST)], ["put", "memory", 8, 2], ["explain_one", "memory", 8],
        ["restore", "memory", 8], ["explain_one", "memory", 8],
    )  # fmt: skip
    assert text == "memory[batch 1, src 0, d_model 2]\n  = 2.0000, held fast by you"
    trace = example.trace(loss=True, on="cpu")
    assert after == trace["memory"].explain(1, 0, 2).text


# --- operations ---


def test_every_function_that_a_program_may_hold_is_an_operation_of_the_engine():
    if shutil.which("node") is None:
        pytest.skip("no node on this machine: the engine was not asked")
    (operations,) = told([], ["operations"])
    assert set(operations) == FUNCTIONS | {"sum", "dot"}


@needs_node
def test_every_formula_gives_the_numbers_and_gradients_of_torch():
    tried = [(name, function, X) for name in sorted(FORMULAS.keys() - ON_A_GPU)
             for function in OPERATIONS[name]]  # fmt: skip
    tried += [(f"{name}, taken apart", function, X) for name, function in TAKEN_APART.items()]
    # Of equal numbers the first gets the gradient, and of relu at 0 none.
    equal = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    tried += [
        ("ties", lambda x: x.max(1).values, equal),
        ("ties", lambda x: x.min(1).values, equal),
    ]
    tried += [("relu at 0", torch.relu, equal - 2)]
    # The slope of x**0 and of 0**x is 0, though a factor of it is infinite.
    tried += [("power 0", lambda x: x**0, equal - 2), ("base 0", lambda x: 0.0**x, equal)]
    # The slope of a root at 0 is infinite; where a mask put the 0, nothing comes back from it.
    tried += [("infinite slope", lambda x: x.masked_fill(MASK, 0.0).sqrt(), X)]
    traces, runs, orders = [], [], []
    for name, function, numbers in tried:
        trace = run(function, numbers)
        traces.append((name, trace))
        orders += [["choose", len(runs)], ["numbers"], ["explain"]]
        runs.append(Program(trace).data)
        orders += [["back", "y", n] for n in range(trace["y"].value.numel())]
    answers = iter([each for each in told(runs, *orders) if each is not None])
    for (name, trace), data in zip(traces, runs, strict=True):
        values, words = unpacked(next(answers)[0]), next(answers)
        sizes = [torch.Size(tensor["shape"]).numel() for tensor in data["tensors"]]
        names = [tensor["name"] for tensor in data["tensors"]]
        spans = dict(zip(names, values.split(sizes), strict=True))
        y, x = trace["y"], trace["x"]
        # A conversion to single precision rounds, and is computed as the same number.
        assert torch.allclose(spans["y"], y.value.double().flatten(), rtol=1e-7, atol=1e-12), name
        gradient = torch.zeros(X.numel())
        for element in range(y.value.numel()):
            back = dict(zip(names, unpacked(next(answers)).split(sizes), strict=True))
            gradient += (element + 1) * back["x"]
        if y.tensor.requires_grad:
            assert torch.allclose(gradient, x.grad.flatten(), rtol=1e-6, atol=1e-9), name
        # Torch takes `any` and `all` apart into sums; here they are conditions, as masks are.
        # Of fused attention the test above says why.
        if not name.startswith(("any", "all", "_scaled_dot")):
            explained = [y.explain(*index).text for index in torch.cartesian_prod(
                *map(torch.arange, y.shape)).view(-1, len(y.shape)).tolist()] if y.shape else [
                    y.explain().text]  # fmt: skip
            assert words[-len(explained) :] == explained, name
    assert next(answers, None) is None


@needs_node
def test_the_engine_knows_erf_and_the_ends_of_every_function():
    points = [0.0, 1e-9, 0.3, 1.0, 2.4999, 2.5, 3.0, 4.5, 5.99, 6.01, 30.0, math.inf]
    points += [-point for point in points]
    names = ("erf", "erfc", "sigmoid")
    answers = map(float, told([], *(["compute", name, plain(x)] for x in points for name in names)))
    for x in points:
        erf, erfc, sigmoid = itertools.islice(answers, 3)
        assert erf == pytest.approx(math.erf(x), rel=1e-14, abs=1e-300)
        assert erfc == pytest.approx(math.erfc(x), rel=1e-12, abs=1e-300)
        assert sigmoid == pytest.approx(torch.tensor(x).sigmoid().item(), rel=1e-14)
    wanted = {
        ("max", 1, "nan", 3): math.nan, ("min", 2, "-inf"): -math.inf, ("pick", 2, 5, 6): math.nan,
        ("safe_softmax", 1, "-inf", "-inf"): 0.0, ("softmax", 0, "-inf", "-inf"): math.nan,
        ("softmax", 1, 1000, 1001): 1 / (1 + math.exp(-1)), ("/", -1, 0): -math.inf,
        ("AND", 1, 0): 0.0, ("OR", 0, 1): 1.0, ("NOT", 0): 1.0, ("IF", 0, "-inf", 7): 7.0,
        ("logsumexp", 800, 800): 800 + math.log(2), ("sum",): 0.0, ("dot", 1, 2, 3, 4): 11.0,
    }  # fmt: skip
    found = map(float, told([], *(["compute", *each] for each in wanted)))
    for (order, value), number in zip(wanted.items(), found, strict=True):
        assert number == pytest.approx(value, nan_ok=True), order


# --- gradients, one step at a time ---


@needs_node
@pytest.mark.parametrize("title", [FIRST, "GELU", "fused kernels"])
def test_a_gradient_is_the_sum_of_what_comes_back_through_the_numbers_made_of_it(title):
    count = sum(shape.numel() for _, shape in layout(title).values())
    change = ["put", "src_embedding.weight", 7, -1.25], ["put", "memory", 4, 0.5]
    _, _, numbers, slopes, *uses = told(
        [program(title)], *change, ["numbers"], ["slopes"],
        *(["uses", name, n] for name, (_, shape) in layout(title).items()
          for n in range(shape.numel())),
    )  # fmt: skip
    gradients = unpacked(numbers[1])
    total, later_of = torch.zeros(count), {place: set() for place in range(count)}
    for later, place, slope in slopes:
        total[place] += gradients[later] * slope
        later_of[place].add(later)
    loss = count - 1
    total[loss] = 1
    assert torch.allclose(total, gradients, atol=1e-12)
    held = layout(title)["memory"][0] + 4
    for place, found in enumerate(uses):
        assert set(found) - {held} == later_of[place]  # what is held grows with nothing


@needs_node
def test_learning_is_gradient_descent_on_every_weight():
    model = example.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    masks = {"src_mask": padding_mask(example.src), "tgt_mask": example.tgt_mask}
    losses = []
    for _ in range(201):
        loss = cross_entropy(model(example.src, example.tgt, **masks), example.labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learned, numbers, written = told(
        [program(FIRST)], ["learn", 0.3, 200], ["numbers"], ["written"]
    )
    assert learned == pytest.approx(losses, abs=1e-9)
    assert learned[0] == pytest.approx(1.048, abs=5e-4) and learned[-1] < 0.01
    here = Run(FIRST)
    here.changed = {(name, element): value for name, each in written.items()
                    for element, value in each["numbers"]}  # fmt: skip
    assert differences(FIRST, *map(unpacked, numbers), here.numbers()) == []


# --- the state of a page ---


SOME = (
    ["put", "src_embedding.weight", 7, 0.25], ["put", "src", 0, 2], ["put", "tgt_mask", 1, 1],
    ["put", "memory", 5, -1.5], ["put", f"{ATTENTION}.masked_scores", 2, "-inf"],
)  # fmt: skip


@needs_node
def test_an_address_opened_elsewhere_gives_the_same_numbers():
    runs = [program(FIRST), program("GELU")]
    *_, numbers, address = told(
        runs, ["choose", 1], ["compare", 0], *SOME, ["numbers"], ["address", 700, {"tour": 3}]
    )
    parts = parse_qs(address)
    assert parts["run"] == ["1"] and parts["with"] == ["0"] and parts["tour"] == ["3"]
    assert parts["set.src_embedding.weight"] == ["7:0.25"] and len(parts["at"]) == 1
    opened, again, other, after = told(
        runs, ["open", address], ["numbers"], ["other"], ["address", 700, {"tour": 3}]
    )
    assert opened == [700, []] and again == numbers and after == address
    plain_other = told(runs, *SOME, ["numbers"])[-1]
    assert torch.equal(unpacked(other), unpacked(plain_other[0]))
    home, _, start = told(runs, ["numbers"], ["open", ""], ["numbers"])
    assert home == start != numbers
    # A run beside itself is alone.
    assert told(runs, ["compare", 0], ["address", -1])[-1] == "run=0"


BROKEN = {
    "run=9": ["run=9"], "run=cat": ["run=cat"], "run=": ["run="], "with=9": ["with=9"],
    "set.nothing=0:1": ["set.nothing"], "set.memory=12:1": ["set.memory"],
    "set.memory=-1:1": ["set.memory"], "set.memory=0.5:1": ["set.memory"],
    "set.memory=:1": ["set.memory"], "set.memory=0:": ["set.memory"],
    "set.memory=0:%20": ["set.memory"], "set.memory=0": ["set.memory"],
    "set.memory=0:cat": ["set.memory"], "set.memory=0:NaN": ["set.memory"],
    "set.memory=0:1:2": ["set.memory"], "set.memory=": ["set.memory"], "set.src=0:2.5": ["set.src"],
    "set.src=0:4": ["set.src"], "set.src=0:-1": ["set.src"],
    "set.cross_entropy.labels=0:-7": ["set.cross_entropy.labels"],
    "set.tgt_mask=0:2": ["set.tgt_mask"], "set.src_mask=0:0.5": ["set.src_mask"],
    "at=nothing:0": ["at=nothing:0"], "at=memory:12": ["at=memory:12"], "at=memory": ["at=memory"],
    "at=memory:": ["at=memory:"],
    "set.memory=0:1,1:dog&set.cat=0:1&at=cat:1": ["set.memory", "set.cat", "at=cat:1"],
}  # fmt: skip


@needs_node
def test_what_an_address_names_wrongly_is_told_and_left_out():
    orders = [order for address in BROKEN for order in (["open", address], ["numbers"])]
    home, *answers = told([program(FIRST)], ["numbers"], *orders)
    for address, said in BROKEN.items():
        opened, numbers, *answers = answers
        assert opened == [-1, said], address
        assert numbers == home, address


@needs_node
def test_of_a_broken_address_the_rest_is_kept():
    address = "run=7&set.src=0:3&set.memory=0:dog&set.cross_entropy.labels=2:-100&at=memory:3"
    opened, written, place = told(
        [program(FIRST)], ["open", address], ["written"], ["place", "memory", [0, 1, 0]]
    )
    assert opened == [place, ["run=7", "set.memory"]]
    assert sorted(written) == ["cross_entropy.labels", "src"]


@needs_node
def test_undo_goes_back_step_by_step_and_start_again_can_be_undone():
    orders = [["numbers"]]
    for order in SOME:
        orders += [["begin"], order, ["numbers"], ["before"]]
    orders += [["reset"], ["numbers"], ["undo"], ["numbers"]]
    orders += [["undo"], ["numbers"]] * len(SOME) + [["undo"], ["written"]]
    answers = [answer for answer in told([program(FIRST)], *orders) if answer is not None]
    home, rest = answers[0], answers[1:]
    seen = [home]
    for _ in SOME:
        numbers, before, *rest = rest
        assert before == seen[-1][0] != numbers[0]
        seen.append(numbers)
    again, undone, numbers, *rest = rest
    assert again == home and undone is True and numbers == seen[-1]
    for wanted in reversed(seen[:-1]):
        undone, numbers, *rest = rest
        assert undone is True and numbers == wanted
    assert rest == [False, {}]


@needs_node
def test_undo_takes_back_what_was_learned():
    _, home, _, learned, undone, after, again = told(
        [program(FIRST)], ["learn", 0.3, 1], ["numbers"], ["begin"], ["learn", 0.3, 20], ["undo"],
        ["numbers"], ["learn", 0.3, 1],
    )  # fmt: skip
    assert len(learned) == 22 and undone and after == home and len(again) == 3


@needs_node
@pytest.mark.parametrize("order", [["choose", 1], ["reset"], ["open", "run=1"]], ids=str)
def test_what_begins_anew_begins_its_losses_anew(order):
    runs = [program(FIRST), program("GELU")]
    first, _, then = told(runs, ["learn", 0.3, 2], order, ["learn", 0.3, 1])
    assert len(first) == 3 and len(then) == 2


@needs_node
def test_a_change_goes_along_to_another_configuration_where_it_has_the_same_tensor():
    runs = [program(title) for title in (FIRST, "tied output", "2 heads of width 2")]
    changes = [
        ["put", "src_embedding.weight", 7, 0.25], ["put", "src", 0, 2],
        ["put", f"{ATTENTION}.w_o.weight", 4, 8.0], ["put", "output_projection.weight", 3, 9.0],
    ]  # fmt: skip
    answers = told(
        runs, *changes, ["compare", 2], ["other"], ["choose", 1], ["numbers"], ["missing"],
        ["reset"], *changes[:3], ["choose", 2], ["numbers"], ["missing"],
    )  # fmt: skip
    other, tied, missing, two, of_another_size = (
        answer for answer in answers if answer is not None
    )
    assert missing == ["output_projection.weight"]
    # There it is (3, 4): the same element would stand elsewhere.
    assert of_another_size == [f"{ATTENTION}.w_o.weight"]
    for title, numbers, kept in (("tied output", tied, changes[:3]),
                                 ("2 heads of width 2", two, changes[:2])):  # fmt: skip
        here = Run(title)
        here.changed = {(name, element): value for _, name, element, value in kept}
        assert differences(title, *map(unpacked, numbers), here.numbers()) == []
    here.changed["output_projection.weight", 3] = 9.0
    loss = here.numbers()["cross_entropy.loss"][0]
    assert unpacked(other)[-1].item() == pytest.approx(loss.item(), abs=1e-12)


@needs_node
def test_a_place_is_named_by_its_tensor_and_index_and_errors_give_the_sizes():
    name = f"{ATTENTION}.weights"
    start = layout(FIRST)[name][0]
    place, index, *errors = told(
        [program(FIRST)], ["place", name, [1, 2, 0, 1]], ["index", start + 21],
        ["place", name, [1, 2, 0]], ["place", name, [1, 3, 0, 0]], ["place", name, [0, 0, 0, -1]],
        ["place", name, [0, 0, 0, 0.5]], ["place", "memroy", [0]], ["place", "memory", None],
    )  # fmt: skip
    assert place == start + 21 and index == [1, 2, 0, 1]
    sizes = f"{name} has the sizes [2,3,2,2]; there is no element"
    assert [error["error"] for error in errors] == [
        f"{sizes} [1,2,0]", f"{sizes} [1,3,0,0]", f"{sizes} [0,0,0,-1]", f"{sizes} [0,0,0,0.5]",
        'no tensor is named "memroy"', "memory has the sizes [2,2,3]; there is no element []",
    ]  # fmt: skip
    assert told([program(FIRST)], ["place", "cross_entropy.loss", []]) == [1360]


@needs_node
def test_a_run_without_a_loss_has_no_gradients():
    table, ids = TokenEmbedding(3, 2), torch.tensor([[0, 2]])
    with Trace(table) as trace:
        table(ids)
    data = Program(trace).data
    assert [tensor["name"] for tensor in data["tensors"]] == ["weight", "ids", "vectors"]
    numbers, _, changed, written, address, _, again = told(
        [data], ["numbers"], ["put", "weight", 4, 2.5], ["numbers"], ["written"], ["address", -1],
        ["put", "ids", 0, 2], ["numbers"],
    )  # fmt: skip
    assert not unpacked(numbers[1]).any() and not unpacked(changed[1]).any()
    assert unpacked(numbers[0])[-4:].tolist() == table(ids).flatten().tolist()
    moved = unpacked(numbers[0]) != unpacked(changed[0])
    assert moved.nonzero().flatten().tolist() == [4, 10]
    assert written == {"weight": {"shape": [3, 2], "numbers": [[4, 2.5]]}}
    assert address == "run=0&set.weight=4%3A2.5"
    vectors = unpacked(again[0])[-4:].view(2, 2)
    assert torch.equal(vectors[0], vectors[1]) and vectors[0, 0] == 2.5


class Own(nn.Module):
    """Someone's own layer: a cumulated sum, a maximum, a switch."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.3, -0.2, 0.9]))

    def forward(self, x):
        mixed: Float[Tensor, "batch seq d_model"] = x.flip(1).cumsum(-1) * self.scale
        top: Float[Tensor, "batch seq 1"] = mixed.amax(-1, keepdim=True)
        return torch.where(mixed > 0, mixed - top, mixed.tanh())


@needs_node
@pytest.mark.parametrize(
    "layer",
    [SwiGLU(3, 4), RMSNorm(3), LearnedPositionalEncoding(3, max_len=4), RMSNorm(3, fused=True),
     Own()],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_a_layer_of_my_own_follows_a_change_of_each_of_its_weights(layer):
    layer, x = layer.double(), torch.randn(2, 2, 3)
    weight = dict(layer.named_parameters())

    def run_again():
        with Trace(layer, grad=True) as trace:
            z: Float[Tensor, "batch seq d_model"] = x * 1.0
            y: Float[Tensor, ""] = layer(z).square().sum()
        assert z.shape == (2, 2, 3)
        y.backward()
        return trace

    trace = run_again()
    data = Program(trace).data
    changes = [[name, each.numel() - 1, 0.5 + n] for n, (name, each) in enumerate(weight.items())]
    first, *_, second = told(
        [data], ["numbers"], *(["put", *each] for each in changes), ["numbers"]
    )
    for numbers in (first, second):
        values, gradients = map(unpacked, numbers)
        places = 0
        for tensor in data["tensors"]:
            name, span = tensor["name"], slice(places, places + math.prod(tensor["shape"]))
            places = span.stop
            value = weight[name] if name in weight else trace[name].value
            assert torch.allclose(values[span], value.flatten(), atol=1e-9), name
            if name in weight and weight[name].grad is not None:
                assert torch.allclose(gradients[span], weight[name].grad.flatten(), atol=1e-9), name
        with torch.no_grad():
            for name, element, number in changes:
                weight[name].view(-1)[element] = number
                weight[name].grad = None
        trace = run_again()


# --- the page ---


def data_of(text):
    """Unpack what a page carries."""
    packed = re.search(r'<script id="data" type="text/plain">(.+?)</script>', text)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def test_the_page_is_small_asks_for_nothing_from_outside_and_carries_every_run(tmp_path):
    path = tmp_path / "walk.html"
    assert main(["explorer", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 250_000 < LARGEST == 2_000_000
    assert "default-src 'none'" in text and "/*" not in text.replace("/*STYLE*/", "")
    inside = text.replace("data:,", "").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|//cdn|@import|\burl\(|^import |^export ", inside, re.MULTILINE)
    data = data_of(text)
    assert data["vocab"] == list(example.vocabulary)
    assert [run["title"] for run in data["runs"]] == TITLES
    for run_ in data["runs"]:
        title = run_.pop("title")
        assert run_ == program(title)


def test_a_tensor_of_a_program_has_the_names_and_words_that_its_reader_needs():
    tensors = {tensor["name"]: tensor for tensor in program(FIRST)["tensors"]}
    weights = tensors[f"{ATTENTION}.weights"]
    assert weights["axes"] == ["batch", "head", "query", "key"] and weights["shape"] == [2, 3, 2, 2]
    assert weights["words"][2:] == ["src", "src"] and weights["type"] == "float"
    assert weights["step"] == "04 attention" and "softmax(-1)" in weights["code"]
    cross = tensors["decoder.layers.0.cross_attention.weights"]
    assert cross["words"][2:] == ["tgt", "src"]
    assert tensors["logits"]["words"] == [None, "tgt", list(example.vocabulary)]
    assert tensors["tgt_mask"]["type"] == "bool" and tensors["src"]["type"] == "int"
    assert [tensors[name]["weight"] for name in ("src_embedding.weight", "src", "logits")] == [
        True, False, False,
    ]  # fmt: skip
    assert tensors["src"]["numbers"] == example.src.flatten().tolist()
    # Without a source there is one text, whatever an axis is called.
    sister = {tensor["name"]: tensor for tensor in program(TITLES[-1])["tensors"]}
    assert sister["mask"]["words"][2:] == ["ids", "ids"] and sister["mask"]["type"] == "bool"
    assert sister["cross_entropy.log_probabilities"]["words"][1] == "ids"


def test_a_part_of_the_page_names_its_panels():
    panels = [{"title": "Attention", "panel": "attention", "of": ATTENTION}]
    part = {"title": "Drag a query", "lead": "One head.", "panels": panels}
    text = page({"a run": example.trace(on="cpu")}, example.words, part)
    assert {key: data_of(text)[key] for key in part} == part


def test_a_page_is_written_into_a_folder_that_is_named_by_its_text(tmp_path):
    table, ids = TokenEmbedding(3, 2), torch.tensor([[0, 2]])
    with Trace(table) as trace:
        table(ids)
    path = trace.explorer(f"{tmp_path}/new/own.html")
    assert path == tmp_path / "new" / "own.html"
    [run_] = data_of(path.read_text(encoding="utf-8"))["runs"]
    assert [tensor["name"] for tensor in run_["tensors"]] == ["weight", "ids", "vectors"]


def test_errors_say_what_is_wrong(tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="at least one run"):
        write_explorer(tmp_path / "a.html", {})
    nothing = "'the run': the run holds no tensor that can be explained"
    with Trace() as empty:
        pass
    with pytest.raises(ValueError, match=nothing):
        empty.explorer(tmp_path / "a.html")
    table = TokenEmbedding(3, 2)
    with Trace(table, explain=False) as bare:
        table(torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match=nothing):
        bare.explorer(tmp_path / "a.html")
    with Trace() as random_one:
        dropped: Float[Tensor, " n"] = torch.native_dropout(X[0], 0.5, True)[0]
    assert dropped.shape == (3,)
    with pytest.raises(ValueError, match=r"'the run': no formula .*dropout"):
        random_one.explorer(tmp_path / "a.html")
    with monkeypatch.context() as patch:
        patch.setitem(LIVE, "lgamma", lambda at: call("lgamma", at(0)))
        with Trace() as new:
            gamma: Float[Tensor, " n"] = X[0].lgamma()
        assert gamma.shape == (3,)
        with pytest.raises(ValueError, match="'the run': gamma: the page cannot compute lgamma"):
            new.explorer(tmp_path / "a.html")
    monkeypatch.setattr("twelve_lab.explorer.LARGEST", 50_000)
    with pytest.raises(
        ValueError, match=r"would take \d+,\d+ bytes, more than 50,000: trace a small"
    ):
        example.trace(on="cpu").explorer(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
    assert main(["explorer", str(tmp_path / "walk.pdf")]) == 1
    assert "give a name that ends in .html" in capsys.readouterr().err
