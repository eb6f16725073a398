"""Step 13: what labels and the loss invite."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    misconception,
    mistake,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import seeded

_Two = tuple[Tensor, Tensor]
_Three = tuple[Tensor, Tensor, Tensor]


def _targets() -> dict[str, Tensor]:
    return {
        "twelve numbers": torch.tensor([[1, 0], [3, 2]]),
        "one word": torch.tensor([[2], [5], [4]]),
        "all sizes differ": torch.tensor([[7, 3, 9, 12], [5, 8, 0, 0]]),
    }


def _shift_cases() -> Cases:
    return {name: (target,) for name, target in _targets().items()}


@task(_shift_cases, forbidden=("shift",), measures="shown against asked, and what is not asked")
def shift(target: Tensor) -> _Two:
    """target (batch, tgt), padded with 0 -> tgt (batch, tgt), which starts with 0, and labels
    (batch, tgt), -100 where there is only padding
    """
    tgt = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], dim=1)
    return tgt, target.masked_fill(target == 0, -100)


@solved(shift)
def _shift_right(target: Tensor) -> _Two:
    before = F.pad(target[:, :-1], (1, 0))
    return before, torch.where(target == 0, -100, target)


labels_not_shifted = mistake(
    shift,
    "labels-not-shifted",
    "The decoder is given the very word it is asked for: shift its input to the right by one, "
    "behind a start token.",
    line=("return tgt,", "return target,"),
)
again(shift, "labels-not-shifted", by=lambda target: (target, target))
misconception(
    shift,
    "Here the target has no start token yet: nothing is cut from the labels, and what the "
    "decoder is shown gets a 0 in front.",
    by=lambda target: (target[:, :-1], target[:, 1:]),
)
misconception(
    shift,
    "Here the target has no start token yet: its first word is asked for too, behind a 0 in "
    "front of what the decoder is shown.",
    by=lambda target: (target[:, :-1], shift(target[:, 1:])[1]),
)
misconception(
    shift,
    "You moved the labels one place forward. It is the decoder's input that moves, one place "
    "back, and the labels stay.",
    by=lambda target: (target, shift(F.pad(target, (-1, 1)))[1]),
)
misconception(
    shift,
    "The last word has come round to the front: a 0 belongs there.",
    line=("return tgt", "return target.roll(1, 1)"),
)
misconception(
    shift,
    "Padding has kept its label 0: -100 tells the loss to leave it out.",
    line=(".masked_fill(target == 0, -100)", ".clone()"),
)
misconception(
    shift,
    "You looked for padding in what the decoder is shown, where the start is a 0 too: look "
    "for it in target.",
    line=("target == 0", "tgt == 0"),
)
misconception(
    shift,
    "You marked padding in the input as well: the model looks its ids up, and -100 is no row "
    "of a table.",
    by=lambda target: (F.pad(shift(target)[1][:, :-1], (1, 0)), shift(target)[1]),
)
misconception(
    shift,
    "The labels have moved as well: each place is asked for the word that it is shown.",
    by=lambda target: (shift(target)[0], F.pad(shift(target)[1][:, :-1], (1, 0))),
)
misconception(
    shift,
    "The two have changed places: first what the decoder is shown, then what it is asked.",
    by=lambda target: shift(target)[::-1],
)
misconception(shift, "A sentence starts with id 0, not 1.", line=("zeros_like", "ones_like"))
misconception(shift, "The loss leaves out the label -100, not -1.", line=("-100", "-1"))


def _make_batch_cases() -> Cases:
    sources = (example.src.clone(), torch.tensor([[6], [3], [1]]), example.distinct.src.clone())
    return {
        name: (src, target) for src, (name, target) in zip(sources, _targets().items(), strict=True)
    }


@task(_make_batch_cases, measures="that no answer enters the encoder")
def make_batch(src: Tensor, target: Tensor) -> _Three:
    """src (batch, src), target (batch, tgt) -> src (batch, src), tgt (batch, tgt), labels (batch,
    tgt)
    """
    return src, *shift(target)


@solved(make_batch)
def _batch_from_pair(src: Tensor, target: Tensor) -> _Three:
    before = F.pad(target[:, :-1], (1, 0))
    return src, before, torch.where(target == 0, -100, target)


mistake(
    make_batch,
    "decoder-sees-source-labels",
    "The encoder is given the sentence that the decoder must write, so that the answer leaks "
    "through the memory: give it the source.",
    line=("return src,", "return target,"),
    refused_in={"all sizes differ"},
)
again(
    make_batch,
    "labels-not-shifted",
    by=lambda src, target: (src, *labels_not_shifted.wrong(target)),
)
again(make_batch, "labels-not-shifted", line=("*shift(target)", "target, target"))
misconception(
    make_batch,
    "You shifted the source as well: the encoder reads all of it, as it is.",
    line=("return src,", "return shift(src)[0],"),
)
misconception(
    make_batch,
    "You gave the encoder the shifted target: it reads the sentence that is to be translated.",
    line=("return src,", "return shift(target)[0],"),
)
misconception(
    make_batch,
    "You shifted the source: the decoder writes the target.",
    line=("shift(target)", "shift(src)"),
)
misconception(
    make_batch,
    "Labels and input have changed places: first what the decoder is shown, then what it is asked.",
    line=("shift(target)", "shift(target)[::-1]"),
)
misconception(
    make_batch,
    "The order is src, tgt, labels.",
    line=("src, *shift(target)", "*shift(target), src"),
)
misconception(
    make_batch,
    "Padding has kept its label 0: -100 tells the loss to leave it out.",
    line=("*shift(target)", "shift(target)[0], target"),
)
misconception(
    make_batch,
    "The target has no start token yet: its first word is asked for too, behind a 0 in front "
    "of what the decoder is shown.",
    line=("*shift(target)", "target[:, :-1], shift(target[:, 1:])[1]"),
)
misconception(
    make_batch,
    "The target has no start token yet: nothing is cut from the labels, and what the decoder "
    "is shown gets a 0 in front.",
    line=("*shift(target)", "target[:, :-1], target[:, 1:]"),
)
misconception(
    make_batch,
    "The loss leaves out the label -100, not -1.",
    line=("*shift(target)", "shift(target)[0], target.masked_fill(target == 0, -1)"),
)


def _loss_cases() -> Cases:
    model, draw = example.model(), seeded()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    logits = model(example.src, example.tgt, **masks).detach()
    labels, longer = example.labels.clone(), example.distinct.labels.clone()
    longer[1, 2:] = -100
    return {
        "twelve numbers": (logits, labels),
        "certain and right": (100.0 * F.one_hot(labels.clamp(min=0), 4).double(), labels.clone()),
        "all sizes differ": (draw(2, 4, 13), longer),
    }


@task(
    _loss_cases,
    forbidden=("softmax", "log_softmax", "cross_entropy", "CrossEntropyLoss", "nll_loss"),
    measures="matching flat rows to labels; softmax once",
)
def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (batch, tgt, vocab), labels (batch, tgt), -100 where none is counted -> one number"""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@solved(loss)
def _loss_by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    scores, asked_for = logits[labels != -100], labels[labels != -100]
    own = scores[torch.arange(len(asked_for), device=labels.device), asked_for]
    return (scores.logsumexp(-1) - own).mean()


mistake(
    loss,
    "logits-flattened-wrong",
    "You flattened the logits position by position and the labels sentence by sentence, so each "
    "meets another's answer: flatten both as (batch, tgt).",
    line=("logits.flatten", "logits.transpose(0, 1).flatten"),
)
mistake(
    loss,
    "softmax-before-loss",
    "You took softmax before a loss that takes its own, so that even a perfect answer costs: hand "
    "the logits over as they are.",
    line=("logits.flatten", "logits.softmax(-1).flatten"),
    step="12",
)


def _surprises(logits: Tensor, labels: Tensor) -> Tensor:
    """Give the cost of each place, 0 where there is no label."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


misconception(
    loss,
    "You divided by all places: count those that have a label.",
    by=lambda *given: _surprises(*given).mean(),
)
misconception(
    loss,
    "You counted the cost of a place without a label.",
    line=("labels.flatten", "labels.clamp(min=0).flatten"),
)
misconception(
    loss,
    "This is the sum of the costs: take their mean.",
    by=lambda *given: _surprises(*given).sum(),
)
misconception(
    loss,
    "You took a mean for each sentence, and then their mean: every place that has a label "
    "counts the same.",
    by=lambda logits, labels: (_surprises(logits, labels).sum(1) / (labels >= 0).sum(1)).mean(),
)
misconception(
    loss,
    "The sign is turned: the cost is logsumexp minus the logit of the label.",
    by=lambda *given: -loss(*given),
)
misconception(
    loss,
    "You took the sum of the logits, and not of their powers: logsumexp does all three.",
    by=lambda logits, labels: (
        loss(logits, labels) + (logits.sum(-1).log() - logits.logsumexp(-1))[labels >= 0].mean()
    ),
)
misconception(
    loss,
    "These are the probabilities of the labels: their logarithm is missing.",
    line=("cross_entropy(logits", "nll_loss(logits.softmax(-1)"),
)
misconception(
    loss,
    "This is the loss in bits: take the natural logarithm.",
    by=lambda *given: loss(*given) / math.log(2),
)
misconception(
    loss,
    "You shifted once more: logits and labels stand side by side already.",
    by=lambda logits, labels: loss(logits[:, :-1], labels[:, 1:]),
)
misconception(
    loss,
    "A reshape only renumbers: vocab is the last axis, and must come second by transpose or "
    "last by flatten.",
    by=lambda logits, labels: F.cross_entropy(
        logits.reshape(len(logits), logits.size(2), -1), labels
    ),
)


@question(
    decimals=2,
    measures="the loss of ignorance, and of one half",
    worked="[math.log(37_000), math.log(2)]",
)
def first_losses(*, factor: float = 1.0) -> list[float]:
    """the loss of a model that knows nothing, and where each label gets 0.5"""
    knows_nothing, label = torch.zeros(1, 1, 37_000), torch.zeros(1, 1, dtype=torch.int64)
    return [factor * cross_entropy(knows_nothing, label).item(), -factor * math.log(0.5)]


misconception(
    first_losses,
    "These are logarithms to base 10: the loss takes the natural one, math.log.",
    factor=1 / math.log(10),
)
misconception(
    first_losses,
    "These are logarithms to base 2: the loss takes the natural one, math.log.",
    factor=1 / math.log(2),
)
misconception(
    first_losses,
    "A probability below 1 has a logarithm below 0, and the loss turns the sign.",
    factor=-1,
)
misconception(
    first_losses,
    "The first is right. The second is a loss too: the logarithm of 0.5 is to be taken.",
    by=lambda: [first_losses()[0], 0.5],
)
misconception(
    first_losses,
    "The first is right. Of the second, the sign is missing.",
    by=lambda: [first_losses()[0], math.log(0.5)],
)
