"""The load test notices lost work and wrong marks; the settings of a server keep work safe.

`make hub-test`, as root, plays a class. These tests need no hub.
"""

import csv
import errno
import json
import os
import runpy
import socket
from pathlib import Path

import nbformat
import pytest
from jupyter_client.connect import LocalPortCache
from traitlets.config import Config

from classroom.load_test import LESSON, WRONG, Room, Student, answer_cells
from tools.write_solutions import NOTEBOOKS, solved
from twelve_lab.check import diagnose

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Read the right answers from the course, as the load test does."""
    path, lesson = tmp_path_factory.mktemp("course") / "lesson.ipynb", f"{LESSON}.ipynb"
    nbformat.write(solved(nbformat.read(NOTEBOOKS / lesson, as_version=4), marked=True), path)
    return answer_cells(path)


def test_answer_cells_have_no_markers_and_the_mistake_is_wrong(right):
    assert len(right) == 3 and not any("###" in source for source in right.values())
    ((id, source),) = WRONG.items()
    names = {}
    exec(source, names)
    assert id in right and diagnose(id, names["weights_of_dog"]).kind == "misconception"


@pytest.fixture
def room(tmp_path, right):
    """Build a graded class of one student, in which everything is right."""
    cells = [
        {"source": source, "metadata": {"nbgrader": {"grade_id": f"{id}-answer", "solution": True}}}
        for id, source in right.items()
    ]
    saved = json.dumps({"cells": cells}).encode()
    room = Room.__new__(Room)
    room.folder = room.course = tmp_path
    room.students = [Student("ada", 0, "", None, path="x", written=dict(right), saved=saved)]
    for name in ("home/ada/x", f"submitted/ada/{LESSON}/{LESSON}.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_bytes(saved)
    with (tmp_path / "grades.csv").open("w") as file:
        csv.writer(file).writerows([("assignment", "student_id", "score"), (LESSON, "ada", "3.0")])
    return room


SPOIL = {
    "home": lambda room: (room.folder / "home/ada/x").write_bytes(b"{}"),
    "collected": lambda room: next(room.folder.glob("submitted/*/*/*")).write_bytes(b"{}"),
    "marks": lambda room: room.students[0].written.popitem(),
}


@pytest.mark.parametrize("spoil", SPOIL)
def test_check_marks_notices_lost_work_and_wrong_marks(room, right, spoil):
    room.check_marks(right)
    SPOIL[spoil](room)
    with pytest.raises(AssertionError, match="ada"):
        room.check_marks(right)


@pytest.fixture
def settings(monkeypatch):
    """Read the settings of a server; its changes of Jupyter are undone."""
    monkeypatch.setattr(LocalPortCache, "find_available_port", None)

    def read() -> Config:
        c, path = Config(), ROOT / "classroom/config/jupyter_server_config.py"
        runpy.run_path(str(path), {"get_config": lambda: c})
        return c

    return read


def test_kernels_of_two_accounts_use_disjoint_free_ports(settings, monkeypatch):
    ports = {}
    for account in (1061, 1062):
        monkeypatch.setattr(os, "getuid", lambda account=account: account)
        settings()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0 if account == 1061 else max(ports[1061]) + 2))
            ports[account] = {LocalPortCache().find_available_port("127.0.0.1") for _ in range(99)}
            assert taken.getsockname()[1] not in ports[account]
    assert not ports[1061] & ports[1062]
    assert all(20_000 <= port < 32_768 for port in ports[1061] | ports[1062])


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
