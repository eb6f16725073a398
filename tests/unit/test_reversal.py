"""The task of notebooks 13 and 14: reverse a row of digits."""

import time
from importlib.resources import files

import pytest
import torch

from twelve.training import IGNORED, Batch, train
from twelve_lab import device, reversal

TRAINED_BYTES = 100_000


@pytest.fixture
def float32():
    """Compute in torch's default dtype, like the notebook."""
    torch.set_default_dtype(torch.float32)


def digits_of(row: torch.Tensor) -> list[int]:
    return [int(word) for word in reversal.words(row[None])[0] if word.isdigit()]


def perfect(batch: Batch) -> torch.Tensor:
    """Return the logits of a perfect model."""
    right = batch.labels.masked_fill(batch.labels == IGNORED, reversal.PAD)
    return torch.nn.functional.one_hot(right, len(reversal.vocabulary)).double()


def shortest(batch: Batch, length: int) -> int:
    return int((batch.src != reversal.PAD).sum(1).eq(length).nonzero()[0])


@pytest.mark.parametrize("batch", [reversal.batch(5), reversal.held_out()])
def test_batch_has_the_source_backwards_as_target_and_labels(batch):
    for src, tgt, labels in zip(batch.src, batch.tgt, batch.labels, strict=True):
        digits = digits_of(src)
        assert 3 <= len(digits) <= 10
        padding = 10 - len(digits)
        backwards = [digit + 3 for digit in reversed(digits)]
        assert src.tolist() == [digit + 3 for digit in digits] + padding * [0]
        assert tgt.tolist() == [1, *backwards, 2, *padding * [0]][:11]
        assert labels.tolist() == [*backwards, 2, *padding * [IGNORED]]
    assert torch.equal(batch.src_mask, (batch.src != 0)[:, None, None, :])
    assert torch.equal(batch.tgt_mask.cpu(), torch.ones(1, 1, 11, 11).tril().bool())


def test_held_out_shares_no_sequence_with_training_batches():
    # The digits of a held-out row sum to a multiple of ten, and those of a training row never do.
    # So no batch can contain a held-out row, whatever its step, seed or size.
    held_out = [digits_of(row) for row in reversal.held_out().src]
    assert len(held_out) == 512
    assert all(sum(digits) % 10 == 0 for digits in held_out)
    seen = [
        digits_of(row)
        for seed in range(3)
        for step in (0, 1, 2, 399)
        for row in reversal.batch(step, seed=seed, size=200).src
    ]
    remainders = torch.tensor([sum(digits) % 10 for digits in seen]).bincount(minlength=10)
    assert remainders[0] == 0
    # Of 2,400 draws, each of nine remainders gets 267 on average, with standard deviation 15.
    assert remainders[1:].min() > 267 - 5 * 15


def test_batch_depends_on_step_and_seed_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = reversal.batch(7, seed=2, size=16)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert all(map(torch.equal, first, reversal.batch(7, seed=2, size=16)))
    assert not torch.equal(first.src, reversal.batch(8, seed=2, size=16).src)
    assert not torch.equal(first.src, reversal.batch(7, seed=3, size=16).src)
    assert all(map(torch.equal, reversal.held_out(8), reversal.held_out(8)))
    assert {part.device.type for part in first} == {device().type}


@pytest.mark.parametrize("build", [reversal.model, reversal.language_model])
def test_reversal_model_depends_on_its_seed_alone(build):
    state = torch.get_rng_state()
    model, same, other = (build(seed, d_model=8) for seed in (4, 4, 5))
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    weight = next(model.parameters())
    assert torch.equal(weight, next(same.parameters()))
    assert not torch.equal(weight, next(other.parameters()))
    assert reversal.exact(model, reversal.held_out(64)) == 0


def test_exact_counts_only_sequences_without_a_mistake(monkeypatch):
    batch = reversal.held_out(6)
    model = reversal.model(d_model=8, num_layers=1).train()
    logits = perfect(batch)
    position = {"at": 0}

    def write(model, src, **settings):
        assert not model.training
        ids = logits.argmax(-1)
        stop = min(settings["max_len"] - 1, position.get("stop", 99))
        return torch.cat([torch.full_like(ids[:, :1], settings["start_id"]), ids[:, :stop]], 1)

    monkeypatch.setattr(reversal, "greedy_decode", write)
    assert reversal.exact(model, batch) == 6
    assert model.training
    # One sentence has a wrong digit, another never ends, and a third ends early.
    logits[0, 0] = logits[0, 0].roll(1)
    length = len(digits_of(batch.src[1]))
    logits[1, length] = torch.nn.functional.one_hot(torch.tensor(5), 13)
    logits[2, 2] = torch.nn.functional.one_hot(torch.tensor(reversal.END), 13)
    assert reversal.exact(model, batch) == 3
    # Decoding stops once every sentence has ended; the remaining positions are padding.
    short = [row for row in range(3, 6) if len(digits_of(batch.src[row])) < 10]
    position["stop"] = 10
    assert reversal.exact(model, batch) == len(short)


@pytest.mark.usefixtures("float32")
def test_the_trained_model_reverses_every_held_out_sequence():
    path = files("twelve_lab") / "reverser.pt"
    assert len(path.read_bytes()) < TRAINED_BYTES
    with path.open("rb") as file:
        weights = torch.load(file, weights_only=True)
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    model, batch = reversal.trained(), reversal.held_out()
    named = dict(model.named_parameters())
    assert all(torch.equal(named[name].cpu(), weight.double()) for name, weight in weights.items())
    assert list(weights) == list(named) and not model.training
    assert reversal.exact(model, batch) == len(batch.src) == 512


@pytest.mark.weekly
@pytest.mark.usefixtures("float32", "unchecked")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reversing_is_learned_without_a_mistake_in_seconds(seed):
    model, held_out = reversal.model(seed), reversal.held_out()
    start = time.process_time()
    train(model, lambda step: reversal.batch(step, seed=seed), steps=800, lr=0.015)
    seconds = time.process_time() - start
    assert reversal.exact(model, held_out) == len(held_out.src) == 512
    assert torch.get_num_threads() == 1 and seconds < 15.0


# The same task as a single sequence, for a decoder-only model.


def test_write_returns_the_digits_backwards_and_the_end():
    assert reversal.write(reversal.trained(), "3141592654") == [*"4562951413", "<end>"]


def test_line_joins_source_and_target_with_labels_for_the_target():
    batch = reversal.batch(0)
    row = shortest(batch, 3)
    line, asked = reversal.line(batch), reversal.prompt(batch)
    first, second, third = map(str, digits_of(batch.src[row]))
    question, answer = [first, second, third, "<start>"], [third, second, first, "<end>"]
    padding = ["<pad>"] * 13
    assert line.src is None
    assert reversal.words(line.tgt[row : row + 1])[0] == [*question, *answer, *padding]
    labels = [*"---", *answer, *"-" * 14]
    kept = line.labels != IGNORED
    assert torch.equal(line.labels[kept], batch.labels[batch.labels != IGNORED])
    assert reversal.words(line.labels[row : row + 1])[0] == labels
    assert reversal.words(asked[row : row + 1])[0] == [*padding[:7], *question]


def test_exact_compares_the_continuation_with_the_answer(monkeypatch):
    batch, model = reversal.held_out(6), reversal.language_model(d_model=8)
    answers = perfect(batch).argmax(-1)

    def write(model, asked, **settings):
        assert torch.equal(settings["src_mask"], (asked != reversal.PAD)[:, None, None, :])
        assert settings["max_len"] == 11 + 11 and "start_id" not in settings
        return torch.cat([asked, answers], 1)

    monkeypatch.setattr(reversal, "greedy_decode", write)
    assert reversal.exact(model, batch) == 6
    answers[2, 1] = reversal.START
    assert reversal.exact(model, batch) == 5


@pytest.mark.usefixtures("float32", "unchecked")
@pytest.mark.parametrize(
    ("steps", "least"),
    [
        pytest.param(200, 64, marks=pytest.mark.slow),  # of 512; guessing solves none
        pytest.param(1000, 480, marks=pytest.mark.weekly),
    ],
)
def test_decoder_only_model_learns_to_reverse(steps, least):
    model, held_out = reversal.language_model(), reversal.held_out()
    train(model, lambda step: reversal.line(reversal.batch(step)), steps=steps, lr=0.01)
    assert reversal.exact(model, held_out) >= least


def test_probabilities_are_those_of_the_next_shown_token():
    right = reversal.probabilities("3141592654", "4562951413")
    assert right.shape == (11,) and bool((right > 0.99).all())
    other = reversal.probabilities("3141597654", "4562951413")
    assert other[3] < 1e-4 and bool((other[[0, 1, 2, 5, 10]] > 0.99).all())


@pytest.mark.parametrize("row", ["31", "31415926535", "3x4", "", "٣١٤"])
def test_reversal_trace_rejects_a_row_outside_the_task(row):
    with pytest.raises(ValueError, match=r"needs 3 to 10 digits, as in '314', got "):
        reversal.trace(row)


def test_wrongly_copied_exchanges_the_projections_that_the_order_names():
    right, copied = (
        model.encoder.layers[0].self_attention
        for model in (reversal.trained(), reversal.wrongly_copied("kqv"))
    )
    torch.testing.assert_close(copied.w_q.weight, right.w_k.weight)
    torch.testing.assert_close(copied.w_k.weight, right.w_q.weight)
    torch.testing.assert_close(copied.w_v.weight, right.w_v.weight)


def test_right_without_mask_loses_only_padded_rows():
    counts = reversal.right_without_mask(reversal.trained(), reversal.held_out(64))
    all_padded, with_mask, without_mask = counts["padded"]
    assert all_padded == with_mask > 0 == without_mask
    full = 64 - all_padded
    assert counts["no padding"] == (full, full, full) and full > 0


@torch.no_grad()
def test_right_without_sublayers_counts_as_zeroed_output_weights_do():
    model, batch = reversal.trained(), reversal.held_out(64)
    counts = reversal.right_without_sublayers(model, batch)
    assert list(counts) == [
        "none", "encoder.self_attention", "encoder.feed_forward", "decoder.self_attention",
        "decoder.cross_attention", "decoder.feed_forward",
    ]  # fmt: skip
    assert counts["none"] == 64
    silent = model.decoder.layers[0].feed_forward.down
    silent.weight.zero_()
    silent.bias.zero_()
    assert 0 < counts["decoder.feed_forward"] == reversal.exact(model, batch) < 64


def test_right_without_norms_leaves_out_one_norm_at_a_time_and_restores_it():
    model, rows = reversal.trained(), reversal.held_out(64)
    counts = reversal.right_without_norms(model, rows)
    assert len(counts) == 8 and counts["none"] == reversal.exact(model, rows) == 64
    assert counts["encoder.norm"] < 8 and counts["decoder.norm"] == 64


def test_unit_means_average_a_unit_over_the_positions_of_each_digit():
    by_digit, by_following = reversal.unit_means([6, 75])
    assert by_digit.shape == by_following.shape == (2, 10)
    assert by_digit[0].argmax() == 7 and by_digit[0, 7] > 100 * by_digit[0, 8]
    assert by_following[1, 9] > by_following[1, 4] > 10 * by_following[1, 0]
