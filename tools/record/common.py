"""What the recorded experiments share: processes, and the file they write."""

import json
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import torch

from toyml import recorded
from toyml.train.__main__ import finish
from toyml.train.report import commit, machine
from toyml.train.run import METRICS, Run


def in_processes(function, jobs, workers=2):
    """Results of function(job), each as it comes, ``workers`` at a time.

    Every job has a process of its own and one thread.
    """
    with ProcessPoolExecutor(
        workers, get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        for done in as_completed([pool.submit(function, j) for j in jobs]):
            yield done.result()


def trained(config, draws):
    """One run from its first step to its report: the run, what it left."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = Run.begin(config, out)
        run.train()
        finish(run, draws)
        lines = (out / METRICS).read_text().splitlines()
        return run, {
            "report": json.loads((out / "report.json").read_text()),
            "metrics": [json.loads(line) for line in lines],
            "samples": (out / "samples.txt").read_text(encoding="utf-8"),
        }


def about(device):
    """The machine and the commit of a record."""
    return {"machine": machine(device), "commit": commit()}


def write(name, result):
    """Write toyml/recorded/NAME.json with the machine and the commit."""
    torch.set_num_threads(1)
    text = json.dumps(about(torch.device("cpu")) | result, indent=1) + "\n"
    (Path(recorded.__file__).parent / f"{name}.json").write_text(text)
