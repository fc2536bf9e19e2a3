"""The default run, whose answer is known: ``make record``."""

import json
import tempfile
from pathlib import Path

import torch
from common import in_processes, write

from toyml.train.__main__ import finish
from toyml.train.config import preset
from toyml.train.run import Run


def train(changes):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.begin(preset("markov", **changes), Path(folder) / "run")
        run.train()
        finish(run)
        return json.loads((run.folder / "report.json").read_text())


if __name__ == "__main__":
    for report in in_processes(train, [{}]):
        write("markov", report)
