"""Checking predictions: the message describes the fault and never reveals the answer."""

import numpy as np
import pytest
import torch

from twelve_lab.check import Question, prediction

SHAPE = Question("shape", "the scores -> (batch, head, query, key)", lambda: (2, 3, 4, 5))
SQUARE = Question("square", "a table -> (row, column)", lambda: (2, 2))
TWICE = Question("twice", "a table -> (batch, head, query)", lambda: (2, 3, 2))
NUMBER = Question("number", "one number", lambda: 0.25)
NEARLY = Question("nearly", "one number", lambda: 3.99995, decimals=2)
NUMBERS = Question("numbers", "three numbers", lambda: [-1.655, -0.312, 0.0], decimals=3)
TABLE = Question("table", "four numbers", lambda: [[1, 2], [3, 4]])
WORDS = Question(
    "words", "some of three", lambda: frozenset({"one", "two"}), options=("one", "two", "three")
)
WORD = Question("word", "one of two", lambda: frozenset({"yes"}), options=("yes", "no"))


RIGHT = [
    (SHAPE, (2, 3, 4, 5)), (SHAPE, [2, 3, 4, 5]), (SHAPE, torch.Size([2, 3, 4, 5])),
    (NUMBER, 0.25009), (NUMBER, [0.25]), (NUMBER, torch.tensor(0.25)), (NEARLY, 4),
    (NUMBERS, (-1.6545, -0.312, 0)), (TABLE, [[1, 2], [3, 4]]),
    (NUMBERS, torch.tensor([-1.655, -0.312, 0.0], requires_grad=True)),
    (WORDS, {"two", "one"}), (WORDS, ["one", "two"]), (WORD, "yes"), (WORD, np.str_("yes")),
    (SHAPE, tuple(np.array([2, 3, 4, 5]))), (NUMBER, torch.tensor([0.25]).to_sparse()),
]  # fmt: skip


@pytest.mark.parametrize(("question", "answer"), RIGHT)
def test_fault_accepts_every_form_of_a_right_prediction(question, answer):
    assert not prediction.not_started(answer)
    assert prediction.fault(question, answer) is None


@pytest.mark.parametrize("answer", [..., None, (2, 3, 4, ...), [[1, ...], [3, 4]]])
def test_dots_in_a_prediction_are_not_started(answer):
    assert prediction.not_started(answer)


class EqualToAll(int):
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    __hash__ = int.__hash__


class LikeAllWords(str):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("yes")


WRONG = [
    (SHAPE, 120, "type", "The answer must be a shape such as (2, 2, 3), got int."),
    (SHAPE, torch.zeros(2, 3, 4, 5), "type", "got Tensor."),
    (SHAPE, (2.0, 3, 4, 5), "type", "A shape consists of whole numbers, got (2.0, 3, 4, 5)."),
    (SHAPE, (2, 4, 5), "rank", "The number of axes is 4, got 3."),
    (SHAPE, (2, 3, 5, 4), "axes swapped", "swapped: (batch, head, key, query) = (2, 3, 5, 4)."),
    (SHAPE, (2, 3, 4, 6), "shape", "The size of axis 3 (key) is not 6."),
    (SHAPE, (2, 3, EqualToAll(7), 5), "shape", "The size of axis 2 (query) is not 7."),
    (SQUARE, (2, 3), "shape", "The size of axis 1 (column) is not 3."),
    (TWICE, (3, 2, 2), "shape", "The size of axis 0 (batch) is not 3."),
    (NUMBER, "a quarter", "type", "cannot be read as numbers, got str. The answer is 1 number."),
    (NUMBER, [0.25, 1.0], "shape", "You gave 2 numbers. The answer is 1 number."),
    (NUMBER, 0.2502, "numbers", "0.2502 is too large."),
    (NUMBER, -0.25, "numbers", "-0.2500 is too small."),
    (NUMBER, torch.tensor(0.25 + 5j), "type", "cannot be read as numbers, got Tensor."),
    (NUMBER, float("nan"), "nan or inf", "The answer is a number, not nan."),
    (NUMBERS, [-1.655, -0.106, 0], "numbers", "-0.106 is too large. It is number 2 of 3."),
    (NUMBER, 10**400, "type", "cannot be read as numbers, got int."),
    (NUMBER, 0.3, "numbers", "Right so far. Give 4 decimals."),
    (NUMBERS, [-1.66, -0.31, 0], "numbers", "Right so far. Give 3 decimals."),
    (NUMBERS, [-0.312, -1.655, 0], "numbers", "the right numbers in the wrong order."),
    (TABLE, [1, 2, 3, 4], "shape", "You gave 4 numbers. The answer is a table of 2 x 2 numbers."),
    (TABLE, [[1, 2, 3]], "shape", "You gave a table of 1 x 3 numbers."),
    (TABLE, [[1, 2], [3, 5]], "numbers", "5 is too large. It is number 2 of row 2."),
    (TABLE, [[1, 2], [3]], "type", "got list. The answer is a table of 2 x 2 numbers."),
    (WORDS, 3, "type", "The answer must be one or several words in quotes, got int."),
    (WORDS, [["one"], "two"], "type", "['one'] is not an option."),
    (WORDS, {"one", "six"}, "type", "'six' is not an option. The options are 'one', 'two'"),
    (WORDS, {"one", "three"}, "numbers", "Wrong words: 1. Missing words: 1."),
    (WORD, "no", "numbers", "It is not 'no'."),
    (WORD, LikeAllWords("no"), "numbers", "It is not 'no'."),
]


@pytest.mark.parametrize(("question", "answer", "kind", "message"), WRONG)
def test_fault_describes_a_wrong_prediction_and_hides_the_answer(question, answer, kind, message):
    fault = prediction.fault(question, answer)
    assert fault is not None and fault[0] == kind and message in fault[1]
    right = prediction.praise(question).removeprefix("The answer is ").rstrip(".")
    assert right not in fault[1].replace(str(answer), "")
