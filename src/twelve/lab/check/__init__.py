"""The classic mistakes, each beside the right answer: right shape, wrong numbers.

    MISTAKES["split-view"].sentence          what was done, and what to do instead
    suspects("split_heads", my_function)     the mistakes that give the same numbers in every case

One file for each step, of the same stem: its tasks, their right answers and the wrong ones.
"""

from twelve.lab.check.mistakes import MISTAKES, suspects, wrong_versions
from twelve.lab.check.table import Mistake, Plant, Target
from twelve.lab.check.targets import TARGETS

__all__ = ["MISTAKES", "TARGETS", "Mistake", "Plant", "Target", "suspects", "wrong_versions"]
