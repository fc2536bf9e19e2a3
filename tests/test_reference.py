"""The page that lists toyml follows its sources and its notebooks."""

import ast
import graphlib
import re
from pathlib import Path

import nbformat
import pytest
import reference
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[1]
TOYML = ROOT / "toyml"
PAGE = ROOT / "_build" / "html" / "book" / "reference.html"


def private(name):
    return name.startswith("_")


def parse(path):
    return ast.parse(path.read_text())


def listed(tree):
    """The names in ``__all__``, or None."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node):
            return ast.literal_eval(node.value)
    return None


def definitions(tree):
    kinds = ast.FunctionDef | ast.ClassDef
    return {n.name: n for n in tree.body if isinstance(n, kinds)}


def names():
    """{dotted name: node of the syntax tree}, read without importing."""
    out = {}
    for path in sorted(TOYML.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        first = TOYML / parts[1] / "__init__.py" if len(parts) > 1 else path
        chosen = listed(parse(first)) if first.exists() else None
        if any(private(part) for part in parts):
            continue
        for name, node in definitions(parse(path)).items():
            if chosen is None and not private(name):
                out[".".join((*parts, name))] = node
            elif chosen is not None and name in chosen:
                out[".".join((*parts[:2], name))] = node
    for name, node in list(out.items()):
        if isinstance(node, ast.ClassDef):
            for method, inner in definitions(node).items():
                if not private(method):
                    out[f"{name}.{method}"] = inner
    return out


NAMES = names()


@pytest.fixture(scope="module")
def page():
    return BeautifulSoup(PAGE.read_text(), "html.parser").find("article")


def letters(text):
    return re.sub(r"[\W_]+", "", text)


def own_text(term):
    """The text of an entry without the entries inside it."""
    body = str(term.find_next_sibling("dd"))
    copy = BeautifulSoup(body, "html.parser")
    for inner in copy.find_all("dl", class_="py"):
        inner.decompose()
    return copy.get_text()


def test_the_count_is_not_empty():
    assert len(NAMES) > 150
    assert {"toyml.lattice.MaskLattice.gap", "toyml.reverse.kl"} <= set(NAMES)
    assert "toyml.objectives.uniform_count" in NAMES
    assert "toyml.train.config.Config.from_json" in NAMES


def test_each_public_name_has_one_entry_with_its_docstring(page):
    wrong = []
    for name, node in NAMES.items():
        terms = page.find_all("dt", id=name)
        doc = letters(ast.get_docstring(node) or "nothing")
        if len(terms) != 1 or doc not in letters(own_text(terms[0])):
            wrong.append(name)
    assert wrong == []


def test_nothing_else_is_listed_and_nothing_private(page):
    ids = [term["id"] for term in page.select("dl.py > dt[id]")]
    assert len(ids) == len(set(ids))
    constants = set(ids) - set(NAMES)
    for name in constants:
        module, _, short = name.rpartition(".")
        folder = ROOT / Path(*module.split("."))
        file = folder.with_suffix(".py")
        text = "".join(
            path.read_text()
            for path in ([file] if file.exists() else folder.glob("*.py"))
        )
        assert re.search(rf"^#: .*\n[^#\n]*\b{short}\b.* = ", text, re.M), name
    assert not any(private(p) for name in ids for p in name.split("."))


def test_docstrings_are_sentences():
    docs = {n: ast.get_docstring(node) or "" for n, node in NAMES.items()}
    assert [n for n, doc in docs.items() if not doc.endswith(".")] == []


def test_each_function_and_class_leads_to_a_cell(page):
    notebooks = {}
    for term in page.select("dl.py > dt[id]"):
        name = term["id"]
        body = term.find_next_sibling("dd")
        links = [
            link
            for link in body.find_all("a", href=re.compile("#cell-"))
            if link.find_parent("dd") is body
        ]
        node = NAMES.get(name)
        of_a_class = name.rpartition(".")[0] in NAMES
        assert len(links) <= 1
        assert links or of_a_class, name
        for link in links:
            found = re.fullmatch(
                r"\.\./notebooks/(\w+)\.html#cell-([\w-]+)", link["href"]
            )
            path = ROOT / "notebooks" / f"{found[1]}.ipynb"
            if path not in notebooks:
                notebooks[path] = nbformat.read(path, as_version=4).cells
            cells = {cell.id: cell for cell in notebooks[path]}
            cell = cells[found[2]]
            assert cell.cell_type == "code"
            title = notebooks[path][0].source.splitlines()[0]
            assert link.get_text() == title.removeprefix("# ")
            if link.find_parent("p").get_text().startswith("Explained in"):
                words = [name.rpartition(".")[2]]
                if isinstance(node, ast.ClassDef):
                    words += definitions(node)
                pattern = rf"\b({'|'.join(words)})\b"
                assert re.search(pattern, cell.source), (name, link["href"])


def test_each_room_has_a_section_with_its_sentence(page):
    rooms = {p.stem for p in TOYML.iterdir() if p.suffix == ".py"}
    rooms |= {p.parent.name for p in TOYML.glob("*/__init__.py")}
    rooms.discard("__init__")
    heads = {h.get_text().rstrip("#"): h for h in page.find_all("h2")}
    assert set(heads) == rooms
    for room, head in heads.items():
        file = TOYML / f"{room}.py"
        file = file if file.exists() else TOYML / room / "__init__.py"
        first = ast.get_docstring(parse(file)).split("\n\n")[0]
        section = head.find_parent("section")
        assert letters(section.find("p").get_text()) == letters(first)
        links = [
            p for p in section.find_all("p") if p.get_text()[:8] == "Imports "
        ]
        assert len(links) == 1


def test_imports_of_rooms():
    assert reference.imports("exact") == []
    assert set(reference.imports("lattice")) == {
        "schedules", "tables", "subsets", "exact",
    }
    assert "sources" in reference.imports("train")


def test_rooms_import_without_circles():
    graph = {room: reference.imports(room) for room in reference.rooms()}
    order = list(graphlib.TopologicalSorter(graph).static_order())
    assert set(order) == set(reference.rooms())


def test_uses_follow_imports_and_objects():
    visitor = reference.visitor.Uses()
    cells = [
        "from toyml import subsets, objectives as ob",
        "from toyml.lattice import MaskLattice as Table",
        "from toyml.schedules import LINEAR, COSINE",
        "tea = Table.from_denoiser(f, x, 2)",
        "tea.gap()",
        "for schedule in (LINEAR, COSINE): schedule.weight(1)",
        "law = ob.uniform_count(); law.draw(1, 2, rng)",
        "[subsets.masks(n) for n in range(3)]",
        "tea = 3; tea.variance(law)",
        "gap = other.gap()",
    ]
    for cell in cells:
        visitor.visit(ast.parse(cell))
    found = [name.removeprefix("toyml.") for name in visitor.found]
    wanted = """
        lattice.MaskLattice.from_denoiser lattice.MaskLattice
        lattice.MaskLattice.gap
        schedules.LINEAR schedules.COSINE schedules.Schedule.weight
        objectives.uniform_count objectives.Objective.draw subsets.masks
    """
    assert list(dict.fromkeys(found)) == wanted.split()


def test_the_first_use_is_found():
    assert reference.place("toyml.lattice.MaskLattice.gap")[0] == "05_hot_tea"
    with pytest.raises(ValueError, match=r"toyml\.nowhere\.name"):
        reference.place("toyml.nowhere.name")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k = |S|", [r"k = \|S\|"]),
        ("The row_losses, [L].", [r"The \ ``row_losses``\ , \ ``[L]``\ ."]),
        ("-log p", [r"\-log p"]),
        ("u in [0, 1), [B]", [r"u in [0, 1), \ ``[B]``"]),
        (
            "x: one. y: two.\n    more.\nRaises ValueError.",
            ["- ``x``: one.", "- ``y``: two. more.", "Raises ValueError."],
        ),
        (
            "A.\n\n    a = b\n\nso.",
            ["A.", ".. code-block:: text", "   a = b", "so."],
        ),
    ],
)
def test_plain_text_becomes_markup(text, wanted):
    lines = reference.formatted(text.splitlines(), {"x", "y"})
    assert [line for line in lines if line] == wanted
