"""Follow annotated assignments line by line while code runs, without a call in the code itself."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from twelve_lab.trace.annotations import Annotated, Assignment, annotated, is_traced

_UNBOUND = object()


class Listener(Protocol):
    """What a line tracer reports to."""

    def on_call(self, frame: FrameType, notes: Annotated) -> Any:
        """Take note of a call and return what stands for it, or None to ignore it."""

    def on_assignment(self, call: Any, assignment: Assignment, value: object) -> None:
        """Take note of a finished assignment."""

    def on_return(self, call: Any) -> None:
        """Take note of the end of a call."""


@dataclass
class _Statement:
    """A line that has begun to assign: finished once a line outside its statement is reached.

    doubtful: the line raised or repeated itself, so it may have assigned nothing.
    """

    assignments: tuple[Assignment, ...]
    before: dict[str, object]
    doubtful: bool = False


class LineTracer:
    """Report annotated assignments to a listener, from entry to exit.

    It stands in for the interpreter's trace function and puts the former one back at the end,
    so a debugger or a coverage run goes on afterwards as before.

    Args:
        listener: Who is told.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._outer: Any = None
        self.here: FrameType | None = None
        self._outer_local: Any = None
        self._outer_lines = True

    def start(self, here: FrameType) -> None:
        """Begin, with the frame that holds the `with` statement: its own lines count too.

        Raises:
            RuntimeError: If another line tracer is at work in this thread. Of two that are
                stacked the outer one would see nothing.
        """
        outer = sys.gettrace()
        if isinstance(getattr(outer, "__self__", None), LineTracer):
            raise RuntimeError(
                "another trace is open in this thread: leave its block first, "
                "since one trace records at a time"
            )
        self.here, self._outer, self._outer_local = here, outer, here.f_trace
        self._outer_lines = here.f_trace_lines
        try:
            here.f_trace = self._follow(here)
        except BaseException:
            self.stop()
            raise
        sys.settrace(self._on_call)

    def stop(self) -> None:
        """Put the former trace functions back."""
        sys.settrace(self._outer)
        if self.here is not None:
            self.here.f_trace = self._outer_local
            self.here.f_trace_lines = self._outer_lines
        self.here = self._outer = self._outer_local = None

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        return self._follow(frame) if is_traced(frame.f_code.co_filename) else None

    def _follow(self, frame: FrameType) -> Callable[..., Any] | None:
        """Return the function that the interpreter calls for each line of this frame."""
        notes = annotated(frame.f_code)
        call = self.listener.on_call(frame, notes)
        if call is None:
            return None
        frame.f_trace_lines = bool(notes.assignments)
        running: _Statement | None = None

        def finish(frame: FrameType) -> None:
            nonlocal running
            statement, running = running, None
            if statement is None:
                return
            for assignment in statement.assignments:
                value = frame.f_locals.get(assignment.name, _UNBOUND)
                # In doubt the variable counts only if it was bound all the same: the exception may
                # have been a StopIteration inside a comprehension.
                unchanged = value is statement.before[assignment.name]
                if value is not _UNBOUND and not (statement.doubtful and unchanged):
                    self.listener.on_assignment(call, assignment, value)

        def begin(frame: FrameType, found: tuple[Assignment, ...], doubtful: bool) -> None:
            nonlocal running
            before = {each.name: frame.f_locals.get(each.name, _UNBOUND) for each in found}
            running = _Statement(found, before, doubtful)

        def local(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            nonlocal running
            if event == "exception" and running is not None:
                running.doubtful = True
            elif event == "line":
                found = notes.at(frame.f_lineno)
                same = running is not None and found == running.assignments
                again = same and all(each.first_line == each.last_line for each in found)
                if running is not None and again:
                    running.doubtful = True
                if not same or again:
                    finish(frame)
                if found and running is None:
                    begin(frame, found, again)
            elif event == "return":
                finish(frame)
                self.listener.on_return(call)
            return local

        return local
