"""The checker: every known mistake named, every layer by a small wrong function, no false alarm."""

import dataclasses
import math
import re
import sys
import warnings
from types import SimpleNamespace

import IPython
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from IPython.core.interactiveshell import InteractiveShell
from torch import Tensor, nn

from twelve_lab.check import (
    EXERCISES,
    MISTAKES,
    TASKS,
    Question,
    Task,
    Verdict,
    WrongAnswer,
    check,
    diagnose,
)
from twelve_lab.check.compare import exact_on_cpu
from twelve_lab.check.probes import leak
from twelve_lab.check.reply import as_card, as_text
from twelve_lab.check.stages import Submission, probed
from twelve_lab.check.wording import apart
from twelve_lab.course import find_step
from twelve_lab.show.faces import HAPPY, picture
from twelve_lab.show.palette import AXIS_STYLES, PAPER, contrast

# What goes wrong here goes wrong at a learner's, where nobody checks signatures.
pytestmark = pytest.mark.usefixtures("unchecked")

TO_WRITE = {id: at for id, at in EXERCISES.items() if isinstance(at, Task)}
TO_PREDICT = {id: at for id, at in EXERCISES.items() if isinstance(at, Question)}
KNOWN = [(id, mistake) for id, at in TO_WRITE.items() for mistake in at.mistakes]
MISLED = [(id, mistake) for id, at in TO_PREDICT.items() for mistake in at.mistakes]


def found(id, function, kind, *words) -> Verdict:
    verdict = diagnose(id, function)
    assert (verdict.kind, verdict.ok, verdict.mistake) == (kind, kind == "ok", None), verdict
    for text in words:
        assert text in verdict.message
    return verdict


def split(projected, num_heads):
    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)


# The exercises.


def test_every_task_is_an_exercise_of_the_notebook_that_its_file_belongs_to():
    assert list(TO_WRITE.values()) == list(TASKS.values())
    assert EXERCISES["06-split-heads"] is TASKS["split_heads"]
    for id, target in TO_WRITE.items():
        assert find_step(id[:2]).stem == target.right.__module__.rpartition(".")[2]
    assert len(EXERCISES) == len(TO_WRITE) + len(TO_PREDICT)


@pytest.mark.parametrize("run", [check, diagnose])
def test_an_unknown_exercise_is_refused_with_the_nearest(run):
    with pytest.raises(ValueError, match=r"id='06-split-head' is no exercise.* 06-split-heads"):
        run("06-split-head", split)
    with pytest.raises(ValueError, match=r"id='split_heads' is no exercise.* 06-split-heads"):
        run("split_heads", split)


# The known mistakes, and the right answers.


@pytest.mark.slow
@pytest.mark.parametrize(("id", "mistake"), KNOWN)
def test_every_way_to_make_a_mistake_is_named(id, mistake):
    for wrong in EXERCISES[id].mistakes[mistake]:
        verdict = diagnose(id, wrong)
        assert (verdict.ok, verdict.kind, verdict.mistake) == (False, "mistake", mistake)
        assert verdict.message.startswith(MISTAKES[mistake].sentence)
        shown = MISTAKES[mistake].step <= id[:2]  # no reader is sent ahead
        assert (f"Notebook {MISTAKES[mistake].step} (" in verdict.message) is shown


MISCONCEPTIONS = [(id, said) for id, at in EXERCISES.items() for said in at.misconceptions]


@pytest.mark.slow
@pytest.mark.parametrize(("id", "sentence"), MISCONCEPTIONS)
def test_a_misconception_is_answered_by_its_sentence(id, sentence):
    at = EXERCISES[id]
    wrong = at.misconceptions[sentence]
    verdict = diagnose(id, wrong() if isinstance(at, Question) else wrong)
    assert (verdict.kind, verdict.mistake, verdict.message) == ("misconception", None, sentence)
    assert re.fullmatch(r"[A-Z\"].*[^.][.?]", sentence)
    assert len(sentence) <= 200


@pytest.mark.parametrize("id", TO_WRITE)
def test_every_right_answer_is_right(id):
    verdict = found(id, EXERCISES[id].right, "ok")
    assert verdict.note == "" or EXERCISES[id].forbidden


@pytest.mark.parametrize("id", TO_PREDICT)
def test_every_right_prediction_is_right(id):
    found(id, EXERCISES[id].right(), "ok")


@pytest.mark.parametrize(("id", "mistake"), MISLED)
def test_every_prediction_that_follows_a_mistake_is_named(id, mistake):
    said = f"This is what comes out of a classic mistake: {MISTAKES[mistake].sentence}"
    for wrong in EXERCISES[id].mistakes[mistake]:
        verdict = diagnose(id, wrong())
        assert (verdict.ok, verdict.kind, verdict.mistake) == (False, "mistake", mistake)
        assert verdict.message.startswith(said)


def scaled_first(query, key):
    return torch.einsum("bqd,bkd->bqk", query / query.size(-1) ** 0.5, key)


def finite_then_zero(scores, mask):
    weights = scores.masked_fill(~mask, -1e9).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def in_float32(query, key, value):
    scores = query.float() @ key.float().mT / math.sqrt(query.size(-1))
    return scores.softmax(-1) @ value.float()


def in_half(x, weight, bias):
    return (x.half().unsqueeze(2) * weight.half()).sum(-1) + bias.half()


def test_what_a_task_asks_to_do_without_is_a_note(monkeypatch):
    target = dataclasses.replace(EXERCISES["01-linear"], forbidden=("@", "einsum", "linear"))
    monkeypatch.setitem(EXERCISES, "01-linear", target)

    def inside(x, w, b):
        return [F.linear(one, w) @ torch.eye(len(w)) + b for one in x]

    def without(x, w, b):
        """Do it without einsum and @."""
        return (x.unsqueeze(2) * w).sum(-1) + b

    nested = found("01-linear", lambda *given: torch.stack(inside(*given)), "ok")
    assert nested.note == ""
    direct = found("01-linear", lambda x, w, b: torch.einsum("bsi,oi->bso", x, w) + b, "ok")
    assert direct.note == "A note: the task asks to do without einsum."
    both = found("01-linear", lambda x, w, b: [(F.linear(x, w) @ torch.eye(len(w)) + b)][0], "ok")
    assert both.note == "A note: the task asks to do without @ and linear."
    assert found("01-linear", without, "ok").note == ""


def test_the_forward_of_a_class_is_what_is_looked_at(monkeypatch):
    target = dataclasses.replace(EXERCISES["01-linear-layer"], forbidden=("linear",))
    monkeypatch.setitem(EXERCISES, "01-linear-layer", target)

    class Plain(target.right):
        def forward(self, x):
            return F.linear(x, self.weight, self.bias)

    assert found("01-linear-layer", Plain, "ok").note.endswith("without linear.")


def test_a_loop_and_a_slice_can_be_asked_to_be_done_without(monkeypatch):
    target = dataclasses.replace(EXERCISES["06-merge-heads"], forbidden=("a loop", "a slice"))
    monkeypatch.setitem(EXERCISES, "06-merge-heads", target)

    def sliced(heads):
        return torch.cat([heads[:, at] for at in range(heads.size(1))], dim=-1)

    assert found("06-merge-heads", sliced, "ok").note.endswith("without a loop and a slice.")
    by_flatten = found("06-merge-heads", lambda heads: heads.transpose(1, 2).flatten(2), "ok")
    assert "a loop" not in by_flatten.note


def transposed_in_memory(x):
    return x.permute(0, 2, 1).contiguous()


def by_loop(heads):
    return torch.cat([heads[:, at] for at in range(heads.size(1))], dim=-1)


def by_hand(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * weight + bias


def by_clamp(x, w_up, b_up, w_down, b_down):
    return (x @ w_up.T + b_up).clamp(min=0) @ w_down.T + b_down


def at_or_before(length):
    return (torch.arange(length)[:, None] >= torch.arange(length))[None, None]


@pytest.mark.parametrize(
    ("id", "function", "note"),
    [
        ("04-attention-scores", scaled_first, ""),
        ("05-masked-weights", finite_then_zero, "-math.inf"),
        ("04-attention", in_float32, "torch.float32"),
        ("01-linear", in_half, "torch.float16"),
        ("01-swap-axes", transposed_in_memory, ""),
        ("06-split-heads", split, ""),
        ("06-merge-heads", by_loop, ""),
        ("07-layer-norm", by_hand, ""),
        ("09-feed-forward", by_clamp, ""),
        ("05-causal-mask", at_or_before, ""),
        ("13-shift", lambda target: list(TASKS["shift"].right(target)), ""),
    ],
)
def test_an_equivalent_answer_is_right(id, function, note):
    verdict = found(id, function, "ok")
    assert note in verdict.note
    assert bool(note) == bool(verdict.note)


# The layers.


def raises(projected, num_heads):
    """Say what will come."""
    raise NotImplementedError


def dots(projected, num_heads): ...


def passes(projected, num_heads):
    """Say what will come."""
    pass


def blank(projected, num_heads):
    heads = ...
    return heads


def blank_in_use(projected, num_heads):
    heads = ...
    return heads.transpose(1, 2)


def blank_in_torch(projected, num_heads):
    return torch.matmul(projected, ...)


@pytest.mark.parametrize(
    "function", [raises, dots, passes, blank, blank_in_use, blank_in_torch, ..., None]
)
def test_a_blank_is_not_started(function):
    found("06-split-heads", function, "not started", "Not started yet")


def test_an_error_of_torch_that_speaks_of_an_ellipsis_is_no_blank():
    def one_letter_too_few(x, weight, bias):
        return torch.einsum("sd,fd->sf", x, weight) + bias

    found("01-linear", one_letter_too_few, "call", "no ellipsis was given")


def test_an_error_comes_with_the_sizes_that_went_in():
    found("07-rms-norm", lambda x, w: x @ x, "call", "(x (2, 2, 3), w (3)), line ")


def test_of_an_error_of_einops_the_reason_is_shown():
    def split(x, n):
        return rearrange(x, "b s (h d) -> b h s d", heads=n)

    found("06-split-heads", split, "call", "fails: EinopsError: ", "heads")


def raises_at_once(projected, num_heads):
    return torch.bmm(projected, num_heads)


def raises_below(projected, num_heads):
    def cut(x):
        return rearrange(x, "batch seq (head d_k) -> batch head seq d", head=num_heads)

    return cut(projected)


def test_an_error_comes_with_the_deepest_line_of_the_learner():
    line = raises_at_once.__code__.co_firstlineno + 1
    said = f'line {line} of raises_at_once, "return torch.bmm(projected, num_heads)", fails: Type'
    found("06-split-heads", raises_at_once, "call", '"1 head"', said)
    said = 'of cut, "return rearrange(x, '
    found("06-split-heads", raises_below, "call", said, "fails: EinopsError: ")


def test_an_operation_that_torch_lacks_is_no_blank():
    def lacks(projected, num_heads):
        return torch.ones(2, dtype=torch.long).softmax(-1)

    found("06-split-heads", lacks, "call", "not implemented for 'Long'")


def test_a_function_of_other_arguments_cannot_be_called():
    found("06-split-heads", lambda x: x, "call", "projected (batch, seq, head*d_k)", "TypeError")


def forgets(query, key):
    torch.bmm(query, key.mT)


@pytest.mark.parametrize(
    ("id", "function", "said"),
    [
        ("04-attention-scores", forgets, "you forgot return"),
        ("10-stack", lambda make, n: [make() for _ in range(n)] and None, "you forgot return"),
        ("10-stack", lambda make, n: 3, "You returned an int, which cannot be read"),
        ("06-split-heads", lambda x, n: x.tolist(), "a list where a tensor is due"),
        ("06-split-heads", lambda x, n: x.numpy(), "an ndarray where a tensor is due"),
        ("06-split-heads", lambda x, n: (split(x, n),), "the comma"),
        ("06-split-heads", split(torch.zeros(1, 1, 2), 2), "without ()"),
        ("13-loss", lambda x, at: F.cross_entropy(x.flatten(0, 1), at.flatten()).item(), ".item()"),
        ("01-linear", lambda x, w, b: x.to_sparse(), "torch.sparse_coo, on cpu: a plain tensor"),
        ("01-linear", lambda x, w, b: (x @ w.T + b).cfloat(), "The answer is torch.complex64"),
        ("13-shift", lambda target: target, "a Tensor where 2 tensors are due"),
        ("13-shift", lambda target: (target,) * 3, "3 values where 2 tensors are due"),
        ("13-shift", lambda target: (target, None), "Answer 2 of 2 is a NoneType"),
        (
            "05-causal-mask",
            lambda n: torch.ones(1, 1, n, n).tril(),
            "The answer should hold True and False, and yours holds real numbers (torch.float64)",
        ),
    ],
)
def test_an_answer_of_another_type_is_told_so(id, function, said):
    found(id, function, "type", said)


def test_errors_alone_give_no_mistake_away():
    """The wrong numbers of this mistake show where the shape fits; here nothing comes out."""

    def refuses(x, memory, attention, src_mask, tgt_mask):
        raise RuntimeError("no")

    found("11-cross-attention", refuses, "call", 'of refuses, "raise RuntimeError("no")", fails')


def test_the_number_of_axes_is_told():
    found(
        "06-split-heads", lambda x, n: x, "rank",
        "3 axes, (2, 2, 3)", "4 axes are due, (batch, head, seq, d_k) = (2, 1, 2, 3)",
    )  # fmt: skip
    found("13-loss", lambda x, at: x, "rank", "0 axes are due, ()")


def test_swapped_axes_are_named():
    found(
        "06-split-heads", lambda x, n: x.unflatten(-1, (n, -1)), "axes swapped",
        "(batch, seq, head, d_k) = (2, 5, 3, 8)", "(batch, head, seq, d_k) = (2, 3, 5, 8) is due",
    )  # fmt: skip


def test_a_wrong_size_is_named_with_its_axis():
    cut = found("06-split-heads", lambda x, n: split(x, n)[:, :, :-1], "shape", "axis 2 (seq)")
    assert "has size 1, and 2 is due: (2, 1, 1, 3) in place of (2, 1, 2, 3)" in cut.message
    found("07-layer-norm", lambda x, w, b: x[..., :1], "shape", "axis 2 (d_model) of the answer")
    said = "axis 0 of what is looked at in the answer has size 4, and 2 is due"
    twice = [*range(2)]
    found("10-stack", lambda make, n: nn.ModuleList(make() for _ in twice * n), "shape", said)
    found("13-shift", lambda t: (t, t[:, :0]), "shape", "axis 1 (tgt) of answer 2 of 2 has size 0")


def masks_in_place(scores, mask):
    empty = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill_(~mask, -math.inf).masked_fill(empty, 0.0).softmax(-1)
    return weights.masked_fill(empty, 0.0)


def test_a_changed_argument_is_named_even_where_the_numbers_are_right():
    found("05-masked-weights", masks_in_place, "input changed", 'its argument "scores"')

    def adds(*given):
        x, table = given
        x += table[: x.size(1)]
        return x

    found("03-positional-encoding", adds, "input changed", "its argument number 1")


def test_a_changed_argument_comes_before_a_mistake():
    def view_and_clear(projected, num_heads):
        answer = MISTAKES["split-view"].wrong(projected.clone(), num_heads)
        projected.zero_()
        return answer

    found("06-split-heads", view_and_clear, "input changed", '"projected"')


@pytest.mark.parametrize(
    ("id", "function", "said"),
    [
        ("05-masked-weights", lambda s, m: (s - s).masked_fill(~m, math.nan), "holds nan"),
        ("05-masked-weights", lambda s, m: s.masked_fill(~m, -math.inf), "holds -inf: most likely"),
        ("04-attention-weights", lambda s: (s - s).log(), "holds -inf: most likely the log of 0"),
        ("07-rms-norm", lambda x, weight: (x - x) / (x - x), "0 was divided by 0"),
        ("04-attention-weights", lambda s: (1e3 * s.abs() + 1e3).exp(), "grew too large"),
    ],
)
def test_nan_and_inf_come_with_a_likely_cause(id, function, said):
    found(id, function, "nan or inf", said)


def test_a_row_with_nothing_to_attend_to_is_the_cause_of_its_nan():
    def doubled(scores, mask):
        return (2 * scores).masked_fill(~mask, -math.inf).softmax(-1)

    found("05-masked-weights", doubled, "nan or inf", "a row of nothing but -inf")


def test_unknown_wrong_numbers_are_located():
    def one_off(x, weight, bias):
        answer = x @ weight.T + bias
        return torch.cat([answer[:-1], answer[-1:] + torch.eye(answer.size(-1))[-1]])

    verdict = found("01-linear", one_off, "numbers", "10 of the 12 numbers of the answer are right")
    place = r"the first other one, at \[batch 1, seq 0, d_out 2\], is (\S+), and (\S+) is due\."
    got, due = re.search(place, verdict.message).groups()
    assert float(got) - float(due) == pytest.approx(1)


def test_only_a_large_number_below_zero_is_taken_for_one_that_hides():
    def bounded(low, high):
        text = f"lambda x, w, b: ((x.unsqueeze(2) * w).sum(-1) + b).clamp({low}, {high})"
        return found("01-linear", eval(text), "ok").note

    assert bounded(-1e4, 1e9).startswith("A note: -math.inf hides for certain")
    assert bounded(-9999.0, 1e9) == ""


def test_two_numbers_have_four_decimals_and_more_where_four_do_not_tell_them_apart():
    assert apart(1.0, -2.5) == ("1.0000", "-2.5000")
    assert apart(0.00002, 0.0) == ("0.00002", "0.00000")
    assert apart(1.0, 1.0) == ("1.000000000", "1.000000000")


def test_a_difference_too_small_for_four_decimals_is_written_with_more():
    def off(logits, labels):
        return TASKS["loss"].right(logits, labels) + 2e-5

    found("13-loss", off, "numbers", "the answer is 0.00002, and 0.00000 is due")


def test_rows_that_must_sum_to_one_are_told():
    found("04-attention-weights", lambda s: s.sigmoid(), "numbers", "Each row must sum to 1")
    found("04-attention-weights", lambda s: (-s).softmax(-1), "numbers", "Your rows do sum to 1")


def test_rows_that_sum_to_one_by_accident_are_no_rule():
    def one_place_too_late(new, length, table, positions):
        return table[new] + positions[length + 1 : length + 1 + new.size(1)]

    verdict = found("14-embed-step", one_place_too_late, "numbers")
    assert "sum to 1" not in verdict.message


def hears_all(x, memory, layers, norm, tgt_mask, src_mask):
    for layer in layers:
        x = layer(x.mean(1, keepdim=True).expand_as(x), memory, tgt_mask, src_mask)
    return norm(x)


def negative(x, memory, layers, norm, tgt_mask, src_mask):
    return -TASKS["decoder"].right(x, memory, layers, norm, tgt_mask, src_mask)


def says_the_last(parts, src, tgt, src_mask, tgt_mask):
    logits = TASKS["transformer"].right(parts, src, tgt, src_mask, tgt_mask)
    return logits + F.one_hot(tgt[:, -1:], logits.size(-1))


UNREAD = "Your answer does not depend on"


def test_an_argument_that_is_not_read_is_named():
    found("01-linear", lambda x, w, b: x @ w.T * 7, "numbers", f'{UNREAD} "b".')
    said = found("04-attention", lambda q, k, v: v[:, :1] + q[..., :1], "numbers").message
    assert f'{UNREAD} "k".' in said
    assert UNREAD not in found("01-linear", lambda x, w, b: 7 * (x @ w.T + b), "numbers").message


LEAK = "The first words change with the last one of"


@pytest.mark.slow
def test_an_answer_that_hears_the_future_is_told_so():
    found("11-decoder", hears_all, "numbers", f'{LEAK} "x"; they must not.')
    found("12-transformer", says_the_last, "numbers", f'{LEAK} "tgt"; they must not.')
    assert LEAK not in found("11-decoder", negative, "numbers").message


def test_words_that_may_be_heard_are_no_leak():
    right = TASKS["encoder"].right
    assert LEAK not in found("10-encoder", lambda *given: -right(*given), "numbers").message


def test_a_matrix_of_weights_holds_no_words():
    def leaky(x, w_up, b_up, w_down, b_down):
        return F.leaky_relu(x @ w_up.T + b_up, 0.3) @ w_down.T + b_down

    assert LEAK not in found("09-feed-forward", leaky, "numbers").message


def test_what_is_drawn_is_no_leak():
    def drawn(x, table, dropout):
        return F.dropout(x + table[: x.size(1)], 0.5)

    assert LEAK not in found("03-positions-dropped", drawn, "numbers").message


def test_one_hot_rows_that_count_the_words_of_the_sentence_are_too_short():
    def counted(ids, table):
        return F.one_hot(ids).to(table.dtype) @ table

    found("02-embed", counted, "call", "as many words as sentences")


def test_a_norm_of_a_whole_sentence_is_not_called_one_over_the_sequence():
    def over_both(x, weight, bias):
        return F.layer_norm(x, x.shape[-2:]) * weight + bias

    found("07-layer-norm", over_both, "misconception", "a sentence as a whole")


def test_an_axis_of_features_holds_no_words():
    turned = Task(
        name="turned",
        contract="x (batch, seq, d_model) -> (batch, d_model, seq)",
        right=lambda x: 0 * x.mT,
        cases=lambda: {"one": (torch.arange(24.0, dtype=torch.float64).view(2, 4, 3),)},
    )
    assert leak(turned, lambda x: x.mT) is None
    kept = dataclasses.replace(turned, contract="x (batch, seq, d_model) -> (batch, seq, d_model)",
                               right=lambda x: 0 * x)  # fmt: skip

    def hears_all_words(x):
        return x + x.sum(1, keepdim=True)

    assert leak(kept, hears_all_words) == 0
    assert probed(Submission(kept, hears_all_words, [], [])) == f' {LEAK} "x"; they must not.'


def test_a_mask_that_shows_too_much_is_counted():
    def everything(n):
        return torch.ones(1, 1, n, n, dtype=torch.bool)

    found(
        "05-causal-mask",
        everything,
        "numbers",
        "at [0, 0, 0, 1], is True, and False is due",
        "In all, 1 too many",
    )


def cut_by_detach(query, key):
    return scaled_first(query, key).detach()


@torch.no_grad()
def cut_by_no_grad(query, key):
    return scaled_first(query, key)


def cut_by_data(query, key):
    return scaled_first(query, key.data)


def cut_by_copy(query, key):
    return scaled_first(torch.tensor(query.tolist()), key)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (cut_by_detach, "goes through the answer"),
        (cut_by_no_grad, "goes through the answer"),
        (cut_by_data, 'reaches "key"'),
        (cut_by_copy, 'reaches "query"'),
        (lambda q, k: scaled_first(q.requires_grad_(False), k), "reaches"),
        (lambda q, k: torch.from_numpy(q.numpy()) @ k.mT / q.size(-1) ** 0.5, "Can't call numpy()"),
    ],
)
def test_a_gradient_that_is_cut_is_told_where_the_numbers_are_right(function, said):
    found("04-attention-scores", function, "gradient", said)


@torch.no_grad()
def zeroed(weight, head, num_heads):
    weight = weight.detach().clone()
    weight.unflatten(1, (num_heads, -1))[:, head].zero_()
    return weight


def by_numpy(scales, packed):
    scales, packed = scales.numpy(), packed.numpy()
    low, high = packed & 15, packed >> 4
    return torch.from_numpy(scales[:, None] * (np.hstack([low, high]).astype(float) - 8))


@pytest.mark.parametrize(
    ("id", "function"),
    [
        ("16-rows-for-neighbours", lambda w, n: TASKS["rows_for_neighbours"].right(w.data, n)),
        ("17-pool-heads", lambda w, *n: TASKS["pool_heads"].right(w.data, *n)),
        ("19-remove-head", zeroed),
        ("19-neighbours", lambda w, d_k: TASKS["neighbours"].right(w.data, d_k)),
        ("19-dequantize", by_numpy),
    ],
)
def test_a_gradient_may_be_cut_where_weights_are_made_that_no_one_trains(id, function):
    found(id, function, "ok")


def test_a_gradient_that_is_cut_in_part_is_told():
    def norm(x, weight, bias):
        return F.layer_norm(x - x.mean(-1, keepdim=True).detach(), x.shape[-1:], weight, bias)

    def frozen(x, weight, bias):
        return by_hand(x, weight, bias) + 0 * x

    def cut(x, weight, bias):
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return centred * scale.detach() * weight + bias

    # Its mean does not matter: layer_norm takes it off again, gradient and all.
    found("07-layer-norm", norm, "ok")
    found("07-layer-norm", frozen, "ok")
    found("07-layer-norm", cut, "gradient", 'the gradient of "x" is not')


def test_a_nan_that_is_repaired_too_late_lives_on_in_the_gradient():
    def repaired(scores, mask):
        hidden = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
        return (scores + hidden).softmax(-1).nan_to_num()

    found("05-masked-weights", repaired, "gradient", 'the gradient of "scores" is nan')


# How it is told.


def test_a_right_answer_is_told_in_words(capsys):
    assert check("06-split-heads", split) is None
    out, err = capsys.readouterr()
    assert out == "✓ 06-split-heads: right. Every case gives the numbers that are due.\n"
    assert err == ""


def test_a_wrong_answer_is_told_in_words_and_raises(capsys):
    with pytest.raises(WrongAnswer, match=r"^06-split-heads is not yet right \(split-view\)\.$"):
        check("06-split-heads", MISTAKES["split-view"].wrong)
    out, err = capsys.readouterr()
    assert out.startswith("✗ 06-split-heads: not yet right. You cut the heads with view alone")
    assert max(map(len, out.splitlines())) <= 88
    assert MISTAKES["split-view"].sentence in out.replace("\n", " ")
    assert err == ""


@pytest.fixture
def shown(monkeypatch):
    """Be in a notebook: what is displayed there is kept."""
    displayed = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel="one"))
    monkeypatch.setattr(IPython.display, "display", lambda data, raw: displayed.append(data))
    return displayed


def test_in_a_notebook_a_right_answer_has_a_face_and_its_text_is_that_of_a_terminal(shown, capsys):
    check("06-split-heads", split)
    assert capsys.readouterr().out == ""
    (data,) = shown
    assert data["text/plain"] == as_text(
        "✓ 06-split-heads: right.", "Every case gives the numbers that are due."
    )
    assert picture(HAPPY, 44) in data["text/html"]
    assert "<b>✓ 06-split-heads: right.</b>" in data["text/html"]
    cases = TASKS["split_heads"].cases()
    assert f"Held in {len(cases)} cases: {'; '.join(cases)}." in data["text/html"]


def test_in_a_notebook_what_was_done_wrong_leads_and_nothing_smiles(shown):
    with pytest.raises(WrongAnswer):
        check("06-split-heads", MISTAKES["split-view"].wrong)
    (data,) = shown
    assert data["text/plain"].startswith("✗ 06-split-heads: not yet right. You cut the heads")
    assert "<svg" not in data["text/html"]
    assert re.search(r"<b>You cut the heads[^<]* of every word:</b> view as", data["text/html"])


def test_a_blank_is_plain_in_a_notebook_too(shown, capsys):
    check("06-split-heads", ...)
    assert shown == [] and capsys.readouterr().out.startswith("○ 06-split-heads: Not started yet")


def test_a_card_takes_letters_and_ground_from_its_page_and_code_as_text():
    drawn = as_card("✗ id:", 'A: Your x < 3 & "y". Then: more', "A note.", ok=False)
    bold = "<b>A: Your x &lt; 3 &amp; &quot;y&quot;.</b>"
    assert f"{bold} Then: more<br><small>A note.</small>" in drawn
    assert not re.search(r"[;\"](background|color|animation)", drawn)
    for edge in (AXIS_STYLES["head"].colour, AXIS_STYLES["d_k"].colour):
        assert min(contrast(edge, PAPER), contrast(edge, "#17181a")) >= 3


def test_the_traceback_is_one_line(capsys):
    shell = InteractiveShell.instance()
    try:
        shell.user_ns["check"] = check
        shell.run_cell("check('06-split-heads', lambda x, n: x)")
        out = capsys.readouterr()
        assert out.out.splitlines()[2:] == ["06-split-heads is not yet right (rank)."]
        assert out.err == ""
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize("strict", ["", "0", "1"])
def test_a_blank_is_soft_unless_it_is_graded(strict, monkeypatch, capsys):
    monkeypatch.setenv("TWELVE_STRICT", strict)
    if strict == "1":
        with pytest.raises(WrongAnswer, match="not started"):
            check("06-split-heads", raises)
    else:
        assert check("06-split-heads", raises) is None
    out, err = capsys.readouterr()
    assert out.startswith("○ 06-split-heads: Not started yet: ")
    assert err == ""


def test_what_a_function_prints_is_shown_once_for_each_case(capsys):
    def talks(projected, num_heads):
        print("here")
        return split(projected, num_heads)

    diagnose("06-split-heads", talks)
    assert capsys.readouterr().out == "here\n" * len(TASKS["split_heads"].cases())


def warns(projected, num_heads):
    said = "softmax without dim (Triggered internally at file.cpp:1.)"
    warnings.warn(said, UserWarning, stacklevel=1)
    return split(projected, num_heads)


def talks_aside(projected, num_heads):
    print("here", file=sys.stderr)
    return projected


def test_what_a_function_says_on_stderr_is_a_note(capsys):
    check("06-split-heads", warns)
    with pytest.raises(WrongAnswer):
        check("06-split-heads", talks_aside)
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[1] == "A note: your code also says: UserWarning: softmax without dim"
    assert lines[4:] == ["A note: your code also says: here"]
    assert err == ""


@pytest.mark.parametrize("function", [split, raises_at_once])
def test_one_thread_runs_and_the_number_is_restored(function):
    before, seen = torch.get_num_threads(), []

    def counts(*given: Tensor):
        seen.append(torch.get_num_threads())
        return function(*given)

    torch.set_num_threads(3)
    try:
        diagnose("06-split-heads", counts)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}


def test_the_default_type_is_restored():
    before = torch.get_default_dtype()
    diagnose("03-sinusoid", raises_at_once)
    assert torch.get_default_dtype() == before


def test_answers_run_on_the_cpu_wherever_the_notebook_keeps_its_tensors():
    torch.set_default_device("meta")
    try:
        verdict = diagnose("05-causal-mask", at_or_before)
        assert torch.empty(0).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert verdict.ok, verdict


@pytest.mark.parametrize("id", TO_PREDICT)
def test_predictions_are_checked_on_the_cpu_too(id):
    question = EXERCISES[id]
    with exact_on_cpu():
        due = {"ok": question.right(), "misconception": None, "mistake": None}
        wrong = next(iter(question.misconceptions.values()), None)
        due["misconception"] = wrong and wrong()
        wrong = next(iter(question.mistakes.values()), None)
        due["mistake"] = wrong and wrong[0]()
    torch.set_default_device("meta")
    try:
        kinds = {kind: diagnose(id, given).kind for kind, given in due.items() if given is not None}
    finally:
        torch.set_default_device(None)
    assert kinds == {kind: kind for kind in kinds}
