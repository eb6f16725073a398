"""Mixture of experts: a router sends each position to a few of many feed-forward layers.

By hand | notebooks/by_hand/mixture_of_experts.ipynb | tests/unit/test_mixture_of_experts.py
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from twelve._checks import check_between, check_positive, checked, shows
from twelve.feed_forward import SwiGLU
from twelve.linear import Linear


class MixtureOfExperts(nn.Module):
    """Route each position to its k best experts and sum their weighted outputs.

        s = x W_router,  chosen = the k largest of s
        MoE(x) = Σ_{i in chosen} softmax(s[chosen])_i SwiGLU_i(x)

    Args:
        d_model: Number of features of each input and output vector.
        d_ff: Number of features in the hidden layer of each expert.
        num_experts: Number of experts.
        k: Number of experts for each position.
        activation: Activation of the gates in the experts, as in FeedForward.

    Raises:
        ValueError: If a size is below 1, k is larger than num_experts, or the activation is
            unknown.

    Source:
        Shazeer et al. (2017), section 2.1, without noise and with softmax after the choice.
        Experts and sizes follow Mixtral: Jiang et al. (2024), section 2.1.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, num_experts: int = 8, k: int = 2,
        activation: str = "silu",
    ) -> None:  # fmt: skip
        super().__init__()
        check_positive("MixtureOfExperts", d_model=d_model, d_ff=d_ff, num_experts=num_experts)
        check_between("MixtureOfExperts", 1, num_experts, "num_experts", k=k)
        self.d_model = d_model
        self.num_experts = num_experts
        self.k = k
        self.router = Linear(d_model, num_experts, bias=False)
        self.experts = nn.ModuleList(
            SwiGLU(d_model, d_ff, activation=activation) for _ in range(num_experts)
        )

    @checked
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Route each position, run each expert on its positions, and sum the outputs.

        Args:
            x: Vectors of d_model features, with any number of leading axes.

        Returns:
            One output vector for each input vector.

        Raises:
            ValueError: If the last axis does not have size d_model.
        """
        tokens: Float[Tensor, "token d_model"] = x.reshape(-1, self.d_model)
        scores: Float[Tensor, "token expert"] = self.router(tokens)
        best, chosen = scores.topk(self.k, dim=-1)
        # Softmax after the choice: the gates of a position sum to 1.
        gates: Float[Tensor, "token choice"] = best.softmax(dim=-1)
        mixed: Float[Tensor, "token d_model"] = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, choice = torch.where(chosen == index)
            picked: Float[Tensor, "_picked d_model"] = tokens[rows]
            weighted = gates[rows, choice].unsqueeze(-1) * expert(picked)
            # Under autocast, the experts return another dtype.
            mixed = mixed.index_add(0, rows, weighted.to(mixed.dtype))
        output: Float[Tensor, "*batch d_model"] = mixed.view_as(x)
        return output

    @checked
    def load_balance_loss(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, ""]:
        """Measure how unevenly the positions are distributed over the experts.

            loss = num_experts · Σ_i share_i · probability_i

        share_i is the fraction of positions that expert i is chosen for. probability_i is the mean
        over all positions of its softmax probability. The loss is k if all shares are equal. Add a
        small multiple of it to the loss of the model.

        Args:
            x: The input of the layer.

        Returns:
            The loss. Its gradient reaches the router through the probabilities alone.

        Raises:
            ValueError: If the last axis does not have size d_model.

        Source:
            Fedus et al. (2021), "Switch Transformers", equations 4 to 6, for k = 1. As in
            Mixtral's code in transformers, the shares sum to k.
        """
        scores: Float[Tensor, "token expert"] = self.router(x.reshape(-1, self.d_model))
        chosen: Int[Tensor, "token choice"] = scores.topk(self.k, dim=-1).indices
        count = torch.bincount(chosen.flatten(), minlength=self.num_experts)
        share: Float[Tensor, " expert"] = count / len(scores)
        probability: Float[Tensor, " expert"] = scores.softmax(dim=-1).mean(dim=0)
        return self.num_experts * (share.to(scores.dtype) * probability).sum()

    extra_repr = shows("d_model", "num_experts", "k")
