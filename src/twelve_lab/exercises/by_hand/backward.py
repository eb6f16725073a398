"""By hand: the backward pass of an output layer, of LayerNorm and of attention."""

import torch
import torch.nn.functional as F
from torch import Tensor

from twelve_lab.exercises.declare import Cases, mistake, notes, question, task
from twelve_lab.exercises.numbers import SIZES, seeded, twelve_heads, vectors

_Three = tuple[Tensor, Tensor, Tensor]
_AUTOGRAD = ("autograd", "backward", "grad", "vjp", "requires_grad_")


def _output_cases() -> Cases:
    draw = seeded()
    # The example on the page: the bias makes the probabilities 1/4, 1/4 and 1/2.
    x = torch.tensor([[[2.0, 4.0]]], dtype=torch.float64)
    bias = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64).log()
    batch, seq, vocab, d_model = SIZES.batch, SIZES.tgt, SIZES.tgt_vocab, SIZES.d_k
    return {
        "one token": (x, torch.zeros_like(bias[:, None] * x[0]), bias, torch.tensor([[0]])),
        "one row": (draw(1, 4, 2), draw(3, 2), draw(3), torch.tensor([[2, 0, 1, 1]])),
        "all sizes differ": (
            draw(batch, seq, d_model),
            draw(vocab, d_model) / 2,
            draw(vocab),
            torch.tensor([[7, 3, 9, 12], [5, 8, 0, 2], [4, 11, 6, 7]]),
        ),
    }


@task(
    _output_cases,
    forbidden=_AUTOGRAD,
    by_gradient=None,
    measures="probability minus one at the label, the mean, and the two products of a linear layer",
)
def output_backward(x: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> _Three:
    """x (batch, seq, d_model), weight (vocab, d_model), bias (vocab), labels (batch, seq) ->
    gradients of x (batch, seq, d_model), weight (vocab, d_model), bias (vocab)
    """
    probabilities = (x @ weight.T + bias).softmax(-1)
    slope = (probabilities - F.one_hot(labels, len(weight))) / labels.numel()
    rows = slope.flatten(0, 1)
    return slope @ weight, rows.T @ x.flatten(0, 1), rows.sum(0)


_LOGITS = "probabilities - F.one_hot(labels, len(weight))"
mistake(
    output_backward,
    "output-backward-label",
    "These are the probabilities: the gradient of the label's logit is its probability minus 1.",
    {_LOGITS: "probabilities"},
)
mistake(
    output_backward,
    "output-backward-mean",
    "This is the gradient of the sum of the losses: the loss is their mean, so divide by the "
    "number of tokens.",
    {"X / labels.numel()": "X"},
)
mistake(
    output_backward,
    "output-backward-sign",
    "The sign is wrong: the gradient of a logit is its probability minus the 1 at the label, not "
    "the other way round.",
    {_LOGITS: "F.one_hot(labels, len(weight)) - probabilities"},
)
mistake(
    output_backward,
    "output-backward-softmax-twice",
    "You went back through softmax twice: probability minus 1 at the label is already the "
    "gradient of the logit.",
    {"slope = X": "slope = probabilities * ((X) - (probabilities * (X)).sum(-1, keepdim=True))"},
)
notes(
    output_backward,
    {
        "You divided by the number of sentences: divide by the number of tokens.": {
            "labels.numel()": "len(labels)"
        },
        "You divided by the length of a sentence: divide by the number of tokens in the batch.": {
            "labels.numel()": "labels.size(1)"
        },
        "You divided by the number of logits: divide by the number of tokens.": {
            "labels.numel()": "probabilities.numel()"
        },
        "The gradient of bias is a mean over the tokens: the loss already includes this "
        "division, so take the sum.": {"rows.sum(0)": "rows.mean(0)"},
        "Your forward pass has no bias: the logits are x times the transposed weight, plus bias.": {
            "X + bias": "X"
        },
        "You subtracted 1 from the logit: apply softmax first.": {"(X).softmax(-1)": "(X)"},
        "Softmax runs over the wrong axis: apply it over the vocabulary.": {
            "X.softmax(-1)": "X.softmax(1)"
        },
        "Only the gradient of x is a mean: divide the other two gradients by the number of "
        "tokens too.": {"rows = X": "rows = labels.numel() * X"},
        "The gradient of x is not divided by the number of tokens, but the other two are: "
        "divide it too.": {"slope @ weight": "labels.numel() * slope @ weight"},
        "You divided by the number of tokens twice: divide once.": {
            "X / labels.numel()": "X / labels.numel() ** 2"
        },
        "You divided by the vocabulary size: divide by the number of tokens.": {
            "labels.numel()": "len(weight)"
        },
        "You added 1 at the label: subtract it.": {
            _LOGITS: "probabilities + F.one_hot(labels, len(weight))"
        },
        "You used p (1 - p), the derivative of a probability: the gradient of the label's "
        "logit is p - 1.": {
            _LOGITS: "probabilities * (1 - probabilities) - F.one_hot(labels, len(weight))"
        },
        "Only the logit of the label has a gradient: the gradient of every other logit should "
        "be its probability.": {_LOGITS: f"({_LOGITS}) * F.one_hot(labels, len(weight))"},
        "This is the gradient of the probability, -1 / p: continue the backward pass through "
        "softmax.": {_LOGITS: "-F.one_hot(labels, len(weight)) / probabilities"},
        "This is the gradient of softmax with a squared error: the loss is the negative "
        "logarithm of the probability of the label.": {
            "slope = (X) / labels.numel()": "slope = 2 * probabilities * ((X) - (probabilities * "
            "(X)).sum(-1, keepdim=True)) / labels.numel()"
        },
    },
)


def _layer_norm_cases() -> Cases:
    draw, x = seeded(), vectors()
    return {
        "our two sentences": (draw(*x.shape), x.clone(), draw(3)),
        "small numbers": (draw(2, 3, 4), draw(2, 3, 4) / 200, draw(4)),
        "all sizes differ": (
            draw(SIZES.batch, SIZES.tgt, SIZES.d_v),
            draw(SIZES.batch, SIZES.tgt, SIZES.d_v),
            draw(SIZES.d_v),
        ),
    }


@task(
    _layer_norm_cases,
    forbidden=_AUTOGRAD,
    by_gradient=None,
    measures="the paths through the mean and the variance, and sums for shared parameters",
)
def layer_norm_backward(upstream: Tensor, x: Tensor, weight: Tensor) -> _Three:
    """upstream (batch, seq, d_model), x (batch, seq, d_model), weight (d_model) -> gradients of x
    (batch, seq, d_model), weight (d_model), bias (d_model)
    """
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    normed = centred / deviation
    slope = upstream * weight
    along = normed * (slope * normed).mean(-1, keepdim=True)
    slope_x = (slope - slope.mean(-1, keepdim=True) - along) / deviation
    return slope_x, (upstream * normed).sum((0, 1)), upstream.sum((0, 1))


_PATHS = "slope - slope.mean(-1, keepdim=True) - along"
mistake(
    layer_norm_backward,
    "layer-norm-backward-mean",
    "The path through the mean is missing: x changes the mean too, so subtract the mean of "
    "upstream * weight over the features.",
    {"slope - slope.mean(-1, keepdim=True)": "slope"},
)
mistake(
    layer_norm_backward,
    "layer-norm-backward-variance",
    "The path through the variance is missing: subtract the normed vector times the mean of "
    "upstream * weight * normed.",
    {"X - along": "X"},
)
mistake(
    layer_norm_backward,
    "layer-norm-backward-constant",
    "You treated mean and variance as constants: x changes both, so the gradient has three terms.",
    {_PATHS: "slope"},
)
mistake(
    layer_norm_backward,
    "layer-norm-backward-weight",
    "The gradient of x lacks the weight: multiply upstream by the weight first.",
    {"upstream * weight": "upstream"},
)
mistake(
    layer_norm_backward,
    "layer-norm-backward-deviation",
    "The gradient of x is not divided by the standard deviation: the forward pass divides by it, "
    "so the backward pass must too.",
    {"slope_x = X / deviation": "slope_x = X"},
)
mistake(
    layer_norm_backward,
    "layer-norm-backward-averaged",
    "You averaged the gradients of weight and bias over the tokens: all tokens share weight and "
    "bias, so add the gradients up.",
    {
        "(upstream * normed).sum((0, 1))": "(upstream * normed).mean((0, 1))",
        "upstream.sum((0, 1))": "upstream.mean((0, 1))",
    },
)
notes(
    layer_norm_backward,
    {
        "You used the unbiased variance: LayerNorm divides by the number of features.": {
            "centred.square().mean(-1, keepdim=True)": "x.var(-1, keepdim=True)"
        },
        "You left out eps: add 1e-5 to the variance, inside the square root.": {"X + 1e-5": "X"},
        "You added eps to the standard deviation: add it to the variance, inside the square "
        "root.": {"(X + 1e-5).sqrt()": "(X.sqrt() + 1e-5)"},
        "You divided the gradient of x by the variance: divide once by its square root.": {
            "slope_x = X / deviation": "slope_x = X / deviation**2"
        },
        "The gradient of weight uses the input x: use the normed vector.": {
            "(upstream * normed).sum((0, 1))": "(upstream * x).sum((0, 1))"
        },
        "The gradient of weight contains the weight: it should be upstream times the normed "
        "vector.": {"(upstream * normed).sum((0, 1))": "(slope * normed).sum((0, 1))"},
        "The gradient of bias contains the weight: use the sum of upstream alone.": {
            "upstream.sum((0, 1))": "slope.sum((0, 1))"
        },
        "The path through the variance has the wrong sign: subtract it.": {
            "X - along": "X + along"
        },
        "The path through the mean has the wrong sign: subtract it.": {
            "slope - slope.mean(-1, keepdim=True)": "slope + slope.mean(-1, keepdim=True)"
        },
        "You summed over the features: the two terms should be means over the features.": {
            "slope.mean(-1, keepdim=True)": "slope.sum(-1, keepdim=True)",
            "(slope * normed).mean(-1, keepdim=True)": "(slope * normed).sum(-1, keepdim=True)",
        },
        "The gradients of weight and bias are swapped: return x, weight, bias.": {
            "return slope_x, X, Y": "return slope_x, Y, X"
        },
        "You averaged the gradients of weight and bias over the batch: add them up.": {
            "(upstream * normed).sum((0, 1))": "(upstream * normed).mean(0).sum(0)",
            "upstream.sum((0, 1))": "upstream.mean(0).sum(0)",
        },
        "The variance term lacks the weight: use upstream * weight * normed.": {
            "(slope * normed).mean(-1, keepdim=True)": "(upstream * normed).mean(-1, keepdim=True)"
        },
        "In the variance term, you multiplied by the input x: use the normed vector.": {
            "(slope * normed).mean(-1, keepdim=True)": "(slope * x).mean(-1, keepdim=True)"
        },
        "You multiplied by the weight at the end: multiply upstream by the weight first.": {
            "upstream * weight": "upstream",
            "slope_x = X / deviation": "slope_x = weight * X / deviation",
        },
        "This is the backward pass of RMSNorm, which does not subtract the mean.": {
            "x - x.mean(-1, keepdim=True)": "x",
            "slope - slope.mean(-1, keepdim=True)": "slope",
        },
        "You divided the first term by the number of features: only the two means include this "
        "division.": {
            "slope - slope.mean(-1, keepdim=True)": "slope / len(weight) - slope.mean(-1, "
            "keepdim=True)"
        },
        "The gradient of x has the wrong sign.": {
            "slope_x = X / deviation": "slope_x = -X / deviation"
        },
        "In the variance term, you used the centred values: divide them by the standard "
        "deviation.": {
            "normed * (slope * normed).mean(-1, keepdim=True)": "centred * (slope * centred).mean("
            "-1, keepdim=True)"
        },
    },
)


def _attention_cases() -> Cases:
    draw, one = seeded(), twelve_heads(1)
    heads = (one.query[:, 0], one.key[:, 0], one.value[:, 0])
    return {
        "our two sentences": (draw(*heads[2].shape), *heads),
        "one query": (draw(2, 1, 5), draw(2, 1, 4), draw(2, 3, 4), draw(2, 3, 5)),
        "all sizes differ": (
            draw(SIZES.batch, SIZES.tgt, SIZES.d_v),
            draw(SIZES.batch, SIZES.tgt, SIZES.d_k),
            draw(SIZES.batch, SIZES.src, SIZES.d_k),
            draw(SIZES.batch, SIZES.src, SIZES.d_v),
        ),
    }


@task(
    _attention_cases,
    forbidden=_AUTOGRAD,
    by_gradient=None,
    measures="the derivative of softmax, the scale, and which matrix is transposed",
)
def attention_backward(upstream: Tensor, query: Tensor, key: Tensor, value: Tensor) -> _Three:
    """upstream (batch, query, d_v), query (batch, query, d_k), key (batch, key, d_k), value (batch,
    key, d_v) -> gradients of query (batch, query, d_k), key (batch, key, d_k), value (batch, key,
    d_v)
    """
    scale = query.size(-1) ** -0.5
    weights = (query @ key.mT * scale).softmax(-1)
    slope_weights = upstream @ value.mT
    average = (weights * slope_weights).sum(-1, keepdim=True)
    slope_scores = weights * (slope_weights - average) * scale
    return slope_scores @ key, slope_scores.mT @ query, weights.mT @ upstream


_SCORES = "weights * (slope_weights - average)"
mistake(
    attention_backward,
    "attention-backward-softmax-skipped",
    "The backward pass skips softmax: the gradient of a score is its weight times (the gradient "
    "of the weight minus the weighted average of the gradients).",
    {_SCORES: "slope_weights"},
)
mistake(
    attention_backward,
    "attention-backward-average",
    "You multiplied by the weights but did not subtract the average: a larger weight makes the "
    "others smaller, so subtract the weighted average over the keys.",
    {_SCORES: "weights * slope_weights"},
)
mistake(
    attention_backward,
    "attention-backward-diagonal",
    "You took w (1 - w), which is only the diagonal of the derivative of softmax: every weight "
    "depends on every score in its row.",
    {_SCORES: "weights * (1 - weights) * slope_weights"},
)
mistake(
    attention_backward,
    "attention-backward-scale",
    "The scale is missing in the backward pass: the scores were divided by the square root of "
    "d_k, so divide the gradients of query and key by it too.",
    {f"{_SCORES} * scale": _SCORES},
)
mistake(
    attention_backward,
    "attention-backward-plain-mean",
    "You subtracted the plain mean over the keys: weight each gradient by its attention weight and "
    "take the sum.",
    {"(weights * slope_weights).sum(-1, keepdim=True)": "slope_weights.mean(-1, keepdim=True)"},
)
notes(
    attention_backward,
    {
        "You summed over the queries: each softmax belongs to one query, so sum over the keys.": {
            "(weights * slope_weights).sum(-1, keepdim=True)": "(weights * slope_weights).sum(-2, "
            "keepdim=True)"
        },
        "You averaged over the keys after weighting: take the sum, because the weights add up to "
        "1.": {
            "(weights * slope_weights).sum(-1, keepdim=True)": "(weights * slope_weights).mean(-1, "
            "keepdim=True)"
        },
        "The scale is missing in the forward pass: divide the scores by the square root of d_k.": {
            "query @ key.mT * scale": "query @ key.mT"
        },
        "The scale is missing in both passes: divide the scores and their gradient by the "
        "square root of d_k.": {
            "query @ key.mT * scale": "query @ key.mT",
            f"{_SCORES} * scale": _SCORES,
        },
        "You scaled twice in the backward pass: divide by the square root of d_k only once.": {
            f"{_SCORES} * scale": f"{_SCORES} * scale**2"
        },
        "Only the gradient of query is scaled: scale the gradient of key too.": {
            "slope_scores.mT @ query": "slope_scores.mT @ query / scale"
        },
        "Only the gradient of key is scaled: scale the gradient of query too.": {
            "slope_scores @ key": "slope_scores @ key / scale"
        },
        "You used the scores instead of the weights: apply softmax in the forward pass.": {
            "X.softmax(-1)": "X"
        },
        "Softmax runs over the queries: apply it over the keys, the last axis.": {
            "X.softmax(-1)": "X.softmax(-2)"
        },
        "You divided by the square root of d_v: divide by the square root of d_k.": {
            "query.size(-1) ** -0.5": "value.size(-1) ** -0.5"
        },
        "You subtracted the unweighted sum over the keys: multiply each gradient by its weight "
        "before you add.": {
            "(weights * slope_weights).sum(-1, keepdim=True)": "slope_weights.sum(-1, keepdim=True)"
        },
        "You multiplied by the weights too early: subtract the average first.": {
            _SCORES: "(weights * slope_weights - average)"
        },
        "The gradient of value contains the scale: apply the scale only to the scores.": {
            "weights.mT @ upstream": "weights.mT @ upstream * scale"
        },
        "The gradient of value contains the gradient of the weights: multiply the transposed "
        "weights by upstream.": {"weights.mT @ upstream": "slope_weights.mT @ upstream"},
        "You summed the weights and upstream over the queries before multiplying: take the "
        "matrix product of the transposed weights and upstream.": {
            "weights.mT @ upstream": "weights.sum(1).unsqueeze(-1) * upstream.sum(1, keepdim=True)"
        },
        "You added the average: subtract it.": {
            "slope_weights - average": "slope_weights + average"
        },
        "The gradient of the scores has the wrong sign: subtract the average.": {
            "slope_weights - average": "average - slope_weights"
        },
    },
)


@question(decimals=2, measures="probability minus one at the label, and the gradient of a weight")
def backward_on_paper() -> list[float]:
    """the gradient of logit 0, the gradient of logit 2, and the gradient of the weight in row 2 and
    column 1
    """
    x, logits = torch.tensor([2.0, 4.0]), torch.tensor([1.0, 1.0, 2.0]).log()
    slope = logits.softmax(-1) - torch.tensor([1.0, 0.0, 0.0])
    return [slope[0].item(), slope[2].item(), torch.outer(slope, x)[2, 1].item()]


notes(
    backward_on_paper,
    {
        "These are the probabilities: subtract 1 at the label.": [0.25, 0.5, 2],
        "The sign is wrong: the gradient is probability minus 1 at the label, so a step "
        "against the gradient raises the logit of the label.": [0.75, -0.5, -2],
        "The gradients of the logits are right. The gradient of a weight is the gradient of "
        "its logit times its input: row 2 belongs to logit 2, and column 1 belongs to the "
        "second element of the input.": [
            -0.75, 0.5, 1,
        ],
        "This is -1 / p, the gradient of the probability of the label: continue the backward "
        "pass through softmax.": [-4, 0, 0],
    },
)  # fmt: skip
