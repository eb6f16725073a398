"""Rotary heads: accuracy of trained heads at positions and lengths not seen in training."""

import pytest

from twelve_lab.experiments import rotary_heads

# Lesson 16 shows these results.
pytestmark = pytest.mark.slow


def test_only_the_rotated_head_names_the_digit_two_back_at_every_position():
    percent, angles = rotary_heads.two_back()
    assert min(percent["rotated"].values()) > 99 and percent["added"]["at 0"] > 99
    assert max(percent["added"]["at 100"], percent["added"]["at 1000"]) < 90
    assert max(*percent["nothing"].values(), *percent["most frequent"].values()) < 40
    # In the fastest pair, query and key are about 2 radians apart for all digits.
    assert angles.shape == (10, 10) and (angles - 2).abs().max() < 0.4


def test_longer_texts_need_the_slow_pairs_to_rotate_more_slowly():
    percent = rotary_heads.longer_texts(seed=1)
    assert percent["length 32"] == percent["all pairs / 4"] == percent["slow pairs / 4"] == 100
    assert max(percent["length 128"], percent["fast pairs / 4"]) < 90
