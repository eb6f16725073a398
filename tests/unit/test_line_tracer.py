"""The line tracer on annotated assignments, on statements of every form."""

import inspect
import sys
import sysconfig
import textwrap

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import twelve
from twelve_lab.trace.annotations import NOTHING, Annotated, annotated, is_traced
from twelve_lab.trace.line_tracer import LineTracer


class Recorder:
    """Listener that keeps what it is told."""

    here = None

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


def seen_in(tmp_path, body, *, outer=None):
    """Run `main()` of a source file under the line tracer and return what was seen."""
    path = tmp_path / "code.py"
    path.write_text("from jaxtyping import Float\nT = int\n" + textwrap.dedent(body))
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    recorder = Recorder()
    tracer = LineTracer(recorder)
    tracer.start(sys._getframe())
    try:
        names["main"]()
    finally:
        tracer.stop()
    assert recorder.open == 0 or outer is not None
    return recorder.seen


def defined(tmp_path, body) -> dict:
    """Run a source file, whose annotations stay text, and return its names."""
    path = tmp_path / "code.py"
    path.write_text("from __future__ import annotations\n" + textwrap.dedent(body))
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names


def notes_of(tmp_path, body) -> Annotated:
    """Read the annotations of `main` of a source file."""
    return annotated(defined(tmp_path, body)["main"].__code__)


def test_a_statement_over_several_lines_is_seen_once_and_finished(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def add(a, b):
            return a + b
        def main():
            total: Float[T, "a"] = add(
                1,
                add(2,
                    3),
            )
            return total
        """,
    )
    assert seen == [("total", 6)]


def test_every_turn_of_a_loop_is_seen(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            for i in range(3):
                y: Float[T, "a"] = i * 10
            j = 0
            while j < 2: j += 1; z: Float[T, "a"] = j
        """,
    )
    assert seen == [("y", 0), ("y", 10), ("y", 20), ("z", 1), ("z", 2)]


def test_a_statement_over_several_lines_is_seen_once_in_every_turn(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def add(a, b):
            return a + b
        def main():
            for i in range(3):
                y: Float[T, "a"] = add(i,
                    10)
        """,
    )
    assert seen == [("y", 10), ("y", 11), ("y", 12)]


def test_a_loop_in_one_line_is_seen_once_in_every_turn(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            for n in range(3): x: Float[T, "a"] = [n]
            done = True
        """,
    )
    assert seen == [("x", [0]), ("x", [1]), ("x", [2])]


def test_two_statements_in_one_line_are_both_seen(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            x: Float[T, "a"] = [1]; y: Float[T, "a"] = [*x, 2]
            z: Float[T, "a"] = [3]; hidden = 4
        """,
    )
    assert seen == [("x", [1]), ("y", [1, 2]), ("z", [3])]


def test_a_comprehension_in_a_name_bound_before_is_seen_once(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            x: Float[T, "a"] = [1, 2]
            x: Float[T, "a"] = [n + 1 for n in x]
            x: Float[T, "a"] = sum(n for n in x)
        """,
    )
    assert seen == [("x", [1, 2]), ("x", [2, 3]), ("x", 5)]


def test_binding_the_same_object_again_counts(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            for _ in range(2):
                same: Float[T, "a"] = None
        """,
    )
    assert seen == [("same", None), ("same", None)]


def test_a_variable_that_is_gone_by_the_end_of_its_line_is_not_seen(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            gone: Float[T, "a"] = 1; del gone
        """,
    )
    assert seen == []


def test_an_exception_that_the_statement_itself_takes_up_hides_nothing(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def silent():
            return 7
            yield
        def work():
            answer: Float[T, "a"] = yield from silent()
        def main():
            list(work())
            items: Float[T, "a"] = [n for n in (k for k in range(2))]
        """,
    )
    assert seen == [("answer", 7), ("items", [0, 1])]


def test_a_statement_that_raised_is_not_seen(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            kept: Float[T, "a"] = 1
            try:
                lost: Float[T, "a"] = 1 // 0
            except ZeroDivisionError:
                pass
            try:
                kept: Float[T, "a"] = next(iter([]))
            except StopIteration:
                pass
        """,
    )
    assert seen == [("kept", 1)]


def test_a_comprehension_and_a_nested_function_do_not_confuse_it(tmp_path):
    seen = seen_in(
        tmp_path,
        """
        def main():
            values: Float[T, "a"] = [n for n in range(3)]
            def inner():
                nonlocal values
                deep: Float[T, "b"] = values[-1]
                return deep
            answer: Float[T, "c"] = inner()
            return answer
        """,
    )
    assert seen == [("values", [0, 1, 2]), ("deep", 2), ("answer", 2)]


def test_the_body_of_the_with_block_is_traced_too():
    recorder = Recorder()
    tracer = LineTracer(recorder)
    tracer.start(sys._getframe())
    here: Float[Tensor, "row column"] = 7
    tracer.stop()
    assert recorder.seen == [("here", here)]


def test_an_exception_passes_through_and_the_line_tracer_ends(tmp_path):
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        seen_in(
            tmp_path,
            """
            def main():
                bad: Float[T, "a"] = 1 // 0
            """,
        )
    assert sys.gettrace() is before


def test_an_outer_trace_function_is_put_back():
    def debugger(frame, event, argument):
        return debugger

    before = sys.gettrace()
    sys.settrace(debugger)
    try:
        tracer = LineTracer(Recorder())
        tracer.start(sys._getframe())
        tracer.stop()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)


def test_the_frame_of_the_with_block_gets_its_own_trace_function_back():
    def debugger(frame, event, argument):
        return debugger

    class Open(Recorder):
        def on_call(self, frame, notes):
            return "a call without an annotated assignment, whose lines need no event"

    here = sys._getframe()
    before, here.f_trace = here.f_trace, debugger
    try:
        tracer = LineTracer(Open())
        tracer.start(here)
        assert not here.f_trace_lines
        tracer.stop()
        assert here.f_trace is debugger
        assert here.f_trace_lines
    finally:
        here.f_trace = before


def test_cells_that_differ_in_an_annotation_alone_are_told_apart(tmp_path):
    for number, axes in enumerate(("first", "other")):
        path = tmp_path / f"cell{number}.py"
        path.write_text(f'def f():\n    x: Float[T, "{axes}"] = 1\n    return x\n')
        names = {}
        exec(compile(path.read_text(), str(path), "exec"), names)
        (found,) = annotated(names["f"].__code__).assignments
        assert found.axes == axes


def test_optional_and_qualified_annotations_are_read_and_others_are_not(tmp_path):
    path = tmp_path / "code.py"
    path.write_text(
        "def f(a: Float[T, 'x'] | None, b: jaxtyping.Int[T, 'y'], c: dict[str, 'z'], d: int):\n"
        "    e: list[int] = []\n"
        "    return e\n"
    )
    names = {}
    exec(
        compile("from __future__ import annotations\n" + path.read_text(), str(path), "exec"), names
    )
    notes = annotated(names["f"].__code__.replace(co_firstlineno=1))
    assert notes.parameters == {"a": "x", "b": "y"}
    assert notes.assignments == ()


def test_every_kind_of_annotation_is_read(tmp_path):
    kinds = "Float Int Bool Num Real Inexact Integer Shaped Complex".split()
    body = "".join(f"    {kind.lower()}_: {kind}[T, 'n'] = 1\n" for kind in kinds)
    found = notes_of(tmp_path, f"def main():\n{body}").assignments
    assert [assignment.name for assignment in found] == [f"{kind.lower()}_" for kind in kinds]


def test_every_parameter_that_can_be_given_by_place_or_by_name_is_read(tmp_path):
    notes = notes_of(
        tmp_path,
        """
        def main(a: Float[T, "x"], /, b: Float[T, "y"], *, c: Float[T, "z"]):
            pass
        """,
    )
    assert notes.parameters == {"a": "x", "b": "y", "c": "z"}


def test_only_a_variable_that_its_statement_binds_counts(tmp_path):
    notes = notes_of(
        tmp_path,
        """
        def main(thing):
            thing.part: Float[T, "a"] = 1
            later: Float[T, "a"]
            later = 2
        """,
    )
    assert notes == NOTHING


def test_what_is_inside_a_function_or_a_class_is_not_of_the_function_around_it(tmp_path):
    notes = notes_of(
        tmp_path,
        """
        def main():
            own: Float[T, "a"] = 1
            def inner(): deep: Float[T, "a"] = 2
            async def later(): late: Float[T, "a"] = 3
            class Inside:
                field: Float[T, "a"] = 4
        """,
    )
    assert [assignment.name for assignment in notes.assignments] == ["own"]


def test_a_function_is_found_wherever_it_is_defined(tmp_path):
    names = defined(
        tmp_path,
        """
        import functools
        @functools.cache
        @functools.cache
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
            return Local.method
        """,
    )
    functions = [names["decorated"], names["branch"], names["Outer"].Inner.method, names["make"]()]
    notes = [annotated(inspect.unwrap(function).__code__) for function in functions]
    axes = [note.assignments[0].axes for note in notes]
    assert axes == ["decorated", "branch", "method", "local"]


def test_two_functions_of_one_name_are_told_apart(tmp_path):
    names = defined(
        tmp_path,
        """
        def main():
            x: Float[T, "first"] = 1
        former = main
        def main():
            x: Float[T, "other"] = 1
        """,
    )
    axes = [annotated(names[name].__code__).assignments[0].axes for name in ("former", "main")]
    assert axes == ["first", "other"]


def test_the_code_of_a_cell_with_a_magic_is_left_alone(tmp_path):
    path = tmp_path / "cell.py"
    path.write_text('%matplotlib inline\nx: Float[T, "a"] = 1\n')
    assert annotated(compile("x = 1", str(path), "exec")) == NOTHING


def test_the_layers_and_the_learners_code_are_traced_and_nothing_else():
    assert is_traced(__file__)
    assert is_traced(inspect.getfile(twelve.Linear))
    for name in (inspect.getfile(LineTracer), textwrap.__file__, torch.__file__, "<string>"):
        assert not is_traced(name), name


def test_annotations_of_an_installed_library_are_not_read(tmp_path, monkeypatch):
    code = 'def main(a: Float[T, "x"]):\n    b: Float[T, "x"] = a\n'
    paths = sysconfig.get_paths() | {"purelib": str(tmp_path)}
    monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
    assert notes_of(tmp_path, code) == NOTHING
