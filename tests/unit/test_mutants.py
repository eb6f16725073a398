"""Mutations of the package: the classic mistakes, those drawn at random, and who notices them."""

import ast
from pathlib import Path

import pytest

from tools import mutants
from tools.mutants import ROOT, Job, Run, by_name, draw, notice_all, page, replaced, rounds, source
from tools.mutations import is_another, mutations
from twelve_lab.check import MISTAKES

pytestmark = pytest.mark.slow

# By hand.


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("a < b", {"a <= b"}),
        ("a is not b", {"a is b"}),
        ("a in b", {"a not in b"}),
        ("mode == 'min'", {"mode != 'min'", "mode == 'minx'"}),
        ("a @ b", {"b @ a"}),
        ("a // b", {"a * b"}),
        ("a and b", {"a or b", "a", "b"}),
        ("not a", {"a"}),
        ("-a", {"a"}),
        ("~a", {"a"}),
        ("a if b else c", {"a if not (b) else c"}),
        ("x[3]", {"x[4]", "x[2]"}),
        ("x.softmax(-1)", {"x.softmax(-2)", "x.softmax(-0)"}),
        ("0.5", {"1.0"}),
        ("f(y, x)", {"f(x, y)"}),
        ("torch.equal(y, x)", set()),
        ("f(x, keepdim=True)", {"f(x)", "f(x, keepdim=False)"}),
        ("f(norm='pre')", {"f()", "f(norm='prex')"}),
        ("x.detach()", {"x"}),
        ("sorted(x)", {"x"}),
        ("x.triu", {"x.tril"}),
        ("weight.T", {"weight"}),
        ("[a for a in b if a]", {"[a for a in b if True]"}),
    ],
)
def test_an_expression_is_changed_in_each_way_that_still_runs(code, changed):
    found = [each.text.removeprefix("given = ") for each in mutations(f"given = {code}")]
    assert sorted(found) == sorted(changed)


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        ("check(x)", {"pass"}),
        ("raise ValueError('3 and 4')", {"pass"}),
        ("x += y", {"pass"}),
        ("x = norm(x)", {"pass"}),
        ("x: Float[Tensor, 'a 3'] = norm(x)", {"pass"}),
        ("y = norm(x)", set()),
        ("if TYPE_CHECKING:\n    check(x)", set()),
        ("def f(x: int | None = None) -> 3:\n    '''Is 3 + 4.'''", set()),
        ("def f(x, y=True):\n    return y",
         {"def f(x, y=False):\n    return y", "def f(x, y=True):\n    return x"}),
        ("@no_grad()\ndef f():\n    ...", {"@(lambda same: same)\ndef f():\n    ..."}),
        ("@property\ndef f():\n    ...", set()),
        ("with no_grad():\n    y", {"if True:\n    y"}),
        ("zip(x, y, strict=True)", {"pass", "zip(y, x, strict=True)"}),
        ("import one.two", set()),
    ],
)  # fmt: skip
def test_a_statement_is_left_out_or_changed(code, changed):
    assert {each.text for each in mutations(code) if is_another(code, each.text)} == changed


def test_a_mutation_says_its_line_before_and_after():
    first, second = mutations("é = 'é'\ncall(\n    'é', é < b,\n)")
    assert (first.line, first.old, first.new) == (2, "call( 'é', é < b, )", "pass")
    assert (second.line, second.old, second.new) == (3, "'é', é < b,", "'é', é <= b,")
    assert second.text == "é = 'é'\ncall(\n    'é', é <= b,\n)"


@pytest.mark.parametrize(
    ("path", "nearest", "further"),
    [
        ("src/twelve/masks.py", "tests/unit/test_masks.py", "tests/unit/test_attention.py"),
        ("src/twelve_lab/trace/axes.py", "tests/unit/test_trace.py", "tests/unit/test_axes.py"),
        # Imported through the package, which hands the name on.
        ("src/twelve_lab/check/attempt.py", "tests/unit/test_check.py", None),
        ("src/twelve_lab/experiments/influence.py", "tests/unit/test_trace.py",
         "tests/unit/test_instruments.py"),
        ("src/twelve_lab/explorer/program.py", "tests/products/test_explorer.py",
         "tests/unit/test_live.py"),
        # Nobody imports it but other figures, which have their tests in the course.
        ("src/twelve_lab/draw/grid.py", "tests/course/test_draw_heads.py",
         "tests/course/test_draw.py"),
        # Nobody imports it but the layers.
        ("src/twelve/_checks.py", "tests/unit/test_errors.py", None),
    ],
)  # fmt: skip
def test_the_nearest_tests_are_asked_first(path, nearest, further):
    found = rounds(Path(path))
    assert nearest in found[0]
    assert further is None or further in {test for each in found[:-1] for test in each}
    # What is reached without an import is noticed by one of all the others, if by any.
    asked = [test for each in found for test in each]
    rooms = ["unit", "course"] if "twelve_lab" in path else ["unit"]
    every = [at for room in rooms for at in (ROOT / "tests" / room).glob("test_*.py")]
    assert {at.relative_to(ROOT).as_posix() for at in every} <= set(asked)
    assert len(asked) == len(set(asked))


# Laws.


def test_a_seed_draws_the_same_mutations_and_another_one_others():
    paths = [Path("src/twelve/masks.py"), Path("src/twelve/attention.py")]
    drawn = draw(paths, 12, seed=1)
    assert len(drawn) == 12
    assert drawn == draw(paths, 12, seed=1)
    assert drawn != draw(paths, 12, seed=2)
    for path, mutation in drawn:
        before = (ROOT / path).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutation.text)) != ast.dump(ast.parse(before))


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
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "PRELOADED", ["pytest", "jaxtyping"])
    monkeypatch.setattr(mutants, "TEST_LIMIT", 1)
    mutants._names.cache_clear(), mutants._imports.cache_clear()
    yield tmp_path
    mutants._names.cache_clear(), mutants._imports.cache_clear()


def test_what_no_test_notices_is_told_from_what_fails_hangs_or_cannot_be_read(project):
    path, gone = Path("src/one.py"), "tests/unit/test_one.py::test_it_was_called"
    tests = [[], [gone], ["tests/unit/test_one.py"]]
    text = (project / path).read_text(encoding="utf-8")
    changes = {
        "noticed": ("* 2", "* 3"), "unnoticed": ("x * 2", "x * (2 if x < 9 else 3)"),
        "hangs": ("x += 1", "pass"), "broken": ("def double", "def twice"),
    }  # fmt: skip
    jobs = {key: Job(path, text.replace(*change), tests) for key, change in changes.items()}
    found = dict(notice_all(jobs))
    test = "tests/unit/test_one.py::test_it_doubles"
    assert found["noticed"][:2] == (test, "numbers")
    assert found["unnoticed"][:2] == (None, mutants.PASSED)
    assert found["hangs"][:2] == (test, "error")
    assert found["broken"].failed is None
    assert "tests/unit/test_one.py cannot be collected: E   ImportError" in found["broken"].end
    assert (project / path).read_text(encoding="utf-8") == text


def test_what_goes_unnoticed_is_listed_and_what_is_noticed_or_dies_is_not(monkeypatch, capsys):
    ends = [Run(None, mutants.PASSED), Run("test_it", "numbers"), Run(None, "the process died")]
    monkeypatch.setattr(mutants, "notice_all", lambda jobs: zip(jobs, ends, strict=True))
    drawn = draw([Path("src/twelve/masks.py")], 3, seed=0)
    said = [f"{path}:{each.line}\n    - {each.old}\n    + {each.new}" for path, each in drawn]
    assert mutants.plant_random(3, 0, ["src/twelve/masks.py"]) == said[:1]
    printed = capsys.readouterr().out
    assert all(each in printed for each in said)
    for wrong, code in ((["one"], 1), ([], 0)):
        monkeypatch.setattr(mutants, "plant_random", lambda *given, wrong=wrong: wrong)
        monkeypatch.setattr("sys.argv", ["mutants", "--random", "1"])
        assert mutants.main() == code
    assert "1 unnoticed, 0 s by the clock\none\n" in capsys.readouterr().out


# Errors.


def test_a_test_that_fails_anyway_notices_nothing(project):
    (project / "tests/unit/test_one.py").write_text("def test_it():\n    assert 0\n")
    with pytest.raises(SystemExit, match=r"without any mutation: .*::test_it numbers"):
        list(notice_all({1: Job(Path("src/one.py"), "", [["tests/unit/test_one.py"]])}))


def test_a_text_that_does_not_stand_once_in_its_file_is_refused(tmp_path):
    path = tmp_path / "masks.py"
    path.write_text("one two two\n", encoding="utf-8")
    for old, times in (("three", 0), ("two", 2)):
        with pytest.raises(ValueError, match=rf"masks\.py holds {times} times: '{old}'"):
            replaced(path, old, "four")
    assert replaced(path, "one", "four") == "four two two\n"


def test_a_name_that_is_unknown_is_said():
    with pytest.raises(SystemExit, match="no mistake is called scale"):
        mutants.plant_classics(["scale"])
    with pytest.raises(SystemExit, match="no Python file at src/nowhere"):
        mutants.files(["src/nowhere"])


# The classic mistakes.


def test_the_test_that_noticed_a_mistake_last_time_is_asked_first(monkeypatch, tmp_path, capsys):
    asked, (known, other) = {}, [*MISTAKES][:2]
    monkeypatch.setattr(mutants, "notice_all", lambda jobs: asked.update(jobs) or [])
    (tmp_path / "page.md").write_text(page([MISTAKES[known]], {known: Run("a::b[c|d]", "numbers")}))
    monkeypatch.setattr(mutants, "PAGE", tmp_path / "page.md")
    mutants.plant_classics([known, other])
    first, *rest = asked[known].rounds
    assert first == ["a::b[c|d]"] and asked[other].rounds[0] == []
    assert rest == [[f"tests/unit/test_{MISTAKES[known].plant.module}.py"]]


@pytest.mark.parametrize("id", MISTAKES)
def test_what_is_replaced_stands_once_in_its_file_and_leaves_python(id):
    plant = MISTAKES[id].plant
    path = ROOT / source(plant.module)
    assert is_another(path.read_text(encoding="utf-8"), replaced(path, plant.old, plant.new))


def test_the_page_holds_every_mistake_and_a_test_that_notices_it():
    text = mutants.PAGE.read_text(encoding="utf-8")
    noticed = by_name(text)
    assert text == page(list(MISTAKES.values()), noticed)
    assert set(noticed) == set(MISTAKES)
    for run in noticed.values():
        file, name = run.failed.split("[")[0].split("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
