"""The stand-in for PyTorch: its verdicts match PyTorch's, and it reports missing features."""

import json
import os
import subprocess
import sys
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.standin import compare
from tools import write_standin_names
from twelve_lab.check import EXERCISES

judge = cache(compare.judge)


def run(code):
    """Run code with the stand-in, and return the output."""
    environment = {**os.environ, "PYTHONPATH": str(compare.PAGE)}
    code = f"import torch\nfrom torch import nn\nimport torch.nn.functional as F\n{code}"
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE,
                          text=True).stdout  # fmt: skip


def outcomes(*expressions):
    """Evaluate each expression with the stand-in; return its value or its error message."""
    code = """import json
x, found = torch.arange(6.0).view(2, 3), []
for text in EXPRESSIONS:
    try:
        value = eval(text)
        found.append(value.tolist() if isinstance(value, torch.Tensor) else value)
    except BaseException as error:
        found.append(f"{type(error).__name__}: {error}".splitlines()[0])
print(json.dumps(found))"""
    return json.loads(run(code.replace("EXPRESSIONS", repr(list(expressions)))))


def differing(left, right):
    return [
        (x.id, x.label, x.verdict, y.verdict)
        for x, y in compare.differences(left, right)
        if x.id not in compare.not_offered()
    ]


@pytest.mark.slow
def test_verdicts_on_right_answers_and_a_classic_mistake_are_those_of_pytorch():
    ours = judge("quick", "standin")
    assert differing(judge("quick", "pytorch"), ours) == []
    assert {x.id for x in ours} == set(EXERCISES)


@pytest.mark.weekly
def test_verdicts_on_all_answers_are_those_of_pytorch():
    ours = judge("all", "standin")
    assert sum(x.label.startswith(("right", "wrong")) for x in ours) >= 300
    assert differing(judge("all", "pytorch"), ours) == []


@pytest.mark.weekly
@pytest.mark.skipif(not compare.PYODIDE.is_dir(), reason="needs Pyodide: npm ci")
def test_verdicts_in_pyodide_are_those_of_pytorch_and_come_soon():
    ours = judge("all", "pyodide")
    assert differing(judge("all", "pytorch"), ours) == []
    # Allow 50 % more time, because run times vary.
    slow = compare.slow(ours, 1.5 * compare.SECONDS)
    assert slow.keys() <= compare.not_offered().keys()


def test_few_exercises_are_not_offered():
    listed = compare.not_offered()
    assert listed.keys() <= EXERCISES.keys()
    assert len(listed) <= 0.05 * len(EXERCISES)


def test_names_of_pytorch_are_listed():
    # Use a new process: importing submodules of torch, as other tests do, adds names to torch.
    command = [sys.executable, "-c", "from tools import write_standin_names as w; print(w.page())"]
    page = subprocess.check_output(command, cwd=compare.ROOT, text=True)
    assert page.strip() == write_standin_names.FILE.read_text(encoding="utf-8").strip()


def test_standin_defines_no_name_that_pytorch_lacks():
    code = """import json
print(json.dumps([[*vars(torch)], [*vars(torch.Tensor)], [*vars(F)], [*vars(nn.init)]]))"""
    for module, names in zip((torch, torch.Tensor, F, nn.init), json.loads(run(code)), strict=True):
        assert {x for x in names if x[0] != "_"} - {*dir(module)} <= {"NotHere", "builtins"}


def test_standin_names_what_it_lacks_and_leaves_a_typo_a_typo():
    missing, argument, typo, unknown, alias = outcomes(
        "torch.special", "F.pad(x, (1, 1), 'reflect')", "torch.sofmax", "x.cumsum(0, foo=1)",
        "x.sum(axis=1)",
    )  # fmt: skip
    judged = "is in torch, but not in this page. Your answer was not judged"
    assert missing == f"NotHere: torch.special {judged}"
    assert argument == f"NotHere: pad with mode reflect {judged}"
    assert typo == "AttributeError: module 'torch' has no attribute 'sofmax'"
    assert unknown == "TypeError: cumsum() got an unexpected keyword argument 'foo'"
    assert alias == [3, 12]


def test_an_argument_that_only_pytorch_has_is_no_mistake_of_the_learner():
    known = outcomes("torch.exp(x, out=x)", "x.expand((2, 3), implicit=True)",
                     "F.embedding(x.long(), x, max_norm=1.0)",
                     "nn.Embedding(2, 3, max_norm=1.0)")  # fmt: skip
    assert all(text.startswith("NotHere: The argument ") for text in known)
    module, typo = outcomes("nn.Linear(2, 3).half", "nn.Linear(2, 3).halve")
    assert module.startswith("NotHere: Module.half is in torch")
    assert typo == "AttributeError: 'Linear' object has no attribute 'halve'"
    assert outcomes("nn.Linear(2, 3, foo=1)")[0].startswith("TypeError: Linear.__init__() got an")


def test_integers_wrap_as_in_pytorch():
    found = outcomes("torch.tensor([200], dtype=torch.uint8) * 2",
                     "torch.tensor([100], dtype=torch.int8) + 100",
                     "torch.tensor([300.0, -1.0]).to(torch.int8)")  # fmt: skip
    assert found == [[144], [-56], [44, -1]]


def test_standin_indexes_and_joins_as_pytorch():
    texts = (
        "x[range(2), (0, 2)]", "x[:, range(1, 3)]", "x[:, []]",
        "torch.block_diag(x, x[0], x.sum())", "F.glu(x, 0).flatten()",
    )  # fmt: skip
    x = torch.arange(6.0).view(2, 3)
    expected = [eval(text, {"torch": torch, "F": F, "x": x}).tolist() for text in texts]
    *found, gated = outcomes(*texts)
    assert found == expected[:-1] and gated == pytest.approx(expected[-1])


def test_an_answer_that_fails_leaves_nothing_behind():
    printed = run("""
from twelve_lab.check import EXERCISES, diagnose
torch.set_default_dtype(torch.float64)
right = EXERCISES["04-attention-scores"].right
def fails(query, key):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float32)
    query.mul_(2)
    raise torch.NotHere("a part of torch")
try:
    diagnose("04-attention-scores", fails)
except torch.NotHere as error:
    print(error)
print(diagnose("04-attention-scores", right).ok, torch.get_default_dtype())
""")
    assert printed.splitlines() == ["a part of torch", "True torch.float64"]
