"""Tiny runs, for the tests of the training run."""

import os
import sys
from pathlib import Path

import numpy as np
import torch

from toyml.model import Transformer
from toyml.train.config import Config

ROOT = Path(__file__).parent.parent
TINY = {
    "preset": "markov",
    "data": "markov",
    "length": 6,
    "layers": 1,
    "width": 16,
    "heads": 2,
    "batch": 8,
    "steps": 12,
    "warmup": 3,
    "checkpoint_every": 5,
    "evaluate_every": 6,
}

# One thread: bitwise comparisons, and tests that run side by side.
torch.set_num_threads(1)


def tiny(**changes):
    return Config(**TINY | changes)


def flags(out, **changes):
    """The command line of a tiny run."""
    words = ["--quiet", "--out", str(out)]
    for name, value in (TINY | changes).items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return words


def network(vocab_size=5, attention="bidirectional", seed=0, **shape):
    """A network with random weights in every place, none left at zero."""
    shape = {"layers": 2, "width": 16, "heads": 2} | shape
    net = Transformer(vocab_size, attention=attention, **shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(0.4 * noise + (weight.ndim == 1))
    return net


def random_tokens(shape, vocab_size=5, seed=0, mask=0.4):
    """Clean tokens with a share of masks, a torch tensor."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(vocab_size, size=shape)
    hidden = rng.random(shape) < mask
    return torch.from_numpy(np.where(hidden, vocab_size, tokens))


def command(*words):
    """This Python on a module of this checkout: command and environment."""
    path = os.environ.get("PYTHONPATH", str(ROOT))
    return [sys.executable, "-m", *words], {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": path,
    }


def same(a, b):
    """Whether two states are equal to the last bit, whatever they hold."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
