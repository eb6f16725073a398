"""The contents of a weights file, and their names in GGUF and safetensors."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from twelve._checks import check_above_zero, check_positive


class Stored(NamedTuple):
    """The shape of a tensor in a file, and a function that reads the tensor."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


# The columns below, in order.
FORMATS = ("gguf", "safetensors")
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
# The arguments of LanguageModel.
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
# In both formats; the default of d_k is d_model / num_heads, set in read_sizes.
DEFAULTS = {"num_kv_heads": None, "d_k": None, "base": 10000.0}


class Checkpoint(NamedTuple):
    """The contents of a weights file.

    Attributes:
        format: "gguf", which rotates adjacent features, or "safetensors", which rotates feature i
            with feature i + d_k / 2.
        sizes: Arguments of LanguageModel.
        tensors: The stored tensors, keyed by their names in the file.
        tokenizer: A `tokenizers.Tokenizer`.
        normalize_heads: Whether queries and keys are normalised in each head.
        rope_scaling: Settings of ScaledRotaryEncoding, if the model uses it.
        unrotated: Indices of the layers that do not rotate queries and keys.
        output_bias: Whether w_o has a bias if w_q, w_k and w_v have one.
        scale_embedding: Whether the embeddings are multiplied by √d_model.
        norm_offset: Offset that is added to the stored weight of every norm.
    """

    format: str
    sizes: dict[str, Any]
    tensors: dict[str, Stored]
    tokenizer: Any
    normalize_heads: bool = False
    rope_scaling: Mapping[str, Any] | None = None
    unrotated: Collection[int] = ()
    output_bias: bool = True
    scale_embedding: bool = False
    norm_offset: float = 0.0

    def name_of(self, parameter: str) -> str:
        """Return the name in the file of a parameter of LanguageModel."""
        column = FORMATS.index(self.format)
        name, _, kind = parameter.rpartition(".")  # kind: weight or bias
        if not name.startswith("layers."):
            return f"{NAMES[name][column]}.{kind}"
        layers, index, name = name.split(".", 2)
        return f"{NAMES[layers][column]}.{index}.{NAMES[name][column]}.{kind}"


def require(config: Mapping[str, Any], key: str) -> Any:
    """Return the value of a required key."""
    if config.get(key) is None:
        raise ValueError(f"missing key: {key}")
    return config[key]


def require_one_of(name: str, value: object, *supported: object) -> None:
    """Reject a setting that these layers do not implement."""
    if value not in supported:
        listed = ", ".join(map(str, supported))
        raise ValueError(f"unsupported {name} {value!r} (supported: {listed})")


def read_sizes(config: Mapping[str, Any], file_format: str) -> dict[str, Any]:
    """Read the arguments of LanguageModel."""
    sizes = dict(DEFAULTS)
    for name, keys in SIZES.items():
        key = keys[FORMATS.index(file_format)]
        if name not in DEFAULTS or config.get(key) is not None:
            sizes[name] = require(config, key)
    check_positive("config", d_model=sizes["d_model"], num_heads=sizes["num_heads"])
    if sizes["d_k"] is None:
        sizes["d_k"] = sizes["d_model"] // sizes["num_heads"]
    check_positive("config", d_k=sizes["d_k"])
    check_above_zero("config", base=sizes["base"])
    sizes["base"] = float(sizes["base"])
    return sizes
