"""The catalogue of messages is current, and every message is translated as a whole."""

import ast
import re
from gettext import NullTranslations

import pytest

from tests.unit.test_check import FAULTS, QUESTIONS, predicted
from tests.unit.test_progress import DAY, row, save
from tools import write_messages
from twelve_lab import messages
from twelve_lab.check import EXERCISES, check, diagnose
from twelve_lab.check.progress import report
from twelve_lab.messages import declared, message, plural

pytestmark = pytest.mark.usefixtures("unchecked")

# Texts that a sentence quotes: the name of a case, the inputs of a contract, the title of a lesson.
QUOTED = {
    text for text, _, use in write_messages.declared_texts() if use.split()[0] in {"case", "title"}
}


class Marked(NullTranslations):
    """Translate each template into itself between ⟦ and ⟧."""

    def gettext(self, message):
        return f"⟦{message}⟧"

    def ngettext(self, one, many, n):
        return f"⟦{one if n == 1 else many}⟧"


@pytest.fixture(scope="module")
def marked():
    before = messages.use(Marked())
    yield
    messages.use(before)


def untranslated(text):
    """Return what remains of a text without its translated sentences and what these quote."""
    for quoted in QUOTED:
        text = text.replace(f"⟦{quoted}⟧", "")
    # The inputs of a contract are cut off at its arrow.
    text = re.sub(r"with ⟦[^⟧]*\.⟧", "⟧", text)
    return re.sub(r"⟦[^⟦⟧]*⟧", "", text, flags=re.S).strip()


def test_the_catalogue_is_current():
    """`make catalogue` writes it again."""
    assert write_messages.PAGE.read_text(encoding="utf-8") == write_messages.page()


def test_every_template_is_a_literal_whose_fields_have_values():
    for path in sorted(write_messages.LAB.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            values = {keyword.arg for keyword in getattr(node, "keywords", [])} | {"count"}
            # Values passed by ** are not known before the call.
            if name not in ("message", "plural") or None in values:
                continue
            for template in node.args[: 1 if name == "message" else 2]:
                assert isinstance(template, ast.Constant), f"{path.name}:{node.lineno}"
                fields = re.findall(r"\{(\w+)", template.value)
                assert set(fields) <= values, f"{path.name}:{node.lineno}"


def test_message_plural_and_declared_read_the_catalogue(marked):
    assert message("{got} of {total}", got=1, total=2) == "⟦1 of 2⟧"
    assert plural("{count} {name}", "{count} {name}s", 3, name="axis") == "⟦3 axiss⟧"
    assert declared("{no field}") == "⟦{no field}⟧" and declared("") == ""


@pytest.mark.parametrize(("id", "function", "kind", "words"), FAULTS)
def test_every_fault_is_described_in_whole_sentences(id, function, kind, words, marked):
    assert untranslated(diagnose(id, function).message) == "", kind


@pytest.mark.parametrize("id", EXERCISES)
def test_every_right_answer_and_known_mistake_is_answered_in_whole_sentences(id, marked, capsys):
    exercise = EXERCISES[id]
    known = [*exercise.mistakes.values(), list(exercise.misconceptions.values())]
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
            assert re.sub(r"[\d; ]", "", untranslated(line)) in ("", "split-view"), line
