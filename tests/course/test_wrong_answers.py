"""Answers by many authors, written without knowing the declared mistakes.

The checker reports the known mistake that gives the same numbers, or describes the fault, and never
names a different mistake. It never rejects a right answer.
"""

import pytest

from tests.course import wrong_by_hand  # noqa: F401 (collects its answers)
from tests.course.wrong_answers import RIGHT, WRONG, Answer, wrong_answer
from twelve_lab.check import diagnose, search


def decide_like_a_teacher(answer: Answer, monkeypatch) -> None:
    # The search for a repair changes no verdict; tests/unit/test_search.py tests it.
    monkeypatch.setattr(search, "CPU_SECONDS", 0.03)
    verdict = diagnose(answer.exercise, answer.function)
    assert verdict.ok == (not answer.fault), verdict
    assert verdict.mistake == answer.mistake, verdict
    assert verdict.kind != "not started"


@pytest.mark.parametrize("answer", RIGHT, ids=lambda answer: answer.exercise)
def test_diagnose_accepts_a_right_answer(answer, monkeypatch):
    decide_like_a_teacher(answer, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exercise", "fault"), [(exercise, fault) for exercise in WRONG for fault in WRONG[exercise]]
)
def test_diagnose_names_a_wrong_answer_like_a_teacher(exercise, fault, monkeypatch):
    decide_like_a_teacher(wrong_answer(exercise, fault), monkeypatch)
