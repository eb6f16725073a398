"""Answers by many authors, written without a look at the declared mistakes.

A wrong answer gets the name of the known mistake with its numbers, or a description of its fault,
and never the name of another mistake. A right answer is never rejected.
"""

import pytest

from tests.course.wrong_answers import RIGHT, WRONG
from twelve_lab.check import diagnose

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("answer", WRONG + RIGHT, ids=lambda answer: answer.function.__qualname__)
def test_diagnose_decides_like_a_teacher(answer):
    verdict = diagnose(answer.exercise, answer.function)
    assert verdict.ok == (answer in RIGHT), (answer.function.__doc__, verdict)
    assert verdict.mistake == answer.mistake, (answer.function.__doc__, verdict)
    assert verdict.kind != "not started"
