"""The page for teachers: plans lead to headings that exist, tables are those of the package.

What it says of an exercise is a judgement; everything that can be looked up is looked up here.
"""

import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from tests.course.notebook_rules import headings, text_of
from tools import write_exercises
from twelve_lab.check import EXERCISES
from twelve_lab.cli import main
from twelve_lab.course import STEPS, Step, workshops_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "teaching.md").read_text(encoding="utf-8")
LINK = re.compile(r"\[(?P<text>[^\[\]]+)\]\((?P<target>[^)#\s]+)\)")
ID = re.compile(r"`((?:\d\d|a\d)-[a-z0-9-]+)`")
MINUTES = 90


def sections(text: str, level: str) -> dict[str, str]:
    """Cut a page at its headings of one level; a title that comes twice is an error."""
    _, *parts = re.split(rf"^{level} +(.+?) *$", text, flags=re.M)
    titles = parts[::2]
    assert len(titles) == len(set(titles)), titles
    return dict(zip(titles, parts[1::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """Return the rows of the tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rules = [place for place, line in enumerate(lines) if re.fullmatch(r"\|[-| :]+", line)]
    heads = {place - 1 for place in rules} | set(rules)
    kept = [line for place, line in enumerate(lines) if place not in heads]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in kept]


CHAPTERS = sections(PAGE, "##")
SESSIONS = sections(CHAPTERS["The sessions"], "###")
NUMBERED = {title.split()[0]: text for title, text in SESSIONS.items()}
# Which they are, and in which order, is a rule of course_rules.py.
PLANNED = [step for step in STEPS if step.number in NUMBERED]
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.+?)```", PAGE, re.S)
    for line in block.splitlines()
    if line.strip()
]


@cache
def stored(page: str) -> nbformat.NotebookNode:
    return nbformat.read(ROOT / page, as_version=4)


# Workshops that belong to no step; any session may lead to them.
TOOLS = [
    f"notebooks/workshop/{path.name}" for path in workshops_of(ROOT) if path.stem[:6] == "tools_"
]


def pages_of(step: Step) -> list[str]:
    """Name the lesson of a step, and its workshop where there is one."""
    return [page for page in (step.notebook, step.workshop) if (ROOT / page).exists()]


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_session_asks_the_question_of_its_step(step):
    assert NUMBERED[step.number].strip().startswith(f"*{step.question}*")


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_plan_fills_its_minutes_and_says_where(step):
    plan = rows(NUMBERED[step.number])
    assert sum(int(row[0]) for row in plan) == MINUTES
    assert all(len(row) == 3 and row[1] and LINK.search(row[2]) for row in plan), plan


def test_the_afternoon_fills_its_three_hours():
    table = CHAPTERS["Choosing a path"].partition("### One afternoon")[2]
    assert sum(int(row[0]) for row in rows(table) if row[0].isdigit()) == 180


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_session_leads_to_its_own_notebooks_and_has_four_parts(step):
    text = NUMBERED[step.number]
    targets = {link["target"] for link in LINK.finditer(text)}
    assert f"../{step.notebook}" in targets
    assert targets <= {f"../{page}" for page in [*pages_of(step), *TOOLS]}
    for part in ("**At the end**", "| minutes | what | where |", "**Stuck**", "**Cut**"):
        assert text.count(part) == 1, part
    answers = [line for line in text.splitlines() if line.startswith("- ")]
    assert 2 <= len(answers) <= 4
    assert all(LINK.search(line) for line in answers), answers


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_every_heading_that_the_page_names_exists_in_its_notebook(step):
    for page in pages_of(step):
        named = {link["text"] for link in LINK.finditer(PAGE) if link["target"] == f"../{page}"}
        named -= {step.number}
        assert named or page == step.workshop
        missing = named - set(headings(stored(page)))
        assert not missing, missing


@pytest.mark.parametrize("page", TOOLS, ids=lambda page: Path(page).stem)
def test_every_heading_that_leads_to_a_page_of_tools_exists_there(page):
    named = {link["text"] for link in LINK.finditer(PAGE) if link["target"] == f"../{page}"}
    assert named <= set(headings(stored(page)))


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_number_for_the_board_stands_in_the_notebook(step):
    cells = [cell for page in pages_of(step) for cell in stored(page).cells]
    outputs = (text_of(output) for cell in cells for output in cell.get("outputs", []))
    seen = "\n".join([*(cell.source for cell in cells), *outputs])
    numbers = re.findall(r"\d+\.\d{3,}", NUMBERED[step.number])
    assert [number for number in numbers if number not in seen] == []


def test_the_table_of_the_exercises_is_what_the_package_says():
    assert PAGE == write_exercises.page(PAGE), "run: make catalogue"


@pytest.mark.parametrize("id", EXERCISES)
def test_an_exercise_says_in_a_few_words_what_it_measures(id):
    assert 3 <= len(EXERCISES[id].measures.split()) <= 25


@pytest.mark.parametrize("step", PLANNED, ids=lambda step: step.number)
def test_a_session_names_exercises_of_its_notebook_alone(step):
    named = set(ID.findall(NUMBERED[step.number]))
    own = {id for id in EXERCISES if id.startswith(f"{step.number}-")}
    assert named <= own, named - own
    assert bool(named) == bool(own)


def test_every_command_of_make_is_a_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    named = [found[1] for line in COMMANDS if (found := re.match(r"(?:sudo )?make (\w+)", line))]
    assert "hub" in named and set(named) <= targets, set(named) - targets


def test_every_command_of_twelve_exists(capsys):
    named = {found[1] for line in COMMANDS if (found := re.search(r"-m twelve (\w+)", line))}
    assert named
    for name in sorted(named):
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        assert end.value.code == 0, name
    assert capsys.readouterr().err == ""


def test_every_link_of_the_page_exists():
    targets = {link["target"] for link in LINK.finditer(PAGE)}
    assert targets
    assert [target for target in targets if not (DOCS / target).exists()] == []
