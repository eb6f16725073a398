"""Fast: swap fused kernels into a model. This placeholder leaves the model as it is."""

from torch import nn


def make_fast(model: nn.Module) -> nn.Module:
    """Return the model unchanged."""
    return model
