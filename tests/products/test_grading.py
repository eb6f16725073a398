"""What a student can get by grading, attack by attack: nothing that is not theirs.

The judge reads what a kernel hands over, and a kernel can hand over anything: most attacks are
tried on it directly. Those that need a kernel run in few notebooks, by nbgrader, behind the walls.
"""

import copy
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.products.test_solutions import KERNEL, marked, small_notebook
from tools.write_course import write
from tools.write_solutions import solved
from twelve_lab.check import EXERCISES, TASKS, wrong_versions
from twelve_lab.exercises.declare import Question

if not find_spec("nbgrader"):
    pytest.skip("nbgrader is missing", allow_module_level=True)

from classroom import answering, grading
from classroom.borrowed import borrowed, report

# nbgrader's own queries.
pytestmark = pytest.mark.filterwarnings("ignore:Object of type <Submitted")
ROOT = Path(__file__).resolve().parents[2]
SPLIT = "06-split-heads"
RIGHT = (
    "def split(projected, num_heads):\n"
    "    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)"
)
# Whether there are namespaces at all: where there are, walls that do not stand are a failure.
TRIED = [*grading.apart(None if os.geteuid() else grading.NOBODY), "true"]
HAS_THEM = shutil.which("unshare") and not subprocess.run(TRIED, capture_output=True).returncode
BEHIND_WALLS = pytest.mark.skipif(not HAS_THEM, reason="this machine gives no namespaces")


def handed_over(id: str, answer: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Give what comes out of a kernel in which nobody changed anything."""
    said = []
    with monkeypatch.context() as patch:
        patch.setattr(answering, "display", lambda data, raw: said.append(data[answering.KIND]))
        answering.hand_over(id, lambda: answer)
    return json.loads(json.dumps(said[0]))


@pytest.fixture
def honest(monkeypatch) -> dict[str, object]:
    """Give what a right answer hands over."""
    return handed_over(SPLIT, TASKS["split_heads"].right, monkeypatch)


def lied(id: str, answer: object) -> dict[str, object]:
    """Give the numbers of an answer, and say that they are right."""
    asked = EXERCISES[id]
    said = {"kind": "ok", "mistake": None, "message": "", "note": ""}
    if isinstance(asked, Question):
        return json.loads(json.dumps(said | {"given": answering._plain(answer)}))
    calls = [
        [answering._written(one) for one in answering.attempts(asked, answer, by_gradient=slopes)]
        for slopes in answering.runs(asked)
    ]
    return json.loads(json.dumps(said | {"calls": calls}))


# ---- the judge --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("id", EXERCISES)
def test_a_right_answer_is_right_once_it_has_crossed_the_border(id, monkeypatch):
    asked = EXERCISES[id]
    answer = asked.right() if isinstance(asked, Question) else asked.right
    said = handed_over(id, answer, monkeypatch)
    assert len(json.dumps(said)) < grading.MESSAGE / 4
    verdict = grading.judge(id, said)
    assert (verdict.kind, verdict.message) == ("ok", said["message"])


@pytest.mark.slow
@pytest.mark.parametrize("id", EXERCISES)
def test_whoever_makes_a_mistake_and_says_that_it_is_right_gets_nothing(id):
    asked = EXERCISES[id]
    known = [versions[0] for versions in asked.mistakes.values()]
    for wrong in (*known[:1], *[*asked.misconceptions.values()][:1]):
        answer = wrong() if isinstance(asked, Question) else wrong
        assert not grading.judge(id, lied(id, answer)).ok


def test_a_wrong_answer_is_told_in_the_words_of_check(monkeypatch):
    wrong = wrong_versions("split_heads")["split-view"]
    said = handed_over(SPLIT, wrong, monkeypatch)
    verdict = grading.judge(SPLIT, said)
    assert (verdict.ok, verdict.kind) == (False, "mistake")
    assert verdict.message == said["message"] != ""
    assert "calls" not in said


FORGED = {
    "nothing": lambda said: {},
    "no object": lambda said: [1, 2],
    "the word alone": lambda said: {"kind": "ok"},
    "no calls": lambda said: said | {"calls": []},
    "calls of no case": lambda said: said | {"calls": [[], []]},
    "one case": lambda said: said | {"calls": [one[:1] for one in said["calls"]]},
    "no gradients": lambda said: said | {"calls": [said["calls"][0]] * 2},
    "other cases": lambda said: changed(said, "case", "mine"),
    "not returned": lambda said: changed(said, "returned", "yes"),
    "an argument changed": lambda said: changed(said, "changed", 0),
    "an argument that there is not": lambda said: changed(said, "changed", 99),
    "no values": lambda said: changed(said, "values", []),
    "no answer": lambda said: changed(said, "answer", []),
    "an answer of None": lambda said: changed(changed(said, "answer", [None]), "values", []),
    "zeros": lambda said: changed_tensors(said, content=0),
    "nan": lambda said: changed_tensors(said, content=float("nan")),
    "true": lambda said: changed_tensors(said, dtype="bool"),
    "a type that there is not": lambda said: changed_tensors(said, dtype="object"),
    "complex": lambda said: changed_tensors(said, dtype="complex128"),
    "a huge shape": lambda said: changed_tensors(said, shape=[10**12]),
    "a negative shape": lambda said: changed_tensors(said, shape=[-5, 3]),
    "a shape of words": lambda said: changed_tensors(said, shape="one"),
    "bytes that are none": lambda said: changed_tensors(said, content="%%%"),
    "a list without end": lambda said: changed_tensors(said, content=[[[[]]]]),
}


def changed(said, key, value):
    said = copy.deepcopy(said)
    for run in said["calls"]:
        for one in run:
            one[key] = value
    return said


def changed_tensors(said, **new):
    said = copy.deepcopy(said)
    for run in said["calls"]:
        for tensor in (x for one in run for x in one["answer"] + one["values"]):
            if isinstance(number := new.get("content"), int | float):
                size = torch.Size(tensor["shape"])
                there = torch.full(size, number, dtype=torch.float64)
                tensor["content"] = answering._tensor(there)["content"]
            else:
                tensor.update(new)
    return said


@pytest.mark.parametrize("forged", FORGED)
def test_what_is_forged_is_not_right_and_raises_nothing(honest, forged):
    assert grading.judge(SPLIT, honest).ok
    verdict = grading.judge(SPLIT, FORGED[forged](honest))
    assert not verdict.ok
    assert verdict.kind in grading._KINDS


def test_a_pickle_is_bytes_and_is_not_opened(honest):
    class Bomb:
        def __reduce__(self):
            return os.abort, ()

    import base64
    import pickle

    content = base64.b64encode(pickle.dumps(Bomb())).decode()
    assert not grading.judge(SPLIT, changed_tensors(honest, content=content)).ok


@pytest.mark.parametrize(
    "given", [{"tuple": [2, 3, 4]}, {"dict": []}, {"tuple": [], "set": []}, {}, None, "7", [[[]]]]
)
def test_a_forged_prediction_is_not_right(given):
    id = next(id for id, one in EXERCISES.items() if isinstance(one, Question))
    assert not grading.judge(id, {"kind": "ok", "given": given}).ok


def test_words_of_a_student_can_do_nothing_on_the_page():
    said = {"kind": "call", "message": "<script>alert(1)</script>", "note": "x" * 10_000}
    outputs = [new_output("display_data", data={grading.KIND: said})]
    shown = grading.Grade()._judged(SPLIT, outputs)
    page = shown[0].data["text/html"]
    assert "<script" not in page and "&lt;script" in page
    assert len(page) < 9_000
    assert shown[1].output_type == "error"


@pytest.mark.parametrize(
    "html",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "<img src='https://example.org/pixel.png'>",
        "<svg onload=alert(1)></svg>",
        "<iframe src='https://example.org'></iframe>",
        "<a href='javascript:alert(1)'>on</a>",
        "<div style='position:fixed;top:0'>over all</div>",
        "<form action='https://example.org'><input></form>",
        "<style>@import url(https://example.org)</style>",
    ],
)
def test_a_page_of_a_student_loads_and_runs_nothing(html):
    data = {"text/html": html, "text/plain": "plain", "application/javascript": "alert(1)"}
    (output,) = grading.cleaned([new_output("display_data", data=data)])
    assert set(output.data) == {"text/plain", "text/html"}
    left = output.data["text/html"]
    for word in ("<script", "onerror", "onload", "example.org'", "<a", "position", "<form", "<svg"):
        assert word not in left
    assert "src=" not in left


def test_a_table_and_a_picture_of_ours_stay_as_they_are():
    html = '<table style="color: red;"><tbody><tr><td>1</td></tr></tbody></table>'
    html += '<img alt="a" src="data:image/svg+xml;base64,AAAA">'
    (output,) = grading.cleaned([new_output("display_data", data={"text/html": html})])
    assert output.data["text/html"] == html


# ---- what is handed in ------------------------------------------------------------------------


def test_a_link_a_pipe_another_owner_and_a_large_file_are_not_collected(tmp_path):
    secret = tmp_path / "gradebook.db"
    secret.write_text("points")

    def collected(make):
        source, target = tmp_path / make.__name__, tmp_path / "to" / make.__name__
        source.mkdir()
        (source / "a.ipynb").write_text("{}")
        make(source)
        said = []
        log = SimpleNamespace(error=lambda *words: said.append(words[0] % words[1:]))
        grading.Collect.do_copy(SimpleNamespace(log=log), str(source), str(target))
        return target.exists(), "".join(said)

    def fine(folder):
        (folder / "data").mkdir()
        (folder / "data" / "x.csv").write_text("1")

    def linked(folder):
        (folder / "b.ipynb").symlink_to(secret)

    def linked_folder(folder):
        (folder / "all").symlink_to(tmp_path)

    def piped(folder):
        os.mkfifo(folder / "pipe")

    def large(folder):
        os.truncate(folder / "a.ipynb", 200_000_000)

    assert collected(fine) == (True, "")
    assert (tmp_path / "to" / "fine" / "data" / "x.csv").read_text() == "1"
    for make in (linked, linked_folder, piped, large):
        there, said = collected(make)
        assert not there
        assert said.startswith(f"Not collected: {tmp_path / make.__name__}: ")


def test_nobody_hands_in_for_somebody_else_or_keeps_the_teacher_from_collecting(
    course, api, tmp_path, monkeypatch
):
    me = pwd.getpwuid(os.geteuid()).pw_name
    inbound = tmp_path / "twelve" / "inbound"
    inbound.mkdir(parents=True)
    day = "2026-11-23 12:00:00.000000 UTC"
    names = {
        "mine": f"{me}+06_small+{day}+a",
        "for another": f"bob+06_small+{day}+b",
        "no day": f"{me}+06_small+soon",
        "nobody": f"+06_small+{day}+c",
        "a link": f"{me}+06_small+{day.replace('2026', '2027')}+d",
    }
    for what, name in names.items():
        if what == "a link":
            (inbound / name).symlink_to(course / "source" / "06_small")
            continue
        (inbound / name).mkdir()
        (inbound / name / "06_small.ipynb").write_text("{}")
        (inbound / name / "timestamp.txt").write_text(day)
    monkeypatch.setattr(api.config.Exchange, "root", str(tmp_path), raising=False)
    result = api.collect("06_small")
    assert result["success"], result
    assert (course / "submitted" / me / "06_small" / "06_small.ipynb").read_text() == "{}"
    assert not (course / "submitted" / "bob" / "06_small").exists()
    hidden = {path.name for path in inbound.iterdir() if path.name.startswith(".")}
    assert hidden == {f".{name}" for what, name in names.items() if what != "mine"}
    assert "Not collected" not in api.collect("06_small", update=True)["log"]
    shutil.rmtree(course / "submitted" / me)


def test_a_file_of_somebody_else_is_not_collected(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a.ipynb").write_text("{}")
    with pytest.raises(ValueError, match=r"a\.ipynb is no file of the student's own"):
        grading._copied(tmp_path / "from", tmp_path / "to", os.geteuid() + 1)


# ---- nbgrader ---------------------------------------------------------------------------------


def page_of(*answers: str) -> NotebookNode:
    """Build a notebook in which split_heads is asked for as often as there are answers.

    Args:
        answers: What stands in the answer cells.
    """
    cells = [new_markdown_cell("# Heads", id="title")]
    for number, source in enumerate(answers):
        marks = {"grade": False, "locked": False, "solution": True}
        cells.append(
            new_code_cell(
                source, id=f"a{number}", metadata=marked(f"one-{number}", "answer", **marks)
            )
        )
        marks = {"grade": True, "locked": True, "solution": False, "points": 1}
        cells.append(
            new_code_cell(
                f'check("{SPLIT}", split_{number})',
                id=f"c{number}",
                metadata=marked(f"one-{number}", "check", **marks),
            )
        )
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def answer(number: int, before: str = "", inside: str = "return projected") -> str:
    """Write a wrong answer, with an attack before it or within."""
    body = "\n".join(f"    {line}" for line in inside.splitlines())
    return f"{before}\ndef split_{number}(projected, num_heads):\n{body}"


# What a student may do to the checker of their own process.
PATCHES = [
    "import twelve_lab.check\ntwelve_lab.check.check = check = lambda *_: print('✓ right.')",
    "from twelve_lab.check import diagnose as d, Verdict\nimport twelve_lab.check as c, sys\n"
    "fine = lambda *_: Verdict(True, 'ok', None, 'Right.')\n"
    "c.diagnose = sys.modules['twelve_lab.check.diagnose'].diagnose = fine",
    "import torch\nyes = lambda *a, **k: torch.tensor(True)\n"
    "torch.allclose = torch.equal = torch.isclose = yes\n"
    "import twelve_lab.check.stages as s\ns.close = yes",
    "import twelve_lab.check.diagnose, sys\n"
    "sys.modules['twelve_lab.check.diagnose']._STAGES.clear()",
    "from twelve_lab.check import TASKS\n"
    "TASKS['split_heads'].right = lambda x, num_heads: x\n"
    "import sys; sys.modules['twelve_lab.check.attempt'].expected.cache_clear()",
    "TASKS['split_heads'].cases = lambda: {}",
    "class WrongAnswer(Exception): pass\nget_ipython().showtraceback = lambda *a, **k: None",
    "from IPython.display import display\n"
    "display({'application/vnd.twelve.answer+json': {'kind': 'ok', 'calls': [[], []]}}, raw=True)",
    "import builtins, runpy\nrunpy.run_path = lambda *_: {'hand_over': lambda *a: print('✓')}",
    "builtins.__import__ = lambda *a, **k: runpy",
    "get_ipython().display_formatter.format = lambda *a, **k: ({'text/plain': '1.0'}, {})\n"
    "import os; os.environ['TWELVE_STRICT'] = '0'; 1.0",
    "print('✓ 06-split-heads: right.')",
]


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """Write a course with notebooks to be attacked."""
    folder = tmp_path_factory.mktemp("course")
    notebooks = tmp_path_factory.mktemp("notebooks")
    nbformat.write(small_notebook(), notebooks / "06_small.ipynb")
    write(folder, notebooks)
    stub = "split_{0} = ...\n### BEGIN SOLUTION\n### END SOLUTION"
    for name, size in {"patched": len(PATCHES) + 1, "greedy": 8, "ended": 3}.items():
        (folder / "source" / name).mkdir()
        page = page_of(*(stub.format(number) for number in range(size)))
        nbformat.write(page, folder / "source" / name / f"{name}.ipynb")
    return folder


@pytest.fixture(scope="module")
def api(course):
    """Give nbgrader with the settings that were written, in the course's folder."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.apps.baseapp import NbGrader

    before, here, path = dict(os.environ), Path.cwd(), list(sys.path)
    os.chdir(course)
    app = NbGrader()
    app.load_config_file()
    api = NbGraderAPI(config=app.config)
    for name in ("06_small", "patched", "greedy", "ended"):
        assert api.generate_assignment(name)["success"]
    yield api
    os.chdir(here)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def grade(course, api):
    """Hand a notebook in and have it graded; gives its points by check, and its cells."""

    def grade(name, notebook, student="eve", files=(), seconds=60):
        api.config.Grade.timeout, api.config.Grade.iopub_timeout = seconds, seconds
        folder = course / "submitted" / student / name
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{name}.ipynb")
        for path, content in dict(files).items():
            (folder / path).write_text(content)
        result = api.autograde(name, student)
        assert result["success"], result.get("error") or result["log"]
        with api.gradebook as book:
            grades = book.find_submission_notebook(name, name, student).grades
            points = {one.name: one.auto_score for one in grades}
        done = course / "autograded" / student / name / f"{name}.ipynb"
        return points, nbformat.read(done, as_version=4).cells

    return grade


@pytest.mark.slow
@BEHIND_WALLS
def test_no_patch_of_a_checker_earns_a_point_and_none_takes_one_from_an_answer_above(grade):
    answers = [RIGHT.replace("split", "split_0")]
    answers += [answer(number, patch) for number, patch in enumerate(PATCHES, 1)]
    points, _ = grade("patched", page_of(*answers))
    assert points == {f"one-{number}-check": float(number == 0) for number in range(len(answers))}


SPY = """
import os, socket
from pathlib import Path
def tried(do):
    try:
        return repr(do())
    except OSError as error:
        return type(error).__name__
for path in {paths!r}:
    print(tried(lambda: Path(path).read_bytes()[:9]))
    print(tried(lambda: Path(path).write_bytes(b"")))
    print(tried(lambda: os.chmod(Path(path).parent, 0o777)))
print(tried(lambda: socket.create_connection(("127.0.0.1", {port}), 2)))
print(sorted(os.environ) == {known!r}, len([one for one in os.listdir("/proc") if one.isdigit()]))
print(tried(lambda: os.kill({process}, 9)), os.listdir("/tmp") != [], os.listdir())
"""
FORKS = """
import os, time
born = 0
try:
    while os.fork():
        born += 1
    time.sleep(600)
except OSError as error:
    print("born:", born < 64, type(error).__name__)
"""


@pytest.mark.slow
@BEHIND_WALLS
def test_a_greedy_answer_gets_nothing_and_the_answers_below_it_count(
    grade, course, monkeypatch, tmp_path
):
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
    book, other = course / "gradebook.db", course / "submitted" / "bob" / "greedy" / "a.ipynb"
    other.parent.mkdir(parents=True)
    other.write_text("an answer")
    mine = course / "submitted" / "eve" / "greedy" / "greedy.ipynb"
    code = ROOT / "src" / "twelve" / "attention.py"
    before = {path: path.read_bytes() for path in (other, code)}
    modes = {path: path.parent.stat().st_mode for path in (book, other, code)}
    known = [
        "CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "HOME", "LANG", "MPLBACKEND",
        "OMP_NUM_THREADS", "PAGER", "PATH", "PYDEVD_USE_FRAME_EVAL", "PYTHONDONTWRITEBYTECODE",
        "PYTHONPATH", "TERM", "TWELVE_DEVICE", "TWELVE_PROGRESS", "USER",
    ]  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as server:
        spy = SPY.format(
            paths=[str(book), str(other), str(mine), str(code), "/etc/shadow"],
            port=server.getsockname()[1],
            known=known,
            process=os.getpid(),
        )
        points, cells = grade(
            "greedy",
            page_of(
                answer(0, spy),
                answer(1, inside="import sys\nsys.exit()"),
                answer(2, inside="import time\nwhile True: time.sleep(1)"),
                answer(3, "import torch; torch.zeros(1 << 40)"),
                answer(4, "bytearray(5 << 30)"),
                answer(5, FORKS),
                answer(6, "open('big', 'wb').write(bytes(100 << 20))"),
                RIGHT.replace("split", "split_7"),
            ),
            files={"progress.json": "{}"},
            seconds=20,
        )
    assert points == {f"one-{number}-check": float(number == 7) for number in range(8)}
    assert {path: path.read_bytes() for path in before} == before
    assert {path: path.parent.stat().st_mode for path in modes} == modes
    texts = [text_of(cell).splitlines() for cell in cells]
    *tried, alone, apart = texts[1]
    # Nothing of the teacher or of another student is there; the code of the course can be read.
    assert tried[:9] == ["FileNotFoundError"] * 9
    assert tried[9:] == [
        repr(code.read_bytes()[:9]), "OSError", "OSError",
        "FileNotFoundError", "PermissionError", "PermissionError",
        "OSError",
    ]  # fmt: skip
    assert alone == "True 1"
    assert apart.startswith("ProcessLookupError") and "'progress.json'" in apart
    assert texts[6] == ["KeyboardInterrupt"]
    assert texts[11] == ["born: True BlockingIOError"]
    assert texts[13] == ["OSError"]


ENDS = {
    "leaves": "import os\nos._exit(0)",
    "quits": "quit()",
    "deaf": "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)",
    "flood": "while True: print('x' * 1_000_000)",
    "too large": "print('x' * 100_000_000)",
}


@pytest.mark.slow
@BEHIND_WALLS
@pytest.mark.parametrize("end", ENDS)
def test_whoever_ends_the_kernel_gets_nothing_below_and_the_teacher_goes_on(grade, end):
    first = RIGHT.replace("split", "split_0") if end == "leaves" else "split_0 = None"
    below = RIGHT.replace("split", "split_2")
    page = page_of(first, answer(1, ENDS[end]), below)
    points, cells = grade("ended", page, student=end, seconds=60 if end == "leaves" else 3)
    # Python is asked to end, and may answer what stands below before it does.
    reached = end == "quits" and points["one-2-check"] == 1.0
    assert points == {
        "one-0-check": float(end == "leaves"),
        "one-1-check": 0.0,
        "one-2-check": float(reached),
    }
    why = "This check was not reached: a cell above ended Python, or ran too long."
    assert reached or cells[-1].outputs[0].evalue == why


@pytest.mark.slow
@BEHIND_WALLS
def test_what_is_not_read_leaves_the_class_alone_and_marks_are_those_of_the_gradebook(
    course, api, tmp_path
):
    page = solved(small_notebook())
    asked, its_check, other, other_check = page.cells[2:6]
    # 100 points for each, for the answer too; one check gone, and one cell twice; marks of no kind.
    its_check.metadata.nbgrader.update(points=100, locked=False, solution=True)
    its_check.source = "print('✓')"
    asked.metadata.nbgrader.update(grade=True, points=100, locked=True)
    other.cell_type = "markdown"
    del other["outputs"], other["execution_count"]
    page.cells.remove(other_check)
    page.cells.insert(2, copy.deepcopy(its_check))
    page.cells[2]["id"] = "twice"
    page.cells[0].source += "\n```\n<script>alert(1)</script> [x](javascript:alert(1))"
    page.cells[0].metadata["nbgrader"] = ["grade"]
    page.cells[1].metadata["nbgrader"] = {"schema_version": 99}
    page.cells[-1].metadata["nbgrader"] = {"grade": True, "grade_id": "mine", "points": 100}
    whole = nbformat.writes(solved(small_notebook()))
    notebooks = {
        "mallory": nbformat.writes(page),
        "broken": '{"cells": [',
        "huge": whole + " " * 6_000_000,
    }
    for student, content in notebooks.items():
        folder = course / "submitted" / student / "06_small"
        folder.mkdir(parents=True)
        (folder / "06_small.ipynb").write_text(content)
    linked = course / "submitted" / "linked" / "06_small"
    linked.mkdir(parents=True)
    (tmp_path / "of another.ipynb").write_text(whole)
    (linked / "06_small.ipynb").symlink_to(tmp_path / "of another.ipynb")
    api.config.Grade.timeout = api.config.Grade.iopub_timeout = 60
    result = api.autograde("06_small", "*")
    assert not result["success"]
    for student in ("broken", "huge", "linked"):
        assert f"assignment '06_small' for student '{student}'" in result["log"]
        assert not (course / "autograded" / student / "06_small").exists()
    with api.gradebook as book:
        marks = {one.student_id: one.score for one in book.assignment_submissions("06_small")}
        most = book.find_assignment("06_small").max_score
    assert marks == {"mallory": 2, "broken": 0, "huge": 0, "linked": 0} and most == 2
    done = course / "autograded" / "mallory" / "06_small" / "06_small.ipynb"
    cells = nbformat.read(done, as_version=4).cells
    # Each of its pages is shown as text, and so no link or script of it is one.
    assert cells[0].source.startswith("````\n# 06 Small") and cells[0].source.endswith("\n````")
    assert cells[-1].source == 'check("06-merge-heads", merge)'


STARTS = """
import os, pathlib, subprocess, sys
from classroom import grading
folder = pathlib.Path(sys.argv[1])
account = None if os.geteuid() else grading.NOBODY + 4_001
line = [sys.executable, "-c", "open(sys.argv[1], 'w').write('begun'); import time; time.sleep(60)"]
line[2] = "import sys; " + line[2]
program = grading.walled(folder, folder / "shared", account, [*line, f"{folder}/shared/said"])
started = subprocess.Popen(program)
while not (folder / "shared" / "said").exists():
    pass
print(subprocess.run(["pgrep", "-P", str(started.pid)], capture_output=True, text=True).stdout)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
@BEHIND_WALLS
def test_what_runs_behind_the_walls_ends_with_a_teacher_who_is_killed(tmp_path):
    (tmp_path / "shared").mkdir()
    words = [sys.executable, "-c", STARTS, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    running = Path(f"/proc/{done.stdout.strip()}")
    for _ in range(100):
        if not running.exists():
            break
        time.sleep(0.1)
    assert done.returncode == -9 and done.stdout.strip() and not running.exists()


@pytest.mark.slow
def test_without_walls_a_class_that_is_trusted_is_graded_the_same(grade, api, monkeypatch):
    monkeypatch.setattr(api.config.Grade, "walls", False, raising=False)
    page = page_of(RIGHT.replace("split", "split_0"), answer(1, PATCHES[0]), "split_2 = ...")
    points, cells = grade("ended", page, student="trusted")
    assert [*points.values()] == [1.0, 0.0, 0.0]
    assert cells[-1].outputs[0].text.startswith("○ 06-split-heads: Not started yet")


def test_where_there_are_no_walls_nothing_is_graded_and_the_reason_is_said(monkeypatch):
    monkeypatch.setattr(grading, "tried", lambda account: "unshare: Operation not permitted")
    with pytest.raises(RuntimeError, match=r"walls here \(unshare: Operation not permitted\)"):
        grading.Grade().preprocess(page_of(), {})


# ---- what is borrowed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "taken"),
    [
        (
            "from twelve.attention import attention\nsplit = attention",
            ["twelve.attention.attention"],
        ),
        ("def split(x, n):\n    return TASKS['a'].right(x)", ["twelve_lab.check.TASKS"]),
        ("import twelve_lab as lab\nsplit = lab.check.TASKS", ["twelve_lab.check.TASKS"]),
        ("split = __import__('twe' + 'lve').nn", ["__import__"]),
        ("import sys\nsplit = sys.modules", ["sys.modules"]),
        ("from einops import rearrange\ndef split(x, n): return rearrange(x, 'a b')", []),
        ("split = (", []),
    ],
)
def test_what_an_answer_takes_from_the_course_is_listed(source, taken):
    ours = solved(small_notebook(), marked=True)
    ours.cells[1].source += "\nfrom twelve_lab.check import TASKS"
    theirs = copy.deepcopy(ours)
    assert borrowed(theirs, ours) == {}
    theirs.cells[2].source = source
    assert borrowed(theirs, ours) == ({SPLIT: taken} if taken else {})
    theirs.cells.append(new_code_cell(source))
    assert borrowed(theirs, ours) == ({SPLIT: taken, "cell 8": taken} if taken else {})


def test_the_list_names_the_student_and_the_exercise(tmp_path):
    ours, theirs = solved(small_notebook(), marked=True), solved(small_notebook())
    theirs.cells[4].source = "from twelve import Transformer as merge"
    for folder, notebook in (("source", ours), ("submitted/ann", theirs), ("submitted/bob", ours)):
        place = tmp_path / folder / "06_small"
        place.mkdir(parents=True)
        nbformat.write(notebook, place / "06_small.ipynb")
    (tmp_path / "submitted" / "eve" / "06_small").mkdir(parents=True)
    (tmp_path / "submitted" / "eve" / "06_small" / "06_small.ipynb").write_text("{")
    assert report(tmp_path).splitlines() == [
        "ann  06_small  06-merge-heads: twelve.Transformer",
        "eve  06_small: cannot be read (NotJSONError)",
    ]


def text_of(cell: NotebookNode) -> str:
    """Give what a cell printed, and the names of its errors."""
    return "".join(
        one.get("text", one.get("ename", ""))
        for one in cell.get("outputs", [])
        if "data" not in one
    )
