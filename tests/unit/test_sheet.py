"""The live spreadsheet: LibreOffice and the model agree, even after an edit."""
# ruff: noqa: F841 (a trace reads the local variables)

import itertools
import math
import operator
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from twelve import SwiGLU, TokenEmbedding
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.explain.expression import Apply, Leaf, Number
from twelve_lab.explain.graph import Graph
from twelve_lab.explain.tape import Tape
from twelve_lab.spreadsheet import HIDDEN, LONGEST, Formulas, LiveSheet, Place, write_sheet

openpyxl = pytest.importorskip("openpyxl")
OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
needs_office = pytest.mark.skipif(
    OFFICE is None, reason="no LibreOffice on this machine: the formulas were not recalculated"
)


def in_office(live, folder):
    """Save a workbook, recalculate it in LibreOffice, and return a function that reads a cell."""
    live.workbook.save(folder / "walk.xlsx")
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    target = folder / "computed"
    command = [OFFICE, "--headless", profile, "--convert-to", "xlsx", "--outdir", target]
    command.append(folder / "walk.xlsx")
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    book = openpyxl.load_workbook(target / "walk.xlsx", data_only=True)
    return lambda sheet, row, column: book[sheet].cell(row, column).value


def in_python(live, folder=None):
    return Calculator(live).at


BOTH_WAYS = pytest.mark.parametrize(
    "computed", [in_python, pytest.param(in_office, marks=[pytest.mark.slow, needs_office])]
)


class Calculator:
    """Evaluate a workbook without a spreadsheet program, with Python's operator precedence."""

    def __init__(self, live):
        self.workbook, self.known = live.workbook, {}

    def at(self, sheet, row, column):
        return self.value(sheet, f"{openpyxl.utils.get_column_letter(column)}{row}")

    def value(self, sheet, address):
        """Compute one cell and cache its value."""
        if (sheet, address) not in self.known:
            cell = self.workbook[sheet][address]
            value = cell.value
            if cell.data_type == "f":
                value = self.compute(sheet, value[1:])
            self.known[sheet, address] = value
        return self.known[sheet, address]

    def compute(self, sheet, text):
        parts = re.split(r"((?:'(?:[^']|'')+'!)?\b[A-Z]+[0-9]+(?::[A-Z]+[0-9]+)?\b)", text)
        for place, part in enumerate(parts):
            if place % 2:
                home, _, address = part.rpartition("!")
                home = home[1:-1].replace("''", "'") or sheet
                parts[place] = f"at({home!r}, {address!r})"
            else:
                part = re.sub(r"(?<![<>])=", "==", part).replace("<>", "!=").replace("^", "**")
                parts[place] = re.sub(r"\b(IF|AND|OR|NOT)\b", r"\1_", part)
        return eval("".join(parts), {"at": self.area, **SPREADSHEET})

    def area(self, sheet, address):
        if ":" not in address:
            return self.value(sheet, address)
        rows = self.workbook[sheet][address]
        return [[self.value(sheet, cell.coordinate) for cell in row] for row in rows]


SPREADSHEET = {
    "EXP": math.exp, "LN": math.log, "SQRT": math.sqrt, "SIN": math.sin, "COS": math.cos,
    "TAN": math.tan, "TANH": math.tanh, "ERF": math.erf, "ABS": abs, "MIN": min,
    "MAX": lambda *parts: max(*parts[0]) if isinstance(parts[0], list) else max(parts),
    "TRUE": True, "FALSE": False, "IF_": lambda test, yes, no: yes if test else no,
    "AND_": lambda *parts: all(parts), "OR_": lambda *parts: any(parts), "NOT_": operator.not_,
    "INDEX": lambda area, row, column: area[row - 1][column - 1],
    "CHOOSE": lambda number, *texts: texts[number - 1],
    "MATCH": lambda value, area, exact: area[0].index(value) + 1,
}  # fmt: skip


def differences(value_at, live, trace):
    """Compare every traced element with its cell; return the number compared and the mismatches."""
    count, off = 0, []
    for name, entry in trace.items():
        for index in itertools.product(*map(range, entry.shape)):
            place = live.cell(name, *index)
            value = value_at(place.sheet, place.row, place.column)
            wanted = entry.value[index].item()
            count += 1
            if wanted == -math.inf:
                right = value == HIDDEN
            else:
                right = isinstance(value, int | float) and abs(value - wanted) < 1e-9
            if not right:
                off.append((name, index, value, wanted))
    return count, off


def cell_of(live, name, *index):
    place = live.cell(name, *index)
    return live.workbook[place.sheet].cell(place.row, place.column)


def run(model, src, src_mask, tgt_mask):
    with Trace(model) as trace:
        model(src, example.tgt, src_mask=src_mask, tgt_mask=tgt_mask)
    return trace


CONFIGURATIONS = [
    {}, {"activation": "gelu", "norm_first": False, "num_heads": 2},
    *(pytest.param(each, marks=pytest.mark.slow) for each in example.CONFIGURATIONS.values()),
]  # fmt: skip


@pytest.mark.parametrize("switches", CONFIGURATIONS, ids=str)
def test_sheet_formulas_compute_the_numbers_of_the_run(switches):
    trace = example.trace(on="cpu", **switches)
    live = LiveSheet(trace, example.words)
    count, off = differences(in_python(live), live, trace)
    assert off == [] and count > (200 if "decoder_only" in switches else 500)


@BOTH_WAYS
def test_edited_sheet_equals_a_model_with_the_same_edits(computed, tmp_path):
    model = example.model()
    src_mask, tgt_mask = example.src_mask.clone(), example.tgt_mask.clone()
    live = LiveSheet(run(model, example.src, src_mask, tgt_mask), example.words)
    before = live.trace["logits"].value
    cell_of(live, "src_embedding.weight", 2, 1).value = 0.9
    cell_of(live, "encoder.layers.0.self_attention.w_q.weight", 0, 2).value = -0.7
    cell_of(live, "src_mask", 1, 0, 0, 1).value = False
    with torch.no_grad():
        model.src_embedding.weight[2, 1] = 0.9
        model.encoder.layers[0].self_attention.w_q.weight[0, 2] = -0.7
    src_mask[1, 0, 0, 1] = False
    edited = run(model, example.src, src_mask, tgt_mask)
    _, off = differences(computed(live, tmp_path), live, edited)
    assert off == [] and not torch.allclose(edited["logits"].value, before)

    # Another word, and fully masked rows.
    src = example.src.clone()
    src[0, 1], src_mask[1], tgt_mask[0, 0, 1] = 3, False, False
    cell_of(live, "src", 0, 1).value = 3
    for key in (0, 1):
        cell_of(live, "src_mask", 1, 0, 0, key).value = False
        cell_of(live, "tgt_mask", 0, 0, 1, key).value = False
    hidden = run(model, src, src_mask, tgt_mask)
    _, off = differences(computed(live, tmp_path), live, hidden)
    assert off == []


@BOTH_WAYS
def test_sheet_of_other_layers_and_operations(computed, tmp_path):
    torch.manual_seed(0)
    layer, x = SwiGLU(3, 4).double(), torch.randn(2, 3, dtype=torch.float64)
    with Trace(layer) as trace:
        y: Float[Tensor, "seq d_model"] = layer(x)
        z: Float[Tensor, "seq d_model"] = torch.where(y > 0, -(y**2), y.abs().sqrt())
        minus: Float[Tensor, "seq d_model"] = (-y) ** 2 - -y - (-(y**2) - 2 ** (-y))
        above: Bool[Tensor, "seq d_model"] = ((y > 0) == (x != 0)) & ~(y <= x) | (x >= y * 2)
        lit: Float[Tensor, "seq d_model"] = 3 * above - (y < x) / (1 + x.softmax(1))
        some: Bool[Tensor, " seq"] = (x > x[:, :1]).any(1) & torch.logical_not((x >= 0).all(1))
        large: Float[Tensor, "seq d_model"] = (x * 1e5).softmax(1)
        twice: Float[Tensor, "seq d_model"] = 2 / x.softmax(1) - (x - (y - z)) / (x / y)
    live = LiveSheet(trace)
    count, off = differences(computed(live, tmp_path), live, trace)
    assert off == [] and count == 2 * 4 * 3 + 2 * 3 * 8 + 2


@pytest.fixture(scope="module")
def live():
    """Return the example as a workbook that all tests share; do not modify it."""
    torch.set_default_dtype(torch.float64)
    return LiveSheet(example.trace(on="cpu"), example.words)


def test_sheet_formulas_are_plain_and_refer_to_earlier_sheets(live):
    order = live.workbook.sheetnames
    assert order[:2] == ["read me", "inputs"] and order[-1] == "12 logits"
    for sheet in live.workbook.worksheets[1:]:
        for cell in itertools.chain.from_iterable(sheet.iter_rows()):
            text = str(cell.value)
            if cell.data_type != "f":
                continue
            assert "_xl" not in text and "{" not in text and "LAMBDA" not in text
            for name in order:
                if f"'{name}'!" in text:
                    assert order.index(name) < order.index(sheet.title)


@BOTH_WAYS
def test_first_sheet_has_the_words_that_are_read_and_that_come_next(computed, tmp_path):
    live = LiveSheet(example.trace(on="cpu"), example.words)
    row = next(cell.row for cell in live.workbook.active["A"] if cell.value == "src, batch 0")

    def words():
        value_at = computed(live, tmp_path)
        return [[value_at("read me", row + i, j) for j in (2, 3)] for i in (0, 1, 3, 4, 6, 7)]

    read = [["<pad>", "cat"], ["dog", "fish"], ["<start>", "cat"], ["<start>", "fish"]]
    assert words() == [*read, ["cat", "fish"], ["cat", "dog"]]
    cell_of(live, "src", 0, 1).value = 2
    cell_of(live, "output_projection.bias", 3).value = 9.0
    read[0][1] = "dog"
    assert words() == [*read, ["fish", "fish"], ["fish", "fish"]]


def test_sheet_shades_computed_numbers_on_both_sides_of_zero(live):
    shaded = {
        f"{sheet.title}!{area.sqref}": area.rules[0].colorScale
        for sheet in live.workbook
        for area in sheet.conditional_formatting
    }
    place = live.cell("logits", 0, 0, 0)
    scale = shaded[f"{place.sheet}!B{place.row}:E{place.row + 6}"]
    limit = live.trace["logits"].value.abs().max().item()
    assert [float(end.val) for end in scale.cfvo] == [-limit, 0, limit]
    assert not any(area.startswith("inputs!") for area in shaded)
    assert len(shaded) == sum(each.value.is_floating_point() for each in live.trace.values())


def test_sheet_formula_names_what_a_spreadsheet_lacks():
    tape = Tape()
    tape.cells(torch.tensor([0.5]))
    live, x = SimpleNamespace(graph=Graph(tape), places={}), Leaf(0)
    with pytest.raises(ValueError, match="no spreadsheet function for sinh; add one to FUNCTIONS"):
        Formulas(live, "sheet").write(Apply("sinh", (x,)))
    with pytest.raises(ValueError, match="a spreadsheet cannot hold inf"):
        Formulas(live, "sheet").write(Number(math.inf))


def add_mask(scores: Float[Tensor, "q k"], mask: Float[Tensor, "q k"]) -> None:
    weights: Float[Tensor, "q k"] = (scores + mask).softmax(-1)


def test_sheet_hides_by_an_additive_mask_of_minus_infinity():
    mask = torch.tensor([[0.0, -math.inf], [0.0, 0.0]])
    with Trace() as trace:
        add_mask(torch.zeros(2, 2), mask)
    live = LiveSheet(trace)
    assert cell_of(live, "add_mask.mask", 0, 1).value == HIDDEN
    assert differences(in_python(live), live, trace) == (4, [])
    for number in (math.inf, math.nan):
        with Trace() as trace:
            add_mask(torch.zeros(2, 2), mask.masked_fill(mask < 0, number))
        with pytest.raises(ValueError, match=f"a spreadsheet cannot hold {number}"):
            LiveSheet(trace)


def test_sheet_looks_up_a_transposed_embedding_elsewhere():
    table = TokenEmbedding(2, 2)
    with Trace(table) as trace:
        y: Float[Tensor, "seq d_model"] = F.embedding(torch.tensor([1, 0]), table.weight.T)
        z: Float[Tensor, "seq d_model"] = F.embedding(torch.tensor([1, 0]), table.weight)
        made: Float[Tensor, "seq d_model"] = F.embedding(torch.tensor([1, 0]), 2 * table.weight)
    live = LiveSheet(trace)
    assert differences(in_python(live), live, trace) == (12, [])
    assert "INDEX(" in cell_of(live, "z", 0, 1).value


@pytest.mark.parametrize("name", ["=1+1", "it's", "a\x00b\x1b", "#N/A", "\ud800", "-2+3", "[a]:*"])
def test_sheet_writes_any_name_as_text(name, tmp_path):
    parts = nn.ModuleDict({name: TokenEmbedding(3, 2)})
    with Trace(parts) as trace:
        y: Float[Tensor, "batch seq d_model"] = parts[name](torch.tensor([[0, 2]])) * 2
    path = trace.to_excel(tmp_path / "own.xlsx", {"d_model": [name, "=2"]})
    live, book = LiveSheet(trace, {"d_model": [name, "=2"]}), openpyxl.load_workbook(path)
    shown = name.encode("unicode_escape").decode()
    cells = [(sheet, cell) for sheet in book for row in sheet.iter_rows() for cell in row]
    texts = [cell.value for _, cell in cells]
    assert any(str(text).startswith(f"{shown}.vectors (batch=1, seq=2") for text in texts)
    assert f"d_model {shown}" in texts
    for sheet, cell in cells:
        place = Place(sheet.title, cell.row, cell.column)
        assert cell.data_type != "f" or place in live.places.values()
        assert cell.data_type != "e"
    assert differences(in_python(live), live, trace)[1] == []


def test_sheet_command_writes_the_file(tmp_path, capsys):
    path = tmp_path / "new" / "walk.xlsx"
    assert main(["sheet", str(path), "--heads", "1", "--device", "cpu"]) == 0
    assert openpyxl.load_workbook(path).sheetnames[-1] == "12 logits"
    assert str(path) in capsys.readouterr().out


def test_sheet_rejects_what_it_cannot_write(tmp_path, monkeypatch):
    trace = example.trace(on="cpu")
    with pytest.raises(ValueError, match=r"ends in .xlsx, not 'walk.csv'"):
        trace.to_excel(tmp_path / "walk.csv")
    for empty in (Trace(explain=False), Trace()):
        with pytest.raises(ValueError, match="holds no tensor that can be explained"):
            empty.to_excel(tmp_path / "walk.xlsx")
    assert LONGEST < 8192
    monkeypatch.setattr("twelve_lab.spreadsheet.LONGEST", 100)
    with pytest.raises(ValueError, match=r"a formula of \d+ characters is more than the 100"):
        write_sheet(tmp_path / "walk.xlsx", trace)
    with Trace() as complex_numbers:
        z: Float[Tensor, " n"] = torch.ones(2) * 1j
    with pytest.raises(ValueError, match=r"z: holds no plain numbers \(torch.complex128\)"):
        complex_numbers.to_excel(tmp_path / "walk.xlsx")
    monkeypatch.setattr("twelve_lab.spreadsheet.WIDEST", 3)
    with pytest.raises(ValueError, match=r"3 columns are more than the 2 .* trace a smaller model"):
        trace.to_excel(tmp_path / "walk.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match="needs the package openpyxl"):
        trace.to_excel(tmp_path / "walk.xlsx")
    assert not list(tmp_path.iterdir())
