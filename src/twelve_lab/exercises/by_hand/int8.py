"""By hand: row-wise absmax quantisation to int8, and an integer matrix product."""

import torch
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded

# The scales are 0.02 and 0.01, and only 0.516 is rounded.
_ROW, _WEIGHT = [0.516, -2.54, 1.0], [1.27, 0.3, -0.5]


def _rows_cases() -> Cases:
    draw = seeded()
    sizes = draw(2, 3, 4)
    sizes[0] *= 100
    # The largest absolute value belongs to a negative number.
    sizes[1, 0, 2] = -5
    zeros = draw(2, 2, 3)
    zeros[0, 1] = 0
    return {
        "on paper": (torch.tensor([[_ROW, _WEIGHT]], dtype=torch.float64),),
        "large and small rows": (sizes,),
        "a row of zeros": (zeros,),
        "all sizes differ": (draw(SIZES.batch, SIZES.tgt, SIZES.d_k),),
    }


@task(_rows_cases, by_gradient=None, measures="one scale for each row, rounding, a row of zeros")
def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x (batch, seq, feature) -> quantized (batch, seq, feature), scale (batch, seq, 1)"""
    largest = x.abs().amax(-1, keepdim=True)
    scale = torch.where(largest == 0, 1.0, largest / 127)
    return (x / scale).round().to(torch.int8), scale


mistake(
    quantize_rows,
    "int8-one-scale",
    "One scale serves the whole tensor, so one large number takes the precision from all rows: "
    "take the largest absolute value of each row.",
    {"x.abs().amax(-1, keepdim=True)": "x.abs().amax().expand(*x.shape[:-1], 1)"},
)
mistake(
    quantize_rows,
    "int8-truncated",
    "You cut off the decimals, which moves every number towards zero: round before you convert to "
    "int8.",
    {"(x / scale).round()": "(x / scale)"},
)
mistake(
    quantize_rows,
    "int8-divided-by-128",
    "int8 ends at 127, but your scale sends the largest number to 128: divide the largest absolute "
    "value by 127.",
    {"largest / 127": "largest / 128"},
)
again(
    quantize_rows,
    "int8-divided-by-128",
    {"largest / 127": "largest / 128", "(x / scale).round()": "(x / scale).round().clamp(-128, "
     "127)"},
)  # fmt: skip
mistake(
    quantize_rows,
    "int8-sign-lost",
    "You took the largest number of the row, and not the largest absolute value: a larger negative "
    "number does not fit into int8.",
    {"x.abs().amax": "x.amax"},
)
again(
    quantize_rows,
    "int8-sign-lost",
    {"x.abs().amax": "x.amax", "(x / scale).round()": "(x / scale).round().clamp(-127, 127)"},
)
again(
    quantize_rows,
    "int8-sign-lost",
    {"x.abs().amax": "x.amax", "(x / scale).round()": "(x / scale).round().clamp(-128, 127)"},
)
mistake(
    quantize_rows,
    "int8-zero-row",
    "A row of zeros has the scale 0, and 0 divided by 0 is nan: give such a row the scale 1.",
    {"torch.where(largest == 0, 1.0, X)": "X"},
)
notes(
    quantize_rows,
    {
        "Your scale is upside down: return the largest absolute value divided by 127, so that "
        "quantized * scale gives x back.": {
            "return X, scale": "return X, 1 / scale"
        },
        "You returned the largest absolute value as the scale: divide it by 127.": {
            "return X, scale": "return X, largest + (largest == 0)"
        },
        "You rounded down: round to the nearest whole number.": {
            "(x / scale).round()": "(x / scale).floor()"
        },
        "You divided the largest absolute value by 255, which does not fit into int8: divide it "
        "by 127.": {
            "largest / 127": "largest / 255"
        },
        "Each sentence has one scale: take the largest absolute value of each row.": {
            "x.abs().amax(-1, keepdim=True)": "x.abs().amax((-2, -1), keepdim=True)"
            ".expand(*x.shape[:-1], 1)"
        },
        "You quantised to 256 steps from the smallest to the largest number of the row. That needs "
        "a zero point: absmax quantisation is symmetric.": {
            "largest = X": "largest = (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)) / 2",
        },
    },
)  # fmt: skip


def _matmul_cases() -> Cases:
    draw = seeded()
    weight = draw(4, 3)
    weight[2] *= 20
    zeros = draw(2, 3, 4)
    zeros[1, 0] = 0
    row, column = (torch.tensor(x, dtype=torch.float64) for x in (_ROW, _WEIGHT))
    return {
        "on paper": (row[None, None], column[None]),
        "a large row": (draw(2, 2, 3), weight),
        "a row of zeros": (zeros, draw(3, 4)),
        "all sizes differ": (
            draw(SIZES.batch, SIZES.tgt, SIZES.d_k),
            draw(SIZES.d_v, SIZES.d_k),
        ),
    }


@task(_matmul_cases, by_gradient=None, measures="int32 sums, and both scales after the product")
def int8_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """x (batch, seq, d_in), weight (d_out, d_in) -> (batch, seq, d_out)"""
    x_int, x_scale = quantize_rows(x)
    w_int, w_scale = quantize_rows(weight)
    total = x_int.int() @ w_int.int().T
    return total * x_scale * w_scale.T


@solved(int8_matmul)
def _quantized_linear(x, weight):
    tops = x.abs().amax(-1, keepdim=True), weight.abs().amax(-1, keepdim=True)
    x_scale, w_scale = (torch.where(top == 0, 1.0, top / 127) for top in tops)
    x_int = (x / x_scale).round().to(torch.int8)
    w_int = (weight / w_scale).round().to(torch.int8)
    return x_int.int() @ w_int.int().T * x_scale * w_scale.T


mistake(
    int8_matmul,
    "int8-sum-overflows",
    "Products and sums of int8 numbers do not fit into int8 and wrap around: convert to int32 "
    "before you multiply.",
    {"x_int.int() @ w_int.int().T": "x_int @ w_int.T"},
)
mistake(
    int8_matmul,
    "int8-weight-scale-missing",
    "You multiplied by the scale of x only: the sum also contains the scale of each row of the "
    "weight.",
    {"X * w_scale.T": "X"},
)
notes(
    int8_matmul,
    {
        "All rows of the weight share one scale: quantise each row of the weight by its own.": {
            "quantize_rows(weight)": "quantize_rows(weight.reshape(1, -1))",
            "w_int.int().T": "w_int.view_as(weight).int().T",
        },
        "All rows of x share one scale: quantise each row of x by its own.": {
            "quantize_rows(x)": "quantize_rows(x.reshape(1, -1))",
            "x_int.int()": "x_int.view_as(x).int()",
        },
        "Each product wraps around in int8 before you add: convert to int32 before you multiply.": {
            "x_int.int() @ w_int.int().T": "(x_int[..., None, :] * w_int).sum(-1)"
        },
        "You multiplied by the scale of the weight only: the sum also contains the scale of each "
        "row of x.": {"total * x_scale": "total"},
        "You returned the sums of integers: multiply them by both scales.": {
            "total * x_scale * w_scale.T": "total * 1.0"
        },
        "You divided by the scales: x is about quantized * scale, so multiply.": {
            "total * x_scale * w_scale.T": "total / x_scale / w_scale.T"
        },
        "Nothing is quantised here: round both matrices to int8 first.": {
            "return X": "return x @ weight.T"
        },
        "The weight is quantised, but x is not: quantise both.": {
            "x_int.int() @ w_int.int().T": "x @ w_int.to(x.dtype).T",
            "total * x_scale": "total",
        },
        "Only x is quantised: quantise the weight as well.": {
            "x_int.int() @ w_int.int().T": "x_int.to(x.dtype) @ weight.T",
            "X * w_scale.T": "X",
        },
    },
)


@question(measures="the scale, the sum of integers, and the dequantised product")
def int8_on_paper() -> list[float]:
    """the scale of the row of x, the sum of products of integers, the product after both scales"""
    x, weight = torch.tensor([_ROW]), torch.tensor([_WEIGHT])
    (x_int, scale), (w_int, _) = quantize_rows(x), quantize_rows(weight)
    total = (x_int.int() * w_int.int()).sum()
    return [scale.item(), total.item(), int8_matmul(x, weight).item()]


notes(
    int8_on_paper,
    {
        "You cut off the decimals of 25.8: round it to 26.": [0.02, -3135, -0.627],
        "The third number is the exact product: multiply your sum by both scales instead.": [
            0.02, -3008, -0.6067,
        ],
        "Your sum wrapped around in int8: accumulate it in int32.": [0.02, 64, 0.0128],
        "The third number lacks the scale of the weight.": [0.02, -3008, -60.16],
    },
)  # fmt: skip
