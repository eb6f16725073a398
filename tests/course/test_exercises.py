"""The exercises of the stored notebooks keep every rule."""

from pathlib import Path

import pytest
from nbformat import NotebookNode

from tests.course.exercise_rules import exercises_of, problems
from tools.write_solutions import lessons
from twelve_lab.check import EXERCISES
from twelve_lab.course import BY_HAND

# A translated page has the same exercises as the English page.
FOUND = lessons(Path(__file__).parents[2] / "notebooks")
PAGES = {name: page for name, page in FOUND.items() if not name.startswith("zh/")}
# Workshops without a step: the id of each exercise begins with its step.
TOOLS = "workshop/tools_"


@pytest.mark.parametrize("name", PAGES)
def test_the_exercises_of_a_stored_notebook_keep_every_rule(name):
    stems = {Path(name).stem}
    if name.startswith(TOOLS):
        stems = {each.id[:2] for each in exercises_of(PAGES[name])}
    # A page by hand may repeat a task of a lesson.
    others = (other for other in PAGES if (BY_HAND in other) == (BY_HAND in name))
    cells = [cell for other in others if other != name for cell in PAGES[other].cells]
    for stem in stems:
        assert problems(PAGES[name], stem, EXERCISES, NotebookNode(cells=cells)) == []
