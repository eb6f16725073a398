"""One tensor of a run: its name, axes, values and gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from twelve_lab.explain.derivative import GradientExplanation
from twelve_lab.explain.explanation import Explanation
from twelve_lab.explain.graph import Graph
from twelve_lab.show.format import format_tensor
from twelve_lab.show.show import show


@dataclass(frozen=True, eq=False)
class Traced:
    """One tensor of a run.

    Args:
        name: Module path and variable.
        axes: One name for each axis.
        value: Values at the time of the assignment, on the device of the run.
        step: Number of the lesson whose module computed the tensor; "" for learner code.
        tensor: The tensor itself; kept only with `Trace(grad=True)`.
        code: Right-hand side of the assignment.
        run: The run that the tensor belongs to.
        graph: The operations of the run, if they were recorded.
    """

    name: str
    axes: tuple[str, ...]
    value: Tensor
    step: str
    tensor: Tensor | None = None
    code: str = ""
    run: Mapping[str, Traced] | None = None
    graph: Graph | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self.value.shape)

    @property
    def grad(self) -> Tensor:
        """Gradient of the last backward pass.

        Raises:
            ValueError: If gradients were not kept, or no gradient has reached this tensor.
        """
        if self.tensor is None:
            raise ValueError(
                f"{self.name}: no gradient was kept; trace with Trace(model, grad=True)"
            )
        if not self.tensor.requires_grad:
            raise ValueError(f"{self.name}: depends on no parameter, so it has no gradient")
        if self.tensor.grad is None:
            raise ValueError(f"{self.name}: no gradient yet; call backward() on a result")
        return self.tensor.grad

    def explain(self, *index: int, depth: int = 1) -> Explanation:
        """Return the arithmetic that computed one number, from the operations that ran.

        Args:
            *index: One position for each axis; negative positions count from the end.
            depth: 1 stops at the nearest named tensors, 2 unfolds those once, and so on, down to
                embedding rows, positions and weights.

        Returns:
            The explanation: `.text`, `.value`, `.expression` and `.inputs`.

        Raises:
            ValueError: If the index does not fit, depth is below 1, the run was traced with
                explain=False, an operation has no formula yet, or the arithmetic is too long.
        """
        graph = self.kept()
        return Explanation(graph, graph.tape.named[self.name].cell(index), depth, self.code)

    def explain_grad(self, *index: int) -> GradientExplanation:
        """Split the gradient of one number by the later numbers that it flowed through.

        Args:
            *index: One position for each axis; negative positions count from the end.

        Returns:
            The explanation: `.text`, `.value`, `.parts` and `.total`.

        Raises:
            ValueError: As for `explain`, or if there is no gradient.
        """
        graph = self.kept()
        gradients = {self.name: self.grad}
        for name, entry in self.run.items():
            gradients[name] = None if entry.tensor is None else entry.tensor.grad
        return GradientExplanation(graph, graph.tape.named[self.name].cell(index), gradients)

    def kept(self) -> Graph:
        """Return the operations of the run, including those that computed this tensor.

        Raises:
            ValueError: If operations were not recorded, or the values of the tensor cannot be read.
        """
        if self.graph is None:
            wanted = "trace with explain=True and without only="
            raise ValueError(f"{self.name}: no operation was kept; {wanted}")
        if self.name not in self.graph.tape.named:
            raise ValueError(f"{self.name}: holds no plain numbers ({self.value.dtype}) to explain")
        return self.graph

    def __repr__(self) -> str:
        return f"{self.name}\n{format_tensor(self.value, ' '.join(self.axes))}"

    def _repr_html_(self) -> str:
        return show(self.value, " ".join(self.axes), title=self.name)._repr_html_()
