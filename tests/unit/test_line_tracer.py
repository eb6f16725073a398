"""The line tracer and the annotations that it reads, for every kind of statement."""

import inspect
import linecache
import sys
import sysconfig
import textwrap
from types import CodeType

import pytest
import torch

import twelve
from twelve_lab.trace.annotations import LAB, NOTHING, PACKAGE, annotated, is_traced
from twelve_lab.trace.line_tracer import LineTracer


class Recorder:
    """Listener that records every assignment and counts open calls."""

    def __init__(self):
        self.seen = []
        self.open = 0

    def on_call(self, frame, notes):
        if not notes.parameters and not notes.assignments:
            return None
        self.open += 1
        return frame.f_code.co_name

    def on_assignment(self, call, assignment, value):
        self.seen.append((assignment.name, value))

    def on_return(self, call):
        self.open -= 1


def seen_in(path, body):
    """Run the body of a function under the line tracer and return the reported assignments."""
    path.write_text("def main():\n" + textwrap.indent(textwrap.dedent(body), "    "))
    names, recorder = {}, Recorder()
    exec(compile(path.read_text(), str(path), "exec"), names)
    tracer = LineTracer(recorder)
    tracer.start(sys._getframe())
    try:
        names["main"]()
    finally:
        tracer.stop()
    assert recorder.open == 0
    return recorder.seen


def notes_of(path, source):
    """Return the annotations of each function of a file, outermost first."""
    path.write_text(textwrap.dedent(source))
    codes = [compile(path.read_text(), str(path), "exec")]
    for code in codes:
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return [annotated(code) for code in codes if code.co_flags & inspect.CO_NEWLOCALS]


# The body of a function, and the assignments that the line tracer reports.
STATEMENTS = {
    "several lines": ("""
        def add(a, b): return a + b
        total: Float[T, "a"] = add(
            1,
            add(2,
                3),
        )
        """, [("total", 6)]),
    "loops": ("""
        for i in range(2):
            y: Float[T, "a"] = i * 10
        j = 0
        while j < 2: j += 1; z: Float[T, "a"] = j
        for n in range(2): x: Float[T, "a"] = [n]
        done = True
        """, [("y", 0), ("y", 10), ("z", 1), ("z", 2), ("x", [0]), ("x", [1])]),
    "two in one line": ("""
        x: Float[T, "a"] = [1]; y: Float[T, "a"] = [*x, 2]
        z: Float[T, "a"] = [3]; hidden = 4
        """, [("x", [1]), ("y", [1, 2]), ("z", [3])]),
    "comprehensions that rebind": ("""
        x: Float[T, "a"] = [1, 2]
        x: Float[T, "a"] = [n + 1 for n in x]
        x: Float[T, "a"] = sum(n for n in x)
        """, [("x", [1, 2]), ("x", [2, 3]), ("x", 5)]),
    "deleted in its line": ("gone: Float[T, 'a'] = 1; del gone", []),
    "StopIteration inside": ("""
        def silent():
            return 7
            yield
        def work():
            answer: Float[T, "a"] = yield from silent()
        list(work())
        items: Float[T, "a"] = [n for n in (k for k in range(2))]
        """, [("answer", 7), ("items", [0, 1])]),
    "exceptions": ("""
        kept: Float[T, "a"] = 1
        try:
            lost: Float[T, "a"] = 1 // 0
        except ZeroDivisionError: pass
        try:
            kept: Float[T, "a"] = next(iter([]))
        except StopIteration: pass
        """, [("kept", 1)]),
}  # fmt: skip


@pytest.mark.parametrize(("body", "seen"), STATEMENTS.values(), ids=STATEMENTS)
def test_line_tracer_reports_each_finished_assignment_once(tmp_path, body, seen):
    assert seen_in(tmp_path / "code.py", body) == seen


def test_line_tracer_restores_the_trace_functions_of_a_debugger():
    def debugger(frame, event, argument):
        return debugger

    class WithoutAssignments(Recorder):
        def on_call(self, frame, notes):
            return "a call"

    here, before = sys._getframe(), sys.gettrace()
    local, here.f_trace = here.f_trace, debugger
    sys.settrace(debugger)
    try:
        tracer = LineTracer(WithoutAssignments())
        tracer.start(here)
        assert not here.f_trace_lines
        tracer.stop()
        assert sys.gettrace() is debugger
        assert here.f_trace is debugger and here.f_trace_lines
    finally:
        sys.settrace(before)
        here.f_trace = local


def test_annotations_of_every_dtype_are_read_from_parameters_and_assignments(tmp_path):
    kinds = "Float Int Bool Num Real Inexact Integer Shaped Complex".split()
    body = "".join(f"    {kind.lower()}_: {kind}[T, 'n'] = 1\n" for kind in kinds)
    head = "def main(a: Float[T, 'x'] | None, /, b: jaxtyping.Int[T, 'y'], *, c: Bool[T, 'z'],"
    (notes,) = notes_of(tmp_path / "code.py", f"{head} d: dict[str, 'z'], e: int):\n{body}")
    assert notes.parameters == {"a": "x", "b": "y", "c": "z"}
    assert [a.name for a in notes.assignments] == [f"{kind.lower()}_" for kind in kinds]


def test_annotations_exclude_what_the_function_does_not_bind_itself(tmp_path):
    notes, *_ = notes_of(
        tmp_path / "code.py",
        """
        def main(thing):
            own: Float[T, "a"] = 1
            thing.part: Float[T, "a"] = 1
            later: Float[T, "a"]
            items: list[int] = []
            def inner(): deep: Float[T, "a"] = 2
            async def later(): late: Float[T, "a"] = 3
            class Inside:
                field: Float[T, "a"] = 4
        """,
    )
    assert [assignment.name for assignment in notes.assignments] == ["own"]


def test_annotations_are_found_wherever_a_function_is_defined(tmp_path):
    notes = notes_of(
        tmp_path / "code.py",
        """
        @mark
        @mark
        def decorated():
            x: Float[T, "decorated"] = 1
        if True:
            def branch():
                x: Float[T, "branch"] = 1
        class Outer:
            class Inner:
                def method(self):
                    x: Float[T, "method"] = 1
        def make():
            class Local:
                def method(self):
                    x: Float[T, "local"] = 1
        def twice():
            x: Float[T, "first"] = 1
        def twice():
            x: Float[T, "second"] = 1
        """,
    )
    axes = [assignment.axes for note in notes for assignment in note.assignments]
    assert axes == ["decorated", "branch", "first", "second", "method", "local"]


def test_annotations_of_cells_with_equal_code_are_told_apart(tmp_path):
    for number, axes in enumerate(("first", "other")):
        body = f'def main():\n    x: Float[T, "{axes}"] = 1\n    return x\n'
        (notes,) = notes_of(tmp_path / f"cell{number}.py", body)
        assert [assignment.axes for assignment in notes.assignments] == [axes]


def test_annotations_of_a_cell_with_a_magic_are_ignored(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text('%matplotlib inline\nx: Float[T, "a"] = 1\n')
    assert annotated(compile("x = 1", str(path), "exec")) == NOTHING


def test_only_the_layers_and_the_learners_code_are_traced(tmp_path, monkeypatch):
    assert is_traced(__file__)
    assert is_traced(inspect.getfile(twelve.Linear))
    for name in (inspect.getfile(LineTracer), textwrap.__file__, torch.__file__, "<string>"):
        assert not is_traced(name), name
    paths = sysconfig.get_paths() | {"purelib": str(tmp_path)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    body = 'def main(a: Float[T, "x"]):\n    b: Float[T, "x"] = a\n'
    assert notes_of(tmp_path / "library.py", body) == [NOTHING]


def test_an_environment_behind_a_link_is_traced_like_any_other(tmp_path, monkeypatch):
    """Skip libraries under a symbolic link, torch, and source that linecache stores."""
    (tmp_path / "twelve").symlink_to(PACKAGE)
    (tmp_path / "twelve_lab").symlink_to(LAB)
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("a = 1\n")
    (tmp_path / "link").symlink_to(library.parent)
    is_traced.cache_clear()
    paths = dict.fromkeys(sysconfig.get_paths(), str(tmp_path / "link"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    monkeypatch.setitem(linecache.cache, "<string>", (6, None, ["a = 1\n"], "<string>"))
    for path in (tmp_path / "twelve_lab/messages.py", library, torch.__file__, "<string>"):
        assert not is_traced(str(path)), path
    paths["purelib"] = str(tmp_path)
    assert is_traced(str(tmp_path / "twelve/linear.py"))
