"""Costs, as ratios measured in one run (``make bench``).

Each time is the median of 7 runs. A ratio to one ``numpy.sum`` over the same
table says how far a method is from reading its input once. Drawing an
objective is compared with a training step of a tiny network.
"""

import math
import os
import platform
import time
import tracemalloc
from functools import partial
from itertools import permutations
from statistics import median

import numpy as np
import torch
from torch import nn

from toyml.lattice import MaskLattice
from toyml.loss import weighted_cross_entropy
from toyml.objectives import forced_target, inverse_t, uniform_count

RUNS = 7
METHODS = ("nelbo", "generator_nll")
LENGTHS = (16, 18, 20)
DRAWN = (inverse_t(), uniform_count(), forced_target())
BATCH, TOKENS, VOCAB = 256, 16, 32


def random_table(length, seed=0):
    """[2^L, L]: uniform on (0.05, 1) where masked, 1 where visible."""
    table = np.random.default_rng(seed).uniform(0.05, 1, (1 << length, length))
    patterns = np.arange(1 << length)
    for i in range(length):
        table[patterns >> i & 1 == 0, i] = 1
    return table


def seconds(table, rival):
    """Median times of rival(table) and of each method.

    A method gets a fresh lattice each time, whose making is not timed, so
    that nothing is cached in it. Time on the processor, not on the wall: a
    busy machine then changes little.
    """
    out = {}
    for name in (*METHODS, rival):
        runs = []
        for _ in range(RUNS):
            call = partial(rival, table)
            if name is not rival:
                call = getattr(MaskLattice(table), name)
            start = time.process_time()
            call()
            runs.append(time.process_time() - start)
        out[name] = median(runs)
    return out


def peak_bytes(table, name):
    """The most memory a method holds at once beside the table."""
    one = MaskLattice(table)
    tracemalloc.start()
    getattr(one, name)()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def by_orders(table):
    """NELBO and generator NLL by a literal loop over all L! orders."""
    rows, length = table.tolist(), table.shape[1]
    total_loss = total_probability = 0.0
    for order in permutations(range(length)):
        pattern, probability = (1 << length) - 1, 1.0
        for i in order:
            probability *= rows[pattern][i]
            pattern ^= 1 << i
        total_loss -= math.log(probability)
        total_probability += probability
    n = math.factorial(length)
    return total_loss / n, -math.log(total_probability / n)


def tiny_encoder():
    """A bidirectional Transformer of 104,160 parameters."""
    layer = nn.TransformerEncoderLayer(
        64, 4, dim_feedforward=256, dropout=0.0, batch_first=True
    )
    return nn.Sequential(
        nn.Embedding(VOCAB + 1, 64),
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Linear(64, VOCAB),
    )


def draw_and_step(objective):
    """Median times of drawing and of forward and backward, on one thread."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    net, x0 = tiny_encoder(), torch.randint(VOCAB, (BATCH, TOKENS))
    drawing, stepping = [], []
    for _ in range(1 + RUNS):
        start = time.process_time()
        masked, weight = objective.draw(BATCH, TOKENS, rng)
        drawn = time.process_time()
        shown = torch.where(torch.from_numpy(masked[:, 0]), VOCAB, x0)
        weighted_cross_entropy(net(shown), x0, weight[:, 0]).backward()
        drawing.append(drawn - start)
        stepping.append(time.process_time() - drawn)
    return median(drawing[1:]), median(stepping[1:])


def show_drawing():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for objective in DRAWN:
        drawing, stepping = draw_and_step(objective)
        name = objective.name.split("(")[0]
        show(f"{name}: draw / training step", f"{drawing / stepping:.2%}")
    show("   at most", "5%")
    torch.set_num_threads(threads)


def cpu_model():
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line for line in lines if line.startswith("model name")]
        return names[0].split(":")[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def show(label, *cells):
    print(f"{label:<38}" + "".join(f"{cell:>12}" for cell in cells))


def main():
    print(f"{cpu_model()}, {os.cpu_count()} cores, numpy {np.__version__}\n")
    show("", "NELBO", "generator")
    tables = {length: random_table(length) for length in LENGTHS}
    large = {n: seconds(table, np.sum) for n, table in tables.items()}
    ratios = [large[20][name] / large[20][np.sum] for name in METHODS]
    show(
        "L = 20: time / numpy.sum of the table",
        *(f"{ratio:.1f}" for ratio in ratios),
    )
    show("   at most", "3", "20, aim 10")
    table = tables[20]
    peaks = [1 + peak_bytes(table, name) / table.nbytes for name in METHODS]
    show("L = 20: peak memory / table", *(f"{peak:.2f}" for peak in peaks))
    show("   at most, the table counted", "3", "3")

    table = random_table(8)
    small = seconds(table, by_orders)
    gains = [small[by_orders] / small[name] for name in METHODS]
    show("L = 8: loop over orders / time", *(f"{g:.0f}" for g in gains))
    for name, wanted in zip(METHODS, by_orders(table), strict=True):
        got = getattr(MaskLattice(table), name)()
        if not math.isclose(got, wanted, rel_tol=1e-9):
            raise SystemExit(f"{name} is {got}, by orders {wanted}")

    for length in LENGTHS:
        growth = tables[length].size / tables[16].size
        cells = [large[length][n] / large[16][n] / growth for n in METHODS]
        show(
            f"L = {length}: time / (2^L L), 1 at L = 16",
            *(f"{cell:.2f}" for cell in cells),
        )
    show_drawing()


if __name__ == "__main__":
    main()
