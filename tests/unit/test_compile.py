"""torch.compile and torch.export capture the models in one graph, with the same outputs.

Both fail under jaxtyping's shape checker, so this file is also a script. The script runs all checks
in a process without the shape checker, and each test reads one result.
"""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.export import Dim, export
from torch.testing import assert_close

from twelve import causal_mask, padding_mask
from twelve.fast import make_fast
from twelve_lab import example

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def masks(data) -> dict[str, Tensor]:
    return {"src_mask": data.src_mask, "tgt_mask": data.tgt_mask}


def named_axes(max_len: int) -> dict[str, dict[int, Dim]]:
    batch, src, tgt = Dim("batch"), Dim("src", max=max_len), Dim("tgt", max=max_len)
    return {
        "src": {0: batch, 1: src},
        "tgt": {0: batch, 1: tgt},
        "src_mask": {0: batch, 3: src},
        "tgt_mask": {2: tgt, 3: tgt},
    }


def three_longer_sentences() -> SimpleNamespace:
    src = torch.arange(21).reshape(3, 7) % 4
    tgt = torch.arange(18).reshape(3, 6) % 4
    return SimpleNamespace(src=src, tgt=tgt, src_mask=padding_mask(src), tgt_mask=causal_mask(6))


def compare(model: Callable, converted: Callable, data) -> None:
    expected = model(data.src, data.tgt, **masks(data))
    assert_close(converted(data.src, data.tgt, **masks(data)), expected)


@check
def transformer_compiles_into_one_graph() -> None:
    switches = {"norm_first": False, "activation": "gelu", "tie_weights": True}
    for data, model in (
        (example.distinct, example.distinct.model()),
        (example, make_fast(example.model(**switches))),
    ):
        compare(model, torch.compile(model, fullgraph=True, backend="eager"), data)


@check
def gradients_of_the_transformer_compile() -> None:
    model, same = (example.model().train() for _ in range(2))
    # The aot_eager backend also captures the backward pass, and needs no C++ compiler.
    compiled = torch.compile(same, fullgraph=True, backend="aot_eager")
    for run in (model, compiled):
        run(example.src, example.tgt, **masks(example)).square().sum().backward()
    gradients = ([p.grad for p in module.parameters()] for module in (model, same))
    assert_close(*gradients)


@check
def language_model_compiles_and_exports() -> None:
    for data in (example, example.distinct):
        model, ids = data.language_model(), data.src.flip(1)
        model = make_fast(model) if data is example else model
        key_mask = padding_mask(ids)
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        program = export(model, (ids,), {"key_mask": key_mask}, strict=False)
        for run in (compiled, program.module()):
            assert_close(run(ids, key_mask=key_mask), model(ids, key_mask=key_mask))


@check
def exported_language_model_with_named_axes_reads_longer_texts() -> None:
    model, ids = example.distinct.language_model(), example.distinct.text
    axes = {"ids": {0: Dim("batch"), 1: Dim("seq", min=2, max=32)}}
    program = export(model, (ids,), dynamic_shapes=axes)
    longer = torch.arange(21).reshape(3, 7) % 11
    assert_close(program.module()(longer), model(longer))


@check
def exported_transformer_with_named_axes_runs_at_other_sizes() -> None:
    # In the example, batch, src and tgt have the same size: the export must keep them apart.
    for data, max_len in ((example, 8), (example.distinct, 32)):
        model, axes = data.model(), named_axes(max_len)
        program = export(model, (data.src, data.tgt), masks(data), dynamic_shapes=axes)
        compare(model, program.module(), data)
        compare(model, program.module(), three_longer_sentences())


@pytest.fixture(scope="module")
def errors() -> dict[str, str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.weekly
@pytest.mark.parametrize("name", CHECKS)
def test_compile_and_export(errors, name):
    assert errors[name] == ""


def run_check(function: Callable[[], None]) -> str:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({name: run_check(function) for name, function in CHECKS.items()}))
