"""What the vectors of the trained digit reverser stand for."""

from twelve_lab.experiments.memory import FACTS, STAGES, named_by_nearest_average


def test_named_by_nearest_average_shows_which_sublayer_brings_which_fact():
    counts = named_by_nearest_average()
    assert list(counts) == [*STAGES, "most frequent"]
    assert all(tuple(facts) == FACTS for facts in counts.values())
    length, follow = ({s: c[f] for s, c in counts.items()} for f in FACTS[2:])
    assert length["before"] < 1.1 * length["most frequent"] < 2500 < length["+ self-attention"]
    assert follow["+ self-attention"] < 1000 < 3000 < follow["+ feed-forward"] < follow["memory"]
