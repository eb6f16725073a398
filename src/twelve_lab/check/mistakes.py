"""The mistakes of all steps by id, in the order of the course."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from twelve_lab.check.compare import Outcome, agree, outcomes
from twelve_lab.check.declare import Mistake
from twelve_lab.check.tasks import STEPS, TARGETS

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
    return _alike(target, function, _known(target))


def slips(target: str, function: Callable[..., Any]) -> list[str]:
    """Find what to answer to the slips that give the numbers of a function in every case.

    Args:
        target: Name of the task.
        function: An answer to it.

    Returns:
        Sentences: none where no known slip gives these numbers.
    """
    return _alike(target, function, _slips(target))


def _alike(
    target: str, function: Callable[..., Any], known: Mapping[str, list[dict[str, Outcome]]]
) -> list[str]:
    found = outcomes(TARGETS[target], function)
    # A sine of a large angle is off by this much in 32 bits; two mistakes are further apart.
    exact = all(x.dtype == torch.float64 for one in found.values() for x in one.values)
    tolerance = 1e-5 if exact else 5e-3
    return [
        name
        for name, versions in known.items()
        if any(all(agree(found[case], one[case], tolerance) for case in one) for one in versions)
    ]


@cache
def _known(target: str) -> dict[str, list[dict[str, Outcome]]]:
    """Run every wrong version of a task once, variants included."""
    known = {}
    for id, wrong in wrong_versions(target).items():
        own = MISTAKES[id].target == target
        more = MISTAKES[id].variants if own else TARGETS[target].halves.get(id, ())
        versions = (wrong, *more)
        known[id] = [outcomes(TARGETS[target], version) for version in versions]
    return known


@cache
def _slips(target: str) -> dict[str, list[dict[str, Outcome]]]:
    at = TARGETS[target]
    return {sentence: [outcomes(at, wrong)] for sentence, wrong in at.slips.items()}
