"""Contributions: a logit as the exact sum of what each part of a model adds to the stream."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from twelve import LanguageModel
from twelve._checks import check_between, check_ids
from twelve_lab.explain import TOLERANCES
from twelve_lab.show.show import Shown, show
from twelve_lab.show.table import EDGE, MAX_SHOWN


@dataclass(frozen=True)
class Contributions:
    """What each part adds to one logit, in float64 on the CPU.

    Args:
        logit: The logit of the run, or the difference of two.
        embedding: What the row of the last word adds by itself.
        heads: What each head adds, (layer, head).
        feed_forward: What each feed-forward layer adds, (layer,).
    """

    logit: float
    embedding: float
    heads: Tensor
    feed_forward: Tensor

    @property
    def parts(self) -> dict[str, float]:
        """Name every part with what it adds, the largest first, those that speak against last."""
        found = {"embedding": self.embedding}
        for layer, (heads, ffn) in enumerate(zip(self.heads, self.feed_forward, strict=True)):
            found |= {f"head {layer}.{head}": one for head, one in enumerate(heads.tolist())}
            found[f"feed-forward {layer}"] = ffn.item()
        return dict(sorted(found.items(), key=lambda part: -part[1]))

    def _shown(self) -> Shown:
        parts = list(self.parts.items())
        if len(parts) > MAX_SHOWN:
            # The two ends, and between them what makes the sum whole.
            between = [value for _, value in parts[EDGE:-EDGE]]
            parts[EDGE:-EDGE] = [(f"{len(between)} others", sum(between))]
        names, values = zip(*parts, strict=True)
        column = torch.tensor(values, dtype=torch.float64)[:, None]
        title = f"logit {self.logit:.4f}, the sum of"
        return show(column, "part 1", labels={"part": names}, title=title)

    def __repr__(self) -> str:
        return repr(self._shown())

    def _repr_html_(self) -> str:
        return self._shown()._repr_html_()


@torch.no_grad()
def contributions(
    model: LanguageModel, ids: Tensor, token: int, *, against: int | None = None
) -> Contributions:
    """Split the logit that the last position gives a word by the parts that wrote the stream.

        logit = Σ over parts of (what the part added / root mean square · weight) · row of the word

    Each layer adds to the stream and takes nothing away, so what reaches the last norm is a sum.
    The norm divides it by one number, taken here as it was measured, and so each summand alone.
    What a part adds depends on the parts before it: this says who wrote, not what would happen
    without them, which `without` shows.

    Args:
        model: A language model.
        ids: One text, (1, seq).
        token: The word whose logit is split.
        against: Another word, whose logit is subtracted: what all words have in common cancels.

    Raises:
        ValueError: If the model is none, there is more than one text, a token lies outside the
            vocabulary, or the parts do not add up to the logit: a part of another kind is there.
    """
    if not isinstance(model, LanguageModel):
        found = type(model).__name__
        raise ValueError(f"contributions: model must be a LanguageModel, got a {found}")
    check_ids("contributions", ids=ids)
    if len(ids) != 1:
        raise ValueError(f"contributions: ids must be one text, got shape {tuple(ids.shape)}")
    words = {"token": token} if against is None else {"token": token, "against": against}
    vocab_size = model.embedding.vocab_size
    check_between("contributions", 0, vocab_size - 1, f"vocab_size={vocab_size}", **words)

    kept: dict[int, Tensor] = {}  # by module: what it was given, or gave, at the last position
    attentions = [layer.self_attention for layer in model.layers]
    with ExitStack() as hooks:
        for module in [model.norm, *(one.w_o for one in attentions)]:
            hooks.enter_context(module.register_forward_pre_hook(_given_to(kept)))
        for module in [model.embedding, *(layer.feed_forward for layer in model.layers)]:
            hooks.enter_context(module.register_forward_hook(_given_by(kept)))
        logits = model(ids)[0, -1].double().cpu()

    table = model.output_projection or model.embedding
    row, logit = _double(table.weight[token]), logits[token].item()
    if against is not None:
        row, logit = row - _double(table.weight[against]), logit - logits[against].item()
    stream = kept[id(model.norm)]
    root_mean_square = (stream.square().mean() + model.norm.eps).sqrt()
    # Along this direction of the stream the word is scored.
    direction = row * _double(model.norm.weight) / root_mean_square

    heads = [
        # What leaves W_O is a sum over heads: each has its own columns.
        (kept[id(one.w_o)] * (direction @ _double(one.w_o.weight))).view(one.num_heads, -1).sum(-1)
        for one in attentions
    ]
    feed_forward = [kept[id(layer.feed_forward)] @ direction for layer in model.layers]
    embedding = (kept[id(model.embedding)] @ direction).item()
    found = Contributions(logit, embedding, torch.stack(heads), torch.stack(feed_forward))
    _check(found, model.norm.weight.dtype)
    return found


def _check(found: Contributions, dtype: torch.dtype) -> None:
    values = found.parts.values()
    total, largest = sum(values), max(1.0, abs(found.logit), *map(abs, values))
    if not abs(total - found.logit) <= TOLERANCES.get(dtype, 0.05) * largest:
        kinds = "its heads, its feed-forward layers and its table"
        raise ValueError(
            f"contributions: {kinds} add up to {total}, but the logit is {found.logit}: "
            "another part writes to the stream, or the last norm is no RMSNorm"
        )


def _given_to(kept: dict[int, Tensor]):
    return lambda module, given: kept.update({id(module): _double(given[0][0, -1])})


def _given_by(kept: dict[int, Tensor]):
    return lambda module, given, output: kept.update({id(module): _double(output[0, -1])})


def _double(x: Tensor) -> Tensor:
    return x.detach().double().cpu()
