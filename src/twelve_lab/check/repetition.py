"""When to write a task from a blank page again: 2 days after the first right answer, then 7 days.

A task is open until it was answered right, and again after 2 and after 7 days. Only an answer to
an open task counts; the third right one masters it. Between these days, answers are experiments.
A right answer that uses what the task forbids does not count.
The days are those of UTC.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from twelve_lab.course import DRILLS, Drill

DAYS = (2, 7)
# What progress.json holds of a task: the days of the answers that counted, whether the last one
# was wrong, and the time at which the page was opened.
Record = dict[str, Any]


def new_record() -> Record:
    """Return the record of a task that was not answered yet."""
    return {"right": [], "failed": False, "started": None}


def is_record(record: Any) -> bool:
    """Return whether a value is a record.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: Alternatively, if it is not.
    """
    days = [date.fromisoformat(day) for day in record["right"]]
    started = record["started"]
    return (
        len(days) <= len(DAYS) + 1
        # The next day must be one.
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
        records: The records by the id of the exercise.
        now: The time.
    """
    return {drill: state(records.get(drill.exercise, new_record()), now) for drill in DRILLS}


def proposed(records: Mapping[str, Record], now: datetime) -> Drill | None:
    """Choose the next task: one that failed, or else one to repeat, or else a new one.

    Args:
        records: The records by the id of the exercise.
        now: The time.

    Returns:
        The most frequent task of the first of these states; None if there is none.
    """
    found = states(records, now).items()
    order = (drill for wanted in ("failed", "due", "new") for drill, how in found if how == wanted)
    return next(order, None)


def answered(record: Record, right: bool, now: datetime) -> int | None:
    """Record an answer.

    Args:
        record: The record, which is changed.
        right: Whether the answer is right.
        now: The time.

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
