"""The address of the book, and a notebook that runs far from the book."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import publish_url
import pytest

from notebook_checks import PATHS, ROOT, code_cells, read

GITHUB = "https://github.com/owner/book"
GIT = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost"]
KEPT = ["numpy", "sympy", "matplotlib", "torch"]
NOTEBOOK = "05_hot_tea.ipynb"


def address():
    return publish_url.address((ROOT / "_config.yml").read_text())


@pytest.fixture
def copy(tmp_path):
    """What a published repository needs, without this one's outputs."""
    folder = tmp_path / "book"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for name in ("toyml", "notebooks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("_config.yml", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


def texts(folder):
    files = [folder / "_config.yml", *sorted(folder.glob("notebooks/*.ipynb"))]
    return [path.read_text() for path in files]


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_notebooks_carry_the_address_of_the_config(path):
    notebook = read(path)
    badge = publish_url.badge(address(), path.stem)
    cell = code_cells(notebook)[0]
    assert cell.id == publish_url.CELL
    assert cell.source == publish_url.first_cell(address())
    assert cell.outputs == []
    assert notebook.cells[0].source.endswith(badge)
    links = sum("Open in Colab" in c.source for c in notebook.cells)
    assert links == bool(badge)


def test_without_an_address_nothing_is_installed_or_offered(copy):
    publish_url.publish(copy, "")
    for text in texts(copy)[1:]:
        assert "git+" not in text and publish_url.COLAB not in text
    code = publish_url.first_cell("").replace('"toyml"', '"no_such_module"')
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        exec(compile(code, "cell", "exec"))


def test_an_address_is_written_everywhere_and_taken_back(copy):
    publish_url.publish(copy, "")
    before = texts(copy)
    for _ in range(2):
        publish_url.publish(copy, GITHUB + "/")
        config, *notebooks = texts(copy)
        assert f'\n  url: "{GITHUB}"\n' in config
        for path, text in zip(PATHS, notebooks, strict=True):
            assert text.count("%pip install") == 1
            assert f"git+{GITHUB}" in text
            link = f"/github/owner/book/blob/main/notebooks/{path.name})"
            assert text.count(link) == text.count("Open in Colab") == 1
    publish_url.publish(copy, "file:///a/folder")
    assert "Open in Colab" not in "".join(texts(copy))
    publish_url.publish(copy, "")
    assert texts(copy) == before


@pytest.mark.parametrize(
    "url",
    [
        "github.com/owner/book",
        "http://github.com/owner/book",
        "https://github.com/",
        "https:///owner/book",
        'https://github.com/owner/book"; import os; "',
        "https://github.com/owner/my book",
        "file://folder",
    ],
)
def test_a_bad_address_is_refused(copy, url):
    before = texts(copy)
    with pytest.raises(ValueError, match="URL"):
        publish_url.publish(copy, url)
    assert texts(copy) == before


def fresh_environment(folder):
    """A new environment over this one's packages, without this toyml."""
    below = folder / "below"
    below.mkdir()
    packages = Path(sysconfig.get_path("purelib"))
    for entry in packages.iterdir():
        if "toyml" not in entry.name and entry.suffix != ".pth":
            (below / entry.name).symlink_to(entry)
    environment = folder / "env"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)],
        check=True,
    )
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "below.pth").write_text(f"{below}\n")
    python = environment / "bin" / "python"
    kernel = environment / "share" / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    launch = ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps(
            {
                "argv": [str(python), *launch],
                "display_name": "Python 3",
                "language": "python",
            }
        )
    )
    return python


def versions(python):
    """Version and place of each package that an install must not move."""
    code = (
        "import json, importlib\n"
        f"found = [importlib.import_module(name) for name in {KEPT}]\n"
        "print(json.dumps([[m.__version__, m.__file__] for m in found]))"
    )
    return json.loads(subprocess.check_output([python, "-c", code]))


def outputs(notebook):
    """The outputs of each cell but the first, as nbval compares them."""
    kept = {}
    for cell in code_cells(notebook)[1:]:
        kept[cell.id] = [
            {
                "text": out.get("text"),
                "data": {
                    mime: data
                    for mime, data in out.get("data", {}).items()
                    if mime != "image/png"
                },
            }
            for out in cell.outputs
        ]
    return kept


def test_one_notebook_alone_installs_toyml_and_moves_nothing(copy, tmp_path):
    url = f"file://{copy}"
    publish_url.publish(copy, url)
    subprocess.run([*GIT, "init", "--quiet"], cwd=copy, check=True)
    subprocess.run([*GIT, "add", "--all"], cwd=copy, check=True)
    subprocess.run(
        [*GIT, "commit", "--quiet", "--message", "book"], cwd=copy, check=True
    )
    python = fresh_environment(tmp_path)
    before = versions(python)
    missing = subprocess.run([python, "-c", "import toyml"], cwd=tmp_path)
    assert missing.returncode == 1

    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy2(copy / "notebooks" / NOTEBOOK, alone / NOTEBOOK)
    environment = {
        **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        # Without an index pip can fetch nothing: what it asks for is there.
        "PIP_NO_INDEX": "1",
        # pip reads the value as that of build_isolation: 0 switches it off.
        "PIP_NO_BUILD_ISOLATION": "0",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    subprocess.run(
        [python, ROOT / "tools" / "run_notebooks.py", NOTEBOOK],
        cwd=alone,
        env=environment,
        check=True,
    )
    run = read(alone / NOTEBOOK)
    said = [out.get("text", "") for out in code_cells(run)[0].outputs]
    assert "ERROR" not in "".join(said)
    assert outputs(run) == outputs(read(ROOT / "notebooks" / NOTEBOOK))
    assert versions(python) == before
    place = subprocess.check_output(
        [python, "-c", "import toyml; print(toyml.__file__)"],
        cwd=alone,
        text=True,
    )
    assert str(tmp_path / "env") in place
