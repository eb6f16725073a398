"""The commands of `python -m twelve`."""

import itertools
import json
import os
import re
import runpy
import signal
import subprocess
import sys

import pytest
import torch

from twelve import LanguageModel
from twelve.generation import greedy_decode, sample
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


def test_trace_names_every_tensor_and_ends_with_the_predicted_words(capsys):
    text = printed(capsys, "trace", "--all", "--device", "cpu")
    assert all(f"  {name}  (" in text for name in example.trace(on="cpu"))
    ending = text.split("probabilities")[1]
    assert "batch 0, tgt 0: cat    probability 0.5034, label cat" in ending
    assert "batch 0, tgt 1: fish   probability 0.4403, label ignored" in ending
    assert "batch 1, tgt 1: dog    probability 0.6643, label dog" in ending
    assert "loss (mean over the three labels) 1.048250" in ending
    assert text.strip().splitlines()[-1].startswith("Go on: make lab")


def test_trace_begins_with_its_switches_and_the_ids_in_words(capsys):
    text = printed(capsys, "trace", "--all", "--device", "cpu")
    assert text.splitlines()[:6] == [
        "Twelve numbers, from token ids to logits",
        "3 heads, pre-norm, relu, with source padding mask, untied output, unscaled embedding",
        "",
        "  source ids  0 <pad> 1 cat   2 dog 3 fish",
        "  target ids  0 <start> 1 cat   0 <start> 3 fish",
        "",
    ]


def test_every_change_of_step_has_a_heading(capsys):
    text = printed(capsys, "trace", "--all", "--device", "cpu")
    steps = [entry.step for entry in example.trace(on="cpu").values()]
    headings = [f"{step} {find_step(step).title}" for step, _ in itertools.groupby(steps)]
    assert re.findall(r"^\d\d .+$", text, re.MULTILINE) == headings
    assert headings[:3] == ["02 embedding", "03 positional encoding", "12 transformer"]


def test_every_checkpoint_says_what_happens_there_and_shows_its_numbers(capsys):
    text = printed(capsys, "trace", "--all", "--device", "cpu")
    trace = example.trace(on="cpu")
    sister = {"embedding.vectors", *(name for name in CHECKPOINTS if name.startswith("layers"))}
    assert sister < set(example.trace(decoder_only=True, on="cpu"))
    for name, sentence in CHECKPOINTS.items():
        if name in sister:
            continue
        head = f"  {name}  ({axes_and_sizes(trace[name])})\n    {sentence}\n"
        assert head in text, name
        assert re.match(r" +(d_model|vocab) ", text.split(head)[1]), name
    assert "  src_input  (batch 2, src 2, d_model 3)\n" in text
    assert "    batch 0  src <pad>  0.0000  1.0000  0.0000\n             src cat    1.6615" in text
    assert "vocab   <pad>     cat     dog    fish\n    batch 0  tgt <start>  0.0609" in text


@pytest.mark.parametrize(
    ("arguments", "words", "loss"),
    [
        (["--heads", "1"], "1 head, pre-norm", 1.062053),
        (["--heads", "2"], "2 heads, pre-norm", 0.925075),
        (["--norm", "post"], ", post-norm, ", 1.404333),
        (["--activation", "gelu"], ", gelu, ", 1.022050),
        (["--no-padding-mask"], "without source padding mask", 0.902306),
        (["--tie-weights"], ", tied output", 1.451602),
        (["--scale-embedding"], ", scaled embedding", 0.865991),
    ],
)
def test_every_switch_reaches_the_model_and_the_heading(capsys, arguments, words, loss):
    text = printed(capsys, "trace", "--device", "cpu", *arguments)
    assert words in text.splitlines()[1]
    assert f"{loss:.6f}" in text


def test_the_sister_without_a_source_is_told_from_the_same_words(capsys):
    text = printed(capsys, "trace", "--device", "cpu", "--decoder-only")
    assert text.splitlines()[1:3] == [
        "decoder-only, 2 query heads on 1 key head, RMSNorm, SwiGLU, with padding mask, tied "
        "output",
        'Goes on from "<pad> cat" and "dog fish".',
    ]
    assert "fish   0.6245▅ 0.3755▃" in text  # what fish sees of dog and of itself, in head 1
    assert ">fish  0.3211" in text and "-> fish, right" in text
    assert "loss (of the one label) 1.135873" in text
    whole = printed(capsys, "trace", "--device", "cpu", "--decoder-only", "--all")
    names = example.trace(decoder_only=True, on="cpu")
    assert all(f"  {name}  (" in whole for name in names)
    assert "  text ids  0 <pad> 1 cat   2 dog 3 fish\n" in whole
    assert "batch 1, seq 0: fish   probability 0.3211, label fish" in whole
    assert "source" not in whole
    open_eyed = printed(
        capsys, "trace", "--device", "cpu", "--decoder-only", "--no-padding-mask"
    ).splitlines()
    assert "without padding mask" in open_eyed[1]


def test_the_sister_is_explained_and_takes_no_switch_of_the_other_model(capsys):
    text = printed(capsys, "explain", "--decoder-only", "logits", "1", "1", "3")
    assert text.splitlines()[-1] == "  = 1.4236"
    assert main(["trace", "--decoder-only", "--heads", "2", "--norm", "post"]) == 1
    said = "has no switch for num_heads, norm_first\n"
    assert capsys.readouterr().err.endswith(said)


def test_values_prints_the_numbers_of_every_tensor(capsys):
    short = printed(capsys, "trace", "--all", "--device", "cpu")
    long = printed(capsys, "trace", "--device", "cpu", "--values")
    assert "-inf" not in short
    assert "-inf" in long
    assert len(long.splitlines()) > 3 * len(short.splitlines())


def test_json_holds_the_configuration_and_every_tensor_in_full_precision(capsys, tmp_path):
    path = tmp_path / "walk.json"
    text = printed(capsys, "trace", "--device", "cpu", "--heads", "1", "--json", str(path))
    assert f"\n86 tensors in full precision: {path}\n" in text
    assert path.read_text().endswith("}\n")
    content = json.loads(path.read_text())
    assert content["config"] == {
        "num_heads": 1, "norm_first": True, "activation": "relu", "tie_weights": False,
        "scale_embedding": False, "padding": True,
    }  # fmt: skip
    trace = example.trace(num_heads=1, on="cpu")
    assert [step["name"] for step in content["steps"]] == list(trace)
    for step in content["steps"]:
        assert set(step) == {"name", "axes", "shape", "values"}
        values = torch.tensor(_numbers(step["values"]))
        assert values.shape == tuple(step["shape"])
        assert torch.equal(values, trace[step["name"]].value)


def test_json_is_the_same_whatever_is_printed(capsys, tmp_path):
    texts = []
    for switches in ([], ["--all"], ["--values"]):
        path = tmp_path / "walk.json"
        printed(capsys, "trace", "--device", "cpu", *switches, "--json", str(path))
        texts.append(path.read_bytes())
    content = json.loads(texts[0])
    assert texts == 3 * [(json.dumps(content, indent=1) + "\n").encode()]
    assert content["steps"] == example.trace(on="cpu").steps()


def _numbers(values):
    return [_numbers(item) for item in values] if isinstance(values, list) else float(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "--device", "toaster"], "twelve: device='toaster' is no device"),
        (["trace", "--json", "no/such/folder/walk.json"], "no/such/folder/walk.json"),
        (["picture", "walk.png"], "the picture is SVG; give a name that ends in .svg"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(capsys, arguments, message):
    assert main([*arguments]) == 1
    captured = capsys.readouterr()
    assert re.search(re.escape(message), captured.err)
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "--heads", "4"], "invalid choice"),
        (["trace", "--no-padding"], "unrecognized arguments: --no-padding"),
        ([], "arguments are required: COMMAND"),
    ],
)
def test_what_is_not_a_command_or_a_switch_is_refused(capsys, arguments, message):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_the_shell_is_told_that_something_went_wrong(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["twelve", "trace", "--device", "toaster"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("twelve", run_name="__main__")
    assert stop.value.code == 1
    assert "device='toaster' is no device" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert main(["trace", "--device", "cpu"]) == 0
    # What is still to be printed goes nowhere, so that leaving raises nothing either.
    with sys.stdout as nowhere:
        assert nowhere.name == os.devnull


def test_picture_draws_the_walk_and_for_a_phone_a_narrow_one(capsys, tmp_path):
    widths = []
    for name, *how in (("wide.svg",), ("narrow.svg", "--narrow")):
        path = tmp_path / name
        assert str(path) in printed(capsys, "picture", str(path), *how)
        widths.append(int(re.match(r"<svg [^>]*width='(\d+)'", path.read_text())[1]))
    assert widths[1] < 530 < 1050 < widths[0]


def test_explain_writes_the_arithmetic_of_one_number(capsys):
    text = printed(capsys, "explain", "memory", "1", "1", "0", "--device", "cpu")
    trace = example.trace(on="cpu")
    assert text == trace["memory"].explain(1, 1, 0).text + "\n"
    deep = printed(capsys, "explain", "src_input", "0", "1", "0", "--depth", "3", "--device", "cpu")
    assert "= src_embedding.weight[1, 0] + positional_encoding.table[1, 0]" in deep
    assert deep.endswith("= 0.8200 + 0.8415\n  = 1.6615\n")


def test_explain_takes_the_switches_of_the_trace(capsys):
    name = "encoder.layers.0.self_attention.scores"
    text = printed(capsys, "explain", name, "1", "0", "1", "0", "--heads", "1", "--device", "cpu")
    assert "/ sqrt(3)" in text


def test_explain_suggests_names_and_says_what_an_index_needs(capsys):
    assert main(["explain", "memroy", "0"]) == 1
    assert "twelve: no tensor is named 'memroy' in this trace; near to it: memory" in (
        capsys.readouterr().err
    )
    assert main(["explain", "memory", "0"]) == 1
    assert "memory has 3 axes (batch 2, src 2, d_model 3)" in capsys.readouterr().err


@pytest.fixture
def tiny(tmp_path, noisy):
    """Write a tiny language model, and give what reads it: `write` needs what `load` needs."""
    pytest.importorskip("gguf", reason="make language-model installs it")
    pytest.importorskip("tokenizers", reason="make language-model installs it")
    import test_pretrained as files

    from twelve.pretrained import load

    model = noisy(LanguageModel(len(files.WORDS), **files.SIZES).float())
    path = files.write_gguf(tmp_path / "tiny.gguf", files.in_gguf(model))
    return path, *load(path)


@pytest.mark.parametrize(
    ("switches", "draw"),
    [
        ([], None),
        (["--seed", "3"], {"seed": 3}),
        (["--temperature", "0.5"], {"seed": 0, "temperature": 0.5}),
        (["--top-k", "4", "--seed", "5"], {"seed": 5, "top_k": 4}),
        (["--top-p", "0.6"], {"seed": 0, "top_p": 0.6}),
    ],
    ids=str,
)
def test_write_goes_on_with_a_text_as_generation_does(capsys, tiny, switches, draw):
    path, model, tokenizer = tiny
    ids = torch.tensor([tokenizer.encode("a cat").ids])
    frame = {"max_len": ids.size(1) + 9, "end_id": 1}
    expected = sample(model, ids, **draw, **frame) if draw else greedy_decode(model, ids, **frame)
    whole = tokenizer.decode(expected[0].tolist())
    text = printed(capsys, "write", "a cat", "--tokens", "9", "--file", str(path), *switches)
    # Bytes at the end that are no whole letter are not printed.
    assert text.startswith("a cat")
    assert text.rstrip("\n") == whole.rstrip("\ufffd\n")


def test_write_prints_each_word_when_it_is_written(tiny, monkeypatch):
    path, *_ = tiny
    flushed = []
    monkeypatch.setattr(
        "builtins.print", lambda *words, flush=False, **_: flushed.append((*words, flush))
    )
    assert main(["write", "a cat", "--tokens", "5", "--file", str(path)]) == 0
    assert flushed[0] == ("a cat", True)
    assert len(flushed) == 1 + 5 + 1


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is another thing elsewhere")
def test_ctrl_c_in_the_middle_ends_the_line_and_says_nothing(tmp_path, noisy):
    pytest.importorskip("gguf", reason="make language-model installs it")
    pytest.importorskip("tokenizers", reason="make language-model installs it")
    import test_pretrained as files

    model = noisy(LanguageModel(len(files.WORDS), **files.SIZES).float())
    head = {"llama.context_length": 99_999}
    path = files.write_gguf(tmp_path / "tiny.gguf", files.in_gguf(model), **head)
    # What a shell runs in the background ignores the signal, and so would its child.
    code = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('twelve', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, "write", "a cat", "--tokens", "99000", "--file", path]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as child:
        begun = child.stdout.read(20)
        child.send_signal(signal.SIGINT)
        rest, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, b"")
    assert begun.startswith(b"a cat") and rest.endswith(b"\n")


def test_write_asks_in_the_frame_and_prints_the_answer_alone(capsys, tiny):
    from twelve.pretrained import chat_prompt

    path, _, tokenizer = tiny
    asked = ["write", "a", "--chat", "--tokens", "2", "--file", str(path)]
    assert main(asked) == 1
    assert "of the text, got 2" in capsys.readouterr().err  # longer than the tiny model reads
    tokenizer.chat_template = "<|im_start|>assistant"
    assert chat_prompt(tokenizer, "a").startswith("<|im_start|>user\na<|im_end|>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["a cat", "--tokens", "0"],
            "twelve: --tokens must be from 1 to 24 less the 2",
        ),
        (["a cat", "--tokens", "99"], "from 1 to 24 less the 2 of the text, got 99"),
        ([""], "twelve: there is no text to go on from"),
        (["a", "--tokens", "2", "--top-p", "2"], "top_p must be above 0 and at most 1"),
        (["a", "--file", "nowhere.gguf"], "twelve: load: there is no nowhere.gguf"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(capsys, tiny, arguments, message):
    file = [] if "--file" in arguments else ["--file", str(tiny[0])]
    assert main(["write", *arguments, *file]) == 1
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1


def test_write_says_what_installs_a_library_that_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("twelve.pretrained.find_spec", lambda name: None)
    assert main(["write", "a cat"]) == 1
    assert "`make language-model` installs it" in capsys.readouterr().err
