"""The load test's own judgement: what is lost or marked wrongly is named, and nothing else.

The class itself is played by `make hub-test`, as root: here are the parts that need no hub.
"""

import errno
import json
import os
import runpy
import socket
import time
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import nbformat
import pytest
from jupyter_client.connect import LocalPortCache
from traitlets.config import Config

from classroom import load_test
from classroom.browser import Kernel, KernelDiedError, RefusedError, outputs, shown, until
from classroom.judging import (
    BEGIN,
    END,
    HEADING,
    KINDS,
    MISTAKES,
    STUB,
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
from classroom.student import LESSON, Student
from tools.write_solutions import NOTEBOOKS, solved
from twelve_lab.check import EXERCISES, check
from twelve_lab.check.solve import BEGIN as BEGINS
from twelve_lab.check.solve import END as ENDS
from twelve_lab.check.solve import STUB as WAITS

THE_LESSON = nbformat.read(NOTEBOOKS / f"{LESSON}.ipynb", as_version=4)
ONE, OTHER = "04-key-zeroed", "04-keys-reversed"
GIVEN = {ONE: f"weights_of_dog = ...\n{STUB}", OTHER: f"what_changes = ...\n{STUB}"}
RIGHT = {ONE: "weights_of_dog = [0.666, 0.334]", OTHER: 'what_changes = {"scores", "weights"}'}


def cell(name, source, kind="code"):
    return {
        "cell_type": kind,
        "source": source,
        "metadata": {"nbgrader": {"grade_id": name, "solution": name.endswith("-answer")}},
    }


def saved(written):
    """Write a notebook with answers as the contents of a file."""
    cells = [cell(f"{one}-answer", source) for one, source in written.items()]
    return json.dumps({"cells": cells}).encode()


def message(kind, **content):
    return {"header": {"msg_type": kind}, "content": content, "metadata": {}}


def test_answers_are_read_from_the_cells_for_answers_without_the_marks_of_nbgrader():
    cells = [
        cell("04-imports", "import torch"),
        {"cell_type": "markdown", "source": "text", "metadata": {}},
        cell("04-attention-answer", f"def f(x):\n    {BEGIN}\n    return x\n    {END}"),
        cell("04-attention-check", "check()"),
    ]
    assert answer_cells(cells) == {"04-attention": "def f(x):\n    return x"}


def test_the_marks_are_those_of_the_notebooks():
    assert (BEGIN, END, STUB) == (BEGINS, ENDS, WAITS)


def test_the_lesson_asks_for_each_mistake_and_for_nothing_else():
    right = answer_cells(solved(THE_LESSON, marked=True).cells)
    assert list(right) == list(answer_cells(THE_LESSON.cells)) == list(MISTAKES)
    assert not any(mark in source for source in right.values() for mark in (STUB, BEGIN, END))


@pytest.mark.parametrize(
    ("kind", "turn", "mistakes"),
    [
        ("right", 5, []),
        ("wrong", 0, [ONE]),
        ("wrong", 1, [ONE, OTHER]),
        ("wrong", 2, [ONE]),
    ],
)
def test_each_kind_of_student_writes_what_it_has_to(kind, turn, mistakes):
    written = answers(GIVEN, RIGHT, kind, turn)
    assert list(written) == list(RIGHT)
    for exercise, source in written.items():
        if exercise in mistakes:
            assert MISTAKES[exercise][0] in source
            assert STUB not in source
        else:
            assert source == RIGHT[exercise]
    assert due(RIGHT, written) == {one: float(one not in mistakes) for one in RIGHT}


def test_who_answers_nothing_writes_nothing_and_gets_nothing():
    assert answers(GIVEN, RIGHT, "none", 1) == {}
    assert due(RIGHT, {}) == dict.fromkeys(RIGHT, 0.0)
    assert KINDS == ("right", "wrong", "none")


@pytest.mark.parametrize("exercise", MISTAKES)
def test_check_says_of_each_mistake_what_the_load_test_waits_for(exercise, capsys):
    given = answer_cells(THE_LESSON.cells)
    names = {}
    exec(given[exercise].replace(STUB, MISTAKES[exercise][0]), names)
    answer = [value for name, value in names.items() if name != "__builtins__"][-1]
    with pytest.raises(Exception, match="not yet right"):
        check(exercise, answer)
    told = capsys.readouterr().out
    written = {exercise: "something else"}
    assert due_reply(exercise, {exercise: "right"}, written) in told


def test_what_check_has_to_say_follows_from_the_answer():
    assert due_reply(ONE, RIGHT, RIGHT) == "✓ 04-key-zeroed: right"
    assert due_reply(ONE, RIGHT, {}) == "04-key-zeroed: Not started yet"
    assert set(MISTAKES) <= set(EXERCISES)


def test_work_that_is_there_as_it_was_saved_is_not_lost():
    there = {"ada": b"1", "ben": b"2"}
    assert lost(there, {**there, "cleo": b"3"}, "at home") == []


def test_one_byte_less_or_another_or_a_file_less_is_lost_work_and_is_named():
    there = {"ada": b"1", "ben": b"12"}
    assert lost({"ada": b"12", "ben": b"13", "cleo": b"2"}, there, "collected") == [
        "ada: collected differs from what was saved",
        "ben: collected differs from what was saved",
        "cleo: collected there is nothing",
    ]


def test_an_answer_that_is_not_in_the_saved_file_is_named():
    assert unanswered(saved(RIGHT), RIGHT) == []
    assert unanswered(saved(GIVEN), RIGHT) == list(RIGHT)
    assert unanswered(saved({}), {ONE: "x"}) == [ONE]


def test_a_mark_too_many_too_few_or_none_at_all_is_named():
    marks = {"ada": {"a": 1.0, "b": 0.0}}
    assert misjudged(marks, {"ada": {"a": 1.0, "b": 0.0}}) == []
    for given in ({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}, {"a": 1.0}, None):
        assert misjudged(marks, {"ada": given} if given else {}) == [
            f"ada: {given} instead of {marks['ada']}"
        ]
    # Swapped between two exercises the sum is right.
    assert misjudged(marks, {"ada": {"a": 0.0, "b": 1.0}})


def room(**changes):
    """Make a class of one whose work is all there, but for some changes."""
    student = Student("ada", 0, "", None, path="x", written=dict(RIGHT), saved=saved(RIGHT))
    right = {
        "lost": lambda: [],
        "handed_in": lambda: {"ada": student.saved},
        "marks": lambda: {"ada": dict.fromkeys(RIGHT, 1.0)},
        "exported": lambda: {"ada": {"sum": 2.0}},
    }
    return SimpleNamespace(students=[student], **right | changes)


def test_the_judge_lets_a_class_pass_whose_work_is_all_there():
    load_test.judge(room(), RIGHT)


@pytest.mark.parametrize(
    "change",
    [
        {"lost": lambda: ["ada: at home there is nothing"]},
        {"handed_in": lambda: {"ada": saved(GIVEN)}},
        {"handed_in": dict},
        {"marks": lambda: {"ada": {ONE: 1.0, OTHER: 0.0}}},
        {"marks": dict},
        {"exported": lambda: {"ada": {"sum": 1.0}}},
        {"exported": dict},
    ],
)
def test_the_judge_stops_at_whatever_is_lost_or_marked_wrongly(change):
    with pytest.raises(AssertionError, match="ada"):
        load_test.judge(room(**change), RIGHT)


def test_the_room_compares_the_homes_with_what_was_saved(tmp_path):
    student = room().students[0]
    home = tmp_path / "home" / "ada"
    home.mkdir(parents=True)
    (home / "x").write_bytes(student.saved)
    folder = SimpleNamespace(folder=tmp_path, students=[student])
    assert load_test.Room.lost(folder) == []
    (home / "x").write_bytes(student.saved[:-1])
    assert load_test.Room.lost(folder) == ["ada: at home differs from what was saved"]
    student.written[ONE] = "another"
    assert "ada: 04-key-zeroed is not in the file" in load_test.Room.lost(folder)


def test_one_student_who_is_stuck_is_named_and_stops_the_class():
    def step(student):
        if student.name == "ben":
            raise RefusedError("500 disk full")

    people = [Student(name, n, "", None) for n, name in enumerate(("ada", "ben"))]
    class_of = SimpleNamespace(students=people)
    with pytest.raises(ExceptionGroup, match="1 of 2 students are stuck") as caught:
        load_test.Room.everyone(class_of, step)
    assert caught.value.exceptions[0].__notes__ == ["student ben, wrong"]
    assert load_test.Room.everyone(class_of, step, people[:1]) >= 0


def test_pieces_of_a_stream_become_one_output_and_what_is_not_shown_is_left_out():
    told = [
        message("status", execution_state="busy"),
        message("stream", name="stdout", text="a"),
        message("stream", name="stdout", text="b\n"),
        message("stream", name="stderr", text="c"),
        message("display_data", data={"image/png": "AA=="}, metadata={}),
        message("error", ename="NameError", evalue="x", traceback=[]),
    ]
    found = outputs(told)
    assert [one["output_type"] for one in found] == ["stream", "stream", "display_data", "error"]
    assert found[0]["text"] == "ab\n"
    assert shown(found).splitlines() == ["ab", "", "c", "", "NameError: x"]


def kernel(*told):
    """Give a kernel that says these messages."""
    one = Kernel.__new__(Kernel)
    one.heard = Queue()
    for said in told:
        one.heard.put(said)
    return one


def said(parent, kind, channel="iopub", **content):
    return message(kind, **content) | {"parent_header": {"msg_id": parent}, "channel": channel}


def test_a_cell_is_done_when_the_kernel_has_answered_and_is_idle_in_either_order():
    reply, idle = said("1", "execute_reply", "shell"), said("1", "status", execution_state="idle")
    other = said("2", "status", execution_state="idle")
    assert kernel(other, reply, idle).answer("1", 1) == [reply, idle]
    assert kernel(idle, reply).answer("1", 1) == [idle, reply]
    with pytest.raises(TimeoutError, match="says nothing"):
        kernel(reply, other).answer("1", 0.01)


@pytest.mark.parametrize("state", ["restarting", "dead"])
def test_a_kernel_that_dies_is_noticed(state):
    with pytest.raises(KernelDiedError, match=state):
        kernel(said("", "status", execution_state=state)).answer("1", 1)


def test_waiting_has_an_end():
    assert until(lambda: 7, 1, "seven") == 7
    begin = time.monotonic()
    with pytest.raises(TimeoutError, match="the hub answers: not within 0 s"):
        until(lambda: False, 0.01, "the hub answers")
    assert time.monotonic() - begin < 1


def test_the_median_and_the_worst_are_written_and_a_bar_does_not_break_a_table():
    assert spread([3.0, 1.0, 2.0], "s") == "2.0 s, worst 3.0"
    assert (
        table(("what", "value"), [("a|b", "1")])
        == "| what | value |\n| --- | --- |\n| a\\|b | 1 |\n"
    )


def test_the_tables_take_the_place_of_the_old_ones_and_nothing_else_changes():
    text = f"# T\n\n{HEADING}\n\nold\n\n| old |\n\n### Next\n\n## More\n"
    fresh = page(text, "new\n")
    assert fresh == f"# T\n\n{HEADING}\n\nnew\n\n### Next\n\n## More\n"
    assert page(fresh, "new\n") == fresh
    with pytest.raises(ValueError, match="has no heading"):
        page("# T\n", "new\n")


def test_the_page_for_teachers_has_the_place_for_the_tables():
    assert "| new |" in page(load_test.PAGE.read_text(encoding="utf-8"), "| new |\n")


def test_too_few_students_are_refused():
    with pytest.raises(SystemExit):
        load_test.main(["--students", "2"])


def test_a_class_without_root_is_refused_in_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(load_test.os, "geteuid", lambda: 1000)
    assert load_test.main([]) == 1
    assert capsys.readouterr().err == "Each student gets a Unix account: sudo make hub-test.\n"


@pytest.fixture
def read(monkeypatch):
    """Read the settings of a server; what they change in Jupyter is changed back."""
    monkeypatch.setattr(LocalPortCache, "find_available_port", None)

    def read() -> Config:
        path = load_test.ROOT / "classroom" / "config" / "jupyter_server_config.py"
        settings = Config()
        runpy.run_path(str(path), {"get_config": lambda: settings})
        return settings

    return read


def test_kernels_of_two_accounts_look_for_ports_apart_and_pass_over_a_taken_one(read, monkeypatch):
    found = {}
    for account in (1001, 1002):
        monkeypatch.setattr(os, "getuid", lambda account=account: account)
        read()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0 if account == 1001 else max(found[1001]) + 2))
            ports = [LocalPortCache().find_available_port("127.0.0.1") for _ in range(99)]
            assert taken.getsockname()[1] not in ports
        found[account] = set(ports)
    assert not found[1001] & found[1002]
    assert all(20_000 <= port < 32_768 for port in found[1001] | found[1002])


@pytest.fixture
def files(read, tmp_path):
    """Give what saves the files of a student, as the settings of a server name it."""
    return read().ServerApp.contents_manager_class(root_dir=str(tmp_path))


def save(files, name, text):
    with files.atomic_writing(str(Path(files.root_dir, name)), encoding="utf-8") as file:
        file.write(text)


def test_a_file_is_saved_with_its_rights_and_through_a_link_and_nothing_is_left_beside(
    files, tmp_path
):
    save(files, "a.ipynb", "one\n")
    (tmp_path / "a.ipynb").chmod(0o640)
    (tmp_path / "b.ipynb").symlink_to("a.ipynb")
    save(files, "b.ipynb", "zwölf\n")
    assert (tmp_path / "a.ipynb").read_bytes() == "zwölf\n".encode()
    assert (tmp_path / "a.ipynb").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "b.ipynb").is_symlink()
    with files.atomic_writing(str(tmp_path / "c.png"), text=False) as file:
        file.write(b"\x89")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.ipynb", "b.ipynb", "c.png"]


@pytest.mark.parametrize("last", [False, True])
def test_what_was_saved_stays_whole_where_the_disk_is_full(files, tmp_path, monkeypatch, last):
    save(files, "a.ipynb", "one")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for _ in range(2):
        with pytest.raises(OSError, match="No space left"), monkeypatch.context() as patch:
            if last:  # only the last piece, which is written at the end, has no place
                patch.setattr(os, "fsync", full)
                save(files, "a.ipynb", "much more")
            else:
                with files.atomic_writing(str(tmp_path / "a.ipynb")) as file:
                    file.write("much")
                    full()
        assert [path.name for path in tmp_path.iterdir()] == ["a.ipynb"]
        assert (tmp_path / "a.ipynb").read_text() == "one"


def test_a_file_that_may_not_be_written_is_refused_and_not_an_error_of_the_server(
    files, tmp_path, monkeypatch
):
    def closed(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(Exception, match="403"):
        save(files, "a.ipynb", "one")
