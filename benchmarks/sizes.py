"""The sizes that are measured."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Size:
    """One model and one batch.

    Args:
        name: How the tables call it.
        batch: Sentences side by side.
        src: Tokens of each source sentence.
        tgt: Tokens of each target sentence.
        d_model: Features of each position.
        num_heads: Heads of each attention.
        d_ff: Features inside each feed-forward layer.
        num_layers: Encoder layers, and as many decoder layers.
        vocab_size: Ids of each language.
        rounds: How often each contender is timed.
    """

    name: str
    batch: int
    src: int
    tgt: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    vocab_size: int
    rounds: int

    def ids(self) -> tuple[Tensor, Tensor]:
        """Draw a batch of full sentences: no id is 0, which pads in some of the libraries.

        Returns:
            Source and target ids, the same on every call.
        """
        generator = torch.Generator().manual_seed(0)
        source, target = (
            torch.randint(1, self.vocab_size, (self.batch, length), generator=generator)
            for length in (self.src, self.tgt)
        )
        return source, target

    def __str__(self) -> str:
        model = f"{self.d_model}/{self.num_heads}/{self.num_layers}/{self.d_ff}"
        return f"{self.name}: {model}, batch {self.batch}, src {self.src}, tgt {self.tgt}"


# The numbers of the course.
TINY = Size("tiny", 2, 2, 2, 3, 3, 4, 1, 4, 30)
# The model and the batches of notebook 13.
D64 = Size("d64", 64, 10, 11, 64, 4, 256, 2, 13, 20)
# The base model of Vaswani et al. (2017), table 3, with a small vocabulary: the layers are meant.
BASE = Size("base, 64 tokens", 8, 64, 64, 512, 8, 2048, 6, 1000, 10)
BASE_128 = replace(BASE, name="base, 128 tokens", src=128, tgt=128, rounds=5)
# Two layers in each stack: all six would do three times the same.
LONG = replace(BASE, name="long", batch=1, src=1024, tgt=1024, num_layers=2, rounds=6)
SIZES = (TINY, D64, BASE, BASE_128, LONG)
# One sentence is written, word by word.
WRITING = replace(BASE, name="writing", batch=1, rounds=5)


def cut(size: Size) -> Size:
    """Cut a size down to one that only shows that the command works.

    Args:
        size: What would be measured.
    """
    return replace(
        size, batch=2, src=4, tgt=5, d_model=16, num_heads=2, d_ff=32, num_layers=1, rounds=2
    )
