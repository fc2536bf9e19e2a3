"""The preset ``text-gpu`` and its twin on one GPU: ``make train-gpu``.

Each run is cut to the steps that fit in its share of the time; with the
network's and the machine's matrix rates all goes to OUT/gpu.json, where OUT
is the environment variable of that name, or ``runs``. Copy the file to
``toyml/recorded`` to show it in the book.
"""

import argparse
import json
import os
import time
from pathlib import Path

import torch
from common import about, trained

from toyml.train.config import preset
from toyml.train.data import load
from toyml.train.errors import RunError
from toyml.train.ranks import pick_device
from toyml.train.run import Run

OBJECTIVES = ("path", "autoregressive")
WARM, TIMED, SIDE = 20, 40, 8192


def matrix_rate(device, side):
    """bf16 multiply-adds of one square product, times 2, a second."""
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    wait(device)
    start = time.perf_counter()
    for _ in range(10):
        a @ a
    wait(device)
    return 10 * 2 * side**3 / (time.perf_counter() - start)


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def steps_that_fit(config, seconds):
    """How many steps run in that time, compilation left out."""
    run = Run(config, load(config))
    run.train(until=WARM)
    wait(run.ranks.device)
    before = run.seconds
    run.train(until=WARM + TIMED)
    wait(run.ranks.device)
    each = (run.seconds - before) / TIMED
    return max(1, min(config.steps, int(seconds / each)))


def train(config):
    """One run to its report, with the operations a second it reached."""
    run, left = trained(config, draws=4)
    weights = sum(w.numel() for w in run.net.blocks.parameters())
    weights += run.net.head.weight.numel()
    attention = 2 * config.layers * config.length * config.width
    per_token = 6 * (weights + attention)
    rate = per_token * left["report"]["tokens_per_second"]
    return left | {"operations_per_second": rate}


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--preset", default="text-gpu")
    options.add_argument("--data", default="shakespeare")
    options.add_argument("--seconds", type=float, default=150.0)
    options.add_argument("--side", type=int, default=SIDE)
    asked = options.parse_args()
    try:
        pick_device(preset(asked.preset))
    except RunError as error:
        raise SystemExit(f"train-gpu: {error}") from None
    out = Path(os.environ.get("OUT", "runs"))
    out.mkdir(parents=True, exist_ok=True)
    found = {}
    for objective in OBJECTIVES:
        config = preset(asked.preset, objective=objective, data=asked.data)
        device = pick_device(config)
        found.setdefault("matrix_rate", matrix_rate(device, asked.side))
        steps = steps_that_fit(config, asked.seconds)
        changes = {"objective": objective, "data": asked.data, "steps": steps}
        found[objective] = train(preset(asked.preset, **changes))
        share = found[objective]["operations_per_second"]
        share /= found["matrix_rate"]
        print(f"{objective}: {share:.1%} of the bf16 matrix rate")
        text = json.dumps(about(device) | found, indent=1) + "\n"
        (out / "gpu.json").write_text(text)
    print(out / "gpu.json")


if __name__ == "__main__":
    main()
