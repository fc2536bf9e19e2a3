"""What an objective is: a law of (masked set, weights), drawn or enumerated.

The loss of one sequence is the sum over positions of weight times
cross-entropy. Its law is summarised by mask count (``CountLaw``) where all
positions are treated alike, or listed outcome by outcome (``OutcomeLaw``).
Both give the exact first and second moment of the loss on a ``MaskLattice``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import exact
from .uniforms import draw_uniforms


@dataclass(frozen=True)
class CountLaw:
    """The law of an objective by mask count k = 0..L, per sequence.

    Given k the masked set is uniform among the sets of size k, and positions
    are exchangeable. probability[k] = P(k masks). weight[k] = E[w_i; k masks]
    for a masked position i (the probability of the event is included). The
    second moment of the loss is the sum over k of

        weight_squared[k] E[(sum ce)^2 | k] + single_squared[k] E[sum ce^2 | k]

    so a weight w shared by all masked positions puts E[w^2; k] in the first,
    and a weight on one of them alone puts E[w_i^2; k] in the second. An entry
    may be inf.
    """

    probability: tuple
    weight: tuple
    weight_squared: tuple
    single_squared: tuple = None

    @property
    def effective_weight(self):
        """e(k) = k E[w_i; k masks]: expected total weight on count k.

        It is 1 for k = 1..L if and only if the mean loss is the NELBO on
        every lattice; the mean is the sum over k of e(k) by_count()[k] / k.
        """
        return tuple(k * w for k, w in enumerate(self.weight))

    def mean(self, lattice):
        """Mean loss on the lattice's sequence, in nats."""
        weights = lattice.numbers(self.weight)
        return exact.weighted_sum(weights, lattice.by_count())

    def second_moment(self, lattice):
        """Mean squared loss, in nats^2; inf where it diverges."""
        total = exact.weighted_sum(
            lattice.numbers(self.weight_squared), lattice.by_count(power=2)
        )
        if self.single_squared is None:
            return total
        return total + exact.weighted_sum(
            lattice.numbers(self.single_squared), lattice.squares_by_count()
        )


@dataclass(frozen=True)
class OutcomeLaw:
    """A law with few outcomes: (probability, passes) each.

    passes: tuple of (pattern, weights [L]); an outcome's loss is the sum over
    its passes of weight times cross-entropy under that mask pattern.
    """

    outcomes: tuple

    def _losses(self, lattice):
        table = lattice.cross_entropy()
        for probability, passes in self.outcomes:
            yield probability, sum(
                exact.weighted_sum(lattice.numbers(weights), table[pattern])
                for pattern, weights in passes
            )

    def mean(self, lattice):
        """Mean loss on the lattice's sequence, in nats."""
        return sum(p * loss for p, loss in self._losses(lattice))

    def second_moment(self, lattice):
        """Mean squared loss, in nats^2."""
        return sum(p * loss**2 for p, loss in self._losses(lattice))


@dataclass(frozen=True)
class Given:
    """What is left to chance once the uniform number u is drawn, per row.

    rate [n] masks each position independently, or count [n] masks a uniform
    set of that size. weight [n] is that of a scored position. forced: one
    uniform position is masked besides and scored alone. divided: the weight
    is divided by the number of masks. nonempty: the mask, not u, is drawn
    again until something is masked.
    """

    weight: np.ndarray
    rate: np.ndarray = None
    count: np.ndarray = None
    forced: bool = False
    divided: bool = False
    nonempty: bool = False

    def count_weights(self, length):
        """E[w_i; k masks | u] of a masked position i, [n, length + 1]."""
        k = np.arange(length + 1)
        weight = self.weight[:, None] / np.where(self.divided, k.clip(1), 1)
        if self.forced:
            inner = binomial(length - 1, self.rate)
            pmf = np.pad(inner, ((0, 0), (1, 0)))
            return weight * pmf / k.clip(1)
        if self.count is not None:
            return weight * (self.count[:, None] == k)
        pmf = binomial(length, self.rate)
        if self.nonempty:
            pmf = self._positive(pmf)
        return weight * pmf

    def draw(self, allowed, rng):
        """masked and weight, both [n, L]; allowed marks editable positions."""
        rows = np.arange(len(allowed))
        noise = np.where(allowed, rng.random(allowed.shape), 2.0)
        count = self.count
        if self.nonempty:
            count = self._positive_counts(allowed.sum(axis=1), rng)
        if count is None:
            masked = noise < self.rate[:, None]
        else:
            rank = noise.argsort(axis=1).argsort(axis=1)
            masked = rank < count[:, None]
        scored = masked
        if self.forced:
            pick = np.where(allowed, rng.random(allowed.shape), 2.0)
            scored = np.zeros_like(masked)
            scored[rows, pick.argmin(axis=1)] = True
            masked = masked | scored
        weight = np.where(scored, self.weight[:, None], 0.0)
        if self.divided:
            weight /= masked.sum(axis=1, keepdims=True).clip(1)
        return masked, weight

    def _positive_counts(self, sizes, rng):
        """Counts from the binomial law given at least one mask, [n]."""
        u, count = rng.random(len(sizes)), np.empty(len(sizes), dtype=int)
        for size in np.unique(sizes):
            rows = sizes == size
            pmf = self._positive(binomial(size, self.rate[rows]))
            above = pmf.cumsum(axis=1) <= u[rows, None]
            count[rows] = above.sum(axis=1).clip(1, size)
        return count

    @staticmethod
    def _positive(pmf):
        pmf[:, 0] = 0
        return pmf / pmf.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Objective:
    """An objective of one pass. Build one by the functions of this package.

    law(length) returns the exact law. given(u, sizes) returns a ``Given`` for
    uniform numbers u [B] and numbers of editable positions sizes [B].
    breaks(length): where the given law is not smooth in u.
    """

    name: str
    law: Callable
    given: Callable
    breaks: Callable = lambda length: ()

    def draw(self, batch, length, rng, editable=None, coupling="independent"):
        """Draw masked (bool) and weight (float64), both [batch, 1, length].

        editable: bool [length] or [batch, length]; only those positions can
        be masked, and L is their number. coupling: how the uniform numbers of
        the batch hang together, see ``draw_uniforms``. The weights carry the
        whole normaliser, 1 / batch included: the loss of the batch is
        ``(weight * ce).sum()``, the mean over sequences in nats per sequence,
        and any split of the batch adds up to it.
        """
        allowed = editable_positions(batch, length, editable)
        u = draw_uniforms(batch, rng, coupling)
        given = self.given(u, allowed.sum(axis=1))
        masked, weight = given.draw(allowed, rng)
        return masked[:, None], weight[:, None] / batch


def binomial(length, rates):
    """P(k masks) at each rate, [n, length + 1]."""
    rates = np.asarray(rates, dtype=float)[:, None]
    k = np.arange(length + 1)
    row = np.array([math.comb(length, j) for j in k], dtype=float)
    return row * rates**k * (1 - rates) ** (length - k)


def editable_positions(batch, length, editable):
    """Bool [batch, length]; a row without any raises ValueError."""
    allowed = np.ones((batch, length), bool)
    if editable is not None:
        editable = np.asarray(editable, bool)
        if editable.shape not in ((length,), (batch, length)):
            raise ValueError(
                f"editable has shape {editable.shape}; expected ({length},) "
                f"or ({batch}, {length})"
            )
        allowed &= editable
    sizes = allowed.sum(axis=1)
    if batch < 1 or not sizes.all():
        raise ValueError(
            f"batch = {batch}, editable positions by row {sizes.tolist()}: "
            "expected at least one of each"
        )
    return allowed
