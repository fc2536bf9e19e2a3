"""The run ``text-cpu``, its twin, and the pooled mean: ``make record``.

All train on the same number of characters of tiny Shakespeare, two at a time,
one process and one thread each; reports, curves and samples are kept.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch
from common import in_processes, write

from toyml import recorded
from toyml.train.__main__ import finish
from toyml.train.config import preset
from toyml.train.run import METRICS, Run

OBJECTIVES = ("path", "autoregressive", "pooled_mean")


def train(job):
    """One run from its first step to its report; returns what it left."""
    torch.set_num_threads(1)
    objective, changes = job
    config = preset("text-cpu", objective=objective, **changes)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = Run.begin(config, out)
        run.train()
        finish(run, draws=12)
        report = json.loads((out / "report.json").read_text())
        lines = (out / METRICS).read_text().splitlines()
        return {
            "report": report,
            "metrics": [json.loads(line) for line in lines],
            "samples": (out / "samples.txt").read_text(encoding="utf-8"),
        }


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int)
    options.add_argument("--data")
    options.add_argument("--out", default="text")
    options.add_argument("--add", help="one objective to add to the record")
    asked = vars(options.parse_args())
    name, add = asked.pop("out"), asked.pop("add")
    changes = {key: value for key, value in asked.items() if value is not None}
    found = recorded.load(name) if add else {}
    jobs = [(o, changes) for o in ([add] if add else OBJECTIVES)]
    for result in in_processes(train, jobs):
        found[result["report"]["objective"]] = result
        write(name, {key: found[key] for key in OBJECTIVES if key in found})


if __name__ == "__main__":
    main()
