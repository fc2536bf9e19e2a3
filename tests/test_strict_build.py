"""A broken link stops the build, also the second time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ["Makefile", "_config.yml", "_toc.yml", "tools", "book", "notebooks"]


def make(folder, *arguments):
    """Run make as from a shell, with the environment that runs the tests."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS"))
    }
    return subprocess.run(
        ["make", *arguments, f"VENV={sys.prefix}"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
    )


def test_a_broken_link_fails_twice_and_mended_passes(tmp_path):
    for name in FILES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        copy(ROOT / name, tmp_path / name)
    # Old stand-ins: the copy must never reinstall into the environment.
    for name in ("requirements.txt", "pyproject.toml"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    page = tmp_path / "book" / "index.md"
    good = page.read_text()

    page.write_text(good + "\n[gone](no-such-page.md)\n")
    for _ in range(2):
        broken = make(tmp_path, "book")
        assert broken.returncode != 0
        assert "no-such-page" in broken.stderr
        assert not (tmp_path / "_build" / ".doctrees").exists()

    page.write_text(good)
    mended = make(tmp_path, "book")
    assert mended.returncode == 0, mended.stderr
    assert f"{tmp_path}/_build/html/index.html" in mended.stdout

    again = make(tmp_path, "book")
    assert again.returncode == 0
    assert "jupyter-book" not in again.stdout
