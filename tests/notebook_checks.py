"""Checks of one notebook. Each takes a notebook, returns a list of problems.

nbval compares outputs but skips a cell without an execution count, never
compares pictures and knows nothing of the book's shape. These checks do.
"""

import ast
import json
import re
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

ROOT = Path(__file__).resolve().parents[1]
PATHS = sorted((ROOT / "notebooks").glob("*.ipynb"))

MAX_LINES, MAX_COLUMNS, MIN_ALT = 16, 79, 40
TAG = re.compile(r"\\tag\{([^}]*)\}")
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.M | re.S)
DETAILS = re.compile(r"<details>.*?</details>", re.S)
SOLUTION = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
MYST = {
    "directive": re.compile(r"^\s*(```+|~~~+|:::+)\s*\{", re.M),
    "colon fence": re.compile(r"^\s*:::", re.M),
    "role": re.compile(r"\{[a-z][\w:+.-]*\}`"),
    "target": re.compile(r"^\([\w-]+\)=\s*$", re.M),
    "substitution": re.compile(r"^\s*\{\{.*\}\}\s*$", re.M),
}
MACHINE = re.compile(r"/(?:work|root|home|tmp|Users)/|0x[0-9a-f]{6,}")
PICTURES = {"image/png", "image/svg+xml", "image/jpeg"}


def read(path):
    """The notebook as it is; nbformat.read would mend some faults."""
    return nbformat.v4.reads(Path(path).read_text(encoding="utf-8"))


def code_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "code"]


def markdown_cells(notebook):
    return [c for c in notebook.cells if c.cell_type == "markdown"]


def mime_types(cell):
    return {mime for out in cell.outputs for mime in out.get("data", {})}


def stream_text(cell):
    return "".join(
        out.text for out in cell.outputs if out.output_type == "stream"
    )


# Format.


def valid_format(notebook):
    if (notebook.nbformat, notebook.get("nbformat_minor")) != (4, 5):
        return ["the format is not nbformat 4.5"]
    errors = nbformat.validator.iter_validate(notebook)
    return [error.message.splitlines()[0] for error in errors]


def readable_ids(notebook):
    ids = [cell.get("id", "") for cell in notebook.cells]
    problems = [f"id used twice: {i}" for i in set(ids) if ids.count(i) > 1]
    for i in ids:
        random_hex = re.fullmatch(r"[0-9a-f-]{8,}", i) and re.search(r"\d", i)
        if random_hex or not re.fullmatch(r"[a-z][a-z0-9-]*", i):
            problems.append(f"id is not readable: {i!r}")
    return problems


def kernel(notebook):
    name = notebook.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"the kernel is {name!r}"]


# Outputs.


def execution_counts(notebook):
    counts = [cell.execution_count for cell in code_cells(notebook)]
    if counts and counts == list(range(1, len(counts) + 1)):
        return []
    return [f"execution counts are {counts}"]


def _prints(source):
    """Whether running the cell must leave an output: print or plt.show()."""
    python = TransformerManager().transform_cell(source)
    todo = list(ast.parse(python).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.If | ast.Try):
            continue  # the branch may not run
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "print",
            "plt.show",
        ):
            return True
        todo.extend(ast.iter_child_nodes(node))
    return False


def outputs_present(notebook):
    cells = code_cells(notebook)
    problems = [
        f"{cell.id}: prints, but holds no output"
        for cell in cells
        if _prints(cell.source) and not cell.outputs
    ]
    if not any(cell.outputs for cell in cells):
        problems.append("no cell holds an output")
    return problems


def clean_outputs(notebook):
    problems = []
    for cell in code_cells(notebook):
        for out in cell.outputs:
            if out.output_type == "error" or out.get("name") == "stderr":
                problems.append(f"{cell.id}: error or stderr output")
            text = {
                mime: data
                for mime, data in out.get("data", {}).items()
                if mime not in PICTURES
            } or out.get("text", "")
            for found in MACHINE.findall(json.dumps(text)):
                problems.append(f"{cell.id}: output names {found}")
    return problems


def nothing_skipped(notebook):
    problems = []
    for cell in code_cells(notebook):
        tags = [t.lower() for t in cell.metadata.get("tags", [])]
        if "NBVAL_" in cell.source or any(
            t.startswith("nbval") or t == "raises-exception" for t in tags
        ):
            problems.append(f"{cell.id}: asks nbval to look away")
    return problems


def figures(notebook):
    problems = []
    for cell in code_cells(notebook):
        pictures = [
            out for out in cell.outputs if PICTURES & set(out.get("data", {}))
        ]
        last_line = cell.source.strip().splitlines()[-1:]
        if last_line == ["plt.show()"] and not pictures:
            problems.append(f"{cell.id}: plt.show() left no picture")
        if not pictures:
            continue
        image = cell.metadata.get("mystnb", {}).get("image", {})
        if len(image.get("alt", "").strip()) < MIN_ALT:
            problems.append(f"{cell.id}: alt text under {MIN_ALT} characters")
        if len(pictures) > 1:
            problems.append(f"{cell.id}: more than one figure")
        if last_line != ["plt.show()"]:
            problems.append(f"{cell.id}: does not end with plt.show()")
        if not stream_text(cell).strip():
            problems.append(f"{cell.id}: prints no digest of its figure")
    return problems


# Text.


def cell_size(notebook):
    problems = []
    for cell in code_cells(notebook):
        lines = cell.source.splitlines()
        if len(lines) > MAX_LINES:
            problems.append(f"{cell.id}: {len(lines)} lines")
        if any(len(line) > MAX_COLUMNS for line in lines):
            problems.append(f"{cell.id}: over {MAX_COLUMNS} columns")
    return problems


def plain_markdown(notebook):
    return [
        f"{cell.id}: MyST {name}"
        for cell in markdown_cells(notebook)
        for name, pattern in MYST.items()
        if pattern.search(cell.source)
    ]


def headings_of(notebook):
    text = "\n\n".join(c.source for c in markdown_cells(notebook))
    found = re.findall(r"^(#+) +(.+?) *$", FENCE.sub("", text), re.M)
    return [(len(marks), title) for marks, title in found]


def headings(notebook):
    found = headings_of(notebook)
    levels = [level for level, _ in found]
    titles = {title for _, title in found}
    problems = []
    first = notebook.cells[0]
    if first.cell_type != "markdown" or not first.source.startswith("# "):
        problems.append("the first cell does not start with the title")
    if levels.count(1) != 1:
        problems.append(f"{levels.count(1)} headings of level 1")
    for i in range(1, len(levels)):
        if levels[i] > levels[i - 1] + 1:
            problems.append(f"level jumps at {found[i][1]!r}")
    for title in ("Where this stops", "Exercises"):
        if title not in titles:
            problems.append(f"no heading {title!r}")
    return problems


def tags_of(notebook):
    return [
        tag
        for cell in markdown_cells(notebook)
        for tag in TAG.findall(cell.source)
    ]


def tags(notebook, chapter):
    """Tags are chapter.n, once each, and a code cell follows each of them."""
    found = tags_of(notebook)
    twice = {tag for tag in found if found.count(tag) > 1}
    problems = [f"tag used twice: {tag}" for tag in twice]
    for tag in found:
        if not re.fullmatch(rf"{chapter}\.[1-9]\d*", tag):
            problems.append(f"tag {tag} in chapter {chapter}")
    waiting = None
    for cell in notebook.cells:
        if cell.cell_type == "code":
            waiting = None
        elif TAG.search(cell.source):
            if waiting:
                problems.append(f"{waiting}: no code cell follows its tag")
            waiting = cell.id
    if waiting:
        problems.append(f"{waiting}: no code cell follows its tag")
    return problems


# Exercises.


def exercises_of(notebook):
    """(name, solution) for each exercise; the solution may be None."""
    found = []
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or not cell.id.startswith("exercise-"):
            continue
        rest = [c for c in notebook.cells[i:] if c.cell_type == "markdown"]
        blocks = DETAILS.findall(rest[0].source) if rest else []
        code = SOLUTION.search(blocks[0]) if blocks else None
        name = cell.id.removeprefix("exercise-").replace("-", "_")
        found.append((name, code and code.group(1)))
    return found


def _defines(source, name):
    return any(
        isinstance(node, ast.FunctionDef) and node.name == name
        for node in ast.parse(source).body
    )


def exercises(notebook):
    problems = []
    cells = {cell.id: cell for cell in code_cells(notebook)}
    order = list(cells)
    found = exercises_of(notebook)
    if len(found) < 2:
        problems.append(f"{len(found)} exercises")
    for name, solution in found:
        slug = name.replace("_", "-")
        check, stub = cells.get(f"check-{slug}"), cells[f"exercise-{slug}"]
        if check is None or not _defines(check.source, f"check_{name}"):
            problems.append(f"{name}: no cell check-{slug} defines its check")
        elif order.index(check.id) > order.index(stub.id):
            problems.append(f"{name}: the check comes after the exercise")
        if not _defines(stub.source, name):
            problems.append(f"{name}: the exercise cell does not define it")
        if not stub.source.rstrip().endswith(f"print(check_{name}({name}))"):
            problems.append(f"{name}: the exercise does not print its check")
        if stream_text(stub) != "not yet\n":
            problems.append(f"{name}: the stub's output is not 'not yet'")
        if solution is None or not _defines(solution, name):
            problems.append(f"{name}: no solution in <details> defines it")
    return problems


CHECKS = [
    valid_format,
    readable_ids,
    kernel,
    execution_counts,
    outputs_present,
    clean_outputs,
    nothing_skipped,
    figures,
    cell_size,
    plain_markdown,
    headings,
    exercises,
]


def problems_of(notebook, chapter):
    """All problems, by the name of the check that found them."""
    found = {check.__name__: check(notebook) for check in CHECKS}
    found["tags"] = tags(notebook, chapter)
    return {name: problems for name, problems in found.items() if problems}


def chapter_of(path):
    return int(Path(path).name[:2])
