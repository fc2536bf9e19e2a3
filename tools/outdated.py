"""The pins of requirements.txt that are behind: python tools/outdated.py."""

import json
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]


def behind(requirements: str, newer: list[dict[str, str]]) -> list[str]:
    """One line for each pin with a newer release.

    `requirements` is the text of requirements.txt, `newer` what
    `pip list --outdated --format=json` says.
    """
    lines = requirements.splitlines()
    pins = [Requirement(x) for x in lines if x and not x.startswith("#")]
    names = {canonicalize_name(pin.name) for pin in pins}
    return [
        f"{row['name']} {row['version']} -> {row['latest_version']}"
        for row in newer
        if canonicalize_name(row["name"]) in names
    ]


if __name__ == "__main__":
    pip = [sys.executable, "-m", "pip", "list", "--outdated", "--format=json"]
    newer = json.loads(subprocess.check_output(pip))
    found = behind((ROOT / "requirements.txt").read_text(), newer)
    print("\n".join(found) or "Every pin is the newest release.")
