"""A joint law, enumerated."""

import numpy as np

from .. import exact
from .checks import (
    check_probabilities,
    check_tokens,
    fill_visible,
    impossible,
)


class Joint:
    """A joint law over V^L sequences, enumerated.

    probabilities: array [V] * L, float or Fraction, nonnegative with sum 1
        (exactly for Fractions, to 1e-9 for floats); else ValueError.
    """

    def __init__(self, probabilities):
        table = check_probabilities("probabilities", probabilities, axis=None)
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
        tokens = check_tokens(self, tokens)
        out = np.zeros((*tokens.shape, self.vocab_size), self._dtype)
        for row, sequence in enumerate(tokens):
            hidden = np.flatnonzero(sequence == self.vocab_size)
            table = self._given(sequence)
            total = table.sum()
            if total == 0:
                raise impossible(row, sequence)
            for axis, i in enumerate(hidden):
                others = tuple(a for a in range(table.ndim) if a != axis)
                out[row, i] = table.sum(axis=others) / total
        return fill_visible(out, tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, L]; -inf where p is 0."""
        sequences = check_tokens(self, sequences, clean=True)
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
