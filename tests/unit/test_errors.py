"""Invalid input raises a ValueError that names the argument and its value."""

import inspect
import itertools
import math
import re

import numpy as np
import pytest
import torch
from test_every_layer import LAYERS
from torch import nn

import twelve
from twelve import _checks
from twelve.fast import make_fast

pytestmark = pytest.mark.usefixtures("unchecked")


def x(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def ids(*shape: int, fill: int = 0) -> torch.Tensor:
    return torch.full(shape, fill)


def mask(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bool)


def attend(query=(2, 4, 24), key=(2, 5, 24), value=(2, 5, 24), mask=None):
    return twelve.MultiHeadAttention(24, 3)(x(*query), x(*key), x(*value), mask)


def transform(src=(2, 5), tgt=(2, 4), **masks):
    model = twelve.Transformer(11, 13, d_model=24, num_heads=3, num_layers=1, max_len=6)
    return model(ids(*src), tgt and ids(*tgt), **masks)


def share(mask):
    return twelve.GroupedQueryAttention(24, 6, 3)(x(2, 5, 24), mask)


def speak(ids, *, max_len=8, room=None, order=1, lengths=(0, 0), dtype=None, **keywords):
    """Run a language model, with caches of `room` positions if given."""
    model = twelve.LanguageModel(11, d_model=24, num_heads=3, num_layers=2, max_len=max_len)
    caches = {} if room is None else {"caches": model.to(dtype).new_caches(2, room)[::order]}
    model.double()
    for cache, length in zip(caches.get("caches", ()), lengths, strict=False):
        cache.length = length
    return model(ids, **caches, **keywords)


SDPA = twelve.scaled_dot_product_attention
HEADS = {"d_model": 24, "num_heads": 3}
# Valid settings. The tests replace each setting with every kind of invalid value.
SETTINGS: dict[str, dict[str, object]] = {
    "Linear": {"d_in": 3, "d_out": 4, "bias": True},
    "TokenEmbedding": {"vocab_size": 4, "d_model": 3, "scale": False},
    "sinusoid": {"max_len": 5, "d_model": 3, "base": 10000.0},
    "PositionalEncoding": {"d_model": 3, "max_len": 5, "dropout": 0.0},
    "LearnedPositionalEncoding": {"d_model": 3, "max_len": 5, "dropout": 0.0},
    "causal_mask": {"query_len": 2, "key_len": 2, "window": 1},
    "MultiHeadAttention": HEADS | {"d_k": 8, "d_v": 8, "bias": False, "dropout": 0.0},
    "LayerNorm": {"d_model": 3, "eps": 1e-5},
    "RMSNorm": {"d_model": 3, "eps": 1e-5},
    "Residual": {"d_model": 3, "norm_first": True, "dropout": 0.0},
    "FeedForward": {"d_model": 24, "d_ff": 96, "bias": True, "dropout": 0.0},
    "SwiGLU": {"d_model": 24, "d_ff": 64},
    "MixtureOfExperts": {"d_model": 24, "d_ff": 64, "num_experts": 5},
    "Encoder": HEADS | {"num_layers": 1, "norm_first": True, "dropout": 0.0},
    "Decoder": HEADS | {"num_layers": 1, "norm_first": True, "dropout": 0.0},
    "Transformer": HEADS | {
        "src_vocab_size": 11, "tgt_vocab_size": 13, "num_layers": 1, "max_len": 6, "dropout": 0.0,
        "tie_weights": False,
    },
    "RotaryEncoding": {"d_k": 2, "max_len": 5, "base": 10000.0},
    "GroupedQueryAttention": HEADS | {"num_kv_heads": 3, "d_k": 8, "bias": False, "dropout": 0.0},
    "LatentAttention": HEADS | {"d_latent": 7, "d_k": 8, "d_v": 8, "dropout": 0.0},
    "LanguageModel": HEADS | {
        "vocab_size": 11, "num_layers": 1, "max_len": 6, "eps": 1e-5, "base": 10000.0,
        "tie_weights": False, "bias": False, "window": 3,
    },
}  # fmt: skip


def invalid_values(name: str, value: object) -> tuple[list, str]:
    """Return invalid values of a setting, and the condition that the error message states."""
    if isinstance(value, bool):
        return ["no", 0], "True or False"
    if name == "dropout":
        return [1.0, -0.1, math.nan, False, "0.1", None], "at least 0 and below 1"
    if name in ("eps", "base"):
        return [0.0, -1.0, math.nan, math.inf, True, "1e-5", None], "above 0 and finite"
    return [0, -2, 2.5, True, "24", (3,)], "an integer of at least 1"


@pytest.mark.parametrize("layer", SETTINGS)
def test_invalid_setting_is_named_with_its_value(layer):
    build, settings = getattr(twelve, layer), SETTINGS[layer]
    valid = build(**settings)
    modules = valid.modules() if isinstance(valid, nn.Module) else ()
    owners = {layer, "sinusoid", *(type(module).__name__ for module in modules)}
    for name, value in settings.items():
        wrong, wanted = invalid_values(name, value)
        for other in wrong:
            with pytest.raises(ValueError) as caught:
                build(**settings | {name: other})
            owner, _, rest = str(caught.value).partition(": ")
            argument, _, rest = rest.partition(" ")
            assert owner in owners and name.endswith(argument), (name, caught.value)
            assert rest == f"must be {wanted}, got {other!r}"


# Each call, followed by its error message on indented lines.
TABLE = """\
# settings
MultiHeadAttention(24, 5)
    MultiHeadAttention: d_model must be divisible by num_heads=5, got 24; choose another num_heads
    or give d_k and d_v
GroupedQueryAttention(24, 6, 4)
    GroupedQueryAttention: num_heads must be divisible by num_kv_heads=4, got 6
GroupedQueryAttention(24, 5)
    GroupedQueryAttention: d_model must be divisible by num_heads=5, got 24; choose another
    num_heads or give d_k
GroupedQueryAttention(24, 6, rotary=RotaryEncoding(8))
    GroupedQueryAttention: d_k must be equal, got attention has 4, rotary has 8
RotaryEncoding(3)
    RotaryEncoding: d_k must be even, got 3
Residual(4, norm=RMSNorm(5))
    Residual: d_model must be equal, got residual has 4, norm has 5
FeedForward(3, activation=['relu'])
    FeedForward: activation must be one of relu, gelu, gelu_tanh, silu, got ['relu']
LatentAttention(24, 5, 7)
    LatentAttention: d_model must be divisible by num_heads=5, got 24; choose another num_heads or
    give d_k
LatentAttention(24, 3, 7)(x(2, 5, 24), mask(2, 5, 5, 5))
    LatentAttention: mask must broadcast to (batch, head, query, key) (2, 3, 5, 5), got shape
    (2, 5, 5, 5)
latent_attention.LatentCache(LatentAttention(24, 3, 7), 2, 0)
    LatentCache: max_len must be an integer of at least 1, got 0
MixtureOfExperts(3, 8, num_experts=4, k=5)
    MixtureOfExperts: k must be an integer from 1 to 4 (num_experts), got 5
SwiGLU(3, 8, activation='tanh')
    SwiGLU: activation must be one of relu, gelu, gelu_tanh, silu, got 'tanh'
TokenEmbedding(4, 3, padding_idx=True)
    TokenEmbedding: padding_idx must be an integer from 0 to 3 (vocab_size=4), got True
SDPA(x(4, 8), x(5, 8), x(5, 6), None, 1.0)
    scaled_dot_product_attention: dropout must be at least 0 and below 1, got 1.0
causal_mask(5, 4)
    causal_mask: key_len must be at least query_len=5, got 4
# ids outside the vocabulary
TokenEmbedding(4, 3)(torch.tensor([[0, 4], [2, 3]]))
    TokenEmbedding: ids must be from 0 to 3 (vocab_size=4), got 4
# kinds of values
padding_mask(ids(2, 5), pad_id=None)
    padding_mask: pad_id must be an integer, got None
padding_mask(np.zeros((2, 5), dtype=np.int64))
    padding_mask: ids must be a tensor of int64 or int32 ids, got a ndarray
transform(tgt=None)
    Transformer: tgt must be a tensor of int64 or int32 ids, got a NoneType
LayerNorm(3)(ids(2, 5, 3))
    LayerNorm: x must be a floating-point tensor, got torch.int64 in shape (2, 5, 3)
attend(mask=mask(2, 1, 1, 5).long())
    MultiHeadAttention: mask must be a boolean tensor (True = may attend), got torch.int64 in
    shape (2, 1, 1, 5)
Linear(2, 3)(x(5, 2).float())
    Linear: all arguments must have one dtype, got x has torch.float32, weight has torch.float64
SDPA(x(4, 8), x(5, 8).float(), x(5, 6))
    scaled_dot_product_attention: all arguments must have one dtype, got query has torch.float64,
    key has torch.float32, value has torch.float64
# positions outside a table or a cache
PositionalEncoding(3, max_len=4)(x(2, 5, 3))
    PositionalEncoding: the sequence must end within max_len=4, got 5 positions from position 0 on
RotaryEncoding(8, max_len=6)(x(2, 3, 5, 8), start=2)
    RotaryEncoding: the sequence must end within max_len=6, got 5 positions from position 2 on
RotaryEncoding(8, max_len=6)(x(2, 3, 1, 8), start=-1)
    RotaryEncoding: start must be an integer from 0 to 6 (max_len), got -1
speak(ids(2, 3), caches=[])
    LanguageModel: the numbers of layers and caches must be equal, got layers has 2, caches has 0
speak(ids(2, 3), room=5, order=-1)
    LanguageModel: caches must be in the order of the layers, got [1, 0]
speak(ids(2, 3), room=5, dtype=torch.float32)
    LanguageModel: the dtypes of cache and model must be equal, got cache has torch.float32, model
    has torch.float64
speak(ids(2, 1), room=5, lengths=(3, 3), key_mask=mask(2, 1, 1, 1))
    LanguageModel: the numbers of positions must be equal, got key_mask has 1, text has 4
Decoder(24, 3, num_layers=2)(x(2, 4, 24), x(2, 5, 24), caches=[(None, None)])
    Decoder: the numbers of layers and caches must be equal, got layers has 2, caches has 1
speak(ids(2, 1), room=5, lengths=(1, 3))
    LanguageModel: the lengths of the caches must be equal, got cache 0 has 1, cache 1 has 3
# other arguments
LanguageModel(11, d_model=25, num_heads=3, num_layers=1)
    LanguageModel: d_model must be divisible by num_heads=3, got 25; choose another num_heads or
    give d_k
RotaryEncoding(8)(x(1, 2, 3, 8).half())
    RotaryEncoding: all arguments must have one dtype, got heads has torch.float16, table has
    torch.float64
SDPA(x(4, 0), x(5, 0), x(5, 6))
    scaled_dot_product_attention: d_k must be an integer of at least 1, got 0
# axes
attend(query=(2, 4, 8))
    MultiHeadAttention: query must have d_model=24, got 8 in shape (2, 4, 8)
Linear(3, 4)(torch.tensor(1.0))
    Linear: x must have the axes (..., d_in), got shape ()
SDPA(x(2, 4, 8), x(1, 5, 8), x(3, 5, 8))
    scaled_dot_product_attention: key must have batch=(2,) as in query, got (1,) in shape (1, 5,
    8)
attend(value=(1, 5, 24))
    MultiHeadAttention: value must have batch=2 as in query, got 1 in shape (1, 5, 24)
Decoder(24, 3, num_layers=1)(x(3, 4, 24), x(2, 5, 24))
    Decoder: memory must have batch=3 as in x, got 2 in shape (2, 5, 24)
transform(src=(3, 5))
    Transformer: tgt must have batch=3 as in src, got 2 in shape (2, 4)
Residual(24)(x(2, 5, 24), lambda normed: normed[:, :1])
    Residual: sublayer must return one tensor of shape (2, 5, 24), got torch.float64 in shape (2,
    1, 24)
Residual(24, norm_first=False)(x(2, 5, 24), lambda x: (x, None))
    Residual: sublayer must return one tensor of shape (2, 5, 24), got a tuple
# axes of masks
attend(query=(3, 4, 24), key=(3, 5, 24), value=(3, 5, 24), mask=mask(3, 4, 5))
    MultiHeadAttention: mask must have the axes (batch, head, query, key), got shape (3, 4, 5)
Residual(24)(x(3, 5, 24), lambda x: MultiHeadAttention(24, 3)(x, x, x, mask(3, 1, 5)))
    MultiHeadAttention: mask must have 4 axes (batch, head, query, key), got shape (3, 1, 5)
SDPA(x(4, 8), x(5, 8), x(5, 6), mask(5, 4))
    scaled_dot_product_attention: attn_mask must have query=4 as in query, got 5 in shape (5, 4)
SDPA(x(4, 8), x(5, 8), x(5, 6), mask(1, 1, 5))
    scaled_dot_product_attention: attn_mask must have batch=() as in query, got (1,) in shape (1,
    1, 5)
attend(mask=mask(2, 1, 1, 4))
    MultiHeadAttention: mask must broadcast to (batch, head, query, key) (2, 3, 4, 5), got shape
    (2, 1, 1, 4)
share(mask=mask(2, 3, 5, 5))
    GroupedQueryAttention: mask must broadcast to (batch, head, query, key) (2, 6, 5, 5), got
    shape (2, 3, 5, 5)
speak(ids(2, 5), key_mask=mask(2, 1, 5, 5))
    LanguageModel: key_mask must broadcast to (batch, head, query, key) (2, 1, 1, 5), got shape
    (2, 1, 5, 5)
transform(tgt_mask=causal_mask(5))
    Transformer: tgt_mask must have tgt=4 as in tgt, got 5 in shape (1, 1, 5, 5)
"""
CALLS = re.findall(r"^([^#\s].*)((?:\n    .+)+)", TABLE, re.MULTILINE)


def spoil(value: torch.Tensor) -> dict[str, object]:
    """Derive every kind of invalid input from a valid tensor."""
    wrong = {"no tensor": value.tolist(), "dtype": value.to(torch.complex64)}
    wrong["no axes"] = value[(0,) * value.ndim]
    if value.is_floating_point() and value.size(-1) in (24, 8):
        wrong["last axis"] = value[..., :-1]
    return wrong


@pytest.mark.parametrize(("build", "inputs", "masks"), LAYERS.values(), ids=LAYERS)
def test_every_layer_names_the_argument_that_is_invalid(build, inputs, masks):
    plain, fast = build(), make_fast(build())
    valid = dict(zip(inspect.signature(plain.forward).parameters, inputs, strict=False)) | masks
    tensors = {name: value for name, value in valid.items() if isinstance(value, torch.Tensor)}
    for layer, (name, value) in itertools.product((plain, fast), tensors.items()):
        for kind, wrong in spoil(value).items():
            pattern = f"^{type(layer).__name__}: (key|value|{name}) must .*got "
            with pytest.raises(ValueError, match=pattern):
                layer(**valid | {name: wrong})
                pytest.fail(f"{kind} of {name}")


def test_checked_leaves_wrong_arguments_to_python():
    with pytest.raises(TypeError, match=r"Linear.forward\(\) takes 2 positional arguments but 3"):
        twelve.Linear(3, 4)(x(2, 3), x(2, 3))


def test_checked_checks_the_outermost_call_only(monkeypatch):
    calls, check = [], _checks._check_arguments
    monkeypatch.setattr(
        _checks, "_check_arguments", lambda where, *rest: calls.append(where) or check(where, *rest)
    )
    transform()
    assert calls == ["Transformer"]
    with pytest.raises(ValueError, match="Transformer"):
        transform(src=(3, 5))
    transform()  # the error above did not switch off the checks
    assert calls == ["Transformer"] * 3


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_invalid_input_is_named_with_its_numbers(call, message):
    with pytest.raises(ValueError) as caught:
        eval(call, vars(twelve) | globals())
    assert str(caught.value) == " ".join(message.split())


def test_numpy_integers_are_accepted_as_sizes():
    sizes = {"d_model": np.int64(24), "num_heads": np.int64(3), "num_layers": np.int64(1)}
    model = twelve.Transformer(np.int64(11), np.int32(13), **sizes)
    assert model.encoder.layers[0].self_attention.d_k == 8
    assert twelve.causal_mask(np.int64(2)).shape == (1, 1, 2, 2)


def test_a_part_may_be_named_like_an_axis():
    layer = twelve.MultiHeadAttention(24, 3)
    layer.query = layer.head = nn.Linear(2, 2)
    layer.key = "a word"
    assert layer(*[x(2, 5, 24)] * 3, mask(2, 3, 5, 5)).shape == (2, 5, 24)


def test_linear_accepts_two_dtypes_under_autocast():
    layer = twelve.Linear(24, 8).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x(2, 24).to(torch.bfloat16)).dtype == torch.bfloat16
