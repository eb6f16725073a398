"""Lesson 13: mistakes in labels and the loss."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.exercises.declare import (
    Cases,
    again,
    mistake,
    notes,
    question,
    solved,
    task,
)
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded

_Two = tuple[Tensor, Tensor]
_Three = tuple[Tensor, Tensor, Tensor]


def _targets() -> dict[str, Tensor]:
    return {
        "twelve numbers": torch.tensor([[1, 0], [3, 2]]),
        "one word": torch.tensor([[2], [5], [4]]),
        "all sizes differ": torch.tensor([[7, 3, 9, 12], [5, 8, 0, 0], [4, 11, 6, 0]]),
    }


def _shift_cases() -> Cases:
    return {name: (target,) for name, target in _targets().items()}


@task(
    _shift_cases, forbidden=("shift",), measures="decoder input against labels, and ignored labels"
)
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


_RETURN = "return tgt, LABELS"
mistake(
    shift,
    "labels-not-shifted",
    "Each position reads the very word that it must predict: the labels must be one position ahead "
    "of the input.",
    {_RETURN: "return target, LABELS"},
)
again(shift, "labels-not-shifted", {_RETURN: "return target, target"})
notes(
    shift,
    {
        "The target has no start token yet: cut nothing from the labels, and put a 0 before the "
        "decoder input.": {_RETURN: "return target[:, :-1], target[:, 1:]"},
        "The target has no start token yet: its first word is a label too, and the decoder input "
        "starts with a 0.": {_RETURN: "return target[:, :-1], LABELS[:, 1:]"},
        "You moved the labels to the left: move the decoder input to the right and leave the "
        "labels unchanged.": {
            "tgt = X": "tgt = F.pad(target, (-1, 1))",
            _RETURN: "return target, tgt.masked_fill(tgt == 0, -100)",
        },
        "The last word moved to the first position: put a 0 there.": {
            "tgt = X": "tgt = target.roll(1, 1)"
        },
        "Padding still has the label 0: use -100, which the loss ignores.": {
            _RETURN: "return tgt, target"
        },
        "You looked for padding in the decoder input, where the start token is a 0 too: look for "
        "it in target.": {"target == 0": "tgt == 0"},
        "You marked padding in the decoder input as well: -100 is not a row of the embedding "
        "table.": {_RETURN: "return F.pad(LABELS[:, :-1], (1, 0)), LABELS"},
        "You moved the labels as well, so each position must predict its own input: leave the "
        "labels unchanged.": {_RETURN: "return tgt, F.pad(LABELS[:, :-1], (1, 0))"},
        "You swapped the two results: return the decoder input first, then the labels.": {
            _RETURN: "return LABELS, tgt"
        },
        "You started a sentence with id 1: start it with id 0.": {
            "torch.zeros_like(X)": "torch.ones_like(X)"
        },
        "You marked padding with -1: the loss ignores the label -100.": {"-100": "-1"},
    },
)


def _make_batch_cases() -> Cases:
    sources = (example.src.clone(), torch.tensor([[6], [3], [1]]), distinct_ids())
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
    "The encoder gets the sentence that the decoder must write, so the answer leaks through the "
    "memory: pass the source to the encoder.",
    {"return src, *REST": "return target, *REST"},
)
notes(
    make_batch,
    {
        "You shifted the source as well: the encoder reads the whole source unchanged.": {
            "return src, *REST": "return shift(src)[0], *REST"
        },
        "You passed the shifted target to the encoder: pass the source.": {
            "return src, *REST": "return shift(target)[0], *REST"
        },
        "You shifted the source: shift the target, which the decoder writes.": {
            "shift(target)": "shift(src)"
        },
        "You changed the order: return src, tgt, labels.": {
            "return src, *REST": "return *REST, src"
        },
    },
)


def _loss_cases() -> Cases:
    model, draw = example.model(), seeded()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    logits = model(example.src, example.tgt, **masks).detach()
    labels, longer = example.labels.clone(), shift(_targets()["all sizes differ"])[1]
    longer[2, 0] = 0  # id 0 is a label like the others
    sure = 1000.0 * F.one_hot(labels.clamp(min=0), 4).double()
    sure[1] -= 3000.0  # subtracting one maximum for the whole batch would fail
    return {
        "twelve numbers": (logits, labels),
        "certain and right": (sure, labels.clone()),
        "certain and wrong": (sure.roll(1, -1), labels.clone()),
        "all sizes differ": (draw(SIZES.batch, SIZES.tgt, SIZES.tgt_vocab), longer),
    }


@task(
    _loss_cases,
    forbidden=("softmax", "log_softmax", "cross_entropy", "CrossEntropyLoss", "nll_loss"),
    measures="matching flat rows to labels; softmax once",
)
def loss(logits: Tensor, labels: Tensor) -> Tensor:
    """logits (batch, tgt, vocab), labels (batch, tgt), -100 is ignored -> one number"""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


@solved(loss)
def _loss_by_hand(logits: Tensor, labels: Tensor) -> Tensor:
    scores, asked_for = logits[labels != -100], labels[labels != -100]
    own = scores[torch.arange(len(asked_for), device=labels.device), asked_for]
    return (scores.logsumexp(-1) - own).mean()


_LOSS = "F.cross_entropy(X, Y)"
mistake(
    loss,
    "logits-flattened-wrong",
    "You flattened the logits position by position but the labels sentence by sentence, so they "
    "do not match: flatten both as (batch, tgt).",
    {"logits.flatten(0, 1)": "logits.transpose(0, 1).flatten(0, 1)"},
)
mistake(
    loss,
    "softmax-before-loss",
    "You applied softmax before a loss that applies its own, so even a perfect answer has a loss: "
    "pass the logits unchanged.",
    {"logits.flatten(0, 1)": "logits.softmax(-1).flatten(0, 1)"},
    step="12",
)
notes(
    loss,
    {
        "You divided by the number of all positions: count only those with a label.": {
            _LOSS: "F.cross_entropy(X, Y, reduction='sum') / labels.numel()"
        },
        "You included the loss of positions without a label: leave them out.": {
            "labels.flatten()": "labels.clamp(min=0).flatten()"
        },
        "This is the sum of the losses: take their mean.": {
            _LOSS: "F.cross_entropy(X, Y, reduction='sum')"
        },
        "You took the mean for each sentence, then the mean of these means: give every "
        "position with a label the same weight.": {
            _LOSS: "sum(map(F.cross_entropy, logits, labels)) / len(logits)"
        },
        "The sign is wrong: the loss is logsumexp minus the logit of the label.": {
            _LOSS: f"-{_LOSS}"
        },
        "These are the probabilities of the labels: take minus their logarithm.": {
            _LOSS: "F.nll_loss(X.softmax(-1), Y)"
        },
        "This is the loss in bits: use the natural logarithm.": {_LOSS: f"{_LOSS} / math.log(2)"},
        "You shifted the labels again: logits and labels are aligned already.": {
            _LOSS: "F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())"
        },
        "Right until a logit is large: e^1000 is inf. Use `logsumexp`, or subtract the largest "
        "logit of each row first.": {
            _LOSS: "F.nll_loss(X - X.exp().sum(-1, keepdim=True).log(), Y)"
        },
        "Right until a probability is 0, whose logarithm is -inf: subtract logsumexp from the "
        "logits instead.": {_LOSS: "F.nll_loss(X.softmax(-1).log(), Y)"},
        "You added a small number to the probabilities, which changes their logarithm: subtract "
        "logsumexp from the logits instead.": {
            _LOSS: "F.nll_loss((X.softmax(-1) + 1e-8).log(), Y)"
        },
        "Your softmax runs over the words of the sentence: apply it over the vocabulary.": {
            _LOSS: "F.nll_loss(logits.log_softmax(1).flatten(0, 1), Y)"
        },
        "This is minus the mean logit of the labels: add logsumexp of each row.": {
            _LOSS: "F.nll_loss(X, Y)"
        },
        "Word 0 is a word like the others: leave out only the label -100.": {
            "labels.flatten()": "labels.masked_fill(labels == 0, -100).flatten()"
        },
        "You divided by the number of sentences: divide by the number of positions with a label.": {
            _LOSS: "F.cross_entropy(X, Y, reduction='sum') / len(logits)"
        },
        "This is the loss of the most probable words: take the words of the labels.": {
            "labels.flatten()": "torch.where(labels < 0, labels, logits.argmax(-1)).flatten()"
        },
        "You also took the mean over the vocabulary: each position has one loss.": {
            _LOSS: f"{_LOSS} / logits.size(-1)"
        },
        "You shifted the labels the other way: logits and labels are aligned already.": {
            _LOSS: "F.cross_entropy(logits[:, 1:].flatten(0, 1), labels[:, :-1].flatten())"
        },
        "You reshaped the logits, which scrambles them: vocab must become axis 1 by transpose, "
        "or stay last by flatten.": {
            _LOSS: "F.cross_entropy(logits.reshape(len(logits), logits.size(2), -1), labels)"
        },
    },
)


@question(
    decimals=2,
    measures="the loss of a uniform guess, and of probability 0.5",
    worked="[math.log(37_000), math.log(2)]",
)
def first_losses() -> list[float]:
    """the loss of a model that guesses, and of one that gives each label a probability of 0.5"""
    knows_nothing, label = torch.zeros(1, 1, 37_000), torch.zeros(1, 1, dtype=torch.int64)
    return [cross_entropy(knows_nothing, label).item(), -math.log(0.5)]


notes(
    first_losses,
    {
        "You used logarithms to base 10: the loss uses the natural logarithm, math.log.": [
            math.log10(37_000),
            math.log10(2),
        ],
        "You used logarithms to base 2: the loss uses the natural logarithm, math.log.": [
            math.log2(37_000),
            1.0,
        ],
        "The logarithm of a probability is negative: the loss is minus this logarithm.": [
            -math.log(37_000),
            math.log(0.5),
        ],
        "The first is right. The second is a loss too: take the logarithm of 0.5.": [
            math.log(37_000),
            0.5,
        ],
        "The first is right. The second has the wrong sign.": [math.log(37_000), math.log(0.5)],
    },
)
