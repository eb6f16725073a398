"""The commands of `python -m twelve`."""

import io
import itertools
import json
import os
import re
import runpy
import sys
import unicodedata
from types import SimpleNamespace

import pytest
import torch

from twelve import LanguageModel
from twelve.generation import greedy_decode, sample
from twelve.pretrained import load
from twelve_lab import example
from twelve_lab.cli import main
from twelve_lab.cli.walk import CHECKPOINTS
from twelve_lab.course import find_step
from twelve_lab.trace.summary import axes_and_sizes


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


def printed(capsys, *arguments):
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def failed(capsys, *arguments):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    return error


def test_trace_all_prints_every_tensor_from_ids_to_predicted_words(capsys):
    text = printed(capsys, "trace", "--all", "--device", "cpu")
    trace = example.trace(on="cpu")
    assert text.splitlines()[:6] == [
        "Twelve numbers, from token ids to logits",
        "3 heads, pre-norm, relu, with padding mask, untied output, unscaled embedding",
        "",
        "  source ids  0 <pad> 1 cat   2 dog 3 fish",
        "  target ids  0 <start> 1 cat   0 <start> 3 fish",
        "",
    ]
    steps = [step for step, _ in itertools.groupby(entry.step for entry in trace.values())]
    headings = [f"{step} {find_step(step).title}" for step in steps]
    assert re.findall(r"^\d\d .+$", text, re.MULTILINE) == headings
    assert all(f"  {name}  ({axes_and_sizes(entry)})\n" in text for name, entry in trace.items())
    for name in CHECKPOINTS.keys() & trace.keys():
        head = f"  {name}  ({axes_and_sizes(trace[name])})\n    {CHECKPOINTS[name]}\n"
        assert re.match(r" +(d_model|vocab) ", text.split(head)[1]), name
    assert "    batch 0  src <pad>  0.0000  1.0000  0.0000\n             src cat    1.6615" in text
    ending = text.split("probabilities")[1]
    assert "batch 0, tgt 1: fish   probability 0.4403, label none: not graded" in ending
    assert "batch 1, tgt 1: dog    probability 0.6643, label dog" in ending
    assert "loss (mean over the three labels) 1.0482" in ending
    assert text.strip().splitlines()[-1].startswith("Next: make lab")


SWITCHES = [
    (["--heads", "1"], "1 head, pre-norm", 1.0621),
    (["--heads", "2"], "2 heads, pre-norm", 0.9251),
    (["--norm", "post"], ", post-norm, ", 1.4043),
    (["--activation", "gelu"], ", gelu, ", 1.0221),
    (["--no-padding-mask"], "without padding mask", 0.9023),
    (["--tie-weights"], ", tied output", 1.4516),
    (["--scale-embedding"], ", scaled embedding", 0.8660),
]


@pytest.mark.parametrize(("arguments", "words", "loss"), SWITCHES)
def test_trace_switch_reaches_the_model_and_the_heading(capsys, arguments, words, loss):
    text = printed(capsys, "trace", "--device", "cpu", *arguments)
    assert words in text.splitlines()[1]
    assert f"Loss: {loss:.4f}" in text


def test_trace_fits_a_terminal_of_24_lines(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for switches in ([], ["--decoder-only"], ["--norm", "post", "--no-padding-mask"]):
        lines = printed(capsys, "trace", "--device", "cpu", *switches).splitlines()
        assert len(lines) <= 24 and max(map(len, lines)) <= 80


def test_trace_decoder_only_prints_the_same_words(capsys):
    text = printed(capsys, "trace", "--device", "cpu", "--decoder-only")
    assert text.splitlines()[1:3] == [
        "decoder-only, 2 query heads on 1 key head, RMSNorm, SwiGLU, with padding mask, tied "
        "output",
        'Continues "<pad> cat" and "dog fish".',
    ]
    assert "fish   0.6245▅ 0.3755▃" in text  # how fish attends to dog and to itself in head 1
    assert ">fish  0.3211" in text and "-> fish, right" in text
    assert "Loss: 1.1359\n" in text
    switches = ("--decoder-only", "--no-padding-mask", "--all")
    whole = printed(capsys, "trace", "--device", "cpu", *switches)
    trace = example.trace(decoder_only=True, on="cpu")
    assert all(f"  {name}  (" in whole for name in trace)
    assert all(CHECKPOINTS[name] in whole for name in CHECKPOINTS.keys() & trace.keys())
    assert "without padding mask" in whole.splitlines()[1]
    assert "  text ids  0 <pad> 1 cat   2 dog 3 fish\n" in whole and "source" not in whole


def test_trace_json_has_the_configuration_and_every_tensor(capsys, tmp_path):
    path = tmp_path / "walk.json"
    text = printed(capsys, "trace", "--device", "cpu", "--heads", "1", "--json", str(path))
    assert f"\n86 tensors in full precision: {path}\n" in text
    content = json.loads(path.read_text())
    assert content["config"] == {
        "num_heads": 1, "norm_first": True, "activation": "relu", "tie_weights": False,
        "scale_embedding": False, "padding": True,
    }  # fmt: skip
    assert content["steps"] == example.trace(num_heads=1, on="cpu").steps()


ERRORS = [
    (["trace", "--device", "toaster"], "twelve: device='toaster' is no device"),
    (["trace", "--json", "no/such/folder/walk.json"], "no/such/folder/walk.json"),
    (["trace", "--decoder-only", "--heads", "2", "--norm", "post"], "num_heads, norm_first"),
    (["picture", "walk.png"], ".svg"),
    (["explorer", "walk.pdf"], ".html"),
    (["explain", "memroy", "0"], "near to it: memory"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_command_prints_an_error_in_one_line(capsys, arguments, message):
    assert message in failed(capsys, *arguments)


@pytest.mark.parametrize(
    "arguments", [["trace", "--heads", "4"], ["trace", "--no-padding"], ["explain", "--tie"], []]
)
def test_unknown_command_or_switch_is_rejected(arguments):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2


def test_command_exits_with_1_after_an_error(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["twelve", "trace", "--device", "toaster"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("twelve", run_name="__main__")
    assert stop.value.code == 1
    assert "device='toaster' is no device" in capsys.readouterr().err


def test_ctrl_c_during_the_imports_prints_no_traceback(monkeypatch):
    def find_spec(name, *_):
        if name == "twelve_lab.cli":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "twelve_lab.cli")
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("twelve", run_name="__main__")
    assert end.value.code == 130


def test_a_closed_pipe_is_no_error(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["trace", "--device", "cpu"]) == 0
    # The rest of the output goes to os.devnull, so closing stdout does not raise.
    with sys.stdout as nowhere:
        assert nowhere.name == os.devnull


@pytest.mark.slow
def test_picture_writes_a_wide_and_a_narrow_figure(capsys, tmp_path):
    widths = []
    for name, *how in (("wide.svg",), ("narrow.svg", "--narrow")):
        path = tmp_path / name
        assert str(path) in printed(capsys, "picture", str(path), *how)
        widths.append(int(re.match(r"<svg [^>]*width='(\d+)'", path.read_text())[1]))
    assert widths[1] < 390 and widths[0] > 1050


def test_explain_prints_the_arithmetic_of_one_number(capsys):
    text = printed(capsys, "explain", "memory", "1", "1", "0", "--device", "cpu")
    trace = example.trace(on="cpu")
    assert text == trace["memory"].explain(1, 1, 0).text + "\n"
    deep = printed(capsys, "explain", "src_input", "0", "1", "0", "--depth", "3", "--device", "cpu")
    assert "= src_embedding.weight[1, 0] + positional_encoding.table[1, 0]" in deep
    assert deep.endswith("= 0.8200 + 0.8415\n  = 1.6615\n")
    arguments = ("logits", "1", "1", "3", "--decoder-only", "--device", "cpu")
    assert printed(capsys, "explain", *arguments).endswith("\n  = 1.4236\n")


@pytest.fixture
def tiny(tmp_path, noisy):
    """Write a tiny language model; skip the test if the libraries of `load` are missing."""
    pytest.importorskip("gguf", reason="make language-model installs it")
    pytest.importorskip("tokenizers", reason="make language-model installs it")
    import test_pretrained as files

    model = noisy(LanguageModel(len(files.WORDS), **files.SIZES).float())
    return str(files.write_gguf(tmp_path / "tiny.gguf", files.in_gguf(model)))


DRAWS = [
    ([], None),
    (["--seed", "3"], {"seed": 3}),
    (["--temperature", "0.5"], {"seed": 0, "temperature": 0.5}),
    (["--top-k", "4", "--seed", "5"], {"seed": 5, "top_k": 4}),
    (["--top-p", "0.6"], {"seed": 0, "top_p": 0.6}),
]


@pytest.mark.parametrize(("switches", "draw"), DRAWS, ids=str)
def test_write_continues_a_text_like_greedy_decode_and_sample(capsys, tiny, switches, draw):
    model, tokenizer = load(tiny)
    ids = torch.tensor([tokenizer.encode("a cat").ids])
    frame = {"max_len": ids.size(1) + 9, "end_id": 1}
    expected = sample(model, ids, **draw, **frame) if draw else greedy_decode(model, ids, **frame)
    whole = tokenizer.decode(expected[0].tolist())
    text = printed(capsys, "write", "a cat", "--tokens", "9", "--file", tiny, *switches)
    # The command omits an incomplete UTF-8 sequence at the end.
    assert text.startswith("a cat")
    # The command also omits control characters, which a terminal would interpret.
    shown = (c for c in whole if c in "\n\t" or unicodedata.category(c) != "Cc")
    assert text.rstrip("\n") == "".join(shown).rstrip("\ufffd\n")


def test_write_prints_on_a_terminal_without_its_characters(tiny, monkeypatch):
    page = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(page, encoding="cp1252"))
    assert main(["write", "cat \u2603", "--tokens", "5", "--file", tiny]) == 0
    sys.stdout.flush()
    assert page.getvalue().startswith(b"cat ?")


def test_write_flushes_each_word(tiny, monkeypatch):
    flushed = []
    monkeypatch.setattr(
        "builtins.print", lambda *words, flush=False, **_: flushed.append((*words, flush))
    )
    assert main(["write", "a cat", "--tokens", "5", "--file", tiny]) == 0
    assert flushed[0] == ("a cat", True)
    assert len(flushed) == 1 + 5 + 1


def test_write_ends_the_line_on_ctrl_c(capsys, tiny, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("twelve_lab.cli.commands.greedy_decode", interrupted)
    assert main(["write", "a cat", "--tokens", "5", "--file", tiny]) == 130
    assert capsys.readouterr() == ("a cat\n", "")


WRITE_ERRORS = [
    (["a cat", "--tokens", "0"], "twelve: --tokens must be between 1 and 24 minus the 2"),
    (["a cat", "--tokens", "99"], "between 1 and 24 minus the 2 tokens of the text, got 99"),
    ([""], "twelve: there is no text to go on from"),
    (["a \udcff cat"], "twelve: the text contains bytes that are not valid UTF-8"),
    (["a", "--tokens", "2", "--top-p", "2"], "top_p must be above 0 and at most 1"),
    (["a", "--file", "nowhere.gguf"], "twelve: load: no such file: nowhere.gguf"),
]


@pytest.mark.parametrize(("arguments", "message"), WRITE_ERRORS)
def test_write_prints_an_error_in_one_line(capsys, tiny, arguments, message):
    # The last --file option wins.
    assert message in failed(capsys, "write", "--file", tiny, *arguments)
