"""Predictions: what is said about a shape, a number and a choice, without giving it away."""

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


@pytest.mark.parametrize(
    ("question", "given"),
    [
        (SHAPE, (2, 3, 4, 5)),
        (SHAPE, [2, 3, 4, 5]),
        (SHAPE, torch.Size([2, 3, 4, 5])),
        (NUMBER, 0.25),
        (NUMBER, 1 / 4),
        (NUMBER, 0.25009),
        (NUMBER, [0.25]),
        (NEARLY, 4),
        (NUMBER, torch.tensor(0.25)),
        (NUMBERS, [-1.6545, -0.312, 0]),
        (NUMBERS, (-1.655, -0.312, 0)),
        (NUMBERS, torch.tensor([-1.655, -0.312, 0.0], requires_grad=True)),
        (TABLE, [[1, 2], [3, 4]]),
        (WORDS, {"two", "one"}),
        (WORDS, ["one", "two"]),
        (WORD, "yes"),
    ],
)
def test_a_right_prediction_has_no_fault(question, given):
    assert not prediction.not_started(given)
    assert prediction.fault(question, given) is None


@pytest.mark.parametrize("given", [..., None, (2, 3, 4, ...), [[1, ...], [3, 4]]])
def test_dots_are_not_started(given):
    assert prediction.not_started(given)


@pytest.mark.parametrize(
    ("question", "given", "kind", "said"),
    [
        (SHAPE, 120, "type", "You gave an int where a shape is due, such as (2, 2, 3)."),
        (SHAPE, torch.zeros(2, 3, 4, 5), "type", "You gave a Tensor where a shape is due"),
        (SHAPE, (2.0, 3, 4, 5), "type", "A shape holds whole numbers, and yours is (2.0, 3, 4, 5)"),
        (SHAPE, (2, True, 4, 5), "type", "A shape holds whole numbers"),
        (SHAPE, (2, 4, 5), "rank", "You gave 3 sizes, and the answer has 4."),
        (SHAPE, (2, 3, 5, 4), "axes swapped", "yours are (batch, head, key, query) = (2, 3, 5, 4)"),
        (SHAPE, (2, 3, 4, 6), "shape", "The size of axis 3 (key) is not 6."),
        (SHAPE, (2, 3, 4, 4), "shape", "The size of axis 3 (key) is not 4."),
        (SQUARE, (2, 3), "shape", "The size of axis 1 (column) is not 3."),
        (TWICE, (3, 2, 2), "shape", "The size of axis 0 (batch) is not 3."),
        (
            NUMBER,
            "a quarter",
            "type",
            "You gave a str that cannot be read as numbers; what is due is 1 number.",
        ),
        (NUMBER, [0.25, 1.0], "shape", "What is due is 1 number, and you gave 2 numbers."),
        (NUMBER, 0.2502, "numbers", "Your number, 0.2502, lies above what is due."),
        (NUMBER, -0.25, "numbers", "Your number, -0.2500, lies below what is due."),
        (NUMBER, float("nan"), "nan or inf", "nan is no number that can be due here."),
        (NUMBER, float("inf"), "numbers", "Your number, inf, lies above what is due."),
        (NUMBERS, [-1.655, -0.106, 0], "numbers", "Number 2 of 3, -0.106, lies above what is due."),
        (NUMBERS, [-1.655, -0.312], "shape", "What is due is 3 numbers, and you gave 2 numbers."),
        (NUMBER, 0.3, "numbers", "Right as far as it goes: 4 decimals are due."),
        (NUMBER, 0.2, "numbers", "Right as far as it goes"),
        (NUMBERS, [-1.66, -0.31, 0], "numbers", "Right as far as it goes: 3 decimals are due."),
        (NUMBERS, [-0.312, -1.655, 0], "numbers", "the right numbers, in another order."),
        (TABLE, [1, 2, 3, 4], "shape", "4 numbers as 2 x 2, and you gave 4 numbers."),
        (TABLE, [[1, 2], [3, 5]], "numbers", "In row 2, number 2, 5, lies above what is due."),
        (
            TABLE,
            [[1, 2], [3]],
            "type",
            "a list that cannot be read as numbers; what is due is 4 numb",
        ),
        (WORDS, 3, "type", "You gave an int where words are due, in quotes."),
        (WORDS, {"one", "six"}, "type", "'six' is not among the words to choose from: 'one', 'two"),
        (WORDS, {"one", "three"}, "numbers", "do not belong there: 1. Words that are missing: 1."),
        (WORD, "no", "numbers", "It is not 'no'."),
    ],
)
def test_a_wrong_prediction_is_told_what_to_put_right(question, given, kind, said):
    found = prediction.fault(question, given)
    assert found is not None
    assert found[0] == kind
    assert said in found[1]


@pytest.mark.parametrize(
    ("question", "given"),
    [(SHAPE, (2, 3, 4, 6)), (NUMBER, 0.4), (NUMBERS, [0, 0, 0]), (TABLE, [[1, 2], [3, 5]])],
)
def test_the_message_does_not_give_the_answer_away(question, given):
    answer = prediction.praise(question).rstrip(".")
    assert answer not in prediction.fault(question, given)[1]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        (SHAPE, "(batch, head, query, key) = (2, 3, 4, 5)."),
        (NUMBER, "0.2500."),
        (NUMBERS, "[-1.655, -0.312, 0]."),
        (TABLE, "[[1, 2], [3, 4]]."),
        (WORDS, "one, two."),
    ],
)
def test_who_is_right_reads_the_answer_once_more(question, said):
    assert prediction.praise(question) == said


def test_a_mistake_is_a_suspect_if_it_leads_to_the_same():
    wrong = {"qk-swapped": [lambda: (2, 3, 5, 4)], "split-view": [lambda: (2, 4, 3, 5)]}
    question = Question("shape", SHAPE.contract, SHAPE.right, mistakes=wrong)
    assert prediction.suspects(question, (2, 3, 5, 4)) == ["qk-swapped"]
    assert prediction.suspects(question, [2, 4, 3, 5]) == ["split-view"]
    assert prediction.suspects(question, (2, 3, 4, 6)) == []


def test_a_confusion_is_answered_by_its_own_sentence():
    known = {"Two are left.": lambda: 0.75, "One is left.": lambda: 0.5}
    question = Question("number", "one number", lambda: 0.25, misconceptions=known)
    assert prediction.misconceptions(question, 0.5) == ["One is left."]
    assert prediction.misconceptions(question, 0.6) == []
