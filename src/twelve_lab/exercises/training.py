"""Step 13: what labels and the loss invite."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.training import cross_entropy
from twelve_lab import example
from twelve_lab.check.declare import Cases, Mistake, Plant, Question, Target
from twelve_lab.exercises.numbers import seeded

_Two = tuple[Tensor, Tensor]
_Three = tuple[Tensor, Tensor, Tensor]


def _shift(target: Tensor) -> _Two:
    tgt = torch.cat([torch.zeros_like(target[:, :1]), target[:, :-1]], dim=1)
    return tgt, target.masked_fill(target == 0, -100)


def _targets() -> dict[str, Tensor]:
    return {
        "twelve numbers": torch.tensor([[1, 0], [3, 2]]),
        "one word": torch.tensor([[2], [5], [4]]),
        "all sizes differ": torch.tensor([[7, 3, 9, 12], [5, 8, 0, 0]]),
    }


def _shift_cases() -> Cases:
    return {name: (target,) for name, target in _targets().items()}


def _labels_not_shifted(target: Tensor) -> _Two:
    return target, target.masked_fill(target == 0, -100)


def _make_batch(src: Tensor, target: Tensor) -> _Three:
    return src, *_shift(target)


def _make_batch_cases() -> Cases:
    sources = (example.src.clone(), torch.tensor([[6], [3], [1]]), example.distinct.src.clone())
    return {
        name: (src, target) for src, (name, target) in zip(sources, _targets().items(), strict=True)
    }


def _decoder_sees_source_labels(src: Tensor, target: Tensor) -> _Three:
    return target, *_shift(target)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


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


def _softmax_before_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.softmax(-1).flatten(0, 1), labels.flatten())


def _logits_flattened_wrong(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.transpose(0, 1).flatten(0, 1), labels.flatten())


def _surprises(logits: Tensor, labels: Tensor) -> Tensor:
    """Give the cost of each place, 0 where there is no label."""
    return F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")


def _each_sentence_alike(logits: Tensor, labels: Tensor) -> Tensor:
    return (_surprises(logits, labels).sum(1) / (labels >= 0).sum(1)).mean()


def _first_losses() -> list[float]:
    knows_nothing, label = torch.zeros(1, 1, 37_000), torch.zeros(1, 1, dtype=torch.int64)
    return [cross_entropy(knows_nothing, label).item(), -math.log(0.5)]


def _first_losses_by(factor: float) -> list[float]:
    return [factor * loss for loss in _first_losses()]


QUESTIONS = (
    Question(
        name="first_losses",
        contract="the loss of a model that knows nothing, and where each label gets 0.5",
        right=_first_losses,
        decimals=2,
        slips={
            "These are logarithms to base 10: the loss takes the natural one, math.log.": lambda: (
                _first_losses_by(1 / math.log(10))
            ),
            "These are logarithms to base 2: the loss takes the natural one, math.log.": lambda: (
                _first_losses_by(1 / math.log(2))
            ),
            "A probability below 1 has a logarithm below 0, and the loss turns the sign.": lambda: (
                _first_losses_by(-1)
            ),
            "The first is right. The second is a loss too: the logarithm of 0.5 is to be "
            "taken.": lambda: [_first_losses()[0], 0.5],
            "The first is right. Of the second, the sign is missing.": lambda: (
                [_first_losses()[0], math.log(0.5)]
            ),
        },
    ),
)

TARGETS = (
    Target(
        name="shift",
        contract="target (batch, tgt), padded with 0 -> tgt (batch, tgt), which starts with 0, and "
        "labels (batch, tgt), -100 where there is only padding",
        right=_shift,
        cases=_shift_cases,
        slips={
            "Here the target has no start token yet: nothing is cut from the labels, and what the "
            "decoder is shown gets a 0 in front.": lambda target: (target[:, :-1], target[:, 1:]),
            "Here the target has no start token yet: its first word is asked for too, behind a 0 "
            "in front of what the decoder is shown.": lambda target: (
                target[:, :-1],
                _shift(target[:, 1:])[1],
            ),
            "You moved the labels one place forward. It is the decoder's input that moves, one "
            "place back, and the labels stay.": lambda target: (
                target,
                _shift(F.pad(target, (-1, 1)))[1],
            ),
            "The last word has come round to the front: a 0 belongs there.": lambda target: (
                target.roll(1, 1),
                _shift(target)[1],
            ),
            "Padding has kept its label 0: -100 tells the loss to leave it out.": lambda target: (
                _shift(target)[0],
                target.clone(),
            ),
            "You looked for padding in what the decoder is shown, where the start is a 0 too: "
            "look for it in target.": lambda target: (
                _shift(target)[0],
                target.masked_fill(_shift(target)[0] == 0, -100),
            ),
            "You marked padding in the input as well: the model looks its ids up, and -100 is no "
            "row of a table.": lambda target: (
                F.pad(_shift(target)[1][:, :-1], (1, 0)),
                _shift(target)[1],
            ),
            "The labels have moved as well: each place is asked for the word that it is "
            "shown.": lambda target: (_shift(target)[0], F.pad(_shift(target)[1][:, :-1], (1, 0))),
            "The two have changed places: first what the decoder is shown, then what it is "
            "asked.": lambda target: _shift(target)[::-1],
            "A sentence starts with id 0, not 1.": lambda target: (
                F.pad(target[:, :-1], (1, 0), value=1),
                _shift(target)[1],
            ),
            "The loss leaves out the label -100, not -1.": lambda target: (
                _shift(target)[0],
                target.masked_fill(target == 0, -1),
            ),
        },
        avoid=("shift",),
    ),
    Target(
        name="make_batch",
        contract="src (batch, src), target (batch, tgt) -> src (batch, src), tgt (batch, tgt), "
        "labels (batch, tgt)",
        right=_make_batch,
        cases=_make_batch_cases,
        also={"labels-not-shifted": lambda src, target: (src, *_labels_not_shifted(target))},
        halves={"labels-not-shifted": (lambda src, target: (src, target, target),)},
        slips={
            "You shifted the source as well: the encoder reads all of it, as it "
            "is.": lambda src, target: (_shift(src)[0], *_shift(target)),
            "You gave the encoder the shifted target: it reads the sentence that is to be "
            "translated.": lambda src, target: (_shift(target)[0], *_shift(target)),
            "You shifted the source: the decoder writes the target.": lambda src, target: (
                src,
                *_shift(src),
            ),
            "Labels and input have changed places: first what the decoder is shown, then what it "
            "is asked.": lambda src, target: (src, *_shift(target)[::-1]),
            "The order is src, tgt, labels.": lambda src, target: (*_shift(target), src),
            "Padding has kept its label 0: -100 tells the loss to leave it out.": (
                lambda src, target: (src, _shift(target)[0], target)
            ),
            "The target has no start token yet: its first word is asked for too, behind a 0 in "
            "front of what the decoder is shown.": lambda src, target: (
                src,
                target[:, :-1],
                _shift(target[:, 1:])[1],
            ),
            "The target has no start token yet: nothing is cut from the labels, and what the "
            "decoder is shown gets a 0 in front.": lambda src, target: (
                src,
                target[:, :-1],
                target[:, 1:],
            ),
            "The loss leaves out the label -100, not -1.": lambda src, target: (
                src,
                _shift(target)[0],
                target.masked_fill(target == 0, -1),
            ),
        },
    ),
    Target(
        name="loss",
        contract="logits (batch, tgt, vocab), labels (batch, tgt), -100 where none is counted -> "
        "one number",
        right=_loss,
        cases=_loss_cases,
        slips={
            "You divided by all places: count those that have a label.": lambda logits, labels: (
                _surprises(logits, labels).mean()
            ),
            "You counted the cost of a place without a label.": lambda logits, labels: _loss(
                logits, labels.clamp(min=0)
            ),
            "This is the sum of the costs: take their mean.": lambda logits, labels: _surprises(
                logits, labels
            ).sum(),
            "You took a mean for each sentence, and then their mean: every place that has a label "
            "counts the same.": _each_sentence_alike,
            "The sign is turned: the cost is logsumexp minus the logit of the "
            "label.": lambda logits, labels: -_loss(logits, labels),
            "You took the sum of the logits, and not of their powers: logsumexp does all "
            "three.": lambda logits, labels: (
                _loss(logits, labels)
                + (logits.sum(-1).log() - logits.logsumexp(-1))[labels >= 0].mean()
            ),
            "These are the probabilities of the labels: their logarithm is missing.": (
                lambda logits, labels: F.nll_loss(
                    logits.softmax(-1).flatten(0, 1), labels.flatten()
                )
            ),
            "This is the loss in bits: take the natural logarithm.": lambda logits, labels: (
                _loss(logits, labels) / math.log(2)
            ),
            "You shifted once more: logits and labels stand side by side already.": (
                lambda logits, labels: _loss(logits[:, :-1], labels[:, 1:])
            ),
            "A reshape only renumbers: vocab is the last axis, and must come second by transpose "
            "or last by flatten.": lambda logits, labels: F.cross_entropy(
                logits.reshape(len(logits), logits.size(2), -1), labels
            ),
        },
        avoid=("softmax", "log_softmax", "cross_entropy", "CrossEntropyLoss", "nll_loss"),
    ),
)

_LOG = "logits.log_softmax(-1)\n"
_SEEN = "logits = model(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)\n"

MISTAKES = (
    Mistake(
        id="labels-not-shifted",
        sentence="The decoder is given the very word it is asked for: shift its input to the right "
        "by one, behind a start token.",
        step="13",
        target="shift",
        wrong=_labels_not_shifted,
        plant=Plant("training", "= torch.cat([start, target[:, :-1]], dim=1)\n", "= target + 0\n"),
        variants=(lambda target: (target, target),),
    ),
    Mistake(
        id="decoder-sees-source-labels",
        sentence="The encoder is given the sentence that the decoder must write, so that the "
        "answer leaks through the memory: give it the source.",
        step="13",
        target="make_batch",
        wrong=_decoder_sees_source_labels,
        plant=Plant("training", _SEEN, _SEEN.replace("(src, tgt", "(labels.clamp(min=0), tgt")),
    ),
    Mistake(
        id="logits-flattened-wrong",
        sentence="You flattened the logits position by position and the labels sentence by "
        "sentence, so each meets another's answer: flatten both as (batch, tgt).",
        step="13",
        target="loss",
        wrong=_logits_flattened_wrong,
        plant=Plant(
            "training", "= " + _LOG, "= logits.transpose(0, 1).reshape(logits.shape)" + _LOG[6:]
        ),
    ),
    Mistake(
        id="softmax-before-loss",
        sentence="You took softmax before a loss that takes its own, so that even a perfect answer "
        "costs: hand the logits over as they are.",
        step="12",
        target="loss",
        wrong=_softmax_before_loss,
        plant=Plant("training", "= " + _LOG, "= logits.softmax(-1)" + _LOG[6:]),
    ),
)
