"""The file progress.json: records survive, and an error never stops a check."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest

from twelve_lab.check import EXERCISES, MISTAKES, TASKS, WrongAnswer, check, progress
from twelve_lab.check.progress import FILE, VARIABLE, note, onward, read, report
from twelve_lab.cli import main
from twelve_lab.course import DRILLS

DAY = "2026-01-31T00:00:00+00:00"
RIGHT, VIEW = TASKS["split_heads"].right, MISTAKES["split-view"].wrong


def fails(answer):
    with pytest.raises(WrongAnswer):
        check("06-split-heads", answer)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a working directory with a progress.json."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return save(tmp_path)


def rows(folder):
    return read(folder / FILE)["exercises"]


def row(solved=None, wrong=0, *mistakes):
    return {"solved": solved, "wrong answers": wrong, "mistakes": list(mistakes)}


def save(folder, begun=None, **exercises):
    named = {id.replace("_", "-"): content for id, content in exercises.items()}
    content = {"version": begun or version("twelve-numbers"), "exercises": named}
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps(content), encoding="utf-8")
    return folder


# TWELVE_PROGRESS, the working directory, and the recorded folder, relative to a temporary folder.
PLACES = [
    (None, "home", None),
    ("home", "home", "home"),
    ("home", "copies", None),
    (f"home/{FILE}", "home/fetched", "home"),
    ("home", "home/workshop", "home"),
]


@pytest.mark.parametrize(("variable", "here", "recorded"), PLACES)
def test_the_first_answer_creates_the_file_in_the_named_folder(
    variable, here, recorded, tmp_path, monkeypatch
):
    for name in ("home/fetched", "home/workshop", "copies"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable:
        monkeypatch.setenv(VARIABLE, str(tmp_path / variable))
    monkeypatch.chdir(tmp_path / here)
    check("06-split-heads", ...)
    assert list(tmp_path.rglob(FILE)) == []
    check("06-split-heads", RIGHT)
    written = {path.parent: list(rows(path.parent)) for path in tmp_path.rglob(FILE)}
    assert written == ({tmp_path / recorded: ["06-split-heads"]} if recorded else {})


def test_an_empty_variable_switches_recording_off(folder, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    check("06-split-heads", RIGHT)
    assert rows(folder) == {}


def test_wrong_answers_count_until_the_first_right_one(folder):
    for wrong in (VIEW, VIEW, lambda projected, num_heads: projected):
        fails(wrong)
    check("06-split-heads", ...)
    assert rows(folder) == {"06-split-heads": row(None, 3, "split-view")}
    check("06-split-heads", RIGHT)
    solved = rows(folder)["06-split-heads"]
    assert solved == row(solved["solved"], 3, "split-view") and solved["solved"].endswith("+00:00")
    save(folder, **{"06_split_heads": row(DAY)})
    fails(MISTAKES["split-interleaved"].wrong)
    check("06-split-heads", RIGHT)
    check("06-scores-shape", (2, 3, 4, 5))
    assert rows(folder)["06-split-heads"] == row(DAY)
    assert rows(folder)["06-scores-shape"]["solved"]


def test_concurrent_checks_lose_no_record(folder):
    ids = [f"06-{number}" for number in range(24)]
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda id: note(id, "ok", None), ids))
    assert sorted(rows(folder)) == sorted(ids)


ODD_ROWS = (
    row(None, 1, {}), row(None, 1, "x\x1b[1A"), row("\n"), row(""), row(None, 10**6)
)  # fmt: skip
BROKEN = [
    "",
    "[]",
    '{"version": 1, "exercises": {}}',
    '{"version": "0.1.0", "exercises": {"06-split-heads": {"solved": null}}}',
    '{"version": "0.1.0", "exercises": {"06-split-heads": 3}}',
    "[" * 100_000,
    '{"version": "0.1.0", "exercises": {}, "more": "' + "a" * 1_000_000 + '"}',
    # On a terminal, control characters and line breaks could fake other rows.
    '{"version": "x\\u001b[2K", "exercises": {}}',
    '{"version": "0.1.0", "exercises": {"a\\nb": ' + json.dumps(row()) + "}}",
    *(json.dumps({"version": "0.1.0", "exercises": {"a": odd}}) for odd in ODD_ROWS),
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_reported_and_left_unchanged(folder, content, capsys):
    (folder / FILE).write_text(content, encoding="utf-8")
    check("06-split-heads", RIGHT)
    out, err = capsys.readouterr()
    assert out.startswith("(Not recorded in progress.json: ")
    assert "✓ 06-split-heads: right." in out
    assert err == "" and onward() == ""
    assert (folder / FILE).read_text(encoding="utf-8") == content
    with pytest.raises(ValueError, match=r"progress\.json is not a progress file of this course"):
        read(folder / FILE)


def test_a_symbolic_link_stays_one(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / FILE
    (folder / FILE).rename(elsewhere)
    (folder / FILE).symlink_to(elsewhere)
    fails(VIEW)
    assert (folder / FILE).is_symlink()
    assert read(elsewhere)["exercises"]["06-split-heads"]["wrong answers"] == 1


def test_a_link_in_place_of_the_new_file_is_not_followed(folder):
    other = folder / "other"
    other.write_text("kept")
    (folder / f".{FILE}.new").symlink_to(other)
    check("06-split-heads", RIGHT)
    assert other.read_text() == "kept" and not (folder / FILE).is_symlink()


def test_a_check_writes_no_file_that_it_cannot_read(folder, capsys):
    save(folder, **{"06_split_heads": row(None, 999_999)})
    fails(VIEW)
    assert rows(folder)["06-split-heads"]["wrong answers"] == 999_999
    many = ["m" * 99] * 9_600
    save(folder, a=row(None, 1, *many))
    note("06-split-heads", "ok", None)
    assert "more than 1,000,000 characters" in capsys.readouterr().out
    assert list(rows(folder)) == ["a"]


def test_a_check_in_a_folder_that_was_removed_is_not_recorded(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    check("06-split-heads", RIGHT)
    assert "✓ 06-split-heads: right." in capsys.readouterr().out


@pytest.mark.skipif(os.name != "posix", reason="other systems have no FIFO")
def test_a_named_pipe_in_place_of_a_lesson_is_not_read(folder):
    os.mkfifo(folder / "06_multi_head_attention.ipynb")
    check("06-split-heads", RIGHT)
    assert progress.standing(folder) == ("", None) and "06-split-heads  solved" in report([folder])


def test_a_full_disk_stops_no_check_and_keeps_the_file(folder, monkeypatch, capsys):
    def full(*given):
        raise OSError(28, "No space left on device")

    before = (folder / FILE).read_text(encoding="utf-8")
    monkeypatch.setattr("os.replace", full)
    check("06-split-heads", RIGHT)
    assert "No space left on device" in capsys.readouterr().out
    assert (folder / FILE).read_text(encoding="utf-8") == before


def test_the_report_of_one_learner_lists_each_exercise(folder):
    made = {"06_merge_heads": row(DAY, 3), "06_split_heads": row(None, 1, "split-view")}
    lines = report([save(folder, "0.0.1", **made, **{"99_nothing": row(DAY)})]).splitlines()
    assert lines[0] == f"started with version 0.0.1 (installed: {version('twelve-numbers')})"
    assert "  06-merge-heads  solved on 2026-01-31; 3 wrong answers" in lines
    assert "  06-split-heads  open; 1 wrong answer; mistakes: split-view" in lines
    assert any(line.startswith("06 multi-head attention: 1 of ") for line in lines)
    assert lines[-2] == f"Solved: 1 of {len(EXERCISES)}"
    assert lines[-1] == "From another version of the course: 99-nothing"


def test_the_report_of_a_class_has_a_row_for_each_learner(tmp_path):
    """Each learner counts once per mistake, and names are padded to the same width."""
    solved = {"06_merge_heads": row(DAY, 3)}
    both = {"a": row(None, 4, "split-view"), "b": row(None, 4, "split-view", "mask-inverted")}
    paths = [
        save(tmp_path / "an", **solved),
        save(tmp_path / "another", **solved, **both),
        save(tmp_path / "x", **solved, a=row(None, 4, "mask-inverted", "b-one")),
    ]
    begun = f"started with version {version('twelve-numbers')}"
    none = f"mastered by hand  0 of {len(DRILLS)}"
    lines = report([*paths[:2], paths[2] / FILE]).splitlines()
    assert lines[:5] == [
        f"{paths[0]}       solved   1 of {len(EXERCISES)}, {none}, wrong answers   3; {begun}",
        f"{paths[1]}  solved   1 of {len(EXERCISES)}, {none}, wrong answers  11; {begun}",
        f"{paths[2]}        solved   1 of {len(EXERCISES)}, {none}, wrong answers   7; {begun}",
        "",
        "Mistakes, by the number of learners who made them:",
    ]
    made, exercises = lines[5 : lines.index("", 5)], lines[lines.index("", 5) :]
    counts = ["    2  mask-inverted", "    1  b-one", "    1  split-view"]
    assert [line for line in made if line[:7].strip()] == counts
    # The checker does not know b-one. The report describes each known mistake.
    told = " ".join(line.strip() for line in made)
    for id, title in (("mask-inverted", "05 (masks)"), ("split-view", "06 (multi-head attention)")):
        assert f"{id} {MISTAKES[id].sentence} Notebook {title}." in told
    assert exercises == ["", "Exercises with the most wrong answers:", "    9  06-merge-heads"]


@pytest.mark.skipif(os.name != "posix", reason="other systems have no FIFO")
def test_no_file_of_a_learner_stops_the_report_of_a_class(tmp_path):
    good = save(tmp_path / "good")
    make = {
        "fifo": os.mkfifo,
        "device": lambda file: file.symlink_to("/dev/zero"),
        "link": lambda file: file.symlink_to(good / FILE),
        "none": lambda file: None,
        "broken": lambda file: file.write_text("{"),
        "dict": lambda file: file.write_text(json.dumps({"version": "1", "exercises": 3})),
        "folder": lambda file: file.mkdir(),
    }
    missing = report([good, tmp_path / "a.json"]).splitlines()[1]
    assert missing.split()[0] == str(tmp_path / "a.json")
    for name, begun in make.items():
        (tmp_path / name).mkdir()
        begun(tmp_path / name / FILE)
    lines = report([good, *(tmp_path / name for name in make)]).splitlines()
    assert len(lines) == len(make) + 1 and "solved   0 of" in lines[0]
    for name, line in zip(make, lines[1:], strict=True):
        assert line.split()[:4] == [str(tmp_path / name), "cannot", "be", "read"]
    hostile = tmp_path / "x\n\x1b[2J"
    hostile.mkdir()
    assert report([good, hostile]).splitlines()[1].startswith(rf"{tmp_path}/x\n\x1b[2J  cannot")
    for name in ("fifo", "device"):
        with pytest.raises(ValueError, match="no regular file of at most 1,000,000 bytes"):
            read(tmp_path / name / FILE)


@pytest.mark.parametrize("subfolder", ["", "notebooks"])
def test_a_right_answer_shows_the_standing_and_the_next_exercise(folder, subfolder):
    (folder / subfolder).mkdir(exist_ok=True)
    lesson = folder / subfolder / "06_multi_head_attention.ipynb"
    ids = ("06-scores-shape", "06-split-heads", "06-merge-heads")
    lesson.write_text("".join(f'check(\\"{id}\\", x) ' for id in ids), encoding="utf-8")
    assert onward() == ""
    check("06-split-heads", RIGHT)
    reached = "Solved so far: 1 of 3 exercises in the lessons. Next: 06-scores-shape."
    assert onward() == reached and report([folder]).endswith(f"\n{reached}")
    for id in ids:
        note(id, "ok", None)
    assert onward() == "Solved so far: 3 of 3 exercises in the lessons. That is all of them."


def test_the_progress_command_prints_the_report_or_the_reason(folder, capsys):
    assert main(["progress", str(folder)]) == 0
    assert capsys.readouterr().out == report([folder]) + "\n"
    assert main(["progress", str(folder / "nowhere")]) == 1
    assert "nowhere does not exist. The first answer in" in capsys.readouterr().err
