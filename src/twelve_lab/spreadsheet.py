"""The live spreadsheet: every number of a run is a formula over the cells of its operands.

openpyxl is optional, so it is imported only to write a file.
"""

from __future__ import annotations

import io
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twelve_lab.explain.expression import (
    LEVEL,
    Apply,
    Expression,
    Leaf,
    Number,
    Total,
    Writer,
    bracketed,
    call,
)
from twelve_lab.explain.formulas import CONDITIONS, FORMULAS, Formula, Output, along
from twelve_lab.explain.tape import Block
from twelve_lab.show.palette import axis_style, signed_fill
from twelve_lab.show.table import Labels, Table, fitting, is_nested
from twelve_lab.trace.trace import Trace

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.cell import Cell
    from openpyxl.worksheet.worksheet import Worksheet

# Replaces minus infinity, which spreadsheets lack; exp of this number is also 0.
HIDDEN = -1e300
LONGEST = 8000  # characters in a formula; spreadsheets accept 8192
WIDEST = 16_384  # columns in a sheet
SAME_NAMES = "exp sqrt sin cos tan tanh erf abs max min IF AND OR NOT".split()
FUNCTIONS = {"log": "LN"} | {name: name.upper() for name in SAME_NAMES}
NUMBER_FORMAT = f'[<={HIDDEN / 10:.0E}]"-inf";[<0]-0.0000;0.0000'
# Control characters, surrogates and noncharacters.
UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
INPUT_FILL, HEAD_FILL = "FFF3C4", "F2F2F2"
MOST_WORDS = 254  # arguments of CHOOSE after the first
HOW_TO = (
    "Yellow cells are inputs: ids, embedding rows, positions, weights and masks. Every other "
    "number is a formula over them: blue below zero, red above.",
    "Change a yellow cell and watch the numbers after it move, down to the logits on the last "
    "sheet.",
    "A mask entry is TRUE where a query may attend; write FALSE to hide a key. A hidden score is "
    "-inf.",
)


@dataclass(frozen=True)
class Place:
    """The position of an element in the workbook."""

    sheet: str
    row: int
    column: int

    def seen_from(self, sheet: str) -> str:
        """Format a reference to the position in a formula on `sheet`."""
        from openpyxl.utils import get_column_letter

        address = f"{get_column_letter(self.column)}{self.row}"
        return address if sheet == self.sheet else f"'{self.sheet}'!{address}"


class LiveSheet:
    """A run laid out as a workbook.

    Attributes:
        places: Cell of the tape -> position in the workbook.
        workbook: The openpyxl workbook.
    """

    def __init__(self, trace: Trace, labels: Labels | None = None) -> None:
        """Lay out the tensors, then add the formulas; see `Trace.to_excel`."""
        try:
            from openpyxl import Workbook
        except ImportError as error:
            raise ValueError(
                "a spreadsheet needs the package openpyxl: python -m pip install openpyxl"
            ) from error
        if trace.graph is None or not len(trace):
            raise ValueError("the run holds no tensor that can be explained")
        for entry in trace.values():
            entry.kept()
        self.trace, self.graph, self.labels = trace, trace.graph, labels or {}
        self.places: dict[int, Place] = {}
        self.workbook: Workbook = Workbook()
        self._write_front()
        groups = list(self._groups())
        for title, blocks in groups:
            self._lay_out(self.workbook.create_sheet(title), blocks)
        for title, blocks in groups:
            for block in blocks:
                self._write_values(self.workbook[title], block)
        self._write_words()

    def cell(self, name: str, *index: int) -> Place:
        """Return the position of an element of a named tensor.

        Args:
            name: Name in the trace or of a weight.
            *index: One position for each axis.

        Raises:
            KeyError: If the workbook has no tensor of this name.
        """
        return self.places[self.graph.tape.named[name].cell(index)]

    def _groups(self) -> Iterator[tuple[str, list[Block]]]:
        """Group the tensors into sheets: the inputs first, then one sheet for each module."""
        named = self.graph.tape.named
        yield "inputs", [block for name, block in named.items() if name not in self.trace]
        taken = {"inputs"}
        stages = itertools.groupby(self.trace, key=lambda name: name.rpartition(".")[0])
        for path, names in stages:
            blocks = [named[name] for name in names]
            entry = self.trace[blocks[0].name]
            words = path or blocks[-1].name
            yield _title(f"{entry.step} {words}".strip(), taken), blocks

    def _write_front(self) -> None:
        sheet = self.workbook.active
        sheet.title = "read me"
        sheet["A1"] = "Twelve numbers, live"
        sheet["A1"].font = _font(bold=True, size=14)
        for row, line in enumerate(HOW_TO, 3):
            sheet.cell(row, 1, line)
        sheet.column_dimensions["A"].width = 22

    def _write_words(self) -> None:
        """Add formulas to the first sheet for the input words and the predicted words."""
        sheet, row = self.workbook.active, len(HOW_TO) + 4
        for block in self.graph.tape.named.values():
            shape, (first, axis, *last) = block.shape, (*block.axis_names, "", "")[:3]
            sentences = fitting(self.labels, block.axis_names, shape).get(axis, ())
            words = dict(enumerate(self.labels.get("vocab", ())))
            is_ids = len(shape) == 2 and not block.values.is_floating_point()
            if is_ids and set(block.numbers) <= set(words) and is_nested(sentences):
                # A sentence may have its own name for an id, such as <start>.
                words |= zip(block.numbers, itertools.chain(*sentences), strict=True)
            elif last != ["vocab"] or len(shape) != 3 or len(words) != shape[-1]:
                continue
            if first != "batch" or len(words) > MOST_WORDS:
                continue
            choices = ",".join('"{}"'.format(word.replace('"', '""')) for word in words.values())
            for i, j in itertools.product(range(shape[0]), range(shape[1])):
                places = [self.places[cell] for cell in block.cells[i, j].flatten().tolist()]
                start, end = (place.seen_from(sheet.title) for place in (places[0], places[-1]))
                area = f"{start}:{end.rpartition('!')[2]}"
                chosen = f"{start}+1" if is_ids else f"MATCH(MAX({area}),{area},0)"
                name = block.name if is_ids else f"highest {block.name}"
                _write_text(sheet, row + i, 1, f"{name}, batch {i}")
                sheet.cell(row + i, 2 + j, f"=CHOOSE({chosen},{choices})")
            row += shape[0] + 1

    def _lay_out(self, sheet: Worksheet, blocks: list[Block]) -> None:
        """Write names around every matrix on a sheet, and register the elements."""
        row = 1
        for block in blocks:
            name = f"{block.name} {self._table(block).sizes}"
            _write_text(sheet, row, 1, name).font = _font(bold=True)
            if block.name in self.trace and self.trace[block.name].code:
                _write_text(sheet, row + 1, 1, f"code: {self.trace[block.name].code}")
            row += 2
            cell = block.start
            for matrix in self._table(block).blocks(elide=False):
                row = self._lay_out_matrix(sheet, matrix, row, cell)
                cell += len(matrix.rows) * len(matrix.column_names)
            row += 1
        sheet.column_dimensions["A"].width = 22
        sheet.freeze_panes = "B1"

    def _lay_out_matrix(self, sheet: Worksheet, matrix: Any, row: int, cell: int) -> int:
        if matrix.title:
            _write_text(sheet, row, 1, matrix.title)
            row += 1
        width = len(matrix.column_names)
        if width >= WIDEST:
            raise ValueError(
                f"{width:,} columns are more than the {WIDEST - 1:,} that spreadsheets take; trace "
                "a smaller model"
            )
        for j, name in enumerate(matrix.column_names):
            head = _write_text(sheet, row, 2 + j, f"{matrix.column_axis} {name}".strip())
            head.fill, head.border = _fill(HEAD_FILL), _border(matrix.column_axis, "bottom")
        for i, name in enumerate(matrix.row_names):
            side = _write_text(sheet, row + 1 + i, 1, f"{matrix.row_axis} {name}".strip())
            side.fill, side.border = _fill(HEAD_FILL), _border(matrix.row_axis, "right")
            for j in range(width):
                self.places[cell + i * width + j] = Place(sheet.title, row + 1 + i, 2 + j)
        return row + len(matrix.row_names) + 2

    def _table(self, block: Block) -> Table:
        fit = fitting(self.labels, block.axis_names, block.shape)
        return Table.of(block.values.view(block.shape), block.axis_names, fit)

    def _write_values(self, sheet: Worksheet, block: Block) -> None:
        formulas = Formulas(self, sheet.title)
        for number, value in enumerate(block.numbers):
            place = self.places[block.start + number]
            cell = sheet.cell(place.row, place.column)
            made = self.graph.operation(block.start + number, formulas.known)
            if made is None:
                cell.value = _finite(value)
                cell.fill = _fill(INPUT_FILL)
            else:
                cell.value = f"={formulas.write(made)}"
                if len(cell.value) > LONGEST:
                    raise ValueError(
                        f"{block.name}: a formula of {len(cell.value):,} characters is more than "
                        f"the {LONGEST:,} that spreadsheets take; trace a smaller model"
                    )
            if not isinstance(value, bool):
                cell.number_format = NUMBER_FORMAT if isinstance(value, float) else "0"
        limit = max((abs(value) for value in block.numbers if math.isfinite(value)), default=0)
        if block.name in self.trace and block.values.is_floating_point() and limit:
            first, last = (self.places[block.start + n] for n in (0, len(block.numbers) - 1))
            area = ":".join(place.seen_from(sheet.title) for place in (first, last))
            sheet.conditional_formatting.add(area, _scale(limit))


class Formulas(Writer):
    """Format a tree as a formula on one sheet, over the nearest elements in the workbook."""

    signs = {sign: sign for sign in LEVEL} | {"**": "^", "==": "=", "!=": "<>"}

    def __init__(self, live: LiveSheet, sheet: str) -> None:
        """Format formulas for a sheet."""
        super().__init__(live.graph.tape.value)
        self.graph, self.places, self.sheet = live.graph, live.places, sheet
        self.known = FORMULAS | SPECIAL | {"embedding": self.look_up}

    def write(self, tree: Expression, outer: int = 0) -> str:
        """Format a tree, with a leading minus in brackets, because -2^2 is 4 in spreadsheets."""
        if isinstance(tree, Apply) and tree.name == "neg":
            return f"(-{self.write(tree.parts[0], max(LEVEL.values()) + 1)})"
        return super().write(tree, outer)

    def leaf(self, cell: int, outer: int) -> str:
        """Format a reference to a cell, or its arithmetic if it is not in the workbook."""
        if cell in self.places:
            return self.places[cell].seen_from(self.sheet)
        made = self.graph.operation(cell, self.known)
        return self.write(Number(self.value(cell)) if made is None else made, outer)

    def number(self, number: float, outer: int) -> str:
        """Format a number in spreadsheet syntax."""
        return bracketed(repr(_finite(number)).upper(), outer)

    def function(self, name: str, parts: tuple[Expression, ...]) -> str:
        """Format a call."""
        written = [self.write(part) for part in parts]
        if name == "INDEX":
            corner, end, row, column = written
            return f"INDEX({corner}:{end.rpartition('!')[2]},{row},{column})"
        if name not in FUNCTIONS:
            raise ValueError(
                f"no spreadsheet function for {name}; add one to FUNCTIONS in {__name__}"
            )
        return f"{FUNCTIONS[name]}({','.join(written)})"

    def look_up(self, arg: Output) -> Expression | None:
        """Return an embedding that looks up a different row if the id is changed."""
        *place, column = arg.index
        table = arg.cells(0).tolist()
        corner = self.places.get(table[0][0])
        for i, j in itertools.product(range(len(table)), range(len(table[0]))):
            here = corner and Place(corner.sheet, corner.row + i, corner.column + j)
            if here is None or self.places.get(table[i][j]) != here:
                return FORMULAS["embedding"](arg)  # not one block of the workbook
        chosen = Leaf(int(arg.cells(1)[tuple(place)])) + Number(1)
        return call("INDEX", Leaf(table[0][0]), Leaf(table[-1][-1]), chosen, Number(column + 1))


def _softmax(arg: Output) -> Expression:
    """Return softmax with the maximum subtracted first."""
    cells, here = along(arg)
    scores = [Leaf(cell) for cell in cells]
    powers = [call("exp", score - call("max", *scores)) for score in scores]
    return powers[here] / Total(tuple(powers))


# Formulas that respond to an edited mask or id.
SPECIAL: dict[str, Formula] = CONDITIONS | {"_softmax": _softmax}


def write_sheet(path: str | Path, trace: Trace, labels: Labels | None = None) -> Path:
    """Write a run as a live spreadsheet; see `Trace.to_excel`.

    Args:
        path: Destination; must end in .xlsx.
        trace: The run.
        labels: Names to show instead of indices, in the format of `show`.
    """
    path = Path(path)
    if path.suffix != ".xlsx":
        raise ValueError(f"a spreadsheet ends in .xlsx, not {path.name!r}")
    live = LiveSheet(trace, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Write to memory first: if saving fails, openpyxl writes again on garbage collection.
    content = io.BytesIO()
    live.workbook.save(content)
    path.write_bytes(content.getvalue())
    return path


def _finite(number: float) -> float:
    """Replace minus infinity; openpyxl would write an empty cell, which counts as 0."""
    if math.isnan(number) or number == math.inf:
        raise ValueError(f"a spreadsheet cannot hold {number}")
    return HIDDEN if number == -math.inf else number


def _write_text(sheet: Worksheet, row: int, column: int, text: str) -> Cell:
    """Write a text that is never interpreted as a formula."""
    cell = sheet.cell(row, column, _visible(text))
    cell.data_type = "s"
    return cell


def _visible(text: str) -> str:
    """Escape the characters that spreadsheets cannot contain."""
    return UNWRITABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _title(words: str, taken: set[str]) -> str:
    """Shorten a sheet's title to the maximum of 31 characters, and keep it unique."""
    short = re.sub(r"[\[\]:*?/\\']", "-", _visible(words))
    for long, brief in (("encoder.", "enc."), ("decoder.", "dec."), ("layers.", ""),
                        ("attention", "att"), ("residual", "res"), ("feed_forward", "ff"),
                        ("positional_encoding", "positions"), ("embedding", "emb")):  # fmt: skip
        short = short.replace(long, brief)
    base, number = short[:31], 1
    title = base
    while title.lower() in taken:
        number += 1
        title = f"{base[: 30 - len(str(number))]}#{number}"
    taken.add(title.lower())
    return title


@cache
def _font(**options: Any) -> Any:
    from openpyxl.styles import Font

    return Font(**options)


@cache
def _fill(colour: str) -> Any:
    from openpyxl.styles import PatternFill

    return PatternFill("solid", start_color=colour)


def _scale(limit: float) -> Any:
    """Return a colour scale like that of the figures: blue below zero, white at zero, red above."""
    from openpyxl.formatting.rule import ColorScaleRule

    style: dict[str, Any] = {}
    for end, sign in {"start": -1, "mid": 0, "end": 1}.items():
        style |= {f"{end}_type": "num", f"{end}_value": sign * limit,
                  f"{end}_color": signed_fill(sign, 1).removeprefix("#")}  # fmt: skip
    return ColorScaleRule(**style)


@cache
def _border(axis: str, side: str) -> Any:
    from openpyxl.styles import Border, Side

    style = axis_style(axis)
    lines = {
        "solid": "thick" if style.width > 2 else "medium",
        "dashed": "mediumDashed",
        "dotted": "mediumDashDotDot",
        "dashdot": "mediumDashDot",
        "double": "double",
    }
    line = Side(style=lines[style.line], color=style.colour.removeprefix("#"))
    return Border(**{side: line})
