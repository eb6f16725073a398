"""Each translation is complete and says the same as the English course.

An unfinished page fails here; `python -m tools.translate check <page>` takes only a second.
"""

import io
import re
import runpy
import subprocess
import sys
from collections import Counter
from gettext import GNUTranslations

import nbformat
import pytest
from babel.messages.catalog import Message

from tests.course.notebook_rules import general_problems, text_of
from tests.course.test_messages import live_page, page_data
from tools.translation import build, catalogue, font, rules
from twelve_lab import language, messages
from twelve_lab.cli import main
from twelve_lab.draw.drawing import stored as picture
from twelve_lab.messages import message
from twelve_lab.show import wide

ROOT = catalogue.ROOT
LANGUAGES = sorted(path.name for path in (ROOT / "locale").iterdir() if path.is_dir())
NOTEBOOKS = [name for name in catalogue.pages() if name != catalogue.README]
NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?\d+(?:[.,]\d+)*(?:e[+-]?\d+)?", re.A)

# `make check` runs this file. Translators run `tools.translate check`.
pytestmark = pytest.mark.slow

in_each_language = pytest.mark.parametrize("spoken", LANGUAGES)


@pytest.fixture
def english():
    yield
    language("en")


def stored(name, spoken):
    path = build.target(name, spoken)
    if not path.exists():
        pytest.fail(f"{path.relative_to(ROOT)} is missing: run make {spoken}")
    return nbformat.read(path, 4)


@in_each_language
@pytest.mark.parametrize("name", catalogue.names())
def test_a_catalogue_is_complete_and_keeps_every_rule(name, spoken):
    assert list(rules.problems(name, spoken)) == []


@in_each_language
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_stored_page_is_the_one_that_its_catalogue_gives(name, spoken):
    page, built = stored(name, spoken), build.build(name, spoken)
    for cell, expected in zip(page.cells, built.cells, strict=True):
        same = cell.source == expected.source and cell.metadata == expected.metadata
        assert same, f"{name}, cell {cell.id}: run make {spoken}"
    problems = general_problems(page, build.target(name, spoken))
    # The English page is checked for its numbers; a translation has the same numbers.
    assert [
        line for line in problems if not re.search("the prose says|code cell 1 (has|should)", line)
    ] == []


def _compared(cell):
    """List the outputs of a cell except pictures, whose alt texts may contain other numbers."""
    return [each for each in cell.get("outputs", []) if not picture(each.get("data", {}))]


@in_each_language
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_output_has_the_numbers_of_the_english_output(name, spoken):
    english = catalogue.read_page(name)
    for cell, other in zip(english.cells, stored(name, spoken).cells, strict=True):
        numbers = [
            Counter(NUMBER.findall("\n".join(map(text_of, _compared(each)))))
            for each in (cell, other)
        ]
        assert numbers[0] == numbers[1], f"{name}, cell {cell.id}"


@in_each_language
def test_the_stored_readme_is_the_one_that_its_catalogue_gives(spoken):
    written = build.target(catalogue.README, spoken).read_text(encoding="utf-8")
    assert written == build.build(catalogue.README, spoken).cells[0].source, f"run make {spoken}"


@in_each_language
def test_the_compiled_messages_are_current(spoken):
    path = catalogue.file_of(catalogue.MESSAGES, spoken).with_suffix(".mo")
    current = io.BytesIO(catalogue.compile_messages(spoken))
    # Ignore the header, which names the version of Babel.
    tables = [
        GNUTranslations(file)._catalog | {"": ""}
        for file in (io.BytesIO(path.read_bytes()), current)
    ]
    assert tables[0] == tables[1], f"run make {spoken}"


@in_each_language
def test_the_font_of_the_figures_has_every_character(spoken):
    assert font.missing(spoken) == set(), f"run make {spoken}"
    assert font.CHINESE.stat().st_size < 400_000


def test_language_selects_the_messages_and_the_live_page(english):
    template = "All cases pass."
    assert message(template) == template
    language("zh")
    assert messages.current() == "zh" and message(template) == "所有例子都通过了。"
    assert page_data(live_page())["messages"]["More"] == "更多"
    assert '<html lang="zh">' in live_page()
    language("en")
    assert message(template) == template and '<html lang="en">' in live_page()


def test_an_unknown_language_is_an_error_that_lists_the_languages(english):
    known = ", ".join(["en", *LANGUAGES])
    with pytest.raises(ValueError, match=rf"unknown language xx \(known: {known}\)"):
        language("xx")


@pytest.mark.parametrize("options", [[], ["--all"]])
def test_the_walk_in_the_terminal_has_the_rows_of_the_english_one(
    options, english, monkeypatch, capsys
):
    monkeypatch.setenv("COLUMNS", "80")
    walks = []
    for chosen in ("en", "zh"):
        language(chosen)
        assert main(["trace", *options]) == 0
        walks.append(capsys.readouterr().out)
    assert re.search("[一-龥]{5}", walks[1]) and max(map(wide.width, walks[1].splitlines())) <= 80
    numbers, rows = (
        [Counter(NUMBER.findall(walk)) for walk in walks],
        # Rows of a table have at least two numbers, and are the same in both languages.
        [re.findall(r"^.*\d\.\d{4}.*\d\.\d{4}.*$", walk, re.M) for walk in walks],
    )
    assert numbers[0] == numbers[1] and len(rows[0]) >= 10 and rows[0] == rows[1]


def test_twelve_lang_selects_the_language(monkeypatch):
    monkeypatch.setenv("TWELVE_LANG", "zh")
    assert runpy.run_path(messages.__file__)["current"]() == "zh"


def test_twelve_lang_with_an_unknown_language_lists_the_languages():
    command = [sys.executable, "-m", "twelve", "trace"]
    environment = {"TWELVE_LANG": "xx", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    assert done.returncode == 1 and "error: unknown language xx (known: en, zh)" in done.stderr


@pytest.fixture
def changed(monkeypatch, tmp_path):
    """Edit one paragraph of lesson 04, and redirect its catalogue to a copy."""
    path = catalogue.pages()["04_attention"]
    text = path.read_text(encoding="utf-8")
    edited = tmp_path / path.name
    edited.write_text(text.replace("It is a small shark.", "It is a small fish."), "utf-8")
    pages = catalogue.pages() | {"04_attention": edited}
    files = {name: catalogue.file_of(name, "zh") for name in catalogue.names()}
    files["04_attention"] = tmp_path / "04.po"
    files["04_attention"].write_bytes(catalogue.file_of("04_attention", "zh").read_bytes())
    monkeypatch.setattr(catalogue, "pages", lambda: pages)
    monkeypatch.setattr(catalogue, "file_of", lambda name, _: files[name])
    catalogue.sources.cache_clear()
    yield
    catalogue.sources.cache_clear()


def test_a_changed_english_paragraph_is_found_and_becomes_fuzzy(changed):
    lines = list(rules.problems("04_attention", "zh"))
    head = "04_attention/04-title: 'A dogfish is not a dog. It is a small fish."
    assert any(line.startswith(head) and "run" in line for line in lines), lines
    catalogue.update("04_attention", "zh")
    lines = list(rules.problems("04_attention", "zh"))
    assert len(lines) == 1 and lines[0].startswith(head) and "fuzzy" in lines[0]
    used = catalogue.translations("04_attention", "zh")
    assert used and not any(text.startswith("A dogfish is not a dog.") for text in used)


def test_a_line_of_code_that_the_book_would_cut_off_is_noticed(changed):
    file = catalogue.file_of("04_attention", "zh")
    file.write_text(file.read_text("utf-8").replace('"均值"', '"这几个数的均值"'), "utf-8")
    assert any(
        "均值" in line and "105 columns" in line for line in rules.problems("04_attention", "zh")
    )


KEPT = "Divide the scores by `d_k`, see [04](04_attention.ipynb), $x$, 3.5 and 1,500 million."
SAID = "把分数除以 `d_k`，见 [04](04_attention.ipynb)、$x$、3.5 和 15 亿。"
BROKEN = [
    (KEPT, "", "not translated"),
    (KEPT, KEPT, "equal to its source"),
    (KEPT, SAID.replace("`d_k`", "`d_v`"), "the code, formula, tag or link `d_k` is missing"),
    (KEPT, SAID.replace("(04_", "(05_"), "link (05_attention.ipynb) is not in the source"),
    (KEPT, SAID.replace("$x$", "$y$"), "link $x$ is missing"),
    (KEPT, SAID.replace("3.5", "3.6"), "the number 3.5 is missing"),
    (KEPT, SAID.replace("15 亿", "1,500 亿"), "the number 1500000000 is missing"),
    (KEPT, SAID.replace("分数", "得分"), "glossary: score is 分数"),
    (KEPT, SAID.replace("分数", "得分和分数"), "glossary: 得分 is not used"),
    (KEPT, SAID.replace("，", ","), "a half-width mark"),
    (KEPT, SAID.replace("以 `", "以`"), "a space is missing"),
    (KEPT, SAID.replace("，", "， "), "a space beside a full-width mark"),
    (KEPT, "## " + SAID, "heading: 0 in the source, 1 in the translation"),
    ("## The root", "### 平方根", "heading"),
    ("- a cow\n- a horse", "- 一头牛", "list item: 2 in the source"),
    ("| a cow | b |\n|---|---|", "| 一头牛 |\n|---|", "table column"),
    ("a **cow**", "一头牛", "bold text"),
]


OF_MESSAGES = [
    ("{name} is large", "{nome} 很大", "the field {name} is missing"),
    ("x (a, b) -> y of cows", "x (a, b)：牛的 y", "the arrow -> is missing"),
]
CASES = [("04_attention", *row) for row in BROKEN]
CASES += [(catalogue.MESSAGES, *row) for row in OF_MESSAGES]


@pytest.mark.parametrize(("name", "source", "translation", "problem"), CASES)
def test_each_rule_notices_the_translation_that_breaks_it(name, source, translation, problem):
    lines = list(rules.of_entry(Message(source, translation), name, "zh"))
    assert any(problem in line for line in lines), lines


def test_a_good_translation_breaks_no_rule():
    assert list(rules.of_entry(Message(KEPT, SAID), "04_attention", "zh")) == []


def test_code_that_differs_by_more_than_its_texts_is_noticed():
    same = [rules.skeleton(code, {"dog", "狗"}) for code in ('f("dog", 1)', 'f("狗", 1)')]
    assert same[0] == same[1] != rules.skeleton('f("狗", 2)', {"dog", "狗"})
    assert rules.skeleton('f"{a} of {b}"', ()) == rules.skeleton('f"{b}：{a}"', ())
    assert rules.skeleton('f"{a} of {b}"', ()) != rules.skeleton('f"{b}：{c}"', ())
