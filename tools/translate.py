"""Translates the course: catalogues in locale/<language>, pages in notebooks/<language>.

    python -m tools.translate status
    python -m tools.translate update                   bring the catalogues up to date
    python -m tools.translate todo 04_attention        print the open entries as JSON
    python -m tools.translate todo messages attention  ... those whose file is named so
    python -m tools.translate fill 04_attention FILE   take the targets from such a JSON
    python -m tools.translate check 04_attention       print everything that is wrong
    python -m tools.translate build 04_attention       write the page, without outputs
    python -m tools.translate font                     write the characters of the figures

docs/extending.md says how to add a language.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from babel.messages.catalog import Message

from tools.translation import build, catalogue, font, rules


def open_entries(name: str, language: str, only: str = "") -> list[dict]:
    """List the entries that need a translation.

    Args:
        name: The catalogue.
        language: The language.
        only: Substring of a location; other entries are left out.
    """
    return [
        {
            "source": entry.id if isinstance(entry.id, str) else list(entry.id),
            "note": shorten("; ".join([_places(entry), *entry.auto_comments]).strip("; "), 300),
            "target": _one(entry.string),
        }
        for entry in catalogue.entries(name, language)
        if only in _places(entry) and (entry.fuzzy or not _one(entry.string))
    ]


def fill(name: str, language: str, rows: list[dict]) -> Iterator[str]:
    """Write the targets of a list into a catalogue, and yield problems with them."""
    translated = catalogue.read(name, language)
    for row in rows:
        id = row["source"] if isinstance(row["source"], str) else tuple(row["source"])
        entry = translated.get(id)
        if entry is None:
            yield f"{id[:60]!r}: not in the catalogue {name}"
        elif row.get("target"):
            entry.string = row["target"] if isinstance(id, str) else (row["target"],)
            entry.flags.discard("fuzzy")
            entry.previous_id = []
            if row.get("allow"):
                entry.user_comments = [f"allow: {row['allow']}"]
            lines = rules.of_entry(entry, name, language)
            yield from (f"{str(id)[:60]!r}: {line}" for line in lines)
    catalogue.write(translated, name, language)


def _places(entry: Message) -> str:
    return " ".join(place for place, _ in entry.locations)


def _one(string: str | tuple | None) -> str:
    return (string[0] if isinstance(string, tuple) else string) or ""


def main() -> int:
    """Run one command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--language", default="zh")
    parser.add_argument("do", choices="status update todo fill check build font".split())
    parser.add_argument("name", nargs="?", help="a page, shared or messages; all if it is missing")
    parser.add_argument("more", nargs="?", default="", help="a part of a location, or a file")
    asked = parser.parse_args()
    language, wrong = asked.language, 0
    chosen = [asked.name] if asked.name else catalogue.names()
    if unknown := set(chosen) - set(catalogue.names()):
        parser.error(f"unknown catalogue {unknown.pop()} (known: {', '.join(catalogue.names())})")
    if asked.do == "font":
        print(font.write().relative_to(catalogue.ROOT))
        return 0
    if asked.do == "todo":
        rows = open_entries(asked.name, language, asked.more)
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return 0
    if asked.do == "fill":
        text = Path(asked.more).read_text(encoding="utf-8") if asked.more else sys.stdin.read()
        for line in fill(asked.name, language, json.loads(text)):
            print(line)
            wrong = 1
        return wrong
    for name in chosen:
        if asked.do == "update":
            catalogue.update(name, language)
        elif asked.do == "check":
            for line in rules.problems(name, language, asked.more):
                print(line)
                wrong = 1
        elif asked.do == "status":
            every, done, fuzzy = rules.state(name, language)
            print(f"{name:34} {done:5} of {every:5}{f', {fuzzy} fuzzy' if fuzzy else ''}")
        elif name in catalogue.pages():
            print(build.write(name, language).relative_to(catalogue.ROOT))
        elif name == catalogue.MESSAGES:
            path = catalogue.file_of(name, language).with_suffix(".mo")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(catalogue.compile_messages(language))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
