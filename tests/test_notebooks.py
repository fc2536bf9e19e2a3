"""The shape of every notebook, and the solutions of its exercises."""

import copy

import nbformat
import pytest
import yaml
from nbclient import NotebookClient

from notebook_checks import (
    CHECKS,
    PATHS,
    ROOT,
    chapter_of,
    exercises_of,
    read,
    stream_text,
    tags,
    tags_of,
)

each_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)


def test_notebooks_are_those_of_the_table_of_contents():
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    listed = [
        chapter["file"]
        for part in toc["parts"]
        for chapter in part["chapters"]
        if chapter["file"].startswith("notebooks/")
    ]
    assert listed == [f"notebooks/{path.stem}" for path in PATHS]
    assert [chapter_of(p) for p in PATHS] == list(range(1, len(PATHS) + 1))


@each_notebook
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_shape(path, check):
    assert check(read(path)) == []


@each_notebook
def test_tags(path):
    assert tags(read(path), chapter_of(path)) == []


def test_tags_are_unique_in_the_book():
    found = [tag for path in PATHS for tag in tags_of(read(path))]
    assert found
    assert len(found) == len(set(found))


WRONG = {
    "half": "lambda *args, **kwargs: 0.5",
    "nelbo": "lambda *args, **kwargs: __import__('math').log(125) / 2",
}


@each_notebook
def test_exercises(path):
    """Solutions pass their checks; constants do not."""
    notebook = read(path)
    trial = copy.deepcopy(notebook)
    trial.cells = [c for c in trial.cells if c.cell_type == "code"]
    expected = {}
    for name, solution in exercises_of(notebook):
        cell = nbformat.v4.new_code_cell(
            f"{solution}\n\nprint(check_{name}({name}))"
        )
        expected[name, "solution"] = (cell, "correct\n")
        for label, function in WRONG.items():
            cell = nbformat.v4.new_code_cell(
                f"print(check_{name}({function}))"
            )
            expected[name, label] = (cell, "not yet\n")
    trial.cells += [cell for cell, _ in expected.values()]
    NotebookClient(
        trial,
        timeout=120,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    got = {key: stream_text(cell) for key, (cell, _) in expected.items()}
    assert got == {key: text for key, (_, text) in expected.items()}
    assert expected
