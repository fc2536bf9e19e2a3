"""Results of runs too long for a notebook, as JSON, each with its report.

``make record`` runs them again. ``load(name)`` returns one as a dict; its
"machine" and "commit" say where and with what code it was measured.
"""

import json
from importlib.resources import files


def names():
    """The names of the recorded results."""
    found = (path.name for path in files(__package__).iterdir())
    return sorted(n.removesuffix(".json") for n in found if ".json" in n)


def load(name):
    """One recorded result; ValueError for a name that is not there."""
    if name not in names():
        raise ValueError(f"name = {name!r}: expected one of {names()}")
    text = (files(__package__) / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)
