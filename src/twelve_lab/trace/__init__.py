"""Traces of runs: every annotated tensor with name, axes and value."""
