"""Residual connection: a sublayer adds to what it was given and never replaces it.

Step 08 | notebooks/08_residual.ipynb | tests/unit/test_residual.py
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_axis, check_dropout, check_switch, described, shows
from twelve.normalization import LayerNorm


class Residual(nn.Module):
    """Wrap a sublayer in a residual sum and a norm.

        pre-norm:   x + sublayer(norm(x))
        post-norm:  norm(x + sublayer(x))

    Args:
        d_model: Features of each vector.
        norm_first: Pre-norm if true, the paper's post-norm if false.
        dropout: Probability of dropping a feature of what the sublayer adds.
        fused: Whether the norm calls torch's fused kernel.
        norm: Another norm than LayerNorm, such as an RMSNorm(d_model).

    Raises:
        ValueError: If d_model is below 1, dropout lies outside [0, 1), or norm_first is no bool.

    Source:
        Vaswani et al. (2017), sections 3.1 and 5.4 for post-norm; Xiong et al. (2020) for
        pre-norm.
    """

    def __init__(
        self, d_model: int, *, norm_first: bool = True, dropout: float = 0.0, fused: bool = False,
        norm: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_switch("Residual", norm_first=norm_first)
        check_dropout("Residual", dropout)
        self.d_model = d_model
        self.norm_first = norm_first
        self.norm = LayerNorm(d_model, fused=fused) if norm is None else norm
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch seq d_model"]:
        """Add the sublayer's output to its input.

        Args:
            x: The residual stream.
            sublayer: A function or module of one tensor that keeps its shape. Attention takes
                three: wrap it, `lambda normed: attention(normed, normed, normed, mask)`.

        Returns:
            The stream with the sublayer's answer added.

        Raises:
            ValueError: If d_model differs, or the sublayer returns no tensor or another shape.
        """
        check_axis("Residual", "x", x, "d_model", self.d_model, rank=3)
        if self.norm_first:
            # `x = self.norm(x)` would overwrite the identity path.
            update = self._ask(sublayer, self.norm(x))
            added: Float[Tensor, "batch seq d_model"] = x + update
            return added
        update = self._ask(sublayer, x)
        added: Float[Tensor, "batch seq d_model"] = x + update
        return self.norm(added)

    def _ask(self, sublayer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Drop out what the sublayer answers, which must have the shape of what it was asked."""
        update = sublayer(x)
        if not isinstance(update, Tensor):
            wanted = "the sublayer must return one tensor"
            raise ValueError(f"Residual: {wanted}, got {described(update)}")
        if update.shape != x.shape:
            wanted = f"the sublayer must keep the shape {tuple(x.shape)}"
            raise ValueError(f"Residual: {wanted}, it returned {tuple(update.shape)}")
        return self.dropout(update) if self.dropout.p else update

    extra_repr = shows("d_model", "norm_first")
