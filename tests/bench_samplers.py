"""Sampling against the forward passes it needs (``make bench-samplers``).

A ratio is the time of the network alone on every batch that a sampler asks
about, over the time of sampling. Each batch goes through both, in turns first
and second. With one thread the time is that on the processor, which a busy
machine changes little, and a second column says what two threads would give
if they halved the forward passes and nothing else. The network has the shape
of the ``markov`` preset. Its weights are random: an untrained one gives
uniform conditionals, which all tie.
"""

import argparse
import gc
import os
import time
from statistics import median

import numpy as np
import torch

from bench import cpu_model
from toyml.model import Transformer, as_denoiser
from toyml.samplers import (
    RULES,
    ancestral,
    blocks,
    confidence,
    first_hitting,
    fixed_order,
    random_order,
    remasked,
    renoised,
)
from toyml.schedules import LINEAR

LENGTH, LEAST = 64, 0.9
BATCH, PART = 128, 64  # rows of a question; of one forward pass
ROUNDS, ROWS = 3, 128


def network(vocab_size):
    torch.manual_seed(0)
    net = Transformer(vocab_size, layers=2, width=64, heads=4).eval()
    for w in net.parameters():
        if w.ndim == 2:
            torch.nn.init.normal_(w, std=0.1)
    return net


def samplers(steps):
    """By name, what samples LENGTH tokens in that many steps."""
    count = LENGTH // steps
    out = {f"confidence, {rule}": confidence(rule, count) for rule in RULES}
    out |= {
        "ancestral": ancestral(LINEAR, steps),
        "random order": random_order(count),
        "temperature 0.7, top-p 0.9": random_order(count).sharpened(0.7, 0.9),
        "fixed order": fixed_order(per_step=count),
        "blocks of 16": blocks(confidence("margin", min(count, 16)), 16),
        "remasked": remasked(random_order(count), 4),
        "renoised": renoised(LINEAR, steps),
    }
    if count == 1:
        out["first hitting"] = first_hitting(LINEAR)
    return out


class Timed:
    """A denoiser that also times the bare network on what it is asked."""

    def __init__(self, net):
        self.net, self.answer = net, as_denoiser(net, PART)
        self.calls, self.bare = 0, 0.0

    def __call__(self, tokens, t=None):
        self.calls += 1
        if self.calls % 2:
            self.forward(tokens)
        out = self.answer(tokens, t)
        if not self.calls % 2:
            self.forward(tokens)
        return out

    @torch.no_grad()
    @torch.no_grad()
    def forward(self, tokens):
        start = clock()
        for part in torch.from_numpy(tokens).split(PART):
            self.net(part)
        self.bare += clock() - start


def clock():
    one = torch.get_num_threads() == 1
    return time.process_time() if one else time.perf_counter()


def ratio(sampler, net):
    """Bare forward passes / sampling, median of ROUNDS."""
    ratios = []
    for seed in range(ROUNDS):
        denoiser, rng = Timed(net), np.random.default_rng(seed)
        gc.collect()
        gc.disable()  # a pass over all of torch would fall on one side
        start = clock()
        sampler.sample(
            denoiser, ROWS, LENGTH, net.vocab_size, rng, batch=BATCH
        )
        spent = clock() - start
        gc.enable()
        ratios.append(denoiser.bare / (spent - denoiser.bare))
    return median(ratios)


def many(net, sequences, steps):
    """Seconds for that many sequences, with a progress bar."""
    for name in ("random order", "ancestral", "confidence, entropy"):
        rng, start = np.random.default_rng(0), time.perf_counter()
        samplers(steps)[name].sample(
            as_denoiser(net),
            *(sequences, LENGTH, net.vocab_size, rng),
            batch=BATCH,
            progress=True,
        )
        spent = time.perf_counter() - start
        print(
            f"{sequences:,} x {LENGTH}, {steps} steps, {name}: {spent:.0f} s, "
            f"{sequences / spent:,.0f} sequences/s"
        )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sequences", type=int, default=10_000)
    options.add_argument("--skip-ratios", action="store_true")
    options.add_argument("--steps", type=int, nargs="+", default=[64, 8])
    options.add_argument("--vocab-size", type=int, default=8)
    options = options.parse_args()
    net = network(options.vocab_size)
    print(
        f"{cpu_model()}, {os.cpu_count()} cores, {torch.get_num_threads()} "
        f"threads, torch {torch.__version__}; V = {options.vocab_size}, "
        f"{sum(w.numel() for w in net.parameters()):,} parameters"
    )
    for steps in [] if options.skip_ratios else options.steps:
        print(f"{steps} steps: forward passes / sampling, at least {LEAST}")
        for name, sampler in samplers(steps).items():
            one = ratio(sampler, net)
            line = f"   {name:<30}{one:.3f}"
            if torch.get_num_threads() == 1:
                line += f"{one / (2 - one):8.3f}"
            print(line, flush=True)
    if options.sequences:
        many(net, options.sequences, 16)


if __name__ == "__main__":
    main()
