"""Memory: what the vectors of the trained digit reverser represent, stage by stage."""

import torch
from torch import Tensor

from twelve.training import Batch
from twelve.transformer import Transformer
from twelve_lab import reversal
from twelve_lab.trace.trace import Trace

STAGES = {
    "before": "src_input",
    "+ self-attention": "encoder.layers.0.self_attention_residual.added",
    "+ feed-forward": "encoder.layers.0.feed_forward_residual.added",
    "memory": "memory",
}
FACTS = ("digit", "position", "length", "digits that follow")


@torch.no_grad()
def named_by_nearest_average() -> dict[str, dict[str, int]]:
    """Predict facts about 3,270 unseen digits from the nearest average vector; count the hits.

    The averages are computed on 1,024 rows of training data; the digits are from 512 other rows.

    Returns:
        The number of correct predictions for each stage of STAGES and each fact of FACTS. "most
        frequent" is the baseline that always predicts the most frequent value.
    """
    model = reversal.trained()
    known, known_facts = _read(model, reversal.batch(0, size=1024))
    new, new_facts = _read(model, reversal.held_out())
    counts: dict[str, dict[str, int]] = {stage: {} for stage in (*STAGES, "most frequent")}
    for fact, labels, new_labels in zip(FACTS, known_facts, new_facts, strict=True):
        names = labels.unique()
        for stage, vectors in known.items():
            averages = torch.stack([vectors[labels == name].mean(0) for name in names])
            nearest = torch.cdist(new[stage], averages).argmin(-1)
            counts[stage][fact] = int((names[nearest] == new_labels).sum())
        counts["most frequent"][fact] = int(new_labels.bincount().max())
    return counts


def _read(model: Transformer, batch: Batch) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Return the vectors of all non-padding digits at each stage, and the facts of each digit."""
    with Trace(model) as run:
        model(batch.src, batch.tgt, src_mask=batch.src_mask, tgt_mask=batch.tgt_mask)
    real = batch.src != reversal.PAD
    length = real.sum(1, keepdim=True).expand_as(real)
    position = torch.arange(real.size(1), device=real.device).expand_as(real)
    facts = [batch.src - reversal.ZERO, position, length, length - 1 - position]
    vectors = {stage: run[name].value[real] for stage, name in STAGES.items()}
    return vectors, [fact[real] for fact in facts]
