"""The page for teachers: links and numbers match the notebooks, and the table is up to date."""

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from tests.course.notebook_rules import headings, text_of
from tools import write_exercises
from twelve_lab.check import EXERCISES
from twelve_lab.cli import main
from twelve_lab.course import STEPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\(\.\./(?P<target>notebooks/[^)#\s]+)\)")
MINUTES = 90


def sections(text: str, level: str) -> dict[str, str]:
    """Map each heading of one level to the text below it."""
    _, *parts = re.split(rf"^{level} +(.+?) *$", text, flags=re.M)
    return dict(zip(parts[::2], parts[1::2], strict=True))


SESSIONS = sections(sections(PAGE, "##")["The sessions"], "###")
NUMBERED = {title.split()[0]: text for title, text in SESSIONS.items()}
PLANNED = [step for step in STEPS if step.number in NUMBERED]


@cache
def stored(page: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / page, as_version=4)


def test_the_sessions_are_those_of_steps_in_their_order():
    titles = [f"{step.number} {step.title}".lower() for step in PLANNED]
    assert [title.lower() for title in SESSIONS] == titles


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_session_has_its_question_its_minutes_and_its_own_exercises(step):
    text = NUMBERED[step.number]
    assert text.strip().startswith(f"*{step.question}*")
    assert sum(map(int, re.findall(r"^\| (\d+) \|", text, re.M))) == MINUTES
    named = set(re.findall(r"`((?:\d\d|a\d)-[a-z0-9-]+)`", text))
    assert named <= {id for id in EXERCISES if id.startswith(f"{step.number}-")}


def test_every_link_leads_to_a_heading_of_its_notebook():
    numbers = {step.number for step in STEPS}
    for link in LINK.finditer(PAGE):
        assert link["text"] in {*numbers, *headings(stored(link["target"]))}, link[0]


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_number_for_the_board_is_in_the_notebook(step):
    paths = [path for path in (step.notebook, step.workshop) if (ROOT / path).exists()]
    cells = [cell for path in paths for cell in stored(path).cells]
    outputs = (text_of(output) for cell in cells for output in cell.get("outputs", []))
    seen = "\n".join([*(cell.source for cell in cells), *outputs])
    numbers = re.findall(r"\d+\.\d{3,}", NUMBERED[step.number])
    assert [number for number in numbers if number not in seen] == []


def test_the_table_of_the_exercises_is_current():
    assert PAGE == write_exercises.page(PAGE), "run: make catalogue"


def test_every_command_exists(capsys):
    blocks = "".join(re.findall(r"```sh\n(.+?)```", PAGE, re.S))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^(?:sudo )?make ([\w-]+)", blocks, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
    for name in sorted(set(re.findall(r"-m twelve (\w+)", blocks))):
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        assert end.value.code == 0, name
