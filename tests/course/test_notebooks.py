"""The stored notebooks keep every rule."""

from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.course import lesson_rules, notebook_rules
from tests.course.notebook_rules import SAID_ONLY, general_problems, name_of
from tools import run_notebooks
from twelve_lab.course import pages

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {name_of(path): path for path in pages(ROOT)}
FOLDED = {"jupyter": {"outputs_hidden": True}}


@cache
def stored(path):
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_stored_notebook_keeps_every_rule(name):
    assert lesson_rules.problems(stored(NOTEBOOKS[name]), NOTEBOOKS[name]) == []


@pytest.mark.parametrize("name", SAID_ONLY)
def test_an_exception_of_said_only_is_still_needed(name, monkeypatch):
    exceptions = set().union(*SAID_ONLY[name].values())
    monkeypatch.setattr(notebook_rules, "SAID_ONLY", {})
    problems = general_problems(stored(NOTEBOOKS[name]), NOTEBOOKS[name])
    assert {line.split("says ")[1].split(", which")[0] for line in problems} == exceptions


@pytest.mark.slow
def test_run_notebooks_keeps_tags_and_folded_outputs(tmp_path):
    path = tmp_path / "workshop" / "04_attention.ipynb"
    path.parent.mkdir()
    kept = {**FOLDED, "tags": ["idea"]}
    cell = new_code_cell("import os\nprint(os.path.basename(os.getcwd()))", metadata=kept)
    cell.metadata["collapsed"] = True
    nbformat.write(new_notebook(cells=[cell]), path)
    run_notebooks.run(path)
    (ran,) = nbformat.read(path, as_version=4).cells
    assert ran.metadata == kept
    assert ran.outputs[0].text == "workshop\n"
