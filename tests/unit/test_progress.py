"""What was solved: noted beside the notebooks, never lost, and never a reason to stop."""

import json
import threading
from importlib.metadata import version
from pathlib import Path

import nbformat
import pytest

from tools.write_solutions import exercise_of
from twelve_lab.check import EXERCISES, MISTAKES, WrongAnswer, check
from twelve_lab.check.progress import (
    FILE,
    VARIABLE,
    begin,
    note,
    onward,
    read,
    report,
    standing,
)
from twelve_lab.cli import main
from twelve_lab.course import find_step

VIEW = MISTAKES["split-view"].wrong


def split(projected, num_heads):
    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory that keeps a progress.json."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    assert begin(tmp_path)
    return tmp_path


def rows(folder):
    return read(folder / FILE)["exercises"]


def test_a_fresh_one_holds_the_version_and_nothing_solved(folder):
    assert read(folder / FILE) == {"version": version("twelve"), "exercises": {}}


def test_one_that_is_there_is_not_begun_anew(folder):
    check("06-split-heads", split)
    before = (folder / FILE).read_text(encoding="utf-8")
    assert not begin(folder)
    assert (folder / FILE).read_text(encoding="utf-8") == before


def test_nothing_is_written_where_none_is_kept(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    check("06-split-heads", split)
    assert list(tmp_path.iterdir()) == []


def test_the_first_answer_begins_one_in_the_folder_that_is_named_and_in_no_other(
    tmp_path, monkeypatch
):
    home, copies = tmp_path / "notebooks", tmp_path / "solutions"
    for folder in (home, copies):
        folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(home))
    monkeypatch.chdir(copies)
    check("06-split-heads", split)
    monkeypatch.chdir(home)
    check("06-split-heads", ...)
    assert [*home.iterdir(), *copies.iterdir()] == []
    check("06-split-heads", split)
    assert list(rows(home)) == ["06-split-heads"]


def test_a_file_that_is_named_is_kept_for_every_folder(tmp_path, monkeypatch):
    home, fetched = tmp_path / "home", tmp_path / "home" / "04_attention"
    fetched.mkdir(parents=True)
    monkeypatch.setenv(VARIABLE, str(home / FILE))
    monkeypatch.chdir(fetched)
    check("06-split-heads", split)
    assert list(rows(home)) == ["06-split-heads"] and not any(fetched.iterdir())


def test_a_workshop_is_noted_with_the_lessons(folder, monkeypatch):
    (folder / "workshop").mkdir()
    monkeypatch.chdir(folder / "workshop")
    check("06-split-heads", split)
    assert list(rows(folder)) == ["06-split-heads"]
    assert list((folder / "workshop").iterdir()) == []


def test_where_notebooks_are_run_for_us_nothing_is_noted(folder, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    check("06-split-heads", split)
    assert rows(folder) == {}


def test_wrong_answers_are_counted_until_one_is_right(folder, capsys):
    for wrong in (VIEW, VIEW, lambda projected, num_heads: projected):
        with pytest.raises(WrongAnswer):
            check("06-split-heads", wrong)
    row = {"solved": None, "wrong answers": 3, "mistakes": ["split-view"]}
    assert rows(folder) == {"06-split-heads": row}

    check("06-split-heads", split)
    solved = rows(folder)["06-split-heads"]
    assert solved["solved"].endswith("+00:00")
    assert solved["wrong answers"] == 3

    with pytest.raises(WrongAnswer):
        check("06-split-heads", MISTAKES["split-interleaved"].wrong)
    check("06-split-heads", split)
    assert rows(folder)["06-split-heads"] == solved
    assert capsys.readouterr().err == ""


def test_the_first_time_counts(folder):
    row = {"solved": "2026-01-01T00:00:00+00:00", "wrong answers": 0, "mistakes": []}
    content = {"version": version("twelve"), "exercises": {"06-split-heads": row}}
    (folder / FILE).write_text(json.dumps(content), encoding="utf-8")
    check("06-split-heads", split)
    assert rows(folder) == {"06-split-heads": row}


def test_a_blank_is_not_noted(folder):
    check("06-split-heads", ...)
    assert rows(folder) == {}


def test_a_prediction_is_noted_too(folder):
    check("06-scores-shape", (2, 3, 4, 5))
    assert rows(folder)["06-scores-shape"]["solved"]


def test_no_note_is_lost_where_many_write_at_once(folder):
    ids = [f"06-{at}" for at in range(24)]
    threads = [threading.Thread(target=note, args=(id, "ok", None)) for id in ids]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(rows(folder)) == sorted(ids)


BROKEN = [
    "",
    "[]",
    "{",
    '{"version": "0.1.0"}',
    '{"version": 1, "exercises": {}}',
    '{"version": "0.1.0", "exercises": {"06-split-heads": {"solved": null}}}',
    '{"version": "0.1.0", "exercises": {"06-split-heads": 3}}',
    "[" * 100_000,
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_named_and_left_as_it_is(folder, content, capsys):
    (folder / FILE).write_text(content, encoding="utf-8")
    check("06-split-heads", split)
    out, err = capsys.readouterr()
    assert out.startswith("(Not noted in progress.json: ")
    assert "✓ 06-split-heads: right." in out
    assert err == ""
    assert (folder / FILE).read_text(encoding="utf-8") == content
    with pytest.raises(ValueError, match=r"progress\.json is no progress of this course"):
        read(folder / FILE)


def test_a_link_to_a_file_elsewhere_stays_a_link(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / FILE
    (folder / FILE).rename(elsewhere)
    (folder / FILE).symlink_to(elsewhere)
    with pytest.raises(WrongAnswer):
        check("06-split-heads", VIEW)
    assert (folder / FILE).is_symlink()
    assert read(elsewhere)["exercises"]["06-split-heads"]["wrong answers"] == 1


def test_a_disk_that_takes_nothing_is_no_reason_to_stop(folder, monkeypatch, capsys):
    def full(*given):
        raise OSError(28, "No space left on device")

    before = (folder / FILE).read_text(encoding="utf-8")
    monkeypatch.setattr("os.replace", full)
    check("06-split-heads", split)
    assert "No space left on device" in capsys.readouterr().out
    assert (folder / FILE).read_text(encoding="utf-8") == before


def test_the_report_of_one_learner_names_what_is_open_and_what_was_met(folder):
    check("06-merge-heads", lambda heads: heads.transpose(1, 2).flatten(2))
    with pytest.raises(WrongAnswer):
        check("06-split-heads", VIEW)
    said = report([folder])
    assert f"begun with version {version('twelve')}\n" in said
    assert "06 multi-head attention: 1 of " in said
    assert "  06-merge-heads  solved on 2" in said
    assert "  06-split-heads  open, after 1 wrong: split-view\n" in said
    assert "Solved: 1 of " in said


def test_the_report_of_a_class_counts_the_mistakes(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("another learner")
    for place in (folder, other):
        row = {"solved": None, "wrong answers": 2, "mistakes": ["split-view"]}
        content = {"version": "0.0.1", "exercises": {"06-split-heads": row}}
        (place / FILE).write_text(json.dumps(content), encoding="utf-8")
    said = report([folder, other / FILE])
    assert len([line for line in said.splitlines() if " 2 wrong answers; begun with" in line]) == 2
    assert f"begun with version 0.0.1, and this is {version('twelve')}" in said
    assert said.endswith("by the number of learners:\n    2  split-view")


def test_each_row_of_a_report_is_whole(tmp_path):
    """By hand: a day is ten characters, names stand in one width, a learner counts once."""

    def learner(name, **mistakes):
        day = "2026-01-31T00:00:00+00:00"
        exercises = {"06-merge-heads": {"solved": day, "wrong answers": 3, "mistakes": []}}
        for id, met in mistakes.items():
            row = {"solved": None, "wrong answers": 4, "mistakes": met}
            exercises[id.replace("_", "-")] = row
        (tmp_path / name).mkdir()
        content = {"version": version("twelve"), "exercises": exercises}
        (tmp_path / name / FILE).write_text(json.dumps(content), encoding="utf-8")
        return tmp_path / name

    both = {"a": ["split-view"], "b": ["split-view", "mask-inverted"]}
    paths = [learner("an"), learner("another", **both), learner("x", a=["mask-inverted", "b-one"])]
    begun = f"begun with version {version('twelve')}"
    assert "  06-merge-heads  solved on 2026-01-31, after 3 wrong\n" in report(paths[:1])
    assert report(paths).splitlines() == [
        f"{paths[0]}       solved   1 of {len(EXERCISES)},   3 wrong answers; {begun}",
        f"{paths[1]}  solved   1 of {len(EXERCISES)},  11 wrong answers; {begun}",
        f"{paths[2]}        solved   1 of {len(EXERCISES)},   7 wrong answers; {begun}",
        "",
        "Mistakes met, by the number of learners:",
        "    2  mask-inverted",
        "    1  b-one",
        "    1  split-view",
    ]


def test_what_another_version_knew_is_named(folder):
    row = {"solved": "2026-01-01T00:00:00+00:00", "wrong answers": 0, "mistakes": []}
    content = {"version": "0.0.1", "exercises": {"99-nothing": row}}
    (folder / FILE).write_text(json.dumps(content), encoding="utf-8")
    assert report([folder]).endswith("Of another version of the course: 99-nothing")


def test_a_right_answer_says_how_far_one_has_come_and_what_is_next(folder):
    cells = "".join(
        f'check(\\"{id}\\", x) ' for id in ("06-scores-shape", "06-split-heads", "06-merge-heads")
    )
    (folder / "06_multi_head_attention.ipynb").write_text(cells, encoding="utf-8")
    assert onward() == "" and standing(folder) is None
    check("06-split-heads", split)
    assert onward() == (
        "Solved so far: 1 of the 3 exercises of the lessons; next is 06-merge-heads."
    )
    assert report([folder]).endswith(f"\n{onward()}")
    (folder / FILE).write_text("[]", encoding="utf-8")
    assert onward() == ""


def test_the_lessons_of_a_class_lie_in_a_folder_beside_the_file(folder):
    (folder / "notebooks").mkdir()
    lesson = folder / "notebooks" / "06_multi_head_attention.ipynb"
    lesson.write_text('check(\\"06-split-heads\\", x)', encoding="utf-8")
    check("06-split-heads", split)
    assert standing(folder) == (1, 1, None)


def test_every_exercise_of_a_lesson_is_found_in_its_notebook(folder):
    lessons = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
    for path in lessons:
        (folder / path.name).write_bytes(path.read_bytes())
    cells = [cell for path in lessons for cell in nbformat.read(path, as_version=4).cells]
    ids = [id for cell in cells if (id := exercise_of(cell, "check"))]
    note(ids[0], "ok", None)
    assert standing(folder) == (1, len(ids), (ids[1], find_step(ids[1][:2])))


def test_the_command_prints_the_report(folder, capsys):
    assert main(["progress", str(folder)]) == 0
    assert capsys.readouterr().out == report([folder]) + "\n"


def test_the_command_says_what_is_missing(folder, capsys):
    assert main(["progress", str(folder / "nowhere")]) == 1
    said = f"there is no {folder / 'nowhere'}: the first answer in `make lab` begins one"
    assert capsys.readouterr().err == f"twelve: {said}\n"
