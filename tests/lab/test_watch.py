"""The watch on annotated assignments, on statements of every form."""

import sys
import textwrap

import pytest
from jaxtyping import Float
from torch import Tensor

from twelve.lab.tap import annotated
from twelve.lab.watch import Watch


class Recorder:
    """Listener that keeps what it is told."""

    here = None

    def __init__(self):
        self.seen = []
        self.open = 0

    def open_call(self, frame, notes):
        if not notes.parameters and not notes.assignments:
            return None
        self.open += 1
        return frame.f_code.co_name

    def record(self, call, assignment, value):
        self.seen.append((assignment.name, value))

    def close_call(self, call):
        self.open -= 1


def watched(tmp_path, body, *, outer=None):
    """Run `main()` of a source file under the watch and return what was seen."""
    path = tmp_path / "code.py"
    path.write_text("from jaxtyping import Float\nT = int\n" + textwrap.dedent(body))
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    recorder = Recorder()
    watch = Watch(recorder)
    watch.start(sys._getframe())
    try:
        names["main"]()
    finally:
        watch.stop()
    assert recorder.open == 0 or outer is not None
    return recorder.seen


def test_a_statement_over_several_lines_is_seen_once_and_finished(tmp_path):
    seen = watched(
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
    seen = watched(
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


def test_a_statement_that_raised_is_not_seen(tmp_path):
    seen = watched(
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
    seen = watched(
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


def test_the_body_of_the_with_block_is_watched_too():
    recorder = Recorder()
    watch = Watch(recorder)
    watch.start(sys._getframe())
    here: Float[Tensor, "row column"] = 7
    watch.stop()
    assert recorder.seen == [("here", here)]


def test_an_exception_passes_through_and_the_watch_ends(tmp_path):
    before = sys.gettrace()
    with pytest.raises(ZeroDivisionError):
        watched(
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
        watch = Watch(Recorder())
        watch.start(sys._getframe())
        watch.stop()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)


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


def test_installed_libraries_are_left_alone():
    import torch

    assert annotated(torch.nn.Linear.forward.__code__).parameters == {}
