"""Generation: the model writes a sentence, one token after the other.

Step 14 | notebooks/14_generation.ipynb | tests/unit/test_generation.py
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from twelve._checks import (
    check_above_zero,
    check_between,
    check_ids,
    check_mask,
    check_positive,
    check_same,
)
from twelve.masks import causal_mask
from twelve.multi_head_attention import MultiHeadAttention
from twelve.transformer import Transformer


class KeyValueCache:
    """Keep the keys and values of one attention, in memory that is set aside once.

    Call it with the heads of the new positions: it stores them behind the earlier ones and gives
    back all of them. `MultiHeadAttention.forward` takes it as `cache`.

    Args:
        attention: The attention whose sizes, precision and device it takes.
        batch: Sentences that are written at once.
        max_len: Positions there is room for.

    Raises:
        ValueError: If a size is below 1.
    """

    def __init__(self, attention: MultiHeadAttention, batch: int, max_len: int) -> None:
        check_positive("KeyValueCache", batch=batch, max_len=max_len)
        # As many heads as there are keys: where heads share them, fewer than ask.
        room = (batch, attention.w_k.d_out // attention.d_k, max_len)
        self.keys = attention.w_k.weight.new_zeros(*room, attention.d_k)
        self.values = attention.w_v.weight.new_zeros(*room, attention.d_v)
        self.length = 0

    def __call__(
        self,
        key_heads: Float[Tensor, "batch head new d_k"],
        value_heads: Float[Tensor, "batch head new d_v"],
    ) -> tuple[Float[Tensor, "batch head key d_k"], Float[Tensor, "batch head key d_v"]]:
        """Add the new positions and give back all so far.

        Args:
            key_heads: Keys of the new positions; none of them is also an answer.
            value_heads: Values of the same positions.

        Returns:
            Keys and values of every position so far, as views of the cache.

        Raises:
            ValueError: If there is no room left, or keys or values are of other sizes than the
                cache: one sentence would be written into all.
        """
        start, stop = self.length, self.length + key_heads.size(2)
        keys, values = self.keys[:, :, start:stop], self.values[:, :, start:stop]
        check_same("KeyValueCache", "the shape", key_heads=key_heads.shape, room=keys.shape)
        check_same("KeyValueCache", "the shape", value_heads=value_heads.shape, room=values.shape)
        keys.copy_(key_heads)
        values.copy_(value_heads)
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]


class CachedDecoder:
    """Decode the target a few positions at a time and compute no key or value twice.

    Each step gives the logits that one pass over the whole target gives at the same positions.

    Args:
        model: The Transformer, in eval mode.
        memory: The encoder's output.
        max_len: Longest target.
        src_mask: True where a source position may be looked at.

    Raises:
        ValueError: If the model is in training mode, or max_len is below 1 or above its table of
            positions.
    """

    def __init__(
        self, model: Transformer, memory: Float[Tensor, "batch src d_model"], *,
        max_len: int, src_mask: Tensor | None = None,
    ) -> None:  # fmt: skip
        _check_model("CachedDecoder", model, max_len, least=1)
        self.model = model
        self.memory = memory
        self.src_mask = src_mask
        self.length = 0
        batch, src, _ = memory.shape
        layers = model.decoder.layers
        self.self_caches = [KeyValueCache(one.self_attention, batch, max_len) for one in layers]
        self.cross_caches = [KeyValueCache(one.cross_attention, batch, src) for one in layers]

    def step(self, tgt: Int[Tensor, "batch new"]) -> Float[Tensor, "batch new vocab"]:
        """Score every word as the one that follows each new position.

        Args:
            tgt: The ids of the new positions, which follow those of earlier steps.

        Returns:
            Their logits.

        Raises:
            ValueError: If no position is given, or more than max_len come together. Nothing is kept
                of a step that was refused or interrupted.
        """
        check_ids("CachedDecoder", tgt=tgt)
        new = tgt.size(1)
        check_positive("CachedDecoder", new=new)
        # A new position knows its place: the rows of the table start where the last step ended.
        rows = self.model.positional_encoding.table[self.length : self.length + new]
        x: Float[Tensor, "batch new d_model"] = self.model.tgt_embedding(tgt) + rows
        # A single new position is the last one, and the last one may look at everything.
        mask = causal_mask(new, self.length + new, device=tgt.device) if new > 1 else None
        # Only the first step has memory to add; later ones find all of it in the cache.
        memory = self.memory if self.length == 0 else self.memory[:, :0]

        layers = zip(self.model.decoder.layers, self.self_caches, self.cross_caches, strict=True)
        for layer, own, across in layers:
            # What a step that was refused or interrupted has left behind is forgotten.
            own.length, across.length = self.length, across.length if self.length else 0
            x = layer(x, memory, tgt_mask=mask, src_mask=self.src_mask, caches=(own, across))
        norm = self.model.decoder.norm
        decoder_output: Float[Tensor, "batch new d_model"] = x if norm is None else norm(x)
        logits: Float[Tensor, "batch new vocab"] = self.model.output_projection(decoder_output)
        self.length += new
        return logits


@torch.no_grad()
def greedy_decode(
    model: nn.Module, src: Int[Tensor, "batch src"], *, start_id: int | None = None,
    end_id: int | None = None, max_len: int, pad_id: int = 0, src_mask: Tensor | None = None,
) -> Int[Tensor, "batch tgt"]:  # fmt: skip
    """Write each sentence by taking, again and again, the word with the highest score.

    Args:
        model: The Transformer, or a model without a source, in eval mode.
        src: Source token ids. A model without a source reads them as the prompt, the beginning of
            the sentence that it goes on writing.
        start_id: The id that every sentence starts with, where there is no prompt.
        end_id: The id after which a sentence has ended; none ends early if not given.
        max_len: Longest sentence, the start or the prompt counted.
        pad_id: Fills up the sentences that end before the longest one.
        src_mask: True where a position of src may be looked at; usually `padding_mask(src)`.
            Prompts are padded on the left: what is written follows their last word.

    Returns:
        The ids, start or prompt included, up to the last end or max_len.

    Raises:
        ValueError: If src is empty, an id lies outside the vocabulary, max_len leaves no room or
            is above the model's table of positions, the model is in training mode, a start is
            missing or given beside a prompt, or a prompt ends in padding.
        FloatingPointError: If the model gives NaN.

    Source:
        Vaswani et al. (2017), section 3: "auto-regressive"; the paper writes by beam search.
    """
    ids = {"start_id": start_id, "end_id": end_id, "pad_id": pad_id}
    return _write("greedy_decode", model, src, lambda row: row.argmax(-1), max_len, src_mask, **ids)


@torch.no_grad()
def sample(
    model: nn.Module, src: Int[Tensor, "batch src"], *, start_id: int | None = None,
    seed: int, end_id: int | None = None, max_len: int, pad_id: int = 0,
    src_mask: Tensor | None = None, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None,
) -> Int[Tensor, "batch tgt"]:  # fmt: skip
    """Write each sentence by drawing every word with the probability that the model gives it.

    Args:
        model: The Transformer, or a model without a source, in eval mode.
        src: Source token ids, or the prompt; see `greedy_decode`.
        start_id: The id that every sentence starts with, where there is no prompt.
        seed: The same seed draws the same sentences, on every device.
        end_id: The id after which a sentence has ended; none ends early if not given.
        max_len: Longest sentence, the start or the prompt counted.
        pad_id: Fills up the sentences that end before the longest one.
        src_mask: True where a position of src may be looked at; usually `padding_mask(src)`.
        temperature: Divides the logits: below 1 the likely words win more often, above 1 less.
        top_k: How many words may be drawn; all if not given.
        top_p: What the likeliest words must sum to; those after them are not drawn.

    Returns:
        The ids, start or prompt included, up to the last end or max_len.

    Raises:
        FloatingPointError: If the model gives NaN.
        ValueError: As in `greedy_decode`, or if the temperature is not above 0, top_k is not
            between 1 and the size of the vocabulary, or top_p not above 0 and at most 1.
    """
    check_above_zero("sample", temperature=temperature)
    if top_k is not None:
        words = _sizes(model)[1]
        check_between("sample", 1, words, "the words there are", top_k=top_k)
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ValueError(f"sample: top_p must be above 0 and at most 1, got {top_p!r}")
    limits = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    generator = torch.Generator("cpu").manual_seed(seed)

    def draw(logits: Tensor) -> Tensor:
        probabilities = next_token_probabilities(logits, **limits)
        # On the CPU, where one seed gives one sequence of draws whatever the device. From NaN
        # nothing can be drawn; what is drawn instead is thrown away at the end.
        drawn = torch.multinomial(probabilities.cpu().nan_to_num(1.0), 1, generator=generator)
        return drawn.squeeze(-1).to(logits.device)

    ids = {"start_id": start_id, "end_id": end_id, "pad_id": pad_id}
    return _write("sample", model, src, draw, max_len, src_mask, **ids)


def next_token_probabilities(
    logits: Float[Tensor, "*batch vocab"], *, temperature: float = 1.0, top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "*batch vocab"]:  # fmt: skip
    """Turn scores into the probabilities that `sample` draws from.

    Args:
        logits: Scores of every word.
        temperature: Divides the logits.
        top_k: How many words keep a probability; all if not given.
        top_p: What the probabilities of the words that keep theirs sum to, at least: as few of the
            likeliest as reach it.

    Returns:
        Probabilities that sum to 1; zero for the words that are left out.

    Source:
        Holtzman et al. (2020), section 3.1, for top_p, which is applied after top_k.
    """
    scaled: Float[Tensor, "*batch vocab"] = logits / temperature
    if top_k is not None:
        best = scaled.topk(top_k, dim=-1)
        scaled = torch.full_like(scaled, -math.inf).scatter(-1, best.indices, best.values)
    if top_p is not None:
        best = scaled.softmax(-1).sort(dim=-1, descending=True)
        # A word stays while those before it fall short of top_p: the first one always does.
        enough = best.values.cumsum(-1) - best.values >= top_p
        scaled = scaled.masked_fill(enough.scatter(-1, best.indices, enough), -math.inf)
    probabilities: Float[Tensor, "*batch vocab"] = scaled.softmax(-1)
    return probabilities


def _write(
    owner: str, model: nn.Module, src: Tensor, choose: Callable[[Tensor], Tensor], max_len: int,
    src_mask: Tensor | None, *, start_id: int | None, end_id: int | None, pad_id: int,
) -> Tensor:  # fmt: skip
    """Write word after word, as `choose` takes each from the logits of the one before."""
    check_ids(owner, src=src)
    check_positive(owner, batch=src.size(0), src_len=src.size(1))
    has_source = isinstance(model, Transformer)
    if start_id is not None and not has_source:
        raise ValueError(f"{owner}: a prompt is the start already, got start_id={start_id!r}")
    ids = ({"start_id": start_id} if has_source else {}) | {"pad_id": pad_id}
    ids |= {} if end_id is None else {"end_id": end_id}
    check_between(owner, 0, _sizes(model)[1] - 1, "the target vocabulary", **ids)
    start = torch.full_like(src[:, :1], start_id) if has_source else src
    written = start.size(1)
    _check_model(owner, model, max_len, least=written + 1)  # the start, and a word after it

    read = (_read_source if has_source else _read_prompt)(model, src, max_len, src_mask)
    tgt = torch.cat([start, start.new_full((len(src), max_len - written), pad_id)], dim=1)
    ended = torch.zeros_like(tgt[:, 0], dtype=torch.bool)
    nan, new = ended.any(), start
    for position in range(written, max_len):
        with torch.inference_mode():
            logits = read(new)[:, -1]
        nan = nan | logits.isnan().any()
        tgt[:, position] = choose(logits).masked_fill(ended, pad_id)
        new = tgt[:, position : position + 1]
        if end_id is not None:
            ended |= tgt[:, position] == end_id
            if ended.all():
                break
    # Looked at once, at the end: a look at each step would make a GPU wait.
    if nan:
        raise FloatingPointError(f"{owner}: the model gives NaN, from which no word can be chosen")
    return tgt[:, : position + 1]


def _read_source(
    model: Transformer, src: Tensor, max_len: int, src_mask: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Encode the source, and give what scores the words after new ones."""
    memory = model.encode(src, src_mask=src_mask)
    return CachedDecoder(model, memory, max_len=max_len, src_mask=src_mask).step


def _read_prompt(
    model: nn.Module, prompt: Tensor, max_len: int, mask: Tensor | None
) -> Callable[[Tensor], Tensor]:
    """Make caches, and give what scores the words after new ones: the prompt, then each word."""
    (batch, length), caches = prompt.shape, model.new_caches(len(prompt), max_len)
    if mask is not None:
        check_mask("LanguageModel", mask, (batch, 1, 1, length), four_axes=True)
        ends = mask[:, 0, 0, -1]
        if not ends.all():
            rows = (~ends).nonzero().flatten().tolist()
            found = f"src_mask hides the last position of prompts {rows}"
            raise ValueError(f"LanguageModel: {found}, which no word follows: pad on the left")
        # Every word that will be written may be looked at.
        mask = F.pad(mask.expand(-1, -1, -1, length), (0, max_len - length), value=True)

    def read(new: Tensor) -> Tensor:
        so_far = caches[0].length + new.size(1)
        key_mask = None if mask is None else mask[..., :so_far]
        return model(new, caches=caches, key_mask=key_mask, last=True)

    return read


def _sizes(model: nn.Module) -> tuple[int, int]:
    """Give the longest text and the number of words."""
    if isinstance(model, Transformer):
        return model.positional_encoding.max_len, model.output_projection.d_out
    return model.rotary.max_len, model.embedding.vocab_size


def _check_model(owner: str, model: nn.Module, max_len: int, *, least: int) -> None:
    rows, _ = _sizes(model)
    check_between(owner, least, rows, "the model's table of positions", max_len=max_len)
    if model.training:
        problem = "the model is in training mode, where dropout would change what it writes"
        raise ValueError(f"{owner}: {problem}; call model.eval() first")
