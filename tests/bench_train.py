"""The training run, measured in one run (``make bench-train``).

How far the default run gets from the known entropy; its speed as a ratio to a
bare PyTorch loop; and how its memory grows with the batch.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from toyml.train import report
from toyml.train.config import preset
from toyml.train.data import load
from toyml.train.run import Run, build

ROUNDS, STEPS = 15, 10
BATCHES = (128, 256, 512, 1024)


def bare_loop(config, data):
    """A loop without objective: yields after each step, data in memory."""
    torch.manual_seed(0)
    net = build(config, data.vocab_size)
    inner = [w for w in net.blocks.parameters() if w.ndim == 2]
    known = {id(w) for w in inner}
    outer = [w for w in net.parameters() if id(w) not in known]
    optimizers = [
        torch.optim.Muon(
            inner, lr=1e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(outer, lr=1e-3, betas=(0.9, 0.99)),
    ]
    x0 = torch.from_numpy(data.draw(config.batch, np.random.default_rng(0)))
    shown = x0.masked_fill(torch.rand(x0.shape) < 0.5, data.vocab_size)
    while True:
        loss = cross_entropy(net(shown).transpose(1, 2), x0)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        yield


def speed(name, **changes):
    """Steps per second of the run over those of the bare loop, medians.

    Short stretches of the two alternate on the same threads; run it on a
    machine that does nothing else, since time is that on the wall.
    """
    config = preset(name, evaluate_every=10**6, **changes)
    data = load(config)
    run, bare = Run(config, data), bare_loop(config, data)
    own, rival = [], []
    for number in range(1, ROUNDS + 1):
        start = time.perf_counter()
        run.train(until=number * STEPS)
        middle = time.perf_counter()
        for _ in range(STEPS):
            next(bare)
        own.append(middle - start)
        rival.append(time.perf_counter() - middle)
    return median(rival) / median(own)


def peak_bytes(batch):
    """What three steps hold at once beside the network, on Linux."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (batch,))


def _peak(batch):
    torch.set_num_threads(1)
    config = preset("markov", batch=batch, evaluate_every=10**6)
    run = Run(config, load(config))
    run.train(until=1)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    run.train(until=4)
    return memory("VmHWM") - before


def memory(name):
    """A line of this process's status, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"no {name} in /proc/self/status")


def default_run():
    with tempfile.TemporaryDirectory() as folder:
        run = Run.begin(preset("markov"), f"{folder}/markov")
        run.train()
        out = report.write(run, report.measure(run))
    print(
        f"markov: {out['training_seconds']:.0f} s, "
        f"{out['tokens_per_second']:,.0f} tokens/s, "
        f"{out['parameters']:,} parameters; entropy "
        f"{out['entropy_per_token']:.4f} nats per token"
    )
    print(
        f"   gap {out['gap_per_token']:.4f} +- "
        f"{out['gap_standard_error']:.4f} (wanted 0.02, aim 0.005); "
        + ", ".join(f"{k} {v:.3f}" for k, v in out["baselines"].items())
    )


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--skip-run", action="store_true")
    skip = options.parse_args().skip_run
    one = report.machine(torch.device("cpu"))
    print(
        f"{one['processor']}, {one['cores']} cores, {one['threads']} threads, "
        f"torch {one['torch']}, commit {report.commit()}"
    )
    for name in ("markov", "text-cpu"):
        data = {} if name == "markov" else {"data": "stdlib"}
        ratio = speed(name, **data)
        print(f"{name}: speed / bare loop {ratio:.3f} (at least 0.95)")
    peaks = [peak_bytes(batch) for batch in BATCHES]
    for batch, peak in zip(BATCHES, peaks, strict=True):
        print(
            f"batch {batch:>4} x 16: peak {peak / 2**20:.0f} MiB, per token "
            f"{peak / batch / 16 / 2**10:.1f} KiB"
        )
    if not skip:
        default_run()


if __name__ == "__main__":
    main()
