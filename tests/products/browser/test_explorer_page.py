"""The live page in a browser: mouse, touch and keys change numbers, and threads show the effect.

The fixture `tab` fails a test whose page logs an error or makes an external request. `make check`
changes numbers in every way; the weekly tests press every button. tests/products/test_explorer.py
checks the arithmetic without a browser.
"""

import base64
import random
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from playwright.sync_api import expect

from tests.products.browser.conftest import PHONE, drag, grave, swipe, until
from tests.products.pytorch_runs import ATTENTION, FIRST, LABELS, TITLES, Run, differences, layout
from tests.products.pytorch_runs import program as program_of
from twelve import TokenEmbedding, Transformer
from twelve.masks import causal_mask
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explorer import write_explorer
from twelve_lab.show.format import format_number

DECODER_ONLY = TITLES.index("decoder-only")
POST_NORM = TITLES.index("post-norm")
weekly = pytest.mark.weekly
START = ("tgt_embedding.weight", 2)  # entry 2 of <start>: adding -1.05 predicts fish
# Every value and gradient as base64-encoded float64, because Playwright reads long lists slowly.
ALL = """tensors => {
  const indexed = tensors.flatMap(([name, shape]) => shape
    .reduce((all, size) => all.flatMap(i => Array.from({length: size}, (_, n) => [...i, n])), [[]])
    .map(index => [name, index]));
  const both = ["get", "grad"].flatMap(what => indexed.map(([name, i]) => twelve[what](name, i)));
  const bytes = new Uint8Array(Float64Array.from(both).buffer);
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""));
}"""
# The size of every text below 14 pixels; a chip shows its number by colour alone, in size 0.
SMALL = """[...document.querySelectorAll("body :not(script, noscript, .unseen, .unseen *)")]
  .filter(e => e.checkVisibility())
  .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize)).filter(size => size > 0 && size < 14)"""
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Write the page with all configurations from the command line."""
    torch.set_default_dtype(torch.float64)
    path = tmp_path_factory.mktemp("explorer") / "walk.html"
    assert main(["explorer", str(path)]) == 0
    return path


def opened(tab, path, address=""):
    tab.goto(path.as_uri() + address)
    tab.wait_for_selector("body[data-ready]")
    return tab


@pytest.fixture
def explorer(tab, walk):
    """Open the page with all configurations."""
    return opened(tab, walk)


def loss(tab):
    return tab.evaluate("twelve.loss()")


def get(tab, name, index):
    return tab.evaluate("([name, index]) => twelve.get(name, index)", [name, index])


def put(tab, name, index, value):
    tab.evaluate("change => twelve.set(...change)", [name, index, value])


def index_of(name, element):
    shape = layout(FIRST)[name][1]
    return [int(i) for i in torch.unravel_index(torch.tensor(element), shape)] if shape else []


def numbers(tab, title=FIRST):
    """Return all values and gradients in program order, shape (2, count)."""
    tab.evaluate(FRAMES)
    tensors = [[name, list(shape)] for name, (_, shape) in layout(title).items()]
    packed = bytearray(base64.b64decode(tab.evaluate(ALL, tensors)))
    return torch.frombuffer(packed, dtype=torch.float64).view(2, -1)


def check_numbers(tab, changed=(), title=FIRST):
    """Compare every value and gradient with PyTorch after the same changes."""
    here = Run(title)
    here.changed = dict(changed)
    assert differences(title, numbers(tab, title), here.numbers()) == []


def home_of(place):
    """Return the tensor name and the element at a position of the program."""
    return next(
        (name, place - start)
        for name, (start, shape) in layout(FIRST).items()
        if start <= place < start + shape.numel()
    )


def places(nodes):
    """Return the program positions of the numbers that nodes of the page show."""
    return nodes.evaluate_all("all => all.map(e => +e.dataset.at)")


def place(name, *index):
    """Return the program position of a number."""
    start, shape = layout(FIRST)[name]
    return start + sum(i * shape[n + 1 :].numel() for n, i in enumerate(index))


def cell(tab, name, *index):
    """Return the node of a number on the map."""
    return tab.locator(f"#map .n[data-at='{place(name, *index)}']").first


def tool(tab, name):
    return tab.get_by_role("button", name=name, exact=True)


def answers(tab):
    """Return the words predicted for the front sentence, each with its mark, ✓ or ✗."""
    return tab.locator("p.sentence .answer").all_inner_texts()


def test_page_opens_with_words_numbers_and_loss(explorer):
    words = explorer.locator("p.sentence .read .spelled").all_inner_texts()
    assert words == example.words["src"][1]  # not the padded sentence
    assert answers(explorer) == ["cat\n✗", "dog\n✓"]
    assert explorer.locator("#stage .loss b").inner_text() == f"{loss(explorer):.4f}"
    trace = Run(FIRST).trace()[0]
    shown = explorer.locator("#stations .n").evaluate_all(
        "all => Object.fromEntries(all.map(e => [e.dataset.at, e.textContent]))"
    )
    for name in ("src_input", "memory", f"{ATTENTION}.weights", "decoder_output", "logits"):
        start, shape = layout(FIRST)[name]
        half = shape.numel() // 2  # the second sentence is in front
        texts = [float(shown[str(start + half + i)]) for i in range(half)]
        values = trace[name].value.flatten().tolist()[half:]
        assert texts == pytest.approx(values, abs=0.00501), name
    chances = trace["cross_entropy.log_probabilities"].value[1].exp().T.flatten().tolist()
    shares = explorer.locator("td.chance").evaluate_all("all => all.map(e => e.dataset.share)")
    assert shares == [f"{chance:.0%}" for chance in chances]
    check_numbers(explorer)


# Changes.


KEYS = [("+", 0.1), ("-", -0.1), ("PageDown", -1)]
GIVEN = [tensor["name"] for tensor in program_of(FIRST)["tensors"] if "numbers" in tensor]


def some(tab, choice, kind, names=(*GIVEN, "memory", "src_mask")):
    """Choose a random number on the page that PyTorch can change too."""
    nodes = tab.locator(kind)
    homes = [home_of(place) for place in places(nodes)]
    number = choice.choice([i for i, (name, _) in enumerate(homes) if name in names])
    name, element = homes[number]
    return nodes.nth(number), name, element, get(tab, name, index_of(name, element))


def change_cell(tab, choice, way):
    node, name, element, before = some(tab, choice, "#stations .n:not([aria-pressed])")
    if way == "type":
        wanted = round(choice.uniform(-3, 3), 3)
        node.click()
        field = tab.locator("#stations input.n")
        field.fill(str(wanted).replace(".", choice.choice(".,")))
        field.press(choice.choice(["Enter", "Tab"]))
        tab.keyboard.press("Escape")
    elif way == "arrow":
        key, step = choice.choice(KEYS)
        node.press(key)
        wanted = before + step
    else:
        pixels = choice.choice([-1, 1]) * choice.randrange(20, 120)
        drag(tab, node, pixels)
        wanted = before + pixels * 0.01
    return name, element, pytest.approx(wanted, abs=6e-4)


def change_word(tab, choice, _):
    side, name = choice.choice([("#src", "src"), ("#tgt", "tgt"), ("#next", LABELS)])
    element, value = choice.randrange(2), choice.randrange(4)
    tab.locator(f"{side} select").nth(element).select_option(str(value))
    return name, 2 + element, value


def change_mask(tab, choice, _):
    node, name, element, before = some(tab, choice, "#stations .n[aria-pressed]")
    node.click()
    return name, element, 1 - before


def change_listed(tab, choice, _):
    """Choose a weight in the list of all tensors, and move its slider."""
    weights = [tensor["name"] for tensor in program_of(FIRST)["tensors"] if tensor["weight"]]
    tab.evaluate("document.querySelector('#tensors').open = true")
    node, name, element, before = some(tab, choice, "#tensors .n", weights)
    node.click()
    tab.locator("#about input[type=range]").press(choice.choice(["ArrowRight", "PageUp", "Home"]))
    tab.evaluate(FRAMES)
    tab.evaluate("document.querySelector('#tensors').open = false")
    after = get(tab, name, index_of(name, element))
    assert after != before
    return name, element, after


WAYS = {"type": change_cell, "arrow": change_cell, "drag": change_cell, "word": change_word,
        "slide": change_listed, "mask": change_mask}  # fmt: skip


def test_changes_by_hand_give_the_numbers_and_gradients_of_pytorch(explorer, unchecked):
    choice, changed = random.Random(12), {}
    for way, change in WAYS.items():
        before = dict(changed)
        name, element, wanted = change(explorer, choice, way)
        value = get(explorer, name, index_of(name, element))
        assert value == wanted, way
        changed[name, element] = value
        check_numbers(explorer, changed)
        if way == "drag":
            tool(explorer, "Undo").click()
            changed = before
            check_numbers(explorer, changed)


@weekly
def test_input_that_is_no_number_is_refused_and_escape_restores_the_number(explorer):
    home = loss(explorer)
    cell(explorer, "src_embedding.weight", 2, 0).click()
    field = explorer.locator("#stations input.n")
    for written in ("dog", "", "1e999"):
        field.fill(written)
        field.press("Enter")
        expect(explorer.locator("#notice")).to_contain_text(f"“{written}” is no number")
        assert loss(explorer) == home and field.input_value() == "0.7000"
    field.fill("5")
    field.press("Enter")
    expect(explorer.locator("#notice")).to_be_hidden()
    assert loss(explorer) != home and field.input_value() == "5.0000"
    field.fill("6")
    field.press("Escape")
    assert get(explorer, "src_embedding.weight", [2, 0]) == 5
    assert cell(explorer, "src_embedding.weight", 2, 0).evaluate("e => e.tagName") == "BUTTON"


def test_undo_restores_one_change_and_start_again_all_without_marks(explorer):
    losses = [loss(explorer)]
    assert tool(explorer, "Undo").is_disabled() and tool(explorer, "Start again").is_disabled()
    for value in (1.5, -2.0):
        put(explorer, "src_embedding.weight", [2, 1], value)
        losses.append(loss(explorer))
        assert explorer.locator(".n.moved").count() > 30
    explorer.keyboard.press("Control+z")
    assert loss(explorer) == losses[1]
    tool(explorer, "Start again").click()
    assert loss(explorer) == losses[0] and tool(explorer, "Start again").is_disabled()
    assert explorer.locator(".n.moved").count() == 0
    for before in (losses[1], losses[0]):
        tool(explorer, "Undo").click()
        assert loss(explorer) == before
    assert tool(explorer, "Undo").is_disabled() and explorer.locator(".n.moved").count() == 0


@weekly
def test_before_shows_one_earlier_moment(explorer):
    dog = place("src_embedding.weight", 2, 0)
    cell(explorer, "src_input", 1, 0, 0).click()
    formula = explorer.locator("#formula")
    assert formula.inner_text() == "0.7000 = 0.7000 + 0.0000"
    explorer.locator("#src select").first.select_option("cat")
    assert formula.inner_text() == "0.8200 = 0.8200 + 0.0000"
    row = explorer.locator("#src .tokens tbody tr").first.locator(".n").first
    assert float(row.text_content()) == 0.82
    explorer.locator("h1").click()
    explorer.keyboard.down("b")
    assert explorer.locator("#src select").first.input_value() == "2"
    assert float(row.text_content()) == 0.7
    assert row.get_attribute("data-at") == str(dog)
    assert formula.inner_text() == "0.7000 = 0.7000 + 0.0000"
    assert explorer.locator("#text").inner_text().endswith("= 0.7000")
    assert explorer.locator("p.sentence .read").inner_text().split() == ["dog", "fish"]
    explorer.keyboard.up("b")
    assert explorer.locator("p.sentence .read").inner_text().split() == ["cat", "fish"]


@weekly
def test_teaching_runs_stops_keeps_its_layout_and_can_be_undone(explorer):
    home, loss_cell = loss(explorer), cell(explorer, "cross_entropy.loss")
    tops = "all => all.map(e => e.getBoundingClientRect().top)"
    verdicts = explorer.locator("td.verdict")
    before = verdicts.evaluate_all(tops)
    tool(explorer, "One step").click()
    step = loss(explorer)
    teach = explorer.locator("#stage .teach")
    teach.click()
    expect(teach).to_have_text("Stop")
    until(explorer, "twelve.loss() < 0.5")
    assert verdicts.evaluate_all(tops) == before
    teach.click()
    expect(teach).to_have_text("Teach it")
    after = loss(explorer)
    explorer.evaluate(FRAMES)
    assert loss(explorer) == after < step < home
    points = explorer.locator(".spark polyline").get_attribute("points").split()
    assert len(points) == explorer.evaluate("twelve.steps()") + 1 > 10
    teach.click()
    taught(explorer)
    assert loss(explorer) < 0.05 and answers(explorer) == ["fish\n✓", "dog\n✓"]
    # The colour of the loss is relative to the loss of a blind guess, ln 4.
    assert loss_cell.evaluate("e => parseInt(e.style.getPropertyValue('--f'))") < 5
    expect(explorer.locator(".spark .guess")).to_have_text("blind guess")
    for _ in range(3):
        tool(explorer, "Undo").click()
    assert loss(explorer) == home


# Threads.


def threads(tab):
    """Return the kind and the width of each thread."""
    tab.evaluate(FRAMES)
    paths = tab.locator("#threads path")
    return paths.evaluate_all("all => all.map(e => [e.getAttribute('class'), e.style.strokeWidth])")


def test_threads_at_rest_show_the_attention_weights(explorer):
    trace = Run(FIRST).trace()[0]
    names = [ATTENTION, "decoder.layers.0.self_attention", "decoder.layers.0.cross_attention"]
    weights = torch.cat([trace[f"{name}.weights"].value[1].flatten() for name in names])
    wanted = sorted(5 * weight for weight in weights.tolist() if weight > 0.02)
    arcs = threads(explorer)
    assert {kind for kind, _ in arcs} == {"arc"}
    assert sorted(float(width[:-2]) for _, width in arcs) == pytest.approx(wanted, abs=0.01)


@weekly
def test_hover_pulls_threads_as_wide_as_the_slopes(explorer):
    index = (1, 0, 1)
    cell(explorer, "decoder_output", *index).hover()
    pulled = threads(explorer)
    assert 10 < len(pulled) <= 40 and {kind for kind, _ in pulled} == {"raises", "lowers"}
    assert 6.9 < max(float(width[:-2]) for _, width in pulled) <= 7
    assert explorer.locator("#here").inner_text() == "decoder_output: <start>, number 1 = 0.2431"
    assert explorer.locator("#caption").inner_text() == (
        "What “decoder_output: <start>, number 1” depends on: raises it lowers it"
    )
    # The label gives the slope with respect to the most influential number.
    tip = explorer.locator("#tip").inner_text()
    slope = float(re.fullmatch(r"\+0\.1 here moves it by ([+-]0\.\d{3})", tip)[1]) / 0.1
    before = get(explorer, "decoder_output", list(index))
    changes = []
    for name, element in map(home_of, places(explorer.locator("#stations .n.on"))):
        where = index_of(name, element)
        value = get(explorer, name, where)
        put(explorer, name, where, value + 1e-6)
        changes.append((get(explorer, "decoder_output", list(index)) - before) / 1e-6)
        put(explorer, name, where, value)
    changes = [change for change in changes if abs(change - 1) > 1e-6]  # the number itself
    assert max(changes, key=abs) == pytest.approx(slope, abs=0.006)


@weekly
def test_hover_over_a_given_number_pushes_threads_to_what_it_changes(explorer):
    name, index = "src_embedding.weight", [2, 0]
    cell(explorer, name, *index).hover()
    pushed = threads(explorer)
    assert 10 < len(pushed) <= 40 and {kind for kind, _ in pushed} == {"raises", "lowers"}
    caption = explorer.locator("#caption").inner_text()
    assert caption == "What +0.1 in “table: dog, number 0” changes: rises falls"
    lit = explorer.locator("#stations .n.on").evaluate_all("all => all.map(e => +e.dataset.at)")
    before = numbers(explorer)[0]
    put(explorer, name, index, 0.7 + 0.1)
    largest = (numbers(explorer)[0] - before)[lit].abs().max().item()
    tool(explorer, "Undo").click()
    cell(explorer, name, *index).hover()
    explorer.evaluate(FRAMES)
    tip = float(explorer.locator("#tip").inner_text())
    assert abs(tip) == pytest.approx(largest, abs=5e-4)
    # An entry of a mask is a button: its threads show the effect of a press.
    cell(explorer, "src_mask", 1, 0, 0, 1).hover()
    assert len(threads(explorer)) > 10
    pressed = explorer.locator("#caption").inner_text()
    assert pressed == "What follows if “src_mask: fish” is pressed: rises falls"


def test_drag_pushes_threads_forwards_and_the_word_follows(explorer):
    drag(explorer, cell(explorer, START[0], 0, START[1]), -105, drop=False)
    pushed = threads(explorer)
    assert 10 < len(pushed) <= 40
    delays = explorer.locator("#threads path").evaluate_all(
        "all => all.map(e => parseInt(e.style.getPropertyValue('--delay')))"
    )
    assert min(delays) == 0 and max(delays) >= 300  # the pulse travels from station to station
    assert explorer.locator("#caption").inner_text() == (
        "What follows from “target table: <pad>, number 2”: rises falls"
    )
    assert answers(explorer)[0] == "cat\n✗"
    expect(explorer.locator("p.sentence .answer").first).to_have_text("fish✓")
    explorer.mouse.up()
    expect(explorer.locator("#dare-say")).to_have_class(re.compile("done"))


def test_reduced_motion_shows_threads_without_a_pulse(tab, walk):
    tab.emulate_media(reduced_motion="reduce")
    opened(tab, walk)
    drag(tab, cell(tab, START[0], 0, START[1]), -105, drop=False)
    assert len(threads(tab)) > 10 and answers(tab)[0] == "fish\n✓"
    assert tab.evaluate("document.getAnimations().length") == 0
    tab.mouse.up()


@weekly
def test_teaching_pulls_threads_from_the_loss_to_the_weights(explorer):
    explorer.locator(".rate").fill("0.001")
    explorer.locator("#stage .teach").click()
    explorer.mouse.move(5, 5)
    pulled = threads(explorer)
    lit = places(explorer.locator("#stations .n.on"))
    weights = {tensor["name"] for tensor in program_of(FIRST)["tensors"] if tensor["weight"]}
    assert len(pulled) > 10 and {home_of(place)[0] for place in lit} <= weights | {
        "cross_entropy.loss"
    }
    explorer.locator("#stage .teach").click()


# The chosen number.


def test_click_opens_the_station_and_writes_the_formula_without_scrolling(tab, walk):
    tab.set_viewport_size({"width": 1440, "height": 900})
    opened(tab, walk)
    cell(tab, "memory", 1, 0, 1).click()
    assert tab.evaluate("scrollY") == 0
    station = tab.locator(".station.open")
    assert station.locator("h3").inner_text() == "Feed-forward"
    memory = Run(FIRST).trace()[0]["memory"].value[1].flatten().tolist()
    values = station.locator(".stream .n").evaluate_all(
        "all => all.map(e => e.value || e.textContent)"
    )
    assert values == [format_number(value) for value in memory]
    formula = station.locator("#formula")
    assert formula.inner_text() == "1.3128 = 1.3128·1.0000 + 0.0000"
    factors = formula.locator("button")
    assert factors.count() == 3
    factors.first.click()
    assert tab.locator("#name").inner_text() == "encoder norm.normalized: dog, number 1"
    assert tab.evaluate("scrollY") == 0
    tab.keyboard.press("Escape")
    assert tab.locator(".station.open").count() == 0 and tab.locator("#about").is_hidden()


def test_all_about_a_number_has_no_empty_section(explorer):
    cell(explorer, "src_embedding.weight", 2, 0).click()
    about = explorer.locator("#about")
    assert about.locator("#name").inner_text() == "table: dog, number 0"
    headings = about.locator("h3:visible").all_inner_texts()
    assert headings == [
        "Its threads: +0.1 in it changes", "Used by", "Gradient of the loss",
    ]  # fmt: skip
    users = about.locator("#users li").all_inner_texts()
    assert users == ["src_embedding.vectors: dog, number 0 0.7000"]  # not <pad>, cat and fish
    gradient = Run(FIRST).numbers()[1, place("src_embedding.weight", 2, 0)].item()
    assert about.locator("#gradient").inner_text().startswith(f"= {gradient:.4f}, the sum of")
    about.locator("#users button").click()
    assert about.locator("#text").text_content().splitlines()[1:] == [
        "  copied from weight[2, 0]", "  = 0.7000",
    ]  # fmt: skip
    assert about.locator("#sources li").all_inner_texts() == ["table: dog, number 0 0.7000"]
    cell(explorer, "decoder_output", 1, 1, 0).click()
    rows = about.locator("#slopes li").all_inner_texts()
    assert rows and all(re.search(r" [+-]0\.\d{3}$", row) for row in rows[:-1])


def test_change_is_announced_to_screen_readers(explorer):
    spoken, first = explorer.locator("#said"), loss(explorer)
    assert spoken.get_attribute("aria-live") == "polite"
    cell(explorer, "memory", 1, 0, 0).click()
    explorer.locator("#src select").first.select_option("1")
    value = get(explorer, "memory", [1, 0, 0])
    expect(spoken).to_contain_text(
        f"memory: cat, number 0 is {value:.4f}; loss {loss(explorer):.4f}, before {first:.4f}; "
        "✗ says cat, should say fish; ✓ says dog"
    )


# Dares, by mouse, touch and keys.


def reach(tab, node):
    """Move the focus to a node by Tab and arrow keys."""
    box, active = "e => e.getBoundingClientRect().toJSON()", "document.activeElement"
    group = node.evaluate_handle("e => e.closest('.tables') ?? e")
    for _ in range(120):
        tab.keyboard.press("Tab")
        if group.evaluate(f"e => e === {active} || e.contains({active}) && {active}.matches('.n')"):
            break
    for _ in range(30):
        if node.evaluate(f"e => e === {active}"):
            return
        here, there = (tab.evaluate(f"({box})({active})"), node.evaluate(box))
        down, right = there["y"] - here["y"], there["x"] - here["x"]
        key = ("ArrowDown" if down > 0 else "ArrowUp") if abs(down) > 8 else (
            "ArrowRight" if right > 0 else "ArrowLeft")  # fmt: skip
        tab.keyboard.press(key)
    pytest.fail("the keys do not reach the number")


class Mouse:
    def __init__(self, tab):
        self.tab = tab

    def press(self, node):
        node.click()

    def add(self, node, amount):
        drag(self.tab, node, round(100 * amount))

    def fill(self, node, text):
        self.press(node)
        self.tab.keyboard.press("Control+a")
        self.tab.keyboard.type(text)

    def select(self, node, number):
        self.press(node)
        for _ in range(number):
            self.tab.keyboard.press("ArrowDown")
        self.tab.keyboard.press("Enter")


class Touch(Mouse):
    def press(self, node):
        node.tap()

    def add(self, node, amount):
        swipe(self.tab, node, 100 * amount)
        self.tab.evaluate(FRAMES)  # a tap in the same frame would continue the drag


class Keys(Mouse):
    def press(self, node):
        reach(self.tab, node)
        self.tab.keyboard.press("Enter")

    def add(self, node, amount):
        reach(self.tab, node)
        for _ in range(round(abs(amount) / 0.1)):
            self.tab.keyboard.press("+" if amount > 0 else "-")


def taught(tab):
    until(tab, "twelve.loss() <= 0.05")
    expect(tab.locator("#stage .teach")).to_have_text("Teach it")


@contextmanager
def tools_shown(tab, hand):
    """Open the sheet with the tools if the screen is a phone's, and close it afterwards."""
    sheet = tab.locator("#sheet")
    if hidden := sheet.is_visible():
        hand.press(sheet)
    yield
    if hidden:
        hand.press(sheet)


def solve(tab, hand):
    """Solve the dares; yield the name of each solved dare."""
    teach, rate = tab.locator("#stage .teach"), tab.locator(".rate")
    hand.add(cell(tab, START[0], 0, START[1]), -1.1)
    yield "say"
    hand.press(tab.locator("button.sentence"))
    hand.add(cell(tab, "src_embedding.weight", 0, 1), 0.5)
    yield "nothing"
    hand.press(tab.locator("button.sentence"))
    hand.press(cell(tab, "src_mask", 1, 0, 0, 1))
    yield "hide"
    hand.press(teach)
    taught(tab)
    yield "teach"
    with tools_shown(tab, hand):
        hand.fill(rate, "0.7")
    hand.press(teach)
    taught(tab)
    yield "fast"
    with tools_shown(tab, hand):
        hand.fill(rate, "1")
        hand.press(tool(tab, "One step"))
    yield "leap"
    with tools_shown(tab, hand):
        hand.fill(rate, "0.3")
    hand.press(teach)
    taught(tab)
    hand.add(cell(tab, "output_projection.weight", 1, 2), 1)
    yield "unteach"
    with tools_shown(tab, hand):
        hand.select(tab.locator("#runs"), POST_NORM)
    yield "norm"


@weekly
@pytest.mark.parametrize(
    ("hand", "size"),
    [
        (Mouse, {"width": 1440, "height": 900}),
        (Touch, PHONE),
        (Keys, {"width": 1280, "height": 720}),
    ],
)
def test_every_dare_can_be_solved(browser, walk, hand, size):
    context = browser.new_context(viewport=size, has_touch=True)
    tab = opened(context.new_page(), walk)
    expect(tab.locator("#dares .current")).to_be_in_viewport(ratio=1)
    hand, solved = hand(tab), []
    for id in solve(tab, hand):
        expect(tab.locator(f"#dare-{id}.done .happy")).to_have_count(1)
        solved.append(id)
        assert tab.locator("#dares li.done").count() == len(solved), solved
        with tools_shown(tab, hand):
            if (again := tool(tab, "Start again")).is_enabled():
                hand.press(again)
    assert tab.locator("#dares li").count() == len(solved) == 8
    assert re.search(r"Why\? 05 masks", tab.locator("#dare-hide").text_content())
    tab.reload()
    tab.wait_for_selector("body[data-ready]")
    assert tab.locator("#dares li.done").count() == 8
    context.close()


@weekly
def test_dare_for_an_untouched_model_offers_a_fresh_start(explorer):
    fresh = explorer.locator("#dares .current .again")
    expect(fresh).to_be_hidden()
    tool(explorer, "One step").click()
    fresh.click()
    expect(fresh).to_be_hidden()
    assert explorer.evaluate("twelve.steps()") == 0
    expect(explorer.locator("#name")).to_have_text("logits: <start>, fish")


# The whole page.


@weekly
def test_link_restores_the_page_after_a_reload(explorer, walk):
    put(explorer, "src_embedding.weight", [2, 0], 1.87)
    explorer.locator("#stage .teach").click()
    until(explorer, "twelve.steps() > 20")
    explorer.locator("#stage .teach").click()
    cell(explorer, "memory", 1, 0, 0).click()
    until(explorer, "location.hash.includes('at=memory')")
    address, before = explorer.evaluate("location.hash"), numbers(explorer)
    assert re.fullmatch(r"#w=6:1\.87&l=\d+x0\.3&at=memory:6", address)
    explorer.reload()
    explorer.wait_for_selector("body[data-ready]")
    assert torch.equal(numbers(explorer), before)
    assert explorer.locator("#name").inner_text() == "memory: dog, number 0"
    opened(explorer, walk, "#at=memory:3")  # of the padded sentence
    assert explorer.locator("p.sentence .read").inner_text().split() == ["<pad>", "cat"]
    explorer.goto("about:blank")
    opened(explorer, walk, "#run=4&n=src:0:99&n=memory:0:1")
    assert explorer.locator("#notice").inner_text().endswith("left out: n=src:0:99.")
    assert (get(explorer, "src", [0, 0]), get(explorer, "memory", [0, 0, 0])) == (0, 1)


@weekly
def test_save_picture_paints_1200_by_630(explorer):
    cell(explorer, "memory", 1, 0, 0).click()
    with explorer.expect_download() as download:
        tool(explorer, "Save picture").click()
    picture = imread(download.value.path())
    assert picture.shape[:2] == (630, 1200)
    assert len(np.unique((picture[130:560, :, :3] * 255).reshape(-1, 3).round(), axis=0)) > 300


@weekly
def test_model_is_exchanged_and_moved_numbers_are_marked(explorer, unchecked):
    put(explorer, "src_embedding.weight", [2, 1], 1.5)
    explorer.select_option("#runs", "post-norm")
    check_numbers(explorer, {("src_embedding.weight", 7): 1.5}, "post-norm")
    assert explorer.locator("#memory, .n.moved").count() > 30
    drag(explorer, cell(explorer, "src_embedding.weight", 2, 1), 30)
    tool(explorer, "Undo").click()
    explorer.mouse.move(5, 5)  # removes the threads of the drag
    assert {kind for kind, _ in threads(explorer)} == {"arc"}
    tool(explorer, "Undo").click()
    assert explorer.locator("#runs").input_value() == "0"
    check_numbers(explorer, {("src_embedding.weight", 7): 1.5})


@pytest.mark.parametrize("width", [1440, 1280, pytest.param(1024, marks=weekly), 390])
def test_first_screen_shows_what_to_do(tab, walk, width):
    tab.set_viewport_size({"width": width, "height": 844 if width == 390 else 900})
    opened(tab, walk)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    for part in ("p.sentence", "#stage .teach", "#dares .current", "#src .n >> nth=0"):
        expect(tab.locator(part)).to_be_in_viewport(ratio=1)
    assert tab.evaluate(SMALL) == []
    assert tab.locator("#map").evaluate("e => e.scrollWidth - e.clientWidth") == 0
    assert tab.locator("#stage").bounding_box()["height"] <= (96 if width == 390 else 56.5)
    if width == 1440:
        for station in tab.locator(".station").all():
            expect(station).to_be_in_viewport(ratio=0.95)
    tab.evaluate("scrollTo(0, 400)")
    expect(tab.locator("#stage .teach")).to_be_in_viewport(ratio=1)


@weekly
def test_sheet_of_a_phone_shows_the_chosen_number(tab, walk):
    tab.set_viewport_size(PHONE)
    opened(tab, walk)
    node = cell(tab, "memory", 1, 0, 0)
    node.click()
    expect(tab.locator("#name")).to_be_in_viewport(ratio=1)
    expect(tab.locator("#formula")).to_be_in_viewport(ratio=1)
    expect(node).to_be_in_viewport(ratio=1)
    assert node.bounding_box()["y"] + 20 < tab.locator("#side").bounding_box()["y"]
    tab.locator("#about .close").click()
    tab.locator("#sheet").click()
    expect(tab.locator("#runs")).to_be_in_viewport(ratio=1)
    assert tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=weekly)])
def test_page_has_no_serious_axe_violation_in_light_and_dark(tab, walk, width):
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    tab.set_viewport_size({"width": width, "height": 900})
    opened(tab, walk, "#w=6:1.87&l=20x0.3&n=tgt_mask:1:1&n=memory:8:0.5")
    assert grave(tab) == []
    cell(tab, "decoder.layers.0.cross_attention.weights", 1, 0, 0, 1).click()
    assert grave(tab) == []
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    until(tab, "document.documentElement.dataset.theme === 'dark'")
    assert grave(tab, "color-contrast", "link-in-text-block") == []
    tab.keyboard.press("Escape")
    assert grave(tab, "color-contrast") == []


# Other pages.


def test_words_and_titles_that_look_like_markup_stay_text(tmp_path, tab):
    word = "<img src=x onerror=document.title='broken'>"
    title = "<script>document.title='broken'</script>"
    labels = {"vocab": [word, "b</script>", "${c}", "&lt;d"]}
    trace = example.trace(loss=True, on="cpu")
    opened(tab, write_explorer(tmp_path / "own.html", {title: trace, "x": trace}, labels))
    options = tab.locator("#src select").first.locator("option").all_text_contents()
    assert options == labels["vocab"]
    assert tab.locator("#runs option").first.text_content() == title
    assert word in tab.locator("#next").text_content()
    assert tab.locator("img").count() == 0 and tab.locator("script").count() == 2
    assert tab.title() == "Twelve Numbers: pull a thread"
    assert tab.locator("#dares").is_hidden()  # they belong to the course


@weekly
def test_decoder_only_model_has_one_lane(tab, walk):
    opened(tab, walk, f"#run={DECODER_ONLY}")
    titles = tab.locator(".station h3").all_inner_texts()
    assert titles == ["Words", "Self-attention", "Feed-forward", "Next word"]
    assert {kind for kind, _ in threads(tab)} == {"arc"}
    tab.locator("#next td.chance .n").first.click()
    assert tab.locator("#formula button").count() == 6


@weekly
def test_larger_model_of_a_reader_has_a_station_for_each_sublayer(tmp_path, tab):
    model = Transformer(6, 6, d_model=4, num_heads=2, d_ff=5, num_layers=2, max_len=8).eval()
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    with Trace(model.double()) as trace:
        trace.graph.tape.label(ids, "src", ("batch", "src"))
        trace.graph.tape.label(ids[:, :3], "tgt", ("batch", "tgt"))
        model(ids, ids[:, :3], tgt_mask=causal_mask(3))
    opened(tab, trace.explorer(tmp_path / "own.html"))
    lanes = tab.locator(".station").evaluate_all(
        "all => all.map(e => e.style.getPropertyValue('--row'))"
    )
    assert lanes == ["1"] * 5 + ["2"] * 6
    drag(tab, tab.locator("#stations .weights .n").first, 80)
    assert len(threads(tab)) > 10
    assert tab.locator("#stage .teach").count() == 0


@weekly
def test_page_of_an_own_model_without_loss(tmp_path, tab):
    table, ids = TokenEmbedding(3, 2).double(), torch.tensor([[0, 2]])
    with Trace(table) as trace:
        table(ids)
    opened(tab, trace.explorer(tmp_path / "own.html", {"seq": [["<b>a</b>", "c"]]}))
    assert tab.locator("#stage .teach").count() == 0
    assert tab.locator("#stations th[scope=row]").all_text_contents() == ["<b>a</b>", "c"]
    tools, title = (tab.locator(part).bounding_box() for part in ("#tools", ".station h3"))
    assert tools["y"] + tools["height"] <= title["y"]
    tab.locator("#stations .n").nth(2).click()
    assert tab.locator("#gradient").is_hidden()  # the run has no loss
    tab.locator("#sources button").click()
    tab.locator("#about input.n").fill("2.5")
    tab.locator("#about input.n").press("Enter")
    assert get(tab, "vectors", [0, 1, 0]) == 2.5
    tab.locator("#about .bar button", has_text="As it was").click()
    assert get(tab, "vectors", [0, 1, 0]) == table.weight[2, 0].item()
