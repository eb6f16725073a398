"""What other graders ask for, made of an answer to an exercise of the course.

An entry turns the answer into the names and signatures of one grader. Its second function calls
them on inputs that the grader's own text permits; an answer whose numbers there are those of the
right answer is no mistake for that grader.
"""

import math
from collections.abc import Callable
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
        grader: Its name.
        id: What it calls the task.
        adapt: Makes what it asks for of an answer.
        call: Calls that on random tensors.
        reason: Why its tests do not see the wrong answers that it accepts, read by hand.
        permitted: Beginnings of the mistakes that its text permits, as a pattern.
    """

    grader: str
    id: str
    adapt: Callable[[Function], Named]
    call: Callable[[Named, Callable[..., Tensor]], Any]
    reason: str = ""
    permitted: str = "$"


def split(x: Tensor, heads: int) -> Tensor:
    """Split features into heads."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """Concatenate heads."""
    return x.transpose(1, 2).flatten(2)


def causal(length: int) -> Tensor:
    """Return a mask with the axes of a batch and of heads."""
    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()


class Projected(nn.Module):
    """The four projections of attention, without biases."""

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int | None = None) -> None:
        super().__init__()
        width = d_model // num_heads * (num_kv_heads or num_heads)
        self.heads, self.kv_heads = num_heads, num_kv_heads or num_heads
        self.W_q, self.W_o = (nn.Linear(d_model, d_model, bias=False) for _ in "qo")
        self.W_k, self.W_v = (nn.Linear(d_model, width, bias=False) for _ in "kv")

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Return the heads of queries, keys and values."""
        pairs = ((self.W_q, query, self.heads), (self.W_k, key, self.kv_heads),
                 (self.W_v, value, self.kv_heads))  # fmt: skip
        return [split(layer(x), heads) for layer, x, heads in pairs]


def softmax(f: Function) -> Function:
    def softmax(x: Tensor, dim: int = -1) -> Tensor:
        moved = x.movedim(dim, -1)
        return f(moved[(None,) * (3 - x.dim())]).view_as(moved).movedim(-1, dim)

    return softmax


def multi_head(f: Function) -> type:
    class MultiHeadAttention(Projected):
        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            w_k, w_v, memory = self.W_k.weight, self.W_v.weight, key
            if key is not value:  # The exercise has one memory: put both into it.
                w_k, w_v = F.pad(w_k, (0, len(w_k))), F.pad(w_v, (len(w_v), 0))
                memory = torch.cat([key, value], -1)
            return f(query, memory, self.W_q.weight, w_k, w_v, self.W_o.weight, self.heads)

    return MultiHeadAttention


def with_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)


def multi_head_function(f: Function) -> Function:
    def multi_head_attention(q, k, v, num_heads, d_model, mask=None):
        layer = multi_head(f)(d_model, num_heads)
        if mask is None:
            return layer(q, k, v)
        return layer.W_o(merge(with_mask(*layer.project(q, k, v), mask)))

    return multi_head_attention


def grouped(f: Function) -> type:
    class GroupQueryAttention(Projected):
        def forward(self, x: Tensor) -> Tensor:
            return self.W_o(merge(f(*self.project(x, x, x))))

    return GroupQueryAttention


def grouped_function(f: Function) -> Function:
    def grouped_query_attention(q, k, v, num_query_heads, num_query_groups, d_model, mask=None):
        if num_query_heads % num_query_groups:
            raise ValueError("num_query_groups must divide num_query_heads")
        layer = Projected(d_model, num_query_heads, num_query_groups)
        heads = layer.project(q, k, v)
        return layer.W_o(merge(f(*heads) if mask is None else with_mask(*heads, mask)))

    return grouped_query_attention


def rotate_by_halves(f: Function) -> Named:
    def turn(x: Tensor, angles: Tensor) -> Tensor:
        woven = torch.stack(x.chunk(2, -1), -1).flatten(-2)
        return f(woven, angles).unflatten(-1, (-1, 2)).mT.flatten(-2)

    def apply_rotary_pos_emb(q, k, cos, sin):
        angles = torch.atan2(sin, cos)[..., : sin.size(-1) // 2]
        return turn(q, angles), turn(k, angles)

    def rotate_half(x):
        rows = x.reshape(1, 1, -1, x.size(-1))
        quarter = x.new_full((rows.size(2), x.size(-1) // 2), math.pi / 2)
        return turn(rows, quarter).view_as(x)

    return {"rotate_half": rotate_half, "apply_rotary_pos_emb": apply_rotary_pos_emb}


def rotated(angles: Function, rotate: Function) -> Function:
    def apply_rope(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turned = angles(0, q.size(1), q.size(2)).to(q.dtype)
        return tuple(rotate(x[:, None], turned)[:, 0] for x in (q, k))

    return apply_rope


def swiglu(f: Function) -> type:
    class SwiGLUMLP(nn.Module):
        def __init__(self, d_model: int, d_ff: int) -> None:
            super().__init__()
            self.gate_proj, self.up_proj = (nn.Linear(d_model, d_ff, bias=False) for _ in "gu")
            self.down_proj = nn.Linear(d_ff, d_model, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return f(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)

    return SwiGLUMLP


def unturned(x: Tensor, start: int) -> Tensor:
    return x


def cached(f: Function) -> type:
    class KVCacheAttention(Projected):
        def forward(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None) -> Any:
            query, key, value = self.project(x, x, x)
            past = cache or (key[:, :, :0], value[:, :, :0])
            context, *cache = f(query, key, value, *past, unturned)
            return self.W_o(merge(context)), tuple(cache)

    return KVCacheAttention


def stepped(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Read all words at once, then a part of them and one after another."""
    first, cache = layer(x[:, :3])
    rest = []
    for word in x[:, 3:].split(1, 1):
        output, cache = layer(word, cache=cache)
        rest.append(output)
    return layer(x)[0], first, *rest, *cache


def stepped_beside(made: Named, x: Tensor) -> tuple[Tensor, ...]:
    """Read all words at once, then one after another."""
    layer, cache = made["CachedAttention"](8, 4), made["KVCache"]()
    return layer(x), *(layer(word, kv_cache=cache) for word in x.split(1, 1)), *cache.kept


class KVCache:
    """The cache of torchleet, right."""

    kept: tuple[Tensor, ...] | None = None

    def update(self, *new: Tensor) -> tuple[Tensor, ...]:
        pairs = zip(self.kept, new, strict=True) if self.kept else ()
        self.kept = tuple(torch.cat(pair, dim=2) for pair in pairs) or new
        return self.kept

    def reset(self) -> None:
        self.kept = None


def cached_beside(f: Function) -> Named:
    class CachedAttention(cached(f)):
        def forward(self, x: Tensor, kv_cache: KVCache | None = None) -> Tensor:
            kv_cache = kv_cache or KVCache()
            output, kv_cache.kept = super().forward(x, kv_cache.kept)
            return output

    return {"KVCache": KVCache, "CachedAttention": CachedAttention}


def lora(f: type) -> type:
    class LoRALinear(nn.Module):
        def __init__(self, in_features: Any, out_features: int = 0, rank=4, alpha=1.0) -> None:
            super().__init__()
            built = isinstance(in_features, nn.Linear)  # torchleet wraps a layer.
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
    made = lora(f)

    def apply_lora(model, rank, alpha, target_modules):
        for name in target_modules:
            setattr(model, name, made(getattr(model, name), rank=rank, alpha=alpha))
        return model

    def merge_lora(model):
        for name, layer in list(model.named_children()):
            if isinstance(layer, made):
                merged = nn.Linear(*reversed(layer.linear.weight.shape))
                merged.weight.data, merged.bias = layer.layer.merged().detach(), layer.linear.bias
                setattr(model, name, merged)
        return model

    return {"LoRALinear": made, "apply_lora": apply_lora, "merge_lora": merge_lora}


def sample(f: Function) -> Function:
    def sample_top_k_top_p(logits, top_k=0, top_p=1.0, temperature=1.0):
        logits = logits / temperature
        if top_k:
            logits = logits.masked_fill(logits < logits.topk(top_k).values[-1], -math.inf)
        return f(logits.softmax(-1)[None], top_p)[0].multinomial(1).item()

    return sample_top_k_top_p


def log_probabilities(model: nn.Module, ids: Tensor) -> Tensor:
    scores = model(ids)[:, :-1].log_softmax(-1)
    return scores.gather(-1, ids[:, 1:, None]).sum((1, 2))


def trained(x: Tensor, layer: Any) -> tuple[Tensor, ...]:
    """Call a new layer of LoRA, then call it with other numbers in a and b."""
    new = (layer(x) - layer.linear(x)).detach()
    frozen = torch.tensor(not layer.linear.weight.requires_grad)
    torch.manual_seed(1)
    thin = [nn.init.normal_(part) for part in (layer.lora_A, layer.lora_B)]
    slopes = torch.autograd.grad(layer(x).sum(), thin, allow_unused=True, materialize_grads=True)
    return new, frozen, layer(x), *slopes


def merged(made: Named, x: Tensor) -> tuple[Tensor, ...]:
    """Call a model with layers of LoRA, then call it merged."""
    model = made["apply_lora"](nn.Sequential(nn.Linear(6, 5)), 2, 3.0, ["0"])
    _, *numbers = trained(x, model[0])
    return *numbers, made["merge_lora"](model)(x)


def drawn(one: Function, logits: Tensor) -> Tensor:
    """Draw tokens from one seed after another."""
    tokens = []
    for seed in range(200):
        torch.manual_seed(seed)
        tokens.append(one(logits.detach(), 0.5 + 0.4 * (seed % 2)))
    return torch.tensor(tokens)


def one(name: str, make: Function) -> Callable[[Function], Named]:
    """Adapt an answer to a single name."""
    return lambda f: {name: make(f)}


def called(name: str, *shapes: tuple[int, ...]) -> Function:
    """Call a function of this name on random tensors."""
    return lambda made, draw: made[name](*(draw(*shape) for shape in shapes))


QUERY, KEYS = (3, 5, 8), [(3, 7, 8), (3, 7, 6)]
SQUARE = [(3, 7, 8)] * 3
ANY_ROTATION = (
    "The tests check norms, and products of a query and a key at one position, which any rotation "
    "keeps."
)
SAME_LAYER = (
    "Words one by one are compared with all words at once in the same layer, so that what is wrong "
    "in both alike is not seen."
)
LOGITS, WORDS = (5, 11), torch.arange(0, 10, 2)
# The exercise by the name of the task, and what the graders make of it.
ENTRIES: dict[str, tuple[str, list[Entry]]] = {
    "softmax": ("04-attention-weights", [
        Entry(grader, "softmax", one(name, softmax), lambda made, draw, name=name: (
            made[name](draw(3, 5, 7), dim=-1), made[name](draw(5, 7) * 1000, dim=0)))
        for grader, name in ((JUDGE, "my_softmax"), (LEET, "softmax"))
    ]),
    "attention": ("04-attention", [
        Entry(JUDGE, "attention", one("scaled_dot_product_attention", lambda f: f),
              called("scaled_dot_product_attention", QUERY, *KEYS),
              "Where keys and values differ in width, only the shape is compared."),
    ]),
    "attention with a mask": ("05-scaled-dot-product-attention", [
        Entry(JUDGE, "causal_attention", one("causal_attention", lambda f: lambda *heads: f(
            *(x[:, None] for x in heads), causal(heads[0].size(1)))[:, 0]),
            called("causal_attention", *SQUARE),
            "No number is compared with a reference, but at the first position, which has one key: "
            "the tests check the shape, that the future has no effect, and that gradients exist."),
        Entry(LEET, "implement-attention-from-scratch",
              one("scaled_dot_product_attention", lambda f: lambda q, k, v, mask=None: f(
                  q, k, v, mask)),
              lambda made, draw: tuple(
                  made["scaled_dot_product_attention"](*(draw(2, 3, 7, 8) for _ in "qkv"), mask)
                  for mask in (None, causal(7)[0, 0]))),
    ]),
    "multi-head attention": ("06-multi-head-attention", [
        Entry(JUDGE, "mha", one("MultiHeadAttention", multi_head), lambda made, draw: made[
            "MultiHeadAttention"](8, 4)(draw(3, 5, 8), draw(3, 7, 8), draw(3, 7, 8))),
        Entry(LEET, "multi-head-attention", one("multi_head_attention", multi_head_function),
              lambda made, draw: made["multi_head_attention"](
                  draw(3, 5, 8), draw(3, 7, 8), draw(3, 7, 8), 4, 8),
              "The weights are drawn inside the function, so no number is compared with a reference: "
              "the tests check the shape, the seed, and that heads and mask have an effect.",
              "W_o is not|split-interl|You interleaved|You multiplied by"),
    ]),
    "grouped queries": ("17-grouped-attention", [
        Entry(JUDGE, "gqa", one("GroupQueryAttention", grouped), lambda made, draw: made[
            "GroupQueryAttention"](24, 12, 2)(draw(3, 5, 24)),
              "The output is compared in its shape alone; the test of shared heads repeats the keys "
              "itself and does not call the layer."),
        Entry(LEET, "grouped-query-attention", one("grouped_query_attention", grouped_function),
              lambda made, draw: made["grouped_query_attention"](
                  *(draw(3, 5, 24) for _ in "qkv"), 12, 2, 24),
              "The weights are drawn inside the function, so no number is compared with a reference: "
              "the tests check shape, seed, mask, gradients, and that numbers are finite.",
              "kv-tiled|You grouped the queries"),
    ]),
    "rotary angles": ("16-rotary-angles", [
        Entry(JUDGE, "rope", one("apply_rope", lambda f: rotated(f, TASKS["rotate"].right)),
              called("apply_rope", (3, 5, 10), (3, 5, 10)), ANY_ROTATION, "rotary-one-late"),
    ]),
    "rotation": ("16-rotate", [
        Entry(JUDGE, "rope", one("apply_rope", lambda f: rotated(TASKS["rotary_angles"].right, f)),
              called("apply_rope", (3, 5, 10), (3, 5, 10)), ANY_ROTATION),
        Entry(LEET, "rotary-positional-embedding", rotate_by_halves, lambda made, draw: (
            *made["apply_rotary_pos_emb"](
                draw(2, 3, 5, 10), draw(2, 3, 5, 10),
                *(wave(TASKS["rotary_angles"].right(0, 5, 10)).repeat(1, 2)
                  for wave in (torch.cos, torch.sin))),
            made["rotate_half"](draw(2, 4))),
            "The tests check norms, no rotation at angle 0, and that two quarter turns negate, which "
            "also holds in the other direction and for other pairs."),
    ]),
    "positions by sines": ("03-sinusoid", [
        Entry(LEET, "sinusoidal-positional-embedding", one(
            "SinusoidalPositionalEmbedding", lambda f: lambda *size: SimpleNamespace(pe=f(*size))),
            lambda made, draw: made["SinusoidalPositionalEmbedding"](9, 6).pe,
            "The table is compared with itself: the tests check its shape, its bounds, and that no two "
            "positions are equal.", "positions are counted from one"),
    ]),
    "LayerNorm": ("07-layer-norm", [
        Entry(JUDGE, "layernorm", one("my_layer_norm", lambda f: f), lambda made, draw: tuple(
            made["my_layer_norm"](draw(3, 5, 24) * scale, draw(24), draw(24))
            for scale in (1, 0.01)),
            "The inputs have a variance near 1, where the place of eps has no effect, and gradients "
            "have to exist, whatever they are.", "Your eps|ln-eps|an eps of"),
    ]),
    "RMSNorm": ("07-rms-norm", [
        # Its eps is 1e-6, and that of the exercise 1e-5.
        Entry(JUDGE, "rmsnorm", one("rms_norm", lambda f: lambda x, weight, eps=1e-6: f(
            x * (1e-5 / eps) ** 0.5, weight)), lambda made, draw: tuple(
            made["rms_norm"](draw(3, 5, 24) * scale, draw(24)) for scale in (1, 0.01)),
            "The inputs have a mean square near 1, where the place of eps has no effect.", "Your eps"),
    ]),
    "cross entropy": ("13-loss", [
        Entry(JUDGE, "cross_entropy", one("cross_entropy_loss", lambda f: lambda logits, targets: f(
            logits[None], targets[None])), lambda made, draw: tuple(
            made["cross_entropy_loss"](draw(*LOGITS) * scale, WORDS) for scale in (1, 1000))),
    ]),
    "SwiGLU": ("09-swiglu", [
        Entry(JUDGE, "mlp", one("SwiGLUMLP", swiglu),
              lambda made, draw: made["SwiGLUMLP"](8, 12)(draw(3, 5, 8))),
    ]),
    "KV cache": ("17-attend-with-cache", [
        Entry(JUDGE, "kv_cache", one("KVCacheAttention", cached), lambda made, draw: stepped(
            made["KVCacheAttention"](8, 4), draw(3, 5, 8)), SAME_LAYER, "the new keys come"),
        Entry(LEET, "kv-cache", cached_beside, lambda made, draw: stepped_beside(
            made, draw(3, 5, 8)), SAME_LAYER, "the new keys come"),
    ]),
    "LoRA": ("by-hand-lora", [
        Entry(JUDGE, "lora", one("LoRALinear", lora), lambda made, draw: trained(
            draw(3, 6), made["LoRALinear"](6, 5, rank=2, alpha=3.0)),
            "The one comparison with a scale has alpha 2 and rank 2, so that the scale is 1."),
        Entry(LEET, "lora", lora_and_merge, lambda made, draw: merged(made, draw(3, 6)),
              "A merged layer is compared with the same layer before, which has the same scale, and "
              "no gradient is computed."),
    ]),
    "top-p sampling": ("18-top-p", [
        Entry(JUDGE, "topk_sampling", one("sample_top_k_top_p", sample), lambda made, draw: drawn(
            lambda x, p: made["sample_top_k_top_p"](x, top_p=p), draw(11)),
            "No test looks at the tokens that a p below 1 leaves.", "top-p-one-short"),
        Entry(LEET, "top-p-sampling", one("top_p_sample", lambda f: lambda logits, p: sample(f)(
            logits, top_p=p)), lambda made, draw: drawn(made["top_p_sample"], draw(11)),
            "The tests check that no token outside the nucleus is drawn, not that each one inside can "
            "be."),
    ]),
    "attention in blocks": ("by-hand-attention-in-blocks", [
        Entry(JUDGE, "flash_attention", one(
            "flash_attention", lambda f: lambda q, k, v, block_size=32: f(q, k, v, block_size)),
              lambda made, draw: tuple(made["flash_attention"](
                  *(draw(3, 7, 8) * scale for _ in "qkv"), 3) for scale in (1, 100)),
              "All scores are small, so that nothing overflows."),
        Entry(LEET, "flash-attention", one(
            "flash_attention_pytorch",
            lambda f: lambda q, k, v, block_size_q=16, block_size_k=16: f(q, k, v, block_size_k)),
            lambda made, draw: tuple(made["flash_attention_pytorch"](
                *(draw(*shape) * scale for shape in (QUERY, *KEYS)), 2, 3) for scale in (1, 100)),
            "The 48 keys fill every block that is tried, and keys and values have the same width."),
    ]),
    "DPO loss": ("by-hand-dpo-loss", [
        Entry(JUDGE, "dpo_loss", one("dpo_loss", lambda f: lambda c, r, rc, rr, beta=0.1: f(c, r, rc, rr, beta)),
              lambda made, draw: made["dpo_loss"](
                  draw(5), draw(5), draw(5).detach(), draw(5).detach(), 0.3)),
        Entry(LEET, "dpo", lambda f: {
            "get_batch_logps": log_probabilities,
            "dpo_loss": lambda c, r, rc, rr, beta=0.1: f(c, r, rc, rr, beta),
        }, lambda made, draw: made["dpo_loss"](
            draw(5), draw(5), draw(5).detach(), draw(5).detach(), 0.3),
            "No gradient is computed."),
    ]),
}  # fmt: skip

# What a grader says, and the mistakes of which that is true and more than that numbers differ.
NAMES = {
    JUDGE: [
        ("not numerically stable", "Right until"),
        ("affected past outputs", "mask-|You ignore the mask|Hidden scores|You added the mask"),
        ("W_o.weight.grad is None", "no output projection"),
        ("preserve norms", "rotary-cat|the sines are left out|Both of your sums"),
        ("Different beta", "dpo-beta-missing|beta has a default"),
        ("Missing gradients|does not require grad", ".*cut off|The rejected answer is missing"),
        ("Must be scalar", "one loss for each pair"),
        ("Base weight must be frozen", "lora-weight-trained"),
        ("With B=0", "lora-both-random|forward forgets|the scale covers"),
        ("lora_.*grad is None", ". has no gradient"),
    ],
    LEET: [
        ("subtract the max", "Right until|the shift is missing"),
        ("rows must sum to 1", "the table sums|softmax-queries|a sigmoid"),
        ("scaling applied", "scale-|You always divide"),
        ("lower-triangular", "mask-|You ignore the mask|Hidden scores|You added the mask"),
        ("heads are not being split", "heads-are-features"),
        ("changed the vector norms", "rotary-cat|the sines are left out|Both of your sums"),
        ("must leave q unchanged", "You exchanged|You rotated the pairs"),
        ("the causal context", "causal-|mask-|The new tokens|Your new words|You added the mask"),
        ("must be frozen", "lora-weight-trained"),
        ("merging changed", "lora-merged-unscaled|merged forgets"),
        ("not being rescaled", "block-context|block-sum|block-rescaled|the new block|the factors"),
        ("subtract the running max", "no maximum"),
        ("escapes V's range", "the sum is not divided"),
        ("should be a scalar", "one loss for each pair"),
        ("always positive", "the minus is forgotten|The logarithm is missing"),
        ("must score a LOWER loss", "dpo-answers-exchanged|the minus is forgotten"),
    ],
    OURS: [
        ("must sum to 1", "a sigmoid"),
        ("no gradient", ".*cut off"),
        ("gradient of", ".*no gradient"),
        ("axes are swapped", "merged is transposed"),
    ],
}
