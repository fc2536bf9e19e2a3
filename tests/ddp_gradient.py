"""What ``test_train_ranks`` runs under torchrun.

ddp_gradient.py FOLDER FLAGS...: every rank takes one backward step of the run
that the flags name and saves its loss and gradient; then the run is trained.
"""

import sys

import numpy as np
import torch

from toyml.train import data
from toyml.train.__main__ import main, parser
from toyml.train.objective import objective_at
from toyml.train.ranks import Ranks
from toyml.train.run import build
from toyml.train.step import backward, draw
from train_cases import TINY, tiny


def one_step(config, ranks):
    """The loss over all ranks, and the gradient that each of them has."""
    loaded = data.load(config)
    net = build(config, loaded.vocab_size)
    with torch.no_grad():
        for w in net.parameters():  # or most slopes would be zero
            w += 0.1 * torch.randn(w.shape)
    rng = np.random.default_rng(config.seed)
    batch = draw(config, objective_at(config, 0), loaded, rng)
    batch = ranks.slice(*batch)
    loss = backward(ranks.wrap(net), loaded.vocab_size, *batch, ranks)
    return ranks.total(loss), [w.grad for w in net.parameters()]


def begin(folder, words):
    options = vars(parser().parse_args(words))
    config = tiny(**{name: options[name] for name in TINY})
    ranks = Ranks.start(config)
    torch.save(one_step(config, ranks), f"{folder}/rank{ranks.rank}.pt")
    return main(words)


if __name__ == "__main__":
    sys.exit(begin(sys.argv[1], sys.argv[2:]))
