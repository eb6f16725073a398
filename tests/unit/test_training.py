"""Step 13: labels, the loss, and a loop that learns and can be killed."""

import inspect
import math
import os
import re
import signal
import subprocess
import sys
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
from twelve_lab import Trace, example

LOSS = 1.048250  # of the twelve numbers
VOCAB, LENGTH = 5, 4
STEPS, KILLED_AT = 12, 8


@pytest.fixture
def logits_and_labels(draw, seeded, sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """Hold logits that want a gradient, and labels of which some are ignored."""
    logits = draw(sizes.batch, sizes.tgt, sizes.tgt_vocab).requires_grad_()
    labels = torch.randint(0, sizes.tgt_vocab, (sizes.batch, sizes.tgt), generator=seeded)
    labels[0, 1] = labels[1, 3] = IGNORED
    return logits, labels


def example_logits() -> torch.Tensor:
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    return example.model()(example.src, example.tgt, **masks)


def companion_batch(step: int) -> Batch:
    """Give the companion's sentences, another one of their words in each step."""
    it = example.distinct
    src = it.src.clone()
    src[:, 0] = 1 + step % 10
    return Batch(src, it.tgt, it.labels, it.src_mask, it.tgt_mask)


def small_model(**changes: object) -> Transformer:
    torch.manual_seed(3)
    sizes = {"d_model": 16, "num_heads": 2, "num_layers": 1, "max_len": 8} | changes
    return Transformer(VOCAB, VOCAB, **sizes)


def random_ids(step: int, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, VOCAB, (32, length), generator=generator)


def copying(step: int) -> Batch:
    """Give words to copy: something that is learned, whatever is not tested here."""
    return Batch(*[random_ids(step)] * 3)


def small_run(checkpoint: Path | None, after_step=None) -> tuple[list[float], Transformer]:
    """Train a model with dropout, so that the state of the random numbers matters."""
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
def never_stopped() -> tuple[list[float], Transformer]:
    return small_run(None)


@cache
def whole_checkpoint() -> bytes:
    with TemporaryDirectory() as folder:
        small_run(Path(folder, "run.pt"))
        return Path(folder, "run.pt").read_bytes()


def assert_same_run(found: tuple[list[float], Transformer]) -> None:
    """Compare losses and weights, bit for bit, with a run that was never stopped."""
    (losses, model), (expected, uninterrupted) = found, never_stopped()
    assert losses == expected
    weights = uninterrupted.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.state_dict().items())


# By hand


def test_the_example_is_its_target_shifted():
    tgt, labels = shift(torch.tensor([[1, 0], [3, 2]]))
    assert torch.equal(tgt, example.tgt)
    assert torch.equal(labels, example.labels)


def test_every_position_is_given_the_word_before_and_asked_for_its_own():
    target = torch.tensor([[7, 8, 9, 2], [5, 2, 4, 4]])
    tgt, labels = shift(target, start_id=1, pad_id=4)
    assert tgt.tolist() == [[1, 7, 8, 9], [1, 5, 2, 4]]
    assert labels.tolist() == [[7, 8, 9, 2], [5, 2, IGNORED, IGNORED]]


def test_the_loss_of_the_example_can_be_worked_out_on_paper():
    logits = example_logits().tolist()
    surprises = []
    for batch, position in ((0, 0), (1, 0), (1, 1)):
        row, label = logits[batch][position], int(example.labels[batch, position])
        total = sum(math.exp(score) for score in row)
        surprises.append(-math.log(math.exp(row[label]) / total))
    loss = cross_entropy(example_logits(), example.labels).item()
    assert loss == pytest.approx(sum(surprises) / 3, abs=1e-12)
    assert round(loss, 6) == LOSS


@pytest.mark.parametrize(
    ("label", "smoothing", "expected"),
    [
        (0, 0.0, math.log(4)),
        (1, 0.0, math.log(4 / 3)),
        (1, 0.4, 0.6 * math.log(4 / 3) + 0.4 * (math.log(4) + math.log(4 / 3)) / 2),
        (1, 1.0, (math.log(4) + math.log(4 / 3)) / 2),
    ],
)
def test_the_loss_is_the_surprise_at_the_right_word(label, smoothing, expected):
    # Scores 0 and ln 3: probabilities 1/4 and 3/4.
    logits = torch.tensor([[[0.0, math.log(3.0)]]])
    loss = cross_entropy(logits, torch.tensor([[label]]), label_smoothing=smoothing)
    assert loss.item() == pytest.approx(expected, abs=1e-12)


def test_a_blind_guess_is_surprised_by_the_logarithm_of_the_vocabulary():
    loss = cross_entropy(torch.zeros(2, 3, 13), torch.ones(2, 3, dtype=torch.int64))
    assert loss.item() == pytest.approx(math.log(13), abs=1e-12)


def test_the_learning_rate_rises_and_then_falls_to_zero():
    factors = [warmup_then_linear(step, warmup=4, steps=8) for step in range(8)]
    assert factors == [0.25, 0.5, 0.75, 1.0, 1.0, 0.75, 0.5, 0.25]
    assert [warmup_then_linear(s, warmup=0, steps=4) for s in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert [warmup_then_linear(s, warmup=3, steps=4) for s in range(4)] == [1 / 3, 2 / 3, 1.0, 1.0]


def test_the_first_step_moves_every_weight_by_the_learning_rate_against_its_gradient():
    # Adam divides the first gradient by its own size: what is left is its sign.
    model = example.distinct.model()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    train(model, companion_batch, steps=1, warmup=0, lr=1e-3)
    for name, weight in model.named_parameters():
        felt = weight.grad.abs() > 1e-3
        moved = (weight - before[name])[felt]
        # Beside the gradient's size stands Adam's eps of 1e-8, which no longer counts.
        assert_close(moved, -1e-3 * weight.grad[felt].sign(), rtol=2e-5, atol=0.0)


# Oracle


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("ignored", [IGNORED, 4])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_the_loss_equals_torch_in_value_and_gradient(logits_and_labels, smoothing, ignored, scale):
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


def test_a_word_that_is_ruled_out_costs_nothing_unless_it_is_right(logits_and_labels):
    logits, labels = logits_and_labels
    labels = labels.masked_fill(labels == 0, 1)
    ruled_out = logits.detach().index_fill(-1, torch.tensor([0]), -math.inf)
    expected = F.cross_entropy(ruled_out.flatten(0, 1), labels.flatten())
    assert expected.isfinite()
    assert_close(cross_entropy(ruled_out, labels), expected)


@pytest.mark.parametrize("clip", [0.05, math.inf])
def test_training_is_the_textbook_loop_in_torch(clip):
    # Not in eval mode, as a model is when it is built: nothing here may depend on it.
    ours, theirs = (example.distinct.model() for _ in range(2))
    losses = train(
        ours, companion_batch, steps=6, lr=0.02, betas=(0.8, 0.9), warmup=2, clip=clip,
        label_smoothing=0.1,
    )  # fmt: skip

    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.02, betas=(0.8, 0.9))
    factors = [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: [*factors, 0.0][step])
    expected = []
    for step in range(6):
        src, tgt, labels, src_mask, tgt_mask = companion_batch(step)
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
    assert expected[-1] < expected[0]
    assert_close(ours.state_dict(), theirs.state_dict())


# Laws


def test_every_step_of_the_loss_can_be_looked_at_and_explained():
    with Trace() as trace:
        cross_entropy(example_logits(), example.labels, label_smoothing=0.1)
    names = [name for name in trace if name.startswith("cross_entropy.")]
    assert names == [
        f"cross_entropy.{name}"
        for name in (
            "counted", "log_probabilities", "losses", "over_all_words", "counted_losses", "loss",
        )
    ]  # fmt: skip
    assert trace["cross_entropy.counted_losses"].axes == ("batch", "tgt")
    explanation = trace["cross_entropy.loss"].explain()
    assert explanation.value == trace["cross_entropy.loss"].value.item()


def test_an_ignored_position_neither_costs_nor_teaches(logits_and_labels):
    logits, labels = logits_and_labels
    before = cross_entropy(logits, labels, label_smoothing=0.1)
    gradient = torch.autograd.grad(before, logits)[0]
    assert (gradient[labels == IGNORED] == 0.0).all()
    assert gradient[labels != IGNORED].any(-1).all()
    changed = logits.detach().clone()
    changed[labels == IGNORED] = 1e6
    assert torch.equal(cross_entropy(changed, labels, label_smoothing=0.1), before)


def test_every_counted_label_weighs_the_same_however_long_its_sentence(logits_and_labels):
    logits, labels = logits_and_labels
    labels[0, 1:] = IGNORED
    alone = [
        cross_entropy(logits[b : b + 1, t : t + 1], labels[b : b + 1, t : t + 1])
        for b, t in (labels != IGNORED).nonzero().tolist()
    ]
    assert len(alone) == 4
    assert_close(cross_entropy(logits, labels), torch.stack(alone).mean())


def test_what_is_added_to_all_scores_of_a_word_does_not_matter(draw, sizes, logits_and_labels):
    logits, labels = logits_and_labels
    moved = logits + draw(sizes.batch, sizes.tgt, 1)
    assert_close(cross_entropy(moved, labels), cross_entropy(logits, labels))


def test_the_gradient_pushes_the_probability_from_what_was_said_to_what_is_right(
    logits_and_labels,
):
    logits, labels = logits_and_labels
    counted = labels != IGNORED
    gradient = torch.autograd.grad(cross_entropy(logits, labels), logits)[0][counted]
    right = F.one_hot(labels[counted], logits.size(-1))
    assert_close(gradient, (logits[counted].softmax(-1) - right) / counted.sum())


def test_the_source_padding_learns_nothing_and_the_start_token_does():
    model = example.model()
    masks = {"src_mask": example.src_mask, "tgt_mask": example.tgt_mask}
    cross_entropy(model(example.src, example.tgt, **masks), example.labels).backward()
    assert model.src_embedding.weight.grad.any(1).tolist() == [False, True, True, True]
    # Word 1 is read where nothing is asked, and word 2 is an answer that is never read.
    assert model.tgt_embedding.weight.grad.any(1).tolist() == [True, False, False, True]


def test_inputs_are_left_as_they_were(logits_and_labels):
    logits, labels = logits_and_labels
    before = logits.detach().clone(), labels.clone()
    cross_entropy(logits, labels, label_smoothing=0.1)
    shift(labels, pad_id=1)
    assert torch.equal(logits, before[0]) and torch.equal(labels, before[1])


def test_each_step_gets_its_own_batch_and_is_reported():
    asked, told = [], []

    def batch(step: int) -> Batch:
        asked.append(step)
        return companion_batch(step)

    model = example.distinct.model()
    losses = train(model, batch, steps=4, warmup=1, after_step=lambda *done: told.append(done))
    assert asked == [0, 1, 2, 3]
    assert told == [(1, losses[0]), (2, losses[1]), (3, losses[2]), (4, losses[3])]


@pytest.mark.parametrize("mode", [True, False])
def test_a_model_trains_with_dropout_and_gets_its_own_mode_back(mode):
    modes = []
    model = small_model().train(mode)
    model.encoder.register_forward_hook(lambda encoder, *_: modes.append(encoder.training))

    def look(done: int, loss: float) -> None:
        model.eval()  # as one does to look at the model on the way
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model, copying, steps=5, warmup=0, after_step=look)
    assert modes == [True, True, True]
    assert model.training == mode


def test_a_frozen_weight_stays():
    model = example.distinct.model()
    model.src_embedding.weight.requires_grad_(False)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    train(model, companion_batch, steps=2, warmup=0)
    moved = {name for name, weight in model.named_parameters() if (weight != before[name]).any()}
    everything = {name for name, _ in model.named_parameters()}
    assert moved == everything - {"src_embedding.weight"}


# Two ways to be told the answer. On random words nobody can honestly do better than ln(vocab).


def last_losses(make) -> float:
    losses = train(small_model(), lambda step: Batch(*make(step)), steps=150, lr=1e-2, warmup=20)
    return sum(losses[-20:]) / 20


def honest(step: int) -> tuple:
    tgt, labels = shift(random_ids(step), start_id=0, pad_id=-1)
    return random_ids(step + 10_000), tgt, labels, None, causal_mask(LENGTH)


def not_shifted(step: int) -> tuple:
    source, _, labels, *masks = honest(step)
    return source, labels, labels, *masks


def source_is_the_answer(step: int) -> tuple:
    """Give encoder and decoder the same words and ask for the next ones (ERRATA E2.15)."""
    words = random_ids(step, LENGTH + 1)
    return words[:, :-1], words[:, :-1], words[:, 1:], None, causal_mask(LENGTH)


def no_causal_mask(step: int) -> tuple:
    return *honest(step)[:3], None, None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "lowest", "highest"),
    [
        (honest, 0.99, 1.05),
        (not_shifted, 0.0, 0.1),
        # The last word is nowhere to be seen: a quarter of the honest loss stays.
        (source_is_the_answer, 0.24, 0.35),
        (no_causal_mask, 0.24, 0.35),
    ],
)
def test_a_loss_below_the_honest_optimum_gives_a_leak_away(make, lowest, highest):
    assert lowest <= last_losses(make) / math.log(VOCAB) <= highest


# Checkpoints


def run_and_die(path: Path, how: str) -> None:
    """Train until the process is killed: between two steps, or while a checkpoint is written."""
    save, replace, writes = torch.save, os.replace, []

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write_half(state: object, file) -> None:
        save(state, file)
        writes.append(file.tell())
        if len(writes) == 2:
            file.truncate(writes[-1] // 2)
            file.flush()
            die()

    def never_rename(source: Path, target: Path) -> None:
        if target.exists():
            die()
        replace(source, target)

    if how == "while writing":
        torch.save = write_half
    elif how == "before the rename":
        os.replace = never_rename
    small_run(path, lambda done, _: die() if how == "between steps" and done == KILLED_AT else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "saved", "aside"),
    [("between steps", 6, False), ("while writing", 3, True), ("before the rename", 3, True)],
)
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(tmp_path, how, saved, aside):
    path = tmp_path / "run.pt"
    code = (
        "import sys; from pathlib import Path; import torch; torch.set_num_threads(1);"
        "torch.set_default_dtype(torch.float64); import test_training;"
        "test_training.run_and_die(Path(sys.argv[1]), sys.argv[2])"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(path), how],
        cwd=Path(__file__).parent,
        capture_output=True,
        timeout=120,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(torch.load(path)["losses"]) == saved
    assert any(tmp_path.glob("run.pt.*.part")) == aside
    assert_same_run(small_run(path))


@pytest.mark.parametrize("stopped_at", [1, 7, 12])
def test_resuming_gives_the_same_losses_and_weights_as_never_stopping(tmp_path, stopped_at):
    path = tmp_path / "a folder" / "in a folder" / "run.pt"

    def stop(done: int, loss: float) -> None:
        if done == stopped_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(path, stop)
    torch.rand(5)  # whatever was drawn in the meantime
    assert_same_run(small_run(path))


def test_a_checkpoint_is_written_every_so_often_and_at_the_end(tmp_path):
    path, seen = tmp_path / "run.pt", []

    def look(done: int, loss: float) -> None:
        seen.append(len(torch.load(path)["losses"]) if path.exists() else 0)

    train(
        small_model(), copying, steps=5, warmup=0,
        checkpoint=str(path), save_every=2, after_step=look,
    )  # fmt: skip
    assert [*seen, len(torch.load(path)["losses"])] == [0, 0, 2, 2, 4, 5]


def test_a_checkpoint_is_on_the_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    # A kill leaves what was written to the system; only a power failure would tell the difference.
    order, sync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: order.append("fsync") or sync(file))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("rename") or replace(*names))
    train(small_model(), copying, steps=1, warmup=0, checkpoint=tmp_path / "run.pt")
    assert order == ["fsync", "rename"]


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path, monkeypatch):
    # The same as below, within one process: neither half a file nor an unnamed one counts.
    path, whole, save = tmp_path / "run.pt", [], torch.save

    def write_half(state: object, file) -> None:
        save(state, file)
        if len(state["losses"]) == 6:
            file.truncate(file.tell() // 2)
            raise KeyboardInterrupt
        whole.append(len(state["losses"]))

    monkeypatch.setattr(torch, "save", write_half)
    with pytest.raises(KeyboardInterrupt):
        small_run(path)
    monkeypatch.undo()
    assert whole == [3] and len(torch.load(path)["losses"]) == 3
    assert_same_run(small_run(path))


def test_two_runs_may_write_one_checkpoint(tmp_path, monkeypatch):
    path, save, started = tmp_path / "run.pt", torch.save, []

    def other_run_comes_first(state: object, file) -> None:
        save(state, file)
        if not started:
            started.append(1)
            monkeypatch.setattr(os, "getpid", lambda: 12345)
            train(small_model(), copying, steps=1, warmup=0, checkpoint=path)

    monkeypatch.setattr(torch, "save", other_run_comes_first)
    losses = train(small_model(), copying, steps=1, warmup=0, checkpoint=path)
    monkeypatch.undo()
    assert torch.load(path)["losses"] == losses
    assert [file.name for file in tmp_path.iterdir()] == ["run.pt"]


class Tempting:
    """Stand for what whoever wrote a file wants to happen where it is read."""

    def __reduce__(self):
        return pytest.fail, ("code from a checkpoint was executed",)


def test_a_checkpoint_cannot_run_code(tmp_path):
    path = tmp_path / "run.pt"
    torch.save({"description": [], "model": Tempting()}, path)
    with pytest.raises(ValueError, match=r"cannot resume from run\.pt: .*[Ww]eights.only"):
        small_run(path)


def test_a_checkpoint_that_lacks_a_weight_is_refused(tmp_path):
    path = tmp_path / "run.pt"
    path.write_bytes(whole_checkpoint())
    state = torch.load(path)
    del state["model"]["encoder.norm.weight"]
    torch.save(state, path)
    with pytest.raises(
        RuntimeError, match=r'Missing key\(s\) in state_dict: "encoder.norm.weight"'
    ):
        small_run(path)


def test_a_checkpoint_is_read_on_the_cpu_wherever_it_was_written(tmp_path, monkeypatch):
    path, load, asked = tmp_path / "run.pt", torch.load, []
    path.write_bytes(whole_checkpoint())
    monkeypatch.setattr(torch, "load", lambda *a, **named: asked.append(named) or load(*a, **named))
    small_run(path)
    assert [named["map_location"] for named in asked] == ["cpu"]


def test_the_random_numbers_of_a_gpu_are_part_of_a_checkpoint(tmp_path, monkeypatch):
    # A GPU that is none: the model says that it is on one, and torch.cuda is watched.
    model, given, taken = small_model(), torch.arange(5, dtype=torch.uint8), []
    on_gpu = SimpleNamespace(device=torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: given)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *state: taken.append(state))
    optimizer = torch.optim.Adam(model.parameters())
    monkeypatch.setattr(model, "parameters", lambda: iter([on_gpu]))
    path = tmp_path / "run.pt"
    _checkpoint.save(path, model, optimizer, {}, [1.0])
    assert _checkpoint.resume(path, model, optimizer, {}) == [1.0]
    ((state, device),) = taken
    assert torch.equal(state, given) and device == on_gpu.device


def test_every_batch_is_moved_to_where_the_model_is():
    moved = []

    class Watched(Batch):
        def to(self, device):
            moved.append(device)
            return Batch(*self)

    train(small_model(), lambda step: Watched(*copying(step)), steps=2, warmup=0)
    assert moved == 2 * [torch.device("cpu")]
    ids = random_ids(0)
    there = Batch(ids, ids, ids, None, causal_mask(LENGTH)).to("meta")
    places = [None if part is None else part.device.type for part in there]
    assert places == ["meta", "meta", "meta", None, "meta"]


def test_what_is_not_said_is_what_the_documentation_says():
    found = {name: one.default for name, one in inspect.signature(train).parameters.items()}
    defaults = {
        "lr": 3e-3, "betas": (0.9, 0.98), "warmup": 50, "clip": 1.0, "label_smoothing": 0.0,
        "checkpoint": None, "save_every": 100, "after_step": None,
    }  # fmt: skip
    assert {name: found[name] for name in defaults} == defaults


def test_a_run_that_is_over_is_only_read(tmp_path):
    path = tmp_path / "run.pt"
    path.write_bytes(whole_checkpoint())
    before = path.read_bytes()
    assert_same_run(small_run(path, lambda *_: pytest.fail("another step was taken")))
    assert path.read_bytes() == before


def test_a_checkpoint_goes_on_only_with_the_same_settings(tmp_path):
    path = tmp_path / "run.pt"
    batch = {"batch": copying}
    settings = {
        "steps": 2, "lr": 0.01, "betas": (0.9, 0.98), "warmup": 0, "clip": 1.0,
        "label_smoothing": 0.0,
    }  # fmt: skip
    others = {
        "steps": 3, "lr": 0.02, "betas": (0.9, 0.99), "warmup": 1, "clip": 2.0,
        "label_smoothing": 0.1,
    }  # fmt: skip
    train(small_model(), **batch, **settings, checkpoint=path)
    for name, other in others.items():
        with pytest.raises(ValueError) as caught:
            train(small_model(), **batch, **settings | {name: other}, checkpoint=path)
        assert str(caught.value) == (
            "train: the checkpoint run.pt is of another model or other settings: it has "
            f"{name}={settings[name]}, where this run has {name}={other}"
        )
    assert len(train(small_model(), **batch, **settings, checkpoint=path, save_every=1)) == 2


@pytest.mark.parametrize(
    ("change", "theirs", "ours"),
    [
        (
            {"d_model": 8},
            "src_embedding.weight of torch.float64 in shape (5, 16)",
            "src_embedding.weight of torch.float64 in shape (5, 8)",
        ),
        ({"dropout": 0.1}, "(dropout): Dropout(p=0.2, inplace=False)", "(dropout): Dropout(p=0.1"),
        (
            {"num_heads": 4},
            "d_model=16, num_heads=2, d_k=8, d_v=8, dropout=0.2",
            "d_model=16, num_heads=4, d_k=4, d_v=4, dropout=0.2",
        ),
        ({"num_layers": 2}, "encoder.norm.weight", "encoder.layers.1.self_attention.w_q.weight"),
        ({"dtype": torch.float32}, "torch.float64", "src_embedding.weight of torch.float32"),
    ],
)
def test_a_checkpoint_goes_on_only_with_the_same_model(tmp_path, change, theirs, ours):
    path = tmp_path / "run.pt"
    path.write_bytes(whole_checkpoint())
    torch.set_default_dtype(change.pop("dtype", torch.float64))
    other = small_model(**{"dropout": 0.2} | change)
    before = {name: weight.clone() for name, weight in other.state_dict().items()}
    with pytest.raises(ValueError) as caught:
        train(other, random_ids, steps=STEPS, warmup=3, checkpoint=path)
    found = str(caught.value).split(", where this run has ")
    assert found[0].startswith(
        "train: the checkpoint run.pt is of another model or other settings: it has "
    )
    assert theirs in found[0] and ours in found[1]
    assert all(torch.equal(weight, before[name]) for name, weight in other.state_dict().items())


def damage(path: Path, how: str) -> None:
    whole = path.read_bytes()
    # The middle of the file lies in the weights or in what Adam remembers of them.
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    spoilt = {
        "empty": b"", "cut": whole[:-100], "half": whole[:middle], "one bit": flipped,
        "text": b"no checkpoint",
    }  # fmt: skip
    path.write_bytes(spoilt[how])


@pytest.mark.parametrize("how", ["empty", "cut", "half", "one bit", "text"])
def test_a_damaged_checkpoint_is_found_and_left_alone(tmp_path, how):
    path = tmp_path / "run.pt"
    path.write_bytes(whole_checkpoint())
    damage(path, how)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"^train: cannot resume from run\.pt: .+ start afresh$"):
        small_run(path)
    assert path.read_bytes() == before


def test_another_file_is_no_checkpoint(tmp_path):
    path = tmp_path / "run.pt"
    torch.save(small_model().state_dict(), path)
    with pytest.raises(ValueError, match="it was not written by train"):
        small_run(path)


# A loss that is not finite


def spoil_score(model: Transformer) -> None:
    with torch.no_grad():
        model.output_projection.bias[0] = math.inf


def spoil_gradient(model: Transformer) -> None:
    model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.inf)


@pytest.mark.parametrize(
    ("spoil", "loss", "norm"), [(spoil_score, "nan", "nan"), (spoil_gradient, r"1\.\d+", "inf|nan")]
)
def test_a_loss_or_gradient_that_is_not_finite_stops_before_the_weights_are_touched(
    tmp_path, spoil, loss, norm
):
    path, model, kept, told = tmp_path / "run.pt", small_model(), {}, []

    def after(done: int, loss: float) -> None:
        told.append(loss)
        if done == 4:
            spoil(model)
            kept.update({name: weight.clone() for name, weight in model.state_dict().items()})

    batch = {"batch": copying}
    settings = {"steps": 8, "warmup": 0, "checkpoint": path, "save_every": 3}
    with pytest.raises(FloatingPointError) as caught:
        train(model, **batch, **settings, after_step=after)
    assert_close(model.state_dict(), kept, rtol=0.0, atol=0.0, equal_nan=True)
    pattern = (
        rf"train: at step 4 the loss is {loss} and the length of the gradient ({norm})\. "
        r"The learning rate of 0\.0015 may be too high: lower lr or raise warmup\. "
        r"The weights were not touched"
    )
    assert re.fullmatch(pattern, str(caught.value)), caught.value

    resumed = train(small_model(), **batch, **settings)
    assert len(resumed) == 8 and resumed[:4] == told


def test_a_first_step_that_is_not_finite_is_named():
    model = small_model()
    spoil_score(model)
    with pytest.raises(FloatingPointError, match=r"at step 0 the loss is nan"):
        train(model, copying, steps=2, warmup=0)


def test_where_labels_are_not_read_a_batch_without_one_is_still_named(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    nothing = Batch(random_ids(0), random_ids(0), torch.full((32, LENGTH), IGNORED))
    with pytest.raises(FloatingPointError, match="Every label of this batch is ignored"):
        train(small_model(), lambda step: nothing, steps=1, warmup=0)


# Errors


def scores(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


def ids(*shape: int, fill: int = 1) -> torch.Tensor:
    return torch.full(shape, fill)


def try_to_train(**settings: object) -> list[float]:
    return train(small_model(), copying, **{"steps": 4, "warmup": 1} | settings)


ERRORS = [
    (
        lambda: shift(ids(5)),
        "shift: target must have 2 axes, got shape (5,)",
    ),
    (
        lambda: shift(ids(5, 0)),
        "shift: target_len must be a whole number of at least 1, got 0",
    ),
    (
        lambda: shift(scores(2, 5)),
        "shift: target must be int64 or int32 token ids, got torch.float64 in shape (2, 5)",
    ),
    (
        lambda: cross_entropy(scores(8, 13), ids(8)),
        "cross_entropy: logits must have 3 axes, got shape (8, 13)",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(4, 2)),
        "cross_entropy: the arguments disagree about (batch, tgt): logits has (2, 4), labels has "
        "(4, 2)",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(8)),
        "cross_entropy: the arguments disagree about (batch, tgt): logits has (2, 4), labels has "
        "(8,)",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(2, 4).int()),
        "cross_entropy: labels must be int64 ids, got torch.int32",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(2, 4), label_smoothing=1.5),
        "cross_entropy: label_smoothing must lie from 0 to 1, got 1.5",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(2, 4, fill=13)),
        "cross_entropy: a label must be an id from 0 to 12 or -100, got 13",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(2, 4, fill=-1), ignored=0),
        "cross_entropy: a label must be an id from 0 to 12 or 0, got -1",
    ),
    (
        lambda: cross_entropy(scores(2, 4, 13), ids(2, 4, fill=IGNORED)),
        "cross_entropy: every label is ignored (-100) in shape (2, 4): there is nothing to average",
    ),
    (
        lambda: warmup_then_linear(0, warmup=8, steps=8),
        "warmup_then_linear: warmup must lie from 0 to steps - 1 = 7, got 8",
    ),
    (
        lambda: warmup_then_linear(8, warmup=0, steps=8),
        "warmup_then_linear: step must lie from 0 to steps - 1 = 7, got 8",
    ),
    (
        lambda: try_to_train(steps=0),
        "train: steps must be a whole number of at least 1, got 0",
    ),
    (
        lambda: try_to_train(save_every=0),
        "train: save_every must be a whole number of at least 1, got 0",
    ),
    (
        lambda: try_to_train(warmup=4),
        "warmup_then_linear: warmup must lie from 0 to steps - 1 = 3, got 4",
    ),
    (
        lambda: try_to_train(lr=-1.0),
        "train: lr must be above 0 and finite, got -1.0",
    ),
    (
        lambda: try_to_train(lr=math.nan),
        "train: lr must be above 0 and finite, got nan",
    ),
    (
        lambda: try_to_train(clip=0.0),
        "train: clip must be above 0, got 0.0",
    ),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_bad_input_is_named_with_its_numbers(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == message


def test_a_checkpoint_is_whole_when_the_disk_is_asked_to_keep_it(tmp_path, monkeypatch):
    kept = []

    def keep(file: int) -> None:
        kept.append(os.fstat(file).st_size)

    model = torch.nn.Linear(3, 4)
    monkeypatch.setattr(os, "fsync", keep)
    _checkpoint.save(tmp_path / "run.pt", model, torch.optim.Adam(model.parameters()), {}, [1.0])
    assert kept == [(tmp_path / "run.pt").stat().st_size]
