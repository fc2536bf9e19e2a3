"""A few samples of the network at several numbers of steps, as text."""

import numpy as np

from ..model import as_denoiser
from ..samplers import fixed_order, random_order

STEPS = (4, 16)
SEED = 5


def samplers(length, causal):
    """The samplers shown, by heading: fewer steps reveal more at once."""
    if causal:
        return {f"left to right, {length} steps": fixed_order()}
    out = {}
    for steps in sorted({*(k for k in STEPS if k < length), length}):
        counts = np.diff(np.arange(steps + 1) * length // steps).tolist()
        out[f"random order, {steps} steps"] = random_order(counts)
    return out


def samples(net, data, length, count):
    """``count`` samples under each heading, as the text of ``samples.txt``."""
    parts = []
    causal = net.attention == "causal"
    for heading, sampler in samplers(length, causal).items():
        rng = np.random.default_rng(SEED)
        drawn = sampler.sample(
            as_denoiser(net), count, length, data.vocab_size, rng
        )
        for number, tokens in enumerate(drawn, start=1):
            parts.append(f"--- {heading}, sample {number} of {count}\n")
            parts.append(data.decode(tokens) + "\n")
    return "".join(parts)
