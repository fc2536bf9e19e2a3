"""The notebook cell that explains a public name of toyml."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import nbformat

from .names import everything
from .visitor import Uses

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

# The chapter on the subject of a name, or of all names of a module that no
# notebook uses: its file and one of its cells.
CHAPTERS = {
    "toyml.schedules": ("04_schedules", "table"),
    "toyml.sources": ("10_what_the_network_learns", "source"),
    "toyml.tables": ("03_likelihood_bound", "table"),
    "toyml.subsets": ("05_hot_tea", "generator-proof"),
    "toyml.exact": ("03_likelihood_bound", "sum-proof"),
    "toyml.lattice": ("03_likelihood_bound", "three-terms-proof"),
    "toyml.objectives": ("06_weights_compared", "effective-proof"),
    "toyml.samplers": ("16_parallel_decoding", "tea-proof"),
    "toyml.samplers.renoised": ("17_order_confidence_blocks", "stays"),
    "toyml.samplers.sharpen": ("16_parallel_decoding", "warning"),
    "toyml.audit": ("11_audit_your_loss", "right-report"),
    "toyml.model": ("13_prompts_padding_length", "transformer"),
    "toyml.train.checkpoint": ("14_text", "live-resume"),
    "toyml.train.config.Config": ("12_a_known_answer", "config"),
    "toyml.train.config.PRESETS": ("12_a_known_answer", "config"),
    "toyml.train.data": ("14_text", "overlap"),
    "toyml.train.errors": ("12_a_known_answer", "config"),
    "toyml.train.ranks": ("14_text", "ranks-gradient"),
    "toyml.train.report": ("12_a_known_answer", "recorded"),
    "toyml.train.run": ("14_text", "live-resume"),
    "toyml.train.samples": ("14_text", "live-verdict"),
    "toyml.train.step": ("14_text", "ranks-gradient"),
    "toyml.recorded": ("12_a_known_answer", "recorded"),
    "toyml.figures": ("05_hot_tea", "square"),
    "toyml.live": ("05_hot_tea", "live"),
}

# Where to look first for the cell that explains a name of a room: chapters,
# before the first use in the whole book.
FIRST = {
    "sources": ("01", "03", "10"),
    "lattice": ("03", "05"),
    "samplers": ("16", "17"),
    "train": ("12", "14"),
}


@cache
def uses():
    """{dotted name: [(notebook, cell id), ...]} in reading order."""
    out = {}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        visitor = Uses()
        for cell in cells(path.stem):
            if cell.cell_type == "code":
                visitor.found = []
                # A line of IPython's own, such as %pip, is no Python.
                lines = cell.source.splitlines()
                lines = [re.sub("^( *)[%!].*", r"\1pass", x) for x in lines]
                visitor.visit(ast.parse("\n".join(lines)))
                for name in visitor.found:
                    place = (path.stem, cell.id)
                    if place not in out.setdefault(name, []):
                        out[name].append(place)
    return out


def place(name):
    """Where a name is explained: notebook, cell id, whether it is used there.

    What CHAPTERS says of the name, or the first cell after the set-up that
    uses it, of the chapters in FIRST or else of the book; for a class that is
    built by functions, the first that uses one of its methods.
    """
    if name in CHAPTERS:
        return *CHAPTERS[name], False
    found = uses().get(name, ())
    if not found and inspect.isclass(everything().get(name)):
        inside = (p for n, p in uses().items() if n.startswith(f"{name}."))
        found = [place for places in inside for place in places]
    if found:
        chapters = FIRST.get(name.split(".")[1], ())
        return *min(found, key=lambda p: _rank(p, chapters)), True
    module = name.rpartition(".")[0]
    if module in CHAPTERS:
        return *CHAPTERS[module], False
    raise ValueError(f"{name}: no notebook uses it; expected it in CHAPTERS")


@cache
def cells(notebook):
    return nbformat.read(NOTEBOOKS / f"{notebook}.ipynb", as_version=4).cells


def _rank(where, chapters):
    notebook, cell = where
    order = [c.id for c in cells(notebook)]
    first = notebook[:2] in chapters
    return cell == "setup", not first, notebook, order.index(cell)


def title(notebook):
    """The title of a chapter, from its first line."""
    return cells(notebook)[0].source.splitlines()[0].removeprefix("# ")
