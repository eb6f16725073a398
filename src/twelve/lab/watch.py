"""Watch annotated assignments while code runs, without a call in the code itself."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from twelve.lab.tap import Annotated, Assignment, annotated, is_watched

_UNBOUND = object()


class Listener(Protocol):
    """What a watch reports to."""

    def open_call(self, frame: FrameType, notes: Annotated) -> Any:
        """Take note of a call and return what stands for it, or None to ignore it."""

    def record(self, call: Any, assignment: Assignment, value: object) -> None:
        """Take note of a finished assignment."""

    def close_call(self, call: Any) -> None:
        """Take note of the end of a call."""


@dataclass
class _Statement:
    """A statement that has begun: finished once a line outside it is reached."""

    assignment: Assignment
    before: object
    raised: bool = False


class Watch:
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

    def start(self, here: FrameType) -> None:
        """Begin, with the frame that holds the `with` statement: its own lines count too."""
        self._outer = sys.gettrace()
        self.here, self._outer_local = here, here.f_trace
        sys.settrace(self._on_call)
        here.f_trace = self._follow(here)

    def stop(self) -> None:
        """Put the former trace functions back."""
        sys.settrace(self._outer)
        if self.here is not None:
            self.here.f_trace = self._outer_local
        self.here = self._outer = self._outer_local = None

    def _on_call(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        return self._follow(frame) if is_watched(frame.f_code.co_filename) else None

    def _follow(self, frame: FrameType) -> Callable[..., Any] | None:
        """Return the function that the interpreter calls for each line of this frame."""
        notes = annotated(frame.f_code)
        call = self.listener.open_call(frame, notes)
        if call is None:
            return None
        frame.f_trace_lines = bool(notes.assignments)
        running: _Statement | None = None

        def finish(frame: FrameType) -> None:
            nonlocal running
            statement, running = running, None
            if statement is None:
                return
            value = frame.f_locals.get(statement.assignment.name, _UNBOUND)
            # After an exception the variable counts only if it was bound all the same: the
            # exception may have been a StopIteration inside a comprehension.
            if value is _UNBOUND or (statement.raised and value is statement.before):
                return
            self.listener.record(call, statement.assignment, value)

        def local(frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
            nonlocal running
            if event == "exception" and running is not None:
                running.raised = True
            elif event == "line":
                found = notes.at(frame.f_lineno)
                again = found is not None and found.first_line == found.last_line
                if running is not None and (found is not running.assignment or again):
                    finish(frame)
                if found is not None and running is None:
                    running = _Statement(found, frame.f_locals.get(found.name, _UNBOUND))
            elif event == "return":
                finish(frame)
                self.listener.close_call(call)
            return local

        return local
