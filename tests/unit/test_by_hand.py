"""Pages to write by hand: spaced repetition, timing, and blank answers."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import torch.nn.functional as F

from tests.unit.test_progress import folder, read, row, save
from twelve_lab.check import EXERCISES, TASKS, WrongAnswer, check, repetition
from twelve_lab.check.blank_page import ANSWERS, blank, open_page, wanted
from twelve_lab.check.progress import FILE, note, report
from twelve_lab.check.repetition import answered, new_record, opens, proposed, state
from twelve_lab.cli import main
from twelve_lab.course import BY_HAND, DRILLS, STEPS

__all__ = ["folder"]  # a fixture

START = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
HEADS, LORA = (next(drill for drill in DRILLS if drill.stem == stem)
               for stem in ("multi_head_attention", "lora"))  # fmt: skip


def after(days, **more):
    return START + timedelta(days=days, **more)


def record(*answers):
    """Return a record of answers: for each, days since the start and whether it is right."""
    content = new_record()
    for days, right in answers:
        answered(content, right, after(days))
    return content


# The table of drills.


def test_drills_are_in_order_of_frequency_and_name_existing_exercises():
    counts = [drill.asked for drill in DRILLS]
    assert counts == sorted(counts, reverse=True)
    assert len({drill.stem for drill in DRILLS}) == len(DRILLS)
    for drill in DRILLS:
        assert drill.exercise in EXERCISES
        assert EXERCISES[drill.exercise] in TASKS.values()
        assert drill.lesson in {step.number for step in STEPS}


# Spaced repetition.


@pytest.mark.parametrize(
    ("answers", "today", "expected"),
    [
        ([], 0, "new"),
        ([(0, False)], 0, "failed"),
        ([(0, False), (0, True)], 0, "waiting"),
        ([(0, True)], 1, "waiting"),
        ([(0, True)], 2, "due"),
        ([(0, True)], 400, "due"),
        ([(0, True), (1, True)], 1, "waiting"),  # too early to count
        ([(0, True), (1, True)], 2, "due"),
        ([(0, True), (1, False)], 1, "waiting"),  # too early to count as a failure
        ([(0, True), (2, False)], 3, "failed"),
        ([(0, True), (2, True)], 8, "waiting"),
        ([(0, True), (2, True)], 9, "due"),
        ([(0, True), (3, True)], 9, "waiting"),  # due seven days after the second answer
        ([(0, True), (2, True), (9, True)], 9, "mastered"),
        ([(0, True), (2, True), (9, True), (500, False)], 500, "mastered"),
        ([(5, True)], 0, "waiting"),  # the system clock was set back
    ],
)
def test_repetition_is_due_after_two_and_after_seven_days(answers, today, expected):
    assert state(record(*answers), after(today)) == expected


def test_the_days_of_repetition_are_those_of_utc():
    east = START.astimezone(datetime.strptime("+0900", "%z").tzinfo)
    content = new_record()
    answered(content, True, east)
    assert east.day == 1 and content["right"] == ["2026-01-31"]
    assert opens(content).isoformat() == "2026-02-02"


def test_at_most_three_right_answers_are_recorded():
    content = record(*((days, True) for days in range(30)))
    assert content["right"] == ["2026-01-31", "2026-02-02", "2026-02-09"]


def test_proposed_prefers_failed_then_due_then_new_in_order_of_frequency():
    first, second, third, *_ = DRILLS
    records = {}
    assert proposed(records, START) is first
    records[first.exercise] = record((0, True))
    assert proposed(records, START) is second
    assert proposed(records, after(2)) is first
    records[third.exercise] = record((1, False))
    assert proposed(records, after(2)) is third
    records |= {drill.exercise: record((0, True)) for drill in DRILLS}
    assert proposed(records, after(1)) is None


def test_wanted_gives_the_reason(folder):
    task, reason = wanted(folder, None, START)
    assert task is HEADS and "not tried yet. 20 of 21 lists" in reason
    assert wanted(folder, "lora", START)[0] is LORA
    with pytest.raises(ValueError, match="unknown task bert \\(known: multi_head_attention, kv_"):
        wanted(folder, "bert", START)

    def reason_with(today, *answers):
        content = read(save(folder) / FILE)
        content["by hand"] = {drill.exercise: record(*answers) for drill in DRILLS}
        (folder / FILE).write_text(json.dumps(content))
        return wanted(folder, None, after(today))[1]

    assert reason_with(1, (0, False)).endswith("your last answer was wrong.")
    assert reason_with(2, (0, True)).endswith("the last right answer is some days old.")
    assert reason_with(1, (0, True)) == "Nothing to do today. The next page: 2026-02-02."
    assert reason_with(9, (0, True), (2, True), (9, True)) == "All tasks are mastered."


# The progress file.


@pytest.fixture
def page(folder, monkeypatch):
    """Write the LoRA page, make its folder the working directory, and return its path."""
    (folder / BY_HAND).mkdir()
    path = folder / BY_HAND / "lora.ipynb"
    cells = [("markdown", "# LoRA", {}), ("code", "x = 1", {})]
    for kind, source in (("answer", blank(LORA.exercise)), ("check", "check()")):
        mark = {"grade_id": f"{LORA.exercise}-{kind}"}
        cells.append(("code", source, {"nbgrader": mark}))
    notebook = {"cells": [
        {"cell_type": kind, "source": source, "metadata": metadata}
        | ({"outputs": [], "execution_count": 1} if kind == "code" else {})
        for kind, source, metadata in cells
    ]}  # fmt: skip
    path.write_text(json.dumps(notebook))
    monkeypatch.chdir(path.parent)
    return path


def cells_of(page):
    return json.loads(page.read_text())["cells"]


def write_answer(page, source):
    notebook = json.loads(page.read_text())
    notebook["cells"][2]["source"] = source
    notebook["cells"][3]["outputs"] = ["old"]
    page.write_text(json.dumps(notebook))


def records(folder):
    return read(folder / FILE)["by hand"]


def test_only_an_answer_on_its_page_is_recorded_for_repetition(folder, page, monkeypatch):
    note("06-split-heads", "ok", None, START)
    assert records(folder) == {}
    monkeypatch.chdir(folder)
    note(HEADS.exercise, "ok", None, START)
    assert records(folder) == {}
    monkeypatch.chdir(page.parent)
    note(HEADS.exercise, "not started", None, START)
    assert records(folder) == {}
    note(HEADS.exercise, "numbers", None, START)
    assert records(folder)[HEADS.exercise] == {"right": [], "failed": True, "started": None}
    note(HEADS.exercise, "ok", None, START)
    assert records(folder)[HEADS.exercise]["right"] == ["2026-01-31"]


def test_a_right_answer_with_a_forbidden_call_does_not_count(folder, page, capsys):
    def distillation(student, teacher, temperature):
        q, p = ((x / temperature).log_softmax(-1).flatten(0, 1) for x in (student, teacher))
        settings = {"reduction": "batchmean", "log_target": True}
        losses = F.kl_div(q, p, **settings), F.kl_div(p, q, **settings)
        return tuple(temperature**2 * loss for loss in losses)

    id = "by-hand-distillation"
    check(id, distillation)
    output = capsys.readouterr().out
    assert "Not counted: the answer uses what the task forbids." in output
    assert "without kl_div" in output
    assert records(folder) == {}
    check(id, EXERCISES[id].right)
    assert len(records(folder)[id]["right"]) == 1


def test_the_report_of_a_class_counts_the_mastered_tasks(tmp_path):
    first, second, third, *_ = DRILLS
    paths = [tmp_path / name for name in ("ada", "ben")]
    for path, drills in zip(paths, ([first, third], []), strict=True):
        path.mkdir()
        content = read(save(path) / FILE)
        content["by hand"] = {drill.exercise: record((0, True), (2, True), (9, True))
                              for drill in drills}  # fmt: skip
        content["by hand"][second.exercise] = record((0, True), (2, True))
        (path / FILE).write_text(json.dumps(content))
    lines = report(paths, after(20)).splitlines()
    assert f"mastered by hand  2 of {len(DRILLS)}, wrong" in lines[0]
    assert f"mastered by hand  0 of {len(DRILLS)}, wrong" in lines[1]


def test_a_file_without_pages_by_hand_stays_readable_and_loses_nothing(folder, page):
    save(folder, "0.0.1", **{"06_merge_heads": row("2026-01-31T00:00:00+00:00", 3)})
    note(LORA.exercise, "ok", None, START)
    content = read(folder / FILE)
    assert content["version"] == "0.0.1" and content["exercises"]["06-merge-heads"]["solved"]
    assert content["by hand"][LORA.exercise]["right"] == ["2026-01-31"]


@pytest.mark.parametrize(
    "broken",
    [
        {"right": ["yesterday"]},
        {"right": ["9999-12-31"]},
        {"right": ["2026-01-31"] * 4},
        {"failed": "no"},
        {"started": "2026-01-31T00:00:00"},
        {"started": 5},
    ],
)
def test_a_broken_record_is_reported_and_left_unchanged(folder, page, broken, capsys):
    content = read(folder / FILE)
    content["by hand"] = {LORA.exercise: new_record() | broken}
    (folder / FILE).write_text(json.dumps(content))
    before = (folder / FILE).read_text()
    note(LORA.exercise, "ok", None, START)
    assert "Not recorded in progress.json" in capsys.readouterr().out
    assert (folder / FILE).read_text() == before


def test_report_lists_what_is_mastered_and_what_is_due(folder):
    content = read(folder / FILE)
    first, second, third, fourth, *_ = DRILLS
    content["by hand"] = {
        first.exercise: record((0, True), (2, True), (9, True)),
        second.exercise: record((5, True)),
        third.exercise: record((8, True)),
        fourth.exercise: record((9, False)),
    }
    content["exercises"] = {"by-hand-lora": row(None, 2)}
    (folder / FILE).write_text(json.dumps(content))
    lines = report([folder], after(9)).splitlines()
    start = lines.index(f"By hand: 1 of {len(DRILLS)} mastered")
    assert lines[start + 1 : start + 6] == [
        f"  {first.title}: mastered",
        f"  {second.title}: due for another attempt",
        f"  {third.title}: due again on 2026-02-10",
        f"  {fourth.title}: the last answer was wrong",
        "  by-hand-lora  open; 2 wrong answers",
    ]


# Opening a page, and timing the answer.


def test_the_first_right_answer_since_the_start_reports_its_time(folder, page, capsys):
    assert open_page(LORA, page, START) is None
    assert note(LORA.exercise, "numbers", None, after(0, seconds=60)) is None
    assert note(LORA.exercise, "ok", None, after(0, seconds=250)) == 250
    assert note(LORA.exercise, "ok", None, after(0, seconds=300)) is None
    open_page(LORA, page, datetime.now(UTC) - timedelta(minutes=4, seconds=10))
    check(LORA.exercise, EXERCISES[LORA.exercise].right)
    check(LORA.exercise, EXERCISES[LORA.exercise].right)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("✓ by-hand-lora: right after 4 min 1")
    assert second.startswith("✓ by-hand-lora: right. ")


def test_open_page_keeps_every_old_answer_and_empties_the_cell(folder, page):
    begun = cells_of(page)
    assert open_page(LORA, page, START) is None and cells_of(page) == begun
    kept = page.parent / ANSWERS / "lora.py"
    for day, answer in enumerate(("class LoRA:\n    first", "no Python at all ((", "")):
        write_answer(page, answer)
        assert open_page(LORA, page, after(day)) == kept
        assert "".join(cells_of(page)[2]["source"]) == blank(LORA.exercise)
        assert cells_of(page)[3]["outputs"] == [] and cells_of(page)[:2] == begun[:2]
    text = kept.read_text()
    assert text.index("first") < text.index("no Python at all ((")
    assert "# 2026-01-31 23:30:00+00:00\n\nclass LoRA:\n    first\n" in text


def test_open_page_saves_the_old_answer_before_it_changes_the_page(folder, page, monkeypatch):
    def full(*given):
        raise OSError(28, "No space left on device")

    write_answer(page, "mine")
    before = page.read_text()
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        open_page(LORA, page, START)
    assert page.read_text() == before
    assert "mine" in (page.parent / ANSWERS / "lora.py").read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"cells": [3]}', '{"cells": []}'])
def test_open_page_rejects_a_page_without_the_answer_cell(folder, page, content):
    page.write_text(content)
    with pytest.raises(ValueError, match=r"lora\.ipynb (is not a notebook|has no answer cell)"):
        open_page(LORA, page, START)
    assert page.read_text() == content and records(folder) == {}


def test_the_drill_command_opens_the_next_page_or_a_named_one(folder, page, capsys):
    write_answer(page, "mine")
    assert main(["drill", "lora", "--folder", str(folder)]) == 0
    reason, opened, kept = capsys.readouterr().out.splitlines()
    assert reason.startswith("LoRA: not tried yet. 15 of 21 lists")
    assert opened.endswith(str(page)) and kept.endswith("lora.py")
    assert records(folder)[LORA.exercise]["started"]
    assert main(["drill", "--folder", str(folder)]) == 1  # the folder lacks the page
    assert "multi_head_attention.ipynb" in capsys.readouterr().err
    with pytest.raises(WrongAnswer):
        check(LORA.exercise, repetition)
    assert main(["drill", "--folder", str(folder)]) == 0
    assert "LoRA: your last answer was wrong." in capsys.readouterr().out
