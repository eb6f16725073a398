"""Benchmarks of speed and memory (`python -m benchmarks`), and of graders (`.graders`)."""
