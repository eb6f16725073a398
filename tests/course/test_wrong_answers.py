"""Answers by many authors, written without knowing the declared mistakes.

A wrong answer gets the name of the known mistake with its numbers, or a description of its fault,
and never the name of another mistake. A right answer is never rejected.
"""

import pytest

from tests.course import wrong_by_hand  # noqa: F401 (collects its answers)
from tests.course.wrong_answers import RIGHT, wrong_answers
from twelve_lab.check import diagnose, search

WRONG = [pytest.param(answer, marks=pytest.mark.slow) for answer in wrong_answers()]


@pytest.mark.parametrize(
    "answer",
    [*RIGHT, *WRONG],
    ids=lambda answer: f"{answer.exercise}: {answer.fault or 'right'}",
)
def test_diagnose_decides_like_a_teacher(answer, monkeypatch):
    # The search for a repair changes no verdict; tests/unit/test_search.py tests it.
    monkeypatch.setattr(search, "CPU_SECONDS", 0.03)
    verdict = diagnose(answer.exercise, answer.function)
    assert verdict.ok == (not answer.fault), verdict
    assert verdict.mistake == answer.mistake, verdict
    assert verdict.kind != "not started"
