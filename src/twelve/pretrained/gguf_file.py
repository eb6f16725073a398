"""Read a GGUF file: its header, its quantised tensors and its tokenizer.

The library `gguf` dequantises the tensors, but the header is parsed here. `gguf.GGUFReader` takes
3.1 seconds for the header of SmolLM2; this reader takes 0.15. `GGUFReader` also trusts the counts
in a damaged file, so it never finishes reading an array of 2**60 numbers.

Source:
    docs/gguf.md of ggml, versions 2 and 3.
"""

import math
import mmap
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twelve.pretrained.checkpoint import (
    SIZES,
    Checkpoint,
    Stored,
    read_sizes,
    require,
    require_one_of,
)

MAGIC = b"GGUF"
# Format characters of the module struct, keyed by the type number in the header.
SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Token types.
NORMAL, CONTROL = 1, 3


class HeaderReader:
    """Read values one after another, never past the end of the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = len(MAGIC)

    def numbers(self, code: str, count: int = 1) -> tuple:
        """Read numbers of one type."""
        layout = f"<{count}{code}"
        values = struct.unpack_from(layout, self.data, self.position)
        self.position += struct.calcsize(layout)
        return values

    def string(self) -> str:
        """Read a UTF-8 string, preceded by its length in bytes."""
        return self.numbers("s", *self.numbers("Q"))[0].decode()

    def value(self, kind: int) -> Any:
        """Read a number, a string or an array."""
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.numbers(SCALARS[kind])[0]
        (kind,), (count,) = self.numbers("I"), self.numbers("Q")
        if kind in SCALARS:
            return list(self.numbers(SCALARS[kind], count))
        return [self.value(kind) for _ in range(count)]

    def field(self) -> Any:
        """Read a value, preceded by its type."""
        return self.value(*self.numbers("I"))

    def tensor(self) -> tuple[tuple[int, ...], int, int]:
        """Read the shape, type and offset of a tensor; the file stores the last axis first."""
        shape = self.numbers("Q", *self.numbers("I"))
        return shape[::-1], *self.numbers("I"), *self.numbers("Q")

    def named(self, count: int, read: Callable[[], Any]) -> dict[str, Any]:
        """Read `count` values, each preceded by its name."""
        values = {}
        for _ in range(count):
            name = self.string()
            if name in values:
                raise ValueError(f"duplicate name: {name}")
            values[name] = read()
        return values


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Read the metadata fields and the list of tensors."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quant_shape_to_byte_shape

    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError("not a GGUF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = HeaderReader(data)
            require_one_of("GGUF version", *header.numbers("I"), 2, 3)
            tensor_count, field_count = header.numbers("Q", 2)
            fields = header.named(field_count, header.field)
            entries = header.named(tensor_count, header.tensor)
    alignment = fields.get("general.alignment", 32)
    first = position = header.position + -header.position % alignment
    tensors = {}
    for name, (shape, kind, offset) in entries.items():
        quantization = GGMLQuantizationType(kind)
        byte_shape = quant_shape_to_byte_shape(shape, quantization)
        if first + offset != position:
            raise ValueError(f"{name} must start at offset {position - first}, got {offset}")
        read = partial(_read_tensor, path, position, byte_shape, quantization)
        tensors[name] = Stored(shape, read)
        position += math.prod(byte_shape)
        if position > path.stat().st_size:
            raise ValueError(f"truncated: {name} ends at byte {position}")
        position += -position % alignment
    return fields, tensors


def _read_tensor(path: Path, start: int, byte_shape: tuple[int, ...], quantization: Any) -> Tensor:
    import numpy
    from gguf.quants import dequantize

    count = math.prod(byte_shape)
    data = numpy.fromfile(path, dtype=numpy.uint8, count=count, offset=start)
    return torch.from_numpy(dequantize(data.reshape(byte_shape), quantization))


def read_gguf(path: Path) -> Checkpoint:
    """Read a GGUF file of architecture llama with the tokenizer of SmolLM."""
    fields, tensors = read_header(path)
    require_one_of("architecture", require(fields, "general.architecture"), "llama")
    tokenizer = _build_tokenizer(fields)
    config = {"vocab_size": tokenizer.get_vocab_size()} | {
        name.removeprefix("llama."): value
        for name, value in fields.items()
        if name.startswith("llama.")
    }
    sizes = read_sizes(config, "gguf") | {"tie_weights": "output.weight" not in tensors}
    d_k = sizes["d_k"]
    supported = {
        "rope.scaling.type": "none", "rope.dimension_count": d_k, "attention.value_length": d_k,
    }  # fmt: skip
    known = {key for key, _ in SIZES.values()}
    for name, value in config.items():
        if name not in known:
            require_one_of(name, value, supported.get(name))
    return Checkpoint("gguf", sizes, tensors, tokenizer)


def _build_tokenizer(fields: Mapping[str, Any]) -> Any:
    """Build a byte-level BPE tokenizer from the vocabulary and the merges in the file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    require_one_of("tokenizer", fields.get("tokenizer.ggml.model"), "gpt2")
    require_one_of("pre-tokenizer", fields.get("tokenizer.ggml.pre"), "smollm")
    for name in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        require_one_of(name, fields.get(f"tokenizer.ggml.{name}", False), False)
    tokens, merges, types, end_id = (
        require(fields, f"tokenizer.ggml.{key}")
        for key in ("tokens", "merges", "token_type", "eos_token_id")
    )
    ids = {token: id for id, token in enumerate(tokens)}
    if not len(ids) == len(tokens) == len(types) or set(types) - {NORMAL, CONTROL}:
        counts = f"{len(tokens)} tokens, {len(ids)} distinct, types {sorted(set(types))}"
        raise ValueError(f"unsupported or damaged tokenizer: {counts}")
    tokenizer = Tokenizer(models.BPE(ids, [tuple(merge.split(" ")) for merge in merges]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, id in ids.items() if types[id] == CONTROL])
    tokenizer.chat_template = fields.get("tokenizer.chat_template")
    ends = (fields.get(f"tokenizer.ggml.{name}_token_id") for name in ("eot", "eom"))
    tokenizer.end_ids = list(dict.fromkeys([end_id, *(end for end in ends if end is not None)]))
    return tokenizer
