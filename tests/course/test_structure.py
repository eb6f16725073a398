"""The shape of the project: one step, one module, one notebook, one test, in reading order."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import twelve
from twelve_lab.course import STEPS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "twelve"
LAB = ROOT / "src" / "twelve_lab"
STEMS = [step.stem for step in STEPS]
# Steps that teach with the modules of others.
NO_MODULE = {"start_here", "containers", "saving_and_devices"}
MODULES = [stem for stem in STEMS if stem not in NO_MODULE]
# What is done with the finished layers is imported from its own module.
AROUND = {"training", "generation", "same_as_pytorch"}
LAYERS = [stem for stem in MODULES if stem not in AROUND]

API = {
    "Linear": "d_in, d_out, bias=True",
    "TokenEmbedding": "vocab_size, d_model, *, padding_idx=None, scale=False",
    "sinusoid": "max_len, d_model",
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
    "Residual": "d_model, *, norm_first=True, dropout=0.0, fused=False",
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
    "DecoderLayer": "x, memory, *, tgt_mask=None, src_mask=None",
    "Decoder": "x, memory, *, tgt_mask=None, src_mask=None",
    "Transformer": "src, tgt, *, src_mask=None, tgt_mask=None",
}


def complain(root: Path) -> list[str]:
    """List every module, notebook and step that lacks its counterpart."""
    modules = {path.stem for path in (root / "src" / "twelve").glob("[!_]*.py")}
    notebooks = {f"notebooks/{path.name}" for path in (root / "notebooks").glob("*.ipynb")}
    tests = {path.stem for path in (root / "tests" / "unit").glob("test_*.py")}
    complaints = [f"module {stem} is no step" for stem in modules - set(STEMS)]
    complaints += [f"step {stem} has no module" for stem in set(MODULES) - modules]
    complaints += [f"module {stem} has no test" for stem in modules if f"test_{stem}" not in tests]
    complaints += [f"{path} is no step" for path in notebooks - {step.notebook for step in STEPS}]
    return sorted(complaints)


def imports(path: Path) -> Iterator[str]:
    """Name every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports by a relative path"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def written(signature: inspect.Signature) -> str:
    """Write a signature without self and without types."""
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for name, parameter in signature.parameters.items()
        if name != "self"
    ]
    return str(inspect.Signature(parameters))[1:-1]


def run(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_step_has_one_module_one_notebook_and_one_test():
    assert complain(ROOT) == []


@pytest.fixture
def copy(tmp_path) -> Path:
    """Hold empty files of the same names."""
    folders = {"src/twelve": "*.py", "tests/unit": "test_*.py", "notebooks": "*.ipynb"}
    for folder, pattern in folders.items():
        (tmp_path / folder).mkdir(parents=True)
        for path in (ROOT / folder).glob(pattern):
            (tmp_path / folder / path.name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("added", "complaints"),
    [
        ("src/twelve/dropout.py", ["module dropout has no test", "module dropout is no step"]),
        ("src/twelve/training.py", ["module training has no test"]),
        ("notebooks/16_extras.ipynb", ["notebooks/16_extras.ipynb is no step"]),
        ("notebooks/5_masks.ipynb", ["notebooks/5_masks.ipynb is no step"]),
        ("src/twelve/_shared.py", []),
        ("tests/unit/test_anything.py", []),
    ],
)
def test_a_file_without_its_counterpart_is_found(copy, added, complaints):
    if "training" in added:
        (copy / "tests/unit/test_training.py").unlink(missing_ok=True)
    (copy / added).touch()
    assert complain(copy) == complaints


@pytest.mark.parametrize(
    ("removed", "complaints"),
    [
        ("tests/unit/test_masks.py", ["module masks has no test"]),
        ("src/twelve/masks.py", ["step masks has no module"]),
    ],
)
def test_a_missing_counterpart_is_found(copy, removed, complaints):
    (copy / removed).unlink()
    assert complain(copy) == complaints


def test_the_steps_are_numbered_in_reading_order_and_the_names_follow_them():
    numbers = [step.number for step in STEPS]
    assert numbers == [f"{number:02d}" for number in range(16)] + ["a1", "a2"]
    assert len(set(STEMS)) == len(STEMS)
    homes = [getattr(twelve, name).__module__.split(".")[-1] for name in twelve.__all__]
    assert list(dict.fromkeys(homes)) == LAYERS
    assert homes == sorted(homes, key=LAYERS.index)


def test_the_public_names_are_those_of_the_design_in_its_order():
    assert twelve.__all__ == list(API)


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


@pytest.mark.parametrize("stem", MODULES)
def test_a_step_imports_only_earlier_steps(stem):
    earlier = {f"twelve.{name}" for name in MODULES[: MODULES.index(stem)]}
    ours = {".".join(name.split(".")[:2]) for name in imports(PACKAGE / f"{stem}.py")}
    shared = {name for name in ours if name.startswith("twelve._")}
    assert {name for name in ours - shared if name.startswith("twelve.")} <= earlier


@pytest.mark.parametrize("stem", MODULES)
def test_the_first_lines_of_a_module_name_its_step_its_notebook_and_its_test(stem):
    step = STEPS[STEMS.index(stem)]
    docstring = ast.get_docstring(ast.parse((PACKAGE / f"{stem}.py").read_text(encoding="utf-8")))
    title, blank, places, *_ = docstring.splitlines()
    assert re.fullmatch(r"[A-Z][a-z -]+: .+\.", title)
    assert blank == ""
    assert places == f"Step {step.number} | {step.notebook} | tests/unit/test_{stem}.py"


def test_no_layer_needs_the_lab():
    for path in PACKAGE.glob("*.py"):
        if path.name != "__main__.py":
            assert not any(name.split(".")[0] == "twelve_lab" for name in imports(path)), path.name


def test_matplotlib_is_imported_nowhere_but_where_figures_are_drawn():
    for path in (*PACKAGE.rglob("*.py"), *LAB.rglob("*.py")):
        if path.parent != LAB / "draw":
            assert not any(name.split(".")[0] == "matplotlib" for name in imports(path)), path


def test_src_is_a_folder_and_no_package():
    assert not (ROOT / "src" / "__init__.py").exists()
    for path in (*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        assert not any(name.split(".")[0] == "src" for name in imports(path)), path


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


@pytest.mark.parametrize("name", API)
def test_a_docstring_describes_exactly_the_arguments_that_there_are(name):
    public = getattr(twelve, name)
    described = re.search(r"Args:\n(.*?)(\n\n|\Z)", inspect.getdoc(public), re.DOTALL)
    names = re.findall(r"^    (\*{0,2}\w+):", described.group(1), re.MULTILINE)
    expected = [name.split("=")[0] for name in API[name].split(", ") if name != "*"]
    assert names == expected


def test_without_the_lab_there_is_still_a_transformer(tmp_path):
    leave = shutil.ignore_patterns("__main__.py", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "twelve", ignore=leave)
    code = """
import sys
import torch
import twelve
model = twelve.Transformer(11, 13, d_model=24, num_heads=3, num_layers=1)
src, tgt = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)
masks = {"src_mask": twelve.padding_mask(src), "tgt_mask": twelve.causal_mask(4)}
logits = model(src, tgt, **masks)
logits.sum().backward()
print(twelve.__file__, tuple(logits.shape), "twelve_lab" in sys.modules)
"""
    file, rest = run(code, PYTHONPATH=str(tmp_path)).strip().split(" ", 1)
    assert Path(file).resolve() == (tmp_path / "twelve" / "__init__.py").resolve()
    assert rest == "(2, 4, 13) False"


@pytest.mark.slow
def test_importing_costs_next_to_nothing_beside_torch():
    # CPU time, so that a busy machine does not count, and the best of several: the first import
    # also compiles and reads the files. What torch has not loaded is loaded afresh each time.
    code = """
import sys
import time
import torch
known, costs = set(sys.modules), []
for _ in range(5):
    start = time.process_time()
    import twelve
    costs.append(time.process_time() - start)
    for name in set(sys.modules) - known:
        del sys.modules[name]
print(min(costs))
"""
    assert float(run(code, PYTHONDONTWRITEBYTECODE="")) < 0.020
