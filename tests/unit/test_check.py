"""The checker names known mistakes, reports every kind of fault, and accepts right answers."""

import dataclasses
import io
import math
import re
import sys
import sysconfig
import warnings
from types import SimpleNamespace

import IPython
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from IPython.core.interactiveshell import InteractiveShell
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from twelve_lab.check import EXERCISES, MISTAKES, TASKS, Question, WrongAnswer, check, diagnose
from twelve_lab.check.attempt import expected
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of, named, shows
from twelve_lab.check.compare import exact_on_cpu
from twelve_lab.check.probes import leak
from twelve_lab.check.reply import as_card, as_text
from twelve_lab.exercises.declare import Task, made
from twelve_lab.show.faces import HAPPY, picture
from twelve_lab.show.palette import AXIS_STYLES, PAPER, contrast

# jaxtyping does not check a learner's functions either.
pytestmark = pytest.mark.usefixtures("unchecked")
slow = pytest.mark.slow

QUESTIONS = {id: exercise for id, exercise in EXERCISES.items() if isinstance(exercise, Question)}


def verdict_on(id, function, kind):
    verdict = diagnose(id, function)
    assert (verdict.kind, verdict.ok, verdict.mistake) == (kind, kind == "ok", None), verdict
    return verdict


def predicted(id, answer):
    """Return what to check: the value of a question's version, or the version of a task itself."""
    return answer() if id in QUESTIONS else answer


# The declared exercises.


@pytest.mark.parametrize("id", ["06-split-head", "split_heads", ["06-split-heads"]])
def test_check_rejects_an_unknown_id_and_suggests_the_nearest(id):
    text = re.escape(f"unknown exercise id={id!r} (nearest: ")
    with pytest.raises(ValueError, match=rf"{text}.*06-split-heads"):
        check(id, None)


@pytest.mark.parametrize("id", EXERCISES)
def test_diagnose_accepts_the_declared_answer(id):
    verdict = verdict_on(id, predicted(id, EXERCISES[id].right), "ok")
    assert verdict.note == "" or EXERCISES[id].forbidden


# Not parametrized by mistake: collecting the mistakes would take seconds in each process.
@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=[] if id in QUESTIONS else slow) for id in EXERCISES]
)
def test_diagnose_names_every_version_of_a_mistake(id):
    exercise = EXERCISES[id]
    known = [(name, each) for name in named(exercise) for each in mistakes_of(exercise)[name]]
    for mistake, wrong in ((name, each) for name, each in known if shows(exercise, each)):
        verdict = diagnose(id, predicted(id, wrong))
        assert (verdict.ok, verdict.kind, verdict.mistake) == (False, "mistake", mistake)
        opening, found, rest = verdict.message.partition(MISTAKES[mistake].sentence)
        assert found and bool(opening) == (id in QUESTIONS)
        # The reply never refers to a later notebook.
        step = MISTAKES[mistake].step
        assert (f"Notebook {step} (" in rest) == ("" < step <= id[:2])


@slow
@pytest.mark.parametrize(
    ("id", "sentence"),
    [(id, text) for id, exercise in EXERCISES.items() for text in exercise.misconceptions],
)
def test_diagnose_answers_a_misconception_with_its_sentence(id, sentence):
    wrong = misconceptions_of(EXERCISES[id])[sentence]
    verdict = verdict_on(id, predicted(id, wrong), "misconception")
    assert verdict.message == sentence
    assert re.fullmatch(r"[A-Z\"].*[^.][.?]", sentence) and len(sentence) <= 200


# Right answers; tests/course/wrong_answers.py contains more.


def split(projected, num_heads):
    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def scaled_first(query, key):
    return torch.einsum("bqd,bkd->bqk", query / query.size(-1) ** 0.5, key)


def mean_detached(x, weight, bias):
    """A detached mean changes no gradient, because layer norm is invariant to shifts."""
    return F.layer_norm(x - x.mean(-1, keepdim=True).detach(), x.shape[-1:], weight, bias)


def by_numpy(scales, packed):
    scales, packed = scales.numpy(), packed.numpy()
    halves = np.hstack([packed & 15, packed >> 4]).astype(float)
    return torch.from_numpy(scales[:, None] * (halves - 8))


BUFFER = torch.empty(1000, dtype=torch.float64)


def in_one_buffer(heads):
    """Each call overwrites the result of the previous call."""
    merged = heads.transpose(1, 2).flatten(2)
    if heads.requires_grad:
        return merged
    return BUFFER[: merged.numel()].view_as(merged).copy_(merged)


def clamped(low, high):
    """Return a linear layer that clamps its output to constants in its code."""
    return eval(f"lambda x, w, b: ((x.unsqueeze(2) * w).sum(-1) + b).clamp({low}, {high})")


RIGHT = [
    ("04-attention", lambda *given: TASKS["attention"].right(*(x.float() for x in given)),
     "torch.float32, but the cases are torch.float64"),
    ("01-linear", lambda x, w, b: (x.half().unsqueeze(2) * w.half()).sum(-1) + b.half(),
     "torch.float16"),
    ("01-linear", clamped(-1e4, 1e9), "use -math.inf to hide"),
    ("01-linear", clamped(-9999.0, 1e9), ""),
    ("07-layer-norm", mean_detached, "without layer_norm"),
    # No training goes through these functions, so they may detach their result.
    ("16-rows-for-neighbours", lambda w, n: TASKS["rows_for_neighbours"].right(w.data, n), ""),
    ("18-top-p", lambda x, p: TASKS["top_p"].right(x.data, p), ""),
    ("19-logit-parts", lambda *given: TASKS["logit_parts"].right(given[0].data, *given[1:]), ""),
    ("19-dequantize", by_numpy, ""),
    ("06-merge-heads", in_one_buffer, ""),
]  # fmt: skip


@pytest.mark.parametrize(("id", "function", "note"), RIGHT)
def test_diagnose_accepts_an_equivalent_answer(id, function, note):
    verdict = verdict_on(id, function, "ok")
    assert note in verdict.note
    assert bool(note) == bool(verdict.note)


class Linear(EXERCISES["01-linear-layer"].right):
    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


FORBIDDEN = [
    ("01-linear", lambda x, w, b: torch.einsum("bsi,oi->bso", x, w) + b, "einsum"),
    ("01-linear", lambda x, w, b: [(F.linear(x, w) @ torch.eye(len(w)) + b)][0], "@, linear"),
    ("01-linear", lambda x, w, b: (lambda y: y @ w.T)(x) + b, "@"),
    ("01-linear-layer", Linear, "linear"),
    ("06-merge-heads", lambda heads: torch.cat([heads[:, i] for i in range(heads.size(1))], -1),
     "for, [:]"),
    ("06-merge-heads", lambda heads: heads.transpose(1, 2).flatten(2), ""),
]  # fmt: skip


@pytest.mark.parametrize(("id", "function", "used"), FORBIDDEN)
def test_note_lists_the_forbidden_operations_of_an_answer(id, function, used, monkeypatch):
    forbidden = ("@", "einsum", "linear", "for", "[:]")
    task = dataclasses.replace(EXERCISES[id], forbidden=forbidden)
    monkeypatch.setitem(EXERCISES, id, task)
    note = verdict_on(id, function, "ok").note
    assert note == (used and f"Note: the task asks for a solution without {used}.")


# Wrong answers. Only this table quotes the wording of the verdicts.


def raises(projected, num_heads):
    """Explain the plan."""
    raise NotImplementedError


def raises_at_once(projected, num_heads):
    return torch.bmm(projected, num_heads)


def raises_below(projected, num_heads):
    def cut(x):
        return rearrange(x, "batch seq (head d_k) -> batch head seq d", head=num_heads)

    return cut(projected)


class Unwritable(Exception):
    def __str__(self):
        raise RuntimeError("no")


def raises_what_cannot_be_written(projected, num_heads):
    raise Unwritable


def forgets(query, key):
    torch.bmm(query, key.mT)


def adds_in_place(*given):
    x, table = given
    x += table[: x.size(1)]
    return x


def transposed_in_place(x, weight, bias):
    answer = x @ weight.T + bias
    x.transpose_(0, 1)
    return answer


VIEWS = []


def changes_earlier_arguments(heads):
    for view in VIEWS:
        view.zero_()
    VIEWS.append(heads[:1])
    return heads.transpose(1, 2).flatten(2)


def one_off(x, weight, bias):
    answer = x @ weight.T + bias
    return torch.cat([answer[:-1], answer[-1:] + torch.eye(answer.size(-1))[-1]])


def hears_all(x, memory, layers, norm, tgt_mask, src_mask):
    for layer in layers:
        x = layer(x.mean(1, keepdim=True).expand_as(x), memory, tgt_mask, src_mask)
    return norm(x)


def says_the_last(parts, src, tgt, src_mask, tgt_mask):
    logits = TASKS["transformer"].right(parts, src, tgt, src_mask, tgt_mask)
    return logits + F.one_hot(tgt[:, -1:], logits.size(-1))


def cut_in_part(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * scale.detach() * weight + bias


def repaired_too_late(scores, mask):
    hidden = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return (scores + hidden).softmax(-1).nan_to_num()


class FrozenWeight(EXERCISES["01-linear-layer"].right):
    def forward(self, x):
        return F.linear(x, self.weight.detach(), self.bias)


def clears_its_lists(x, sublayers, norms, last_norm):
    answer = TASKS["residual_stack"].right(x, sublayers, norms, last_norm)
    sublayers.clear()
    return answer


def erases_the_weights(parts, *ids_and_masks):
    answer = TASKS["transformer"].right(parts, *ids_and_masks)
    parts.output_projection.weight.data.zero_()
    return answer


class ShrinksItsWeights(EXERCISES["10-encoder-layer"].right):
    def forward(self, *inputs):
        answer = super().forward(*inputs)
        for weight in self.parameters():
            weight.data.mul_(0.9)
        return answer


class StartsAtZero(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return TASKS["rms_norm"].right(x, self.weight)


class AlwaysTrue(torch.Tensor):
    def all(self, *_):
        return torch.tensor(True)


FIRST = raises_at_once.__code__.co_firstlineno + 1
HEADS, SCORES, WEIGHTS = "06-split-heads", "04-attention-scores", "04-attention-weights"
CUT_OFF = "Look for detach"
LEAK = "changes with the last word of "
FAULTS = [
    *((HEADS, function, "not started", ["Not started yet"])
      for function in (raises, lambda x, n: ..., lambda x, n: x.view(..., n), ..., None)),
    (HEADS, lambda x, n: (..., torch.bmm(x, n)), "call", ["Error: TypeError"]),
    ("01-linear", lambda x, w, b: torch.einsum("sd,fd->sf", x, w) + b, "call", ["no ellipsis was"]),
    ("07-rms-norm", StartsAtZero, "call", ["A new layer has the weight 0.0000, expected 1."]),
    ("07-rms-norm", lambda x, w: x @ x, "call", ["The input shapes are x (2, 2, 3), w (3)."]),
    (HEADS, lambda x, n: rearrange(x, "b s (h d) -> b h s d", heads=n), "call",
     ["Error: EinopsError: ", "heads"]),
    (HEADS, raises_at_once, "call",
     [f'Case "1 head": line {FIRST} of raises_at_once fails. Its code is: return torch.bm',
      "The input shapes are projected (2, 2, 3)."]),
    (HEADS, raises_below, "call", ["of cut fails. Its code is: return rearrange(x, "]),
    (HEADS, lambda x, n: torch.ones(2).long().softmax(-1), "call", ["not implemented for 'Long'"]),
    (HEADS, lambda x: x, "call",
     ["cannot be called with projected (batch, seq, head*d_k), num_heads. Error: TypeError: "]),
    ("02-embed", lambda ids, table: F.one_hot(ids).to(table.dtype) @ table, "call",
     ["as many words as sentences"]),
    # Every case raises, so no case shows the wrong values of a known mistake.
    ("11-cross-attention", lambda *given: 1 / 0, "call", ["Error: ZeroDivisionError: division"]),
    (SCORES, forgets, "type", ["Write return before the result"]),
    ("10-stack", lambda make, n: 3, "type", ["cannot be read, got int"]),
    (HEADS, lambda x, n: x.tolist(), "type", ["must be a tensor, got list."]),
    (HEADS, lambda x, n: (split(x, n),), "type", ["Remove the comma"]),
    (HEADS, split(torch.zeros(1, 1, 2), 2), "type", ["a function, got Tensor.", "without ()"]),
    ("13-loss", lambda x, y: F.cross_entropy(x.flatten(0, 1), y.flatten()).item(), "type",
     ["got float.", ".item()"]),
    ("01-linear", lambda x, w, b: x.to_sparse(), "type", ["torch.sparse_coo, on cpu"]),
    ("01-linear", lambda x, w, b: (x @ w.T + b).cfloat(), "type", ["got torch.complex64"]),
    (HEADS, lambda x, n: torch.quantize_per_tensor(split(x, n).float(), 0.1, 0, torch.qint8),
     "type", ["must be a plain tensor of real numbers on the CPU, got torch.qint8"]),
    (HEADS, lambda x, n: torch.nested.nested_tensor([*split(x, n)]), "type", ["a plain tensor"]),
    (HEADS, raises_what_cannot_be_written, "call", ["Error: Unwritable"]),
    ("13-shift", lambda target: target, "type", ["must be 2 tensors, got Tensor."]),
    ("13-shift", lambda target: (target, None), "type", ["got NoneType. This is about output 2"]),
    ("13-shift", lambda target: [x.double() for x in TASKS["shift"].right(target)], "type",
     ["must contain whole numbers, got torch.float64. This is about output 1 of 2."]),
    ("05-causal-mask", lambda n: torch.ones(1, 1, n, n).tril(), "type",
     ["must contain True and False, got torch.float64."]),
    (HEADS, lambda x, n: x, "rank",
     ["number of axes is 3, expected 4.",
      "shape is (2, 2, 3), expected (batch, head, seq, d_k) = (2, 1, 2, 3)."]),
    (HEADS, lambda x, n: x.unflatten(-1, (n, -1)), "axes swapped",
     ["(batch, seq, head, d_k) = (3, 7, 2, 8), expected (batch, head, seq, d_k) = (3, 2, 7, 8)"]),
    (HEADS, lambda x, n: split(x, n)[:, :, :-1], "shape",
     ["size of axis 2 (seq) is 1, expected 2.", "shape is (2, 1, 1, 3), expected (batch,"]),
    # Two axes have equal sizes, so the shape alone does not reveal swapped axes.
    (HEADS, lambda x, n: split(x, n).transpose(1, 2) if n == 1 else split(x, n), "shape",
     ["shape is (2, 2, 1, 3), expected"]),
    ("10-stack", lambda make, n: nn.ModuleList(make() for _ in [1, 2] * n), "shape",
     ["size of axis 0 is 4, expected 2"]),
    ("13-shift", lambda t: (t, t[:, :0]), "shape", ["axis 1 (tgt) is 0", "about output 2 of 2"]),
    # A modified argument is reported even if the values are right, and before a known mistake.
    ("03-positional-encoding", adds_in_place, "input changed", ['its argument "args[0]"']),
    ("01-linear", transposed_in_place, "input changed", ['its argument "x" in place']),
    ("06-merge-heads", changes_earlier_arguments, "input changed", ['its argument "heads"']),
    ("05-masked-weights", lambda s, m: (s - s).masked_fill(~m, math.nan), "nan or inf",
     ["contains nan."]),
    ("05-masked-weights", lambda s, m: s.masked_fill(~m, -math.inf), "nan or inf",
     ["contains -inf. Most likely the code takes the log of 0"]),
    ("07-rms-norm", lambda x, weight: (x - x) / (x - x), "nan or inf", ["0 / 0"]),
    (WEIGHTS, lambda s: (1e3 * s.abs() + 1e3).exp(), "nan or inf", ["overflows"]),
    ("05-masked-weights", lambda s, m: (2 * s).masked_fill(~m, -math.inf).softmax(-1),
     "nan or inf", ["a row of nothing but -inf"]),
    ("01-linear", one_off, "numbers",
     ["10 of 12 numbers are right. The first wrong number is at [batch 1, seq 0, d_out 2]: it "]),
    ("13-loss", lambda x, y: TASKS["loss"].right(x, y) + 2e-5, "numbers",
     ["the answer is 0.00002, expected 0.00000."]),
    (WEIGHTS, lambda s: s.sigmoid(), "numbers", ["Each row must sum to 1"]),
    (WEIGHTS, lambda s: (3 * s).softmax(-1), "numbers", ["The rows do sum to 1"]),
    ("05-causal-mask",
     lambda n: (torch.ones(1, 1, n, n).tril() + torch.eye(n).flip(0)).bool(), "numbers",
     ["at [0, 0, 0, 1]: it is True, expected False. Wrongly True: 1. Wrongly False: 0."]),
    ("01-linear", lambda x, w, b: x @ w.T * 7, "numbers", ['does not depend on "b".']),
    ("04-attention", lambda q, k, v: v[:, :1] + q[..., :1], "numbers", ['does not depend on "k".']),
    pytest.param("11-decoder", hears_all, "numbers", [f'{LEAK}"x"'], marks=slow),
    pytest.param("12-transformer", says_the_last, "numbers", [f'{LEAK}"tgt"'], marks=slow),
    (WEIGHTS, lambda s: s.softmax(0), "explained",
     ["exactly those of `scores.softmax(0)`, which runs along the batch axis. It has to run along "
      "the key axis: `scores.softmax(-1)`."]),
    (WEIGHTS, lambda s: (-s).softmax(-1), "explained",
     ["exactly those of `(-scores).softmax(-1)`, the opposite of `scores.softmax(-1)`."]),
    (WEIGHTS, lambda s: s.softmax(-1).softmax(-1), "explained", ["which does a step of"]),
    ("03-positional-encoding", lambda x, table: x, "explained", ["of `x`. A part of"]),
    ("05-causal-mask", lambda n: torch.ones(1, 1, n, n, dtype=torch.bool), "explained",
     ["A step of `torch.ones(length, length).tril().bool()` is missing."]),
    ("07-layer-norm", lambda x, w, b: F.layer_norm(x, x.shape[-2:]) * w + b, "misconception", []),
    (SCORES, lambda q, k: (scaled_first(q, k) + 5).as_subclass(AlwaysTrue), "numbers", ["0 of 8"]),
    (SCORES, lambda *_: sys.exit(), "call", ["Error: SystemExit"]),
    ("08-residual-stack", clears_its_lists, "input changed", ['its argument "sublayers"']),
    ("12-transformer", erases_the_weights, "input changed", ['its argument "parts"']),
    ("10-encoder-layer", ShrinksItsWeights, "input changed", ["changes its argument"]),
    (SCORES, lambda q, k: scaled_first(q, k).detach(), "gradient", ["through the answer", CUT_OFF]),
    (SCORES, lambda query, key: scaled_first(query, key.data), "gradient",
     ['no gradient reaches "key"', CUT_OFF]),
    (SCORES, lambda q, k: scaled_first(q.requires_grad_(False), k), "gradient", ["reaches"]),
    (SCORES, lambda q, k: torch.from_numpy(q.numpy()) @ k.mT / q.size(-1) ** 0.5, "gradient",
     ["Can't call numpy()"]),
    ("01-linear-layer", FrozenWeight, "gradient", ['reaches "weight"']),
    ("07-layer-norm", cut_in_part, "gradient", ['the gradient of "x" is not: at [']),
    ("05-masked-weights", repaired_too_late, "gradient", ['the gradient of "scores" is nan']),
]  # fmt: skip


@pytest.mark.parametrize(("id", "function", "kind", "words"), FAULTS)
def test_diagnose_describes_the_first_fault(id, function, kind, words):
    message = verdict_on(id, function, kind).message
    for text in words:
        assert text in message


UNHINTED = [
    # Some rows sum to 1 by accident.
    ("14-embed-step", lambda new, n, table, at: table[new] + at[n + 1 : n + 1 + new.size(1)]),
    ("10-encoder", lambda *given: -TASKS["encoder"].right(*given)),  # no causal mask here
    pytest.param("11-decoder", lambda *given: -TASKS["decoder"].right(*given), marks=slow),
    # A weight matrix has no axis of words.
    ("09-feed-forward", lambda x, w, b, v, c: F.leaky_relu(x @ w.T + b, 0.3) @ v.T + c),
    # Randomness is not a leak.
    ("03-positions-dropped", lambda x, table, _: F.dropout(x + table[: x.size(1)], 0.5)),
]


@pytest.mark.parametrize(("id", "function"), UNHINTED)
def test_unknown_wrong_numbers_get_no_false_hint(id, function, monkeypatch):
    # tests/unit/test_search.py tests the search for a repair.
    monkeypatch.setattr("twelve_lab.check.search.CPU_SECONDS", 0)
    message = diagnose(id, function).message
    assert not re.search("sum to 1|does not depend|last word", message), message


def open_to_small_words(x):
    return x + x[:, -1:] * (x[:, :1] < 5)


def hears_all_words(x):
    return x + x.sum(1, keepdim=True)


SMALL = torch.arange(1.0, 5.0, dtype=torch.float64).view(1, 4, 1)
WIDE = torch.arange(24.0, dtype=torch.float64).view(2, 4, 3)
LEAKS = [
    ("(batch, seq, d_model)", open_to_small_words, hears_all_words, [10 * SMALL], 0),
    # In one of the cases, earlier words may depend on the last word.
    ("(batch, seq, d_model)", open_to_small_words, hears_all_words, [SMALL, 10 * SMALL], None),
    ("(batch, seq, d_model)", torch.zeros_like, hears_all_words, [WIDE], 0),
    # Axis 1 contains features, not positions.
    ("(batch, d_model, seq)", lambda x: 0 * x.mT, lambda x: x.mT, [WIDE], None),
]


@pytest.mark.parametrize(("axes", "right", "function", "cases", "found"), LEAKS)
def test_leak_finds_an_argument_whose_last_word_no_case_shows(axes, right, function, cases, found):
    task = Task("", f"x -> {axes}", right, lambda: {str(n): (x,) for n, x in enumerate(cases)})
    assert leak(task, function) == found


# The reply.


def test_check_prints_the_verdict_and_raises_if_it_is_wrong(capsys):
    assert check("06-split-heads", split) is None
    assert capsys.readouterr() == ("✓ 06-split-heads: right. All cases pass.\n", "")
    with pytest.raises(WrongAnswer, match=r"^06-split-heads is not yet right \(split-view\)\.$"):
        check("06-split-heads", MISTAKES["split-view"].wrong)
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 88
    said = f"✗ 06-split-heads: not yet right. {MISTAKES['split-view'].sentence}"
    assert out.replace("\n", " ").startswith(said) and err == ""


def test_a_card_shows_the_cases_or_the_fault_and_a_blank_answer_gets_none(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel="one"))
    monkeypatch.setattr(IPython.display, "display", lambda data, raw: shown.append(data))
    check("06-split-heads", split)
    assert capsys.readouterr().out == ""
    assert shown[0]["text/plain"] == as_text("✓ 06-split-heads: right.", "All cases pass.")
    cases = TASKS["split_heads"].cases()
    for part in (picture(HAPPY, 44), "<b>✓ 06-split-heads: right.</b>", f"{'; '.join(cases)}."):
        assert part in shown[0]["text/html"]
    with pytest.raises(WrongAnswer):
        check("06-split-heads", MISTAKES["split-view"].wrong)
    fault, _, advice = MISTAKES["split-view"].sentence.partition(": ")
    assert f"<b>{fault}:</b> {advice}" in shown[1]["text/html"]
    assert "<svg" not in shown[1]["text/html"]
    check("06-split-heads", ...)
    assert len(shown) == 2


CARDS = {
    'A: Your x < 3 & "y". Then': "<b>A: Your x &lt; 3 &amp; &quot;y&quot;.</b> Then",
    "The sum: add it.": "<b>The sum:</b> add it.",
    "没有缩放。除以它。": "<b>没有缩放。</b> 除以它。",
}


@pytest.mark.parametrize(("message", "html"), CARDS.items())
def test_card_escapes_text_and_takes_its_colours_from_the_page(message, html):
    card = as_card("✗ id:", message, "A note.", ok=False)
    assert f"{html}<br><small>A note.</small>" in card
    assert not re.search(r"[;\"](background|color|animation)", card)
    for edge in (AXIS_STYLES["head"].colour, AXIS_STYLES["d_k"].colour):
        assert min(contrast(edge, PAPER), contrast(edge, "#17181a")) >= 3


def test_the_traceback_of_a_wrong_answer_is_one_line(capsys):
    shell = InteractiveShell.instance()
    try:
        shell.user_ns["check"] = check
        shell.run_cell("check('06-split-heads', lambda x, n: x)")
        out = capsys.readouterr()
        assert out.out.splitlines()[-1] == "06-split-heads is not yet right (rank)."
        assert "Traceback" not in out.out and out.err == ""
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize("strict", ["", "0", "1"])
def test_a_blank_answer_raises_only_for_grading(strict, monkeypatch, capsys):
    monkeypatch.setenv("TWELVE_STRICT", strict)
    if strict == "1":
        with pytest.raises(WrongAnswer, match="not started"):
            check("06-split-heads", raises)
    else:
        assert check("06-split-heads", raises) is None
    out, err = capsys.readouterr()
    assert out.startswith("○ 06-split-heads: Not started yet: ") and err == ""


def test_prints_appear_once_and_warnings_and_stderr_become_a_note(capsys):
    def answer(projected, num_heads):
        print("here")
        text = "softmax without dim (Triggered internally at file.cpp:1.)"
        warnings.warn(text, UserWarning, stacklevel=1)
        return split(projected, num_heads)

    said = "Note: your code also says: "
    assert diagnose("06-split-heads", answer).note == f"{said}UserWarning: softmax without dim"
    cases = TASKS["split_heads"].cases()
    assert capsys.readouterr() == ("here\n" * len(cases), "")
    aside = diagnose("06-split-heads", lambda x, n: print("here", file=sys.stderr))
    assert aside.note == f"{said}here" and capsys.readouterr().err == ""


# The environment of a run.


@pytest.mark.parametrize("function", [split, raises_at_once])
def test_diagnose_runs_in_one_thread_and_restores_the_settings(function):
    threads, seen = torch.get_num_threads(), []

    def counts(*given):
        seen.append((torch.get_num_threads(), torch.get_default_dtype()))
        return function(*given)

    torch.set_num_threads(3)
    torch.set_default_dtype(torch.float32)
    try:
        diagnose("06-split-heads", counts)
        assert (torch.get_num_threads(), torch.get_default_dtype()) == (3, torch.float32)
    finally:
        torch.set_num_threads(threads)
    assert set(seen) == {(1, torch.float64)}


# FakeTensorMode imports sympy, which is slow.
MODES = [torch.no_grad, torch.inference_mode, pytest.param(FakeTensorMode, marks=slow)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("id", ["06-split-heads", "01-linear-layer"])
def test_diagnose_computes_gradients_whatever_the_mode_of_the_learner(id, mode):
    expected.cache_clear()
    with mode():
        verdict_on(id, EXERCISES[id].right, "ok")
    verdict_on(id, EXERCISES[id].right, "ok")


def test_a_failure_of_the_right_answer_is_not_kept():
    def fail(saved):
        raise MemoryError

    expected.cache_clear()
    right = TASKS["layer_norm"].right
    with torch.autograd.graph.saved_tensors_hooks(fail, fail), pytest.raises(MemoryError):
        diagnose("07-layer-norm", right)
    verdict_on("07-layer-norm", right, "ok")


def test_diagnose_keeps_the_random_numbers_of_the_learner():
    before = torch.get_rng_state()
    diagnose("01-linear-layer", nn.Linear)
    assert torch.equal(torch.get_rng_state(), before)


def test_check_prints_on_a_terminal_without_its_characters(monkeypatch):
    page = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(page, encoding="cp1252"))
    check("06-split-heads", split)
    sys.stdout.flush()
    assert page.getvalue().startswith(b"? 06-split-heads: right.")


def test_an_answer_may_close_stderr():
    def closes(projected, num_heads):
        sys.stderr.close()
        return split(projected, num_heads)

    verdict_on("06-split-heads", closes, "ok")


def test_check_needs_no_get_default_device(monkeypatch):
    # Before PyTorch 2.9, get_default_device raises after set_default_device(None).
    monkeypatch.delattr(torch, "get_default_device")
    verdict_on("06-split-heads", split, "ok")


def test_learners_line_is_found_if_library_paths_begin_with_two_slashes(monkeypatch):
    find = sysconfig.get_path  # as in Pyodide
    monkeypatch.setattr(sysconfig, "get_path", lambda name: f"/{find(name)}")
    assert " of cut fails." in verdict_on(HEADS, raises_below, "call").message


@pytest.mark.parametrize("id", [*QUESTIONS, "05-causal-mask"])
def test_diagnose_computes_on_the_cpu_whatever_the_default_device(id):
    exercise = EXERCISES[id]
    wrong = {"misconception": [*map(made, exercise.misconceptions.values())][:1]}
    wrong["mistake"] = [mistakes_of(exercise)[name][0] for name in named(exercise)[:1]]
    answers = [("ok", exercise.right), *((kind, some[0]) for kind, some in wrong.items() if some)]
    with exact_on_cpu():
        answers = [(kind, predicted(id, answer)) for kind, answer in answers]
    with torch.device("meta"):
        assert [diagnose(id, answer).kind for _, answer in answers] == [kind for kind, _ in answers]
