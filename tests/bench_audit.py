"""How often the audit errs, and how long it takes (``make bench``).

A false finding is a fault found in a right loss, or a wrong verdict on it. A
fault is detected when all that the museum says about it is found. Each audit
has a seed of its own; the defaults of ``audit`` are used.
"""

import math
import os
import platform
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import islice, product
from statistics import median

import torch

import museum
from toyml.audit import audit

AUDITS = 200
SEEDS_WRONG = 2


def good(case, found):
    """Whether a report says what the museum says about the loss."""
    k = case.k is None or found.k is not None and math.isclose(
        found.k, case.k, rel_tol=0.05
    )
    return (
        found.kind == case.kind and k and case.verdict in found.verdict
        and len(found.findings) == len(case.findings)
        and all(any(words in finding for finding in found.findings)
                for words in case.findings)
    )


def one(task):
    """(name, whether it is right, false findings, seconds)."""
    group, place, seed = task
    torch.set_num_threads(1)
    case = getattr(museum, group)[place]
    start = time.perf_counter()
    found = audit(case.loss, seed=seed, progress=False)
    taken = time.perf_counter() - start
    return case.name, good(case, found), bool(found.findings), taken


def main():
    seeds = range(100, 100 + AUDITS)
    right = [("RIGHT", place, seed)
             for seed, place in islice(
                 product(seeds, range(len(museum.RIGHT))), AUDITS)]
    wrong = [("WRONG", place, seed)
             for seed, place in product(
                 range(SEEDS_WRONG), range(len(museum.WRONG)))]
    print(f"Python {platform.python_version()}, torch {torch.__version__}, "
          f"{os.cpu_count()} processors")
    start = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        clean = list(pool.map(one, right))
        caught = list(pool.map(one, wrong))
    seconds = sorted(row[3] for row in clean + caught)
    false = sum(row[2] for row in clean)
    off = sum(not row[1] for row in clean)
    found = sum(row[1] for row in caught)
    print(f"right losses: {len(clean)} audits of {len(museum.RIGHT)} losses, "
          f"{false} with a false finding ({false / len(clean):.1%}), "
          f"{off} with any wrong word ({off / len(clean):.1%})")
    print(f"wrong losses: {len(caught)} audits of {len(museum.WRONG)} "
          f"losses, {found} detected ({found / len(caught):.1%})")
    missed = Counter(row[0] for row in clean + caught if not row[1])
    for name, times in missed.items():
        print(f"  not as expected: {name}, {times} times")
    print(f"one audit: median {median(seconds):.2f} s, longest "
          f"{seconds[-1]:.2f} s; all: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
