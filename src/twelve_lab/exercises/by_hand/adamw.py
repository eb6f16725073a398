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
    "The cosine starts at step 0, so the learning rate jumps after the warm-up: count the steps "
    "of the cosine from the end of the warm-up.",
    {_PROGRESS: "steps / total"},
)
mistake(
    cosine_schedule,
    "cosine-ends-late",
    "The cosine does not reach 0 at the last step: spread it over total - warmup steps, not over "
    "total.",
    {_PROGRESS: "(steps - warmup) / total"},
)
mistake(
    cosine_schedule,
    "cosine-not-shifted",
    "The learning rate becomes negative: the cosine runs from 1 to -1, so add 1 and halve the sum.",
    {_FALLING: "torch.cos(math.pi * progress)"},
)
mistake(
    cosine_schedule,
    "cosine-quarter",
    "You took a quarter of a period, which does not flatten out at 0: take half a period, from 1 "
    "to -1, then add 1 and halve the sum.",
    {_FALLING: "torch.cos(math.pi / 2 * progress)"},
)
mistake(
    cosine_schedule,
    "cosine-warmup-above-zero",
    "The warm-up starts at 1 / warmup: at step 0 the learning rate should be 0.",
    {_RISING: "(steps + 1) / max(warmup, 1)"},
)
notes(
    cosine_schedule,
    {
        "You took a whole period, so the learning rate rises again: use pi, not 2 pi.": {
            "math.pi": "2 * math.pi"
        },
        "You did not halve the sum: 1 + cosine runs from 2 to 0.": {_FALLING: _FALLING[:-4]},
        "The learning rate falls along a line: it should follow a cosine.": {
            _FALLING: "1 - progress"
        },
        "There is no warm-up: the learning rate should rise from 0 in the first steps.": {
            "torch.where(X, Y, Z)": "falling"
        },
        "The cosine starts at step 0 and has too few steps: subtract warmup from the step.": {
            _PROGRESS: "steps / (total - warmup)"
        },
        "The factor pi is missing: progress runs from 0 to 1, but half a period runs from 0 to "
        "pi.": {
            "math.pi * progress": "progress"
        },
        "You used degrees: the cosine takes radians, so half a period is pi, not 180.": {
            "math.pi": "180"
        },
        "You took a sine, which starts in the middle: use a cosine, which starts at its peak.": {
            "torch.cos(X)": "torch.sin(X)"
        },
        "The learning rate is at its peak during the whole warm-up: it should rise from 0.": {
            _RISING: "torch.ones(len(steps))"
        },
        "The learning rate is 0 during the whole warm-up: it should rise linearly.": {
            _RISING: "torch.zeros(len(steps))"
        },
        "The warm-up is not multiplied by the peak.": {_RISING: f"{_RISING} / peak"},
        "The learning rate is 0 one step too early: it should reach 0 at step `total`.": {
            _PROGRESS: "(steps - warmup) / (total - 1 - warmup)"
        },
        "You multiplied a warm-up by a cosine that starts at step 0: the cosine should start "
        "after the warm-up.": {
            _PROGRESS: "steps / total",
            "peak * X": "peak * (steps / max(warmup, 1)).clamp(max=1) * falling",
        },
        "The warm-up reaches the peak too late: the learning rate should be at its peak at "
        "step `warmup`.": {
            _RISING: "steps / (warmup + 1)"
        },
        "The learning rate is not multiplied by the peak.": {"peak * X": "X"},
        "You also applied the cosine during the warm-up: use only the line there.": {
            "peak * X": "peak * (steps / max(warmup, 1)).clamp(max=1) * falling"
        },
        "In the warm-up, you divided by the number of all steps: divide by the number of "
        "warm-up steps.": {
            _RISING: "steps / total"
        },
        "The cosine runs the wrong way: it should fall from 1 to 0.": {"1 + torch.cos(X)":
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
    "The moments are not corrected: both start at 0, so divide the first moment by 1 - 0.9^step "
    "and the second by 1 - 0.999^step.",
    {_DIRECTION: "mean", _SIZE: "square.sqrt() + 1e-8"},
)
mistake(
    adamw_step,
    "adamw-decay-in-gradient",
    "You added the decay to the gradient, as Adam with L2 does, so the square root divides the "
    "decay too. Subtract lr * decay * weight directly from the weight.",
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
    "You added eps inside the square root, where it has a much larger effect: add it after the "
    "square root.",
    {_SIZE: "(square / (1 - 0.999**step) + 1e-8).sqrt()"},
)
mistake(
    adamw_step,
    "adamw-corrected-kept",
    "You returned the corrected moments, which the next step would correct again: return the "
    "uncorrected moments.",
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
        "You added eps before the bias correction, so the correction enlarges it in the first "
        "steps: add eps to the corrected square root.": {
            _SIZE: "(square.sqrt() + 1e-8) / (1 - 0.999**step) ** 0.5"
        },
        "The weight does not decay: subtract lr * decay * weight.": {
            _WEIGHT: "weight - lr * direction / size"
        },
        "The weight grows: subtract lr * decay * weight.": {
            _WEIGHT: "weight - lr * direction / size + lr * decay * weight"
        },
        "The step goes uphill: subtract it.": {
            _WEIGHT: "weight + lr * direction / size - lr * decay * weight"
        },
        "You decayed the new weight: use the weight from before the step.": {
            _WEIGHT: "(weight - lr * direction / size) * (1 - lr * decay)"
        },
        "You divided the decay by the square root too: keep the decay out of the moments.": {
            _WEIGHT: "weight - lr * (direction + decay * weight) / size"
        },
        "You counted steps from 0: the first step is step 1.": {
            _DIRECTION: "mean / (1 - 0.9 ** (step + 1))",
            "square / (1 - 0.999**step)": "square / (1 - 0.999 ** (step + 1))",
        },
        "You corrected by 1 - 0.9 at every step: the exponent must grow with the step.": {
            _DIRECTION: "mean / (1 - 0.9)",
            "square / (1 - 0.999**step)": "square / (1 - 0.999)",
        },
        "You swapped the two constants: use 0.9 for the mean and 0.999 for the square.": {
            _MEAN: "0.999 * mean + 0.001 * gradient",
            _SQUARE: "0.9 * square + 0.1 * gradient**2",
            _DIRECTION: "mean / (1 - 0.999**step)",
            "square / (1 - 0.999**step)": "square / (1 - 0.9**step)",
        },
        "You added the whole gradient to the mean: add a tenth of it.": {
            _MEAN: "0.9 * mean + gradient"
        },
        "You did not square the gradient in the second moment.": {
            _SQUARE: "0.999 * square + 0.001 * gradient"
        },
        "You used the absolute value of the gradient for the second moment: square the gradient.": {
            _SQUARE: "0.999 * square + 0.001 * gradient.abs()"
        },
        "You squared the mean for the second moment: square the gradient.": {
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
        "The learning rate is missing from the step.": {
            _WEIGHT: "weight - direction / size - lr * decay * weight"
        },
        "The two moments are swapped: return weight, mean, square.": {
            "return X, mean, square": "return X, square, mean"
        },
        "You squared the difference from the mean, as in a variance: square the gradient itself.": {
            _SQUARE: "0.999 * square + 0.001 * (gradient - mean) ** 2"
        },
        "You used 0.99 for the second moment: use 0.999.": {
            _SQUARE: "0.99 * square + 0.01 * gradient**2",
            "square / (1 - 0.999**step)": "square / (1 - 0.99**step)",
        },
        "You multiplied by the step number: use it as the exponent.": {
            _DIRECTION: "mean / (1 - 0.9 * step)",
            "square / (1 - 0.999**step)": "square / (1 - 0.999 * step)",
        },
        "All entries share one square root: give each entry of the weight its own.": {
            "square / (1 - 0.999**step)": "(square / (1 - 0.999**step)).mean()"
        },
        "You left out eps: add 1e-8 to the square root.": {
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
        "The first two numbers are right. The weight must also decay: subtract 0.1 times 0.25 "
        "times 2.": [
            0.4, 4, 1.9,
        ],
        "The first two numbers are right. Multiply the decay by the learning rate too: "
        "subtract 0.1 times 0.25 times 2.": [0.4, 4, 1.4],
        "The first two numbers are right. Divide the corrected mean by the square root of the "
        "corrected square. This root is 4 as well.": [0.4, 4, 1.55],
        "The first two numbers are right. The corrected mean divided by the square root is 4 / "
        "4, so multiply 1 by the learning rate.": [0.4, 4, 0.95],
        "The first two numbers are right. Correct the second moment too: it is 0.016 before "
        "the correction and 16 after it.": [0.4, 4, 2 - 0.05 - 0.4 / 0.016**0.5],
    },
)  # fmt: skip
