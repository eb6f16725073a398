"""Read a folder of safetensors with config.json and tokenizer.json, as transformers writes it."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from twelve.pretrained.checkpoint import Checkpoint, Stored, read_sizes, require, require_one_of

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# Values that these layers implement, of settings that change the numbers. None means absent.
SUPPORTED = {
    "hidden_act": ("silu",), "tie_word_embeddings": (False, True), "use_sliding_window": (False,),
    "attention_bias": (False,), "mlp_bias": (False,), "partial_rotary_factor": (1,),
    "embedding_multiplier": (1,), "residual_multiplier": (1,), "logits_scaling": (1,),
    "logit_scale": (1,), "attention_multiplier": (), "query_pre_attn_scalar": (),
    "attn_logit_softcapping": (), "final_logit_softcapping": (),
}  # fmt: skip


def read_folder(path: Path) -> Checkpoint:
    """Read a model of the type llama or qwen3."""
    config = _read(path / "config.json", _parse_json)
    rope = (config.get("rope_parameters") or {}) | (config.get("rope_scaling") or {})
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    require_one_of("model_type", require(config, "model_type"), "llama", "qwen3")
    require_one_of("rope_type", rope_type, "default", "llama3")
    config |= rope
    for name, values in SUPPORTED.items():
        require_one_of(name, config.get(name), None, *values)
    for layer_type in config.get("layer_types") or ():
        require_one_of("layer_types", layer_type, "full_attention")
    sizes = read_sizes(config, "safetensors")
    sizes["tie_weights"] = config.get("tie_word_embeddings") or False
    tensors = _list_tensors(path)
    if sizes["tie_weights"]:
        _drop_tied_head(tensors)
    normalize_heads = config["model_type"] == "qwen3"
    scaling = rope if rope_type == "llama3" else None
    tokenizer = _read_tokenizer(path, config)
    return Checkpoint("safetensors", sizes, tensors, tokenizer, normalize_heads, scaling)


def _list_tensors(path: Path) -> dict[str, Stored]:
    from safetensors import safe_open

    tensors = {}
    for file in _weight_files(path):
        opened = _read(file, lambda file: safe_open(file, "pt"))
        for name in opened.keys():
            if name in tensors:
                raise ValueError(f"duplicate tensor in {file.name}: {name}")
            if not name.endswith("rotary_emb.inv_freq"):  # follows from the sizes
                shape = tuple(opened.get_slice(name).get_shape())
                tensors[name] = Stored(shape, partial(opened.get_tensor, name))
    return tensors


def _weight_files(path: Path) -> list[Path]:
    """List the files that belong to the model; other files may lie beside them."""
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
    """Drop a stored output projection that equals the embedding; refuse another one."""
    head = tensors.pop("lm_head.weight", None)
    embedding = tensors.get("model.embed_tokens.weight")
    if head and embedding and not torch.equal(head.read(), embedding.read()):
        raise ValueError("tie_word_embeddings is true, but lm_head differs from embed_tokens")


def _read_tokenizer(path: Path, config: Mapping[str, Any]) -> Any:
    tokenizer = _read(path / "tokenizer.json", _parse_tokenizer)
    template = path / "chat_template.jinja"
    tokenizer.chat_template = _read_optional(path / "tokenizer_config.json").get("chat_template")
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
    # The library aborts the process on invalid settings of these two.
    if '"Precompiled"' in json.dumps(settings.get("normalizer")):
        raise ValueError("unsupported normalizer 'Precompiled'")
    prefix = (settings.get("model") or {}).get("continuing_subword_prefix")
    require_one_of("continuing_subword_prefix", prefix, None, "")
    # Settings of a training run, which would cut or pad every prompt.
    settings |= {"truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(settings))


def _parse_json(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _read(file: Path, parse: Callable[[Path], Any]) -> Any:
    """Parse a file; every error names it."""
    # A named pipe exists too, and reading it would wait for ever.
    if not file.is_file():
        raise ValueError(f"missing file: {file.name}")
    try:
        return parse(file)
    except Exception as error:  # the libraries raise no narrower type
        raise ValueError(f"cannot read {file.name}: {error}") from error
