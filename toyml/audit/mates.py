"""Whether the loss of one example depends on the others in its batch."""

import numpy as np

from . import dice
from .checks import coupling
from .stats import normal_quantile
from .toy import LossError


def mates(ctx, batch, length, pairs=24):
    """Whether the weights of example 0 change with the others' draws.

    Example 0 keeps its random numbers, the others get new ones. Only pairs
    in which it kept its pattern and its time are compared.
    """
    changed, compared = 0, 0
    for j in range(pairs):
        both = []
        for others in (2 * j + 1, 2 * j + 2):
            ctx.restart(1000 + j)
            policy = dice.Mates(batch, 10_000 + j, others)
            with dice.Dice(policy) as log:
                try:
                    draws = ctx.sample(1, batch, length)
                except LossError:
                    break
            both.append((draws, log.log))
        if len(both) < 2 or both[0][1] != both[1][1] or not both[0][1]:
            continue
        (a, _), (b, _) = both
        same = a.masked.shape == b.masked.shape and (
            (a.masked[:, 0] == b.masked[:, 0]).all()
            and np.array_equal(a.time[:, 0], b.time[:, 0], equal_nan=True)
            and a.coarse.all() == b.coarse.all()
        )
        if not same or not a.weight[:, 0].any():
            continue
        compared += 1
        slack = 5e-2 if a.coarse.all() else 1e-3
        x, y = a.weight[:, 0], b.weight[:, 0]
        changed += np.abs(x - y).max() > slack * np.abs(x).max()
    ctx.restart()
    return changed > 0, compared


def leans_on_mates(draws, level):
    """Whether weights go with the masks of the others, by statistics.

    For losses that draw outside torch; examples must be independent.
    """
    if coupling(draws, level) or draws.masked.shape[2] > 1:
        return False
    k = draws.masked.sum((2, 3))
    top = np.abs(draws.weight * draws.masked).max((2, 3))
    others = k.sum(1, keepdims=True) - k
    on = top > 0
    size = np.log(np.where(on, top, 1))
    for j in np.unique(k[on]):
        here = on & (k == j)
        size[here] -= size[here].mean()
    both = np.where(on, size * (others - others.mean()), 0).mean(1)
    spread = both.std(ddof=1) / np.sqrt(len(both))
    noise = 1e-4 * np.abs(others - others.mean()).mean()
    return bool(abs(both.mean()) > normal_quantile(level) * spread + noise)
