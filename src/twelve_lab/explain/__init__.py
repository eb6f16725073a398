"""Explain any number of a run: the arithmetic that made it, down to ids and weights."""
