"""Answers that are classes: the checker builds them, checks their parameters and calls them."""

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
    """Explain the plan."""


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


class Buffered(Blank):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.register_buffer("weight", torch.zeros(rows, columns))

    def forward(self, x):
        return x * self.weight


class Frozen(Scale):
    def __init__(self, rows, columns):
        super().__init__(rows, columns)
        self.weight.requires_grad_(False)


class TrainedTable(nn.Module):
    def __init__(self, d_model, max_len):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(max_len, d_model))

    def forward(self, x, start):
        return x + self.table[start : start + x.size(1)]


def test_run_layer_sets_the_parameters_and_keeps_their_gradient():
    weight = WEIGHT.clone().requires_grad_()
    output = run_layer(Scale, (4, 3), {"weight": weight, "bias": None}, torch.tensor(2.0))
    output.sum().backward()
    assert_close(output, 2 * WEIGHT)
    assert_close(weight.grad, torch.full_like(WEIGHT, 2.0))


@pytest.mark.parametrize("blank", [Blank, Empty])
def test_an_unfinished_class_gives_an_ellipsis(blank):
    assert build(blank, (4, 3), {"weight": WEIGHT.shape}) is ...
    assert run_layer(blank, (4, 3), {"weight": WEIGHT}, WEIGHT) is ...


@pytest.mark.parametrize(
    ("answer", "names", "message"),
    [
        (NoForward, ["weight"], "NoForward has no method forward(self, ...) yet."),
        (Plain, ["weight"], "class Name(nn.Module)"),
        (torch.relu, ["weight"], "class Name(nn.Module)"),
        (Scale(4, 3), ["weight"], "The layer is already built. Pass the class itself, without ()."),
        (NotRegistered, ["weight"], "NotRegistered(4, 3) does not register weight. Assign"),
        (Scale, ["weight", "bias"], "Scale(4, 3) does not register bias. Assign"),
        (Scale, ["w", "bias"], "Scale(4, 3) registers weight, expected w, bias."),
        (Scale, [], "Scale(4, 3) registers weight, which it does not need."),
        (Deep, ["attend.weight", "attend.bias"], "registers attention, expected attend."),
        (Deep, ["attention.w", "attention.bias"], "attention.weight, expected attention.w."),
        (Twin, ["attention.weight", "other.weight"], "one layer under two names"),
        (Buffered, ["weight"], "weight is not trained. Assign an nn.Parameter to self"),
        (Frozen, ["weight"], "weight is not trained."),
    ],
)  # fmt: skip
def test_build_rejects_other_parameters(answer, names, message):
    with pytest.raises(Misbuilt) as error:
        build(answer, (4, 3), {name: WEIGHT.shape for name in names})
    assert message in str(error.value)


def test_build_rejects_a_parameter_of_another_shape():
    with pytest.raises(Misbuilt, match=r"^weight has shape \(3, 4\), expected \(4, 3\)\.$"):
        build(Scale, (3, 4), {"weight": WEIGHT.shape})


def test_positional_layer_rejects_a_table_that_would_be_trained():
    verdict = diagnose("03-positional-layer", TrainedTable)
    assert verdict.kind == "call"
    assert verdict.message.endswith("Register it as a buffer.")
