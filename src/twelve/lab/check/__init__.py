"""The classic mistakes, each beside the right answer: right shape, wrong numbers.

    check("06-split-heads", my_function)     say what is wrong with an answer, and raise
    diagnose("06-split-heads", my_function)  the same as data
    MISTAKES["split-view"].sentence          what was done, and what to do instead
    suspects("split_heads", my_function)     the mistakes that give the same numbers in every case

One file for each step, of the same stem: its tasks, their right answers and the wrong ones.
"""

from twelve.lab.check.diagnose import EXERCISES, Verdict, WrongAnswer, check, diagnose
from twelve.lab.check.mistakes import MISTAKES, suspects, wrong_versions
from twelve.lab.check.table import Mistake, Plant, Target
from twelve.lab.check.targets import TARGETS

__all__ = [
    "EXERCISES",
    "MISTAKES",
    "TARGETS",
    "Mistake",
    "Plant",
    "Target",
    "Verdict",
    "WrongAnswer",
    "check",
    "diagnose",
    "suspects",
    "wrong_versions",
]
