"""Laws of the tasks by hand about decoding: what they must compute, by enumeration."""

import itertools
import math

import torch
from torch.testing import assert_close

from twelve_lab.check import TASKS
from twelve_lab.exercises.by_hand.beam_search import _model


def test_a_beam_that_drops_nothing_finds_the_best_of_all_sequences():
    end, max_new, alpha = 2, 4, 0.8
    model, prompt = _model(3, 29, end, 0.0), torch.tensor([1, 0])
    scores = {}
    for new in itertools.product(range(3), repeat=max_new):
        length = new.index(end) + 1 if end in new else max_new
        total = sum(
            model(torch.tensor([[1, 0, *new[:t]]]))[0, new[t]].item() for t in range(length)
        )
        padded = new[:length] + (end,) * (max_new - length)
        scores[padded] = total / length**alpha
    given = model, prompt, end
    ids, found = TASKS["beam_search"].right(*given, len(scores), max_new, alpha)
    expected = sorted(scores.items(), key=lambda item: -item[1])
    assert [tuple(row) for row in ids[:, 2:].tolist()] == [new for new, _ in expected]
    assert_close(found.double(), torch.tensor([score for _, score in expected]).double())
    best = max(scores.values())
    narrow = TASKS["beam_search"].right(*given, 1, max_new, alpha)[1].item()
    assert not math.isclose(narrow, best, rel_tol=1e-3)
