"""Dtypes, sizes and the device."""

import math
import struct
from array import array

from ._errors import not_here


class dtype:
    """The element type of a tensor. Its kind is b(ool), i(nteger), f(loat) or c(omplex)."""

    def __init__(self, name, kind, itemsize, title):
        self.name, self.kind, self.itemsize, self.title = name, kind, itemsize, title
        self.rank = "bifc".index(kind)
        self.number = (bool, int, float, complex)[self.rank]
        self.is_floating_point, self.is_complex = kind == "f", kind == "c"
        self.is_signed = name not in ("bool", "uint8")
        bits = 8 * itemsize
        self.low = -(1 << (bits - 1)) if self.is_signed else 0
        self.high = self.low + (1 << bits) - 1

    def __repr__(self):
        return f"torch.{self.name}"

    def __deepcopy__(self, memo):
        return self

    def cast(self, values):
        """Convert Python numbers to this dtype."""
        if self.kind == "i" and any(isinstance(v, float) for v in values):
            # A CPU converts nan and infinity to the smallest integer.
            values = [v if math.isfinite(v) else -(1 << 63) for v in values]
        return self.fit(list(map(self.number, values)))

    def fit(self, values):
        """Round or wrap numbers of the right kind to values that this dtype can represent."""
        if self.kind == "i" and values and (min(values) < self.low or max(values) > self.high):
            return [(v - self.low) % (self.high - self.low + 1) + self.low for v in values]
        if self.name == "float32":
            return array("f", values).tolist()
        if self.name in ("float16", "bfloat16"):
            return [_half(v, self.name) for v in values]
        return list(map(bool, values)) if self.kind == "b" else values


def _half(value, name):
    if not math.isfinite(value):
        return value
    if name == "float16":
        try:
            return struct.unpack("e", struct.pack("e", value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)
    bits = struct.unpack("I", struct.pack("f", value))[0]
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return struct.unpack("f", struct.pack("I", bits))[0]


KINDS = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64,
          complex128) = [dtype(*fields) for fields in (
    ("bool", "b", 1, "Bool"), ("uint8", "i", 1, "Byte"), ("int8", "i", 1, "Char"),
    ("int16", "i", 2, "Short"), ("int32", "i", 4, "Int"), ("int64", "i", 8, "Long"),
    ("float16", "f", 2, "Half"), ("bfloat16", "f", 2, "BFloat16"), ("float32", "f", 4, "Float"),
    ("float64", "f", 8, "Double"), ("complex64", "c", 8, "ComplexFloat"),
    ("complex128", "c", 16, "ComplexDouble"),
)]  # fmt: skip
_PAIRS = {(float16, bfloat16): float32, (uint8, int8): int16, (float64, complex64): complex128}


def larger(x, y):
    """Return the dtype to which two dtypes are promoted."""
    return _PAIRS.get((x, y)) or _PAIRS.get((y, x)) or max(x, y, key=KINDS.index)


def complex_of(real):
    return complex128 if real is float64 else complex64


def real_of(kind):
    return float64 if kind is complex128 else float32


class STATE:
    """Global state: the default dtype, and whether gradients are recorded."""

    dtype, grad = float32, True


class finfo:
    """The limits of a floating-point dtype."""

    def __init__(self, dtype=None):
        dtype = dtype or STATE.dtype
        bits, largest = {8: (52, 1023), 4: (23, 127), 2: (10, 15)}[dtype.itemsize]
        bits, largest = (7, 127) if dtype is bfloat16 else (bits, largest)
        self.dtype, self.bits, self.eps = dtype.name, 8 * dtype.itemsize, 2.0**-bits
        self.max = (2.0 - 2.0**-bits) * 2.0**largest
        self.min, self.tiny = -self.max, 2.0 ** (1 - largest)
        self.smallest_normal = self.tiny


class iinfo:
    """The limits of an integer dtype."""

    def __init__(self, dtype):
        self.bits, self.min, self.max = 8 * dtype.itemsize, dtype.low, dtype.high


class Size(tuple):
    """The shape of a tensor."""

    def numel(self):
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size({list(self)})"

    def __getitem__(self, index):
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))


class device:
    """The CPU, which is the only device."""

    def __init__(self, type="cpu", index=None):
        self.type, self.index = str(type).partition(":")[0], index
        if self.type != "cpu":
            raise not_here(f"The device {self.type}")

    def __repr__(self):
        return "device(type='cpu')"

    def __str__(self):
        return "cpu"

    def __eq__(self, other):
        return str(other) == "cpu"

    def __hash__(self):
        return 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class layout:
    """The memory layout of a tensor."""

    def __repr__(self):
        return "torch.strided"


CPU, strided = device(), layout()
