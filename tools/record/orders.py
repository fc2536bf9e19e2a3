"""The experiments of chapter 15: hard orders, block size 1, repeats, sizes.

Small networks on sources whose conditionals are known, one process a run on
one thread. Every result is an excess in nats per token: the mean KL from the
exact conditional to that of the network.
"""

import argparse
import time
from itertools import product

import numpy as np
import torch
from common import in_processes, write

from toyml import recorded
from toyml.model import as_denoiser
from toyml.objectives import uniform_count
from toyml.sources import Markov
from toyml.sources.checks import check_tokens, fill_visible
from toyml.train.config import preset
from toyml.train.data import FromSource, load
from toyml.train.evaluate import divergence
from toyml.train.run import Run
from toyml.train.step import backward

COMMON = {
    "layers": 2,
    "optimizer": "adamw",
    "lr": 3e-3,
    "batch": 64,
    "evaluate_every": 10**9,
}
# The rate falls to zero at ``steps``; a run that stops long before keeps it.
STEADY = 40_000

RULE, ROW = 30, 8
HARD = {"width": 32, "steps": 600}
BLOCK = {"width": 32, "batch": 32, "steps": STEADY}
BLOCK_STEPS, EPS = 300, 1e-3
REPEAT = {"width": 64, "steps": STEADY, "fixed_sequences": 128}
EPOCHS = {
    "autoregressive": (5, 10, 20, 30, 40, 50, 60, 80, 100),
    "uniform_count": (10, 20, 40, 60, 100, 150, 200, 270, 350, 450),
}
SIZE = {"ema": 0.98, "steps": STEADY}
WIDTHS, TARGETS = (32, 64, 96), (0.2, 0.1, 0.05)


class Listed:
    """Equally likely sequences of two tokens, [N, L], as a source."""

    vocab_size = 2

    def __init__(self, sequences):
        self.sequences = np.ascontiguousarray(sequences)
        self.length = self.sequences.shape[1]

    def __call__(self, tokens, t=None):
        """p(x_i | visible tokens), [B, L, 2], by counting what fits."""
        tokens = check_tokens(self, tokens)
        hidden = (tokens == self.vocab_size)[:, None]
        fits = (hidden | (tokens[:, None] == self.sequences)).all(axis=2)
        ones = fits @ self.sequences / fits.sum(axis=1, keepdims=True)
        return fill_visible(np.stack([1 - ones, ones], axis=-1), tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, L]; -inf off the list."""
        x = check_tokens(self, sequences, clean=True)
        same = (x[:, None] == self.sequences).all(axis=2).mean(axis=1)
        with np.errstate(divide="ignore"):
            return np.log(same)

    def entropy(self):
        """Entropy in nats per sequence."""
        return float(-self.log_prob(self.sequences).mean())

    def sample(self, n, rng):
        """n sequences, int64 [n, L]."""
        return self.sequences[rng.integers(len(self.sequences), size=n)]


def automaton(steps=1):
    """Every row of ROW bits on a ring, and the row ``steps`` later, [N, L]."""
    first = np.array(list(product((0, 1), repeat=ROW)))
    last = first
    for _ in range(steps):
        left, right = np.roll(last, 1, axis=1), np.roll(last, -1, axis=1)
        last = RULE >> (4 * left + 2 * last + right) & 1
    return np.concatenate([first, last], axis=1)


def causal_excess(net, source, sequences):
    """Mean KL at each position given the clean tokens before it, [L]."""
    with torch.no_grad():
        q = net(torch.tensor(sequences)).double().softmax(dim=-1).numpy()
    return divergence(prefix_law(source, sequences), q).mean(axis=0)


def prefix_law(source, sequences):
    """p(x_i | x_1 .. x_{i-1}), [n, L, V]."""
    if isinstance(source, Markov):
        first = np.broadcast_to(source.initial, (len(sequences), 1, 8))
        later = source.transition[sequences[:, :-1]]
        return np.concatenate([first, later], axis=1)
    places = np.arange(source.length)
    out = np.empty((*sequences.shape, source.vocab_size))
    for i in places:
        shown = np.where(places < i, sequences, source.vocab_size)
        out[:, i] = source(shown)[:, i]
    return out


def masked_excess(net, source, sequences, seed=3):
    """The same under ``uniform_count``: by position [L], by count [L]."""
    n, length = sequences.shape
    rng = np.random.default_rng(seed)
    masked, weight = uniform_count().draw(
        n, length, rng, coupling="stratified"
    )
    masked, weight = masked[:, 0], weight[:, 0]
    shown = np.where(masked, source.vocab_size, sequences)
    costs = divergence(source(shown), as_denoiser(net)(shown)) * masked
    size = masked.sum(axis=1)
    total = np.bincount(size, costs.sum(axis=1) / size, length + 1)
    count = np.bincount(size, minlength=length + 1)
    return (weight * costs).sum(axis=0), total[1:] / count[1:]


def excess(run, sequences):
    """Of the averaged weights: by position [L], and by count or None."""
    run.optimizer.swap_average()
    source = run.data.source
    if run.net.attention == "causal":
        found = causal_excess(run.net, source, sequences), None
    else:
        found = masked_excess(run.net, source, sequences)
    run.optimizer.swap_average()
    return found


def hard(kind, seed):
    """Rule 30 left to right, right to left, and masked."""
    sequences = automaton()
    if kind == "right to left":
        sequences = sequences[:, ::-1].copy()
    objective = "uniform_count" if kind == "masked" else "autoregressive"
    run = start(
        HARD,
        FromSource(Listed(sequences), sequences),
        objective=objective,
        seed=seed,
    )
    curve = []
    repeated = np.repeat(sequences, 4, axis=0)
    for step in range(75, HARD["steps"] + 1, 75):
        train(run, step)
        by_position, by_count = excess(
            run, repeated if kind == "masked" else sequences
        )
        curve.append([step, float(by_position.mean())])
    if kind == "right to left":
        by_position = by_position[::-1]
    return run, {
        "curve": curve,
        "by_position": by_position.tolist(),
        "by_count": None if by_count is None else by_count.tolist(),
    }


def block(kind, seed):
    """The twin, and what scores only some positions, of equal mean."""
    run = start(BLOCK, objective="autoregressive", seed=seed)
    shape, curve = (BLOCK["batch"], run.config.length), []
    masked = np.zeros((shape[0], 1, shape[1]), bool)
    begin = time.perf_counter()
    while run.step < BLOCK_STEPS:
        x0 = run.data.draw(shape[0], run.rng)
        weight = position_weights(kind, shape, run.rng)[:, None] / shape[0]
        backward(run.net, 8, x0, masked, weight, run.ranks)
        run.optimizer.step(run.step)
        run.step += 1
        if run.step % 50 == 0:
            found = excess(run, run.data.validation[:1024])[0]
            curve.append([run.step, float(found.mean())])
    run.seconds = time.perf_counter() - begin
    return run, {"curve": curve}


def position_weights(kind, shape, rng):
    """Weights of mean 1: of variance 0, 1, or ln(1/EPS) / (1 - EPS) - 1."""
    if kind == "every position":
        return np.ones(shape)
    t = 0.5
    if kind == "block size 1":
        t = EPS + (1 - EPS) * rng.random(shape)
    return (rng.random(shape) < t) / t


def repeat(kind, seed):
    """The same few sequences again and again."""
    run = start(REPEAT, objective=kind, seed=seed)
    steps = REPEAT["fixed_sequences"] // run.config.batch
    curve = []
    for epoch in EPOCHS[kind]:
        train(run, epoch * steps)
        found = excess(run, run.data.validation[:1024])[0]
        curve.append([epoch, float(found.mean())])
    return run, {"curve": curve}


def sizes(kind, seed, width):
    """Steps until the excess is below the last target."""
    run = start(SIZE, objective=kind, seed=seed, width=width)
    curve = []
    while not curve or curve[-1][1] > TARGETS[-1]:
        train(run, int(max(run.step + 10, run.step * 1.1)))
        found = excess(run, run.data.validation[:1024])[0]
        curve.append([run.step, float(found.mean())])
    return run, {"curve": curve, "width": width}


def train(run, step):
    """Train to a step; a run that was told to stop ends the process."""
    if not run.train(until=step):
        raise SystemExit(f"stopped at step {run.step}")


def start(changes, data=None, **more):
    config = preset("markov", **(COMMON | changes | more))
    return Run(config, data or load(config))


def all_of(job):
    """Every experiment asked for, with one seed: (name, row) pairs."""
    torch.set_num_threads(1)
    seed, names = job
    found = []
    for name in names:
        function, choices = EXPERIMENTS[name]
        for kind, *more in choices:
            begin = time.process_time()
            run, result = function(kind, seed, *more)
            seconds = time.process_time() - begin
            step, last = result["curve"][-1]
            print(
                f"{name:<7} {kind:<15} seed {seed} {more}: excess "
                f"{last:.4f} at {step}, {seconds:.0f} s of processor",
                flush=True,
            )
            about = {
                "kind": kind,
                "seed": seed,
                "parameters": sum(w.numel() for w in run.net.parameters()),
                "tokens_per_step": run.config.batch * run.config.length,
                "training_seconds": run.seconds,
                "processor_seconds": seconds,
            }
            found.append((name, about | result))
    return found


LOSSES = ("autoregressive", "uniform_count")
EXPERIMENTS = {
    "size": (sizes, list(product(LOSSES, WIDTHS))),
    "hard": (hard, [("left to right",), ("right to left",), ("masked",)]),
    "repeat": (repeat, [(kind,) for kind in LOSSES]),
    "block": (block, [("every position",), ("half",), ("block size 1",)]),
}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options.add_argument("--only", nargs="*", default=list(EXPERIMENTS))
    options.add_argument("--keep", action="store_true", help="add to the file")
    options.add_argument("--out", default="orders")
    asked = options.parse_args()
    result = {
        "settings": {
            "common": COMMON,
            "hard": HARD | {"rule": RULE, "row": ROW},
            "block": BLOCK | {"stopped_at": BLOCK_STEPS, "eps": EPS},
            "repeat": REPEAT,
            "size": SIZE | {"targets": TARGETS},
        }
    }
    old = recorded.load(asked.out) if asked.keep else {}
    result |= {name: old.get(name, []) for name in EXPERIMENTS}
    jobs = [(seed, asked.only) for seed in asked.seeds]
    for found in in_processes(all_of, jobs):
        for name, row in found:
            result[name].append(row)
            result[name].sort(key=lambda row: (row["kind"], row["seed"]))
        write(asked.out, result)


if __name__ == "__main__":
    main()
