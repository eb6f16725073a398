"""Where each classic mistake stands in the layers: one edit of one function.

When a layer is rewritten, its patterns here follow it. `tests/unit/test_mutants.py` names each
pattern that no longer occurs exactly once in its function.
"""

from pathlib import Path
from typing import NamedTuple

from tests.mutants.edit import edit

ROOT = Path(__file__).resolve().parents[2]


class Plant(NamedTuple):
    """A mistake in a layer.

    Args:
        module: The file below src/twelve, without its suffix.
        function: Qualified name of the function in it.
        changes: Expressions or statements, and what replaces them; see `edit`.
    """

    module: str
    function: str
    changes: dict[str, str]

    @property
    def path(self) -> Path:
        """The file, as a path from the root."""
        return Path("src/twelve", f"{self.module}.py")

    @property
    def test(self) -> Path:
        """The unit tests of the file, as a path from the root."""
        return Path("tests/unit", f"test_{self.module.partition('/')[0]}.py")

    def text(self) -> str:
        """Give the text of the file with the mistake.

        Raises:
            ValueError: If the function or a pattern does not occur exactly once.
        """
        source = (ROOT / self.path).read_text(encoding="utf-8")
        return edit(source, self.function, self.changes)


SCORES = "query @ key.transpose(-2, -1) / math.sqrt(d_k)"
TO_WEIGHTS = "masked_scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)"
ATTEND = "ATTEND(query_heads, key_heads, value_heads, mask, DROPOUT)"
LAYERS = "nn.ModuleList(LAYER for _ in range(num_layers))"
TRIANGLE = "allowed.tril(diagonal=key_len - query_len)"
PAIRS = "torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"
KEEP = "key_heads, value_heads = cache(key_heads, value_heads)"


def _attention(old: str, new: str) -> Plant:
    return Plant("attention", "scaled_dot_product_attention", {old: new})


def _embedding(new: str) -> Plant:
    lookup = "F.embedding(ids, self.weight, padding_idx=self.padding_idx)"
    return Plant("embedding", "TokenEmbedding.forward", {lookup: new})


def _heads(new: str) -> Plant:
    return Plant("multi_head_attention", "MultiHeadAttention.forward", {ATTEND: new})


def _split(new: str) -> Plant:
    pattern = 'rearrange(X, "batch seq (head d_k) -> batch head seq d_k", head=self.num_heads)'
    return Plant("multi_head_attention", "MultiHeadAttention._split", {pattern: new})


def _statistics(axis: str) -> Plant:
    mean, variance = "x.mean(-1, keepdim=True)", "(x - mean).square().mean(-1, keepdim=True)"
    changes = {each: each.replace("mean(-1", f"mean({axis}") for each in (mean, variance)}
    return Plant("normalization", "LayerNorm.forward", changes)


def _normalized(new: str) -> Plant:
    old = "(x - mean) / torch.sqrt(variance + self.eps)"
    return Plant("normalization", "LayerNorm.forward", {old: new})


def _layers(new: str) -> Plant:
    return Plant("encoder", "Encoder.__init__", {LAYERS: new})


def _across(new: str) -> Plant:
    old = "self.cross_attention(query, memory, memory, src_mask, cache=cross_cache)"
    return Plant("decoder", "DecoderLayer.forward", {old: new})


def _rotary(changes: dict[str, str]) -> Plant:
    return Plant("rotary_positions", "RotaryEncoding.forward", changes)


def _rows(new: str) -> Plant:
    return Plant(
        "pretrained/__init__", "interleave_halves", {"rows.unflatten(0, (-1, 2, d_k // 2))": new}
    )


def _share(new: str) -> Plant:
    old = "heads.repeat_interleave(self.num_heads // self.num_kv_heads, dim=1)"
    return Plant("grouped_query_attention", "GroupedQueryAttention._share", {old: new})


def _grouped(changes: dict[str, str]) -> Plant:
    return Plant("grouped_query_attention", "GroupedQueryAttention.forward", changes)


def _table_rows(new: str) -> Plant:
    old = "self.table[start : start + x.size(1)]"
    return Plant("positional_encoding", "PositionalEncoding.forward", {old: new})


PLANTS = {
    # linear, embedding, positional_encoding
    "weights-transposed": Plant(
        "linear", "Linear.forward",
        {"F.linear(x, self.weight, self.bias)": "F.linear(x, self.weight.T, self.bias)"},
    ),
    "ids-transposed": _embedding(
        "F.embedding(ids.T, self.weight, padding_idx=self.padding_idx)"
    ),
    "padding-idx-wrong": _embedding("F.embedding(ids, self.weight, padding_idx=1)"),
    "padding-idx-missing": _embedding("F.embedding(ids, self.weight)"),
    "pe-positive-exponent": Plant(
        "positional_encoding", "sinusoid",
        {"-even_feature / d_model": "even_feature / d_model"},
    ),
    "pe-sin-cos-halves": Plant(
        "positional_encoding", "sinusoid",
        {"table[:, 0::2]": "table[:, :angles.size(1)]",
         "table[:, 1::2]": "table[:, angles.size(1):]"},
    ),
    "pe-batch-index": _table_rows("self.table[start : start + x.size(0)]"),
    "pe-sequence-first": _table_rows("self.table[start : start + x.size(0)].unsqueeze(1)"),
    "dropout-twice": Plant(
        "positional_encoding", "PositionalEncoding.forward",
        {"self.dropout(encoded)": "self.dropout(self.dropout(encoded))"},
    ),
    # attention
    "transpose-view": _attention(
        SCORES, "query @ key.reshape(*key.shape[:-2], d_k, key.size(-2)) / math.sqrt(d_k)"
    ),
    "qk-swapped": _attention(SCORES, "key @ query.transpose(-2, -1) / math.sqrt(d_k)"),
    "scale-missing": _attention(SCORES, "query @ key.transpose(-2, -1)"),
    "scale-d_k": _attention(SCORES, "query @ key.transpose(-2, -1) / d_k"),
    "scale-multiplied": _attention(SCORES, "query @ key.transpose(-2, -1) * math.sqrt(d_k)"),
    "scale-length": _attention(
        SCORES, "query @ key.transpose(-2, -1) / math.sqrt(key.size(-2))"
    ),
    "softmax-queries": _attention("scores.softmax(-1)", "scores.softmax(-2)"),
    "softmax-heads": _attention(
        "scores.softmax(-1)", "scores.softmax(1 if scores.ndim == 4 else -1)"
    ),
    # masks
    "causal-triu": Plant(
        "masks", "causal_mask", {TRIANGLE: "allowed.triu(diagonal=key_len - query_len)"}
    ),
    "causal-diagonal": Plant(
        "masks", "causal_mask", {TRIANGLE: "allowed.tril(diagonal=key_len - query_len - 1)"}
    ),
    "causal-corner": Plant("masks", "causal_mask", {TRIANGLE: "allowed.tril()"}),
    "mask-inverted": _attention("~attn_mask", "attn_mask"),
    "mask-multiplied": _attention("scores.masked_fill(hidden, -math.inf)", "scores * attn_mask"),
    "mask-after-softmax": _attention(TO_WEIGHTS, "scores.softmax(-1) * attn_mask"),
    "mask-finite": _attention(TO_WEIGHTS, "scores.masked_fill(hidden, -1e9).softmax(-1)"),
    "mask-empty-row": _attention(TO_WEIGHTS, "masked_scores.softmax(-1)"),
    "mask-query-axis": _heads(ATTEND.replace("mask", "None if mask is None else mask.mT")),
    "mask-not-expanded": _heads(
        ATTEND.replace("mask", "None if mask is None else mask[:, 0, 0]")
    ),
    "mask-head-axis": _heads(ATTEND.replace("mask", "None if mask is None else mask[:, 0]")),
    # multi_head_attention
    "split-view": _split("X.reshape(X.size(0), self.num_heads, X.size(1), -1)"),
    "split-interleaved": _split(
        'rearrange(X, "batch seq (d_k head) -> batch head seq d_k", head=self.num_heads)'
    ),
    "heads-are-features": _split(
        'rearrange(X, "batch seq (head d_k) -> batch head seq d_k", head=self.d_model)'
    ),
    "merge-no-transpose": Plant(
        "multi_head_attention", "MultiHeadAttention._merge",
        {'rearrange(X, "batch head query d_v -> batch query (head d_v)")':
         "X.reshape(X.size(0), X.size(2), -1)"},
    ),
    "scale-d_model": _heads(
        ATTEND.replace("query_heads", "query_heads * (self.d_k / self.d_model) ** 0.5")
    ),
    # normalization, residual, feed_forward
    "ln-unbiased": _normalized("(x - mean) / (x.std(-1, keepdim=True) + self.eps)"),
    "ln-sequence": _statistics("1 if x.ndim == 3 else -1"),
    "ln-batch": _statistics("0 if x.ndim == 3 else -1"),
    "ln-no-keepdim": Plant(
        "normalization", "LayerNorm.forward", {"x.mean(-1, keepdim=True)": "x.mean(-1)"}
    ),
    "ln-eps-tiny": _normalized("(x - mean) / torch.sqrt(variance + 1e-10)"),
    "rms-eps-outside": Plant(
        "normalization", "RMSNorm.forward",
        {"torch.sqrt(mean_square + self.eps)": "torch.sqrt(mean_square) + self.eps"},
    ),
    "residual-overwritten": Plant(
        "residual", "Residual.forward",
        {"update = sublayer(self.norm(x))": "x = self.norm(x)\nupdate = sublayer(x)"},
    ),
    "residual-missing": Plant(
        "residual", "Residual.forward", {"added = x + update": "added = update"}
    ),
    "norm-order": Plant(
        "residual", "Residual.__init__",
        {"self.norm_first = norm_first": "self.norm_first = not norm_first"},
    ),
    "activation-forgotten": Plant(
        "feed_forward", "FeedForward.forward",
        {"ACTIVATIONS[self.activation](pre_activation)": "pre_activation"},
    ),
    "activation-twice": Plant(
        "feed_forward", "FeedForward.forward",
        {"self.down(self.dropout(activated))":
         "ACTIVATIONS[self.activation](self.down(self.dropout(activated)))"},
    ),
    "gate-up-swapped": Plant(
        "feed_forward", "SwiGLU.forward",
        {"self.up(x)": "self.gate(x)", "F.silu(self.gate(x))": "F.silu(self.up(x))"},
    ),
    # encoder, decoder, transformer
    "norm-bypassed": Plant(
        "encoder", "EncoderLayer.forward",
        {"self.self_attention(query, query, query, src_mask)":
         "self.self_attention(x, x, x, src_mask)"},
    ),
    "layers-cloned": _layers(
        "nn.ModuleList(map(__import__('copy').deepcopy, [LAYER] * num_layers))"
    ),
    "layers-shared": _layers("nn.ModuleList([LAYER] * num_layers)"),
    "layers-in-list": _layers("[LAYER for _ in range(num_layers)]"),
    "norm-never-applied": Plant(
        "encoder", "Encoder.forward", {"x if self.norm is None else self.norm(x)": "x"}
    ),
    "padding-mask-missing": Plant(
        "encoder", "Encoder.forward", {"layer(x, src_mask=src_mask)": "layer(x)"}
    ),
    "cross-value-target": _across(
        "self.cross_attention(query, memory, query, src_mask, cache=cross_cache)"
    ),
    "cross-memory-unused": _across(
        "self.cross_attention(query, query, query, src_mask, cache=cross_cache)"
    ),
    "causal-missing": Plant(
        "decoder", "Decoder.forward",
        {"layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask)":
         "layer(x, memory, src_mask=src_mask)"},
    ),
    "cross-mask-target": Plant(
        "transformer", "Transformer.decode",
        {"self.decoder(tgt_input, memory, tgt_mask=tgt_mask, src_mask=src_mask)":
         "self.decoder(tgt_input, memory, tgt_mask=tgt_mask, "
         "src_mask=(tgt != 0)[:, None, None, :])"},
    ),
    "encoder-skipped": Plant(
        "transformer", "Transformer.encode",
        {"self.encoder(src_input, src_mask=src_mask)": "src_input"},
    ),
    "sentences-swapped": Plant(
        "transformer", "Transformer.forward",
        {"self.encode(src, src_mask=src_mask)": "self.encode(tgt, src_mask=src_mask)",
         "self.decode(tgt, memory, tgt_mask=tgt_mask, src_mask=src_mask)":
         "self.decode(src, memory, tgt_mask=tgt_mask, src_mask=src_mask)"},
    ),
    "embedding-shared": Plant(
        "transformer", "Transformer.decode",
        {"self.tgt_embedding(tgt)": "self.src_embedding(tgt)"},
    ),
    # training
    "labels-not-shifted": Plant(
        "training", "shift",
        {"torch.cat([start, target[:, :-1]], dim=1)": "target + 0"},
    ),
    "decoder-sees-source-labels": Plant(
        "training", "train",
        {"model(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)":
         "model(labels.clamp(min=0), tgt, src_mask=src_mask, tgt_mask=tgt_mask)"},
    ),
    "logits-flattened-wrong": Plant(
        "training", "cross_entropy",
        {"logits.log_softmax(-1)": "logits.transpose(0, 1).reshape(logits.shape).log_softmax(-1)"},
    ),
    "softmax-before-loss": Plant(
        "training", "cross_entropy",
        {"logits.log_softmax(-1)": "logits.softmax(-1).log_softmax(-1)"},
    ),
    # generation
    "causal-batch-size": Plant(
        "generation", "CachedDecoder.step",
        {"causal_mask(new, LENGTH, device=tgt.device)":
         "causal_mask(tgt.size(0), LENGTH, device=tgt.device)"},
    ),
    "decode-position-zero": Plant(
        "generation", "CachedDecoder.step",
        {"self.model.positional_encoding(self.model.tgt_embedding(tgt), start=self.length)":
         "self.model.positional_encoding(self.model.tgt_embedding(tgt), start=0)"},
    ),
    "left-padding-seen": Plant(
        "generation", "_prepare_prompt",
        {"key_mask = None if mask is None else mask[..., :stop]": "key_mask = None"},
    ),
    "prompt-padded-right": Plant(
        "generation", "_prepare_prompt", {"not real.all()": "not real.any()"}
    ),
    "top-p-one-short": Plant(
        "generation", "next_token_probabilities",
        {"best.values.cumsum(-1) - best.values >= top_p": "best.values.cumsum(-1) >= top_p"},
    ),
    "top-p-by-rank": Plant(
        "generation", "next_token_probabilities",
        {"enough.scatter(-1, best.indices, enough)": "enough"},
    ),
    # rotary_positions
    "rotary-frequency-one": _rotary({
        f"self.table[start : start + heads.size(2), {first}::2]":
        "(torch.arange(start, start + heads.size(2)).unsqueeze(1) * self.base ** "
        f"(-torch.arange(2, self.d_k + 2, 2) / self.d_k)).{function}()"
        for first, function in ((0, "sin"), (1, "cos"))
    }),
    "rotary-one-late": _rotary(
        {f"self.table[start : start + heads.size(2), {first}::2]":
         f"self.table[start + 1 : start + 1 + heads.size(2), {first}::2]" for first in (0, 1)}
    ),
    "rotary-start-ignored": _rotary(
        {f"self.table[start : start + heads.size(2), {first}::2]":
         f"self.table[: heads.size(2), {first}::2]" for first in (0, 1)}
    ),
    "rotary-halves": _rotary({
        "even = heads[..., 0::2]": "even = heads[..., : self.d_k // 2]",
        "odd = heads[..., 1::2]": "odd = heads[..., self.d_k // 2 :]",
        PAIRS: PAIRS.replace("dim=-1", "dim=-2"),
    }),
    "rotary-cat": _rotary({
        PAIRS: "(heads * torch.cat((cos, cos), -1) + torch.stack((-odd, even), dim=-1).flatten(-2)"
        " * torch.cat((sin, sin), -1)).unsqueeze(-1)"
    }),
    "rotary-clockwise": _rotary(
        {PAIRS: "torch.stack((even * cos + odd * sin, odd * cos - even * sin), dim=-1)"}
    ),
    # pretrained
    "rows-kept": Plant(
        "pretrained/__init__", "_copy_tensors",
        {'checkpoint.format == "safetensors" and parameters[name].endswith(NAMES)': "False"},
    ),
    "rows-across-heads": _rows("rows.unflatten(0, (1, 2, -1))"),
    "rows-woven-back": _rows("rows.unflatten(0, (-1, d_k // 2, 2))"),
    # grouped_query_attention
    "kv-tiled": _share("heads.repeat(1, self.num_heads // self.num_kv_heads, 1, 1)"),
    "kv-group-count": _share("heads.repeat_interleave(self.num_kv_heads, dim=1)"),
    "rotary-values-turned": _grouped(
        {"value_heads = SPLIT": "value_heads = SPLIT\nif self.rotary is not None:\n"
         "    value_heads = self.rotary(value_heads, 0 if cache is None else cache.length)"}
    ),
    "rotary-after-cache": _grouped({
        "self.rotary(key_heads, start)":
        "key_heads if cache is not None else self.rotary(key_heads, start)",
        KEEP: f"{KEEP}\nif self.rotary is not None:\n"
        "    key_heads = self.rotary(key_heads, start)",
    }),
    "cache-start-zero": _grouped({"0 if cache is None else cache.length": "0"}),
    "kv-shared-before-cache": _grouped(
        {KEEP: f"key_heads, value_heads = self._share(key_heads), self._share(value_heads)\n{KEEP}"}
    ),
    "cache-mask-dropped": _grouped(
        {"scaled_dot_product_attention(query_heads, shared_keys, shared_values, mask, dropout_p)":
         "scaled_dot_product_attention(query_heads, shared_keys, shared_values, "
         "mask if cache is None else None, dropout_p)"}
    ),
    # decoder_only
    "table-untied": Plant(
        "decoder_only", "LanguageModel.compute_logits",
        {"X @ self.embedding.weight.T": "X @ self.embedding.weight.data.T"},
    ),
    "prompt-unmasked": Plant(
        "decoder_only", "LanguageModel.run_layers",
        {"self.make_mask(ids, start, key_mask)":
         "key_mask if caches else self.make_mask(ids, start, key_mask)"},
    ),
    "prompt-first-logit": Plant(
        "fast", "FastLanguageModel.last_logits",
        {"self.run_layers(ids, caches, key_mask)[:, -1:]":
         "self.run_layers(ids, caches, key_mask)[:, :1]"},
    ),
}  # fmt: skip
