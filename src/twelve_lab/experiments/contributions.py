"""Contributions: a logit as the exact sum of what each part writes to the residual stream."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor, nn

from twelve import LanguageModel
from twelve._checks import check_between, checked
from twelve_lab.explain.explanation import TOLERANCES
from twelve_lab.messages import message
from twelve_lab.show.show import Shown, show
from twelve_lab.show.table import EDGE, MAX_SHOWN


@dataclass(frozen=True)
class Contributions:
    """The share of each part in one logit, in float64 on the CPU.

    Args:
        logit: Logit of the run, or the difference of two logits.
        embedding: Share of the last word's embedding.
        heads: Share of each head, (layer, head).
        feed_forward: Share of each feed-forward layer, (layer,).
    """

    logit: float
    embedding: float
    heads: Tensor
    feed_forward: Tensor

    @property
    def parts(self) -> dict[str, float]:
        """Map every part to its share, in descending order."""
        shares = {"embedding": self.embedding}
        for layer, (heads, ffn) in enumerate(zip(self.heads, self.feed_forward, strict=True)):
            shares |= {f"head {layer}.{head}": share for head, share in enumerate(heads.tolist())}
            shares[f"feed-forward {layer}"] = ffn.item()
        return dict(sorted(shares.items(), key=lambda part: -part[1]))

    def _shown(self) -> Shown:
        parts = list(self.parts.items())
        if len(parts) > MAX_SHOWN:
            # The first and last parts, with the sum of the others in between.
            between = [value for _, value in parts[EDGE:-EDGE]]
            others = message("{count} others", count=len(between))
            parts[EDGE:-EDGE] = [(others, sum(between))]
        names, values = zip(*parts, strict=True)
        column = torch.tensor(values, dtype=torch.float64)[:, None]
        title = message("logit {logit}, the sum of", logit=f"{self.logit:.4f}")
        return show(column, "part 1", labels={"part": names}, title=title)

    def __repr__(self) -> str:
        return repr(self._shown())

    def _repr_html_(self) -> str:
        return self._shown()._repr_html_()


@torch.no_grad()
@checked
def contributions(
    model: LanguageModel, ids: Int[Tensor, "batch seq"], token: int, *, against: int | None = None
) -> Contributions:
    """Split the logit of a word at the last position into contributions to the stream.

        logit = Σ over parts of (output of the part / root mean square · weight) · row of the word

    Each layer only adds to the stream, so the input of the last norm is a sum. The norm divides
    the sum, and therefore each summand, by one number, which is measured here. The output of a
    part depends on the earlier parts; `without` measures the effect of removing them.

    Args:
        model: A language model.
        ids: One text, (1, seq).
        token: Id of the word whose logit is split.
        against: Id of another word. Subtracting its logit cancels what all words share.

    Raises:
        ValueError: If the model is not a LanguageModel, there is more than one text, a token is
            outside the vocabulary, or another part writes to the stream, so the parts do not add
            up to the logit.
    """
    if not isinstance(model, LanguageModel):
        kind = type(model).__name__
        raise ValueError(f"contributions: model must be a LanguageModel, got a {kind}")
    if len(ids) != 1 or not ids.numel():
        raise ValueError(f"contributions: ids must be one text, got shape {tuple(ids.shape)}")
    words = {"token": token} if against is None else {"token": token, "against": against}
    vocab_size = model.embedding.vocab_size
    check_between("contributions", 0, vocab_size - 1, f"vocab_size={vocab_size}", **words)

    kept: dict[int, Tensor] = {}  # id of a module -> input or output at the last position

    def keep_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        kept[id(module)] = _double(inputs[0][0, -1])

    def keep_output(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        kept[id(module)] = _double(output[0, -1])

    attentions = [layer.self_attention for layer in model.layers]
    with ExitStack() as hooks:
        for module in [model.norm, *(attention.w_o for attention in attentions)]:
            hooks.enter_context(module.register_forward_pre_hook(keep_input))
        for module in [model.embedding, *(layer.feed_forward for layer in model.layers)]:
            hooks.enter_context(module.register_forward_hook(keep_output))
        output = model(ids)[0, -1]
    logits = output.double().cpu()

    table = model.output_projection or model.embedding
    row, logit = _double(table.weight[token]), logits[token].item()
    if against is not None:
        row, logit = row - _double(table.weight[against]), logit - logits[against].item()
    stream = kept[id(model.norm)]
    root_mean_square = (stream.square().mean() + model.norm.eps).sqrt()
    # The logit is the dot product of the stream with this direction.
    direction = row * _double(model.norm.weight) / root_mean_square

    heads = [
        # The output of W_O is a sum over heads, each with its own columns of the weight.
        (kept[id(a.w_o)] * (direction @ _double(a.w_o.weight))).view(a.num_heads, -1).sum(-1)
        for a in attentions
    ]
    feed_forward = [kept[id(layer.feed_forward)] @ direction for layer in model.layers]
    embedding = (kept[id(model.embedding)] @ direction).item()
    result = Contributions(logit, embedding, torch.stack(heads), torch.stack(feed_forward))
    _check(result, output.dtype)  # under autocast, less exact than the weights
    return result


def _check(result: Contributions, dtype: torch.dtype) -> None:
    values = result.parts.values()
    total, largest = sum(values), max(1.0, abs(result.logit), *map(abs, values))
    if not abs(total - result.logit) <= TOLERANCES.get(dtype, 0.05) * largest:
        kinds = "its heads, its feed-forward layers and its table"
        raise ValueError(
            f"contributions: {kinds} add up to {total}, but the logit is {result.logit}: "
            "another part writes to the stream, or the last norm is no RMSNorm"
        )


def _double(x: Tensor) -> Tensor:
    return x.detach().double().cpu()
