"""Compares speed and memory (python -m benchmarks) and graders (python -m benchmarks.graders)."""
