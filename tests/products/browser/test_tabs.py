"""The tab that the tests share: each finds it as a new one, and hears what goes wrong in it."""

import pytest

from tests.products.browser.conftest import watched

SEEN = """() => [innerWidth, innerHeight, localStorage.length, sessionStorage.length,
  ...["print", "(prefers-color-scheme: dark)", "(prefers-reduced-motion)"]
    .map((query) => matchMedia(query).matches)]"""


@pytest.fixture
def address(serve, tmp_path):
    (tmp_path / "index.html").write_text("<!doctype html><link rel=icon href=data:,><p>A page.")
    return serve(tmp_path)


def test_what_one_test_does_to_the_tab_the_next_one_does_not_see(window, address):
    for _ in range(2):
        with watched(window) as tab:
            tab.goto(address)
            assert tab.evaluate(SEEN) == [1280, 720, 0, 0, False, False, False]
            tab.set_viewport_size({"width": 390, "height": 844})
            tab.emulate_media(media="print", color_scheme="dark", reduced_motion="reduce")
            tab.evaluate("localStorage.a = sessionStorage.a = 1")
            assert tab.evaluate(SEEN) == [390, 844, 1, 1, True, True, True]


@pytest.mark.parametrize(
    "wrong",
    [
        "console.error('broken')",
        "setTimeout(() => { throw Error('broken') })",
        "fetch('http://localhost:9/broken').catch(() => {})",
    ],
)
def test_what_goes_wrong_is_told_once(window, address, wrong):
    with pytest.raises(AssertionError, match="broken"), watched(window) as tab:
        tab.goto(address)
        tab.evaluate(f"{{ {wrong} }}")
        tab.wait_for_timeout(100)
    with watched(window):
        pass
