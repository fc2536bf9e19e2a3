"""A trained autoregressive twin turned into a masked denoiser.

The network and the chain of the preset ``markov``. Several ways to go on from
the same twin against training from scratch, with constant rates and averaged
weights, measured by the gap to the exact conditionals on the same sequences
and masks.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from common import in_processes, write

from toyml import recorded
from toyml.loss import weighted_cross_entropy
from toyml.model import Transformer
from toyml.objectives import (
    block_diffusion,
    inverse_t_truncated,
    uniform_count,
)
from toyml.train.config import preset
from toyml.train.data import markov
from toyml.train.evaluate import divergence
from toyml.train.optimizer import Optimizer

LENGTH, BATCH, ROWS, EVERY, EPS = 16, 32, 256, 20, 1e-3
TWIN, STEPS, SHRINK = 200, 300, 60
GROWING = ((0, 2), (20, 4), (40, 8), (60, 16))
FROM_ONE = ((0, 1), (20, 2), (40, 4), (60, 8), (80, 16))
WHOLE = ((0, LENGTH),)


@dataclass(frozen=True)
class Layout:
    """Where each place of the two copies reads, and whom it attends to.

    The clean copy holds the earlier blocks, the noisy copy the block that is
    predicted. reads: the token read, -1 for a mask; noisy: whether from the
    noisy sequence; at: the position for the rotary angle; allowed: [P, P];
    out: the place that predicts each position, [L].
    """

    reads: np.ndarray
    noisy: np.ndarray
    at: np.ndarray
    allowed: np.ndarray
    out: np.ndarray


def layout(length, size, shift):
    """With shift, a place predicts the token after the one that it reads.

    The noisy copy then has one place more a block, so that the last token of
    a block can be read; at size 1, where that token is always masked, it has
    none, and one causal copy is enough: the autoregressive network itself.
    """
    places, out = [], []  # (token read, noisy?, position, block)
    twin = shift and size == 1
    for i in range(-shift, length) if size < length and not twin else ():
        places.append((i, False, i + shift, i // size if i >= 0 else -1))
    for start in range(0, length, size):
        stop = min(start + size, length)
        for i in range(start, stop):
            out.append(len(places))
            hidden = i > start or not shift
            places.append((i - shift, hidden, i, start // size))
        if shift and size > 1:
            places.append((stop - 1, True, stop, start // size))
    reads, noisy, at, block = map(np.array, zip(*places, strict=True))
    inner = np.arange(len(reads)) >= out[0]
    earlier = ~inner & (block < block[:, None])
    if shift:  # the noisy copy reads the token before its block by itself
        first = (block * size)[:, None]
        earlier &= ~inner[:, None] | (at < first)
    own = (inner == inner[:, None]) & (block == block[:, None])
    alike = inner & inner[:, None] if twin else ~inner & ~inner[:, None]
    own |= alike & (block <= block[:, None])
    return Layout(reads, noisy, at, earlier | own, np.array(out))


def logits(net, x0, shown, plan):
    """Logits [B, L, V]: x0 clean, shown the same with masks."""
    both = torch.where(torch.from_numpy(plan.noisy), *(
        torch.cat([x, torch.full_like(x[:, :1], net.vocab_size)], dim=1)[
            :, plan.reads
        ]
        for x in (shown, x0)
    ))
    x = net.embedding(both)
    rotary = [part[plan.at] for part in net._rotary(plan.at.max() + 1, x)]
    allowed = torch.from_numpy(plan.allowed)
    for block in net.blocks:
        x = block(x, rotary, allowed)
    return net.head(net.norm(x[:, plan.out]))


def draw(law, batch, length, rng):
    """Own masks [B, L] of each block, and weights, of all passes at once."""
    masked, weight = law.draw(batch, length, rng, coupling="stratified")
    index = np.arange(length) // law.size
    pick = index[None, None, :], np.arange(length)[None, None, :]
    rows = np.arange(batch)[:, None]
    return masked[rows, pick[0][0], pick[1][0]], weight.sum(axis=1)


def config(seed):
    return preset(
        "markov",
        seed=seed,
        length=LENGTH,
        batch=BATCH,
        steps=10**6,  # the rate hardly falls
        warmup=20,
        lr=5e-3,
        matrix_lr=1e-2,
        ema=0.97,
    )


class Training:
    """One network on its way; ``go`` moves it, ``gap`` measures it."""

    def __init__(self, seed, shift, start=None):
        torch.manual_seed(seed)
        setting = config(seed)
        self.source = markov(LENGTH)
        self.net = Transformer(
            self.source.vocab_size,
            setting.layers,
            setting.width,
            setting.heads,
        )
        if start is not None:
            self.net.load_state_dict(start)
        self.shift = shift
        self.optimizer = Optimizer(self.net, setting)
        self.rng = np.random.default_rng(seed)
        self.step = self.places = 0
        self.curve = []

    def go(
        self, steps, stages, inner=uniform_count, every=EVERY, target=LENGTH
    ):
        """steps more steps; stages: (first step, block size), in order."""
        for number in range(steps):
            if every and number % every == 0:
                self.look(target)
            size = [n for first, n in stages if first <= number][-1]
            self._advance(block_diffusion(size, inner()))
        if every:
            self.look(target)

    def _advance(self, law):
        x0 = self.source.sample(BATCH, self.rng)
        hidden, weight = draw(law, BATCH, LENGTH, self.rng)
        plan = layout(LENGTH, law.size, self.shift)
        out = logits(self.net, *tokens(x0, hidden), plan)
        loss = weighted_cross_entropy(
            out, torch.from_numpy(x0), torch.from_numpy(weight)
        )
        (loss / LENGTH).backward()
        self.optimizer.step(self.step)
        self.step += 1
        self.places += len(plan.reads)

    def look(self, size):
        self.curve.append([self.step, self.places, self.gap(size)])

    def gap(self, size, attention=None):
        """Mean KL per token under the block law, averaged weights.

        The truth of a block is given the earlier blocks, later ones hidden.
        """
        self.optimizer.swap_average()
        value = block_gap(
            self.net, self.source, size, self.shift, attention or size
        )
        self.optimizer.swap_average()
        return value

    def weights(self):
        """The averaged weights, as a state to start from."""
        self.optimizer.swap_average()
        state = {k: v.clone() for k, v in self.net.state_dict().items()}
        self.optimizer.swap_average()
        return state


@torch.no_grad()
def block_gap(net, source, size, shift, attention):
    rng = np.random.default_rng(5)
    x0 = source.sample(ROWS, rng)
    law = block_diffusion(size, uniform_count())
    masked, weight = law.draw(ROWS, LENGTH, rng, coupling="stratified")
    total = 0.0
    for hidden, weights in zip(
        masked.swapaxes(0, 1), weight.swapaxes(0, 1), strict=True
    ):
        plan = layout(LENGTH, attention, shift)
        rows = logits(net, *tokens(x0, hidden), plan).double().softmax(-1)
        shown = np.where(hidden, source.vocab_size, x0)
        kl = divergence(source(shown), rows.numpy())
        total += float((weights * np.where(weights > 0, kl, 0)).sum())
    return total / LENGTH


def tokens(x0, hidden):
    """x0, and x0 with the mask id where hidden; both tensors."""
    x0 = torch.from_numpy(x0)
    return x0, torch.where(torch.from_numpy(hidden), 8, x0)


def cut():
    return inverse_t_truncated(EPS, rescale=False)


def one_seed(job):
    """All ways for one seed; returns curves and gaps by name."""
    torch.set_num_threads(1)
    seed, steps = job
    start = time.process_time()
    out = {"seed": seed, "curves": {}, "gaps": {}}

    twin = Training(seed, shift=1)
    twin.go(TWIN, ((0, 1),), target=1)
    noisy = Training(seed, shift=1)
    noisy.go(TWIN, ((0, 1),), inner=cut, target=1)
    out["curves"] |= {"twin": twin.curve, "block 1, cut 1/t": noisy.curve}

    ways = {
        "scratch": (0, None, WHOLE, steps + TWIN),
        "direct": (1, twin, WHOLE, steps),
        "growing": (1, twin, GROWING, steps),
        "direct, shift dropped": (0, twin, WHOLE, steps),
        "growing, shift dropped": (0, twin, FROM_ONE, steps),
        "growing from scratch": (0, None, FROM_ONE, steps),
    }
    for name, (shift, parent, stages, length) in ways.items():
        state = None if parent is None else parent.weights()
        one = Training(seed, shift, state)
        one.go(length, stages)
        out["curves"][name] = one.curve
        if name == "growing":
            grown = one
        print(seed, name, f"{one.curve[-1][2]:.4f}", flush=True)

    gaps = out["gaps"]
    gaps["grown, block 16"] = grown.gap(16)
    gaps["grown, block 4, sees masks after"] = grown.gap(4, 16)
    gaps["grown, block 4"] = grown.gap(4)
    small = Training(seed, 1, grown.weights())
    small.go(SHRINK, ((0, 8), (SHRINK // 4, 4)), target=4)
    out["curves"]["shrinking"] = small.curve
    gaps["shrunk, block 4"] = small.gap(4)
    gaps["shrunk, block 16"] = small.gap(16)
    out["processor_seconds"] = time.process_time() - start
    return out


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    options.add_argument("--steps", type=int, default=STEPS)
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--keep", action="store_true", help="add to the file")
    options.add_argument("--out", default="blocks")
    asked = options.parse_args()
    setting = {
        "length": LENGTH,
        "batch": BATCH,
        "twin_steps": TWIN,
        "steps": asked.steps,
        "shrink_steps": SHRINK,
        "growing": GROWING,
        "growing, shift dropped": FROM_ONE,
        "sequences": ROWS,
        "eps": EPS,
    }
    rows = recorded.load(asked.out)["rows"] if asked.keep else []
    jobs = [(seed, asked.steps) for seed in asked.seeds]
    for row in in_processes(one_seed, jobs, asked.workers):
        rows.append(row)
        write(asked.out, {"setting": setting, "rows": rows})
        print(row["gaps"], f"{row['processor_seconds']:.0f} s of processor")


if __name__ == "__main__":
    main()
