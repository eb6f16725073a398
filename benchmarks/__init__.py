"""Measures how fast the layers are, beside others that do the same work: python -m benchmarks."""
