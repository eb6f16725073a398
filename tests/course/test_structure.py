"""Project structure: one list of steps, and layers that do not import the lab."""

import inspect
import re
from pathlib import Path

import pytest

import twelve
from tests.course.course_rules import imports, problems

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twelve"


def test_every_step_has_its_files_and_every_file_its_step():
    assert problems(ROOT) == []


def test_no_layer_imports_the_lab():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__main__.py":
            assert not any(name.split(".")[0] == "twelve_lab" for name in imports(path)), path


@pytest.mark.parametrize("name", twelve.__all__)
def test_a_docstring_describes_exactly_the_arguments(name):
    public = getattr(twelve, name)
    described = re.search(r"Args:\n(.*?)(\n\n|\Z)", inspect.getdoc(public), re.DOTALL)
    names = re.findall(r"^    (\*{0,2}\w+):", described.group(1), re.MULTILINE)
    parameters = inspect.signature(public).parameters.values()
    expected = [str(each.replace(annotation=each.empty, default=each.empty)) for each in parameters]
    assert names == expected
