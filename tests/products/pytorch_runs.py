"""Runs of the live page's configurations in PyTorch, with the same changes."""

from functools import cache

import torch
from torch import Tensor

from twelve.masks import padding_mask
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.explorer.program import Program

FIRST, *_ = TITLES = list(example.CONFIGURATIONS)
ATTENTION = "encoder.layers.0.self_attention"
LABELS = "cross_entropy.labels"


@cache
def program(title: str) -> dict:
    """Return the program of a configuration in the form embedded in the page."""
    with example.float64():
        trace = example.trace(loss=True, grad=True, on="cpu", **example.CONFIGURATIONS[title])
        return Program(trace, example.words).data


@cache
def layout(title: str) -> dict[str, tuple[int, torch.Size]]:
    """Return the offset and the shape of each tensor of a program, keyed by name."""
    places, count = {}, 0
    for tensor in program(title)["tensors"]:
        shape = torch.Size(tensor["shape"])
        places[tensor["name"]] = (count, shape)
        count += shape.numel()
    return places


class Run:
    """A configuration in PyTorch.

    Attributes:
        changed: New values, keyed by tensor name and flat index.
    """

    def __init__(self, title: str) -> None:
        switches = dict(example.CONFIGURATIONS[title])
        self.title, self.padding = title, switches.pop("padding", True)
        self.has_source = not switches.pop("decoder_only", False)
        if self.has_source:
            self.model = example.model(**switches)
            self.model.encoder.register_forward_hook(self.change_memory)
            self.ids, self.mask = "src", "src_mask"
            self.inputs = {"src": example.src, "tgt": example.tgt, "tgt_mask": example.tgt_mask,
                           LABELS: example.labels}  # fmt: skip
        else:
            self.model = example.language_model(**switches)
            self.model.layers[0].register_forward_pre_hook(self.change_mask)
            self.ids, self.mask = "ids", "key_mask"
            self.inputs = {"ids": example.src, LABELS: example.following}
        # The page also computes gradients of buffers.
        for table in self.model.buffers():
            table.requires_grad_()
        self.weights = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        self.home = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.changed, self.layer_mask, self.tape = {}, {}, None

    def change(self, name: str, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor with the changed elements."""
        copy = tensor.clone()
        for (changed, element), value in self.changed.items():
            if changed == name:
                copy.view(-1)[element] = value
        return copy

    def change_memory(self, _module, _inputs, memory: Tensor) -> Tensor | None:
        held = any(name == "memory" for name, _ in self.changed)
        return self.change("memory", memory) if held else None

    def change_mask(self, _layer, inputs):
        x, mask = inputs
        if self.tape is None:
            mask = self.change("mask", mask)
        else:
            self.tape.name(mask, "mask", ("batch", "1", "query", "key"))
        self.layer_mask["mask"] = mask
        return x, mask

    def given(self) -> dict[str, Tensor]:
        """Return ids, masks and labels; unchanged entries of a padding mask follow from the ids."""
        tensors = {name: self.change(name, tensor) for name, tensor in self.inputs.items()}
        if self.padding:
            tensors[self.mask] = self.change(self.mask, padding_mask(tensors[self.ids]))
        return tensors

    def trace(self, *, explain: bool = False) -> tuple[Trace, dict[str, Tensor]]:
        """Run the model; return the trace, and all inputs and weights keyed by name."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(self.change(name, self.home[name]))
                weight.grad = None
        given = self.given()
        ids, mask, tgt_mask = (given.get(name) for name in (self.ids, self.mask, "tgt_mask"))
        with Trace(self.model, grad=True, explain=explain) as trace:
            if explain:
                tape = self.tape = trace.graph.tape
                tape.label(ids, self.ids, ("batch", "src" if self.has_source else "seq"))
                if self.has_source:
                    tape.label(tgt_mask, "tgt_mask", ("1", "1", "query", "key"))
                if self.padding:
                    mask = padding_mask(ids[:])
                    tape.name(mask, self.mask, ("batch", "1", "1", "key"))
            if self.has_source:
                logits = self.model(ids, given["tgt"], src_mask=mask, tgt_mask=tgt_mask)
            else:
                logits = self.model(ids, key_mask=mask)
            cross_entropy(logits, given[LABELS])
        self.tape = None
        return trace, given | self.layer_mask | self.weights

    def numbers(self) -> Tensor:
        """Return all values and gradients in program order, shape (2, count)."""
        trace, given = self.trace()
        trace["cross_entropy.loss"].tensor.backward()
        pairs = []
        for name in layout(self.title):
            tensor = trace[name].tensor if name in trace else given[name]
            # Without a path to the loss, PyTorch has no gradient and the page shows 0.
            grad = tensor.grad if tensor.requires_grad else None
            grad = torch.zeros(tensor.shape) if grad is None else grad
            pairs.append(torch.stack([tensor.detach().double().flatten(), grad.flatten()]))
        return torch.cat(pairs, dim=1)


def differences(title: str, numbers: Tensor, wanted: Tensor, tolerance: float = 1e-9) -> list[str]:
    """List the tensors whose values or gradients differ; only float tensors have gradients."""
    options = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    different = []
    for tensor in program(title)["tensors"]:
        start, shape = layout(title)[tensor["name"]]
        rows = slice(2 if tensor["type"] == "float" else 1), slice(start, start + shape.numel())
        if not torch.allclose(numbers[rows], wanted[rows], **options):
            name = tensor["name"]
            different.append(f"{name}: {numbers[rows].tolist()} instead of {wanted[rows].tolist()}")
    return different
