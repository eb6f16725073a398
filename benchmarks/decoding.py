"""Times the writing of one sentence, word by word, each time the word with the highest score."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from benchmarks.contenders import FUSED, MARIAN
from benchmarks.sizes import Size
from benchmarks.timing import Clock, Run, cpu_clock, interleave
from twelve.generation import greedy_decode
from twelve.masks import causal_mask

CACHED = "ours, cached"
GENERATE = "Hugging Face generate"
AGAIN = "ours, whole prefix again"
LENGTHS = (16, 32, 64, 128, 256)

Times = dict[tuple[str, int], list[float]]


@torch.no_grad()
def write(writer: str, contenders: dict[str, nn.Module], src: Tensor, new: int) -> Tensor:
    """Write a given number of words; none of them ends the sentence.

    Args:
        writer: CACHED, GENERATE or AGAIN.
        contenders: Models by name, in eval mode.
        src: Source ids.
        new: How many words.

    Returns:
        The ids, the start included.
    """
    if writer == GENERATE:
        # Its configuration names no end, so nothing stops it early.
        return contenders[MARIAN].model.generate(
            src, max_new_tokens=new, do_sample=False, num_beams=1, use_cache=True
        )
    model = contenders[FUSED].model
    if writer == CACHED:
        return greedy_decode(model, src, start_id=0, max_len=new + 1)
    memory, tgt = model.encode(src), torch.zeros_like(src[:, :1])
    for length in range(1, new + 1):
        mask = causal_mask(length, device=src.device)
        best = model.decode(tgt, memory, tgt_mask=mask)[:, -1:].argmax(-1)
        tgt = torch.cat([tgt, best], dim=1)
    return tgt


def decode_times(
    contenders: dict[str, nn.Module],
    size: Size,
    lengths: Sequence[int] = LENGTHS,
    *,
    clock: Clock = cpu_clock,
    seconds: float = 0.05,
) -> Times:
    """Time every writer at every length; one that runs the whole prefix again, only once.

    Args:
        contenders: Models by name.
        size: What they were built for.
        lengths: How many words are written.
        clock: Tells the seconds.
        seconds: Shorter runs are repeated until they take about as much.

    Returns:
        Seconds of one sentence by writer and length, one number for each round.

    Raises:
        RuntimeError: If somebody writes another number of words than was asked.
    """
    device = next(contenders[FUSED].parameters()).device
    src = size.ids()[0].to(device)
    for model in contenders.values():
        model.eval()

    def run(writer: str, new: int) -> Run:
        shape = write(writer, contenders, src, new).shape
        if shape != (size.batch, new + 1):
            raise RuntimeError(f"{writer} was asked for {new} words and gave {tuple(shape)}")
        return lambda: write(writer, contenders, src, new)

    writers = [CACHED, GENERATE] if MARIAN in contenders else [CACHED]
    runs = {(writer, new): run(writer, new) for new in lengths for writer in writers}
    times = interleave(runs, size.rounds, clock=clock, seconds=seconds)
    for new in lengths:
        times[AGAIN, new] = [clock(lambda new=new: write(AGAIN, contenders, src, new), 1)]
    return times
