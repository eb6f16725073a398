"""Attacks on grading: no attack earns points, or access to files of others.

A kernel can report anything, so most attacks call the judge directly. Programs attack the sandbox
as root and as another account. The weekly tests grade whole notebooks with nbgrader.
"""

import base64
import copy
import json
import os
import pickle
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import torch
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests.products.test_solutions import KERNEL, answer_cell, check_cell, small_notebook
from tools.write_course import write
from tools.write_solutions import solved
from twelve_lab.check import EXERCISES, TASKS, diagnose, wrong_versions
from twelve_lab.check.catalogue import misconceptions_of, mistakes_of
from twelve_lab.exercises.declare import Question

if not find_spec("nbgrader"):
    pytest.skip("nbgrader is missing", allow_module_level=True)

from classroom import answering, grading, judge, limits, sandbox
from classroom.borrowed import borrowed, report

# nbgrader's own query causes this warning.
pytestmark = pytest.mark.filterwarnings("ignore:Object of type <Submitted")
ROOT = Path(__file__).resolve().parents[2]
SPLIT = "06-split-heads"
RIGHT = (
    "def split(projected, num_heads):\n"
    "    return projected.unflatten(-1, (num_heads, -1)).transpose(1, 2)"
)
NEEDS_BWRAP = pytest.mark.skipif(not shutil.which("bwrap"), reason=sandbox.ADVICE)


def reported(id: str, answer: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Return what an unmodified kernel reports for an answer."""
    reports = []
    with monkeypatch.context() as patch:
        show = lambda data, raw: reports.append(data[answering.KIND])  # noqa: E731
        patch.setattr(answering, "display", show)
        answering.hand_over(id, lambda: answer)
    return json.loads(json.dumps(reports[0]))


def claimed(id: str, answer: object) -> dict[str, object]:
    """Return a report with the numbers of an answer, and the claim that they are right."""
    asked = EXERCISES[id]
    claim = {"kind": "ok", "message": "", "note": ""}
    if isinstance(asked, Question):
        return json.loads(json.dumps(claim | {"given": answering._plain(answer)}))
    calls = [
        [answering._encode(x) for x in answering.attempts(asked, answer, by_gradient=gradients)]
        for gradients in answering.runs(asked)
    ]
    return json.loads(json.dumps(claim | {"calls": calls}))


# ---- the judge --------------------------------------------------------------------------------


OFTEN = (SPLIT, "06-scores-shape")  # the weekly tests cover the others


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=[pytest.mark.weekly] * (id not in OFTEN)) for id in EXERCISES]
)
def test_judge_accepts_the_right_answer_and_rejects_a_mistake_that_claims_to_be_right(
    id, monkeypatch
):
    asked = EXERCISES[id]
    is_question = isinstance(asked, Question)
    report = reported(id, asked.right() if is_question else asked.right, monkeypatch)
    assert len(json.dumps(report)) < grading.MESSAGE / 4
    verdict = judge.judge(id, report)
    assert (verdict.kind, verdict.message) == ("ok", report["message"])
    known = [versions[0] for versions in mistakes_of(asked).values()]
    wrong = [*known[:1], *[*misconceptions_of(asked).values()][:1]]
    if is_question:  # A mistake in a layer may not change the answer, or may raise.
        wrong = [answer for make in wrong if not diagnose(id, answer := value(make)).ok]
    assert not any(judge.judge(id, claimed(id, answer)).ok for answer in wrong)


def value(make: Callable[[], object]) -> object:
    """Return the answer that a mistake gives, or None if the mistake raises."""
    try:
        return make()
    except Exception:
        return None


def test_judge_repeats_the_message_of_check(monkeypatch):
    report = reported(SPLIT, wrong_versions("split_heads")["split-view"], monkeypatch)
    verdict = judge.judge(SPLIT, report)
    assert (verdict.ok, verdict.kind) == (False, "mistake")
    assert verdict.message == report["message"] != ""
    assert "calls" not in report


class Bomb:
    def __reduce__(self):
        return os.abort, ()


def changed(report, key, value):
    for run in report["calls"]:
        for call in run:
            call[key] = value
    return report


def changed_tensors(report, **new):
    for run in report["calls"]:
        for tensor in (x for call in run for x in call["answer"] + call["values"]):
            if isinstance(number := new.get("content"), int | float):
                full = torch.full(tensor["shape"], number, dtype=torch.float64)
                tensor["content"] = answering._tensor(full)["content"]
            else:
                tensor.update(new)
    return report


FORGED = {
    "nothing": lambda report: {},
    "ok alone": lambda report: {"kind": "ok"},
    "no calls": lambda report: report | {"calls": []},
    "no gradients": lambda report: report | {"calls": [report["calls"][0]] * 2},
    "other cases": lambda report: changed(report, "case", "mine"),
    "not returned": lambda report: changed(report, "returned", "yes"),
    "changed input": lambda report: changed(report, "changed", 0),
    "no values": lambda report: changed(report, "values", []),
    "answer None": lambda report: changed(changed(report, "answer", [None]), "values", []),
    "zeros": lambda report: changed_tensors(report, content=0),
    "nan": lambda report: changed_tensors(report, content=float("nan")),
    "wrong dtype": lambda report: changed_tensors(report, dtype="bool"),
    "unknown dtype": lambda report: changed_tensors(report, dtype="load"),
    "huge shape": lambda report: changed_tensors(report, shape=[10**12]),
    "no base64": lambda report: changed_tensors(report, content="%%%"),
    "pickle": lambda report: changed_tensors(
        report, content=base64.b64encode(pickle.dumps(Bomb())).decode()
    ),
}


@pytest.mark.parametrize("forged", FORGED)
def test_judge_rejects_a_forged_report(forged, monkeypatch):
    honest = reported(SPLIT, TASKS["split_heads"].right, monkeypatch)
    assert judge.judge(SPLIT, honest).ok
    assert not judge.judge(SPLIT, FORGED[forged](honest)).ok


@pytest.mark.parametrize("given", [{"tuple": [2, 3, 4]}, {"dict": []}, {}, None, "7", [[[]]]])
def test_judge_rejects_a_forged_prediction(given):
    id = next(id for id, asked in EXERCISES.items() if isinstance(asked, Question))
    assert not judge.judge(id, {"kind": "ok", "given": given}).ok


def test_message_of_a_student_is_escaped():
    report = {"kind": "call", "message": "<script>alert(1)</script>", "note": "x" * 10_000}
    outputs = [new_output("display_data", data={grading.KIND: report})]
    shown = grading.Grade()._judged(SPLIT, outputs)
    page = shown[0].data["text/html"]
    assert "<script" not in page and "&lt;script" in page
    assert len(page) < 9_000
    assert shown[1].output_type == "error"


@pytest.mark.parametrize(
    "html",
    [
        "<script>alert(1)</script>",
        "<img src='https://example.org/pixel.png' onerror=alert(1)>",
        "<svg onload=alert(1)></svg><a href='javascript:alert(1)'>on</a>",
        "<div style='position:fixed;top:0'>over all</div>",
        "<form action='https://example.org'><input></form>",
        "<style>@import url(https://example.org)</style>",
        "<div style='background:url&#40;/hub/logout&#41;'>.</div>",
        "<div style='border:1px solid;background:image-set(\"/hub/logout\" 1x)'>.</div>",
    ],
)
def test_html_output_of_a_student_loads_and_runs_nothing(html):
    data = {"text/html": html, "text/plain": "plain", "application/javascript": "alert(1)"}
    (output,) = grading.cleaned([new_output("display_data", data=data)])
    assert set(output.data) == {"text/plain", "text/html"}
    left = output.data["text/html"]
    for word in ("<script", "onerror", "onload", "example.org'", "<a", "position", "<form", "<svg"):
        assert word not in left
    assert "src=" not in left and "logout" not in left


def test_html_output_of_the_course_stays():
    html = '<table style="color: rgba(1,2,3,.5);"><tbody><tr><td>1</td></tr></tbody></table>'
    html += '<img alt="a" src="data:image/svg+xml;base64,AAAA">'
    (output,) = grading.cleaned([new_output("display_data", data={"text/html": html})])
    assert output.data["text/html"] == html


# ---- what is submitted ------------------------------------------------------------------------


def nested(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(1_100):  # deeper than Python's recursion limit
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


REFUSED = {
    "link": lambda folder: (folder / "b.ipynb").symlink_to("/etc/passwd"),
    "linked folder": lambda folder: (folder / "all").symlink_to("/etc"),
    "pipe": lambda folder: os.mkfifo(folder / "pipe"),
    "large file": lambda folder: os.truncate(folder / "a.ipynb", 200_000_000),
    "large sum": lambda folder: [
        (folder / f"{n}").touch() or os.truncate(folder / f"{n}", 4_900_000) for n in range(5)
    ],
    "many files": lambda folder: [(folder / f"{n}").touch() for n in range(grading.MOST_FILES)],
    "deep folders": nested,
    "file of another account": lambda folder: None,
}


@pytest.mark.parametrize("refused", [None, *REFUSED])
def test_collect_copies_files_and_refuses_everything_else(tmp_path, refused, monkeypatch):
    source, target = tmp_path / "from", tmp_path / "to"
    (source / "data").mkdir(parents=True)
    (source / "a.ipynb").write_text("{}")
    (source / "data" / "x.csv").write_text("1")
    errors = []
    log = SimpleNamespace(error=lambda text, *values: errors.append(text % values))
    if refused:
        REFUSED[refused](source)
    if refused == "file of another account":
        owner = SimpleNamespace(st_uid=os.geteuid() + 1)
        monkeypatch.setattr(grading.os, "stat", lambda path, *, stat=os.stat, **options: (
            owner if str(path) == str(source) and not options else stat(path, **options)
        ))  # fmt: skip
    grading.Collect.do_copy(SimpleNamespace(log=log), str(source), str(target))
    monkeypatch.undo()
    assert target.exists() == (not refused)
    assert errors == [] if not refused else errors[0].startswith(f"Not collected: {source}: ")
    if not refused:
        assert (target / "data" / "x.csv").read_text() == "1"
    subprocess.run(["rm", "-rf", source], check=True)


def test_no_name_in_the_exchange_stops_collection_or_stands_for_another_student(
    course, api, tmp_path, monkeypatch
):
    me = pwd.getpwuid(os.geteuid()).pw_name
    inbound = tmp_path / "twelve" / "inbound"
    inbound.mkdir(parents=True)
    day = "2026-11-23 12:00:00.000000 UTC"
    names = [
        f"{me}+06_small+{day}+a", f"bob+06_small+{day}+b", f"{me}+06_small+soon",
        f"+06_small+{day}+c", "bob+06_small+" + "a" * 240, f".bob+06_small+{day}+b",
    ]  # fmt: skip
    for name in names:
        (inbound / name).mkdir()
        (inbound / name / "06_small.ipynb").write_text("{}")
        (inbound / name / "timestamp.txt").write_text(day)
    later = f"{me}+06_small+{day.replace('2026', '2027')}+d"
    (inbound / later).symlink_to(course / "source" / "06_small")
    monkeypatch.setattr(api.config.Exchange, "root", str(tmp_path), raising=False)
    result = api.collect("06_small")
    assert result["success"], result
    assert (course / "submitted" / me / "06_small" / "06_small.ipynb").read_text() == "{}"
    assert not (course / "submitted" / "bob" / "06_small").exists()
    assert result["log"].count("Not collected") == 5
    assert api.collect("06_small", update=True)["success"]
    shutil.rmtree(course / "submitted" / me)


# ---- the sandbox ------------------------------------------------------------------------------

# Runs a program in a sandbox, and prints what the program wrote into its shared file.
DRIVER = """
import subprocess, sys
from pathlib import Path
from classroom import sandbox
if len(sys.argv) > 4:
    sandbox.MEMORY = int(sys.argv[4])
with sandbox.Sandbox(Path(sys.argv[1])) as box:
    said = box.shared / "said"
    said.touch()
    said.chmod(0o666)
    # A process that outlives the sandbox must not hold the pipes of this test.
    program = subprocess.Popen(box.command([sys.executable, "-c", sys.argv[2], str(said)]),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        program.wait(float(sys.argv[3]))
    except subprocess.TimeoutExpired:
        program.kill()
    print(said.read_text(), flush=True)
"""
START = "import os, sys, time\nsaid = open(sys.argv[1], 'w', 1)\nsys.stdout = said\n"


@pytest.fixture(params=["root", "account"])
def run_sandboxed(request):
    """Return a function that runs a program in a sandbox, as root or as an unprivileged account."""
    if not shutil.which("bwrap"):
        pytest.skip(sandbox.ADVICE)
    is_root, python = os.geteuid() == 0, sys.executable
    if request.param == "root" and not is_root:
        pytest.skip("only root can be root")
    become = []
    if request.param == "account" and is_root:
        # Other accounts may be unable to read root's Python and code.
        python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3")
                       if Path(p).exists()), None)  # fmt: skip
        if not python:
            pytest.skip("there is no Python for all accounts")
        become = ["setpriv", "--reuid=61000", "--regid=61000", "--clear-groups", "--no-new-privs"]
    with tempfile.TemporaryDirectory() as folder:
        code = Path(folder)
        for name in ("classroom/__init__.py", "classroom/sandbox.py", "classroom/limits.py"):
            (code / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, code / name)
        for name in ("src/twelve", "submission"):
            (code / name).mkdir(parents=True)
        (code / "src/twelve/__init__.py").touch()
        (code / "submission/notes.txt").write_text("mine")
        subprocess.run(["chmod", "-R", "a+rX", code], check=True)

        def run(program: str, seconds: float = 20, *arguments: str) -> str:
            words = [str(code / "submission"), START + program, str(seconds), *arguments]
            done = subprocess.run(
                [*become, python, "-c", DRIVER, *words], cwd=code, text=True, capture_output=True,
                env={"PYTHONPATH": f"{code}:{code}/src", "PATH": os.environ["PATH"],
                     "SECRET": "token", "HOME": "/nonexistent"},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        yield run


SPY = """
import socket
def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return type(error).__name__
for path in {paths!r}:
    print(attempt(lambda: open(path, "rb").read(1)))
print(attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 2)))
print(attempt(lambda: os.kill({pid}, 9)), sorted(os.environ))
print([pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) > 3])
print(attempt(lambda: b"SECRET" in open("/proc/1/environ", "rb").read()))
print(open("notes.txt").read(), attempt(lambda: open("notes.txt", "w").close()))
"""


def test_sandbox_shows_no_file_process_network_or_variable_of_the_teacher(run_sandboxed, tmp_path):
    paths = ["/etc/shadow", "/etc/passwd", str(tmp_path), str(Path.home() / ".bashrc"), __file__]
    with socket.create_server(("127.0.0.1", 0)) as server:
        spy = SPY.format(paths=paths, port=server.getsockname()[1], pid=os.getpid())
        lines = run_sandboxed(spy).splitlines()
    assert lines[:5] == ["FileNotFoundError"] * 5
    assert lines[5] in ("ConnectionRefusedError", "OSError")
    known = [*sandbox.ENVIRONMENT, "PWD", "PYTHONPATH", "LC_CTYPE", "SHLVL", "_"]
    assert lines[6].startswith("ProcessLookupError")
    assert set(json.loads(lines[6].partition(" ")[2].replace("'", '"'))) <= set(known)
    assert lines[7] == "[]"
    assert lines[8] in ("False", "PermissionError")
    assert lines[9] == "mine None"


LIMITED = {
    "forks": ("born = 0\ntry:\n    while os.fork(): born += 1\n    time.sleep(9)\n"
              "except OSError as error: print(born < 64, type(error).__name__)",
              "True BlockingIOError"),
    "memory": ("try: bytearray(5 << 30)\nexcept MemoryError: print('no memory')", "no memory"),
    "files": ("try:\n    for n in range(9): open(f'big{n}', 'wb').write(bytes(20 << 20))\n"
              "except OSError as error: print(n, error.strerror)", "3 No space left on device"),
    "system": ("for path in ('/x', '/usr/x', '/dev/x', '/proc/sys/kernel/hostname'):\n"
               "    try: open(path, 'w').write('x')\n"
               "    except OSError as error: print(error.errno in (1, 13, 30))",
               "True\nTrue\nTrue\nTrue"),
}  # fmt: skip


@pytest.mark.parametrize("attack", LIMITED)
def test_sandbox_limits_memory_processes_and_files(run_sandboxed, attack):
    program, printed = LIMITED[attack]
    assert run_sandboxed(program) == printed


@pytest.mark.skipif(not limits.memory_groups(), reason="control groups cannot be written")
def test_memory_group_limits_memory_that_no_process_owns(run_sandboxed, request):
    if "account" in request.node.name:
        pytest.skip("only root can make control groups")
    fill = (
        "print('begun')\nparts = []\nfor _ in range(8):\n"
        "    parts.append(os.memfd_create('x'))\n"
        "    for _ in range(32): os.write(parts[-1], bytes(1 << 20))\nprint('filled')"
    )
    assert run_sandboxed(fill, 20, str(100 << 20)) == "begun"
    assert run_sandboxed(fill) == "begun\nfilled"


# Each program leaves a process that would outlive it (FAULTS, G1).
OUTLIVES = {
    "daemon": "if os.fork(): sys.exit()\nos.setsid()\nif os.fork(): sys.exit()\ntime.sleep(9999)",
    "deaf": "import ctypes, signal, threading\nctypes.CDLL(None).prctl(1, 0)\nos.setsid()\n"
    "for signum in range(1, 32):\n    try: signal.signal(signum, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass\n"
    "threading.Thread(target=lambda: time.sleep(9999)).start()\n"
    "try:\n    while os.fork(): pass\nexcept OSError: pass\ntime.sleep(9999)",
    # Without root, process 1 of the PID namespace runs as the same user as the program. Inject
    # prctl(PR_SET_PDEATHSIG, 0), so that process 1 survives its parent (x86-64).
    "debugger": "import ctypes\nlibc = ctypes.CDLL(None)\n"
    "libc.ptrace.argtypes = [ctypes.c_long] * 4\n"
    "old, new = (ctypes.c_ulonglong * 27)(), (ctypes.c_ulonglong * 27)()\n"
    "ask = lambda what, at=0: libc.ptrace(what, 1, 0, at)\n"
    "if os.fork(): time.sleep(9999)\n"
    "if ask(16) == 0:\n"
    "    os.waitpid(1, 1 << 30); ask(12, ctypes.addressof(old)); new[:] = old[:]\n"
    "    new[10], new[13], new[14], new[15], new[16] = 157, 0, 1, 2**64 - 1, old[16] - 2\n"
    "    ask(13, ctypes.addressof(new)); ask(9); os.waitpid(1, 1 << 30)\n"
    "    ask(12, ctypes.addressof(new)); print(new[10])\n"
    "    ask(13, ctypes.addressof(old)); ask(17)\n"
    "time.sleep(9999)",
}


def all_end(marker: str) -> bool:
    """Return whether all processes with a marker in the command line end within five seconds."""
    for _ in range(50):
        if subprocess.run(
            ["pgrep", "-r", "D,R,S,T", "-f", marker], stdout=subprocess.DEVNULL
        ).returncode:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("attack", OUTLIVES)
def test_no_process_outlives_the_sandbox(run_sandboxed, attack):
    marker = f"marker-{os.getpid()}-{time.time_ns()}"
    run_sandboxed(f"{OUTLIVES[attack]}  # {marker}", 3)
    assert all_end(marker)


def test_sandbox_folder_is_removed_without_following_links(run_sandboxed, tmp_path):
    with tempfile.TemporaryDirectory() as other:
        os.chmod(other, 0o777)
        before = {path.name for path in Path(tempfile.gettempdir()).glob("grade*")}
        run_sandboxed(
            "os.chdir(os.path.dirname(sys.argv[1])); os.mkdir('d')\n"
            f"os.symlink({other!r}, 'd/x'); os.chmod('d', 0o500)\n"
            "for _ in range(1100): os.mkdir('e'); os.chdir('e')"
        )
        assert os.stat(other).st_mode & 0o777 == 0o777
        after = {path.name for path in Path(tempfile.gettempdir()).glob("grade*")}
    assert after <= before


# Starts a sandbox and is killed.
KILLED = """
import os, pathlib, subprocess, sys
from classroom.sandbox import Sandbox
box = Sandbox(pathlib.Path(sys.argv[1])).__enter__()
program = [sys.executable, "-c", "import sys, time; open(sys.argv[1], 'w'); time.sleep(999)"]
subprocess.Popen(box.command([*program, str(box.shared / "begun"), sys.argv[2]]))
while not (box.shared / "begun").exists():
    pass
os.kill(os.getpid(), 9)
"""


@NEEDS_BWRAP
def test_sandbox_ends_with_a_grader_that_is_killed(tmp_path):
    marker = f"marker-{os.getpid()}-{time.time_ns()}"
    words = [sys.executable, "-c", KILLED, str(tmp_path), marker]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == -9, done.stderr
    assert all_end(marker)


@pytest.mark.parametrize(
    ("bwrap", "message"),
    [
        ("", r"nothing was graded: bwrap .* apt install bubblewrap"),
        ("#!/bin/sh\necho 'No permissions' >&2", r"No permissions.*Root can always run"),
    ],
)
def test_without_a_sandbox_nothing_is_graded(monkeypatch, tmp_path, bwrap, message):
    if bwrap:
        (tmp_path / "bwrap").write_text(bwrap)
        (tmp_path / "bwrap").chmod(0o755)
    else:
        monkeypatch.setattr(sandbox.shutil, "which", lambda name: None)
    environment = sandbox.ENVIRONMENT | {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    monkeypatch.setattr(sandbox, "ENVIRONMENT", environment)
    monkeypatch.setenv("PATH", environment["PATH"])
    sandbox.check.cache_clear()
    with pytest.raises(RuntimeError, match=message):
        grading.Grade().preprocess(page_of(), {"metadata": {"path": "."}})
    sandbox.check.cache_clear()


# ---- nbgrader ---------------------------------------------------------------------------------


def page_of(*answers: str) -> NotebookNode:
    """Build a notebook that asks for split_heads once for each answer.

    Args:
        answers: The sources of the answer cells.
    """
    cells = [new_markdown_cell("# Heads", id="title")]
    for number, source in enumerate(answers):
        for cell in (answer_cell(SPLIT, source), check_cell(SPLIT, f"split_{number}")):
            cell.id = cell.metadata.nbgrader.grade_id = f"{number}-{cell.id}"
            cells.append(cell)
    return new_notebook(cells=cells, metadata={"kernelspec": KERNEL})


def right(number: int) -> str:
    return RIGHT.replace("split", f"split_{number}")


def answer(number: int, before: str = "", inside: str = "return projected") -> str:
    """Return a wrong answer, with an attack before or inside the function."""
    body = "\n".join(f"    {line}" for line in inside.splitlines())
    return f"{before}\ndef split_{number}(projected, num_heads):\n{body}"


# Attacks of a student on the checker in the student's own process.
PATCH = """
import os, runpy, sys, torch, twelve_lab.check, twelve_lab.check.stages as stages
from IPython.display import display
from twelve_lab.check import TASKS, Verdict
fine = lambda *_: Verdict(True, "ok", None, "Right.")
twelve_lab.check.diagnose = sys.modules["twelve_lab.check.diagnose"].diagnose = fine
twelve_lab.check.check = check = lambda *_: print("✓ right.")
torch.allclose = torch.equal = torch.isclose = stages.close = lambda *a, **k: torch.tensor(True)
TASKS["split_heads"].right, TASKS["split_heads"].cases = (lambda x, num_heads: x), (lambda: {})
sys.modules["twelve_lab.check.attempt"].expected.cache_clear()
display({"application/vnd.twelve.answer+json": {"kind": "ok", "calls": [[], []]}}, raw=True)
runpy.run_path = lambda *_: {"hand_over": lambda *a: print("✓")}
get_ipython().showtraceback = lambda *a, **k: None
get_ipython().display_formatter.format = lambda *a, **k: ({"text/plain": "1.0"}, {})
os.environ["TWELVE_STRICT"] = "0"
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> Path:
    """Write a course with notebooks to attack."""
    folder = tmp_path_factory.mktemp("course")
    notebooks = tmp_path_factory.mktemp("notebooks")
    nbformat.write(small_notebook(), notebooks / "06_small.ipynb")
    write(folder, notebooks)
    stub = "split_{0} = ...\n### BEGIN SOLUTION\n### END SOLUTION"
    (folder / "source" / "three").mkdir()
    page = page_of(*(stub.format(number) for number in range(3)))
    nbformat.write(page, folder / "source" / "three" / "three.ipynb")
    return folder


@pytest.fixture(scope="module")
def api(api):
    """Generate the assignment that most tests attack."""
    assert api.generate_assignment("06_small")["success"]
    return api


@pytest.fixture
def grade(course, api):
    """Submit a notebook and grade it; return its points by check, and its cells."""

    def grade(name, notebook, student, seconds=60):
        api.config.Grade.timeout = api.config.Grade.iopub_timeout = seconds
        if not (course / "release" / name).exists():
            assert api.generate_assignment(name)["success"]
        folder = course / "submitted" / student / name
        folder.mkdir(parents=True)
        nbformat.write(notebook, folder / f"{name}.ipynb")
        result = api.autograde(name, student)
        assert result["success"], result.get("error") or result["log"]
        with api.gradebook as book:
            grades = book.find_submission_notebook(name, name, student).grades
            points = [g.auto_score for g in sorted(grades, key=lambda grade: grade.name)]
        done = course / "autograded" / student / name / f"{name}.ipynb"
        return points, nbformat.read(done, as_version=4).cells

    return grade


# Answers to the second exercise, and whether the third exercise is still reached.
ENDS = {
    OUTLIVES["deaf"]: False,
    "os._exit(0)": False,
    "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)": False,
    "while True: print('x' * 1_000_000)": False,
    "while True: time.sleep(1)": True,
    "torch.zeros(1 << 40)": True,
    "sys.exit()": True,
}


@pytest.mark.weekly
@NEEDS_BWRAP
@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_ends_the_kernel_or_hangs_keeps_the_points_above(grade, end):
    attack = answer(1, f"import os, signal, sys, time, torch\n{end}")
    student = f"ends{[*ENDS].index(end)}"
    points, cells = grade("three", page_of(right(0), attack, right(2)), student, seconds=30)
    assert points == [1.0, 0.0, float(ENDS[end])]
    if not ENDS[end]:
        why = "This check was not reached: a cell above ended Python, or ran too long."
        assert cells[-1].outputs[0].evalue == why
    left = subprocess.run(["pgrep", "-f", "ipykernel.*kernel[.]json"], stdout=subprocess.PIPE)
    assert not left.stdout


@pytest.mark.weekly
@NEEDS_BWRAP
def test_unreadable_submissions_leave_the_class_alone_and_points_come_from_the_gradebook(
    course, api, tmp_path
):
    page = solved(small_notebook())
    asked, its_check, other, other_check = page.cells[2:6]
    # 100 points everywhere, one check removed, one cell twice, invalid metadata.
    its_check.metadata.nbgrader.update(points=100, locked=False, solution=True)
    its_check.source = "print('✓')"
    asked.metadata.nbgrader.update(grade=True, points=100, locked=True)
    other.cell_type = "markdown"
    del other["outputs"], other["execution_count"]
    page.cells.remove(other_check)
    page.cells.insert(2, copy.deepcopy(its_check))
    page.cells[2]["id"] = "twice"
    page.cells[0].source += "\n```\n<script>alert(1)</script>"
    page.cells[0].metadata["nbgrader"] = ["grade"]
    page.cells[-1].metadata["nbgrader"] = {"grade": True, "grade_id": "mine", "points": 100}
    whole = nbformat.writes(solved(small_notebook()))
    pages = {"mallory": nbformat.writes(page), "broken": '{"cells": [', "huge": whole + " " * 6**9}
    for student, content in pages.items():
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
        points = {s.student_id: s.score for s in book.assignment_submissions("06_small")}
    assert points == {"mallory": 2, "broken": 0, "huge": 0, "linked": 0}
    done = course / "autograded" / "mallory" / "06_small" / "06_small.ipynb"
    cells = nbformat.read(done, as_version=4).cells
    # A student's Markdown is shown as plain text.
    assert cells[0].source.startswith("````\n# 06 Small") and cells[0].source.endswith("\n````")
    assert cells[-1].source == 'check("06-merge-heads", merge)'


@pytest.mark.weekly
@NEEDS_BWRAP
@pytest.mark.parametrize("in_sandbox", [True, False])
def test_patch_of_the_checker_earns_no_point(grade, api, monkeypatch, in_sandbox):
    monkeypatch.setattr(api.config.Grade, "sandbox", in_sandbox, raising=False)
    answers = right(0), answer(1, PATCH), "split_2 = ..."
    points, _ = grade("three", page_of(*answers), f"eve{in_sandbox}")
    assert points == [1.0, 0.0, 0.0]


# ---- answers that borrow from the course ------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from twelve.attention import attention as split", ["twelve.attention.attention"]),
        ("def split(x, n):\n    return TASKS['a'].right(x)", ["twelve_lab.check.TASKS"]),
        ("import twelve_lab as lab\nsplit = lab.check.TASKS", ["twelve_lab.check.TASKS"]),
        ("split = __import__('twe' + 'lve').nn", ["__import__"]),
        ("from einops import rearrange\ndef split(x, n): return rearrange(x, 'a b')", []),
        ("split = (", []),
    ],
)
def test_borrowed_lists_what_an_answer_takes_from_the_course(source, names):
    ours = solved(small_notebook(), marked=True)
    ours.cells[1].source += "\nfrom twelve_lab.check import TASKS"
    theirs = copy.deepcopy(ours)
    assert borrowed(theirs, ours) == {}
    theirs.cells[2].source = source
    assert borrowed(theirs, ours) == ({SPLIT: names} if names else {})
    theirs.cells.append(new_code_cell(source))
    assert borrowed(theirs, ours) == ({SPLIT: names, "cell 8": names} if names else {})


def test_borrowed_report_names_students_and_prints_no_text_of_theirs(tmp_path):
    ours, theirs = solved(small_notebook(), marked=True), solved(small_notebook())
    theirs.cells[4].source = "from twelve import Transformer as merge"
    forged = copy.deepcopy(theirs)
    forged.cells[4].metadata.nbgrader.grade_id = "x\nbob  06_small  06-merge-heads: x-answer"
    pages = {
        "source": nbformat.writes(ours), "submitted/ann": nbformat.writes(theirs),
        "submitted/bob": nbformat.writes(solved(small_notebook())), "submitted/eve": "{",
        "submitted/fay": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
        "submitted/gus": nbformat.writes(forged),
    }  # fmt: skip
    for folder, content in pages.items():
        (tmp_path / folder / "06_small").mkdir(parents=True)
        (tmp_path / folder / "06_small" / "06_small.ipynb").write_text(content)
    lines = report(tmp_path).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "ann  06_small  06-merge-heads", "eve  06_small", "fay  06_small", "gus  06_small  cell 5",
    ]  # fmt: skip
    assert lines[0].endswith(": twelve.Transformer")
