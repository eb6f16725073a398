"""The runs of the explorer in PyTorch, with the same numbers changed: what it is held to."""

from functools import cache

import torch

from twelve.masks import padding_mask
from twelve.training import cross_entropy
from twelve_lab import Trace, example
from twelve_lab.explorer.program import Program

FIRST, *_ = TITLES = list(example.CONFIGURATIONS)
ATTENTION = "encoder.layers.0.self_attention"


@cache
def program(title):
    """The program of a configuration, as the page carries it."""
    with example.float64():
        trace = example.trace(loss=True, grad=True, on="cpu", **example.CONFIGURATIONS[title])
        return Program(trace, example.words).data


@cache
def layout(title):
    """The tensors of a configuration by name: the place of the first element, and the sizes."""
    places, found = 0, {}
    for tensor in program(title)["tensors"]:
        found[tensor["name"]] = (places, torch.Size(tensor["shape"]))
        places += torch.Size(tensor["shape"]).numel()
    return found


class Run:
    """A configuration in PyTorch, of which the same numbers can be changed.

    Attributes:
        changed: (name of a tensor, element) -> number.
    """

    def __init__(self, title):
        self.title = title
        switches = dict(example.CONFIGURATIONS[title])
        self.padding = switches.pop("padding", True)
        self.has_source = not switches.pop("decoder_only", False)
        self.model = (example.model if self.has_source else example.language_model)(**switches)
        # A buffer, of which the page knows the gradient too.
        for table in self.model.buffers():
            table.requires_grad_()
        self.weights = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        self.home = {name: weight.detach().clone() for name, weight in self.weights.items()}
        self.given = {
            "src": example.src, "tgt": example.tgt, "tgt_mask": example.tgt_mask,
            "cross_entropy.labels": example.labels,
        } if self.has_source else {
            "ids": example.src, "cross_entropy.labels": example.following,
        }  # fmt: skip
        # The ids that are read, and the mask that follows them.
        self.ids, self.mask = ("src", "src_mask") if self.has_source else ("ids", "key_mask")
        self.changed, self.seen, self.tape = {}, {}, None
        if self.has_source:
            self.model.encoder.register_forward_hook(self.hold)
        else:
            self.model.layers[0].register_forward_pre_hook(self.look)

    def hold(self, _module, _inputs, memory):
        """Put numbers that are held fast into the memory."""
        held = memory.clone()
        for (name, element), value in self.changed.items():
            if name == "memory":
                held.view(-1)[element] = value
        return held if any(name == "memory" for name, _ in self.changed) else memory

    def look(self, _layer, given):
        """Put cells that are held fast into the mask of the layers, and keep all of it."""
        x, mask = given
        if self.tape is None:
            mask = self.apply(mask, "mask")
        else:
            self.tape.name(mask, "mask", ("batch", "1", "query", "key"))
        self.seen["mask"] = mask
        return x, mask

    def apply(self, tensor, name):
        """Give a copy of a tensor with what was changed in it."""
        copy = tensor.detach().clone()
        for (changed, element), value in self.changed.items():
            if changed == name:
                copy.view(-1)[element] = value
        return copy

    def inputs(self):
        """Give ids, masks and labels; a mask follows the ids where it was not changed itself."""
        found = {name: self.apply(tensor, name) for name, tensor in self.given.items()}
        mask = padding_mask(found[self.ids]) if self.padding else None
        found[self.mask] = None if mask is None else self.apply(mask, self.mask)
        return found

    def trace(self, *, explain=False):
        """Run it; gives the trace, and the numbers that were given to it, by name."""
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(self.apply(self.home[name], name))
                weight.grad = None
        given = self.inputs()
        mask = given[self.mask]
        with Trace(self.model, grad=True, explain=explain) as trace:
            tape = self.tape = trace.graph.tape if explain else None
            if explain:
                axis = "src" if self.has_source else "seq"
                tape.label(given[self.ids], self.ids, ("batch", axis))
                if self.has_source:
                    tape.label(given["tgt_mask"], "tgt_mask", ("1", "1", "query", "key"))
                mask = padding_mask(given[self.ids][:]) if self.padding else None
                if mask is not None:
                    tape.name(mask, self.mask, ("batch", "1", "1", "key"))
            if self.has_source:
                masks = {"src_mask": mask, "tgt_mask": given["tgt_mask"]}
                logits = self.model(given["src"], given["tgt"], **masks)
            else:
                logits = self.model(given["ids"], key_mask=mask)
            cross_entropy(logits, given["cross_entropy.labels"])
        return trace, given | self.seen | self.weights

    def numbers(self):
        """Run it forwards and backwards; gives name -> (number, gradient), None where none is."""
        trace, given = self.trace()
        trace["cross_entropy.loss"].tensor.backward()
        found = {name: (each.detach().clone(), each.grad)
                 for name, each in given.items() if each is not None}  # fmt: skip
        for name, entry in trace.items():
            gradient = entry.tensor.grad if entry.tensor.requires_grad else None
            found[name] = (entry.value, gradient)
        return found


def differences(title, values, gradients, wanted, tolerance=1e-9):
    """List the tensors in which the engine's numbers or gradients are not those of PyTorch.

    Args:
        title: Of the configuration.
        values: The engine's, in the order of its program.
        gradients: Beside them.
        wanted: What `Run.numbers` gives.
        tolerance: Absolute and relative.
    """
    found = []
    for name, (start, shape) in layout(title).items():
        value, gradient = wanted[name]
        span = slice(start, start + shape.numel())
        options = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
        if not torch.allclose(values[span], value.detach().double().flatten(), **options):
            found.append(f"{name}: {values[span].tolist()} instead of {value.flatten().tolist()}")
        if not value.is_floating_point():
            continue
        # What the loss does not depend on has no gradient in torch, and none of a size here.
        gradient = torch.zeros(shape) if gradient is None else gradient
        if not torch.allclose(gradients[span], gradient.double().flatten(), **options):
            found.append(
                f"gradient of {name}: {gradients[span].tolist()} instead of "
                f"{gradient.flatten().tolist()}"
            )
    return found
