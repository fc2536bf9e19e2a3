"""Which positions: are all treated alike, and if not, is it still a bound?

A law of (pattern S, weights w_i(S)) whose mean weights flow through the mask
lattice without loss, from all masked to none, averages the losses of orders
of reveal. By Jensen it then bounds -log p of the sampler with those orders.
"""

from dataclasses import dataclass

import numpy as np

from ..subsets import counts as pattern_sizes
from .stats import wald

LONGEST = 6  # above it patterns are too many; positions are compared only


@dataclass(frozen=True)
class Patterns:
    """uneven: whether positions are not exchangeable; table [2^L, L]: mean
    weights, or None; fixed: every call drew the same; order: the one order
    of reveal that is scored, or None; flow: the total weight that flows, 0
    where the table is no flow; never: positions that were never masked."""

    uneven: bool
    table: np.ndarray | None
    fixed: bool
    order: tuple | None
    flow: float
    never: tuple


def patterns(draws, level):
    n, batch, _, length = draws.masked.shape
    bits = 1 << np.arange(length)
    code = draws.masked @ bits
    weight = draws.weight * draws.masked
    total = weight.sum(-1, keepdims=True)
    k = draws.masked.sum(-1, keepdims=True)
    ever = draws.masked.any((0, 1, 2))
    never = tuple(np.flatnonzero(~ever).tolist()) if ever.any() else ()
    with np.errstate(all="ignore"):
        uneven = np.where(total != 0, weight / total - draws.masked / k, 0)
    uneven = uneven.mean(1).sum(1)
    if (np.abs(uneven).max(0) < 1e-4).all():
        uneven = np.zeros_like(uneven)
    even = wald(uneven, np.zeros(length))
    if length > LONGEST:
        off = draws.masked - k / length
        alike = wald(off.mean(1).sum(1), np.zeros(length))
        uneven = min(alike, even) < level
        return Patterns(uneven, None, False, None, 0.0, never)
    size = 1 << length
    seen = np.zeros((n, size))
    flat = (np.arange(n)[:, None, None] * size + code).ravel()
    seen += np.bincount(flat, minlength=n * size).reshape(n, size) / batch
    sizes = pattern_sizes(length)
    alike = even
    expected = np.zeros((n, size))
    for j in range(1, length):
        group = sizes == j
        expected[:, group] = seen[:, group].mean(1, keepdims=True)
    inner = (sizes > 0) & (sizes < length)
    if inner.any():
        off = (seen - expected)[:, inner]
        alike = min(alike, wald(off, np.zeros(off.shape[1])))
    by_call = np.zeros((n * size, length))
    np.add.at(by_call, flat, weight.reshape(-1, length) / batch)
    by_call = by_call.reshape(n, size, length)
    table = by_call.mean(0)
    fixed = np.allclose(by_call, table, rtol=2e-3, atol=1e-6)
    flow, order = 0.0, None
    if fixed or alike < level:
        flow = _flow(by_call, size, length, level, fixed)
        order = _order(table, length) if fixed and flow else None
    return Patterns(alike < level, table, fixed, order, flow, never)


def _flow(by_call, size, length, level, fixed):
    """The weight that leaves the all-masked pattern, if none is lost."""
    lost = by_call.sum(-1)
    source = lost[:, -1].mean()
    lost = lost.copy()
    for pattern in range(size):
        for i in range(length):
            if pattern >> i & 1:
                lost[:, pattern ^ 1 << i] -= by_call[:, pattern, i]
    inner = lost[:, 1:-1]
    if source <= 0:
        return 0.0
    if fixed:
        whole = np.abs(inner.mean(0)).max(initial=0) < 2e-3 * source
        return float(source) if whole else 0.0
    p = wald(inner, np.zeros(inner.shape[1]))
    return float(source) if p > level else 0.0


def _order(table, length):
    """The order of reveal, if only one is scored."""
    pattern, order = (1 << length) - 1, []
    while pattern:
        where = np.flatnonzero(table[pattern])
        if len(where) != 1:
            return None
        order.append(int(where[0]))
        pattern ^= 1 << order[-1]
    return tuple(order)
