"""What a reader has read: marked in the book, kept in the browser, and in the way of nobody."""

import pytest

from tests.products.browser.conftest import grave, written
from twelve_lab.course import STEPS

PAGES = [step.notebook.replace(".ipynb", ".html") for step in STEPS]
TICKED = ".bd-sidebar-primary a:has(.tick)"
# A browser in which nothing of ours can be kept; the theme's own marks are its affair.
REFUSE = """for (const name of ["getItem", "setItem"]) {
  const own = Storage.prototype[name];
  Storage.prototype[name] = function (key, ...rest) {
    if (/twelve|terms/.test(key)) throw new DOMException("refused", "SecurityError");
    return own.call(this, key, ...rest);
  };
}"""


@pytest.fixture(scope="module")
def site(serve):
    return serve(written("book"))


@pytest.fixture(params=["server", "file"])
def book(request, site):
    """The book on a server, and opened as files."""
    return site if request.param == "server" else written("book").as_uri()


def ticked(tab):
    return [name.strip() for name in tab.locator(TICKED).all_text_contents()]


def test_a_lesson_is_marked_at_its_end_and_the_next_one_is_named(tab, book):
    tab.goto(f"{book}/{PAGES[4]}")
    bar, button = tab.locator(".reading"), tab.locator(".reading button")
    assert ticked(tab) == [] and button.text_content() == "Mark as read"
    bar.scroll_into_view_if_needed()
    tab.locator(TICKED).wait_for()
    assert ticked(tab) == ["04 Attention ✓"]
    assert bar.locator("[role=status]").text_content() == (
        f"1 of {len(STEPS)} lessons read. Next unread: 05 Masks."
    )
    bar.locator("a").click()
    tab.wait_for_url(f"{book}/{PAGES[5]}")
    assert ticked(tab) == ["04 Attention ✓"]
    assert tab.get_by_role("link", name="04 Attention read").count() == 1


def test_the_button_takes_the_mark_away_and_gives_it_by_the_keyboard(tab, site):
    tab.goto(f"{site}/{PAGES[0]}")
    button = tab.locator(".reading button")
    button.focus()
    tab.locator(TICKED).wait_for()
    for text, marks in (("Mark as unread", 1), ("Mark as read", 0), ("Mark as unread", 1)):
        assert (button.text_content(), len(ticked(tab))) == (text, marks)
        tab.keyboard.press("Enter")
    tab.reload()
    button.scroll_into_view_if_needed()
    tab.wait_for_timeout(200)
    assert ticked(tab) == []  # who has said "unread" is not contradicted


def test_the_home_page_shows_what_is_read_and_what_is_next_and_forgets_it(tab, site):
    tab.goto(f"{site}/index.html")
    assert not tab.locator(".reading").is_visible()
    names = [page.removesuffix(".html") for page in PAGES[:2]]
    keep = "names => localStorage.setItem('twelve-numbers-read', JSON.stringify(names))"
    tab.evaluate(keep, dict.fromkeys(names, True))
    tab.reload()
    bar = tab.locator(".reading")
    assert f"2 of {len(STEPS)} lessons read. Next unread: 02 Embedding." in bar.text_content()
    assert tab.locator("article a:has(.tick)").count() >= 2
    bar.get_by_role("button", name="Forget").click()
    assert not bar.is_visible() and tab.locator(".tick").count() == 0
    tab.evaluate(keep, {page.removesuffix(".html"): True for page in PAGES})
    tab.reload()
    assert "That is the whole course." in bar.text_content()
    assert bar.evaluate("e => e.classList.contains('done')")


@pytest.mark.parametrize("text", ["{", "[1, null]"])
def test_marks_that_cannot_be_read_are_no_marks(tab, site, text):
    tab.goto(f"{site}/{PAGES[1]}")
    tab.evaluate("text => localStorage.setItem('twelve-numbers-read', text)", text)
    tab.reload()
    assert ticked(tab) == [] and tab.locator(".reading button").count() == 1


def test_where_nothing_can_be_kept_nothing_is_offered_and_nothing_fails(fresh_tab, book):
    tab = fresh_tab
    tab.add_init_script(REFUSE)
    for page in ("index.html", PAGES[2]):
        tab.goto(f"{book}/{page}")
        tab.wait_for_load_state()
        assert tab.locator(".reading").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_what_marks_a_page_is_open_to_everybody(tab, site, theme):
    tab.emulate_media(color_scheme=theme)
    tab.goto(f"{site}/{PAGES[2]}")
    tab.add_style_tag(content="* { transition: none !important }")
    tab.locator(".reading button").focus()
    tab.locator(TICKED).wait_for()
    assert grave(tab) == []
