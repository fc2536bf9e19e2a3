"""Conditionals made by hand, which may fit no joint law."""

from fractions import Fraction
from itertools import combinations

import numpy as np

from .. import exact
from .checks import check_tokens, fill_visible
from .joint import Joint


class TeachingTable:
    """Hand-made conditionals for one sequence; they may fit no joint law.

    conditionals: a dict from (position, visible positions) to the
        probability of the right token there when those positions hold their
        right tokens: ``{(0, ()): 0.2, (1, (0,)): 0.8, ...}``.
    length: the number of positions L.

    As a denoiser it reads {0: right, 1: other} at each position, mask id 2.
    A context it does not hold raises ValueError.
    """

    vocab_size = 2

    def __init__(self, conditionals, length):
        self.length = length
        self.conditionals = {}
        for (i, visible), p in conditionals.items():
            seen = frozenset(visible)
            if i in seen or not (seen | {i}) <= set(range(length)):
                raise ValueError(
                    f"conditionals key {(i, tuple(visible))}: expected a "
                    f"position in 0..{length - 1} outside the visible ones"
                )
            if not 0 <= p <= 1:
                raise ValueError(
                    f"conditionals[{(i, tuple(visible))}] = {p}: expected a "
                    "probability"
                )
            self.conditionals[i, seen] = p
        values = self.conditionals.values()
        self._dtype = object if exact.is_exact(*values) else float
        if self._dtype is object and any(isinstance(p, float) for p in values):
            raise ValueError(
                "conditionals mixes floats with exact numbers; expected one "
                "kind"
            )

    def probability(self, position, visible):
        """p(right token at position | the visible positions are right)."""
        try:
            return self.conditionals[position, frozenset(visible)]
        except KeyError:
            raise ValueError(
                f"position {position} given visible {sorted(visible)}: the "
                "table does not hold this context"
            ) from None

    def __call__(self, tokens, t=None):
        """[B, L, 2]: (right, other) at each masked position."""
        tokens = check_tokens(self, tokens)
        out = np.zeros((*tokens.shape, 2), self._dtype)
        for row, sequence in enumerate(tokens):
            visible = [i for i, v in enumerate(sequence) if v != 2]
            if any(sequence[i] == 1 for i in visible):
                raise ValueError(
                    f"row {row}, {sequence.tolist()}: the table holds only "
                    "contexts whose visible tokens are right (0)"
                )
            for i in set(range(self.length)) - set(visible):
                p = self.probability(i, visible)
                out[row, i] = p, 1 - p
        return fill_visible(out, tokens)

    def is_consistent(self, tolerance=1e-12):
        """A ``Joint`` with these conditionals, or None if there is none.

        Two conditions decide. On every square whose prefix A has positive
        mass, p(i|A) p(j|A+i) = p(j|A) p(i|A+j), so that each visible set A
        has one mass m(A); and the masses of the exact patterns, which follow
        from m by inclusion and exclusion, are nonnegative. Contexts of mass
        zero are free. For floats both are read to within ``tolerance``: a
        pattern mass in [-tolerance, 0] is taken as 0; Fractions are exact.
        """
        slack = 0 if self._dtype is object else tolerance
        mass = self._masses(slack)
        if mass is None:
            return None
        table = np.zeros((2,) * self.length, self._dtype)
        for index in np.ndindex(table.shape):
            right = frozenset(i for i, v in enumerate(index) if v == 0)
            table[index] = sum(
                (-1) ** len(extra) * mass[right | extra]
                for extra in _subsets(set(range(self.length)) - right)
            )
        if np.min(table) < -slack:
            return None
        return Joint(np.where(table < 0, 0 * table, table))

    def _masses(self, slack):
        """m(A) for every set A of right positions; None if paths disagree."""
        mass = {frozenset(): Fraction(1) if self._dtype is object else 1.0}
        for visible in _subsets(set(range(self.length))):
            paths = []
            for i in visible:
                before = mass[visible - {i}]
                free = before == 0
                step = 0 if free else self.probability(i, visible - {i})
                paths.append(before * step)
            if paths and max(paths) - min(paths) > slack:
                return None
            mass.setdefault(visible, *paths[:1])
        return mass


def _subsets(positions):
    """All subsets, smallest first."""
    for size in range(len(positions) + 1):
        for subset in combinations(sorted(positions), size):
            yield frozenset(subset)
