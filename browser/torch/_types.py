"""Dtypes, sizes, the device, and the error for what PyTorch has and the stand-in has not."""

import json
import math
import struct
from array import array
from pathlib import Path

NAMES = json.loads(Path(__file__).with_name("names.json").read_text(encoding="utf-8"))


class NotHere(BaseException):
    """PyTorch has this, the stand-in has not: not the learner's fault, so no answer is judged."""


def not_here(what):
    return NotHere(f"{what} is in torch, but not in this page. Your answer was not judged")


def absent(module, name):
    if name in NAMES[module].split():
        raise not_here(f"{module}.{name}")
    owner = "'Tensor' object" if module == "Tensor" else f"module '{module}'"
    raise AttributeError(f"{owner} has no attribute {name!r}")


class dtype:
    """The type of the numbers in a tensor. Its kind is b(ool), i(nteger), f(loat) or c(omplex)."""

    def __init__(self, name, kind, itemsize, title):
        self.name, self.kind, self.itemsize, self.title = name, kind, itemsize, title
        self.rank = "bifc".index(kind)
        self.is_floating_point, self.is_complex = kind == "f", kind == "c"
        self.is_signed = name not in ("bool", "uint8")

    def __repr__(self):
        return f"torch.{self.name}"

    def __deepcopy__(self, memo):
        return self

    def cast(self, values):
        if self.kind == "b":
            return list(map(bool, values))
        if self.kind == "i":
            whole = (_whole(v) for v in values) if values and _any_float(values) else values
            return self.fit(list(map(int, whole)))
        return self.fit(list(map(complex if self.kind == "c" else float, values)))

    def fit(self, values):
        if self.kind == "i":
            half = 1 << (8 * self.itemsize - 1)
            low, high = (-half, half) if self.is_signed else (0, 2 * half)
            if values and (min(values) < low or max(values) >= high):
                return [(v - low) % (2 * half) + low for v in values]
            return values
        if self.name == "float32":
            return array("f", values).tolist()
        if self.name in ("float16", "bfloat16"):
            return [_half(v, self.name) for v in values]
        return list(map(bool, values)) if self.kind == "b" else values


def _any_float(values):
    return any(isinstance(v, float) for v in values)


def _whole(value):
    # A processor converts nan and numbers out of range to the least integer.
    return value if math.isfinite(value) else -(1 << 63)


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


bool_ = dtype("bool", "b", 1, "Bool")
uint8, int8 = dtype("uint8", "i", 1, "Byte"), dtype("int8", "i", 1, "Char")
int16, int32 = dtype("int16", "i", 2, "Short"), dtype("int32", "i", 4, "Int")
int64 = dtype("int64", "i", 8, "Long")
float16, bfloat16 = dtype("float16", "f", 2, "Half"), dtype("bfloat16", "f", 2, "BFloat16")
float32, float64 = dtype("float32", "f", 4, "Float"), dtype("float64", "f", 8, "Double")
complex64 = dtype("complex64", "c", 8, "ComplexFloat")
complex128 = dtype("complex128", "c", 16, "ComplexDouble")
_ORDER = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64,
          complex64, complex128)  # fmt: skip


def larger(x, y):
    if {x, y} == {float16, bfloat16}:
        return float32
    if {x, y} == {uint8, int8}:
        return int16
    if {x, y} == {float64, complex64}:
        return complex128
    return max(x, y, key=_ORDER.index)


def complex_of(real):
    return complex128 if real is float64 else complex64


def real_of(kind):
    return float64 if kind is complex128 else float32


class _State:
    """What all operations share: the default dtype, and whether gradients are recorded."""

    dtype, grad = float32, True


STATE = _State()


class finfo:
    """The limits of a dtype of real numbers."""

    def __init__(self, dtype=None):
        dtype = dtype or STATE.dtype
        bits, largest = {
            "float64": (52, 1023), "float32": (23, 127), "float16": (10, 15), "bfloat16": (7, 127)
        }[dtype.name]  # fmt: skip
        self.dtype, self.bits, self.eps = dtype.name, 8 * dtype.itemsize, 2.0**-bits
        self.max = (2.0 - 2.0**-bits) * 2.0**largest
        self.min, self.tiny = -self.max, 2.0 ** (1 - largest)
        self.smallest_normal = self.tiny


class iinfo:
    """The limits of a dtype of integers."""

    def __init__(self, dtype):
        self.bits = 8 * dtype.itemsize
        self.min = -(1 << (self.bits - 1)) if dtype.is_signed else 0
        self.max = self.min + (1 << self.bits) - 1


class Size(tuple):
    """The shape of a tensor."""

    def numel(self):
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size({list(self)})"

    def __getitem__(self, index):
        got = tuple.__getitem__(self, index)
        return Size(got) if isinstance(index, slice) else got

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))


class device:
    """The processor. There is no other one."""

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
    """How the numbers lie in memory."""

    def __repr__(self):
        return "torch.strided"


CPU, strided = device(), layout()
