"""A Markov chain, conditioned by forward-backward."""

from dataclasses import dataclass

import numpy as np

from .. import exact
from .checks import (
    check_probabilities,
    check_tokens,
    fill_visible,
    impossible,
)


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
        initial = check_probabilities("initial", self.initial).astype(float)
        rows = check_probabilities("transition", self.transition).astype(float)
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
        """The number of states V."""
        return len(self.initial)

    def __call__(self, tokens, t=None):
        """p(x_i | visible tokens), [B, L, V]; impossible rows raise.

        The messages are scaled as in Rabiner (1989): forward messages sum to
        one, and the same factors scale the backward ones, so that their
        product is the posterior itself.
        """
        tokens = check_tokens(self, tokens)
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
                raise impossible(row, tokens[row])
            forward[i] = message / scale[i]
            prior = forward[i] @ self.transition
        out = np.empty((batch, length, v))
        backward = np.ones((batch, v))
        for i in reversed(range(length)):
            out[:, i] = forward[i] * backward
            message = backward * evidence[:, i] / scale[i]
            backward = message @ self.transition.T
        return fill_visible(out, tokens)

    def log_prob(self, sequences):
        """log p(x) in nats for clean sequences [B, L]; -inf where p is 0."""
        x = check_tokens(self, sequences, clean=True)
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
        out[:, 0] = _draw(self.initial[None], np.zeros(n, int), rng)
        for i in range(1, self.length):
            out[:, i] = _draw(self.transition, out[:, i - 1], rng)
        return out


def _draw(rows, state, rng):
    """One token from rows[state] for each state, int64 [n].

    Where rounding leaves the uniform number above the whole row, the last
    token of positive probability is taken.
    """
    v = rows.shape[1]
    last = v - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
    steps = np.cumsum(rows, axis=1)
    steps[np.arange(v) >= last[:, None]] = 1
    u = rng.random((len(state), 1))
    return (u < steps[state]).argmax(axis=1)


def _entropy(rows):
    return -np.sum(rows * exact.log(np.where(rows == 0, 1, rows)), axis=-1)
