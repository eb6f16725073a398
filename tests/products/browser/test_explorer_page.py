"""The explorer in a real browser: change any number by mouse and keys, and all that follows.

tests/products/test_explorer.py holds its arithmetic, without a browser.
"""

import base64
import math
import random
import re

import pytest
import torch
from playwright.sync_api import expect

from tests.products.browser.conftest import grave
from tests.products.pytorch_runs import ATTENTION, FIRST, TITLES, Run, differences, layout, program
from twelve import TokenEmbedding
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explorer import page, write_explorer
from twelve_lab.show.format import format_number

SISTER, LAYER = "decoder-only", "layers.0.self_attention"
CHANGES, CLICKS = 50, 60
DIALS = "#words input.n, #target input.n"
# Every number and its gradient, as base64 of their 64 bits: playwright takes its time for a list.
ALL = """tensors => {
  const both = tensors.flatMap(([name, shape]) => shape
    .reduce((all, size) => all.flatMap(i => Array.from({length: size}, (_, n) => [...i, n])), [[]])
    .flatMap(index => [twelve.get(name, index), twelve.grad(name, index)]));
  const bytes = new Uint8Array(Float64Array.from(both).buffer);
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""));
}"""
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """The page of all configurations, as the command line writes it."""
    torch.set_default_dtype(torch.float64)
    path = tmp_path_factory.mktemp("explorer") / "walk.html"
    assert main(["explorer", str(path)]) == 0
    return path


def opened(tab, path, address=""):
    tab.goto(path.as_uri() + address)
    tab.wait_for_selector("body[data-ready]")
    return tab


def loss(tab):
    return tab.evaluate("twelve.loss()")


def numbers(tab, title=FIRST):
    """Read every number and every gradient, in the order of the program."""
    tab.evaluate(FRAMES)
    tensors = [[name, list(shape)] for name, (_, shape) in layout(title).items()]
    packed = bytearray(base64.b64decode(tab.evaluate(ALL, tensors)))
    return torch.frombuffer(packed, dtype=torch.float64).view(-1, 2).T


def until(tab, condition):
    """Wait for something on the page; it forbids what playwright would wait with."""
    look = f"const look = () => ({condition}) ? done() : requestAnimationFrame(look)"
    tab.evaluate(f"new Promise(done => {{ {look}; look(); }})")


def home_of(place, title=FIRST):
    """Name the tensor of a place, and the element in it."""
    for name, (start, shape) in layout(title).items():
        if start <= place < start + shape.numel():
            return name, place - start
    raise IndexError(place)


def place_of(node):
    return int(node.get_attribute("data-at"))


def choose(tab, name, element):
    """Choose a number in the tables below."""
    tab.select_option("#tensor", name)
    tab.locator(f"#cells button.n[data-at='{layout(FIRST)[name][0] + element}']").click()


def test_on_opening_words_numbers_and_loss_are_there_without_a_click(walk, tab):
    opened(tab, walk)
    assert tab.title() == "Twelve Numbers: change any number"
    words = tab.locator("#words select")
    chosen = words.evaluate_all("all => all.map(e => e.selectedOptions[0].textContent)")
    assert chosen == [word for line in example.words["src"] for word in line]
    heard = tab.locator("#target select").evaluate_all(
        "all => all.map(e => e.selectedOptions[0].textContent)"
    )
    assert heard == [word for line in example.words["tgt"] for word in line]
    rows = torch.tensor(example.embedding_rows)[example.src].flatten().tolist()
    dials = tab.locator("#words input.n")
    assert dials.evaluate_all("all => all.map(e => e.value)") == [f"{x:.4f}" for x in rows]
    assert [dials.nth(n).is_visible() for n in (0, 11)] == [True, True]
    assert tab.locator("#learning .loss").inner_text() == f"loss {loss(tab):.4f}"
    assert loss(tab) == pytest.approx(1.048, abs=5e-4)
    trace = Run(FIRST).trace()[0]
    chances = trace["cross_entropy.log_probabilities"].value.exp().flatten().tolist()
    shown = tab.locator("#prediction .chances > span:nth-child(3)").all_inner_texts()
    assert shown == [f"{chance:.4f}" for chance in chances]
    weights = trace[f"{ATTENTION}.weights"].value.transpose(1, 2).flatten().tolist()
    assert tab.locator("#encoder td .n").all_inner_texts() == [f"{x:.2f}" for x in weights]
    memory = trace["memory"].value.flatten().tolist()
    assert tab.locator("#memory td .n").all_inner_texts() == [format_number(x) for x in memory]
    verdicts = tab.locator(".verdict").all_inner_texts()
    best = trace["logits"].value.argmax(-1).flatten().tolist()
    for verdict, word, label in zip(verdicts, best, example.labels.flatten().tolist(), strict=True):
        end = "not asked" if label < 0 else "right" if word == label else "wrong"
        assert verdict.endswith(f"{example.vocabulary[word]}, {end}")
    assert tab.locator("#number #text").is_visible()
    assert torch.equal(numbers(tab), numbers(opened(tab, walk, "#run=0")))


def test_on_a_phone_the_words_numbers_stand_on_the_first_screen(walk, tab):
    tab.set_viewport_size({"width": 390, "height": 844})
    opened(tab, walk)
    boxes = tab.locator("#words input.n").evaluate_all(
        "all => all.map(e => e.getBoundingClientRect()).map(b => [b.left, b.right, b.bottom])"
    )
    assert len(boxes) == 12
    top = tab.evaluate("document.querySelector('#foot').getBoundingClientRect().top")
    for left, right, bottom in boxes:
        assert left >= 0 and right <= 390 and bottom <= top
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    choose(tab, "memory", 4)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    expect(tab.locator("#name")).to_be_in_viewport()


# --- changes ---


class Hand:
    """Changes numbers as a reader does, and says which number is what afterwards."""

    def __init__(self, tab, choice):
        self.tab, self.choice = tab, choice

    def dial(self):
        """Choose one of the numbers of a word."""
        dials = self.tab.locator(DIALS)
        dial = dials.nth(self.choice.randrange(dials.count()))
        dial.scroll_into_view_if_needed()
        return dial, *home_of(place_of(dial))

    def get(self, name, element):
        shape = list(layout(FIRST)[name][1])
        index = [int(i) for i in torch.unravel_index(torch.tensor(element), shape)]
        return self.tab.evaluate("([name, index]) => twelve.get(name, index)", [name, index])

    def type(self):
        dial, name, element = self.dial()
        value = round(self.choice.uniform(-3, 3), 3)
        dial.click()
        self.tab.keyboard.press("Control+A")
        self.tab.keyboard.type(str(value).replace(".", self.choice.choice(".,")))
        self.tab.keyboard.press(self.choice.choice(["Enter", "Tab"]))
        return name, element, value

    def arrow(self):
        dial, name, element = self.dial()
        before = self.get(name, element)
        key, step = self.choice.choice([("ArrowUp", 0.1), ("ArrowDown", -0.1), ("PageUp", 1.0),
                                        ("PageDown", -1.0), ("Shift+ArrowUp", 0.01)])  # fmt: skip
        dial.focus()
        self.tab.keyboard.press(key)
        return name, element, math.floor((before + step) * 1000 + 0.5) / 1000

    def drag(self):
        dial, name, element = self.dial()
        before = self.get(name, element)
        box = dial.bounding_box()
        x, y = int(box["x"] + box["width"] / 2), int(box["y"] + box["height"] / 2)
        far = self.choice.choice([-1, 1]) * self.choice.randrange(20, 120)
        self.tab.mouse.move(x, y)
        self.tab.mouse.down()
        self.tab.mouse.move(x + far, y + 5, steps=4)
        self.tab.mouse.up()
        return name, element, math.floor((before + far * 0.01) * 1000 + 0.5) / 1000

    def word(self):
        side = self.choice.choice(["#words", "#target", "#prediction"])
        count = self.tab.locator(f"{side} select").count()
        element = self.choice.randrange(count)
        value = self.choice.choice([0, 1, 2, 3])
        self.tab.locator(f"{side} select").nth(element).select_option(str(value))
        names = {"#words": "src", "#target": "tgt", "#prediction": "cross_entropy.labels"}
        return names[side], element, value

    def slide(self):
        weights = [tensor["name"] for tensor in program(FIRST)["tensors"] if tensor["weight"]]
        name = self.choice.choice([*weights, "memory"])
        element = self.choice.randrange(layout(FIRST)[name][1].numel())
        choose(self.tab, name, element)
        before = self.get(name, element)
        slider = self.tab.locator("#number input[type=range]")
        slider.focus()
        self.tab.keyboard.press(self.choice.choice(["ArrowRight", "PageUp", "PageDown", "Home"]))
        self.tab.evaluate(FRAMES)
        after = self.get(name, element)
        assert after != before
        return name, element, after

    def mask(self):
        name = self.choice.choice(["src_mask", "tgt_mask"])
        element = self.choice.randrange(4)
        choose(self.tab, name, element)
        before = self.get(name, element)
        self.tab.locator("#number input[type=checkbox]").click()
        return name, element, 1 - before


def test_after_each_change_by_hand_every_number_and_gradient_is_that_of_pytorch(
    walk, tab, unchecked
):
    opened(tab, walk)
    choice, here = random.Random(12), Run(FIRST)
    hand = Hand(tab, choice)
    ways = [hand.type, hand.arrow, hand.drag, hand.word, hand.slide, hand.mask]
    past, taken_back = [], 0
    for number in range(CHANGES):
        way = ways[number % len(ways)]
        before = dict(here.changed)
        name, element, value = way()
        here.changed[name, element] = value
        found = differences(FIRST, *numbers(tab), here.numbers())
        assert found == [], (number, way.__name__, name, element, value)
        if here.changed != before:
            past.append(before)
        if number % 7 == 6:
            tab.locator("#undo").click()
            here.changed = past.pop()
            taken_back += 1
            assert differences(FIRST, *numbers(tab), here.numbers()) == [], (number, "undo")
    assert taken_back == 7


@pytest.mark.weekly
def test_a_number_that_is_none_is_refused_and_escape_takes_back_what_was_typed(walk, tab):
    opened(tab, walk)
    dial = tab.locator("#words input.n").nth(6)
    home = loss(tab)
    for written in ("dog", "", "1e999"):
        dial.fill(written)
        dial.press("Enter")
        expect(tab.locator("#notice")).to_have_text(
            f"“{written}” is no number; src_embedding.weight[2, 0] stays 0.7000."
        )
        assert loss(tab) == home and dial.input_value() == "0.7000"
    dial.fill("5")
    dial.press("Escape")
    assert loss(tab) == home and dial.input_value() == "0.7000"
    dial.fill("5")
    dial.press("Enter")
    expect(tab.locator("#notice")).to_be_hidden()
    assert loss(tab) != home and dial.input_value() == "5.0000"


@pytest.mark.weekly
def test_what_moved_is_marked_and_before_shows_what_was(walk, tab):
    opened(tab, walk)
    shown = tab.locator("#learning .loss .n")
    first = loss(tab)
    assert tab.locator(".n.moved").count() == 0
    assert tab.locator("#undo").is_disabled() and tab.locator("#reset").is_disabled()
    tab.evaluate("twelve.set('src_embedding.weight', [2, 1], 1.5)")
    second = loss(tab)
    assert f"{first:.4f}" != f"{second:.4f}" == shown.inner_text()
    assert "moved" in shown.get_attribute("class")
    # Of the first sentence, which has no dog, nothing moved.
    moved = tab.locator("#memory td .n").evaluate_all(
        "all => all.map(e => e.classList.contains('moved'))"
    )
    assert moved[:6] == [False] * 6 and any(moved[6:])
    tab.locator("h1").click()
    tab.keyboard.down("b")
    assert shown.inner_text() == f"{first:.4f}"
    assert tab.locator("#before").get_attribute("aria-pressed") == "true"
    assert loss(tab) == second
    tab.keyboard.up("b")
    assert shown.inner_text() == f"{second:.4f}"
    tab.locator("#before").click()
    assert shown.inner_text() == f"{first:.4f}"
    tab.locator("#before").click()
    assert shown.inner_text() == f"{second:.4f}"


def test_undo_takes_back_one_change_and_start_again_all(walk, tab):
    opened(tab, walk)
    losses = [loss(tab)]
    for value in (1.5, -2.0, 0.25):
        tab.evaluate("value => twelve.set('src_embedding.weight', [2, 1], value)", value)
        losses.append(loss(tab))
    assert len(set(losses)) == 4
    tab.locator("#undo").click()
    assert loss(tab) == losses[2]
    tab.locator("h1").click()
    tab.keyboard.press("Control+z")
    assert loss(tab) == losses[1]
    tab.locator("#reset").click()
    assert loss(tab) == losses[0] and tab.locator("#reset").is_disabled()
    tab.locator("#undo").click()
    assert loss(tab) == losses[1]
    tab.locator("#undo").click()
    assert loss(tab) == losses[0] and tab.locator("#undo").is_disabled()
    tab.evaluate("twelve.set('memory', [0, 0, 0], 3)")
    tab.evaluate("twelve.reset()")
    assert loss(tab) == losses[0]


@pytest.mark.weekly
def test_a_slider_that_was_not_moved_leaves_nothing_to_undo(walk, tab):
    opened(tab, walk)
    choose(tab, "memory", 4)
    home = loss(tab)
    slider = tab.locator("#number input[type=range]")
    slider.focus()
    tab.keyboard.press("Tab")
    assert tab.locator("#undo").is_disabled()
    slider.focus()
    for _ in range(2):
        tab.keyboard.press("PageUp")
        tab.evaluate(FRAMES)
    assert loss(tab) != home
    tab.keyboard.press("Tab")
    tab.locator("#undo").click()
    tab.locator("#undo").click()
    assert loss(tab) == home and tab.locator("#undo").is_disabled()


@pytest.mark.weekly
def test_learning_runs_stops_and_can_be_taken_back(walk, tab):
    opened(tab, walk)
    model = example.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for step in range(2):
        logits = model(
            example.src, example.tgt, src_mask=example.src_mask, tgt_mask=example.tgt_mask
        )
        value = cross_entropy(logits, example.labels)
        losses.append(value.item())
        optimizer.zero_grad()
        value.backward()
        if step == 0:
            optimizer.step()
    tab.locator("#learn-step").click()
    assert loss(tab) == pytest.approx(losses[1], abs=1e-12)
    here = Run(FIRST)
    here.home = {name: weight.detach() for name, weight in model.named_parameters()} | {
        "positional_encoding.table": here.home["positional_encoding.table"]
    }
    assert differences(FIRST, *numbers(tab), here.numbers()) == []
    said = tab.locator("#learning p.note")
    expect(said).to_have_text(f"The loss over 1 step: from {losses[0]:.4f} to {losses[1]:.4f}.")
    tab.locator("#learn").click()
    expect(tab.locator("#learn")).to_have_text("Stop")
    until(tab, "twelve.loss() < 0.5")
    tab.locator("#learn").click()
    expect(tab.locator("#learn")).to_have_text("Learn")
    after = loss(tab)
    tab.evaluate(FRAMES)
    assert loss(tab) == after < losses[1] < losses[0]
    steps = int(re.search(r"over (\d+) steps", said.text_content())[1])
    points = tab.locator("svg.curve polyline").get_attribute("points").split()
    assert len(points) == steps + 1 > 10
    tab.locator("#undo").click()
    assert loss(tab) == pytest.approx(losses[1], abs=1e-12)
    tab.locator("#undo").click()
    assert loss(tab) == pytest.approx(losses[0], abs=1e-12)


# --- one number ---


def check_text(tab, place, title=FIRST):
    """Hold what is written about a number against the number."""
    name, element = home_of(place, title)
    shape = list(layout(title)[name][1])
    index = [int(i) for i in torch.unravel_index(torch.tensor(element), shape)] if shape else []
    kind = next(tensor for tensor in program(title)["tensors"] if tensor["name"] == name)["type"]
    value = tab.evaluate("([name, index]) => twelve.get(name, index)", [name, index])
    wanted = {"bool": bool, "int": int, "float": float}[kind](value)
    last = tab.locator("#text").text_content().splitlines()[-1]
    assert re.fullmatch(
        rf"  = {re.escape(format_number(wanted))}(, given .*|, a constant .*)?", last
    )
    assert tab.locator("#number [aria-current=true], #cells [aria-current=true]").count() >= 1


@pytest.mark.weekly
def test_sixty_numbers_chosen_at_random_each_show_their_arithmetic(walk, tab):
    opened(tab, walk)
    choice = random.Random(60)
    names, onward = list(layout(FIRST)), 0
    for _ in range(CLICKS):
        inputs = tab.locator("#inputs button.n.lit")
        if choice.random() < 0.5 and inputs.count():
            cell = inputs.nth(choice.randrange(inputs.count()))  # go on to an operand
            onward += 1
        else:
            tab.select_option("#tensor", choice.choice(names))
            cells = tab.locator("#cells button.n")
            cell = cells.nth(choice.randrange(cells.count()))
        place = place_of(cell)
        cell.click()
        check_text(tab, place)
    assert onward > CLICKS / 5


@pytest.mark.weekly
def test_the_way_back_leads_over_crumbs_and_backspace(walk, tab):
    opened(tab, walk)
    choose(tab, "logits", 5)
    text = tab.locator("#text")
    way = [text.text_content()]
    for _ in range(4):
        tab.locator("#inputs button.n.lit").first.click()
        way.append(text.text_content())
    assert len(set(way)) == 5
    crumbs = tab.locator(".trail button")
    for wanted in reversed(way[2:-1]):
        tab.keyboard.press("Backspace")
        assert text.text_content() == wanted
    crumbs.last.click()
    assert text.text_content() == way[1]


@pytest.mark.weekly
def test_a_gradient_is_shown_with_what_it_comes_through(walk, tab):
    opened(tab, walk)
    choose(tab, "memory", 7)
    gradient = Run(FIRST).numbers()["memory"][1].flatten()[7].item()
    shown = tab.locator("#gradient").text_content()
    assert shown == f"= {gradient:.4f}, the sum of the gradients through:"
    parts = tab.locator("#number ul.list").last.locator("li").all_inner_texts()
    shares = [float(re.search(r"= (-?\d+\.\d+)", part)[1]) for part in parts]
    assert 2 <= len(parts) <= 6  # at most the three columns of the keys, and of the values
    assert sum(shares) == pytest.approx(gradient, abs=1e-4 * len(shares))


@pytest.mark.weekly
def test_the_keyboard_alone_leads_to_a_changed_number_and_its_arithmetic(walk, tab):
    opened(tab, walk)
    home = loss(tab)
    active = "document.activeElement"
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate(f"{active}.matches('#words input.n')"):
            break
    assert tab.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
    label = tab.evaluate(f"{active}.getAttribute('aria-label')")
    assert label == "<pad>, number 1 of its embedding"
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+A")
    tab.keyboard.type("0.5")
    tab.keyboard.press("Enter")
    here = Run(FIRST)
    here.changed = {("src_embedding.weight", 0): 0.1, ("src_embedding.weight", 1): 0.5}
    assert differences(FIRST, *numbers(tab), here.numbers()) == []
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate(f"{active}.matches('#encoder button.n')"):
            break
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        tab.keyboard.press(key)
    start = layout(FIRST)[f"{ATTENTION}.weights"][0]
    assert tab.evaluate(f"Number({active}.dataset.at)") == start + 3  # head 0, query 1, key 1
    tab.keyboard.press("Enter")
    check_text(tab, start + 3)
    assert tab.evaluate(f"{active}.id") == "name"
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate(f"{active}.matches('#number input.n')"):
            break
    tab.keyboard.press("ArrowUp")
    assert "held fast by you" in tab.locator("#text").text_content()
    assert loss(tab) != home


# --- the whole page ---


@pytest.mark.weekly
def test_a_link_shows_what_i_see(walk, tab):
    opened(tab, walk)
    tab.select_option("#with", str(TITLES.index("GELU")))
    tab.evaluate("twelve.set('src_embedding.weight', [2, 1], 1.5)")
    tab.evaluate("twelve.set('memory', [1, 0, 0], -0.5)")
    choose(tab, "decoder_output", 7)
    until(tab, "location.hash.includes('decoder_output') && location.hash.includes('memory')")
    address, text = tab.evaluate("location.hash"), tab.locator("#number").inner_text()
    before = numbers(tab)
    tab.goto("about:blank")
    opened(tab, walk, address)
    assert torch.equal(numbers(tab), before)
    assert tab.locator("#name").inner_text() == "decoder_output, <start>, d_model 1"
    own = "\n".join(line for line in text.splitlines() if "→" not in line)
    assert tab.locator("#text").inner_text() in own
    assert tab.locator("#beside").inner_text() == "GELU"
    expect(tab.locator("#notice")).to_be_hidden()


@pytest.mark.weekly
def test_a_broken_address_is_told_and_the_rest_is_shown(walk, tab):
    opened(tab, walk, "#run=4&set.src=0:99&set.memory=0:1&at=nothing:0")
    notice = (
        "The address names what this page does not have; it was left out: set.src, at=nothing:0."
    )
    assert tab.locator("#notice").inner_text() == notice
    assert tab.locator("#runs").input_value() == "4"
    assert tab.evaluate("[twelve.get('src', [0, 0]), twelve.get('memory', [0, 0, 0])]") == [0, 1]


@pytest.mark.weekly
@pytest.mark.parametrize("title", [FIRST, SISTER])
def test_the_tour_has_eight_stops(walk, tab, title):
    run = f"#run={TITLES.index(title)}"
    opened(tab, walk, run)
    tab.locator("#tour-open").click()
    seen = []
    for number in range(1, 9):
        where = tab.locator("#tour-where").inner_text()
        assert where.startswith(f"{number} of 8: ")
        assert tab.locator("#tour-text").inner_text().count(". ") <= 1
        expect(tab.locator("section.lit")).to_have_count(1)
        expect(tab.locator("section.lit")).to_be_in_viewport()
        assert tab.locator("#number [aria-current], #cells [aria-current]").count() >= 1
        seen.append((where, tab.locator("#name").inner_text()))
        if number == 4:
            until(tab, "location.hash.includes('tour=3')")
        tab.keyboard.press("Enter")  # the focus is on Next
    assert len(set(seen)) == 8 and tab.locator("#tour").is_hidden()
    opened(tab, walk, f"{run}&tour=3")
    assert tab.locator("#tour-where").inner_text() == seen[3][0]
    tab.locator("#tour-back").click()
    assert tab.locator("#tour-where").inner_text() == seen[2][0]
    tab.keyboard.press("Escape")
    assert tab.locator("#tour").is_hidden() and tab.locator("section.lit").count() == 0


@pytest.mark.weekly
def test_the_tour_of_the_sister_lets_a_word_see_the_future(walk, tab):
    opened(tab, walk, f"#run={TITLES.index(SISTER)}&tour=3")
    assert "which word follows" in tab.locator("#lead").inner_text()
    assert tab.locator("#name").inner_text() == "mask, query dog, key fish"
    assert tab.locator("#mask caption").all_inner_texts() == ["batch 0", "batch 1"]
    tab.locator("#mask [aria-current]").click()
    here = Run(SISTER)
    here.changed["mask", 5] = 1
    wanted = here.numbers()
    assert differences(SISTER, *numbers(tab, SISTER), wanted) == []
    dog = wanted[f"{LAYER}.weights"][0][1, :, 0].flatten().tolist()
    shown = tab.locator("#looking-back table").nth(1).locator("tbody tr").nth(0).locator(".n")
    assert shown.all_inner_texts() == [f"{weight:.2f}" for weight in dog]
    # A tour belongs to its model.
    tab.select_option("#runs", FIRST)
    assert tab.locator("#tour").is_hidden() and tab.locator("#tour-open").is_visible()
    assert "each sentence backwards" in tab.locator("#lead").inner_text()


@pytest.mark.weekly
def test_two_configurations_stand_side_by_side(walk, tab):
    opened(tab, walk)
    tab.evaluate("twelve.set('src_embedding.weight', [2, 1], 1.5)")
    tab.select_option("#with", str(TITLES.index("GELU")))
    here, other = Run(FIRST), Run("GELU")
    for run in (here, other):
        run.changed["src_embedding.weight", 7] = 1.5
    here, other = here.trace()[0], other.trace(explain=True)[0]
    both = zip(*(run["memory"].value.flatten().tolist() for run in (here, other)), strict=True)
    wanted = [f"{format_number(a)}\n{format_number(b)}" for a, b in both]
    assert tab.locator("#memory td .n").all_inner_texts() == wanted
    choose(tab, "memory", 8)
    assert tab.locator("#beside").inner_text() == "GELU"
    beside = tab.locator("#beside + pre").text_content()
    assert beside.splitlines() == other["memory"].explain(1, 0, 2).text.splitlines()[1:]
    tab.select_option("#with", str(TITLES.index("1 head of width 3")))
    assert tab.locator("#encoder td .n small").first.inner_text() == "–"
    choose(tab, f"{ATTENTION}.weights", 3)
    assert tab.locator("#beside + pre").text_content() == "has no such number"


@pytest.mark.weekly
def test_a_change_goes_along_through_every_configuration(walk, tab, unchecked):
    opened(tab, walk)
    tab.evaluate("twelve.set('src_embedding.weight', [2, 1], 1.5)")
    # Backwards, the sister last: she has no such table, and loses the change.
    for title in sorted(reversed(TITLES), key=SISTER.__eq__):
        tab.select_option("#runs", title)
        here = Run(title)
        here.changed["src_embedding.weight", 7] = 1.5
        assert differences(title, *numbers(tab, title), here.numbers()) == []


@pytest.mark.weekly
def test_a_page_is_open_to_everybody_in_the_light_and_in_the_dark(walk, tab):
    colours = ("color-contrast", "link-in-text-block")
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    opened(tab, walk)
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    assert grave(tab) == []
    tab.evaluate("twelve.set('memory', [1, 0, 0], -0.5)")
    choose(tab, f"{ATTENTION}.masked_scores", 3)
    tab.select_option("#with", str(TITLES.index("GELU")))
    tab.locator("#tour-open").click()
    assert grave(tab) == []
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    until(tab, "document.documentElement.dataset.theme === 'dark'")
    assert tab.evaluate("getComputedStyle(document.body).colorScheme") == "dark"
    assert grave(tab, *colours) == []
    tab.set_viewport_size({"width": 390, "height": 844})
    assert grave(tab, *colours) == []


@pytest.mark.weekly
def test_nothing_moves_by_itself_where_the_reader_asked_for_rest(walk, tab):
    duration = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
    opened(tab, walk)
    assert tab.evaluate(duration) == "0.12s"
    tab.emulate_media(reduced_motion="reduce")
    assert tab.evaluate(duration) == "0s"
    running = """() => { twelve.set('src_embedding.weight', [2, 1], -3);
      return document.getAnimations().length; }"""
    assert tab.evaluate(running) == 0


@pytest.mark.weekly
def test_a_change_is_said_aloud(walk, tab):
    opened(tab, walk)
    said = tab.locator("#said")
    assert said.get_attribute("aria-live") == "polite" and said.inner_text() == ""
    first = loss(tab)
    choose(tab, "memory", 6)
    tab.locator("#words select").nth(2).select_option("1")
    value = tab.evaluate("twelve.get('memory', [1, 0, 0])")
    expect(said).to_contain_text(
        f"memory, cat, d_model 0 is {value:.4f}; loss {loss(tab):.4f}, before {first:.4f}"
    )
    assert tab.locator("#words input.n").first.get_attribute("aria-valuenow") == "0"


# --- other pages ---


@pytest.mark.weekly
def test_each_word_stands_beside_its_face_and_another_word_beside_another(walk, tab):
    opened(tab, walk)
    first = tab.locator("#words .token").nth(1)
    faces = "e => [...e.querySelectorAll('use')].map(use => use.getAttribute('href'))"
    assert first.evaluate(faces) == ["#face-cat"]
    assert tab.locator("#words .token").nth(0).evaluate(faces) == []
    heads = tab.locator("#encoder thead").nth(0)
    assert heads.evaluate(faces) == ["#face-cat"] * 3
    assert heads.locator(".face").first.bounding_box()["width"] > 10
    first.locator("select").select_option(label="fish")
    assert first.evaluate(faces) == ["#face-fish"]
    assert heads.evaluate(faces) == ["#face-fish"] * 3
    assert heads.locator("th", has_text="fish").count() == 3
    assert set(tab.locator("#prediction").evaluate(faces)) == {
        f"#face-{word}" for word in ("cat", "dog", "fish")
    }


@pytest.mark.weekly
def test_words_and_titles_that_look_like_markup_stay_text(tmp_path, tab):
    word = "<img src=x onerror=document.title='broken'>"
    title = "<script>document.title='broken'</script>"
    labels = {"vocab": [word, "b</script>", "${c}", "&lt;d"]}
    trace = example.trace(loss=True, on="cpu")
    opened(tab, write_explorer(tmp_path / "own.html", {title: trace, "x": trace}, labels))
    options = tab.locator("#words select").first.locator("option").all_text_contents()
    assert options == labels["vocab"]
    assert tab.locator("#runs option").first.text_content() == title
    choose(tab, "logits", 5)
    assert word in tab.locator("#cells").text_content()
    tab.select_option("#with", "1")
    tab.evaluate("twelve.set('src', [0, 1], 0)")
    until(tab, "document.querySelector('#said').textContent")
    assert tab.locator("img").count() == 0 and tab.locator("script").count() == 2
    assert tab.title() == "Twelve Numbers: change any number"


@pytest.mark.weekly
def test_the_page_of_a_model_of_my_own(tmp_path, tab):
    table, ids = TokenEmbedding(3, 2).double(), torch.tensor([[0, 2]])
    with Trace(table) as trace:
        table(ids)
    opened(tab, trace.explorer(tmp_path / "own.html", {"seq": [["<b>a</b>", "c"]]}))
    assert tab.locator("#learn").count() == 0
    assert tab.locator("#tour-open").is_hidden() and tab.locator("#lead").is_hidden()
    assert math.isnan(loss(tab))
    shown = [format_number(x) for x in table(ids).flatten().tolist()]
    cells = tab.locator("#cells button.n")
    assert cells.all_inner_texts() == shown
    heads = tab.locator("#cells th[scope=row]")
    assert heads.all_text_contents() == ["<b>a</b>", "c"]
    cells.nth(2).click()
    text = tab.locator("#text").text_content()
    assert "= weight[2, 0], the same number moved" in text and text.endswith(f"  = {shown[2]}")
    assert tab.locator("#gradient").inner_text() == "The run ends with no loss."
    tab.locator("#inputs button.n.lit").click()
    dial = tab.locator("#number input.n")
    dial.fill("2.5")
    dial.press("Enter")
    assert tab.evaluate("twelve.get('vectors', [0, 1, 0])") == 2.5
    assert tab.locator("#number .bar button").inner_text() == "As it was"
    tab.locator("#number .bar button").click()
    assert tab.evaluate("twelve.get('vectors', [0, 1, 0])") == table.weight[2, 0].item()


@pytest.mark.weekly
def test_a_part_of_the_page_switches_a_cell_of_a_mask(tmp_path, tab):
    panels = [
        {"title": "The mask", "panel": "table", "of": "tgt_mask", "dials": True},
        {"title": "Attention", "panel": "attention", "of": "decoder.layers.0.self_attention"},
    ]
    part = {"title": "Who may look", "lead": "Switch a cell.", "panels": panels}
    path = tmp_path / "part.html"
    path.write_text(page({FIRST: example.trace(loss=True, on="cpu")}, example.words, part))
    opened(tab, path)
    assert tab.locator("h1").inner_text() == "Who may look"
    assert [tab.locator(name).is_hidden() for name in ("#number", "#tensors", "#tour-open")] == [
        True, True, True,
    ]  # fmt: skip
    cells = tab.locator("button.n[data-flips]")
    assert cells.all_inner_texts() == ["True", "·", "True", "True"]
    cells.nth(1).click()
    assert cells.nth(1).get_attribute("aria-pressed") == "true"
    here = Run(FIRST)
    here.changed["tgt_mask", 1] = 1
    assert differences(FIRST, *numbers(tab), here.numbers()) == []
    assert grave(tab) == []


@pytest.mark.weekly
def test_the_console_answers_with_names_and_numbers(walk, tab):
    opened(tab, walk)
    tried = (
        """text => { try { return String(eval(text)); } catch (error) { return String(error); } }"""
    )
    assert tab.evaluate(tried, "twelve.get('memroy', [0])") == (
        'RangeError: no tensor is named "memroy"'
    )
    assert tab.evaluate(tried, "twelve.set('memory', [0, 0], 1)") == (
        "RangeError: memory has the sizes [2,2,3]; there is no element [0,0]"
    )
    for wrong in ("NaN", "'1'"):
        assert "memory takes a number, not" in tab.evaluate(
            tried, f"twelve.set('memory', [0, 0, 0], {wrong})"
        )
    for name, wrong in (("src", 4), ("src", 0.5), ("tgt", -1), ("cross_entropy.labels", -7)):
        said = tab.evaluate(tried, f"twelve.set('{name}', [0, 0], {wrong})")
        assert said.startswith(f"RangeError: {name} cannot hold {wrong}: ")
    gradient = Run(FIRST).numbers()["logits"][1][1, 0, 3].item()
    assert tab.evaluate("twelve.grad('logits', [1, 0, 3])") == pytest.approx(gradient, abs=1e-12)
