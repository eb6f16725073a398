"""Answers that are classes: built, checked, filled with numbers, and called."""

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
    """A class with a docstring only."""


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


def test_run_layer_sets_the_parameters_and_calls_the_layer():
    numbers = {"weight": WEIGHT, "bias": None}
    assert_close(run_layer(Scale, (4, 3), numbers, torch.tensor(2.0)), 2 * WEIGHT)


def test_run_layer_passes_gradients_to_the_given_parameters():
    weight = WEIGHT.clone().requires_grad_()
    run_layer(Scale, (4, 3), {"weight": weight}, torch.tensor(2.0)).sum().backward()
    assert_close(weight.grad, torch.full_like(WEIGHT, 2.0))


@pytest.mark.parametrize("blank", [Blank, Empty])
def test_unwritten_class_gives_an_ellipsis(blank):
    assert build(blank, (4, 3), {"weight": WEIGHT.shape}) is ...
    assert run_layer(blank, (4, 3), {"weight": WEIGHT}, WEIGHT) is ...


def test_class_without_forward_is_named():
    with pytest.raises(Misbuilt, match=r"^NoForward has no method forward\(self, \.\.\.\) yet\.$"):
        run_layer(NoForward, (4, 3), {"weight": WEIGHT}, WEIGHT)


@pytest.mark.parametrize("answer", [Plain, torch.relu])
def test_answer_that_is_no_module_class_is_rejected(answer):
    with pytest.raises(Misbuilt, match=r"class Name\(nn\.Module\)"):
        build(answer, (4, 3), {"weight": WEIGHT.shape})


def test_instance_instead_of_a_class_is_rejected():
    with pytest.raises(Misbuilt, match=r"^The layer is built already: .* without \(\)\.$"):
        build(Scale(4, 3), (4, 3), {"weight": WEIGHT.shape})


@pytest.mark.parametrize(
    ("answer", "names", "message"),
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
def test_class_with_other_parameter_names_is_rejected(answer, names, message):
    with pytest.raises(Misbuilt, match=message):
        build(answer, (4, 3), {name: WEIGHT.shape for name in names})


def test_class_with_another_parameter_shape_is_rejected():
    with pytest.raises(Misbuilt, match=r"weight has the shape \(3, 4\), and \(4, 3\) is due"):
        build(Scale, (3, 4), {"weight": WEIGHT.shape})


class TrainedTable(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_len, d_model))

    def forward(self, x, start):
        return x + self.table[start : start + x.size(1)]


def test_positional_layer_with_a_trained_table_is_rejected():
    verdict = diagnose("03-positional-layer", TrainedTable)
    assert verdict.kind == "call"
    assert verdict.message.endswith("a buffer is due.")
    assert "cannot be called" not in verdict.message
