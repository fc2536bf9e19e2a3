"""What happens between the sequences of a batch.

``pooled_mean`` divides by the masks of the whole batch, so it is a law of the
batch. ``batch_variance`` is the variance of the batch mean of any other
objective when the uniform numbers of the batch hang together.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from .laws import Objective, editable_positions
from .uniforms import COUPLINGS, draw_uniforms


@dataclass(frozen=True)
class PooledMean:
    """One mean over all masked tokens of a batch, times L.

    t uniform on (0, 1] for each sequence, masks at rate t. The loss is
    L (sum of all ce) / (sum of all M). empty: "zero" gives 0 if the whole
    batch has no mask, "redraw" draws the batch again.
    """

    batch: int
    empty: str = "zero"

    @property
    def name(self):
        return f"pooled_mean({self.batch}, {self.empty})"

    def law(self, length):
        """The exact law on copies of one sequence, independent times."""
        return _PooledLaw(self.batch, self.empty, length)

    def draw(self, batch, length, rng, editable=None, coupling="independent"):
        """masked and weight [batch, 1, length]; batch must be ``self.batch``.

        L is the mean number of editable positions.
        """
        if batch != self.batch:
            raise ValueError(
                f"batch = {batch}: this law is one of {self.batch} sequences"
            )
        allowed = editable_positions(batch, length, editable)
        while True:
            rate = 1 - draw_uniforms(batch, rng, coupling)
            masked = allowed & (rng.random(allowed.shape) < rate[:, None])
            if masked.any() or self.empty == "zero":
                break
        size = allowed.sum() / batch
        weight = masked * (size / max(masked.sum(), 1))
        return masked[:, None], weight[:, None]


@dataclass(frozen=True)
class _PooledLaw:
    """Moments by a dynamic programme over the sum of the other counts."""

    batch: int
    empty: str
    length: int

    def _others(self, n):
        """P(the counts of n sequences sum to m), m = 0..n L."""
        one = np.full(self.length + 1, 1 / (self.length + 1))
        law = np.ones(1)
        for _ in range(n):
            law = np.convolve(law, one)
        return law

    def _inverse(self, total, n, power):
        """E[1 / (total + M)^power] over the counts of n more sequences."""
        law = self._others(n)
        sums = np.add.outer(total, np.arange(len(law))).astype(float)
        return (1 / np.maximum(sums, 1) ** power) @ law

    @property
    def _kept(self):
        if self.empty == "zero":
            return 1.0
        return 1 - (self.length + 1.0) ** -self.batch

    def mean(self, lattice):
        """Mean loss per sequence, in nats."""
        k = np.arange(self.length + 1)
        profile = lattice.by_count().astype(float)
        total = profile @ self._inverse(k, self.batch - 1, 1)
        scale = self.length / (self.length + 1)
        return float(self.batch * scale * total / self._kept)

    def second_moment(self, lattice):
        """Mean squared loss, in nats^2."""
        n, length = self.batch, self.length
        k = np.arange(length + 1)
        profile = lattice.by_count().astype(float)
        squares = lattice.by_count(power=2).astype(float)
        own = squares @ self._inverse(k, n - 1, 2) / (length + 1)
        total = n * own
        if n > 1:
            pair = self._inverse(np.add.outer(k, k), n - 2, 2)
            both = profile @ pair @ profile / (length + 1) ** 2
            total += n * (n - 1) * both
        return float(length**2 * total / self._kept)


def pooled_mean(batch, empty="zero"):
    """One mean over the masked tokens of `batch` sequences, times L."""
    if batch < 1 or empty not in ("zero", "redraw"):
        raise ValueError(
            f"batch = {batch}, empty = {empty!r}: expected a positive number "
            "and 'zero' or 'redraw'"
        )
    return PooledMean(batch, empty)


def batch_variance(lattice, objective, batch, coupling="independent"):
    """Exact variance of the mean loss of `batch` copies of one sequence.

    Only the uniform numbers u hang together; given them the masks are drawn
    separately. With f(u) = E[loss | u] the variance is
    (Var(loss) - Var f) / B + Var(sum of f(u_b)) / B^2. Infinite where the
    variance of the loss is. Units: nats^2.
    """
    if coupling not in COUPLINGS:
        raise ValueError(
            f"coupling = {coupling!r}: expected one of {', '.join(COUPLINGS)}"
        )
    if batch < 1 or (coupling == "antithetic" and batch % 2):
        raise ValueError(
            f"batch = {batch}: expected a positive number, an even one for "
            "antithetic pairs"
        )
    if not isinstance(objective, Objective):
        raise ValueError(
            f"objective = {objective}: expected an Objective, which draws "
            "one uniform number per sequence"
        )
    variance = float(lattice.variance(objective))
    if math.isinf(variance):
        return variance
    length = lattice.length
    profile = lattice.by_count().astype(float)

    def f(u):
        given = objective.given(u, np.full(u.shape, length))
        return given.count_weights(length) @ profile

    breaks = np.array([0.0, *objective.breaks(length), 1.0])
    mean, square = _integrals(f, breaks)
    inner = variance - (square - mean**2)
    if coupling == "independent":
        outer = batch * (square - mean**2)
    elif coupling == "stratified":
        outer = 0.0
        for b in range(batch):
            cell = np.clip(breaks, b / batch, (b + 1) / batch)
            first, second = _integrals(f, cell)
            outer += batch * second - (batch * first) ** 2
    elif coupling == "antithetic":
        pair = _integrals(
            lambda u: f(u) + f(1 - u), np.concatenate([breaks, 1 - breaks])
        )
        outer = batch / 2 * (pair[1] - pair[0] ** 2)
    else:
        shifts = np.arange(batch) / batch
        cell = np.append((breaks[:, None] - shifts).ravel() % 1, [0.0, 1.0])
        whole = _integrals(
            lambda u: sum(f((u + shift) % 1) for shift in shifts), cell
        )
        outer = whole[1] - whole[0] ** 2
    return float(inner / batch + outer / batch**2)


def _integrals(f, breaks):
    """The integrals of f and f^2 over pieces between the sorted breaks."""
    nodes, masses = _flat_nodes()
    edges = np.unique(breaks)
    low, width = edges[:-1, None], np.diff(edges)[:, None]
    u = (low + width * nodes).ravel()
    mass = (width * masses).ravel()
    values = f(u)
    return mass @ values, mass @ values**2


@cache
def _flat_nodes():
    """Nodes u in (0, 1) and their masses.

    u follows x^4 (35 - 84 x + 70 x^2 - 20 x^3) at Gauss-Legendre nodes x,
    flat at both ends, so that a fractional power there costs no accuracy.
    """
    x, masses = np.polynomial.legendre.leggauss(128)
    x = (x + 1) / 2
    nodes = x**4 * (35 - x * (84 - x * (70 - 20 * x)))
    nodes[64:] = 1 - nodes[63::-1]
    return nodes, masses / 2 * 140 * (x * (1 - x)) ** 3
