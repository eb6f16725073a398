"""A task that a small Transformer learns in seconds: reverse a row of digits.

The new position of a digit depends on the sequence length, so the model has to attend to the
mirrored position of the source. Sequences whose digits sum to a multiple of ten are held out: no
training batch contains any of them.
"""

from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

import torch
from torch import Tensor, nn

from twelve.decoder_only import LanguageModel
from twelve.generation import greedy_decode
from twelve.masks import causal_mask, padding_mask
from twelve.normalization import LayerNorm
from twelve.residual import Residual
from twelve.training import IGNORED, Batch, shift
from twelve.transformer import Transformer
from twelve_lab.device import device
from twelve_lab.trace.trace import Trace

PAD, START, END, ZERO = range(4)
SHORTEST, LONGEST = 3, 10
vocabulary = ("<pad>", "<start>", "<end>", *"0123456789")
# Attention weights of the trained model that attend to the mirrored position: tensor and head.
MIRROR, MIRROR_HEAD = "decoder.layers.0.cross_attention.weights", 1


def batch(step: int, *, seed: int = 0, size: int = 64) -> Batch:
    """Draw the sequences of a training step.

    Args:
        step: Index of the step. The same step gives the same sequences on every device.
        seed: Random seed; a different seed gives different sequences.
        size: Number of sequences.

    Returns:
        Sequences of 3 to 10 digits, every length equally likely, none of them held out.
    """
    generator = torch.Generator("cpu").manual_seed(1_000_000 * seed + step)
    remainders = torch.randint(1, 10, (size, 1), generator=generator, device="cpu")
    return _batch(remainders, generator)


def held_out(count: int = 512) -> Batch:
    """Draw held-out sequences, which training never sees; every call returns the same ones.

    Args:
        count: Number of sequences.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    return _batch(torch.zeros(count, 1, dtype=torch.int64, device="cpu"), generator)


def model(seed: int = 0, **sizes: object) -> Transformer:
    """Build an untrained model for the task, on `twelve_lab.device()` and in eval mode.

    Args:
        seed: Seed of the weights, which are the same on every device.
        **sizes: Keyword arguments of Transformer; by default d_model=32, num_heads=2, num_layers=1
            and max_len=16.
    """
    usual = {"d_model": 32, "num_heads": 2, "num_layers": 1, "max_len": 16}
    return _built(Transformer, seed, len(vocabulary), len(vocabulary), **usual | sizes)


def line(batch: Batch) -> Batch:
    """Format each sequence of a batch as one line for a decoder-only model.

    Args:
        batch: Sequences and their reversals.

    Returns:
        Lines "7 3 9 > 9 3 7 <end>", padded on the right, where > is the start token. Only the
        tokens after it have labels.
    """
    start = torch.full_like(batch.src[:, :1], START)
    answer = batch.labels.masked_fill(batch.labels == IGNORED, PAD)
    ids = torch.cat([batch.src, start, answer], dim=1)
    labels = torch.cat([torch.full_like(ids[:, : -answer.size(1)], IGNORED), batch.labels], dim=1)
    # Move the padding between question and answer to the end, and keep the order of the rest.
    order = (ids == PAD).byte().argsort(dim=1, stable=True)
    ids, labels = ids.gather(1, order), labels.gather(1, order)
    return Batch(None, ids[:, :-1], labels[:, 1:])


def prompt(batch: Batch) -> Tensor:
    """Return only the questions of a batch, such as "7 3 9 >", padded on the left.

    Args:
        batch: Sequences and their reversals.
    """
    ids = torch.cat([batch.src, torch.full_like(batch.src[:, :1], START)], dim=1)
    return ids.gather(1, (ids != PAD).byte().argsort(dim=1, stable=True))


def language_model(seed: int = 0, **sizes: object) -> LanguageModel:
    """Build an untrained decoder-only model, on `twelve_lab.device()` and in eval mode.

    Args:
        seed: Seed of the weights, which are the same on every device.
        **sizes: Keyword arguments of LanguageModel; by default d_model=32, num_heads=4,
            num_kv_heads=2, num_layers=2 and max_len=32.
    """
    usual = {"d_model": 32, "num_heads": 4, "num_kv_heads": 2, "num_layers": 2, "max_len": 32}
    return _built(LanguageModel, seed, len(vocabulary), **usual | sizes)


def trained() -> Transformer:
    """Load the trained model in float64 and eval mode, on `twelve_lab.device()`.

    tools/train_reverser.py saved the weights in half precision to keep the file small.
    """
    built = model().double()
    with as_file(files("twelve_lab") / "reverser.pt") as path:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    # The file holds only the parameters. The position table is computed.
    built.load_state_dict(built.state_dict() | weights)
    return built


@torch.no_grad()
def wrongly_copied(order: str) -> Transformer:
    """Load the trained model with the projections of the encoder's attention swapped.

    Args:
        order: Order of the projections; "kqv" swaps w_q and w_k, and keeps w_v.
    """
    built = trained()
    attention = built.encoder.layers[0].self_attention
    projections = {letter: getattr(attention, f"w_{letter}") for letter in "qkv"}
    weights = {letter: layer.weight.clone() for letter, layer in projections.items()}
    for layer, letter in zip(projections.values(), order, strict=True):
        layer.weight.copy_(weights[letter])
    return built


@torch.no_grad()
def trace(digits: str = "3141592654") -> Trace:
    """Run the trained model on a row of digits, and trace every tensor.

    Args:
        digits: Three to ten digits. The default sums to forty, so training never saw it.

    Returns:
        The trace of one sentence. Position t of the target reads the first t digits of the answer
        and predicts the next digit; the last position predicts the end token.

    Raises:
        ValueError: If the row is too short or too long, or contains anything but digits.
    """
    if not (digits.isascii() and digits.isdigit() and SHORTEST <= len(digits) <= LONGEST):
        raise ValueError(
            f"reversal.trace: needs {SHORTEST} to {LONGEST} digits, as in '314', got {digits!r:.40}"
        )
    ids = torch.tensor([[ZERO + int(digit) for digit in digits]], device=device())
    start = torch.full_like(ids[:, :1], START)
    tgt = torch.cat([start, ids.flip(1)], dim=1)
    reverser = trained()
    with Trace(reverser) as traced:
        reverser(ids, tgt, tgt_mask=causal_mask(tgt.size(1), device=device()))
    return traced


@torch.no_grad()
def probabilities(read: str, shown: str) -> Tensor:
    """Return the probability of each target token, then of the end token, by the trained model.

    Args:
        read: Digits of the source.
        shown: Digits of the target after the start token.

    Returns:
        (digit + 1,): at each position, the probability of the next token.
    """
    src, answer = (
        torch.tensor([[ZERO + int(digit) for digit in row]], device=device())
        for row in (read, shown)
    )
    tgt = torch.cat([torch.full_like(answer[:, :1], START), answer], dim=1)
    following = torch.cat([answer, torch.full_like(answer[:, :1], END)], dim=1)
    logits = trained()(src, tgt, tgt_mask=causal_mask(tgt.size(1), device=device()))
    return logits.softmax(-1).gather(-1, following[..., None])[0, :, 0]


@torch.no_grad()
def write(model: Transformer, digits: str) -> list[str]:
    """Reverse a row of digits greedily, and return the generated words.

    Args:
        model: Model in eval mode.
        digits: Digits of the source. The model generates at most 12 words, including `<end>`.
    """
    src = torch.tensor([[ZERO + int(digit) for digit in digits]], device=device())
    written = greedy_decode(model, src, start_id=START, end_id=END, max_len=13)
    return words(written[:, 1:])[0]


@torch.no_grad()
def exact(model: Transformer | LanguageModel, batch: Batch) -> int:
    """Count the sequences that the model generates without a mistake, including the end token.

    Args:
        model: Model, which decodes greedily in eval mode; its previous mode is restored.
        batch: Batch with the correct labels.
    """
    mode, length = model.training, batch.labels.size(1)
    src, mask, start = batch.src, batch.src_mask, {"start_id": START}
    if isinstance(model, LanguageModel):
        src, start = prompt(batch), {}
        mask = padding_mask(src)
    first = 1 if start else src.size(1)
    model.eval()
    written = greedy_decode(
        model, src, **start, end_id=END, max_len=first + length, pad_id=PAD, src_mask=mask
    )
    model.train(mode)
    # Decoding stops once every sequence has ended. The rest is padding.
    padded = torch.full_like(batch.labels, PAD)
    padded[:, : written.size(1) - first] = written[:, first:]
    wanted = batch.labels.masked_fill(batch.labels == IGNORED, PAD)
    return int((padded == wanted).all(1).sum())


@torch.no_grad()
def right_without_mask(model: Transformer, batch: Batch) -> dict[str, tuple[int, int, int]]:
    """Count the sequences reversed correctly with and without the source padding mask.

    Args:
        model: Model, which decodes greedily in eval mode.
        batch: Batch with the correct labels.

    Returns:
        For "padded" sequences and for those with "no padding": their number, and the numbers that
        are correct with and without the mask.
    """
    padded = (batch.src == PAD).any(1)
    counts = {}
    for name, chosen in {"padded": padded, "no padding": ~padded}.items():
        src, labels = batch.src[chosen], batch.labels[chosen]
        part = batch._replace(src=src, src_mask=padding_mask(src), labels=labels)
        without = part._replace(src_mask=None)
        counts[name] = (len(src), exact(model, part), exact(model, without))
    return counts


def right_without_sublayers(model: Transformer, batch: Batch) -> dict[str, int]:
    """Count the sequences reversed correctly without each sublayer, whose output is not added.

    Args:
        model: Pre-norm model, restored at the end.
        batch: Batch with the correct labels.

    Returns:
        The number of sequences for "none" and for the name of each sublayer.
    """
    return _right_without(model, batch, Residual, "_residual", lambda x, sublayer: x)


def right_without_norms(model: Transformer, batch: Batch) -> dict[str, int]:
    """Count the sequences reversed correctly with each norm disabled in turn.

    Args:
        model: Model, restored at the end.
        batch: Batch with the correct labels.

    Returns:
        The number of sequences for "none" and for the name of each norm.
    """
    return _right_without(model, batch, LayerNorm, "_residual.norm", lambda x: x)


@torch.no_grad()
def unit_means(units: list[int]) -> tuple[Tensor, Tensor]:
    """Average hidden units of the trained encoder's feed-forward layer over 512 held-out rows.

    Args:
        units: Indices of the units, out of 128.

    Returns:
        Two tensors (unit, 10): the mean after ReLU over all positions of each digit, and over all
        positions with 0, 1, ... 9 digits still to follow.
    """
    reverser, rows = trained(), held_out()
    with Trace(reverser) as run:
        reverser.encode(rows.src, src_mask=rows.src_mask)
    real = rows.src != PAD
    values = run["encoder.layers.0.feed_forward.activated"].value[real][:, units]
    positions = torch.arange(rows.src.size(1), device=rows.src.device)
    digit = (rows.src - ZERO)[real]
    following = (real.sum(1, keepdim=True) - 1 - positions)[real]
    means = [
        torch.stack([values[group == number].mean(0) for number in range(10)], dim=1)
        for group in (digit, following)
    ]
    return means[0], means[1]


def words(ids: Tensor) -> list[list[str]]:
    """Convert ids to words, sentence by sentence, for `show` and for figures.

    Args:
        ids: Ids of shape (batch, seq), from 0 to 12; an ignored label becomes "-".
    """
    return [["-" if id_ == IGNORED else vocabulary[id_] for id_ in row] for row in ids.tolist()]


def _batch(remainders: Tensor, generator: torch.Generator) -> Batch:
    """Draw one sequence for each remainder of the sum of its digits modulo ten."""
    size = remainders.size(0)
    draw = {"generator": generator, "device": "cpu"}
    lengths = torch.randint(SHORTEST, LONGEST + 1, (size, 1), **draw)
    positions = torch.arange(LONGEST + 1, device="cpu")
    digits = torch.randint(0, 10, (size, LONGEST), **draw)
    digits = digits.masked_fill(positions[:LONGEST] >= lengths, 0)
    # The first digit is chosen to give the remainder. The other digits are random.
    digits[:, :1] = (digits[:, :1] + remainders - digits.sum(1, keepdim=True)) % 10

    src = (digits + ZERO).masked_fill(positions[:LONGEST] >= lengths, PAD)
    mirrored = src.gather(1, (lengths - 1 - positions).clamp(min=0))
    target = mirrored.masked_fill(positions == lengths, END).masked_fill(positions > lengths, PAD)
    tgt, labels = shift(target, start_id=START, pad_id=PAD)
    masks = {"src_mask": padding_mask(src), "tgt_mask": causal_mask(tgt.size(1), device="cpu")}
    return Batch(src, tgt, labels, **masks).to(device())


def _right_without(
    model: Transformer,
    batch: Batch,
    kind: type[nn.Module],
    suffix: str,
    forward: Callable[..., Tensor],
) -> dict[str, int]:
    counts = {"none": exact(model, batch)}
    for path, part in model.named_modules():
        if isinstance(part, kind):
            name = path.removesuffix(suffix).replace(".layers.0", "")
            part.forward = forward
            try:
                counts[name] = exact(model, batch)
            finally:
                del part.forward
    return counts


def _built(kind: type[nn.Module], seed: int, *sizes: int, **others: object) -> Any:
    # Building a model must not change the random numbers that a notebook draws afterwards.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        built = kind(*sizes, **others)
    return built.to(device()).eval()
