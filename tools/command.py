"""Command line shared by the tools that write a file or a folder."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def run(write: Callable[[Path], Iterable[str]], default: Path, about: str) -> int:
    """Read a path from the command line, write there, and print the messages or the error.

    Args:
        write: Writes the file or folder, and returns the lines of a message.
        default: The default path.
        about: One-line description of the tool.

    Returns:
        Exit status: 0, or 1 after an error.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("path", nargs="?", type=Path, default=default, metavar="PATH")
    try:
        print("\n".join(write(parser.parse_args().path)))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
