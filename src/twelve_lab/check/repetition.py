"""Schedule by-hand tasks: repeat 2 days after the first right answer, and again 7 days later.

A task is open until its first right answer. It opens again after 2 days, and again after 7 more.
Only answers to an open task count, and the third right answer masters it. Answers in between are
experiments. A right answer that uses a forbidden operation does not count. Days are in UTC.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from twelve_lab.course import DRILLS, Drill

DAYS = (2, 7)
# The entry of a task in progress.json: the days of the right answers that counted, whether the last
# answer was wrong, and the time when the page was opened.
Record = dict[str, Any]


def new_record() -> Record:
    """Return the record of a task without answers."""
    return {"right": [], "failed": False, "started": None}


def is_record(record: Any) -> bool:
    """Return whether a value is a record.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: If the value has another structure.
    """
    days = [date.fromisoformat(day) for day in record["right"]]
    started = record["started"]
    return (
        len(days) <= len(DAYS) + 1
        # The next date must not overflow.
        and all(day.year < date.max.year for day in days)
        and isinstance(record["failed"], bool)
        and (started is None or datetime.fromisoformat(started).tzinfo is not None)
    )


def opens(record: Record) -> date | None:
    """Return the day from which a task is open; None if it is mastered."""
    right = record["right"]
    if not right:
        return date.min
    if len(right) > len(DAYS):
        return None
    return date.fromisoformat(right[-1]) + timedelta(DAYS[len(right) - 1])


def state(record: Record, now: datetime) -> str:
    """Return "new", "failed", "due", "waiting" or "mastered"."""
    if record["failed"]:
        return "failed"
    day = opens(record)
    if day is None:
        return "mastered"
    if not record["right"]:
        return "new"
    return "due" if day <= now.astimezone(UTC).date() else "waiting"


def states(records: Mapping[str, Record], now: datetime) -> dict[Drill, str]:
    """Return the state of each task.

    Args:
        records: The records, keyed by exercise id.
        now: The current time.
    """
    return {drill: state(records.get(drill.exercise, new_record()), now) for drill in DRILLS}


def proposed(records: Mapping[str, Record], now: datetime) -> Drill | None:
    """Choose the next task: a failed task, or else a task to repeat, or else a new task.

    Args:
        records: The records, keyed by exercise id.
        now: The current time.

    Returns:
        The most frequently asked task in the first of these states; None if no task is open.
    """
    items = states(records, now).items()
    order = (drill for wanted in ("failed", "due", "new") for drill, how in items if how == wanted)
    return next(order, None)


def answered(record: Record, right: bool, now: datetime) -> int | None:
    """Record an answer.

    Args:
        record: The record; modified in place.
        right: Whether the answer is right.
        now: The current time.

    Returns:
        The seconds since the page was opened, for the first right answer since then.
    """
    today, day = now.astimezone(UTC).date(), opens(record)
    if day is not None and day <= today:
        record["failed"] = not right
        record["right"] += [today.isoformat()] * right
    if not right or record["started"] is None:
        return None
    seconds = (now - datetime.fromisoformat(record["started"])).total_seconds()
    record["started"] = None
    return max(0, int(seconds))
