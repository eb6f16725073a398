"""exchanged_parts: each swap changes the logits, and the model is restored."""

from types import SimpleNamespace

import pytest
from torch.testing import assert_close

from twelve_lab import example, exchanged_parts
from twelve_lab.experiments.exchanged_parts import EXCHANGES


def test_each_exchange_changes_the_probability_and_is_undone():
    model = example.distinct.language_model()
    ids = example.distinct.text[1:]
    before = model(ids)
    tokenizer = SimpleNamespace(
        encode=lambda text: SimpleNamespace(ids=list(map(int, text.split()))),
        decode=lambda ids: " ".join(map(str, ids)),
    )
    text = " ".join(map(str, ids[0].tolist()))
    nothing, *others = exchanged_parts(model, tokenizer, text, "3", tokens=2)
    assert nothing.probability == pytest.approx(before[0, -1].softmax(-1)[3].item())
    assert [each.name for each in others] == list(EXCHANGES)
    assert all(abs(each.probability - nothing.probability) > 1e-6 for each in others)
    assert {len(each.text.split()) for each in (nothing, *others)} == {2}
    assert_close(model(ids), before, rtol=0, atol=0)
