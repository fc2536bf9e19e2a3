"""Known laws of mask counts, and the names of laws that were read."""

import math

import numpy as np

from ..objectives import inverse_t, maskgit, per_example_mean
from ..objectives.laws import binomial
from .stats import beta_cdf, kolmogorov


def candidates(length, seen):
    """(name, P(k masks)) of known laws; seen helps the one that is fitted."""
    k = np.arange(length + 1)
    edges = k / length
    yield "k uniform on 1..L", np.where(k > 0, 1 / length, 0)
    yield "t uniform, Bernoulli(t)", np.full(length + 1, 1 / (length + 1))
    yield "MaskGIT, ceil(L cos(pi r / 2))", _of(maskgit(), length)
    cosine = _of(maskgit(bernoulli=True), length)
    yield "MaskGIT ratio, Bernoulli", cosine
    yield "cosine schedule, Bernoulli", cosine[::-1]
    redraw = per_example_mean("redraw_mask_only")
    yield "t uniform, the mask redrawn while empty, t kept", _of(
        redraw, length
    )
    down = np.diff(np.append(edges, [1.0]))
    yield "floor(L r), r uniform", down
    half = np.full(length + 1, 1 / length)
    half[[0, -1]] /= 2
    yield "round(L r), r uniform", half
    up = half.copy()
    up[1] += up[0]
    up[0] = 0
    yield "max(1, round(L r)), r uniform", up
    low = down.copy()
    low[1] += low[0]
    low[0] = 0
    yield "max(1, floor(L r)), r uniform", low
    for word, steps in (("round", edges - 0.5 / length), ("floor", edges)):
        ends = np.clip(np.append(steps, 1.0), 0, 1)
        ends[-1] = 1.0
        p = np.diff(1 - np.arccos(ends) * 2 / math.pi)
        p[1] += p[0]
        p[0] = 0
        yield f"MaskGIT, max(1, {word}(L cos(pi r / 2)))", p
    rate = (k * seen).sum() / length
    p = binomial(length, [rate])[0]
    yield f"Bernoulli at one rate, {rate:.3f}", p


def _of(objective, length):
    """P(k masks) under an objective of the book, [L + 1]."""
    return np.array(objective.law(length).probability, dtype=float)


def count_name(p, curve):
    """The name of a law known from its curve."""
    if np.ptp(curve.rate) < 1e-5:
        return f"Bernoulli at one rate, {curve.rate[0]:.4g}"
    for name, q in candidates(len(p) - 1, p):
        if np.abs(p - q).max() < 1e-4:
            return name
    a, b = curve.rate.min(), curve.rate.max()
    below = np.cumsum(curve.mass) - curve.mass / 2
    r = np.sort(curve.rate)
    if len(r) > 50 and np.abs(r - a - (b - a) * below).max() < 5e-3:
        return f"Bernoulli(t), t uniform on [{a:.3g}, {b:.6g}]"
    return "Bernoulli at a random rate"


def inverse(k, each, total, scored, level, length):
    """c if the weights are c / t with t uniform and Bernoulli(t) masks.

    Given k masks t is Beta(k + 1, L - k + 1). One example a call is tested,
    since the examples of a call may share their time.
    """
    dense = (scored == k) | (total == 0)
    c = each[scored > 0].min(initial=np.inf)
    if not dense.all() or not np.isfinite(c) or c <= 0:
        return None
    for j in range(1, length + 1):
        here = (k[:, 0, 0] == j) & (each[:, 0, 0] > 0)
        p = kolmogorov(
            c / each[:, 0, 0][here],
            lambda x, j=j: beta_cdf(x, j + 1, length - j + 1),
        )
        if p < level / length:
            return None
    near = [a for a in (1, 1 / length) if abs(c / a - 1) < 2e-3]
    return near[0] if near else c


def inverse_second(c, length):
    """E[total weight^2; k] of that law: infinite at one mask."""
    squared = inverse_t().law(length).weight_squared
    k = np.arange(length + 1)
    return c * c * k**2 * np.array(squared, dtype=float)
