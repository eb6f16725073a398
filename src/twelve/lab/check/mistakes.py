"""The mistakes of all steps by id, in the order of the course."""

from collections.abc import Callable
from functools import cache
from typing import Any

from twelve.lab.check.compare import Outcome, agree, outcomes
from twelve.lab.check.table import Mistake
from twelve.lab.check.targets import STEPS, TARGETS

MISTAKES: dict[str, Mistake] = {mistake.id: mistake for step in STEPS for mistake in step.MISTAKES}


def wrong_versions(target: str) -> dict[str, Callable[..., Any]]:
    """Collect every way in which a task is known to be done wrong.

    Args:
        target: Name of the task.

    Returns:
        Wrong answers by the id of the mistake: those of this task, then those of smaller ones
        that can be made in it too.
    """
    own = {id: mistake.wrong for id, mistake in MISTAKES.items() if mistake.target == target}
    return {**own, **TARGETS[target].also}


def suspects(target: str, function: Callable[..., Any]) -> list[str]:
    """Name the mistakes that give the numbers of a function in every case of a task.

    Args:
        target: Name of the task.
        function: An answer to it.

    Returns:
        Ids: none for a right answer or an unknown mistake, and one for a known mistake.
    """
    found = outcomes(TARGETS[target], function)
    return [
        id
        for id, versions in _known(target).items()
        if any(all(agree(found[case], one[case]) for case in one) for one in versions)
    ]


@cache
def _known(target: str) -> dict[str, list[dict[str, Outcome]]]:
    """Run every wrong version of a task once, variants included."""
    known = {}
    for id, wrong in wrong_versions(target).items():
        own = MISTAKES[id].target == target
        versions = (wrong, *(MISTAKES[id].variants if own else ()))
        known[id] = [outcomes(TARGETS[target], version) for version in versions]
    return known
