"""Lesson 13: labels, loss, learning rate, training loop and checkpoints."""

import copy
import io
import math
import os
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from twelve import Transformer, _checkpoint, causal_mask
from twelve.training import IGNORED, Batch, cross_entropy, shift, train, warmup_then_linear
from twelve_lab import example

distinct = example.distinct
VOCAB, LENGTH = 5, 4
STEPS = 12


@pytest.fixture
def logits_and_labels(draw, draw_ids, sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw logits and labels; some labels are IGNORED."""
    logits = draw(sizes.batch, sizes.tgt, sizes.tgt_vocab).requires_grad_()
    labels = draw_ids(sizes.tgt_vocab, sizes.batch, sizes.tgt, lowest=0)
    labels[0, 1] = labels[1, 3] = IGNORED
    return logits, labels


def distinct_batch(step: int) -> Batch:
    """Return the distinct-size example, with a first source word that depends on the step."""
    src = distinct.src.clone()
    src[:, 0] = 1 + step % 10
    return Batch(src, distinct.tgt, distinct.labels, distinct.src_mask, distinct.tgt_mask)


def small_model(**changes: object) -> Transformer:
    torch.manual_seed(3)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 1, "max_len": 8} | changes
    return Transformer(VOCAB, VOCAB, **sizes)


def random_ids(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, VOCAB, (32, LENGTH), generator=generator)


def copying(step: int) -> Batch:
    """Return a batch whose source, target and labels are equal."""
    return Batch(*[random_ids(step)] * 3)


def small_run(checkpoint: Path | None, after_step=None) -> tuple[list[float], Transformer]:
    """Train a model with dropout, so a checkpoint must restore the random state."""
    model = small_model(dropout=0.2)
    losses = train(
        model,
        lambda step: Batch(random_ids(step), random_ids(step), random_ids(step + 1)),
        steps=STEPS,
        warmup=3,
        checkpoint=checkpoint,
        save_every=3,
        after_step=after_step,
    )
    return losses, model


@cache
def uninterrupted_run() -> tuple[list[float], Transformer]:
    return small_run(None)


@cache
def whole_checkpoint() -> bytes:
    with TemporaryDirectory() as folder:
        small_run(Path(folder, "run.pt"))
        return Path(folder, "run.pt").read_bytes()


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.pt"


@pytest.fixture
def finished(path) -> Path:
    """Write the checkpoint of a finished run."""
    path.write_bytes(whole_checkpoint())
    return path


def assert_same_run(run: tuple[list[float], Transformer]) -> None:
    """Check that losses and weights are bitwise equal to those of an uninterrupted run."""
    (losses, model), (expected, uninterrupted) = run, uninterrupted_run()
    assert losses == expected
    assert_close(model.state_dict(), uninterrupted.state_dict(), rtol=0.0, atol=0.0)


# By hand


def test_shift_gives_each_position_the_word_before_as_input():
    target = torch.tensor([[7, 8, 9, 2], [5, 2, 4, 4]])
    tgt, labels = shift(target, start_id=1, pad_id=4)
    assert tgt.tolist() == [[1, 7, 8, 9], [1, 5, 2, 4]]
    assert labels.tolist() == [[7, 8, 9, 2], [5, 2, IGNORED, IGNORED]]
    tgt, labels = shift(torch.tensor([[1, 0], [3, 2]]))
    assert torch.equal(tgt, example.tgt) and torch.equal(labels, example.labels)


@pytest.mark.parametrize(
    ("label", "smoothing", "expected"),
    [
        (0, 0.0, math.log(4)),
        (1, 0.0, math.log(4 / 3)),
        (1, 0.4, 0.6 * math.log(4 / 3) + 0.4 * (math.log(4) + math.log(4 / 3)) / 2),
        (1, 1.0, (math.log(4) + math.log(4 / 3)) / 2),
    ],
)
def test_cross_entropy_of_two_words_with_label_smoothing(label, smoothing, expected):
    # Scores of 0 and ln 3 give probabilities of 1/4 and 3/4.
    logits = torch.tensor([[[0.0, math.log(3.0)]]])
    loss = cross_entropy(logits, torch.tensor([[label]]), label_smoothing=smoothing)
    assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_warmup_then_linear_rises_and_then_falls_to_zero():
    factors = [warmup_then_linear(step, warmup=4, steps=8) for step in range(8)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert [warmup_then_linear(s, warmup=0, steps=4) for s in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [warmup_then_linear(s, warmup=3, steps=4) for s in range(4)] == [1 / 3, 2 / 3, 1.0, 1.0]


# Oracle


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [IGNORED, 4])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_cross_entropy_equals_torch_in_value_and_gradient(
    logits_and_labels, smoothing, ignored, scale
):
    logits, labels = logits_and_labels
    labels = labels.masked_fill(labels == IGNORED, ignored)
    ours = cross_entropy(scale * logits, labels, label_smoothing=smoothing, ignored=ignored)
    theirs = F.cross_entropy(
        (scale * logits).flatten(0, 1), labels.flatten(),
        label_smoothing=smoothing, ignore_index=ignored,
    )  # fmt: skip
    assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)]
    assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_cross_entropy_is_finite_if_a_wrong_word_has_probability_0(logits_and_labels):
    logits, labels = logits_and_labels
    labels = labels.masked_fill(labels == 0, 1)
    logits_of_inf = logits.detach().index_fill(-1, torch.tensor([0]), -math.inf)
    expected = F.cross_entropy(logits_of_inf.flatten(0, 1), labels.flatten())
    assert expected.isfinite()
    assert_close(cross_entropy(logits_of_inf, labels), expected)


@pytest.mark.parametrize("clip", [0.05, math.inf])
def test_train_equals_the_textbook_loop_in_torch(clip):
    ours, theirs, reported = distinct.model(), distinct.model(), []
    losses = train(
        ours, distinct_batch, steps=6, lr=0.02, betas=(0.8, 0.9), warmup=2, clip=clip,
        label_smoothing=0.1, after_step=lambda *done: reported.append(done),
    )  # fmt: skip

    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02, betas=(0.8, 0.9))
    factors = [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: [*factors, 0.0][step])
    expected = []
    for step in range(6):
        src, tgt, labels, src_mask, tgt_mask = distinct_batch(step)
        output = theirs(src, tgt, src_mask=src_mask, tgt_mask=tgt_mask)
        loss = F.cross_entropy(output.flatten(0, 1), labels.flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        if clip < math.inf:
            assert torch.nn.utils.clip_grad_norm_(theirs.parameters(), clip) > clip
        optimizer.step()
        schedule.step()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, abs=1e-12)
    assert reported == list(enumerate(losses, start=1))
    assert expected[-1] < expected[0]
    assert_close(ours.state_dict(), theirs.state_dict())


# Laws


@pytest.mark.parametrize("mode", [True, False])
def test_train_uses_training_mode_and_restores_the_mode_of_every_part(mode):
    modes, asked = [], []
    model = small_model().train(mode)
    model.decoder.layers[0].train(not mode)
    before = [part.training for part in model.modules()]
    model.encoder.register_forward_hook(lambda encoder, *_: modes.append(encoder.training))

    def measured(step: int) -> Batch:
        asked.append(step)
        model.eval()  # like a batch function that evaluates the model
        return copying(step)

    def look(done: int, loss: float) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, measured, steps=5, warmup=0, after_step=look)
    assert (modes, asked) == ([True, True, True], [0, 1, 2])
    assert [part.training for part in model.modules()] == before


def test_train_leaves_frozen_weights_unchanged():
    model = distinct.model()
    model.src_embedding.weight.requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    train(model, distinct_batch, steps=2, warmup=0)
    moved = {name for name, weight in model.named_parameters() if (weight != before[name]).any()}
    everything = {name for name, _ in model.named_parameters()}
    assert moved == everything - {"src_embedding.weight"}


# Checkpoints


@pytest.mark.parametrize("stopped_at", [1, 7])
def test_interrupted_train_resumes_bit_for_bit(tmp_path, stopped_at):
    path = tmp_path / "a folder" / "in a folder" / "run.pt"

    def stop(done: int, loss: float) -> None:
        if done == stopped_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(path, stop)
    torch.rand(5)  # changes the random state
    assert_same_run(small_run(path))


def test_checkpoint_is_written_every_save_every_steps_and_at_the_end(path):
    seen = []

    def look(done: int, loss: float) -> None:
        seen.append(len(torch.load(path)["losses"]) if path.exists() else 0)

    train(
        small_model(), copying, steps=5, warmup=0,
        checkpoint=str(path), save_every=2, after_step=look,
    )  # fmt: skip
    assert [*seen, len(torch.load(path)["losses"])] == [0, 0, 2, 2, 4, 5]


def test_checkpoint_is_complete_on_the_disk_before_it_is_renamed(path, monkeypatch):
    # The operating system keeps the buffers of a killed process; a power failure loses them.
    # Ctrl-C while torch writes a file can raise an OSError or abort through std::terminate.
    order, replace, save = [], os.replace, torch.save
    monkeypatch.setattr(torch, "save", lambda x, file: order.append(type(file)) or save(x, file))
    monkeypatch.setattr(os, "fsync", lambda file: order.append(os.fstat(file).st_size))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("rename") or replace(*names))
    train(small_model(), copying, steps=1, warmup=0, checkpoint=path)
    assert order == [io.BytesIO, path.stat().st_size, "rename"]


def test_two_runs_may_write_one_checkpoint_at_the_same_time(path, monkeypatch):
    started = []

    def write_in_another_run(file: int) -> None:
        if not started:
            started.append(file)
            train(small_model(), copying, steps=1, warmup=0, checkpoint=path)

    monkeypatch.setattr(os, "fsync", write_in_another_run)
    losses = train(small_model(), copying, steps=1, warmup=0, checkpoint=path)
    assert torch.load(path)["losses"] == losses
    assert list(path.parent.iterdir()) == [path]


def test_checkpoint_is_loaded_on_the_cpu_and_cannot_run_code(finished, monkeypatch):
    load, calls = torch.load, []
    monkeypatch.setattr(torch, "load", lambda *a, **named: calls.append(named) or load(*a, **named))
    small_run(finished)
    assert calls == [{"map_location": "cpu", "weights_only": True}]


def test_checkpoint_contains_the_random_state_of_the_gpu(path, monkeypatch):
    # This needs no GPU: the model pretends to be on one, and the test patches torch.cuda.
    model, saved, restored = small_model(), torch.arange(5, dtype=torch.uint8), []
    on_gpu = SimpleNamespace(device=torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: saved)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *state: restored.append(state))
    optimizer = torch.optim.Adam(model.parameters())
    monkeypatch.setattr(model, "parameters", lambda: iter([on_gpu]))
    _checkpoint.save(path, model, optimizer, {"steps": 1}, [1.0])
    assert _checkpoint.resume(path, model, optimizer, {"steps": 1}) == [1.0]
    ((state, device),) = restored
    assert torch.equal(state, saved) and device == on_gpu.device


def test_train_moves_every_batch_to_the_device_of_the_model():
    moved = []

    class Recorded(Batch):
        def to(self, device):
            moved.append(device)
            return Batch(*self)

    train(small_model(), lambda step: Recorded(*copying(step)), steps=2, warmup=0)
    assert moved == 2 * [torch.device("cpu")]
    ids = random_ids(0)
    batch = Batch(ids, ids, ids, None, causal_mask(LENGTH)).to("meta")
    devices = [None if part is None else part.device.type for part in batch]
    assert devices == ["meta", "meta", "meta", None, "meta"]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_train_records_gradients_in_every_grad_mode(mode):
    expected = train(small_model(), copying, steps=2, warmup=0)
    model = small_model()
    with mode():
        assert train(model, copying, steps=2, warmup=0) == expected


def test_train_gives_a_decoder_only_model_its_text_alone():
    model, text = distinct.language_model(), distinct.text
    expected = cross_entropy(model(text), text).item()
    losses = train(model, lambda step: Batch(None, text, text), steps=1, warmup=0)
    assert losses == [pytest.approx(expected)]


def test_train_takes_no_step_after_a_finished_checkpoint(finished):
    assert_same_run(small_run(finished, lambda *_: pytest.fail("another step was taken")))
    assert finished.read_bytes() == whole_checkpoint()


def test_checkpoint_rejects_other_settings(path):
    pairs = {
        "steps": (2, 3), "lr": (0.01, 0.02), "betas": ((0.9, 0.98), (0.9, 0.99)), "warmup": (0, 1),
        "clip": (1.0, 2.0), "label_smoothing": (0.0, 0.1),
    }  # fmt: skip
    settings = {name: saved for name, (saved, _) in pairs.items()}
    train(small_model(), copying, **settings, checkpoint=path)
    for name, (saved, other) in pairs.items():
        with pytest.raises(ValueError) as caught:
            train(small_model(), copying, **settings | {name: other}, checkpoint=path)
        assert str(caught.value) == (
            "train: checkpoint run.pt must belong to this model with these settings, got "
            f"{name}={saved} there and {name}={other} here"
        )
    assert len(train(small_model(), copying, **settings, checkpoint=path, save_every=1)) == 2


@pytest.mark.parametrize(
    ("change", "theirs", "ours"),
    [
        (
            {"d_model": 8},
            "src_embedding.weight of torch.float64 in shape (5, 16)",
            "src_embedding.weight of torch.float64 in shape (5, 8)",
        ),
        ({"dropout": 0.1}, "(dropout): Dropout(p=0.2, inplace=False)", "(dropout): Dropout(p=0.1"),
        ({"num_layers": 2}, "encoder.norm.weight", "encoder.layers.1.self_attention.w_q.weight"),
        ({"dtype": torch.float32}, "torch.float64", "src_embedding.weight of torch.float32"),
        ({"frozen": True}, "nothing", "src_embedding.weight without gradient"),
    ],
)
def test_checkpoint_rejects_another_model(finished, change, theirs, ours):
    torch.set_default_dtype(change.pop("dtype", torch.float64))
    frozen = change.pop("frozen", False)
    other = small_model(**{"dropout": 0.2} | change)
    other.src_embedding.requires_grad_(not frozen)
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        train(other, random_ids, steps=STEPS, warmup=3, checkpoint=finished)
    saved, here = str(caught.value).split(" there and ")
    assert saved.startswith("train: checkpoint run.pt must belong to this model")
    assert theirs in saved and ours in here
    assert all(torch.equal(weight, before[name]) for name, weight in other.state_dict().items())


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_checkpoint_that_cannot_be_written_leaves_no_other_file(finished, monkeypatch, fails):
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())

    def full(*arguments: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match=r"cannot write checkpoint run\.pt: no space\. The last"):
        _checkpoint.save(finished, model, optimizer, {"steps": 1}, [1.0])
    assert list(finished.parent.iterdir()) == [finished]
    assert finished.read_bytes() == whole_checkpoint()


def test_checkpoint_is_written_through_a_link(tmp_path):
    link, target = tmp_path / "link.pt", tmp_path / "folder" / "run.pt"
    link.symlink_to(target)
    train(small_model(), copying, steps=1, warmup=0, checkpoint=link)
    assert link.is_symlink() and torch.load(target)["losses"]


@pytest.mark.parametrize("damage", ["empty", "cut", "one bit", "text", "another file"])
def test_damaged_checkpoint_is_rejected_and_kept(tmp_path, path, damage):
    content = whole_checkpoint()
    if hasattr(os, "mkfifo"):  # reading a pipe would block forever
        os.mkfifo(tmp_path / "pipe.pt")
        with pytest.raises(ValueError, match=r"cannot resume from pipe\.pt: not a file\."):
            small_run(tmp_path / "pipe.pt")
    torch.save(small_model().state_dict(), tmp_path / "weights.pt")
    # The middle of the file belongs to the weights or to the state of Adam.
    middle = len(content) // 2
    damaged = {
        "empty": b"", "cut": content[:-100], "text": b"no checkpoint",
        "one bit": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "another file": (tmp_path / "weights.pt").read_bytes(),
    }[damage]  # fmt: skip
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"^train: cannot resume from run\.pt: .+ start again$"):
        small_run(path)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "edit",
    [
        *({name: None} for name in ("model", "optimizer", "losses", "random", "description")),
        *({"losses": losses} for losses in ([], [1.0] * (STEPS + 1), [1.0, math.nan])),
    ],
)
def test_edited_checkpoint_is_rejected_before_a_weight_changes(unchecked, finished, edit):
    torch.save(torch.load(finished) | edit, finished)
    model = small_model(dropout=0.2)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=r"^train: cannot resume from run\.pt: .+ start again$"):
        train(model, random_ids, steps=STEPS, warmup=3, checkpoint=finished)
    assert_close(model.state_dict(), before, rtol=0.0, atol=0.0)


# Non-finite losses


def make_loss_nan(model: Transformer) -> None:
    with torch.no_grad():
        model.output_projection.bias[0] = math.inf


def make_gradient_infinite(model: Transformer) -> None:
    model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize(
    ("damage", "loss", "norm"),
    [(make_loss_nan, "nan", "nan"), (make_gradient_infinite, r"1\.\d+", "inf|nan")],
)
def test_train_stops_before_a_step_that_is_not_finite(path, damage, loss, norm):
    model, kept, reported = small_model(), {}, []

    def after(done: int, loss: float) -> None:
        reported.append(loss)
        if done == 4:
            damage(model)
            kept.update({name: weight.clone() for name, weight in model.state_dict().items()})

    settings = {"batch": copying, "steps": 8, "warmup": 0, "checkpoint": path, "save_every": 3}
    with pytest.raises(FloatingPointError) as caught:
        train(model, **settings, after_step=after)
    assert_close(model.state_dict(), kept, rtol=0.0, atol=0.0, equal_nan=True)
    pattern = (
        rf"train: loss and gradient must be finite, got a loss of {loss} and a gradient norm of "
        rf"({norm}) at step 4\. "
        r"The learning rate of 0\.0015 may be too high: lower lr or raise warmup\. "
        r"The weights are unchanged"
    )
    assert re.fullmatch(pattern, str(caught.value)), caught.value

    resumed = train(small_model(), **settings)
    assert len(resumed) == 8 and resumed[:4] == reported


def test_train_names_a_batch_without_labels_also_on_a_gpu(monkeypatch):
    # train does not inspect labels on a GPU or under torch.compile.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    unlabelled = Batch(random_ids(0), random_ids(0), torch.full((32, LENGTH), IGNORED))
    with pytest.raises(FloatingPointError, match="All labels of this batch are ignored"):
        train(small_model(), lambda step: unlabelled, steps=1, warmup=0)


# Errors


def scores(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def ids(*shape: int, fill: int = 1) -> torch.Tensor:
    return torch.full(shape, fill)


def try_to_train(**settings: object) -> list[float]:
    return train(small_model(), **{"batch": copying, "steps": 4, "warmup": 1} | settings)


# Each call, followed by its error message on indented lines.
TABLE = """\
# shift
shift(ids(5, 0))
    shift: target_len must be an integer of at least 1, got 0
shift(scores(2, 5))
    shift: target must be a tensor of int64 or int32 ids, got torch.float64 in shape (2, 5)
# cross_entropy
cross_entropy(scores(2, 4, 13), ids(4, 2))
    cross_entropy: labels must have batch=2 as in logits, got 4 in shape (4, 2)
cross_entropy(scores(2, 4, 13), ids(2, 4), label_smoothing=1.5)
    cross_entropy: label_smoothing must be between 0 and 1, got 1.5
cross_entropy(scores(2, 4, 13), ids(2, 4), label_smoothing=True)
    cross_entropy: label_smoothing must be between 0 and 1, got True
cross_entropy(scores(2, 4, 13), ids(2, 4, fill=13))
    cross_entropy: a label must be an id from 0 to 12 or -100, got 13
cross_entropy(scores(2, 4, 13), ids(2, 4, fill=-1), ignored=0)
    cross_entropy: a label must be an id from 0 to 12 or 0, got -1
cross_entropy(scores(2, 4, 13), ids(2, 4, fill=IGNORED))
    cross_entropy: labels must contain an id, got only -100 (ignored) in shape (2, 4)
# settings
warmup_then_linear(8, warmup=0, steps=8)
    warmup_then_linear: step must be an integer from 0 to 7 (steps - 1), got 8
try_to_train(warmup=4)
    warmup_then_linear: warmup must be an integer from 0 to 3 (steps - 1), got 4
try_to_train(steps=0)
    train: steps must be an integer of at least 1, got 0
try_to_train(save_every=0)
    train: save_every must be an integer of at least 1, got 0
try_to_train(lr=-1.0)
    train: lr must be above 0 and finite, got -1.0
try_to_train(clip=0.0)
    train: clip must be above 0, got 0.0
try_to_train(clip=True)
    train: clip must be above 0, got True
train(small_model().requires_grad_(False), copying, steps=1, warmup=0)
    train: model must have a parameter that requires a gradient, got none
try_to_train(batch=lambda step: tuple(copying(step)))
    train: batch must return a Batch, got a tuple
try_to_train(batch=lambda step: copying(0)._replace(src=None, tgt_mask=causal_mask(2)))
    train: a batch without src must have no mask
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "message"), re.findall(r"^([^#\s].*)((?:\n    .+)+)", TABLE, re.MULTILINE)
)
def test_invalid_argument_of_training_is_named_with_its_numbers(call, message):
    with pytest.raises(ValueError) as caught:
        eval(call)
    assert str(caught.value) == " ".join(message.split())
