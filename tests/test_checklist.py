"""book/checklist.md against the notebooks that it links to.

A number in code type must be printed by a cell that its item links to. Any
other number with a decimal point must stand in the table of claims.
"""

import re

import pytest

from notebook_checks import ROOT, read, stream_text

PAGE = ROOT / "book" / "checklist.md"
REQUIRED = (
    "first-loss mask-in-softmax scored time normaliser redraw cut-off "
    "end-point prompts padding estimator standard-error held-out order steps "
    "float64 seeds audit"
).split()
LABEL = re.compile(r"^\(([\w-]+)\)=\n", re.M)
ITEM = re.compile(r"\n(\d+)\\\. (.+)\n: ((?:.+\n)+)")
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
NUMBER = r"-?\d+(?:[./,]\d+)*"
SHOWN = "Shown failing:"


def sections(text):
    """{id: (number, question, body)} of the items."""
    parts, found = LABEL.split(text)[1:], {}
    for name, part in zip(parts[::2], parts[1::2], strict=True):
        number, question, body = ITEM.match(part).groups()
        found[name] = int(number), question, " ".join(body.split())
    return found


ITEMS = sections(PAGE.read_text())


@pytest.fixture(params=REQUIRED)
def item(request):
    return ITEMS[request.param]


def cell(target):
    """The title of the notebook and the code cell that a link leads to."""
    path, _, anchor = target.partition("#cell-")
    nb = read(PAGE.parent / path)
    title = re.match(r"# (\d+)\. (.+)", nb.cells[0].source)
    found = [c for c in nb.cells if c.id == anchor and c.cell_type == "code"]
    assert len(found) == 1, target
    return f"{title[1]} {title[2]}", found[0]


def cells(body):
    """What the links after "Shown failing:" lead to."""
    shown = body.partition(SHOWN)[2]
    return [(text, *cell(target)) for text, target in LINK.findall(shown)]


def quoted(prose):
    """The numbers in code type, the page's promise of a printed number."""
    return re.findall(rf"`({NUMBER}%?|nan|inf)`", prose)


def occurs(number, output):
    end = r"(?![\w%]|[./,]\d)"
    return re.search(rf"(?<![\w./-]){re.escape(number)}{end}", output)


def test_the_topics_are_covered_once_and_in_order():
    assert list(ITEMS) == REQUIRED
    assert [n for n, _, _ in ITEMS.values()] == [*range(1, len(ITEMS) + 1)]
    assert PAGE.read_text().count("\n: ") == len(ITEMS)


def test_an_item_asks(item):
    assert item[1].endswith("?")


def test_an_item_links_to_cells_that_were_run(item):
    assert item[2].count(SHOWN) == 1
    linked = cells(item[2])
    assert linked
    for _, _, code_cell in linked:
        assert code_cell.execution_count
        assert stream_text(code_cell).strip()


def test_the_first_link_to_a_notebook_has_its_title(item):
    last = None
    for text, title, _ in cells(item[2]):
        assert title == last or text.startswith(title), text
        last = title


def test_an_item_is_short(item):
    prose = item[2].partition(SHOWN)[0]
    assert len(prose.split()) <= 90
    assert "- [ ]" not in prose, "a task list has no labels"


def test_numbers_are_printed_by_a_linked_cell(item):
    outputs = [stream_text(code_cell) for _, _, code_cell in cells(item[2])]
    numbers = quoted(item[2].partition(SHOWN)[0])
    assert numbers
    for number in numbers:
        assert any(occurs(number, text) for text in outputs), number


def test_each_cell_carries_the_item(item):
    """A linked cell prints a quoted number, or a finding or a verdict."""
    numbers = quoted(item[2].partition(SHOWN)[0])
    for text, _, code_cell in cells(item[2]):
        output = stream_text(code_cell)
        said = any(occurs(number, output) for number in numbers)
        assert said or "- kind:" in output, text


def test_other_decimals_are_claims(item):
    prose = re.sub(r"`[^`]*`|\$[^$]*\$", "", item[2].partition(SHOWN)[0])
    claims = (PAGE.parent / "claims.md").read_text()
    marks = re.findall(r"\[([FPR]\d+)\]\(claims\.md#\w+\)", prose)
    rows = [
        r
        for r in claims.splitlines()
        for m in marks
        if r.startswith(f"| {m} |")
    ]
    assert len(rows) == len(marks)
    for number in re.findall(r"\d+\.\d+", prose):
        assert any(occurs(number, row) for row in rows), number


def test_a_number_is_not_found_inside_another():
    assert occurs("0.23", "x 0.23 nats") and occurs("4", "L = 4: 1")
    assert not occurs("0.23", "x 0.231") and not occurs("0.23", "10.23")
    assert not occurs("4", "-4") and not occurs("1/4", "11/4")
    assert not occurs("512", "512.5") and occurs("512", "512, 1")
