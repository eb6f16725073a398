"""A whole class on a hub of its own, as browsers see it: what it costs, and what faults do to it.

Usage: sudo make hub-test [STUDENTS=30] [HUB=/opt/twelve] [ARGS=--write]

Students with throw-away accounts log in, fetch a lesson, run it, answer right, wrong or not at all,
and submit; the teacher collects and grades. Then the hub is killed in the middle of work, kernels
are killed, a disk is full, one student has two browsers, one submits twice. The exit status is 1 if
a mark is wrong or an answer is lost. With --write the two tables go into docs/teaching.md.
"""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import psutil
import requests
import websocket

from classroom import accounts
from classroom.browser import Browser, Kernel, KernelDiedError, RefusedError, shown, until
from classroom.judging import (
    KINDS,
    Marks,
    answer_cells,
    answers,
    due,
    due_reply,
    lost,
    misjudged,
    page,
    spread,
    table,
    unanswered,
)
from classroom.student import COURSE, LESSON, Student, of_account

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "teaching.md"
PREFIX, TEACHER, FOLDER = "twelvetest", "twelvetest-teacher", "twelve-hub-test-"
LOCK = Path("/run/lock/twelve-hub-test")


class Room:
    """A hub of its own with throw-away accounts, and all that has to be cleared away afterwards.

    Args:
        hub: Where the course is installed for everybody.
        count: How many students there are.
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
        until(lambda: self.answers() or self.ended(), 900, "the hub answers")

    def answers(self) -> bool:
        """Tell whether the hub is there."""
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"{self.address}/hub/health", timeout=5).ok
        return False

    def ended(self) -> None:
        """Raise an error if the hub ended by itself."""
        if self.start.poll() is not None:
            said = (self.folder / "start.log").read_text()
            raise ChildProcessError(f"the hub did not start: {said[-2000:]}")

    def pid(self) -> int:
        """Give the process of the hub."""
        return int((self.folder / "hub/hub.pid").read_text())

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
        """Let students do something, all at the same time.

        Args:
            step: What each does.
            among: Who; all, if not given.

        Returns:
            How many seconds passed until the last was done.

        Raises:
            ExceptionGroup: With the name of each student for whom it failed.
        """
        among, begin = self.students if among is None else among, time.monotonic()
        with ThreadPoolExecutor(len(among)) as pool:
            begun = [pool.submit(step, student) for student in among]
            errors = []
            for student, one in zip(among, begun, strict=True):
                if error := one.exception():
                    error.add_note(f"student {student.name}, {student.kind}")
                    errors.append(error)
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(among)} students are stuck", errors)
        return time.monotonic() - begin

    def teacher(self, *words: str) -> tuple[float, float]:
        """Run a command as the teacher, in the course.

        Args:
            words: The module, and its arguments.

        Returns:
            The seconds it took, and those of a processor.

        Raises:
            ChildProcessError: With what it said, if it fails.
        """
        clock, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        account = pwd.getpwnam(TEACHER)
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
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        worked = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        return time.monotonic() - clock, worked

    def read_source(self) -> tuple[dict[str, str], dict[str, str]]:
        """Read the cells for answers as they are released, and solved."""
        paths = (self.course / one / LESSON / f"{LESSON}.ipynb" for one in ("release", "source"))
        return tuple(answer_cells(json.loads(path.read_bytes())["cells"]) for path in paths)

    def handed_in(self) -> dict[str, bytes]:
        """Read what the teacher collected, by student."""
        return {
            path.parts[-3]: path.read_bytes()
            for path in self.course.glob(f"submitted/*/{LESSON}/{LESSON}.ipynb")
        }

    def lost(self) -> list[str]:
        """Name every student whose lesson at home is not what was saved, or lacks an answer."""
        homes = self.folder / "home"
        found = {one.name: (homes / one.name / one.path).read_bytes() for one in self.students}
        return [
            *lost({one.name: one.saved for one in self.students}, found, "at home"),
            *(f"{one.name}: {exercise} is not in the file" for one in self.students
              for exercise in unanswered(one.saved, one.written)),
        ]  # fmt: skip

    def marks(self) -> dict[str, Marks]:
        """Read the marks of each exercise from the gradebook, by student."""
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{self.course}/gradebook.db") as book:
            return {
                one.student_id: {
                    grade.name.removesuffix("-check"): grade.score
                    for notebook in one.notebooks
                    for grade in notebook.grades
                }
                for one in book.assignment_submissions(LESSON)
            }

    def exported(self) -> dict[str, Marks]:
        """Read the sum of each student from the exported table."""
        with (self.course / "grades.csv").open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["assignment"] == LESSON]
        return {row["student_id"]: {"sum": float(row["score"] or "nan")} for row in rows}

    def stop(self) -> None:
        """Stop the hub as Ctrl+C does."""
        if self.start and self.start.poll() is None:
            self.start.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.start.wait(120)

    def clear(self, keep: bool) -> None:
        """End and remove whatever is left: processes, mounts, accounts, files.

        Args:
            keep: Whether the files stay.
        """
        self.stop()
        clear_away()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def of_hub(folder: Path) -> list[psutil.Process]:
    """List the hub of a class and its proxy: what works in their folder."""
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(one.cwd()) == folder / "hub":
                found.append(one)
    return found


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes, and wait until they are gone."""
    processes = list(processes)
    for one in processes:
        with contextlib.suppress(psutil.Error):
            one.kill()
    psutil.wait_procs(processes, timeout=30)


def clear_away() -> None:
    """End the processes of load tests and remove their accounts, of one that was killed too."""
    left = [one for one in pwd.getpwall() if f"/{FOLDER}" in one.pw_dir]
    folders = {Path(one.pw_dir).parents[1] for one in left}
    for folder in folders:
        end(of_hub(folder))
    for account in left:
        end(of_account(account.pw_name))
        with contextlib.suppress(subprocess.CalledProcessError):
            unmount(Path(account.pw_dir))
    for folder in folders:
        accounts.remove(folder)


def free_ports(count: int) -> int:
    """Find ports next to one another on which nobody listens, and give the first."""
    for port in range(18000, 60000, count):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for one in range(count):
                listener = stack.enter_context(socket.socket())
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port + one))
            return port
    raise OSError(f"no {count} free ports next to one another")


# What a class does on a usual day.


def usual_day(room: Room) -> list[tuple[str, str]]:
    """Hold a lesson from the first log-in to the marks.

    Args:
        room: With the hub running.

    Returns:
        What was measured: a name, and its value.

    Raises:
        ExceptionGroup: If students cannot go on.
        AssertionError: If a mark is wrong or an answer is lost.
    """
    before = os.getloadavg()[0]
    room.teacher("tools.write_course", str(room.course))
    room.teacher("nbgrader", "generate_assignment", LESSON)
    room.teacher("nbgrader", "release_assignment", LESSON)
    given, right = room.read_source()
    room.fill()
    for one in room.students:
        one.written = answers(given, right, one.kind, one.turn)
    arrived = room.everyone(Student.arrive)
    room.everyone(Student.fetch)
    room.everyone(Student.open_kernel)
    lesson = room.everyone(Student.run_all)
    room.everyone(lambda student: student.answer(right))
    for one in room.students:
        one.weigh()
    hub = sum(one.memory_full_info().pss for one in of_hub(room.folder))
    room.everyone(Student.save)
    room.everyone(Student.submit)
    graded, worked = grade(room)
    for one in room.students:
        text = one.read_feedback()
        for exercise in right:
            assert due_reply(exercise, right, one.written) in text, f"{one.name}: {exercise}"
    judge(room, right)

    of = {what: [one.seconds[what] for one in room.students] for what in room.students[0].seconds}
    memory = {
        what: [one.memory[what] / 2**20 for one in room.students]
        for what in room.students[0].memory
    }
    of_all = (sum(memory["server"]) + sum(memory["kernel"]) + hub / 2**20) / 1024
    cells = sum(
        cell["cell_type"] == "code" for one in room.students for cell in one.notebook["cells"]
    )
    kinds = [sum(one.kind == kind for one in room.students) for kind in KINDS]
    all_of_them = f"{room.count} of {room.count}"
    return [
        ("students: all right, with mistakes, no answers", ", ".join(map(str, kinds))),
        ("load of the machine before they came", f"{before:.1f}"),
        ("from the first at the door until all are in", f"{arrived:.0f} s"),
        ("password taken", spread(of["log in"], "s", 2)),
        ("own server ready", spread(of["server"], "s")),
        ("lesson fetched, all at once", spread(of["fetch"], "s", 2)),
        ("kernel ready, all at once", spread(of["kernel"], "s")),
        ("all cells of 04 run, all at once", spread(of["lesson"], "s")),
        ("cells a second, together", f"{cells / lesson:.1f}"),
        ("submitted, all at once", spread(of["submit"], "s", 2)),
        ("processor time of a server", spread(of["server cpu"], "s")),
        ("processor time of a kernel, 04 run and answered", spread(of["kernel cpu"], "s")),
        ("memory of a server", spread(memory["server"], "MiB", 0)),
        ("memory of a kernel", spread(memory["kernel"], "MiB", 0)),
        ("the same, with what kernels share counted in full",
         spread(memory["kernel rss"], "MiB", 0)),
        ("memory of hub and proxy", f"{hub / 2**20:.0f} MiB"),
        ("memory of the whole class", f"{of_all:.1f} GiB"),
        ("graded, for one", f"{graded / room.count:.1f} s"),
        ("processor time of that", f"{worked / room.count:.1f} s"),
        ("marks as they must be", all_of_them),
        ("collected as it was saved, byte for byte", all_of_them),
    ]  # fmt: skip


def grade(room: Room) -> tuple[float, float]:
    """Do what a teacher does once a lesson is handed in.

    Args:
        room: With the hub running.

    Returns:
        How long the grading took, and the seconds of a processor.
    """
    room.teacher("nbgrader", "collect", "--update", LESSON)
    taken = room.teacher("nbgrader", "autograde", LESSON)
    room.teacher("nbgrader", "generate_feedback", LESSON)
    room.teacher("nbgrader", "release_feedback", LESSON)
    room.teacher("nbgrader", "export")
    return taken


def judge(room: Room, right: Mapping[str, str]) -> None:
    """See that nothing is lost and every mark is right.

    Args:
        room: After grading.
        right: The solutions.

    Raises:
        AssertionError: With a line for each fault.
    """
    marks = {one.name: due(right, one.written) for one in room.students}
    sums = {name: {"sum": sum(one.values())} for name, one in marks.items()}
    faults = [
        *room.lost(),
        *lost({one.name: one.saved for one in room.students}, room.handed_in(), "collected"),
        *misjudged(marks, room.marks()),
        *misjudged(sums, room.exported()),
    ]
    assert not faults, "\n".join(faults)


# What can go wrong on another day: each says what happened, or fails if an answer is lost.


def hub_killed(room: Room, right: Mapping[str, str]) -> str:
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
        told = shown(student.kernel.run("print('kept', kept)"))
        assert f"kept {student.number + 1000}" in told, told
        student.note("Written after the hub was back.")
        student.save()

    before = pids(room)
    room.everyone(begin)
    os.kill(room.pid(), signal.SIGKILL)
    gone = time.monotonic()
    room.start.wait(60)
    room.everyone(save_while_away)
    door = requests.get(f"{room.address}/hub/login", timeout=60).status_code
    room.open()
    away = time.monotonic() - gone
    room.everyone(go_on)
    assert pids(room) == before, "servers or kernels ended with the hub"
    assert not (faults := room.lost()), faults
    return (
        f"It was away for {away:.0f} s, while a cell ran in each of {room.count} kernels: every "
        f"server and kernel lived on, and no variable was lost. Meanwhile "
        f"{room.count - len(refused)} of {room.count} could save"
        f"{f', the others read “{refused[0]}”' if refused else ''}; who came to log in read error "
        f"{door}. {len(broke)} connections to kernels broke when it came back and were opened "
        "again, which a page does by itself. Nobody had to log in again."
    )


def kernels_killed(room: Room, right: Mapping[str, str]) -> str:
    """Kill the kernels of a third of the class while a cell runs."""
    some = room.students[: len(room.students) // 3]

    def suffer(student: Student) -> None:
        student.kernel.run("kept = 1")
        begun = student.kernel.begin("import time; time.sleep(120)")
        (process,) = student.processes()["kernel"]
        with student.timed("restart"):
            process.kill()
            try:
                student.kernel.answer(begun, 100)
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
    return (
        f"{len(some)} of {room.count} students see that the kernel restarts; it answers after "
        f"{spread((one.seconds['restart'] for one in some), 's')}. Variables are gone, the saved "
        "notebook is byte for byte what it was; the checks say again what they said."
    )


def disk_full(room: Room, right: Mapping[str, str]) -> str:
    """Let the disk of one student run full, and save."""
    student = room.students[0]
    home = room.folder / "home" / student.name
    fill = (
        f"much = {str(home / 'much')!r}\n"
        "with open(much, 'wb', 0) as file:\n"
        "    while True: file.write(bytes(4096))"
    )
    # All but the last piece of what is to be saved finds a place.
    nearly = "import os\nos.truncate(much, os.path.getsize(much) - {} // 4096 * 4096)"
    with small_disk(home, 4 * 2**20):
        filled = shown(student.kernel.run(fill))
        assert "No space left on device" in filled, filled
        checked = shown(student.kernel.run("check('04-key-zeroed', weights_of_dog)"))
        before = student.saved
        student.note("long " * 20_000)
        size = len(nbformat.writes(nbformat.from_dict(student.notebook)).encode())
        for step in ("", nearly.format(size)):
            student.kernel.run(step)
            for _ in range(2):  # a page saves by itself, again and again
                try:
                    student.browser.save(student.path, student.notebook)
                except RefusedError as error:
                    said = str(error)
                else:
                    raise AssertionError("a save on a full disk went well")
                assert student.browser.file(student.path) == before, "what was saved is damaged"
        student.kernel.run("os.remove(much)")
        student.save()
    assert not (faults := room.lost()), faults
    return (
        f"The cell that filled it ends with “{filled.splitlines()[-1]}”; `check` still answers: "
        f"“{' '.join(checked.split())}”. Each save fails, “{said}”, and the notebook saved before "
        "is byte for byte there, where nothing fits and where all but the last piece does. Once "
        "the file is deleted, the next save holds all."
    )


def two_browsers(room: Room, right: Mapping[str, str]) -> str:
    """Let one student edit the lesson in two browsers."""
    student = room.students[0]
    other = Browser(room.address, student.name)
    other.log_in(student.password)
    other.enter()
    assert Kernel(other, student.path).id == student.kernel.id, "two kernels for one notebook"
    seen = other.contents(student.path)

    student.note("From the first browser.")
    student.save()
    other.ask("POST", f"api/contents/{student.path}/checkpoints")
    (checkpoint,) = other.ask("GET", f"api/contents/{student.path}/checkpoints")
    now = other.contents(student.path, content=False)
    assert now["last_modified"] != seen["last_modified"], "the second browser cannot see the save"
    # Who saves nevertheless is not held back by the server.
    other.save(student.path, seen["content"])
    assert student.browser.file(student.path) != student.saved
    other.ask("POST", f"api/contents/{student.path}/checkpoints/{checkpoint['id']}")
    assert student.browser.file(student.path) == student.saved, "the first save is lost"
    student.notebook = other.contents(student.path)["content"]
    student.note("From the second browser.")
    other.save(student.path, student.notebook)
    student.saved = other.file(student.path)
    assert student.saved.count(b" browser.") == 2
    return (
        "Both share one kernel. The page that saves second finds a newer file than the one it "
        "opened, and asks: *Revert* shows the newer one, *Overwrite* puts its own in the place, "
        "which the server lets it. What was overwritten could be had again by *Revert to "
        "Checkpoint*; the first page asks too when it saves next."
    )


def submitted_twice(room: Room, right: Mapping[str, str]) -> str:
    """Let a student who submitted without answers submit with all of them."""
    student = next(one for one in room.students if one.kind == "none")
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


FAULTS: dict[str, Callable[[Room, Mapping[str, str]], str]] = {
    "The hub is killed, and started again": hub_killed,
    "A third of the kernels are killed": kernels_killed,
    "The disk of a student is full": disk_full,
    "A student has two browsers": two_browsers,
    "A student submits twice": submitted_twice,
}


def bad_day(room: Room) -> list[tuple[str, str]]:
    """Let one thing after the other go wrong, and grade again.

    Args:
        room: After the usual day.

    Returns:
        What was done, and what happened.

    Raises:
        ExceptionGroup: If students cannot go on.
        AssertionError: If a mark is wrong or an answer is lost.
    """
    _, right = room.read_source()
    rows = []
    for name, fault in FAULTS.items():
        rows.append((name, fault(room, right)))
        print(": ".join(rows[-1]), flush=True)
    room.everyone(Student.submit, [one for one in room.students if one.submissions == 1])
    grade(room)
    judge(room, right)
    room.stop()
    _, left = psutil.wait_procs(
        [one for student in room.students for one in of_account(student.name)], timeout=60
    )
    assert not (faults := room.lost()), faults
    assert not left, left
    rows.append((
        "Ctrl+C in the teacher's terminal",
        "All servers and kernels stop. Every notebook is on the disk as it was saved.",
    ))  # fmt: skip
    return rows


def pids(room: Room) -> dict[str, set[int]]:
    """List servers and kernels by student."""
    return {
        one.name: {process.pid for found in one.processes().values() for process in found}
        for one in room.students
    }


@contextlib.contextmanager
def small_disk(home: Path, free: int) -> Iterator[None]:
    """Give a home a disk of its own for a while.

    Args:
        home: With all that is in it.
        free: How many bytes are left on the disk.
    """
    with tempfile.TemporaryDirectory() as aside:
        copy_all(home, Path(aside))
        used = int(subprocess.check_output(["du", "-sb", aside]).split()[0])
        account = home.stat()
        options = f"size={used + free},mode=700,uid={account.st_uid},gid={account.st_gid}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", home], check=True)
        try:
            copy_all(Path(aside), home)
            yield
            shutil.rmtree(aside)
            Path(aside).mkdir()
            copy_all(home, Path(aside))
        finally:
            unmount(home)
        copy_all(Path(aside), home)


def copy_all(here: Path, there: Path) -> None:
    """Copy a folder with owners, times and links."""
    subprocess.run(["cp", "-a", f"{here}/.", there], check=True)


def unmount(home: Path) -> None:
    """Take a disk away from a home, whoever looks at it."""
    subprocess.run(["umount", "--lazy", home], check=True, capture_output=True)


def report(day: Sequence[tuple[str, str]], faults: Sequence[tuple[str, str]]) -> str:
    """Write both tables.

    Args:
        day: What was measured.
        faults: What was done, and what happened.
    """
    cores, memory = os.cpu_count(), psutil.virtual_memory().total / 2**30
    return (
        f"`make hub-test`, as root, plays a class on this machine and removes it again: students "
        "log in, fetch notebook 04, run it, answer and submit, by HTTP and websockets as a browser "
        f"does; the teacher grades. On {cores} cores with {memory:.0f} GiB, the median and the "
        "worst of all students:\n\n"
        + table(("one lesson", "measured"), day)
        + "\nThen faults, one after the other. After each every answer was there, and the marks "
        "were right:\n\n" + table(("what was done", "what happened"), faults)
    )


def main(words: Sequence[str]) -> int:
    """Test a class.

    Args:
        words: Of the command line.

    Returns:
        Exit status.
    """
    parser = argparse.ArgumentParser("classroom.load_test", description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--hub", type=Path, default=Path("/opt/twelve"))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    parser.add_argument("--keep", action="store_true", help="leave the folder of the class")
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
        print(f"The class is in {room.folder}, and stays there if it fails", flush=True)
        try:
            room.open()
            day = usual_day(room)
            print(table(("one lesson", "measured"), day), flush=True)
            faults = bad_day(room)
        except BaseException:
            options.keep = True
            raise
        finally:
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, signal.SIG_IGN)  # a second Ctrl+C does not leave half of it
            room.clear(options.keep)
    text = report(day, faults)
    print(text)
    if options.write:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
