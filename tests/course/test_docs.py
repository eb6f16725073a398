"""The reference pages: links resolve, names are explained, examples print the output shown."""

import re
from pathlib import Path

import nbformat
import pytest
import torch

from tests.course.notebook_rules import headings
from tools import write_catalogue
from twelve_lab import draw, example
from twelve_lab.show.palette import AXIS_STYLES
from twelve_lab.trace.annotations import PACKAGE, _read

ROOT = Path(__file__).parents[2]
COVERAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)#]+)\)")
# A block of Python, and a block of its output if one follows.
PROGRAM = re.compile(r"```python\n(.+?)```(?:\n+```\n(.+?)```)?", re.S)


def test_a_topic_of_the_coverage_table_leads_to_a_heading_that_exists():
    rows = re.findall(r"^\| ([A-P]\d\d) \| .+ \| \[.+\]\((.+)\) \| (.+) \|$", COVERAGE, re.M)
    titles = {link: headings(nbformat.read(ROOT / "docs" / link, 4)) for _, link, _ in rows}
    assert [row for row in rows if row[2] not in titles[row[1]]] == []
    assert f"{len({id for id, *_ in rows})} of {len(rows)} rows" in COVERAGE


def test_every_axis_of_the_layers_is_in_the_glossary():
    annotations = [
        annotation
        for path in PACKAGE.rglob("*.py")
        for *_, notes in _read(str(path), path.read_text(encoding="utf-8"))
        for annotation in (
            *notes.parameters.values(), *(assignment.axes for assignment in notes.assignments)
        )
    ]  # fmt: skip
    axes = {axis for text in annotations for axis in re.findall(r"[a-z]\w*", text)}
    assert {"batch", "query", "d_ff"} <= axes
    explained = re.findall(r"`([^`]+)`", GLOSSARY.partition(write_catalogue.HEADING)[0])
    assert (axes | set(AXIS_STYLES)) - set(explained) == set()


def test_the_catalogue_of_the_glossary_is_current():
    assert write_catalogue.page(GLOSSARY) == GLOSSARY, "run: make catalogue"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_exists(page):
    text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))
    targets = [target for target in LINK.findall(text) if not target.startswith("http")]
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_contributing_is_read_in_a_few_minutes():
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split()) <= 1200


def test_every_path_in_the_map_of_the_readme_exists():
    tree = README.partition("```text")[2].partition("```")[0]
    paths = [line.split()[0] for line in tree.splitlines() if line.strip()]
    assert paths and [path for path in paths if not (ROOT / path).exists()] == []


def test_the_examples_of_the_readme_print_what_it_shows(capsys):
    names, shown = {}, 0
    for program, printed in PROGRAM.findall(README):
        if program.startswith("scores: "):
            assert program.strip() in (PACKAGE / "attention.py").read_text(encoding="utf-8")
        elif "train(" not in program:
            exec(program, names)
            assert capsys.readouterr().out == printed
            shown += bool(printed)
    assert shown >= 3


@pytest.mark.weekly
def test_the_model_that_the_readme_trains_writes_what_it_shows(capsys):
    torch.set_default_dtype(torch.float32)
    ((program, printed),) = (each for each in PROGRAM.findall(README) if "train(" in each[0])
    exec(f"import torch\nfrom twelve import padding_mask\n{program}", {})
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("name", "narrow"), [("walk", False), ("walk_narrow", True)])
def test_the_pictures_of_the_readme_are_current(name, narrow, tmp_path):
    assert f'"docs/{name}.svg"' in README
    draw.walk(example.trace(on="cpu"), narrow=narrow).save(tmp_path / "walk.svg")
    assert (ROOT / "docs" / f"{name}.svg").read_text() == (tmp_path / "walk.svg").read_text()
