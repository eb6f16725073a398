"""The message catalogue is up to date, and every message is translated as a whole."""

import ast
import base64
import io
import json
import re
import shutil
import subprocess
import zlib
from gettext import GNUTranslations, NullTranslations

import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from tests.unit.test_check import FAULTS, QUESTIONS, predicted
from tests.unit.test_progress import DAY, row, save
from tools import write_messages
from twelve_lab import example, messages
from twelve_lab.check import EXERCISES, check, diagnose
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of
from twelve_lab.check.progress import report
from twelve_lab.explorer import page
from twelve_lab.explorer.parts import PARTS
from twelve_lab.messages import declared, message, plural

pytestmark = pytest.mark.usefixtures("unchecked")

MODULE = write_messages.LAB / "explorer" / "messages.mjs"
# Texts that a message quotes: case names, the inputs of a contract, lesson titles.
QUOTED = {
    text for text, _, use in write_messages.declared_texts() if use.startswith(("case", "title"))
}


class Marked(NullTranslations):
    """Translate each template into itself, enclosed in ⟦ and ⟧."""

    def gettext(self, message):
        return f"⟦{message}⟧"

    def ngettext(self, singular, plural, n):
        return f"⟦{singular if n == 1 else plural}⟧"


@pytest.fixture(scope="module")
def marked():
    before = messages.use(Marked())
    yield
    messages.use(before)


def untranslated(text):
    """Remove the translated sentences, and the texts that they quote; return the rest."""
    for quoted in QUOTED:
        text = text.replace(f"⟦{quoted}⟧", "")
    # The inputs of a contract are cut off at its arrow.
    text = re.sub(r"with ⟦[^⟧]*\.⟧", "⟧", text)
    return re.sub(r"⟦[^⟦⟧]*⟧", "", text, flags=re.S).strip()


def test_the_catalogue_is_current():
    """`make catalogue` regenerates the catalogue."""
    assert write_messages.PAGE.read_text(encoding="utf-8") == write_messages.page()


def test_every_template_is_a_literal_in_the_catalogue_whose_fields_have_values():
    catalogue = read_po(io.BytesIO(write_messages.PAGE.read_bytes()))
    for path in sorted(write_messages.LAB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            values = {keyword.arg for keyword in getattr(node, "keywords", [])} | {"count"}
            # Values passed with ** are unknown before the call.
            if name not in ("message", "plural") or None in values:
                continue
            for template in node.args[: 1 if name == "message" else 2]:
                assert isinstance(template, ast.Constant), f"{path.name}:{node.lineno}"
                # Babel does not extract calls inside f-strings.
                assert template.value in catalogue or name == "plural", template.value
                fields = re.findall(r"\{(\w+)", template.value)
                assert set(fields) <= values, f"{path.name}:{node.lineno}"


def test_message_plural_and_declared_read_the_catalogue(marked):
    assert message("{got} of {total}", got=1, total=2) == "⟦1 of 2⟧"
    assert plural("{count} {name}", "{count} {name}s", 3, name="axis") == "⟦3 axiss⟧"
    assert declared("{no field}") == "⟦{no field}⟧" and declared("") == ""


@pytest.mark.parametrize(("id", "function", "kind", "words"), FAULTS)
def test_every_fault_is_described_in_whole_sentences(id, function, kind, words, marked):
    assert untranslated(diagnose(id, function).message) == "", kind


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=[pytest.mark.slow] * (id not in QUESTIONS)) for id in EXERCISES]
)
def test_every_right_answer_and_known_mistake_is_answered_in_whole_sentences(id, marked, capsys):
    exercise = EXERCISES[id]
    known = [*mistakes_of(exercise).values(), list(misconceptions_of(exercise).values())]
    wrong = [versions[0] for versions in known if versions]
    if id not in QUESTIONS:
        wrong = wrong[-1:]
    for answer in (exercise.right, *wrong):
        verdict = diagnose(id, predicted(id, answer))
        for text in (verdict.message, verdict.note, verdict.proved):
            assert untranslated(text) == "", (id, text)
    check(id, predicted(id, exercise.right))
    assert untranslated(capsys.readouterr().out.replace("\n", " ")) == ""


@pytest.mark.parametrize(
    "answer", [120, (2.0, 3), (2,), (9, 9, 9, 9), "x", [1.0], {"x"}, float("nan")]
)
@pytest.mark.parametrize("id", QUESTIONS)
def test_every_reply_to_a_prediction_is_a_whole_sentence(id, answer, marked):
    assert untranslated(diagnose(id, answer).message) == ""


def test_the_progress_report_consists_of_whole_sentences(marked, tmp_path):
    learners = []
    for name, day in (("a", None), ("b", DAY)):
        rows = {"06_split_heads": row(day, 2, "split-view"), "99_x": row()}
        learners.append(save(tmp_path / name, "0.0.1", **rows))
    for paths in (learners, learners[:1], learners[1:]):
        for line in report(paths).splitlines():
            for path in paths:
                line = line.replace(str(path), "")
            rest = re.sub(r"[\d; ]", "", untranslated(line))
            assert rest in ("", "split-view", "-split-heads"), line


def pseudo_translation():
    """Compile the translations of `Marked` the way a translator's catalogue is compiled."""
    catalogue = read_po(io.BytesIO(write_messages.PAGE.read_bytes()))
    for entry in catalogue:
        if entry.id and isinstance(entry.id, str):
            entry.string = f"⟦{entry.id}⟧"
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return GNUTranslations(compiled)


def live_page():
    return page({"a run": PARTS["walk"].run()}, example.words)


def page_data(html):
    """Unpack the data of the live page."""
    packed = re.search(r'<script id="data" type="text/plain">([^<]+)', html)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_live_page_translates_every_label_as_python_does():
    catalogue = read_po(io.BytesIO(write_messages.PAGE.read_bytes()))
    templates = [
        entry.id
        for entry in catalogue
        if any(re.fullmatch(r"src/.+\.(mjs|html)", file) for file, _ in entry.locations)
    ]
    assert len(templates) > 80
    before = messages.use(pseudo_translation())
    try:
        table = page_data(live_page())["messages"]
    finally:
        messages.use(before)
    assert "messages" not in page_data(live_page())
    values = {name: name.upper() for text in templates for name in re.findall(r"\{(\w+)\}", text)}
    program = f"""
        import {{ message, translate }} from "{MODULE.as_uri()}";
        translate({json.dumps(table)});
        const shown = {json.dumps(templates)}.map((text) => message(text, {json.dumps(values)}));
        process.stdout.write(JSON.stringify(shown));
    """
    done = subprocess.run(
        ["node", "--input-type=module", "-"],
        input=program, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [f"⟦{text.format(**values)}⟧" for text in templates]
