"""Initial values of parameters."""

import math

from .._tensor import no_grad
from .._types import absent


@no_grad()
def zeros_(tensor):
    """Fill with 0."""
    return tensor.fill_(0)


@no_grad()
def ones_(tensor):
    """Fill with 1."""
    return tensor.fill_(1)


@no_grad()
def constant_(tensor, val):
    """Fill with a number."""
    return tensor.fill_(val)


@no_grad()
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Draw from the normal distribution."""
    return tensor.normal_(mean, std, generator=generator)


@no_grad()
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Draw from a to b."""
    return tensor.uniform_(a, b, generator=generator)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Draw as Glorot and Bengio."""
    bound = gain * math.sqrt(6 / (tensor.shape[0] + tensor.shape[1]))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_uniform_(tensor, a=0):
    """Draw as He et al. for relu."""
    bound = math.sqrt(6 / ((1 + a * a) * tensor.shape[1]))
    return uniform_(tensor, -bound, bound)


def __getattr__(name):
    absent("torch.nn.init", name)
