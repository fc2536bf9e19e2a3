"""The archive, the list of old pins, and the workflows of the repository."""

import hashlib
import subprocess
import tomllib
import zipfile

import archive
import outdated
import pytest
import yaml

from browser import HTML, ROOT


@pytest.fixture
def small_site(tmp_path):
    html = tmp_path / "html"
    (html / "deep" / "er").mkdir(parents=True)
    (html / "index.html").write_text("<p>first")
    (html / "deep" / "er" / "page.html").write_bytes(bytes(range(256)))
    return html


def test_the_archive_holds_the_site_and_opens(small_site, tmp_path):
    path = archive.write(small_site, tmp_path, "1.2")
    assert path.name == "masked-diffusion-exactly-1.2.zip"
    with zipfile.ZipFile(path) as found:
        assert found.testzip() is None
        found.extractall(tmp_path / "out")
    top = tmp_path / "out" / path.stem
    unpacked = {p.relative_to(top): p.read_bytes() for p in files(top)}
    assert unpacked == {
        p.relative_to(small_site): p.read_bytes() for p in files(small_site)
    }


def files(folder):
    return [p for p in folder.rglob("*") if p.is_file()]


def test_the_checksum_is_that_of_the_archive(small_site, tmp_path):
    path = archive.write(small_site, tmp_path, "1.2")
    line = (tmp_path / f"{path.name}.sha256").read_text()
    digest, name = line.split()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert name == path.name
    check = ["sha256sum", "--check", f"{path.name}.sha256"]
    subprocess.run(check, cwd=tmp_path, check=True, capture_output=True)
    path.write_bytes(path.read_bytes()[:-1])
    wrong = subprocess.run(check, cwd=tmp_path, capture_output=True)
    assert wrong.returncode != 0


def test_the_same_pages_give_the_same_bytes(small_site, tmp_path):
    first = archive.write(small_site, tmp_path, "1.2").read_bytes()
    page = small_site / "index.html"
    text = page.read_text()
    page.unlink()
    page.write_text(text)  # another time of change, another order on disk
    assert archive.write(small_site, tmp_path, "1.2").read_bytes() == first
    page.write_text(text + "!")
    assert archive.write(small_site, tmp_path, "1.2").read_bytes() != first


def test_a_folder_without_a_book_is_refused(tmp_path):
    with pytest.raises(ValueError, match="index.html"):
        archive.write(tmp_path, tmp_path, "1.2")


def test_the_archive_of_this_book(tmp_path):
    path = archive.write(HTML, tmp_path, "0")
    with zipfile.ZipFile(path) as found:
        names = set(found.namelist())
    assert f"{path.stem}/index.html" in names
    assert f"{path.stem}/notebooks/05_hot_tea.html" in names
    assert len(names) == len(files(HTML))


def test_outdated_names_the_pins_that_are_behind():
    requirements = "# A comment.\nnumpy==1.0\nPyYAML==2.0\n\nruff==3.0\n"
    newer = [
        {"name": "numpy", "version": "1.0", "latest_version": "1.1"},
        {"name": "pyyaml", "version": "2.0", "latest_version": "9"},
        {"name": "needed-by-ruff", "version": "1", "latest_version": "2"},
    ]
    assert outdated.behind(requirements, newer) == [
        "numpy 1.0 -> 1.1",
        "pyyaml 2.0 -> 9",
    ]
    assert outdated.behind(requirements, newer[2:]) == []


def workflow(name):
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text())


@pytest.mark.parametrize(
    "name, command", [("test.yml", "make test"), ("book.yml", "make book")]
)
def test_workflows_call_make(name, command):
    (job,) = workflow(name)["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [command]
    (python,) = [
        step["with"]["python-version"]
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={python}"


def test_the_book_is_published_from_main_alone():
    # YAML reads the key `on` as the truth value.
    assert workflow("book.yml")[True]["push"]["branches"] == ["main"]
    (job,) = workflow("book.yml")["jobs"].values()
    folders = [step.get("with", {}).get("path") for step in job["steps"]]
    assert "_build/html" in folders
    assert workflow("test.yml")["permissions"] == {"contents": "read"}
