"""Observe annotated assignments line by line while code runs, without changing the code."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from twelve_lab.trace.annotations import Annotated, Assignment, annotated, is_traced

_UNBOUND = object()


class Listener(Protocol):
    """Receives the events of a line tracer."""

    def on_call(self, frame: FrameType, notes: Annotated) -> Any:
        """Handle the start of a call. Return an identifier for it, or None to ignore the call."""

    def on_assignment(self, call: Any, assignment: Assignment, value: object) -> None:
        """Handle a finished assignment."""

    def on_return(self, call: Any) -> None:
        """Handle the end of a call."""


@dataclass
class _Statement:
    """Assignments that have started. They finish when execution reaches a line outside them.

    doubtful: The line raised or ran again, so it may not have assigned anything.
    """

    assignments: tuple[Assignment, ...]
    before: dict[str, object]
    doubtful: bool = False


class LineTracer:
    """Report annotated assignments to a listener, from entry to exit.

    It replaces the interpreter's trace function and restores it at the end, so a debugger or a
    coverage run continues afterwards.

    Args:
        listener: Receiver of the events.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._outer: Any = None
        self.here: FrameType | None = None
        self._outer_local: Any = None
        self._outer_lines = True

    def start(self, here: FrameType) -> None:
        """Start tracing, including the frame that contains the `with` statement.

        Raises:
            RuntimeError: If another line tracer is active in this thread, because the outer
                tracer would receive no events.
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
        """Restore the previous trace functions."""
        sys.settrace(self._outer)
        if self.here is not None:
            self.here.f_trace = self._outer_local
            self.here.f_trace_lines = self._outer_lines
        self.here = self._outer = self._outer_local = None

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        return self._follow(frame) if is_traced(frame.f_code.co_filename) else None

    def _follow(self, frame: FrameType) -> Callable[..., Any] | None:
        """Return the trace function of a frame."""
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
                # A doubtful variable counts only if it was bound: the exception may have been a
                # StopIteration inside a comprehension.
                unchanged = value is statement.before[assignment.name]
                if value is not _UNBOUND and not (statement.doubtful and unchanged):
                    self.listener.on_assignment(call, assignment, value)

        def local(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            nonlocal running
            if event == "exception" and running is not None:
                running.doubtful = True
            elif event == "line":
                assignments = notes.on_line(frame.f_lineno)
                same = running is not None and assignments == running.assignments
                # The line of a one-line loop runs again for its next iteration.
                again = same and all(a.first_line == a.last_line for a in assignments)
                if running is not None and again:
                    running.doubtful = True
                if not same or again:
                    finish(frame)
                if assignments and running is None:
                    before = {a.name: frame.f_locals.get(a.name, _UNBOUND) for a in assignments}
                    running = _Statement(assignments, before, doubtful=again)
            elif event == "return":
                finish(frame)
                self.listener.on_return(call)
            return local

        return local
