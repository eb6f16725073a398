"""Judge answers in the browser: Pyodide runs the course's own `check` in a web worker."""

import html
import io
import json
import linecache
import os
import sys
import traceback
import warnings
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import einops
import torch

from twelve_lab.check import WrongAnswer, check
from twelve_lab.check.progress import FILE, VARIABLE, read
from twelve_lab.check.reply import as_card
from twelve_lab.course import BY_HAND
from twelve_lab.messages import language, message

ANSWER = "<answer>"
FOLDER = Path("/home/pyodide/notebooks")
# Modules that are installed with the notebooks, but are missing in the page.
ELSEWHERE = ("IPython", "PIL", "matplotlib", "numpy", "twelve_lab.cli", "twelve_lab.draw")


class NotInPage(BaseException):
    """Raised if an answer imports a module that the page lacks."""


class _Elsewhere:
    """Raise NotInPage if an answer imports a module of ELSEWHERE that no other finder found."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if name in ELSEWHERE and frame.f_code.co_filename == ANSWER:
            raise NotInPage(message("{name} is not in this page", name=name))


sys.meta_path.append(_Elsewhere)
# The real torch has no NotHere.
MISSING = (NotInPage, *([torch.NotHere] if hasattr(torch, "NotHere") else []))

(FOLDER / BY_HAND).mkdir(parents=True)
os.environ[VARIABLE] = str(FOLDER / FILE)
torch.set_default_dtype(torch.float64)
with warnings.catch_warnings(action="ignore"):
    einops.rearrange(torch.zeros(1), "a -> a")  # warns on first use that nothing is compiled
shown: list[str] = []


def _reply(*parts: Any, **settings: Any) -> None:
    shown.append(as_card(*parts, **settings))


def _write(text: str) -> None:
    shown.append(f"<p>{html.escape(text)}</p>")


# The verdict goes to the page, not to a notebook or a terminal.
_check = sys.modules["twelve_lab.check.diagnose"]
_check.reply, _check.write = _reply, _write


def judge(request: str) -> str:
    """Run an answer, check it, and record the verdict.

    Args:
        request: JSON with the exercise `id`, the `name` to check, the `code`, the list of code
            `given` before it, whether it is a page `by_hand`, the `progress`, and the `language`
            of the verdict if it is not English.

    Returns:
        JSON with the verdict as `html`, the `printed` text, the new `progress`, and the `error`
        that prevented a verdict, if any.
    """
    asked = json.loads(request)
    _speak(asked)
    os.chdir(FOLDER / BY_HAND if asked["by_hand"] else FOLDER)
    _restore(asked["progress"])
    shown.clear()
    printed, error = io.StringIO(), ""
    with redirect_stdout(printed):
        try:
            space = _run(asked)
            if asked["name"] in space:
                check(asked["id"], space[asked["name"]])
            else:
                error = message(
                    "Define {name}: the checker looks for this name.", name=asked["name"]
                )
        except WrongAnswer:
            pass
        except MISSING as missing:
            error = _not_judged(missing)
        except BaseException as raised:
            error = _described(raised)
    file = FOLDER / FILE
    progress = file.read_text() if file.exists() else None
    answer = {"html": "".join(shown), "printed": printed.getvalue(), "error": error}
    return json.dumps(answer | {"progress": progress})


def accept(request: str) -> str:
    """Validate and parse the text of a progress.json of this course.

    Args:
        request: JSON with the `text`, and the `language` of error messages.

    Returns:
        JSON with the parsed `content`, or an `error`.
    """
    asked = json.loads(request)
    _speak(asked)
    _restore(asked["text"])
    try:
        return json.dumps({"content": read(FOLDER / FILE)})
    except ValueError:
        return json.dumps({"error": message("This is not a progress file of the course.")})


def _speak(asked: dict[str, Any]) -> None:
    if "language" in asked:
        language(asked["language"])


def _restore(progress: str | None) -> None:
    (FOLDER / FILE).unlink(missing_ok=True)
    if progress:
        (FOLDER / FILE).write_text(progress)


def _run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run the code given before an answer, then the answer; return the namespace."""
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(asked["given"]):
        with suppress(Exception, *MISSING):
            _execute(code, f"<given {number}>", space)
    space.pop(asked["name"], None)
    _execute(asked["code"], ANSWER, space)
    return space


def _execute(code: str, file: str, space: dict[str, Any]) -> None:
    # Fill the line cache: messages quote lines of the code.
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), space)


def _not_judged(reason: object) -> str:
    return message(
        "This page cannot check this answer: {reason}. The notebook can check it.", reason=reason
    )


def _described(error: BaseException) -> str:
    """Describe an error outside the checked function, with the line of the answer."""
    if isinstance(error, SyntaxError):
        line, text = error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line = next((x.lineno for x in reversed(frames) if x.filename == ANSWER), None)
        text = f"{type(error).__name__}: {error}"
    if line is None:  # an error of the page, not of the learner
        return _not_judged(text)
    code = linecache.getline(ANSWER, line).strip()
    return message("Line {line}, {code}: {error}", line=line, code=code, error=text)
