"""Lesson 18: mistakes in a decoder-only language model."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve.decoder_only import LanguageModel
from twelve.positional_encoding import sinusoid  # noqa: F401 (an edit uses it)
from twelve_lab import example
from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.masks import causal_mask, mask_of_new
from twelve_lab.exercises.numbers import SIZES, distinct_ids, seeded


def _stack_cases() -> Cases:
    def case(model: LanguageModel, ids: Tensor) -> tuple[object, ...]:
        table = model.embedding.weight.detach().clone()
        return ids.clone(), table, list(model.layers), model.norm

    larger = example.distinct.language_model(tie_weights=True)
    return {
        "twelve numbers": case(example.language_model(), example.src[1:]),
        "one word": case(example.language_model(), example.src[:, 1:]),
        "all sizes differ": case(larger, distinct_ids().flip(1)),
    }


@task(
    _stack_cases,
    by_gradient=True,
    measures="the order of the parts, the mask, and the table used twice",
)
def language_model(
    ids: Tensor, table: Tensor, layers: Sequence[nn.Module], norm: nn.Module
) -> Tensor:
    """ids (batch, seq), table (vocab, d_model), layers, each called as layer(x, mask), norm ->
    logits (batch, seq, vocab)
    """
    x = table[ids]
    for layer in layers:
        x = layer(x, causal_mask(ids.size(1)))
    return norm(x) @ table.T


mistake(
    language_model,
    "table-untied",
    "You computed the scores with a copy of the table, so their gradient never reaches the table: "
    "use the table itself.",
    {"table.T": "table.detach().T"},
)
again(language_model, "causal-missing", {"layer(x, MASK)": "layer(x)"})
again(language_model, "norm-never-applied", {"norm(x)": "x"})
again(language_model, "softmax-before-loss", {"return X": "return (X).softmax(-1)"})
notes(
    language_model,
    {
        "You added positions: add nothing here, because the layers rotate queries and keys.": {
            "table[ids]": "table[ids] + sinusoid(ids.size(1), table.size(1)).double()"
        },
        "You applied the norm after each layer: apply it once, after the last layer.": {
            "layer(x, MASK)": "norm(layer(x, MASK))",
            "norm(x)": "x",
        },
        "You multiplied the embedded words by the square root of d_model: use them unchanged "
        "here.": {"table[ids]": "table[ids] * table.size(1) ** 0.5"},
    },
)


def _line_cases() -> Cases:
    longer = [[4, 5, 7, 5, 4, 3], [8, 7, 8, 3, 0, 0], [9, 6, 5, 7, 8, 0]]
    return {
        "a question and its answer": (torch.tensor([[6, 4, 9, 1, 9, 4, 6, 2]]), 1),
        "padded": (torch.tensor([[6, 4, 1, 4, 6, 2], [5, 1, 5, 2, 0, 0]]), 1),
        "another sign": (torch.tensor(longer), 7),
    }


@task(_line_cases, measures="which positions have a label")
def next_labels(ids: Tensor, sign: int) -> Tensor:
    """ids (batch, seq), padded with 0 on the right, sign (an id, once in each line) -> labels
    (batch, seq), -100 where nothing is asked
    """
    following = F.pad(ids[:, 1:], (0, 1))
    asked = (ids == sign).cumsum(1) > 0
    return following.masked_fill(~asked | (following == 0), -100)


@solved(next_labels)
def _labels_from_the_sign_on(ids: Tensor, sign: int) -> Tensor:
    labels = torch.full_like(ids, -100)
    labels[:, :-1] = ids[:, 1:]
    asked = (ids == sign).cumsum(1) > 0
    return labels.masked_fill(~asked | (labels == 0), -100)


again(next_labels, "labels-not-shifted", {"F.pad(ids[:, 1:], (0, 1))": "ids"})
notes(
    next_labels,
    {
        "You labelled the question as well: the labels start at `<start>`.": {"~asked | X": "X"},
        "You labelled the padding as well: use -100 after the end.": {
            "F.pad(ids[:, 1:], (0, 1))": "F.pad(ids[:, 1:], (0, 1), value=-100)",
            "~asked | X": "~asked",
        },
        "You left out the label of `<start>`: the first word of the answer follows it.": {
            "asked = X": "asked = (X) & (ids != sign)"
        },
        "Your labels start one position early: the last word of the question would predict the "
        "sign, which belongs to the question.": {"ids == sign": "following == sign"},
    },
)


def _chunk_cases() -> Cases:
    real = torch.tensor([[False, True, True], [True, True, True]])
    wide = torch.arange(7) >= torch.tensor([[4], [0], [1]])
    return {
        "a prompt": (real, 3),
        "one new word": (real.clone(), 1),
        "no padding": (torch.ones(2, 4, dtype=torch.bool), 2),
        "all sizes differ": (wide, 5),
    }


@task(_chunk_cases, measures="causal and padding mask of the tokens after a cache")
def chunk_mask(real: Tensor, new: int) -> Tensor:
    """real (batch, key), False at padding, new (the number of new words; their keys are the last)
    -> mask (batch, 1, new, key)
    """
    return mask_of_new(new, real.size(1)) & real[:, None, None, :]


@solved(chunk_mask)
def _look_at_words_before(real: Tensor, new: int) -> Tensor:
    position = torch.arange(real.size(1))
    not_ahead = position <= position[-new:, None]
    return not_ahead & real[:, None, None, :]


mistake(
    chunk_mask,
    "prompt-unmasked",
    "Only padding is hidden from the new words, so the prompt sees its own future: a cache does "
    "not replace the causal mask, and only a single new word needs none.",
    {"CAUSAL & REAL": "REAL.expand(-1, -1, new, -1)"},
)
mistake(
    chunk_mask,
    "left-padding-seen",
    "Every word sees the padding on the left: apply the padding mask in each decoding step, to "
    "cached words too.",
    {"CAUSAL & REAL": "CAUSAL.expand(len(real), -1, -1, -1)"},
)
again(
    chunk_mask,
    "causal-triu",
    {"mask_of_new(new, KEYS)": "torch.ones(new, KEYS).triu(KEYS - new).bool()"},
)
again(chunk_mask, "mask-query-axis", {"real[:, None, None, :]": "real[:, None, -new:, None]"})
again(chunk_mask, "mask-inverted", {"CAUSAL & REAL": "~(CAUSAL & REAL)"})


def _prompt_cases() -> Cases:
    draw = seeded()
    left = torch.tensor([[False, True, True], [True, True, True]])
    wide = torch.tensor(
        [[True, True, False, False, False], [False, True, True, True, True], [True] * 5]
    )
    return {
        "padded on the left": (draw(2, 3, 4), left),
        "padded on the right": (draw(2, 3, 4), left.flip(1)),
        "one word": (draw(2, 1, 4), left[:, 2:].clone()),
        "all sizes differ": (draw(3, 5, 7), wide),
    }


@task(_prompt_cases, measures="whose logits choose the first new word")
def prompt_logits(logits: Tensor, words: Tensor) -> Tensor:
    """logits (batch, seq, vocab) of prompts, words (batch, seq), False at padding, which is
    on the left or on the right -> (batch, vocab), the logits of the first new word
    """
    last = words.cumsum(1).argmax(1)
    return logits[torch.arange(len(logits)), last]


mistake(
    prompt_logits,
    "prompt-first-logit",
    "You took the logits of the first position, which has seen only one word: take those of the "
    "last word, which has seen the whole prompt.",
    {"logits[ROWS, last]": "logits[:, 0]"},
)
mistake(
    prompt_logits,
    "prompt-padded-right",
    "You took the last position, which is padding if the prompt is padded on the right: take the "
    "last word, or pad on the left.",
    {"logits[ROWS, last]": "logits[:, -1]"},
)
notes(
    prompt_logits,
    {
        "You used the number of words: with padding on the left, the last word is at a later "
        "position.": {"words.cumsum(1).argmax(1)": "words.sum(1) - 1"},
        "You took the first word of each prompt: take the last word, which has seen all of it.": {
            "words.cumsum(1)": "words.byte()"
        },
    },
)


def _top_p_cases() -> Cases:
    model = example.language_model().requires_grad_(False)
    found = model(example.src[1:])[:, -1].softmax(-1)
    return {
        "twelve numbers": (found, 0.6),
        "one is enough": (torch.tensor([[0.1, 0.7, 0.2], [0.05, 0.9, 0.05]]).double(), 0.5),
        "all of them": (torch.tensor([[0.2, 0.3, 0.5]]).double(), 1.0),
        "all sizes differ": (seeded()(SIZES.batch, 7).softmax(-1), 0.8),
    }


@task(
    _top_p_cases,
    forbidden=("next_token_probabilities",),
    by_gradient=None,
    measures="the word that crosses the threshold, and the order of the result",
)
def top_p(probabilities: Tensor, p: float) -> Tensor:
    """probabilities (batch, vocab), p -> (batch, vocab), which sums to 1: only the smallest set of
    top words whose sum reaches p is kept
    """
    ordered, ids = probabilities.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    ordered = ordered * (before < p)
    kept = torch.zeros_like(probabilities).scatter(-1, ids, ordered)
    return kept / kept.sum(-1, keepdim=True)


mistake(
    top_p,
    "top-p-one-short",
    "You dropped the word that brings the sum to p, so too few words remain: drop a word only if "
    "the words before it reach p.",
    {"before < p": "before + ordered < p"},
)
again(top_p, "top-p-one-short", {"before < p": "before + ordered <= p"})
again(top_p, "top-p-one-short", {"before < p": "(before + ordered <= p) | (before == 0)"})
again(top_p, "top-p-one-short", {"before < p": "(before + ordered < p) | (before == 0)"})
mistake(
    top_p,
    "top-p-by-rank",
    "Your probabilities are in sorted order, so words get those of others: put each probability "
    "back to its word by scatter.",
    {"kept = X": "kept = ordered"},
)
notes(
    top_p,
    {
        "You kept only words that each have a probability of at least p: their sum must reach p.": {
            "before < p": "ordered >= p"
        },
        "You kept one word too many: stop when the sum reaches p.": {
            "before < p": "before - ordered.roll(1, -1) < p"
        },
    },
)


@question(
    measures="what is counted once, and what once for each layer", worked="12 + 2 * 78 + 3 + 12"
)
def sister_count() -> int:
    """the number of parameters of our model with two layers and its own output matrix"""
    model = LanguageModel(4, d_model=3, num_heads=2, num_kv_heads=1, d_ff=4, num_layers=2, d_k=2)
    return sum(parameter.numel() for parameter in model.parameters())


notes(
    sister_count,
    {
        "You left out the last matrix: here it is not tied to the table, so count it "
        "separately.":
        12 + 2 * 78 + 3,
        "This is the number for one layer: here there are two layers.": 12 + 78 + 3 + 12,
        "You counted the last norm more than once: the stack has one, whatever the number of "
        "layers.": 12 + 2 * 78 + 2 * 3 + 12,
        "You counted a bias: the last matrix has none here.": 12 + 2 * 78 + 3 + 12 + 4,
        "You doubled everything: there is one table, one last norm and one last matrix.":
        2 * (12 + 78 + 3 + 12),
    },
)  # fmt: skip
