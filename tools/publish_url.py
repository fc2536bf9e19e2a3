"""The address of the book's repository: python tools/publish_url.py [URL].

It stands in `_config.yml` alone. From there this program writes it into the
first code cell and the title of each notebook, and the book's launch buttons
follow it. An empty URL takes it out again: nothing is then ever installed
from an address that nobody owns.
"""

import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import nbformat

ROOT = Path(__file__).resolve().parents[1]
CELL = "toyml"
FIELD = re.compile(r'^(repository:\n(?:  .*\n)*?  url: )"(.*)"$', re.M)
COLAB = "https://colab.research.google.com"
BADGE = re.compile(r"\n\n\[Open in Colab\]\([^)]*\)")

FOUND = """\
# The notebook needs toyml, the module of this book.
import importlib.util

if importlib.util.find_spec("toyml") is None:
"""
TELL = """\
    raise ModuleNotFoundError(
        "toyml is not installed. Get the repository of this book, "
        "then run in its folder: pip install '.[train]'"
    )"""
INSTALL = """\
    %pip install --quiet git+{url}"""


def checked(url: str) -> str:
    """The address without its last slash; raises ValueError for a bad one."""
    if url and not re.fullmatch(
        r"(https://[\w.:-]+|file://)(/[\w.~+-]+)+/?", url
    ):
        raise ValueError(
            f"URL is {url!r}; expected https://HOST/OWNER/NAME, "
            "file:///FOLDER or nothing"
        )
    return url.rstrip("/")


def address(config: str) -> str:
    """The address in the text of `_config.yml`."""
    (found,) = FIELD.findall(config)
    return found[1]


def on_github(url: str) -> str | None:
    """OWNER/NAME of a repository that Colab can open, else None."""
    parts = urlsplit(url)
    name = parts.path.strip("/").removesuffix(".git")
    return name if parts.netloc == "github.com" else None


def first_cell(url: str) -> str:
    return FOUND + (INSTALL.format(url=url) if url else TELL)


def badge(url: str, stem: str) -> str:
    name = on_github(url)
    if name is None:
        return ""
    link = f"{COLAB}/github/{name}/blob/main/notebooks/{stem}.ipynb"
    return f"\n\n[Open in Colab]({link})"


def publish(root: Path, url: str) -> None:
    """Write the address into `_config.yml` and all notebooks under root."""
    url = checked(url)
    config = root / "_config.yml"
    config.write_text(FIELD.sub(rf'\g<1>"{url}"', config.read_text()))
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        title = notebook.cells[0]
        title.source = BADGE.sub("", title.source) + badge(url, path.stem)
        cell = next(c for c in notebook.cells if c.cell_type == "code")
        if cell.id != CELL:
            raise ValueError(
                f"{path}: the first code cell is {cell.id!r}; expected "
                f"{CELL!r}"
            )
        cell.source = first_cell(url)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    publish(ROOT, sys.argv[1] if len(sys.argv) > 1 else "")
