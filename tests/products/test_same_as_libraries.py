"""Answers of the pages by hand against torch, transformers, tokenizers, peft and TRL.

Each test calls the library's own function or trainer on random input. The right answer must return
the same numbers, and each classic mistake of the task must not. Nothing is downloaded. The tests
run weekly and in `make compare`. The tests of a missing library are skipped.
"""

import copy
import json
import math
import os
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from types import FrameType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

os.environ["HF_HUB_OFFLINE"] = "1"

from twelve import causal_mask
from twelve.rotary_positions import RotaryEncoding
from twelve_lab.check import TASKS
from twelve_lab.exercises.declare import Answer, as_tensors, made

pytestmark = [
    pytest.mark.weekly,
    # The libraries warn of changes in their next releases.
    pytest.mark.filterwarnings("ignore"),
]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
# The library computes in float32.
SINGLE = {"rtol": 1e-6, "atol": 1e-6, "check_dtype": False}
# The arguments of a call, and the value that the library returns.
Pair = tuple[tuple[Any, ...], Any]


def library(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: make compare installs it")


def compare(
    name: str,
    pairs: Iterable[Pair],
    alike: Iterable[str] = (),
    view: Callable[[Tensor], Tensor] = lambda output: output,
    **close: Any,
) -> None:
    """Compare the right answer of a task and all its mistakes with a library.

    Args:
        name: The task.
        pairs: Arguments, each with the value that the library returns.
        alike: The mistakes that have no effect in these cases.
        view: Function applied to our outputs before the comparison.
        close: Arguments of `assert_close`, such as tolerances.
    """
    task, pairs, close = TASKS[name], list(pairs), close or CLOSE

    def check(answer: Answer) -> None:
        for given, expected in pairs:
            # An answer may modify its arguments in place.
            outputs = task.observe(task.run(answer, copy.deepcopy(given)))
            assert_close(tuple(map(view, outputs)), as_tensors(expected), **close)

    def passes(answer: Answer) -> bool:
        try:
            check(answer)
        except Exception:
            return False
        return True

    check(task.right)
    assert {id for id, (wrong, *_) in task.mistakes.items() if passes(made(wrong))} == {*alike}


# torch.


@pytest.mark.parametrize("sizes", [(1, 2, 5, 3), (3, 4, 7, 2)])
def test_backward_by_hand_equals_autograd(draw, seeded, sizes):
    batch, seq, d_model, vocab = sizes
    x, weight, bias = draw(batch, seq, d_model), draw(vocab, d_model), draw(vocab)
    labels = torch.randint(vocab, (batch, seq), generator=seeded)
    trained = [each.requires_grad_() for each in (x, weight, bias)]
    loss = F.cross_entropy(F.linear(x, weight, bias).mT, labels)
    expected = torch.autograd.grad(loss, trained)
    detached = [each.detach() for each in trained]
    compare("output_backward", [((*detached, labels), expected)])

    x, weight, bias = (draw(*shape).requires_grad_() for shape in
                       ((batch, seq, d_model), (d_model,), (d_model,)))  # fmt: skip
    upstream = draw(batch, seq, d_model)
    normed = F.layer_norm(x, (d_model,), weight, bias)
    expected = torch.autograd.grad(normed, (x, weight, bias), upstream)
    compare("layer_norm_backward", [((upstream, x.detach(), weight.detach()), expected)])

    shapes = ((batch, seq, d_model), (batch, vocab + 1, d_model), (batch, vocab + 1, d_model + 1))
    inputs = [draw(*shape).requires_grad_() for shape in shapes]
    upstream = draw(batch, seq, d_model + 1)
    context = F.scaled_dot_product_attention(*inputs)
    expected = torch.autograd.grad(context, inputs, upstream)
    given = (upstream, *(each.detach() for each in inputs))
    compare("attention_backward", [(given, expected)])


def test_softmax_and_attention_in_blocks_equal_torch(draw):
    states, contexts = [], []
    for batch, query, key, d_k, block in ((1, 2, 6, 3, 2), (3, 4, 11, 5, 4)):
        scores = 5 * draw(batch, query, key)
        ends = [min(end, key) - 1 for end in range(block, key + block, block)]
        largest = scores.cummax(-1).values[..., ends]
        total = (scores.logcumsumexp(-1)[..., ends] - largest).exp()
        states.append(((scores, block), (largest, total)))
        inputs = 3 * draw(batch, query, d_k), draw(batch, key, d_k), draw(batch, key, d_k + 1)
        contexts.append(((*inputs, block), F.scaled_dot_product_attention(*inputs)))
    compare("softmax_in_blocks", states)
    compare("attention_in_blocks", contexts)


@pytest.mark.parametrize(
    ("batch", "query", "key", "d_k", "heads"), [(1, 2, 3, 2, 2), (3, 4, 5, 3, 4)]
)
def test_multi_head_attention_by_hand_equals_torch(draw, batch, query, key, d_k, heads):
    d_model = d_k * heads
    theirs = nn.MultiheadAttention(d_model, heads, bias=False, batch_first=True).double()
    x, memory = draw(batch, query, d_model), draw(batch, key, d_model)
    weights = [draw(d_model, d_model) for _ in range(4)]
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat(weights[:3]))
        theirs.out_proj.weight.copy_(weights[3])
        expected = theirs(x, memory, memory)[0]
    compare("multi_head_attention", [((x, memory, *weights, heads), expected)])


def test_rms_norm_by_hand_equals_torch(draw):
    cases = [(scale * draw(*shape), draw(shape[-1])) for shape, scale in
             (((2, 5, 4), 1.0), ((3, 7), 0.001))]  # fmt: skip
    pairs = [((x, weight), F.rms_norm(x, weight.shape, weight, eps=1e-5)) for x, weight in cases]
    compare("rms_norm", pairs)


def test_distillation_equals_kl_div(draw):
    def theirs(student: Tensor, teacher: Tensor, temperature: float) -> list[Tensor]:
        q, p = ((x / temperature).log_softmax(-1).flatten(0, 1) for x in (student, teacher))
        settings = {"reduction": "batchmean", "log_target": True}
        losses = F.kl_div(q, p, **settings), F.kl_div(p, q, **settings)
        return [temperature**2 * loss for loss in losses]

    cases = [(3 * draw(*shape), 3 * draw(*shape), temperature) for shape, temperature in
             (((1, 2, 5), 2.0), ((3, 4, 7), 0.5))]  # fmt: skip
    cases.append((1000 * draw(2, 3, 5), 1000 * draw(2, 3, 5), 1.5))
    compare("distillation", [(given, theirs(*given)) for given in cases])


def test_adamw_step_equals_torch(draw):
    pairs = []
    for shape, lr, decay, scale in (((2, 3), 0.1, 0.3, 1.0), ((5, 4), 0.02, 0.1, 1e-8)):
        weight = nn.Parameter(draw(*shape))
        theirs = torch.optim.AdamW([weight], lr, weight_decay=decay)
        moments = [torch.zeros(shape, dtype=torch.float64)] * 2
        for step in range(1, 4):
            weight.grad = scale * draw(*shape)
            given = (weight.detach().clone(), weight.grad.clone(), *moments, step, lr, decay)
            theirs.step()
            state = theirs.state[weight]
            moments = [state[name].clone() for name in ("exp_avg", "exp_avg_sq")]
            pairs.append((given, (weight.detach().clone(), *moments)))
    compare("adamw_step", pairs)


def test_accumulated_gradients_equal_a_checkpointed_batch(draw, seeded):
    pairs = []
    for (batch, seq, d, vocab, micro), max_norm in (
        ((3, 4, 2, 5, 2), 0.05), ((3, 4, 2, 5, 2), 100.0), ((5, 3, 4, 7, 1), 0.05),
    ):  # fmt: skip
        x, weight, bias = draw(batch, seq, d), draw(vocab, d), draw(vocab)
        labels = torch.randint(vocab, (batch, seq), generator=seeded)
        labels[0, 1:] = -100
        labels[3:] = -100
        trained = [each.clone().requires_grad_() for each in (weight, bias)]
        logits = torch.utils.checkpoint.checkpoint(F.linear, x, *trained, use_reentrant=False)
        F.cross_entropy(logits.mT, labels).backward()
        nn.utils.clip_grad_norm_(trained, max_norm)
        given = (x, labels, weight, bias, micro, max_norm)
        pairs.append((given, [each.grad for each in trained]))
    compare("accumulated_gradients", pairs)


def test_int8_by_hand_equals_torch(draw):
    def quantized(rows: Tensor) -> tuple[Tensor, Tensor]:
        observer = torch.ao.quantization.PerChannelMinMaxObserver(
            0, torch.qint8, torch.per_channel_symmetric, quant_min=-127, quant_max=127
        )
        scale, zero = observer(rows) is None or observer.calculate_qparams()
        theirs = torch.quantize_per_channel(rows, scale.double(), zero, 0, torch.qint8)
        return theirs.int_repr(), scale.unsqueeze(-1)

    rows, products = [], []
    for batch, seq, d_in, d_out in ((1, 17, 8, 16), (3, 8, 160, 24)):
        x, weight = draw(batch, seq, d_in).float(), draw(d_out, d_in).float()
        (q, s), (p, t) = quantized(x.flatten(0, 1)), quantized(weight)
        rows.append(((x,), (q.view_as(x), s.view(batch, seq, 1))))
        total = torch._int_mm(q, p.T.contiguous()) * s * t.T
        products.append(((x, weight), total.view(batch, seq, d_out)))
    # For a row of zeros, the observer uses the smallest scale instead of 1.
    compare("quantize_rows", rows, {"int8-zero-row"}, **SINGLE)
    compare("int8_matmul", products, **SINGLE)


# transformers.


def test_cosine_schedule_equals_transformers():
    optimization = library("transformers.optimization")
    pairs = []
    for warmup, total, peak in ((0, 5, 1.0), (3, 11, 0.5), (7, 20, 3.0)):
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=peak)
        schedule = optimization.get_cosine_schedule_with_warmup(optimizer, warmup, total)
        rates = []
        for _ in range(total + 1):
            rates += schedule.get_last_lr()
            optimizer.step()
            schedule.step()
        steps = torch.arange(total + 1, dtype=torch.float64)
        pairs.append(((steps, warmup, total, peak), torch.tensor(rates, dtype=torch.float64)))
    compare("cosine_schedule", pairs)


@pytest.mark.parametrize(("query", "key", "window"), [(5, 5, 3), (3, 8, 4), (4, 6, 9)])
def test_window_mask_equals_transformers(query, key, window):
    masking = library("transformers.masking_utils")
    theirs = masking.sliding_window_causal_mask_function(window)
    rows, columns = torch.arange(key - query, key)[:, None], torch.arange(key)
    expected = theirs(0, 0, rows, columns)
    alike = {"window-one-more", "window-no-lower-edge"} if window > key else set()
    alike |= {"causal-corner"} if query == key else set()
    compare("window_mask", [((query, key, window), expected)], alike)


def rolled(theirs: Any, window: int, end: int, empty: Tensor) -> tuple[Tensor, Tensor]:
    """Move the keys of a transformers cache from their order to the slots position % window."""
    last = torch.arange(max(0, end - window), end)
    cache, positions = empty.clone(), torch.full((window,), -1)
    if end:
        cache[:, :, last % window] = theirs.keys[:, :, : len(last)]
    positions[last % window] = last
    return cache, positions


def test_rolling_cache_holds_the_keys_of_the_static_cache_of_transformers(draw):
    utils = library("transformers.cache_utils")
    pairs = []
    for (batch, heads, window, d_k), old, new in (
        ((1, 2, 3, 4), 0, 2), ((2, 1, 3, 2), 7, 1), ((2, 3, 4, 5), 2, 9), ((3, 2, 5, 4), 6, 3),
    ):  # fmt: skip
        theirs = utils.StaticSlidingWindowLayer(max_cache_len=64, sliding_window=window)
        keys = draw(batch, heads, old + new, d_k)

        if old:
            theirs.update(keys[:, :, :old], keys[:, :, :old])
        empty = torch.zeros(batch, heads, window, d_k, dtype=keys.dtype)
        before, _ = rolled(theirs, window, old, empty)
        theirs.update(keys[:, :, old:], keys[:, :, old:])
        expected = rolled(theirs, window, old + new, empty)
        pairs.append(((before, keys[:, :, old:], old), expected))
    compare("rolling_cache", pairs)


def test_alibi_equals_bloom(draw):
    bloom = library("transformers.models.bloom.modeling_bloom")
    slopes, weights = [], []
    for batch, heads, query, key in ((1, 4, 2, 5), (3, 8, 4, 4), (2, 16, 1, 6)):
        # Their bias is slope times key position, which gives the same softmax.
        bias = bloom.build_alibi_tensor(torch.ones(batch, key), heads, torch.float64)
        bias = bias.view(batch, heads, 1, key)
        slopes.append(((heads,), bias[0, :, 0, 1]))
        scores = draw(batch, heads, query, key)
        future = torch.ones(query, key, dtype=torch.bool).triu(key - query + 1)
        weights.append(((scores,), (scores + bias).masked_fill(future, -torch.inf).softmax(-1)))
    compare("alibi_slopes", slopes, **SINGLE)
    compare("alibi_weights", weights, **SINGLE)


def test_mixture_of_experts_by_hand_equals_mixtral(draw):
    mixtral = library("transformers.models.mixtral.modeling_mixtral")
    pairs, losses = [], []
    for batch, seq, d_model, d_ff, experts, k in ((1, 3, 4, 5, 3, 1), (3, 7, 6, 8, 5, 2)):
        config = mixtral.MixtralConfig(
            hidden_size=d_model, intermediate_size=d_ff, num_local_experts=experts,
            num_experts_per_tok=k, hidden_act="relu",
        )  # fmt: skip
        theirs = mixtral.MixtralSparseMoeBlock(config).double()
        x, router = draw(batch, seq, d_model), draw(experts, d_model)
        up, down = draw(experts, d_ff, d_model), draw(experts, d_model, d_ff)
        # An expert of Mixtral multiplies relu by a second projection: make that projection 1.
        x[..., -1] = 1
        ones = torch.zeros_like(up)
        ones[..., -1] = 1
        with torch.no_grad():
            theirs.gate.weight.copy_(router)
            theirs.experts.gate_up_proj.copy_(torch.cat([up, ones], dim=1))
            theirs.experts.down_proj.copy_(down)
            pairs.append(((x, router, up, down, k), theirs(x)))
            scores = theirs.gate(x)[0]
        losses.append(((scores, k), mixtral.load_balancing_loss_func((scores,), experts, k)))
    # Their router computes softmax in float32.
    compare("mixture_of_experts", pairs, rtol=1e-6, atol=1e-6)
    compare("balance_loss", losses, **SINGLE)


@pytest.mark.parametrize(
    ("batch", "old", "new", "heads", "d_k", "d_rotary", "d_v", "d_latent"),
    [(1, 0, 4, 2, 3, 2, 5, 7), (3, 5, 2, 4, 8, 6, 3, 10)],
)
def test_latent_attention_by_hand_equals_deepseek_v2(
    draw, batch, old, new, heads, d_k, d_rotary, d_v, d_latent
):
    deepseek = library("transformers.models.deepseek_v2.modeling_deepseek_v2")
    d_model, keys = 24, old + new
    config = deepseek.DeepseekV2Config(
        hidden_size=d_model, num_attention_heads=heads, num_key_value_heads=heads,
        q_lora_rank=None, kv_lora_rank=d_latent, qk_nope_head_dim=d_k, qk_rope_head_dim=d_rotary,
        v_head_dim=d_v, head_dim=d_rotary, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
    )  # fmt: skip
    theirs = deepseek.DeepseekV2Attention(config, 0).double()
    # The task has no norm and no output projection.
    theirs.kv_a_layernorm, theirs.o_proj = nn.Identity(), nn.Identity()
    x = draw(batch, keys, d_model)
    angles = deepseek.DeepseekV2RotaryEmbedding(config)(x, torch.arange(keys)[None])
    w_q, w_down = draw(heads, d_k, d_model) / 5, draw(d_latent, d_model) / 5
    w_k, w_v = draw(heads, d_k, d_latent) / 3, draw(heads, d_v, d_latent)
    w_turned, w_shared = draw(heads, d_rotary, d_model) / 5, draw(d_rotary, d_model) / 5

    @torch.no_grad()
    def run(w_q: Tensor, w_turned: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theirs.q_proj.weight.copy_(torch.cat([w_q, w_turned], dim=1).flatten(0, 1))
        theirs.kv_a_proj_with_mqa.weight.copy_(torch.cat([w_down, w_shared]))
        theirs.kv_b_proj.weight.copy_(torch.cat([w_k, w_v], dim=1).flatten(0, 1))
        cache = library("transformers").DynamicCache(config=config)
        for part in filter(len, (range(old), range(old, keys))):
            end = part[-1] + 1
            mask = torch.zeros(len(part), end).masked_fill(
                ~causal_mask(end)[0, 0, list(part)], -torch.inf
            )
            output, weights = theirs(
                x[:, list(part)], mask[None, None].double(), past_key_values=cache,
                position_embeddings=angles[:, list(part)],
            )  # fmt: skip
        return output, weights, cache.layers[0].keys.squeeze(1)

    # Their scale also counts the rotary features, which are zero here: rescale the queries.
    output, _, latents = run(w_q * math.sqrt((d_k + d_rotary) / d_k), torch.zeros_like(w_turned))
    given = (x[:, old:], latents[:, :old], w_q, w_down, w_k, w_v)
    alike = {"latent-new-only", "latent-new-first"} if old == 0 else ()
    compare("latent_attention", [(given, (output, latents))], alike, rtol=1e-6, atol=1e-6)

    _, weights, latents = run(w_q, w_turned)
    visible = weights > 0
    rows = x[:, old:].unsqueeze(1)
    given = (rows @ w_q.mT, latents.unsqueeze(1) @ w_k.mT, rows @ w_turned.mT, x @ w_shared.T,
             RotaryEncoding(d_rotary, max_len=keys, base=100.0).double())  # fmt: skip
    compare(
        "decoupled_scores", [(given, weights)], {"latent-start-zero"} if old == 0 else (),
        view=lambda scores: scores.masked_fill(~visible, -torch.inf).softmax(-1),
        rtol=1e-6, atol=1e-6,
    )  # fmt: skip


@pytest.fixture
def beams(seeded):
    """Return a function that builds next-token log-probabilities and their beam search."""
    transformers = library("transformers")

    def build(vocab: int) -> tuple[Callable[[Tensor], Tensor], Answer]:
        config = transformers.LlamaConfig(
            vocab_size=vocab, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=seeded))

        @torch.no_grad()
        def next_log_probs(prefixes: Tensor) -> Tensor:
            return model(prefixes).logits[:, -1].log_softmax(-1)

        def theirs(_, prompt: Tensor, end: int, width: int, max_new: int, alpha: float) -> tuple:
            found = model.generate(
                prompt[None], attention_mask=torch.ones(1, len(prompt)), do_sample=False,
                num_beams=width, num_return_sequences=width, max_new_tokens=max_new,
                length_penalty=alpha, early_stopping="never", pad_token_id=end,
                eos_token_id=None if end < 0 else end, output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
            missing = len(prompt) + max_new - found.sequences.size(1)
            return F.pad(found.sequences, (0, missing), value=end), found.sequences_scores

        return next_log_probs, theirs

    return build


def test_beam_search_equals_transformers(beams):
    # Cases in which no sequence ends, and cases in which the beam holds all sequences.
    pairs = []
    for vocab, prompt, end, width, max_new, alpha in (
        (7, [1, 2], -1, 3, 5, 1.0), (5, [3], -1, 4, 4, 0.5), (3, [1], 2, 15, 3, 0.7),
        (3, [0, 1], 2, 7, 2, 1.0),
    ):  # fmt: skip
        model, theirs = beams(vocab)
        given = (model, torch.tensor(prompt), end, width, max_new, alpha)
        pairs.append((given, theirs(*given)))
    compare("beam_search", pairs, **SINGLE)


def test_beam_search_of_transformers_sets_finished_sequences_aside(beams):
    differ = 0
    wrong = next(
        answer for sentence, answer in TASKS["beam_search"].misconceptions.items()
        if "aside" in sentence
    )  # fmt: skip
    for end in range(4):
        model, theirs = beams(4)
        given = (model, torch.tensor([1, 2]), end, 2, 5, 0.5)
        expected = theirs(*given)
        assert_close(made(wrong)(*given), expected, **SINGLE)
        differ += not torch.equal(TASKS["beam_search"].right(*given)[0], expected[0])
    assert differ


def by_running_sum(threshold: Tensor, probabilities: Tensor, num_samples: int) -> Tensor:
    return (probabilities.cumsum(-1) <= threshold).sum(-1, keepdim=True)


def test_speculative_step_equals_transformers(draw, seeded, monkeypatch):
    utils = library("transformers.generation.utils")
    pairs = []
    for drafts, vocab in ((1, 5), (2, 6), (3, 4), (4, 7), (5, 9), (6, 3)) * 3:
        q, p = draw(1, drafts, vocab), draw(1, drafts + 1, vocab)
        p[:, :-1] += 2 * q
        ids = (q + draw(1, drafts, vocab)).argmax(-1)
        uniform = torch.rand(1, drafts, generator=seeded, dtype=torch.float64)
        threshold = torch.rand(1, generator=seeded, dtype=torch.float64)
        # transformers draws both random numbers: replace its draws with ours.
        with monkeypatch.context() as patch:
            patch.setattr(torch, "rand_like", Mock(side_effect=uniform.view_as))
            choice = Mock(side_effect=partial(by_running_sum, threshold))
            patch.setattr(torch, "multinomial", choice)
            tokens, accepted = utils._speculative_sampling(ids, q, drafts, p)
        rest = choice.call_args.args[0]
        given = (ids, q.softmax(-1), p.softmax(-1), uniform, threshold)
        pairs.append((given, (accepted.view(1), rest.view(1, vocab), tokens[:, -1])))
    compare("speculative_step", pairs)


# tokenizers.


def test_bpe_by_hand_equals_tokenizers():
    tokenizers = library("tokenizers")
    rng = random.Random(12)
    trained, encoded, replaced = [], [], []
    for _ in range(200):
        letters, merges = rng.randint(2, 6), rng.randint(1, 12)
        text, other = ([rng.randrange(letters) for _ in range(rng.randint(2, 60))] for _ in "ab")
        theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
        alphabet = [chr(97 + id) for id in range(letters)]
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=letters + merges, initial_alphabet=alphabet, show_progress=False
        )
        theirs.train_from_iterator(["".join(alphabet[id] for id in text)], trainer)
        model = json.loads(theirs.to_str())["model"]
        pairs = [tuple(model["vocab"][each] for each in pair) for pair in model["merges"]]
        trained.append((text, letters, merges, pairs))
        ids = theirs.encode("".join(alphabet[id] for id in other)).ids
        encoded.append((other, pairs, letters, ids))
        # With a single merge, encoding replaces a single pair.
        if merges == 1 and pairs:
            replaced.append((other, pairs[0], letters, ids))
    for name, rows in (("bpe_train", trained), ("bpe_encode", encoded), ("merge_pair", replaced)):
        run = TASKS[name].run
        compare(name, [(given, run(lambda *_, due=due: due, given)) for *given, due in rows])


# peft.


@pytest.mark.parametrize("root", [False, True], ids=["alpha/r", "alpha/sqrt(r)"])
def test_lora_equals_peft(draw, root):
    peft = library("peft")
    pairs = []
    for batch, seq, d_in, d_out, rank, alpha in ((1, 1, 3, 3, 1, 2.0), (2, 5, 7, 4, 3, 9.0)):
        x, weight = draw(batch, seq, d_in), draw(d_out, d_in)
        a, b = draw(rank, d_in), draw(d_out, rank)
        base = nn.Sequential(nn.Linear(d_in, d_out, bias=False, dtype=torch.float64))
        base[0].weight.data.copy_(weight)
        settings = {"r": rank, "lora_alpha": alpha, "use_rslora": root, "target_modules": ["0"]}
        model = peft.get_peft_model(base, peft.LoraConfig(**settings))
        first, second = (part["default"].weight for part in (base[0].lora_A, base[0].lora_B))
        trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
        start = [first.any(), len(first.unique()) > 1, second.any(), trained]
        with torch.no_grad():
            assert_close(model(x), F.linear(x, weight), **CLOSE)
            first.copy_(a), second.copy_(b)
            outputs = model(x), model.merge_and_unload()[0].weight
        # rsLoRA divides alpha by the square root of the rank.
        given = (x, weight, a, b, alpha * math.sqrt(rank) if root else alpha)
        pairs.append((given, (torch.tensor(start, dtype=torch.float64), *outputs)))
    compare("lora", pairs)


# TRL.


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> SimpleNamespace:
    """Build a tokenizer of thirteen words, a factory of models for it, and trainer settings."""
    library("trl"), library("datasets")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    ids = {word: id for id, word in enumerate(["<pad>", "<eos>", *(f"w{i}" for i in range(11))])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    sizes = {"vocab_size": 13, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
             "num_attention_heads": 2, "bos_token_id": None, "eos_token_id": 1,
             "pad_token_id": 0}  # fmt: skip

    def model(kind: type = LlamaForCausalLM, **more: Any) -> nn.Module:
        return kind(LlamaConfig(**sizes, **more)).double()

    torch.manual_seed(12)
    folder = tmp_path_factory.mktemp("trl")
    return SimpleNamespace(
        model=model,
        folder=folder,
        tokenizer=PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", padding_side="left"
        ),
        settings={"output_dir": str(folder), "bf16": False, "use_cpu": True, "report_to": [],
                  "save_strategy": "no", "disable_tqdm": True},
    )  # fmt: skip


def test_dpo_loss_equals_trl(tiny, draw):
    trl, datasets = library("trl"), library("datasets")
    rows = [{"prompt": "w1 w2 ", "chosen": "w3", "rejected": "w4 w5"}]
    trainer = trl.DPOTrainer(
        model=tiny.model(), ref_model=tiny.model(), processing_class=tiny.tokenizer,
        args=trl.DPOConfig(**tiny.settings), train_dataset=datasets.Dataset.from_list(rows),
    )  # fmt: skip
    assert (trainer.beta, trainer.loss_types) == (0.1, ["sigmoid"])

    class Fixed(nn.Module):
        """Split the log-probability of an answer evenly over three tokens, all of id 0."""

        def __init__(self, log_probs: Tensor) -> None:
            super().__init__()
            each = (log_probs / 3)[:, None].expand(-1, 4)
            self.logits = torch.stack([each, torch.log(-torch.expm1(each))], -1)

        def forward(self, **_: Any) -> SimpleNamespace:
            return SimpleNamespace(logits=self.logits)

    pairs = []
    for batch, beta in ((1, 0.1), (2, 2.0), (5, 0.5)):
        answers = [-12 + 3 * draw(batch) for _ in range(4)]
        answers = [each.clamp(max=-0.1) for each in answers]
        trainer.beta, trainer.ref_model = beta, Fixed(torch.cat(answers[2:]))
        ids = torch.zeros(2 * batch, 4, dtype=torch.long)
        inputs = {"input_ids": ids, "attention_mask": ids + 1,
                  "completion_mask": (torch.arange(4) > 0).long().expand_as(ids)}  # fmt: skip
        loss = trainer.compute_loss(Fixed(torch.cat(answers[:2])), inputs)
        pairs.append(((*answers, beta), loss))
    # In float64, the sigmoid of these margins does not underflow, so the mistake has no effect.
    compare("dpo_loss", pairs, {"dpo-loss-overflows"})


def test_grpo_equals_trl(tiny, draw, seeded, monkeypatch):
    trl, datasets = library("trl"), library("datasets")
    tiny.model().save_pretrained(tiny.folder)
    from transformers import LlamaForCausalLM

    settings = tiny.settings | {"max_completion_length": 7, "num_generations": 2}
    # By default, TRL adds no KL penalty, divides by the number of tokens of all answers, and
    # multiplies the penalty by the ratio.
    config = trl.GRPOConfig(**settings)
    assert (config.beta, config.loss_type, config.use_bias_correction_kl) == (0, "dapo", True)
    config = trl.GRPOConfig(
        **settings, loss_type="grpo", beta=0.1, use_bias_correction_kl=False,
        per_device_train_batch_size=12,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=LlamaForCausalLM.from_pretrained(tiny.folder, dtype=torch.float64), args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        processing_class=tiny.tokenizer,
        train_dataset=datasets.Dataset.from_list([{"prompt": "w1 w2"}] * 12),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()

    advantages = []
    for batch, group in ((1, 12), (3, 4), (6, 2)):
        rewards = 3 * draw(batch, group)
        rewards[0] = 1.0
        trainer.num_generations = group
        answers = Mock(return_value=rewards.reshape(-1, 1))
        monkeypatch.setattr(trainer, "_calculate_rewards", answers)
        scored = trainer._generate_and_score_completions([{"prompt": "w1 w2"}] * 12)
        advantages.append(((rewards, 1e-4), scored["advantages"].view(batch, group)))
    compare("group_advantages", advantages, **SINGLE)

    losses = []
    for answers, tokens, epsilon, beta in ((1, 4, 0.2, 0.1), (3, 5, 0.1, 0.5), (6, 7, 0.3, 0.04)):
        policy, old, reference = (-2 + draw(answers, tokens) / 2 for _ in range(3))
        lengths = torch.randint(1, tokens + 1, (answers, 1), generator=seeded)
        mask = torch.arange(tokens) < lengths
        trainer.beta, trainer.epsilon_low, trainer.epsilon_high = beta, epsilon, epsilon
        outputs = Mock(return_value=(policy, torch.ones_like(policy), None))
        monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", outputs)
        inputs = {
            "prompt_ids": torch.ones(answers, 2, dtype=torch.long),
            "prompt_mask": torch.ones(answers, 2, dtype=torch.long),
            "completion_ids": torch.ones(answers, tokens, dtype=torch.long),
            "completion_mask": mask.long(), "advantages": draw(answers),
            "old_per_token_logps": old, "ref_per_token_logps": reference,
        }  # fmt: skip
        loss = trainer._compute_loss(trainer.model, inputs)
        given = (policy, old, reference, inputs["advantages"], mask, epsilon, beta)
        losses.append((given, loss))
    compare("grpo_loss", losses)


@pytest.mark.parametrize(
    ("batch", "length", "gamma", "lam", "epsilon"), [(4, 6, 0.9, 0.8, 0.1), (2, 9, 1.0, 0.95, 0.2)]
)
def test_ppo_equals_trl(tiny, monkeypatch, batch, length, gamma, lam, epsilon):
    # TRL 1.13 removed trl.experimental.ppo.
    library("trl")
    ppo = library("trl.experimental.ppo")
    from transformers import LlamaForSequenceClassification

    steps, losses = [], []

    def recorded(function: Callable[..., Tensor], record: Callable[..., None]) -> Callable:
        def call(values: Tensor, mask: Tensor, *more: Any, **named: Any) -> Tensor:
            result = function(values, mask, *more, **named)
            # `train` computes GAE and the loss inline: read its local variables.
            record(sys._getframe(1), values, mask, result.detach())
            return result

        return call

    def whitened(frame: FrameType, values: Tensor, mask: Tensor, _: Tensor) -> None:
        named = frame.f_locals
        last, done = named["values"].new_zeros(batch), torch.zeros_like(named["values"])
        given = (named["rewards"].clone(), named["values"].clone(), last, done, gamma, lam)
        steps.append((given, (values.clone(), named["returns"].clone())))

    def averaged(frame: FrameType, values: Tensor, mask: Tensor, result: Tensor) -> None:
        named = frame.f_locals
        if values is named.get("pg_loss_max"):
            tensors = ("new_logprobs", "mb_logprobs", "mb_advantage")
            given = (named[name].detach()[mask][None] for name in tensors)
            losses.append(((*given, epsilon), result.clone()))

    trainer = ppo.ppo_trainer
    monkeypatch.setattr(trainer, "masked_whiten", recorded(trainer.masked_whiten, whitened))
    monkeypatch.setattr(trainer, "masked_mean", recorded(trainer.masked_mean, averaged))
    config = ppo.PPOConfig(
        **tiny.settings, per_device_train_batch_size=batch, gradient_accumulation_steps=1,
        num_mini_batches=1, num_ppo_epochs=3, total_episodes=batch, response_length=length,
        learning_rate=0.3, gamma=gamma, lam=lam, cliprange=epsilon, num_sample_generations=0,
        stop_token="eos", kl_coef=0.5,
    )  # fmt: skip
    rows = [{"input_ids": [2 + i, 3, 4 + i % 3]} for i in range(batch)]
    dataset = library("datasets").Dataset.from_list(rows)
    scorer = {"kind": LlamaForSequenceClassification, "num_labels": 1}
    ppo.PPOTrainer(
        args=config, processing_class=tiny.tokenizer, model=tiny.model(), ref_model=tiny.model(),
        reward_model=tiny.model(**scorer), value_model=tiny.model(**scorer),
        train_dataset=dataset, eval_dataset=dataset,
    ).train()  # fmt: skip
    assert len(steps) == 1 and len(losses) == 3
    # In TRL an episode is one answer, and the value after the last token is 0.
    alike = {"gae-end-ignored", "gae-end-keeps-value", "gae-end-keeps-advantage",
             "gae-last-value-missing"}  # fmt: skip
    compare("gae", steps, alike | ({"gae-gamma-missing"} if gamma == 1 else set()))
    compare("ppo_loss", losses)
