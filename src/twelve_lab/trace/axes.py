"""Axis names: bound to sizes within a call, passed from call to call, and checked."""

import math
import re
from dataclasses import dataclass, field

# Axes whose size is fixed during the whole run. A query axis, in contrast, may be the target in one
# attention layer and the source in the next.
GLOBAL_AXES = ("batch", "d_model")
# Axes that adopt the caller's name for them.
GENERIC_AXES = ("seq",)


class AxisError(ValueError):
    """Two tensors disagree about the size of an axis, or a tensor contradicts its annotation."""


@dataclass
class Binding:
    """The size of an axis, and the first tensor with that axis."""

    size: int
    tensor: str


@dataclass
class Scope:
    """The axis names of one call.

    Args:
        globally: Sizes that are fixed during the run, shared by all scopes.
    """

    globally: dict[str, Binding]
    sizes: dict[str, Binding] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    group_sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    products: list[tuple[str, int, str]] = field(default_factory=list)

    def bind(
        self, tensor: str, axes: str, shape: tuple[int, ...], known: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        """Check a tensor against its annotation, and name its axes.

        Args:
            tensor: Name of the tensor, for the error.
            axes: The annotation, such as "*batch query key".
            shape: The actual sizes.
            known: The caller's names for the same axes.

        Returns:
            One name for each axis.

        Raises:
            AxisError: If the number of axes differs, or a name is already bound to another size.
        """
        tokens = axes.split()
        starred = [i for i, token in enumerate(tokens) if token.startswith(("*", "..."))]
        extra = len(shape) - len(tokens)
        if extra < -len(starred) or (extra and not starred):
            raise AxisError(
                f"{tensor} is annotated ({', '.join(tokens)}) but has the shape {tuple(shape)}: "
                f"{len(tokens)} axes are named, {len(shape)} are there"
            )
        names: list[str] = []
        for i, token in enumerate(tokens):
            start = len(names)
            if starred and i == starred[0]:
                stop = start + extra + 1
                inherited = None if known is None else known[start:stop]
                names += self._bind_group(tensor, token, shape[start:stop], inherited)
            else:
                inherited = None if known is None else known[start]
                names.append(self._bind_one(tensor, token, shape[start], inherited))
        return tuple(names)

    def _bind_group(
        self, tensor: str, token: str, sizes: tuple[int, ...], known: tuple[str, ...] | None
    ) -> tuple[str, ...]:
        name = token.replace("#", "").strip("*")
        numbered = (
            (name,)[: len(sizes)]
            if len(sizes) < 2
            else tuple(f"{name}_{i}" for i in range(len(sizes)))
        )
        if "#" in token or name == "...":
            return tuple(self.groups.get(name, numbered))[-len(sizes) :] if sizes else ()
        if name not in self.group_sizes:
            self.groups[name] = known if known is not None else numbered
            self.group_sizes[name] = sizes
        elif self.group_sizes[name] != sizes:
            raise AxisError(
                f"{tensor} has {name} = {sizes}, but an earlier tensor of the same call has "
                f"{name} = {self.group_sizes[name]}"
            )
        for axis, size in zip(self.groups[name], sizes, strict=True):
            self._check_global(tensor, axis, size)
        return self.groups[name]

    def _bind_one(self, tensor: str, token: str, size: int, known: str | None) -> str:
        broadcast = token.startswith("#")
        name = token.removeprefix("#").split("=")[-1]
        if name.isdigit():
            if size != int(name):
                raise AxisError(f"{tensor} should have size {name} on an axis, got {size}")
            return name
        if name.startswith("_"):  # jaxtyping's marker for an unchecked axis
            return name.lstrip("_") or known or "_"
        if not name.isidentifier():
            self.products.append((name, size, tensor))
            return name
        if name in GENERIC_AXES and known is not None and name not in self.groups:
            self.groups[name] = (known,)
        shown = self.groups[name][0] if name in self.groups else name
        if not (broadcast and size == 1):
            _check(self.sizes, tensor, name, size)
            self._check_global(tensor, shown, size)
        return shown

    def _check_global(self, tensor: str, name: str, size: int) -> None:
        if name in GLOBAL_AXES:
            rule = f": {name} keeps one size through the whole run"
            _check(self.globally, tensor, name, size, rule)

    def close(self) -> None:
        """Check products such as head*d_k, whose factors are known only at the end of the call.

        Raises:
            AxisError: If the size of a product differs from the product of its factors.
        """
        for product, size, tensor in self.products:
            factors = re.findall(r"[A-Za-z_]\w*|\d+", product)
            if "*".join(factors) != product:
                raise AxisError(f"{tensor}: cannot read the axis {product!r}; write it as a*b")
            known = {name: each.size for name, each in self.sizes.items()}
            sizes = [int(name) if name.isdigit() else known.get(name) for name in factors]
            if None not in sizes and math.prod(sizes) != size:
                parts = " * ".join(f"{name}={n}" for name, n in zip(factors, sizes, strict=True))
                raise AxisError(
                    f"{tensor} has {product}={size}, but {parts} gives {math.prod(sizes)}"
                )


def _check(known: dict[str, Binding], tensor: str, name: str, size: int, rule: str = "") -> None:
    first = known.setdefault(name, Binding(size, tensor))
    if first.size != size:
        raise AxisError(
            f"{tensor} has {name}={size}, but {first.tensor} has {name}={first.size}{rule}"
        )
