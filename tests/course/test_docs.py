"""The reference pages: every target exists, every name is explained."""

import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn

from tests.course.notebook_rules import headings
from tools import write_catalogue
from twelve import padding_mask
from twelve_lab import example, reversal
from twelve_lab.show.palette import AXIS_STYLES
from twelve_lab.trace.annotations import PACKAGE, _read

ROOT = Path(__file__).parents[2]
COVERAGE = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
NAMES, _, CATALOGUE = GLOSSARY.partition(write_catalogue.HEADING)
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = sorted(PACKAGE.glob("*.py"))
# Names the field uses for what has one name here.
BANNED = {
    "n_heads", "nh", "n_embd", "hidden", "trg", "attn", "energy", "linears", "x1", "x2", "nhead",
    "num_hiddens", "seq_len", "emb", "enc_out", "dec_out",
}  # fmt: skip


def rows(text, columns):
    """Return the rows of a page's tables that have this many columns, without their heads."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not re.match(r"\|[-| :]+\|$", line)
    ]
    return [row for row in cells if len(row) == columns]


COVERED = [row for row in rows(COVERAGE, 4) if re.fullmatch(r"[A-P]\d\d", row[0])]


@cache
def titles(path):
    """List the headings of a notebook."""
    return headings(nbformat.read(path, as_version=4))


def link(cell):
    """Split a cell such as [03](../notebooks/03_positional_encoding.ipynb) into text and path."""
    found = re.fullmatch(r"\[(.+)\]\((.+)\)", cell)
    assert found, f"{cell!r} is no link"
    return found[1], ROOT / "docs" / found[2]


@pytest.mark.parametrize("row", COVERED, ids=lambda row: row[0])
def test_a_row_of_the_notes_leads_to_a_heading_that_exists(row):
    number, path = link(row[2])
    assert path.exists(), path
    assert path.name.startswith(number)
    assert row[3] in titles(path), row


def test_no_row_of_the_notes_is_entered_twice_and_the_count_is_true():
    ids = [row[0] for row in COVERED]
    assert len(ids) == len(set(ids))
    assert f"{len(ids)} of 233 rows" in COVERAGE
    assert all(row[1] for row in COVERED)


def test_every_row_of_the_notes_is_covered():
    sizes = (18, 18, 16, 31, 24, 20, 4, 15, 17, 11, 8, 5, 5, 18, 18, 5)
    letters = zip("ABCDEFGHIJKLMNOP", sizes, strict=True)
    wanted = [f"{letter}{n:02d}" for letter, size in letters for n in range(1, size + 1)]
    assert len(wanted) == 233
    assert [row[0] for row in COVERED] == wanted


def test_a_reader_reaches_every_row_from_the_readme_in_two_clicks():
    assert "](docs/coverage.md)" in README
    assert all(link(row[2])[1].suffix == ".ipynb" for row in COVERED)


def _annotations(path):
    for entries in _read(str(path), path.read_text(encoding="utf-8")).values():
        for _, _, notes in entries:
            yield from notes.parameters.values()
            yield from (assignment.axes for assignment in notes.assignments)


def test_every_axis_of_the_layers_is_in_the_glossary():
    explained = set(re.findall(r"`([^`]+)`", NAMES))
    axes = {
        token.lstrip("*#_")
        for path in MODULES
        for annotation in _annotations(path)
        for product in annotation.split()
        for token in product.strip("*#").split("*")
        if not token.lstrip("*#").isdigit() and token != "..."
    }
    assert {"batch", "query", "d_ff"} <= axes
    assert axes - explained == set()
    assert set(AXIS_STYLES) - explained == set()


def test_the_catalogue_is_what_a_run_gives_today():
    assert write_catalogue.page(GLOSSARY) == GLOSSARY


def test_the_catalogue_holds_every_tensor_of_the_main_run_with_its_axes():
    for name, entry in example.trace(on="cpu").items():
        assert f"| `{name}` | `{' '.join(entry.axes)}` | " in CATALOGUE


def test_a_page_without_a_place_for_the_catalogue_is_an_error():
    with pytest.raises(ValueError, match="has no heading '## Catalogue of the trace'"):
        write_catalogue.page("# Glossary")


def test_every_name_of_the_public_api_is_in_the_glossary():
    import twelve

    assert [name for name in twelve.__all__ if f"`{name}`" not in NAMES] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_layers_use_no_name_that_the_glossary_replaces(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    # `hidden` is a mask that says what is hidden; the field uses it for a vector.
    assert names & (BANNED - {"hidden"}) == set()


def test_every_file_that_the_pages_link_to_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    for page in pages:
        text = re.sub(r"`[^`\n]+`", "", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_map_of_the_readme_names_only_what_is_there():
    tree = README.partition("```text")[2].partition("```")[0]
    paths = [line.split()[0] for line in tree.splitlines() if line.strip()]
    assert len(paths) > 8
    for path in paths:
        assert (ROOT / path).exists(), path
    rooms = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py")]
    folders = {f"{path.parent.relative_to(ROOT).as_posix()}/" for path in rooms}
    assert folders - set(paths) == {"tests/", "tests/products/browser/"}


def test_the_examples_of_the_readme_run_and_print_what_it_shows(capsys):
    blocks = re.findall(r"```python\n(.+?)```", README, re.S)
    programs = [block for block in blocks if "import" in block or ".explain(" in block]
    assert len(programs) == 5
    names = {}
    for program in programs[:3]:
        exec(program, names)
    shown = re.findall(r"```\n(encoder\..+?)```", README, re.S)
    assert len(shown) == 2 and capsys.readouterr().out == "".join(shown)
    assert names["logits"].shape == (8, 16, 1000)
    line = re.search(r"```python\n(scores: .+?)\n```", README, re.S)[1]
    assert line in (PACKAGE / "attention.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_model_of_the_readme_learns_to_write_what_it_shows(capsys):
    block = re.search(r"```python\n(from twelve\.generation .+?)```\n\n```\n(.+?)```", README, re.S)
    torch.set_default_dtype(torch.float32)
    names = {"padding_mask": padding_mask}
    exec(block[1], names)
    assert capsys.readouterr().out == block[2]
    assert reversal.exact(names["model"], reversal.held_out()) == 512
    assert type(names["theirs"]) is nn.Transformer


def test_the_mistake_of_the_readme_is_named_as_it_shows(capsys):
    block = re.search(r"```python\n(from twelve_lab\.check .+?)```\n\n```\n(.+?)```", README, re.S)
    exec(block[1], {})
    assert capsys.readouterr().out == block[2]


@pytest.mark.parametrize(("name", "narrow"), [("walk", False), ("walk_narrow", True)])
def test_the_pictures_of_the_readme_are_those_of_today(name, narrow, tmp_path):
    from twelve_lab import draw, example

    assert f'"docs/{name}.svg"' in README
    draw.walk(example.trace(on="cpu"), narrow=narrow).save(tmp_path / "walk.svg")
    assert (ROOT / "docs" / f"{name}.svg").read_text() == (tmp_path / "walk.svg").read_text()
