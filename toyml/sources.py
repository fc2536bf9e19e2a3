"""Data laws with exact conditionals for every mask pattern.

Each source is a denoiser: ``source(tokens, t=None)`` takes int64 [B, L] with
the mask id V = ``vocab_size`` and returns [B, L, V], the distribution of the
clean token at each position given the visible ones (a visible token is
certain). Time t is ignored: under masking that ignores token values the
conditionals do not depend on it (RADD, Ou et al. 2025, theorem 1).

``Joint`` and ``TeachingTable`` are float64, or exact when made of Fractions.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from . import exact


class Joint:
    """A joint law over V^L sequences, enumerated.

    probabilities: array [V] * L, float or Fraction, nonnegative with sum 1
        (exactly for Fractions, to 1e-9 for floats); else ValueError.
    """

    def __init__(self, probabilities):
        table = _probabilities("probabilities", probabilities, axis=None)
        if table.ndim < 1 or len(set(table.shape)) != 1:
            raise ValueError(
                f"probabilities has shape {table.shape}; expected one axis of "
                "equal size V for each position"
            )
        self.probabilities = table
        self.length = table.ndim
        self.vocab_size = table.shape[0]

    def __call__(self, tokens, t=None):
        """p(x_i | visible tokens), [B, L, V]; impossible rows raise."""
        tokens = _check_tokens(self, tokens)
        out = np.zeros((*tokens.shape, self.vocab_size), self._dtype)
        for row, sequence in enumerate(tokens):
            hidden = np.flatnonzero(sequence == self.vocab_size)
            table = self._given(sequence)
            total = table.sum()
            if total == 0:
                raise _impossible(row, sequence)
            for axis, i in enumerate(hidden):
                others = tuple(a for a in range(table.ndim) if a != axis)
                out[row, i] = table.sum(axis=others) / total
        return _fill_visible(out, tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, L]; -inf where p is 0."""
        sequences = _check_tokens(self, sequences, clean=True)
        return exact.log(self.probabilities[tuple(sequences.T)])

    def entropy(self):
        """Entropy in nats per sequence."""
        p = self.probabilities
        return -exact.weighted_sum(p, exact.log(np.where(p == 0, 1, p)))

    def sample(self, n, rng):
        """n sequences, int64 [n, L]."""
        weights = self.probabilities.ravel().astype(float)
        flat = rng.choice(weights.size, size=n, p=weights)
        return np.stack(np.unravel_index(flat, self.probabilities.shape), -1)

    def _given(self, sequence):
        index = tuple(
            slice(None) if v == self.vocab_size else v for v in sequence
        )
        return np.asarray(self.probabilities[index])

    @property
    def _dtype(self):
        return self.probabilities.dtype


@dataclass(frozen=True, eq=False)
class Markov:
    """A Markov chain of given length, conditionals by forward-backward.

    initial: [V]; transition: [V, V], rows from, columns to; both nonnegative
    with rows that sum to 1, else ValueError. Cost of a call: O(L V^2) a row.
    """

    initial: np.ndarray
    transition: np.ndarray
    length: int

    def __post_init__(self):
        initial = _probabilities("initial", self.initial).astype(float)
        rows = _probabilities("transition", self.transition).astype(float)
        v = len(initial)
        if initial.ndim != 1 or rows.shape != (v, v) or self.length < 1:
            raise ValueError(
                f"initial {initial.shape}, transition {rows.shape}, length "
                f"{self.length}: expected [V], [V, V] and at least 1"
            )
        object.__setattr__(self, "initial", initial)
        object.__setattr__(self, "transition", rows)

    @property
    def vocab_size(self):
        return len(self.initial)

    def __call__(self, tokens, t=None):
        """p(x_i | visible tokens), [B, L, V]; impossible rows raise.

        The messages are scaled as in Rabiner (1989): forward messages sum to
        one, and the same factors scale the backward ones, so that their
        product is the posterior itself.
        """
        tokens = _check_tokens(self, tokens)
        batch, length = tokens.shape
        v = self.vocab_size
        evidence = (tokens[..., None] == np.arange(v)) | (
            tokens[..., None] == v
        )
        forward = np.empty((length, batch, v))
        scale = np.empty((length, batch, 1))
        prior = np.broadcast_to(self.initial, (batch, v))
        for i in range(length):
            message = prior * evidence[:, i]
            scale[i] = message.sum(axis=1, keepdims=True)
            if not scale[i].all():
                row = int(np.argmin(scale[i]))
                raise _impossible(row, tokens[row])
            forward[i] = message / scale[i]
            prior = forward[i] @ self.transition
        out = np.empty((batch, length, v))
        backward = np.ones((batch, v))
        for i in reversed(range(length)):
            out[:, i] = forward[i] * backward
            message = backward * evidence[:, i] / scale[i]
            backward = message @ self.transition.T
        return _fill_visible(out, tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, L]; -inf where p is 0."""
        x = _check_tokens(self, sequences, clean=True)
        steps = exact.log(self.transition)[x[:, :-1], x[:, 1:]]
        return exact.log(self.initial)[x[:, 0]] + steps.sum(axis=1)

    def entropy(self):
        """Entropy in nats per sequence, by the chain rule."""
        rows = _entropy(self.transition)
        total, marginal = _entropy(self.initial), self.initial
        for _ in range(self.length - 1):
            total = total + marginal @ rows
            marginal = marginal @ self.transition
        return float(total)

    def sample(self, n, rng):
        """n sequences, int64 [n, L]."""
        out = np.empty((n, self.length), dtype=np.int64)
        rows = np.broadcast_to(self.initial, (n, self.vocab_size))
        for i in range(self.length):
            reached = rng.random((n, 1)) < np.cumsum(rows, axis=1)
            last = self.vocab_size - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
            out[:, i] = np.where(reached.any(1), reached.argmax(1), last)
            rows = self.transition[out[:, i]]
        return out


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
        tokens = _check_tokens(self, tokens)
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
        return _fill_visible(out, tokens)

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


def _entropy(rows):
    return -np.sum(rows * exact.log(np.where(rows == 0, 1, rows)), axis=-1)


def _fill_visible(out, tokens):
    """Make every visible token certain in [B, L, V] conditionals."""
    v = out.shape[-1]
    visible = tokens != v
    out[visible] = (tokens[visible][:, None] == np.arange(v)).astype(int)
    return out


def _check_tokens(source, tokens, clean=False):
    tokens = np.asarray(tokens)
    largest = source.vocab_size - clean
    if (
        tokens.dtype.kind not in "iu"
        or tokens.ndim != 2
        or tokens.shape[1] != source.length
        or np.any((tokens < 0) | (tokens > largest))
    ):
        raise ValueError(
            f"tokens of shape {tokens.shape} and dtype {tokens.dtype}, values "
            f"{np.unique(tokens)[:8].tolist()}: expected integers [B, "
            f"{source.length}] in 0..{largest}"
            + ("" if clean else f" (mask id {largest})")
        )
    return tokens


def _impossible(row, sequence):
    return ValueError(
        f"row {row}, tokens {sequence.tolist()}: the visible tokens have "
        "probability 0; expected possible evidence"
    )


def _probabilities(name, values, axis=-1):
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        values = values.astype(float)
    totals = np.asarray(values.sum(axis=axis))
    slack = 0 if values.dtype == object else 1e-9
    off = np.abs(totals - 1) > slack
    if np.any(values < 0) or np.any(off) or np.any(values != values):
        raise ValueError(
            f"{name} has minimum {values.min()} and sums {totals.tolist()}; "
            "expected nonnegative numbers that sum to 1"
        )
    return values
