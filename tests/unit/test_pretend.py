"""A planted fault of the device, on a device that the CPU plays: see tests/pretend.py."""

import os
from types import SimpleNamespace

import pytest
import torch

from tests.mutants.classic import ROOT
from tests.mutants.edit import edit
from twelve_lab import device

pytestmark = pytest.mark.skipif(
    os.environ.get("TWELVE_DEVICE") != "pretend", reason="needs TWELVE_DEVICE=pretend"
)


def load(source: str) -> SimpleNamespace:
    """Run the text of a module of the layers."""
    namespace = {"__name__": "twelve.planted"}
    exec(source, namespace)
    return SimpleNamespace(**namespace)


def test_device_notices_a_tensor_of_the_cpu():
    source = (ROOT / "src" / "twelve" / "normalization.py").read_text(encoding="utf-8")
    fault = {"normalized * self.weight + self.bias": "normalized * self.weight + self.bias.cpu()"}
    x = torch.zeros(2, 3, 4, device=device())
    assert load(source).LayerNorm(4)(x).device == x.device
    with pytest.raises(RuntimeError, match="same device"):
        load(edit(source, "LayerNorm.forward", fault)).LayerNorm(4)(x)
