"""Run a failure on purpose, and show what it says."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def expect(kind: type[Exception]) -> Iterator[None]:
    """Print the error that the block raises, as `Kind: first line of the message`.

        with expect(RuntimeError):
            x - x.mean(-1)

    Args:
        kind: The error that must come.

    Raises:
        AssertionError: If the block raises nothing. Any other error passes through.
    """
    try:
        yield
    except kind as error:
        lines = str(error).strip().splitlines()
        print(f"{type(error).__name__}: {lines[0] if lines else ''}".rstrip(": "))
    else:
        raise AssertionError(f"the block was expected to raise {kind.__name__} and raised nothing")
