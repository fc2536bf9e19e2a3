"""The run ``text-cpu``, its twin, and the pooled mean: ``make record``.

All train on the same number of characters of tiny Shakespeare, two at a time,
one process and one thread each; reports, curves and samples are kept.
"""

import argparse

import torch
from common import in_processes, trained, write

from toyml import recorded
from toyml.train.config import preset

OBJECTIVES = ("path", "autoregressive", "pooled_mean")


def train(job):
    """One run from its first step to its report; returns what it left."""
    torch.set_num_threads(1)
    objective, changes = job
    config = preset("text-cpu", objective=objective, **changes)
    return trained(config, draws=12)[1]


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
