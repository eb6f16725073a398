"""Shared by all tests: shapes are checked at run time, and every size differs from every other."""

from types import SimpleNamespace

import pytest
import torch
from jaxtyping import install_import_hook

# Before the first import of the layers: every signature is checked on every call.
STEPS = (
    "linear", "embedding", "positional_encoding", "attention", "masks", "multi_head_attention",
    "normalization", "residual", "feed_forward", "encoder", "decoder", "transformer",
)  # fmt: skip
_hook = install_import_hook([f"twelve.{step}" for step in STEPS], "beartype.beartype")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Use one thread: at these sizes a second one only waits."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _float64():
    """Compute in float64, so that the default tolerances mean something."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def sizes() -> SimpleNamespace:
    """All different, so that no axis can pass for another."""
    return SimpleNamespace(
        batch=2, heads=3, tgt=4, src=5, d_v=6, d_k=8, src_vocab=11, tgt_vocab=13, d_model=24,
        d_ff=96,
    )  # fmt: skip


@pytest.fixture
def seeded() -> torch.Generator:
    """Give numbers that look random and are the same every time."""
    return torch.Generator().manual_seed(12)
