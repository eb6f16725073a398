"""By hand: the mixture of experts."""

import pytest
import torch
from torch.testing import assert_close

from twelve import MixtureOfExperts, SwiGLU
from twelve_lab import Trace
from twelve_lab.check import TASKS

# Exponentials of the router scores for 3 tokens and 3 experts; each row sums to 10.
POWERS = torch.tensor([[1.0, 3.0, 6.0], [5.0, 1.0, 4.0], [1.0, 6.0, 3.0]], dtype=torch.float64)


def three_tokens() -> MixtureOfExperts:
    """Route one-hot tokens by POWERS to experts that return 30, 60 and 90."""
    layer = MixtureOfExperts(3, 1, num_experts=3, k=2, activation="relu")
    with torch.no_grad():
        layer.router.weight.copy_(POWERS.log().T)
        for index, expert in enumerate(layer.experts, start=1):
            expert.gate.weight.fill_(1.0)
            expert.up.weight.fill_(1.0)
            expert.down.weight.fill_(30.0 * index)
    return layer


# By hand


def test_mixture_of_experts_weighs_two_of_three_experts():
    # The outputs are (3 · 60 + 6 · 90) / 9, (5 · 30 + 4 · 90) / 9 and (6 · 60 + 3 · 90) / 9.
    expected = torch.tensor([80.0, 510 / 9, 70.0])
    assert_close(three_tokens()(torch.eye(3)), expected[:, None].expand(3, 3))


def test_load_balance_loss_of_three_tokens():
    # The shares are 1/3, 2/3 and 3/3; the mean probabilities are 7/30, 10/30 and 13/30.
    assert_close(three_tokens().load_balance_loss(torch.eye(3)), torch.tensor(2.2))


# Oracle


@pytest.mark.parametrize("k", [1, 2, 5])
def test_mixture_of_experts_equals_a_sum_over_all_experts_in_values_and_gradients(
    sizes, noisy, x, assert_same, k
):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=k))
    x.requires_grad_()
    scores = layer.router(x)
    least = scores.sort(dim=-1, descending=True).values[..., k - 1 : k]
    gates = scores.masked_fill(scores < least, -torch.inf).softmax(-1)
    answers = torch.stack([expert(x) for expert in layer.experts], dim=-2)
    assert_same(layer(x), (gates.unsqueeze(-1) * answers).sum(-2), [x, *layer.parameters()])


@pytest.mark.parametrize("k", [1, 2, 5])
def test_load_balance_loss_equals_the_exercise(sizes, noisy, x, k):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=k))
    expected = TASKS["balance_loss"](layer.router(x).flatten(0, 1), k)
    assert_close(layer.load_balance_loss(x), expected)


# Laws


def test_mixture_of_equal_experts_is_one_expert(sizes, noisy, x):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=3))
    for expert in layer.experts:
        expert.load_state_dict(layer.experts[0].state_dict())
    assert_close(layer(x), layer.experts[0](x))


def test_an_expert_sees_only_the_positions_that_chose_it(sizes, noisy, x):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=2))
    seen = []
    for expert in layer.experts:
        expert.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    layer(x)
    chosen = layer.router(x).topk(2).indices
    assert seen == [int((chosen == index).sum()) for index in range(5)]
    assert sum(seen) == 2 * sizes.batch * sizes.src


def test_trace_of_a_mixture_of_experts_has_a_row_for_each_token_and_expert(sizes, noisy, x):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=2))
    with Trace(layer) as trace:
        layer(x)
    assert trace["gates"].axes == ("token", "choice")
    picked = [entry for name, entry in trace.items() if name.startswith("picked")]
    assert sum(len(entry.value) for entry in picked) == 2 * sizes.batch * sizes.src
    assert picked[0].axes == ("picked", "d_model")


def test_mixture_of_experts_keeps_the_dtype_under_autocast(sizes, x):
    layer = MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=2).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x.float()).dtype == torch.float32


def test_mixture_of_experts_does_not_depend_on_the_order_of_the_experts(sizes, noisy, x):
    layer = noisy(MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=2))
    other = MixtureOfExperts(sizes.d_model, 7, num_experts=5, k=2)
    order = torch.tensor([3, 1, 4, 0, 2])
    other.router.weight = torch.nn.Parameter(layer.router.weight[order])
    for expert, index in zip(other.experts, order.tolist(), strict=True):
        expert.load_state_dict(layer.experts[index].state_dict())
    assert_close(other(x), layer(x))
    assert_close(other.load_balance_loss(x), layer.load_balance_loss(x))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_load_balance_loss_is_k_when_balanced_and_its_gradient_spreads_the_positions(k):
    layer = MixtureOfExperts(3, 1, num_experts=3, k=k)
    turns = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [2.0, 1.0, 3.0]])
    with torch.no_grad():
        layer.router.weight.copy_(turns)
    assert_close(layer.load_balance_loss(torch.eye(3)), torch.tensor(float(k)))
    crowded = torch.eye(3)[:1].expand(4, 3)
    before = layer.load_balance_loss(crowded)
    (gradient,) = torch.autograd.grad(before, [layer.router.weight])
    with torch.no_grad():
        layer.router.weight -= 0.1 * gradient
    after = layer.load_balance_loss(crowded)
    assert after < before if k < 3 else torch.isclose(after, before)


def test_mixture_of_experts_has_one_router_and_two_of_eight_experts_by_default(sizes):
    layer = MixtureOfExperts(sizes.d_model, 7)
    assert (layer.num_experts, layer.k, layer.router.bias) == (8, 2, None)
    assert [type(expert) for expert in layer.experts] == [SwiGLU] * 8
