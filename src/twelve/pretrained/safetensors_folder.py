"""Read a folder of safetensors with config.json and tokenizer.json, as transformers writes it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from twelve.pretrained import checkpoint
from twelve.pretrained.checkpoint import Checkpoint, require, require_supported

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def read_folder(path: Path) -> Checkpoint:
    """Read a model of the type llama or qwen3."""
    config = _read_json(path / "config.json")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    require_supported("model_type", require(config, "model_type"), "llama", "qwen3")
    require_supported("hidden_act", config.get("hidden_act", "silu"), "silu")
    require_supported("use_sliding_window", config.get("use_sliding_window", False), False)
    require_supported("rope_type", rope_type, "default", "llama3")
    sizes = checkpoint.read_sizes({"rope_theta": checkpoint.BASE} | config | rope, "safetensors")
    sizes["tie_weights"] = config.get("tie_word_embeddings", False)
    require_supported("tie_word_embeddings", sizes["tie_weights"], True, False)
    tensors = _list_tensors(path)
    if sizes["tie_weights"]:
        _drop_tied_head(tensors)
    normalize_heads = config["model_type"] == "qwen3"
    scaling = rope if rope_type == "llama3" else None
    tokenizer = _read_tokenizer(path, config)
    return Checkpoint("safetensors", sizes, tensors, tokenizer, normalize_heads, scaling)


def _list_tensors(path: Path) -> dict[str, tuple]:
    from safetensors import safe_open

    tensors = {}
    for file in _weight_files(path):
        _require_file(file)
        with _reading(file):
            opened = safe_open(file, "pt")  # stays open until its tensors are read
            shapes = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}
        for name, shape in shapes.items():
            if name in tensors:
                raise ValueError(f"duplicate tensor in {file.name}: {name}")
            if not name.endswith("rotary_emb.inv_freq"):  # follows from the sizes
                tensors[name] = shape, partial(opened.get_tensor, name)
    return tensors


def _weight_files(path: Path) -> list[Path]:
    """List the files that belong to the model; other files may lie beside them."""
    if (path / INDEX).exists():
        with _reading(path / INDEX):
            names = {Path(name).name for name in _read_json(path / INDEX)["weight_map"].values()}
        if (path / SINGLE).exists() and SINGLE not in names:
            raise ValueError(f"ambiguous weights: {SINGLE} and {INDEX}; remove one of them")
        return [path / name for name in sorted(names)]
    if (path / SINGLE).exists():
        return [path / SINGLE]
    shards = sorted(path.glob("model-*-of-*.safetensors"))
    if not shards:
        raise ValueError(f"missing file: {SINGLE} or {INDEX}")
    return shards


def _drop_tied_head(tensors: dict[str, tuple]) -> None:
    """Drop a stored output projection that equals the embedding; refuse another one."""
    _, read_head = tensors.pop("lm_head.weight", (None, None))
    embedding = tensors.get("model.embed_tokens.weight")
    if read_head and embedding and not torch.equal(read_head(), embedding[1]()):
        raise ValueError("tie_word_embeddings is true, but lm_head differs from embed_tokens")


def _read_tokenizer(path: Path, config: Mapping[str, Any]) -> Any:
    from tokenizers import Tokenizer

    text = _read_json(path / "tokenizer.json")
    # The library aborts the process on invalid settings of these two.
    if '"Precompiled"' in json.dumps(text.get("normalizer")):
        raise ValueError("unsupported normalizer 'Precompiled'")
    prefix = (text.get("model") or {}).get("continuing_subword_prefix")
    require_supported("continuing_subword_prefix", prefix, None, "")
    # Settings of a training run, which would cut or pad every prompt.
    text |= {"truncation": None, "padding": None}
    with _reading(path / "tokenizer.json"):
        tokenizer = Tokenizer.from_str(json.dumps(text))
    settings, template = path / "tokenizer_config.json", path / "chat_template.jinja"
    tokenizer.chat_template = None
    if template.exists():
        tokenizer.chat_template = template.read_text(encoding="utf-8")
    elif settings.exists():
        tokenizer.chat_template = _read_json(settings).get("chat_template")
    end = config.get("eos_token_id") or []
    tokenizer.end_ids = end if isinstance(end, list) else [end]
    return tokenizer


def _read_json(file: Path) -> dict[str, Any]:
    _require_file(file)
    with _reading(file):
        return dict(json.loads(file.read_text(encoding="utf-8")))


def _require_file(file: Path) -> None:
    # A named pipe exists too, and reading it would wait for ever.
    if not file.is_file():
        raise ValueError(f"missing file: {file.name}")


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # the libraries raise no narrower type
        raise ValueError(f"cannot read {file.name}: {error}") from error
