"""Initial values of parameters."""

import math

from torch import _errors
from torch._tensor import no_grad as _no_grad

zeros_ = _no_grad(lambda tensor: tensor.fill_(0))
ones_ = _no_grad(lambda tensor: tensor.fill_(1))
constant_ = _no_grad(lambda tensor, val: tensor.fill_(val))


@_no_grad
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    return tensor.normal_(mean, std, generator=generator)


@_no_grad
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    return tensor.uniform_(a, b, generator=generator)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    bound = gain * math.sqrt(6 / (tensor.shape[0] + tensor.shape[1]))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_uniform_(tensor, a=0):
    bound = math.sqrt(6 / ((1 + a * a) * tensor.shape[1]))
    return uniform_(tensor, -bound, bound)


__getattr__ = _errors.lookup("torch.nn.init")
