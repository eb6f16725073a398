"""KV heads: how many positions four trained query heads attend to on shared KV heads."""

import pytest

from twelve_lab.experiments import kv_heads

# Lesson 17 shows these results.
pytestmark = pytest.mark.slow


def test_four_heads_on_one_kv_head_attend_to_four_positions():
    percent, weights = kv_heads.four_back()
    assert min(percent) > 99
    assert sorted(weights.argmax(-1).tolist()) == [2, 3, 4, 5] and weights.amax(-1).min() > 0.9


def test_one_kv_head_cannot_hand_over_four_digits():
    shared, separate = (sum(kv_heads.four_digits(count)) / 4 for count in (1, 4))
    assert shared < 80 < 95 < separate
