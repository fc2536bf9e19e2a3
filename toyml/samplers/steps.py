"""A step of a sampler: a law for selecting positions, given the tokens.

A selection rule takes candidates, bool [n, L], and the denoiser's answer,
[n, L, V] (None for a step that remasks), and returns a ``Selection``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from ..schedules import Schedule


@dataclass(frozen=True)
class Selection:
    """A law over sets of positions, one for each of n rows.

    positions: bool [n, L]. With count None each of them is selected by
    itself, with probability rate. With a count, a uniformly random set of
    that many is selected, or all where there are fewer.
    """

    positions: np.ndarray
    rate: float | Fraction = 1
    count: int | None = None

    def draw(self, noise):
        """The selected positions, bool [n, L], from uniforms [n, L]."""
        if self.count is None:
            return self.positions & (noise < float(self.rate))
        noise = np.where(self.positions, noise, 2.0)
        ranks = noise.argsort(axis=1).argsort(axis=1)
        return self.positions & (ranks < self.count)

    def components(self):
        """The same law as a mixture of independent ones.

        Yields (rows, probability, rate, positions [len(rows), L]): for those
        rows, with that probability, each of the positions is selected by
        itself with that rate.
        """
        if self.count is None:
            yield np.arange(len(self.positions)), 1, self.rate, self.positions
            return
        length = self.positions.shape[1]
        sizes = self.positions.sum(axis=1)
        for size in np.unique(sizes).tolist():
            taken = min(self.count, size)
            probability = Fraction(1, math.comb(size, taken))
            for chosen in combinations(range(length), taken):
                inside = self.positions[:, list(chosen)].all(axis=1)
                rows = np.flatnonzero(inside & (sizes == size))
                where = np.isin(np.arange(length), chosen)
                yield rows, probability, 1, np.tile(where, (len(rows), 1))


@dataclass(frozen=True)
class Step:
    """One step: which positions, and what happens to them.

    select: the selection rule. time: what the denoiser is told, None where
    the sampler has no time. remasks: the step masks visible positions of its
    own making and asks no denoiser; otherwise it reveals masked ones.
    schedule: the step reveals one position at a random time of that schedule,
    which the simulation draws. window: (start, stop), where it may act.
    """

    select: Callable
    time: float | Fraction | None = None
    remasks: bool = False
    schedule: Schedule | None = None
    window: tuple[int, int | None] = (0, None)

    @property
    def columns(self):
        """The window as a slice."""
        return slice(*self.window)

    def candidates(self, hidden, editable):
        """Where the step may act, bool [n, L].

        hidden: the masked positions. editable: those that are not part of the
        prompt. Both bool [n, L].
        """
        inside = np.zeros(hidden.shape, bool)
        inside[:, self.columns] = True
        return inside & (editable & ~hidden if self.remasks else hidden)

    def selection(self, candidates, probs=None):
        """The law of the selected positions, a ``Selection`` of n rows."""
        if probs is not None:
            probs = probs[:, self.columns]
        part = self.select(candidates[:, self.columns], probs)
        positions = np.zeros(candidates.shape, bool)
        positions[:, self.columns] = part.positions
        return replace(part, positions=positions)


def independently(rate):
    """Each candidate by itself with probability rate."""
    return lambda candidates, probs: Selection(candidates, rate)


def uniformly(count):
    """A uniformly random set of ``count`` candidates."""
    return lambda candidates, probs: Selection(candidates, count=count)


def in_order(order, count):
    """The first ``count`` candidates of an order of the positions."""
    rank = np.argsort(order)

    def select(candidates, probs):
        return Selection(_lowest(candidates, rank, count))

    return select


def by_confidence(rule, count):
    """The ``count`` candidates of highest score, equals by position."""
    score = RULES[rule]

    def select(candidates, probs):
        keys = np.zeros(candidates.shape, probs.dtype)
        keys[candidates] = -score(probs[candidates])
        return Selection(_lowest(candidates, keys, count))

    return select


def _lowest(candidates, keys, count):
    """The ``count`` candidates of lowest key, equals by position."""
    keys = np.where(candidates, keys, np.inf)
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    out = np.zeros(candidates.shape, bool)
    np.put_along_axis(out, order, True, axis=1)
    return out & candidates


def _largest(p):
    # numpy's max takes three times as long as argmax along a short axis.
    return np.take_along_axis(p, p.argmax(axis=-1)[..., None], -1)[..., 0]


def _margin(p):
    if p.shape[-1] == 1:
        return p[:, 0]
    ranked = np.partition(p, -2, axis=-1)
    return ranked[:, -1] - ranked[:, -2]


def _negative_entropy(p):
    # Sorted, so that rows with the same numbers have the same float sum.
    p = np.sort(p.astype(np.float64, copy=False), axis=-1)
    logs = np.log(p, out=np.zeros_like(p), where=p > 0)
    logs *= p
    return logs.sum(axis=-1)


#: The scores of ``confidence`` by name: functions of probabilities [n, V]
#: that give [n], larger where the denoiser is more certain.
RULES = {
    "probability": _largest,
    "margin": _margin,
    "entropy": _negative_entropy,
}
