"""Recorded results: each says where and with what code it was measured."""

import json
import re
from pathlib import Path

import pytest

from toyml import recorded

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = {path.stem for path in (ROOT / "tools" / "record").glob("*.py")}


def test_there_are_records():
    assert {"markov", "orders", "race", "text"} <= set(recorded.names())


@pytest.mark.parametrize("name", recorded.names())
def test_a_record_names_its_machine_and_commit(name):
    found = recorded.load(name)
    assert found["machine"].keys() >= {"processor", "cores", "threads"}
    assert found["machine"].keys() >= {"python", "torch", "numpy"}
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", found["commit"])


@pytest.mark.parametrize("name", recorded.names())
def test_a_script_makes_it(name):
    """``make record`` has a line for each."""
    assert name in SCRIPTS
    lines = (ROOT / "Makefile").read_text().splitlines()
    assert f"\t$(BIN)/python tools/record/{name}.py" in lines


@pytest.mark.parametrize("name", recorded.names())
def test_no_path_of_a_machine(name):
    text = json.dumps(recorded.load(name))
    assert not re.search(r"/(work|home|root|tmp)/", text)


def test_an_unknown_name():
    with pytest.raises(ValueError, match="name = 'moon'.*markov"):
        recorded.load("moon")


def test_the_race_kept_its_seeds_and_steps():
    """Three seeds of the path and of the pooled mean, at equal tokens."""
    rows = recorded.load("race")["rows"]
    for recipe in ("path, Muon", "pooled_mean, Muon"):
        mine = [row for row in rows if row["recipe"].startswith(recipe)]
        assert {row["seed"] for row in mine} == {0, 1, 2}
        assert all(row["steps"] <= 2500 for row in mine)
