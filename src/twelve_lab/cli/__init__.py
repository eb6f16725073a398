"""`python -m twelve`: its commands, and what they print on a terminal."""

from twelve_lab.cli.commands import main

__all__ = ["main"]
