"""Both whole Transformers in NumPy float64, written from the equations alone.

The tests compare every traced tensor with this file, so it shares no code with the package. Each
piece returns its steps by name, in order, with its result last: `layer_norm(x)["output"]`.

The weights are one nested dict of arrays. A matrix is (in, out) and a layer computes x W + b;
every bias "b..." of a projection may be left out, which means zero:

    "src_embedding", "tgt_embedding": (vocab, d_model)
    "encoder": {"layers": [LAYER, ...], "norm": NORM or None}
    "decoder": {"layers": [LAYER, ...], "norm": NORM or None}
    "output": {"w": (d_model, vocab), "b": (vocab,)}

    NORM = {"weight": (d_model,), "bias": (d_model,)}
    ATTENTION = {"w_q", "w_k": (d_model, head*d_k), "w_v": (d_model, head*d_v),
                 "w_o": (head*d_v, d_model), "b_q", "b_k", "b_v", "b_o"}
    LAYER = {"self_attention": ATTENTION, "self_attention_norm": NORM,
             "feed_forward": {"w_up": (d_model, d_ff), "b_up", "w_down": (d_ff, d_model), "b_down"},
             "feed_forward_norm": NORM}
    and in a decoder layer also "cross_attention": ATTENTION, "cross_attention_norm": NORM

The decoder-only one has "embedding", "layers", "norm" and "output"; its norms have a weight alone,
w_k and w_v have (d_model, kv_head*d_k), and its feed-forward layers "w_gate", "w_up", "w_down".

Source:
    Vaswani et al. (2017), "Attention Is All You Need"; Ba et al. (2016), "Layer Normalization";
    Hendrycks and Gimpel (2016), "Gaussian Error Linear Units"; Su et al. (2021), "RoFormer"; Zhang
    and Sennrich (2019), "Root Mean Square Layer Normalization"; Shazeer (2020), "GLU Variants".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray
Steps = dict[str, Array]


@dataclass(frozen=True)
class Example:
    """Hold the running example: two sentences of two words, and the rows that both tables share."""

    src_ids: tuple = ((0, 1), (2, 3))
    tgt_ids: tuple = ((0, 1), (0, 3))
    labels: tuple = ((1, -100), (3, 2))
    embedding: tuple = ((0.0, 0.0, 0.0), (0.82, 0.15, 0.36), (0.7, 0.2, 0.4), (0.6, 0.3, 0.5))


EXAMPLE = Example()


def example_weights(raw: dict, num_heads: int) -> dict:
    """Arrange the parsed weights.json of the running example as the nested dict above.

    Args:
        raw: The parsed JSON, matrices already (in, out).
        num_heads: 1 or 3 share the matrices of width 3; 2 has its own, the same in all three
            attentions, with d_k = d_v = 2.

    Returns:
        The weights, with every layer norm at its start: weight 1, bias 0.
    """

    def group(name: str, names: dict[str, str]) -> dict[str, Array]:
        return {ours: np.array(raw[name][theirs]) for ours, theirs in names.items()}

    def attention_weights(name: str) -> dict[str, Array]:
        names = {"w_q": "Wq", "w_k": "Wk", "w_v": "Wv", "w_o": "Wo"}
        return group("h2" if num_heads == 2 else name, names)

    def layer(prefix: str, attentions: dict[str, str]) -> dict:
        names = {"w_up": "W1", "b_up": "b1", "w_down": "W2", "b_down": "b2"}
        parts = {ours: attention_weights(theirs) for ours, theirs in attentions.items()}
        parts["feed_forward"] = group(f"{prefix}_ffn", names)
        return parts | {f"{part}_norm": norm() for part in parts}

    def norm() -> dict[str, Array]:
        return {"weight": np.ones(3), "bias": np.zeros(3)}

    decoder_attentions = {"self_attention": "dec_self", "cross_attention": "dec_cross"}
    return {
        "src_embedding": np.array(EXAMPLE.embedding),
        "tgt_embedding": np.array(EXAMPLE.embedding),
        "encoder": {"layers": [layer("enc", {"self_attention": "enc_self"})], "norm": norm()},
        "decoder": {"layers": [layer("dec", decoder_attentions)], "norm": norm()},
        "output": group("out", {"w": "W", "b": "b"}),
    }


def padding_mask(ids: ArrayLike, pad_id: int = 0) -> Array:
    """Allow every key that is a word: (batch, 1, 1, key)."""
    return (np.asarray(ids) != pad_id)[:, None, None, :]


def causal_mask(query_len: int, key_len: int | None = None) -> Array:
    """Allow each query its own position and those before it, the queries being the last ones."""
    key_len = query_len if key_len is None else key_len
    query = np.arange(query_len)[:, None] + key_len - query_len
    return (np.arange(key_len) <= query)[None, None]


def sinusoid(max_len: int, d_model: int) -> Array:
    """Compute PE(p, 2i) = sin(p / 10000^(2i/d_model)), PE(p, 2i+1) = cos of the same angle."""
    even = np.arange(0, d_model, 2)
    angles = np.arange(max_len)[:, None] / 10000.0 ** (even / d_model)
    table = np.empty((max_len, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d_model // 2])
    return table


def linear(x: Array, w: Array, b: Array | float | None = None) -> Array:
    """Compute y = x W + b."""
    return x @ w + (0.0 if b is None else b)


def softmax(scores: Array) -> Array:
    """Compute exp(s) / Σ exp(s) over the last axis; a row of nothing but -inf gives zeros."""
    highest = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(highest), 0.0, highest))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0.0, 1.0, total)


def relu(x: Array) -> Array:
    """Compute max(0, x)."""
    return np.maximum(x, 0.0)


def gelu(x: Array) -> Array:
    """Compute x Φ(x) = x (1 + erf(x / √2)) / 2, exactly."""
    return x * 0.5 * (1.0 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2.0)))


ACTIVATIONS = {"relu": relu, "gelu": gelu}


def layer_norm(
    x: Array, weight: Array | float = 1.0, bias: Array | float = 0.0, eps: float = 1e-5
) -> Steps:
    """Compute weight * (x - mean) / √(variance + eps) + bias, the variance divided by d_model."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    normalized = (x - mean) / np.sqrt(variance + eps)
    output = weight * normalized + bias
    return {"mean": mean, "variance": variance, "normalized": normalized, "output": output}


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> Steps:
    """Compute softmax(Q Kᵀ / √d_k) V, with -inf for the scores whose mask is False."""
    scores = query @ key.swapaxes(-2, -1) / math.sqrt(query.shape[-1])
    steps = {"scores": scores}
    if mask is not None:
        scores = steps["masked_scores"] = np.where(mask, scores, -np.inf)
    weights = steps["weights"] = softmax(scores)
    return steps | {"context": weights @ value}


def multi_head_attention(
    query: Array, memory: Array, weights: dict, num_heads: int, mask: Array | None = None
) -> Steps:
    """Compute Concat(head_1, ..., head_h) W_O, head_i = attention(Q W_Q,i, K W_K,i, V W_V,i)."""

    def split(x: Array) -> Array:
        return x.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)

    projected = {
        "projected_query": linear(query, weights["w_q"], weights.get("b_q")),
        "projected_key": linear(memory, weights["w_k"], weights.get("b_k")),
        "projected_value": linear(memory, weights["w_v"], weights.get("b_v")),
    }
    heads = {
        "query_heads": split(projected["projected_query"]),
        "key_heads": split(projected["projected_key"]),
        "value_heads": split(projected["projected_value"]),
    }
    inner = attention(*heads.values(), mask)

    batch, query_len, _ = query.shape
    merged = inner["context"].swapaxes(1, 2).reshape(batch, query_len, -1)
    output = linear(merged, weights["w_o"], weights.get("b_o"))
    return projected | heads | inner | {"merged": merged, "output": output}


def feed_forward(x: Array, weights: dict, activation: str = "relu") -> Steps:
    """Compute activation(x W_up + b_up) W_down + b_down."""
    pre_activation = linear(x, weights["w_up"], weights.get("b_up"))
    activated = ACTIVATIONS[activation](pre_activation)
    output = linear(activated, weights["w_down"], weights.get("b_down"))
    return {"pre_activation": pre_activation, "activated": activated, "output": output}


def note(trace: Steps, prefix: str, steps: Steps) -> Array:
    """Write the steps into the trace as prefix.name and return the last, the result."""
    trace.update({f"{prefix}.{name}": value for name, value in steps.items()})
    return list(steps.values())[-1]


def embed(
    trace: Steps, side: str, ids: ArrayLike, table: Array, scale: bool, call: str = ""
) -> Array:
    """Look the ids up, scale by √d_model where asked, and add the positions."""
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
    trace: Steps, name: str, x: Array, norm: dict, sublayer: Callable, norm_first: bool
) -> Array:
    """Compute x + sublayer(norm(x)), or as in the paper norm(x + sublayer(x))."""
    wrapper = f"{name}_residual"
    if norm_first:
        normed = note(trace, f"{wrapper}.norm", layer_norm(x, **norm))
        return note(trace, wrapper, {"added": x + note(trace, name, sublayer(normed))})
    added = note(trace, wrapper, {"added": x + note(trace, name, sublayer(x))})
    return note(trace, f"{wrapper}.norm", layer_norm(added, **norm))


def run(
    weights: dict,
    src_ids: ArrayLike,
    tgt_ids: ArrayLike,
    *,
    num_heads: int,
    norm_first: bool = True,
    activation: str = "relu",
    scale_embedding: bool = False,
    tie_weights: bool = False,
    src_mask: Array | None = None,
    tgt_mask: Array | None = None,
) -> Steps:
    """Run the model and return every intermediate tensor by its traced name, in order.

    Args:
        weights: The nested dict that the module's first lines describe.
        src_ids: The source sentences, (batch, src).
        tgt_ids: The decoder's input, (batch, tgt).
        num_heads: How many heads each attention splits its projections into.
        norm_first: Normalise before each sublayer and after each stack; otherwise after each sum.
        activation: "relu" or "gelu".
        scale_embedding: Multiply the embeddings by √d_model before the positions are added.
        tie_weights: Use the target table, transposed, as the output matrix, without a bias.
        src_mask: True where a source key may be attended to, by the encoder and by the decoder.
        tgt_mask: True where a target key may be attended to.

    Returns:
        The traced tensors, the logits last.
    """
    trace: Steps = {}

    def attend(mask: Array | None, memory: Array | None = None) -> Callable:
        return lambda part, y: multi_head_attention(
            y, y if memory is None else memory, part, num_heads, mask
        )

    def feed(part: dict, y: Array) -> Steps:
        return feed_forward(y, part, activation)

    def stack(side: str, x: Array, sublayers: dict[str, Callable]) -> Array:
        for index, layer in enumerate(weights[side]["layers"]):
            for name, sublayer in sublayers.items():
                path, norm = f"{side}.layers.{index}.{name}", layer[f"{name}_norm"]
                x = residual(trace, path, x, norm, partial(sublayer, layer[name]), norm_first)
        if norm_first:
            x = note(trace, f"{side}.norm", layer_norm(x, **weights[side]["norm"]))
        return x

    x = embed(trace, "src", src_ids, weights["src_embedding"], scale_embedding)
    memory = stack("encoder", x, {"self_attention": attend(src_mask), "feed_forward": feed})
    trace["memory"] = memory

    x = embed(trace, "tgt", tgt_ids, weights["tgt_embedding"], scale_embedding, call="#2")
    decoder_sublayers = {
        "self_attention": attend(tgt_mask),
        "cross_attention": attend(src_mask, memory),
        "feed_forward": feed,
    }
    trace["decoder_output"] = stack("decoder", x, decoder_sublayers)

    if tie_weights:
        output = {"w": weights["tgt_embedding"].T}
    else:
        output = weights["output"]
    trace["logits"] = linear(trace["decoder_output"], output["w"], output.get("b"))
    return trace


def rms_norm(x: Array, weight: Array | float = 1.0, eps: float = 1e-5) -> Steps:
    """Compute weight * x / √(mean of squares + eps)."""
    mean_square = (x**2).mean(axis=-1, keepdims=True)
    normalized = x / np.sqrt(mean_square + eps)
    return {"mean_square": mean_square, "normalized": normalized, "output": weight * normalized}


def rotate(heads: Array, start: int = 0, base: float = 10000.0) -> Steps:
    """Multiply each pair of neighbours, as one complex number, by e^(√-1 · position · ω)."""
    length, d_k = heads.shape[-2:]
    frequency = base ** (-np.arange(0, d_k, 2) / d_k)
    factor = np.exp(1j * np.arange(start, start + length)[:, None] * frequency)
    even, odd = heads[..., 0::2], heads[..., 1::2]
    product = (even + 1j * odd) * factor
    turned = np.stack((product.real, product.imag), axis=-1).reshape(heads.shape)
    return {"sin": factor.imag, "cos": factor.real, "even": even, "odd": odd, "turned": turned}


def grouped_attention(
    x: Array, weights: dict, num_heads: int, mask: Array, rotate_heads: Callable[[Array], Array]
) -> Steps:
    """Let query head h use the key and value head ⌊h · num_kv_heads / num_heads⌋."""
    width = weights["w_q"].shape[1] // num_heads

    def split(name: str) -> Array:
        projected = linear(x, weights[f"w_{name}"], weights.get(f"b_{name}"))
        return projected.reshape(*x.shape[:2], -1, width).swapaxes(1, 2)

    def share(heads: Array) -> Array:
        return heads[:, [head * heads.shape[1] // num_heads for head in range(num_heads)]]

    steps = {f"{name}_heads": split(name[0]) for name in ("query", "key", "value")}
    query, key = rotate_heads(steps["query_heads"]), rotate_heads(steps["key_heads"])
    steps |= {"shared_keys": share(key), "shared_values": share(steps["value_heads"])}
    inner = attention(query, steps["shared_keys"], steps["shared_values"], mask)
    merged = inner["context"].swapaxes(1, 2).reshape(*x.shape[:2], -1)
    output = linear(merged, weights["w_o"], weights.get("b_o"))
    return steps | inner | {"merged": merged, "output": output}


def swiglu(x: Array, weights: dict) -> Steps:
    """Compute (SiLU(x W_gate) * x W_up) W_down."""
    before = x @ weights["w_gate"]
    gate, expanded = before / (1.0 + np.exp(-before)), x @ weights["w_up"]
    gated = gate * expanded
    output = gated @ weights["w_down"]
    return {"gate": gate, "expanded": expanded, "gated": gated, "output": output}


def run_decoder_only(
    weights: dict,
    ids: ArrayLike,
    *,
    num_heads: int,
    base: float = 10000.0,
    eps: float = 1e-5,
    key_mask: Array | None = None,
) -> Steps:
    """Run the decoder-only model and return every intermediate tensor by its traced name, in order.

    Args:
        weights: The nested dict that the module's first lines describe; without "output" the
            embedding is also the output matrix.
        ids: The texts, (batch, seq).
        num_heads: Query heads of each attention.
        base: Base of the rotation.
        eps: Eps of every norm.
        key_mask: True where a key may be attended to, (batch, 1, 1, key).
    """
    ids = np.asarray(ids)
    mask = causal_mask(ids.shape[1])
    mask = mask if key_mask is None else mask & key_mask
    x = weights["embedding"][ids]
    trace: Steps = {"embedding.vectors": x, "embedded": x}
    calls = 0

    def rotate_heads(heads: Array) -> Array:
        nonlocal calls
        calls += 1
        name = "rotary" if calls == 1 else f"rotary#{calls}"
        return note(trace, name, rotate(heads, base=base))

    def attend(part: dict, y: Array) -> Steps:
        return grouped_attention(y, part, num_heads, mask, rotate_heads)

    def feed(part: dict, y: Array) -> Steps:
        return swiglu(y, part)

    for index, layer in enumerate(weights["layers"]):
        for name, sublayer in (("self_attention", attend), ("feed_forward", feed)):
            path = f"layers.{index}.{name}"
            normed = rms_norm(x, layer[f"{name}_norm"], eps)
            x_norm = note(trace, f"{path}_residual.norm", normed)
            update = note(trace, path, sublayer(layer[name], x_norm))
            x = note(trace, f"{path}_residual", {"added": x + update})
    output = note(trace, "norm", rms_norm(x, weights["norm"], eps))
    trace["decoder_output"] = output
    trace["logits"] = output @ weights.get("output", weights["embedding"].T)
    return trace


def loss(logits: Array, labels: ArrayLike, ignore: int = -100) -> float:
    """Average -log softmax(logits)[label] over the labels that are not to be ignored."""
    labels = np.asarray(labels)
    kept = labels != ignore
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return float(-log_probabilities[kept, labels[kept]].mean())
