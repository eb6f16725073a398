"""The declarations of each task and each classic mistake are true.

`tests/unit/test_check.py` checks that the checker names each wrong version, and
`tests/unit/test_mutants.py` that a unit test notices each mistake in the layers.
"""

import math
from functools import cache
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.testing import assert_close

import twelve
from tests.mutants.classic import PLANTS
from tools.write_cards import shown_in
from twelve import training
from twelve.generation import next_token_probabilities
from twelve_lab import example
from twelve_lab.check import MISTAKES, TASKS, TAUGHT, wrong_versions
from twelve_lab.check.catalogue import mistakes_of
from twelve_lab.check.compare import agree, gradients, outcomes, trainable
from twelve_lab.course import STEPS

# The annotations would refuse a wrong answer before the checker sees it.
pytestmark = pytest.mark.usefixtures("unchecked")

# Arguments that get no gradient: a task, and the position among its floating-point tensors.
FROZEN = {
    ("lora", 1),
    ("distillation", 1),
    *(("accumulated_gradients", place) for place in range(3)),
    *(("dpo_loss", place) for place in (2, 3)),
    *(("grpo_loss", place) for place in (1, 2, 3)),
    *(("ppo_loss", place) for place in (1, 2)),
    *(("speculative_step", place) for place in (2, 3)),
}


def largest_error(outcome, right) -> float:
    """Measure the largest error, relative to the largest right number."""
    errors = []
    pairs = zip(outcome.values + outcome.gradients, right.values + right.gradients, strict=True)
    for actual, expected in pairs:
        scale = expected.double().abs().max().item()
        error = (actual.double() - expected.double()).abs().max().item()
        # One step of int8 is less than a percent of 127, but no rounding error.
        scale = scale if expected.is_floating_point() else 1.0
        errors.append(math.inf if math.isnan(error) else error / (scale if scale > 1e-6 else 1.0))
    return max(errors)


@cache
def outcomes_of(name, id="right"):
    task = TASKS[name]
    return outcomes(task, task.right if id == "right" else wrong_versions(name)[id])


def test_mistakes_are_declared_at_a_task_and_planted_in_a_layer():
    assert set(PLANTS) == set(TAUGHT)
    for id, mistake in MISTAKES.items():
        assert mistakes_of(TASKS[mistake.task])[id][0] is mistake.wrong
        assert mistake.step in {"", *(step.number for step in STEPS)}
    for task in TASKS.values():
        assert set(task.mistakes) <= set(MISTAKES)


@pytest.mark.parametrize("name", TASKS)
def test_cases_of_a_task_are_drawn_afresh_and_alike(name):
    cases, again = TASKS[name].cases(), TASKS[name].cases()
    shared = {id(value) for value in vars(example).values()}
    assert len(cases) >= 3
    for case in cases:
        for first, second in zip(cases[case], again[case], strict=True):
            if isinstance(first, Tensor):
                assert_close(first, second, rtol=0, atol=0)
                assert first is not second
                assert id(first) not in shared
                assert first.dtype in (torch.float64, torch.int64, torch.uint8, torch.bool)


@pytest.mark.parametrize("id", MISTAKES)
def test_a_mistake_shows_clearly_in_some_case_and_in_others_not_at_all(id):
    right, wrong = (outcomes_of(MISTAKES[id].task, version) for version in ("right", id))
    hidden, refused = shown_in(MISTAKES[id])
    assert hidden < set(right), "it shows in no case"
    for case in set(right) - refused:
        error = largest_error(wrong[case], right[case])
        assert error < 1e-3 if case in hidden else error > 2e-2, case


@pytest.mark.parametrize("name", TASKS)
def test_answers_to_one_task_differ_in_some_case(name):
    known = [outcomes_of(name, id) for id in ("right", *wrong_versions(name))]
    for first, second in combinations(known, 2):
        assert any(not agree(first[case], second[case], 1e-2) for case in first)


@pytest.mark.parametrize("name", TASKS)
def test_a_gradient_reaches_every_argument_of_the_right_answer(name):
    for case, arguments in TASKS[name].cases().items():
        arguments = trainable(arguments)
        answer = TASKS[name].observe(TASKS[name].run(TASKS[name].right, arguments))
        for place, slope in enumerate(gradients(answer, arguments)):
            if (name, place) in FROZEN:
                assert slope is None, case
                continue
            assert slope is not None, case
            assert slope.isfinite().all(), case


# The right answers, beside the layers. tests/course/wrong_answers.py holds each task to an answer
# that was written independently.


def linear(x, weight, bias):
    parameters = {"weight": weight, "bias": bias}
    return functional_call(twelve.Linear(*weight.T.shape), parameters, x)


def embed(ids, table, pad_id=None):
    layer = twelve.TokenEmbedding(*table.shape, padding_idx=pad_id)
    return functional_call(layer, {"weight": table}, ids)


def multi_head_attention(query, memory, w_q, w_k, w_v, w_o, num_heads):
    widths = {"d_k": len(w_q) // num_heads, "d_v": len(w_v) // num_heads}
    layer = twelve.MultiHeadAttention(query.size(-1), num_heads, **widths)
    matrices = {"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    parameters = {f"{name}.weight": matrix for name, matrix in matrices.items()}
    return functional_call(layer, parameters, (query, memory, memory))


def grouped_query_attention(x, w_q, w_k, w_v, w_o, num_heads, num_kv_heads):
    """Let the fused kernel share the heads."""
    projections = (w_q, num_heads), (w_k, num_kv_heads), (w_v, num_kv_heads)
    heads = [(x @ w.T).unflatten(-1, (number, -1)).transpose(1, 2) for w, number in projections]
    context = F.scaled_dot_product_attention(*heads, enable_gqa=True)
    return context.transpose(1, 2).flatten(2) @ w_o.T


def layer_norm(x, weight, bias):
    return functional_call(twelve.LayerNorm(len(weight)), {"weight": weight, "bias": bias}, x)


def rms_norm(x, weight):
    return functional_call(twelve.RMSNorm(len(weight)), {"weight": weight}, x)


def residual(x, sublayer, norm):
    wrapper = twelve.Residual(x.size(-1))
    wrapper.norm = norm
    return wrapper(x, sublayer)


def feed_forward(x, w_up, b_up, w_down, b_down):
    parameters = {"up.weight": w_up, "up.bias": b_up, "down.weight": w_down, "down.bias": b_down}
    return functional_call(twelve.FeedForward(*w_up.T.shape), parameters, x)


def swiglu(x, gate, up, down):
    parameters = {"gate.weight": gate, "up.weight": up, "down.weight": down}
    return functional_call(twelve.SwiGLU(*up.T.shape), parameters, x)


def rotate(heads, angles):
    """Rotate by the layer: the angles of the cases belong to consecutive positions."""
    return twelve.RotaryEncoding(heads.size(-1)).double()(heads, round(angles[0, 0].item()))


def attention_with_rotary(query, key, value, start):
    turn = twelve.RotaryEncoding(query.size(-1)).double()
    turned = turn(key, start)
    return F.scaled_dot_product_attention(turn(query, start), turned, value), turned


def by_autograd(function, upstream, *given):
    """Compute the gradients of the arguments of a function."""
    return torch.autograd.grad(function(*given), given, upstream)


def cosine_schedule(steps, warmup, total, peak):
    """Let the schedulers of PyTorch count the steps. Theirs begins at a factor above 0."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
    cosine = CosineAnnealingLR(optimizer, total - warmup)
    if warmup:
        rising = LinearLR(optimizer, start_factor=1e-12, total_iters=warmup)
        schedule = SequentialLR(optimizer, [rising, cosine], milestones=[warmup])
    else:
        schedule = cosine
    rates = []
    for _ in range(total + 1):
        rates += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    return torch.tensor(rates)[steps]


def adamw_step(weight, gradient, mean, square, step, lr, decay):
    parameter = nn.Parameter(weight.clone())
    parameter.grad = gradient
    optimizer = torch.optim.AdamW([parameter], lr=lr, weight_decay=decay)
    state = {"step": torch.tensor(step - 1.0), "exp_avg": mean, "exp_avg_sq": square}
    optimizer.state[parameter] = {name: value.clone() for name, value in state.items()}
    optimizer.step()
    state = optimizer.state[parameter]
    return parameter.detach(), state["exp_avg"], state["exp_avg_sq"]


def distillation(student, teacher, temperature):
    log_q, log_p = ((x / temperature).flatten(0, 1).log_softmax(-1) for x in (student, teacher))
    settings = {"reduction": "batchmean", "log_target": True}
    # The first argument of kl_div is the second distribution of KL(p || q), as a logarithm.
    both = F.kl_div(log_q, log_p, **settings), F.kl_div(log_p, log_q, **settings)
    return tuple(each * temperature**2 for each in both)


def output_backward(*given):
    given = (*(each.detach().requires_grad_() for each in given[:3]), given[3])
    loss = F.cross_entropy(F.linear(*given[:3]).flatten(0, 1), given[3].flatten())
    return torch.autograd.grad(loss, given[:3])


def layer_norm_backward(upstream, x, weight):
    given = (each.detach().requires_grad_() for each in (x, weight, torch.zeros_like(weight)))
    return by_autograd(
        lambda *each: F.layer_norm(each[0], weight.shape, *each[1:]), upstream, *given
    )


def attention_backward(upstream, *heads):
    given = (each.detach().requires_grad_() for each in heads)
    return by_autograd(F.scaled_dot_product_attention, upstream, *given)


def quantize_rows(x):
    """Let torch round to steps of our scales."""
    largest = x.abs().amax(-1, keepdim=True)
    scale = (largest / 127).masked_fill(largest == 0, 1)
    rows, scales = x.detach().flatten(0, -2).float(), scale.detach().flatten().float()
    zeros = torch.zeros_like(scales, dtype=torch.int32)
    rounded = torch.fake_quantize_per_channel_affine(rows, scales, zeros, 0, -128, 127)
    return (rounded / scales[:, None]).round().to(torch.int8).view_as(x), scale


def int8_matmul(x, weight):
    """Let the integer kernel of torch multiply."""
    (x_int, x_scale), (w_int, w_scale) = quantize_rows(x), quantize_rows(weight)
    total = torch._int_mm(x_int.flatten(0, -2), w_int.T.contiguous())
    return total.view(*x.shape[:-1], -1) * x_scale * w_scale.T


def alibi_weights(scores):
    """Give the fused kernel the biases, and identity matrices as keys and values."""
    heads, query_len, key_len = scores.shape[1:]
    ahead = torch.arange(key_len) - torch.arange(key_len)[-query_len:, None]
    slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])
    bias = (slopes.view(-1, 1, 1) * ahead).masked_fill(ahead > 0, -math.inf)
    same = torch.eye(key_len).expand(*scores.shape[:2], -1, -1)
    return F.scaled_dot_product_attention(scores, same, same, attn_mask=bias, scale=1.0)


class SinusoidalEncoding(twelve.PositionalEncoding):
    def __init__(self, d_model, max_len):
        super().__init__(d_model, max_len=max_len)


def masked_attention(query, key, value, ids):
    """Give the fused kernel both masks."""
    mask = twelve.padding_mask(ids) & twelve.causal_mask(query.size(-2), key.size(-2))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def accumulated_gradients(x, labels, weight, bias, micro_batch, max_norm):
    """Train on one large batch, and let torch clip."""
    layer = nn.Linear(*weight.T.shape)
    layer.load_state_dict({"weight": weight.detach(), "bias": bias.detach()})
    F.cross_entropy(layer(x.detach()).flatten(0, 1), labels.flatten()).backward()
    nn.utils.clip_grad_norm_(layer.parameters(), max_norm)
    return layer.weight.grad, layer.bias.grad


LAYERS = {
    "linear": linear,
    "linear_layer": twelve.Linear,
    "embed": embed,
    "padding_row": embed,
    "sinusoid": twelve.sinusoid,
    "attention": twelve.scaled_dot_product_attention,
    "padding_mask": twelve.padding_mask,
    "causal_mask": twelve.causal_mask,
    "mask_of_new": twelve.causal_mask,
    "scaled_dot_product_attention": twelve.scaled_dot_product_attention,
    "multi_head_attention": multi_head_attention,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "residual": residual,
    "feed_forward": feed_forward,
    "swiglu": swiglu,
    "shift": training.shift,
    "loss": training.cross_entropy,
    "sinusoidal_encoding": SinusoidalEncoding,
    "softmax": torch.softmax,
    "masked_attention": masked_attention,
    "log_sum_exp": lambda scores: scores.logsumexp(-1),
    "rotate": rotate,
    "attention_with_rotary": attention_with_rotary,
    "grouped_attention": lambda *heads: F.scaled_dot_product_attention(*heads, enable_gqa=True),
    "cosine_schedule": cosine_schedule,
    "adamw_step": adamw_step,
    "distillation": distillation,
    "output_backward": output_backward,
    "layer_norm_backward": layer_norm_backward,
    "attention_backward": attention_backward,
    "attention_in_blocks": lambda *given: F.scaled_dot_product_attention(*given[:3]),
    "dpo_loss": lambda chosen, rejected, ref_chosen, ref_rejected, beta: (
        F.binary_cross_entropy_with_logits(
            beta * (chosen - rejected - ref_chosen + ref_rejected), torch.ones_like(chosen)
        )
    ),
    "quantize_rows": quantize_rows,
    "int8_matmul": int8_matmul,
    "alibi_weights": alibi_weights,
    "accumulated_gradients": accumulated_gradients,
    "sampling_probabilities": lambda logits, temperature, k, p: next_token_probabilities(
        logits, temperature=temperature, top_k=k, top_p=p
    ),
    "grouped_query_attention": grouped_query_attention,
    "top_p": lambda probabilities, p: next_token_probabilities(probabilities.log(), top_p=p),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_right_answer_equals_the_layer(name):
    task = TASKS[name]
    answers, layers = outcomes(task, task.right), outcomes(task, LAYERS[name])
    for case, answer in answers.items():
        assert layers[case].error is None, (case, layers[case].error)
        assert_close(layers[case].values, answer.values)
        assert_close(layers[case].gradients, answer.gradients)


def test_blocks_are_dequantized_as_the_library_does():
    gguf = pytest.importorskip("gguf", reason="make language-model installs it")
    numbers = torch.randn(6, 32, generator=torch.Generator("cpu").manual_seed(12)).numpy()
    blocks = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType.Q4_0)
    scales, packed = torch.from_numpy(blocks).tensor_split([2], dim=1)
    scales = scales.contiguous().view(torch.float16).float().flatten()
    expected = torch.from_numpy(gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0))
    assert_close(TASKS["dequantize"].right(scales, packed), expected, rtol=0, atol=0)


@pytest.mark.weekly
def test_cosine_schedule_is_that_of_transformers():
    transformers = pytest.importorskip("transformers", reason="make compare installs it")
    for steps, warmup, total, peak in TASKS["cosine_schedule"].cases().values():
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=peak)
        schedule = transformers.get_cosine_schedule_with_warmup(optimizer, warmup, total)
        expected = [peak * schedule.lr_lambdas[0](step) for step in steps.tolist()]
        actual = TASKS["cosine_schedule"].right(steps, warmup, total, peak)
        assert_close(actual, torch.tensor(expected))


def test_bpe_merges_the_pairs_that_the_library_merges():
    tokenizers = pytest.importorskip("tokenizers", reason="make language-model installs it")
    ids = torch.randint(6, (300,), generator=torch.Generator("cpu").manual_seed(12)).tolist()
    text = "".join("abcdef"[id] for id in ids)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=26, show_progress=False)
    tokenizer.train_from_iterator([text], trainer)
    merges = TASKS["bpe_train"].right(ids, 6, 20)
    names = ["a", "b", "c", "d", "e", "f"]
    for first, second in merges:
        names.append(names[first] + names[second])
    assert tokenizer.get_vocab() == {name: id for id, name in enumerate(names)}
    assert tokenizer.encode(text).ids == TASKS["bpe_encode"].right(ids, merges, 6)


@pytest.mark.parametrize(("start", "first"), [(torch.ones, None), (torch.zeros, "0.0000")])
def test_the_weight_of_a_new_rms_norm_must_start_at_one(start, first):
    class Started(nn.Module):
        def __init__(self, d_model):
            super().__init__()
            self.weight = nn.Parameter(start(d_model))

        def forward(self, x):
            return TASKS["rms_norm"].right(x, self.weight)

    for outcome in outcomes(TASKS["rms_norm"], Started).values():
        expected = f"A new layer has the weight {first}, expected 1."
        assert outcome.error is None if first is None else expected in str(outcome.error)
