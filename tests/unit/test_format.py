"""Printed numbers: by hand, then the laws that keep CPU and GPU alike, then errors."""

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


def lines(*rows: str) -> str:
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0000"),
        (-0.0, "0.0000"),
        (-0.00004, "0.0000"),
        (-0.00006, "-0.0001"),
        (1.441471, "1.4415"),
        (-12.5, "-12.5000"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (7, "7"),
        (True, "True"),
    ],
)
def test_a_number_by_hand(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("value", "decimals", "text"), [(0.125, 2, "0.13"), (2.5, 0, "3"), (3, 2, "3")]
)
def test_decimals_round_ties_away_from_zero_and_ints_ignore_them(value, decimals, text):
    assert format_number(value, decimals) == text


@pytest.mark.parametrize("noise", [-5e-9, -1e-15, 0.0, 1e-15, 5e-9])
@pytest.mark.parametrize("tie", [0.00005, 0.12345, 2.00015])
def test_a_tie_goes_away_from_zero_whatever_its_last_bits_say(tie, noise):
    above = {0.00005: "0.0001", 0.12345: "0.1235", 2.00015: "2.0002"}[tie]
    assert format_number(tie + noise) == above
    assert format_number(-tie + noise) == f"-{above}"


def test_three_axes_by_hand():
    assert format_tensor(TWELVE, "batch src d_model") == lines(
        "(batch=2, src=2, d_model=3)",
        "       d_model       0       1       2",
        "batch 0  src 0  0.0000  1.0000  0.0000",
        "         src 1  1.6615  0.6903  0.3622",
        "batch 1  src 0  0.7000  1.2000  0.4000",
        "         src 1  1.4415  0.8403  0.5022",
    )
    words = format_tensor(TWELVE, "batch src d_model", labels={"src": WORDS}).splitlines()
    assert words[2:4] == [
        "batch 0  src <pad>  0.0000  1.0000  0.0000",
        "         src cat    1.6615  0.6903  0.3622",
    ]


def test_columns_are_named_anew_for_each_sentence():
    text = format_tensor([[[1, 2]], [[3, 4]]], "batch query key", labels={"key": WORDS})
    assert text == lines(
        "(batch=2, query=1, key=2)",
        "              key  <pad>    cat",
        "batch 0  query 0      1      2",
        "              key    dog   fish",
        "batch 1  query 0      3      4",
    ).replace("              key", "             key")


def test_a_mask_by_hand():
    mask = torch.ones(1, 1, 2, 2, dtype=torch.bool).tril()
    assert format_tensor(mask, "batch 1 query key") == lines(
        "(batch=1, 1, query=2, key=2)  · = False",
        "             key     0     1",
        "batch 0  query 0  True     ·",
        "         query 1  True  True",
    )


def test_no_axis_one_axis_and_an_axis_of_size_one():
    assert format_tensor(0.25, "") == "(scalar)  0.2500"
    assert (
        format_tensor([1.0, -2.0], "d_k") == "(d_k=2)\nd_k        0        1\n      1.0000  -2.0000"
    )
    assert format_tensor(torch.zeros(0, 3), "src d_model") == "(src=0, d_model=3)  empty"
    assert format_tensor([[1.0], [2.0]], "src 1") == "(src=2, 1)\nsrc 0  1.0000\nsrc 1  2.0000"


def test_five_axes_name_every_block_once():
    text = format_tensor(torch.arange(32).view(2, 2, 2, 2, 2), "a b c d e").splitlines()
    assert len(text) == 2 + 16
    assert text[2] == "a 0  b 0  c 0  d 0   0   1"
    assert text[3] == "               d 1   2   3"
    assert text[6] == "     b 1  c 0  d 0   8   9"
    assert sum("a 1" in line for line in text) == 1


def test_odd_values_are_spelled_out_in_one_width():
    text = format_tensor([math.nan, math.inf, -math.inf, -0.0], "key").splitlines()[-1]
    assert text.split() == ["nan", "inf", "-inf", "0.0000"]
    assert len(text) == len("key") + 4 * (2 + len("0.0000"))


def test_a_long_axis_shows_its_two_ends():
    text = format_tensor(torch.arange(20), "position")
    assert text.splitlines()[1].split()[1:] == ["0", "1", "2", "3", "…", "16", "17", "18", "19"]
    assert "…" not in format_tensor(torch.zeros(12), "key")
    assert "…" in format_tensor(torch.zeros(13), "key")
    assert len(format_tensor(torch.zeros(20, 20, 3), "a b c").splitlines()) < 90


def test_a_tensor_a_list_and_a_trace_entry_give_the_same_text():
    torch.set_default_dtype(torch.float32)
    leaf = torch.tensor(TWELVE, dtype=torch.float64, requires_grad=True)
    text = format_tensor(TWELVE, "batch src d_model", decimals=10)
    assert "1.4414710000" in text
    assert format_tensor(leaf * 1, "batch src d_model", decimals=10) == text
    assert format_tensor(SimpleNamespace(value=leaf, axes=("batch", "src", "d_model")),
                         decimals=10) == text  # fmt: skip


@pytest.mark.parametrize(
    ("x", "axes", "labels", "message"),
    [
        (TWELVE, "src d_model", {}, r"'src d_model' has 2 names.*3 axes.*\(2, 2, 3\)"),
        (TWELVE, None, {}, "axes is missing"),
        ([[1, 2]], "batch 1", {}, "axis '1' of 'batch 1' has size 2"),
        (
            TWELVE[0],
            "src d_model",
            {"src": ["a"] * 3},
            r"labels\['src'\] has 3 names, but axis src",
        ),
        (TWELVE[0], "src d_model", {"src": []}, r"labels\['src'\] has 0 names, but axis src"),
        (TWELVE[0], "src d_model", {"src": WORDS}, r"labels\['src'\] has 2 lists.*no batch axis"),
    ],
)
def test_format_tensor_refuses_axes_and_labels_that_do_not_fit(x, axes, labels, message):
    with pytest.raises(ValueError, match=message):
        format_tensor(x, axes, labels=labels)
