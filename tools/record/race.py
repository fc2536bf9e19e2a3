"""Recipes against each other at equal tokens: ``make bench-race``.

Every recipe trains the network of ``text-cpu`` on tiny Shakespeare, 2,500
steps of 48 sequences of 64 characters, one process a run on one thread, two
at a time. The path takes 100 steps fewer, which pays for the time of its
optimizer. One evaluator measures all of them on the same masks.
"""

import argparse
import time

import numpy as np
import torch
from common import in_processes, write

from toyml import recorded
from toyml.objectives import uniform_count
from toyml.train import evaluate
from toyml.train.config import preset
from toyml.train.data import load
from toyml.train.run import Run
from toyml.train.step import backward

ADAMW = {"optimizer": "adamw", "lr": 1e-3, "ema": 0.0}
MUON = {"optimizer": "muon", "lr": 6e-3, "matrix_lr": 6e-3, "ema": 0.99}
FASTER = ADAMW | {"lr": 3e-3}
PATH = {"objective": "path"} | MUON
RECIPES = {
    "path, Muon": PATH | {"steps": 2400},
    "pooled_mean, Muon": {"objective": "pooled_mean"} | MUON,
    "pooled_mean, AdamW": {"objective": "pooled_mean"} | ADAMW,
    "pooled_mean, AdamW 3e-3": {"objective": "pooled_mean"} | FASTER,
    "uniform_count, Muon": {"objective": "uniform_count"} | MUON,
    "uniform_count, AdamW": {"objective": "uniform_count"} | ADAMW,
    "inverse_t, AdamW": {"objective": "inverse_t"} | ADAMW,
    "path, Muon, 2500 steps": PATH,
    "path, draw -1/2, Muon": PATH | {"steps": 2400, "draw_power": -0.5},
}
STEPS, LOOKS, DRAWS, SEED, SEEDS = 2500, 5, 12, 4, (0, 1, 2)
GRADIENT_COUNTS, GRADIENT_ROWS = (1, 2, 4, 8, 16, 32, 64), 24


def race(job):
    """Train one recipe with one seed; returns its row."""
    torch.set_num_threads(1)
    name, seed, divisor = job
    choices = {"steps": STEPS, "seed": seed} | RECIPES[name]
    choices["steps"] //= divisor
    config = preset("text-cpu", evaluate_every=10**9, **choices)
    steps = config.steps
    data = load(config)
    run = Run(config, data)
    profiles, noise = {}, {}
    processor = 0.0
    for look in range(1, LOOKS + 1):
        start = time.process_time()
        run.train(until=steps * look // LOOKS)
        processor += time.process_time() - start
        run.optimizer.swap_average()
        if look < LOOKS:
            profiles[run.step] = profile(*losses(run, 1)).tolist()
            if seed == 0 and look in (1, 3):
                noise[run.step] = gradient_noise(run, data)
            run.optimizer.swap_average()
    counts, means = losses(run, DRAWS)
    profiles[run.step] = profile(counts, means).tolist()
    found = evaluate.Estimate.of(means.mean(axis=0))
    return {
        "recipe": name,
        "seed": seed,
        "steps": steps,
        "nelbo": found.mean,
        "standard_error": found.error,
        "training_seconds": run.seconds,
        "processor_seconds": processor,
        "profiles": profiles,
        "gradient_noise": noise,
    }


def losses(run, draws):
    """The one evaluator: the same windows and masks for every recipe."""
    rng = np.random.default_rng(SEED)
    return evaluate.masked_losses(run.net, run.data.validation, rng, draws)


def profile(counts, means):
    """Mean cross-entropy of a masked character with k = 1..L masks, [L]."""
    size = np.bincount(counts.ravel())
    total = np.bincount(counts.ravel(), means.ravel())
    return total[1:] / np.maximum(size[1:], 1)


def gradient_noise(run, data):
    """By mask count: squared norm of the mean gradient, and its variance.

    The gradient is that of the mean cross-entropy of a sequence's masks; the
    variance is the trace of its covariance between training sequences.
    """
    rng = np.random.default_rng(SEED)
    out = {}
    for count in GRADIENT_COUNTS:
        rows = []
        for x0 in data.draw(GRADIENT_ROWS, rng):
            u = np.array([(count - 0.5) / data.length])
            sizes = np.array([data.length])
            given = uniform_count().given(u, sizes)
            hidden, _ = given.draw(np.ones((1, data.length), bool), rng)
            weight = hidden * (data.length / count)
            run.net.zero_grad(set_to_none=True)
            backward(
                run.net,
                data.vocab_size,
                x0[None],
                hidden[:, None],
                weight[:, None],
                run.ranks,
            )
            rows.append(
                torch.cat([w.grad.ravel() for w in run.net.parameters()])
            )
        grads = torch.stack(rows)
        mean = grads.mean(dim=0)
        variance = grads.var(dim=0).sum().item()
        signal = mean.square().sum().item() - variance / len(rows)
        out[count] = {"signal": signal, "variance": variance}
    run.net.zero_grad(set_to_none=True)
    return out


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--job",
        nargs=2,
        action="append",
        metavar=("RECIPE", "SEED"),
        help="add one run to the record; by default all are run anew",
    )
    options.add_argument("--divisor", type=int, default=1, help="fewer steps")
    options.add_argument("--out", default="race")
    asked = options.parse_args()
    jobs = asked.job or [(name, s) for s in SEEDS for name in RECIPES]
    jobs = [(name, int(seed), asked.divisor) for name, seed in jobs]
    rows = recorded.load(asked.out)["rows"] if asked.job else []
    for row in in_processes(race, jobs):
        print(
            f"{row['recipe']:<24} seed {row['seed']}: {row['nelbo']:.4f} +- "
            f"{row['standard_error']:.4f}, {row['training_seconds']:.0f} s, "
            f"{row['processor_seconds']:.0f} s of processor",
            flush=True,
        )
        rows.append(row)
        write(asked.out, {"rows": rows})


if __name__ == "__main__":
    main()
