"""Axis names: bound, inherited from the caller, and checked."""

import pytest

from twelve_lab.trace.axes import AxisError, Scope


@pytest.fixture
def scope():
    return Scope({})


def test_a_group_takes_the_names_that_the_caller_knows(scope):
    names = scope.bind("x", "*batch d", (2, 4, 3), known=("batch", "src", "d_model"))
    assert names == ("batch", "src", "d")
    assert scope.bind("mean", "*batch 1", (2, 4, 1)) == ("batch", "src", "1")


def test_a_group_of_unknown_axes_is_numbered_and_a_single_one_is_not(scope):
    assert scope.bind("x", "*batch d", (2, 4, 3)) == ("batch_0", "batch_1", "d")
    assert Scope({}).bind("x", "*batch d", (2, 3)) == ("batch", "d")
    assert Scope({}).bind("x", "*batch d", (3,)) == ("d",)


def test_seq_takes_the_callers_name_and_query_keeps_its_own(scope):
    known = ("batch", "tgt", "d_model")
    assert scope.bind("x", "batch seq d_model", (2, 4, 3), known) == known
    assert scope.bind("y", "batch seq d_ff", (2, 4, 9)) == ("batch", "tgt", "d_ff")
    assert Scope({}).bind("q", "batch query d_model", (2, 4, 3), known)[1] == "query"


def test_seq_keeps_the_name_that_it_had_first_in_a_call(scope):
    scope.bind("x", "batch seq d_model", (2, 4, 3), ("batch", "tgt", "d_model"))
    names = scope.bind("y", "batch seq d_model", (2, 4, 3), ("batch", "src", "d_model"))
    assert names == ("batch", "tgt", "d_model")


def test_a_broadcast_group_lines_up_with_the_last_axes_of_the_group(scope):
    scope.bind("query", "*batch query d", (2, 3, 4, 5), ("batch", "head", "tgt", "d_k"))
    assert scope.bind("mask", "*#batch #query", (3, 4)) == ("head", "query")
    assert scope.bind("mask", "*#batch #query", (4,)) == ("query",)


def test_axes_without_a_name_may_differ_from_tensor_to_tensor(scope):
    scope.bind("x", "... d", (2, 4, 3))
    assert scope.bind("y", "... d", (5, 3))[-1] == "d"
    assert scope.bind("z", "_ d", (2, 3), ("batch", "d_model")) == ("batch", "d")
    assert Scope({}).bind("z", "_ _", (2, 4)) == ("_", "_")


def test_an_underscore_before_a_name_leaves_the_size_open_and_keeps_the_name(scope):
    scope.bind("key", "batch key d_model", (2, 1, 3))
    assert scope.bind("mask", "#batch _key", (2, 5), ("batch", "src")) == ("batch", "key")


def test_one_name_with_two_sizes_names_both_tensors(scope):
    scope.bind("first", "batch query", (2, 4))
    with pytest.raises(AxisError, match=r"second has query=5, but first has query=4"):
        scope.bind("second", "query", (5,))


def test_a_group_with_two_sizes_is_refused(scope):
    scope.bind("first", "*batch d", (2, 4, 3))
    with pytest.raises(AxisError, match=r"second has batch = \(2, 5\).*batch = \(2, 4\)"):
        scope.bind("second", "*batch e", (2, 5, 3))


def test_the_wrong_number_of_axes_is_refused(scope):
    with pytest.raises(AxisError, match=r"\(batch, d\) but has the shape \(2, 4, 3\): 2 .* 3"):
        scope.bind("x", "batch d", (2, 4, 3))
    with pytest.raises(AxisError, match="1 are there"):
        scope.bind("y", "*batch query key", (2,))


def test_a_fixed_size_is_checked(scope):
    with pytest.raises(AxisError, match="should have size 1 on an axis, got 3"):
        scope.bind("mean", "batch 1", (2, 3))
    with pytest.raises(AxisError, match="should have size 3 on an axis, got 4"):
        scope.bind("colour", "batch rgb=3", (2, 4))


def test_a_broadcast_axis_may_be_one_or_the_size(scope):
    scope.bind("scores", "batch query key", (2, 4, 5))
    scope.bind("mask", "#batch #query #key", (1, 1, 5))
    with pytest.raises(AxisError, match="mask has key=3, but scores has key=5"):
        scope.bind("mask", "#batch #query #key", (1, 1, 3))


def test_batch_and_d_model_keep_one_size_through_the_run_and_query_does_not():
    shared = {}
    Scope(shared).bind("a", "batch query d_model", (2, 4, 3))
    Scope(shared).bind("b", "batch query d_model", (2, 5, 3))
    with pytest.raises(AxisError, match="c has batch=7, but a has batch=2: batch keeps one size"):
        Scope(shared).bind("c", "batch query d_model", (7, 4, 3))
    with pytest.raises(AxisError, match="c has d_model=8, but a has d_model=3: d_model keeps"):
        Scope(shared).bind("c", "batch query d_model", (2, 4, 8))


def test_an_axis_of_a_group_and_of_a_mask_keeps_that_size_too():
    shared = {}
    Scope(shared).bind("a", "*batch d_model", (2, 4, 3), ("batch", "src", "d_model"))
    with pytest.raises(AxisError, match="b has batch=7, but a has batch=2"):
        Scope(shared).bind("b", "*batch d_ff", (7, 9))
    with pytest.raises(AxisError, match="mask has batch=7, but a has batch=2"):
        Scope(shared).bind("mask", "#batch #query", (7, 4))
    assert Scope(shared).bind("mask", "#batch #query", (1, 4)) == ("batch", "query")


def test_a_product_is_checked_when_its_factors_are_known(scope):
    scope.bind("projected", "query head*d_k", (4, 6))
    scope.bind("heads", "head query d_k", (3, 4, 2))
    scope.close()
    scope.bind("merged", "query head*d_k", (4, 5))
    with pytest.raises(AxisError, match=r"merged has head\*d_k=5, but head=3 \* d_k=2 gives 6"):
        scope.close()


def test_a_product_may_hold_a_number_and_waits_for_a_factor_that_is_not_known(scope):
    scope.bind("pairs", "query 2*half", (4, 6))
    scope.close()
    scope.bind("half", "query half", (4, 2))
    with pytest.raises(AxisError, match=r"pairs has 2\*half=6, but .* gives 4"):
        scope.close()


def test_an_axis_that_is_neither_a_name_nor_a_product_is_refused(scope):
    scope.bind("x", "query d_k+1", (4, 6))
    with pytest.raises(AxisError, match=r"cannot read the axis 'd_k\+1'"):
        scope.close()
