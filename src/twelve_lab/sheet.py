"""The live spreadsheet: every number of a run is a formula over the cells that it was made from.

openpyxl writes the file and is imported when one is written: no other part of the lab needs it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twelve_lab.explain.expression import (
    LEVEL,
    Apply,
    Dot,
    Expression,
    Leaf,
    Number,
    Total,
    terms,
)  # fmt: skip
from twelve_lab.explain.formulas import Element, expression_of
from twelve_lab.explain.record import Block, Operation
from twelve_lab.show.palette import axis_style
from twelve_lab.show.table import Labels, Table

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

    from twelve_lab.trace.trace import Trace

# Spreadsheets have no minus infinity: e to this number is 0 as well.
HIDDEN = -1e300
LONGEST = 8000  # characters of a formula; the programs take 8192
FUNCTIONS = {
    "exp": "EXP", "log": "LN", "sqrt": "SQRT", "sin": "SIN", "cos": "COS", "tan": "TAN",
    "tanh": "TANH", "erf": "ERF", "abs": "ABS", "max": "MAX", "min": "MIN",
}  # fmt: skip
COMPARISONS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
NUMBER_FORMAT = f'[<={HIDDEN / 10:.0E}]"-inf";[<0]-0.0000;0.0000'
INPUT_FILL, HEAD_FILL = "FFF3C4", "F2F2F2"
HOW_TO = (
    "Yellow cells are inputs: ids, embedding rows, positions, weights and masks. Every other "
    "number is a formula over them.",
    "Change a yellow cell and watch the numbers after it move, down to the logits on the last "
    "sheet.",
    "A mask cell is TRUE where a query may attend; write FALSE to hide. -inf stands for a hidden "
    "score.",
)


@dataclass(frozen=True)
class Place:
    """Where one element stands."""

    sheet: str
    row: int
    column: int

    def seen_from(self, sheet: str) -> str:
        """Write a reference to it in a formula on `sheet`."""
        from openpyxl.utils import get_column_letter

        address = f"{get_column_letter(self.column)}{self.row}"
        return address if sheet == self.sheet else f"'{self.sheet}'!{address}"


class LiveSheet:
    """A run laid out as a workbook.

    Attributes:
        places: Cell of the record -> where it stands.
        workbook: The openpyxl workbook.
    """

    def __init__(self, trace: Trace, labels: Labels | None = None) -> None:
        """Lay out the tensors, then write the formulas; see `Trace.to_excel`."""
        try:
            from openpyxl import Workbook
        except ImportError as error:
            raise ValueError(
                "a spreadsheet needs the package openpyxl: python -m pip install openpyxl"
            ) from error
        if trace.graph is None or not len(trace):
            raise ValueError("the run holds no tensor that can be explained")
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

    def cell(self, name: str, *index: int) -> Place:
        """Find an element of a named tensor.

        Args:
            name: In the trace, or of a weight.
            *index: One position for each axis.

        Raises:
            KeyError: No tensor of this name is in the workbook.
        """
        block = self.graph.record.named[name]
        place = 0
        for position, size in zip(index, block.shape, strict=True):
            place = place * size + position
        return self.places[block.start + place]

    def _groups(self) -> Iterator[tuple[str, list[Block]]]:
        """Gather the tensors into sheets: first what is given, then one sheet for each module."""
        named = self.graph.record.named
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
        sheet.column_dimensions["A"].width = 110

    def _lay_out(self, sheet: Worksheet, blocks: list[Block]) -> None:
        """Write the names around every matrix of a sheet, and note where its elements stand."""
        row = 1
        for block in blocks:
            sheet.cell(row, 1, f"{block.name} {self._table(block).sizes}").font = _font(bold=True)
            if block.name in self.trace and self.trace[block.name].code:
                sheet.cell(row + 1, 1, f"code: {self.trace[block.name].code}")
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
            sheet.cell(row, 1, matrix.title)
            row += 1
        width = len(matrix.column_names)
        for j, name in enumerate(matrix.column_names):
            head = sheet.cell(row, 2 + j, f"{matrix.column_axis} {name}".strip())
            head.fill, head.border = _fill(HEAD_FILL), _border(matrix.column_axis, "bottom")
        for i, name in enumerate(matrix.row_names):
            side = sheet.cell(row + 1 + i, 1, f"{matrix.row_axis} {name}".strip())
            side.fill, side.border = _fill(HEAD_FILL), _border(matrix.row_axis, "right")
            for j in range(width):
                self.places[cell + i * width + j] = Place(sheet.title, row + 1 + i, 2 + j)
        return row + len(matrix.row_names) + 2

    def _table(self, block: Block) -> Table:
        axes = block.axes or tuple(f"axis {n}" for n in range(len(block.shape)))
        sizes = dict(zip(axes, block.shape, strict=True))
        fitting = {}
        for axis, names in self.labels.items():
            groups = names if names and not isinstance(names[0], str) else [names]
            per_sentence = groups is names
            fits = axis in sizes and all(len(group) == sizes[axis] for group in groups)
            if fits and (not per_sentence or len(groups) == sizes.get("batch")):
                fitting[axis] = names
        return Table.of(block.values.view(block.shape), axes, fitting)

    def _write_values(self, sheet: Worksheet, block: Block) -> None:
        for number, value in enumerate(block.numbers):
            place = self.places[block.start + number]
            cell = sheet.cell(place.row, place.column)
            if block.made is None and block.copies is None:
                cell.value = value
                cell.fill = _fill(INPUT_FILL)
            else:
                cell.value = f"={self._formula(block, number)}"
                if len(cell.value) > LONGEST:
                    raise ValueError(
                        f"{block.name}: a formula of {len(cell.value):,} characters is more than "
                        f"the {LONGEST:,} that spreadsheets take; trace a smaller model"
                    )
            if not isinstance(value, bool):
                cell.number_format = NUMBER_FORMAT if isinstance(value, float) else "0"

    def _formula(self, block: Block, number: int) -> str:
        """Write the formula of one element, over the nearest elements that stand in a cell."""
        sheet = self.places[block.start + number].sheet
        if block.copies is not None:
            return self._refer(int(block.copies.flatten()[number]), sheet, 0)
        assert block.made is not None
        return self._operation(block.made, number, sheet, 0)

    def _refer(self, cell: int, sheet: str, outer: int) -> str:
        if cell in self.places:
            return self.places[cell].seen_from(sheet)
        block = self.graph.record.block(cell)
        if block.copies is not None:
            return self._refer(int(block.copies.flatten()[cell - block.start]), sheet, outer)
        if block.made is None:
            return _literal(self.graph.record.value(cell), outer)
        return self._operation(block.made, cell - block.start, sheet, outer)

    def _operation(self, made: Operation, number: int, sheet: str, outer: int) -> str:
        at = Element(made, number, self.graph.record.value)
        special = SPECIAL.get(made.name)
        if special is not None:
            return special(self, at, sheet)
        tree = expression_of(made, number, self.graph.record.value)
        return self._write(tree, sheet, outer)

    def _write(self, tree: Expression, sheet: str, outer: int) -> str:
        if isinstance(tree, Leaf):
            return self._refer(tree.cell, sheet, outer)
        if isinstance(tree, Number):
            return _literal(tree.value, outer)
        if isinstance(tree, Total | Dot):
            text = "+".join(self._write(part, sheet, 1) for part in terms(tree))
            return f"({text})" if outer >= 1 else text
        level = LEVEL.get(tree.name)
        if level is None:
            inside = ",".join(self._write(part, sheet, 0) for part in tree.parts)
            return f"{_function(tree)}({inside})"
        if tree.name == "neg":
            # In brackets always: a spreadsheet takes -2^2 for 4.
            return f"(-{self._write(tree.parts[0], sheet, 5)})"
        left, right = tree.parts
        first = self._write(left, sheet, level + (tree.name == "**"))
        second = self._write(right, sheet, level + (tree.name in ("-", "/", "**")))
        text = f"{first}{'^' if tree.name == '**' else tree.name}{second}"
        return f"({text})" if level < outer else text

    def _argument(self, at: Element, position: int, sheet: str) -> str:
        """Write the element of an argument that broadcasts to the place asked for."""
        part = at(position)
        return self._write(part, sheet, 1)

    def _embedding(self, at: Element, sheet: str) -> str:
        """Look the id up, so that another id takes another row."""
        *place, column = at.index
        table = at.cells(0)
        corner, end = (self.places.get(int(table[i, j])) for i, j in ((0, 0), (-1, -1)))
        if corner is None or end is None:
            return self._write(expression_of(at.operation, _flat(at), at.value), sheet, 1)
        name = self._refer(int(at.cells(1)[tuple(place)]), sheet, 1)
        area = f"{corner.seen_from(sheet)}:{end.seen_from(end.sheet)}"
        return f"INDEX({area},{name}+1,{column + 1})"

    def _masked_fill(self, at: Element, sheet: str) -> str:
        mask, kept, filled = (self._argument(at, n, sheet) for n in (1, 0, 2))
        return f"IF({mask},{filled},{kept})"

    def _where(self, at: Element, sheet: str) -> str:
        mask, yes, no = (self._argument(at, n, sheet) for n in range(3))
        return f"IF({mask},{yes},{no})"

    def _not(self, at: Element, sheet: str) -> str:
        return f"NOT({self._argument(at, 0, sheet)})"

    def _junction(self, at: Element, sheet: str) -> str:
        word = "OR" if at.operation.name.endswith("or") else "AND"
        return f"{word}({self._argument(at, 0, sheet)},{self._argument(at, 1, sheet)})"

    def _all(self, at: Element, sheet: str) -> str:
        keepdim = at.argument(2, at.keyword("keepdim", False))
        cells = at.line(at.argument(1), keepdim)
        word = "AND" if at.operation.name == "all" else "OR"
        return f"{word}({','.join(self._refer(cell, sheet, 0) for cell in cells)})"

    def _compare(self, at: Element, sheet: str) -> str:
        sign = COMPARISONS[at.operation.name]
        return f"({self._argument(at, 0, sheet)}{sign}{self._argument(at, 1, sheet)})"

    def _softmax(self, at: Element, sheet: str) -> str:
        """Subtract the maximum first, as softmax does."""
        dim = at.argument(1) % len(at.index)
        line = at.cells(0)[(*at.index[:dim], slice(None), *at.index[dim + 1 :])].tolist()
        scores = [self._refer(cell, sheet, 2) for cell in line]
        top = f"MAX({','.join(scores)})"
        powers = [f"EXP({score}-{top})" for score in scores]
        return f"{powers[at.index[dim]]}/({'+'.join(powers)})"


Special = Callable[[LiveSheet, Element, str], str]
SPECIAL: dict[str, Special] = {
    "embedding": LiveSheet._embedding,
    "masked_fill": LiveSheet._masked_fill,
    "where": LiveSheet._where,
    "bitwise_not": LiveSheet._not,
    "logical_not": LiveSheet._not,
    "bitwise_and": LiveSheet._junction,
    "logical_and": LiveSheet._junction,
    "bitwise_or": LiveSheet._junction,
    "logical_or": LiveSheet._junction,
    "all": LiveSheet._all,
    "any": LiveSheet._all,
    "_softmax": LiveSheet._softmax,
    **dict.fromkeys(COMPARISONS, LiveSheet._compare),
}


def write_sheet(path: str | Path, trace: Trace, labels: Labels | None = None) -> Path:
    """Write a run as a live spreadsheet; see `Trace.to_excel`.

    Args:
        path: The file, which ends in .xlsx.
        trace: The run.
        labels: Names instead of indices, as `show` takes them.
    """
    path = Path(path)
    if path.suffix != ".xlsx":
        raise ValueError(f"a spreadsheet ends in .xlsx, not {path.name!r}")
    live = LiveSheet(trace, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    live.workbook.save(path)
    return path


def _flat(at: Element) -> int:
    place = 0
    for position, size in zip(at.index, at.operation.shape, strict=True):
        place = place * size + position
    return place


def _function(tree: Apply) -> str:
    if tree.name not in FUNCTIONS:
        raise ValueError(
            f"no spreadsheet function for {tree.name}; add one to FUNCTIONS in twelve_lab.sheet"
        )
    return FUNCTIONS[tree.name]


def _literal(number: float, outer: int) -> str:
    if isinstance(number, bool):
        return "TRUE" if number else "FALSE"
    if math.isnan(number) or number == math.inf:
        raise ValueError(f"a spreadsheet cannot hold {number}")
    text = repr(HIDDEN if number == -math.inf else number).upper()
    return f"({text})" if outer and number < 0 else text


def _title(words: str, taken: set[str]) -> str:
    """Cut a sheet's title to the 31 characters that are allowed, and keep it unique."""
    short = re.sub(r"[\[\]:*?/\\]", "-", words)
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


def _font(**options: Any) -> Any:
    from openpyxl.styles import Font

    return Font(**options)


def _fill(colour: str) -> Any:
    from openpyxl.styles import PatternFill

    return PatternFill("solid", start_color=colour)


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
