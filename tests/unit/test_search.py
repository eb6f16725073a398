"""Search for a one-edit repair: operators, stored table, limits, and edits never suggested."""

import ast
import itertools
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from tools import write_fingerprints
from twelve_lab.check import TASKS, WrongAnswer, check, diagnose, edits, explanation, search
from twelve_lab.check.compare import outcomes
from twelve_lab.exercises.parts import with_part

pytestmark = pytest.mark.usefixtures("unchecked")

STORED, INPUTS = (
    json.loads(path.read_text(encoding="utf-8"))
    for path in (write_fingerprints.FILE, write_fingerprints.INPUTS)
)


# The edits.


MADE = [
    ("x.softmax(-1)", "axis", "x.softmax(-2)"),
    ("torch.cat(p, dim=1)", "axis", "torch.cat(p, dim=-1)"),
    ("x.mean(-1)", "function", "x.sum(-1)"),
    ("F.softmax(x, 1)", "function", "F.sigmoid(x, 1)"),
    ("a + b", "drop operand", "b"),
    ("a / b * c", "regroup", "a / (b * c)"),
    ("a - b", "swap operands", "b - a"),
    ("a / b", "arithmetic", "a * b"),
    ("f(a) + b", "move call", "f(a + b)"),
    ("x.exp().sum(-1)", "move call", "x.sum(-1).exp()"),
    ("a < b", "comparison", "a <= b"),
    ("~a", "negation", "a"),
    ("x[:, 1:]", "slice", "x[:, :-1]"),
    ("x[..., 0::2]", "slice", "x[..., :x.size(-1) // 2]"),
    ("x.dropout()", "drop call", "x"),
    ("f(x, p=1)", "drop keyword", "f(x)"),
    ("f(x, keepdim=True)", "keyword value", "f(x, keepdim=False)"),
    ("x.transpose(1, 2)", "reshape", "x.reshape(x.transpose(1, 2).shape)"),
    ("rearrange(x, 'b (h d) -> b h d')", "pattern", "rearrange(x, 'b (d h) -> b h d')"),
    ("torch.cat((a, b), -1)", "halves", "torch.stack((a, b), -1).flatten(-2)"),
    ("a @ b.T + a @ c.T", "drop call", "a @ b + a @ c"),
    ("f(a, b)", "exchange", "f(b, a)"),
    ("f(x)", "repeat step", "f(f(x))"),
    ("a if c else b", "branch", "b"),
]


@pytest.mark.parametrize(("code", "operator", "due"), MADE)
def test_an_operator_makes_its_edit(code, operator, due):
    function = ast.parse(f"def answer(a, b, c, x, p):\n    return {code}").body[0]
    before = ast.unparse(function)
    results = set()
    for edit in edits.edits(function):
        with edit:
            if edit.operator == operator:
                results.add(ast.unparse(function.body[0].value))
        assert ast.unparse(function) == before
    assert due in results


def test_a_statement_is_dropped_or_exchanged_with_the_next():
    function = ast.parse("def answer(x):\n    y = f(x)\n    x = g(x)\n    return x + y").body[0]
    texts = set()
    for edit in edits.edits(function):
        with edit:
            ast.fix_missing_locations(function)
            texts.add((edit.operator, *map(ast.unparse, function.body)))
    assert ("drop statement", "pass", "x = g(x)", "return x + y") in texts
    assert ("swap statements", "x = g(x)", "y = f(x)", "return x + y") in texts


# The edits of the right answers.

FEW = 40


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_the_stored_table_was_computed_from_the_current_inputs(name):
    """Run `make catalogue` to recompute the tasks whose inputs changed."""
    mark, *numbers = write_fingerprints.inputs(TASKS[name])
    assert [mark, numbers] == [INPUTS[name][0], pytest.approx(INPUTS[name][1:], rel=1e-5)]


# All tasks together take minutes. Tasks with few results suffice to detect a change.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if len(rows) <= FEW else pytest.mark.weekly)
        for name, rows in STORED.items()
    ],
)
def test_the_stored_table_is_current(name):
    """Run `python -m tools.write_fingerprints --all` to rewrite the table."""
    due = write_fingerprints.fingerprints(TASKS[name])
    assert [number for _, number in STORED[name]] == [number for _, number in due]
    torch.testing.assert_close([x for x, _ in STORED[name]], [x for x, _ in due])


# The by-hand tasks are a third of all tasks, and take half of the time.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (".by_hand." in task.right.__module__))
        for name, task in TASKS.items()
    ],
)
def test_an_edit_is_explained_by_itself_or_by_one_with_the_same_numbers(name):
    task = TASKS[name]
    every = list(search.all_edits(task))
    for _, number in STORED[name][:: max(1, len(STORED[name]) // 2)]:
        program, edit = every[number]
        results = outcomes(task, search.edited(task, program, edit))
        hits = search.explained(task, results)
        assert hits
        assert re.fullmatch(r"Your numbers .*[.`]", explanation.explanation(task, hits))


def test_every_operator_has_a_sentence_with_both_pieces_of_code():
    task = TASKS["masked_weights"]
    for sentence in explanation.SENTENCES.values():
        assert "RIGHT" in sentence.format(right="RIGHT", wrong="WRONG", got="GOT", due="DUE")
    own = {"named axis", "named size", "everywhere", "other"}
    assert set(explanation.SENTENCES) <= {*edits.OPERATORS} | own
    assert {edit.operator for _, edit in search.all_edits(task)} <= set(edits.OPERATORS)


def test_an_ambiguous_explanation_names_the_place_alone():
    task = TASKS["masked_weights"]
    hits = list(itertools.islice(search.all_edits(task), 2))
    text = explanation.explanation(task, hits)
    assert text.startswith(f"Your numbers come out if `{hits[0][1].before}` is computed in another")


def test_nothing_but_nan_is_not_explained():
    task = TASKS["rms_norm"]
    results = outcomes(task, lambda x, weight: x / 0 * 0)
    assert search.explained(task, results) == []


def test_the_right_answer_stays_as_it_is_while_a_part_is_edited():
    task, smaller = TASKS["attention"], TASKS["attention_scores"]
    before = outcomes(task, task.right)
    wrong = with_part(task.right, smaller.right, lambda query, key: 0 * query @ key.mT)
    after = outcomes(task, task.right)
    for case, outcome in outcomes(task, wrong).items():
        assert not torch.equal(outcome.values[0], before[case].values[0])
        assert torch.equal(after[case].values[0], before[case].values[0])


# The edits of a learner's code.


def scaled_by_key(query, key):
    scale = key.size(-2) ** 0.5
    return 3 * torch.einsum("bqd,bkd->bqk", query, key) / scale


def wrong_letter(query, key):
    return torch.einsum("bqd,bkd->bqk", query, key) / key.size(-1) ** 0.25


def without_step(heads):
    batch, head, query, d_v = heads.shape
    return heads.flip(1).transpose(1, 2).reshape(batch, query, head * d_v)


def lost_the_mask(ids):
    kept = ids > 1
    return kept.view(len(ids), 1, 1, -1)


class Halved(nn.Module):
    def __init__(self, d_in, d_out, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_out, d_in))
        self.bias = nn.Parameter(torch.ones(d_out)) if bias else None

    def forward(self, x):
        product = x @ self.weight.T * 0.3
        return product if self.bias is None else product + self.bias


REPAIRED = [
    ("attention_scores", wrong_letter, 1, "** 0.5"),
    ("merge_heads", without_step, 2, "heads.transpose"),
    ("padding_mask", lost_the_mask, 1, "ids > 0"),
    ("linear_layer", Halved, 7, "x @ self.weight.T"),
]


@pytest.mark.parametrize(("name", "answer", "line", "after"), REPAIRED)
def test_one_edit_repairs_an_answer(name, answer, line, after):
    edit = search.repaired(TASKS[name], answer)
    first = getattr(answer, "__code__", None)
    first = first.co_firstlineno if first else answer.__init__.__code__.co_firstlineno - 1
    assert edit.line == first + line
    assert after in edit.after
    assert explanation.repair_place(edit) == f"Look at line {edit.line}: `{edit.before}`."
    assert f"`{edit.after}`" in explanation.repair_change(edit)


def test_two_faults_are_not_repaired():
    assert search.repaired(TASKS["attention_scores"], scaled_by_key) is None


def test_check_shows_the_change_only_when_asked_again(capsys):
    texts = []
    for _ in range(3):
        with pytest.raises(WrongAnswer):
            check("05-padding-mask", lost_the_mask)
        texts.append(capsys.readouterr().out.replace("\n", " "))
    assert "Look at line" in texts[0] and "all cases pass" not in texts[0]
    assert texts[1] == texts[2] and "all cases pass with `ids > 0`" in texts[1]
    with pytest.raises(WrongAnswer):
        check("05-padding-mask", lambda ids: ids)
    with pytest.raises(WrongAnswer):
        check("05-padding-mask", lost_the_mask)
    assert "all cases pass" not in capsys.readouterr().out.replace("\n", " ")


def returned_whole(scores):
    result = scores * 0
    other = scores.softmax(-1) + result.sum() + 3
    return other - other + result


def test_the_result_of_the_right_answer_is_never_put_in():
    assert search.repaired(TASKS["attention_weights"], returned_whole) is None


@pytest.mark.parametrize(
    "text", ["x.nan_to_num()", "x.double()", "x | x", "f(x) + -1000000000.0", "x.detach()"]
)
def test_a_cure_that_hides_a_fault_is_no_repair(text):
    function = ast.parse(f"def f(x):\n    return g({text})").body[0]
    holder = function.body[0].value
    edit = edits.Edit("wrap", ((edits.Place(holder, "args", 0), holder.args[0]),), None)
    assert search._is_no_repair(edit)


LOG = []


def with_side_effect(ids):
    LOG.append(len(ids))
    return (ids > 1)[:, None, None, :]


def with_file(ids):
    Path("here").exists()
    return (ids > 1)[:, None, None, :]


def with_import(ids):
    import os

    os.getcwd()
    return (ids > 1)[:, None, None, :]


def calls_side_effect(ids):
    return with_side_effect(ids)


@pytest.mark.parametrize("answer", [with_side_effect, with_file, with_import, calls_side_effect])
def test_code_that_uses_anything_else_is_not_run_again(answer):
    before = len(LOG)
    assert search.repaired(TASKS["padding_mask"], answer) is None
    assert len(LOG) == before


def endless(length):
    rows, n = [], 0
    while n < length:
        rows.append(torch.arange(length) < n)
        n = n + 1
    return torch.stack(rows)[None, None] & torch.ones(length, length).bool()


def test_an_endless_candidate_is_left_in_time():
    def seconds():
        start = time.thread_time()
        search.repaired(TASKS["causal_mask"], endless)
        return time.thread_time() - start

    assert seconds() < search.CPU_SECONDS + 0.3
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(seconds).result(timeout=20) < search.CPU_SECONDS + 0.3


def test_verdicts_are_the_same_in_many_threads(capsys):
    answers = [("05-padding-mask", lost_the_mask), ("04-attention-scores", wrong_letter)]
    answers = 4 * [*answers, ("06-split-heads", TASKS["split_heads"].right)]
    due = [diagnose(*answer) for answer in answers]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda answer: diagnose(*answer), answers)) == due
    print("still printed")
    assert capsys.readouterr().out.endswith("still printed\n")


def test_a_generator_that_is_closed_after_the_time_is_over_reports_nothing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(search, "_clock", lambda: now[0])

    def leave_a_generator():
        next(number for number in (1, 2, 3))
        numbers = (number for number in (1, 2, 3))
        next(numbers)
        now[0] = 2.0
        del numbers
        return True

    assert search.in_time(1.0, leave_a_generator)
