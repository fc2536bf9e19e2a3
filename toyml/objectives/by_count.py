"""Objectives that draw a count, divide by one, or follow an order."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from .by_time import forced_target
from .laws import (
    CountLaw,
    Given,
    Objective,
    OutcomeLaw,
    binomial,
    editable_positions,
)


def uniform_count():
    """k uniform on 1..L, a uniform set of k positions, weight L/k.

    Mean: the NELBO. Source: LLaDA eq. 6 and 14; ARDM section 3.
    """

    def law(length):
        ks = range(1, length + 1)
        return CountLaw(
            probability=(0, *(Fraction(1, length) for _ in ks)),
            weight=(0, *(Fraction(1, k) for k in ks)),
            weight_squared=(0, *(Fraction(length, k * k) for k in ks)),
        )

    def given(u, sizes):
        k = 1 + np.floor(u * sizes).astype(int)
        return Given(weight=sizes / k, count=k)

    def breaks(length):
        return [j / length for j in range(1, length)]

    return Objective("uniform_count", law, given, breaks)


def power_count(draw=0.0, weight=0.0):
    """k with probability p(k) ~ k^draw, weight e(k) / (k p(k)).

    The expected total weight on count k is e(k) ~ k^weight, of mean 1 over
    k = 1..L. With weight = 0 the mean is the NELBO for every draw: an
    importance law over counts, ``uniform_count`` among them. With weight = 1
    every masked token counts alike: e(k) = 2 k / (L + 1), proportional to
    ``unweighted`` and to the pooled mean of a large batch.
    """

    def laws(length):
        k = np.arange(1, length + 1)
        p, e = k ** float(draw), k ** float(weight)
        return k, p / p.sum(), e / e.mean()

    def law(length):
        k, p, e = laws(length)
        return CountLaw(
            probability=(0.0, *p),
            weight=(0.0, *(e / k)),
            weight_squared=(0.0, *(e**2 / (k**2 * p))),
        )

    def given(u, sizes):
        count, value = np.empty(len(u), int), np.empty(len(u))
        for size in np.unique(sizes):
            rows = sizes == size
            k, p, e = laws(size)
            at = np.searchsorted(edges(size), u[rows], side="right")
            count[rows], value[rows] = k[at], (e / (k * p))[at]
        return Given(weight=value, count=count)

    def edges(length):
        """The u at which the count steps up, [length - 1]."""
        return laws(length)[1].cumsum()[:-1]

    return Objective(f"power_count({draw}, {weight})", law, given, edges)


def per_example_mean(empty="redraw"):
    """t uniform, masks at rate t, weight L / M for M masks.

    empty says what happens at M = 0. "redraw" draws t and the mask again:
    then M is uniform on 1..L and the law is that of ``uniform_count``, mean
    the NELBO. "zero" counts the example as 0: L / (L + 1) of the NELBO.
    "redraw_mask_only" keeps t: a biased law.
    """
    if empty == "redraw":
        return replace(uniform_count(), name="per_example_mean(redraw)")
    if empty not in ("zero", "redraw_mask_only"):
        raise ValueError(
            f"empty = {empty!r}: expected 'redraw', 'zero' or "
            "'redraw_mask_only'"
        )
    nonempty = empty == "redraw_mask_only"

    def law(length):
        k = np.arange(1, length + 1)
        if nonempty:
            nodes, masses = np.polynomial.legendre.leggauss(8 * length + 64)
            pmf = binomial(length, (nodes + 1) / 2)[:, 1:]
            p = masses / 2 @ (pmf / pmf.sum(axis=1, keepdims=True))
            weight = length / k
            return CountLaw(
                (0.0, *p), (0.0, *(p * weight)), (0.0, *(p * weight**2))
            )
        p = Fraction(1, length + 1)
        ks = range(1, length + 1)
        return CountLaw(
            (p,) * (length + 1),
            (0, *(p * Fraction(length, j) for j in ks)),
            (0, *(p * Fraction(length, j) ** 2 for j in ks)),
        )

    def given(u, sizes):
        return Given(
            weight=sizes.astype(float),
            rate=1 - u,
            divided=True,
            nonempty=nonempty,
        )

    return Objective(f"per_example_mean({empty})", law, given)


def random_order():
    """One step of a uniformly random order, weight L.

    The first L - k positions of the order are visible and the next one is
    scored, k uniform on 1..L. That is the law of ``forced_target`` for the
    linear schedule: L - k of the others survive a uniform rate.
    """
    return replace(forced_target(), name="random_order")


@dataclass(frozen=True)
class Autoregressive:
    """All steps of the left-to-right order, one pass each, weight 1.

    The positions not yet written are masked. The loss is that order's loss:
    nothing is drawn, the variance is 0.
    """

    name: str = "autoregressive"

    def law(self, length):
        """The one outcome, as an ``OutcomeLaw``."""
        full, passes = (1 << length) - 1, []
        for j in range(length):
            weights = tuple(int(i == j) for i in range(length))
            passes.append((full ^ ((1 << j) - 1), weights))
        return OutcomeLaw(((1, tuple(passes)),))

    def draw(self, batch, length, rng, editable=None, coupling="independent"):
        """masked and weight [batch, passes, length], passes the largest L."""
        allowed = editable_positions(batch, length, editable)
        rank = np.where(allowed, allowed.cumsum(axis=1) - 1, -1)[:, None]
        step = np.arange(allowed.sum(axis=1).max())[None, :, None]
        return rank >= step, (rank == step) / batch


def autoregressive():
    """The loss of the left-to-right order, in L passes."""
    return Autoregressive()
