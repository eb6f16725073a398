"""Axis names: binding, inheritance from the caller, and checks."""

import pytest

from twelve_lab.trace.axes import AxisError, Scope

CALLER = ("batch", "tgt", "d_model")
# Tensors of one call: annotation, shape, axis names in the caller, and expected axis names.
NAMED = {
    "a group inherits its names": [
        ("*batch d", (2, 4, 3), ("batch", "src", "d_model"), ("batch", "src", "d")),
        ("*batch 1", (2, 4, 1), None, ("batch", "src", "1")),
    ],
    "an unknown group is numbered": [("*batch d", (2, 4, 3), None, ("batch_0", "batch_1", "d"))],
    "a group of one axis is not": [("*batch d", (2, 3), None, ("batch", "d"))],
    "a group may be empty": [("*batch d", (3,), None, ("d",))],
    "seq inherits its name": [
        ("batch seq d_model", (2, 4, 3), CALLER, CALLER),
        ("batch seq d_ff", (2, 4, 9), None, ("batch", "tgt", "d_ff")),
        ("batch seq d_model", (2, 4, 3), ("batch", "src", "d_model"), CALLER),
    ],
    "query keeps its name": [
        ("batch query d_model", (2, 4, 3), CALLER, ("batch", "query", "d_model"))
    ],
    "a broadcast group is aligned on the right": [
        ("*batch query d", (2, 3, 4, 5), ("batch", "head", "tgt", "d_k"),
         ("batch", "head", "query", "d")),
        ("*#batch #query", (3, 4), None, ("head", "query")),
        ("*#batch #query", (4,), None, ("query",)),
    ],
    "axes without a name may differ": [
        ("... d", (2, 4, 3), None, ("..._0", "..._1", "d")),
        ("... d", (5, 3), None, ("...", "d")),
        ("_ d", (2, 3), ("batch", "d_model"), ("batch", "d")),
        ("_ _", (2, 4), None, ("_", "_")),
    ],
    "an underscore leaves the size open": [
        ("batch key d_model", (2, 1, 3), None, ("batch", "key", "d_model")),
        ("#batch _key", (2, 5), ("batch", "src"), ("batch", "key")),
    ],
    "a broadcast axis may have size 1": [
        ("batch query key", (2, 4, 5), None, ("batch", "query", "key")),
        ("#batch #query #key", (1, 1, 5), None, ("batch", "query", "key")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("tensors", NAMED.values(), ids=NAMED)
def test_scope_names_every_axis(tensors):
    scope = Scope({})
    for axes, shape, known, names in tensors:
        assert scope.bind("x", axes, shape, known) == names


# Tensors of one call, the last of which is inconsistent, and the error message.
REFUSED = [
    ([("first", "batch query", (2, 4)), ("second", "query", (5,))],
     "second has query=5, but first has query=4"),
    ([("first", "*batch d", (2, 4, 3)), ("second", "*batch e", (2, 5, 3))],
     r"second has batch = \(2, 5\).*batch = \(2, 4\)"),
    ([("x", "batch d", (2, 4, 3))], r"\(batch, d\) but has the shape \(2, 4, 3\): 2 .* 3"),
    ([("y", "*batch query key", (2,))], "1 are there"),
    ([("mean", "batch 1", (2, 3))], "should have size 1 on an axis, got 3"),
    ([("colour", "batch rgb=3", (2, 4))], "should have size 3 on an axis, got 4"),
    ([("scores", "query key", (4, 5)), ("mask", "#query #key", (1, 3))],
     "mask has key=3, but scores has key=5"),
    ([("projected", "query head*d_k", (4, 6)), ("heads", "head query d_k", (3, 4, 2)),
      ("merged", "query head*d_k", (4, 5))], r"merged has head\*d_k=5, but .* gives 6"),
    ([("pairs", "query 2*half", (4, 6)), ("half", "query half", (4, 2))],
     r"pairs has 2\*half=6, but .* gives 4"),
    ([("x", "query d_k+1", (4, 6))], r"cannot read the axis 'd_k\+1'"),
]  # fmt: skip


@pytest.mark.parametrize(("tensors", "message"), REFUSED)
def test_scope_refuses_a_contradiction(tensors, message):
    scope = Scope({})
    *before, last = tensors
    for tensor in before:
        scope.bind(*tensor)
    with pytest.raises(AxisError, match=message):
        scope.bind(*last)
        scope.close()


def test_scope_closes_while_a_factor_of_a_product_is_unknown():
    scope = Scope({})
    scope.bind("pairs", "query 2*half", (4, 6))
    scope.close()


@pytest.mark.parametrize(
    ("axes", "shape", "message"),
    [
        ("batch query d_model", (7, 4, 3), "batch=7, but a has batch=2: batch keeps one size"),
        ("batch query d_model", (2, 4, 8), "d_model=8, but a has d_model=3: d_model keeps"),
        ("*batch d_ff", (7, 9), "batch=7, but a has batch=2"),
        ("#batch #query", (7, 4), "batch=7, but a has batch=2"),
    ],
)
def test_batch_and_d_model_keep_one_size_through_the_run(axes, shape, message):
    shared = {}
    Scope(shared).bind("a", "*batch d_model", (2, 4, 3), ("batch", "src", "d_model"))
    Scope(shared).bind("b", "#batch query d_model", (1, 5, 3))
    with pytest.raises(AxisError, match=message):
        Scope(shared).bind("c", axes, shape)
