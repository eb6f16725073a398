"""Swap the memory of the trained digit reverser during decoding."""

from twelve_lab.experiments.exchange import write_with_memories


def test_write_with_memories_continues_the_other_row_where_its_own_was_left():
    texts = write_with_memories("3141592654", "7053829146", after=3)
    own, backwards, exchanged, *alone = texts.values()
    assert own == backwards == "4 5 6 2 9 5 1 4 1 3 <end>"
    assert exchanged == "4 5 6 9 2 8 3 5 0 7 <end>"
    assert alone[0] == alone[1] not in (own, exchanged)
    assert [text.split(" after ")[-1] for text in texts][2] == "3 digits"
