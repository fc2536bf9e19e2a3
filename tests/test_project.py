"""The files around the book agree with one another."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import readme_picture
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

plt.switch_backend("Agg")
ROOT = Path(__file__).resolve().parents[1]


def read(name):
    return (ROOT / name).read_text()


def pins():
    lines = read("requirements.txt").splitlines()
    found = [Requirement(x) for x in lines if x and not x.startswith("#")]
    return {canonicalize_name(r.name): r for r in found}


def project():
    return tomllib.loads(read("pyproject.toml"))["project"]


def bounds():
    extras = project()["optional-dependencies"].values()
    return [
        Requirement(line)
        for group in (project()["dependencies"], *extras)
        for line in group
    ]


def test_requirements_are_exact_pins():
    for requirement in pins().values():
        operators = [s.operator for s in requirement.specifier]
        assert operators == ["=="], requirement


def test_the_pins_that_the_build_depends_on():
    exact = {
        "torch": "2.13.0",
        "jupyter-book": "1.0.4.post1",
        "sphinx-book-theme": "1.2.0",
        "pydata-sphinx-theme": "0.16.1",
        "sphinx-mathjax-offline": "0.0.2",
    }
    for name, version in exact.items():
        assert str(pins()[name].specifier) == f"=={version}"


@pytest.mark.parametrize("bound", bounds(), ids=lambda r: r.name)
def test_bounds_are_lower_bounds_that_the_pins_satisfy(bound):
    assert [s.operator for s in bound.specifier] == [">="], bound
    (pin,) = pins()[canonicalize_name(bound.name)].specifier
    assert bound.specifier.contains(pin.version)


def test_python_bound():
    assert project()["requires-python"] == ">=3.11"


def test_torch_is_optional():
    required = {Requirement(x).name for x in project()["dependencies"]}
    train = project()["optional-dependencies"]["train"]
    assert "torch" not in required
    assert [Requirement(x).name for x in train] == ["torch", "tqdm"]


def test_no_warning_is_suppressed():
    config = yaml.safe_load(read("_config.yml"))["sphinx"]["config"]
    assert config["suppress_warnings"] == []
    assert "-W -n --keep-going" in read("Makefile")


def make(*arguments):
    """What make prints, as from a shell."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    return subprocess.check_output(
        ["make", *arguments], cwd=ROOT, env=env, text=True
    )


def test_make_lists_every_target():
    shown = make()
    listed = re.findall(r"^make (\S+) +\S.*$", shown, re.M)
    targets = re.search(
        r"^\.PHONY: ((?:.*\\\n)*.+)$", read("Makefile"), re.M
    ).group(1)
    assert listed == targets.replace("\\\n", " ").split()
    assert len(listed) == len(shown.splitlines())


@pytest.mark.parametrize("target", ["train", "bench-train", "bench-samplers"])
def test_training_and_its_benchmarks_use_the_cores(target):
    recipe = make("--dry-run", target, "CORES=2").splitlines()[-1]
    prefix = re.match(r"(?:\w+=\d+ )+", recipe)[0]
    env = os.environ | {"MKL_NUM_THREADS": "1"}  # as the Makefile exports
    env |= dict(item.split("=") for item in prefix.split())
    code = "import torch; print(torch.get_num_threads())"
    shown = subprocess.check_output([sys.executable, "-c", code], env=env)
    assert int(shown) == 2


def test_ci_installs_a_browser_and_calls_make_test():
    text = read(".ci/run")
    lines = [
        line
        for line in text.splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert lines[-1] == "make test"
    assert sum("make" in line for line in lines) == 1
    assert re.findall(r"apt-get install (.*);", text) == [
        "-y -qq --no-install-recommends chromium"
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_contents_of_the_readme():
    toc = yaml.safe_load(read("_toc.yml"))
    chapters = [c["file"] for p in toc["parts"] for c in p["chapters"]]
    readme = read("README.md")
    for file in [toc["root"], *chapters]:
        (path,) = ROOT.glob(f"{file}.[mi]*")
        assert f"]({path.relative_to(ROOT)})" in readme
    for part in toc["parts"]:
        assert part["caption"] in readme


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_front_pages(name):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", read(name))
    local = [link for link in links if "://" not in link]
    assert local
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_each_dependency_is_explained():
    rows = re.findall(r"^\| *([\w.-]+) *\|", read("CONTRIBUTING.md"), re.M)
    assert set(pins()) <= {canonicalize_name(name) for name in rows}


def test_licences():
    assert "MIT License" in read("LICENSE")
    assert "CC-BY-4.0" in read("LICENSE-text")
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == project()["version"]


def test_the_picture_of_the_readme_is_current(tmp_path):
    with plt.rc_context():
        readme_picture.draw(tmp_path / "fresh.png")
    plt.close("all")
    fresh, stored = (
        plt.imread(path).astype(float)
        for path in (
            tmp_path / "fresh.png",
            ROOT / "book" / "_static" / "hot_tea.png",
        )
    )
    assert fresh.shape == stored.shape
    assert np.abs(fresh - stored).mean() < 1e-3
