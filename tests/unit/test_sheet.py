"""The live spreadsheet: LibreOffice computes what the model computed, also after an edit."""

import itertools
import math
import shutil
import subprocess

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from twelve import SwiGLU
from twelve_lab import Trace, example
from twelve_lab.cli import main
from twelve_lab.sheet import HIDDEN, LiveSheet, write_sheet
from twelve_lab.show.format import format_number

openpyxl = pytest.importorskip("openpyxl")
OFFICE = shutil.which("soffice") or shutil.which("libreoffice")
needs_office = pytest.mark.skipif(
    OFFICE is None, reason="no LibreOffice on this machine: the formulas were not recalculated"
)


def recalculated(live, folder):
    """Save a workbook, let LibreOffice compute it, and read the values."""
    source, target = folder / "source.xlsx", folder / "computed"
    live.workbook.save(source)
    profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
    command = [OFFICE, "--headless", profile, "--convert-to", "xlsx", "--outdir", target, source]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return openpyxl.load_workbook(target / "source.xlsx", data_only=True)


def differences(values, live, trace):
    """Compare every traced element with its cell; return how many there were, and those off."""
    count, off = 0, []
    for name, entry in trace.items():
        for index in itertools.product(*map(range, entry.shape)):
            place = live.cell(name, *index)
            found = values[place.sheet].cell(place.row, place.column).value
            wanted = entry.value[index].item()
            count += 1
            if wanted == -math.inf:
                right = found == HIDDEN
            else:
                right = isinstance(found, int | float) and abs(found - wanted) < 1e-9
            if not right:
                off.append((name, index, found, wanted))
    return count, off


def run(model, src, src_mask, tgt_mask):
    with Trace(model) as trace:
        model(src, example.tgt, src_mask=src_mask, tgt_mask=tgt_mask)
    return trace


@needs_office
@pytest.mark.parametrize("title", example.CONFIGURATIONS)
def test_every_cell_equals_the_trace_in_every_configuration(title, tmp_path):
    trace = example.trace(on="cpu", **example.CONFIGURATIONS[title])
    live = LiveSheet(trace, example.words)
    count, off = differences(recalculated(live, tmp_path), live, trace)
    print(f"{count} cells recalculated")
    assert off == [] and count > 500


@needs_office
def test_an_edited_sheet_equals_a_model_with_the_same_edits(tmp_path):
    model = example.model()
    src_mask, tgt_mask = example.src_mask.clone(), example.tgt_mask.clone()
    live = LiveSheet(run(model, example.src, src_mask, tgt_mask), example.words)
    before = live.trace["logits"].value

    def put(name, index, value):
        place = live.cell(name, *index)
        live.workbook[place.sheet].cell(place.row, place.column).value = value

    put("src_embedding.weight", (2, 1), 0.9)
    put("encoder.layers.0.self_attention.w_q.weight", (0, 2), -0.7)
    put("src_mask", (1, 0, 0, 1), False)
    with torch.no_grad():
        model.src_embedding.weight[2, 1] = 0.9
        model.encoder.layers[0].self_attention.w_q.weight[0, 2] = -0.7
    src_mask[1, 0, 0, 1] = False
    edited = run(model, example.src, src_mask, tgt_mask)
    _, off = differences(recalculated(live, tmp_path), live, edited)
    assert off == [] and not torch.allclose(edited["logits"].value, before)

    # Another word, and a row that has nothing left to look at.
    src = example.src.clone()
    src[0, 1], src_mask[1], tgt_mask[0, 0, 1] = 3, False, False
    for index, value in (((1, 0, 0, 0), False), ((1, 0, 0, 1), False)):
        put("src_mask", index, value)
    put("src", (0, 1), 3)
    put("tgt_mask", (0, 0, 1, 0), False)
    put("tgt_mask", (0, 0, 1, 1), False)
    hidden = run(model, src, src_mask, tgt_mask)
    _, off = differences(recalculated(live, tmp_path), live, hidden)
    assert off == []


@needs_office
def test_a_layer_of_ones_own_becomes_a_sheet_too(tmp_path):
    torch.manual_seed(0)
    layer, x = SwiGLU(3, 4).double(), torch.randn(2, 3, dtype=torch.float64)
    with Trace(layer) as trace:
        y: Float[Tensor, "seq d_model"] = layer(x)
        z: Float[Tensor, "seq d_model"] = torch.where(y > 0, -(y**2), y.abs().sqrt())
    assert z.shape == (2, 3)
    live = LiveSheet(trace)
    count, off = differences(recalculated(live, tmp_path), live, trace)
    assert off == [] and count == 2 * 4 * 3 + 2 * 3 * 3


@needs_office
def test_numbers_are_shown_as_on_every_other_page(tmp_path):
    trace = example.trace(on="cpu")
    live = LiveSheet(trace, example.words)
    live.workbook.save(tmp_path / "walk.xlsx")
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    every_sheet = "csv:Text - txt - csv (StarCalc):9,34,76,1,,0,false,true,true,false,false,-1"
    command = [OFFICE, "--headless", profile, "--convert-to", every_sheet]
    command += ["--outdir", tmp_path, tmp_path / "walk.xlsx"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    for name in ("logits", "encoder.layers.0.self_attention.masked_scores"):
        for index in itertools.product(*map(range, trace[name].shape)):
            place = live.cell(name, *index)
            text = (tmp_path / f"walk-{place.sheet}.csv").read_text(encoding="utf-8")
            shown = text.splitlines()[place.row - 1].split("\t")[place.column - 1]
            assert shown == format_number(trace[name].value[index].item())


def test_only_inputs_are_numbers_and_everything_else_is_a_formula():
    trace = example.trace(on="cpu")
    live = LiveSheet(trace, example.words)
    for name, block in trace.graph.record.named.items():
        place = live.cell(name, *(0 for _ in block.shape))
        value = live.workbook[place.sheet].cell(place.row, place.column).value
        assert isinstance(value, str) == (name in trace), name
        assert name not in trace or value.startswith("=")


def test_formulas_are_plain_functions_that_refer_to_earlier_sheets():
    live = LiveSheet(example.trace(on="cpu"), example.words)
    order = live.workbook.sheetnames
    assert order[:2] == ["read me", "inputs"] and order[-1] == "12 logits"
    for sheet in live.workbook:
        for cell in itertools.chain.from_iterable(sheet.iter_rows()):
            text = str(cell.value)
            if cell.data_type != "f":
                continue
            assert "_xl" not in text and "{" not in text and "LAMBDA" not in text
            for name in order:
                if f"'{name}'!" in text:
                    assert order.index(name) < order.index(sheet.title)


def test_the_sheet_names_tokens_axes_and_code():
    live = LiveSheet(example.trace(on="cpu"), example.words)
    sheet = live.workbook["12 logits"]
    column = [row[0].value for row in sheet.iter_rows()]
    assert "logits (batch=2, tgt=2, vocab=4)" in column
    assert "code: self.output_projection(decoder_output)" in column
    assert "batch 0" in column and "tgt <start>" in column
    assert all(len(name) <= 31 for name in live.workbook.sheetnames)


def test_the_command_writes_the_sheet(tmp_path, capsys):
    path = tmp_path / "new" / "walk.xlsx"
    assert main(["sheet", str(path), "--heads", "1", "--device", "cpu"]) == 0
    assert openpyxl.load_workbook(path).sheetnames[-1] == "12 logits"
    assert str(path) in capsys.readouterr().out


def test_errors_say_what_is_wrong(tmp_path, monkeypatch):
    trace = example.trace(on="cpu")
    with pytest.raises(ValueError, match=r"ends in .xlsx, not 'walk.csv'"):
        trace.to_excel(tmp_path / "walk.csv")
    with Trace(explain=False) as bare:
        pass
    with pytest.raises(ValueError, match="holds no tensor that can be explained"):
        bare.to_excel(tmp_path / "walk.xlsx")
    monkeypatch.setattr("twelve_lab.sheet.LONGEST", 100)
    with pytest.raises(ValueError, match=r"a formula of \d+ characters is more than the 100"):
        write_sheet(tmp_path / "walk.xlsx", trace)
    with Trace() as lost:
        x: Float[Tensor, " n"] = torch.ones(2) / 0
        y: Float[Tensor, " n"] = x.masked_fill(x > 0, math.nan)
    assert y.isnan().all()
    with pytest.raises(ValueError, match="a spreadsheet cannot hold nan"):
        lost.to_excel(tmp_path / "walk.xlsx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ValueError, match="needs the package openpyxl"):
        example.trace(on="cpu").to_excel(tmp_path / "walk.xlsx")
