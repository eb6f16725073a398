"""The command line `python -m twelve`: its commands and their output on a terminal."""

from twelve_lab.cli.commands import main

__all__ = ["main"]
