"""The commands of `python -m twelve`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from twelve.lab import example
from twelve.lab.device import device
from twelve.lab.walk import walk_text

NEXT = "Go on: make lab opens the first notebook; make trace ARGS=--help lists the switches."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after `python -m twelve`; those of the shell if not given.

    Returns:
        Exit status: 0, or 1 after an error that was explained.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except BrokenPipeError:  # the reader, such as head or less, has seen enough
        sys.stdout = open(os.devnull, "w")
        return 0
    except (ValueError, OSError) as error:
        print(f"twelve: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m twelve",
        description="The Transformer, layer by layer, on twelve numbers you can check by hand.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    trace = commands.add_parser(
        "trace", help="walk the twelve numbers from ids to logits", allow_abbrev=False
    )
    trace.set_defaults(run=_trace)
    trace.add_argument("--heads", type=int, choices=(1, 2, 3), default=3,
                       help="heads of each attention: widths 3, 2 or 1 (default 3)")  # fmt: skip
    trace.add_argument("--norm", choices=("pre", "post"), default="pre",
                       help="norm before or after each sublayer (default pre)")  # fmt: skip
    trace.add_argument("--activation", choices=("relu", "gelu"), default="relu")
    trace.add_argument("--no-padding-mask", action="store_true",
                       help="let the source's padding be looked at")  # fmt: skip
    trace.add_argument("--tie-weights", action="store_true",
                       help="use the target table as output projection")  # fmt: skip
    trace.add_argument("--scale-embedding", action="store_true",
                       help="multiply the embeddings by the root of d_model")  # fmt: skip
    trace.add_argument("--values", action="store_true", help="print every tensor's numbers")
    trace.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    trace.add_argument("--json", type=Path, metavar="FILE",
                       help="also write every tensor in full precision")  # fmt: skip

    picture = commands.add_parser("picture", help="draw the walk as a PNG")
    picture.set_defaults(run=_picture)
    picture.add_argument("file", type=Path)
    return parser


def _trace(options: argparse.Namespace) -> int:
    config = {
        "num_heads": options.heads,
        "norm_first": options.norm == "pre",
        "activation": options.activation,
        "tie_weights": options.tie_weights,
        "scale_embedding": options.scale_embedding,
        "padding": not options.no_padding_mask,
    }
    trace = example.trace(**config, on=device(options.device))
    print(walk_text(trace, config, every_value=options.values))
    if options.json:
        content = {"config": config, "steps": trace.steps()}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"\n{len(trace)} tensors in full precision: {options.json}")
    print(f"\n{NEXT}")
    return 0


def _picture(options: argparse.Namespace) -> int:
    from twelve.lab import draw  # matplotlib is needed here alone

    if options.file.suffix != ".png":
        raise ValueError(f"the picture is a PNG; give a name that ends in .png, not {options.file}")
    draw.walk(example.trace(on="cpu")).save(options.file)
    print(f"drawn: {options.file}")
    return 0
