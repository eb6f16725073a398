"""Writes the classic mistakes as cards into docs/spot_the_bug.md: which of two pieces is wrong?

Usage: python -m tools.write_cards

The pieces are the bodies of the checker's right and wrong answers. The other parts are written by
hand: a small input, an expression to print if the value itself does not show the mistake, and a
shorter piece if an answer is long. Tests compare every piece with its answer.
"""

import ast
import re
import textwrap
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from twelve_lab import example
from twelve_lab.check import EXERCISES, TAUGHT, Mistake
from twelve_lab.check.catalogue import TASKS
from twelve_lab.check.compare import agree, outcomes
from twelve_lab.course import find_step
from twelve_lab.exercises.declare import Answer
from twelve_lab.notebook import source

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "spot_the_bug.md"
LINE = 72  # maximum number of characters; a longer result is printed row by row
IMPORTS = """\
import copy
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from twelve import causal_mask
from twelve.training import shift

torch.set_default_dtype(torch.float64)
"""
OPENING = f"""# Spot the bug

Each card has one small input and two pieces of code. Both run, and only one is right. **Which is \
wrong?** Guess before you open the answer.

Each of the {{number}} cards shows a classic mistake that raises no error. The comment at the end \
of a piece is its result, without axes of size 1.

<details><summary>The imports of all cards</summary>

```python
{IMPORTS}```

</details>
"""


class Card(NamedTuple):
    """The parts of a card that the two answers do not provide.

    Args:
        given: Python code of the input.
        right: Right piece, if it differs from the declared answer.
        wrong: Wrong piece, if it differs from the declared answer.
        look: Expression to print; `it` is the value of the piece.
        label: Name of the printed expression, if it is not `it`.
        held: Remaining computation of the answer's value, if a piece is only a part.
    """

    given: str
    right: str = ""
    wrong: str = ""
    look: str = "it"
    label: str = ""
    held: str = ""


_NORM = "norm = lambda x: F.layer_norm(x, x.shape[-1:])\n"
_PARTS = """\
parts = SimpleNamespace(
    src_embedding=lambda ids: 1.0 * ids,
    tgt_embedding=lambda ids: 10.0 * ids,
    positional_encoding=lambda x: x,
    encoder=lambda x, src_mask: x + 0.5,
    decoder=lambda x, memory, tgt_mask, src_mask: x + memory.sum(),
    output_projection=lambda x: x,
)
src, tgt = torch.tensor([[1, 2]]), torch.tensor([[3, 1]])
src_mask = tgt_mask = None
"""
_LAYERS = """\
num_layers, numbers = 3, iter([0.1, 0.2, 0.3])


def make():
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, next(numbers))  # stands for a draw
    return layer
"""
# Number of parameters that an optimizer would get from a model with these layers.
_FOUND = Card(
    _LAYERS,
    look="(m := nn.Module(), setattr(m, 'layers', it), len(list(m.parameters())))[-1]",
    label="parameters that an optimiser finds",
)
_SELVES = "query = memory = x\nw_q = w_k = w_v = w_o = torch.eye(x.size(-1))\nnum_heads = 2\n"
_SPLIT = """\
x = torch.tensor([[[1.0, 0, 2, 0], [0, 1, 0, 2]]])  # two words, four features
heads = rearrange(x, "batch seq (head d_k) -> batch head seq d_k", head=2)
"""
_MERGED = "it = rearrange(it, 'batch head query d_v -> batch query (head d_v)')"
_MASKED = Card(
    "scores = torch.tensor([[1.0, 2, 3]])\nmask = torch.tensor([[True, True, False]])\n",
    right="scores.masked_fill(~mask, -math.inf).softmax(-1)",
)
_EMPTY = "scores = torch.tensor([[2.0, 1]])\nmask = torch.tensor([[False, False]])\n"
_PADDED = Card(
    "ids = torch.tensor([[1, 3, 0], [2, 0, 0]])\n# The scores will be (batch, head, query, key).\n",
    right="(ids != 0)[:, None, None, :]",
    look="tuple(it.shape)",
    label="the shape",
    held="from twelve import scaled_dot_product_attention as attend\n"
    "query, key = torch.ones(2, 2, {}, 1), torch.ones(2, 2, 3, 1)\n"
    "value = torch.arange(12.0).view(2, 2, 3, 1)\nit = attend(query, key, value, it)",
)
_NEW = """\
turn = lambda heads, start: heads + start + torch.arange(heads.size(2))[:, None]
# `turn` is a stand-in for RoPE: it adds the position. The kept keys are rotated already.
kept_keys = kept_values = torch.tensor([[[[1.0], [3.0]]]])
"""
_ONE_NEW = f"{_NEW}query = key = value = torch.tensor([[[[0.5]]]])  # one new token, one feature\n"
_ATTENDED = """\
keys = torch.cat([kept_keys, k], dim=2)
values = torch.cat([kept_values, v], dim=2)
it = F.scaled_dot_product_attention(q, keys, values), keys, values"""
_TOKENS = "weight, bias = torch.ones(3), torch.zeros(3)\n"

# Cards keyed by the name of the task. A string is a card that has only an input.
CARDS = {
    "linear": Card(
        "x = torch.tensor([[1.0, 2]])\n"
        "weight = torch.tensor([[1.0, 0], [3, 1]])\n"
        "bias = torch.zeros(2)\n",
        right="x @ weight.T + bias",
        wrong="x @ weight + bias",
    ),
    "swap_axes": "x = torch.arange(6.0).view(1, 2, 3)  # two words, three features\n",
    "embed": "ids = torch.tensor([[1, 3], [2, 0]])  # two sentences\n"
    "table = torch.tensor([[0.0, 0], [1, 10], [2, 20], [3, 30]])\n",
    "padding_row": Card(
        "ids, pad_id = torch.tensor([[1, 3], [2, 0]]), 0\n"
        "table = torch.ones(4, 1, requires_grad=True)\n",
        look="torch.autograd.grad(it.sum(), table)[0]",
        label="gradient of the four rows",
    ),
    "positional_encoding": "x = torch.zeros(2, 3, 1)  # two sentences, three words\n"
    "table = torch.tensor([[0.0], [0.1], [0.2], [0.3]])\n",
    "positions_dropped": "x, table = torch.tensor([[[1.0, 2, 3, 4]]]), torch.zeros(1, 4)\n"
    "draws = iter(torch.tensor([[0, 1, 1, 1], [1, 1, 0, 1]]))\n"
    "dropout = lambda x: x * next(draws)  # every call drops others\n",
    "attention_scores": "query = torch.tensor([[1.0, 1, 1, 1], [2, 0, 0, 2]])\n"
    "key = torch.tensor([[1.0, 1, 1, 1], [0, 2, 0, 0]])\n",
    "attention_weights": "scores = torch.tensor([[2.0, 1], [0, 0]])  # (query, key)\n",
    "causal_mask": "length = 3\n",
    "mask_of_new": "query_len, key_len = 1, 4  # one new word after three old ones\n",
    "masked_weights": _MASKED,
    "split_heads": "projected = torch.arange(1.0, 9).view(1, 2, 4)  # two words, four features\n"
    "num_heads = 2\n",
    "merge_heads": Card(
        "heads = torch.tensor([[[[1.0, 2], [5, 6]], [[3, 4], [7, 8]]]])  # 2 heads, 2 words\n"
    ),
    "layer_norm": "x = torch.tensor([[0.0, 3, 6], [1, 1, 4]])  # two words\n" + _TOKENS,
    "rms_norm": "x, weight = torch.tensor([[0.001, 0.001]]), torch.ones(2)\n",
    "residual": "x = torch.tensor([5.0, 5, 7, 7])\n" + _NORM + "sublayer = lambda x: 3 * x\n",
    "feed_forward": "x = torch.tensor([[1.0, -1]])\n"
    "w_up, b_up = torch.eye(2), torch.zeros(2)\n"
    "w_down, b_down = torch.tensor([[1.0, 1], [-1, 1]]), torch.zeros(2)\n",
    "swiglu": "x = torch.tensor([[1.0, 2]])\n"
    "gate, up = torch.eye(2), torch.eye(2).flip(0)  # up swaps the two\n"
    "down = torch.eye(2)\n",
    "stack": Card(
        _LAYERS, look="[layer.weight.item() for layer in it]", label="the weights at the start"
    ),
    "encoder": "x, src_mask = torch.tensor([[0.0, 3, 6]]), None\n"
    "layers = [lambda x, mask: x + 1] * 2\n" + _NORM,
    "cross_attention": "x = torch.tensor([[[1.0], [0]]])  # the target\n"
    "memory = torch.tensor([[[2.0], [6]]])  # the source; its second word is padding\n"
    "src_mask = torch.tensor([[[True, False]]])\n"
    "tgt_mask = torch.tensor([[[True, True]]])\n"
    "attention = F.scaled_dot_product_attention  # query, key, value, mask\n",
    "target_mask": Card(
        "tgt = torch.tensor([[0, 1, 3]])  # one sentence\n",
        look="tuple(it.shape)",
        label="the shape",
    ),
    "decoder": "x = torch.tensor([[[1.0], [2], [9]]])  # three words, one feature\n"
    "tgt_mask = torch.ones(3, 3).tril().bool()\n"
    "memory = src_mask = None\n"
    "looks = F.scaled_dot_product_attention\n"
    "layers = [lambda x, memory, tgt_mask, src_mask: looks(x, x, x, tgt_mask)]\n"
    "norm = lambda x: x\n",
    "transformer": _PARTS,
    "shift": Card(
        "target = torch.tensor([[1, 3, 0]])  # 0 is padding, and the start\n", label="tgt, labels"
    ),
    "make_batch": Card(
        "src, target = torch.tensor([[1, 2]]), torch.tensor([[2, 1]])\n", label="src, tgt, labels"
    ),
    "loss": "logits = torch.tensor([[[9.0, 0], [9, 0]], [[0, 9], [0, 9]]])\n"
    "labels = torch.tensor([[0, 0], [1, 1]])  # what the logits say, too\n",
    "share_heads": "heads = torch.tensor([[[[1.0]], [[2.0]]]])  # two heads of keys, one token\n"
    "num_heads = 6  # heads that ask\n",
    "embed_step": "new, length = torch.tensor([[2]]), 1  # one word precedes it\n"
    "table = torch.tensor([[0.0], [1], [2], [3]])\n"
    "positions = torch.tensor([[0.0], [0.1], [0.2], [0.3]])\n",
    "rotary_angles": "start, new, d_k = 5, 2, 4  # two new words after five old ones\n",
    "rotate": "heads = torch.tensor([[[[1.0, 0, 0, 2]]]])  # one word, two pairs of neighbours\n"
    "angles = torch.tensor([[1.0, 0.1]])\n",
    "rows_for_neighbours": Card(
        "# Two heads of width 6: each feature is rotated with the one 3 further on.\n"
        "weight, num_heads = torch.arange(12.0)[:, None], 2\n"
    ),
    "language_model": Card(
        "ids, table = torch.tensor([[1, 0]]), torch.tensor([[1.0], [2]], requires_grad=True)\n"
        "layers, norm = [lambda x, mask: x + 1], lambda x: x / 2\n",
        look="torch.autograd.grad(it.sum(), table)[0]",
        label="the gradient of the table",
    ),
    "chunk_mask": Card(
        "real, new = torch.tensor([[False, True, True]]), 2  # padding, then two new words\n",
        right="causal_mask(new, real.size(1)) & real[:, None, None, :]",
    ),
    "prompt_logits": Card(
        "logits = torch.tensor([[[9.0, 0], [0, 9], [1, 8]]])  # after each position of a prompt\n"
        "words = torch.tensor([[True, True, False]])  # two words, then padding\n"
    ),
    "top_p": "probabilities, p = torch.tensor([[0.1, 0.5, 0.4]]), 0.6\n",
}
# Cards keyed by the id of the mistake, if the task's card would not show it or would reveal it.
OWN = {
    "pe-positive-exponent": Card(
        "# The table of positions contains sines and cosines of these angles.\n"
        "d_model, even = 4, torch.tensor([0, 2])\n"
        "place = torch.arange(3.0)[:, None]\n",
        right="place * 10000 ** (-even / d_model)",
        wrong="place * 10000 ** (even / d_model)",
        label="each position",
        held="max_len = 3\nit = torch.stack([it.sin(), it.cos()], dim=-1).flatten(1)",
    ),
    "pe-sin-cos-halves": Card(
        "# The angles of two positions. Sine and cosine of one angle are a pair.\n"
        "angles = torch.tensor([[0.0, 0.0], [1.0, 0.01]])\n",
        right="torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)",
        wrong="torch.cat([angles.sin(), angles.cos()], dim=1)",
        held="max_len, d_model = 2, 4",
    ),
    "pe-batch-index": "x = torch.zeros(1, 3, 1)  # one sentence, three words\n"
    "table = torch.tensor([[0.0], [0.1], [0.2], [0.3]])\n",
    "mask-inverted": _MASKED._replace(wrong="scores.masked_fill(mask, -math.inf).softmax(-1)"),
    "mask-finite": _EMPTY,
    "mask-empty-row": _EMPTY,
    "mask-query-axis": _PADDED._replace(
        wrong="(ids != 0)[:, None, :, None]", held=_PADDED.held.format(3)
    ),
    "mask-not-expanded": _PADDED._replace(wrong="ids != 0", held=_PADDED.held.format(2)),
    "mask-head-axis": _PADDED._replace(wrong="(ids != 0)[:, None, :]", held=_PADDED.held.format(2)),
    "softmax-heads": Card(
        _SPLIT + "scores = heads @ heads.mT / math.sqrt(2)  # (batch, head, query, key)\n",
        right="scores.softmax(-1)",
        wrong="scores.softmax(1)",
        held=f"{_SELVES}it = it @ heads\n{_MERGED}",
    ),
    "scale-d_model": Card(
        _SPLIT,
        right="scores = heads @ heads.mT / math.sqrt(heads.size(-1))\nscores.softmax(-1)",
        wrong="scores = heads @ heads.mT / math.sqrt(x.size(-1))\nscores.softmax(-1)",
        held=f"{_SELVES}it = it @ heads\n{_MERGED}",
    ),
    "heads-are-features": Card(
        "x = torch.arange(8.0).view(1, 2, 4)  # two words, four features\nnum_heads = 2\n",
        right='rearrange(x, "batch seq (head d_k) -> batch head seq d_k", head=num_heads)',
        wrong='rearrange(x, "batch seq (head d_k) -> batch head seq d_k", head=x.size(-1))',
        look="tuple(it.shape)",
        label="the shape",
        held=f"{_SELVES}it = F.scaled_dot_product_attention(it, it, it)\n{_MERGED}",
    ),
    "ln-batch": "x = torch.tensor([[[0.0, 3, 6]], [[1, 1, 4]]])  # two sentences of one word\n"
    + _TOKENS,
    "ln-no-keepdim": "x = torch.tensor([[0.0, 3, 6], [1, 1, 4], [2, 5, 5]])  # three words\n"
    + _TOKENS,
    "ln-eps-tiny": "x = torch.tensor([[0.0, 0.001, 0.002]])  # PyTorch's own norm adds 1e-05\n"
    + _TOKENS,
    "layers-shared": _FOUND,
    "layers-in-list": _FOUND,
    "padding-mask-missing": Card(
        "x = torch.tensor([[[1.0], [2], [9]]])  # three words; the last is padding\n"
        "src_mask = torch.tensor([[[True, True, False]]])\n"
        "layers = [lambda x, mask: F.scaled_dot_product_attention(x, x, x, mask)]\n"
        "norm = lambda x: x\n"
    ),
    "left-padding-seen": CARDS["chunk_mask"]._replace(
        wrong="causal_mask(new, real.size(1)).expand(len(real), -1, -1, -1)"
    ),
    "rotary-values-turned": Card(
        _ONE_NEW,
        right="start = kept_keys.size(2)\nturn(query, start), turn(key, start), value",
        wrong="start = kept_keys.size(2)\nturn(query, start), turn(key, start), turn(value, start)",
        label="query, key, value",
        held=f"q, k, v = it\n{_ATTENDED}",
    ),
    "rotary-after-cache": Card(
        _ONE_NEW,
        right="torch.cat([kept_keys, turn(key, kept_keys.size(2))], dim=2)",
        wrong="turn(torch.cat([kept_keys, key], dim=2), 0)",
        label="all keys",
        held="q, k, v = turn(query, 2), it, value\n"
        + _ATTENDED.replace("torch.cat([kept_keys, k], dim=2)", "k"),
    ),
    "cache-start-zero": Card(
        _ONE_NEW,
        right="start = kept_keys.size(2)\nturn(query, start), turn(key, start)",
        wrong="turn(query, 0), turn(key, 0)",
        label="query, key",
        held=f"(q, k), v = it, value\n{_ATTENDED}",
    ),
    "kv-shared-before-cache": Card(
        f"{_NEW}query = torch.tensor([[[[0.5]], [[0.25]]]])  # one new token; two heads ask,\n"
        "key = value = torch.tensor([[[[0.5]]]])  # and share one head of keys and values\n",
        right="torch.cat([kept_keys, turn(key, 2)], dim=2)",
        wrong="torch.cat([kept_keys, turn(key, 2)], dim=2).repeat_interleave(2, dim=1)",
        look="tuple(it.shape)",
        label="the shape of the cache",
        held="keys = it\nvalues = torch.cat([kept_values, value], dim=2).expand_as(keys)\n"
        "it = F.scaled_dot_product_attention(turn(query, 2), keys, values), keys, values",
    ),
    "cache-mask-dropped": Card(
        f"{_NEW}query = key = value = torch.tensor([[[[0.5], [1.5]]]])  # two new tokens\n",
        right="start, new = kept_keys.size(2), query.size(2)\ncausal_mask(new, start + new)",
        wrong="start, new = kept_keys.size(2), query.size(2)\n"
        "None if start else causal_mask(new, start + new)",
        label="the mask",
        held="q, k, v, mask = turn(query, 2), turn(key, 2), value, it\n"
        + _ATTENDED.replace("values), keys", "values, mask), keys"),
    ),
}


def page() -> str:
    """Format the page: all cards, grouped by lesson in the order of the course."""
    ids = enumerate(sorted(TAUGHT, key=lambda id: TAUGHT[id].step), start=1)
    text = OPENING.format(number=len(TAUGHT))
    for step, group in groupby(ids, key=lambda numbered: TAUGHT[numbered[1]].step):
        title = find_step(step).title
        text += f"\n## {step} {title[0].upper()}{title[1:]}\n"
        text += "".join(_card(id, number) for number, id in group)
    return text


def card(id: str) -> Card:
    """Return the card of a mistake, with both pieces.

    Args:
        id: The mistake.

    Raises:
        ValueError: If neither the mistake nor its task has a card.
    """
    chosen = OWN.get(id) or CARDS.get(TAUGHT[id].task)
    if chosen is None:
        raise ValueError(f"{id} has no card: write an input for {TAUGHT[id].task} into CARDS")
    if isinstance(chosen, str):
        chosen = Card(chosen)
    right, wrong = answers(id)
    return chosen._replace(right=chosen.right or _body(right), wrong=chosen.wrong or _body(wrong))


def answers(id: str) -> tuple[Answer, Answer]:
    """Return the shortest right and wrong functions that differ only in a mistake.

    Args:
        id: The mistake.
    """
    return TASKS[TAUGHT[id].task].right, TAUGHT[id].wrong


def run(given: str, piece: str) -> dict[str, Any]:
    """Run a piece as a notebook would.

    Args:
        given: Statements to run before the piece.
        piece: Statements, the last of which is an expression.

    Returns:
        All variables; `it` is the value of that expression.
    """
    *before, last = ast.parse(piece).body
    names: dict[str, Any] = {}
    with example.float64():
        exec(IMPORTS + given, names)
        exec(compile(ast.Module(before, []), "<card>", "exec"), names)
        names["it"] = eval(compile(ast.Expression(last.value), "<card>", "eval"), names)
    return names


def shown(look: str, names: dict[str, Any]) -> Any:
    """Evaluate the expression to print.

    Args:
        look: Expression that uses `it`.
        names: Variables after a run.
    """
    with example.float64():
        return eval(look, names)


def told(values: list[Any], label: str = "") -> list[str]:
    """Format the results of two pieces alike: four decimals unless all values are integers.

    Args:
        values: Tensors (printed without axes of size 1), tuples of tensors, or other values.
        label: Name of the values.

    Returns:
        One text per value: a single line, or a line for each row if the text is too long.
    """
    plain = [_plain_tensors(value) for value in values]
    whole = all(bool((tensor % 1 == 0).all()) for tensors in plain for tensor in tensors)
    decimals, texts = 0 if whole else 4, []
    for value, tensors in zip(values, plain, strict=True):
        text = ", ".join(_written(tensor, decimals) for tensor in tensors) or str(value)
        separator = ": " if label else ""
        if len(label + text) > LINE and len(tensors) == 1:
            rows = ",\n ".join(_written(row, decimals) for row in tensors[0])
            text, separator = f"[{rows}]", separator and ":\n"
        texts.append(label + separator + text)
    return texts


def _plain_tensors(value: Any) -> list[Tensor]:
    """Return the tensors of a value, rounded."""
    items = value if isinstance(value, tuple) else (value,)
    tensors = [item.detach().squeeze() for item in items if isinstance(item, Tensor)]
    # Adding 0.0 changes a negative zero to zero.
    return [x.round(decimals=4) + 0.0 if x.is_floating_point() else x for x in tensors]


def _written(tensor: Tensor, decimals: int) -> str:
    written = str(tensor.tolist())
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.{decimals}f}", written)


def _card(id: str, number: int) -> str:
    parts, mistake = card(id), TAUGHT[id]
    pieces = [parts.right, parts.wrong]
    if zlib.crc32(id.encode()) % 2:  # pseudorandom but deterministic
        pieces.reverse()
    values = [shown(parts.look, run(parts.given, piece)) for piece in pieces]
    texts = told(values, parts.label)
    text = f"\n### {number} · {mistake.task.replace('_', ' ')}\n\n"
    if not parts.held:
        text += TASKS[mistake.task].contract.replace("*", "\\*") + "\n\n"
    text += _fence(parts.given)
    for letter, piece, said in zip("AB", pieces, texts, strict=True):
        text += f"\n**{letter}**\n\n{_fence(piece, textwrap.indent(said, '# '))}"
    letter = "AB"[pieces.index(parts.wrong)]
    return (
        f"{text}\n<details><summary>Which is wrong in {number}?</summary>\n\n"
        f"**{letter} is wrong**: `{id}`. {mistake.sentence}\n\n{_finds(mistake)}\n\n</details>\n"
    )


def _fence(*lines: str) -> str:
    return "```python\n" + "\n".join(line.rstrip() for line in lines) + "\n```\n"


def _finds(mistake: Mistake) -> str:
    """Say which check detects the mistake, in which cases, and which lesson teaches it."""
    (id,) = (id for id, task in EXERCISES.items() if task is TASKS[mistake.task])
    cases = list(TASKS[mistake.task].cases())
    hidden, refused = shown_in(mistake)
    ways = {
        "catches the mistake in {}": set(cases) - hidden - refused,
        "rejects the wrong code in {}": refused,
        "misses the mistake in {}, where the wrong code gives the right numbers": hidden,
    }
    sentences = []
    for way, where in ways.items():
        *rest, last = [f"*{case}*" for case in cases if case in where] or [""]
        named = f"{', '.join(rest)} and {last}" if rest else last
        if named:
            sentences.append(way.format("every case" if set(where) == set(cases) else named))
    step = find_step(mistake.step)
    taught = f"[{step.number} {step.title}](../{step.notebook})"
    workshop = ROOT / step.workshop
    if workshop.exists() and mistake.id in workshop.read_text(encoding="utf-8"):
        taught += f", and broken on purpose in [its workshop](../{step.workshop})"
    return f'`check("{id}", ...)` {"; it ".join(sentences)}. Taught in {taught}.'


def shown_in(mistake: Mistake) -> tuple[set[str], set[str]]:
    """Return the cases in which a mistake goes unnoticed, and those in which it is rejected.

    In the first set, its results are right. In the second, it raises or has the wrong shape.

    Args:
        mistake: The mistake.
    """
    task = TASKS[mistake.task]
    rights, wrongs = outcomes(task, task.right), outcomes(task, mistake.wrong)
    hidden, refused = set(), set()
    for case, right in rights.items():
        shapes = [[value.shape for value in each.values] for each in (right, wrongs[case])]
        if wrongs[case].error is not None or shapes[0] != shapes[1]:
            refused.add(case)
        elif agree(right, wrongs[case], 1e-3):
            hidden.add(case)
    return hidden, refused


def _body(answer: Answer) -> str:
    """Return the body of a function without docstring and `return`."""
    text = source(answer).text
    body = ast.parse(text).body[0].body
    # Drop assignments to variables that are never read.
    for index in reversed(range(len(body) - 1)):
        target = getattr(body[index], "targets", [None])[0]
        read = {getattr(x, "id", "") for later in body[index + 1 :] for x in ast.walk(later)}
        if isinstance(target, ast.Name) and target.id not in read:
            del body[index]
    lines = text.splitlines()[body[0].lineno - 1 :]
    before, _, last = textwrap.dedent("\n".join(lines)).rpartition("return ")
    return before + last


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
