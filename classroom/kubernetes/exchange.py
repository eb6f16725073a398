"""Carries what is handed in and what is graded between the folders of students and of nbgrader.

Usage, in the teacher's course folder: python /opt/twelve/classroom/kubernetes/exchange.py
gather      before `nbgrader collect`: take what arrived
return      after `nbgrader generate_feedback`: give each student the pages about their own work

On a cluster all servers have one user, so the owner of a file says nothing. Each student has a
folder of the exchange that no other student's server has: arrived/NAME, in which nbgrader puts what
NAME submits, and returned/NAME, which NAME may read. values.yaml mounts them; the name is the
hub's.
"""

import shutil
import sys
from datetime import datetime
from pathlib import Path

EXCHANGE = Path("/srv/nbgrader/exchange/twelve")
# nbgrader writes it last, with the time of its name: without it, a submission is being copied.
DONE = "timestamp.txt"
TIME = "%Y-%m-%d %H:%M:%S.%f UTC"


def neither_file_nor_folder(folder: str, names: list[str]) -> list[str]:
    """Find what shutil.copytree shall leave out.

    A link may lead to a file of the teacher's, which nbgrader would send back with the feedback.
    """
    paths = {name: Path(folder, name) for name in names}
    return [
        name
        for name, path in paths.items()
        if path.is_symlink() or not (path.is_file() or path.is_dir())
    ]


def time_of(name: str, student: str) -> str | None:
    """Read when a submission was made: "anna+04_attention+2026-11-23 13:07:00.008393 UTC+a9dE".

    Args:
        name: Every word of which the student may have chosen. One that nbgrader cannot read would
            end its collection of all.
        student: In whose folder it lies.

    Returns:
        The time, or None where the name is no such name, or that of another student.
    """
    match name.split("+"):
        case [who, _, time, _] if who == student:
            try:
                datetime.strptime(time, TIME)
            except ValueError:
                return None
            return time
    return None


def gather(exchange: Path) -> list[str]:
    """Copy what arrived to where nbgrader collects, and leave it where it is: it is a receipt.

    Args:
        exchange: The course in the exchange, with the folders arrived/NAME.

    Returns:
        What there is to say about it, line by line.
    """
    inbound, lines = exchange / "inbound", []
    for student in sorted(path for path in (exchange / "arrived").glob("*") if path.is_dir()):
        for work in sorted(student.iterdir()):
            said, time = f"{student.name}: {work.name}", time_of(work.name, student.name)
            if time is None:
                lines.append(f"{said} left out: no name that nbgrader gives work of {student.name}")
            elif work.is_symlink():  # it may lead to what another student handed in
                lines.append(f"{said} left out: it is a link")
            elif not (work / DONE).is_file():
                lines.append(f"{said} left for the next time: it is not complete")
            elif not (inbound / work.name).exists():
                try:
                    shutil.copytree(work, inbound / work.name, ignore=neither_file_nor_folder)
                    if (inbound / work.name / DONE).read_text() != time:
                        raise ValueError(f"{DONE} holds another time")
                except (OSError, ValueError) as error:  # the work of others still counts
                    shutil.rmtree(inbound / work.name, ignore_errors=True)
                    lines.append(f"{said} left out: {error}")
                else:
                    lines.append(said)
    return lines


def give_back(exchange: Path, course: Path) -> list[str]:
    """Copy the pages of feedback to the students whom they are about.

    Args:
        exchange: The course in the exchange.
        course: The folder in which nbgrader wrote feedback/NAME/ASSIGNMENT.

    Returns:
        A line for each assignment of a student.
    """
    lines = []
    for graded in sorted(path for path in (course / "feedback").glob("*/*") if path.is_dir()):
        to = exchange / "returned" / graded.parent.name / graded.name
        shutil.copytree(graded, to, dirs_exist_ok=True)
        lines.append(f"{graded.parent.name}: {graded.name}")
    return lines


def main(words: list[str]) -> int:
    """Do what the word says, and say what was done."""
    match words:
        case ["gather"]:
            lines = gather(EXCHANGE)
        case ["return"]:
            lines = give_back(EXCHANGE, Path())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(*lines or ["Nothing new."], sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
