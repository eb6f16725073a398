"""Trains the model that reverses digits, and saves its weights to src/twelve_lab/reverser.pt.

Usage: python tools/train_reverser.py
"""

from importlib.resources import files
from pathlib import Path

import torch

from twelve.training import train
from twelve_lab import reversal

STEPS = 1200
WEIGHTS = Path(str(files("twelve_lab"))) / "reverser.pt"


def say(done: int, loss: float) -> None:
    """Print the loss of every hundredth step, because training takes a while."""
    if done % 100 == 0:
        print(f"step {done} of {STEPS}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    model = reversal.model()
    train(model, reversal.batch, steps=STEPS, lr=1e-2, after_step=say)
    weights = {name: weight.detach().half().cpu() for name, weight in model.named_parameters()}
    torch.save(weights, WEIGHTS)
    held_out = reversal.held_out()
    correct = reversal.exact(reversal.trained(), held_out)
    print(
        f"{WEIGHTS.name}: {WEIGHTS.stat().st_size:,} bytes, {correct} of {len(held_out.src)} right"
    )
