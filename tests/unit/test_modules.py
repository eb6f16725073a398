"""Answers that are classes: built, looked over, filled with numbers, and called."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from twelve_lab.check import diagnose
from twelve_lab.exercises.modules import Misbuilt, build, run_layer

WEIGHT = torch.arange(12.0).view(4, 3)


class Scale(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(rows, columns))

    def forward(self, x):
        return x * self.weight


class Empty(nn.Module):
    """Say what will come."""


class Blank(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()


class NoForward(Blank):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.weight = nn.Parameter(torch.zeros(rows, columns))


class NotRegistered(Blank):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.weight = torch.zeros(rows, columns)

    def forward(self, x):
        return x * self.weight


class Deep(Blank):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.attention = nn.Linear(columns, rows)

    def forward(self, x):
        return self.attention(x)


class Twin(Deep):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.attention = self.other = nn.Linear(columns, rows, bias=False)


class Plain:
    def __init__(self, rows, columns):
        self.weight = WEIGHT


def test_a_layer_runs_with_the_numbers_that_are_put_into_it():
    numbers = {"weight": WEIGHT, "bias": None}
    assert_close(run_layer(Scale, (4, 3), numbers, torch.tensor(2.0)), 2 * WEIGHT)


def test_the_numbers_that_are_put_in_get_their_gradient():
    weight = WEIGHT.clone().requires_grad_()
    run_layer(Scale, (4, 3), {"weight": weight}, torch.tensor(2.0)).sum().backward()
    assert_close(weight.grad, torch.full_like(WEIGHT, 2.0))


@pytest.mark.parametrize("blank", [Blank, Empty])
def test_a_class_that_is_still_to_be_written_gives_dots(blank):
    assert build(blank, (4, 3), {"weight": WEIGHT.shape}) is ...
    assert run_layer(blank, (4, 3), {"weight": WEIGHT}, WEIGHT) is ...


def test_a_class_that_registers_something_is_no_blank():
    with pytest.raises(Misbuilt, match=r"^NoForward has no method forward\(self, \.\.\.\) yet\.$"):
        run_layer(NoForward, (4, 3), {"weight": WEIGHT}, WEIGHT)


@pytest.mark.parametrize("answer", [Plain, torch.relu])
def test_what_is_no_class_of_layers_is_refused(answer):
    with pytest.raises(Misbuilt, match=r"class Name\(nn\.Module\)"):
        build(answer, (4, 3), {"weight": WEIGHT.shape})


def test_a_layer_that_is_built_already_is_refused():
    with pytest.raises(Misbuilt, match=r"^The layer is built already: .* without \(\)\.$"):
        build(Scale(4, 3), (4, 3), {"weight": WEIGHT.shape})


@pytest.mark.parametrize(
    ("answer", "names", "said"),
    [
        (NotRegistered, ("weight",), r"^NotRegistered\(4, 3\) does not register weight: what"),
        (Scale, ("weight", "bias"), r"^Scale\(4, 3\) does not register bias: what is"),
        (Scale, ("w", "bias"), r"^Scale\(4, 3\) registers weight where w and bias is due\.$"),
        (Scale, (), r"^Scale\(4, 3\) registers weight, which is not due\.$"),
        (Deep, ("attend.weight", "attend.bias"), r"registers attention where attend is due\.$"),
        (Twin, ("attention.weight", "other.weight"), r"^In Twin\(4, 3\), other is no layer of its"),
        (Deep, ("attention.w", "attention.bias"), r"attention.weight where attention.w is due\.$"),
    ],
)
def test_other_names_in_the_register_are_refused(answer, names, said):
    with pytest.raises(Misbuilt, match=said):
        build(answer, (4, 3), {name: WEIGHT.shape for name in names})


def test_another_shape_in_the_register_is_refused():
    with pytest.raises(Misbuilt, match=r"weight has the shape \(3, 4\), and \(4, 3\) is due"):
        build(Scale, (3, 4), {"weight": WEIGHT.shape})


class TrainedTable(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_len, d_model))

    def forward(self, x, start):
        return x + self.table[start : start + x.size(1)]


def test_a_table_of_positions_that_would_be_trained_is_refused():
    verdict = diagnose("03-positional-layer", TrainedTable)
    assert verdict.kind == "call"
    assert verdict.message.endswith("a buffer is due.")
    assert "cannot be called" not in verdict.message
