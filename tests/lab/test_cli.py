"""The commands of `python -m twelve`."""

import json
import re

import pytest
import torch

from twelve.lab import example
from twelve.lab.cli import main


def printed(capsys, *arguments):
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_trace_names_every_tensor_and_ends_with_the_predicted_words(capsys):
    text = printed(capsys, "trace", "--device", "cpu")
    assert all(f"  {name}  (" in text for name in example.trace(on="cpu"))
    ending = text.split("probabilities")[1]
    assert "batch 0, tgt 0: cat    probability 0.5034, label cat" in ending
    assert "batch 0, tgt 1: fish   probability 0.4403, label ignored" in ending
    assert "batch 1, tgt 1: dog    probability 0.6643, label dog" in ending
    assert "loss (mean over the three labels) 1.048250" in ending
    assert text.strip().splitlines()[-1].startswith("Go on: make lab")


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        (["--heads", "1"], 1.062053),
        (["--heads", "2"], 0.925075),
        (["--norm", "post"], 1.404333),
        (["--activation", "gelu"], 1.022050),
        (["--no-padding-mask"], 0.902306),
        (["--tie-weights"], 1.451602),
        (["--scale-embedding"], 0.865991),
    ],
)
def test_every_switch_reaches_the_model(capsys, arguments, loss):
    text = printed(capsys, "trace", "--device", "cpu", *arguments)
    assert f"{loss:.6f}" in text


def test_values_prints_the_numbers_of_every_tensor(capsys):
    short = printed(capsys, "trace", "--device", "cpu")
    long = printed(capsys, "trace", "--device", "cpu", "--values")
    assert "-inf" not in short
    assert "-inf" in long
    assert len(long.splitlines()) > 3 * len(short.splitlines())


def test_json_holds_the_configuration_and_every_tensor_in_full_precision(capsys, tmp_path):
    path = tmp_path / "walk.json"
    printed(capsys, "trace", "--device", "cpu", "--heads", "1", "--json", str(path))
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


def _numbers(values):
    return [_numbers(item) for item in values] if isinstance(values, list) else float(values)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trace", "--device", "toaster"], "twelve: device='toaster' is no device"),
        (["trace", "--json", "no/such/folder/walk.json"], "no/such/folder/walk.json"),
        (["picture", "walk.svg"], "the picture is a PNG; give a name that ends in .png"),
    ],
)
def test_what_goes_wrong_is_said_in_one_line(capsys, arguments, message):
    assert main([*arguments]) == 1
    captured = capsys.readouterr()
    assert re.search(re.escape(message), captured.err)
    assert len(captured.err.strip().splitlines()) == 1


def test_an_unknown_switch_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["trace", "--heads", "4"])
    assert stop.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_picture_draws_a_png(capsys, tmp_path):
    path = tmp_path / "walk.png"
    assert str(path) in printed(capsys, "picture", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")
