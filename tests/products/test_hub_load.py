"""The load test finds lost work and wrong marks; the settings of a server keep work safe.

`make hub-test`, as root, plays the class itself. These tests need no hub.
"""

import errno
import json
import os
import runpy
import socket
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_client.connect import LocalPortCache
from traitlets.config import Config

from classroom import load_test
from classroom.browser import Kernel, KernelDiedError, RefusedError, shown, until
from classroom.load_test import MISTAKES, Room, Student
from tools.write_solutions import NOTEBOOKS, solved
from twelve_lab.check import check, solve

THE_LESSON = nbformat.read(NOTEBOOKS / f"{load_test.LESSON}.ipynb", as_version=4)
BLANK = load_test.answer_cells(THE_LESSON.cells)
RIGHT = load_test.answer_cells(solved(THE_LESSON, marked=True).cells)


def test_the_lesson_has_an_answer_cell_for_each_mistake():
    marks = (load_test.BEGIN, load_test.END, load_test.STUB)
    assert marks == (solve.BEGIN, solve.END, solve.STUB)
    assert list(RIGHT) == list(BLANK) == list(MISTAKES)
    assert not any(mark in source for source in RIGHT.values() for mark in marks)


@pytest.mark.parametrize(("number", "mistakes"), [(0, 0), (1, 1), (4, 2), (7, 3), (10, 1)])
def test_students_write_right_answers_or_their_mistakes(number, mistakes):
    written = load_test.write_answers(BLANK, RIGHT, number)
    wrong = list(RIGHT)[:mistakes]
    assert load_test.marks_due(RIGHT, written) == {id: float(id not in wrong) for id in RIGHT}
    for id in wrong:
        assert MISTAKES[id][0] in written[id] and load_test.STUB not in written[id]


def test_a_student_without_answers_gets_no_marks():
    assert load_test.write_answers(BLANK, RIGHT, 2) == {}
    assert load_test.marks_due(RIGHT, {}) == dict.fromkeys(RIGHT, 0.0)
    (id, *_) = RIGHT
    assert load_test.reply_due(id, RIGHT, {}) == f"{id}: Not started yet"
    assert load_test.reply_due(id, RIGHT, RIGHT) == f"✓ {id}: right"


@pytest.mark.parametrize("id", MISTAKES)
def test_check_replies_to_each_mistake_as_the_load_test_expects(id, capsys):
    names = {}
    exec(BLANK[id].replace(load_test.STUB, MISTAKES[id][0]), names)
    answer = [value for name, value in names.items() if name != "__builtins__"][-1]
    with pytest.raises(Exception, match="not yet right"):
        check(id, answer)
    assert MISTAKES[id][1] in capsys.readouterr().out


def saved(answers):
    cells = [
        {"source": source, "metadata": {"nbgrader": {"grade_id": f"{id}-answer", "solution": True}}}
        for id, source in answers.items()
    ]
    return json.dumps({"cells": cells}).encode()


@pytest.fixture
def room(tmp_path):
    """Build a graded class of one student, in which everything is right."""
    student = Student("ada", 0, "", None, path="x", written=dict(RIGHT), saved=saved(RIGHT))
    lesson = load_test.LESSON
    paths = [tmp_path / "home/ada/x", tmp_path / f"submitted/ada/{lesson}/{lesson}.ipynb"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(student.saved)
    marks = {"ada": dict.fromkeys(RIGHT, 1.0)}
    return SimpleNamespace(
        folder=tmp_path, course=tmp_path, students=[student], marks=lambda: marks, paths=paths
    )


def test_room_finds_no_fault_in_a_class_that_kept_everything(room):
    assert Room.faults(room, RIGHT) == []


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda room: room.paths[0].write_bytes(saved(RIGHT)[:-1]), "at home differs"),
        (lambda room: room.paths[0].unlink(), "at home differs"),
        (lambda room: room.paths[1].unlink(), "collected differs"),
        (lambda room: room.marks()["ada"].update({next(iter(RIGHT)): 0.0}), "marks {"),
        (lambda room: room.marks()["ada"].popitem(), "marks {"),
        (lambda room: room.marks().clear(), "marks None"),
        (lambda room: room.students[0].written.update(other="x"), "other is not in the saved"),
    ],
)
def test_room_finds_lost_work_and_wrong_marks(room, spoil, fault):
    spoil(room)
    (message,) = Room.faults(room, RIGHT)
    assert message.startswith(f"ada: {fault}")


def test_everyone_names_the_student_who_is_stuck():
    def step(student):
        if student.name == "ben":
            raise RefusedError("500 disk full")

    students = [Student(name, n, "", None) for n, name in enumerate(("ada", "ben"))]
    room = SimpleNamespace(students=students)
    with pytest.raises(ExceptionGroup, match="1 of 2 students are stuck") as caught:
        Room.everyone(room, step)
    assert caught.value.exceptions[0].__notes__ == ["student ben"]
    assert Room.everyone(room, step, students[:1]) >= 0


def message(parent, kind, channel="iopub", **content):
    return {
        "header": {"msg_type": kind}, "parent_header": {"msg_id": parent}, "channel": channel,
        "content": content, "metadata": {},
    }  # fmt: skip


def kernel(*messages):
    """Build a kernel that sends these messages."""
    built = Kernel.__new__(Kernel)
    built.messages = Queue()
    for one in messages:
        built.messages.put(one)
    return built


def test_kernel_answer_waits_for_the_reply_and_for_idle():
    idle = message("1", "status", execution_state="idle")
    reply, other = message("1", "execute_reply", "shell"), message("2", "stream", text="x")
    assert kernel(other, reply, idle).answer("1", 1) == [reply, idle]
    assert kernel(idle, reply).answer("1", 1) == [idle, reply]
    with pytest.raises(TimeoutError, match="no message of the kernel"):
        kernel(reply, other).answer("1", 0.01)
    with pytest.raises(KernelDiedError, match="dead"):
        kernel(message("", "status", execution_state="dead")).answer("1", 1)


def test_shown_joins_streams_results_and_errors():
    outputs = [
        {"output_type": "stream", "text": "a"}, {"output_type": "stream", "text": "b\n"},
        {"output_type": "display_data", "data": {"image/png": "AA=="}},
        {"output_type": "error", "ename": "NameError", "evalue": "x"},
    ]  # fmt: skip
    assert shown(outputs) == "ab\nNameError: x"


def test_until_raises_after_its_time():
    assert until(lambda: 7, 1, "seven") == 7
    with pytest.raises(TimeoutError, match="the hub answers: not within 0 s"):
        until(lambda: False, 0.01, "the hub answers")


def test_tables_replace_the_section_of_the_page_and_nothing_else():
    assert load_test.spread([3.0, 1.0, 2.0], "s") == "2.0 s, worst 3.0"
    assert (
        load_test.table(("a", "b"), [("x|y", "1")]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 |\n"
    )
    text = f"# T\n\n{load_test.HEADING}\n\nold\n\n| old |\n\n### Next\n\n## More\n"
    fresh = load_test.replace_section(text, "new\n")
    assert fresh == f"# T\n\n{load_test.HEADING}\n\nnew\n\n### Next\n\n## More\n"
    assert "| new |" in load_test.replace_section(load_test.PAGE.read_text(), "| new |\n")
    with pytest.raises(ValueError, match="has no heading"):
        load_test.replace_section("# T\n", "new\n")


def test_load_test_needs_three_students_and_root(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        load_test.main(["--students", "2"])
    monkeypatch.setattr(load_test.os, "geteuid", lambda: 1000)
    assert load_test.main([]) == 1
    assert capsys.readouterr().err.endswith(
        "Each student gets a Unix account: sudo make hub-test.\n"
    )


@pytest.fixture
def settings(monkeypatch):
    """Read the settings of a server; its changes of Jupyter are undone."""
    monkeypatch.setattr(LocalPortCache, "find_available_port", None)

    def read() -> Config:
        c, path = Config(), load_test.ROOT / "classroom/config/jupyter_server_config.py"
        runpy.run_path(str(path), {"get_config": lambda: c})
        return c

    return read


def test_kernels_of_two_accounts_use_disjoint_free_ports(settings, monkeypatch):
    ports = {}
    for account in (1001, 1002):
        monkeypatch.setattr(os, "getuid", lambda account=account: account)
        settings()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0 if account == 1001 else max(ports[1001]) + 2))
            ports[account] = {LocalPortCache().find_available_port("127.0.0.1") for _ in range(99)}
            assert taken.getsockname()[1] not in ports[account]
    assert not ports[1001] & ports[1002]
    assert all(20_000 <= port < 32_768 for port in ports[1001] | ports[1002])


def test_a_save_is_atomic_on_a_full_disk_and_keeps_modes_and_links(settings, tmp_path, monkeypatch):
    files = settings().ServerApp.contents_manager_class(root_dir=str(tmp_path))

    def save(name, text):
        with files.atomic_writing(str(tmp_path / name), encoding="utf-8") as file:
            file.write(text)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    save("a.ipynb", "one\n")
    (tmp_path / "a.ipynb").chmod(0o640)
    (tmp_path / "b.ipynb").symlink_to("a.ipynb")
    save("b.ipynb", "zwölf\n")
    assert (tmp_path / "a.ipynb").read_bytes() == "zwölf\n".encode()
    assert (tmp_path / "a.ipynb").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b.ipynb").is_symlink()
    with pytest.raises(OSError, match="No space left"), monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        save("a.ipynb", "much more")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb", "b.ipynb"]
    assert (tmp_path / "a.ipynb").read_text(encoding="utf-8") == "zwölf\n"
    monkeypatch.setattr(
        Path, "open", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, ""))
    )
    with pytest.raises(Exception, match="403"):
        save("a.ipynb", "one")
