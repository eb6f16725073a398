"""Reference implementation of both Transformers in NumPy float64, from the equations alone.

The tests compare every traced tensor with this file, so it shares no code with the package. Most
functions return their intermediate results by name, with the output last:
`layer_norm(x)["output"]`.

The weights are the state_dict of a model or layer, as arrays. A matrix has shape (out, in), a
linear layer computes x Wᵀ + b, and a missing bias is zero.

Source:
    Vaswani et al. (2017), "Attention Is All You Need"; Ba et al. (2016), "Layer Normalization";
    Hendrycks and Gimpel (2016), "Gaussian Error Linear Units"; Su et al. (2021), "RoFormer"; Zhang
    and Sennrich (2019), "Root Mean Square Layer Normalization"; Shazeer (2020), "GLU Variants".
"""

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import ArrayLike
from torch.nn import Module

Array = np.ndarray
Steps = Weights = dict[str, Array]


def padding_mask(ids: ArrayLike, pad_id: int = 0) -> Array:
    """Return a mask that is True for every key but padding: (batch, 1, 1, key)."""
    return (np.asarray(ids) != pad_id)[:, None, None, :]


def causal_mask(query_len: int, key_len: int | None = None) -> Array:
    """Let each query attend up to its own position; the queries are at the last positions."""
    key_len = query_len if key_len is None else key_len
    query = np.arange(query_len)[:, None] + key_len - query_len
    return (np.arange(key_len) <= query)[None, None]


def sinusoid(max_len: int, d_model: int) -> Array:
    """Compute PE(p, 2i) = sin(p / 10000^(2i/d_model)) and PE(p, 2i+1), the matching cosine."""
    even = np.arange(0, d_model, 2)
    angles = np.arange(max_len)[:, None] / 10000.0 ** (even / d_model)
    table = np.empty((max_len, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


def weights_of(module: Module) -> Weights:
    """Copy the state_dict of a layer or model."""
    return {name: value.cpu().numpy().copy() for name, value in module.state_dict().items()}


def compare(trace: Mapping, expected: Steps) -> None:
    """Check that the tensors of a trace have the expected names, order, shapes and values."""
    assert list(trace) == list(expected)
    for name, value in expected.items():
        assert trace[name].shape == value.shape, name
        np.testing.assert_allclose(
            trace[name].value.cpu(), value, rtol=1e-12, atol=1e-12, err_msg=name
        )


def part(weights: Weights, path: str) -> Weights:
    """Select the weights of one submodule, with names relative to the submodule."""
    prefix = f"{path}."
    names = [name for name in weights if name.startswith(prefix)]
    return {name.removeprefix(prefix): weights[name] for name in names}


def linear(x: Array, weights: Weights, name: str) -> Array:
    """Compute y = x Wᵀ + b."""
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)


def softmax(scores: Array) -> Array:
    """Compute exp(s) / Σ exp(s) over the last axis; a row with only -inf gives zeros."""
    highest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(highest), 0.0, highest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0.0, 1.0, total)


def relu(x: Array) -> Array:
    """Compute max(0, x)."""
    return np.maximum(x, 0.0)


def gelu(x: Array) -> Array:
    """Compute the exact GELU: x Φ(x) = x (1 + erf(x / √2)) / 2."""
    return x * 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2.0)))


ACTIVATIONS = {"relu": relu, "gelu": gelu}


def layer_norm(
    x: Array, weight: Array | float = 1.0, bias: Array | float = 0.0, eps: float = 1e-5
) -> Steps:
    """Compute weight * (x - mean) / √(variance + eps) + bias, with the biased variance."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normalized = (x - mean) / np.sqrt(variance + eps)
    output = weight * normalized + bias
    return {"mean": mean, "variance": variance, "normalized": normalized, "output": output}


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Steps:
    """Compute softmax(Q Kᵀ / √d_k) V; a score is -inf where the mask is False."""
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    steps = {"scores": scores}
    if mask is not None:
        scores = steps["masked_scores"] = np.where(mask, scores, -np.inf)
    weights = steps["weights"] = softmax(scores)
    return steps | {"context": weights @ value}


def multi_head_attention(
    query: Array, memory: Array, weights: Weights, num_heads: int, mask: Array | None = None
) -> Steps:
    """Compute Concat(head_1, ..., head_h) W_O, head_i = attention(Q W_Q,i, K W_K,i, V W_V,i)."""

    def split(x: Array) -> Array:
        return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)

    projected = {
        "projected_query": linear(query, weights, "w_q"),
        "projected_key": linear(memory, weights, "w_k"),
        "projected_value": linear(memory, weights, "w_v"),
    }
    heads = {
        "query_heads": split(projected["projected_query"]),
        "key_heads": split(projected["projected_key"]),
        "value_heads": split(projected["projected_value"]),
    }
    inner = attention(*heads.values(), mask)

    batch, query_len, _ = query.shape
    merged = inner["context"].swapaxes(1, 2).reshape(batch, query_len, -1)
    output = linear(merged, weights, "w_o")
    return projected | heads | inner | {"merged": merged, "output": output}


def feed_forward(x: Array, weights: Weights, activation: str = "relu") -> Steps:
    """Compute activation(x W_up + b_up) W_down + b_down."""
    pre_activation = linear(x, weights, "up")
    activated = ACTIVATIONS[activation](pre_activation)
    output = linear(activated, weights, "down")
    return {"pre_activation": pre_activation, "activated": activated, "output": output}


def note(trace: Steps, prefix: str, steps: Steps) -> Array:
    """Add the steps to the trace as prefix.name, and return the last one, the output."""
    trace.update({f"{prefix}.{name}": value for name, value in steps.items()})
    return list(steps.values())[-1]


def embed(
    trace: Steps, side: str, ids: ArrayLike, table: Array, scale: bool, call: str = ""
) -> Array:
    """Look up the ids, scale by √d_model if requested, and add the positional encoding."""
    ids = np.asarray(ids)
    steps = {"vectors": table[ids]}
    if scale:
        steps["scaled"] = steps["vectors"] * math.sqrt(table.shape[1])
    x = note(trace, f"{side}_embedding", steps)

    positions = sinusoid(ids.shape[1], table.shape[1])
    steps = {"positions": positions, "encoded": x + positions}
    trace[f"{side}_input"] = note(trace, f"positional_encoding{call}", steps)
    return trace[f"{side}_input"]


def residual(
    trace: Steps, path: str, x: Array, weights: Weights, sublayer: Callable, norm_first: bool
) -> Array:
    """Compute x + sublayer(norm(x)), or norm(x + sublayer(x)) as in the paper."""
    wrapper, sublayer = f"{path}_residual", partial(sublayer, weights=part(weights, path))
    norm = partial(layer_norm, **part(weights, f"{wrapper}.norm"))
    if norm_first:
        normed = note(trace, f"{wrapper}.norm", norm(x))
        return note(trace, wrapper, {"added": x + note(trace, path, sublayer(normed))})
    added = note(trace, wrapper, {"added": x + note(trace, path, sublayer(x))})
    return note(trace, f"{wrapper}.norm", norm(added))


def run(
    weights: Weights, src_ids: ArrayLike, tgt_ids: ArrayLike, *, num_heads: int, num_layers: int,
    norm_first: bool = True, activation: str = "relu", scale_embedding: bool = False,
    tie_weights: bool = False, src_mask: Array | None = None, tgt_mask: Array | None = None,
) -> Steps:  # fmt: skip
    """Run the Transformer and return every intermediate tensor by its traced name, in order."""
    trace: Steps = {}

    def attend(mask: Array | None, memory: Array | None = None) -> Callable:
        return lambda y, weights: multi_head_attention(
            y, y if memory is None else memory, weights, num_heads, mask
        )

    def stack(side: str, x: Array, sublayers: dict[str, Callable]) -> Array:
        for index in range(num_layers):
            for name, sublayer in sublayers.items():
                path = f"{side}.layers.{index}.{name}"
                x = residual(trace, path, x, weights, sublayer, norm_first)
        if norm_first:
            x = note(trace, f"{side}.norm", layer_norm(x, **part(weights, f"{side}.norm")))
        return x

    feed = partial(feed_forward, activation=activation)
    x = embed(trace, "src", src_ids, weights["src_embedding.weight"], scale_embedding)
    memory = stack("encoder", x, {"self_attention": attend(src_mask), "feed_forward": feed})
    trace["memory"] = memory

    x = embed(trace, "tgt", tgt_ids, weights["tgt_embedding.weight"], scale_embedding, call="#2")
    decoder_sublayers = {
        "self_attention": attend(tgt_mask),
        "cross_attention": attend(src_mask, memory),
        "feed_forward": feed,
    }
    trace["decoder_output"] = stack("decoder", x, decoder_sublayers)
    if tie_weights:
        trace["logits"] = linear(trace["decoder_output"], weights, "tgt_embedding")
    else:
        trace["logits"] = linear(trace["decoder_output"], weights, "output_projection")
    return trace


def rms_norm(x: Array, weight: Array | float = 1.0, eps: float = 1e-5) -> Steps:
    """Compute weight * x / √(mean of squares + eps)."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    normalized = x / np.sqrt(mean_square + eps)
    return {"mean_square": mean_square, "normalized": normalized, "output": weight * normalized}


def rotate(heads: Array, start: int = 0, base: float = 10000.0) -> Steps:
    """Multiply each pair of adjacent features, as a complex number, by e^(√-1 · position · ω)."""
    length, d_k = heads.shape[-2:]
    frequency = base ** (-np.arange(0, d_k, 2) / d_k)
    factor = np.exp(1j * np.arange(start, start + length)[:, None] * frequency)
    even, odd = heads[..., 0::2], heads[..., 1::2]
    product = (even + 1j * odd) * factor
    turned = np.stack((product.real, product.imag), axis=-1).reshape(heads.shape)
    return {"sin": factor.imag, "cos": factor.real, "even": even, "odd": odd, "turned": turned}


def grouped_attention(
    x: Array, weights: Weights, num_heads: int, mask: Array, rotate_heads: Callable[[Array], Array]
) -> Steps:
    """Let query head h attend to key and value head ⌊h · num_kv_heads / num_heads⌋."""
    width = weights["w_q.weight"].shape[0] // num_heads

    def split(name: str) -> Array:
        return linear(x, weights, name).reshape(*x.shape[:2], -1, width).swapaxes(1, 2)

    def share(heads: Array) -> Array:
        return heads[:, [head * heads.shape[1] // num_heads for head in range(num_heads)]]

    steps = {f"{name}_heads": split(f"w_{name[0]}") for name in ("query", "key", "value")}
    query, key = rotate_heads(steps["query_heads"]), rotate_heads(steps["key_heads"])
    steps |= {"shared_keys": share(key), "shared_values": share(steps["value_heads"])}
    inner = attention(query, steps["shared_keys"], steps["shared_values"], mask)
    merged = inner["context"].swapaxes(1, 2).reshape(*x.shape[:2], -1)
    return steps | inner | {"merged": merged, "output": linear(merged, weights, "w_o")}


def swiglu(x: Array, weights: Weights) -> Steps:
    """Compute (SiLU(x W_gate) * x W_up) W_down."""
    before = linear(x, weights, "gate")
    gate, expanded = before / (1.0 + np.exp(-before)), linear(x, weights, "up")
    gated = gate * expanded
    output = linear(gated, weights, "down")
    return {"gate": gate, "expanded": expanded, "gated": gated, "output": output}


def run_decoder_only(
    weights: Weights, ids: ArrayLike, *, num_heads: int, num_layers: int, base: float = 10000.0,
    eps: float = 1e-5, key_mask: Array | None = None,
) -> Steps:  # fmt: skip
    """Run the decoder-only model and return every intermediate tensor by its traced name.

    If "output_projection.weight" is missing, the output projection is tied to the embedding.
    """
    ids = np.asarray(ids)
    mask = causal_mask(ids.shape[1])
    mask = mask if key_mask is None else mask & key_mask
    x = weights["embedding.weight"][ids]
    trace: Steps = {"embedding.vectors": x, "embedded": x}
    calls = 0

    def rotate_heads(heads: Array) -> Array:
        nonlocal calls
        calls += 1
        name = "rotary" if calls == 1 else f"rotary#{calls}"
        return note(trace, name, rotate(heads, base=base))

    def attend(y: Array, weights: Weights) -> Steps:
        return grouped_attention(y, weights, num_heads, mask, rotate_heads)

    def norm(path: str, y: Array) -> Array:
        return note(trace, path, rms_norm(y, weights[f"{path}.weight"], eps))

    for index in range(num_layers):
        for name, sublayer in (("self_attention", attend), ("feed_forward", swiglu)):
            path = f"layers.{index}.{name}"
            steps = sublayer(norm(f"{path}_residual.norm", x), part(weights, path))
            x = note(trace, f"{path}_residual", {"added": x + note(trace, path, steps)})
    trace["decoder_output"] = norm("norm", x)
    tied = "output_projection.weight" not in weights
    trace["logits"] = linear(
        trace["decoder_output"], weights, "embedding" if tied else "output_projection"
    )
    return trace
