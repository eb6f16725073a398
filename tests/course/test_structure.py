"""The shape of the project: one list of steps, layers that need no lab."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import twelve
from tests.course.course_rules import imports, problems
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twelve"
# Functions that pages print.
PRINTED = ("forward", "scaled_dot_product_attention", "cross_entropy", "step", "__call__")


def test_every_step_has_its_files_and_every_file_its_step():
    assert problems(ROOT) == []


def test_twelve_exports_the_names_of_the_steps_in_reading_order():
    assert twelve.__all__ == [name for step in STEPS for name in step.exports]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.stem)
def test_a_printed_function_fits_on_a_slide(path):
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in PRINTED:
            body = text.splitlines()[node.body[0].end_lineno : node.end_lineno]
            assert sum(bool(line.strip()) for line in body) <= 25, node.name


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


# Prints the shape of the logits, whether the lab was imported, and the CPU time of the import. A
# second import has no files to compile, and torch stays loaded.
ALONE = """
import sys, time, torch
known, costs = set(sys.modules), []
for _ in range(5):
    for name in set(sys.modules) - known:
        del sys.modules[name]
    start = time.process_time()
    import twelve
    costs.append(time.process_time() - start)
model = twelve.Transformer(11, 13, d_model=24, num_heads=3, num_layers=1)
src, tgt = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)
logits = model(src, tgt, src_mask=twelve.padding_mask(src), tgt_mask=twelve.causal_mask(4))
logits.sum().backward()
print(twelve.__file__, tuple(logits.shape), "twelve_lab" in sys.modules, min(costs), sep=";")
"""


@pytest.mark.slow
def test_without_the_lab_there_is_still_a_transformer_and_its_import_is_fast(tmp_path):
    ignore = shutil.ignore_patterns("__main__.py", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "twelve", ignore=ignore)
    settings = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env=os.environ | settings, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    file, shape, lab, cost = done.stdout.strip().split(";")
    assert Path(file) == tmp_path / "twelve" / "__init__.py"
    assert (shape, lab) == ("(2, 4, 13)", "False")
    assert float(cost) < 0.020
