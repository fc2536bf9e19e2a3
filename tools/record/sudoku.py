"""Imperfect networks on Sudoku and on a chain, sampled in several orders.

Sudoku: one small network a seed. The probability that it fills an empty grid
validly is computed for each rule, as a sum over the 288 grids. The network of
seed 0 also fills puzzles, and the valid grids are counted.
Chain: the order in which small networks reveal the tokens.
"""

import argparse
import time
from itertools import combinations

import numpy as np
import torch
from common import in_processes, write

from toyml import recorded
from toyml.model import as_denoiser
from toyml.samplers import RULES as SCORES
from toyml.samplers import confidence, random_order
from toyml.sources import Sudoku4
from toyml.train import evaluate
from toyml.train.config import preset
from toyml.train.data import load
from toyml.train.run import Run

SOURCE = Sudoku4()
STEPS, SAMPLES, BATCH, SEED = 800, 2000, 500, 4
CHAIN_SEEDS, CHAIN_SAMPLES, GRAINS = 5, 400, (1, 2, 4)
CLUES = {6: (1, 2), 9: (1, 2, 4)}
RULES = {
    "random": random_order,
    "probability": lambda count: confidence("probability", count),
    "margin": lambda count: confidence("margin", count),
}


def measure(job):
    """Train one network and fill grids with it; returns its row."""
    torch.set_num_threads(1)
    seed, steps, samples = job
    start = time.process_time()
    config, data = make(seed, steps)
    run = Run(config, data)
    run.train()
    run.optimizer.swap_average()
    denoiser, rng = as_denoiser(run.net), np.random.default_rng(SEED)
    gap = evaluate.gap(denoiser, SOURCE, data.validation[:1024], rng)
    empty = {
        rule: [chance(denoiser, rule, count) for count in (1, 2, 4)]
        for rule in RULES
    }
    print(seed, gap, empty, flush=True)
    rows = fill_all(denoiser, samples) if samples else []
    return {
        "seed": seed,
        "steps": steps,
        "parameters": sum(w.numel() for w in run.net.parameters()),
        "processor_seconds": time.process_time() - start,
        "gap_per_token": gap.mean,
        "empty": empty,
        "rows": rows,
    }


def make(seed, steps):
    """Configuration and data of a network meant to stay imperfect."""
    config = preset(
        "markov",
        data="sudoku4",
        seed=seed,
        batch=64,
        steps=steps,
        lr=1e-2,
        matrix_lr=2e-2,
        evaluate_every=10**9,
        device="cpu",
    )
    return config, load(config)


def chance(denoiser, rule, count):
    """The probability that an empty grid is filled validly.

    A rule that picks positions by confidence writes each grid along one path;
    the probabilities of the 288 are added up. For the random order each grid
    takes one random path, which gives the sum without bias.
    """
    grids = SOURCE.grids
    keys = np.random.default_rng(SEED).random(grids.shape)
    seen, total = np.full_like(grids, SOURCE.vocab_size), 1.0
    while (hidden := seen == SOURCE.vocab_size).any():
        probs = denoiser(seen)
        score = (
            keys
            if rule == "random"
            else SCORES[rule](probs.reshape(-1, SOURCE.vocab_size)).reshape(
                keys.shape
            )
        )
        best = np.where(hidden, -score, np.inf).argsort(axis=1, kind="stable")
        chosen = np.zeros_like(hidden)
        np.put_along_axis(chosen, best[:, :count], True, axis=1)
        right = np.take_along_axis(probs, grids[..., None], -1)[..., 0]
        total = total * np.where(chosen, right, 1).prod(axis=1)
        seen = np.where(chosen, grids, seen)
    return float(total.sum())


def fill_all(denoiser, samples):
    """Counts of valid grids by clues, rule and tokens a step."""
    rows = []
    for clues, counts in CLUES.items():
        prompt, ways = puzzles(clues, samples)
        for name, rule in RULES.items():
            for count in counts:
                valid = fill(denoiser, rule(count), prompt)
                rows.append(
                    {
                        "clues": clues,
                        "rule": name,
                        "per_step": count,
                        "n": samples,
                        "valid": int(valid.sum()),
                        "n_unique": int((ways == 1).sum()),
                        "valid_unique": int(valid[ways == 1].sum()),
                    }
                )
    return rows


def puzzles(clues, n):
    """Grids with ``clues`` random cells visible, [n, 16], and solutions [n].

    The same for every network; solutions counts the grids that fit.
    """
    rng = np.random.default_rng(SEED)
    grids = SOURCE.sample(n, rng)
    shown = rng.random(grids.shape).argsort(axis=1) < clues
    prompt = np.where(shown, grids, SOURCE.vocab_size)
    fits = ~shown[:, None] | (prompt[:, None] == SOURCE.grids)
    return prompt, fits.all(axis=2).sum(axis=1)


def fill(denoiser, sampler, prompt):
    """Which of the filled puzzles are valid grids, bool [n]."""
    rng = np.random.default_rng(SEED)
    filled = sampler.sample(
        denoiser, *prompt.shape, SOURCE.vocab_size, rng, prompt, BATCH
    )
    return np.isfinite(SOURCE.log_prob(filled))


def commit_order(seed):
    """Kendall's tau of reveal step against position, of one small network.

    For each grain g: the mean over samples of (C - D) / (C + D) over pairs of
    positions in different blocks of g, and its standard error.
    """
    torch.set_num_threads(1)
    config = preset(
        "markov",
        seed=seed,
        length=8,
        batch=64,
        steps=200,
        warmup=20,
        lr=1e-2,
        matrix_lr=2e-2,
        evaluate_every=10**9,
        device="cpu",
    )
    run = Run(config, load(config))
    run.train()
    run.optimizer.swap_average()
    denoiser, hidden = as_denoiser(run.net), []

    def recording(tokens, t=None):
        hidden.append(tokens == 8)
        return denoiser(tokens)

    confidence("probability").sample(
        recording, CHAIN_SAMPLES, 8, 8, np.random.default_rng(SEED)
    )
    rank = np.sum(hidden, axis=0)
    out = {}
    for grain in GRAINS:
        signs = [
            np.sign(rank[:, j] - rank[:, i])
            for i, j in combinations(range(8), 2)
            if i // grain != j // grain
        ]
        tau = np.mean(signs, axis=0)
        error = tau.std(ddof=1) / CHAIN_SAMPLES**0.5
        out[grain] = [float(tau.mean()), float(error)]
    return {"seed": seed, "tau": out}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options.add_argument("--chains", type=int, default=CHAIN_SEEDS)
    options.add_argument("--steps", type=int, default=STEPS)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--keep", action="store_true", help="add to the file")
    asked = options.parse_args()
    out = {"runs": [], "order": []}
    if asked.keep:
        out = {key: recorded.load("sudoku")[key] for key in out}
    chains = range(asked.chains)
    for row in in_processes(commit_order, chains, asked.workers):
        print(row, flush=True)
        out["order"] = sorted([*out["order"], row], key=lambda r: r["seed"])
    jobs = [(s, asked.steps, 0 if s else SAMPLES) for s in asked.seeds]
    for run in in_processes(measure, jobs, asked.workers):
        out["runs"] = sorted([*out["runs"], run], key=lambda r: r["seed"])
        write("sudoku", out)


if __name__ == "__main__":
    main()
