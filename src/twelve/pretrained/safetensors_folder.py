"""Read a folder of safetensors with config.json and tokenizer.json, as saved by transformers."""

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twelve._checks import check_positive
from twelve.pretrained.checkpoint import (
    SIZES,
    Checkpoint,
    Stored,
    read_sizes,
    require,
    require_one_of,
)

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Keys that only some model types have, with their defaults in transformers. Three types use the
# window only if use_sliding_window is true.
UNUSED_WINDOW = {"sliding_window": None, "max_window_layers": None}
MODEL_TYPES = {
    "llama": {"attention_bias": False},
    "mistral": {"sliding_window": 4096},
    "qwen2": UNUSED_WINDOW,
    "qwen3": UNUSED_WINDOW | {"head_dim": 128},
    "smollm3": UNUSED_WINDOW | {
        "attention_bias": False, "no_rope_layers": None, "no_rope_layer_interval": 4,
        "rope_theta": 2000000.0, "tie_word_embeddings": True,
    },
    "gemma": {
        "attention_bias": False, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": None, "tie_word_embeddings": True,
    },
    "phi3": {"sliding_window": None},
}  # fmt: skip
# Activations: names in config.json -> names in FeedForward.
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"}
# Supported values of other keys. The values null and false are also accepted.
SUPPORTED = {
    "tie_word_embeddings": (True,), "hidden_activation": ("gelu_pytorch_tanh",),
    "partial_rotary_factor": (1,), "embedding_multiplier": (1,), "residual_multiplier": (1,),
    "logits_scaling": (1,), "logit_scale": (1,),
}  # fmt: skip
# Keys that are read elsewhere, and keys that do not affect the logits.
KNOWN = {key for _, key in SIZES.values()} | {
    "model_type", "layer_types", "rope_parameters", "rope_scaling", "rope_type", "type", "factor",
    "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", "architectures",
    "attention_dropout", "attn_implementation", "auto_map", "bos_token_id", "dtype", "embd_pdrop",
    "eos_token_id", "hidden_act", "id2label", "initializer_range", "is_llama_config", "label2id",
    "max_length", "max_sequence_length", "pad_token_id", "pretraining_tp", "resid_pdrop",
    "tokenizer_class", "torch_dtype", "transformers.js_config", "transformers_version",
    "unk_token_id", "unsloth_fixed", "unsloth_version", "use_cache",
}  # fmt: skip


def read_folder(path: Path) -> Checkpoint:
    """Read a model whose type is one of MODEL_TYPES."""
    config = _read(path / "config.json", _parse_json)
    rope = (config.get("rope_parameters") or {}) | (config.get("rope_scaling") or {})
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    model_type = require(config, "model_type")
    require_one_of("model_type", model_type, *MODEL_TYPES)
    require_one_of("rope_type", rope_type, "default", "llama3")
    config = MODEL_TYPES[model_type] | {
        # null means the default, but turns off the sliding window
        name: value for name, value in (config | rope).items()
        if value is not None or name == "sliding_window"
    }  # fmt: skip
    _check_settings(config, KNOWN | MODEL_TYPES[model_type].keys())
    activation = config.get("hidden_act", "silu")
    require_one_of("hidden_act", activation, *ACTIVATIONS)
    activation = ACTIVATIONS[activation]
    if model_type == "gemma" and activation == "gelu":
        activation = "gelu_tanh"  # the first Gemma files give the wrong name
    sizes = read_sizes(config, "safetensors") | {
        "tie_weights": config.get("tie_word_embeddings") or False, "activation": activation,
        "bias": model_type == "qwen2" or config.get("attention_bias") or False,
        "window": config["sliding_window"] if model_type in ("mistral", "phi3") else None,
    }  # fmt: skip
    tensors = _list_tensors(path)
    if sizes["tie_weights"]:
        _drop_tied_head(tensors)
    if model_type == "phi3":
        tensors = _split_fused(tensors, sizes)
    return Checkpoint(
        "safetensors", sizes, tensors, _read_tokenizer(path, config),
        normalize_heads=model_type == "qwen3",
        rope_scaling=rope if rope_type == "llama3" else None,
        unrotated=_list_unrotated(config) if model_type == "smollm3" else (),
        output_bias=model_type != "qwen2",
        scale_embedding=model_type == "gemma",
        norm_offset=1.0 if model_type == "gemma" else 0.0,
    )  # fmt: skip


def _check_settings(config: Mapping[str, Any], known: Collection[str]) -> None:
    """Reject every setting that could change the logits and is not implemented."""
    for name, value in config.items():
        if value is None or value is False or name.startswith("_"):
            continue
        if name in SUPPORTED or name not in known:
            require_one_of(name, value, None, *SUPPORTED.get(name, ()))
    for layer_type in config.get("layer_types") or ():
        require_one_of("layer_types", layer_type, "full_attention")


def _list_unrotated(config: Mapping[str, Any]) -> Collection[int]:
    """List the layers of SmolLM3 that do not rotate queries and keys."""
    layers, interval = config["no_rope_layers"], config["no_rope_layer_interval"]
    count = require(config, "num_hidden_layers")
    if layers is None:
        check_positive("config", no_rope_layer_interval=interval)
        return range(interval - 1, count, interval)
    if len(layers) < count:
        raise ValueError(f"no_rope_layers must have {count} entries, got {len(layers)}")
    return [index for index, rotated in enumerate(layers) if not rotated]


def _split_fused(tensors: Mapping[str, Stored], sizes: Mapping[str, Any]) -> dict[str, Stored]:
    """Split the fused matrices of Phi-3."""
    query_rows = sizes["num_heads"] * sizes["d_k"]
    kv_rows = (sizes["num_kv_heads"] or sizes["num_heads"]) * sizes["d_k"]
    rows_of_parts = {
        "self_attn.qkv_proj": {
            "self_attn.q_proj": query_rows, "self_attn.k_proj": kv_rows,
            "self_attn.v_proj": kv_rows,
        },
        "mlp.gate_up_proj": {"mlp.gate_proj": sizes["d_ff"], "mlp.up_proj": sizes["d_ff"]},
    }  # fmt: skip
    split = dict(tensors)
    for name, (fused, parts) in product(tensors, rows_of_parts.items()):
        if name.endswith(f".{fused}.weight"):
            stored, rows = split.pop(name), list(parts.values())
            if stored.shape[0] != sum(rows):
                raise ValueError(f"{name} must have {sum(rows)} rows, got {stored.shape[0]}")
            for index, part in enumerate(parts):
                read = partial(_read_part, stored, rows, index)
                split[name.replace(fused, part)] = Stored((rows[index], *stored.shape[1:]), read)
    return split


def _read_part(fused: Stored, rows: list[int], index: int) -> Tensor:
    return fused.read().split(rows)[index]


def _list_tensors(path: Path) -> dict[str, Stored]:
    from safetensors import safe_open

    tensors = {}
    for file in _weight_files(path):
        opened = _read(file, lambda file: safe_open(file, "pt"))
        for name in opened.keys():
            if name in tensors:
                raise ValueError(f"duplicate tensor in {file.name}: {name}")
            if not name.endswith("rotary_emb.inv_freq"):  # computed from the sizes
                shape = tuple(opened.get_slice(name).get_shape())
                tensors[name] = Stored(shape, partial(opened.get_tensor, name))
    return tensors


def _weight_files(path: Path) -> list[Path]:
    """List the weight files of the model; the folder may contain others."""
    index, single = path / INDEX, path / SINGLE
    if index.exists():
        files = _read(index, lambda file: _parse_json(file)["weight_map"].values())
        names = sorted({Path(name).name for name in files})
        if single.exists() and SINGLE not in names:
            raise ValueError(f"ambiguous weights: {SINGLE} and {INDEX}; remove one of them")
        return [path / name for name in names]
    shards = [single] if single.exists() else sorted(path.glob("model-*-of-*.safetensors"))
    if not shards:
        raise ValueError(f"missing file: {SINGLE} or {INDEX}")
    return shards


def _drop_tied_head(tensors: dict[str, Stored]) -> None:
    """Drop a stored output projection that equals the embedding; reject one that differs."""
    head = tensors.pop("lm_head.weight", None)
    embedding = tensors.get("model.embed_tokens.weight")
    if head and embedding and not torch.equal(head.read(), embedding.read()):
        raise ValueError("tie_word_embeddings is true, but lm_head differs from embed_tokens")


def _read_tokenizer(path: Path, config: Mapping[str, Any]) -> Any:
    tokenizer = _read(path / "tokenizer.json", _parse_tokenizer)
    template = path / "chat_template.jinja"
    text = _read_optional(path / "tokenizer_config.json").get("chat_template")
    tokenizer.chat_template = text if isinstance(text, str) else None
    if template.exists():
        tokenizer.chat_template = _read(template, lambda file: file.read_text(encoding="utf-8"))
    end = _read_optional(path / "generation_config.json").get("eos_token_id")
    if end is None:
        end = config.get("eos_token_id", [])
    tokenizer.end_ids = end if isinstance(end, list) else [end]
    return tokenizer


def _read_optional(file: Path) -> dict[str, Any]:
    return _read(file, _parse_json) if file.exists() else {}


def _parse_tokenizer(file: Path) -> Any:
    from tokenizers import Tokenizer

    settings = _parse_json(file)
    # The library aborts the process if the settings of these components are invalid.
    for part, kind in {"normalizer": "Precompiled", "pre_tokenizer": "FixedLength"}.items():
        if f'"{kind}"' in json.dumps(settings.get(part)):
            raise ValueError(f"unsupported {part} {kind!r}")
    prefix = (settings.get("model") or {}).get("continuing_subword_prefix")
    require_one_of("continuing_subword_prefix", prefix, None, "")
    # These settings come from training and would truncate or pad every prompt.
    settings |= {"truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(settings))


def _parse_json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _read(file: Path, parse: Callable[[Path], Any]) -> Any:
    """Parse a file; every error names the file."""
    # A named pipe also exists, and reading it would block forever.
    if not file.is_file():
        raise ValueError(f"missing file: {file.name}")
    try:
        return parse(file)
    except Exception as error:  # the libraries raise no more specific type
        raise ValueError(f"cannot read {file.name}: {error}") from error
