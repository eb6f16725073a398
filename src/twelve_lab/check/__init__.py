"""The classic mistakes, each beside the right answer: right shape, wrong numbers.

    check("06-split-heads", my_function)     print what is wrong with an answer, and raise
    diagnose("06-split-heads", my_function)  return the same as data
    check("06-scores-shape", (2, 3, 4, 5))   check a prediction
    MISTAKES["split-view"].sentence          what is wrong, and what to do instead

This package turns an answer into a verdict. The exercises and their mistakes are declared in
twelve_lab.exercises, one file for each step.
"""

from twelve_lab.check.catalogue import EXERCISES, MISTAKES, TASKS, TAUGHT, wrong_versions
from twelve_lab.check.diagnose import Verdict, WrongAnswer, check, diagnose
from twelve_lab.exercises.declare import Mistake, Question, Task

__all__ = [
    "EXERCISES",
    "MISTAKES",
    "TASKS",
    "TAUGHT",
    "Mistake",
    "Question",
    "Task",
    "Verdict",
    "WrongAnswer",
    "check",
    "diagnose",
    "wrong_versions",
]
