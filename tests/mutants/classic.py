"""The classic mistakes in the layers, each as edits of one function.

DECLARED stands for the edit that the exercise declares; a layer whose code differs needs its own
edit. Update the patterns when you rewrite a layer: `tests/unit/test_mutants.py` reports each
pattern that no longer occurs exactly once in its function.
"""

from pathlib import Path
from typing import NamedTuple

from tests.mutants.run import ROOT
from twelve_lab.check import MISTAKES
from twelve_lab.exercises.declare import Edited
from twelve_lab.exercises.edit import edit


class Plant(NamedTuple):
    """A mistake in a layer.

    Args:
        module: File below src/twelve, without its suffix.
        function: Qualified name of the function in that file.
        changes: Expressions or statements, mapped to their replacements; see `edit`.
    """

    module: str
    function: str
    changes: dict[str, str]

    @property
    def path(self) -> Path:
        """Path of the file, relative to the root."""
        return Path("src/twelve", f"{self.module}.py")

    @property
    def test(self) -> Path:
        """Path of the unit tests of the file, relative to the root."""
        return Path("tests/unit", f"test_{self.module.partition('/')[0]}.py")

    def text(self) -> str:
        """Return the source of the file with the mistake.

        Raises:
            ValueError: If the function or a pattern does not occur exactly once.
        """
        source = (ROOT / self.path).read_text(encoding="utf-8")
        return edit(source, self.function, self.changes)


SOFTMAX = "masked_scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)"
TRIANGLE = "allowed.tril(diagonal=key_len - query_len)"
ATTEND = "ATTEND(QUERY, KEY, VALUE, mask, DROPOUT)"
LAYERS = "nn.ModuleList(LAYER for _ in range(num_layers))"
CROSS = "self.cross_attention(query, memory, memory, src_mask, cache=cross_cache)"
ANGLES = "self.table[start : start + heads.size(2), {}::2]"
PAIRS = "torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"
UPDATE = "key_heads, value_heads = cache(key_heads, value_heads)"


def _statistics(axis: str) -> dict[str, str]:
    mean, variance = "x.mean(-1, keepdim=True)", "CENTRED.square().mean(-1, keepdim=True)"
    return {each: each.replace("-1", axis) for each in (mean, variance)}


# The edit that the exercise declares.
DECLARED: dict[str, str] = {}
# File and function -> id of the mistake -> edits.
EDITS = {
    "linear Linear.forward": {
        "weights-transposed": {"self.weight": "self.weight.T"},
    },
    "embedding TokenEmbedding.forward": {
        "ids-transposed": {
            "F.embedding(X, W, padding_idx=P)": "F.embedding(X.T, W, padding_idx=P)"
        },
        "padding-idx-wrong": {"self.padding_idx": "1"},
        "padding-idx-missing": {"F.embedding(X, W, padding_idx=P)": "F.embedding(X, W)"},
    },
    "positional_encoding sinusoid": {
        "pe-positive-exponent": DECLARED,
        "pe-sin-cos-halves": DECLARED,
    },
    "positional_encoding PositionalEncoding.forward": {
        "pe-batch-index": {"start + x.size(1)": "start + x.size(0)"},
        "pe-sequence-first": {
            "self.table[start : start + x.size(1)]":
            "self.table[start : start + x.size(0)].unsqueeze(1)"
        },
        "dropout-twice": {"self.dropout(X)": "self.dropout(self.dropout(X))"},
    },
    "attention scaled_dot_product_attention": {
        "transpose-view": {
            "key.transpose(-2, -1)": "key.reshape(*key.shape[:-2], d_k, key.size(-2))"
        },
        "qk-swapped": DECLARED,
        "scale-missing": DECLARED,
        "scale-d_k": DECLARED,
        "scale-multiplied": DECLARED,
        "scale-length": DECLARED,
        "softmax-queries": DECLARED,
        "softmax-heads": {
            "scores.softmax(-1)": "scores.softmax(1 if scores.ndim == 4 else -1)"
        },
        "mask-inverted": {"~attn_mask": "attn_mask"},
        "mask-multiplied": {"scores.masked_fill(hidden, -math.inf)": "scores * attn_mask"},
        "mask-after-softmax": {SOFTMAX: "scores.softmax(-1) * attn_mask"},
        "mask-finite": {SOFTMAX: "scores.masked_fill(hidden, -1e9).softmax(-1)"},
        "mask-empty-row": {SOFTMAX: "masked_scores.softmax(-1)"},
    },
    "masks causal_mask": {
        "causal-triu": {TRIANGLE: "allowed.triu(diagonal=key_len - query_len)"},
        "causal-diagonal": {TRIANGLE: "allowed.tril(diagonal=key_len - query_len - 1)"},
        "causal-corner": {TRIANGLE: "allowed.tril()"},
    },
    "multi_head_attention MultiHeadAttention.forward": {
        "mask-query-axis": {ATTEND: ATTEND.replace("mask", "None if mask is None else mask.mT")},
        "mask-not-expanded": {
            ATTEND: ATTEND.replace("mask", "None if mask is None else mask[:, 0, 0]")
        },
        "mask-head-axis": {
            ATTEND: ATTEND.replace("mask", "None if mask is None else mask[:, 0]")
        },
        "scale-d_model": {
            ATTEND: ATTEND.replace("QUERY", "QUERY * (self.d_k / self.d_model) ** 0.5")
        },
    },
    "multi_head_attention MultiHeadAttention._split": {
        "split-view": {
            "rearrange(X, PATTERN, head=HEADS)": "X.reshape(X.size(0), HEADS, X.size(1), -1)"
        },
        "split-interleaved": {
            '"batch seq (head d_k) -> batch head seq d_k"':
            '"batch seq (d_k head) -> batch head seq d_k"'
        },
        "heads-are-features": {"self.num_heads": "self.d_model"},
    },
    "multi_head_attention MultiHeadAttention._merge": {
        "merge-no-transpose": {"rearrange(X, PATTERN)": "X.reshape(X.size(0), X.size(2), -1)"},
    },
    "normalization LayerNorm.forward": {
        "ln-unbiased": {
            "X / torch.sqrt(variance + EPS)": "X / (x.std(-1, keepdim=True) + EPS)"
        },
        "ln-sequence": _statistics("1 if x.ndim == 3 else -1"),
        "ln-batch": _statistics("0 if x.ndim == 3 else -1"),
        "ln-no-keepdim": {"x.mean(-1, keepdim=True)": "x.mean(-1)"},
        "ln-eps-tiny": {"self.eps": "1e-10"},
    },
    "normalization RMSNorm.forward": {
        "rms-eps-outside": {"torch.sqrt(X + EPS)": "torch.sqrt(X) + EPS"},
    },
    "residual Residual.forward": {
        "residual-overwritten": {
            "update = sublayer(NORMED)": "x = NORMED\nupdate = sublayer(x)"
        },
        "residual-missing": {"added = x + update": "added = update"},
    },
    "residual Residual.__init__": {
        "norm-order": {"self.norm_first = X": "self.norm_first = not X"},
    },
    "feed_forward FeedForward.forward": {
        "activation-forgotten": {"ACTIVATIONS[self.activation](X)": "X"},
        "activation-twice": {"self.down(X)": "ACTIVATIONS[self.activation](self.down(X))"},
    },
    "feed_forward SwiGLU.forward": {
        "gate-up-swapped": {
            "self.up(x)": "self.gate(x)",
            "ACTIVATIONS[self.activation](X)": "ACTIVATIONS[self.activation](self.up(x))",
        },
    },
    "encoder EncoderLayer.forward": {
        "norm-bypassed": {"self.self_attention(X, X, X, M)": "self.self_attention(x, x, x, M)"},
    },
    "encoder Encoder.__init__": {
        "layers-cloned": {
            LAYERS: "nn.ModuleList(map(__import__('copy').deepcopy, [LAYER] * num_layers))"
        },
        "layers-shared": {LAYERS: "nn.ModuleList([LAYER] * num_layers)"},
        "layers-in-list": {LAYERS: "[LAYER for _ in range(num_layers)]"},
    },
    "encoder Encoder.forward": {
        "norm-never-applied": {"x if self.norm is None else self.norm(x)": "x"},
        "padding-mask-missing": {"layer(x, src_mask=src_mask)": "layer(x)"},
    },
    "decoder DecoderLayer.forward": {
        "cross-value-target": {CROSS: CROSS.replace("memory, memory", "memory, query")},
        "cross-memory-unused": {CROSS: CROSS.replace("memory, memory", "query, query")},
    },
    "decoder Decoder.forward": {
        "causal-missing": {
            "layer(x, memory, tgt_mask=tgt_mask, src_mask=src_mask, caches=pair)":
            "layer(x, memory, src_mask=src_mask, caches=pair)"
        },
    },
    "transformer Transformer.decode": {
        "cross-mask-target": {"src_mask": "(tgt != 0)[:, None, None, :]"},
        "embedding-shared": {"self.tgt_embedding": "self.src_embedding"},
    },
    "transformer Transformer.encode": {
        "encoder-skipped": {"self.encoder(X, src_mask=src_mask)": "X"},
    },
    "transformer Transformer.forward": {
        "sentences-swapped": {
            "self.encode(src, src_mask=M)": "self.encode(tgt, src_mask=M)",
            "self.decode(tgt, memory, tgt_mask=T, src_mask=M)":
            "self.decode(src, memory, tgt_mask=T, src_mask=M)",
        },
    },
    "training shift": {
        "labels-not-shifted": {"torch.cat(X, dim=1)": "target + 0"},
    },
    "training train": {
        "decoder-sees-source-labels": {
            "model(src, tgt, src_mask=M, tgt_mask=T)":
            "model(labels.clamp(min=0), tgt, src_mask=M, tgt_mask=T)"
        },
    },
    "training cross_entropy": {
        "logits-flattened-wrong": {
            "X.log_softmax(-1)": "X.transpose(0, 1).reshape(X.shape).log_softmax(-1)"
        },
        "softmax-before-loss": {"X.log_softmax(-1)": "X.softmax(-1).log_softmax(-1)"},
    },
    "generation CachedDecoder.step": {
        "causal-batch-size": {
            "causal_mask(new, LENGTH, device=D)": "causal_mask(tgt.size(0), LENGTH, device=D)"
        },
        "decode-position-zero": {"ENCODE(X, start=self.length)": "ENCODE(X, start=0)"},
    },
    "generation _prepare_prompt": {
        "left-padding-seen": {"key_mask = X": "key_mask = None"},
        "prompt-padded-right": {"not real.all()": "not real.any()"},
    },
    "generation next_token_probabilities": {
        "top-p-one-short": {
            "best.values.cumsum(-1) - best.values >= top_p": "best.values.cumsum(-1) >= top_p"
        },
        "top-p-by-rank": {"enough.scatter(-1, best.indices, enough)": "enough"},
    },
    "rotary_positions RotaryEncoding.forward": {
        "rotary-frequency-one": {
            ANGLES.format(first):
            "(torch.arange(start, start + heads.size(2)).unsqueeze(1) * self.base ** "
            f"(-torch.arange(2, self.d_k + 2, 2) / self.d_k)).{function}()"
            for first, function in ((0, "sin"), (1, "cos"))
        },
        "rotary-one-late": {
            ANGLES.format(first): ANGLES.format(first).replace("start", "start + 1")
            for first in (0, 1)
        },
        "rotary-start-ignored": {
            ANGLES.format(first): f"self.table[: heads.size(2), {first}::2]" for first in (0, 1)
        },
        "rotary-halves": DECLARED,
        "rotary-cat": {
            PAIRS: "(heads * torch.cat((cos, cos), -1) + torch.stack((-odd, even), dim=-1)"
            ".flatten(-2) * torch.cat((sin, sin), -1)).unsqueeze(-1)"
        },
        "rotary-clockwise": DECLARED,
    },
    "pretrained/__init__ interleave_halves": {
        "rows-kept": DECLARED,
        "rows-across-heads": DECLARED,
        "rows-woven-back": DECLARED,
    },
    "grouped_query_attention GroupedQueryAttention._repeat": {
        "kv-tiled": DECLARED,
        "kv-group-count": DECLARED,
    },
    "grouped_query_attention GroupedQueryAttention.forward": {
        "rotary-values-turned": {
            "value_heads = SPLIT": "value_heads = SPLIT\nif self.rotary is not None:\n"
            "    value_heads = self.rotary(value_heads, 0 if cache is None else cache.length)"
        },
        "rotary-after-cache": {
            "self.rotary(key_heads, start)":
            "key_heads if cache is not None else self.rotary(key_heads, start)",
            UPDATE: f"{UPDATE}\nif self.rotary is not None:\n"
            "    key_heads = self.rotary(key_heads, start)",
        },
        "cache-start-zero": {"0 if cache is None else cache.length": "0"},
        "kv-shared-before-cache": {
            UPDATE: "key_heads, value_heads = self._repeat(key_heads), self._repeat(value_heads)\n"
            + UPDATE
        },
        "cache-mask-dropped": {
            "ATTEND(QUERY, KEY, VALUE, mask, dropout_p)":
            "ATTEND(QUERY, KEY, VALUE, mask if cache is None else None, dropout_p)"
        },
    },
    "decoder_only LanguageModel.compute_logits": {
        "table-untied": {"self.embedding.weight": "self.embedding.weight.data"},
    },
    "decoder_only LanguageModel.run_layers": {
        "prompt-unmasked": {
            "self.make_mask(X, Y, MASK)": "MASK if caches else self.make_mask(X, Y, MASK)"
        },
    },
    "fast FastLanguageModel.last_logits": {
        "prompt-first-logit": {"HIDDEN[:, -1:]": "HIDDEN[:, :1]"},
    },
}  # fmt: skip


def _declared(id: str) -> dict[str, str]:
    version = MISTAKES[id].version
    if not isinstance(version, Edited):
        raise ValueError(f"{id} is not declared by an edit: its layer needs an edit of its own")
    return version.changes


PLANTS = {
    id: Plant(*place.split(), changes or _declared(id))
    for place, edits in EDITS.items()
    for id, changes in edits.items()
}
