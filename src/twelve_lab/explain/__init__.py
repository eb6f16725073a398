"""Explain any number in a run: the arithmetic that computed it, down to ids and weights."""
