"""One tensor of a run: its name, its axes, its numbers and its gradient."""

from dataclasses import dataclass

from torch import Tensor

from twelve.lab.format import format_tensor
from twelve.lab.show import show


@dataclass(frozen=True, eq=False)
class Traced:
    """One tensor of a run.

    Args:
        name: Module path and variable.
        axes: One name for each axis.
        value: The numbers at the moment of the assignment, on the device of the run.
        step: Number of the step whose module made it, "" for a learner's own code.
        tensor: The tensor itself, kept only where gradients were asked for.
    """

    name: str
    axes: tuple[str, ...]
    value: Tensor
    step: str
    tensor: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self.value.shape)

    @property
    def grad(self) -> Tensor:
        """Gradient that the last backward pass left here.

        Raises:
            ValueError: If gradients were not asked for, or none has reached this tensor.
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

    def __repr__(self) -> str:
        return f"{self.name}\n{format_tensor(self.value, ' '.join(self.axes))}"

    def _repr_html_(self) -> str:
        return show(self.value, " ".join(self.axes), title=self.name)._repr_html_()
