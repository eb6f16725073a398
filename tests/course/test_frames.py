"""The live pages stored in the lessons match those that the code generates."""

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

# The packed numbers of a page. Their last digits and their compression depend on the machine.
DATA = re.compile(r'(?<=<script id="data" type="text/plain">)[^<]+')
NOTEBOOKS = {name_of(path): path for path in pages(Path(__file__).parents[2])}


def live_parts(path):
    """List the live parts of a notebook, each with its stored pages."""
    parts = []
    for cell in code_cells(nbformat.read(path, as_version=4)):
        for part in re.findall(r"""\bdraw\.live\(\s*"(\w+)\"""", cell.source):
            stored = [output.get("data", {}).get("text/html", "") for output in cell.outputs]
            parts.append((part, [html for html in stored if "<iframe" in html]))
    return parts


LIVE = {name: parts for name, path in NOTEBOOKS.items() if (parts := live_parts(path))}


def unpack(html):
    """Split a page into its text and its unpacked, rounded numbers."""
    page = unescape(html)
    numbers = zlib.decompress(base64.b64decode(DATA.search(page)[0]))
    rounded = json.loads(numbers, parse_float=lambda digits: round(float(digits), 9) + 0.0)
    return DATA.sub("", page), rounded


@pytest.mark.parametrize("name", LIVE)
def test_the_live_page_of_a_notebook_is_current(name):
    ((part, (html,)),) = LIVE[name]
    assert unpack(html) == unpack(frame(part)), "run: make notebooks"


def test_every_part_is_shown_in_one_lesson():
    assert sorted(part for ((part, _),) in LIVE.values()) == sorted(PARTS)
