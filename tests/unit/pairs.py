"""Pairwise testing: few combinations of settings in which every pair of values occurs."""

from itertools import combinations, product


def pairwise(**settings: tuple) -> list[dict[str, object]]:
    """Choose combinations greedily, each with the most pairs of values that are still missing."""
    rows = [dict(zip(settings, row, strict=True)) for row in product(*settings.values())]
    pairs = [{*combinations(row.items(), 2)} for row in rows]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(rows)), key=lambda index: len(pairs[index] & missing))
        chosen.append(rows[best])
        missing -= pairs[best]
    return chosen


def spelled(row: dict[str, object]) -> str:
    """Format a combination of settings as a test id."""
    return "-".join(f"{name}={value}" for name, value in row.items())
