"""The mistake cards show the results of two answers and do not reveal which answer is wrong."""

import inspect
import re

import pytest

from tools import write_cards
from tools.write_cards import answers, card, run, shown, told
from twelve_lab.check import TAUGHT
from twelve_lab.course import find_step

PAGE = write_cards.PAGE.read_text(encoding="utf-8")
CODE = re.compile(r"```python\n(.*?)```", re.S)
FOLDED = re.compile(
    r"<details><summary>.*?</summary>\n\n\*\*(\w) is wrong\*\*: `(.+?)`.*?</details>", re.S
)
CARDS = {FOLDED.search(text)[2]: text for text in re.split(r"^### ", PAGE, flags=re.M)[1:]}


def results(id, answer, piece):
    """Compute what a card shows, once from the checker's answer and once from the printed code."""
    this = card(id)
    names = run(this.given, piece)
    look = this.look
    if this.held:
        look = "it"
        shown("exec(held, names)", {"held": this.held, "names": names})
    from_piece = shown(look, names)
    # Rerun the setup, so that a random generator starts from its seed again.
    names = names if this.held else run(this.given, "None")
    parameters = inspect.signature(answers(id)[0]).parameters.values()
    given = [names[each.name] for each in parameters
             if each.name in names and each.kind != each.KEYWORD_ONLY]  # fmt: skip
    names["it"] = shown("answer(*given)", {"answer": answer, "given": given})
    return shown(look, names), from_piece


def test_the_page_of_the_cards_is_current():
    assert write_cards.page() == PAGE, "run: make catalogue"
    assert set(CARDS) == set(TAUGHT)


@pytest.mark.parametrize("id", TAUGHT)
def test_a_card_gives_what_the_answers_give_and_the_two_differ(id):
    right, wrong = answers(id)
    values = []
    for answer, piece in ((right, card(id).right), (wrong, card(id).wrong)):
        from_answer, from_piece = results(id, answer, piece)
        assert told([from_answer]) == told([from_piece])
        values.append(from_piece)
    assert len(set(told(values))) == 2


@pytest.mark.parametrize("id", TAUGHT)
def test_only_the_folded_answer_of_a_card_tells_which_is_wrong(id):
    letter, _ = FOLDED.search(CARDS[id]).groups()
    _, *pieces = CODE.findall(CARDS[id])
    assert pieces["AB".index(letter)].startswith(f"{card(id).wrong}\n# ")
    open_text, answer = CARDS[id].split("<details>", 1)
    assert id not in open_text and "wrong" not in open_text
    assert TAUGHT[id].sentence in answer
    assert f"](../{find_step(TAUGHT[id].step).notebook})" in answer


def test_a_mistake_without_a_card_is_named(monkeypatch):
    monkeypatch.delitem(write_cards.CARDS, "loss")
    with pytest.raises(ValueError, match="softmax-before-loss"):
        card("softmax-before-loss")
