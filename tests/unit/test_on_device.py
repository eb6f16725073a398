"""A second device reveals bugs that the CPU hides. Here tests/pretend.py behaves like CUDA."""

import os
from types import SimpleNamespace

import pytest
import torch

from tests.mutants.run import ROOT
from twelve_lab import device
from twelve_lab.exercises.edit import edit

pytestmark = pytest.mark.skipif(
    os.environ.get("TWELVE_DEVICE", "cpu") == "cpu", reason="needs TWELVE_DEVICE=pretend or cuda"
)
# Bugs: one moves a tensor to the CPU, the other creates a tensor there. Each row has the module,
# the function, the line, the line with the bug, and a call of the layer.
PLANTS = [
    ("attention", "scaled_dot_product_attention", "X / math.sqrt(d_k)", "X.cpu() / math.sqrt(d_k)",
     lambda module, x: module.scaled_dot_product_attention(x, x, x)),
    ("normalization", "LayerNorm.forward", "normalized * self.weight + self.bias",
     "normalized * torch.ones(4, device='cpu') + self.bias",
     lambda module, x: module.LayerNorm(4)(x)),
]  # fmt: skip


def load(source: str) -> SimpleNamespace:
    """Execute the source of a layer module and return its namespace."""
    namespace = {"__name__": "twelve.planted"}
    exec(source, namespace)
    return SimpleNamespace(**namespace)


@pytest.mark.parametrize(("name", "function", "line", "fault", "call"), PLANTS)
def test_device_notices_a_tensor_of_the_cpu(name, function, line, fault, call):
    source = (ROOT / "src" / "twelve" / f"{name}.py").read_text(encoding="utf-8")
    x = torch.zeros(2, 3, 4, device=device())
    assert call(load(source), x).device == x.device
    with pytest.raises(RuntimeError, match="same device"):
        call(load(edit(source, function, {line: fault})), x)


def test_device_has_no_product_of_integer_matrices():
    x = torch.ones(2, 2, 2, dtype=torch.int64, device=device())
    for product in (lambda: x @ x, lambda: x[0] @ x[0], lambda: x[0, 0] @ x[0, 0]):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            product()


def test_gradient_of_a_complex_product_is_that_of_the_cpu():
    numbers, gradients = torch.linspace(1, 2, 12).view(3, 2, 2), []
    for where in ("cpu", device()):
        left, right = numbers[0].to(where).requires_grad_(), numbers[1].to(where)
        product = torch.view_as_complex(left) * torch.view_as_complex(right)
        (torch.view_as_real(product) * numbers[2].to(where)).sum().backward()
        gradients.append(left.grad.cpu())
    torch.testing.assert_close(*gradients)
