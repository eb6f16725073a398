"""The live pages in the lessons: each is the one that the code writes today."""

import base64
import json
import re
import zlib
from html import unescape
from pathlib import Path

import nbformat
import pytest

from tests.course.notebook_rules import code_cells, name_of
from twelve_lab.course import pages
from twelve_lab.explorer.parts import PARTS, frame

NOTEBOOKS = pages(Path(__file__).parents[2])
DATA = re.compile(r'(?<=<script id="data" type="text/plain">)[^<]+')
# Other machines round the last digits of a sine in another way.
DIGITS = 9
HOLDERS = {
    "walk": "00_start_here", "query": "04_attention", "mask": "05_masks",
    "stretch": "07_normalization", "sum": "08_residual", "memory": "11_decoder",
    "learning": "13_training",
}  # fmt: skip


def parts_of(notebook):
    """Give each part that a notebook asks for, with the frames that its cell stores."""
    for cell in code_cells(notebook):
        for part in re.findall(r"""\bdraw\.live\(\s*"(\w+)\"""", cell.source):
            stored = (output.get("data", {}).get("text/html", "") for output in cell.outputs)
            yield part, [html for html in stored if "<iframe" in html]


def packed_in(html):
    return DATA.search(unescape(html))[0]


def unpacked(html):
    """Take a frame apart: all but its numbers, and these."""
    numbers = json.loads(zlib.decompress(base64.b64decode(packed_in(html))))
    return DATA.sub("", unescape(html)), rounded(numbers)


def rounded(value):
    if isinstance(value, float):
        return round(value, DIGITS) + 0.0  # no minus before a zero
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return value


def problems(notebook, name):
    """Say which frames of a notebook are not those of today."""
    for part, frames in parts_of(notebook):
        if len(frames) != 1:
            yield f"{name}: {len(frames)} frames are stored for the part {part!r}: one is due"
        elif unpacked(frames[0]) != unpacked(frame(part)):
            yield f"{name}: the page of the part {part!r} has changed: run make notebooks"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_the_frames_of_a_notebook_are_those_that_the_code_writes_today(path):
    assert list(problems(nbformat.read(path, as_version=4), name_of(path))) == []


def test_each_part_stands_in_its_lesson_and_no_lesson_has_two():
    found = {
        name_of(path): [part for part, _ in parts_of(nbformat.read(path, as_version=4))]
        for path in NOTEBOOKS
    }
    assert {name: parts for name, parts in found.items() if parts} == {
        name: [part] for part, name in HOLDERS.items()
    }
    assert set(HOLDERS) == set(PARTS)


def lesson(change):
    """A notebook with one live figure, its frame changed."""
    output = nbformat.v4.new_output("display_data", data={"text/html": change(frame("mask"))})
    cell = nbformat.v4.new_code_cell('draw.live(\n    "mask", still)', outputs=[output])
    return nbformat.v4.new_notebook(cells=[cell])


def test_a_page_packed_on_another_machine_is_the_same_page():
    def repacked(html):
        packed = packed_in(html)
        numbers = zlib.decompress(base64.b64decode(packed))
        assert numbers.count(sine) == 1
        numbers = numbers.replace(sine, sine[:-1] + b"6")
        return html.replace(packed, base64.b64encode(zlib.compress(numbers, 1)).decode())

    sine = b"0.8414709848078965"  # of 1, a position
    assert list(problems(lesson(repacked), "05")) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda html: html.replace("Undo", "Undone"),
        lambda html: html.replace("height:380px", "height:390px"),
        lambda html: frame("query"),
        lambda html: html.replace(packed_in(html), packed_in(frame("stretch"))),
    ],
)
def test_a_page_of_yesterday_is_found(change):
    expected = ["05: the page of the part 'mask' has changed: run make notebooks"]
    assert list(problems(lesson(change), "05")) == expected


def test_a_frame_that_is_missing_is_found():
    expected = ["05: 0 frames are stored for the part 'mask': one is due"]
    assert list(problems(lesson(lambda html: "<p>none</p>"), "05")) == expected
