"""Residual connection: add the output of a sublayer to its input.

Step 08 | notebooks/08_residual.ipynb | tests/unit/test_residual.py
"""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn

from twelve._checks import check_dropout, check_equal, check_switch, checked, described, shows
from twelve.normalization import LayerNorm


class Residual(nn.Module):
    """Wrap a sublayer in a residual sum and a norm.

        pre-norm:   x + sublayer(norm(x))
        post-norm:  norm(x + sublayer(x))

    Args:
        d_model: Number of features of each vector.
        norm_first: Pre-norm if true, the paper's post-norm if false.
        dropout: Dropout probability of the sublayer's output.
        norm: Norm to use instead of the default LayerNorm(d_model), such as RMSNorm(d_model).

    Raises:
        ValueError: If d_model is below 1 or differs from that of `norm`, dropout is outside [0, 1),
            or norm_first is not a bool.

    Source:
        Vaswani et al. (2017), sections 3.1 and 5.4 for post-norm; Xiong et al. (2020) for
        pre-norm.
    """

    def __init__(
        self, d_model: int, *, norm_first: bool = True, dropout: float = 0.0,
        norm: nn.Module | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_switch("Residual", norm_first=norm_first)
        check_dropout("Residual", dropout)
        self.d_model = d_model
        self.norm_first = norm_first
        self.norm = LayerNorm(d_model) if norm is None else norm
        # A norm of another class may lack the attribute `d_model`.
        norm_size = getattr(self.norm, "d_model", d_model)
        check_equal("Residual", "d_model", residual=d_model, norm=norm_size)
        self.dropout = nn.Dropout(dropout)

    @checked
    def forward(
        self, x: Float[Tensor, "batch seq d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch seq d_model"]:
        """Add the output of the sublayer to x, with a norm before or after.

        Args:
            x: The residual stream.
            sublayer: A function or module of one tensor that keeps its shape. Attention takes
                three, so wrap it: `lambda normed: attention(normed, normed, normed, mask)`.

        Raises:
            ValueError: If d_model differs, or the sublayer does not return one tensor of x's shape.
        """
        # `x = self.norm(x)` would overwrite the residual stream.
        update = sublayer(self.norm(x) if self.norm_first else x)
        if not isinstance(update, Tensor) or update.shape != x.shape:
            wanted = f"one tensor of shape {tuple(x.shape)}"
            raise ValueError(f"Residual: sublayer must return {wanted}, got {described(update)}")
        update = self.dropout(update)
        added: Float[Tensor, "batch seq d_model"] = x + update
        return added if self.norm_first else self.norm(added)

    extra_repr = shows("d_model", "norm_first")
