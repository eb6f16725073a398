"""A student of the load test: an account with a browser, and what is done there step by step."""

import contextlib
import pwd
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil

from classroom.browser import Browser, Kernel, RefusedError, shown
from classroom.judging import KINDS, due_reply

COURSE, LESSON = "twelve", "04_attention"
# All arrive one after the other: thirty within three quarters of a minute.
ARRIVE = 1.5


@dataclass
class Student:
    """A student: who it is, what is on the screen, what was saved last, how long things took."""

    name: str
    number: int
    password: str
    browser: Browser
    kernel: Kernel = None
    path: str = ""
    notebook: dict[str, Any] = None
    written: dict[str, str] = field(default_factory=dict)
    saved: bytes = b""
    seconds: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    submissions: int = 0

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return KINDS[self.number % len(KINDS)]

    @property
    def turn(self) -> int:
        """The how many-th of this kind."""
        return self.number // len(KINDS)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long something takes."""
        begin = time.monotonic()
        yield
        self.seconds[what] = time.monotonic() - begin

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Find the server and the kernels of this account."""
        found: dict[str, list[psutil.Process]] = {"server": [], "kernel": []}
        for one in of_account(self.name):
            with contextlib.suppress(psutil.Error):
                words = " ".join(one.cmdline())
                if "ipykernel" in words:
                    found["kernel"].append(one)
                elif "singleuser" in words:
                    found["server"].append(one)
        return found

    # What a student does, step by step.

    def arrive(self) -> None:
        """Log in, and wait for the server."""
        time.sleep(self.number * ARRIVE)  # not all touch the door at once
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
        """Have a kernel started, and wait until it answers."""
        with self.timed("kernel"):
            self.kernel = Kernel(self.browser, self.path)
            self.kernel.ready(180)

    def run_all(self) -> None:
        """Run every cell, from the top to the end."""
        code = [cell for cell in self.notebook["cells"] if cell["cell_type"] == "code"]
        with self.timed("lesson"):
            for count, cell in enumerate(code, 1):
                self._run(cell, count)

    def answer(self, right: Mapping[str, str]) -> None:
        """Write the answers, run them with their checks, and read what those say.

        Args:
            right: The solutions.

        Raises:
            AssertionError: If a check says something else than it has to.
        """
        for cell in self.notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
            exercise, _, role = name.rpartition("-")
            if role == "answer" and exercise in self.written:
                cell["source"] = self.written[exercise]
                self._run(cell, cell["execution_count"])
            elif role == "check":
                self._run(cell, cell["execution_count"])
                told, wanted = shown(cell["outputs"]), due_reply(exercise, right, self.written)
                assert wanted in told, f"{exercise}: {told!r} has no {wanted!r}"

    def _run(self, cell: dict[str, Any], count: int) -> None:
        cell["outputs"], cell["execution_count"] = self.kernel.run(cell["source"]), count

    def save(self) -> None:
        """Save, and take home what the disk holds."""
        self.browser.save(self.path, self.notebook)
        self.saved = self.browser.file(self.path)

    def note(self, text: str) -> None:
        """Write a cell of one's own below the others."""
        cell = {"cell_type": "markdown", "metadata": {}, "source": text}
        self.notebook["cells"].append({"id": f"note-{len(self.notebook['cells'])}", **cell})

    def submit(self) -> None:
        """Submit what is saved."""
        with self.timed("submit"):
            lesson = self._assignment("submit", "submitted")
        self.submissions += 1
        assert len(lesson["submissions"]) == self.submissions, lesson

    def read_feedback(self) -> str:
        """Fetch the feedback for what was submitted last, and open its page."""
        lesson = self._assignment("fetch_feedback", "submitted")
        last = max(lesson["submissions"], key=lambda one: one["timestamp"])
        return self.browser.file(f"{last['local_feedback_path']}/{LESSON}.html").decode()

    def _assignment(self, action: str, status: str) -> dict[str, Any]:
        """Press a button in the list of assignments, and give the lesson as it is listed then."""
        told = self.browser.ask(
            "POST", f"assignments/{action}", course_id=COURSE, assignment_id=LESSON
        )
        for one in told["value"] if told["success"] else ():
            if (one["assignment_id"], one["status"]) == (LESSON, status):
                return one
        raise RefusedError(f"{action}: {told}")

    def weigh(self) -> None:
        """Note what memory server and kernel hold: shared pages by their share, and in full."""
        for kind, processes in self.processes().items():
            full = [one.memory_full_info() for one in processes]
            self.memory[kind] = sum(one.pss for one in full)
            self.memory[f"{kind} rss"] = sum(one.rss for one in full)
            times = [one.cpu_times() for one in processes]
            self.seconds[f"{kind} cpu"] = sum(one.user + one.system for one in times)


def of_account(name: str) -> list[psutil.Process]:
    """List the processes of an account."""
    uid, found = pwd.getpwnam(name).pw_uid, []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if one.uids().real == uid:
                found.append(one)
    return found
