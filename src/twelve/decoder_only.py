"""Decoder-only: one stack of layers goes on from a text, without a source.

Step 18 | notebooks/18_decoder_only.ipynb | tests/unit/test_decoder_only.py
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checks import check_ids, check_mask, check_positive, check_same, check_switch
from twelve.embedding import TokenEmbedding
from twelve.feed_forward import SwiGLU
from twelve.generation import KeyValueCache
from twelve.grouped_query_attention import GroupedQueryAttention
from twelve.linear import Linear
from twelve.masks import causal_mask
from twelve.normalization import RMSNorm
from twelve.residual import Residual
from twelve.rotary_positions import RotaryEncoding


class LanguageLayer(nn.Module):
    """Attention to what came before, then SwiGLU, each inside a residual connection.

    Args:
        d_model: Features of each position.
        num_heads: Heads that ask.
        num_kv_heads: Heads of keys and values; num_heads if not given.
        d_ff: Features inside the feed-forward layer; 8/3 · d_model if not given.
        d_k: Features of each head; d_model / num_heads if not given.
        rotary: Turns queries and keys by their place.
        eps: Of both norms.
        fused: Whether attention and norm call torch's fused kernels.

    Raises:
        ValueError: If one of its parts refuses its sizes.

    Source:
        Touvron et al. (2023), "LLaMA", section 2.2.
    """

    def __init__(
        self, d_model: int, num_heads: int, num_kv_heads: int | None = None,
        d_ff: int | None = None, *, d_k: int | None = None, rotary: RotaryEncoding | None = None,
        eps: float = 1e-5, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.self_attention = GroupedQueryAttention(
            d_model, num_heads, num_kv_heads, d_k=d_k, rotary=rotary, fused=fused
        )
        self.feed_forward = SwiGLU(d_model, 8 * d_model // 3 if d_ff is None else d_ff)
        norms = [RMSNorm(d_model, eps=eps, fused=fused) for _ in range(2)]
        self.self_attention_residual = Residual(d_model, norm=norms[0])
        self.feed_forward_residual = Residual(d_model, norm=norms[1])

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        mask: Bool[Tensor, "#batch #head #seq _key"] | None = None,
        *,
        cache: KeyValueCache | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Apply attention, then feed-forward.

        Args:
            x: The positions to go on from.
            mask: True where a position may be looked at.
            cache: What keeps the keys and values of earlier positions.
            is_causal: Says that the mask is `causal_mask(seq)`.

        Returns:
            The same positions, each with what it gathered.
        """
        x = self.self_attention_residual(
            x,
            lambda normed: self.self_attention(normed, mask, cache=cache, is_causal=is_causal),
        )
        return self.feed_forward_residual(x, self.feed_forward)


class LanguageModel(nn.Module):
    """Score every word as the next one of a text, from all that stands before it.

    Args:
        vocab_size: Ids there are.
        d_model: Features of each position.
        num_heads: Heads that ask, in each layer.
        num_kv_heads: Heads of keys and values; num_heads if not given.
        d_ff: Features inside each feed-forward layer; 8/3 · d_model if not given.
        num_layers: Layers, each built fresh.
        d_k: Features of each head; d_model / num_heads if not given.
        max_len: Longest text.
        base: Of the rotation: the larger, the more slowly the later pairs turn.
        eps: Of every norm.
        tie_weights: Whether the table of the words also scores them. It then starts with standard
            deviation 1/√d_model: at 1 the logits would start √d_model times too large.
        fused: Whether attention, norm and rotation call torch's fused kernels: the same numbers.

    Raises:
        ValueError: If one of its parts refuses its sizes.

    Source:
        Radford et al. (2018), "Improving Language Understanding by Generative Pre-Training", for a
        decoder without a source; the parts as in Touvron et al. (2023), "LLaMA", section 2.2.
    """

    def __init__(
        self, vocab_size: int, *, d_model: int, num_heads: int, num_kv_heads: int | None = None,
        d_ff: int | None = None, num_layers: int, d_k: int | None = None, max_len: int = 2048,
        base: float = 10000.0, eps: float = 1e-5, tie_weights: bool = False, fused: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("LanguageModel", num_heads=num_heads, num_layers=num_layers)
        check_switch("LanguageModel", tie_weights=tie_weights)
        self.embedding = TokenEmbedding(vocab_size, d_model)
        # One table of angles for all layers, and a name of its own in a trace.
        d_k = d_model // num_heads if d_k is None else d_k
        self.rotary = RotaryEncoding(d_k, max_len=max_len, base=base, fused=fused)
        layer = {"d_k": d_k, "rotary": self.rotary, "eps": eps, "fused": fused}
        self.layers = nn.ModuleList(
            LanguageLayer(d_model, num_heads, num_kv_heads, d_ff, **layer)
            for _ in range(num_layers)
        )
        self.norm = RMSNorm(d_model, eps=eps, fused=fused)
        self.output_projection = None if tie_weights else Linear(d_model, vocab_size, bias=False)
        if tie_weights:
            self.embedding.reset_parameters(std=d_model**-0.5)

    def forward(
        self,
        ids: Int[Tensor, "batch seq"],
        *,
        caches: list[KeyValueCache] | None = None,
        key_mask: Bool[Tensor, "#batch 1 1 _key"] | None = None,
        last: bool = False,
    ) -> Float[Tensor, "batch _seq vocab"]:
        """Score every word as the one that follows each position.

        Args:
            ids: Token ids; with caches, those that follow what the caches hold.
            caches: What keeps the keys and values of each layer, from `new_caches`.
            key_mask: True where a word may be looked at, earlier ones included; usually
                `padding_mask(ids)`. That none looks ahead is seen to here.
            last: Whether only the last position scores, after which a text is continued: of a long
                text and a large vocabulary the others take a good part of the time.

        Returns:
            Logits: one score for each word of the vocabulary at each position.

        Raises:
            ValueError: If the ids are of another type, rank or vocabulary, the mask does not cover
                the text, the caches are not as many as the layers, or the text is too long.
        """
        check_ids("LanguageModel", ids=ids)
        embedded: Float[Tensor, "batch seq d_model"] = self.embedding(ids)
        start = 0
        if caches is not None:
            check_same("LanguageModel", "the layers", model=len(self.layers), caches=len(caches))
            start = caches[-1].length
            for cache in caches:
                cache.length = start  # a call that was interrupted may have left some further on
        mask = self._mask(ids, start, key_mask)
        is_causal = mask is not None and key_mask is None and start == 0

        x = embedded
        for layer, cache in zip(self.layers, caches or [None] * len(self.layers), strict=True):
            x = layer(x, mask, cache=cache, is_causal=is_causal)
        if last:
            x = x[:, -1:]
        decoder_output: Float[Tensor, "batch _seq d_model"] = self.norm(x)
        if self.output_projection is None:
            # The table again: a word scores as well as its row matches.
            logits: Float[Tensor, "batch _seq vocab"] = decoder_output @ self.embedding.weight.T
        else:
            logits: Float[Tensor, "batch _seq vocab"] = self.output_projection(decoder_output)
        return logits

    def new_caches(self, batch: int, max_len: int) -> list[KeyValueCache]:
        """Set memory aside for the keys and values of every layer.

        Args:
            batch: Texts that are continued at once.
            max_len: Positions there is room for.

        Raises:
            ValueError: If a size is below 1.
        """
        return [KeyValueCache(layer.self_attention, batch, max_len) for layer in self.layers]

    def _mask(self, ids: Tensor, start: int, key_mask: Tensor | None) -> Tensor | None:
        batch, seq = ids.shape
        # A single position is the last one, and the last one may look at everything.
        mask = causal_mask(seq, start + seq, device=ids.device) if seq > 1 else None
        if key_mask is None:
            return mask
        check_mask("LanguageModel", key_mask, (batch, 1, 1, start + seq), four_axes=True)
        return key_mask if mask is None else mask & key_mask
