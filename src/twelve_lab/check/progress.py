"""Record which exercises a learner has solved, in a progress.json beside the notebooks.

If the notebook folder contains a `progress.json`, it records each check: when the exercise was
solved, how many wrong answers came before, and which known mistakes they contained. For a by-hand
page, it also records when to repeat the page: see `twelve_lab.check.repetition`. The environment
variable TWELVE_PROGRESS changes this behaviour:

- A folder: the first answer there creates a progress.json. `make lab` sets it to notebooks/.
- The path of a progress.json: this file records all notebooks. In a class, each home folder has
  such a file.
- An empty string: nothing is recorded. The tools that execute and compare notebooks use it.
"""

import json
import os
import re
import stat
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from twelve._checks import printable
from twelve_lab.check.catalogue import EXERCISES, MISTAKES
from twelve_lab.check.repetition import answered, is_record, new_record, opens, states
from twelve_lab.check.reply import write
from twelve_lab.course import BY_HAND, DRILLS, STEPS, find_step
from twelve_lab.messages import declared, message, plural
from twelve_lab.show.wide import joined

FILE = "progress.json"
# The most bytes in the file, and characters in a name. All exercises together take 20 kB.
LARGEST, LONGEST = 1_000_000, 100
MOST = 999_999  # the most wrong answers to one exercise
# The JSON of a notebook contains escaped quotes.
_CHECK = re.compile(r'\bcheck\(\\"([\w-]+)\\"')
VARIABLE = "TWELVE_PROGRESS"
# The progress.json of the parent folder records the pages in these subfolders too.
SUBFOLDERS = ("workshop", BY_HAND)
# In a class, this folder beside the progress.json contains the lessons.
LESSONS = "notebooks"


def read(path: Path, *, follow_link: bool = True) -> dict[str, Any]:
    """Read a progress.json.

    Args:
        path: The file.
        follow_link: Whether to follow a symbolic link.

    Raises:
        ValueError: If the content is not in the format that `check` writes.
        OSError: If the file cannot be read.
    """
    # A teacher may read students' files: a pipe or device must not block or fill this process.
    more = getattr(os, "O_NONBLOCK", 0) | (0 if follow_link else getattr(os, "O_NOFOLLOW", 0))
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
        is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        text = file.read(LARGEST + 1) if is_file else b""
    try:
        if not is_file or len(text) > LARGEST:
            raise ValueError(f"it is no regular file of at most {LARGEST:,} bytes")
        content = json.loads(text.decode("utf-8"))
        names, rows = content["exercises"].keys(), content["exercises"].values()
        if not all(map(_is_word, (content["version"], *names))) or not all(map(_is_row, rows)):
            raise TypeError("invalid row, name or version")
        # Older files lack this key.
        by_hand = content.setdefault("by hand", {})
        if not all(map(_is_word, by_hand)) or not all(map(is_record, by_hand.values())):
            raise TypeError("invalid record of a page to write by hand")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a progress file of this course: {error!r}") from error
    return content


def note(
    id: str, kind: str, mistake: str | None, now: datetime | None = None, *, counts: bool = True
) -> int | None:
    """Record a check in the progress.json of the notebooks, if there is one.

    Errors are printed, and do not stop the check.

    Args:
        id: Id of the exercise.
        kind: Kind of the verdict: "ok", "not started", or the kind of fault.
        mistake: Id of the known mistake, if any.
        now: The time; the current time by default.
        counts: Whether a right answer counts on a by-hand page. It does not if it uses an operation
            that the task forbids.

    Returns:
        The seconds that a right answer took, if the clock of its page was started.
    """
    path, now = None if kind == "not started" else _kept(), now or datetime.now(UTC)
    if path is None:
        return None
    try:
        with changed(path) as content:
            row = content["exercises"].setdefault(
                id, {"solved": None, "wrong answers": 0, "mistakes": []}
            )
            _update(row, kind == "ok", mistake, now)
            # On other pages, an answer to the same task does not start from a blank page.
            if Path.cwd().name != BY_HAND or id not in {drill.exercise for drill in DRILLS}:
                return None
            if not counts:
                write(message("(Not counted: the answer uses what the task forbids.)"))
                return None
            return answered(content["by hand"].setdefault(id, new_record()), kind == "ok", now)
    except (OSError, ValueError, Timeout) as error:
        write(message("(Not recorded in {file}: {error})", file=FILE, error=error))
    return None


@contextmanager
def changed(path: Path) -> Iterator[dict[str, Any]]:
    """Lock and read a progress.json, yield its content for changes, and write it back.

    Args:
        path: The file, created if missing.

    Raises:
        ValueError: If the content is not in the format that `check` writes.
        OSError: If the file cannot be read or written.
        Timeout: If another notebook holds the lock for too long.
    """
    # Two notebooks may write at the same time.
    with FileLock(path.with_name(f".{FILE}.lock"), timeout=5):
        if not path.exists():
            _write(path, {"version": version("twelve-numbers"), "exercises": {}, "by hand": {}})
        content = read(path)
        yield content
        _write(path, content)


def _kept() -> Path | None:
    """Return the path of the progress.json that records the working directory, if any."""
    wanted = os.environ.get(VARIABLE)
    if wanted and Path(wanted).name == FILE:
        return Path(wanted)
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed
        return None
    folder = here.parent if here.name in SUBFOLDERS else here
    begins = wanted and Path(wanted).resolve() == folder
    kept = begins or (folder / FILE).exists()
    return folder / FILE if kept and wanted != "" else None


def standing(folder: Path) -> tuple[str, str | None]:
    """Describe how far a learner has come in the lessons, and which exercise is next.

    The next exercise is the first unsolved one from the lesson solved last onwards, or else of all.

    Args:
        folder: The folder of the progress.json. It contains the notebooks, or a subfolder notebooks
            with them.

    Returns:
        Two sentences, "" if no exercise is solved yet; and the id of the next exercise, if any.

    Raises:
        ValueError: If the content of progress.json is not in the format that `check` writes.
        OSError: If a file cannot be read.
    """
    path = folder / FILE
    rows = read(path)["exercises"] if path.exists() else {}
    lessons = folder / LESSONS if (folder / LESSONS).is_dir() else folder
    pages = [lessons / Path(step.notebook).name for step in STEPS]
    # Reading a named pipe would block forever.
    texts = [page.read_text(encoding="utf-8") for page in pages if page.is_file()]
    ids = list(dict.fromkeys(id for text in texts for id in _CHECK.findall(text)))
    solved = [index for index, id in enumerate(ids) if _is_solved(rows, id)]
    if not solved:
        return "", None
    last = max(solved, key=lambda index: (rows[ids[index]]["solved"], index))
    start = next(index for index, id in enumerate(ids) if id[:2] == ids[last][:2])
    order = (*range(start, len(ids)), *range(start))
    following = next((ids[index] for index in order if index not in solved), None)
    text = joined(
        message(
            "Solved so far: {solved} of {total} exercises in the lessons.",
            solved=len(solved),
            total=len(ids),
        ),
        message("Next: {id}.", id=following) if following else message("That is all of them."),
    )
    return text, following


def onward() -> str:
    """Describe the learner's standing; "" if no progress.json is kept."""
    path = _kept()
    try:
        return standing(path.parent)[0] if path else ""
    except (OSError, ValueError):
        return ""  # the error was printed when the answer was recorded


def report(paths: Iterable[Path], now: datetime | None = None) -> str:
    """Format a report: every exercise for one learner, or one line per learner for a class.

    Args:
        paths: The files, or the folders that hold them.
        now: The time; the current time by default.

    Raises:
        ValueError: If there is one file, and it is missing or not in the format of `check`.
        OSError: If there is one file, and it cannot be read.
    """
    files = list(dict.fromkeys(path / FILE if path.is_dir() else path for path in paths))
    now = now or datetime.now(UTC)
    if len(files) != 1:
        return _class(files, now)
    (file,) = files
    if not file.exists():
        raise ValueError(
            message("{path} does not exist. The first answer in `make lab` creates it.", path=file)
        )
    lines = [*_exercises(read(file), now), standing(file.parent)[0]]
    return "\n".join(filter(None, lines))


def _by_hand(content: dict[str, Any], now: datetime) -> Iterator[str]:
    """List the by-hand tasks: which are mastered, and when to repeat the others."""
    records, rows = content["by hand"], content["exercises"]
    ids = [id for id in rows if id in EXERCISES and id.startswith("by-hand")]
    if not records and not ids:
        return
    by_drill = states(records, now)
    mastered = [*by_drill.values()].count("mastered")
    yield "\n" + message(
        "By hand: {mastered} of {total} mastered", mastered=mastered, total=len(DRILLS)
    )
    for drill, how in by_drill.items():
        title = declared(drill.title)
        if how == "mastered":
            yield "  " + message("{title}: mastered", title=title)
        elif how == "failed":
            yield "  " + message("{title}: the last answer was wrong", title=title)
        elif how == "due":
            yield "  " + message("{title}: due for another attempt", title=title)
        elif how == "waiting":
            day = opens(records[drill.exercise])
            yield "  " + message("{title}: due again on {day}", title=title, day=day)
    yield from (f"  {_line(id, rows[id])}" for id in ids)


def _exercises(content: dict[str, Any], now: datetime) -> Iterator[str]:
    """List every exercise for one learner."""
    rows = content["exercises"]
    yield _version_of(content)
    for step in STEPS:
        ids = [id for id in EXERCISES if id.startswith(step.number)]
        if not ids:
            continue
        yield "\n" + message(
            "{number} {title}: {solved} of {total}",
            number=step.number,
            title=declared(step.title),
            solved=sum(_is_solved(rows, id) for id in ids),
            total=len(ids),
        )
        yield from (f"  {_line(id, rows[id])}" for id in ids if id in rows)
    yield from _by_hand(content, now)
    solved = sum(_is_solved(rows, id) for id in EXERCISES)
    yield "\n" + message("Solved: {solved} of {total}", solved=solved, total=len(EXERCISES))
    unknown = ", ".join(id for id in rows if id not in EXERCISES)
    if unknown:
        yield message("From another version of the course: {ids}", ids=unknown)


def _class(files: list[Path], now: datetime) -> str:
    names = [printable(str(path.parent if path.name == FILE else path)) for path in files]
    width = max(map(len, names), default=0)
    lines, made, wrong = [], Counter(), Counter()
    for name, path in zip(names, files, strict=True):
        try:
            content = read(path, follow_link=False)
        except (OSError, ValueError) as error:
            reason = message(
                "cannot be read ({kind})", kind=type(error.__cause__ or error).__name__
            )
            lines.append(f"{name:{width}}  {reason}")
            continue
        rows = content["exercises"]
        solved = message(
            "solved {solved:3} of {total}, mastered by hand {mastered:2} of {drills}, "
            "wrong answers {wrong:3}",
            solved=sum(_is_solved(rows, id) for id in EXERCISES),
            total=len(EXERCISES),
            mastered=[*states(content["by hand"], now).values()].count("mastered"),
            drills=len(DRILLS),
            wrong=sum(row["wrong answers"] for row in rows.values()),
        )
        lines.append(f"{name:{width}}  {solved}; {_version_of(content)}")
        made.update({mistake for row in rows.values() for mistake in row["mistakes"]})
        wrong.update({id: row["wrong answers"] for id, row in rows.items() if id in EXERCISES})
    if made:
        lines.append("\n" + message("Mistakes, by the number of learners who made them:"))
    for id, count in sorted(made.items(), key=lambda item: (-item[1], item[0])):
        lines.append(f"  {count:3}  {id}{_taught(id)}")
    if wrong.total():
        lines.append("\n" + message("Exercises with the most wrong answers:"))
    lines += [f"  {count:3}  {id}" for id, count in wrong.most_common(5) if count]
    return "\n".join(lines)


def _taught(id: str) -> str:
    """Format the sentence of a mistake and the title of the notebook that teaches it."""
    if id not in MISTAKES:
        return ""
    lines = [declared(MISTAKES[id].sentence)]
    if MISTAKES[id].step:
        number, _, title, *_ = find_step(MISTAKES[id].step)
        lines += [message("Notebook {number} ({title}).", number=number, title=declared(title))]
    return "\n" + textwrap.indent("\n".join(lines), " " * 7)


def _line(id: str, row: dict[str, Any]) -> str:
    day = (row["solved"] or "")[:10]
    solved = message("{id}  solved on {day}", id=id, day=day)
    parts = [solved if day else message("{id}  open", id=id)]
    if row["wrong answers"]:
        parts.append(plural("{count} wrong answer", "{count} wrong answers", row["wrong answers"]))
    if row["mistakes"]:
        parts.append(message("mistakes: {ids}", ids=", ".join(row["mistakes"])))
    return "; ".join(parts)


def _version_of(content: dict[str, Any]) -> str:
    begun, here = content["version"], version("twelve-numbers")
    if begun == here:
        return message("started with version {version}", version=begun)
    return message(
        "started with version {version} (installed: {installed})", version=begun, installed=here
    )


def _update(row: dict[str, Any], right: bool, mistake: str | None, now: datetime) -> None:
    if right:
        row["solved"] = row["solved"] or now.isoformat(timespec="seconds")
    # Experiments after the right answer do not count as wrong answers.
    elif not row["solved"]:
        row["wrong answers"] = min(row["wrong answers"] + 1, MOST)
        if mistake and mistake not in row["mistakes"]:
            row["mistakes"].append(mistake)


def _is_solved(rows: dict[str, Any], id: str) -> bool:
    return id in rows and rows[id]["solved"] is not None


def _is_row(row: Any) -> bool:
    return (
        isinstance(row["wrong answers"], int)
        and 0 <= row["wrong answers"] <= MOST
        and (row["solved"] is None or _is_word(row["solved"]))
        and isinstance(row["mistakes"], list)
        and all(map(_is_word, row["mistakes"]))
    )


def _is_word(value: Any) -> bool:
    # Control characters could overwrite the text on a terminal.
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= LONGEST


def _write(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1) + "\n"
    if len(text) > LARGEST:
        raise ValueError(f"it would have more than {LARGEST:,} characters")
    replace_file(path, text)


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically: after a failure it has the old content. Symbolic links remain.

    Args:
        path: The file.
        text: Its new content.

    Raises:
        OSError: If the file cannot be written.
    """
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.new")
    # Create a new file, because an old one of this name may be a link or a pipe.
    temporary.unlink(missing_ok=True)
    with temporary.open("x", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
