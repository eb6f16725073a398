"""torch.compile and torch.export accept the model: one graph, the same numbers.

The checker that conftest switches on breaks both. So this file is also a script: a process without
the checker runs every claim in it, and each test reads what that process found.
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
from torch import Tensor, nn
from torch.export import Dim, export
from torch.testing import assert_close

from twelve import causal_mask, padding_mask
from twelve.fast import make_fast
from twelve_lab import example

CLAIMS: dict[str, Callable[[], None]] = {}


def claim(function: Callable[[], None]) -> Callable[[], None]:
    CLAIMS[function.__name__] = function
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


def compare(one: Callable, other: Callable, data) -> None:
    logits = [run(data.src, data.tgt, **masks(data)) for run in (one, other)]
    assert_close(*logits)


@claim
def the_model_compiles_into_one_graph() -> None:
    switches = {"norm_first": False, "activation": "gelu", "tie_weights": True}
    for data, model in (
        (example.distinct, example.distinct.model()),
        (example, make_fast(example.model(**switches))),
    ):
        compare(torch.compile(model, fullgraph=True, backend="eager"), model, data)


@claim
def its_gradients_compile_too() -> None:
    model, other = (example.model().train() for _ in range(2))
    # This backend captures the backward pass as well, and needs no C++ compiler.
    compiled = torch.compile(other, fullgraph=True, backend="aot_eager")
    for run in (model, compiled):
        run(example.src, example.tgt, **masks(example)).square().sum().backward()
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert_close(one.grad, two.grad)


@claim
def the_model_without_a_source_compiles_and_exports() -> None:
    for data in (example, example.distinct):
        model, ids = data.language_model(), data.src.flip(1)
        model = make_fast(model) if data is example else model
        given = (ids,), {"key_mask": padding_mask(ids)}
        expected = model(*given[0], **given[1])
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        program = export(model, *given, strict=False)
        for run in (compiled, program.module()):
            assert_close(run(*given[0], **given[1]), expected)


@claim
def an_export_of_it_with_named_axes_reads_longer_texts() -> None:
    model, ids = example.distinct.language_model(), example.distinct.text
    axes = {"ids": {0: Dim("batch"), 1: Dim("seq", min=2, max=32)}}
    program = export(model, (ids,), dynamic_shapes=axes)
    longer = torch.arange(21).reshape(3, 7) % 11
    assert_close(program.module()(longer), model(longer))


@claim
def the_model_exports_as_it_stands() -> None:
    for data in (example, example.distinct):
        model = data.model()
        program = export(model, (data.src, data.tgt), masks(data))
        compare(program.module(), model, data)


@claim
def an_export_with_named_axes_runs_at_other_sizes() -> None:
    # Also from (2, 2, 3), where batch, src and tgt have one size: the code does not mix them up.
    for data, max_len in ((example, 8), (example.distinct, 32)):
        model, axes = data.model(), named_axes(max_len)
        program = export(model, (data.src, data.tgt), masks(data), dynamic_shapes=axes)
        compare(program.module(), model, three_longer_sentences())


@claim
def an_export_with_named_axes_tells_on_code_that_takes_the_batch_for_the_sentence() -> None:
    class Mistaken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.eye(8)[: x.size(0), :3]

    axes = {"x": {0: Dim("batch", max=8), 1: Dim("src", max=8)}}
    with pytest.raises(torch._dynamo.exc.UserError, match=r"batch.*must always be equal"):
        export(Mistaken(), (torch.zeros(2, 2, 3),), dynamic_shapes=axes)


@pytest.fixture(scope="module")
def found() -> dict[str, str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", CLAIMS)
def test_without_the_checker(found, name):
    assert found[name] == ""


def judge(function: Callable[[], None]) -> str:
    try:
        function()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    print(json.dumps({name: judge(function) for name, function in CLAIMS.items()}))
