"""Plays a whole class on a hub of its own: what it costs, and what faults do to it.

Usage: sudo make hub-test [STUDENTS=30] [HUB=/opt/twelve] [ARGS=--write]

Students with temporary accounts log in, fetch a lesson, run it, answer right, wrong or not at all,
and submit. The teacher collects and grades. Then the hub is killed, kernels are killed, a disk is
full, a student has two browsers, and a student submits twice. The exit status is 1 if a mark is
wrong or an answer is lost. With --write, the two tables go into docs/teaching.md.
"""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
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

import nbformat
import psutil
import requests
import websocket

from classroom import accounts
from classroom.browser import Browser, Kernel, KernelDiedError, RefusedError, shown, until

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "teaching.md"
HEADING = "### What a class costs, and what faults do to it"
PREFIX, TEACHER, FOLDER = "twelvetest", "twelvetest-teacher", "twelve-hub-test-"
LOCK = Path("/run/lock/twelve-hub-test")
COURSE, LESSON = "twelve", "04_attention"
STUB = "# Your answer goes here."
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
KINDS = ("right", "wrong", "none")
# Wrong answers, and a part of what `check` replies.
MISTAKES = {
    "04-key-zeroed": ("weights_of_dog = [1.0, 0.0]", "the score 0, not the weight 0."),
    "04-keys-reversed": ('what_changes = {"scores", "weights", "context"}', "Not all of them:"),
    "04-attention": ("return (query @ key.mT).softmax(-1) @ value", "scores are not scaled"),
}
# Seconds between two students who log in.
ARRIVE = 1.5
Answers = dict[str, str]  # sources of the answer cells, by exercise
Marks = dict[str, float]


def answer_cells(cells: list[dict[str, Any]]) -> Answers:
    """Return the answer cells of a notebook, without the marks around a solution."""
    answers = {}
    for cell in cells:
        metadata = cell["metadata"].get("nbgrader", {})
        if metadata.get("solution"):
            lines = "".join(cell["source"]).split("\n")
            kept = [line for line in lines if line.strip() not in (BEGIN, END)]
            answers[metadata["grade_id"].removesuffix("-answer")] = "\n".join(kept)
    return answers


def write_answers(blank: Answers, right: Answers, number: int) -> Answers:
    """Return what a student writes, by the kind of the student.

    Args:
        blank: The unsolved cells.
        right: The solved cells.
        number: The student's index. Students who are wrong make one mistake, two, three, one, ...
    """
    kind, turn = KINDS[number % len(KINDS)], number // len(KINDS)
    if kind == "none":
        return {}
    wrong = list(right)[: 1 + turn % len(right)] if kind == "wrong" else []
    return {**right, **{id: blank[id].replace(STUB, MISTAKES[id][0]) for id in wrong}}


def marks_due(right: Answers, written: Answers) -> Marks:
    """Return the marks that a student deserves."""
    return {id: float(written.get(id) == source) for id, source in right.items()}


def reply_due(id: str, right: Answers, written: Answers) -> str:
    """Return a part of what `check` has to reply to an answer."""
    if id not in written:
        return f"{id}: Not started yet"
    return f"✓ {id}: right" if written[id] == right[id] else MISTAKES[id][1]


@dataclass
class Student:
    """A student with a browser."""

    name: str
    number: int
    password: str
    browser: Browser
    kernel: Kernel = None
    path: str = ""
    notebook: dict[str, Any] = None
    written: Answers = field(default_factory=dict)
    saved: bytes = b""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    submissions: int = 0

    @contextlib.contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Measure the duration of a step."""
        begin = time.monotonic()
        yield
        self.seconds[step] = time.monotonic() - begin

    def processes(self, program: str) -> list[psutil.Process]:
        """Return the processes of this account that run a program."""
        processes = []
        for process in of_account(self.name):
            with contextlib.suppress(psutil.Error):
                if program in " ".join(process.cmdline()):
                    processes.append(process)
        return processes

    def arrive(self) -> None:
        """Log in, and wait for the server."""
        time.sleep(self.number * ARRIVE)
        with self.timed("log in"):
            self.browser.log_in(self.password)
        with self.timed("server"):
            self.browser.start_server(180)

    def fetch(self) -> None:
        """Fetch the lesson, and open it."""
        with self.timed("fetch"):
            lesson = self._assignment("fetch", "fetched")
        (self.path,) = (notebook["path"] for notebook in lesson["notebooks"])
        self.notebook = self.browser.contents(self.path)["content"]

    def open_kernel(self) -> None:
        """Start a kernel, and wait until it answers."""
        with self.timed("kernel"):
            self.kernel = Kernel(self.browser, self.path)
            self.kernel.ready(180)

    def run_all(self) -> None:
        """Run all cells."""
        code = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        with self.timed("lesson"):
            for count, cell in enumerate(code, 1):
                cell["execution_count"] = count
                cell["outputs"] = self.kernel.run(cell["source"])

    def answer(self, right: Answers) -> None:
        """Write the answers, run them and their checks, and compare the replies."""
        for cell in self.notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            id, _, role = name.rpartition("-")
            if role == "answer" and id in self.written:
                cell["source"] = self.written[id]
                cell["outputs"] = self.kernel.run(cell["source"])
            elif role == "check":
                cell["outputs"] = self.kernel.run(cell["source"])
                reply, due = shown(cell["outputs"]), reply_due(id, right, self.written)
                assert due in reply, f"{id}: {reply!r} has no {due!r}"

    def save(self) -> None:
        """Save, and remember the bytes on the disk."""
        self.browser.save(self.path, self.notebook)
        self.saved = self.browser.file(self.path)

    def note(self, text: str) -> None:
        """Add a cell at the end."""
        cell = {"cell_type": "markdown", "metadata": {}, "source": text}
        self.notebook["cells"].append({"id": f"note-{len(self.notebook['cells'])}", **cell})

    def submit(self) -> None:
        """Submit the saved notebook."""
        with self.timed("submit"):
            lesson = self._assignment("submit", "submitted")
        self.submissions += 1
        assert len(lesson["submissions"]) == self.submissions, lesson

    def read_feedback(self) -> str:
        """Fetch the feedback for the last submission, and return its page."""
        lesson = self._assignment("fetch_feedback", "submitted")
        last = max(lesson["submissions"], key=lambda submission: submission["timestamp"])
        return self.browser.file(f"{last['local_feedback_path']}/{LESSON}.html").decode()

    def _assignment(self, action: str, status: str) -> dict[str, Any]:
        """Press a button in the list of assignments, and return the new state of the lesson."""
        reply = self.browser.ask(
            "POST", f"assignments/{action}", course_id=COURSE, assignment_id=LESSON
        )
        for lesson in reply["value"] if reply["success"] else ():
            if (lesson["assignment_id"], lesson["status"]) == (LESSON, status):
                return lesson
        raise RefusedError(f"{action}: {reply}")

    def measure_memory(self) -> None:
        """Measure server and kernel; a shared page counts by its share (PSS)."""
        for name, program in (("server", "singleuser"), ("kernel", "ipykernel")):
            self.memory[name] = sum(p.memory_full_info().pss for p in self.processes(program))


class Room:
    """A hub of its own with temporary accounts.

    Args:
        hub: The folder of the installation.
        count: The number of students.
    """

    def __init__(self, hub: Path, count: int) -> None:
        self.hub, self.python = hub, hub / ".venv/bin/python"
        self.folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        self.folder.chmod(0o755)
        self.port = free_ports(3)
        self.address = f"http://127.0.0.1:{self.port}"
        self.count, self.start = count, None
        self.course = self.folder / "home" / TEACHER / "course"
        self.students: list[Student] = []

    def open(self) -> None:
        """Start the hub with the command of `make hub`, and wait until it answers."""
        with (self.folder / "start.log").open("a") as log:
            self.start = subprocess.Popen(
                [
                    *(sys.executable, "-m", "classroom.start", "--students", str(self.count)),
                    *("--folder", str(self.folder), "--hub", str(self.hub)),
                    *("--port", str(self.port), "--prefix", PREFIX, "--teacher", TEACHER),
                ],
                cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        until(self.answers, 900, "the hub answers")

    def answers(self) -> bool:
        """Tell whether the hub answers.

        Raises:
            ChildProcessError: If it ended.
        """
        if self.start.poll() is not None:
            log = (self.folder / "start.log").read_text()
            raise ChildProcessError(f"the hub did not start: {log[-2000:]}")
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{self.address}/hub/health", timeout=5).ok
        return False

    def fill(self) -> None:
        """Give every student a browser."""
        with (self.folder / "passwords.csv").open(newline="") as file:
            passwords = {row["account"]: row["password"] for row in csv.DictReader(file)}
        passwords.pop(TEACHER)
        self.students = [
            Student(name, number, password, Browser(self.address, name))
            for number, (name, password) in enumerate(passwords.items())
        ]
        assert len(self.students) == self.count, passwords.keys()

    def everyone(
        self, step: Callable[[Student], Any], among: Sequence[Student] | None = None
    ) -> float:
        """Let students do a step at the same time.

        Args:
            step: What each student does.
            among: The students; all if not given.

        Returns:
            The seconds until the last student was done.

        Raises:
            ExceptionGroup: With the name of each student for whom it failed.
        """
        among, begin = self.students if among is None else among, time.monotonic()
        with ThreadPoolExecutor(len(among)) as pool:
            futures = [pool.submit(step, student) for student in among]
            errors = []
            for student, future in zip(among, futures, strict=True):
                if error := future.exception():
                    error.add_note(f"student {student.name}")
                    errors.append(error)
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(among)} students are stuck", errors)
        return time.monotonic() - begin

    def teacher(self, *words: str) -> float:
        """Run a module as the teacher, in the course; return the seconds it took.

        Raises:
            ChildProcessError: With its output, if it fails.
        """
        begin, account = time.monotonic(), pwd.getpwnam(TEACHER)
        done = subprocess.run(
            [self.python, "-m", *words],
            cwd=self.course if self.course.exists() else self.hub,
            user=account.pw_uid, group=account.pw_gid, extra_groups=[],
            env={
                "HOME": account.pw_dir, "USER": TEACHER, "LOGNAME": TEACHER, "LANG": "C.UTF-8",
                "PATH": f"{self.python.parent}:/usr/bin:/bin", "TWELVE_COURSE": str(self.course),
                "TWELVE_EXCHANGE": str(self.folder / "exchange"),
                "JUPYTER_CONFIG_PATH": str(self.hub / "classroom/config"),
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        with (self.folder / "teacher.log").open("a") as log:
            log.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
        if done.returncode:
            raise ChildProcessError(f"{' '.join(words)}: {done.stderr[-2000:]}")
        return time.monotonic() - begin

    def grade(self) -> float:
        """Collect, grade and return feedback; return the seconds of grading."""
        self.teacher("nbgrader", "collect", "--update", LESSON)
        seconds = self.teacher("nbgrader", "autograde", LESSON)
        for command in ("generate_feedback", "release_feedback"):
            self.teacher("nbgrader", command, LESSON)
        self.teacher("nbgrader", "export")
        return seconds

    def read(self, step: str) -> Answers:
        """Read the answer cells of the lesson in `release` or `source`."""
        path = self.course / step / LESSON / f"{LESSON}.ipynb"
        return answer_cells(json.loads(path.read_bytes())["cells"])

    def faults(self, right: Answers | None = None) -> list[str]:
        """Name all lost work and, after grading, all wrong marks.

        Args:
            right: The solutions, after grading.
        """
        homes, faults = self.folder / "home", []
        for student in self.students:
            copies = {"at home": homes / student.name / student.path}
            if right:
                copies["collected"] = self.course.joinpath(
                    "submitted", student.name, LESSON, f"{LESSON}.ipynb"
                )
            for where, path in copies.items():
                if not path.exists() or path.read_bytes() != student.saved:
                    faults.append(f"{student.name}: {where} differs from what was saved")
            there = answer_cells(json.loads(student.saved)["cells"])
            faults += [
                f"{student.name}: {id} is not in the saved file"
                for id, source in student.written.items()
                if there.get(id) != source
            ]
        if right:
            marks_of = self.marks()
            for student in self.students:
                due, marks = marks_due(right, student.written), marks_of.get(student.name)
                if marks != due:
                    faults.append(f"{student.name}: marks {marks} instead of {due}")
        return faults

    def marks(self) -> dict[str, Marks]:
        """Read the marks of each exercise from the gradebook, by student."""
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{self.course}/gradebook.db") as book:
            return {
                submission.student_id: {
                    grade.name.removesuffix("-check"): grade.score
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                }
                for submission in book.assignment_submissions(LESSON)
            }

    def stop(self) -> None:
        """Stop the hub as Ctrl+C does."""
        if self.start and self.start.poll() is None:
            self.start.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.start.wait(120)


def of_account(name: str) -> list[psutil.Process]:
    """List the processes of an account."""
    processes = psutil.process_iter(["username"])
    return [process for process in processes if process.info["username"] == name]


def of_hub(folder: Path) -> list[psutil.Process]:
    """List the hub of a class and its proxy, by their working folder."""
    processes = psutil.process_iter(["cwd"])
    return [process for process in processes if process.info["cwd"] == str(folder / "hub")]


def clear_away() -> None:
    """End the processes of load tests, and remove their accounts and mounts."""
    left = [entry for entry in pwd.getpwall() if f"/{FOLDER}" in entry.pw_dir]
    folders = {Path(entry.pw_dir).parents[1] for entry in left}
    processes = [process for folder in folders for process in of_hub(folder)]
    for process in processes + [p for entry in left for p in of_account(entry.pw_name)]:
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(30)
    for entry in left:
        subprocess.run(["umount", "--lazy", entry.pw_dir], stderr=subprocess.DEVNULL, check=False)
    for folder in folders:
        accounts.remove(folder)


def free_ports(count: int) -> int:
    """Return the first of several adjacent free ports."""
    for port in range(18000, 60000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for offset in range(count):
                listener = stack.enter_context(socket.socket())
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port + offset))
            return port
    raise OSError(f"no {count} adjacent free ports")


def usual_day(room: Room) -> list[tuple[str, str]]:
    """Hold a lesson, from the first login to the marks.

    Args:
        room: With the hub running.

    Returns:
        Names and values of the measurements.

    Raises:
        ExceptionGroup: If students cannot go on.
        AssertionError: If a mark is wrong or an answer is lost.
    """
    before = os.getloadavg()[0]
    room.teacher("tools.write_course", str(room.course))
    room.teacher("nbgrader", "generate_assignment", LESSON)
    room.teacher("nbgrader", "release_assignment", LESSON)
    blank, right = room.read("release"), room.read("source")
    room.fill()
    for student in room.students:
        student.written = write_answers(blank, right, student.number)
    arrived = room.everyone(Student.arrive)
    room.everyone(Student.fetch)
    room.everyone(Student.open_kernel)
    room.everyone(Student.run_all)
    room.everyone(lambda student: student.answer(right))
    for student in room.students:
        student.measure_memory()
    hub = sum(process.memory_full_info().pss for process in of_hub(room.folder))
    room.everyone(Student.save)
    room.everyone(Student.submit)
    graded = room.grade()
    for student in room.students:
        page = student.read_feedback()
        for id in right:
            assert reply_due(id, right, student.written) in page, f"{student.name}: {id}"
    assert not (faults := room.faults(right)), "\n".join(faults)

    def seconds(step: str, digits: int = 1) -> str:
        return spread([student.seconds[step] for student in room.students], "s", digits)

    def memory(program: str) -> str:
        return spread([s.memory[program] / 2**20 for s in room.students], "MiB", 0)

    kinds = [len(room.students[number :: len(KINDS)]) for number in range(len(KINDS))]
    total = hub + sum(sum(student.memory.values()) for student in room.students)
    everybody = f"{room.count} of {room.count}"
    return [
        ("students: all right, with mistakes, no answers", ", ".join(map(str, kinds))),
        ("load of the machine before they came", f"{before:.1f}"),
        ("from the first login until all are in", f"{arrived:.0f} s"),
        ("password accepted", seconds("log in", 2)),
        ("own server ready", seconds("server")),
        ("lesson fetched, all at once", seconds("fetch", 2)),
        ("kernel ready, all at once", seconds("kernel")),
        ("all cells of 04 run, all at once", seconds("lesson")),
        ("submitted, all at once", seconds("submit", 2)),
        ("memory of a server", memory("server")),
        ("memory of a kernel", memory("kernel")),
        ("memory of hub and proxy", f"{hub / 2**20:.0f} MiB"),
        ("memory of the whole class", f"{total / 2**30:.1f} GiB"),
        ("graded, for one student", f"{graded / room.count:.1f} s"),
        ("marks as they must be", everybody),
        ("collected as it was saved, byte for byte", everybody),
    ]


# Each fault returns what happened, and fails if an answer is lost.


def hub_killed(room: Room, right: Answers) -> str:
    """Kill the hub while every kernel works, and start it again."""
    refused, broke = [], []

    def begin(student: Student) -> None:
        student.kernel.run(f"kept = {student.number}")
        student.kernel.begin("import time; time.sleep(5); kept += 1000")

    def save_while_away(student: Student) -> None:
        student.note("Written while the hub was away.")
        try:
            student.save()
        except (RefusedError, requests.RequestException) as error:
            refused.append(str(error))

    def go_on(student: Student) -> None:
        try:
            student.kernel.ready(60)
        except (websocket.WebSocketException, OSError):
            broke.append(student)
            student.kernel.connect()
        reply = shown(student.kernel.run("print('kept', kept)"))
        assert f"kept {student.number + 1000}" in reply, reply
        student.note("Written after the hub was back.")
        student.save()

    def pids() -> list[int]:
        return [
            process.pid
            for student in room.students
            for program in ("singleuser", "ipykernel")
            for process in student.processes(program)
        ]

    before = pids()
    room.everyone(begin)
    os.kill(int((room.folder / "hub/hub.pid").read_text()), signal.SIGKILL)
    killed = time.monotonic()
    room.start.wait(60)
    room.everyone(save_while_away)
    login = requests.get(f"{room.address}/hub/login", timeout=60).status_code
    room.open()
    away = time.monotonic() - killed
    room.everyone(go_on)
    assert pids() == before, "servers or kernels ended with the hub"
    assert not (faults := room.faults()), faults
    others = f", the others read “{refused[0]}”" if refused else ""
    return (
        f"It was away for {away:.0f} s, while a cell ran in each of {room.count} kernels: every "
        "server and kernel lived on, and no variable was lost. Meanwhile "
        f"{room.count - len(refused)} of {room.count} could save{others}; the login page answered "
        f"{login}. {len(broke)} connections to kernels broke when it came back and were opened "
        "again, which a page does by itself. Nobody had to log in again."
    )


def kernels_killed(room: Room, right: Answers) -> str:
    """Kill the kernels of a third of the class while a cell runs."""
    some = room.students[: len(room.students) // 3]

    def suffer(student: Student) -> None:
        student.kernel.run("kept = 1")
        cell = student.kernel.begin("import time; time.sleep(120)")
        (process,) = student.processes("ipykernel")
        with student.timed("restart"):
            process.kill()
            try:
                student.kernel.answer(cell, 100)
            except KernelDiedError:
                student.kernel.ready(120)
            else:
                raise AssertionError("the kernel did not die")
        assert "NameError" in shown(student.kernel.run("kept"))
        assert student.browser.file(student.path) == student.saved, "the saved notebook changed"
        student.run_all()
        student.answer(right)
        student.save()

    room.everyone(suffer, some)
    restart = spread([student.seconds["restart"] for student in some], "s")
    return (
        f"{len(some)} of {room.count} students see that the kernel restarts; it answers after "
        f"{restart}. Variables are gone, the saved notebook is byte for byte what it was; the "
        "checks reply again what they replied."
    )


def disk_full(room: Room, right: Answers) -> str:
    """Fill the disk of one student, and save."""
    student = room.students[0]
    home = room.folder / "home" / student.name
    fill = (
        f"filler = {str(home / 'filler')!r}\n"
        "with open(filler, 'wb', 0) as file:\n"
        "    while True: file.write(bytes(4096))"
    )
    with small_disk(home, 4 * 2**20):
        filled = shown(student.kernel.run(fill))
        assert "No space left on device" in filled, filled
        checked = shown(student.kernel.run("check('04-key-zeroed', weights_of_dog)"))
        before = student.saved
        student.note("long " * 20_000)
        size = len(nbformat.writes(nbformat.from_dict(student.notebook)).encode())
        # First nothing can be written, then all but the end of the notebook.
        nearly = f"import os\nos.truncate(filler, os.path.getsize(filler) - {size} // 4096 * 4096)"
        for step in ("", nearly):
            student.kernel.run(step)
            for _ in range(2):  # a page saves again and again
                try:
                    student.browser.save(student.path, student.notebook)
                except RefusedError as error:
                    reply = str(error)
                else:
                    raise AssertionError("a save on a full disk succeeded")
                assert student.browser.file(student.path) == before, "the saved file is damaged"
        student.kernel.run("os.remove(filler)")
        student.save()
    assert not (faults := room.faults()), faults
    return (
        f"The cell that filled it ends with “{filled.splitlines()[-1]}”; `check` still answers: "
        f"“{' '.join(checked.split())}”. Each save fails, “{reply}”, and the notebook saved before "
        "is byte for byte there, where nothing fits and where all but the last piece does. Once "
        "the file is deleted, the next save holds all."
    )


def two_browsers(room: Room, right: Answers) -> str:
    """Let one student edit the lesson in two browsers."""
    student = room.students[0]
    other = Browser(room.address, student.name)
    other.log_in(student.password)
    other.enter()
    assert Kernel(other, student.path).id == student.kernel.id, "two kernels for one notebook"
    seen, checkpoints = other.contents(student.path), f"api/contents/{student.path}/checkpoints"
    student.note("From the first browser.")
    student.save()
    other.ask("POST", checkpoints)
    (checkpoint,) = other.ask("GET", checkpoints)
    now = other.contents(student.path, content=False)
    assert now["last_modified"] != seen["last_modified"], "the second browser cannot see the save"
    other.save(student.path, seen["content"])  # the server lets it overwrite
    assert student.browser.file(student.path) != student.saved
    other.ask("POST", f"{checkpoints}/{checkpoint['id']}")
    assert student.browser.file(student.path) == student.saved, "the first save is lost"
    student.notebook = other.contents(student.path)["content"]
    student.note("From the second browser.")
    student.save()
    assert student.saved.count(b" browser.") == 2
    return (
        "Both share one kernel. The page that saves second finds a newer file than the one it "
        "opened, and asks: *Revert* shows the newer one, *Overwrite* replaces it, which the server "
        "allows. *Revert to Checkpoint* brought back what was overwritten; the first page asks too "
        "when it saves next."
    )


def submitted_twice(room: Room, right: Answers) -> str:
    """Let a student who submitted no answers submit all of them."""
    student = room.students[KINDS.index("none")]
    student.written = dict(right)
    student.answer(right)
    student.save()
    student.submit()
    inbound = room.folder / "exchange" / COURSE / "inbound"
    kept = [path for path in inbound.iterdir() if path.name.startswith(f"{student.name}+{LESSON}+")]
    assert len(kept) == student.submissions, kept
    return (
        f"The exchange keeps {len(kept)} folders with their times, and the list of assignments "
        f"shows them; `collect --update` takes the last: {len(right)} marks instead of 0."
    )


FAULTS: dict[str, Callable[[Room, Answers], str]] = {
    "The hub is killed, and started again": hub_killed,
    "A third of the kernels are killed": kernels_killed,
    "The disk of a student is full": disk_full,
    "A student has two browsers": two_browsers,
    "A student submits twice": submitted_twice,
}


def bad_day(room: Room) -> list[tuple[str, str]]:
    """Cause one fault after the other, and grade again.

    Args:
        room: After the usual day.

    Returns:
        Each fault, and what happened.

    Raises:
        ExceptionGroup: If students cannot go on.
        AssertionError: If a mark is wrong or an answer is lost.
    """
    right, rows = room.read("source"), []
    for name, fault in FAULTS.items():
        rows.append((name, fault(room, right)))
        print(": ".join(rows[-1]), flush=True)
    room.everyone(Student.submit, [s for s in room.students if s.submissions == 1])
    room.grade()
    assert not (faults := room.faults(right)), "\n".join(faults)
    room.stop()
    processes = [process for student in room.students for process in of_account(student.name)]
    _, left = psutil.wait_procs(processes, timeout=60)
    assert not (faults := room.faults()), faults
    assert not left, left
    stopped = "All servers and kernels stop. Every notebook is on the disk as it was saved."
    return [*rows, ("Ctrl+C in the teacher's terminal", stopped)]


@contextlib.contextmanager
def small_disk(home: Path, free: int) -> Iterator[None]:
    """Mount a disk of its own over a home for a while.

    Args:
        home: With its files, which are copied to the disk and back.
        free: Free bytes on the disk.
    """

    def copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", f"{source}/.", target], check=True)

    with tempfile.TemporaryDirectory() as name:
        aside, account = Path(name), home.stat()
        copy(home, aside)
        used = int(subprocess.check_output(["du", "-sb", aside]).split()[0])
        options = f"size={used + free},mode=700,uid={account.st_uid},gid={account.st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", home], check=True)
        try:
            copy(aside, home)
            yield
            copy(home, aside)
        finally:
            subprocess.run(["umount", "--lazy", home], check=True)
        copy(aside, home)


def spread(values: Iterable[float], unit: str, digits: int = 1) -> str:
    """Format the median and the maximum."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} {unit}, worst {max(values):.{digits}f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", r"\|") for cell in r] for r in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def report(day: Sequence[tuple[str, str]], faults: Sequence[tuple[str, str]]) -> str:
    """Format both tables.

    Args:
        day: The measurements.
        faults: The faults, and what happened.
    """
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    return (
        "`make hub-test`, as root, plays a class on this machine and removes it again. Students "
        "log in, fetch notebook 04, run it, answer and submit by HTTP and websockets, as a browser "
        f"does. The teacher grades. On {cores} cores with {memory:.0f} GiB, the median and the "
        "worst of all students:\n\n"
        + table(("one lesson", "measured"), day)
        + "\nThen faults, one after the other. After each fault every answer was there, and the "
        "marks were right:\n\n" + table(("fault", "what happened"), faults)
    )


def replace_section(text: str, section: str) -> str:
    """Replace the section with the tables in a page.

    Args:
        text: The page.
        section: The new section.

    Raises:
        ValueError: If the page has no such section.
    """
    before, heading, rest = text.partition(f"{HEADING}\n")
    if not heading:
        raise ValueError(f"the page has no heading {HEADING!r}")
    lines = rest.split("\n")
    heads = (i for i, line in enumerate(lines) if line.startswith(("## ", "### ")))
    return f"{before}{heading}\n{section}\n" + "\n".join(lines[next(heads, len(lines)) :])


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
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--keep", action="store_true", help="keep the folder of the class")
    options = parser.parse_args(words)
    if options.students < len(KINDS):
        parser.error(f"at least {len(KINDS)} students: right, wrong and without answers")
    if os.geteuid():
        print("Each student gets a Unix account: sudo make hub-test.", file=sys.stderr)
        return 1
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("Another load test runs on this machine.", file=sys.stderr)
            return 1
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        clear_away()
        room = Room(options.hub.resolve(), options.students)
        print(f"The class is in {room.folder}, which stays if the test fails.", flush=True)
        try:
            room.open()
            day = usual_day(room)
            print(table(("one lesson", "measured"), day), flush=True)
            faults = bad_day(room)
        except BaseException:
            options.keep = True
            raise
        finally:
            for signum in (signal.SIGINT, signal.SIGTERM):
                signal.signal(signum, signal.SIG_IGN)  # a second Ctrl+C leaves nothing half done
            room.stop()
            clear_away()
            if not options.keep:
                shutil.rmtree(room.folder, ignore_errors=True)
    text = report(day, faults)
    print(text)
    if options.write:
        PAGE.write_text(replace_section(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
