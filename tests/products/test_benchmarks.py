"""The benchmark: its arithmetic, the work of the contenders, and the generated pages."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import gpu, models, passes, report
from benchmarks.__main__ import main, parse
from benchmarks.models import BUILDERS, FAST, MARIAN, PACKAGES, PLAIN, TORCH, TORCH_POST
from benchmarks.timing import cpu_clock, interleave, ratios, spread

# x-transformers uses torch.jit.script, and the tests treat warnings as errors.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
DOCS = Path(__file__).parents[2] / "docs"
# All axes have distinct sizes. torch has a fast path for an even number of heads.
SMALL = models.Size("small", 3, 5, 7, 16, 2, 24, 2, 11, 2)


@pytest.fixture(scope="module")
def built():
    return models.build(SMALL)


# By hand.


def test_spread_returns_median_and_quartiles():
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == (3.0, 2.0, 4.0)
    assert spread([1.0, 2.0]) == (1.5, 1.25, 1.75)
    assert spread([7.0]) == (7.0, 7.0, 7.0)


def test_ratios_cancel_slow_rounds_and_refuse_missing_ones():
    assert ratios([1.5, 3.0, 12.0], [1.0, 2.0, 8.0]) == [1.5, 1.5, 1.5]
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratios([1.0], [1.0, 2.0])


def test_interleave_changes_the_order_and_repeats_short_runs():
    order, repeats = [], []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    times = interleave(runs, 4, clock=lambda run, repeats: run() or 2.0, seconds=0.0)
    assert "".join(order[6:]) == "abcacbcabcba"
    assert times == {name: [2.0] * 4 for name in "abc"}
    interleave({"a": list}, 1, clock=lambda run, count: repeats.append(count) or 0.01)
    assert repeats == [1, 5]


def test_bar_compares_the_median_with_its_limit():
    assert report.bar("time", "at most", 1.03, [1.0, 1.03, 9.0])[3] == "yes"
    assert report.bar("time", "at most", 1.03, [0.5, 1.04, 1.05])[3] == "**no**"
    assert report.bar("rate", "at least", 0.9, [0.9]) == ("rate", "at least 0.9", "0.900", "yes")
    assert report.bar("r", "at least", 0.9, [0.89, 0.89, 2.0])[2] == "0.890 (0.890 to 1.445)"
    assert report.bar("r", "at least", 1, None)[2:] == ("not installed", "not measured")


# Against an oracle.


def test_products_count_the_flops_that_torch_counts(built):
    run = passes.prepare(passes.FORWARD, built[PLAIN], *SMALL.ids())
    shapes, work = passes.products(run)
    with FlopCounterMode(display=False) as counter:
        run()
    bare = sum(2 * rows * terms * columns for (rows, terms), (_, columns) in shapes)
    assert work * bare == pytest.approx(counter.get_total_flops())
    # q, k, v and o, twice in a decoder layer; up and down in both; the output projection.
    assert len(shapes) == 2 * (4 + 8 + 2 + 2) + 1
    assert passes.products(passes.bare_products(shapes)) == (shapes, 1)


# Laws.


def test_all_contenders_do_the_same_matrix_products(built):
    names, counts = (FAST, PLAIN, TORCH, TORCH_POST), {}
    assert len({sum(p.numel() for p in built[name].parameters()) for name in names}) == 1
    for name, model in built.items():
        with FlopCounterMode(display=False) as counter:
            model.train()(*SMALL.ids())
        flops = counter.get_flop_counts()["Global"]
        # The counter knows the matrix products with weights, but not the fused CPU kernels.
        counts[name] = sum(n for op, n in flops.items() if str(op) in ("aten.mm", "aten.addmm"))
    assert len(set(counts.values())) == 1, counts


def test_all_contenders_are_causal(built):
    src, tgt = SMALL.ids()
    other = tgt.clone()
    other[:, -1] = tgt[:, -1] % (SMALL.vocab_size - 1) + 1
    for name, model in built.items():
        with torch.no_grad():
            first, second = (model.eval()(src, ids) for ids in (tgt, other))
        assert_close(first[:, :-1], second[:, :-1], msg=name)
        assert not torch.allclose(first[:, -1], second[:, -1]), name
    with torch.no_grad():
        assert_close(built[FAST](src, tgt), built[PLAIN](src, tgt))


def test_writers_write_as_many_tokens_as_asked(built, monkeypatch):
    times = passes.time_writing(built, SMALL, (2, 4), seconds=0.0)
    writers = [passes.CACHED, passes.UNCACHED] + [passes.GENERATE] * (MARIAN in built)
    assert times.keys() == {(writer, new) for writer in writers for new in (2, 4)}
    cached, uncached = (
        passes.write(writer, built, SMALL.ids()[0], 4)
        for writer in (passes.CACHED, passes.UNCACHED)
    )
    assert torch.equal(cached, uncached)
    monkeypatch.setattr(passes, "greedy_decode", lambda *_, **__: torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match=r"ours, cached must write 4 tokens, got shape \(3, 2\)"):
        passes.time_writing(built, SMALL, (4,))


# Pages.


def first_rows(text: str) -> list[list[str]]:
    lines = text.partition("## The bars")[2].partition("\n## ")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return [row for row in cells[2:] if len(row) == 4]


@pytest.mark.weekly
def test_quick_run_writes_every_row(tmp_path):
    output = tmp_path / "quick.md"
    main(["--quick", "--output", str(output)])
    text = output.read_text(encoding="utf-8")
    assert report.machine() in text and "A quick run" in text
    numbers = re.compile(r"\d+ tokens(?:(?: relative)? to \d+)?")
    quick, full = (
        [numbers.sub("n tokens", measure) for measure, *_ in first_rows(page)]
        for page in (text, (DOCS / "benchmarks.md").read_text(encoding="utf-8"))
    )
    assert list(dict.fromkeys(quick)) == list(dict.fromkeys(full))
    absent = models.missing()
    for name in BUILDERS:
        rows = re.findall(rf"^\| {re.escape(name)} \|(.+)$", text, re.M)
        assert len(rows) == 3
        assert all(("not installed" in row) == (name in absent) for row in rows)


def test_page_in_docs_is_a_full_run_with_everybody():
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert "not installed" not in text and "quick run" not in text
    template = report.TEMPLATE.read_text(encoding="utf-8")
    fixed = {"src": models.WRITING.src, "base": TORCH, "long": models.LONG.name, "note": ""}
    for name, value in fixed.items():
        template = template.replace(f"{{{name}}}", str(value))
    assert all(part in text for part in re.split(r"{\w+}", template))
    assert report.size_table(models.SIZES) in text
    assert len(first_rows(text)) == 29
    assert {row[3] for row in first_rows(text)} <= {"yes", "**no**", "reported"}


@pytest.mark.weekly
def test_gpu_page_has_a_row_for_each_size(monkeypatch):
    # Run the code of that page on the CPU: no test machine has a GPU.
    small = replace(SMALL, name="long")
    for target, name, value in (
        (gpu, "SIZES", (SMALL, small)), (gpu, "LONG", small), (gpu, "WRITING", SMALL),
        (gpu, "DEVICE", "cpu"), (gpu, "LENGTHS", (2, 3)), (gpu, "cuda_clock", cpu_clock),
        (passes, "cuda_peak_bytes", lambda run: 2**20),
        (report, "machine", lambda device: "A GPU."),
    ):  # fmt: skip
        monkeypatch.setattr(target, name, value)
    text = gpu.page("float32")
    assert "A GPU." in text
    assert len(re.findall(r"^\| long \|( \d+\.\d\d: \d\.\d\d \(.+?\) \|)+$", text, re.M)) == 2


# Errors.


def test_build_refuses_other_shapes_and_leaves_out_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda package: None)
    assert models.missing() == PACKAGES
    assert list(models.build(SMALL)) == [FAST, PLAIN, TORCH, TORCH_POST]
    wrong = partial(BUILDERS[PLAIN], replace(SMALL, vocab_size=12))
    monkeypatch.setitem(BUILDERS, TORCH, lambda size: wrong())
    with pytest.raises(RuntimeError, match=r"pre-norm, size small: wrong shape .* \(3, 7, 12\)"):
        models.build(SMALL, (TORCH,))


def test_parse_names_the_page_after_the_device():
    assert parse([]).output == DOCS / "benchmarks.md"
    options = parse(["--device", "cuda", "--dtype", "bfloat16"])
    assert options.output.name == "benchmarks_cuda_bfloat16.md"
