"""By hand: the KL divergence between two models in both directions, with a temperature."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded

# The example on the page: at temperature 2, the teacher's probabilities are 1/4 and 3/4, and the
# student's are equal.
_TEACHER, _STUDENT = [[[1.0, 9.0]]], [[[1.0, 1.0]]]


def _distillation_cases() -> Cases:
    draw = seeded()
    student, teacher = (torch.tensor(x, dtype=torch.float64).log() for x in (_STUDENT, _TEACHER))
    sizes = SIZES.batch, SIZES.tgt, SIZES.tgt_vocab
    return {
        "two words": (student, teacher, 2.0),
        "temperature 1": (draw(2, 3, 4), draw(2, 3, 4), 1.0),
        "large logits": (1000 * draw(1, 2, 3), 1000 * draw(1, 2, 3), 1.5),
        "all sizes differ": (2 * draw(*sizes), 2 * draw(*sizes), 2.5),
    }


def _run_distillation(answer: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    student, teacher, temperature = given
    # Answers may or may not detach the teacher, which is not trained.
    return answer(student, teacher.detach(), temperature)


@task(
    _distillation_cases,
    forbidden=("kl_div", "KLDivLoss", "kl_divergence"),
    run=_run_distillation,
    measures="the direction of a KL divergence, the temperature, and the mean over tokens",
)
def distillation(student: Tensor, teacher: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """student (batch, seq, vocab), teacher (batch, seq, vocab), temperature -> KL(teacher ||
    student), KL(student || teacher), two numbers
    """
    log_q = (student / temperature).log_softmax(-1)
    log_p = (teacher / temperature).log_softmax(-1)
    forward = (log_p.exp() * (log_p - log_q)).sum(-1).mean()
    reverse = (log_q.exp() * (log_q - log_p)).sum(-1).mean()
    return forward * temperature**2, reverse * temperature**2


_RETURN = "return forward * temperature**2, reverse * temperature**2"
_Q, _P = "(student / temperature).log_softmax(-1)", "(teacher / temperature).log_softmax(-1)"
_F, _R = "(log_p.exp() * (log_p - log_q)).sum(-1)", "(log_q.exp() * (log_q - log_p)).sum(-1)"


def _means(change: str) -> dict[str, str]:
    """Replace the mean over the tokens in both directions."""
    return {f"{way}.mean()": change.format(way) for way in (_F, _R)}


mistake(
    distillation,
    "distillation-directions",
    "The directions are swapped: in KL(p || q), p weights the difference of the logarithms and "
    "its logarithm comes first.",
    {_RETURN: "return reverse * temperature**2, forward * temperature**2"},
)
mistake(
    distillation,
    "distillation-square-missing",
    "The factor T² is missing: the temperature makes gradients smaller by about T², so multiply "
    "both by its square.",
    {_RETURN: "return forward, reverse"},
)
mistake(
    distillation,
    "distillation-one-temperature",
    "Only the student is softened: divide the logits of both models by the temperature.",
    {_P: "teacher.log_softmax(-1)"},
)
mistake(
    distillation,
    "distillation-mean-over-vocab",
    "You took the mean over the vocabulary too: sum over the vocabulary, then take the mean over "
    "the tokens.",
    {
        f"{_F}.mean()": "(log_p.exp() * (log_p - log_q)).mean()",
        f"{_R}.mean()": "(log_q.exp() * (log_q - log_p)).mean()",
    },
)
mistake(
    distillation,
    "distillation-mean-over-batch",
    "You divided by the number of sentences, so the loss grows with their length: divide by the "
    "number of tokens.",
    _means("{}.sum() / len(student)"),
)
mistake(
    distillation,
    "distillation-overflow",
    "You took the logarithm after softmax, where a small probability is already 0: use "
    "log_softmax.",
    {
        _Q: "(student / temperature).softmax(-1).log()",
        _P: "(teacher / temperature).softmax(-1).log()",
    },
)
notes(
    distillation,
    {
        "You multiplied by T: the factor is T².": {
            _RETURN: "return forward * temperature, reverse * temperature"
        },
        "You divided by T²: multiply by it.": {
            _RETURN: "return forward / temperature**2, reverse / temperature**2"
        },
        "Only the first number has the factor T²: the second needs it too.": {
            _RETURN: "return forward * temperature**2, reverse"
        },
        "Neither model is softened: divide the logits by the temperature.": {
            _Q: "student.log_softmax(-1)",
            _P: "teacher.log_softmax(-1)",
        },
        "Only the teacher is softened: divide the logits of both models by the temperature.": {
            _Q: "student.log_softmax(-1)"
        },
        "You multiplied the logits by the temperature: divide them.": {
            _Q: "(student * temperature).log_softmax(-1)",
            _P: "(teacher * temperature).log_softmax(-1)",
        },
        "This is the sum over all tokens: take their mean.": _means("{}.sum()"),
        "The sign is wrong: a KL divergence is never negative.": {
            _RETURN: "return -forward * temperature**2, -reverse * temperature**2"
        },
        "This is the cross entropy: subtract the entropy of the first distribution.": {
            "log_p - log_q": "-log_q",
            "log_q - log_p": "-log_p",
        },
        "Both directions have the weights of the teacher: the second one needs the weights of "
        "the student.": {"log_q.exp()": "log_p.exp()"},
        "Both directions have the weights of the student: the first one needs the weights of "
        "the teacher.": {"log_p.exp()": "log_q.exp()"},
        "Each direction has the wrong weights: take them from the distribution whose logarithm "
        "comes first.": {
            _F: _F.replace("log_p.exp()", "log_q.exp()"),
            _R: _R.replace("log_q.exp()", "log_p.exp()"),
        },
        "Softmax runs over the wrong axis: apply it over the vocabulary.": {
            _Q: "(student / temperature).log_softmax(1)",
            _P: "(teacher / temperature).log_softmax(1)",
        },
        "Softmax runs over all tokens: apply it over the vocabulary of each token.": {
            _Q: "(student / temperature).flatten(0, 1).log_softmax(0).view_as(student)",
            _P: "(teacher / temperature).flatten(0, 1).log_softmax(0).view_as(student)",
        },
        "You took logarithms for probabilities: F.kl_div does so, unless log_target=True.": {
            _F: "(log_p * (log_p.log() - log_q)).sum(-1)",
            _R: "(log_q * (log_q.log() - log_p)).sum(-1)",
        },
        "You passed a probability as the first argument of F.kl_div: pass its logarithm.": {
            _F: "(log_p.exp() * (log_p - log_q.exp())).sum(-1)",
            _R: "(log_q.exp() * (log_q - log_p.exp())).sum(-1)",
        },
        "You used logits as log-probabilities: apply log_softmax to the logits of both models.": {
            _F: "(log_p.exp() * (log_p - student / temperature)).sum(-1)",
            _R: "(log_q.exp() * (log_q - teacher / temperature)).sum(-1)",
        },
        "Both numbers are KL(teacher || student): swap the models in the second one.": {
            _RETURN: "return forward * temperature**2, forward * temperature**2"
        },
        "Both numbers are KL(student || teacher): swap the models in the first one.": {
            _RETURN: "return reverse * temperature**2, reverse * temperature**2"
        },
        "You averaged the two directions: return both.": {
            "forward = X": "forward = (X + (log_q.exp() * (log_q - log_p)).sum(-1).mean()) / 2",
            "reverse = X": "reverse = forward",
        },
        "This is a squared error of the probabilities: take the weighted difference of the "
        "logarithms.": {
            _F: "(log_p.exp() - log_q.exp()).square().sum(-1)",
            _R: "(log_p.exp() - log_q.exp()).square().sum(-1)",
        },
        "You divided the logits by T²: divide them by T.": {
            _Q: "(student / temperature**2).log_softmax(-1)",
            _P: "(teacher / temperature**2).log_softmax(-1)",
        },
        "You returned the two halves of the Jensen-Shannon divergence: compare the models with "
        "each other, not with their average.": {
            "log_p - log_q": "log_p - ((log_p.exp() + log_q.exp()) / 2).log()",
            "log_q - log_p": "log_q - ((log_p.exp() + log_q.exp()) / 2).log()",
        },
        "The weights ignore the temperature: take them from the softened probabilities.": {
            "log_p.exp()": "teacher.softmax(-1)",
            "log_q.exp()": "student.softmax(-1)",
        },
        "You used logarithms to base 2: use natural logarithms.": {
            _RETURN: "return forward * temperature**2 / math.log(2), reverse * temperature**2 / "
            "math.log(2)"
        },
    },
)


@question(decimals=2, measures="a softened probability, and both directions with the factor T²")
def distillation_on_paper() -> list[float]:
    """the teacher's softened probability of word 1, and both losses with the factor T²"""
    student, teacher = (torch.tensor(x).log() for x in (_STUDENT, _TEACHER))
    softened = (teacher / 2).softmax(-1)[0, 0, 1]
    return [softened.item(), *(each.item() for each in distillation(student, teacher, 2.0))]


_FORWARD, _REVERSE = 0.75 * math.log(3) - math.log(2), math.log(2) - math.log(3) / 2
notes(
    distillation_on_paper,
    {
        "The factor T² is missing: multiply both losses by 4.": [0.75, _FORWARD, _REVERSE],
        "The two losses are swapped: the first one has the teacher's probabilities as weights.": [
            0.75,
            4 * _REVERSE,
            4 * _FORWARD,
        ],
        "You did not divide the logits by 2: half of log 9 is log 3.": [
            0.9,
            4 * (0.9 * math.log(9) - math.log(5)),
            4 * (math.log(5) - math.log(9) / 2),
        ],
        "You multiplied by T: the factor is T².": [0.75, 2 * _FORWARD, 2 * _REVERSE],
    },
)
