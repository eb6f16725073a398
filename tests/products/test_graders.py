"""The comparison of graders: its corpus, and the generated page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.entries import ENTRIES, OURS
from benchmarks.graders import corpus, counted, result
from twelve_lab.check.compare import agree

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "graders.md").read_text(encoding="utf-8")


def listed(name: str) -> dict[str, tuple[int, int]]:
    """Read the numbers of right and wrong answers, keyed by grader."""
    pattern = rf"^\| {name} \| ([\w.-]+) \| \d+ of (\d+) \| \d+ of (\d+) \|"
    return {grader: (int(m), int(n)) for grader, m, n in re.findall(pattern, PAGE, re.M)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_adapters_keep_right_answers_right_and_page_counts_the_wrong_ones(name):
    exercise, entries = ENTRIES[name]
    answers = {OURS: corpus(exercise)} | {x.grader: counted(name, x) for x in entries}
    wrong = {grader: sum(bool(x.mistake) for x in each) for grader, each in answers.items()}
    assert {g: (len(answers[g]) - wrong[g], wrong[g]) for g in answers} == listed(name)
    for entry in entries:
        right, *others = (result(entry, x.function) for x in corpus(exercise) if not x.mistake)
        assert right.error is None and others
        assert all(agree(right, other) for other in others), entry


@pytest.mark.weekly
def test_command_writes_the_page_in_docs(tmp_path):
    pytest.importorskip("torch_judge")
    page = tmp_path / "graders.md"
    subprocess.run([sys.executable, "-m", "benchmarks.graders", page], cwd=ROOT, check=True)
    written = page.read_text(encoding="utf-8")
    assert re.sub(r"\d+ ms", "", written) == re.sub(r"\d+ ms", "", PAGE)
