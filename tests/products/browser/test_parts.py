"""The parts of the live page in lessons, each in its iframe: manual changes and their effects."""

import pytest

from tests.products.browser.conftest import AXE, drag, grave, swipe, until
from twelve_lab.explorer.parts import ATTENTION, CROSS, ENCODER, NORM, PARTS, frame

PAGE = '<!doctype html><html lang="en"><title>Part</title><body style="margin: 0">'
weekly = pytest.mark.weekly
EACH_PART = [
    pytest.param(name, marks=[weekly] * (name != "query")) for name in PARTS if name != "walk"
]
CUT_OFF = """() => [document.documentElement, ...document.querySelectorAll(".tables")]
  .filter((e) => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight)
  .map((e) => [e.className, e.scrollWidth, e.clientWidth, e.scrollHeight, e.clientHeight])"""


@pytest.fixture
def part(tab, tmp_path):
    """Open a part in an iframe, as a lesson does; return the frame once the part is ready."""

    def open_(name, tab=tab):
        path = tmp_path / "part.html"
        path.write_text(PAGE + frame(name), encoding="utf-8")
        tab.goto(path.as_uri())
        tab.frame_locator("iframe").locator("body[data-ready]").wait_for()
        return tab.frames[1]

    return open_


def get(page, name, *index):
    return page.evaluate("([name, index]) => twelve.get(name, index)", [name, list(index)])


def row(page, name, *index):
    return [get(page, name, *index, i) for i in range(3)]


def click(page, name):
    page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.parametrize("name", EACH_PART)
def test_part_is_not_cut_off_is_accessible_and_scrolls_on_a_phone(part, tab, name):
    tab.set_viewport_size({"width": 700, "height": 800})
    page = part(name)
    assert page.evaluate(CUT_OFF) == []
    page.evaluate(AXE.read_text(encoding="utf-8"))  # the page blocks script tags
    assert grave(page) == []
    assert tab.evaluate("document.body.innerText.trim()") == ""  # no fallback text
    small = """all => all.filter(e => e.offsetParent)
      .filter(e => parseFloat(getComputedStyle(e).fontSize) < 14).map(e => e.outerHTML)"""
    assert page.locator(".n, th, td, p, button").evaluate_all(small) == []
    tab.set_viewport_size({"width": 350, "height": 800})
    root = "document.documentElement"
    until(page, f"{root}.scrollHeight > innerHeight")
    assert page.evaluate(f"{root}.scrollWidth <= innerWidth")
    tab.mouse.move(100, 200)
    tab.mouse.wheel(0, 5000)
    until(page, "scrollY > 0")
    tab.emulate_media(media="print")
    assert not tab.locator("iframe").first.is_visible()


def test_query_is_dragged_and_its_context_follows(part, tab):
    page = part("query")
    query, context = f"{ATTENTION}.query_heads", f"{ATTENTION}.context"
    before = [get(page, name, 1, 0, 0, 0) for name in (query, context)]
    drag(tab, page.locator("section", has_text="Queries").locator(".n").first, 50, drop=False)
    page.evaluate("new Promise(requestAnimationFrame)")
    # Threads lead to the numbers that changed.
    assert 5 < page.locator("#threads path").count() <= 40
    tab.mouse.up()
    after = [get(page, name, 1, 0, 0, 0) for name in (query, context)]
    assert after[0] == pytest.approx(before[0] + 0.5, abs=1e-3) and after[1] != before[1]
    shown = page.locator("section", has_text="Context").locator("tbody .n").first
    assert shown.text_content() == f"{after[1]:.4f}"
    click(page, "Undo")
    assert [get(page, name, 1, 0, 0, 0) for name in (query, context)] == before


@weekly
def test_finger_drags_a_query(part, browser):
    context = browser.new_context(has_touch=True, viewport={"width": 390, "height": 800})
    tab = context.new_page()
    page, query = part("query", tab), (f"{ATTENTION}.query_heads", 1, 0, 0, 0)
    before = get(page, *query)
    swipe(tab, page.locator(".n").first, 40)
    after = get(page, *query)
    context.close()
    assert after - before == pytest.approx(0.4, abs=1e-3)


@weekly
def test_mask_cell_shows_a_key_and_hides_it(part, tab):
    page = part("mask")
    hidden = row(page, f"{ATTENTION}.weights", 1, 0, 0)
    assert hidden == [1, 0, 0]
    cell = page.locator("section", has_text="The masks").locator("button.n").nth(9 + 1)
    assert cell.get_attribute("aria-pressed") == "false" and cell.inner_text() == "✗"
    cell.click()
    assert cell.get_attribute("aria-pressed") == "true" and cell.inner_text() == "✓"
    weights = row(page, f"{ATTENTION}.weights", 1, 0, 0)
    assert sum(weights) == pytest.approx(1) and 0 < weights[1] < 1 and weights[2] == 0
    cell.press("Space")
    assert row(page, f"{ATTENTION}.weights", 1, 0, 0) == hidden


@weekly
def test_stretched_row_keeps_its_norm(part):
    page = part("stretch")
    before = row(page, f"{NORM}.normalized", 1, 0)
    click(page, "× 10")
    click(page, "+ 5")
    assert row(page, "src_input", 1, 0) == pytest.approx([12, 17, 9])
    after = row(page, f"{NORM}.normalized", 1, 0)
    assert after == pytest.approx(before, abs=1e-4)
    click(page, "× (−1)")
    assert row(page, f"{NORM}.normalized", 1, 0) == pytest.approx([-x for x in after])


@weekly
def test_silenced_sublayers_pass_their_input_on(part):
    page, added = part("sum"), f"{ENCODER}.self_attention_residual.added"
    before, top = row(page, added, 1, 0), f"{ENCODER}.feed_forward_residual.added"
    click(page, "Silence attention")
    click(page, "Silence feed-forward")
    assert row(page, added, 1, 0) == row(page, top, 1, 0) == row(page, "src_input", 1, 0) != before
    # The name of a pressed button may differ.
    for pressed in page.locator(".bar button[aria-pressed=true]").all()[::-1]:
        pressed.click()
    assert row(page, added, 1, 0) == before


@weekly
def test_hidden_memory_leaves_cross_attention_without_weights(part):
    page = part("memory")
    starts = [row(page, "logits", batch, 0) for batch in (0, 1)]
    assert starts[0] != pytest.approx(starts[1])
    words = page.locator("section", has_text="What was read").locator("th[scope=col]")
    titles = words.evaluate_all("all => all.map(e => e.title)")
    assert titles == ["<pad>", "cat", "dog", "fish"]
    page.locator("section", has_text="What was read").locator("button.n").nth(2).click()  # dog
    assert [get(page, f"{CROSS}.weights", 1, head, 0, 0) for head in range(3)] == [0, 0, 0]
    click(page, "Hide the whole memory")
    # Without the memory, the first logits of both sentences agree.
    assert row(page, "logits", 0, 0) == pytest.approx(row(page, "logits", 1, 0))


@weekly
def test_learning_step_follows_the_gradient_and_start_again_undoes_it(part):
    page, slope = part("learning"), "td.slope"
    assert page.locator(slope).nth(3).text_content() == "-0.1482"  # as computed in lesson 13
    click(page, "One step")
    assert f"{get(page, 'output_projection.bias', 3):.4f}" == "-0.1852"
    assert page.locator(slope).nth(3).text_content() != "-0.1482"
    click(page, "Teach it")
    until(page, "twelve.loss() < 0.3")
    click(page, "Stop")
    click(page, "Start again")
    assert f"{page.evaluate('twelve.loss()'):.4f}" == "1.0482"
