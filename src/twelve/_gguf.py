"""GGUF files: what stands at their head, and their tensors, unpacked one at a time."""

import math
import mmap
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# The kinds of values at the head, as the module struct calls them; text and lists are the others.
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9


def read(path: Path) -> tuple[dict[str, Any], dict[str, tuple[tuple, Callable[[], Tensor]]]]:
    """Give the fields of a file, and of each tensor its shape and what reads it.

    Source:
        docs/gguf.md of ggml, versions 2 and 3. The library's own reader takes two seconds for the
        words of a tokenizer, and believes the counts of a damaged file, however large.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError("it is no GGUF file, which begins with the letters GGUF")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            head, end = _Head(data), len(data)
            fields, entries = head.contents()
    start = head.at + -head.at % fields.get("general.alignment", 32)
    tensors = {}
    for name, (shape, kind, offset) in entries.items():
        packed, packed_shape = _layout(name, shape, kind)
        stop = start + offset + math.prod(packed_shape)
        if stop > end:
            raise ValueError(f"it is cut short: {name} ends at byte {stop}, the file at {end}")
        tensors[name] = shape, partial(_unpack, path, start + offset, packed, packed_shape)
    return fields, tensors


class _Head:
    """Reads one value after the other, and nothing beyond the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 4

    def contents(self) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, int]]]:
        (version,) = self.numbers("I")
        if version not in (2, 3):
            raise ValueError(f"it is GGUF of version {version}, and 2 and 3 are known")
        tensors, fields = self.numbers("Q", 2)
        fields = {self.text(): self.value(*self.numbers("I")) for _ in range(fields)}
        return fields, {self.text(): self.entry() for _ in range(tensors)}

    def entry(self) -> tuple[tuple[int, ...], int, int]:
        shape = self.numbers("Q", *self.numbers("I"))
        return shape[::-1], *self.numbers("I"), *self.numbers("Q")

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.numbers(SCALARS[kind])[0]
        (kind,), (count,) = self.numbers("I"), self.numbers("Q")
        if kind in SCALARS:
            return list(self.numbers(SCALARS[kind], count))
        return [self.value(kind) for _ in range(count)]

    def text(self) -> str:
        return self.numbers("s", *self.numbers("Q"))[0].decode()

    def numbers(self, code: str, count: int = 1) -> tuple:
        layout = f"<{count}{code}"
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values


def _layout(name: str, shape: tuple[int, ...], kind: int) -> tuple[Any, tuple[int, ...]]:
    """Name how a tensor is packed, and give its shape in bytes."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quant_shape_to_byte_shape

    try:
        packed = GGMLQuantizationType(kind)
        return packed, quant_shape_to_byte_shape(shape, packed)
    except (ValueError, LookupError) as error:
        raise ValueError(f"{name} is packed in a way that is not known: {error}") from None


def _unpack(path: Path, start: int, packed: Any, packed_shape: tuple[int, ...]) -> Tensor:
    from gguf.quants import dequantize

    with path.open("rb") as file:
        file.seek(start)
        data = bytearray(file.read(math.prod(packed_shape)))
    try:
        rows = torch.frombuffer(data, dtype=torch.uint8).view(packed_shape).numpy()
        return torch.from_numpy(dequantize(rows, packed))
    except NotImplementedError as error:
        raise ValueError(f"{packed.name} cannot be unpacked: {error}") from None
