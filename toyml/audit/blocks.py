"""Block-wise training in one pass: masks beside a clean copy of x0.

The model is fed noise and clean tokens together, and an attention pattern
lets a block see the clean blocks before it. That pattern is not seen by the
audit. What the masks show is the blocks: inside one they go together.
"""

from dataclasses import replace

import numpy as np

from .stats import normal_quantile


def find(draws, level):
    """Starts and ends of the blocks, by the correlation of neighbours."""
    masked = draws.masked[:, :, 0].astype(float)
    n, _, length = masked.shape
    off = masked - masked.mean((0, 1))
    both = (off[..., 1:] * off[..., :-1]).mean(1)
    spread = both.std(0, ddof=1) / np.sqrt(n) + 1e-12
    joined = np.abs(both.mean(0)) > normal_quantile(level) * spread
    cuts = [0, *(np.flatnonzero(~joined) + 1).tolist(), length]
    return list(zip(cuts[:-1], cuts[1:], strict=True))


def unroll(draws, blocks):
    """The same draws with a pass for each block, later blocks masked."""
    n, batch, _, length = draws.masked.shape
    masked = np.zeros((n, batch, len(blocks), length), bool)
    weight = np.zeros(masked.shape)
    for p, (start, end) in enumerate(blocks):
        masked[:, :, p, start:end] = draws.masked[:, :, 0, start:end]
        masked[:, :, p, end:] = True
        weight[:, :, p, start:end] = draws.weight[:, :, 0, start:end]
    other = np.zeros(masked.shape, bool)
    return replace(draws, masked=masked, weight=weight, replaced=other)
