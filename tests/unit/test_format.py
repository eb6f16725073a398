"""format_number and format_tensor: by hand, at rounding ties, and on bad input."""

import math
from types import SimpleNamespace

import pytest
import torch

from twelve_lab.show.format import format_number, format_tensor

TWELVE = [
    [[0.0, 1.0, 0.0], [1.661471, 0.690302, 0.362154]],
    [[0.7, 1.2, 0.4], [1.441471, 0.840302, 0.502154]],
]
WORDS = [["<pad>", "cat"], ["dog", "fish"]]


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [
        (0.0, 4, "0.0000"), (-0.0, 4, "0.0000"), (-0.00004, 4, "0.0000"),
        (-0.00006, 4, "-0.0001"), (-12.5, 4, "-12.5000"), (math.nan, 4, "nan"),
        (math.inf, 4, "inf"), (-math.inf, 4, "-inf"), (7, 4, "7"), (True, 4, "True"),
        (0.125, 2, "0.13"), (2.5, 0, "3"), (3, 2, "3"),
    ],
)  # fmt: skip
def test_format_number_by_hand(value, decimals, text):
    assert format_number(value, decimals) == text


@pytest.mark.parametrize("noise", [-5e-9, -1e-15, 1e-15, 5e-9])
def test_format_number_rounds_a_tie_away_from_zero_despite_noise(noise):
    for tie, text in {0.00005: "0.0001", 0.12345: "0.1235", 2.00015: "2.0002"}.items():
        assert format_number(tie + noise) == text
        assert format_number(-tie + noise) == f"-{text}"


# A tensor, its axis names, its labels, and the expected text.
TENSORS = {
    "words of each sentence": (TWELVE, "batch src d_model", {"src": WORDS}, """
(batch=2, src=2, d_model=3)
           d_model       0       1       2
batch 0  src <pad>  0.0000  1.0000  0.0000
         src cat    1.6615  0.6903  0.3622
batch 1  src dog    0.7000  1.2000  0.4000
         src fish   1.4415  0.8403  0.5022"""),
    "columns named for each sentence": (
        [[[1, 2]], [[3, 4]]], "batch query key", {"key": WORDS}, """
(batch=2, query=1, key=2)
             key  <pad>    cat
batch 0  query 0      1      2
             key    dog   fish
batch 1  query 0      3      4"""),
    "mask": (torch.ones(1, 1, 2, 2, dtype=torch.bool).tril(), "batch 1 query key", None, """
(batch=1, 1, query=2, key=2)  · = False
             key     0     1
batch 0  query 0  True     ·
         query 1  True  True"""),
    "no axis": (0.25, "", None, "\n(scalar)  0.2500"),
    "one axis": ([1.0, -2.0], "d_k", None, """
(d_k=2)
d_k        0        1
      1.0000  -2.0000"""),
    "no number": (torch.zeros(0, 3), "src d_model", None, "\n(src=0, d_model=3)  empty"),
    "axis of size 1": ([[1.0], [2.0]], "src 1", None, "\n(src=2, 1)\nsrc 0  1.0000\nsrc 1  2.0000"),
    "odd values": ([math.nan, math.inf, -math.inf, -0.0], "key", None, """
(key=4)
key       0       1       2       3
        nan     inf    -inf  0.0000"""),
    "long axis": (torch.arange(20), "key", None, """
(key=20)
key   0   1   2   3   …  16  17  18  19
      0   1   2   3   …  16  17  18  19"""),
}  # fmt: skip


@pytest.mark.parametrize(("x", "axes", "labels", "text"), TENSORS.values(), ids=TENSORS)
def test_format_tensor_by_hand(x, axes, labels, text):
    assert format_tensor(x, axes, labels=labels) == text[1:]


def test_format_tensor_continues_below_if_columns_do_not_fit():
    x = [[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]]
    assert format_tensor(x, "src d_k", width=23).splitlines() == [
        "(src=2, d_k=3)",
        "  d_k        0        1",
        "src 0   1.0000  -2.0000",
        "src 1   4.0000   5.0000",
        "  d_k        2",
        "src 0   3.0000",
        "src 1   6.0000",
    ]
    assert format_tensor(x, "src d_k", width=32) == format_tensor(x, "src d_k")
    assert format_tensor(x, "src d_k", width=1).count("src 0") == 3


def test_format_tensor_accepts_a_tensor_a_list_and_a_trace_entry():
    torch.set_default_dtype(torch.float32)
    leaf = torch.tensor(TWELVE, dtype=torch.float64, requires_grad=True)
    entry = SimpleNamespace(value=leaf, axes=("batch", "src", "d_model"))
    text = format_tensor(TWELVE, "batch src d_model", decimals=10)
    assert "1.4414710000" in text
    assert format_tensor(leaf * 1, "batch src d_model", decimals=10) == text
    assert format_tensor(entry, decimals=10) == text
