"""The mutation tests: edits of a syntax tree, the mutation operators, the runner, the page."""

from pathlib import Path

import pytest

from tests.mutants import run as runner
from tests.mutants.classic import PLANTS, ROOT
from tests.mutants.edit import edit
from tests.mutants.operators import is_another, mutations
from tests.mutants.run import Job, draw, format_page, nearest_tests, read_page, run_all
from twelve_lab.check import MISTAKES

pytestmark = pytest.mark.slow

LAYER = '''
class Layer:
    def forward(self, x: Tensor) -> Tensor:
        """Compute α · x."""
        half: Float[Tensor, "batch"] = self.α(x) / 2  # half
        return stack([half], dim=0)

    def other(self, x):
        return self.α(x) / 2
'''


@pytest.mark.parametrize(
    ("pattern", "replacement", "line"),
    [
        ("self.α( x )/2", "x / 2", 'half: Float[Tensor, "batch"] = (x / 2)  # half'),
        ("X / 2", "X", 'half: Float[Tensor, "batch"] = (self.α(x))  # half'),
        ("half = self.α(x) / 2", "x = x + 1\nhalf = x", "        x = x + 1\n        half = x  #"),
        ("stack([PART], dim=N)", "stack([PART, PART], N + 1)", "(stack([half, half], 0 + 1))"),
    ],
)
def test_edit_replaces_code_by_its_structure(pattern, replacement, line):
    assert line in edit(LAYER, "Layer.forward", {pattern: replacement})


@pytest.mark.parametrize(
    ("function", "pattern", "problem"),
    [
        ("Layer.forward", "self.β(x)", r"Layer.forward must contain 'self.β\(x\)' once, got 0"),
        ("Layer.forward", "half", "must contain 'half' once, got 2 times"),
        ("Layer.backward", "half", "Layer.backward must be defined once, got 0 times"),
    ],
)
def test_edit_names_a_pattern_that_does_not_occur_once(function, pattern, problem):
    with pytest.raises(ValueError, match=problem):
        edit(LAYER, function, {pattern: "x"})


@pytest.mark.parametrize("id", PLANTS)
def test_a_classic_mistake_can_be_planted_in_its_layer(id):
    source = (ROOT / PLANTS[id].path).read_text(encoding="utf-8")
    assert is_another(source, PLANTS[id].text())


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("a < b", {"a <= b"}),
        ("a @ b", {"b @ a"}),
        ("a and b", {"a or b", "a", "b"}),
        ("-a", {"a"}),
        ("x[3]", {"x[4]", "x[2]"}),
        ("f(x, keepdim=True)", {"f(x)", "f(x, keepdim=False)"}),
        ("x.detach()", {"x"}),
        ("torch.equal(y, x)", set()),
        ("[a for a in b if a]", {"[a for a in b if True]"}),
    ],
)
def test_mutations_of_an_expression(code, changed):
    assert {each.text.removeprefix("é = ") for each in mutations(f"é = {code}")} == changed


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("raise ValueError('3 and 4')", {"pass"}),
        ("x: Float[Tensor, 'a 3'] = norm(x)", {"pass"}),
        ("y = norm(x)", set()),
        ("def f(x: int | None = None) -> 3:\n    '''Is 3 + 4.'''", set()),
        ("@property\ndef f():\n    ...", set()),
        ("with no_grad():\n    y", {"if True:\n    y"}),
    ],
)
def test_mutations_of_a_statement(code, changed):
    assert {each.text for each in mutations(code) if is_another(code, each.text)} == changed


def test_a_seed_draws_the_same_mutations():
    paths = [Path("src/twelve/masks.py"), Path("src/twelve/attention.py")]
    assert len(draw(paths, 12, seed=1)) == 12
    assert draw(paths, 12, seed=1) == draw(paths, 12, seed=1) != draw(paths, 12, seed=2)


@pytest.mark.parametrize("path", ["src/twelve/masks.py", "src/twelve_lab/trace/axes.py"])
def test_nearest_tests_begins_with_the_own_tests_and_ends_with_all(path):
    own, *others = nearest_tests(Path(path))
    assert own[0] in ("tests/unit/test_masks.py", "tests/unit/test_axes.py")
    everything = {each.relative_to(ROOT).as_posix() for each in (ROOT / "tests/unit").glob("*.py")}
    tests = [test for group in (own, *others) for test in group]
    assert everything - {"tests/unit/oracle.py", "tests/unit/pairs.py"} <= set(tests)
    assert len(tests) == len(set(tests))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one function and its test."""
    for name, text in {
        "src/one.py": "def double(x):\n    while x < 0:\n        x += 1\n    return x * 2\n",
        "tests/unit/test_one.py": (
            "from one import double\n\n\ndef test_it_doubles():\n"
            "    assert double(-3) == 0\n    assert double(1) == 2\n"
        ),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "PRELOADED", ["pytest", "jaxtyping"])
    monkeypatch.setattr(runner, "TEST_LIMIT", 1)
    return tmp_path


def test_run_all_tells_what_is_noticed_from_what_is_not(project):
    path, test = Path("src/one.py"), "tests/unit/test_one.py::test_it_doubles"
    rounds = [[], ["tests/unit/test_one.py::test_that_is_gone"], ["tests/unit/test_one.py"]]
    text = (project / path).read_text(encoding="utf-8")
    changes = [
        ("* 2", "* 3"), ("x * 2", "x * (2 if x < 9 else 3)"), ("x += 1", "pass"),
        ("def double", "def twice"),
    ]  # fmt: skip
    jobs = [Job(path, text.replace(*change), rounds) for change in changes]
    noticed, unnoticed, hanging, broken = run_all(jobs)
    assert noticed[:2] == (test, "numbers")
    assert unnoticed[:2] == (None, runner.PASSED)
    assert hanging[:2] == (test, "error")
    assert broken.failed is None
    assert "cannot be collected: E   ImportError" in broken.end


def test_run_all_refuses_a_test_that_fails_without_a_mutation(project):
    (project / "tests/unit/test_one.py").write_text("def test_it():\n    assert 0\n")
    with pytest.raises(SystemExit, match=r"without any mutation: .*::test_it numbers"):
        list(run_all([Job(Path("src/one.py"), "", [["tests/unit/test_one.py"]])]))


def test_the_page_names_a_test_for_every_mistake():
    text = runner.PAGE.read_text(encoding="utf-8")
    noticed = read_page(text)
    assert text == format_page(MISTAKES, noticed)
    assert set(noticed) == set(MISTAKES)
    for run in noticed.values():
        file, name = run.failed.split("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
