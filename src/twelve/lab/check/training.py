"""Step 13: what labels and the loss invite."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve.lab import example
from twelve.lab.check.numbers import seeded
from twelve.lab.check.table import Cases, Mistake, Plant, Question, Target
from twelve.training import cross_entropy

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
    sources = (example.src.clone(), torch.tensor([[6], [3], [1]]), example.companion.src.clone())
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
    labels, longer = example.labels.clone(), example.companion.labels.clone()
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


def _first_losses() -> list[float]:
    knows_nothing = torch.zeros(1, 1, 37_000, dtype=torch.float64, device="cpu")
    label = torch.zeros(1, 1, dtype=torch.int64, device="cpu")
    return [cross_entropy(knows_nothing, label).item(), -math.log(0.5)]


QUESTIONS = (
    Question(
        name="first_losses",
        contract="the loss of a model that knows nothing, and where each label gets 0.5",
        right=_first_losses,
        decimals=2,
    ),
)

TARGETS = (
    Target(
        name="shift",
        contract="target (batch, tgt), padded with 0 -> tgt (batch, tgt), which starts with 0, and "
        "labels (batch, tgt), -100 where there is only padding",
        right=_shift,
        cases=_shift_cases,
    ),
    Target(
        name="make_batch",
        contract="src (batch, src), target (batch, tgt) -> src (batch, src), tgt (batch, tgt), "
        "labels (batch, tgt)",
        right=_make_batch,
        cases=_make_batch_cases,
        also={"labels-not-shifted": lambda src, target: (src, *_labels_not_shifted(target))},
    ),
    Target(
        name="loss",
        contract="logits (batch, tgt, vocab), labels (batch, tgt), -100 where none is counted -> "
        "one number",
        right=_loss,
        cases=_loss_cases,
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
