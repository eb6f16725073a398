"""Token embedding: replace each id with its row in a table.

Step 02 | notebooks/02_embedding.ipynb | tests/unit/test_embedding.py
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from twelve._checks import check_between, check_positive, check_switch, checked, shows


class TokenEmbedding(nn.Module):
    """Replace each token id with its row in a learned table.

        vectors[batch, seq] = table[ids[batch, seq]]

    Args:
        vocab_size: Number of rows in the table, one for each id.
        d_model: Number of features of each row.
        padding_idx: Id whose row starts at zero and is not trained.
        scale: Whether to multiply the vectors by √d_model.

    Raises:
        ValueError: If a size is below 1, or padding_idx is outside the table.

    Source:
        Vaswani et al. (2017), section 3.4. The paper scales by √d_model; here scaling is
        optional and off by default.
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, padding_idx: int | None = None, scale: bool = False
    ) -> None:
        super().__init__()
        check_positive("TokenEmbedding", vocab_size=vocab_size, d_model=d_model)
        check_switch("TokenEmbedding", scale=scale)
        if padding_idx is not None:
            rows = f"vocab_size={vocab_size}"
            check_between("TokenEmbedding", 0, vocab_size - 1, rows, padding_idx=padding_idx)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.padding_idx = padding_idx
        self.scale = scale
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.reset_parameters()

    def reset_parameters(self, std: float = 1.0) -> None:
        """Draw the table from a normal distribution and set the padding row to zero."""
        nn.init.normal_(self.weight, std=std)
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx] = 0.0

    @checked
    def forward(self, ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
        """Look up one row for each id.

        Args:
            ids: Token ids from 0 to vocab_size - 1.

        Returns:
            The row of each id, multiplied by √d_model if scale is true.

        Raises:
            ValueError: If ids are not integers with 2 axes, or an id is outside the table. On CUDA,
                an id outside the table triggers a device-side assert instead.
        """
        try:
            vectors: Float[Tensor, "batch seq d_model"] = F.embedding(
                ids, self.weight, padding_idx=self.padding_idx
            )
        except IndexError:
            smallest, largest = int(ids.min()), int(ids.max())
            wrong = smallest if smallest < 0 else largest
            limit = f"from 0 to {self.vocab_size - 1} (vocab_size={self.vocab_size})"
            raise ValueError(f"TokenEmbedding: ids must be {limit}, got {wrong}") from None
        if not self.scale:
            return vectors
        scaled: Float[Tensor, "batch seq d_model"] = vectors * math.sqrt(self.d_model)
        return scaled

    extra_repr = shows("vocab_size", "d_model", "padding_idx", "scale")
