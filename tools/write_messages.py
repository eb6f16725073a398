"""Writes src/twelve_lab/locale/twelve_lab.pot: every text that a learner reads outside notebooks.

Babel collects the templates of `message` and `plural`. The texts that exercises and lessons declare
as data come from their declarations.

Usage: python -m tools.write_messages
"""

import io
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from babel.messages import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import write_po

from twelve_lab.check import EXERCISES, MISTAKES, TASKS, Task
from twelve_lab.check.explanation import SENTENCES
from twelve_lab.course import DRILLS, STEPS
from twelve_lab.draw.architecture import DECODER, ENCODER, STACKS
from twelve_lab.exercises.declare import Exercise
from twelve_lab.explorer.parts import PARTS

ROOT = Path(__file__).parents[1]
LAB = ROOT / "src" / "twelve_lab"
BROWSER = ROOT / "browser"
PAGE = LAB / "locale" / "twelve_lab.pot"
KEYWORDS = {"message": None, "plural": (1, 2)}
METHODS = [
    ("**.py", "python"),
    ("**.mjs", "javascript"),
    ("**.html", "tools.write_messages:html_texts"),
]
# Files with the texts that the book adds to the pages.
BOOK = ((ROOT / "tools", [("write_book.py", "python")]),
        (ROOT / "book", [("static/read.js", "javascript")]))  # fmt: skip
OPTIONS = {"**.mjs": {"parse_template_string": "true"}}
HEADER = """# The messages of the lab: `make catalogue` collects them, msginit begins a translation.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Content-Transfer-Encoding: 8bit\\n"

"""


def page() -> str:
    """Format the catalogue, sorted and without dates and line numbers, which change often."""
    catalogue = Catalog()
    # pybabel skips folders whose names begin with a dot or an underscore; the package has none.
    for folder, methods in ((LAB, METHODS), (BROWSER, METHODS), *BOOK):
        for file, _, text, comments, _ in extract_from_dir(folder, methods, OPTIONS, KEYWORDS):
            path = (folder / file).relative_to(ROOT).as_posix()
            catalogue.add(text, locations=[(path, 0)], auto_comments=comments)
    for text, file, use in declared_texts():
        catalogue.add(text, locations=[(file, 0)], auto_comments=[use] * bool(use))
    written = io.BytesIO()
    write_po(
        written, catalogue, omit_header=True, sort_output=True, include_lineno=False, width=100
    )
    return HEADER + written.getvalue().decode("utf-8").strip() + "\n"


def declared_texts() -> Iterator[tuple[str, str, str]]:
    """Yield each declared text with its file and its use."""
    for step in STEPS:
        yield step.title, "src/twelve_lab/course.py", "title of a lesson"
        yield step.question, "src/twelve_lab/course.py", "question of a lesson"
    for part in dict.fromkeys(step.part for step in STEPS):
        yield part, "src/twelve_lab/course.py", "part of the course"
    for drill in DRILLS:
        yield drill.title, "src/twelve_lab/course.py", "title of a page to write by hand"
    for mistake in MISTAKES.values():
        yield mistake.sentence, _file(TASKS[mistake.task]), f"mistake {mistake.id}"
    for part in PARTS.values():
        panels = [panel.get(name) for panel in part.panels for name in ("title", "note", "says")]
        for text in filter(None, [part.title, part.lead, *panels]):
            yield text, "src/twelve_lab/explorer/parts.py", "live page"
    boxes = [*ENCODER, *DECODER, *filter(None, chain(*STACKS.values()))]
    for words in dict.fromkeys([*STACKS, *(box.words for box in boxes)]):
        yield words, "src/twelve_lab/draw/architecture.py", "box of the plan of a model"
    for sentence in SENTENCES.values():
        yield sentence, "src/twelve_lab/check/explanation.py", ""
    for id, exercise in EXERCISES.items():
        file = _file(exercise)
        yield exercise.contract, file, f"contract of {id}"
        for sentence in exercise.misconceptions:
            yield sentence, file, f"reply in {id}"
        if isinstance(exercise, Task):
            for case in exercise.cases():
                yield case, file, f"case of {id}"


def html_texts(
    file: IO[bytes], *_: object, **options: object
) -> Iterator[tuple[int, str, str, list[str]]]:
    """Yield the texts, labels and titles of a page: an extractor for Babel."""
    body = re.sub(r"(?s)<(script|style|noscript).*?</\1>", "", file.read().decode())
    for groups in re.findall(r'>([^<>]+)<|(?:aria-label|title)="([^"]+)"', body):
        if text := "".join(groups).strip():
            yield 0, "message", text, []


def _file(exercise: Exercise) -> str:
    return f"src/{exercise.right.__module__.replace('.', '/')}.py"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
