"""Answers by many authors, written without a look at the declared mistakes.

A wrong answer gets the name of the known mistake with its numbers, or a description of its fault,
and never the name of another mistake. A right answer is never rejected.
"""

from collections import Counter

import pytest

from tests.course.wrong_answers import RIGHT, WRONG
from twelve_lab.check import EXERCISES, MISTAKES, Task, diagnose

pytestmark = pytest.mark.slow


def name(answer):
    return answer.function.__name__


@pytest.mark.parametrize("answer", WRONG, ids=name)
def test_diagnose_names_or_describes_a_wrong_answer(answer):
    verdict = diagnose(answer.exercise, answer.function)
    assert not verdict.ok
    assert verdict.kind != "not started"
    assert verdict.mistake == answer.mistake, (answer.function.__doc__, verdict)


@pytest.mark.parametrize("answer", RIGHT, ids=name)
def test_diagnose_accepts_an_unusual_right_answer(answer):
    verdict = diagnose(answer.exercise, answer.function)
    assert verdict.ok, (answer.function.__doc__, verdict)


def test_every_task_of_the_list_has_three_wrong_answers():
    assert len({name(answer) for answer in WRONG + RIGHT}) == len(WRONG) + len(RIGHT)
    assert {answer.mistake for answer in WRONG} <= {None, *MISTAKES}
    assert len(WRONG) >= 40
    tasks = Counter(answer.exercise for answer in WRONG)
    assert all(isinstance(EXERCISES[id], Task) for id in tasks)
    assert min(tasks.values()) >= 3
