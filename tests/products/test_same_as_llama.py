"""Decoder-only models against transformers: GPT-2, and all model types that `load` supports.

The parameters are random, so nothing is downloaded. The tests run weekly and in `make compare`,
and are skipped without transformers.
"""

import os
import random
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")

from transformers import modeling_rope_utils  # noqa: E402 (after the optional library)

from twelve import (  # noqa: E402
    FeedForward,
    GroupedQueryAttention,
    LanguageModel,
    LatentAttention,
    LayerNorm,
    MixtureOfExperts,
    Residual,
    RotaryEncoding,
    TokenEmbedding,
    causal_mask,
    padding_mask,
)
from twelve.fast import make_fast  # noqa: E402
from twelve.generation import greedy_decode  # noqa: E402
from twelve.latent_attention import LatentCache  # noqa: E402
from twelve.pretrained import load  # noqa: E402

pytestmark = pytest.mark.weekly
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# One of four pairs rotates at full speed, two at an eighth of their speed, and one in between.
SCALED = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 50,
}  # fmt: skip
# The model types that `load` supports, and the values from which a configuration is drawn.
DRAWN = {
    "vocab_size": (11, 13), "hidden_size": (12, 24), "intermediate_size": (20, 40),
    "num_hidden_layers": (1, 2, 3), "num_attention_heads": (6,), "num_key_value_heads": (1, 2, 6),
    "head_dim": (4, 8), "rms_norm_eps": (1e-6, 1e-2), "tie_word_embeddings": (True, False),
    "max_position_embeddings": (64,),
    "rope_parameters": ({"rope_type": "default", "rope_theta": 100.0},),
}  # fmt: skip
LOADED = {
    "Llama": {
        "attention_bias": (True, False), "hidden_act": ("silu", "gelu", "gelu_pytorch_tanh"),
        "rope_parameters": (*DRAWN["rope_parameters"], SCALED),
    },
    "Mistral": {"sliding_window": (2, 3, 5, 8, 11, 99, None)},  # generate is wrong for 1
    "Qwen2": {"sliding_window": (3,)},  # used only if use_sliding_window is true
    "Qwen3": {},
    "SmolLM3": {
        "attention_bias": (True, False), "no_rope_layer_interval": (1, 2, 3),
        "no_rope_layers": (None, [0, 1, 1], [1, 0, 0]),
    },
    "Gemma": {"attention_bias": (True, False), "hidden_act": ("gelu", "gelu_pytorch_tanh")},
    "Phi3": {"sliding_window": (2, 4, 11, None)},
}  # fmt: skip
GPT2_SIZES = {
    "vocab_size": 11, "n_embd": 24, "n_inner": 40, "n_layer": 2, "n_head": 3, "n_positions": 32,
}  # fmt: skip
# Our names -> the names in GPT-2.
GPT2_NAMES = {
    "embedding.weight": "wte.weight", "embedding.positions": "wpe.weight",
    "self_attention_residual.norm": "ln_1", "feed_forward_residual.norm": "ln_2",
    "self_attention.w_o": "attn.c_proj", "feed_forward.up": "mlp.c_fc",
    "feed_forward.down": "mlp.c_proj", "layers": "h", "norm": "ln_f",
}  # fmt: skip


class Float64Torch(ModuleType):
    """A stand-in for torch in code that always casts to float32: `float32` is float64."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


@pytest.fixture(autouse=True)
def _in_float64_throughout(monkeypatch):
    """Make transformers compute norms, angles and softmax in float64: float32 is off by 1e-6."""
    names = (f"{family.lower()}.modeling_{family.lower()}" for family in LOADED)
    modules = (import_module(f"transformers.models.{name}") for name in names)
    for module in (*modules, modeling_rope_utils):
        monkeypatch.setattr(module, "torch", Float64Torch("torch"))
    monkeypatch.setattr(Tensor, "float", Tensor.double)


@pytest.fixture
def theirs(noisy):
    """Build a model of a family with random parameters."""

    def build(family: str, **settings: object) -> nn.Module:
        config = getattr(transformers, f"{family}Config")(**SPECIAL | settings)
        model = transformers.AutoModelForCausalLM.from_config(config)
        return noisy(model.to(torch.float64)).eval()

    return build


class PositionedEmbedding(TokenEmbedding):
    """Token embedding plus learned positions, as in GPT-2; `start` is the cached length."""

    def __init__(self, vocab_size: int, d_model: int, max_len: int) -> None:
        super().__init__(vocab_size, d_model)
        self.positions, self.start = nn.Parameter(torch.empty(max_len, d_model)), 0

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.positions[self.start : self.start + ids.size(1)]


@torch.no_grad()
def from_gpt2(model: nn.Module) -> LanguageModel:
    """Copy a GPT-2: our model with learned positions, biases, LayerNorm and tanh GELU."""
    vocab_size, d_model, d_ff, layers, heads, max_len = GPT2_SIZES.values()
    ours = LanguageModel(
        vocab_size, d_model=d_model, num_heads=heads, num_layers=layers, tie_weights=True
    )
    ours.embedding = PositionedEmbedding(vocab_size, d_model, max_len)
    for layer in ours.layers:
        layer.self_attention = GroupedQueryAttention(d_model, heads, bias=True)
        layer.feed_forward = FeedForward(d_model, d_ff, activation="gelu_tanh")
        layer.self_attention_residual = Residual(d_model)
        layer.feed_forward_residual = Residual(d_model)
    ours.norm = LayerNorm(d_model)
    theirs = {}
    for name, tensor in model.transformer.named_parameters():
        theirs[name] = tensor.t() if name.startswith("h.") else tensor
        if "attn.c_attn" in name:  # three stacked projections
            for letter, third in zip("qkv", theirs[name].chunk(3), strict=True):
                theirs[name.replace("attn.c_attn", f"self_attention.w_{letter}")] = third
    for name, parameter in ours.named_parameters():
        for mine, other in GPT2_NAMES.items():
            name = name.replace(mine, other)
        parameter.copy_(theirs[name])
    return ours.eval()


def assert_same_logits(
    ours: LanguageModel, model: nn.Module, text: Tensor, pieces: Sequence[int]
) -> None:
    """Compare logits: one text in a single pass, and a left-padded batch in cached pieces."""
    assert_close(ours(text[1:]), model(input_ids=text[1:]).logits, **CLOSE)
    real, caches, logits = text != 0, ours.new_caches(2, text.size(1)), []
    for piece in text.split(pieces, dim=1):
        ours.embedding.start = caches[0].length  # for learned positions
        mask = padding_mask(text[:, : caches[0].length + piece.size(1)])
        logits.append(ours(piece, caches=caches, key_mask=mask))
    expected = model(input_ids=text, attention_mask=real.long()).logits
    assert_close(torch.cat(logits, dim=1)[real], expected[real], **CLOSE)


def subtract_gradients(model: nn.Module, logits: Tensor, ids: Tensor) -> None:
    """Subtract the gradients from the parameters: equal results then imply equal gradients."""
    F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    torch.optim.SGD(model.parameters(), lr=1.0).step()


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "plain"])
def test_parts_of_gpt2_give_its_logits_and_gradients(theirs, draw_ids, fast):
    model = theirs("GPT2", **GPT2_SIZES)
    ours, text = from_gpt2(model), draw_ids(11, 2, 7)
    if fast:
        make_fast(ours)
    text[0, :3] = 0
    assert_same_logits(ours, model, text, (2, 1, 4))
    ours.embedding.start = 0
    subtract_gradients(ours, ours(text[1:]), text[1:])
    subtract_gradients(model, model(input_ids=text[1:]).logits, text[1:])
    assert_close(ours.state_dict(), from_gpt2(model).state_dict(), **CLOSE)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("family", LOADED)
def test_load_gives_the_logits_text_and_gradients_of_transformers(theirs, tmp_path, family, seed):
    """Draw a configuration, save the model with transformers, and load it fast and plain."""
    for library in ("gguf", "tokenizers"):
        pytest.importorskip(library, reason="make language-model installs it")
    draw = random.Random(f"{family} {seed}")
    choices = DRAWN | LOADED[family]
    model = theirs(family, **{key: draw.choice(values) for key, values in choices.items()})
    shard = draw.choice(["5MB", "10KB"])
    write_folder(model, tmp_path / "drawn", shard)
    text = torch.tensor([[draw.randint(3, 10) for _ in range(9)] for _ in range(2)])
    text[0, : draw.randint(1, 6)] = 0
    pieces = draw.choice([(9,), (4, 1, 4), (1, 2, 6), (8, 1)])
    mask = (text != 0).long()
    written = model.generate(text, attention_mask=mask, max_length=13, do_sample=False)
    trained = []
    for fast in (True, False):
        ours, tokenizer = load(tmp_path / "drawn", dtype=torch.float64, fast=fast)
        assert tokenizer.end_ids == [2]
        assert_same_logits(ours, model, text, pieces)
        ids = greedy_decode(ours, text, max_len=13, end_id=2, src_mask=padding_mask(text))
        assert torch.equal(ids, written)
        subtract_gradients(ours, ours(text[1:]), text[1:])
        trained.append(ours.state_dict())
    subtract_gradients(model, model(input_ids=text[1:]).logits, text[1:])
    write_folder(model, tmp_path / "trained", shard)
    expected = load(tmp_path / "trained", dtype=torch.float64)[0].state_dict()
    for parameters in trained:
        assert_close(parameters, expected, **CLOSE)


def write_folder(model: nn.Module, path: Path, shard: str) -> None:
    """Save a model with transformers, with a tokenizer whose words are the ids."""
    from tokenizers import Tokenizer, models

    model.save_pretrained(path, max_shard_size=shard)
    vocabulary = {str(id): id for id in range(model.config.vocab_size)}
    Tokenizer(models.WordLevel(vocabulary, unk_token="0")).save(str(path / "tokenizer.json"))


def test_mixture_of_experts_and_its_loss_equal_mixtral(noisy):
    from transformers.models.mixtral import modeling_mixtral

    config = transformers.MixtralConfig(
        hidden_size=24, intermediate_size=40, num_local_experts=5, num_experts_per_tok=2
    )
    theirs = noisy(modeling_mixtral.MixtralSparseMoeBlock(config))
    ours = MixtureOfExperts(24, 40, num_experts=5, k=2)
    with torch.no_grad():
        ours.router.weight.copy_(theirs.gate.weight)
        for index, expert in enumerate(ours.experts):
            gate, up = theirs.experts.gate_up_proj[index].chunk(2)
            expert.gate.weight.copy_(gate)
            expert.up.weight.copy_(up)
            expert.down.weight.copy_(theirs.experts.down_proj[index])
    x = torch.randn(2, 7, 24)
    # transformers computes softmax and loss in float32.
    close = {"rtol": 1e-5, "atol": 1e-6}
    assert_close(ours(x), theirs(x), **close)
    scores = (theirs.gate(x)[0],)
    loss = modeling_mixtral.load_balancing_loss_func(scores, num_experts=5, top_k=2)
    assert_close(ours.load_balance_loss(x), loss, check_dtype=False, **close)


def test_latent_attention_equals_deepseek_v2_at_once_and_with_a_cache():
    from transformers.models.deepseek_v2 import modeling_deepseek_v2

    config = transformers.DeepseekV2Config(
        hidden_size=24, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None,
        kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, head_dim=4,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        attn_implementation="eager",
    )  # fmt: skip
    theirs = modeling_deepseek_v2.DeepseekV2Attention(config, 0)
    rotary = RotaryEncoding(4, max_len=16, base=100.0)
    ours = LatentAttention(24, 3, 10, d_k=8, d_v=6, rotary=rotary)
    ours.norm.eps = theirs.kv_a_layernorm.variance_epsilon
    with torch.no_grad():
        theirs.kv_a_layernorm.weight.normal_()
        ours.norm.weight.copy_(theirs.kv_a_layernorm.weight)
        for name, their_name in (("w_q", "q_proj"), ("w_down", "kv_a_proj_with_mqa"),
                                 ("w_up", "kv_b_proj"), ("w_o", "o_proj")):  # fmt: skip
            getattr(ours, name).weight.copy_(getattr(theirs, their_name).weight)
    x, mask = torch.randn(2, 5, 24), causal_mask(5)
    angles = modeling_deepseek_v2.DeepseekV2RotaryEmbedding(config)(x, torch.arange(5)[None])
    expected = theirs(x, torch.zeros(1, 1, 5, 5).masked_fill(~mask, -torch.inf),
                      position_embeddings=angles)[0]  # fmt: skip
    # transformers rotates and normalises in float32.
    close = {"rtol": 1e-5, "atol": 1e-6}
    assert_close(ours(x, mask), expected, **close)
    cache = LatentCache(ours, 2, 5)
    pieces = [ours(x[:, :3], mask[:, :, :3, :3], cache=cache), ours(x[:, 3:4], cache=cache),
              ours(x[:, 4:], cache=cache)]  # fmt: skip
    assert_close(torch.cat(pieces, dim=1), expected, **close)
    kept = transformers.DynamicCache(config=config)
    theirs(x, position_embeddings=angles, past_key_values=kept)
    assert_close(cache.values, kept.layers[0].keys, **close)
    assert_close(cache.keys, kept.layers[0].values, **close)
