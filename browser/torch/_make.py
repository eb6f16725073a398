"""Creation of tensors, and random numbers: the same draws as in PyTorch on a CPU."""

import math
import random
import struct
from array import array
from contextlib import contextmanager
from functools import lru_cache
from operator import mul

from ._errors import check
from ._layout import sizes
from ._math import rows
from ._registry import register, register_module
from ._tensor import Tensor, as_tensor, dtype_of, make
from ._types import CPU, STATE, float64, int64


def _made(values, shape, dtype, requires_grad=False, device=None):
    if device is not None:
        type(CPU)(device)
    return make(dtype.cast(values), shape, dtype).requires_grad_(requires_grad)


def tensor(data, *, dtype=None, device=None, requires_grad=False):
    if isinstance(data, Tensor):
        data, dtype = data.tolist(), dtype or data.dtype
    return as_tensor(data, dtype, device).requires_grad_(requires_grad)


def full(size, fill_value, *, dtype=None, device=None, requires_grad=False):
    size = sizes(size if isinstance(size, tuple | list) else (size,))
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    check(all(n >= 0 for n in size), "zeros")
    kind = dtype or dtype_of([value])
    return _made([value] * math.prod(size), size, kind, requires_grad, device)


def _filled(name, value):
    def new(*size, dtype=None, device=None, requires_grad=False):
        dtype = dtype or STATE.dtype
        return full(size, value, dtype=dtype, device=device, requires_grad=requires_grad)

    def like(input, *, dtype=None, device=None, requires_grad=False):
        return full_like(input, value, dtype=dtype, device=device, requires_grad=requires_grad)

    return {name: new, f"{name}_like": like}


register(_filled("zeros", 0) | _filled("ones", 1) | _filled("empty", 0))


def full_like(input, fill_value, *, dtype=None, device=None, requires_grad=False):
    dtype = dtype or input.dtype
    return full(input.shape, fill_value, dtype=dtype, device=device, requires_grad=requires_grad)


def eye(n, m=None, *, dtype=None, device=None):
    m = n if m is None else m
    return _made([i == j for i in range(n) for j in range(m)], (n, m), dtype or STATE.dtype)


def arange(start, end=None, step=1, *, dtype=None, device=None, requires_grad=False):
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    kind = dtype or dtype_of([start, end, step])
    count = math.ceil((end - start) / step)
    check(count >= 0, "arange")
    return _made([start + i * step for i in range(count)], (count,), kind, requires_grad, device)


def linspace(start, end, steps, *, dtype=None, device=None):
    gap = (end - start) / max(steps - 1, 1)
    return _made([start + i * gap for i in range(steps)], (steps,), dtype or STATE.dtype)


def logspace(start, end, steps, base=10.0, *, dtype=None, device=None):
    return base ** linspace(start, end, steps, dtype=dtype)


class _Stream:
    """The 32-bit words for a seed, from the same Mersenne Twister as in PyTorch."""

    def __init__(self, seed):
        state = [seed & 0xFFFFFFFF]
        for i in range(1, 624):
            state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) & 0xFFFFFFFF)
        self.twister, self.words = random.Random(), array("I")
        self.twister.setstate((3, (*state, 624), None))

    def read(self, start, count):
        more = start + count - len(self.words)
        if more > 0:
            drawn = self.twister.getrandbits(32 * more).to_bytes(4 * more, "little")
            self.words.extend(struct.unpack(f"<{more}I", drawn))
        return self.words[start : start + count]


_stream = lru_cache(16)(_Stream)


# Cache the draws: check draws the same cases again and again.
@lru_cache(512)
def _uniform(seed, start, count, double):
    """Return numbers in [0, 1), from one word each, or from two words in double precision."""
    if not double:
        return [(v & (1 << 24) - 1) * 2.0**-24 for v in _stream(seed).read(start, count)]
    words = _stream(seed).read(start, 2 * count)
    pairs = zip(words[::2], words[1::2])
    return [((high & (1 << 21) - 1) << 32 | low) * 2.0**-53 for high, low in pairs]


@lru_cache(512)
def _normal(seed, start, count, double):
    """Return at least 16 normal numbers, by the Box-Muller transform in blocks of 16."""
    out = list(_uniform(seed, start, count, double))
    for i in range(0, count - 15, 16):
        out[i : i + 16] = _box_muller(out[i : i + 16])
    if count % 16:
        out[-16:] = _box_muller(_uniform(seed, start + count * (1 + double), 16, double))
    return out


def _box_muller(draws):
    radii = [math.sqrt(-2 * math.log(1 - u)) for u in draws[:8]]
    angles = [2 * math.pi * u for u in draws[8:]]
    return [*map(mul, radii, map(math.cos, angles)), *map(mul, radii, map(math.sin, angles))]


class Generator:
    """A position in a stream of random words."""

    device = CPU

    def __init__(self, device="cpu"):
        self.manual_seed(67280421310721)

    def manual_seed(self, seed):
        self.first, self.place, self.spare = seed, 0, None
        return self

    def initial_seed(self):
        return self.first

    def get_state(self):
        return self.first, self.place, self.spare

    def set_state(self, new_state):
        self.first, self.place, self.spare = new_state
        return self

    def words(self, count):
        """Draw 32-bit words."""
        self.place += count
        return _stream(self.first).read(self.place - count, count)

    def uniform(self, count, dtype):
        """Draw numbers from the uniform distribution on [0, 1)."""
        start, double = self.place, dtype.itemsize == 8
        self.place += count * (1 + double)
        return _uniform(self.first, start, count, double)

    def normal(self, count, dtype):
        """Draw numbers from the standard normal distribution."""
        if count < 16:
            return [self._next() for _ in range(count)]
        start, double = self.place, dtype.itemsize == 8
        self.place += (count + 16 * (count % 16 > 0)) * (1 + double)
        return _normal(self.first, start, count, double)

    def _next(self):
        if self.spare is not None:
            value, self.spare = self.spare, None
            return value
        # PyTorch draws these in double precision for every dtype.
        angle, u = self.uniform(2, float64)
        radius, angle = math.sqrt(-2 * math.log1p(-u)), 2 * math.pi * angle
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)


default_generator = Generator()


def manual_seed(seed):
    return default_generator.manual_seed(seed)


@contextmanager
def fork_rng(devices=(), enabled=True):
    state = default_generator.get_state()
    try:
        yield
    finally:
        default_generator.set_state(state)


def randn(*size, generator=None, dtype=None, device=None, requires_grad=False):
    shape, dtype = sizes(size), dtype or STATE.dtype
    values = (generator or default_generator).normal(math.prod(shape), dtype)
    return make(dtype.fit(values), shape, dtype).requires_grad_(requires_grad)


def rand(*size, generator=None, dtype=None, device=None, requires_grad=False):
    shape, dtype, source = sizes(size), dtype or STATE.dtype, generator or default_generator
    values = source.uniform(math.prod(shape), dtype)
    return make(values, shape, dtype).requires_grad_(requires_grad)


def randint(*given, low=0, high=None, size=None, generator=None, dtype=None, device=None):
    *bounds, shape = given if size is None else (*given, size)
    shape = sizes(tuple(shape))
    if bounds:
        low, high = (low, bounds[0]) if len(bounds) == 1 else bounds
    words = (generator or default_generator).words(math.prod(shape))
    values = [low + word % (high - low) for word in words]
    return _made(values, shape, dtype or int64)


def randperm(n, *, generator=None):
    out = list(range(n))
    for i, word in enumerate((generator or default_generator).words(max(n - 1, 0))):
        j = i + word % (n - i)
        out[i], out[j] = out[j], out[i]
    return make(out, (n,), int64)


def bernoulli(input, *, generator=None):
    source = generator or default_generator
    draws = source.uniform(input.numel(), input.dtype)
    values = [float(draw < p) for draw, p in zip(draws, input._values())]
    return make(values, input.shape, input.dtype)


def multinomial(input, num_samples, replacement=False, *, generator=None):
    source, out = generator or default_generator, []
    if replacement and num_samples > 1:
        raise NotImplementedError
    # Draw the index with the largest ratio of probability to exponential random number.
    for row in rows(input, -1)[0]:
        check(sum(row) > 0, "multinomial")
        draws = source.uniform(len(row), input.dtype)
        shares = [p / -math.log1p(-draw) if draw else math.inf for p, draw in zip(row, draws)]
        out += sorted(range(len(row)), key=lambda i: -shares[i])[:num_samples]
    return make(out, (*input.shape[:-1], num_samples), int64)


register_module(globals())
