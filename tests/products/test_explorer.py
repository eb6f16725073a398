"""The explorer: its data are the run's, and in a real browser every number explains itself."""

import base64
import json
import math
import random
import re
import zlib

import pytest
import torch

from twelve import TokenEmbedding
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explorer import write_explorer
from twelve_lab.show.format import cell_text, format_number

CLICKS = 200


def data_of(page):
    """Unpack what a page carries."""
    packed = re.search(r'<script id="data" type="text/plain">(.+?)</script>', page)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of all configurations, as the command line writes it."""
    torch.set_default_dtype(torch.float64)
    path = tmp_path_factory.mktemp("explorer") / "walk.html"
    assert main(["explorer", str(path)]) == 0
    return path


def test_the_page_is_small_and_asks_for_nothing_from_outside(page):
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|//cdn|@import|\burl\(", text.replace("data:,", ""))


def test_the_page_carries_every_number_of_every_configuration(page):
    runs = data_of(page.read_text(encoding="utf-8"))["runs"]
    assert [run["title"] for run in runs] == list(example.CONFIGURATIONS)
    for run, switches in zip(runs, example.CONFIGURATIONS.values(), strict=True):
        trace = example.trace(on="cpu", **switches)
        tensors = {tensor["name"]: tensor for tensor in run["tensors"] if not tensor["given"]}
        assert list(tensors) == list(trace)
        for name, entry in trace.items():
            values = entry.value.flatten().tolist()
            assert tensors[name]["texts"] == [format_number(value) for value in values]
            assert tensors[name]["shape"] == list(entry.shape)
            assert [cell[2] for cell in tensors[name]["cells"]] == [
                "-math.inf" if value == -math.inf else repr(value) for value in values
            ]


def test_every_operand_of_the_page_is_a_number_on_the_page(page):
    for run in data_of(page.read_text(encoding="utf-8"))["runs"]:
        sizes = [len(tensor["texts"]) for tensor in run["tensors"]]
        for tensor in run["tensors"]:
            for _, _, _, used in tensor["cells"]:
                assert all(place < sizes[number] for number, place in used)


def test_a_trace_writes_its_own_page(tmp_path):
    table = TokenEmbedding(3, 2)
    with Trace(table) as trace:
        table(torch.tensor([[0, 2]]))
    path = trace.explorer(
        tmp_path / "deep" / "own.html", {"seq": ["<script>alert(1)</script>", "b"]}
    )
    text = path.read_text(encoding="utf-8")
    assert "alert(1)" not in text  # packed, and unpacked into text only
    (run,) = data_of(text)["runs"]
    assert run["tensors"][0]["labels"] == {"seq": ["<script>alert(1)</script>", "b"]}


def test_errors_say_what_is_wrong(tmp_path, monkeypatch, capsys):
    with pytest.raises(ValueError, match="at least one run"):
        write_explorer(tmp_path / "a.html", {})
    with Trace(explain=False) as bare:
        pass
    with pytest.raises(ValueError, match="'the run' holds no tensor that can be explained"):
        bare.explorer(tmp_path / "a.html")
    monkeypatch.setattr("twelve_lab.explorer.LARGEST", 1000)
    with pytest.raises(ValueError, match=r"would take [\d,]+ bytes, more than 1,000"):
        example.trace(on="cpu").explorer(tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
    assert main(["explorer", str(tmp_path / "walk.pdf")]) == 1
    assert "give a name that ends in .html" in capsys.readouterr().err


@pytest.fixture(scope="module")
def browser():
    """A real browser without a screen; it is closed at the end."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    from tools import browser as real

    if real.find() is None:
        pytest.skip("no chromium or chrome on this machine: the page was not tried in a browser")
    with real.launched() as running:
        yield running


@pytest.fixture
def tab(browser):
    """An empty tab; afterwards nothing may have been complained about or asked from outside."""
    tab = browser.new_page(viewport={"width": 1300, "height": 900})
    complaints, requests = [], []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    yield tab
    tab.close()
    assert complaints == []
    assert all(url.startswith("file://") for url in requests) and len(requests) >= 1


def opened(tab, path):
    tab.goto(path.as_uri())
    tab.wait_for_selector("body[data-ready]")
    return tab


def check_shown(tab, wanted):
    """Compare the shown arithmetic with the number that was clicked."""
    lines = tab.locator("#text").text_content().splitlines()
    assert lines[-1] == f"  = {wanted}"
    python = tab.locator("#expression")
    value = eval(python.get_attribute("data-value"), {"math": math})
    result = eval(python.text_content(), {"math": math})
    assert result == value or abs(result - value) < 1e-9
    assert cell_text(value) == wanted


def test_two_hundred_random_clicks_each_show_the_arithmetic_of_the_number(page, tab):
    opened(tab, page)
    choice = random.Random(12)
    for click in range(CLICKS):
        if click % 25 == 0:
            tab.select_option("#runs", str(click // 25 % len(example.CONFIGURATIONS)))
        inputs = tab.locator("#inputs td button")
        if click % 3 and inputs.count():
            cell = inputs.nth(choice.randrange(inputs.count()))  # go on to an input
        else:
            tensors = tab.locator("nav.side button")
            tensors.nth(choice.randrange(tensors.count())).click()
            cells = tab.locator("#tensor td button")
            cell = cells.nth(choice.randrange(cells.count()))
        wanted = cell.text_content()
        cell.click()
        check_shown(tab, wanted)


def test_the_keyboard_alone_suffices(page, tab):
    opened(tab, page)
    tab.locator("#runs").focus()
    for _ in range(200):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.matches('#tensor td button')"):
            break
    first = tab.evaluate("document.activeElement.textContent")
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.keyboard.press("Enter")
    check_shown(tab, first)
    before = tab.locator("#text").text_content()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowDown")
    second = tab.evaluate("document.activeElement.textContent")
    tab.keyboard.press("Enter")
    check_shown(tab, second)
    tab.keyboard.press("Backspace")
    assert tab.locator("#text").text_content() == before
    assert tab.evaluate("document.activeElement.textContent") == first


def test_the_arrows_reach_every_cell_of_a_tensor(page, tab):
    opened(tab, page)
    tab.locator("#tensor td button").first.click()
    seen = set()
    for _ in range(2):
        for _ in range(8):
            seen.add(tab.evaluate("document.activeElement.dataset.element"))
            tab.keyboard.press("ArrowRight")
        tab.keyboard.press("ArrowDown")
        for _ in range(8):
            seen.add(tab.evaluate("document.activeElement.dataset.element"))
            tab.keyboard.press("ArrowLeft")
    assert seen == {str(n) for n in range(16)}


def test_back_returns_along_the_way(page, tab):
    opened(tab, page)
    tab.locator("#tensor td button").nth(3).click()
    way = [tab.locator("#text").text_content()]
    for _ in range(4):
        tab.locator("#inputs td.lit button").first.click()
        way.append(tab.locator("#text").text_content())
    for text in reversed(way[:-1]):
        tab.locator("#back").click()
        assert tab.locator("#text").text_content() == text
    assert tab.locator("#back").is_disabled()


def test_the_inputs_are_framed_and_the_grids_are_tables(page, tab):
    opened(tab, page)
    tab.locator("#strip button", has_text="src_input").click()
    assert tab.locator("#name").text_content() == "src_input"
    tab.locator("nav.side button", has_text="encoded").first.click()
    tab.locator("#tensor td button").first.click()
    assert tab.locator("#inputs td.lit").count() == 2  # an embedding and a position
    assert tab.locator("#tensor table caption").first.text_content() == "batch 0"
    assert tab.locator("#tensor th[scope=row]").first.text_content() == "<pad>"
    assert tab.locator("#tensor th[scope=colgroup]").first.text_content() == "d_model"
    assert tab.locator("[aria-live=polite] #text").count() == 1


def test_a_word_that_looks_like_markup_stays_text(tmp_path, tab):
    table = TokenEmbedding(3, 2)
    with Trace(table) as trace:
        table(torch.tensor([[0, 2]]))
    label = "<img src=x onerror=document.title='broken'>"
    opened(tab, trace.explorer(tmp_path / "own.html", {"seq": [label, "b"]}))
    assert tab.locator("#tensor th[scope=row]").first.text_content() == label
    assert tab.locator("#tensor img").count() == 0
    assert tab.title() == "Twelve Numbers: explain any number"
