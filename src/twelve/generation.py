"""Generation: generate a sentence token by token.

Step 14 | notebooks/14_generation.ipynb | tests/unit/test_generation.py
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checks import (
    check_above_zero,
    check_between,
    check_equal,
    check_mask,
    check_positive,
    checked,
    is_real,
)
from twelve.masks import causal_mask

SourceMask = Bool[Tensor, "#batch #head #query #src"]


class KeyValueCache:
    """KV cache of one attention layer, allocated once for max_len positions.

    Call the cache with the key and value heads of new positions: it appends them and returns the
    heads of all positions so far. `MultiHeadAttention.forward` calls its argument `cache` this way.

    Args:
        attention: A MultiHeadAttention or GroupedQueryAttention. The cache has the same sizes,
            dtype and device.
        batch: Number of sentences generated in parallel.
        max_len: Maximum number of positions.
        layer: Index of the layer, if a model has several caches.

    Raises:
        ValueError: If a size is below 1.
    """

    def __init__(
        self, attention: nn.Module, batch: int, max_len: int, layer: int | None = None
    ) -> None:
        check_positive(type(self).__name__, batch=batch, max_len=max_len)
        heads, d_k, d_v = self._sizes(attention)
        new_zeros = attention.w_q.weight.new_zeros
        # A tensor created in inference mode cannot be modified in place outside of it.
        with torch.inference_mode(False):
            self.keys = new_zeros(batch, heads, max_len, d_k)
            self.values = new_zeros(batch, heads, max_len, d_v)
        self.length, self.layer = 0, layer

    @staticmethod
    def _sizes(attention: nn.Module) -> tuple[int, int, int]:
        # In grouped-query attention, w_k produces fewer heads than w_q.
        num_kv_heads = attention.w_k.d_out // attention.d_k
        return num_kv_heads, attention.d_k, attention.w_v.d_out // num_kv_heads

    def __call__(
        self,
        key_heads: Float[Tensor, "batch head new d_k"],
        value_heads: Float[Tensor, "batch head new d_v"],
    ) -> tuple[Float[Tensor, "batch head key d_k"], Float[Tensor, "batch head key d_v"]]:
        """Append the new positions and return all positions so far.

        Args:
            key_heads: Keys of the new positions.
            value_heads: Values of the new positions.

        Returns:
            Keys and values of all positions so far, as views of the cache.

        Raises:
            ValueError: If the cache is full, or the shape of keys or values does not match:
                copying would silently broadcast one sentence to all.
        """
        start, stop = self.length, self.length + key_heads.size(2)
        keys, values = self.keys[:, :, start:stop], self.values[:, :, start:stop]
        check_equal("KeyValueCache", "shapes", key_heads=key_heads.shape, room=keys.shape)
        check_equal("KeyValueCache", "shapes", value_heads=value_heads.shape, room=values.shape)
        keys.copy_(key_heads)
        values.copy_(value_heads)
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]


@contextmanager
def all_or_nothing(caches: list[KeyValueCache] | None) -> Iterator[None]:
    """Restore the lengths of all caches if the block fails or is interrupted."""
    caches = list(caches or ())
    lengths = [cache.length for cache in caches]
    try:
        yield
    except BaseException:
        for cache, length in zip(caches, lengths, strict=True):
            cache.length = length
        raise


class CachedDecoder:
    """Decode a target a few positions at a time, with a KV cache for every attention layer.

    Each step returns the same logits as one pass over the whole target would at these positions.

    Args:
        model: The Transformer, in eval mode.
        memory: The encoder's output.
        max_len: Maximum number of target positions.
        src_mask: True where a source position may be attended to.

    Raises:
        ValueError: If the model or one of its parts is in training mode, memory does not have three
            axes or the d_model of the model, or max_len is below 1.
    """

    @checked
    def __init__(
        self, model: nn.Module, memory: Float[Tensor, "batch src _d_model"], *,
        max_len: int, src_mask: SourceMask | None = None,
    ) -> None:  # fmt: skip
        _check_eval("CachedDecoder", model)
        batch, src, d_model = memory.shape
        check_equal("CachedDecoder", "d_model", model=model.d_model, memory=d_model)
        self.model = model
        self.memory = memory
        self.src_mask = src_mask
        self.length = 0
        layers = model.decoder.layers
        self.self_caches = [KeyValueCache(layer.self_attention, batch, max_len) for layer in layers]
        self.cross_caches = [KeyValueCache(layer.cross_attention, batch, src) for layer in layers]

    @checked
    def step(self, tgt: Int[Tensor, "batch new"]) -> Float[Tensor, "batch new vocab"]:
        """Compute the logits of the next word at each new position.

        Args:
            tgt: Token ids at the new positions, which follow those of earlier steps.

        Returns:
            Logits at the new positions.

        Raises:
            ValueError: If the target is longer than max_len. A step that fails or is interrupted
                changes nothing and can be repeated.
        """
        new = tgt.size(1)
        # The new positions begin where the previous step ended.
        x = self.model.positional_encoding(self.model.tgt_embedding(tgt), start=self.length)
        # A single new position is the last one and may attend to all: no causal mask is needed.
        mask = causal_mask(new, self.length + new, device=tgt.device) if new > 1 else None
        # Only the first step appends memory; later steps find it in the cross-attention caches.
        memory = self.memory[:, :0] if self.cross_caches[0].length else self.memory

        with all_or_nothing(self.self_caches + self.cross_caches):
            decoder_output: Float[Tensor, "batch new d_model"] = self.model.decoder(
                x, memory, tgt_mask=mask, src_mask=self.src_mask,
                caches=list(zip(self.self_caches, self.cross_caches, strict=True)),
            )  # fmt: skip
            logits: Float[Tensor, "batch new vocab"] = self.model.output_projection(decoder_output)
            self.length += new
        return logits


@torch.no_grad()
@checked
def greedy_decode(
    model: nn.Module, src: Int[Tensor, "batch src"], *, start_id: int | None = None,
    end_id: int | Sequence[int] | None = None, max_len: int, pad_id: int = 0,
    src_mask: SourceMask | None = None,
) -> Int[Tensor, "batch tgt"]:  # fmt: skip
    """Generate each sentence by repeatedly appending the word with the highest logit.

    Args:
        model: A Transformer or a decoder-only model such as LanguageModel, in eval mode.
        src: Source token ids. For a decoder-only model, they are the prompt to continue.
        start_id: Id of the start token; only for a Transformer.
        end_id: Id that ends a sentence, or several such ids; without one, all sentences have
            max_len tokens.
        max_len: Maximum number of tokens, including the start token or the prompt.
        pad_id: Id that pads sentences shorter than the longest one.
        src_mask: True where a position of src may be attended to; usually `padding_mask(src)`.
            Prompts are padded on the left, because the new tokens follow their last token.

    Returns:
        The ids, including the start token or the prompt, up to the last end token or max_len.

    Raises:
        ValueError: If src is empty, an id is outside the vocabulary, max_len leaves no room for a
            token or exceeds that of the model, the model is in training mode, start_id is missing
            for a Transformer or present for a decoder-only model, or a prompt ends in padding.
        FloatingPointError: If the logits contain NaN or inf.

    Source:
        Vaswani et al. (2017), section 3: "auto-regressive"; the paper decodes with beam search.
    """
    ids = {"start_id": start_id, "end_id": end_id, "pad_id": pad_id}
    choose = partial(torch.argmax, dim=-1)
    return _generate("greedy_decode", model, src, choose, max_len, src_mask, **ids)


@torch.no_grad()
@checked
def sample(
    model: nn.Module, src: Int[Tensor, "batch src"], *, start_id: int | None = None,
    seed: int, end_id: int | Sequence[int] | None = None, max_len: int, pad_id: int = 0,
    src_mask: SourceMask | None = None, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None,
) -> Int[Tensor, "batch tgt"]:  # fmt: skip
    """Generate each sentence by repeatedly sampling a word from the model's probabilities.

    Args:
        model: A Transformer or a decoder-only model such as LanguageModel, in eval mode.
        src: Source token ids, or the prompt; see `greedy_decode`.
        start_id: Id of the start token; only for a Transformer.
        seed: Random seed. The same seed gives the same sentences on every device.
        end_id: Id that ends a sentence, or several such ids; without one, all sentences have
            max_len tokens.
        max_len: Maximum number of tokens, including the start token or the prompt.
        pad_id: Id that pads sentences shorter than the longest one.
        src_mask: True where a position of src may be attended to; usually `padding_mask(src)`.
        temperature: Divisor of the logits: below 1, likely words become more likely.
        top_k: Number of most likely words to sample from; all by default.
        top_p: Sample only from the fewest most likely words whose probabilities sum to at least
            top_p.

    Returns:
        The ids, including the start token or the prompt, up to the last end token or max_len.

    Raises:
        FloatingPointError: If the logits contain NaN or inf.
        ValueError: As for `greedy_decode`, or if temperature is not above 0, top_k is not between 1
            and the size of the vocabulary, or top_p is not above 0 and at most 1.
    """
    limits = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    _check_limits("sample", model.vocab_size, **limits)
    check_between("sample", -(2**63), 2**64 - 1, "64 bits", seed=seed)
    generator = torch.Generator("cpu").manual_seed(int(seed))

    def draw(logits: Tensor) -> Tensor:
        probabilities = next_token_probabilities(logits, **limits)
        # Sample on the CPU: a seed then gives the same words, whatever the device of the model.
        # multinomial rejects NaN; `_generate` raises an error for it at the end.
        drawn = torch.multinomial(probabilities.cpu().nan_to_num(1.0), 1, generator=generator)
        return drawn.squeeze(-1).to(logits.device)

    ids = {"start_id": start_id, "end_id": end_id, "pad_id": pad_id}
    return _generate("sample", model, src, draw, max_len, src_mask, **ids)


@checked
def next_token_probabilities(
    logits: Float[Tensor, "*batch vocab"], *, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*batch vocab"]:  # fmt: skip
    """Compute the probabilities that `sample` samples from.

    Args:
        logits: One score for each word.
        temperature: Divisor of the logits.
        top_k: Number of most likely words to keep; all by default.
        top_p: Keep the fewest most likely words whose probabilities sum to at least top_p.

    Returns:
        Probabilities that sum to 1; the excluded words have probability 0.

    Raises:
        ValueError: As for `sample`.

    Source:
        Holtzman et al. (2020), section 3.1, for top_p, which is applied after top_k.
    """
    _check_limits("next_token_probabilities", logits.size(-1), temperature, top_k, top_p)
    # Subtracting the maximum does not change softmax. Otherwise a small temperature could cause an
    # overflow. float32 rounds a temperature below tiny to 0.
    highest, tiny = logits.amax(-1, keepdim=True), torch.finfo(torch.float32).tiny
    scaled: Float[Tensor, "*batch vocab"] = (logits - highest) / max(temperature, tiny)
    if top_k is not None:
        best = scaled.topk(top_k, dim=-1)
        scaled = torch.full_like(scaled, -math.inf).scatter(-1, best.indices, best.values)
    if top_p is not None and top_p < 1.0:
        # In lower precision, a sum of many probabilities is inaccurate, and a tiny top_p is 0.
        best = scaled.double().softmax(-1).sort(dim=-1, descending=True)
        # Keep a token while the probability mass before it is below top_p; the top token stays.
        enough = best.values.cumsum(-1) - best.values >= top_p
        scaled = scaled.masked_fill(enough.scatter(-1, best.indices, enough), -math.inf)
    probabilities: Float[Tensor, "*batch vocab"] = scaled.softmax(-1)
    return probabilities


def _check_limits(
    where: str, vocab_size: int, temperature: float, top_k: int | None, top_p: float | None
) -> None:
    check_above_zero(where, temperature=temperature)
    if top_k is not None:
        check_between(where, 1, vocab_size, "vocab_size", top_k=top_k)
    if top_p is not None and not (is_real(top_p) and 0.0 < top_p <= 1.0):
        raise ValueError(f"{where}: top_p must be above 0 and at most 1, got {top_p!r}")


def _generate(
    where: str, model: nn.Module, src: Tensor, choose: Callable[[Tensor], Tensor], max_len: int,
    src_mask: Tensor | None, *, start_id: int | None, end_id: int | Sequence[int] | None,
    pad_id: int,
) -> Tensor:  # fmt: skip
    """Append tokens, each chosen from the logits at the last position."""
    check_positive(where, batch=src.size(0), src_len=src.size(1))
    has_encoder = hasattr(model, "encode")
    if has_encoder == (start_id is None):
        wanted = "an id for a Transformer" if has_encoder else "None for a decoder-only model"
        raise ValueError(f"{where}: start_id must be {wanted}, got {start_id}")
    ends = end_id if isinstance(end_id, Sequence) else [end_id]
    for name, ids in {"start_id": [start_id], "end_id": ends, "pad_id": [pad_id]}.items():
        for id in ids:
            if id is not None:
                check_between(where, 0, model.vocab_size - 1, "the vocabulary", **{name: id})
    stops = torch.tensor([id for id in ends if id is not None], device=src.device)
    start = torch.full_like(src[:, :1], start_id) if has_encoder else src
    first = start.size(1)
    check_between(where, first + 1, model.max_len, "max_len of the model", max_len=max_len)
    _check_eval(where, model)

    if has_encoder:
        memory = model.encode(src, src_mask=src_mask)
        next_logits = CachedDecoder(model, memory, max_len=max_len, src_mask=src_mask).step
    else:
        next_logits = _prepare_prompt(model, src, max_len, src_mask)
    tgt = torch.cat([start, start.new_full((len(src), max_len - first), pad_id)], dim=1)
    ended = torch.zeros_like(tgt[:, 0], dtype=torch.bool)
    infinite, new = ended.any(), start
    for position in range(first, max_len):
        with torch.inference_mode():
            logits = next_logits(new)[:, -1]
        infinite = infinite | ~logits.amax(-1).isfinite().all()
        tgt[:, position] = choose(logits).masked_fill(ended, pad_id)
        new = tgt[:, position : position + 1]
        if len(stops):
            ended |= torch.isin(tgt[:, position], stops)
            if ended.all():
                break
    # Check once at the end; checking every step would synchronize the GPU.
    if infinite:
        raise FloatingPointError(f"{where}: the logits of the model contain NaN or inf")
    return tgt[:, : position + 1]


def _prepare_prompt(
    model: nn.Module, prompt: Tensor, max_len: int, mask: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Allocate KV caches and return a function from new ids to their logits."""
    (batch, length), caches = prompt.shape, model.new_caches(len(prompt), max_len)
    if mask is not None:
        check_mask("LanguageModel", mask, (batch, 1, 1, length), "src_mask")
        real = mask[:, 0, 0, -1]
        if not real.all():
            rows = (~real).nonzero().flatten().tolist()
            raise ValueError(
                f"LanguageModel: src_mask must be True at the last position, got False in prompts "
                f"{rows}; pad prompts on the left"
            )
        # The new tokens are never padding.
        mask = F.pad(mask.expand(-1, -1, -1, length), (0, max_len - length), value=True)
    # A model from make_fast can compute the logits at the last position only.
    compute = getattr(model, "last_logits", model)

    def next_logits(new: Tensor) -> Tensor:
        stop = caches[0].length + new.size(1)
        key_mask = None if mask is None else mask[..., :stop]
        return compute(new, caches=caches, key_mask=key_mask)

    return next_logits


def _check_eval(where: str, model: nn.Module) -> None:
    if any(module.training for module in model.modules()):
        raise ValueError(
            f"{where}: the model must be in eval mode, because dropout would change its output; "
            f"call model.eval() first"
        )
