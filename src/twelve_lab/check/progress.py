"""What a learner has solved, kept beside the notebooks and nowhere else.

Where the folder of the notebooks holds a `progress.json`, each check is noted in it: whether the
exercise is solved and since when, how many wrong answers came before, and which known mistakes
were among them. The variable TWELVE_PROGRESS names a folder in which the first answer begins one:
`make lab` sets it to notebooks/. Where it names a progress.json itself, that one is kept for all
notebooks, wherever they lie: so a class has one at home. Where it is set to nothing, nothing is
noted: so notebooks are run and compared.
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

FILE = "progress.json"
# As it stands in the file of a notebook.
_CHECK = re.compile(r'\bcheck\(\\"([\w-]+)\\"')
VARIABLE = "TWELVE_PROGRESS"
# A workshop is noted with the lessons, in the folder above its own.
WORKSHOP = "workshop"
# In a class the lessons lie in this folder beside the progress.json.
LESSONS = "notebooks"


class Asked(NamedTuple):
    """An exercise of a lesson."""

    id: str
    step: Step


class Standing(NamedTuple):
    """How far a learner has come in the lessons.

    Attributes:
        solved: How many of their exercises.
        of: How many there are.
        next: The one to go on with; None where all are solved.
    """

    solved: int
    of: int
    next: Asked | None

    @property
    def text(self) -> str:
        """Put it into words."""
        ahead = f"next is {self.next.id}" if self.next else "that is all of them"
        return f"Solved so far: {self.solved} of the {self.of} exercises of the lessons; {ahead}."


def begin(folder: Path) -> bool:
    """Begin a progress.json, unless there is one.

    Args:
        folder: Where the notebooks are.

    Returns:
        Whether a new one was begun.
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
        begun, sound = content["version"], all(map(_is_row, rows))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no progress of this course: {error!r}") from error
    if not isinstance(begun, str) or not sound:
        raise ValueError(f"{path} is no progress of this course: a row of it is not whole")
    return content


def note(id: str, kind: str, mistake: str | None) -> None:
    """Note a check in the progress.json of the notebooks, if one is kept.

    What keeps it from being noted is printed, and no reason to stop.

    Args:
        id: The exercise.
        kind: Kind of the verdict: "ok", "not started", or what is wrong.
        mistake: Id of the mistake, where it is a known one.
    """
    path = None if kind == "not started" else _kept()
    if path is None:
        return
    try:
        # Two notebooks may be at work at the same time.
        with FileLock(path.with_name(f".{FILE}.lock"), timeout=5):
            begin(path.parent)
            content = read(path)
            row = content["exercises"].setdefault(
                id, {"solved": None, "wrong answers": 0, "mistakes": []}
            )
            _update(row, kind == "ok", mistake)
            _write(path, content)
    except (OSError, ValueError, Timeout) as error:
        print(f"(Not noted in {FILE}: {error})")


def _kept() -> Path | None:
    """Find the file in which the notebooks of the working directory are noted, or may be."""
    wanted = os.environ.get(VARIABLE)
    if wanted and Path(wanted).name == FILE:
        return Path(wanted)
    here = Path.cwd()
    folder = here.parent if here.name == WORKSHOP else here
    begins = wanted and Path(wanted).resolve() == folder
    kept = begins or (folder / FILE).exists()
    return folder / FILE if kept and wanted != "" else None


def standing(folder: Path) -> Standing | None:
    """Say how far a learner has come in the lessons, and which exercise is next.

    The next one is the first that is open behind the one solved last, or else the first of all.

    Args:
        folder: Of the progress.json. The notebooks are there, too, or in the folder notebooks.

    Returns:
        None where none of their exercises is solved yet.

    Raises:
        ValueError: If the progress.json does not hold what `check` writes.
        OSError: If something cannot be read.
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
    solved = [at for at, one in enumerate(asked) if _is_solved(rows, one.id)]
    if not solved:
        return None
    last = max(solved, key=lambda at: (rows[asked[at].id]["solved"], at))
    in_turn = (asked[at] for at in (*range(last, len(asked)), *range(last)) if at not in solved)
    return Standing(len(solved), len(asked), next(in_turn, None))


def onward() -> str:
    """Say what is solved and what is next, where a progress.json is kept."""
    path = _kept()
    try:
        found = standing(path.parent) if path else None
    except (OSError, ValueError):
        return ""  # it has been told when the answer was noted
    return found.text if found else ""


def report(paths: Iterable[Path]) -> str:
    """Write what was solved: in full for one learner, one line each for a class.

    Args:
        paths: The files, or the folders that hold them.

    Raises:
        ValueError: If a file is missing, or does not hold what `check` writes.
        OSError: If one cannot be read.
    """
    files = [path / FILE if path.is_dir() else path for path in paths]
    for path in files:
        if not path.exists():
            raise ValueError(f"there is no {path}: the first answer in `make lab` begins one")
    found = {path: read(path) for path in files}
    if len(found) != 1:
        return _class(found)
    ahead = standing(files[0].parent)
    return _one(found[files[0]]) + (f"\n{ahead.text}" if ahead else "")


def _one(content: dict[str, Any]) -> str:
    rows = content["exercises"]
    lines = [_of_version(content)]
    for step in STEPS:
        ids = [id for id in EXERCISES if id.startswith(step.number)]
        if not ids:
            continue
        solved = sum(_is_solved(rows, id) for id in ids)
        lines.append(f"\n{step.number} {step.title}: {solved} of {len(ids)}")
        lines += [f"  {_line(id, rows[id])}" for id in ids if id in rows]
    solved = sum(_is_solved(rows, id) for id in EXERCISES)
    return "\n".join([*lines, f"\nSolved: {solved} of {len(EXERCISES)}", *_unknown(rows)])


def _class(found: dict[Path, dict[str, Any]]) -> str:
    width = max((len(str(path.parent)) for path in found), default=0)
    lines, met = [], Counter()
    for path, content in found.items():
        rows = content["exercises"]
        solved = sum(_is_solved(rows, id) for id in EXERCISES)
        wrong = sum(row["wrong answers"] for row in rows.values())
        lines.append(
            f"{path.parent!s:{width}}  solved {solved:3} of {len(EXERCISES)}, {wrong:3} wrong "
            f"answers; {_of_version(content)}"
        )
        met.update({mistake for row in rows.values() for mistake in row["mistakes"]})
    lines.append("\nMistakes met, by the number of learners:")
    lines += [
        f"  {count:3}  {id}" for id, count in sorted(met.items(), key=lambda x: (-x[1], x[0]))
    ]
    return "\n".join(lines if met else lines[:-1])


def _line(id: str, row: dict[str, Any]) -> str:
    state = f"solved on {row['solved'][:10]}" if row["solved"] else "open"
    wrong = f", after {row['wrong answers']} wrong" if row["wrong answers"] else ""
    met = f": {', '.join(row['mistakes'])}" if row["mistakes"] else ""
    return f"{id}  {state}{wrong}{met}"


def _of_version(content: dict[str, Any]) -> str:
    here = version("twelve")
    other = "" if content["version"] == here else f", and this is {here}"
    return f"begun with version {content['version']}{other}"


def _unknown(rows: dict[str, Any]) -> list[str]:
    other = [id for id in rows if id not in EXERCISES]
    return [f"Of another version of the course: {', '.join(other)}"] if other else []


def _update(row: dict[str, Any], right: bool, mistake: str | None) -> None:
    if right:
        row["solved"] = row["solved"] or datetime.now(UTC).isoformat(timespec="seconds")
    # What is tried out after the right answer takes nothing away from it.
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
    """Write aside, then put in place: a full disk leaves what was there, and a link stays one."""
    path = path.resolve()
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(aside, path)
