"""Measures heads of a real language model and writes src/twelve_lab/heads.json.

Usage: python -m tools.write_heads

Requires the model that `make language-model` installs.
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twelve import LanguageModel
from twelve.generation import greedy_decode
from twelve.pretrained import load
from twelve_lab import Trace, without

HEADS = Path(str(files("twelve_lab"))) / "heads.json"
DECIMALS = 4
PAINTINGS = "The paintings that the old man sold to the museum"
ROSES = "Her garden is full of roses that smell of honey"
# Each sentence, and the heads to show for it, the relevant head first.
SENTENCES = {
    "agreement": (PAINTINGS, ["26.0", "26.1"]),
    "previous": (ROSES, ["16.0", "16.5", "16.0 not rotated"]),
    "brackets": ("They met (in May) and left [by bus] again", ["8.4", "8.2"]),
    "he and she": ("Then Anna called Peter because she was lost and he came", ["15.7", "15.5"]),
    "it, hungry": ("The dog left the house because it was hungry", ["13.8"]),
    "it, empty": ("The dog left the house because it was empty", ["13.8"]),
    "one layer": (PAINTINGS, [f"11.{head}" for head in range(9)]),
    "repeat": (
        " river stone paper cloud garden river stone paper cloud garden",
        ["16.0", "18.6", "18.6 without 16.0", "18.6 without 16.5"],
    ),
    "capital": ("The capital of France is", ["23.4", "23.3", "23.5"]),
}
# Words for each position of a hundred more sentences like "agreement".
SUBJECTS = "letters letter pictures picture songs song cars car houses house".split()
MIDDLES = ("young farmer sent", "rich doctor gave", "tall king showed", "old woman sold",
           "young girl carried")  # fmt: skip
PLACES = ("school", "market")
SUBJECT, WHO, VERB = 1, 5, 6
VERB_LOOKS = {"11.0": SUBJECT, "11.1": WHO, "11.6": VERB}
# Single-token words for a hundred more lists like "repeat".
NOUNS = (
    "apple bridge candle desert engine feather guitar hammer island jacket kitchen ladder mirror "
    "needle orange pencil rabbit salad table window bottle castle dragon forest lemon"
).split()
HALF = 5
# Texts of more than forty tokens, three sentences each.
SHORT = (
    "Yesterday my uncle sold his old boat to a friend who lives by the sea.",
    "Nobody knows why the river turned green in spring, but the fish did not mind.",
    "If it rains tomorrow, the match will be played inside the large hall.",
    "A tall woman opened the window and called her brother, who was asleep.",
    "They bought bread, cheese and three bottles of milk for the long trip.",
    "The teacher explained how bees find their way home when the sun is hidden.",
    "Some birds sing at night when the street is quiet and the lamps are low.",
    "We walked along the beach until the sun went down behind the hills.",  # words: allow
    "My computer stopped working after the last update, so I wrote by hand.",
    "The doctor told him to rest for at least two weeks and to drink more water.",
    "In winter the lake freezes and children skate on it until it is dark.",
    "Fresh snow covered the roof of the small wooden church near the mill.",
    "The bus was late, so she took a taxi to the station and ran to the train.",
    "Old maps show an island that does not exist, and sailors looked for it.",
    "The mayor promised a new bridge across the valley, yet nobody believed him.",
    "He wrote a long letter to his sister but never sent it to her house.",
    "Please close the door before the cat runs away into the dark garden.",
    "The keys of the piano were yellow, and half of them made no sound.",
    "Our neighbours grow tomatoes on the balcony and give most of them away.",
    "The museum opens at nine, but the queue begins an hour before that.",
    "She learned to swim when she was forty and now swims every morning.",
    "Both sides signed the paper, shook hands and went to have lunch.",
    "The film was too long, and the best scene came after the first hour.",
    "A letter without a stamp lay on the table for the whole summer.",
    "Farmers cut the grass twice a year and dry it in the sun for the cows.",
    "The clock in the tower stopped at noon, and nobody has repaired it.",
    "Each student chose one book, read it in a week and told the others.",
    "Trains from the north arrive here at ten and leave again at eleven.",
    "The baker gets up at three, because the shop opens at six o'clock.",
    "When the music ended, all the guests stood up and clapped for minutes.",
)
TEXTS = [" ".join(SHORT[start : start + 3]) for start in range(0, len(SHORT), 3)]
# Largest distance for which averages are computed.
FURTHEST = 20
# Words whose nearest neighbours in the embedding table are measured, and a control.
NEAREST_TO, CONTROL, NEIGHBOURS = ("dog", "three", "Paris"), "bridge", 7
TURNING = "16.0"
# Two texts that the model continues, with RoPE and without RoPE in all layers.
BEGINNINGS, WRITTEN = ("Once upon a time, a dog and a fish", "The capital of France is"), 10


def measured() -> dict[str, Any]:
    """Run the model, and return the content of heads.json."""
    model, tokenizer = load(fast=False)
    model.requires_grad_(False)
    sentences = {}
    for name, (text, heads) in SENTENCES.items():
        ids = tokenizer.encode(text).ids
        looks = _looks(model, [ids], heads)
        sentences[name] = {
            "tokens": [tokenizer.decode([id]).strip() for id in ids],
            "heads": {head: _rows(weights[0]) for head, (weights, _) in looks.items()},
        }
    sentences["agreement"]["right"] = _agreeing(model, tokenizer)
    sentences["one layer"]["right"] = _asking(model, tokenizer)
    sentences["repeat"]["right"] = _following(model, tokenizer)
    return {
        "sentences": sentences,
        "by distance": _by_distance(model, tokenizer),
        "nearest": {word: _nearest(model, tokenizer, word) for word in NEAREST_TO},
        "continued": _continued(model, tokenizer),
    }


def _continued(model: LanguageModel, tokenizer: Any) -> dict[str, dict[str, str]]:
    """Continue each text greedily, with and without RoPE."""
    texts: dict[str, dict[str, str]] = {}
    for name, parts in {"complete": (), "without rotation": ("rotation",)}.items():
        with without(model, *parts):
            for text in BEGINNINGS:
                ids = torch.tensor([tokenizer.encode(text).ids])
                written = greedy_decode(model, ids, max_len=ids.size(1) + WRITTEN)
                new = tokenizer.decode(written[0, ids.size(1) :].tolist())
                texts.setdefault(text, {})[name] = new
    return texts


def _nearest(model: LanguageModel, tokenizer: Any, word: str) -> dict[str, float]:
    """Return the tokens whose embeddings have the largest cosine similarity to that of a word."""
    (own,), (control,) = (tokenizer.encode(f" {text}").ids for text in (word, CONTROL))
    rows = torch.nn.functional.normalize(model.embedding.weight, dim=1)
    cosines = rows @ rows[own]
    nearest = cosines.topk(NEIGHBOURS + 1).indices[1:].tolist()  # the nearest is the word itself
    return {
        tokenizer.decode([id]): round(cosines[id].item(), DECIMALS) for id in [*nearest, control]
    }


def _looks(
    model: LanguageModel, ids: list[list[int]], heads: Iterable[str]
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return weights and scores by head, such as "16.0", or "16.0 not rotated" without RoPE."""
    looks = {}
    for change, names in groupby(heads, key=lambda head: head.partition(" ")[2]):
        with without(model, *_removed(change)), Trace(model, explain=False) as trace:
            model(torch.tensor(ids))
        for name in names:
            layer, head = name.split()[0].split(".")
            path = f"layers.{layer}.self_attention."
            looks[name] = tuple(trace[path + x].value[:, int(head)] for x in ("weights", "scores"))
    return looks


def _removed(change: str) -> list[str]:
    """List the parts to ablate for a change: "", "not rotated", or a head as in "without 16.0"."""
    if change == "not rotated":
        return [f"rotation {TURNING.split('.')[0]}"]
    return [change.replace("without", "head")] if change else []


def _others(tokenizer: Any) -> tuple[list[list[int]], Tensor]:
    """Return a hundred sentences, and whether the subject of each is plural."""
    texts, plural = [], []
    for subject, middle, place in product(SUBJECTS, MIDDLES, PLACES):
        texts.append(f"The {subject} that the {middle} to the {place}")
        plural.append(subject.endswith("s"))
    return [tokenizer.encode(text).ids for text in texts], torch.tensor(plural)


def _agreeing(model: LanguageModel, tokenizer: Any) -> dict[str, int]:
    """Count sentences in which the likelier of " are" and " is" agrees with the subject."""
    ids, plural = _others(tokenizer)
    (are,), (is_,) = (tokenizer.encode(word).ids for word in (" are", " is"))
    counts = {}
    for change in ("", *(f"without {head}" for head in SENTENCES["agreement"][1])):
        with without(model, *_removed(change)):
            logits = model(torch.tensor(ids))[:, -1]
        agree = (logits[:, are] > logits[:, is_]) == plural
        counts[change or "complete"] = int(agree.sum())
    return counts


def _asking(model: LanguageModel, tokenizer: Any) -> dict[str, int]:
    """Count sentences in which the verb attends most to the object, the subject, or itself."""
    ids, _ = _others(tokenizer)
    looks = _looks(model, ids, VERB_LOOKS)
    return {
        head: int((looks[head][0][:, VERB].argmax(-1) == place).sum())
        for head, place in VERB_LOOKS.items()
    }


def _following(model: LanguageModel, tokenizer: Any) -> dict[str, int]:
    """Count repeated words with more than half their weight on their successor in the first copy.

    The first of the five words of each list is left out: its weight stays on the first token.
    """
    draws, lists = torch.Generator().manual_seed(18), []
    for _ in range(100):
        words = [NOUNS[i] for i in torch.randperm(len(NOUNS), generator=draws)[:HALF]]
        lists.append(tokenizer.encode("".join(f" {word}" for word in words * 2)).ids)
    counts = {}
    for read, (weights, _) in _looks(model, lists, SENTENCES["repeat"][1][1:]).items():
        followers = weights.diagonal(1 - HALF, -2, -1)[:, 2:]
        counts[read.partition(" ")[2] or "complete"] = int((followers > 0.5).sum())
    return counts


def _by_distance(model: LanguageModel, tokenizer: Any) -> dict[str, dict[str, list[float]]]:
    """Average weights and scores over all pairs at the same distance."""
    heads = {"rotated": TURNING, "not rotated": f"{TURNING} not rotated"}
    texts = [_looks(model, [tokenizer.encode(text).ids], heads.values()) for text in TEXTS]
    return {
        what: {
            name: [_mean([text[head][i][0] for text in texts], far) for far in range(FURTHEST + 1)]
            for name, head in heads.items()
        }
        for i, what in enumerate(("weight", "score"))
    }


def _mean(tables: list[Tensor], distance: int) -> float:
    # Queries from FURTHEST + 1 onwards have a key at every distance, not counting the first token.
    values = [table.diagonal(-distance)[FURTHEST + 1 - distance :] for table in tables]
    return round(torch.cat(values).mean().item(), DECIMALS)


def _rows(weights: Tensor) -> list[list[float]]:
    """Round the rows, and omit the zeros above the diagonal."""
    return [
        [round(weight, DECIMALS) for weight in row[: query + 1]]
        for query, row in enumerate(weights.tolist())
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    text = json.dumps(measured(), separators=(",", ":"))
    HEADS.write_text(text.replace("]],", "]],\n").replace("},", "},\n") + "\n")
    print(f"{HEADS.name}: {HEADS.stat().st_size:,} bytes")
