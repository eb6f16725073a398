"""Writes a deck of slides for each lesson, and a page that lists the decks; workshops have none.

Usage: python -m tools.write_slides [FOLDER]

FOLDER is build/slides if none is named. The decks need nothing but what lies in it, and open from
a disk as from a server. What stands on which slide is decided in tools/cut_slides.py.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbconvert import HTMLExporter

from tools.cut_slides import Slide, cut
from tools.write_solutions import apart
from twelve_lab.course import STEPS, Step

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
MODULES = ROOT / "node_modules"
SLIDES = Path("build/slides")
# What a deck loads: reveal.js and MathJax as plain scripts, because a browser loads no module from
# a disk.
LOADED = {
    "reset.css": "reveal.js/dist/reset.css",
    "reveal.css": "reveal.js/dist/reveal.css",
    "reveal.js": "reveal.js/dist/reveal.js",
    "notes.js": "reveal.js/dist/plugin/notes.js",
    "mathjax.js": "mathjax/es5/tex-svg-full.js",
}
OURS = ("slides.css", "slides.js")


class Link(NamedTuple):
    """Where another deck lies, and what it is about."""

    file: str
    number: str
    title: str
    question: str


class Deck(NamedTuple):
    """A step as slides, and its neighbours."""

    file: str
    step: Step
    slides: list[Slide]
    previous: Link | None
    next: Link | None


def decks(notebooks: Path = NOTEBOOKS) -> list[Deck]:
    """Cut every lesson of the course into slides.

    Args:
        notebooks: The folder of the notebooks.

    Returns:
        In reading order.

    Raises:
        ValueError: If a notebook is missing, or one of its cells cannot be shown as it is marked.
    """
    links = [Link(f"{Path(one.notebook).stem}.html", one.number, one.title, one.question)
             for one in STEPS]  # fmt: skip
    around = [None, *links, None]
    found = []
    for place, step in enumerate(STEPS):
        path = notebooks / Path(step.notebook).name
        if not path.is_file():
            raise ValueError(f"{path} is missing: step {step.number} has no notebook")
        try:
            slides = cut(nbformat.read(path, as_version=4))
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        found.append(Deck(links[place].file, step, slides, around[place], around[place + 2]))
    return found


def pages(found: list[Deck]) -> dict[str, str]:
    """Render the decks, and the page that lists them.

    Args:
        found: The decks, in reading order.

    Returns:
        HTML by the name of its file.
    """
    exporter = HTMLExporter(template_name="slides", extra_template_basedirs=[str(ROOT)])
    exporter.template_file = "deck.html.j2"
    written = {}
    for deck in found:
        empty = nbformat.v4.new_notebook()
        written[deck.file], _ = exporter.from_notebook_node(empty, {"deck": deck})
    listed = exporter.environment.get_template("list.html.j2")
    return {"index.html": listed.render(decks=found), **written}


def write(folder: Path, notebooks: Path = NOTEBOOKS, modules: Path = MODULES) -> int:
    """Write all decks with what they load.

    Args:
        folder: Where to; what was there is removed.
        notebooks: The folder of the notebooks.
        modules: Where npm has put reveal.js and MathJax.

    Returns:
        How many decks there are.

    Raises:
        ValueError: If something is missing, or a notebook cannot be shown.
        OSError: If something cannot be read or written.
    """
    apart(folder, notebooks)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: name a folder")
    for path in LOADED.values():
        if not (modules / path).is_file():
            raise ValueError(f"{modules / path} is missing: make installs it (make slides)")
    found = decks(notebooks)
    texts = pages(found)
    shutil.rmtree(folder, ignore_errors=True)
    assets = folder / "assets"
    assets.mkdir(parents=True)
    for name, path in LOADED.items():
        shutil.copyfile(modules / path, assets / name)
    for name in OURS:
        shutil.copyfile(ROOT / "slides" / name, assets / name)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return len(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SLIDES, metavar="FOLDER")
    place = parser.parse_args().folder
    try:
        count = write(place)
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    print(f"written: {count} decks, listed in {place / 'index.html'}")
