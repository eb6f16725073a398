"""Plant the classic mistakes, and check that docs/mistakes.md names a test for each."""

import pytest

from tests.mutants import run as runner
from tests.mutants.classic import PLANTS
from tests.mutants.operators import is_another
from tests.mutants.run import ROOT, format_page, read_page
from twelve_lab.check import TAUGHT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("id", PLANTS)
def test_a_classic_mistake_can_be_planted_in_its_layer(id):
    source = (ROOT / PLANTS[id].path).read_text(encoding="utf-8")
    assert is_another(source, PLANTS[id].text())


def test_the_page_names_a_test_for_every_mistake():
    text = runner.PAGE.read_text(encoding="utf-8")
    noticed = read_page(text)
    assert text == format_page(TAUGHT, noticed)
    assert set(noticed) == set(TAUGHT)
    for run in noticed.values():
        file, name = run.failed.split("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
