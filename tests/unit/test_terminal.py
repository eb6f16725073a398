"""The text of `make trace`: first screen, all tensors, and capabilities of the terminal."""

import io
import re
import sys

import pytest
import torch

from twelve_lab import example
from twelve_lab.cli import main
from twelve_lab.cli.commands import SWITCHES as CONFIG
from twelve_lab.cli.first_screen import first_screen
from twelve_lab.cli.terminal import Terminal, fold, visible
from twelve_lab.cli.walk import walk_text
from twelve_lab.show.format import format_number

WEIGHTS = "encoder.layers.0.self_attention.weights"
SUBLAYERS = ("self_attention", "feed_forward")
WIDTHS = (40, 60, 80, 200)
NUMBER = r"-?\d+\.\d+"
ESCAPE = re.compile(r"\033\[[\d;]*m")


@pytest.fixture(scope="module")
def trace():
    return example.trace(on="cpu")


def words(text):
    """Split a text at spaces and bars, without escape sequences."""
    return re.sub(r"[▁-█▉-▏#]", " ", ESCAPE.sub("", text)).split()


def every_value(trace, config, terminal):
    return walk_text(trace, config, terminal, every_value=True)


# The first screen.


def test_first_screen_by_hand(trace):
    lines = first_screen(trace, CONFIG).splitlines()
    assert lines[4:] == [
        "             looked up             position added        the encoder's memory",
        "      <pad>  0.0000 0.0000 0.0000  0.0000 1.0000 0.0000  -0.6922 -0.7219  1.4141",
        "=^.^= cat    0.8200 0.1500 0.3600  1.6615 0.6903 0.3622   0.5893 -1.4080  0.8187",
        "U'o'U dog    0.7000 0.2000 0.4000  0.7000 1.2000 0.4000  -1.1117  1.3128 -0.2011",
        "><(o> fish   0.6000 0.3000 0.5000  1.4415 0.8403 0.5022  -0.1618  1.2976 -1.1358",
        "",
        "Each head of the encoder weighs how much a word (left) looks at each (above).",
        "head 0    dog    fish    head 1    dog    fish    head 2    dog    fish",
        "dog    0.7665▆ 0.2335▂   dog    0.1801▁ 0.8199▇   dog    0.4610▄ 0.5390▄",
        "fish   0.2290▂ 0.7710▆   fish   0.5648▅ 0.4352▃   fish   0.7354▆ 0.2646▂",
        "",
        "How likely is each word to come next? A > marks the right one. Loss: 1.0482",
        "<start> ...         <start> cat ...     <start> ...         <start> fish ...",
        " <pad> 0.0609 ▎      <pad> 0.2623 █▎     <pad> 0.0302 ▏      <pad> 0.2633 █▍",
        ">cat   0.5034 ██▌    cat   0.0812 ▍      cat   0.8010 ████   cat   0.0319 ▏",
        " dog   0.0498 ▎      dog   0.2163 █▏     dog   0.0399 ▎     >dog   0.6643 ███▍",
        " fish  0.3860 █▉     fish  0.4403 ██▎   >fish  0.1288 ▋      fish  0.0406 ▎",
        "-> cat, right       -> fish not graded  -> cat, not fish    -> dog, right",
    ]


@pytest.mark.parametrize("switches", example.CONFIGURATIONS.values(), ids=str)
def test_first_screen_prints_the_numbers_of_the_run(switches):
    run = example.trace(**switches, on="cpu")
    logits = run["logits"].value
    names = ("src_embedding.vectors", "src_input", "memory")
    weights, labels = WEIGHTS, example.labels
    if "decoder_only" in switches:
        names = ("embedding.vectors", *(f"layers.0.{name}_residual.added" for name in SUBLAYERS))
        weights, labels = WEIGHTS.removeprefix("encoder."), example.following
    # Attention weights of the second sentence, which has no padding.
    tensors = [*(run[name].value for name in names), run[weights].value[1], logits.softmax(-1)]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    wanted = [format_number(value) for tensor in tensors for value in tensor.flatten().tolist()]
    wanted.append(format_number(float(loss)))
    for width in WIDTHS:
        text = first_screen(run, CONFIG | switches, Terminal(width))
        assert max(map(len, text.splitlines())) <= width
        assert sorted(re.findall(NUMBER, text)) == sorted(wanted)


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_walk_text_fits_the_width_and_breaks_only_long_names(trace, width):
    for tell in (first_screen, walk_text, every_value):
        text, wide = (tell(trace, CONFIG, Terminal(columns)) for columns in (width, 1000))
        assert sorted(re.findall(NUMBER, text)) == sorted(re.findall(NUMBER, wide))
        if width == 20:  # too narrow: compare only the numbers
            continue
        assert max(map(len, text.splitlines())) <= width
        new = set(words(text)) - set(words(wide))
        of_names = {w for w in new for name in trace if f".{w.strip('.')}." in f".{name}."}
        assert new == (of_names if width == 40 else set())


def test_colour_changes_no_character(trace):
    for tell in (first_screen, walk_text):
        plain, coloured = (tell(trace, CONFIG, Terminal(80, colour)) for colour in (False, True))
        assert "\033" not in plain
        assert ESCAPE.sub("", coloured) == plain
        assert "\033[38;5;" in coloured and "\033[1mTwelve" in coloured


def test_first_screen_without_blocks_is_ascii(trace):
    text = first_screen(trace, CONFIG, Terminal(80, blocks=False))
    assert text.isascii()
    assert ">dog   0.6643 ###" in text
    assert re.findall(NUMBER, text) == re.findall(NUMBER, first_screen(trace, CONFIG))


# All tensors.


def test_fold_keeps_an_axis_with_its_size():
    line = "  src_input  (batch 2, src 2, d_model 3)"
    assert fold(line, 40) == [line]
    assert fold(line, 39) == ["  src_input  (batch 2, src 2,", "    d_model 3)"]
    assert fold("ids  0 <pad> 1 cat   2 dog", 22) == ["ids  0 <pad> 1 cat", "  2 dog"]
    assert fold("a.long.name", 7) == ["a.long.", "  name"]
    assert fold("", 10) == [""]


# Terminal capabilities of a stream.


class Screen(io.TextIOWrapper):
    def isatty(self):
        return True


def screen(encoding="utf-8"):
    return Screen(io.BytesIO(), encoding=encoding)


@pytest.fixture(autouse=True)
def usual(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "WT_SESSION", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


COLOURS = [
    ({}, True),
    ({"NO_COLOR": "0"}, False),
    ({"NO_COLOR": ""}, True),  # see https://no-color.org
    ({"TERM": "dumb"}, False),
    ({"TERM": ""}, False),
    ({"TERM": "", "WT_SESSION": "1"}, True),
    ({"TERM": "dumb", "WT_SESSION": "1"}, False),
]


@pytest.mark.parametrize(("environment", "colour"), COLOURS)
def test_colour_follows_the_environment(monkeypatch, environment, colour):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Terminal.of(screen()).colour == colour
    assert not Terminal.of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).colour
    monkeypatch.setenv("COLUMNS", "63")
    assert Terminal.of(None) == Terminal(63, colour=False, blocks=False)


@pytest.mark.parametrize(
    ("encoding", "blocks"),
    [("utf-8", True), ("cp437", False), ("cp1252", False), ("ascii", False), ("latin-1", False)],
)
def test_terminal_draws_blocks_only_if_the_encoding_has_them(monkeypatch, encoding, blocks):
    stream = screen(encoding)
    assert Terminal.of(stream).blocks == blocks
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "63")
    assert main(["trace", "--device", "cpu"]) == 0
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    assert ("█" in text) == blocks and "\033[1mTwelve numbers" in text
    assert max(map(visible, text.splitlines())) <= 63
