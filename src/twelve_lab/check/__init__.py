"""Check answers to the exercises, and recognise classic mistakes.

    check("06-split-heads", my_function)     print the verdict, and raise if the answer is wrong
    diagnose("06-split-heads", my_function)  return the verdict as data
    check("06-scores-shape", (2, 3, 4, 5))   check a prediction
    MISTAKES["split-view"].sentence          the mistake, and what to do instead

The exercises and their mistakes are declared in twelve_lab.exercises, in one file per page.
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
