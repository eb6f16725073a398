"""By hand: a mixture of experts, its top-k routing and its load-balance loss."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab.exercises.declare import Cases, again, mistake, notes, question, solved, task
from twelve_lab.exercises.numbers import SIZES, seeded

# Exponentials of the scores of three tokens for three experts; each row sums to 10.
_PAPER = [[1.0, 3.0, 6.0], [5.0, 1.0, 4.0], [1.0, 6.0, 3.0]]
_EXPERTS, _CHOSEN = 8, 2


def _loss_cases() -> Cases:
    draw = seeded()
    return {
        "3 tokens, 2 of 3 experts": (torch.tensor(_PAPER, dtype=torch.float64).log(), 2),
        "1 of 2 experts": (draw(5, 2), 1),
        "all sizes differ": (draw(SIZES.src, 5), 3),
    }


@task(_loss_cases, measures="shares of a hard choice times probabilities over all experts")
def balance_loss(scores: Tensor, k: int) -> Tensor:
    """scores (token, expert), k -> a number"""
    chosen = scores.topk(k, dim=-1).indices
    share = F.one_hot(chosen, scores.size(-1)).sum(1).double().mean(0)
    probability = scores.softmax(-1).mean(0)
    return scores.size(-1) * (share * probability).sum()


_SHARE = "F.one_hot(chosen, scores.size(-1)).sum(1).double().mean(0)"
mistake(
    balance_loss,
    "balance-share-soft",
    "You multiplied the mean probabilities by themselves: the other factor should be the share of "
    "tokens that have the expert in their top k.",
    {"share = X": "share = scores.softmax(-1).mean(0)"},
)
mistake(
    balance_loss,
    "balance-count-missing",
    "The loss shrinks as experts are added: multiply it by the number of experts.",
    {"scores.size(-1) * (X).sum()": "(X).sum()"},
)
mistake(
    balance_loss,
    "balance-probability-of-chosen",
    "Your probabilities cover only the chosen experts: apply softmax over all experts, so that "
    "experts that no token chose also get a gradient.",
    {
        "scores.softmax(-1).mean(0)": "scores.masked_fill(F.one_hot(chosen, "
        "scores.size(-1)).sum(1) == 0, -torch.inf).softmax(-1).mean(0)"
    },
)
notes(
    balance_loss,
    {
        "You divided by k. DeepSeek's loss does so too, but this page follows Mixtral, where the "
        "shares sum to k.": {"return X": "return X / k"},
        "You counted only the first choice, as Switch does: count all k choices.": {
            "chosen = X": "chosen = scores.topk(1, dim=-1).indices"
        },
        "Your loss grows with the number of tokens: average both factors over the tokens.": {
            _SHARE: "F.one_hot(chosen, scores.size(-1)).sum(1).double().sum(0)"
        },
        "Your softmax runs over the tokens: apply it over the experts of each token.": {
            "scores.softmax(-1)": "scores.softmax(0)"
        },
        "You multiplied the number of experts by k: the factor should be the number of experts "
        "alone.": {"return X": "return X * k"},
    },
)


def _mixture_cases() -> Cases:
    draw = seeded()

    def case(batch: int, seq: int, d_model: int, d_ff: int, experts: int, k: int) -> tuple:
        shapes = ((batch, seq, d_model), (experts, d_model), (experts, d_ff, d_model),
                  (experts, d_model, d_ff))  # fmt: skip
        return (*(draw(*shape) for shape in shapes), k)

    router = torch.tensor(_PAPER, dtype=torch.float64).log().T
    up = torch.ones(3, 1, 3, dtype=torch.float64)
    down = torch.tensor([30.0, 90.0, 60.0], dtype=torch.float64).view(3, 1, 1).expand(3, 3, 1)
    return {
        "3 tokens, 2 of 3 experts": (
            torch.eye(3, dtype=torch.float64)[None], router, up, down.contiguous(), 2,
        ),
        "one expert per token": case(2, 3, 2, 4, 3, 1),
        "an expert without tokens": case(1, 2, 3, 2, 5, 2),
        "all experts": case(2, 3, 4, 2, 3, 3),
        "all sizes differ": case(SIZES.batch, SIZES.tgt, SIZES.d_v, SIZES.src, _EXPERTS, _CHOSEN),
    }  # fmt: skip


@task(_mixture_cases, measures="top-k routing, and softmax over the chosen scores")
def mixture_of_experts(x: Tensor, router: Tensor, up: Tensor, down: Tensor, k: int) -> Tensor:
    """x (batch, seq, d_model), router (expert, d_model), up (expert, d_ff, d_model), down (expert,
    d_model, d_ff), k -> (batch, seq, d_model)
    """
    scores = x @ router.T
    best, chosen = scores.topk(k, dim=-1)
    gates = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
    output = torch.zeros_like(x)
    for expert in range(len(router)):
        answer = torch.relu(x @ up[expert].T) @ down[expert].T
        output = output + gates[..., expert, None] * answer
    return output


@solved(mixture_of_experts)
def _each_expert_on_its_tokens(x, router, up, down, k):
    tokens = x.flatten(0, 1)
    best, chosen = (tokens @ router.T).topk(k, dim=-1)
    weights = best.softmax(-1)
    mixed = torch.zeros_like(tokens)
    for number in range(len(router)):
        rows, choice = torch.where(chosen == number)
        hidden = torch.relu(tokens[rows] @ up[number].T)
        part = weights[rows, choice, None] * (hidden @ down[number].T)
        mixed = mixed.index_add(0, rows, part)
    return mixed.view_as(x)


_ADDED = "output = output + gates[..., expert, None] * answer"
mistake(
    mixture_of_experts,
    "moe-softmax-first",
    "The gates do not sum to 1, because you applied softmax over all experts. Choose the k best "
    "first, then apply softmax to the chosen scores.",
    {"best.softmax(-1)": "scores.softmax(-1).gather(-1, chosen)"},
)
mistake(
    mixture_of_experts,
    "moe-gates-missing",
    "You added the outputs of the chosen experts without weights: multiply each output by its "
    "gate, or the router learns nothing.",
    {"best.softmax(-1)": "torch.ones_like(best)"},
)
mistake(
    mixture_of_experts,
    "moe-gates-equal",
    "You averaged the outputs of the chosen experts: weight each output by the softmax of the "
    "chosen scores.",
    {"best.softmax(-1)": "torch.full_like(best, 1 / k)"},
)
mistake(
    mixture_of_experts,
    "moe-overwritten",
    "The output of a later expert overwrites that of an earlier one: add the outputs of all chosen "
    "experts.",
    {_ADDED: "hit = (chosen == expert).any(-1, keepdim=True)\n"
     "output = torch.where(hit, gates[..., expert, None] * answer, output)"},
)  # fmt: skip
again(
    mixture_of_experts,
    "moe-overwritten",
    {"best.softmax(-1)": "best.softmax(-1) * (torch.arange(k) == k - 1)"},
)
mistake(
    mixture_of_experts,
    "moe-rank-as-expert",
    "You used the rank of a choice as the index of the expert: take the expert indices from the "
    "second value that topk returns.",
    {"Y.scatter(-1, chosen, X)": "Y.scatter(-1, torch.arange(k).expand_as(chosen), X)"},
)
mistake(
    mixture_of_experts,
    "moe-all-experts",
    "All experts contribute: keep only the k best for each token, so that the others need not run.",
    {"gates = X": "gates = scores.softmax(-1)"},
)
notes(
    mixture_of_experts,
    {
        "You chose the k smallest scores: use topk with its default, largest=True.": {
            "scores.topk(k, dim=-1)": "scores.topk(k, dim=-1, largest=False)"
        },
        "Your gates are sigmoids, as in DeepSeek-V3 before the division by their sum: apply "
        "softmax to the chosen scores instead.": {"best.softmax(-1)": "best.sigmoid()"},
        "Your gates are sigmoids divided by their sum, as in DeepSeek-V3: apply softmax to the "
        "chosen scores instead.": {
            "best.softmax(-1)": "best.sigmoid() / best.sigmoid().sum(-1, keepdim=True)"
        },
        "Your gates are the scores themselves: apply softmax to the chosen scores.": {
            "best.softmax(-1)": "best"
        },
        "You chose the best tokens for each expert, as expert-choice routing does: choose the best "
        "experts for each token.": {
            "scores.topk(k, dim=-1)": "scores.flatten(0, 1).topk(k, dim=0)",
            "gates = X": "gates = torch.zeros_like(scores.flatten(0, 1)).scatter(0, chosen, "
            "best.softmax(-1)).view_as(scores)",
        },
        "You applied softmax twice: apply it once, to the chosen scores.": {
            "best.softmax(-1)": "scores.softmax(-1).gather(-1, chosen).softmax(-1)"
        },
        "The gates are not in the order of their experts: topk returns scores and indices in the "
        "same order, so keep that order.": {
            "best.softmax(-1)": "best.softmax(-1).flip(-1)"
        },
        "Each token uses only its best expert: it should use the k best.": {
            "scores.topk(k, dim=-1)": "scores.topk(1, dim=-1)"
        },
        "You added the input too: return only the sum over the experts, because the residual "
        "connection is outside the layer.": {"output = torch.zeros_like(x)": "output = x"},
        "You applied relu to the output of the experts: apply it between up and down.": {
            "torch.relu(X) @ down[expert].T": "torch.relu(X @ down[expert].T)"
        },
        "The experts have no activation: apply relu between up and down.": {
            "torch.relu(X)": "X"
        },
        "Your softmax runs over the tokens: apply it over the chosen experts of each token.": {
            "best.softmax(-1)": "best.softmax(1)"
        },
    },
)  # fmt: skip


@question(decimals=2, measures="a gate, the output of two experts, and the load-balance loss")
def routing_on_paper() -> list[float]:
    """the larger gate of token 0, the output for token 0, and the load-balance loss of the three
    tokens
    """
    scores = torch.tensor(_PAPER).log()
    given = _mixture_cases()["3 tokens, 2 of 3 experts"]
    outputs = mixture_of_experts(*given)[0, :, 0]
    gate = scores[0].topk(2).values.softmax(-1)[0]
    return [gate.item(), outputs[0].item(), balance_loss(scores, 2).item()]


notes(
    routing_on_paper,
    {
        "You normalised the gate over all three experts: normalise it over the two chosen ones.": [
            0.6, 63, 2.2,
        ],
        "The first two numbers are right. The shares are 1/3, 2/3 and 3/3, because each token "
        "chooses two experts.": [0.67, 70, 1.1],
        "The first two numbers are right. Also multiply the loss by the number of experts.": [
            0.67, 70, 0.73,
        ],
    },
)  # fmt: skip
