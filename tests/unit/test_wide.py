"""Chinese characters are two columns wide, and lines may break between them."""

import textwrap

import pytest

from twelve_lab.show import wide
from twelve_lab.show.format import format_tensor


def test_width_counts_two_columns_for_a_chinese_character():
    assert wide.width("dog") == 3
    assert wide.width("dog 提问，") == 10


def test_left_and_right_pad_to_columns():
    assert wide.left("权重", 6) == "权重  " and wide.right("权重", 6) == "  权重"


def test_wrap_breaks_chinese_between_characters_but_not_before_a_mark():
    text = "把分数除以 d_k 的平方根，然后做 softmax。"
    for columns in range(12, 40):
        lines = wide.wrap(text, columns)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert max(map(wide.width, lines)) <= columns
        assert not any(line[0] in "，。 " for line in lines)


@pytest.mark.parametrize("columns", [10, 30])
def test_wrap_breaks_other_text_as_textwrap_does(columns):
    text = "Match, scale, share and blend, at-any sizes."
    assert wide.wrap(text, columns) == textwrap.wrap(text, columns)


def test_joined_puts_no_space_after_a_full_width_mark():
    assert wide.joined("Right.", "", "Next: 05.") == "Right. Next: 05."
    assert wide.joined("答对了。", "下一题：05。") == "答对了。下一题：05。"


def test_a_table_with_chinese_names_has_straight_columns():
    labels = {"way": ["原样", "x"]}
    lines = format_tensor([[1.0, 2], [3, 4]], "way 特征", labels=labels).splitlines()[1:]
    assert len({wide.width(line) for line in lines}) == 1


def test_parts_keep_the_space_before_them():
    text = "  3 个头, 编码器"
    assert "".join(wide.parts(text)) == text and " 个" in wide.parts(text)


def test_marks_between_parts_are_full_width_in_chinese_only():
    assert wide.full_width("狗: 0.4; 鱼: 0.6. 共 2 个") == "狗：0.4；鱼：0.6。共 2 个"
    assert wide.full_width("dog: 0.4; fish: 0.6. Two") == "dog: 0.4; fish: 0.6. Two"
