"""pytest plugin: run the tests of the layers on the device named by TWELVE_DEVICE.

TWELVE_DEVICE=cuda pytest -p tests.on_device tests/unit/test_attention.py
"""

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

if os.environ["TWELVE_DEVICE"] == "pretend":
    import tests.pretend  # noqa: F401
DEVICE = torch.device(os.environ["TWELVE_DEVICE"])
# Tests that fail on the device -> the reason.
EXCEPTIONS = {
    "tests/unit/test_transformer.py"
    "::test_transformer_applies_dropout_exactly_where_the_paper_does":
        "a default device makes torch call each function twice",
}  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move tensors in test parameters to the device, and mark EXCEPTIONS as expected failures."""
    for item in items:
        if hasattr(item, "callspec"):
            item.callspec.params.update(tree_map(_to_device, item.callspec.params))
        if reason := EXCEPTIONS.get(item.nodeid.partition("[")[0]):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(autouse=True)
def _on_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put new tensors, the tensors of the test module and those of the example on the device."""
    from twelve_lab import example

    for owner in (request.module, example, example.distinct):
        for name, value in vars(owner).items():
            if isinstance(value, Tensor):
                monkeypatch.setattr(owner, name, _to_device(value))
    torch.set_default_device(DEVICE)
    request.addfinalizer(lambda: torch.set_default_device(None))


def _to_device(value: Any) -> Any:
    return value.to(DEVICE) if isinstance(value, Tensor) and value.is_cpu else value
