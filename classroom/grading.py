"""Grades with nbgrader what students handed in, and believes nothing that their code says.

A notebook runs in a kernel behind walls (`classroom.walls`): it sees no file of the teacher or of
another student, no other process and no network. In place of a check it runs the answer on the
cases of the exercise (`classroom.answering`) and hands over numbers. They are read as bytes and
compared here, in a process that runs no line of a student's, with the teacher's own cases, checker
and right answers. tools/nbgrader_config.py puts all this into nbgrader.
"""

import ast
import base64
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

import bleach
import nbformat
import torch
import zmq
import zmq.asyncio
from bleach.css_sanitizer import CSSSanitizer
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.preprocessors import Execute, NbGraderPreprocessor
from torch import Tensor
from traitlets import Bool, Integer

from classroom.answering import KIND, runs
from twelve_lab.check import Verdict, prediction
from twelve_lab.check.attempt import Attempt, expected
from twelve_lab.check.compare import Outcome, exact_on_cpu
from twelve_lab.check.diagnose import exercise, first_fault, right
from twelve_lab.check.gradients import gradient
from twelve_lab.check.reply import as_card, as_text
from twelve_lab.check.stages import Submission
from twelve_lab.exercises.declare import Question, Task

HERE = Path(__file__).resolve().parent
WALLS, ANSWERING = HERE / "walls.py", HERE / "answering.py"
HOME = "/home/student"
# Root becomes an account that nobody has, one for each grading: what one answer starts counts
# against no other. Linux keeps these numbers for programs.
NOBODY = 61_184
# What the kernel may take. Threads count as processes, and a kernel has about ten.
LIMITS = {"RLIMIT_AS": 4 << 30, "RLIMIT_NPROC": 64, "RLIMIT_FSIZE": 64 << 20, "RLIMIT_CORE": 0}
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/sbin", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts",
)  # fmt: skip
# A notebook of ours has 300 kB with its outputs.
LARGEST = 5_000_000
# One message of a kernel, in bytes, and how many may wait here.
MESSAGE, WAITING = 8 << 20, 64
# All that a notebook says.
LONGEST = 32 << 20
_KINDS = (
    "not started", "call", "type", "rank", "axes swapped", "shape", "input changed", "nan or inf",
    "mistake", "misconception", "numbers", "gradient",
)  # fmt: skip
_DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
        "bool",
    )
}  # fmt: skip
_TAGS = (
    "div span section p br b i em strong small sub sup code pre ul ol li table caption thead tbody "
    "tr td th figure figcaption details summary img h1 h2 h3 h4 hr"
).split()
# Its text would stay on the page.
_STYLE = re.compile(r"<style\b.*?</style>", re.DOTALL | re.IGNORECASE)
_ATTRIBUTES = "style class alt colspan rowspan width height title".split()
_STYLES = (
    "align-items background background-color border border-bottom border-collapse border-left "
    "border-radius border-right border-spacing border-top box-sizing color display flex font "
    "font-family font-size font-style font-variant-numeric font-weight gap height line-height "
    "margin margin-left margin-right margin-top margin-bottom max-width min-width opacity padding "
    "text-align text-decoration vertical-align white-space width"
).split()


class Restore(NbGraderPreprocessor):
    """Give every cell back what the gradebook knows of it, and take the rest of the marks away."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Restore marks, points, and the checks that are missing.

        Args:
            nb: As it was handed in.
            resources: Of nbgrader.

        Raises:
            ValueError: If a link or something very large was handed in.
        """
        unsafe = refused(Path(resources["metadata"]["path"]))
        if unsafe:
            raise ValueError(unsafe)
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as book:
            notebook = book.find_notebook(about["notebook"], about["assignment"])
            due = {one.name: _marks(one, notebook) for one in notebook.source_cells}
            sources = {one.name: one.source for one in notebook.source_cells}
        course = self.parent.parent.coursedir
        source = course.format_path(course.source_directory, ".", about["assignment"])
        path = Path(source) / f"{about['notebook']}.ipynb"
        ours = {cell.source for cell in nbformat.read(path, as_version=4).cells}
        found = set()
        # Of a cell that was copied, the last one counts, as in nbgrader.
        for cell in reversed(nb.cells):
            said = cell.metadata.pop("nbgrader", None)
            cell.pop("attachments", None)
            cell["id"] = re.sub(r"[^\w-]", "", str(cell.get("id", "")))[:64] or "cell"
            name, kind = said.get("grade_id") if isinstance(said, dict) else None, cell.cell_type
            if isinstance(name, str) and name in due.keys() - found:
                cell.metadata["nbgrader"], kind = NotebookNode(due[name]), due[name]["cell_type"]
                found.add(name)
            # A page of a student would run where the teacher reads it: it is shown as text.
            if kind != "code" and cell.source not in ours:
                fence = "`" * max(len(one) + 1 for one in ["``", *re.findall("`+", cell.source)])
                cell.cell_type, cell.source = "markdown", f"{fence}\n{cell.source}\n{fence}"
        for name, marks in due.items():
            if marks["grade"] and name not in found:
                self.log.warning("The check %s was taken out; it is put back at the end", name)
                cell = new_code_cell(sources[name], metadata={"nbgrader": marks})
                nb.cells.append(cell)
        return nb, resources


def _marks(cell: Any, notebook: Any) -> dict[str, Any]:
    """Write the metadata of a cell from the gradebook."""
    points = {one.name: one.max_score for one in notebook.grade_cells}
    marks = {
        "schema_version": 3,
        "grade_id": cell.name,
        "cell_type": cell.cell_type,
        "locked": cell.locked,
        "checksum": cell.checksum,
        "grade": cell.name in points,
        "solution": cell.name in {one.name for one in notebook.solution_cells},
        "task": cell.name in {one.name for one in notebook.task_cells},
    }
    return marks | ({"points": points[cell.name]} if marks["grade"] else {})


class Walled(AsyncKernelManager):
    """A kernel behind walls, spoken to through sockets in a folder that both sides see.

    Args:
        folder: A new folder, for this kernel alone.
        handed_in: What lies in its home.
        account: The number of the account that root becomes.
    """

    def __init__(self, folder: Path, handed_in: Path, account: int | None) -> None:
        shared = folder / "shared"
        shared.mkdir()
        context = zmq.asyncio.Context()
        # A kernel that says too much is cut off, and fills no memory here.
        context.setsockopt(zmq.MAXMSGSIZE, MESSAGE)
        context.setsockopt(zmq.RCVHWM, WAITING)
        super().__init__(
            context=context,
            transport="ipc",
            ip=str(shared / "kernel"),
            connection_file=str(shared / "kernel.json"),
        )
        self.folder, self.handed_in, self.account = folder, handed_in, account

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Write the command that starts the kernel.

        Args:
            extra_arguments: For the kernel.
        """
        kernel = ["-m", "ipykernel_launcher", "-f", self.connection_file]
        command = [sys.executable, *kernel, *(extra_arguments or [])]
        return walled(self.folder, self.handed_in, self.account, command)


def walled(folder: Path, handed_in: Path, account: int | None, command: list[str]) -> list[str]:
    """Write the command that starts a program behind walls.

    Args:
        folder: With an empty folder `root`, which is made, and `shared`, which both sides see.
        handed_in: What lies in the program's home.
        account: The number of the account that root becomes; None where root does not start this.
        command: The program and its arguments.
    """
    (folder / "root").mkdir(exist_ok=True)
    code = Path(find_spec("twelve").origin).parents[1]
    environment = {
        "HOME": HOME,
        "USER": "student",
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(code),
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "OMP_NUM_THREADS": "1",
        "TWELVE_DEVICE": "cpu",
        "TWELVE_PROGRESS": "",
    }
    seen = [*SYSTEM, sys.prefix, sys.base_prefix, str(code), str(ANSWERING)]
    rules = [
        str(folder / "root"), str(folder / "shared"), seen, HOME, str(handed_in), environment,
        account, LIMITS, command,
    ]  # fmt: skip
    return [*apart(account), sys.executable, "-I", str(WALLS), json.dumps(rules)]


def apart(account: int | None) -> list[str]:
    """Write the command that gives a program namespaces of its own.

    Args:
        account: As in `walled`.
    """
    # It ends with whoever started it, however that ends.
    words = "setpriv --pdeathsig KILL unshare --fork --kill-child --pid --mount --net --ipc".split()
    return words + ["--user", "--map-current-user", "--keep-caps"] * (account is None)


@cache
def tried(account: int | None) -> str:
    """Try whether this machine has walls.

    Args:
        account: The number of the account that root becomes.

    Returns:
        What is wrong; "" if nothing is.
    """
    needed = "import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "shared").mkdir()
        (folder / "handed in").mkdir()
        command = [sys.executable, "-c", needed, "ipykernel", "twelve_lab"]
        try:
            done = subprocess.run(
                walled(folder, folder / "handed in", account, command),
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode and not done.stderr.strip():
        return "behind them, this Python does not find ipykernel and twelve_lab"
    return done.stderr.strip() if done.returncode else ""


class Grade(Execute):
    """Run a notebook behind walls, and judge its checks here."""

    walls = Bool(
        True,
        help="Whether answers run behind walls. If not, they run with all that your account may.",
    ).tag(config=True)
    total = Integer(300, help="Seconds for one notebook, all cells together.").tag(config=True)
    # What a cell printed may come late where many things run: four seconds were too few.
    iopub_timeout = Integer(30, help=Execute.iopub_timeout.help).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Run every cell, and write what came of it below.

        Args:
            nb: With the teacher's checks.
            resources: Of nbgrader.

        Raises:
            RuntimeError: If there are no walls, or no kernel starts behind them.
        """
        account = None if os.geteuid() else NOBODY + os.getpid() % 4_000
        if self.walls and (wrong := tried(account)):
            raise RuntimeError(
                f"Answers cannot be run behind walls here ({wrong}), and so nothing was graded. "
                "docs/teaching.md says what helps."
            )
        run = nbformat.from_dict(nb)
        asked = {at: one for at, cell in enumerate(nb.cells) if (one := asked_in(cell))}
        for at, (id, given) in asked.items():
            run.cells[at].source = (
                f'__import__("runpy").run_path({str(ANSWERING)!r})["hand_over"]'
                f"({id!r}, lambda: {given})"
            )
        self._heard, self._ended, end = 0, None, monotonic() + self.total
        self.timeout_func = lambda cell: int(max(1, min(self.timeout, end - monotonic())))
        with tempfile.TemporaryDirectory(prefix="grade") as name:
            folder = Path(name)
            manager = None
            if self.walls:
                handed_in = folder / "handed in"
                shutil.copytree(resources["metadata"]["path"], handed_in)
                _lend_fonts(handed_in)
                manager = Walled(folder, handed_in, account)
            try:
                super().preprocess(run, resources, manager)
            finally:
                if manager:  # it is ours, and nbclient leaves it alone
                    self._cleanup_kernel()
                    manager.context.destroy(linger=0)
        code = [at for at, cell in enumerate(nb.cells) if cell.cell_type == "code"]
        for count, at in enumerate(code, 1):
            cell, heard = nb.cells[at], run.cells[at].outputs
            cell.outputs = self._judged(asked[at][0], heard) if at in asked else [*cleaned(heard)]
            cell.execution_count = count
        return nb, resources

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> Any:
        """Run a cell, unless one above ended it all.

        Args:
            cell: The cell.
            resources: Of nbgrader.
            index: Its place.
        """
        if self._ended is None:
            try:
                return super().preprocess_cell(cell, resources, index)
            # Whatever a kernel does that was taken over by its student.
            except Exception as error:
                self.log.warning("Cell %s ended the notebook: %.200r", index + 1, error)
                self._ended = index
        return cell, resources

    async def _async_check_alive(self) -> None:
        """Let whoever still waits for a kernel that was given up wait no longer."""
        if self.kc is None:
            raise DeadKernelError("given up")
        await super()._async_check_alive()

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
        """Read what a kernel says, as long as it is not too much.

        Args:
            msg: Of the kernel.
            cell: That runs.
            cell_index: Its place.

        Raises:
            RuntimeError: If it says too much.
        """
        self._heard += len(json.dumps(msg["content"], default=str))
        if self._heard > LONGEST:
            raise RuntimeError("the notebook says more than is read")
        return super().process_message(msg, cell, cell_index)

    def _judged(self, id: str, outputs: list[NotebookNode]) -> list[NotebookNode]:
        """Put what is to be said of an answer in the place of what was handed over."""
        handed = [
            one.data[KIND]
            for one in outputs
            if one.output_type == "display_data" and KIND in one.data
        ]
        kept = [one for one in cleaned(outputs) if one.output_type == "stream"]
        printed = [one for one in kept if one.name == "stdout"]
        if not handed:
            errors = [one for one in cleaned(outputs) if one.output_type == "error"]
            why = "This check was not reached: a cell above ended Python, or ran too long."
            return [*printed, *(errors[:1] or [_error(id, "call", why)])]
        verdict = judge(id, handed[0])
        card = as_card(
            f"✓ {id}: right." if verdict.ok else f"✗ {id}: not yet right.",
            verdict.message, verdict.note, ok=verdict.ok, more=[verdict.proved],
        )  # fmt: skip
        if verdict.kind == "not started":
            text = as_text(f"○ {id}:", verdict.message)
            said = new_output("stream", name="stdout", text=text + "\n")
        else:
            text = as_text(f"{'✓' if verdict.ok else '✗'} {id}:", verdict.message, verdict.note)
            said = new_output("display_data", data={"text/html": card, "text/plain": text})
        return [*printed, said, *([] if verdict.ok else [_error(id, verdict.kind)])]


def asked_in(cell: NotebookNode) -> tuple[str, str] | None:
    """Read a check of ours; what else gives points is run as nbgrader does.

    Args:
        cell: Any cell.

    Returns:
        The exercise, and what is checked, as it is written.
    """
    if cell.cell_type != "code" or not cell.metadata.get("nbgrader", {}).get("grade"):
        return None
    match parsed(cell.source):
        case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(id)), given], []))]:
            return id, ast.unparse(given)
    return None


def judge(id: str, said: Any) -> Verdict:
    """Judge an answer by the numbers that were handed over.

    Args:
        id: The exercise.
        said: What came out of the kernel: it may be anything.
    """
    asked = exercise(id)
    try:
        words = {key: str(said.get(key) or "")[:2000] for key in ("kind", "message", "note")}
        if words["kind"] != "ok":
            kind = words["kind"] if words["kind"] in _KINDS else "call"
            return Verdict(False, kind, None, words["message"], words["note"])
        if isinstance(asked, Question):
            return _predicted(asked, _read_plain(said["given"]), words["note"])
        return _computed(asked, said["calls"], words["note"])
    # It says that it is right, and that cannot even be read.
    except Exception as error:
        wrong = f"What your code handed over cannot be read ({type(error).__name__})."
        return Verdict(False, "call", None, wrong)


def _predicted(question: Question, given: Any, note: str) -> Verdict:
    with exact_on_cpu():
        wrong = prediction.fault(question, given)
        if wrong:
            return Verdict(False, wrong[0], None, wrong[1])
        return Verdict(True, "ok", None, prediction.praise(question), note)


def _computed(task: Task, calls: Any, note: str) -> Verdict:
    found = [
        Submission(task, task.right, [*_read(due, run)], due)
        for run, due in zip(
            calls, (expected(task, by_gradient=slopes) for slopes in runs(task)), strict=True
        )
    ]
    plain, *sloped = found
    wrong = first_fault(plain)
    for one in sloped:
        if not wrong and (message := gradient(one)):
            wrong = "gradient", message
    return Verdict(False, wrong[0], None, wrong[1]) if wrong else right(plain, note)


def _read(due: list[Attempt], run: Any) -> Iterator[Attempt]:
    """Read what the calls of an answer came to; the cases are ours."""
    for ours, theirs in zip(due, run, strict=True):
        if theirs["returned"] is not True or theirs["case"] != ours.case:
            raise ValueError(f'the case "{ours.case}" has no answer')
        parts = [None if x is None else _read_tensor(x) for x in theirs["answer"]]
        # A layer, and whatever else is no tensor, stays where it is: what is looked at counts.
        answer = ours.answer if parts == [None] else parts[0]
        changed = theirs["changed"]
        values = tuple(_read_tensor(x).detach() for x in theirs["values"])
        slopes = tuple(None if x is None else _read_tensor(x) for x in theirs["gradients"])
        yield Attempt(
            ours.case,
            ours.given,
            True,
            tuple(parts) if theirs["several"] is True else answer,
            Outcome(values, slopes),
            changed if changed is None else range(len(ours.given))[changed],
        )


def _read_tensor(said: Any) -> Tensor:
    dtype, content = _DTYPES[said["dtype"]], bytearray(base64.b64decode(said["content"]))
    flat = torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)
    found = flat.reshape([int(size) for size in said["shape"]])
    return found.requires_grad_() if said["asks"] is True and dtype.is_floating_point else found


def _read_plain(said: Any) -> Any:
    if isinstance(said, dict):
        ((kind, parts),) = said.items()
        return {"tuple": tuple, "set": set}[kind](_read_plain(one) for one in parts)
    return [_read_plain(one) for one in said] if isinstance(said, list) else said


def cleaned(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Leave of some outputs what can do nothing on the page of a teacher.

    Args:
        outputs: Of a student's kernel.
    """
    css = CSSSanitizer(allowed_css_properties=_STYLES)
    for one in outputs:
        if one.output_type == "stream":
            yield new_output("stream", name=str(one.name), text=str(one.text))
        elif one.output_type == "error":
            said = [str(one.ename), str(one.evalue), [str(line) for line in one.traceback]]
            yield new_output("error", ename=said[0], evalue=said[1], traceback=said[2])
        else:
            data = {}
            for kind in ("text/plain", "image/png", "image/jpeg"):
                if isinstance(one.data.get(kind), str):
                    data[kind] = one.data[kind]
            if isinstance(one.data.get("text/html"), str):
                data["text/html"] = bleach.clean(
                    _STYLE.sub("", one.data["text/html"]),
                    tags=_TAGS,
                    attributes=_may,
                    protocols=["data"],
                    css_sanitizer=css,
                    strip=True,
                )
            yield new_output(one.output_type, data=data)


def _may(tag: str, name: str, value: str) -> bool:
    """Say whether an attribute stays: a picture comes along, and is asked for from nowhere."""
    if name == "src":
        return tag == "img" and value.startswith("data:image/")
    return name in _ATTRIBUTES


def _error(id: str, kind: str, why: str = "") -> NotebookNode:
    said = why or f"{id} is not yet right ({kind})."
    return new_output("error", ename="WrongAnswer", evalue=said, traceback=[said])


def _lend_fonts(home: Path) -> None:
    """Give a home the list of fonts that matplotlib would look for, for seconds."""
    known = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "matplotlib"
    there = home / ".cache" / "matplotlib"
    there.mkdir(parents=True, exist_ok=True)
    for path in known.glob("fontlist-*.json"):
        shutil.copy(path, there)


def refused(folder: Path) -> str:
    """Say why a folder that was handed in is not taken; "" if it is.

    Args:
        folder: Of one student's assignment.
    """
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            return f"{path} is a link, or no file at all: it is not read"
        if path.is_file() and path.stat().st_size > LARGEST:
            return f"{path} is larger than {LARGEST // 1_000_000} MB: it is not read"
    return ""


def parsed(source: str) -> list[ast.stmt]:
    """Read the statements of a cell; none where it is no Python.

    Args:
        source: What stands in it.
    """
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class Collect(ExchangeCollect):
    """Collect what each student handed in; everybody may write into the folder where it lies.

    A link is refused: the teacher would follow it where no student may go.
    """

    def init_src(self) -> None:
        """Look for submissions, and hide those that are not of whom they say they are."""
        inbound = Path(self.root) / self.coursedir.course_id / "inbound"
        for path in inbound.glob(f"*+{self.coursedir.assignment_id}+*"):
            if not path.name.startswith(".") and not self._is_whose_it_says(path):
                self.log.error("Not collected, and hidden: %s", path)
                path.rename(path.with_name(f".{path.name}"))
        super().init_src()

    def _is_whose_it_says(self, path: Path) -> bool:
        try:
            about = path.lstat()
            record = self._path_to_record(str(path))
            owner = pwd.getpwuid(about.st_uid).pw_name
        # nbgrader gives up on the whole class where it cannot read one name.
        except Exception:
            return False
        return stat.S_ISDIR(about.st_mode) and record["username"] == owner

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy a submission; one that is refused leaves the others alone.

        Args:
            src: What a student handed in, who may still change it.
            dest: Its place in the course.
            log: Of nbgrader.
        """
        try:
            _copied(Path(src), Path(dest), os.stat(src).st_uid)
        except (OSError, ValueError) as error:
            shutil.rmtree(dest, ignore_errors=True)
            self.log.error("Not collected: %s: %s", src, error)


def _copied(source: Path, target: Path, owner: int) -> None:
    """Copy the files of a student that lie flat or in folders, and refuse everything else.

    A file is opened first and looked at then: nobody can put a link in its place in between.
    """
    target.mkdir(parents=True)
    for folder, below, names, at in os.fwalk(source, follow_symlinks=False):
        here = target / Path(folder).relative_to(source)
        for name in below:
            if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                raise ValueError(f"{name} is a link")
            (here / name).mkdir()
        for name in names:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
            with open(handle, "rb") as file:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
                    raise ValueError(f"{name} is no file of the student's own")
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise ValueError(f"{name} is larger than {LARGEST // 1_000_000} MB")
            (here / name).write_bytes(content)
