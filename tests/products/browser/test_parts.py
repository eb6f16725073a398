"""The parts of the live page, each in its frame: what is changed by hand, and what follows it."""

import math

import pytest
import torch

from tests.products.browser.conftest import AXE, grave
from twelve_lab import example
from twelve_lab.explorer.parts import ATTENTION, CROSS, DECODER, ENCODER, NORM, PARTS, frame

PAGE = '<!doctype html><html lang="en"><title>Part</title><body style="margin: 0">'
SMALL = [name for name in PARTS if name != "walk"]
# What is wider than what shows it, or higher.
CUT_OFF = """() => [document.documentElement, ...document.querySelectorAll(".tables")]
  .filter((e) => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)
  .map((e) => [e.className, e.scrollWidth, e.clientWidth, e.scrollHeight, e.clientHeight])"""


@pytest.fixture
def part(tab, tmp_path):
    """Open a part as it stands in a lesson; gives the page in the frame, once it runs."""

    def open_(name, width=700):
        path = tmp_path / "part.html"
        path.write_text(PAGE + frame(name), encoding="utf-8")
        tab.set_viewport_size({"width": width, "height": 800})
        tab.goto(path.as_uri())
        tab.frame_locator("iframe").locator("body[data-ready]").wait_for()
        return tab.frames[1]

    return open_


def get(page, name, *index):
    return page.evaluate("([name, index]) => twelve.get(name, index)", [name, list(index)])


def row(page, name, *index, size=3):
    return [get(page, name, *index, i) for i in range(size)]


def wait_until(page, expression):
    """Ask again and again: the page lets nobody evaluate a string in it."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.page.wait_for_timeout(20)
    pytest.fail(f"never came: {expression}")


def dial(page, label):
    return page.locator(f'input.n[aria-label="{label}"]')


def drag(tab, node, pixels):
    node.scroll_into_view_if_needed()
    box = node.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    tab.mouse.move(x, y)
    tab.mouse.down()
    for step in range(1, 6):
        tab.mouse.move(x + pixels * step / 5, y)
    tab.mouse.up()


@pytest.mark.parametrize("name", SMALL)
def test_of_a_part_nothing_is_cut_off_and_on_a_phone_it_scrolls_in_its_frame(part, tab, name):
    page = part(name)
    assert page.evaluate(CUT_OFF) == []
    page.evaluate(AXE.read_text(encoding="utf-8"))  # as a tag the page would not let it in
    assert grave(page) == []
    tab.set_viewport_size({"width": 350, "height": 800})
    root = "document.documentElement"
    wait_until(page, f"{root}.scrollHeight > innerHeight")
    assert page.evaluate(f"{root}.scrollWidth <= innerWidth")
    tab.mouse.move(100, 200)
    tab.mouse.wheel(0, 5000)
    wait_until(page, "scrollY > 0")


@pytest.mark.weekly
def test_a_frame_lies_over_its_sentence_and_is_not_printed(part, tab):
    part("query")
    assert tab.evaluate("document.elementFromPoint(5, 5).tagName") == "IFRAME"
    tab.emulate_media(media="print")
    assert not tab.locator("iframe, p").first.is_visible()


def attended(query, keys, values):
    query, keys, values = (torch.tensor(one, dtype=torch.float64) for one in (query, keys, values))
    scores = query @ keys.mT / math.sqrt(3)
    return scores, scores.softmax(-1), scores.softmax(-1) @ values


@pytest.mark.parametrize("way", ["mouse", "keyboard", "typed"])
def test_a_query_can_be_changed_and_its_context_follows(part, tab, way):
    page = part("query")
    before = {name: [row(page, f"{ATTENTION}.{name}", 1, 0, i) for i in range(2)]
              for name in ("query_heads", "key_heads", "value_heads", "context")}  # fmt: skip
    node = page.locator("input.n").first
    if way == "mouse":
        drag(tab, node, 50)
    elif way == "keyboard":
        node.focus()
        for _ in range(5):
            tab.keyboard.press("ArrowUp")
    else:
        node.fill("2.0152")
        tab.keyboard.press("Enter")
    query = row(page, f"{ATTENTION}.query_heads", 1, 0, 0)
    assert query[0] == pytest.approx(before["query_heads"][0][0] + 0.5, abs=1e-3)
    keys, values = before["key_heads"], before["value_heads"]
    for name, wanted in zip(("scores", "weights", "context"), attended(query, keys, values),
                            strict=True):  # fmt: skip
        found = row(page, f"{ATTENTION}.{name}", 1, 0, 0, size=len(wanted))
        assert found == pytest.approx(wanted.tolist(), abs=1e-12)
    assert row(page, f"{ATTENTION}.context", 1, 0, 1) == before["context"][1]
    shown = page.locator("section", has_text="Context").locator("tbody .n").first
    assert shown.text_content() == f"{wanted[0]:.4f}"
    page.get_by_role("button", name="Undo").click()
    # An arrow key that is not held down is a change of its own.
    undone = before["query_heads"][0][0] + (0.4 if way == "keyboard" else 0)
    assert get(page, f"{ATTENTION}.query_heads", 1, 0, 0, 0) == pytest.approx(undone, abs=1e-3)


@pytest.mark.weekly
def test_a_finger_drags_a_query(browser, tmp_path):
    path = tmp_path / "part.html"
    path.write_text(PAGE + frame("query"), encoding="utf-8")
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 800})
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.frame_locator("iframe").locator("body[data-ready]").wait_for()
    page = tab.frames[1]
    before = get(page, f"{ATTENTION}.query_heads", 1, 0, 0, 0)
    box = page.locator("input.n").first.bounding_box()
    x, y = box["x"] + 10, box["y"] + 10
    touch = context.new_cdp_session(tab)
    for kind, at in (("Start", 0), ("Move", 20), ("Move", 40), ("End", None)):
        points = [] if at is None else [{"x": x + at, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": f"touch{kind}", "touchPoints": points})
    after = get(page, f"{ATTENTION}.query_heads", 1, 0, 0, 0)
    context.close()
    assert after - before == pytest.approx(0.4, abs=1e-3)


def test_a_cell_of_a_mask_shows_a_key_and_hides_it(part, tab):
    page = part("mask")
    cat = ("src_mask", 1, 0, 0)
    hidden = row(page, f"{ATTENTION}.weights", 1, 0, 0)
    assert hidden == [1, 0, 0]
    cells = page.locator("section", has_text="The masks").locator("button.n")
    assert page.locator("button.n").count() == cells.count()  # what does nothing is no button
    cell = cells.nth(9 + 1)  # the second mask: cat may not look at dog
    assert cell.get_attribute("aria-pressed") == "false"
    cell.click()
    assert get(page, *cat, 1) == 1 and cell.get_attribute("aria-pressed") == "true"
    scores = [get(page, f"{ATTENTION}.scores", 1, 0, 0, i) for i in range(2)]
    wanted = torch.tensor(scores, dtype=torch.float64).softmax(-1).tolist()
    assert row(page, f"{ATTENTION}.weights", 1, 0, 0) == pytest.approx([*wanted, 0], abs=1e-12)
    cell.focus()
    tab.keyboard.press("Space")
    assert row(page, f"{ATTENTION}.weights", 1, 0, 0) == hidden
    cells.nth(9).click()
    assert row(page, f"{ATTENTION}.weights", 1, 0, 0) == [0, 0, 0]  # nothing is allowed


@pytest.mark.weekly
def test_a_stretched_row_leaves_the_norm_as_it_was_and_a_changed_one_does_not(part, tab):
    page = part("stretch")
    before = row(page, f"{NORM}.normalized", 1, 0)
    for button in ("× 10", "+ 5"):
        page.get_by_role("button", name=button).click()
    x = torch.tensor(row(page, "src_input", 1, 0), dtype=torch.float64)
    assert x.tolist() == pytest.approx([12, 17, 9])
    assert get(page, f"{NORM}.mean", 1, 0, 0) == pytest.approx(38 / 3)
    after = row(page, f"{NORM}.normalized", 1, 0)
    assert after == pytest.approx(((x - x.mean()) / (x.var(correction=0) + 1e-5).sqrt()).tolist())
    assert after == pytest.approx(before, abs=1e-4)
    page.get_by_role("button", name="× (−1)").click()
    assert row(page, f"{NORM}.normalized", 1, 0) == pytest.approx([-one for one in after])
    page.locator("input.n").first.focus()
    tab.keyboard.press("PageUp")
    assert row(page, f"{NORM}.normalized", 1, 0) != pytest.approx([-one for one in after], abs=0.01)


@pytest.mark.weekly
def test_a_silent_sublayer_lets_its_input_pass_and_speaks_again(part):
    page = part("sum")
    added = f"{ENCODER}.self_attention_residual.added"
    before, said = row(page, added, 1, 0), page.locator(".verdict").all_text_contents()
    assert len(said) == 2  # of the sentence that is shown
    switch = page.get_by_role("button", name="Silence attention")
    switch.click()
    assert row(page, added, 1, 0) == row(page, "src_input", 1, 0) != before
    page.get_by_role("button", name="Silence feed-forward").click()
    top = f"{ENCODER}.feed_forward_residual.added"
    assert row(page, top, 1, 0) == row(page, "src_input", 1, 0)
    chances = page.locator(".chances").all_text_contents()
    page.get_by_role("button", name="Silence feed-forward").click()
    assert switch.get_attribute("aria-pressed") == "true"
    switch.click()
    assert row(page, added, 1, 0) == before
    assert page.locator(".verdict").all_text_contents() == said
    assert page.locator(".chances").all_text_contents() != chances


@pytest.mark.weekly
def test_a_word_of_the_memory_can_be_hidden_and_without_all_both_sentences_begin_alike(part):
    page = part("memory")
    starts = [[f"{get(page, 'logits', batch, 0, id):.9f}" for id in range(4)] for batch in (0, 1)]
    assert starts[0] != starts[1]
    cells = page.locator("section", has_text="What was read").locator("button.n")
    words = page.locator("section", has_text="What was read").locator("th[scope=col]")
    assert words.all_text_contents() == ["<pad>", "cat", "dog", "fish"]
    rows = page.locator("section", has_text="What was read").locator("th[scope=row]")
    assert rows.all_text_contents() == ["", ""]  # one row for all queries
    cells.nth(2).click()  # dog, hidden from the decoder alone
    assert [get(page, f"{CROSS}.weights", 1, head, 0, 0) for head in range(3)] == [0, 0, 0]
    assert get(page, f"{CROSS}.weights", 0, 0, 0, 1) == get(page, f"{CROSS}.weights", 1, 0, 0, 1)
    page.get_by_role("button", name="Hide the whole memory").click()
    assert {get(page, f"{CROSS}.weights", 1, 0, 0, key) for key in range(2)} == {0}
    assert row(page, f"{DECODER}.cross_attention.output", 0, 0) == [0, 0, 0]
    blocks = page.locator(".prediction .sentence")
    assert (
        blocks.nth(0).locator(".track + span").all_text_contents()
        == blocks.nth(2).locator(".track + span").all_text_contents()
    )


@pytest.mark.weekly
def test_a_step_of_learning_moves_each_weight_against_its_gradient(part):
    page = part("learning")
    bias = ("output_projection.bias", 3)
    slope = page.locator("td.slope").nth(3)
    assert slope.text_content() == "-0.1482"  # as lesson 13 works it out
    page.get_by_role("button", name="Learn one step").click()
    assert f"{get(page, *bias):.4f}" == "-0.1852"
    assert f"{page.evaluate('twelve.loss()'):.4f}" == "0.8245"
    assert slope.text_content() != "-0.1482"
    run = page.get_by_role("button", name="Learn", exact=True)
    run.click()
    wait_until(page, "twelve.loss() < 0.3")
    page.get_by_role("button", name="Stop").click()
    assert page.locator("svg.curve polyline").get_attribute("points").count(",") > 3
    page.get_by_role("button", name="Start again").click()
    assert f"{page.evaluate('twelve.loss()'):.4f}" == "1.0482"


@pytest.mark.weekly
def test_the_whole_page_runs_in_its_frame_and_a_number_explains_itself(part, tab):
    page = part("walk")
    dial(page, "dog, number 1 of its embedding").fill("5")
    tab.keyboard.press("Enter")
    assert get(page, "src_embedding.weight", 2, 0) == 5
    model = example.model()
    with torch.no_grad():
        model.src_embedding.weight[2, 0] = 5
        masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
        logits = model(example.src, example.tgt, **masks)
    assert get(page, "logits", 1, 1, 2) == pytest.approx(logits[1, 1, 2].item(), abs=1e-9)
    page.locator("#memory button.n").first.click()
    assert page.locator("#text").text_content().splitlines()[-1].startswith("  = ")
