"""Tests of the tests: a notebook that someone spoilt does not pass."""

import copy
import re
import subprocess
import sys

import nbformat
import pytest

import notebook_checks as nc

PATH = nc.ROOT / "notebooks" / "01_masking.ipynb"


@pytest.fixture
def notebook():
    return nc.read(PATH)


def problems(notebook):
    return nc.problems_of(notebook, nc.chapter_of(PATH))


def printing(notebook):
    return [c for c in nc.code_cells(notebook) if nc.stream_text(c)]


def change_a_digit(notebook):
    for cell in printing(notebook):
        for out in cell.outputs:
            if re.search(r"\d", out.get("text", "")):
                out.text = re.sub(
                    r"\d(?=\D*$)",
                    lambda m: str((int(m.group()) + 1) % 10),
                    out.text,
                )
                return
    raise AssertionError("no cell prints a digit")


def swap_set_up_with_the_last_cell(notebook):
    cells = notebook.cells
    code = [i for i, cell in enumerate(cells) if cell.cell_type == "code"]
    first, last = code[0], code[-1]
    cells[first], cells[last] = cells[last], cells[first]


def renumber(notebook):
    for count, cell in enumerate(nc.code_cells(notebook), 1):
        cell.execution_count = count
        for out in cell.outputs:
            if "execution_count" in out:
                out.execution_count = count


def test_the_notebook_has_no_problem(notebook):
    assert problems(notebook) == {}


def test_deleted_outputs_are_seen(notebook):
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "code" and nc.stream_text(cell):
            spoilt = copy.deepcopy(notebook)
            spoilt.cells[i].outputs = []
            assert "outputs_present" in problems(spoilt), cell.id


def test_a_deleted_count_is_seen(notebook):
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            spoilt = copy.deepcopy(notebook)
            spoilt.cells[i].execution_count = None
            assert "execution_counts" in problems(spoilt), cell.id


def test_swapped_cells_are_seen(notebook):
    swap_set_up_with_the_last_cell(notebook)
    assert "execution_counts" in problems(notebook)


def test_a_dropped_alt_text_is_seen(notebook):
    figures = [
        c for c in nc.code_cells(notebook) if nc.PICTURES & nc.mime_types(c)
    ]
    assert figures
    del figures[0].metadata["mystnb"]
    assert "figures" in problems(notebook)


def test_a_dropped_picture_is_seen(notebook):
    figure = next(
        c for c in nc.code_cells(notebook) if nc.PICTURES & nc.mime_types(c)
    )
    figure.outputs = [o for o in figure.outputs if "data" not in o]
    assert "figures" in problems(notebook)


def first(notebook, kind):
    return next(c for c in notebook.cells if c.cell_type == kind)


def replace_everywhere(notebook, old, new):
    assert any(old in cell.source for cell in notebook.cells)
    for cell in notebook.cells:
        cell.source = cell.source.replace(old, new)


def repeat_a_tag(notebook):
    tagged = next(c for c in notebook.cells if nc.TAG.search(c.source))
    notebook.cells.append(tagged)


def add_output(**fields):
    def spoil(notebook):
        output = nbformat.v4.new_output("stream", **fields)
        first(notebook, "code").outputs.append(output)

    return spoil


def add_source(kind, text):
    def spoil(notebook):
        first(notebook, kind).source += text

    return spoil


SPOILT = [
    ("valid_format", lambda nb: nb.update(nbformat_minor=4)),
    ("readable_ids", lambda nb: nb.cells[1].update(id="a1b2c3d4")),
    ("readable_ids", lambda nb: nb.cells[1].update(id=nb.cells[0].id)),
    ("kernel", lambda nb: nb.metadata.kernelspec.update(name="venv")),
    ("clean_outputs", add_output(name="stderr", text="a warning")),
    ("clean_outputs", add_output(name="stdout", text="<f at 0x7f3a2b1c>")),
    ("clean_outputs", add_output(name="stdout", text="/home/me/book")),
    (
        "nothing_skipped",
        lambda nb: first(nb, "code").metadata.update(tags=["nbval-skip"]),
    ),
    ("nothing_skipped", add_source("code", "\n# NBVAL_IGNORE_OUTPUT")),
    ("figures", lambda nb: replace_everywhere(nb, "plt.show()", "fig")),
    ("cell_size", add_source("code", "\n" * 16 + "1")),
    ("cell_size", add_source("code", "\n# " + "long " * 20)),
    ("plain_markdown", add_source("markdown", "\n\n```{note}\n```")),
    ("plain_markdown", add_source("markdown", " {ref}`x`")),
    ("headings", add_source("markdown", "\n\n#### Deep")),
    ("headings", add_source("markdown", "\n\n# Again")),
    ("headings", lambda nb: replace_everywhere(nb, "Where this", "Here it")),
    ("exercises", lambda nb: replace_everywhere(nb, "<details>", "")),
    ("tags", repeat_a_tag),
    ("tags", lambda nb: replace_everywhere(nb, r"\tag{1.", r"\tag{2.")),
]


@pytest.mark.parametrize(("check", "spoil"), SPOILT)
def test_each_check_can_fail(notebook, check, spoil):
    spoil(notebook)
    assert check in problems(notebook)


def test_nbval_sees_digits_swaps_and_deleted_outputs(notebook, tmp_path):
    """What keeps its counts in order must fail in nbval itself."""
    names = ["same", "digit", "swap", "gone"]
    copies = {name: copy.deepcopy(notebook) for name in names}
    change_a_digit(copies["digit"])
    swap_set_up_with_the_last_cell(copies["swap"])
    renumber(copies["swap"])
    printing(copies["gone"])[0].outputs = []
    for name, mutant in copies.items():
        nbformat.write(mutant, tmp_path / f"{name}.ipynb")
    run = subprocess.run(
        [sys.executable, *"-m pytest --nbval -rfEp -p no:xdist .".split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    lines = re.findall(
        r"^(PASSED|FAILED|ERROR) (?:.*/)?(\w+)\.ipynb::", run.stdout, re.M
    )
    spoilt = {name for verdict, name in lines if verdict != "PASSED"}
    assert spoilt == {"digit", "swap", "gone"}, run.stdout + run.stderr
    cells = len(nc.code_cells(notebook))
    assert lines.count(("PASSED", "same")) == cells
    assert run.returncode == 1
