"""The classic mistakes, each beside the right answer: right shape, wrong numbers.

    check("06-split-heads", my_function)     say what is wrong with an answer, and raise
    diagnose("06-split-heads", my_function)  the same as data
    check("06-scores-shape", (2, 3, 4, 5))   the same for what is to be predicted
    MISTAKES["split-view"].sentence          what was done, and what to do instead
    suspects("split_heads", my_function)     the mistakes that give the same numbers in every case

One file for each step, of the same stem: its questions and tasks, the right answers and the wrong
ones.
"""

from twelve_lab.check.declare import Mistake, Plant, Question, Target
from twelve_lab.check.diagnose import Verdict, WrongAnswer, check, diagnose
from twelve_lab.check.mistakes import MISTAKES, suspects, wrong_versions
from twelve_lab.check.tasks import EXERCISES, TARGETS

__all__ = [
    "EXERCISES",
    "MISTAKES",
    "TARGETS",
    "Mistake",
    "Plant",
    "Question",
    "Target",
    "Verdict",
    "WrongAnswer",
    "check",
    "diagnose",
    "suspects",
    "wrong_versions",
]
