"""The benchmark: what it computes, that its contenders do the same work, and what it writes."""

import gc
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import (
    bars,
    contenders,
    decoding,
    gpu,
    language,
    memory,
    passes,
    report,
    sizes,
    tracing,
)
from benchmarks.__main__ import main, parse
from benchmarks.contenders import BUILDERS, EXPLICIT, FUSED, MARIAN, NEEDS, TORCH, TORCH_POST
from benchmarks.products import Products, bare_products, flops
from benchmarks.timing import Spread, cpu_clock, interleave, ratios, spread
from twelve_lab import Trace

# x-transformers still uses it; the filter of all tests makes every warning an error.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
DOCS = Path(__file__).parents[2] / "docs"
# No two axes alike, and an even number of heads, for which torch has a fast path.
SMALL = sizes.Size("small", 3, 5, 7, 16, 2, 24, 2, 11, 2)
INSTALLED = [name for name in BUILDERS if name not in NEEDS or find_spec(NEEDS[name])]


@pytest.fixture(scope="module")
def built():
    return contenders.build(SMALL)


# By hand


def test_the_quartiles_of_five_numbers_are_the_second_the_third_and_the_fourth():
    assert spread([5.0, 1.0, 4.0, 2.0, 3.0]) == Spread(median=3.0, low=2.0, high=4.0)
    assert spread([1.0, 2.0]) == Spread(median=1.5, low=1.25, high=1.75)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_a_machine_that_slows_down_leaves_the_ratios_alone():
    base = [1.0, 2.0, 8.0]
    assert ratios([1.5, 3.0, 12.0], base) == [1.5, 1.5, 1.5]
    # The ratio of the medians, or of the sums, would follow the one slow round.
    assert spread(ratios([1.0, 2.0, 800.0], base)).median == 1.0


def test_a_missing_round_is_an_error():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        ratios([1.0], [1.0, 2.0])


def test_everybody_runs_once_a_round_and_begins_in_turn():
    order = []
    runs = {name: lambda name=name: order.append(name) for name in "abc"}
    times = interleave(runs, 4, clock=lambda run, repeats: run() or 2.0, seconds=0.0)
    assert "".join(order[6:]) == "abcacbcabcba"
    assert times == {name: [2.0] * 4 for name in "abc"}


def test_a_short_run_is_repeated_until_it_takes_long_enough():
    asked = []
    interleave({"a": list}, 1, clock=lambda run, repeats: asked.append(repeats) or 0.01)
    assert asked == [1, 5]


def test_the_garbage_collector_runs_again_after_a_failure():
    def clock(run, repeats):
        if not gc.isenabled():
            raise ArithmeticError
        return 1.0

    with pytest.raises(ArithmeticError):
        interleave({"a": list}, 1, clock=clock)
    assert gc.isenabled()


def test_the_clock_counts_work_and_not_waiting():
    assert cpu_clock(lambda: sum(range(100_000)), 3) > 1e-4
    assert cpu_clock(torch.Event, 1) >= 0.0


def test_a_bar_is_decided_by_the_median_and_its_limit_belongs_to_it():
    assert bars.at_most("time", 1.03, [1.0, 1.03, 9.0]).met == "yes"
    assert bars.at_most("time", 1.03, [0.5, 1.04, 1.05]).met == "**no**"
    assert bars.at_least("rate", 0.9, [0.9]) == ("rate", "at least 0.9", "0.900", "yes")
    assert bars.at_least("rate", 0.9, [0.89, 0.89, 2.0]).measured == "0.890 (0.890 to 1.445)"


def test_of_a_real_model_speed_is_a_ratio_and_loading_is_not():
    found = language.Language(
        load=[4.0, 5.0, 6.0],
        peak=[1.2e9],
        writing={language.OURS: [2.0], language.GENERATE: [3.0]},
        prompt={language.OURS: [2.0], language.GENERATE: [1.0]},
    )
    rows = [bar[1:] for bar in bars._language(found)]
    assert rows == [
        ("at least 1.0", "1.500", "yes"),
        ("at most 1.0", "2.000", "**no**"),
        ("at most 5", "5.0 (4.5 to 5.5)", "yes"),
        ("at most 1.2", "1.20", "yes"),
    ]


def test_without_a_real_model_the_same_rows_say_what_is_missing(monkeypatch):
    monkeypatch.setattr(language, "find_spec", lambda name: None if name == "gguf" else name)
    empty = language.Language(
        [1.0], [1.0], *([{language.OURS: [1.0], language.GENERATE: [1.0]}] * 2)
    )
    rows, due = bars._language(None), bars._language(empty)
    assert [bar[:2] for bar in rows] == [bar[:2] for bar in due]
    assert {bar[2:] for bar in rows} == {("not installed: gguf", "not measured")}


def test_a_peak_is_the_most_that_lived_at_one_time():
    def run():
        one = torch.empty(1000, dtype=torch.float32)
        two = one.neg()
        del one
        three = two.neg()
        return three

    assert memory.peak_bytes(run) == 8000
    assert memory.peak_bytes(list) == 0


def test_a_product_counts_a_multiplication_and_an_addition_for_each_term():
    assert flops([(2, 3, 5)]) == 60
    assert flops([(4, 2, 3, 5), (1, 1, 1, 1)]) == 242
    assert flops([]) == 0


# Oracle


def test_the_counted_products_are_those_that_torch_counts(built):
    model = built[EXPLICIT].eval()
    with torch.no_grad(), Products() as products, FlopCounterMode(display=False) as counter:
        model(*SMALL.ids())
    counted = flops(products.with_weights) + flops(products.within_attention)
    assert counted == counter.get_total_flops()
    # q, k, v and o, twice in a decoder layer; up and down in both; the projection at the end.
    assert len(products.with_weights) == 2 * (4 + 8 + 2 + 2) + 1
    assert len(products.within_attention) == 2 * 3 * 2


def test_the_bare_products_are_those_of_the_model():
    shapes = [(2, 3, 5), (7, 5, 3)]
    with Products() as products:
        bare_products(shapes)()
    assert products.with_weights == shapes


# Laws


def test_whoever_is_installed_takes_part(built):
    assert list(built) == INSTALLED
    assert {FUSED, EXPLICIT, TORCH, TORCH_POST} <= set(built)


def test_ours_and_those_of_torch_have_the_same_number_of_weights(built):
    counts = {
        sum(parameter.numel() for parameter in built[name].parameters())
        for name in (FUSED, EXPLICIT, TORCH, TORCH_POST)
    }
    assert len(counts) == 1


def test_everybody_multiplies_as_much(built):
    counts = {}
    for name, model in built.items():
        with FlopCounterMode(display=False) as counter:
            model.train()(*SMALL.ids())
        found = counter.get_flop_counts()["Global"]
        # The fused kernels of the CPU are not in torch's list: the products with weights are.
        counts[name] = sum(n for op, n in found.items() if str(op) in ("aten.mm", "aten.addmm"))
    assert len(set(counts.values())) == 1, counts


def test_nobody_sees_the_future(built):
    src, tgt = SMALL.ids()
    other = tgt.clone()
    other[:, -1] = tgt[:, -1] % (SMALL.vocab_size - 1) + 1
    for name, model in built.items():
        with torch.no_grad():
            one, two = (model.eval()(src, ids) for ids in (tgt, other))
        assert_close(one[:, :-1], two[:, :-1], msg=name)
        assert not torch.allclose(one[:, -1], two[:, -1]), name


def test_ours_gives_the_same_numbers_fused_and_explicit(built):
    with torch.no_grad():
        assert_close(built[FUSED].eval()(*SMALL.ids()), built[EXPLICIT].eval()(*SMALL.ids()))


@pytest.mark.parametrize("kind", passes.PASSES)
def test_a_pass_is_in_the_mode_it_speaks_of(built, kind):
    passes.PASSES[kind](built[FUSED], *SMALL.ids())()
    backward = kind == passes.BOTH
    assert built[FUSED].training == backward
    assert all((p.grad is not None) == backward for p in built[FUSED].parameters())
    built[FUSED].zero_grad(set_to_none=True)


def test_everybody_writes_as_many_words_as_asked(built):
    writers = [decoding.CACHED, decoding.AGAIN] + [decoding.GENERATE] * (MARIAN in built)
    for model in built.values():
        model.eval()
    src = SMALL.ids()[0]
    written = {writer: decoding.write(writer, built, src, 4) for writer in writers}
    assert {tuple(ids.shape) for ids in written.values()} == {(3, 5)}
    assert torch.equal(written[decoding.CACHED], written[decoding.AGAIN])


def test_a_closed_trace_leaves_a_run_as_it_was():
    off = tracing.after_a_trace()
    # Fewer, where an earlier test left something to collect.
    assert off.same and off.tensors <= 0 and not off.watching
    assert off.operations > 100


def test_what_a_trace_leaves_behind_is_seen(monkeypatch):
    kept = []

    class Clinging(Trace):
        def __enter__(self):
            kept.append(self)
            return super().__enter__()

    monkeypatch.setattr(tracing, "Trace", Clinging)
    assert tracing.after_a_trace().tensors > 50


def test_another_list_of_operations_is_seen():
    with tracing.Operations() as one:
        torch.zeros(2, 3).sum(0)
    with tracing.Operations() as two:
        torch.zeros(2, 3).sum(1)
    assert one.names != two.names and len(one.names) == len(two.names) == 2


@pytest.mark.weekly
def test_a_quick_run_writes_every_row(tmp_path):
    output = tmp_path / "quick.md"
    main(["--quick", "--output", str(output)])
    text = output.read_text(encoding="utf-8")
    assert report.machine() in text and "no speed" in text
    numbers = re.compile(r"\d+ tokens(?: to \d+)?$|\d+ tokens to \d+")
    quick, full = (
        [numbers.sub("n tokens", measure) for measure, *_ in _rows(page)]
        for page in (text, (DOCS / "benchmarks.md").read_text(encoding="utf-8"))
    )
    assert list(dict.fromkeys(quick)) == list(dict.fromkeys(full))
    for name in BUILDERS:
        found = re.findall(rf"^\| {re.escape(name)} \|(.+)$", text, re.M)
        assert len(found) == 3
        assert all(("not installed" in row) == (name not in INSTALLED) for row in found)


def _rows(page):
    """Return the rows of the first table."""
    lines = page.partition("## The bars")[2].partition("\n## ")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    return [row for row in cells[2:] if len(row) == 4]


def test_the_page_in_the_documents_is_a_full_run_with_everybody():
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert "not installed" not in text and "quick run" not in text
    method = report.METHOD.format(src=sizes.WRITING.src)
    prose = (report.BARS, method, report.FINDINGS.read_text(encoding="utf-8"), report.GPU)
    assert all(part in text for part in prose)
    assert report.size_table(sizes.SIZES) in text
    assert len(_rows(text)) == 32
    assert {row[3] for row in _rows(text)} <= {"yes", "**no**", "reported"}


def test_a_page_for_a_gpu_is_written_alike(monkeypatch):
    # The code of that page, on the CPU: no test machine has a GPU.
    small = replace(SMALL, name="long")
    for target, name, value in (
        (sizes, "SIZES", (SMALL, small)), (sizes, "LONG", small), (sizes, "WRITING", SMALL),
        (gpu, "DEVICE", "cpu"), (gpu, "LENGTHS", (2, 3)), (gpu, "cuda_clock", cpu_clock),
        (gpu, "cuda_peak_bytes", lambda run: 2**20), (report, "machine", lambda device: "A GPU."),
    ):  # fmt: skip
        monkeypatch.setattr(target, name, value)
    text = gpu.page("float32")
    assert "A GPU." in text
    assert len(re.findall(r"^\| long \|( \d+\.\d{3} \(\d+\.\d\d\) \|)+$", text, re.M)) == 2


# Errors


def test_a_contender_that_answers_in_another_shape_is_refused(monkeypatch):
    monkeypatch.setitem(BUILDERS, TORCH, lambda size: BUILDERS[FUSED](replace(size, vocab_size=12)))
    with pytest.raises(RuntimeError, match=r"pre-norm answers small: .* shape \(3, 7, 12\)"):
        contenders.build(SMALL, (TORCH,))


def test_a_contender_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(contenders, "find_spec", lambda package: None)
    assert contenders.missing() == NEEDS
    assert list(contenders.build(SMALL)) == [FUSED, EXPLICIT, TORCH, TORCH_POST]


@pytest.mark.weekly
@pytest.mark.skipif(bool(language.missing()), reason="make language-model installs the model")
def test_a_real_model_that_writes_other_words_is_refused(monkeypatch):
    monkeypatch.setattr(language, "load_costs", lambda processes: ([], []))
    monkeypatch.setattr(language, "greedy_decode", lambda *_, **__: torch.zeros(1, 12))
    with pytest.raises(RuntimeError, match="write different words behind 10 tokens"):
        language.measure(new=2, prompt=4, rounds=1, processes=1)


def test_a_writer_that_stops_early_is_refused(monkeypatch, built):
    monkeypatch.setattr(decoding, "greedy_decode", lambda *_, **__: torch.zeros(3, 2))
    with pytest.raises(RuntimeError, match=r"ours, cached was asked for 4 words and gave \(3, 2\)"):
        decoding.decode_times(built, SMALL, (4,))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--dtype bfloat16", "--dtype is for --device cuda"),
        ("--quick", "--quick needs --output"),
        ("--quick --device cuda", "--quick is for the CPU"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments, reason, capsys):
    with pytest.raises(SystemExit):
        parse(arguments.split())
    assert reason in capsys.readouterr().err


def test_the_output_has_a_name_for_each_kind_of_run():
    assert parse([]).output == DOCS / "benchmarks.md"
    gpu_run = parse(["--device", "cuda", "--dtype", "bfloat16"])
    assert gpu_run.output.name == "benchmarks_cuda_bfloat16.md"
