"""Matrices on a canvas: cells with numbers, and brackets for the axes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

from twelve_lab.draw.canvas import TEXT_SIZE, Canvas
from twelve_lab.draw.faces import ROOM, draw_face, name_width, word_of
from twelve_lab.show.faces import FACES
from twelve_lab.show.palette import INK, PAPER
from twelve_lab.show.table import Block, Value

LINE = 0.23  # height of a line of names
GAP = 0.1


class Cell(NamedTuple):
    """Content and style of one cell."""

    text: str
    fill: str = PAPER
    hatched: bool = False
    bold: bool = False
    larger: float = 0.0  # points added to the size of the text


Paint = Callable[[Value], Cell]


def without_rows(block: Block) -> Block:
    """Remove the row axis and the row names, for a matrix whose neighbour shows them."""
    return replace(block, row_axis="", row_names=[""] * len(block.row_names))


def bare(block: Block) -> Block:
    """Remove both axes and the names of rows and columns."""
    no_columns = [""] * len(block.column_names)
    return replace(without_rows(block), column_axis="", column_names=no_columns)


def _with_bold_largest(cells: list[Cell], values: list[Value]) -> list[Cell]:
    """Make the largest number of a row bold, if no other cell prints the same text."""
    numbers = [value for value in values if isinstance(value, float)]
    texts = [cell.text for cell in cells]
    if not numbers:
        return cells
    largest = texts[values.index(max(numbers))]
    is_alone = texts.count(largest) == 1
    return [cell._replace(bold=is_alone and cell.text == largest) for cell in cells]


class Grid:
    """One matrix: the row axis on the left, the column axis on top, and the cells."""

    def __init__(
        self,
        canvas: Canvas,
        block: Block,
        paint: Paint,
        *,
        notes: Mapping[str, str] | None = None,
        size: float = TEXT_SIZE,
        title: str = "",
        cell_height: float = 0.33,
        cell_width: float | None = None,
        named: bool = True,
        bold_largest: bool = False,
    ):
        """Measure the matrix; `draw` draws it on the canvas.

        Args:
            canvas: Canvas of the matrix.
            block: Numbers and their labels.
            paint: Function that maps a value to a cell.
            notes: axis -> words added to its name, such as "asks".
            size: Size of the text, in points.
            title: Title above the matrix.
            cell_height: Height of a cell, in inches.
            cell_width: Width of a cell, in inches; by default, it fits every number and name.
            named: Whether to show the name of the row axis; its bracket is always drawn.
            bold_largest: Whether to make the largest number of each row bold.
        """
        self.canvas, self.block, self.size, self.title = canvas, block, size, title
        self.cells = [[paint(value) for value in row] for row in block.rows]
        if bold_largest:
            pairs = zip(self.cells, block.rows, strict=True)
            self.cells = [_with_bold_largest(cells, values) for cells, values in pairs]
        notes = notes or {}
        row_axis = "\n".join(filter(None, (block.row_axis, notes.get(block.row_axis))))
        self.row_axis = row_axis if named else ""
        self.column_axis = " ".join(filter(None, (block.column_axis, notes.get(block.column_axis))))
        self.row_names, self.column_names = block.row_names, block.column_names
        self.cell_height = cell_height
        self.cell_width = self._needed_width() if cell_width is None else cell_width
        self.title_width = canvas.width_of(title, size, bold=True) if title else 0.0
        self.names_width = max(name_width(canvas, name, size) for name in self.row_names)
        self.margin_top = (
            LINE * bool(title)
            + (LINE + GAP) * bool(self.column_axis)
            + LINE * any(self.column_names)
        )
        self.left = self.top = 0.0

    def _needed_width(self) -> float:
        """Return the width of a column that fits every name and number."""
        cells = [Cell(name) for name in self.column_names] + [c for row in self.cells for c in row]
        width = self.canvas.width_of
        widest = max(width(cell.text, self.size, bold=cell.bold) for cell in cells)
        return max(0.38, widest + (0.12 if self.size >= TEXT_SIZE else 0.06))

    @property
    def margin_left(self) -> float:
        """Return the width of the names to the left of the cells."""
        axis = self.canvas.width_of(self.row_axis, self.size) + 0.08 if self.row_axis else 0.0
        return axis + (self._bracket_gap if self.block.row_axis or self.names_width else 0.0)

    @property
    def _bracket_gap(self) -> float:
        """Return the distance from the row bracket to the cells, with the names between them."""
        return GAP + (self.names_width + GAP if self.names_width else 0.0)

    @property
    def cells_width(self) -> float:
        """Return the width of all columns."""
        return self.cell_width * len(self.block.column_names)

    @property
    def width(self) -> float:
        """Return the width of the title, or of the matrix with its labels if that is wider."""
        head = self.canvas.width_of(self.column_axis, self.size) if self.column_axis else 0.0
        return max(self.margin_left + max(self.cells_width, head), self.title_width)

    @property
    def height(self) -> float:
        """Return the height of the cells and of everything above them."""
        return self.margin_top + self.cell_height * len(self.cells)

    @property
    def right(self) -> float:
        """Return the right edge of the cells."""
        return self.left + self.cells_width

    @property
    def bottom(self) -> float:
        """Return the lower edge of the cells."""
        return self.top + self.cell_height * len(self.cells)

    def centre(self, i: int, j: int) -> tuple[float, float]:
        """Return the centre of a cell."""
        return self.left + (j + 0.5) * self.cell_width, self.row_middle(i)

    def row_middle(self, i: int) -> float:
        """Return the y coordinate of the centre of a row."""
        return self.top + (i + 0.5) * self.cell_height

    def draw(self, x: float, y: float) -> Self:
        """Draw the matrix and its labels with the upper left corner at (x, y)."""
        if self.title:
            self.canvas.text(x, y + LINE / 2, self.title, size=self.size, align="left", bold=True)
        return self.draw_cells_at(x + self.margin_left, y + self.margin_top)

    def draw_cells_at(self, x: float, y: float) -> Self:
        """Draw the matrix with the upper left corner of its cells at (x, y)."""
        self.left, self.top = x, y
        for i, row in enumerate(self.cells):
            for j, cell in enumerate(row):
                corner = x + j * self.cell_width, y + i * self.cell_height
                look = {"fill": cell.fill, "hatched": cell.hatched}
                self.canvas.box(*corner, self.cell_width, self.cell_height, **look)
                style = {"size": self.size + cell.larger, "bold": cell.bold}
                ground = PAPER if cell.hatched else ""
                self.canvas.text(*self.centre(i, j), cell.text, ground=ground, **style)
        self._draw_row_axis()
        self._draw_column_axis()
        return self

    def frame(self, i: int, j: int, rows: int = 1, columns: int = 1) -> None:
        """Draw a thick frame around a block of cells."""
        x, y = self.left + j * self.cell_width, self.top + i * self.cell_height
        size = columns * self.cell_width, rows * self.cell_height
        self.canvas.box(x, y, *size, fill="none", edge=INK, line=2.4)

    def _draw_row_axis(self) -> None:
        right = self.left - GAP
        for i, name in enumerate(self.row_names):
            middle = self.row_middle(i)
            self.canvas.text(right, middle, name, size=self.size, align="right")
            draw_face(self.canvas, name, right - name_width(self.canvas, name, self.size), middle)
        if self.block.row_axis:
            x = self.left - self._bracket_gap
            self.canvas.bracket(self.block.row_axis, (x, self.top), (x, self.bottom), "left")
            middle = (self.top + self.bottom) / 2
            self.canvas.text(x - 0.08, middle, self.row_axis, size=self.size, align="right")

    def _draw_column_axis(self) -> None:
        y = self.top
        if any(self.column_names):
            widths = [name_width(self.canvas, name, self.size) for name in self.column_names]
            for j, (name, width) in enumerate(zip(self.column_names, widths, strict=True)):
                x = self.centre(0, j)[0]
                # Columns are not widened to make room for a face.
                if word_of(name) in FACES and max(widths) <= self.cell_width:
                    draw_face(self.canvas, name, x - width / 2, y - LINE / 2)
                    x += ROOM / 2
                self.canvas.text(x, y - LINE / 2, name, size=self.size)
            y -= LINE
        if self.column_axis:
            y -= 0.08
            self.canvas.bracket(self.block.column_axis, (self.left, y), (self.right, y), "top")
            width = max(self.cells_width, self.canvas.width_of(self.column_axis, self.size))
            x = self.left + width / 2
            self.canvas.text(x, y - LINE / 2 - 0.03, self.column_axis, size=self.size)


def number_grid(
    canvas: Canvas,
    rows: Sequence[Sequence[Value]],
    paint: Paint,
    *,
    row_axis: str = "",
    row_names: Sequence[str] | None = None,
    column_names: Sequence[str] | None = None,
    **style: Any,
) -> Grid:
    """Create a matrix without a column axis, with optional row names.

    Args:
        canvas: Canvas of the matrix.
        rows: The numbers.
        paint: Function that maps a value to a cell.
        row_axis: Axis of the bracket beside the rows, if any.
        row_names: Names of the rows.
        column_names: Names of the columns.
        style: Further arguments of `Grid`.
    """
    names = list(row_names or [""] * len(rows)), list(column_names or [""] * len(rows[0]))
    block = Block((), [], row_axis, "", *names, [list(row) for row in rows])
    return Grid(canvas, block, paint, named=False, **style)


def widen(grids: Sequence[Grid], *names: str) -> None:
    """Set measures of several matrices to the largest among them.

    Args:
        grids: The matrices, modified in place.
        names: Measures: "cell_width", "names_width" or "title_width".
    """
    for name in names:
        widest = max(getattr(grid, name) for grid in grids)
        for grid in grids:
            setattr(grid, name, widest)
