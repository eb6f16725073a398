"""The commands of `python -m twelve`."""

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from twelve.generation import greedy_decode, sample
from twelve.pretrained import chat_prompt, load
from twelve_lab import example
from twelve_lab.cli.first_screen import first_screen
from twelve_lab.cli.terminal import Terminal, fold
from twelve_lab.cli.walk import walk_text
from twelve_lab.course import BY_HAND, STEPS
from twelve_lab.device import device
from twelve_lab.explorer import write_explorer
from twelve_lab.messages import declared, message, plural
from twelve_lab.spreadsheet import write_sheet
from twelve_lab.trace.trace import Trace

# Control characters except tab and newline.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
Command = Callable[[argparse.Namespace], None]
# The switches of the Transformer and their defaults.
SWITCHES = {
    "num_heads": 3, "norm_first": True, "activation": "relu", "tie_weights": False,
    "scale_embedding": False, "padding": True,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Command-line arguments after `python -m twelve`; sys.argv[1:] by default.

    Returns:
        Exit status: 0 on success, 1 after an error with a message, 130 after Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # no character may abort a command
    try:
        options.run(options)
    except BrokenPipeError:  # the reading program, such as head or less, has exited
        sys.stdout = open(os.devnull, "w")
    except KeyboardInterrupt:
        print()  # ends the current line
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"twelve: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m twelve",
        description="The Transformer, layer by layer, on twelve numbers you can check by hand.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, help: str, *, switches: bool = False):
        command = commands.add_parser(name, help=help, allow_abbrev=not switches)
        command.set_defaults(run=run)
        if switches:
            _add_switches(command)
        return command

    trace = add("trace", _trace, "walk the twelve numbers from ids to logits", switches=True)
    trace.add_argument("--all", action="store_true",
                       help="name every tensor, not only what fits one screen")  # fmt: skip
    trace.add_argument("--values", action="store_true", help="print every tensor's numbers")
    trace.add_argument("--json", type=Path, metavar="FILE",
                       help="also write every tensor in full precision")  # fmt: skip

    explain = add("explain", _explain, "write the arithmetic that made one number", switches=True)
    explain.add_argument("name", help="of the tensor, as `trace --all` prints it")
    explain.add_argument("index", type=int, nargs="*", metavar="I", help="one for each axis")
    explain.add_argument("--depth", type=int, default=1, metavar="N",
                         help="unfold the operands N - 1 times (default 1)")  # fmt: skip

    explorer = add("explorer", _explorer, "write a page in which every number can be changed")
    explorer.add_argument("file", type=Path)

    sheet = add("sheet", _sheet, "write a live spreadsheet of the walk", switches=True)
    sheet.add_argument("file", type=Path)

    write = add("write", _write, "continue a text with a real language model")
    write.add_argument("text", help="to continue, or a question with --chat")
    write.add_argument("--tokens", type=int, default=60, metavar="N",
                       help="how many to write at most (default 60)")  # fmt: skip
    write.add_argument("--temperature", type=float, metavar="T",
                       help="sample: below 1 the likely tokens win more often")  # fmt: skip
    write.add_argument("--top-k", type=int, metavar="K", help="sample from the K likeliest tokens")
    write.add_argument("--top-p", type=float, metavar="P",
                       help="sample from the likeliest tokens that sum to P")  # fmt: skip
    write.add_argument("--seed", type=int, metavar="S",
                       help="sample with this seed (default 0); without any of these four, the "
                            "likeliest token is taken")  # fmt: skip
    write.add_argument("--chat", action="store_true", help="print only the answer to a question")
    write.add_argument("--file", type=Path, metavar="PATH",
                       help="a GGUF file, or a folder of safetensors (default: what "
                            "`make language-model` installs)")  # fmt: skip

    progress = add("progress", _progress, "list which exercises are solved")
    progress.add_argument(
        "paths", type=Path, nargs="*", default=[Path("notebooks")], metavar="PATH",
        help="a progress.json or its folder; several make a class (default notebooks)",
    )  # fmt: skip

    drill = add("drill", _drill, "open the next task to write from a blank page, with a clock")
    drill.add_argument("task", nargs="?", help="its page, such as lora (default: the next one)")
    drill.add_argument("--folder", type=Path, default=Path("notebooks"), metavar="PATH",
                       help="of notebooks and progress.json (default notebooks)")  # fmt: skip

    picture = add("picture", _picture, "draw the walk as SVG")
    picture.add_argument("file", type=Path)
    picture.add_argument(
        "--narrow", action="store_true", help="for a phone: one tensor above the other"
    )

    poster = add("poster", _poster, "draw every number of the walk on one sheet of A2")
    poster.add_argument("files", type=Path, nargs="+", metavar="FILE", help=".svg or .pdf")
    return parser


def _add_switches(command: argparse.ArgumentParser) -> None:
    command.add_argument("--heads", type=int, choices=(1, 2, 3), default=3, dest="num_heads",
                         help="heads of each attention: widths 3, 2 or 1 (default 3)")  # fmt: skip
    command.add_argument("--norm", choices=("pre", "post"), default="pre",
                         help="norm before or after each sublayer (default pre)")  # fmt: skip
    command.add_argument("--activation", choices=("relu", "gelu"), default="relu")
    command.add_argument("--no-padding-mask", action="store_false", dest="padding",
                         help="let attention see the padding of the source")  # fmt: skip
    command.add_argument("--tie-weights", action="store_true",
                         help="use the target table as output projection")  # fmt: skip
    command.add_argument("--scale-embedding", action="store_true",
                         help="multiply the embeddings by the root of d_model")  # fmt: skip
    command.add_argument("--decoder-only", action="store_true",
                         help="run the decoder-only model on the same words")  # fmt: skip
    command.add_argument("--device", help="cpu or cuda (default: cuda if available)")


def _config(options: argparse.Namespace) -> dict[str, object]:
    config = vars(options) | {"norm_first": options.norm == "pre"}
    config = {name: config[name] for name in SWITCHES}
    if not options.decoder_only:
        return config
    padding = config.pop("padding")
    changed = [name for name, value in config.items() if value != SWITCHES[name]]
    if changed:
        raise ValueError(
            message("the decoder-only model has no switch for {names}", names=", ".join(changed))
        )
    return {"decoder_only": True, "padding": padding}


def _run(options: argparse.Namespace) -> Trace:
    return example.trace(**_config(options), on=device(options.device))


def _trace(options: argparse.Namespace) -> None:
    config, trace, terminal = _config(options), _run(options), Terminal.of(sys.stdout)
    if options.all or options.values:
        print(walk_text(trace, config, terminal, every_value=options.values), end="\n\n")
        onward = message(
            "Next: make lab opens the first notebook; make trace ARGS=--help lists the switches."
        )
    else:
        print(first_screen(trace, config, terminal))
        onward = message(
            "Next: make trace ARGS=--all prints every tensor, make lab opens the lessons."
        )
    if options.json:
        content = {"config": config, "steps": trace.steps()}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(plural(
            "{count} tensor in full precision: {file}", "{count} tensors in full precision: {file}",
            len(trace), file=options.json,
        ))  # fmt: skip
    print(*fold(onward, terminal.width), sep="\n")


def _explain(options: argparse.Namespace) -> None:
    trace = _run(options)
    if options.name not in trace:
        raise ValueError(trace.missing(options.name))
    print(trace[options.name].explain(*options.index, depth=options.depth))


def _explorer(options: argparse.Namespace) -> None:
    if options.file.suffix not in (".html", ".htm"):
        raise ValueError(
            message(
                "the explorer is a page; give a name that ends in .html, not {file}",
                file=options.file,
            )
        )
    print(message("written: {file}", file=write_live(options.file)))


def write_live(file: Path, addresses: Mapping[str, str] | None = None) -> Path:
    """Write the live page of the running example, including its dares.

    Args:
        file: Destination.
        addresses: Address of each lesson, keyed by number; a solved dare links to it.

    Returns:
        The path of the file.
    """
    traces = {
        title: example.trace(loss=True, on="cpu", **switches)
        for title, switches in example.CONFIGURATIONS.items()
    }
    lessons = {
        step.number: {
            "title": f"{step.number} {declared(step.title)}",
            "href": (addresses or {}).get(step.number),
        }
        for step in STEPS
    }
    return write_explorer(file, traces, example.words, lessons)


def _sheet(options: argparse.Namespace) -> None:
    file = write_sheet(options.file, _run(options), example.words)
    print(message("written: {file}", file=file))


def _write(options: argparse.Namespace) -> None:
    # Python decodes invalid bytes on the command line as lone surrogates.
    if options.text.encode(errors="replace").decode() != options.text:
        raise ValueError(message("the text contains bytes that are not valid UTF-8"))
    model, tokenizer = load(options.file)
    text = chat_prompt(tokenizer, options.text) if options.chat else options.text
    prompt = torch.tensor([tokenizer.encode(text).ids], dtype=torch.int64)
    length, longest = prompt.size(1), model.rotary.max_len
    if not length:
        raise ValueError(message("there is no text to go on from"))
    if not 1 <= options.tokens <= longest - length:
        raise ValueError(
            message(
                "--tokens must be between 1 and {longest} minus the {length} tokens of the text, "
                "got {tokens}",
                longest=longest,
                length=length,
                tokens=options.tokens,
            )
        )
    from tokenizers.decoders import DecodeStream  # optional; load has checked that it is installed

    # The stream keeps incomplete UTF-8 sequences until the character is complete.
    stream = DecodeStream(skip_special_tokens=True)

    def show(ids: torch.Tensor) -> None:
        for id in ids[0].tolist():
            # Strip escape sequences, which could control the terminal.
            text = CONTROL.sub("", stream.step(tokenizer, id) or "")
            print(text, end="", flush=True)

    def show_input(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0] is not prompt:
            show(inputs[0])

    # After the prompt, the input of each decoding step is the token that was just generated. The
    # hook is on the embedding, because a fast model decodes with last_logits, not forward.
    model.embedding.register_forward_pre_hook(show_input)
    limits = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
    sampling = {name: value for name, value in limits.items() if value is not None}
    ends = {"max_len": length + options.tokens, "end_id": tokenizer.end_ids}
    print("" if options.chat else options.text, end="", flush=True)
    if sampling or options.seed is not None:
        written = sample(model, prompt, seed=options.seed or 0, **sampling, **ends)
    else:
        written = greedy_decode(model, prompt, **ends)
    show(written[:, -1:])
    print()


def _progress(options: argparse.Namespace) -> None:
    from twelve_lab.check.progress import report  # slow to load: it draws the cases of every task

    print(report(options.paths))


def _drill(options: argparse.Namespace) -> None:
    from twelve_lab.check.blank_page import open_page, wanted  # slow to load

    now = datetime.now(UTC)
    drill, reason = wanted(options.folder, options.task, now)
    print(reason)
    if drill is None:
        return
    page = options.folder / BY_HAND / Path(drill.page).name
    kept = open_page(drill, page, now)
    print(message("The clock is running. Write the answer from memory: {page}", page=page))
    if kept:
        print(message("Your last answer is kept: {file}", file=kept))


def _picture(options: argparse.Namespace) -> None:
    from twelve_lab import draw  # loads matplotlib, which is optional

    draw.walk(example.trace(on="cpu"), narrow=options.narrow).save(options.file)
    print(message("drawn: {file}", file=options.file))


def _poster(options: argparse.Namespace) -> None:
    from twelve_lab.draw.poster import save_poster  # loads matplotlib, which is optional

    trace = example.trace(on="cpu")
    for file in options.files:
        save_poster(trace, file)
        print(message("drawn: {file}", file=file))
