"""A law by its mask rate and weights, as integrals over one number."""

from dataclasses import dataclass

import numpy as np

from ..objectives.laws import binomial


@dataclass(frozen=True)
class Curve:
    """Quadrature mass q [m], mask rate r [m], total weight T [m, L + 1].

    T[j, k] is the summed weight when k of L tokens are masked at point j;
    nan where that cannot happen. steps: the number of times, if they are
    drawn from a grid. stepped: points are even, not dense at 0.
    """

    mass: np.ndarray
    rate: np.ndarray
    total: np.ndarray
    stepped: bool = False
    blind: bool = False
    steps: int | None = None

    @property
    def length(self):
        return self.total.shape[1] - 1

    @property
    def counts(self):
        """P(k masks | point), [m, L + 1]."""
        return binomial(self.length, self.rate)

    def probability(self):
        return self.mass @ self.counts

    def moment(self, power):
        """E[T^power; k] for k = 0..L, inf where the integral diverges."""
        with np.errstate(all="ignore"):
            parts = self.mass[:, None] * self.counts * self.total**power
        # A smaller rate cannot be read from float32 noise.
        use = np.isfinite(parts) & (self.rate[:, None] > 1e-6)
        parts = np.where(use, parts, 0)
        out = parts.sum(axis=0)
        if power == 2 and len(self.rate) < 300 or self.stepped:
            low = self._product(0, 2e-3)
            near = abs(low / self._product(1e-2, 3e-2) - 1) < 3e-2
            near &= self.rate.min() < 1e-5 or self.blind
            out[1] = np.inf if near and power == 2 else out[1]
        elif power == 2:
            # Between rates a and 2 a a divergent part adds as much again.
            tail = self._between(parts, 5e-6, 2e-5)
            body = self._between(parts, 1e-3, 4e-3)
            out[(tail > 0.97 * body) & (tail > 0)] = np.inf
        return out

    def _product(self, low, high):
        """The weight of one mask times its rate, between two rates."""
        here = (self.rate > low) & (self.rate < high)
        values = (self.total[:, 1] * self.rate)[here]
        values = values[np.isfinite(values)]
        return np.median(values) if len(values) else np.nan

    def _between(self, parts, low, high):
        return parts[(self.rate > low) & (self.rate < high)].sum(axis=0)
