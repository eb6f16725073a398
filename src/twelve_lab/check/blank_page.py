"""Open a by-hand page: clear its answers, save the old ones, and start the clock."""

import inspect
import json
import textwrap
from datetime import datetime
from pathlib import Path

from twelve_lab.check.diagnose import exercise
from twelve_lab.check.progress import FILE, changed, read, replace_file
from twelve_lab.check.repetition import new_record, opens, proposed, states
from twelve_lab.check.solve import STUB
from twelve_lab.course import DRILLS, LISTS, Drill
from twelve_lab.exercises.declare import Question
from twelve_lab.messages import declared, message

# The folder of old answers, with one file per page.
ANSWERS = "answers"


def blank(id: str) -> str:
    """Format the blank answer cell of an exercise: its first line, contract and placeholder.

    Args:
        id: Id of the exercise.
    """
    asked = exercise(id)
    if isinstance(asked, Question):
        return f"{asked.name} = ...\n{STUB}"
    answer = asked.solved or asked.right
    head, space = f"def {asked.name}({', '.join(inspect.signature(answer).parameters)}):", ""
    if isinstance(answer, type):
        head, space = f"class {answer.__name__.lstrip('_')}(nn.Module):", "\n"
    contract = textwrap.fill(f'"""{asked.contract}"""', 84)
    return f"{head}\n" + textwrap.indent(f"{contract}\n{space}{STUB}", " " * 4)


def wanted(folder: Path, task: str | None, now: datetime) -> tuple[Drill | None, str]:
    """Choose the page to open, and give the reason.

    Args:
        folder: Folder that may hold a progress.json.
        task: Stem of a page; None chooses the next task.
        now: The current time.

    Returns:
        The task, or None if no task is open today, and the reason.

    Raises:
        ValueError: If no page has this stem, or the progress.json is invalid.
        OSError: If a file cannot be read.
    """
    records = read(folder / FILE)["by hand"] if (folder / FILE).exists() else {}
    drills = {drill.stem: drill for drill in DRILLS}
    if task is not None and task not in drills:
        tasks = ", ".join(drills)
        raise ValueError(message("unknown task {task} (known: {tasks})", task=task, tasks=tasks))
    drill = drills[task] if task else proposed(records, now)
    if drill is None:
        days = [day for each in DRILLS if (day := opens(records[each.exercise]))]
        if not days:
            return None, message("All tasks are mastered.")
        return None, message("Nothing to do today. The next page: {day}.", day=min(days))
    title = declared(drill.title)
    how = states(records, now)[drill]
    reasons = {
        "failed": message("{title}: your last answer was wrong.", title=title),
        "due": message("{title}: the last right answer is some days old.", title=title),
        "new": message(
            "{title}: not tried yet. {asked} of {lists} lists of interview questions ask for it.",
            title=title,
            asked=drill.asked,
            lists=LISTS,
        ),
    }
    return drill, reasons.get(how, message("{title}: your choice.", title=title))


def open_page(drill: Drill, page: Path, now: datetime) -> Path | None:
    """Clear the answer cells of a page, and start the clock.

    Args:
        drill: The task.
        page: The notebook of the task, in a subfolder beside the progress.json.
        now: The current time.

    Returns:
        The file of old answers; None if the page had no answers.

    Raises:
        ValueError: If the page is not a notebook or lacks the answer cell of the task.
        OSError: If a file cannot be read or written.
    """
    kept = _empty(drill, page, now)
    with changed(page.parent.parent / FILE) as content:
        record = content["by hand"].setdefault(drill.exercise, new_record())
        record["started"] = now.isoformat(timespec="seconds")
    return kept


def _empty(drill: Drill, page: Path, now: datetime) -> Path | None:
    text = page.read_text(encoding="utf-8")
    try:
        notebook = json.loads(text)
        cells = [(_grade_id(cell), cell) for cell in notebook["cells"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(message("{page} is not a notebook.", page=page)) from error
    if f"{drill.exercise}-answer" not in dict(cells):
        text = message("{page} has no answer cell for {id}.", page=page, id=drill.exercise)
        raise ValueError(text)
    old = []
    for name, cell in cells:
        id, _, kind = name.rpartition("-")
        if kind == "answer":
            source, empty = "".join(cell["source"]), blank(id)
            if source.strip() != empty.strip():
                old.append(source)
            cell["source"] = empty.splitlines(keepends=True)
        if kind in ("answer", "check"):
            cell["outputs"], cell["execution_count"] = [], None
    if not old:
        return None
    # Save the old answers before changing the page.
    kept = page.parent / ANSWERS / f"{drill.stem}.py"
    kept.parent.mkdir(exist_ok=True)
    time = f"# {now.isoformat(sep=' ', timespec='seconds')}"
    with kept.open("a", encoding="utf-8") as file:
        file.write("\n\n".join([time, *old]) + "\n\n\n")
    replace_file(page, json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    return kept


def _grade_id(cell: dict) -> str:
    return cell["metadata"].get("nbgrader", {}).get("grade_id", "")
