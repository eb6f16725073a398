"""Decoder-only language model: one causal stack, no encoder.

Step 18 | notebooks/18_decoder_only.ipynb | tests/unit/test_decoder_only.py
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checks import (
    check_equal,
    check_heads,
    check_mask,
    check_positive,
    check_switch,
    checked,
)
from twelve.embedding import TokenEmbedding
from twelve.feed_forward import SwiGLU
from twelve.generation import KeyValueCache, all_or_nothing
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.linear import Linear
from twelve.masks import causal_mask
from twelve.normalization import RMSNorm
from twelve.residual import Residual
from twelve.rotary_positions import RotaryEncoding


class LanguageLayer(nn.Module):
    """Causal self-attention, then SwiGLU, each with a residual connection.

    Args:
        d_model: Number of features at each position.
        num_heads: Number of query heads.
        num_kv_heads: Number of key and value heads; num_heads by default.
        d_ff: Number of hidden features in the feed-forward layer; 8/3 · d_model by default.
        d_k: Number of features of each head; d_model / num_heads by default.
        rotary: Encoding that rotates queries and keys by their position.
        eps: Epsilon of both norms.
        activation: Activation of SwiGLU's gate.
        bias: Whether the four attention projections add a bias.

    Raises:
        ValueError: If an argument is invalid for a submodule.

    Source:
        Touvron et al. (2023), "LLaMA", section 2.2.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int | None = None,
        d_ff: int | None = None, *, d_k: int | None = None, rotary: RotaryEncoding | None = None,
        eps: float = 1e-5, activation: str = "silu", bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d_model = d_model
        self.self_attention = GroupedQueryAttention(
            d_model, num_heads, num_kv_heads, d_k=d_k, rotary=rotary, bias=bias
        )
        d_ff = 8 * d_model // 3 if d_ff is None else d_ff
        self.feed_forward = SwiGLU(d_model, d_ff, activation=activation)
        self.self_attention_residual = Residual(d_model, norm=RMSNorm(d_model, eps=eps))
        self.feed_forward_residual = Residual(d_model, norm=RMSNorm(d_model, eps=eps))

    @checked
    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "#batch #head #seq _key"] | None = None,
        *,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Apply self-attention, then feed-forward.

        Args:
            x: The new positions.
            mask: True where a position may be attended to.
            cache: Keys and values of earlier positions.

        Raises:
            ValueError: If the shapes do not match.
        """
        x = self.self_attention_residual(
            x, lambda normed: self.self_attention(normed, mask, cache=cache)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class LanguageModel(nn.Module):
    """Compute logits for the next word of a text from all words before it.

    Args:
        vocab_size: Number of ids.
        d_model: Number of features at each position.
        num_heads: Number of query heads in each layer.
        num_kv_heads: Number of key and value heads in each layer; num_heads by default.
        d_ff: Number of hidden features in each feed-forward layer; 8/3 · d_model by default.
        num_layers: Number of layers, each with its own initial weights.
        d_k: Number of features of each head; d_model / num_heads by default.
        max_len: Maximum number of positions in a text.
        base: Base of RoPE: the larger the base, the more slowly the later pairs rotate.
        eps: Epsilon of every norm.
        tie_weights: Whether the embedding table is also the output projection. The table is then
            drawn with standard deviation 1/√d_model; with 1, the initial logits would be √d_model
            times too large.
        activation: Activation of SwiGLU's gate.
        bias: Whether the four projections of each attention layer add a bias.
        window: Number of positions that a position may attend to, including itself; all by default.

    Raises:
        ValueError: If an argument is invalid for a submodule.

    Source:
        Radford et al. (2018), "Improving Language Understanding by Generative Pre-Training", for a
        decoder without an encoder. Touvron et al. (2023), "LLaMA", section 2.2, for the layers.
        Bai et al. (2023), "Qwen Technical Report", section 2.3, for biases on queries, keys and
        values. Jiang et al. (2023), "Mistral 7B", section 2, for the window.
    """

    def __init__(
        self, vocab_size: int, *, d_model: int, num_heads: int, num_kv_heads: int | None = None,
        d_ff: int | None = None, num_layers: int, d_k: int | None = None, max_len: int = 2048,
        base: float = 10000.0, eps: float = 1e-5, tie_weights: bool = False,
        activation: str = "silu", bias: bool = False, window: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = {"d_model": d_model, "num_heads": num_heads, "num_layers": num_layers}
        check_positive("LanguageModel", **sizes)
        check_switch("LanguageModel", tie_weights=tie_weights, bias=bias)
        if window is not None:
            check_positive("LanguageModel", window=window)
        check_heads("LanguageModel", d_model, num_heads, d_k=d_k)
        self.vocab_size = vocab_size
        self.max_len = max_len
        self.window = window
        self.embedding = TokenEmbedding(vocab_size, d_model)
        # All layers share one table of angles.
        d_k = d_model // num_heads if d_k is None else d_k
        self.rotary = RotaryEncoding(d_k, max_len=max_len, base=base)
        self.layers = nn.ModuleList(
            LanguageLayer(
                d_model, num_heads, num_kv_heads, d_ff, d_k=d_k, rotary=self.rotary,
                eps=eps, activation=activation, bias=bias,
            )
            for _ in range(num_layers)
        )  # fmt: skip
        self.norm = RMSNorm(d_model, eps=eps)
        self.output_projection = None if tie_weights else Linear(d_model, vocab_size, bias=False)
        if tie_weights:
            self.embedding.reset_parameters(std=d_model**-0.5)

    @checked
    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        caches: list[KeyValueCache] | None = None,
        key_mask: Bool[Tensor, "#batch 1 1 _key"] | None = None,
    ) -> Float[Tensor, "batch seq vocab"]:
        """Compute the logits of the next word at each position.

        Args:
            ids: Token ids; with caches, the ids that follow the cached positions.
            caches: KV caches of the layers, from `new_caches`.
            key_mask: True where a position may be attended to, including cached positions; usually
                `padding_mask(ids)`. Causal masking is applied internally.

        Raises:
            ValueError: If the ids are not integers with 2 axes, an id is outside the vocabulary,
                the mask does not cover the text, the caches differ from the layers in number or
                order or from each other in length, or the text is too long. A call that fails or
                is interrupted leaves the caches unchanged and can be repeated.
        """
        with all_or_nothing(caches):
            return self.compute_logits(self.run_layers(ids, caches, key_mask))

    def run_layers(
        self, ids: Int[Tensor, "batch seq"], caches: list[KeyValueCache] | None,
        key_mask: Bool[Tensor, "#batch 1 1 _key"] | None,
    ) -> Float[Tensor, "batch seq d_model"]:  # fmt: skip
        """Embed the ids and pass them through all layers; arguments as in forward."""
        embedded: Float[Tensor, "batch seq d_model"] = self.embedding(ids)
        start = 0
        if caches is not None:
            self._check_caches(caches)
            start = caches[0].length
        mask = self.make_mask(ids, start, key_mask)
        x = embedded
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x = layer(x, mask, cache=cache)
        return x

    def compute_logits(
        self, x: Float[Tensor, "batch _seq d_model"]
    ) -> Float[Tensor, "batch _seq vocab"]:
        """Apply the final norm and the output projection."""
        decoder_output: Float[Tensor, "batch _seq d_model"] = self.norm(x)
        if self.output_projection is None:
            # Tied weights: the logit of a word is the dot product with its embedding.
            logits: Float[Tensor, "batch _seq vocab"] = decoder_output @ self.embedding.weight.T
        else:
            logits: Float[Tensor, "batch _seq vocab"] = self.output_projection(decoder_output)
        return logits

    def make_mask(
        self, ids: Int[Tensor, "batch seq"], start: int, key_mask: Tensor | None
    ) -> Bool[Tensor, "#batch 1 _seq _key"] | None:
        """Combine the causal mask, for ids after `start` cached positions, with key_mask."""
        batch, seq = ids.shape
        # A single new position is the last one: without a window, nothing is masked.
        mask = None
        if seq > 1 or (self.window is not None and start + seq > self.window):
            mask = causal_mask(seq, start + seq, window=self.window, device=ids.device)
        if key_mask is None:
            return mask
        check_mask("LanguageModel", key_mask, (batch, 1, 1, start + seq), "key_mask")
        # A mask for one new position would silently broadcast to all cached positions.
        lengths = {"key_mask": key_mask.size(-1), "text": start + seq}
        check_equal("LanguageModel", "the numbers of positions", **lengths)
        return key_mask if mask is None else mask & key_mask

    def new_caches(self, batch: int, max_len: int) -> list[KeyValueCache]:
        """Allocate an empty KV cache for every layer.

        Args:
            batch: Number of texts continued in parallel.
            max_len: Maximum number of positions.

        Raises:
            ValueError: If a size is below 1.
        """
        return [
            KeyValueCache(layer.self_attention, batch, max_len, index)
            for index, layer in enumerate(self.layers)
        ]

    def _check_caches(self, caches: list[KeyValueCache]) -> None:
        sizes = {"layers": len(self.layers), "caches": len(caches)}
        check_equal("LanguageModel", "the numbers of layers and caches", **sizes)
        # A cache of another class may lack the attribute `layer`.
        order = [getattr(cache, "layer", None) for cache in caches]
        if any(layer not in (None, index) for index, layer in enumerate(order)):
            raise ValueError(
                f"LanguageModel: caches must be in the order of the layers, got {order}"
            )
        lengths = {f"cache {index}": cache.length for index, cache in enumerate(caches)}
        check_equal("LanguageModel", "the lengths of the caches", **lengths)
        weight = self.layers[0].self_attention.w_k.weight
        dtypes = {"cache": getattr(caches[0], "keys", weight).dtype, "model": weight.dtype}
        check_equal("LanguageModel", "the dtypes of cache and model", **dtypes)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, metadata: dict, *others: object
    ) -> None:
        """With assign=True, recompute the unsaved table of angles in the dtype of the weights."""
        weight = state_dict.get(f"{prefix}embedding.weight")
        if weight is not None and metadata.get("assign_to_params_buffers"):
            self.rotary.to_empty(device=weight.device).to(weight.dtype)
        super()._load_from_state_dict(state_dict, prefix, metadata, *others)

    def extra_repr(self) -> str:
        """Show the window in print(model), if there is one."""
        return "" if self.window is None else f"window={self.window}"
