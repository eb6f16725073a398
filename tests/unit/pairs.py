"""Settings to test with, so few that every two values of two settings meet at least once."""

from itertools import combinations, product


def pairwise(**settings: tuple) -> list[dict[str, object]]:
    """Choose rows, each time the one that brings together most pairs that have not met."""
    rows = [dict(zip(settings, row, strict=True)) for row in product(*settings.values())]
    pairs = [{*combinations(row.items(), 2)} for row in rows]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(rows)), key=lambda index: len(pairs[index] & missing))
        chosen.append(rows[best])
        missing -= pairs[best]
    return chosen


def spelled(row: dict[str, object]) -> str:
    """Name a row in the name of its test."""
    return "-".join(f"{name}={value}" for name, value in row.items())
