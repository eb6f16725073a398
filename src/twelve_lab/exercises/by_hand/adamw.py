"""By hand: one step of AdamW, and a learning rate with warmup and cosine decay."""

import math

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import seeded


def _schedule_cases() -> Cases:
    return {
        "two steps of warm-up": (torch.arange(7), 2, 6, 8.0),
        "no warm-up": (torch.tensor([0, 1, 3, 4]), 0, 4, 1.0),
        "all sizes differ": (torch.tensor([0, 1, 4, 5, 9, 17, 20]), 5, 20, 3.0),
    }


@task(
    _schedule_cases,
    by_gradient=None,
    measures="a warm-up from zero, and half a period of a cosine over the other steps",
)
def cosine_schedule(steps: Tensor, warmup: int, total: int, peak: float) -> Tensor:
    """steps (step), counted from 0, warmup, total, peak -> learning rates (step)"""
    rising = steps / max(warmup, 1)
    progress = (steps - warmup) / (total - warmup)
    falling = (1 + torch.cos(math.pi * progress)) / 2
    return peak * torch.where(steps < warmup, rising, falling)


_PROGRESS, _RISING = "(steps - warmup) / (total - warmup)", "steps / max(warmup, 1)"
_FALLING = "(1 + torch.cos(math.pi * progress)) / 2"
mistake(
    cosine_schedule,
    "cosine-counts-warmup",
    "The cosine starts at step 0, so that the learning rate jumps after the warm-up: count its "
    "steps from the end of the warm-up.",
    {_PROGRESS: "steps / total"},
)
mistake(
    cosine_schedule,
    "cosine-ends-late",
    "The cosine does not reach 0 at the last step: it has total - warmup steps, not total.",
    {_PROGRESS: "(steps - warmup) / total"},
)
mistake(
    cosine_schedule,
    "cosine-not-shifted",
    "The learning rate becomes negative: a cosine runs from 1 to -1, so add 1 and halve.",
    {_FALLING: "torch.cos(math.pi * progress)"},
)
mistake(
    cosine_schedule,
    "cosine-quarter",
    "You took a quarter of a period, which falls to 0 without a flat end: take half a period, from "
    "1 to -1, then add 1 and halve.",
    {_FALLING: "torch.cos(math.pi / 2 * progress)"},
)
mistake(
    cosine_schedule,
    "cosine-warmup-above-zero",
    "The warm-up starts at 1 / warmup: at step 0 the learning rate is 0.",
    {_RISING: "(steps + 1) / max(warmup, 1)"},
)
notes(
    cosine_schedule,
    {
        "You took a whole period, so that the learning rate rises again: use pi, not 2 pi.": {
            "math.pi": "2 * math.pi"
        },
        "You did not halve: 1 + cosine runs from 2 to 0.": {_FALLING: _FALLING[:-4]},
        "The learning rate falls along a line: it falls like a cosine.": {_FALLING: "1 - progress"},
        "There is no warm-up: in the first steps, the learning rate rises from 0.": {
            "torch.where(X, Y, Z)": "falling"
        },
        "The cosine counts from step 0 and has too few steps: subtract warmup from the step.": {
            _PROGRESS: "steps / (total - warmup)"
        },
        "The factor pi is missing: progress runs from 0 to 1, half a period from 0 to pi.": {
            "math.pi * progress": "progress"
        },
        "You passed degrees: a cosine takes radians, so half a period is pi and not 180.": {
            "math.pi": "180"
        },
        "You took a sine, which starts in the middle: the cosine starts at its peak.": {
            "torch.cos(X)": "torch.sin(X)"
        },
        "The learning rate has its peak during the whole warm-up: it rises from 0.": {
            _RISING: "torch.ones(len(steps))"
        },
        "The learning rate is 0 during the whole warm-up: it rises along a line.": {
            _RISING: "torch.zeros(len(steps))"
        },
        "The warm-up is not multiplied by the peak.": {_RISING: f"{_RISING} / peak"},
        "The learning rate is 0 one step too early: it is 0 at step `total`.": {
            _PROGRESS: "(steps - warmup) / (total - 1 - warmup)"
        },
        "You multiplied a warm-up by a cosine that counts from step 0: the cosine begins after "
        "the warm-up.": {
            _PROGRESS: "steps / total",
            "peak * X": "peak * (steps / max(warmup, 1)).clamp(max=1) * falling",
        },
        "The warm-up reaches its peak too late: step `warmup` has the peak.": {
            _RISING: "steps / (warmup + 1)"
        },
        "The learning rate is not multiplied by the peak.": {"peak * X": "X"},
        "The cosine also acts during the warm-up: use the line alone there.": {
            "peak * X": "peak * (steps / max(warmup, 1)).clamp(max=1) * falling"
        },
        "The warm-up divides by all steps: divide by the steps of the warm-up.": {
            _RISING: "steps / total"
        },
        "The cosine runs the wrong way: it falls from 1 to 0.": {"1 + torch.cos(X)":
                                                                "1 - torch.cos(X)"},
    },
)  # fmt: skip


def _adamw_cases() -> Cases:
    draw = seeded()
    one = torch.ones(1, 1, dtype=torch.float64)

    def case(step: int, lr: float, decay: float, size: float = 1.0) -> tuple:
        weight, gradient, mean = (draw(4, 7) for _ in range(3))
        square = draw(4, 7).square() + 0.1
        return weight, size * gradient, size * mean, size**2 * square, step, lr, decay

    return {
        "first step": (2 * one, 4 * one, 0 * one, 0 * one, 1, 0.1, 0.25),
        "small gradients": case(2, 0.5, 0.1, 1e-8),
        "no decay": case(50, 0.5, 0.0),
        "all sizes differ": case(3, 0.5, 0.6),
    }


@task(
    _adamw_cases,
    forbidden=("AdamW", "adamw", "Adam"),
    by_gradient=None,
    measures="bias correction, and a decay that does not pass through the moments",
)
def adamw_step(
    weight: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    step: int,
    lr: float,
    decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """weight (row, column), gradient (row, column), mean (row, column), square (row, column), step
    counted from 1, lr, decay -> new weight (row, column), mean (row, column), square (row, column)
    """
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.999 * square + 0.001 * gradient**2
    direction = mean / (1 - 0.9**step)
    size = (square / (1 - 0.999**step)).sqrt() + 1e-8
    return weight - lr * direction / size - lr * decay * weight, mean, square


_MEAN, _SQUARE = "0.9 * mean + 0.1 * gradient", "0.999 * square + 0.001 * gradient**2"
_DIRECTION, _SIZE = "mean / (1 - 0.9**step)", "(square / (1 - 0.999**step)).sqrt() + 1e-8"
_WEIGHT = "weight - lr * direction / size - lr * decay * weight"
mistake(
    adamw_step,
    "adamw-bias-uncorrected",
    "The moments are not corrected: both start at 0, so divide them by 1 - 0.9^step and "
    "1 - 0.999^step.",
    {_DIRECTION: "mean", _SIZE: "square.sqrt() + 1e-8"},
)
mistake(
    adamw_step,
    "adamw-decay-in-gradient",
    "You added the decay to the gradient, which is Adam with L2: the root then divides the decay "
    "too. Subtract lr * decay * weight from the weight alone.",
    {
        _MEAN: "0.9 * mean + 0.1 * (gradient + decay * weight)",
        _SQUARE: "0.999 * square + 0.001 * (gradient + decay * weight) ** 2",
        _WEIGHT: "weight - lr * direction / size",
    },
)
mistake(
    adamw_step,
    "adamw-decay-without-rate",
    "The decay is not multiplied by the learning rate: subtract lr * decay * weight.",
    {_WEIGHT: "weight - lr * direction / size - decay * weight"},
)
mistake(
    adamw_step,
    "adamw-eps-inside",
    "You added eps under the root, where it matters far more: add it after the root.",
    {_SIZE: "(square / (1 - 0.999**step) + 1e-8).sqrt()"},
)
mistake(
    adamw_step,
    "adamw-corrected-kept",
    "You returned the corrected moments, which the next step would correct again: keep the "
    "uncorrected ones.",
    {
        "return X, mean, square": "return X, direction, square / (1 - 0.999**step)",
    },
)
mistake(
    adamw_step,
    "adamw-root-missing",
    "You divided by the second moment: divide by its square root.",
    {_SIZE: "square / (1 - 0.999**step) + 1e-8"},
)
notes(
    adamw_step,
    {
        "Only the second moment is corrected: correct the first one too.": {_DIRECTION: "mean"},
        "Only the first moment is corrected: correct the second one too.": {
            _SIZE: "square.sqrt() + 1e-8"
        },
        "You added eps before the bias correction, which makes eps larger in the first steps: add "
        "it to the corrected root.": {_SIZE: "(square.sqrt() + 1e-8) / (1 - 0.999**step) ** 0.5"},
        "The weight does not decay: subtract lr * decay * weight.": {
            _WEIGHT: "weight - lr * direction / size"
        },
        "The weight grows: subtract lr * decay * weight.": {
            _WEIGHT: "weight - lr * direction / size + lr * decay * weight"
        },
        "The step goes up the slope: subtract it.": {
            _WEIGHT: "weight + lr * direction / size - lr * decay * weight"
        },
        "You decayed the new weight: the decay uses the weight before the step.": {
            _WEIGHT: "(weight - lr * direction / size) * (1 - lr * decay)"
        },
        "The decay is divided by the root too: it must not pass through the moments.": {
            _WEIGHT: "weight - lr * (direction + decay * weight) / size"
        },
        "You counted steps from 0: the first step has the number 1 already.": {
            _DIRECTION: "mean / (1 - 0.9 ** (step + 1))",
            "square / (1 - 0.999**step)": "square / (1 - 0.999 ** (step + 1))",
        },
        "You corrected by 1 - 0.9 at every step: the power grows with the step.": {
            _DIRECTION: "mean / (1 - 0.9)",
            "square / (1 - 0.999**step)": "square / (1 - 0.999)",
        },
        "You exchanged the two constants: the mean keeps 0.9, the square 0.999.": {
            _MEAN: "0.999 * mean + 0.001 * gradient",
            _SQUARE: "0.9 * square + 0.1 * gradient**2",
            _DIRECTION: "mean / (1 - 0.999**step)",
            "square / (1 - 0.999**step)": "square / (1 - 0.9**step)",
        },
        "You added the whole gradient to the mean: add a tenth of it.": {
            _MEAN: "0.9 * mean + gradient"
        },
        "The second moment does not square the gradient.": {
            _SQUARE: "0.999 * square + 0.001 * gradient"
        },
        "The second moment takes the absolute gradient: square it.": {
            _SQUARE: "0.999 * square + 0.001 * gradient.abs()"
        },
        "The second moment squares the mean: square the gradient.": {
            _SQUARE: "0.999 * square + 0.001 * mean**2"
        },
        "You used the gradient itself as the direction: use the corrected mean.": {
            _DIRECTION: "gradient"
        },
        "You used the moments from before this step: update them first.": {
            _DIRECTION: "(mean - 0.1 * gradient) / 0.9 / (1 - 0.9**step)",
            "square / (1 - 0.999**step)": "(square - 0.001 * gradient**2) / 0.999 / "
            "(1 - 0.999**step)",
        },
        "The learning rate is missing in the step.": {
            _WEIGHT: "weight - direction / size - lr * decay * weight"
        },
        "The two moments are exchanged: return weight, mean, square.": {
            "return X, mean, square": "return X, square, mean"
        },
        "You squared the distance to the mean, as a variance does: square the gradient itself.": {
            _SQUARE: "0.999 * square + 0.001 * (gradient - mean) ** 2"
        },
        "The second moment keeps 0.99: it keeps 0.999.": {
            _SQUARE: "0.99 * square + 0.01 * gradient**2",
            "square / (1 - 0.999**step)": "square / (1 - 0.99**step)",
        },
        "You multiplied by the number of the step: the correction takes a power.": {
            _DIRECTION: "mean / (1 - 0.9 * step)",
            "square / (1 - 0.999**step)": "square / (1 - 0.999 * step)",
        },
        "All entries share one root: each entry of the weight has its own.": {
            "square / (1 - 0.999**step)": "(square / (1 - 0.999**step)).mean()"
        },
        "Your eps is missing: add 1e-8 to the root.": {
            _SIZE: "(square / (1 - 0.999**step)).sqrt()"
        },
        "Your eps is not 1e-8.": {"1e-8": "1e-6"},
    },
)


@question(decimals=3, measures="a moment, its correction, and a step whose size is the rate")
def adamw_on_paper() -> list[float]:
    """the new mean, the corrected mean, and the new weight after the first step"""
    weight, gradient, zero = (torch.full((1, 1), x) for x in (2.0, 4.0, 0.0))
    after, mean, _ = adamw_step(weight, gradient, zero, zero, 1, 0.1, 0.25)
    return [mean.item(), (mean / (1 - 0.9)).item(), after.item()]


notes(
    adamw_on_paper,
    {
        "The first two are right. The weight also decays: subtract 0.1 times 0.25 times 2.": [
            0.4, 4, 1.9,
        ],
        "The first two are right. The decay is multiplied by the learning rate too: subtract 0.1 "
        "times 0.25 times 2.": [0.4, 4, 1.4],
        "The first two are right. The corrected mean is divided by the root of the corrected "
        "square, which is 4 as well.": [0.4, 4, 1.55],
        "The first two are right. The corrected mean divided by the root is 4 / 4, and the "
        "learning rate multiplies this 1.": [0.4, 4, 0.95],
        "The first two are right. The second moment must be corrected too: it is 0.016 before, and "
        "16 after.": [0.4, 4, 2 - 0.05 - 0.4 / 0.016**0.5],
    },
)  # fmt: skip
