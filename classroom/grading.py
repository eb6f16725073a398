"""Grades submissions with nbgrader, without trusting the code of students.

A notebook runs in a kernel in a sandbox (`classroom.sandbox`). In place of a check, the kernel runs
the answer on the cases of the exercise (`classroom.answering`) and reports the results.
`classroom.judge` compares these results outside the sandbox. tools/nbgrader_config.py configures
nbgrader to use this module.
"""

import ast
import html
import json
import os
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import bleach
import nbformat
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
from nbgrader.utils import parse_utc
from traitlets import Bool, Integer

from classroom import sandbox
from classroom.answering import KIND
from classroom.judge import judge
from twelve_lab.check.reply import as_card, as_text

ANSWERING = Path(__file__).resolve().parent / "answering.py"
# Limits of a submission: bytes of a file, bytes of all files, number of files, nested folders. A
# notebook of the course has 300 kB.
LARGEST, LARGEST_SUM, MOST_FILES, DEEPEST = 5_000_000, 20_000_000, 200, 8
# Limits of a kernel: bytes of a message, number of queued messages, bytes of all messages.
MESSAGE, WAITING, LONGEST = 8 << 20, 64, 32 << 20
TAGS = (
    "div span section p br b i em strong small sub sup code pre ul ol li table caption thead tbody "
    "tr td th figure figcaption details summary img h1 h2 h3 h4 hr"
).split()
# bleach removes the tags of a style sheet but keeps its text.
STYLE = re.compile(r"<style\b.*?</style>", re.DOTALL | re.IGNORECASE)
ATTRIBUTES = "class alt colspan rowspan width height title".split()
STYLES = (
    "align-items background background-color border border-bottom border-collapse border-left "
    "border-radius border-right border-spacing border-top box-sizing color display flex font "
    "font-family font-size font-style font-variant-numeric font-weight gap height line-height "
    "margin margin-left margin-right margin-top margin-bottom max-width min-width opacity padding "
    "text-align text-decoration vertical-align white-space width"
).split()
# Any other function in a value, such as url(), could make the teacher's browser load an address.
FUNCTION = re.compile(r"\brgba?\([\d\s.,%]*\)")


class Restore(NbGraderPreprocessor):
    """Restore the grading metadata of every cell from the gradebook."""

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Restore metadata, points and missing checks.

        Args:
            nb: The submission.
            resources: The resources of nbgrader.

        Raises:
            ValueError: If the submission contains a link or a very large file.
        """
        if unsafe := refused(Path(resources["metadata"]["path"])):
            raise ValueError(unsafe)
        about = resources["nbgrader"]
        with Gradebook(about["db_url"]) as book:
            notebook = book.find_notebook(about["notebook"], about["assignment"])
            stored = {cell.name: _metadata(cell, notebook) for cell in notebook.source_cells}
            sources = {cell.name: cell.source for cell in notebook.source_cells}
        course = self.parent.parent.coursedir
        source = course.format_path(course.source_directory, ".", about["assignment"])
        path = Path(source) / f"{about['notebook']}.ipynb"
        ours = {cell.source for cell in nbformat.read(path, as_version=4).cells}
        seen = set()
        # If a student copied a cell, the last copy counts, as in nbgrader.
        for cell in reversed(nb.cells):
            theirs = cell.metadata.pop("nbgrader", None)
            cell.pop("attachments", None)
            cell["id"] = re.sub(r"[^\w-]", "", str(cell.get("id", "")))[:64] or "cell"
            name = theirs.get("grade_id") if isinstance(theirs, dict) else None
            kind = cell.cell_type
            if isinstance(name, str) and name in stored.keys() - seen:
                cell.metadata["nbgrader"] = NotebookNode(stored[name])
                kind = stored[name]["cell_type"]
                seen.add(name)
            # Student Markdown would be rendered in the teacher's browser: show it as plain text.
            if kind != "code" and cell.source not in ours:
                longest = max((len(run) for run in re.findall("`+", cell.source)), default=0)
                fence = "`" * max(3, longest + 1)
                cell.cell_type, cell.source = "markdown", f"{fence}\n{cell.source}\n{fence}"
        for name, metadata in stored.items():
            if metadata["grade"] and name not in seen:
                self.log.warning("The check %s is missing: it is restored at the end", name)
                nb.cells.append(new_code_cell(sources[name], metadata={"nbgrader": metadata}))
        return nb, resources


def _metadata(cell: Any, notebook: Any) -> dict[str, Any]:
    """Return nbgrader's metadata of a cell, based on the gradebook."""
    points = {grade.name: grade.max_score for grade in notebook.grade_cells}
    metadata = {
        "schema_version": 3,
        "grade_id": cell.name,
        "cell_type": cell.cell_type,
        "locked": cell.locked,
        "checksum": cell.checksum,
        "grade": cell.name in points,
        "solution": cell.name in {solution.name for solution in notebook.solution_cells},
        "task": cell.name in {task.name for task in notebook.task_cells},
    }
    return metadata | ({"points": points[cell.name]} if metadata["grade"] else {})


class SandboxedKernel(AsyncKernelManager):
    """A kernel in a sandbox, connected through Unix sockets in the shared folder.

    Args:
        box: The sandbox.
    """

    def __init__(self, box: sandbox.Sandbox) -> None:
        context = zmq.asyncio.Context()
        # A kernel that prints too much is disconnected before it fills our memory.
        context.setsockopt(zmq.MAXMSGSIZE, MESSAGE)
        context.setsockopt(zmq.RCVHWM, WAITING)
        super().__init__(
            context=context,
            transport="ipc",
            ip=str(box.shared / "kernel"),
            connection_file=str(box.shared / "kernel.json"),
        )
        self.box = box
        # A signal would also reach bubblewrap and end the sandbox.
        self.kernel_spec.interrupt_mode = "message"

    def write_connection_file(self, **settings: Any) -> None:
        """Write the connection file, and let the sandbox user own it."""
        super().write_connection_file(**settings)
        if self.box.user is not None:
            os.chown(self.connection_file, self.box.user, self.box.user)

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """Return the command that starts the kernel.

        Args:
            extra_arguments: Additional arguments for the kernel.
        """
        kernel = [sys.executable, "-P", "-m", "ipykernel", "-f", self.connection_file]
        return self.box.command([*kernel, *(extra_arguments or [])])


class Grade(Execute):
    """Run a notebook in a sandbox, and judge its checks outside the sandbox."""

    sandbox = Bool(
        True, help="Run answers in a sandbox. Without it, they may do whatever your account may."
    ).tag(config=True)
    total = Integer(300, help="Seconds for all cells of a notebook.").tag(config=True)
    # On a busy machine, output arrives late: nbclient's default of four seconds is too short.
    iopub_timeout = Integer(30, help=Execute.iopub_timeout.help).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> tuple[NotebookNode, Any]:
        """Run every cell, and store its outputs and verdicts.

        Args:
            nb: The notebook, with the teacher's checks.
            resources: The resources of nbgrader.

        Raises:
            RuntimeError: If this machine cannot run a sandbox, or the kernel does not start.
        """
        run = nbformat.from_dict(nb)
        checks = {i: asked for i, cell in enumerate(nb.cells) if (asked := asked_in(cell))}
        for i, (id, answer) in checks.items():
            run.cells[i].source = (
                f'__import__("runpy").run_path({str(ANSWERING)!r})["hand_over"]'
                f"({id!r}, lambda: {answer})"
            )
        self._read, self._ended, end = 0, False, monotonic() + self.total
        self.timeout_func = lambda cell: int(max(1, min(self.timeout, end - monotonic())))
        if self.sandbox:
            self._run_in_sandbox(run, resources)
        else:
            super().preprocess(run, resources)
        code = [i for i, cell in enumerate(nb.cells) if cell.cell_type == "code"]
        for count, i in enumerate(code, 1):
            outputs = run.cells[i].outputs
            judged = self._judged(checks[i][0], outputs) if i in checks else [*cleaned(outputs)]
            nb.cells[i].outputs, nb.cells[i].execution_count = judged, count
        return nb, resources

    def _run_in_sandbox(self, notebook: NotebookNode, resources: Any) -> None:
        try:
            sandbox.check()
        except sandbox.SandboxError as error:
            raise RuntimeError(
                f"Grading needs a sandbox, and nothing was graded: {error}. "
                "docs/teaching.md says what helps."
            ) from None
        with sandbox.Sandbox(Path(resources["metadata"]["path"])) as box:
            kernel = SandboxedKernel(box)
            try:
                super().preprocess(notebook, resources, kernel)
            finally:  # nbclient does not shut down a kernel that it did not start
                self._cleanup_kernel()
                kernel.context.destroy(linger=0)

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> Any:
        """Run a cell, unless an earlier cell ended the notebook.

        Args:
            cell: The cell.
            resources: The resources of nbgrader.
            index: The index of the cell.
        """
        if not self._ended:
            try:
                return super().preprocess_cell(cell, resources, index)
            except Exception as error:  # a student's code may do anything to the kernel
                self.log.warning("Cell %s ended the notebook: %.200r", index + 1, error)
                self._ended = True
        return cell, resources

    async def _async_check_alive(self) -> None:
        """Stop waiting for a kernel that was abandoned."""
        if self.kc is None:
            raise DeadKernelError("given up")
        await super()._async_check_alive()

    def process_message(self, msg: dict[str, Any], cell: NotebookNode, cell_index: int) -> Any:
        """Process a message from the kernel, unless the kernel has printed too much.

        Args:
            msg: The message.
            cell: The running cell.
            cell_index: The index of the cell.

        Raises:
            RuntimeError: If the kernel prints too much.
        """
        self._read += len(json.dumps(msg["content"], default=str))
        if self._read > LONGEST:
            raise RuntimeError(f"the notebook prints more than {LONGEST >> 20} MiB")
        return super().process_message(msg, cell, cell_index)

    def _judged(self, id: str, outputs: list[NotebookNode]) -> list[NotebookNode]:
        """Replace the reported results with a verdict."""
        reported = [
            output.data[KIND]
            for output in outputs
            if output.output_type == "display_data" and KIND in output.data
        ]
        kept = [*cleaned(outputs)]
        printed = [o for o in kept if o.output_type == "stream" and o.name == "stdout"]
        if not reported:
            errors = [output for output in kept if output.output_type == "error"]
            why = "This check was not reached: a cell above ended Python, or ran too long."
            return [*printed, *(errors[:1] or [_error(why)])]
        verdict = judge(id, reported[0])
        if verdict.kind == "not started":
            text = as_text(f"○ {id}:", verdict.message) + "\n"
            shown = new_output("stream", name="stdout", text=text)
        else:
            card = as_card(
                f"✓ {id}: right." if verdict.ok else f"✗ {id}: not yet right.",
                verdict.message, verdict.note, ok=verdict.ok, more=[verdict.proved],
            )  # fmt: skip
            text = as_text(f"{'✓' if verdict.ok else '✗'} {id}:", verdict.message, verdict.note)
            shown = new_output("display_data", data={"text/html": card, "text/plain": text})
        error = [] if verdict.ok else [_error(f"{id} is not yet right ({verdict.kind}).")]
        return [*printed, shown, *error]


def asked_in(cell: NotebookNode) -> tuple[str, str] | None:
    """Parse a check of the course. nbgrader runs any other graded cell unchanged.

    Args:
        cell: Any cell.

    Returns:
        The id of the exercise and the source of the checked expression, or None.
    """
    if cell.cell_type != "code" or not cell.metadata.get("nbgrader", {}).get("grade"):
        return None
    match parsed(cell.source):
        case [ast.Expr(ast.Call(ast.Name("check"), [ast.Constant(str(id)), answer], []))]:
            return id, ast.unparse(answer)
    return None


def cleaned(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    """Sanitise outputs before they are shown on a teacher's page.

    Args:
        outputs: The outputs of a student's kernel.
    """
    css = CSSSanitizer(allowed_css_properties=STYLES)
    for output in outputs:
        if output.output_type == "stream":
            yield new_output("stream", name=str(output.name), text=str(output.text))
        elif output.output_type == "error":
            traceback = [str(line) for line in output.traceback]
            name, value = str(output.ename), str(output.evalue)
            yield new_output("error", ename=name, evalue=value, traceback=traceback)
        else:
            data = {}
            for kind in ("text/plain", "image/png", "image/jpeg"):
                if isinstance(output.data.get(kind), str):
                    data[kind] = output.data[kind]
            if isinstance(output.data.get("text/html"), str):
                data["text/html"] = bleach.clean(
                    STYLE.sub("", output.data["text/html"]),
                    tags=TAGS,
                    attributes=_allowed,
                    protocols=["data"],
                    css_sanitizer=css,
                    strip=True,
                )
            yield new_output(output.output_type, data=data)


def _allowed(tag: str, name: str, value: str) -> bool:
    """Return whether an attribute is safe: it must not make a browser load an address."""
    if name == "src":
        return tag == "img" and value.startswith("data:image/")
    if name == "style":
        return "(" not in FUNCTION.sub("", html.unescape(value))
    return name in ATTRIBUTES


def _error(message: str) -> NotebookNode:
    return new_output("error", ename="WrongAnswer", evalue=message, traceback=[message])


def refused(folder: Path) -> str:
    """Return why the submission in a folder is rejected, or "" if it is accepted.

    Args:
        folder: The folder of one student's assignment.
    """
    for path in (folder, *folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            return f"{path} is a link, or no file at all: it is not read"
        if path.is_file() and path.stat().st_size > LARGEST:
            return f"{path} is larger than {LARGEST // 1_000_000} MB: it is not read"
    return ""


def parsed(source: str) -> list[ast.stmt]:
    """Parse the statements of a cell; return an empty list if it is not valid Python.

    Args:
        source: The code of the cell.
    """
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class Collect(ExchangeCollect):
    """Collect submissions from a folder to which every student can write.

    Links are rejected: the teacher could follow them to files that students cannot read.
    """

    def init_src(self) -> None:
        """Find the submissions, and skip those whose names are invalid."""
        super().init_src()
        self.src_records = [record for record in self.src_records if record["username"]]

    def _path_to_record(self, path: str) -> dict[str, Any]:
        """Parse the name of a submission. An invalid submission gets the user name ""."""
        try:
            record = super()._path_to_record(path)
            about = os.lstat(path)
            if not stat.S_ISDIR(about.st_mode):
                raise ValueError("it is no folder")
            if record["username"] != pwd.getpwuid(about.st_uid).pw_name:
                raise ValueError("it belongs to another account than its name says")
        # Students choose these names: an invalid one must not stop the collection of the others.
        except Exception as error:
            self.log.error("Not collected: %r: %s", path, error)
            return {
                "username": "",
                "filename": "",
                "timestamp": parse_utc("1970-01-01 00:00:00 UTC"),
            }
        return record

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy a submission. If it is rejected, the others are still collected.

        Args:
            src: The submission, which the student may still change.
            dest: The destination in the course.
            log: nbgrader's logger.
        """
        try:
            copy_submission(Path(src), Path(dest), os.stat(src).st_uid)
        except Exception as error:
            shutil.rmtree(dest, ignore_errors=True)
            self.log.error("Not collected: %s: %s", src, error)


def copy_submission(source: Path, target: Path, owner: int) -> None:
    """Copy a student's files, and reject links, files of other users and too much data.

    Each file is opened before it is checked, so it cannot be swapped for a link in between.

    Args:
        source: The submitted folder.
        target: A new folder.
        owner: The user ID of the student.

    Raises:
        ValueError: If the submission is rejected.
    """
    target.mkdir(parents=True)
    size = files = 0
    for folder, folders, names, directory in os.fwalk(source, follow_symlinks=False):
        relative = Path(folder).relative_to(source)
        files += len(folders) + len(names)
        if files > MOST_FILES or len(relative.parts) > DEEPEST:
            raise ValueError(f"it holds more than {MOST_FILES} files, or {DEEPEST} nested folders")
        for name in folders:
            if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                raise ValueError(f"{name} is a link")
            (target / relative / name).mkdir()
        for name in names:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
            with open(handle, "rb") as file:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
                    raise ValueError(f"{name} is no file of the student's own")
                content = file.read(LARGEST + 1)
            size += len(content)
            if len(content) > LARGEST:
                raise ValueError(f"{name} is larger than {LARGEST // 1_000_000} MB")
            if size > LARGEST_SUM:
                raise ValueError(f"all files are larger than {LARGEST_SUM // 1_000_000} MB")
            (target / relative / name).write_bytes(content)
