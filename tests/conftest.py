"""Fixtures for all tests.

Shapes are checked on every call: pyproject.toml applies jaxtyping's plugin to the layers.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import jaxtyping
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

# nbformat imports jsonschema, which would take two seconds to build a grammar for IRIs.
sys.modules.setdefault("rfc3987_syntax", None)
# assert_close would import sympy (two seconds) for distributed tensors, which no test compares.
torch.testing._comparison._HAS_DTENSOR = False

# Name in our layers -> name in torch.nn.
TORCH_NAMES = {
    "self_attention_residual.norm": "norm1", "cross_attention_residual.norm": "norm2",
    "self_attention": "self_attn", "cross_attention": "multihead_attn", "w_o": "out_proj",
    "feed_forward.up": "linear1", "feed_forward.down": "linear2",
}  # fmt: skip


def pytest_sessionstart(session: pytest.Session) -> None:
    """Use a single thread: the tensors are too small to benefit from more."""
    torch.set_num_threads(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude the loaded modules from garbage collection, and collect garbage less often."""
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(autouse=True)
def _float64():
    """Compute in float64, which has strict default tolerances, with a fixed seed."""
    torch.set_default_dtype(torch.float64)
    # Like torch.manual_seed, but only for the CPU: for other devices it would store a traceback.
    torch.default_generator.manual_seed(12)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Disable the shape checker, which would reject bad input before the layers do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def sizes() -> SimpleNamespace:
    """Return distinct sizes, so tests notice swapped axes."""
    return SimpleNamespace(
        batch=2, heads=3, tgt=4, src=5, d_v=6, d_k=8, src_vocab=11, tgt_vocab=13, d_model=24,
        d_ff=96,
    )  # fmt: skip


@pytest.fixture
def seeded() -> torch.Generator:
    """Return a random generator with a fixed seed."""
    return torch.Generator().manual_seed(12)


@pytest.fixture
def draw(seeded: torch.Generator) -> Callable[..., Tensor]:
    """Return a function that draws from a normal distribution: `draw(batch, src, d_model)`."""
    device = torch.get_default_device()
    return lambda *shape: torch.randn(shape, generator=seeded, device="cpu").to(device)


@pytest.fixture
def assert_same(draw: Callable[..., Tensor]) -> Callable[..., None]:
    """Return a function that compares two outputs and their gradients."""

    def compare(
        ours: Tensor, theirs: Tensor, our_inputs: list[Tensor],
        their_inputs: list[Tensor] | None = None,
    ) -> None:  # fmt: skip
        assert_close(ours, theirs)
        direction = draw(*ours.shape)
        expected = torch.autograd.grad(theirs, their_inputs or our_inputs, direction)
        assert_close(torch.autograd.grad(ours, our_inputs, direction), expected)

    return compare


@pytest.fixture
def draw_ids(seeded: torch.Generator) -> Callable[..., Tensor]:
    """Return a function that draws ids below a limit: `draw_ids(limit, batch, src)`."""
    device = torch.get_default_device()

    def draw(limit: int, *shape: int, lowest: int = 1) -> Tensor:
        return torch.randint(lowest, limit, shape, generator=seeded, device="cpu").to(device)

    return draw


@pytest.fixture
def src(sizes: SimpleNamespace, draw_ids: Callable[..., Tensor]) -> Tensor:
    """Draw source ids; the first sentence is padded."""
    ids = draw_ids(sizes.src_vocab, sizes.batch, sizes.src)
    ids[0, 3:] = 0
    return ids


@pytest.fixture
def x(sizes: SimpleNamespace, draw: Callable[..., Tensor]) -> Tensor:
    """Draw a vector for each source position."""
    return draw(sizes.batch, sizes.src, sizes.d_model)


@pytest.fixture
def y(sizes: SimpleNamespace, draw: Callable[..., Tensor]) -> Tensor:
    """Draw a vector for each target position."""
    return draw(sizes.batch, sizes.tgt, sizes.d_model)


@pytest.fixture
def prompt_mask(sizes: SimpleNamespace) -> Tensor:
    """Mask the start of the first sentence, and the future of each query."""
    mask = torch.ones(sizes.batch, 1, sizes.src, sizes.src, dtype=torch.bool).tril()
    mask[0, :, :, :2] = False
    return mask


@pytest.fixture
def noisy(seeded: torch.Generator) -> Callable[[nn.Module], nn.Module]:
    """Return a function that fills parameters with noise, so no bias is 0 and no scale is 1."""

    def fill(module: nn.Module) -> nn.Module:
        with torch.no_grad():
            for parameter in module.parameters():
                width = parameter.size(-1) if parameter.ndim > 1 else 1
                noise = torch.randn(parameter.shape, generator=seeded, device="cpu")
                parameter.copy_(noise / width**0.5)
        return module

    return fill


@pytest.fixture
def torch_state() -> Callable[[nn.Module], dict[str, Tensor]]:
    """Return a function that converts the state_dict of our layers to the names of torch.nn."""

    def convert(layer: nn.Module) -> dict[str, Tensor]:
        ours, theirs = layer.state_dict(), {}
        for name, value in ours.items():
            block = name.split("feed_forward_residual")[0]
            last = "norm3" if f"{block}cross_attention.w_q.weight" in ours else "norm2"
            for part, counterpart in TORCH_NAMES.items():
                name = name.replace(part, counterpart)
            theirs[name.replace("feed_forward_residual.norm", last)] = value
        for name in [name for name in theirs if "w_q." in name]:
            thirds = [theirs.pop(name.replace("w_q", matrix)) for matrix in ("w_q", "w_k", "w_v")]
            theirs[name.replace("w_q.", "in_proj_")] = torch.cat(thirds)
        return theirs

    return convert
