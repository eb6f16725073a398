"""The cards of the mistakes: what they show is what the two answers give, and they tell nothing."""

import inspect
import re
from functools import partial
from pathlib import Path

import nbformat
import pytest
import torch

from tools import write_cards
from tools.write_cards import answers, card, first_is_wrong, run, shown, told
from twelve_lab.check import MISTAKES
from twelve_lab.course import STEPS, find_step

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = write_cards.PAGE.read_text(encoding="utf-8")
CODE = re.compile(r"```python\n(.*?)```", re.S)
FOLDED = re.compile(
    r"<details><summary>.*?</summary>\n\n\*\*(\w) is wrong\*\*: `(.+?)`.*?</details>", re.S
)
CARDS = re.split(r"^### ", PAGE, flags=re.M)[1:]


def looked_at(id, answer, piece):
    """What a card looks at, in the answer that a piece stands for and in the piece itself."""
    found = card(id)
    names = run(found.given, piece)
    look = found.look
    if found.held:
        look = "it"
        shown("exec(held, names)", {"held": found.held, "names": names})
    mine = shown(look, names)
    # What draws in turn starts afresh.
    names = names if found.held else run(found.given, "None")
    parameters = inspect.signature(answers(id)[0]).parameters.values()
    given = [names[at.name] for at in parameters if at.name in names and at.kind != at.KEYWORD_ONLY]
    names["it"] = shown("answer(*given)", {"answer": answer, "given": given})
    return shown(look, names), mine


# By hand.


def test_two_cards_by_hand():
    scaled = card("scale-missing")
    assert scaled.right == "query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))"
    assert scaled.wrong == "query @ key.transpose(-2, -1)"
    assert run(scaled.given, scaled.wrong)["it"].tolist() == [[4, 2], [4, 0]]
    assert run(scaled.given, scaled.right)["it"].tolist() == [[2, 1], [2, 0]]
    overwritten = card("residual-overwritten")
    assert overwritten.wrong == "x = norm(x)\nx + sublayer(x)"
    assert overwritten.right == "x + sublayer(norm(x))"


def test_a_switch_is_written_in():
    eps = "(x - mean) / torch.sqrt(variance + {}) * weight + bias"
    assert [one.splitlines()[1] for one in card("ln-eps-tiny")[1:3]] == [
        eps.format("1e-05"),
        eps.format("1e-10"),
    ]
    assert "keepdim=True" in card("ln-no-keepdim").right
    assert "keepdim=False" in card("ln-no-keepdim").wrong
    assert card("mask-not-expanded").wrong == "ids != 0"


def test_numbers_are_told_alike_with_four_decimals_or_none():
    half, one = torch.tensor([[0.5, -1e-9]]), torch.tensor([[1.0, 2.0]])
    assert told([half, one]) == ["[0.5000, 0.0000]", "[1.0000, 2.0000]"]
    assert told([one, one > 1]) == ["[1, 2]", "[False, True]"]
    assert told([(one, 2 * one)], "both") == ["both: [1, 2], [2, 4]"]
    assert told([(2, 1)]) == ["(2, 1)"]
    long = told([torch.arange(24.0).view(2, 12) / 7], "rows")
    assert long[0].startswith("rows:\n[[0.0000, ")
    assert long[0].count("\n") == 2


# Oracle: the answers of the checker.


@pytest.mark.parametrize("id", MISTAKES)
def test_a_piece_gives_what_the_answer_gives_for_which_it_stands(id):
    for answer, piece in zip(answers(id), card(id)[1:3], strict=True):
        theirs, mine = looked_at(id, answer, piece)
        assert told([theirs]) == told([mine])


def test_what_a_piece_stands_for_is_the_mistake_itself_or_what_it_switches():
    for id, mistake in MISTAKES.items():
        right, wrong = answers(id)
        assert right is not wrong
        assert wrong is mistake.wrong or isinstance(mistake.wrong, partial)


# Laws.


def test_the_page_is_what_the_answers_give_today():
    assert write_cards.page() == PAGE


def test_every_mistake_has_one_card_in_the_order_of_the_course():
    ids = [id for _, id in FOLDED.findall(PAGE)]
    assert sorted(ids) == sorted(MISTAKES)
    steps = [step.number for step in STEPS]
    places = [steps.index(MISTAKES[id].step) for id in ids]
    assert places == sorted(places)
    assert [int(one.split(" ")[0]) for one in CARDS] == list(range(1, len(ids) + 1))
    assert f"{len(ids)} in all" in PAGE


@pytest.mark.parametrize("text", CARDS, ids=lambda text: text.split("\n")[0])
def test_both_pieces_run_alone_and_print_what_differs(text):
    imports, (given, *pieces) = CODE.search(PAGE)[1], CODE.findall(text)
    assert len(pieces) == 2
    ((letter, id),) = FOLDED.findall(text)
    values, comments = [], []
    for piece in pieces:
        lines = piece.splitlines()
        comments.append([line for line in lines if line.startswith("# ")])
        assert 1 <= len(lines) - len(comments[-1]) <= 8
        assert max(map(len, lines)) <= 100
        assert imports == write_cards.IMPORTS
        values.append(shown(card(id).look, run(given, piece)))
    assert comments[0] != comments[1]
    found = [re.sub(r"\n# ?", "\n", "\n".join(one))[2:] for one in comments]
    assert told(values, card(id).label) == found
    assert pieces["AB".index(letter)].startswith(f"{card(id).wrong}\n# ")


def test_nothing_but_the_folded_answer_tells_which_is_wrong():
    for text in CARDS:
        id = FOLDED.search(text)[2]
        shown_at_once = FOLDED.sub("", text)
        assert id not in shown_at_once
        assert "wrong" not in shown_at_once
    letters = [letter for letter, _ in FOLDED.findall(PAGE)]
    assert 0.4 < letters.count("A") / len(letters) < 0.6


def test_the_order_is_the_same_on_every_machine():
    # The polynomial of zip and PNG, by hand from its definition.
    def crc(text):
        rest = 0xFFFFFFFF
        for byte in text.encode():
            rest ^= byte
            for _ in range(8):
                rest = rest >> 1 ^ (0xEDB88320 if rest & 1 else 0)
        return rest ^ 0xFFFFFFFF

    assert all(first_is_wrong(id) == crc(id) % 2 for id in MISTAKES)


def test_an_answer_says_why_and_which_check_finds_it_and_where_it_is_taught():
    for text in CARDS:
        answer = text[FOLDED.search(text).start() :]
        mistake = MISTAKES[FOLDED.search(text)[2]]
        assert mistake.sentence in answer
        assert f'-{mistake.task.replace("_", "-")}", ...)` finds it: it ' in answer
        assert f"](../{find_step(mistake.step).notebook})" in answer
        for case in mistake.hidden_in:
            assert f"*{case}*" in answer.partition("hides in")[2]


def test_a_card_leaves_the_type_of_numbers_as_it_was():
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float16)
        with pytest.raises(RuntimeError, match="shapes"):
            run("", "torch.ones(2, 3) @ torch.ones(2, 3)")
        assert run("", "torch.ones(2)")["it"].dtype == torch.float64
        assert torch.get_default_dtype() == torch.float16
    finally:
        torch.set_default_dtype(before)


def test_readers_are_led_to_the_cards_and_only_who_changes_the_code_to_the_killers():
    pages = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("docs/*.md")}
    pages |= {ROOT / name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md")}
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        pages[path] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    leading = {
        path.name for path, text in pages.items() if re.search(r"\]\([\w./]*mistakes\.md", text)
    }
    assert leading == {"CONTRIBUTING.md"}
    assert "](docs/spot_the_bug.md)" in pages[ROOT / "README.md"].partition("## The exercises")[2]


def test_every_card_that_is_written_by_hand_is_used():
    tasks = {MISTAKES[id].task for id in set(MISTAKES) - set(write_cards.OWN)}
    assert set(write_cards.OWN) <= set(MISTAKES)
    assert set(write_cards.CARDS) == tasks


# Errors.


def test_a_mistake_for_which_nothing_is_written_is_an_error(monkeypatch):
    monkeypatch.delitem(write_cards.CARDS, "loss")
    with pytest.raises(
        ValueError, match="softmax-before-loss has no card: write an input for loss"
    ):
        card("softmax-before-loss")
