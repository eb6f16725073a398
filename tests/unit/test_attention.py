"""Step 04: each query takes a weighted average of the values."""

import math
from types import SimpleNamespace

import oracle
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from twelve import causal_mask, scaled_dot_product_attention
from twelve_lab import Trace


@pytest.fixture
def three(sizes, draw) -> SimpleNamespace:
    """Hold a query, keys and values under the two leading axes batch and head."""
    leading = (sizes.batch, sizes.heads)
    return SimpleNamespace(
        query=draw(*leading, sizes.tgt, sizes.d_k),
        key=draw(*leading, sizes.src, sizes.d_k),
        value=draw(*leading, sizes.src, sizes.d_v),
    )


def masks(sizes, seeded) -> dict[str, torch.Tensor | None]:
    """Give one mask of every shape that broadcasts, each row with something to attend to."""

    def some(*shape: int) -> torch.Tensor:
        mask = torch.rand(shape, generator=seeded) < 0.5
        mask[..., 0] = True
        return mask

    return {
        "none": None,
        "padding": some(sizes.batch, 1, 1, sizes.src),
        "query and key": some(sizes.tgt, sizes.src),
        "shared by heads": some(sizes.batch, 1, sizes.tgt, sizes.src),
        "full": some(sizes.batch, sizes.heads, sizes.tgt, sizes.src),
        "causal": causal_mask(sizes.tgt, sizes.src),
    }


MASKS = ("none", "padding", "query and key", "shared by heads", "full", "causal")


def test_a_dot_product_is_divided_by_the_root_of_d_k():
    query = torch.ones(1, 4)
    key = torch.tensor([[0.0], [math.log(3.0) / 2.0]]).expand(2, 4)
    value = torch.tensor([[0.0, 1.0], [8.0, 5.0]])
    # The dot products are 0 and 2 ln 3; divided by √4 they are 0 and ln 3: weights 1/4 and 3/4.
    expected = torch.tensor([[6.0, 4.0]])
    assert_close(scaled_dot_product_attention(query, key, value), expected)


def test_a_hidden_key_gives_its_weight_to_the_others():
    query, key = torch.ones(2, 1), torch.tensor([[0.0], [math.log(3.0)], [5.0]])
    value = torch.tensor([[0.0], [8.0], [100.0]])
    mask = torch.tensor([[True, True, False], [False, True, False]])
    expected = torch.tensor([[6.0], [8.0]])
    assert_close(scaled_dot_product_attention(query, key, value, mask), expected)


def test_a_query_that_may_attend_nowhere_gets_zeros():
    query, key, value = torch.ones(2, 1), torch.zeros(2, 1), torch.tensor([[3.0], [5.0]])
    mask = torch.tensor([[True, True], [False, False]])
    expected = torch.tensor([[4.0], [0.0]])
    assert torch.equal(scaled_dot_product_attention(query, key, value, mask), expected)


@pytest.mark.parametrize("name", MASKS)
def test_it_equals_torch_in_values_and_gradients(sizes, seeded, draw, three, name):
    mask = masks(sizes, seeded)[name]
    inputs = [x.requires_grad_() for x in vars(three).values()]
    ours = scaled_dot_product_attention(*inputs, mask)
    theirs = F.scaled_dot_product_attention(*inputs, mask)
    assert_close(ours, theirs)

    direction = draw(*ours.shape)
    expected = torch.autograd.grad(theirs, inputs, direction)
    assert_close(torch.autograd.grad(ours, inputs, direction), expected)


@pytest.mark.parametrize("name", MASKS)
def test_every_intermediate_equals_numpy(sizes, seeded, three, name):
    mask = masks(sizes, seeded)[name]
    with Trace() as trace:
        scaled_dot_product_attention(three.query, three.key, three.value, mask)
    arrays = (x.numpy() for x in vars(three).values())
    expected = oracle.attention(*arrays, None if mask is None else mask.numpy())
    found = {path.rsplit(".", 1)[-1]: entry.value for path, entry in trace.items()}
    assert list(found) == list(expected)
    for step, value in expected.items():
        assert_close(found[step], torch.from_numpy(value))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_any_number_of_leading_axes_will_do(sizes, draw, leading):
    query, key = draw(*leading, sizes.tgt, sizes.d_k), draw(*leading, sizes.src, sizes.d_k)
    value = draw(*leading, sizes.src, sizes.d_v)
    expected = F.scaled_dot_product_attention(query, key, value)
    assert_close(scaled_dot_product_attention(query, key, value), expected)


@pytest.mark.parametrize("name", MASKS)
def test_the_weights_of_each_query_sum_to_one(sizes, seeded, three, name):
    mask = masks(sizes, seeded)[name]
    with Trace() as trace:
        scaled_dot_product_attention(three.query, three.key, three.value, mask)
    weights = trace["scaled_dot_product_attention.weights"]
    assert weights.axes[-2:] == ("query", "key")
    assert (weights.value >= 0.0).all()
    assert_close(weights.value.sum(-1), torch.ones(sizes.batch, sizes.heads, sizes.tgt))
    if mask is not None:
        assert (weights.value[~mask.expand(weights.shape)] == 0.0).all()


def test_a_hidden_position_cannot_influence_the_output(sizes, three):
    mask = torch.ones(sizes.tgt, sizes.src, dtype=torch.bool)
    mask[:, 2] = False
    before = scaled_dot_product_attention(three.query, three.key, three.value, mask)
    three.key[..., 2, :] = 1e6
    three.value[..., 2, :] = -1e6
    assert torch.equal(scaled_dot_product_attention(*vars(three).values(), mask), before)


def test_hiding_a_key_is_the_same_as_leaving_it_out(sizes, three):
    mask = torch.ones(1, 1, 1, sizes.src, dtype=torch.bool)
    mask[..., 3:] = False
    hidden = scaled_dot_product_attention(three.query, three.key, three.value, mask)
    shorter = (three.query, three.key[..., :3, :], three.value[..., :3, :])
    assert_close(hidden, scaled_dot_product_attention(*shorter))


def test_keys_may_come_in_any_order_as_long_as_their_values_follow(three):
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = (three.query, three.key[..., order, :], three.value[..., order, :])
    expected = scaled_dot_product_attention(*vars(three).values())
    assert_close(scaled_dot_product_attention(*shuffled), expected)


def test_queries_do_not_see_each_other(three):
    order = torch.tensor([2, 0, 3, 1])
    expected = scaled_dot_product_attention(*vars(three).values())[..., order, :]
    shuffled = (three.query[..., order, :], three.key, three.value)
    assert_close(scaled_dot_product_attention(*shuffled), expected)


def test_what_all_keys_have_in_common_does_not_matter(draw, sizes, three):
    expected = scaled_dot_product_attention(*vars(three).values())
    moved = (three.query, three.key + draw(sizes.d_k), three.value)
    assert_close(scaled_dot_product_attention(*moved), expected)


def test_values_that_agree_are_handed_over_as_they_are(sizes, three):
    value = torch.full_like(three.value, 7.0)
    output = scaled_dot_product_attention(three.query, three.key, value)
    assert_close(output, torch.full((*output.shape[:-1], sizes.d_v), 7.0))


def test_large_scores_do_not_overflow(three):
    output = scaled_dot_product_attention(three.query * 1e5, three.key, three.value)
    best = (three.query @ three.key.mT).argmax(-1, keepdim=True)
    assert_close(output, three.value.gather(-2, best.expand(output.shape)))


def test_fully_masked_rows_equal_torch_and_leave_finite_gradients(sizes, seeded, draw, three):
    mask = masks(sizes, seeded)["full"]
    mask[0, 1] = False
    mask[1, :, 2] = False
    inputs = [x.requires_grad_() for x in vars(three).values()]
    ours = scaled_dot_product_attention(*inputs, mask)
    theirs = F.scaled_dot_product_attention(*inputs, mask)
    assert (ours[0, 1] == 0.0).all() and (ours[1, :, 2] == 0.0).all()
    assert_close(ours, theirs)

    direction = draw(*ours.shape)
    gradients = torch.autograd.grad(ours, inputs, direction)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert_close(gradients, torch.autograd.grad(theirs, inputs, direction))


def test_fully_masked_rows_leave_no_nan_on_the_way_back_either(sizes, seeded, three):
    mask = masks(sizes, seeded)["full"]
    mask[0, 1] = False
    with Trace(grad=True) as trace:
        output = scaled_dot_product_attention(
            three.query.requires_grad_(), three.key, three.value, mask
        )
    # A NaN that a later mask hides is still found here, by the trace and by a look for anomalies.
    with torch.autograd.set_detect_anomaly(True):
        output.sum().backward()
    assert all(entry.grad.isfinite().all() for entry in trace.values())


def test_fully_masked_rows_have_the_gradient_of_finite_differences(draw):
    mask = torch.tensor([[True, False, True], [False, False, False]])
    inputs = [draw(2, 2).requires_grad_(), draw(3, 2).requires_grad_(), draw(3, 4).requires_grad_()]
    assert torch.autograd.gradcheck(lambda *x: scaled_dot_product_attention(*x, mask), inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mask_does_not_overflow_in_a_smaller_type(sizes, seeded, three, dtype):
    mask = masks(sizes, seeded)["full"]
    mask[0, 0, 0] = False
    inputs = [x.to(dtype) for x in vars(three).values()]
    output = scaled_dot_product_attention(*inputs, mask)
    assert output.dtype == dtype
    # The kernels round intermediates at other places: two units of the type's own precision.
    expected = F.scaled_dot_product_attention(*inputs, mask)
    epsilon = torch.finfo(dtype).eps
    assert_close(output, expected, rtol=2.0 * epsilon, atol=2.0 * epsilon)


def test_dropout_falls_on_the_weights_after_softmax(sizes, three):
    # With the identity for values, the output is what is left of the weights.
    identity = torch.eye(sizes.src).expand(sizes.batch, sizes.heads, sizes.src, sizes.src)
    with Trace() as trace:
        kept = scaled_dot_product_attention(three.query, three.key, identity, None, 0.25)
    weights = trace["scaled_dot_product_attention.weights"].value
    assert_close(weights.sum(-1), torch.ones(sizes.batch, sizes.heads, sizes.tgt))
    gone = kept == 0.0
    assert 0.0 < gone.double().mean() < 0.5
    assert_close(kept[~gone], weights[~gone] / 0.75)
    # Each query loses keys of its own: no value is dropped for all of them.
    assert (gone != gone[..., :1, :]).any()


def test_without_dropout_every_run_is_the_same(three):
    first, second = (scaled_dot_product_attention(*vars(three).values()) for _ in range(2))
    assert torch.equal(first, second)


def test_its_inputs_are_left_as_they_were(sizes, seeded, three):
    mask = masks(sizes, seeded)["full"]
    given = [*vars(three).values(), mask]
    before = [x.clone() for x in given]
    scaled_dot_product_attention(*given)
    assert all(torch.equal(x, copy) for x, copy in zip(given, before, strict=True))
