"""Trace: every annotated tensor of a run by name, with axes, value and gradient."""

import difflib
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType, TracebackType

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from twelve_lab.course import step_of
from twelve_lab.explain.graph import Graph
from twelve_lab.explain.tape import Tape
from twelve_lab.show.table import Labels
from twelve_lab.trace.annotations import PACKAGE, Annotated, Assignment
from twelve_lab.trace.axes import Binding, Scope
from twelve_lab.trace.diff import Difference, difference
from twelve_lab.trace.line_tracer import LineTracer
from twelve_lab.trace.summary import plain, summary_html, summary_text
from twelve_lab.trace.traced import Traced

# Functions that write a run to a file, registered elsewhere to avoid a circular import.
WRITERS: dict[str, Callable[..., Path]] = {}


@dataclass
class _Call:
    """An open call: the name prefix of its tensors, and its bound axes."""

    prefix: str
    scope: Scope
    code: CodeType
    module: nn.Module | None


class Trace(Mapping[str, Traced]):
    """Trace a model run and record every annotated tensor.

    Layer code contains no tracing calls. The trace reads annotations such as
    `scores: Float[Tensor, "batch head query key"] = ...`, in this package and in functions,
    classes and cells that you write yourself.

        with Trace(model) as trace:
            logits = model(src, tgt)
        trace["encoder.layers.0.self_attention.scores"]

    Each thread can have only one open trace, which ignores other threads. In a generator, the
    block stays open between yields, so code that the caller runs in between is recorded too.

    Args:
        model: Module whose submodules give the tensors their names. Without a model, a name
            starts with the class or the function that was called.
        grad: Whether to keep the tensors themselves, so that `.grad` can be read after
            `backward()`. This keeps the autograd graph of the run alive.
        explain: Whether to record every operation, so that any number can be explained. This keeps
            every intermediate value in memory; turn it off for a large model.
        only: Names of the tensors to record, with `*` as a wildcard, such as `*.weights`; all
            by default. Numbers of a run traced with `only` cannot be explained.

    Raises:
        AxisError: If one axis name has two sizes during the run. Nothing is recorded after
            this error.
        RuntimeError: On entering the block, if another trace is open in this thread.
        ValueError: If the model is not a module, or `only` does not contain names; on leaving
            the block, if a name in `only` matched no tensor.
    """

    def __init__(
        self, model: nn.Module | None = None, *, grad: bool = False, explain: bool = True,
        only: Sequence[str] = (),
    ) -> None:  # fmt: skip
        if model is not None and not isinstance(model, nn.Module):
            raise ValueError(
                f"Trace: model must be a torch.nn.Module, got {model!r:.60}; "
                "for code without one, write Trace()"
            )
        self.grad = grad
        names = (only,) if isinstance(only, str) else only
        if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"Trace: only must be names of tensors, got {only!r}")
        self.only = tuple(names)
        self.graph = Graph(Tape()) if explain and not self.only else None
        self._entries: dict[str, Traced] = {}
        self._paths: dict[int, str] = {}
        self._roots: list[nn.Module] = []
        self._calls: Counter[str] = Counter()
        self._passed: set[str] = set()
        self._stack: list[_Call] = []
        self._globally: dict[str, Binding] = {}
        self._known: dict[int, tuple[weakref.ref[Tensor], tuple[str, ...]]] = {}
        self._lines = LineTracer(self)
        if model is not None:
            self._adopt(model, "")

    def __enter__(self) -> "Trace":
        self._lines.start(sys._getframe(1))
        if self.graph is not None:
            self.graph.tape.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lines.stop()
        if self.graph is not None:
            self.graph.tape.__exit__(kind, error, traceback)
            self.graph.tape.close()
        self._stack.clear()
        self._known.clear()
        self._roots.clear()
        if error is None:
            for pattern in self.only:
                if not any(fnmatchcase(name, pattern) for name in self._entries):
                    near = ", ".join(difflib.get_close_matches(pattern, self._passed, cutoff=0.0))
                    raise ValueError(f"Trace: only={pattern!r} names no tensor; near to it: {near}")

    def on_call(self, frame: FrameType, notes: Annotated) -> _Call | None:
        """Register a call that has annotations or is a module's forward."""
        owner = _owner(frame)
        # A wrapper around forward, or super().forward(), belongs to the same call of the module.
        inside = bool(self._stack) and self._stack[-1].module is owner
        is_forward = owner is not None and frame.f_code.co_name == "forward" and not inside
        if not is_forward and not notes.parameters and not notes.assignments:
            return None
        prefix = self._prefix(frame, owner, is_forward)
        scope = Scope(self._globally)
        call = _Call(prefix, scope, frame.f_code, owner if is_forward else None)
        for name, axes in notes.parameters.items():
            value = frame.f_locals.get(name)
            if isinstance(value, Tensor):
                place = prefix or (type(owner).__name__ if owner else frame.f_code.co_name)
                label = f"{place} argument {name}"
                names = call.scope.bind(label, axes, tuple(value.shape), self._axes_of(value))
                self._remember(value, names)
                if self.graph is not None:
                    self.graph.tape.label(value, ".".join(filter(None, (prefix, name))), names)
        if is_forward:
            self._stack.append(call)
        return call

    def on_assignment(self, call: _Call, assignment: Assignment, value: object) -> None:
        """Record a tensor that was just assigned."""
        if not isinstance(value, Tensor):
            return
        name = self._unused(".".join(part for part in (call.prefix, assignment.name) if part))
        axes = call.scope.bind(name, assignment.axes, tuple(value.shape))
        self._remember(value, axes)
        if self.only and not any(fnmatchcase(name, pattern) for pattern in self.only):
            self._passed.add(name)
            return
        if self.grad and value.requires_grad:
            value.retain_grad()
        # A learner's own dispatch mode must not see the copy.
        with _disable_current_modes():
            copy = value.detach().clone()
        kept = value if self.grad else None
        step = _step(call.code.co_filename)
        self._entries[name] = Traced(
            name, axes, copy, step, kept, assignment.code, self, self.graph
        )
        if self.graph is not None:
            self.graph.tape.name(value, name, axes)

    def on_return(self, call: _Call) -> None:
        """Check the products of axes, now that all axes of the call are known."""
        if self._stack and self._stack[-1] is call:
            self._stack.pop()
        call.scope.close()

    def _prefix(self, frame: FrameType, owner: nn.Module | None, is_forward: bool) -> str:
        if is_forward and owner is not None:
            return self._count(self._path(owner))
        if self._stack:
            return self._stack[-1].prefix
        if frame.f_code.co_name == "<module>" or frame is self._lines.here:
            return ""
        return self._path(owner) if owner is not None else self._count(frame.f_code.co_name)

    def _count(self, path: str) -> str:
        """Number repeated calls of the same module or function."""
        self._calls[path] += 1
        return path if self._calls[path] == 1 or not path else f"{path}#{self._calls[path]}"

    def _unused(self, name: str) -> str:
        number, candidate = 1, name
        while candidate in self._entries or candidate in self._passed:
            number += 1
            candidate = f"{name}#{number}"
        return candidate

    def _path(self, module: nn.Module) -> str:
        if id(module) not in self._paths:
            self._adopt(module, type(module).__name__)
        return self._paths[id(module)]

    def _adopt(self, module: nn.Module, root: str) -> None:
        self._roots.append(module)  # prevents its id from being reused
        for name, part in module.named_modules():
            self._paths.setdefault(id(part), ".".join(piece for piece in (root, name) if piece))
        if self.graph is not None:
            for name, weight in chain(module.named_parameters(), module.named_buffers()):
                self.graph.tape.label(weight, ".".join(piece for piece in (root, name) if piece))

    def _remember(self, tensor: Tensor, axes: tuple[str, ...]) -> None:
        self._known[id(tensor)] = (weakref.ref(tensor), axes)

    def _axes_of(self, tensor: Tensor) -> tuple[str, ...] | None:
        reference, axes = self._known.get(id(tensor), (lambda: None, None))
        return axes if reference() is tensor else None

    def __getitem__(self, name: str) -> Traced:
        if name not in self._entries:
            raise KeyError(self.missing(name))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        # Mapping would call __getitem__, which searches for similar names before it fails.
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def missing(self, name: str) -> str:
        """Format the error message for an unknown tensor name, listing similar names.

        Args:
            name: The unknown name.
        """
        if not isinstance(name, str):
            return f"no tensor is named {name!r}: a trace is asked by name, and list(trace) has all"
        return f"no tensor is named {name!r} in this trace{self._near(name)}"

    def _near(self, name: str) -> str:
        if not self._entries:
            return (
                ", which holds none: was an annotated function run inside the with block, "
                "in the thread that opened it?"
            )
        tail = name.rsplit(".", 1)[-1]
        near = difflib.get_close_matches(name, self._entries, n=3, cutoff=0.6)
        near += [entry for entry in self._entries if entry.rsplit(".", 1)[-1] == tail]
        near += difflib.get_close_matches(name, self._entries, n=3, cutoff=0.0)
        return "; near to it: " + ", ".join(dict.fromkeys(near[:3]))

    def steps(self) -> list[dict[str, object]]:
        """Return every tensor as plain data for JSON.

        Returns:
            A list of {"name", "axes", "shape", "values"} in the order of the run. The values have
            full precision; nan and infinities are strings.
        """
        return [
            {
                "name": entry.name,
                "axes": list(entry.axes),
                "shape": list(entry.shape),
                "values": plain(entry.value),
            }
            for entry in self.values()
        ]

    def explorer(self, path: str | Path, labels: Labels | None = None) -> Path:
        """Write a page that explains every number of the run, and lets the reader change it.

        Args:
            path: Destination; a browser can open the page without a network.
            labels: Names to show instead of indices, in the format of `show`.

        Returns:
            The path of the file.

        Raises:
            ValueError: If the run was traced with explain=False or is empty, or the page cannot
                compute an operation or would be larger than 2 MB.
        """
        return WRITERS["explorer"](path, {"the run": self}, labels)

    def to_excel(self, path: str | Path, labels: Labels | None = None) -> Path:
        """Write the run as a live spreadsheet: inputs in yellow, every other number a formula.

        Args:
            path: Destination; must end in .xlsx.
            labels: Names to show instead of indices, in the format of `show`.

        Returns:
            The path of the file.

        Raises:
            ValueError: If the run was traced with explain=False or is empty, an operation has no
                formula, a formula is too long, openpyxl is missing, or the name does not end in
                .xlsx.
        """
        return WRITERS["spreadsheet"](path, self, labels)

    def diff(self, other: "Trace", *, tolerance: float = 1e-9) -> Difference:
        """Find the first tensor that differs between two runs.

        Args:
            other: The run to compare with.
            tolerance: Largest difference that still counts as equal.

        Returns:
            The difference, which is falsy if the runs agree in every tensor.

        Raises:
            ValueError: If other is not a trace, or the tolerance is negative or nan.
        """
        return difference(self, other, tolerance)

    def __repr__(self) -> str:
        return summary_text(self)

    def _repr_html_(self) -> str:
        return summary_html(self)


def _owner(frame: FrameType) -> nn.Module | None:
    """Return the module whose method a frame is executing."""
    code = frame.f_code
    if not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0])
    return first if isinstance(first, nn.Module) else None


@cache
def _step(filename: str) -> str:
    path = Path(filename).resolve()
    return step_of(path.stem) if path.parent == PACKAGE else ""
