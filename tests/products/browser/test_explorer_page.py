"""The live page in a real browser: numbers change by mouse and keys, and everything follows.

The fixture `tab` fails a test whose page logs an error or makes a request. `make check` changes
numbers in every way; the weekly tests press every button. tests/products/test_explorer.py checks
the arithmetic without a browser.
"""

import base64
import random
import re

import pytest
import torch
from playwright.sync_api import expect

from tests.products.browser.conftest import grave
from tests.products.pytorch_runs import ATTENTION, FIRST, LABELS, TITLES, Run, differences, layout
from tests.products.pytorch_runs import program as program_of
from twelve import TokenEmbedding
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explorer import write_explorer
from twelve_lab.show.format import format_number

DECODER_ONLY, GELU = "decoder-only", TITLES.index("GELU")
weekly = pytest.mark.weekly
DIALS = "#words input.n, #target input.n"
# Every value and gradient as base64-encoded float64: Playwright is slow to read long lists.
ALL = """tensors => {
  const indexed = tensors.flatMap(([name, shape]) => shape
    .reduce((all, size) => all.flatMap(i => Array.from({length: size}, (_, n) => [...i, n])), [[]])
    .map(index => [name, index]));
  const both = ["get", "grad"].flatMap(what => indexed.map(([name, i]) => twelve[what](name, i)));
  const bytes = new Uint8Array(Float64Array.from(both).buffer);
  return btoa(Array.from(bytes, byte => String.fromCharCode(byte)).join(""));
}"""
FRAMES = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    """Write the page of all configurations as the command line does."""
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
    """Open the page of all configurations."""
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
    """Return all values and gradients in the order of the program, shape (2, count)."""
    tab.evaluate(FRAMES)
    tensors = [[name, list(shape)] for name, (_, shape) in layout(title).items()]
    packed = bytearray(base64.b64decode(tab.evaluate(ALL, tensors)))
    return torch.frombuffer(packed, dtype=torch.float64).view(2, -1)


def check_numbers(tab, changed=(), title=FIRST):
    """Compare every value and gradient with PyTorch, where the same numbers are changed."""
    here = Run(title)
    here.changed = dict(changed)
    assert differences(title, numbers(tab, title), here.numbers()) == []


def until(tab, condition):
    """Wait for a condition; the page forbids what playwright would wait with."""
    look = f"const look = () => ({condition}) ? done() : requestAnimationFrame(look)"
    tab.evaluate(f"new Promise(done => {{ {look}; look(); }})")


def home_of(node):
    """Return the tensor and the element that a node of the page shows."""
    place = int(node.get_attribute("data-at"))
    return next(
        (name, place - start)
        for name, (start, shape) in layout(FIRST).items()
        if start <= place < start + shape.numel()
    )


def choose(tab, name, element):
    """Choose a number in the tables below."""
    tab.select_option("#tensor", name)
    tab.locator(f"#cells button.n[data-at='{layout(FIRST)[name][0] + element}']").click()


def test_page_opens_with_words_numbers_and_loss(explorer):
    for side, words in (("#words", example.words["src"]), ("#target", example.words["tgt"])):
        chosen = explorer.locator(f"{side} select").evaluate_all(
            "all => all.map(e => e.selectedOptions[0].textContent)"
        )
        assert chosen == [word for line in words for word in line]
    rows = torch.tensor(example.embedding_rows)[example.src].flatten().tolist()
    dials = explorer.locator("#words input.n")
    assert dials.evaluate_all("all => all.map(e => e.value)") == [f"{x:.4f}" for x in rows]
    assert explorer.locator("#learning .loss").inner_text() == f"loss {loss(explorer):.4f}"
    trace = Run(FIRST).trace()[0]
    probabilities = trace["cross_entropy.log_probabilities"].value.exp().flatten().tolist()
    shown = explorer.locator("#prediction .chances > span:nth-child(3)").all_inner_texts()
    assert shown == [f"{p:.4f}" for p in probabilities]
    weights = trace[f"{ATTENTION}.weights"].value.transpose(1, 2).flatten().tolist()
    assert explorer.locator("#encoder td .n").all_inner_texts() == [f"{x:.2f}" for x in weights]
    memory = trace["memory"].value.flatten().tolist()
    assert explorer.locator("#memory td .n").all_inner_texts() == [format_number(x) for x in memory]
    best = trace["logits"].value.argmax(-1).flatten().tolist()
    for verdict, word, label in zip(
        explorer.locator(".verdict").all_inner_texts(), best, example.labels.flatten(), strict=True
    ):
        end = "not asked" if label < 0 else "right" if word == label else "wrong"
        assert verdict.endswith(f"{example.vocabulary[word]}, {end}")
    check_numbers(explorer)


@weekly
def test_numbers_of_the_words_fit_on_the_screen_of_a_phone(tab, walk):
    tab.set_viewport_size({"width": 390, "height": 844})
    opened(tab, walk)
    foot = tab.locator("#foot").bounding_box()["y"]
    for dial in tab.locator("#words input.n").all():
        box = dial.bounding_box()
        assert 0 <= box["x"] <= 390 - box["width"] and box["y"] + box["height"] <= foot
    choose(tab, "memory", 4)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    expect(tab.locator("#name")).to_be_in_viewport()


# Changes.


KEYS = [("ArrowUp", 0.1), ("PageDown", -1), ("Shift+ArrowUp", 0.01)]


def change_dial(tab, choice, way):
    """Change a number of a word; return tensor, element and the expected value."""
    dial = choice.choice(tab.locator(DIALS).all())
    dial.scroll_into_view_if_needed()
    name, element = home_of(dial)
    before = get(tab, name, index_of(name, element))
    if way == "type":
        wanted = round(choice.uniform(-3, 3), 3)
        dial.fill(str(wanted).replace(".", choice.choice(".,")))
        dial.press(choice.choice(["Enter", "Tab"]))
    elif way == "arrow":
        key, step = choice.choice(KEYS)
        dial.press(key)
        wanted = before + step
    else:
        box, pixels = dial.bounding_box(), choice.choice([-1, 1]) * choice.randrange(20, 120)
        x, y = int(box["x"] + box["width"] / 2), int(box["y"] + box["height"] / 2)
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(x + pixels, y + 5, steps=4)
        tab.mouse.up()
        wanted = before + pixels * 0.01
    return name, element, pytest.approx(wanted, abs=6e-4)


def change_word(tab, choice, _):
    side, name = choice.choice([("#words", "src"), ("#target", "tgt"), ("#prediction", LABELS)])
    element = choice.randrange(tab.locator(f"{side} select").count())
    value = choice.randrange(4)
    tab.locator(f"{side} select").nth(element).select_option(str(value))
    return name, element, value


def change_chosen(tab, choice, way):
    """Choose a number in the tables and move its slider, or switch an entry of a mask."""
    weights = [tensor["name"] for tensor in program_of(FIRST)["tensors"] if tensor["weight"]]
    names = ["src_mask", "tgt_mask"] if way == "mask" else [*weights, "memory"]
    name = choice.choice(names)
    element = choice.randrange(layout(FIRST)[name][1].numel())
    choose(tab, name, element)
    before = get(tab, name, index_of(name, element))
    if way == "mask":
        tab.locator("#number input[type=checkbox]").click()
    else:
        slider = tab.locator("#number input[type=range]")
        slider.press(choice.choice(["ArrowRight", "PageUp", "PageDown", "Home"]))
    tab.evaluate(FRAMES)
    after = get(tab, name, index_of(name, element))
    assert after != before
    return name, element, after


WAYS = {"type": change_dial, "arrow": change_dial, "drag": change_dial, "word": change_word,
        "slide": change_chosen, "mask": change_chosen}  # fmt: skip


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
            explorer.locator("#undo").click()
            changed = before
            check_numbers(explorer, changed)


@weekly
def test_input_that_is_no_number_is_refused_and_escape_restores_the_number(explorer):
    dial, home = explorer.locator("#words input.n").nth(6), loss(explorer)
    for written in ("dog", "", "1e999"):
        dial.fill(written)
        dial.press("Enter")
        expect(explorer.locator("#notice")).to_contain_text(f"“{written}” is no number")
        assert loss(explorer) == home and dial.input_value() == "0.7000"
    dial.fill("5")
    dial.press("Escape")
    assert loss(explorer) == home and dial.input_value() == "0.7000"
    dial.fill("5")
    dial.press("Enter")
    expect(explorer.locator("#notice")).to_be_hidden()
    assert loss(explorer) != home and dial.input_value() == "5.0000"


@weekly
def test_moved_numbers_are_marked_and_before_shows_the_old_ones(explorer):
    shown, first = explorer.locator("#learning .loss .n"), loss(explorer)
    assert explorer.locator(".n.moved").count() == 0
    put(explorer, "src_embedding.weight", [2, 1], 1.5)
    second = f"{loss(explorer):.4f}"
    assert f"{first:.4f}" != second == shown.inner_text()
    assert explorer.locator("#memory td .n.moved").count() > 0
    explorer.locator("h1").click()
    explorer.keyboard.down("b")
    assert shown.inner_text() == f"{first:.4f}"
    explorer.keyboard.up("b")
    assert shown.inner_text() == second
    explorer.locator("#before").click()
    assert shown.inner_text() == f"{first:.4f}"


@weekly
def test_undo_restores_one_change_and_start_again_all(explorer):
    losses, undo = [loss(explorer)], explorer.locator("#undo")
    assert undo.is_disabled() and explorer.locator("#reset").is_disabled()
    for value in (1.5, -2.0):
        put(explorer, "src_embedding.weight", [2, 1], value)
        losses.append(loss(explorer))
    # A slider that has focus but did not move is no change.
    choose(explorer, "memory", 4)
    explorer.locator("#number input[type=range]").press("Tab")
    explorer.locator("h1").click()
    explorer.keyboard.press("Control+z")
    assert loss(explorer) == losses[1]
    explorer.locator("#reset").click()
    assert loss(explorer) == losses[0] and explorer.locator("#reset").is_disabled()
    undo.click()
    assert loss(explorer) == losses[1]
    undo.click()
    assert loss(explorer) == losses[0] and undo.is_disabled()


@weekly
def test_learning_runs_stops_and_can_be_undone(explorer):
    home = loss(explorer)
    explorer.locator("#learn-step").click()
    step, said = loss(explorer), explorer.locator("#learning p.note")
    expect(said).to_have_text(f"The loss over 1 step: from {home:.4f} to {step:.4f}.")
    learn = explorer.locator("#learn")
    learn.click()
    expect(learn).to_have_text("Stop")
    until(explorer, "twelve.loss() < 0.5")
    learn.click()
    expect(learn).to_have_text("Learn")
    after = loss(explorer)
    explorer.evaluate(FRAMES)
    assert loss(explorer) == after < step < home
    steps = int(re.search(r"over (\d+) steps", said.text_content())[1])
    points = explorer.locator("svg.curve polyline").get_attribute("points").split()
    assert len(points) == steps + 1 > 10


# A chosen number.


@weekly
def test_gradient_is_shown_and_breadcrumbs_and_backspace_go_back(explorer):
    choose(explorer, "logits", 9)
    gradient = Run(FIRST).numbers()[1, layout(FIRST)["logits"][0] + 9].item()
    assert explorer.locator("#gradient").text_content().startswith(f"= {gradient:.4f}, the sum of")
    text = explorer.locator("#text")
    way = [text.text_content()]
    for _ in range(3):
        explorer.locator("#inputs button.n.lit").first.click()
        way.append(text.text_content())
    explorer.keyboard.press("Backspace")
    assert text.text_content() == way[2]
    explorer.locator(".trail button").last.click()
    assert text.text_content() == way[1]


def test_keyboard_alone_changes_a_number_and_shows_its_arithmetic(explorer):
    press, active = explorer.keyboard.press, "document.activeElement"

    def tab_to(selector):
        for _ in range(40):
            press("Tab")
            if explorer.evaluate(f"{active}.matches('{selector}')"):
                return
        pytest.fail(f"Tab does not reach {selector}")

    tab_to("#words input.n")
    assert explorer.evaluate(f"getComputedStyle({active}).outlineStyle") == "solid"
    label = explorer.evaluate(f"{active}.getAttribute('aria-label')")
    assert label == "<pad>, number 1 of its embedding"
    press("ArrowUp")
    check_numbers(explorer, {("src_embedding.weight", 0): 0.1})
    tab_to("#encoder button.n")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        press(key)
    start = layout(FIRST)[f"{ATTENTION}.weights"][0]
    assert explorer.evaluate(f"Number({active}.dataset.at)") == start + 3  # head 0, query 1, key 1
    press("Enter")
    assert explorer.evaluate(f"{active}.id") == "name"
    tab_to("#number input.n")
    press("ArrowUp")
    assert "held fast by you" in explorer.locator("#text").text_content()


# The whole page.


@weekly
def test_link_restores_the_page(explorer, walk):
    explorer.select_option("#with", str(GELU))
    put(explorer, "memory", [1, 0, 0], -0.5)
    choose(explorer, "decoder_output", 7)
    until(explorer, "location.hash.includes('decoder_output') && location.hash.includes('memory')")
    address, before = explorer.evaluate("location.hash"), numbers(explorer)
    explorer.goto("about:blank")
    opened(explorer, walk, address)
    assert torch.equal(numbers(explorer), before)
    assert explorer.locator("#name").inner_text() == "decoder_output, <start>, d_model 1"
    assert explorer.locator("#beside").inner_text() == "GELU"
    opened(explorer, walk, "#run=4&set.src=0:99&set.memory=0:1")
    assert explorer.locator("#notice").inner_text().endswith("left out: set.src.")
    assert (get(explorer, "src", [0, 0]), get(explorer, "memory", [0, 0, 0])) == (0, 1)


@weekly
@pytest.mark.parametrize("title", [FIRST, DECODER_ONLY])
def test_tour_has_eight_stops(tab, walk, title):
    run = f"#run={TITLES.index(title)}"
    opened(tab, walk, run)
    tab.locator("#tour-open").click()
    seen = []
    for number in range(1, 9):
        seen.append(tab.locator("#tour-where").inner_text())
        assert seen[-1].startswith(f"{number} of 8: ")
        expect(tab.locator("section.lit")).to_be_in_viewport()
        assert tab.locator("#number [aria-current], #cells [aria-current]").count() >= 1
        tab.keyboard.press("Enter")  # the focus is on Next
    assert len(set(seen)) == 8 and tab.locator("#tour").is_hidden()
    opened(tab, walk, f"{run}&tour=3")
    assert tab.locator("#tour-where").inner_text() == seen[3]
    tab.locator("#tour-back").click()
    assert tab.locator("#tour-where").inner_text() == seen[2]
    tab.keyboard.press("Escape")
    assert tab.locator("#tour").is_hidden() and tab.locator("section.lit").count() == 0


@weekly
def test_two_configurations_are_shown_side_by_side(explorer):
    put(explorer, "src_embedding.weight", [2, 1], 1.5)
    explorer.select_option("#with", str(GELU))
    both = []
    for title in (FIRST, "GELU"):
        here = Run(title)
        here.changed["src_embedding.weight", 7] = 1.5
        both.append(here.trace(explain=True)[0]["memory"])
    shown = zip(*(memory.value.flatten().tolist() for memory in both), strict=True)
    wanted = [f"{format_number(a)}\n{format_number(b)}" for a, b in shown]
    assert explorer.locator("#memory td .n").all_inner_texts() == wanted
    choose(explorer, "memory", 8)
    beside = explorer.locator("#beside + pre")
    assert beside.text_content().splitlines() == both[1].explain(1, 0, 2).text.splitlines()[1:]


@weekly
def test_change_goes_along_to_another_configuration(explorer, unchecked):
    put(explorer, "src_embedding.weight", [2, 1], 1.5)
    explorer.select_option("#runs", "GELU")
    check_numbers(explorer, {("src_embedding.weight", 7): 1.5}, "GELU")


def test_page_has_no_serious_axe_violation_in_light_and_dark(tab, walk):
    tab.emulate_media(color_scheme="light", reduced_motion="reduce")
    opened(tab, walk)
    put(tab, "memory", [1, 0, 0], -0.5)
    choose(tab, f"{ATTENTION}.masked_scores", 3)
    tab.select_option("#with", str(GELU))
    tab.locator("#tour-open").click()
    assert grave(tab) == []
    tab.emulate_media(color_scheme="dark", reduced_motion="reduce")
    until(tab, "document.documentElement.dataset.theme === 'dark'")
    assert grave(tab, "color-contrast", "link-in-text-block") == []


@weekly
def test_reduced_motion_stops_all_animations(explorer):
    duration = "getComputedStyle(document.querySelector('.fill')).transitionDuration"
    assert explorer.evaluate(duration) == "0.12s"
    explorer.emulate_media(reduced_motion="reduce")
    put(explorer, "src_embedding.weight", [2, 1], -3)
    assert explorer.evaluate(duration) == "0s"
    assert explorer.evaluate("document.getAnimations().length") == 0


@weekly
def test_change_is_announced_to_screen_readers(explorer):
    said, first = explorer.locator("#said"), loss(explorer)
    assert said.get_attribute("aria-live") == "polite" and said.inner_text() == ""
    choose(explorer, "memory", 6)
    explorer.locator("#words select").nth(2).select_option("1")
    value = get(explorer, "memory", [1, 0, 0])
    expect(said).to_contain_text(
        f"memory, cat, d_model 0 is {value:.4f}; loss {loss(explorer):.4f}, before {first:.4f}"
    )


# Other pages.


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
    assert tab.locator("img").count() == 0 and tab.locator("script").count() == 2
    assert tab.title() == "Twelve Numbers: change any number"


@weekly
def test_page_of_an_own_model_without_loss(tmp_path, tab):
    table, ids = TokenEmbedding(3, 2).double(), torch.tensor([[0, 2]])
    with Trace(table) as trace:
        table(ids)
    opened(tab, trace.explorer(tmp_path / "own.html", {"seq": [["<b>a</b>", "c"]]}))
    assert tab.locator("#learn").count() == 0 and tab.locator("#tour-open").is_hidden()
    assert tab.locator("#cells th[scope=row]").all_text_contents() == ["<b>a</b>", "c"]
    tab.locator("#cells button.n").nth(2).click()
    assert tab.locator("#gradient").inner_text() == "The run ends with no loss."
    tab.locator("#inputs button.n.lit").click()
    tab.locator("#number input.n").fill("2.5")
    tab.locator("#number input.n").press("Enter")
    assert get(tab, "vectors", [0, 1, 0]) == 2.5
    tab.locator("#number .bar button", has_text="As it was").click()
    assert get(tab, "vectors", [0, 1, 0]) == table.weight[2, 0].item()
