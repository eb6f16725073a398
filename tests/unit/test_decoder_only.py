"""Step 18: one stack of layers goes on from a text, without a source."""

import numpy as np
import oracle
import pytest
import torch
from pairs import pairwise
from torch.testing import assert_close

from twelve import LanguageLayer, LanguageModel, RotaryEncoding, causal_mask, padding_mask
from twelve.generation import greedy_decode
from twelve.training import cross_entropy
from twelve_lab import Trace, example

companion = example.distinct
EITHER = (True, False)
SWITCHES = pairwise(num_kv_heads=(1, 2, 3, 6), tie_weights=EITHER)
FOUR = {"rtol": 0.0, "atol": 5e-5}  # four decimals are given


def weights_of(model: LanguageModel) -> dict:
    """Arrange a model's weights as the oracle wants them: every matrix (in, out)."""
    state = {name: value.numpy() for name, value in model.state_dict().items()}

    def matrices(path: str, *names: str) -> dict[str, np.ndarray]:
        return {f"w_{name.removeprefix('w_')}": state[f"{path}.{name}.weight"].T for name in names}

    layers = [
        {
            "self_attention": matrices(f"{path}.self_attention", "w_q", "w_k", "w_v", "w_o"),
            "self_attention_norm": state[f"{path}.self_attention_residual.norm.weight"],
            "feed_forward": matrices(f"{path}.feed_forward", "gate", "up", "down"),
            "feed_forward_norm": state[f"{path}.feed_forward_residual.norm.weight"],
        }
        for path in (f"layers.{index}" for index in range(len(model.layers)))
    ]
    found = {"embedding": state["embedding.weight"], "layers": layers, "norm": state["norm.weight"]}
    if "output_projection.weight" in state:
        found["output"] = state["output_projection.weight"].T
    return found


def in_pieces(model: LanguageModel, ids: torch.Tensor, pieces, key_mask=None) -> torch.Tensor:
    """Read a text piece after piece, with caches that hold the earlier ones."""
    caches, steps, read = model.new_caches(*ids.shape), [], 0
    for piece in ids.split(pieces, dim=1):
        read += piece.size(1)
        mask = None if key_mask is None else key_mask[..., :read]
        steps.append(model(piece, caches=caches, key_mask=mask))
    return torch.cat(steps, dim=1)


def test_the_twelve_numbers_go_from_dog_and_fish_to_four_scores():
    trace = example.trace(decoder_only=True, on="cpu")
    layer = "layers.0"

    def fish(name: str) -> torch.Tensor:
        return trace[f"{layer}.{name}"].value[1, 1]

    normed = torch.tensor([1.2421, 0.6210, 1.0351])
    assert_close(fish("self_attention_residual.norm.output"), normed, **FOUR)
    weights = trace[f"{layer}.self_attention.weights"].value[1, :, 1]
    assert_close(weights[1], torch.tensor([0.6245, 0.3755]), **FOUR)
    after_attention = torch.tensor([2.0595, 1.7051, 1.8779])
    assert_close(fish("self_attention_residual.added"), after_attention, **FOUR)
    after_feed_forward = torch.tensor([1.9655, 1.6345, 2.1196])
    assert_close(fish("feed_forward_residual.added"), after_feed_forward, **FOUR)
    expected = torch.tensor([0.0, 1.3665, 1.3303, 1.4236])
    assert_close(trace["logits"].value[1, 1], expected, **FOUR)
    # The row of the padding is zeros: it scores 0 whatever is asked.
    assert torch.equal(trace["logits"].value[..., 0], torch.zeros(2, 2))


def test_a_tied_table_learns_from_what_is_read_and_from_what_is_due():
    tied, untied = (example.language_model(tie_weights=tie) for tie in (True, False))
    with torch.no_grad():
        untied.output_projection.weight.copy_(tied.embedding.weight)
    for model in (tied, untied):
        cross_entropy(model(example.src), example.following).backward()
    expected = untied.embedding.weight.grad + untied.output_projection.weight.grad
    assert_close(tied.embedding.weight.grad, expected)


def test_it_has_93_numbers():
    model = example.language_model()
    parts = {name: part.numel() for name, part in model.named_parameters()}
    assert sum(parts.values()) == 93
    # The table 12; queries 12, keys and values 6 each, back 12; three times 12; three norms of 3.
    assert parts["embedding.weight"] == 12 and parts["norm.weight"] == 3
    assert parts["layers.0.self_attention.w_k.weight"] == 6


def test_the_loss_of_the_sister_is_that_of_its_one_label():
    trace = example.trace(decoder_only=True, loss=True, on="cpu")
    scores = trace["logits"].value[1, 0]
    by_hand = scores.exp().sum().log() - scores[3]
    assert_close(trace["cross_entropy.loss"].value, by_hand)
    assert example.following[1, 0] == example.src[1, 1] == 3


@pytest.mark.parametrize("tie_weights", EITHER)
@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.parametrize("padding", EITHER)
def test_every_number_of_the_sister_equals_numpy(num_kv_heads, tie_weights, padding):
    switches = {"num_kv_heads": num_kv_heads, "tie_weights": tie_weights}
    trace = example.trace(decoder_only=True, padding=padding, on="cpu", **switches)
    ids = example.src.numpy()
    expected = oracle.run_decoder_only(
        weights_of(example.language_model(**switches)), ids, num_heads=2,
        key_mask=oracle.padding_mask(ids) if padding else None,
    )  # fmt: skip
    assert set(trace) == set(expected)
    for name, value in expected.items():
        found = trace[name].value.numpy()
        np.testing.assert_allclose(found, value, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
def test_every_number_equals_numpy_at_sizes_that_all_differ(switches):
    model, ids = companion.language_model(**switches), companion.text
    with torch.no_grad(), Trace(model, explain=False) as trace:
        model(ids, key_mask=padding_mask(ids))
    expected = oracle.run_decoder_only(
        weights_of(model), ids.numpy(), num_heads=6, base=100.0, eps=1e-6,
        key_mask=oracle.padding_mask(ids.numpy()),
    )  # fmt: skip
    assert set(trace) == set(expected)
    for name in trace:
        found = trace[name].value.numpy()
        np.testing.assert_allclose(found, expected[name], rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1, 1), (5,), (2, 1, 2), (1, 4)])
def test_piece_by_piece_equals_one_pass(switches, pieces):
    model, ids = companion.language_model(**switches), companion.text
    for mask in (None, padding_mask(ids)):
        whole = model(ids, key_mask=mask)
        found = in_pieces(model, ids, pieces, mask)
        assert_close(found, whole, rtol=1e-12, atol=1e-12)


def test_the_future_never_leaks_and_the_past_does():
    model, ids = companion.language_model(), companion.text
    changed = ids.clone()
    changed[1, 3] = (ids[1, 3] + 1) % 10 + 1
    before, after = model(ids)[1], model(changed)[1]
    assert torch.equal(before[:3], after[:3])
    assert not torch.isclose(before[3:], after[3:]).any()


@pytest.mark.parametrize("pad", [1, 3])
def test_padding_on_the_left_changes_nothing(pad):
    model = companion.language_model()
    ids = companion.text[1:]
    padded = torch.cat([torch.zeros(1, pad, dtype=torch.int64), ids], dim=1)
    whole = model(ids)
    found = model(padded, key_mask=padding_mask(padded))[:, pad:]
    assert_close(found, whole, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(padded)[:, pad:], whole)


def test_order_matters_though_no_position_is_added():
    model = companion.language_model()
    ids = torch.tensor([[1, 2, 3, 4], [2, 1, 3, 4]])
    logits = model(ids)
    assert not torch.isclose(logits[0, 2:], logits[1, 2:]).any()


def test_sentences_do_not_see_each_other():
    model, ids = companion.language_model(), companion.text
    for row in range(2):
        alone = model(ids[row : row + 1], key_mask=padding_mask(ids[row : row + 1]))[0]
        assert_close(model(ids, key_mask=padding_mask(ids))[row], alone)


def test_without_its_sublayers_a_word_scores_by_its_own_row():
    model = companion.language_model(tie_weights=True)
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attention.w_o.weight.zero_()
            layer.feed_forward.down.weight.zero_()
    rows = model.embedding(companion.text)
    expected = model.norm(rows) @ model.embedding.weight.T
    assert_close(model(companion.text), expected)


def test_the_caches_of_shared_heads_are_as_small_as_they_say(sizes):
    model = companion.language_model(num_kv_heads=2)
    caches = model.new_caches(4, 9)
    assert len(caches) == 2
    assert all(one.keys.shape == one.values.shape == (4, 2, 9, sizes.d_k) for one in caches)


def test_a_call_that_was_interrupted_leaves_nothing_behind():
    model, ids = companion.language_model(), companion.text
    caches = model.new_caches(2, 5)
    model(ids[:, :2], caches=caches)

    def interrupt(*_):
        raise KeyboardInterrupt

    handle = model.layers[1].register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model(ids[:, 2:], caches=caches)
    handle.remove()
    assert_close(model(ids[:, 2:], caches=caches), model(ids)[:, 2:])


def test_only_where_nothing_else_is_hidden_is_the_mask_called_causal():
    model, ids = companion.language_model(), companion.text
    seq, said = ids.size(1), []
    for layer in model.layers:
        layer.register_forward_pre_hook(
            lambda _, __, given: said.append(given["is_causal"]), with_kwargs=True
        )
    caches = model.new_caches(len(ids), seq)
    model(ids)
    model(ids, key_mask=padding_mask(ids))
    model(ids[:, :2], caches=caches)
    model(ids[:, 2:4], caches=caches)
    model(ids[:, 4:], caches=caches)
    assert seq == 5 and said == [one for one in (1, 0, 1, 0, 0) for _ in model.layers]


def test_while_a_prompt_is_read_only_its_last_word_scores():
    model, shapes = companion.language_model(), []
    model.register_forward_hook(lambda _, __, logits: shapes.append(logits.shape[1]))
    greedy_decode(model, companion.text, max_len=companion.text.size(1) + 2)
    assert shapes == [1, 1]


def test_what_it_writes_is_what_one_pass_scores_highest():
    model = companion.language_model()
    written = greedy_decode(model, companion.text, max_len=9, src_mask=padding_mask(companion.text))
    mask = torch.nn.functional.pad(padding_mask(companion.text), (0, 4), value=True)
    expected = model(written, key_mask=mask).argmax(-1)[:, 4:-1]
    assert torch.equal(written[:, :5], companion.text)
    assert torch.equal(written[:, 5:], expected)


def test_a_layer_is_attention_and_swiglu_each_added_to_what_came(draw):
    layer = LanguageLayer(6, 2, 1, d_k=2, rotary=RotaryEncoding(2))
    x, mask = draw(2, 5, 6), causal_mask(5)
    seen = x + layer.self_attention(layer.self_attention_residual.norm(x), mask)
    expected = seen + layer.feed_forward(layer.feed_forward_residual.norm(seen))
    assert_close(layer(x, mask), expected)


def test_sizes_follow_from_d_model_unless_given():
    model = LanguageModel(11, d_model=24, num_heads=3, num_layers=2)
    assert model.rotary.table.shape == (2048, 8)
    assert model.layers[0].feed_forward.gate.d_out == 64
    assert model.layers[1].self_attention.num_kv_heads == 3
    assert model.norm.eps == model.layers[1].feed_forward_residual.norm.eps == 1e-5
    assert model.output_projection.bias is None


def test_a_tied_table_is_held_and_saved_once_and_starts_small():
    sizes = {"d_model": 100, "num_heads": 2, "num_layers": 1}
    tied, untied = (LanguageModel(500, tie_weights=tie, **sizes) for tie in EITHER)
    assert "output_projection.weight" not in tied.state_dict()
    # 50,000 numbers: one standard error of the deviation is 0.3 %.
    assert_close(tied.embedding.weight.std().item(), 0.1, rtol=0.02, atol=0.0)
    assert_close(untied.embedding.weight.std().item(), 1.0, rtol=0.02, atol=0.0)
    with pytest.raises(RuntimeError, match=r"Missing key.*output_projection\.weight"):
        untied.load_state_dict(tied.state_dict())


@pytest.mark.parametrize("tie_weights", EITHER)
def test_saved_weights_give_the_same_model_with_room_for_longer_texts(tie_weights):
    model = companion.language_model(tie_weights=tie_weights)
    sizes = {"d_model": 24, "num_heads": 6, "num_kv_heads": 3, "d_ff": 96, "num_layers": 2}
    settings = {"d_k": 8, "base": 100.0, "eps": 1e-6, "tie_weights": tie_weights}
    with torch.device("meta"):
        longer = LanguageModel(11, **sizes, **settings, max_len=99)
    longer.to_empty(device="cpu").load_state_dict(model.state_dict())
    assert torch.equal(longer(companion.text), model(companion.text))


def test_its_mask_is_made_where_the_text_is():
    ids = companion.text.to("meta")
    assert companion.language_model().to("meta")(ids).device.type == "meta"


@pytest.mark.slow
def test_it_learns_a_line_by_heart():
    torch.manual_seed(0)
    model = LanguageModel(11, d_model=24, num_heads=3, num_kv_heads=1, num_layers=1)
    line = torch.tensor([[1, 5, 5, 2, 5, 9, 1, 4]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        loss = cross_entropy(model(line[:, :-1]), line[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    written = greedy_decode(model.eval(), line[:, :1], max_len=8)
    assert torch.equal(written, line)
