"""The animation in the README is up to date with the live page."""

import pytest
from PIL import Image

from tests.products.browser.conftest import ROOT
from tools import film


@pytest.mark.weekly
def test_film_of_the_live_page_is_up_to_date(tab, tmp_path):
    film.write(tab, tmp_path / "live.gif")
    with Image.open(tmp_path / "live.gif") as new, Image.open(ROOT / film.FILM) as stored:
        assert new.info["comment"] == stored.info["comment"]
        assert new.n_frames == stored.n_frames and new.size == stored.size
