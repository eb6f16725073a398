"""Record which exercises a learner has solved, in a progress.json beside the notebooks.

If the folder of the notebooks holds a `progress.json`, each check is recorded in it: whether and
when the exercise was solved, how many wrong answers came before, and which known mistakes were
among them. The variable TWELVE_PROGRESS changes that:

- A folder: the first answer there creates a progress.json. `make lab` sets it to notebooks/.
- A path of a progress.json: this file records all notebooks. A class uses one in each home.
- An empty string: nothing is recorded. Notebooks are executed and compared this way.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from twelve_lab.check.catalogue import EXERCISES
from twelve_lab.course import STEPS, Step
from twelve_lab.messages import declared, message, plural

FILE = "progress.json"
# In the JSON of a notebook, quotes are escaped.
_CHECK = re.compile(r'\bcheck\(\\"([\w-]+)\\"')
VARIABLE = "TWELVE_PROGRESS"
# A workshop is recorded with the lessons, in the parent folder.
WORKSHOP = "workshop"
# In a class the lessons are in this folder beside the progress.json.
LESSONS = "notebooks"


class Asked(NamedTuple):
    """An exercise of a lesson."""

    id: str
    step: Step


class Standing(NamedTuple):
    """How far a learner has come in the lessons.

    Attributes:
        solved: Number of solved exercises.
        of: Number of exercises.
        next: The exercise to continue with; None if all are solved.
    """

    solved: int
    of: int
    next: Asked | None

    @property
    def text(self) -> str:
        """Describe the standing in words."""
        if self.next is None:
            return message(
                "Solved so far: {solved} of {total} exercises in the lessons. That is all of them.",
                solved=self.solved,
                total=self.of,
            )
        return message(
            "Solved so far: {solved} of {total} exercises in the lessons. Next: {id}.",
            solved=self.solved,
            total=self.of,
            id=self.next.id,
        )


def begin(folder: Path) -> bool:
    """Create a progress.json, unless there is one.

    Args:
        folder: The folder of the notebooks.

    Returns:
        Whether a new file was created.
    """
    path = folder / FILE
    if path.exists():
        return False
    _write(path, {"version": version("twelve"), "exercises": {}})
    return True


def read(path: Path) -> dict[str, Any]:
    """Read a progress.json.

    Args:
        path: The file.

    Raises:
        ValueError: If it does not hold what `check` writes.
        OSError: If it cannot be read.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = content["exercises"].values()
        valid = isinstance(content["version"], str) and all(map(_is_row, rows))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a progress file of this course: {error!r}") from error
    if not valid:
        raise ValueError(f"{path} is not a progress file of this course: invalid row or version")
    return content


def note(id: str, kind: str, mistake: str | None) -> None:
    """Record a check in the progress.json of the notebooks, if there is one.

    An error is printed and does not stop the check.

    Args:
        id: The exercise.
        kind: Kind of the verdict: "ok", "not started", or what is wrong.
        mistake: Id of the mistake, if it is a known one.
    """
    path = None if kind == "not started" else _kept()
    if path is None:
        return
    try:
        # Two notebooks may write at the same time.
        with FileLock(path.with_name(f".{FILE}.lock"), timeout=5):
            begin(path.parent)
            content = read(path)
            row = content["exercises"].setdefault(
                id, {"solved": None, "wrong answers": 0, "mistakes": []}
            )
            _update(row, kind == "ok", mistake)
            _write(path, content)
    except (OSError, ValueError, Timeout) as error:
        print(message("(Not recorded in {file}: {error})", file=FILE, error=error))


def _kept() -> Path | None:
    """Find the file that records the notebooks of the working directory, or may be created."""
    wanted = os.environ.get(VARIABLE)
    if wanted and Path(wanted).name == FILE:
        return Path(wanted)
    here = Path.cwd()
    folder = here.parent if here.name == WORKSHOP else here
    begins = wanted and Path(wanted).resolve() == folder
    kept = begins or (folder / FILE).exists()
    return folder / FILE if kept and wanted != "" else None


def standing(folder: Path) -> Standing | None:
    """Compute how far a learner has come in the lessons, and which exercise is next.

    The next exercise is the first open one after the last one solved, or else the first of all.

    Args:
        folder: The folder of the progress.json. The notebooks are there or in its subfolder
            notebooks.

    Returns:
        None if no exercise is solved yet.

    Raises:
        ValueError: If the progress.json does not hold what `check` writes.
        OSError: If a file cannot be read.
    """
    path = folder / FILE
    rows = read(path)["exercises"] if path.exists() else {}
    lessons = folder / LESSONS if (folder / LESSONS).is_dir() else folder
    asked = [
        Asked(id, step)
        for step in STEPS
        if (lesson := lessons / Path(step.notebook).name).exists()
        for id in dict.fromkeys(_CHECK.findall(lesson.read_text(encoding="utf-8")))
    ]
    solved = [index for index, exercise in enumerate(asked) if _is_solved(rows, exercise.id)]
    if not solved:
        return None
    last = max(solved, key=lambda index: (rows[asked[index].id]["solved"], index))
    order = (*range(last, len(asked)), *range(last))
    still_open = (asked[index] for index in order if index not in solved)
    return Standing(len(solved), len(asked), next(still_open, None))


def onward() -> str:
    """Describe the learner's standing; "" if no progress.json is kept."""
    path = _kept()
    try:
        reached = standing(path.parent) if path else None
    except (OSError, ValueError):
        return ""  # the error was printed when the answer was recorded
    return reached.text if reached else ""


def report(paths: Iterable[Path]) -> str:
    """Write a report: every exercise for one learner, one line each for a class.

    Args:
        paths: The files, or the folders that hold them.

    Raises:
        ValueError: If a file is missing, or does not hold what `check` writes.
        OSError: If a file cannot be read.
    """
    files = [path / FILE if path.is_dir() else path for path in paths]
    for path in files:
        if not path.exists():
            raise ValueError(
                message(
                    "{path} does not exist. The first answer in `make lab` creates it.", path=path
                )
            )
    learners = {path: read(path) for path in files}
    if len(learners) != 1:
        return _class(learners)
    reached = standing(files[0].parent)
    return _one(learners[files[0]]) + (f"\n{reached.text}" if reached else "")


def _one(content: dict[str, Any]) -> str:
    rows = content["exercises"]
    lines = [_version_of(content)]
    for step in STEPS:
        ids = [id for id in EXERCISES if id.startswith(step.number)]
        if not ids:
            continue
        solved = sum(_is_solved(rows, id) for id in ids)
        lines.append(
            "\n"
            + message(
                "{number} {title}: {solved} of {total}",
                number=step.number,
                title=declared(step.title),
                solved=solved,
                total=len(ids),
            )
        )
        lines += [f"  {_line(id, rows[id])}" for id in ids if id in rows]
    solved = sum(_is_solved(rows, id) for id in EXERCISES)
    lines.append("\n" + message("Solved: {solved} of {total}", solved=solved, total=len(EXERCISES)))
    unknown = [id for id in rows if id not in EXERCISES]
    if unknown:
        lines.append(message("From another version of the course: {ids}", ids=", ".join(unknown)))
    return "\n".join(lines)


def _class(learners: dict[Path, dict[str, Any]]) -> str:
    width = max((len(str(path.parent)) for path in learners), default=0)
    lines, met = [], Counter()
    for path, content in learners.items():
        rows = content["exercises"]
        solved = message(
            "solved {solved:3} of {total}, wrong answers {wrong:3}",
            solved=sum(_is_solved(rows, id) for id in EXERCISES),
            total=len(EXERCISES),
            wrong=sum(row["wrong answers"] for row in rows.values()),
        )
        lines.append(f"{path.parent!s:{width}}  {solved}; {_version_of(content)}")
        met.update({mistake for row in rows.values() for mistake in row["mistakes"]})
    if met:
        lines.append("\n" + message("Mistakes, by the number of learners who made them:"))
        by_count = sorted(met.items(), key=lambda item: (-item[1], item[0]))
        lines += [f"  {count:3}  {id}" for id, count in by_count]
    return "\n".join(lines)


def _line(id: str, row: dict[str, Any]) -> str:
    if row["solved"]:
        line = message("{id}  solved on {day}", id=id, day=row["solved"][:10])
    else:
        line = message("{id}  open", id=id)
    parts = [line]
    if row["wrong answers"]:
        parts.append(plural("{count} wrong answer", "{count} wrong answers", row["wrong answers"]))
    if row["mistakes"]:
        parts.append(message("mistakes: {ids}", ids=", ".join(row["mistakes"])))
    return "; ".join(parts)


def _version_of(content: dict[str, Any]) -> str:
    begun, here = content["version"], version("twelve")
    if begun == here:
        return message("started with version {version}", version=begun)
    return message(
        "started with version {version} (installed: {installed})", version=begun, installed=here
    )


def _update(row: dict[str, Any], right: bool, mistake: str | None) -> None:
    if right:
        row["solved"] = row["solved"] or datetime.now(UTC).isoformat(timespec="seconds")
    # Experiments after the right answer do not count as wrong answers.
    elif not row["solved"]:
        row["wrong answers"] += 1
        if mistake and mistake not in row["mistakes"]:
            row["mistakes"].append(mistake)


def _is_solved(rows: dict[str, Any], id: str) -> bool:
    return id in rows and rows[id]["solved"] is not None


def _is_row(row: Any) -> bool:
    return (
        isinstance(row["wrong answers"], int)
        and isinstance(row["solved"], str | None)
        and isinstance(row["mistakes"], list)
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    """Write the file atomically: a full disk leaves the old content, a symbolic link stays one."""
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)
