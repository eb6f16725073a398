"""Adapters from answers to exercises of the course to the tasks of other graders.

An entry adapts an answer to the names and signatures that a grader expects, and calls them on
inputs that the grader's task description permits. On these inputs, the results of a wrong answer
differ from those of the right one.
"""

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twelve_lab.check import TASKS

JUDGE, LEET, OURS = "torch-judge", "torchleet", "twelve_lab.check"
Function = Callable[..., Any]
Named = dict[str, Any]


class Entry(NamedTuple):
    """A task of another grader.

    Attributes:
        grader: Name of the grader.
        id: Name of the task in the grader.
        adapt: Maps an answer to the objects that the grader expects, by name.
        call: Calls these objects on random tensors.
    """

    grader: str
    id: str
    adapt: Callable[[Function], Named]
    call: Callable[[Named, Callable[..., Tensor]], Any]


def single(
    grader: str, id: str, name: str, adapt: Callable[[Function], Any], call: Function
) -> Entry:
    """Make an entry for a task that expects a single name."""
    return Entry(grader, id, lambda f: {name: adapt(f)}, lambda made, draw: call(made[name], draw))


def on(*shapes: tuple[int, ...], scales: tuple[float, ...] = (1,), more: tuple = ()) -> Function:
    """Return a function that calls its argument on random tensors, the first one at each scale."""

    def call(f: Function, draw: Function) -> tuple[Tensor, ...]:
        results = []
        for scale in scales:
            first, *rest = (draw(*shape) for shape in shapes)
            answer = f(first * scale, *rest, *more)
            results += answer if isinstance(answer, tuple) else [answer]
        return tuple(results)

    return call


def causal(length: int) -> Tensor:
    """Return a causal mask with a batch axis and a head axis."""
    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()


def merge(x: Tensor) -> Tensor:
    """Concatenate heads."""
    return x.transpose(1, 2).flatten(2)


class Projected(nn.Module):
    """Attention computed by an answer, with four projections without biases.

    With a mask, the result is always correct, because the exercises have no mask.
    """

    def __init__(self, attend: Function, d_model: int, num_heads: int, num_kv_heads: int = 0):
        super().__init__()
        kv_heads = num_kv_heads or num_heads
        if num_heads % kv_heads:
            raise ValueError("num_kv_heads must divide num_heads")
        self.attend, self.heads = attend, (num_heads, kv_heads, kv_heads)
        self.W_q, self.W_o = (nn.Linear(d_model, d_model, bias=False) for _ in "qo")
        width = d_model // num_heads * kv_heads
        self.W_k, self.W_v = (nn.Linear(d_model, width, bias=False) for _ in "kv")

    def project(self, *inputs: Tensor) -> list[Tensor]:
        """Project the inputs, and split queries, keys and values into heads."""
        layers = zip((self.W_q, self.W_k, self.W_v), inputs, self.heads, strict=True)
        return [layer(x).unflatten(-1, (n, -1)).transpose(1, 2) for layer, x, n in layers]

    def forward(self, query: Tensor, *memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend to keys and values, or to the queries if neither is passed."""
        key, value = memory or (query, query)
        if mask is None:
            return self.attend(self, query, key, value)
        heads = self.project(query, key, value)
        return self.W_o(merge(F.scaled_dot_product_attention(*heads, mask, enable_gqa=True)))


def multi_head(f: Function) -> Function:
    """Build multi-head attention from an answer.

    The exercise has a single memory, so different keys and values are concatenated.
    """

    def attend(layer: Projected, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        w_k, w_v = layer.W_k.weight, layer.W_v.weight
        if key is not value:
            w_k, w_v = F.pad(w_k, (0, len(w_k))), F.pad(w_v, (len(w_v), 0))
            key = torch.cat([key, value], -1)
        return f(query, key, layer.W_q.weight, w_k, w_v, layer.W_o.weight, layer.heads[0])

    return partial(Projected, attend)


def grouped(f: Function) -> Function:
    """Build grouped-query attention from an answer."""
    return partial(Projected, lambda layer, *x: layer.W_o(merge(f(*layer.project(*x)))))


def as_function(make: Function, q, k, v, mask=None, **sizes: int) -> Tensor:
    """Build a layer and call it."""
    return make(*sizes.values())(q, k, v, mask=mask)


def rotated(angles: Function, rotate: Function) -> Function:
    """Rotate queries and keys by their positions."""
    return lambda *both: tuple(
        rotate(x[:, None], angles(0, *x.shape[1:]).to(x.dtype))[:, 0] for x in both
    )


def by_halves(f: Function) -> Named:
    """Adapt an answer that rotates adjacent features to pairs with one feature from each half."""

    def rotate(x: Tensor, angles: Tensor) -> Tensor:
        woven = torch.stack(x.chunk(2, -1), -1).flatten(-2)
        return f(woven, angles).unflatten(-1, (-1, 2)).mT.flatten(-2)

    def rotate_half(x: Tensor) -> Tensor:
        rows = x.reshape(1, 1, -1, x.size(-1))
        return rotate(rows, rows[0, 0].chunk(2, -1)[0] * 0 + math.pi / 2).view_as(x)

    def apply_rotary_pos_emb(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
        angles = torch.atan2(sin, cos).chunk(2, -1)[0]
        return rotate(q, angles), rotate(k, angles)

    return {"rotate_half": rotate_half, "apply_rotary_pos_emb": apply_rotary_pos_emb}


def call_halves(made: Named, draw: Function) -> tuple[Tensor, ...]:
    """Rotate queries and keys at five positions, and rotate features by a quarter turn."""
    angles = TASKS["rotary_angles"].right(0, 5, 10).repeat(1, 2)
    heads = draw(2, 3, 5, 10), draw(2, 3, 5, 10)
    rotated = made["apply_rotary_pos_emb"](*heads, angles.cos(), angles.sin())
    return *rotated, made["rotate_half"](draw(2, 4))


class SwiGLU(nn.Module):
    """Three projections whose weights are passed to an answer."""

    def __init__(self, f: Function, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.answer = f
        self.gate_proj, self.up_proj = (nn.Linear(d_model, d_ff, bias=False) for _ in "gu")
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the answer."""
        return self.answer(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)


class KVCache:
    """A correct implementation of torchleet's cache."""

    kept: tuple[Tensor, ...] | None = None

    def update(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Append keys and values, and return all cached tensors."""
        pairs = zip(self.kept or [x[:, :, :0] for x in new], new, strict=True)
        self.kept = tuple(torch.cat(pair, dim=2) for pair in pairs)
        return self.kept


class Cached(Projected):
    """Attention with the cache of either grader: a pair of tensors, or a KVCache."""

    def forward(self, x: Tensor, cache: Any = None, kv_cache: KVCache | None = None) -> Any:
        """Attend to the cached tokens and to the new ones."""
        query, key, value = self.project(x, x, x)
        past = (kv_cache.kept if kv_cache else cache) or (key[:, :, :0], value[:, :, :0])
        context, *cache = self.attend(query, key, value, *past, lambda heads, start: heads)
        if kv_cache:
            kv_cache.kept = tuple(cache)
        return self.W_o(merge(context)), tuple(cache)


class CachedBeside(Cached):
    """Like `Cached`, but returns the output without the cache."""

    def forward(self, x: Tensor, kv_cache: KVCache | None = None) -> Tensor:
        """Return the output alone."""
        return super().forward(x, kv_cache=kv_cache)[0]


def stepped(made: Function, draw: Function) -> tuple[Tensor, ...]:
    """Run all tokens at once, then with a cache in chunks of three, one and one."""
    layer, x, outputs, cache = made(8, 4), draw(3, 5, 8), [], None
    for words in x.split([3, 1, 1], 1):
        output, cache = layer(words, cache=cache)
        outputs.append(output)
    return layer(x)[0], *outputs, *cache


def stepped_beside(made: Named, draw: Function) -> tuple[Tensor, ...]:
    """Run all tokens at once, then with a cache one by one."""
    layer, x, cache = made["CachedAttention"](8, 4), draw(3, 5, 8), KVCache()
    return layer(x), *(layer(word, kv_cache=cache) for word in x.split(1, 1)), *cache.kept


def lora(f: type) -> type:
    """Build a LoRA layer for a new linear layer, or for the one that torchleet passes."""

    class LoRALinear(nn.Module):
        def __init__(self, in_features: Any, out_features: int = 0, rank=4, alpha=1.0) -> None:
            super().__init__()
            built = isinstance(in_features, nn.Linear)
            self.linear = in_features if built else nn.Linear(in_features, out_features)
            self.linear.requires_grad_(False)
            self.layer = f(self.linear.weight.data, rank, alpha)
            if isinstance(self.layer.weight, nn.Parameter):
                self.linear.weight = self.layer.weight
            self.lora_A, self.lora_B = self.layer.a, self.layer.b

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.linear.bias

    return LoRALinear


def lora_and_merge(f: type) -> Named:
    """Return functions that add LoRA layers to a model and merge them into its weights."""
    made = lora(f)

    def apply_lora(model: nn.Module, rank: int, alpha: float, target_modules: Any) -> nn.Module:
        for name in target_modules:
            setattr(model, name, made(getattr(model, name), rank=rank, alpha=alpha))
        return model

    def merge_lora(model: nn.Module) -> nn.Module:
        for name, layer in list(model.named_children()):
            linear = layer.linear
            linear.weight = nn.Parameter(layer.layer.merged().detach())
            setattr(model, name, linear)
        return model

    return {"LoRALinear": made, "apply_lora": apply_lora, "merge_lora": merge_lora}


def trained(x: Tensor, layer: Any) -> tuple[Tensor, ...]:
    """Call a new LoRA layer, then call it and compute gradients with random a and b."""
    new = (layer(x) - layer.linear(x)).detach()
    frozen = torch.tensor(not layer.linear.weight.requires_grad)
    torch.manual_seed(1)
    thin = [nn.init.normal_(part) for part in (layer.lora_A, layer.lora_B)]
    slopes = torch.autograd.grad(layer(x).sum(), thin, allow_unused=True, materialize_grads=True)
    return new, frozen, layer(x), *slopes


def merged(made: Named, draw: Function) -> tuple[Tensor, ...]:
    """Call a model with LoRA layers, then call the merged model.

    The update of a new layer is left out, because torchleet permits any initial a and b.
    """
    x, model = draw(3, 6), made["apply_lora"](nn.Sequential(nn.Linear(6, 5)), 2, 3.0, ["0"])
    _, *numbers = trained(x, model[0])
    return *numbers, made["merge_lora"](model)(x)


def sample(f: Function) -> Function:
    """Return a function that samples a token from the nucleus that an answer keeps."""

    def sample_top_k_top_p(logits: Tensor, top_k=0, top_p=1.0, temperature=1.0) -> int:
        logits = logits / temperature
        if top_k:
            logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -math.inf)
        return f(logits.softmax(-1)[None], top_p)[0].multinomial(1).item()

    return sample_top_k_top_p


def drawn(sampler: Function, draw: Function) -> Tensor:
    """Sample a token with each of 200 seeds."""
    logits, tokens = draw(11).detach(), []
    for seed in range(200):
        torch.manual_seed(seed)
        tokens.append(sampler(logits, top_p=0.5 + 0.4 * (seed % 2)))
    return torch.tensor(tokens)


def log_probabilities(model: nn.Module, ids: Tensor) -> Tensor:
    """Sum the log-probabilities of the words of each text."""
    return model(ids)[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).sum((1, 2))


def softmax(f: Function, x: Tensor, dim: int = -1) -> Tensor:
    """Apply an answer for the last of three axes to any axis of a smaller tensor."""
    moved = x.movedim(dim, -1)
    return f(moved[(None,) * (3 - x.dim())]).view_as(moved).movedim(-1, dim)


def same(f: Function) -> Function:
    """Return an answer unchanged."""
    return f


def dpo(f: Function) -> Function:
    """Name the factor `beta`, and give it a default."""
    return lambda c, r, rc, rr, beta=0.1: f(c, r, rc, rr, beta)


ATTENTION = "scaled_dot_product_attention"
QUERY, KEYS, HEADS, WORDS = (3, 5, 8), [(3, 7, 8), (3, 7, 6)], [(2, 3, 7, 8)] * 3, [(3, 5, 24)] * 3
MEMORY, SQUARE, TOKENS, ROPE = [(3, 7, 8)] * 2, [(3, 7, 8)] * 3, (3, 5, 24), [(3, 5, 10)] * 2
LABELS, PAIRS = torch.arange(0, 10, 2), [(5,)] * 2
REFERENCE = (torch.arange(5) / 5 - 1, torch.arange(5) / -7, 0.3)
# Exercise and entries for the graders, keyed by the name of the task.
ENTRIES: dict[str, tuple[str, list[Entry]]] = {
    "softmax": ("04-attention-weights", [
        single(grader, "softmax", name, lambda f: partial(softmax, f), lambda f, draw: (
            f(draw(3, 5, 7), dim=-1), f(draw(5, 7) * 1000, dim=0)))
        for grader, name in ((JUDGE, "my_softmax"), (LEET, "softmax"))
    ]),
    "attention": ("04-attention", [
        single(JUDGE, "attention", ATTENTION, same, on(QUERY, *KEYS)),
    ]),
    "attention with a mask": ("05-scaled-dot-product-attention", [
        single(JUDGE, "causal_attention", "causal_attention", lambda f: lambda *heads: f(
            *(x[:, None] for x in heads), causal(heads[0].size(1)))[:, 0], on(*SQUARE)),
        single(LEET, "implement-attention-from-scratch", ATTENTION, lambda f: (
            lambda q, k, v, mask=None: f(q, k, v, mask)), lambda f, draw: (
            on(*HEADS)(f, draw) + on(*HEADS, more=(causal(7)[0, 0],))(f, draw))),
    ]),
    "multi-head attention": ("06-multi-head-attention", [
        single(JUDGE, "mha", "MultiHeadAttention", multi_head,
               lambda make, draw: on(QUERY, *MEMORY)(make(8, 4), draw)),
        single(LEET, "multi-head-attention", "multi_head_attention", lambda f: (
            lambda q, k, v, num_heads, d_model, mask=None: as_function(
                multi_head(f), q, k, v, mask, d_model=d_model, heads=num_heads)),
            on(QUERY, *MEMORY, more=(4, 8))),
    ]),
    "grouped queries": ("17-grouped-attention", [
        single(JUDGE, "gqa", "GroupQueryAttention", grouped,
               lambda make, draw: on(TOKENS)(make(24, 12, 2), draw)),
        single(LEET, "grouped-query-attention", "grouped_query_attention", lambda f: (
            lambda q, k, v, num_query_heads, num_query_groups, d_model, mask=None: as_function(
                grouped(f), q, k, v, mask, d=d_model, heads=num_query_heads, kv=num_query_groups)),
            on(*WORDS, more=(12, 2, 24))),
    ]),
    "rotary angles": ("16-rotary-angles", [
        single(JUDGE, "rope", "apply_rope", lambda f: rotated(f, TASKS["rotate"].right), on(*ROPE)),
    ]),
    "rotation": ("16-rotate", [
        single(JUDGE, "rope", "apply_rope", lambda f: rotated(TASKS["rotary_angles"].right, f),
               on(*ROPE)),
        Entry(LEET, "rotary-positional-embedding", by_halves, call_halves),
    ]),
    "positions by sines": ("03-sinusoid", [
        single(LEET, "sinusoidal-positional-embedding", "SinusoidalPositionalEmbedding",
               lambda f: lambda *size: SimpleNamespace(pe=f(*size)), lambda f, _: f(9, 6).pe),
    ]),
    "LayerNorm": ("07-layer-norm", [
        single(JUDGE, "layernorm", "my_layer_norm", same,
               on(TOKENS, (24,), (24,), scales=(1, 0.01))),
    ]),
    "RMSNorm": ("07-rms-norm", [
        # torch-judge uses an eps of 1e-6, the exercise 1e-5.
        single(JUDGE, "rmsnorm", "rms_norm", lambda f: lambda x, weight: f(x * 10**0.5, weight),
               on(TOKENS, (24,), scales=(1, 0.01))),
    ]),
    "cross entropy": ("13-loss", [
        single(JUDGE, "cross_entropy", "cross_entropy_loss", lambda f: (
            lambda logits, targets: f(logits[None], targets[None])),
            on((5, 11), scales=(1, 1000), more=(LABELS,))),
    ]),
    "SwiGLU": ("09-swiglu", [
        single(JUDGE, "mlp", "SwiGLUMLP", lambda f: partial(SwiGLU, f),
               lambda make, draw: on(QUERY)(make(8, 12), draw)),
    ]),
    "KV cache": ("17-attend-with-cache", [
        single(JUDGE, "kv_cache", "KVCacheAttention", lambda f: partial(Cached, f), stepped),
        Entry(LEET, "kv-cache", lambda f: {
            "KVCache": KVCache, "CachedAttention": partial(CachedBeside, f)}, stepped_beside),
    ]),
    "LoRA": ("by-hand-lora", [
        single(JUDGE, "lora", "LoRALinear", lora, lambda make, draw: trained(
            draw(3, 6), make(6, 5, rank=2, alpha=3.0))),
        Entry(LEET, "lora", lora_and_merge, merged),
    ]),
    "top-p sampling": ("18-top-p", [
        single(JUDGE, "topk_sampling", "sample_top_k_top_p", sample, drawn),
        single(LEET, "top-p-sampling", "top_p_sample", lambda f: (
            lambda logits, p=1.0, top_p=None: sample(f)(logits, top_p=top_p or p)), drawn),
    ]),
    "attention in blocks": ("by-hand-attention-in-blocks", [
        single(JUDGE, "flash_attention", "flash_attention", lambda f: (
            lambda q, k, v, block_size=32: f(q, k, v, block_size)),
            on(*SQUARE, scales=(1, 10000), more=(3,))),
        single(LEET, "flash-attention", "flash_attention_pytorch", lambda f: (
            lambda q, k, v, block_size_q=16, block_size_k=16: f(q, k, v, block_size_k)),
            on(QUERY, *KEYS, scales=(1, 10000), more=(2, 3))),
    ]),
    "DPO loss": ("by-hand-dpo-loss", [
        single(JUDGE, "dpo_loss", "dpo_loss", dpo, on(*PAIRS, more=REFERENCE)),
        Entry(LEET, "dpo", lambda f: {"get_batch_logps": log_probabilities, "dpo_loss": dpo(f)},
              lambda made, draw: on(*PAIRS, more=REFERENCE)(made["dpo_loss"], draw)),
    ]),
}  # fmt: skip
