"""The default run, whose answer is known: ``make record``."""

import torch
from common import in_processes, trained, write

from toyml.train.config import preset


def train(changes):
    torch.set_num_threads(1)
    return trained(preset("markov", **changes), draws=4)[1]["report"]


if __name__ == "__main__":
    for report in in_processes(train, [{}]):
        write("markov", report)
