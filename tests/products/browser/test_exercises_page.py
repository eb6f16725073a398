"""The page of exercises in Chromium: typed answers, their verdicts, and stored progress.

`make check` types some answers into a single page; the weekly tests reopen the page.
"""

import json
import re
import zipfile

import nbformat
import pytest
from playwright.sync_api import expect

from tests.course.test_messages import pseudo_translation
from tests.products.browser.conftest import PHONE, ROOT, grave, opened_window, watched, written
from tests.products.browser.test_translated_page import SHOWN
from tools import write_exercises_page
from tools.write_solutions import exercise_of, solved
from twelve_lab import messages
from twelve_lab.check import diagnose
from twelve_lab.check.progress import read
from twelve_lab.course import DRILLS, STEPS

weekly = pytest.mark.weekly
GROUPS = write_exercises_page.groups()
TASKS = {task["key"]: task for group in GROUPS for task in group["tasks"]}
PAGES = [*(step.notebook for step in STEPS), *(drill.page for drill in DRILLS)]
ATTENTION = "04-attention"
RIGHT = "return (query / query.size(-1) ** 0.5 @ key.mT).softmax(-1) @ value"
TYPED = {
    "right": (ATTENTION, RIGHT, "✓ 04-attention: right."),
    "named mistake": (ATTENTION, "return (query @ key.mT).softmax(-1) @ value", "not scaled"),
    "typo": (ATTENTION, "return query @ kez", "line 4 of attention_scaled_first fails"),
    "wrong size": (ATTENTION, "return query @ key.mT", "The size of axis 2 (d_v) is 2, expected 3"),
    "changed input": (ATTENTION, f"query /= 1\nquery *= 2\n{RIGHT}", "changes its argument"),
    "syntax": (ATTENTION, "return query @ @ key", "Line 4, return query @ @ key: invalid syntax"),
    "beside the function": (ATTENTION, f"{RIGHT}\n\b1 / 0", "Line 5, 1 / 0: ZeroDivisionError"),
    "not in the page": (ATTENTION, "return torch.special.erf(query)", "cannot check this answer"),
    "package": (ATTENTION, "import numpy as np", "numpy is not in this page"),
    "blank": (ATTENTION, "", "Not started yet"),
}


@pytest.fixture(scope="module")
def address(serve):
    return f"{serve(written('book'))}/exercises/index.html"


def opened(tab, address, key=ATTENTION):
    """Open the page and wait for Python."""
    tab.goto(f"{address}#{key}")
    expect(tab.locator("body")).to_have_attribute("data-python", "ready", timeout=60_000)
    return tab


@pytest.fixture(scope="module")
def shared(browser, address):
    """Load Python once for all answers of the module."""
    with opened_window(browser) as window:
        opened(window.tab, address)
        yield window
        assert window.wrong == []


@pytest.fixture
def page(shared):
    yield shared.tab
    shared.tab.evaluate("localStorage.clear()")


def show(tab, key):
    tab.evaluate("key => { location.hash = key }", key)
    expect(tab.locator("#title")).to_have_text(TASKS[key]["title"])


def check_typed(tab, key, text):
    """Type an answer after the stub of an exercise, and check it with Ctrl+Enter."""
    show(tab, key)
    tab.get_by_role("button", name="Start again").click()
    tab.keyboard.press("Control+End")
    for line in text.splitlines():
        tab.keyboard.press("Enter")
        while line.startswith("\b"):
            tab.keyboard.press("Backspace")
            line = line[1:]
        tab.keyboard.type(line)
    tab.keyboard.press("Control+Enter")


def check_filled(tab, key, code):
    """Store a complete answer, open its exercise, and press Check."""
    tab.evaluate("([key, code]) => localStorage.setItem(`twelve-numbers-answer-${key}`, code)",
                 [key, code])  # fmt: skip
    show(tab, "01-linear" if key == "02-embed" else "02-embed")
    show(tab, key)
    tab.get_by_role("button", name="Check").click()


def expect_verdict(tab, words):
    expect(tab.locator("#verdict")).to_contain_text(words, timeout=30_000)


@pytest.mark.parametrize("name", TYPED)
def test_typed_answer_gets_its_verdict(page, name):
    key, text, words = TYPED[name]
    check_typed(page, key, text)
    expect_verdict(page, words)
    is_open = page.evaluate("localStorage['twelve-numbers-progress']") is None
    assert is_open == (
        name in ("syntax", "beside the function", "not in the page", "package", "blank")
    )


@pytest.mark.parametrize("line", ["return torch.zeros(2)", "return query @ key.mT @ value * 2"])
def test_verdict_is_the_one_of_the_course(page, line):
    space = {}
    exec(f"import torch\ndef answer(query, key, value):\n    {line}\n", space)
    check_typed(page, ATTENTION, line)
    expect_verdict(page, diagnose(ATTENTION, space["answer"]).message)


def test_question_is_answered_by_a_value(page):
    for value, words in (('{"dog"}', "'dog' is not an option"), ("...", "Not started yet")):
        check_filled(page, "04-keys-reversed", f"what_changes = {value}")
        expect_verdict(page, words)
    for numbers, words in (("1", "The answer is 2 numbers"), ("0.8, 0.2", "0.800 is too large")):
        check_filled(page, "04-key-zeroed", f"weights_of_dog = [{numbers}]")
        expect_verdict(page, words)
    check_filled(page, "04-key-zeroed", solutions()["04-key-zeroed"])
    expect_verdict(page, "✓ 04-key-zeroed: right.")


def test_answer_that_never_returns_is_stopped_and_nothing_is_lost(page):
    check_filled(page, "01-linear", solution := solutions()["01-linear"])
    expect_verdict(page, "✓")
    check_typed(page, ATTENTION, "while True: pass")
    stop = page.get_by_role("button", name="Stop")
    expect(stop).to_be_enabled()
    expect(page.locator("body")).to_have_attribute("data-python", "runs")
    stop.click()
    expect_verdict(page, "Stopped.")
    for _ in range(100):  # until the browser has ended the first worker
        page.wait_for_timeout(100 * (len(page.workers) > 1))
    assert len(page.workers) == 1
    page.keyboard.type(" # typed while Python starts")
    page.reload()
    expect(page.locator(".cm-content")).to_contain_text("# typed while Python starts")
    expect(page.locator("#solved")).to_have_text(re.compile("Solved: 1 of "))
    opened(page, page.url.partition("#")[0])
    check_typed(page, ATTENTION, RIGHT)
    expect_verdict(page, "✓")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save progress.json").click()
    content = read(download.value.path())
    assert {id for id, row in content["exercises"].items() if row["solved"]} == {
        ATTENTION, "01-linear",
    }  # fmt: skip
    assert content["answers"]["01-linear"] == solution
    page.evaluate("localStorage.clear()")
    page.get_by_label("Open progress.json").set_input_files(download.value.path())
    expect(page.locator("#kept")).to_have_text("Progress and answers were read from the file.")
    expect(page.locator("#solved")).to_have_text(re.compile("Solved: 2 of "))
    show(page, "01-linear")
    assert page.locator(".cm-line").all_inner_texts() == solution.splitlines()


@weekly
def test_page_fits_a_phone_and_is_accessible_in_light_and_dark(page):
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        check_typed(page, ATTENTION, "return query @ key.mT")
        expect_verdict(page, "not yet right")
        assert grave(page) == []
        show(page, "by-hand-lora-on-paper")
        page.eval_on_selector_all("details", "all => all.forEach((each) => { each.open = true })")
        assert grave(page) == []
        page.set_viewport_size(PHONE)
        expect(page.locator("#groups")).to_be_hidden()
        assert grave(page, "color-contrast") == []
        page.locator("#list > summary").click()
        for key in ("06-merge-heads", "by-hand-latent-attention", ATTENTION):
            show(page, key)
            width = page.evaluate("document.documentElement.scrollWidth")
            assert width == PHONE["width"], key
        page.set_viewport_size({"width": 1280, "height": 720})
    assert page.locator("#verdict[role=status]").count() == 1


@weekly
def test_page_from_a_disk_says_what_it_needs(tab):
    tab.goto((written("book") / "exercises" / "index.html").as_uri())
    expect(tab.locator("#state")).to_contain_text("run python -m http.server")
    expect(tab.get_by_role("button", name="Check")).to_be_disabled()
    tab.locator(".cm-content").press_sequentially("1")


@weekly
def test_page_without_python_says_so_and_judges_nothing(browser, address):
    with opened_window(browser) as (tab, _):
        tab.route("**/course.zip", lambda route: route.abort())
        tab.goto(address)
        expect(tab.locator("#state")).to_contain_text("no answer can be checked")
        expect(tab.get_by_role("button", name="Check")).to_be_disabled()


@weekly
def test_exercise_that_is_not_offered_cannot_be_checked(browser, address):
    page = (written("book") / "exercises" / "index.html").read_text("utf-8")
    absent = page.replace('"absent": false', '"absent": true', 1)
    with opened_window(browser) as (tab, wrong):
        tab.route("**/index.html", lambda route: route.fulfill(body=absent))
        tab.goto(f"{address}#{next(iter(TASKS))}")
        expect(tab.locator("#absent")).to_have_text(re.compile("cannot check this exercise"))
        expect(tab.locator("#answer")).to_be_hidden()
        tab.keyboard.press("Control+Enter")
        tab.locator("#onward a").last.click()
        expect(tab.locator("#answer")).to_be_visible()
        assert wrong == []


def test_exercises_have_the_cells_of_the_notebooks_and_the_book_links_to_them():
    assert len(TASKS) == sum(len(group["tasks"]) for group in GROUPS) > 100
    linked, cells = set(), []
    for page in PAGES:
        cells += [cell for cell in notebook(page).cells if exercise_of(cell, "answer")]
        text = (written("book") / page.replace(".ipynb", ".html")).read_text("utf-8")
        found = re.findall(r'href="((?:\.\./)+exercises/index\.html)#([\w-]+)"', text)
        assert {path for path, _ in found} <= {"../" * page.count("/") + "exercises/index.html"}
        linked |= {key for _, key in found}
    assert [task["code"] for task in TASKS.values()] == [cell.source.rstrip() for cell in cells]
    assert linked == {key for key, task in TASKS.items() if not task["absent"]}
    for task in TASKS.values():
        assert task["about"].count("<summary>Hint") == 3 and "$" not in task["about"]


@weekly
def test_book_leads_to_the_page_from_its_navigation_an_exercise_and_the_last_dare(tab, address):
    book = address.removesuffix("exercises/index.html")
    tab.goto(f"{book}index.html")
    last = tab.get_by_role("link", name="Write the layers yourself")
    expect(last).to_be_hidden()
    tab.evaluate("localStorage.setItem('twelve-numbers-dares', '[\"norm\"]')")
    tab.reload()
    lesson = f"{book}notebooks/04_attention.html"
    for page, link in (
        (tab.url, last),
        (lesson, tab.get_by_role("link", name="Exercises, with nothing installed")),
        (lesson, tab.get_by_role("link", name="Answer it in this browser").last),
    ):
        tab.goto(page)
        link.first.click()
        tab.wait_for_url(f"{address}*")
        expect(tab.locator("h1")).to_have_text("Exercises, with nothing installed")
    expect(tab.locator("#title")).to_have_text(TASKS[ATTENTION]["title"])
    tab.get_by_role("link", name="04 attention").click()
    tab.wait_for_url(lesson)


def notebook(page):
    return nbformat.read(ROOT / page, as_version=4)


def solutions():
    """Return the solution of every exercise, keyed like the page."""
    return {
        write_exercises_page.key(id, page): cell.source
        for page in PAGES
        for cell in solved(notebook(page)).cells
        if (id := exercise_of(cell, "answer"))
    }


@weekly
def test_every_exercise_accepts_its_solution(page):
    for key, code in solutions().items():
        if TASKS[key]["absent"]:
            show(page, key)
            expect(page.locator("#absent")).to_be_visible()
            expect(page.locator("#answer")).to_be_hidden()
            continue
        check_filled(page, key, code)
        expect_verdict(page, "✓")


@weekly
def test_right_answer_by_hand_is_recorded_for_its_repetition_with_its_time(page):
    show(page, "by-hand-06-multi-head-attention")
    page.get_by_role("button", name="Start again").click()
    check_filled(page, "by-hand-06-multi-head-attention",
                 solutions()["by-hand-06-multi-head-attention"])  # fmt: skip
    expect_verdict(page, re.compile(r"right after 0 min \d+ s"))
    progress = json.loads(page.evaluate("localStorage['twelve-numbers-progress']"))
    record = progress["by hand"]["06-multi-head-attention"]
    assert len(record["right"]) == 1 and record["started"] is None


@weekly
@pytest.mark.parametrize("text", ["{", '{"exercises": {}}', "[]"])
def test_file_that_is_no_progress_is_refused(page, tmp_path, text):
    check_typed(page, ATTENTION, RIGHT)
    expect_verdict(page, "✓")
    (tmp_path / "progress.json").write_text(text)
    page.get_by_label("Open progress.json").set_input_files(tmp_path / "progress.json")
    expect(page.locator("#kept")).to_have_text("This is not a progress file of the course.")
    assert ATTENTION in page.evaluate("localStorage['twelve-numbers-progress']")


@weekly
def test_browser_that_stores_nothing_still_checks_and_says_so(browser, address):
    with opened_window(browser) as window, watched(window) as tab:
        refuse = "() => { throw new DOMException('refused', 'SecurityError') }"
        tab.add_init_script(
            f"for (const n of ['getItem', 'setItem']) Storage.prototype[n] = {refuse}"
        )
        check_typed(opened(tab, address), ATTENTION, RIGHT)
        expect_verdict(tab, "✓")
        expect(tab.locator("#kept")).to_contain_text("This browser stores nothing")
        expect(tab.locator("#solved")).to_contain_text("Solved: 1 of ")


@weekly
def test_no_label_of_the_page_stays_untranslated(tab, serve, tmp_path):
    before = messages.use(pseudo_translation())
    try:
        write_exercises_page.write(tmp_path / "page")
    finally:
        messages.use(before)
    opened(tab, f"{serve(tmp_path / 'page')}/index.html")
    check_typed(tab, "01-linear", "")
    # Other catalogues translate the texts of exercises and the messages of Python.
    others = "script, noscript, #about, #ask, #title, .cm-editor, nav li, #verdict"
    texts = tab.evaluate(SHOWN.replace("script, noscript", others))
    assert len(texts) > 20
    for text in texts:
        assert not re.search("[A-Za-z]{2,}", re.sub(r"⟦[^⟦⟧]*⟧", "", text)), text
    assert tab.title().startswith("⟦") and tab.locator("h1").inner_text().startswith("⟦")


@weekly
def test_wheel_takes_the_place_of_the_stand_in(tab, serve, tmp_path, monkeypatch):
    wheel = tmp_path / "torch-2.13.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (ROOT / "browser" / "torch").rglob("*.*"):
            archive.write(path, path.relative_to(ROOT / "browser"))
        archive.writestr("torch/from_wheel.py", "")
        about = "torch-2.13.0.dist-info/"
        archive.writestr(
            about + "METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0\n"
        )
        archive.writestr(
            about + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(about + "RECORD", "")
    monkeypatch.setenv("TORCH_WHEEL", str(wheel))
    write_exercises_page.write(tmp_path / "page")
    names = zipfile.ZipFile(tmp_path / "page" / "course.zip").namelist()
    assert not any(name.startswith("torch/") for name in names)
    opened(tab, f"{serve(tmp_path / 'page')}/index.html")
    expect(tab.locator("#limits")).to_be_hidden()
    check_typed(tab, ATTENTION, f"import torch.from_wheel\n{RIGHT}")
    expect_verdict(tab, "✓")
