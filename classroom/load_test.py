"""Simulates a whole class on a separate hub, and measures time and memory.

Usage: sudo make hub-test [STUDENTS=30] [HUB=/opt/twelve]

Students with temporary accounts log in, fetch a lesson, run it, give right, wrong or no answers,
and submit. The teacher collects and grades. Then the hub is killed and restarted. The exit status
is 1 if a mark is wrong or an answer is lost. docs/teaching.md shows the output.
"""

import argparse
import contextlib
import csv
import json
import os
import pwd
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import websocket

from classroom import accounts, start
from classroom.browser import Browser, Kernel, RefusedError, shown

ROOT = Path(__file__).resolve().parent.parent
# The next two ports are used too.
PORT, ADDRESS = 18000, "http://127.0.0.1:18000"
PREFIX, TEACHER = "twelveload", "twelveload-teacher"
COURSE, LESSON = "twelve", "04_attention"
# A third of the students gives right answers, a third makes this mistake, a third gives none.
WRONG = {"04-key-zeroed": "weights_of_dog = [1.0, 0.0]"}
# Seconds between the logins of two students.
ARRIVE = 1.5
# Measurements of each student: name of the row, unit, and number of decimals.
MEASURED = (
    ("password accepted", "s", 2),
    ("own server ready", "s", 1),
    ("lesson fetched, all at once", "s", 2),
    ("kernel ready, all at once", "s", 1),
    ("all cells of 04 run, all at once", "s", 1),
    ("submitted, all at once", "s", 2),
    ("memory of a server", "MiB", 0),
    ("memory of a kernel", "MiB", 0),
)
Answers = dict[str, str]  # sources of the answer cells, by exercise


def answer_cells(notebook: Path) -> Answers:
    """Read the answer cells of a notebook, without nbgrader's markers."""
    answers = {}
    for cell in json.loads(notebook.read_bytes())["cells"]:
        metadata = cell["metadata"].get("nbgrader", {})
        if metadata.get("solution"):
            lines = "".join(cell["source"]).split("\n")
            kept = [line for line in lines if not line.strip().startswith("### ")]
            answers[metadata["grade_id"].removesuffix("-answer")] = "\n".join(kept)
    return answers


def processes(account: str, program: str = "") -> list[psutil.Process]:
    """List the processes of an account whose command line contains a program."""
    listed = psutil.process_iter(["username", "cmdline"])
    return [
        process
        for process in listed
        if process.info["username"] == account and program in " ".join(process.info["cmdline"])
    ]


@dataclass
class Student:
    """A simulated student with a browser."""

    name: str
    number: int
    password: str
    browser: Browser
    kernel: Kernel | None = None
    path: str = ""
    notebook: dict[str, Any] = field(default_factory=dict)
    written: Answers = field(default_factory=dict)
    saved: bytes = b""
    measured: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, row: str) -> Iterator[None]:
        """Measure the duration of a step."""
        begin = time.monotonic()
        yield
        self.measured[row] = time.monotonic() - begin

    def arrive(self) -> None:
        """Log in, and wait for the student's server."""
        time.sleep(self.number * ARRIVE)
        with self.timed("password accepted"):
            self.browser.log_in(self.password)
        with self.timed("own server ready"):
            self.browser.start_server(180)

    def fetch(self) -> None:
        """Fetch the lesson, and open it."""
        with self.timed("lesson fetched, all at once"):
            lesson = self.press("fetch", "fetched")
        self.path = lesson["notebooks"][0]["path"]
        self.notebook = self.browser.ask("GET", f"api/contents/{self.path}")["content"]

    def open_kernel(self) -> None:
        """Start a kernel, and wait until it answers."""
        with self.timed("kernel ready, all at once"):
            self.kernel = Kernel(self.browser, self.path)
            self.kernel.ready(180)

    def run_lesson(self) -> None:
        """Run all cells."""
        with self.timed("all cells of 04 run, all at once"):
            for cell in self.notebook["cells"]:
                if cell["cell_type"] == "code":
                    cell["outputs"] = self.kernel.run(cell["source"])

    def answer(self) -> None:
        """Fill in the answers, and run them and their checks."""
        for cell in self.notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            id, _, role = name.rpartition("-")
            if role == "answer" and id in self.written:
                cell["source"] = self.written[id]
            if role:
                cell["outputs"] = self.kernel.run(cell["source"])

    def save(self) -> None:
        """Save the notebook, and remember the bytes on disk."""
        self.browser.save(self.path, self.notebook)
        self.saved = self.browser.file(self.path)

    def submit(self) -> None:
        """Submit the saved notebook."""
        with self.timed("submitted, all at once"):
            self.press("submit", "submitted")

    def press(self, action: str, status: str) -> dict[str, Any]:
        """Press a button in the assignment list, and return the new state of the lesson."""
        path = f"assignments/{action}"
        reply = self.browser.ask("POST", path, course_id=COURSE, assignment_id=LESSON)
        for lesson in reply["value"] if reply["success"] else ():
            if (lesson["assignment_id"], lesson["status"]) == (LESSON, status):
                return lesson
        raise RefusedError(f"{action}: {reply}")

    def measure_memory(self) -> None:
        """Measure the memory of server and kernel in MiB, as proportional set size (PSS)."""
        for name, program in (("server", "singleuser"), ("kernel", "ipykernel")):
            self.measured[f"memory of a {name}"] = mebibytes(processes(self.name, program))


def mebibytes(of: Iterable[psutil.Process]) -> float:
    """Return the total memory of processes in MiB."""
    return sum(process.memory_full_info().pss for process in of) / 2**20


class Room:
    """A separate hub with temporary accounts.

    Args:
        hub: Folder of the installation.
        count: Number of students.
    """

    def __init__(self, hub: Path, count: int) -> None:
        self.hub, self.count = hub, count
        self.folder = Path(tempfile.mkdtemp(prefix="twelve-hub-test-"))
        self.folder.chmod(0o755)
        self.course = self.folder / "home" / TEACHER / "course"
        self.students: list[Student] = []

    def open(self) -> None:
        """Start the hub with the command of `make hub`, and wait until it answers."""
        command = [
            *(sys.executable, "-m", "classroom.start", "--students", str(self.count)),
            *("--folder", str(self.folder), "--hub", str(self.hub)),
            *("--port", str(PORT), "--prefix", PREFIX, "--teacher", TEACHER),
        ]
        with (self.folder / "start.log").open("a") as log:
            self.start = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        if not start.ready(self.start, ADDRESS, 900):
            log = (self.folder / "start.log").read_text()
            raise ChildProcessError(f"the hub did not start: {log[-2000:]}")

    def fill(self, right: Answers) -> None:
        """Create the students, each with a browser and a set of answers."""
        kinds = [right, right | WRONG, {}]
        with (self.folder / accounts.PASSWORDS).open(newline="") as file:
            passwords = {row["account"]: row["password"] for row in csv.DictReader(file)}
        del passwords[TEACHER]
        for number, (name, password) in enumerate(passwords.items()):
            browser = Browser(ADDRESS, name)
            written = kinds[number % 3]
            self.students.append(Student(name, number, password, browser, written=written))

    def everyone(self, step: Callable[[Student], None]) -> None:
        """Run a step for all students at the same time.

        Args:
            step: Function to call with each student.

        Raises:
            Exception: The error of the first student whose step failed.
        """
        with ThreadPoolExecutor(self.count) as pool:
            list(pool.map(step, self.students))

    def teacher(self, *words: str) -> float:
        """Run a module as the teacher in the course folder, and return the seconds taken.

        Raises:
            ChildProcessError: If the module fails; the message contains its error output.
        """
        begin, account = time.monotonic(), pwd.getpwnam(TEACHER)
        python = self.hub / ".venv/bin/python"
        done = subprocess.run(
            [python, "-m", *words],
            cwd=self.course if self.course.exists() else self.hub,
            user=account.pw_uid, group=account.pw_gid, extra_groups=[],
            env={
                "HOME": account.pw_dir, "USER": TEACHER, "LOGNAME": TEACHER, "LANG": "C.UTF-8",
                "PATH": f"{python.parent}:/usr/bin:/bin", "TWELVE_COURSE": str(self.course),
                "TWELVE_EXCHANGE": str(self.folder / "exchange"),
                "JUPYTER_CONFIG_PATH": str(self.hub / "classroom/config"),
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ChildProcessError(f"{' '.join(words)}: {done.stderr[-2000:]}")
        return time.monotonic() - begin

    def release(self) -> Answers:
        """Write the course, release the lesson, and return the right answers."""
        self.teacher("tools.write_course", str(self.course))
        for command in ("generate_assignment", "release_assignment"):
            self.teacher("nbgrader", command, LESSON)
        return answer_cells(self.course / "source" / LESSON / f"{LESSON}.ipynb")

    def grade(self) -> float:
        """Collect and grade, and return the seconds of grading."""
        self.teacher("nbgrader", "collect", LESSON)
        seconds = self.teacher("nbgrader", "autograde", LESSON)
        self.teacher("nbgrader", "export")
        return seconds

    def check_homes(self) -> None:
        """Check that every home contains the notebook that the student saved last."""
        for student in self.students:
            home = self.folder / "home" / student.name
            assert (home / student.path).read_bytes() == student.saved, f"{home}: work is lost"

    def check_marks(self, right: Answers) -> None:
        """Check that submissions equal the saved notebooks, and that the marks are right."""
        self.check_homes()
        with (self.course / "grades.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["assignment"] == LESSON]
        scores = {row["student_id"]: float(row["score"]) for row in rows}
        for student in self.students:
            collected = self.course / "submitted" / student.name / LESSON / f"{LESSON}.ipynb"
            assert collected.read_bytes() == student.saved, f"{collected}: work is lost"
            expected = sum(student.written.get(id) == source for id, source in right.items())
            assert scores[student.name] == expected, f"{student.name}: {scores} not {expected}"

    def hub_processes(self) -> list[psutil.Process]:
        """List the processes of the hub and its proxy, found by their working directory."""
        listed = psutil.process_iter(["cwd"])
        return [process for process in listed if process.info["cwd"] == f"{self.folder}/hub"]

    def stop(self) -> None:
        """Stop the hub as Ctrl+C does."""
        self.start.send_signal(signal.SIGINT)
        self.start.wait(120)

    def remove(self) -> None:
        """Kill the remaining processes, and remove the accounts."""
        left = [p for name in accounts.members(self.folder) for p in processes(name)]
        for process in self.hub_processes() + left:
            with contextlib.suppress(psutil.Error):
                process.kill()
                process.wait(30)
        accounts.remove(self.folder)


def hold_lesson(room: Room) -> str:
    """Run a lesson from the first login to the marks, and format the measurements.

    Raises:
        AssertionError: If a mark is wrong, or an answer is lost.
    """
    load, right = os.getloadavg()[0], room.release()
    room.fill(right)
    begin = time.monotonic()
    room.everyone(Student.arrive)
    arrived = time.monotonic() - begin
    for step in (Student.fetch, Student.open_kernel, Student.run_lesson, Student.answer):
        room.everyone(step)
    for student in room.students:
        student.measure_memory()
    hub = mebibytes(room.hub_processes())
    room.everyone(Student.save)
    room.everyone(Student.submit)
    graded = room.grade()
    room.check_marks(right)

    kinds = [str(len(room.students[number::3])) for number in range(3)]
    values = {row: [student.measured[row] for student in room.students] for row, *_ in MEASURED}
    total = hub + sum(values["memory of a server"] + values["memory of a kernel"])
    everybody = f"{room.count} of {room.count}"
    rows = [
        ("one lesson", "measured"),
        ("---", "---"),
        ("students: all right, with a mistake, no answers", ", ".join(kinds)),
        ("load of the machine before they came", f"{load:.1f}"),
        ("from the first login until all are in", f"{arrived:.0f} s"),
        *((row, spread(values[row], unit, digits)) for row, unit, digits in MEASURED),
        ("memory of hub and proxy", f"{hub:.0f} MiB"),
        ("memory of the whole class", f"{total / 2**10:.1f} GiB"),
        ("graded, for one student", f"{graded / room.count:.1f} s"),
        ("marks as they must be", everybody),
        ("collected as it was saved, byte for byte", everybody),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def kill_hub(room: Room) -> str:
    """Kill the hub while every kernel is busy, restart it, and report the outcome."""

    def go_on(student: Student) -> None:
        try:
            student.kernel.ready(60)
        except (websocket.WebSocketException, OSError):
            student.kernel.connect()
        assert shown(student.kernel.run("print(kept)")) == "2\n", "a variable is lost"
        student.save()

    def running() -> list[int]:
        programs = ("singleuser", "ipykernel")
        return [p.pid for s in room.students for word in programs for p in processes(s.name, word)]

    for student in room.students:
        student.kernel.begin("import time; kept = 1; time.sleep(5); kept += 1")
    before, begin = running(), time.monotonic()
    os.kill(int((room.folder / "hub/hub.pid").read_text()), signal.SIGKILL)
    room.start.wait(60)
    room.everyone(Student.save)
    room.open()
    away = time.monotonic() - begin
    room.everyone(go_on)
    assert running() == before, "servers or kernels ended with the hub"
    room.check_homes()
    return (
        f"The hub was killed and away for {away:.0f} s, while a cell ran in each of {room.count} "
        "kernels. Every server and kernel lived on, and no variable was lost. Meanwhile all could "
        "save. Nobody had to log in again."
    )


def spread(values: Sequence[float], unit: str, digits: int) -> str:
    """Format the median and the maximum."""
    return f"{statistics.median(values):.{digits}f} {unit}, worst {max(values):.{digits}f}"


def main(words: Sequence[str]) -> int:
    """Run the load test.

    Args:
        words: The arguments of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.load_test", description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--hub", type=Path, default=Path("/opt/twelve"))
    options = parser.parse_args(words)
    if os.geteuid():
        print("Each student gets a Unix account: sudo make hub-test.", file=sys.stderr)
        return 1
    if left := [entry for entry in pwd.getpwall() if entry.pw_name.startswith(PREFIX)]:
        print(
            "A load test is running, or one was killed. To remove its accounts: sudo python3 -m "
            f"classroom.accounts {Path(left[0].pw_dir).parents[1]} --remove",
            file=sys.stderr,
        )
        return 1
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    room = Room(options.hub.resolve(), options.students)
    print(f"The class is in {room.folder}, which stays if the test fails.", flush=True)
    try:
        room.open()
        print(hold_lesson(room), flush=True)
        print(kill_hub(room), flush=True)
        room.stop()
        room.check_homes()
        left = [process for student in room.students for process in processes(student.name)]
        assert not psutil.wait_procs(left, timeout=60)[1], "a server or a kernel runs on"
    finally:
        room.remove()
    shutil.rmtree(room.folder)
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    print(f"Measured on {cores} cores with {memory:.0f} GiB.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
