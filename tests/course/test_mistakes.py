"""The declarations of each task and each classic mistake are true.

`tests/unit/test_check.py` checks that the checker names each wrong version, and
`tests/unit/test_mutants.py` that a unit test notices each mistake in the layers.
"""

import math
from functools import cache
from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.mutants.classic import PLANTS
from tools.write_cards import shown_in
from twelve_lab import example
from twelve_lab.check import MISTAKES, TASKS, TAUGHT, wrong_versions
from twelve_lab.check.catalogue import mistakes_of
from twelve_lab.check.compare import agree, gradients, outcomes, trainable
from twelve_lab.course import STEPS

# The annotations would reject a wrong answer before the checker sees it.
pytestmark = pytest.mark.usefixtures("unchecked")

# Arguments without a gradient: the task, and the index among its floating-point tensors.
FROZEN = {
    ("lora", 1),
    ("distillation", 1),
    *(("accumulated_gradients", place) for place in range(3)),
    *(("dpo_loss", place) for place in (2, 3)),
    *(("grpo_loss", place) for place in (1, 2, 3)),
    *(("ppo_loss", place) for place in (1, 2)),
    *(("speculative_step", place) for place in (2, 3)),
}


def largest_error(outcome, right) -> float:
    """Return the largest error relative to the largest expected value."""
    errors = []
    pairs = zip(outcome.values + outcome.gradients, right.values + right.gradients, strict=True)
    for actual, expected in pairs:
        scale = expected.double().abs().max().item()
        error = (actual.double() - expected.double()).abs().max().item()
        # Integers must match: an error of 1 is less than 1 % of 127, but is not a rounding error.
        scale = scale if expected.is_floating_point() else 1.0
        errors.append(math.inf if math.isnan(error) else error / (scale if scale > 1e-6 else 1.0))
    return max(errors)


@cache
def outcomes_of(name, id="right"):
    task = TASKS[name]
    return outcomes(task, task.right if id == "right" else wrong_versions(name)[id])


def test_mistakes_are_declared_at_a_task_and_planted_in_a_layer():
    assert set(PLANTS) == set(TAUGHT)
    for id, mistake in MISTAKES.items():
        assert mistakes_of(TASKS[mistake.task])[id][0] is mistake.wrong
        assert mistake.step in {"", *(step.number for step in STEPS)}
    for task in TASKS.values():
        assert set(task.mistakes) <= set(MISTAKES)


@pytest.mark.parametrize("name", TASKS)
def test_cases_of_a_task_are_drawn_afresh_and_alike(name):
    cases, again = TASKS[name].cases(), TASKS[name].cases()
    shared = {id(value) for value in vars(example).values()}
    assert len(cases) >= 3
    for case in cases:
        for first, second in zip(cases[case], again[case], strict=True):
            if isinstance(first, Tensor):
                assert_close(first, second, rtol=0, atol=0)
                assert first is not second
                assert id(first) not in shared
                assert first.dtype in (torch.float64, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_shows_clearly_in_some_case_and_in_others_not_at_all(id):
    right, wrong = (outcomes_of(MISTAKES[id].task, version) for version in ("right", id))
    hidden, refused = shown_in(MISTAKES[id])
    assert hidden < set(right), "it shows in no case"
    for case in set(right) - refused:
        error = largest_error(wrong[case], right[case])
        assert error < 1e-3 if case in hidden else error > 2e-2, case


@pytest.mark.parametrize("name", TASKS)
def test_answers_to_one_task_differ_in_some_case(name):
    known = [outcomes_of(name, id) for id in ("right", *wrong_versions(name))]
    for first, second in combinations(known, 2):
        assert any(not agree(first[case], second[case], 1e-2) for case in first)


@pytest.mark.parametrize("name", TASKS)
def test_a_gradient_reaches_every_argument_of_the_right_answer(name):
    for case, arguments in TASKS[name].cases().items():
        arguments = trainable(arguments)
        answer = TASKS[name].observe(TASKS[name].run(TASKS[name].right, arguments))
        for place, slope in enumerate(gradients(answer, arguments)):
            if (name, place) in FROZEN:
                assert slope is None, case
                continue
            assert slope is not None, case
            assert slope.isfinite().all(), case


# The right answers. tests/course/wrong_answers.py compares each task with an independently written
# answer; this test reads the output of a library.


def test_blocks_are_dequantized_as_the_library_does():
    gguf = pytest.importorskip("gguf", reason="make language-model installs it")
    numbers = torch.randn(6, 32, generator=torch.Generator("cpu").manual_seed(12)).numpy()
    blocks = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q4_0)
    scales, packed = torch.from_numpy(blocks).tensor_split([2], dim=1)
    scales = scales.contiguous().view(torch.float16).float().flatten()
    expected = torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0))
    assert_close(TASKS["dequantize"].right(scales, packed), expected, rtol=0, atol=0)
