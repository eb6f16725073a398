"""Training: loop, loss and schedule.

Step 13 | notebooks/13_training.ipynb | tests/unit/test_training.py
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from twelve._checkpoint import resume, save
from twelve._checks import check_above_zero, check_axis, check_ids, check_positive, check_same

IGNORED = -100  # the label that torch's cross_entropy ignores unless told otherwise


class Batch(NamedTuple):
    """What one step learns from; tgt is the decoder's input and labels what it should answer."""

    src: Int[Tensor, "batch src"] | None  # None for a model without a source
    tgt: Int[Tensor, "batch tgt"]
    labels: Int[Tensor, "batch tgt"]
    src_mask: Bool[Tensor, "#batch #head #query #src"] | None = None
    tgt_mask: Bool[Tensor, "#batch #head #tgt #tgt"] | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """Move every tensor to a device."""
        return Batch(*(None if part is None else part.to(device) for part in self))


def shift(
    target: Int[Tensor, "batch tgt"], *, start_id: int = 0, pad_id: int = 0
) -> tuple[Int[Tensor, "batch tgt"], Int[Tensor, "batch tgt"]]:
    """Make the decoder's input and its labels from the sentences it should write.

    Each position is given the word before and asked for the word itself.

    Args:
        target: The sentences, without a start token, padded on the right.
        start_id: The id that opens every input.
        pad_id: The id that only fills up a sentence: no label.

    Returns:
        tgt: start_id, then every word but the last.
        labels: every word, IGNORED where there is only padding.

    Raises:
        ValueError: If target is not (batch, tgt) with at least one position, or of another type
            than int64 and int32.
    """
    check_ids("shift", target=target)
    check_positive("shift", target_len=target.size(1))
    start = torch.full_like(target[:, :1], start_id)
    tgt: Int[Tensor, "batch tgt"] = torch.cat([start, target[:, :-1]], dim=1)
    labels: Int[Tensor, "batch tgt"] = target.masked_fill(target == pad_id, IGNORED)
    return tgt, labels


def cross_entropy(
    logits: Float[Tensor, "batch tgt vocab"],
    labels: Int[Tensor, "batch tgt"],
    *,
    label_smoothing: float = 0.0,
    ignored: int = IGNORED,
) -> Float[Tensor, ""]:
    """Measure how surprising the right words are to the model, on average.

        loss = mean over the counted labels of −ln softmax(logits)[label]

    Args:
        logits: One score for each word of the vocabulary at each position.
        labels: The id of the right word at each position.
        label_smoothing: The share ε of the right word's probability that the whole vocabulary
            gets in equal parts: the loss becomes (1 − ε) times the above plus ε times the mean
            surprise over all words.
        ignored: The label that does not count.

    Returns:
        One number: 0 for certainty that is right, ln(vocab) for a blind guess.

    Raises:
        ValueError: If the shapes disagree, the labels are not int64, label_smoothing lies outside
            [0, 1], a label is no id, or none counts. The labels' values are read on the CPU only:
            on a CUDA device a look at them would force a synchronisation; there a loss without a
            label is NaN, as in torch.

    Source:
        Vaswani et al. (2017), section 5.4, for label smoothing, from Szegedy et al. (2016). Equal
        to torch.nn.functional.cross_entropy on flattened logits and labels.
    """
    _check_loss(logits, labels, label_smoothing, ignored)
    counted: Bool[Tensor, "batch tgt"] = labels != ignored
    # An ignored label is no id: any word may stand in for it, since it is not counted.
    words = labels.masked_fill(~counted, 0).unsqueeze(-1)

    log_probabilities: Float[Tensor, "batch tgt vocab"] = logits.log_softmax(-1)
    losses: Float[Tensor, "batch tgt"] = -log_probabilities.gather(-1, words).squeeze(-1)
    if label_smoothing > 0.0:
        over_all_words: Float[Tensor, "batch tgt"] = -log_probabilities.mean(-1)
        losses = (1.0 - label_smoothing) * losses + label_smoothing * over_all_words

    counted_losses: Float[Tensor, "batch tgt"] = losses.masked_fill(~counted, 0.0)
    loss: Float[Tensor, ""] = counted_losses.sum() / counted.sum()
    return loss


def warmup_then_linear(step: int, *, warmup: int, steps: int) -> float:
    """Say which part of the learning rate a step uses.

        factor = min((step + 1) / warmup, (steps − step) / (steps − warmup), 1)

    Args:
        step: The step, counted from 0.
        warmup: Steps over which the factor rises to 1; 0 begins at 1.
        steps: The step after the last, at which the factor would reach 0.

    Returns:
        The factor, above 0 and at most 1.

    Raises:
        ValueError: If warmup does not lie from 0 to steps − 1, or step does not either.

    Source:
        Warm-up as in Vaswani et al. (2017), section 5.3, equation 3; the paper then decays with
        1/√step, which never reaches 0.
    """
    for name, number in {"warmup": warmup, "step": step}.items():
        if not 0 <= number < steps:
            allowed = f"from 0 to steps - 1 = {steps - 1}"
            raise ValueError(f"warmup_then_linear: {name} must lie {allowed}, got {number}")
    rise = (step + 1) / max(warmup, 1)
    fall = (steps - step) / (steps - warmup)
    return min(rise, fall, 1.0)


def train(
    model: nn.Module, batch: Callable[[int], Batch], *, steps: int, lr: float = 3e-3,
    betas: tuple[float, float] = (0.9, 0.98), warmup: int = 50, clip: float = 1.0,
    label_smoothing: float = 0.0, checkpoint: str | Path | None = None,
    save_every: int = 100, after_step: Callable[[int, float], None] | None = None,
) -> list[float]:  # fmt: skip
    """Let the model learn: predict, measure, trace the loss back, move the weights; again.

    Args:
        model: Trained in place, on the device it is on; its mode (train or eval) is given back.
        batch: Makes the batch of a step, counted from 0. Resuming repeats a run only if the same
            step always gets the same batch.
        steps: How many steps the whole run takes, those before a resumption included.
        lr: The largest learning rate, which warm-up leads up to.
        betas: Adam's memory of the gradient and of its square.
        warmup: Steps until the learning rate is reached; see warmup_then_linear.
        clip: Longest gradient, as one vector over all weights; math.inf does not clip.
        label_smoothing: See cross_entropy.
        checkpoint: A file to resume from if it is there, and to write every `save_every` steps
            and at the end. It is written aside and renamed, so that a kill never leaves half of
            one. Resumed on one thread, a run gives the losses and weights it would have given
            uninterrupted, to the bit; torch's random state is put back for that.
        save_every: Steps from one checkpoint to the next.
        after_step: Called with the number of steps done so far and the last loss.

    Returns:
        The loss of every step, those before a resumption included.

    Raises:
        ValueError: If a setting is out of range, or the checkpoint is damaged, of another model or
            of other settings.
        FloatingPointError: If a loss or a gradient is not finite. The weights are still those of
            the step before, and so is the checkpoint's last state.

    Source:
        Vaswani et al. (2017), section 5.3, whose β₂ = 0.98 is kept. Clipping: Pascanu et al.
        (2013).
    """
    settings = {
        "steps": steps, "lr": lr, "betas": tuple(betas), "warmup": warmup, "clip": clip,
        "label_smoothing": label_smoothing,
    }  # fmt: skip
    check_positive("train", steps=steps, save_every=save_every)
    check_above_zero("train", lr=lr)
    if not clip > 0.0:
        raise ValueError(f"train: clip must be above 0, got {clip}")
    warmup_then_linear(0, warmup=warmup, steps=steps)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=lr, betas=betas)
    device, mode = parameters[0].device, model.training
    path = None if checkpoint is None else Path(checkpoint)
    losses = [] if path is None else resume(path, model, optimizer, settings)

    try:
        for step in range(len(losses), steps):
            model.train()
            src, tgt, labels, src_mask, tgt_mask = batch(step).to(device)
            if src is None:
                logits = model(tgt)
            else:
                logits = model(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)
            loss = cross_entropy(logits, labels, label_smoothing=label_smoothing)

            optimizer.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(parameters, clip)
            rate = lr * warmup_then_linear(step, warmup=warmup, steps=steps)
            _check_finite(step, loss.item(), norm.item(), rate, labels)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

            losses.append(loss.item())
            if after_step is not None:
                after_step(step + 1, losses[-1])
            if path is not None and ((step + 1) % save_every == 0 or step + 1 == steps):
                save(path, model, optimizer, settings, losses)
    finally:
        model.train(mode)
    return losses


def _check_loss(logits: Tensor, labels: Tensor, label_smoothing: float, ignored: int) -> None:
    owner, vocab_size = "cross_entropy", logits.size(-1) if logits.ndim else 0
    check_axis(owner, "logits", logits, "vocab", vocab_size, rank=3)
    check_same(owner, "(batch, tgt)", logits=logits.shape[:2], labels=labels.shape)
    if labels.dtype != torch.int64:
        raise ValueError(f"{owner}: labels must be int64 ids, got {labels.dtype}")
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"{owner}: label_smoothing must lie from 0 to 1, got {label_smoothing}")
    if labels.device.type != "cpu" or torch.compiler.is_compiling():
        return
    counted = labels[labels != ignored]
    if not counted.numel():
        found = f"every label is ignored ({ignored}) in shape {tuple(labels.shape)}"
        raise ValueError(f"{owner}: {found}: there is nothing to average")
    unknown = counted[(counted < 0) | (counted >= vocab_size)]
    if unknown.numel():
        allowed = f"an id from 0 to {vocab_size - 1} or {ignored}"
        raise ValueError(f"{owner}: a label must be {allowed}, got {int(unknown[0])}")


def _check_finite(step: int, loss: float, norm: float, rate: float, labels: Tensor) -> None:
    """Stop before a step that would spoil the weights."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    cause = f"The learning rate of {rate:.3g} may be too high: lower lr or raise warmup"
    if not (labels != IGNORED).any():
        cause = "Every label of this batch is ignored"
    found = f"at step {step} the loss is {loss} and the length of the gradient {norm}"
    raise FloatingPointError(f"train: {found}. {cause}. The weights were not touched")
