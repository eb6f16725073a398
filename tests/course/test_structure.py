"""The shape of the project: one step, one module, one notebook, one test, in reading order."""

import ast
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import twelve
from tests.course.course_rules import imports, problems
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twelve"
LAB = ROOT / "src" / "twelve_lab"
API = {
    "Linear": "d_in, d_out, bias=True",
    "TokenEmbedding": "vocab_size, d_model, *, padding_idx=None, scale=False",
    "sinusoid": "max_len, d_model, *, base=10000.0",
    "PositionalEncoding": "d_model, *, max_len=5000, dropout=0.0",
    "LearnedPositionalEncoding": "d_model, *, max_len=5000, dropout=0.0",
    "scaled_dot_product_attention": "query, key, value, attn_mask=None, dropout_p=0.0",
    "padding_mask": "ids, pad_id=0",
    "causal_mask": "query_len, key_len=None, *, device=None",
    "MultiHeadAttention": (
        "d_model, num_heads, *, d_k=None, d_v=None, bias=False, dropout=0.0, fused=False"
    ),
    "LayerNorm": "d_model, *, eps=1e-05, fused=False",
    "RMSNorm": "d_model, *, eps=1e-05, fused=False",
    "Residual": "d_model, *, norm_first=True, dropout=0.0, fused=False, norm=None",
    "FeedForward": "d_model, d_ff=None, *, activation='relu', dropout=0.0, bias=True",
    "SwiGLU": "d_model, d_ff",
    "EncoderLayer": (
        "d_model, num_heads, d_ff=None, *, d_k=None, d_v=None, dropout=0.0, norm_first=True, "
        "activation='relu', bias=False, fused=False"
    ),
    "Encoder": (
        "d_model, num_heads, d_ff=None, *, num_layers=6, norm_first=True, fused=False, **layer"
    ),
    "DecoderLayer": (
        "d_model, num_heads, d_ff=None, *, d_k=None, d_v=None, dropout=0.0, norm_first=True, "
        "activation='relu', bias=False, fused=False"
    ),
    "Decoder": (
        "d_model, num_heads, d_ff=None, *, num_layers=6, norm_first=True, fused=False, **layer"
    ),
    "Transformer": (
        "src_vocab_size, tgt_vocab_size, *, d_model=512, num_heads=8, d_ff=None, num_layers=6, "
        "d_k=None, d_v=None, dropout=0.0, norm_first=True, activation='relu', bias=False, "
        "scale_embedding=False, tie_weights=False, max_len=5000, fused=False"
    ),
    "RotaryEncoding": "d_k, *, max_len=2048, base=10000.0, fused=False",
    "GroupedQueryAttention": (
        "d_model, num_heads, num_kv_heads=None, *, d_k=None, rotary=None, bias=False, "
        "dropout=0.0, fused=False"
    ),
    "LanguageLayer": (
        "d_model, num_heads, num_kv_heads=None, d_ff=None, *, d_k=None, rotary=None, eps=1e-05, "
        "fused=False"
    ),
    "LanguageModel": (
        "vocab_size, *, d_model, num_heads, num_kv_heads=None, d_ff=None, num_layers, d_k=None, "
        "max_len=2048, base=10000.0, eps=1e-05, tie_weights=False, fused=False"
    ),
}
FORWARD = {
    "Linear": "x",
    "TokenEmbedding": "ids",
    "PositionalEncoding": "x",
    "LearnedPositionalEncoding": "x",
    "MultiHeadAttention": "query, key, value, mask=None, *, cache=None",
    "LayerNorm": "x",
    "RMSNorm": "x",
    "Residual": "x, sublayer",
    "FeedForward": "x",
    "SwiGLU": "x",
    "EncoderLayer": "x, *, src_mask=None",
    "Encoder": "x, *, src_mask=None",
    "DecoderLayer": "x, memory, *, tgt_mask=None, src_mask=None, caches=(None, None)",
    "Decoder": "x, memory, *, tgt_mask=None, src_mask=None",
    "Transformer": "src, tgt, *, src_mask=None, tgt_mask=None",
    "RotaryEncoding": "heads, start=0",
    "GroupedQueryAttention": "x, mask=None, *, cache=None, is_causal=False",
    "LanguageLayer": "x, mask=None, *, cache=None, is_causal=False",
    "LanguageModel": "ids, *, caches=None, key_mask=None, last=False",
}


# All lines of code of the layers together; the passes through them, which pages print.
LARGEST = 1733
FORWARDS = ("forward", "scaled_dot_product_attention", "cross_entropy", "step", "__call__")
# Tokens that are no code; a comment is none either.
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def lines_of_code(text: str) -> set[int]:
    """Number the lines that hold more than a docstring, a comment or nothing."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {
        line
        for token in tokens
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return code


def written(signature: inspect.Signature) -> str:
    """Write a signature without self and without types."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))[1:-1]


def test_every_step_has_all_that_belongs_to_it_and_nothing_else_is_there():
    assert problems(ROOT) == []


def test_the_public_names_are_those_of_the_steps_and_of_the_design_in_its_order():
    exports = [name for step in STEPS for name in step.exports]
    assert twelve.__all__ == exports
    assert [name for name in exports if name in API] == list(API)


@pytest.mark.parametrize("name", API)
def test_a_public_signature_is_that_of_the_design(name):
    public = getattr(twelve, name)
    built = public.__init__ if inspect.isclass(public) else public
    assert written(inspect.signature(built)) == API[name]
    if name in FORWARD:
        assert written(inspect.signature(public.forward)) == FORWARD[name]


def test_encode_and_decode_take_their_masks_by_name():
    encode, decode = twelve.Transformer.encode, twelve.Transformer.decode
    assert written(inspect.signature(encode)) == "src, *, src_mask=None"
    masks = "*, tgt_mask=None, src_mask=None"
    assert written(inspect.signature(decode)) == f"tgt, memory, {masks}"


def test_lines_of_code_are_counted_without_docstrings_comments_and_blank_lines():
    text = '''"""One.\n\nTwo."""\n\nx = (1,  # three\n  # four\n  2)\n\ndef f():\n  """A."""\n'''
    assert lines_of_code(text) == {5, 7, 9}


def test_the_layers_are_small_enough_to_read_in_an_evening():
    sizes = {path.name: len(lines_of_code(path.read_text())) for path in PACKAGE.glob("*.py")}
    assert sum(sizes.values()) <= LARGEST, sizes


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_a_forward_pass_fits_on_a_slide(path):
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name in FORWARDS:
            body = range(node.body[0].end_lineno + 1, node.end_lineno + 1)
            assert sum(bool(text.splitlines()[line - 1].strip()) for line in body) <= 25, node.name


def test_no_layer_needs_the_lab():
    for path in PACKAGE.glob("*.py"):
        if path.name != "__main__.py":
            assert not any(name.split(".")[0] == "twelve_lab" for name in imports(path)), path.name


def test_matplotlib_is_imported_nowhere_but_where_figures_are_drawn():
    for path in (*PACKAGE.rglob("*.py"), *LAB.rglob("*.py")):
        if path.parent != LAB / "draw":
            assert not any(name.split(".")[0] == "matplotlib" for name in imports(path)), path


def test_src_is_a_folder_and_no_package():
    # That nothing is imported from it is a rule of the linter.
    assert not (ROOT / "src" / "__init__.py").exists()


def public_definitions(tree: ast.Module) -> Iterator[ast.AST]:
    """Give every class, function and method whose name does not begin with an underscore."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield node
            for part in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                    yield part


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=lambda path: path.stem)
def test_everything_public_says_what_it_is(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), path
    for node in public_definitions(tree):
        assert ast.get_docstring(node), f"{path.stem}.{node.name} has no docstring"


@pytest.mark.parametrize("name", twelve.__all__)
def test_a_docstring_describes_exactly_the_arguments_that_there_are(name):
    public = getattr(twelve, name)
    described = re.search(r"Args:\n(.*?)(\n\n|\Z)", inspect.getdoc(public), re.DOTALL)
    names = re.findall(r"^    (\*{0,2}\w+):", described.group(1), re.MULTILINE)
    parameters = inspect.signature(public).parameters.values()
    expected = [str(one.replace(annotation=one.empty, default=one.empty)) for one in parameters]
    assert names == expected


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> list[str]:
    """Import a copy of the layers without the lab, build a model and run it, in a new process.

    Returns:
        The folder of the copy, the CPU time of the import, the file that was imported, the shape of
        the logits, and whether the lab was loaded.
    """
    folder = tmp_path_factory.mktemp("alone")
    leave = shutil.ignore_patterns("__main__.py", "__pycache__")
    shutil.copytree(PACKAGE, folder / "twelve", ignore=leave)
    # CPU time, so that a busy machine does not count, and the best of several: the first import
    # also compiles and reads the files. What torch has not loaded is loaded afresh each time.
    code = """
import sys
import time
import torch
known, costs = set(sys.modules), []
for _ in range(5):
    for name in set(sys.modules) - known:
        del sys.modules[name]
    start = time.process_time()
    import twelve
    costs.append(time.process_time() - start)
model = twelve.Transformer(11, 13, d_model=24, num_heads=3, num_layers=1)
src, tgt = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)
masks = {"src_mask": twelve.padding_mask(src), "tgt_mask": twelve.causal_mask(4)}
logits = model(src, tgt, **masks)
logits.sum().backward()
print(min(costs), twelve.__file__, tuple(logits.shape), "twelve_lab" in sys.modules, sep="\\n")
"""
    settings = {
        "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": ""
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [str(folder), *done.stdout.splitlines()]


@pytest.mark.slow
def test_without_the_lab_there_is_still_a_transformer(alone):
    folder, _, file, shape, lab = alone
    assert Path(file).resolve() == (Path(folder) / "twelve" / "__init__.py").resolve()
    assert (shape, lab) == ("(2, 4, 13)", "False")


@pytest.mark.slow
def test_importing_costs_next_to_nothing_beside_torch(alone):
    assert float(alone[1]) < 0.020
