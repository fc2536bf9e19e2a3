"""The exact law of a sampler, by dynamic programming over the states.

A state is a sequence of clean tokens and masks, V + 1 symbols a position,
numbered in base V + 1 with position 0 as the highest digit. Each step moves
the mass of every state to the states that it may become.
"""

from fractions import Fraction

import numpy as np
import sympy

from .choice import sharpen
from .simulate import ask, left_masked

#: The largest number of states, (V + 1)^L, that an exact law goes through.
MAX_STATES = 200_000
_CHUNK = 1 << 22


def check_states(length, vocab_size):
    """Raise ValueError past MAX_STATES states."""
    states = (vocab_size + 1) ** length
    if states > MAX_STATES:
        raise ValueError(
            f"length = {length}, vocab_size = {vocab_size}: the law runs over "
            f"(V + 1)^L = {states} states; expected at most {MAX_STATES}"
        )


def exact_law(sampler, denoiser, start, vocab_size):
    """Probabilities [V] * L of what the sampler makes of start, [L]."""
    length, base = len(start), vocab_size + 1
    run = _Run(sampler, denoiser, start == vocab_size, vocab_size)
    mass = np.zeros(base**length, int)
    mass[start @ run.strides] = 1
    for step in sampler.steps(length):
        mass = run.advance(mass, step)
    ids = np.flatnonzero(mass != 0)
    left = (run.tokens(ids) == vocab_size).sum(axis=1).max()
    if left:
        raise left_masked(sampler, left)
    law = mass.reshape((base,) * length)[(slice(vocab_size),) * length]
    return law.astype(float) if law.dtype == int else law.copy()


class _Run:
    """One run; ``exact`` is None until the denoiser first answers."""

    def __init__(self, sampler, denoiser, editable, vocab_size):
        self.sampler = sampler
        self.denoiser = denoiser
        self.editable = editable
        self.vocab_size = vocab_size
        self.strides = (vocab_size + 1) ** np.arange(len(editable))[::-1]
        self.exact = None

    def tokens(self, ids):
        """The states with these numbers, int64 [n, L]."""
        return ids[:, None] // self.strides % (self.vocab_size + 1)

    def advance(self, mass, step):
        """The masses of all states after one step."""
        ids = np.flatnonzero(mass != 0)
        hidden = self.tokens(ids) == self.vocab_size
        acts = step.candidates(hidden, self.editable).any(axis=1)
        stays = np.where(np.isin(np.arange(len(mass)), ids[acts]), 0, mass)
        out = None
        rows = max(1, _CHUNK // (len(self.strides) * self.vocab_size))
        for start in range(0, acts.sum(), rows):
            at = ids[acts][start : start + rows]
            for targets, parts in self._moves(at, mass[at], step):
                if out is None:  # now the kind of numbers is known
                    out = stays + self._number(0)
                np.add.at(out, targets, parts)
        return mass if out is None else out

    def _moves(self, ids, mass, step):
        """Yield (states, masses) that these states become."""
        tokens = self.tokens(ids)
        hidden = tokens == self.vocab_size
        candidates = step.candidates(hidden, self.editable)
        probs = None if step.remasks else self._ask(tokens, step)
        selection = step.selection(candidates, probs)
        symbols = self._symbols(tokens, candidates, probs)
        for rows, probability, rate, positions in selection.components():
            keys = positions @ (1 << np.arange(tokens.shape[1]))
            for key in np.unique(keys):
                group = keys == key
                at = rows[group]
                yield self._spread(
                    ids[at],
                    mass[at] * self._number(probability),
                    np.flatnonzero(positions[group][0]),
                    self._number(rate),
                    [part[at] for part in symbols],
                )

    def _ask(self, tokens, step):
        time = None if step.time is None else float(step.time)
        probs = ask(self.denoiser, tokens.copy(), time, self.vocab_size)
        if self.exact not in (None, probs.dtype == object):
            raise ValueError(
                f"denoiser returned dtype {probs.dtype}; expected one kind of "
                "numbers, exact or float, in all answers"
            )
        self.exact = probs.dtype == object
        return probs

    def _symbols(self, tokens, candidates, probs):
        """What a selected position becomes: probabilities and id changes.

        Both [n, L, V], or [n, L, 1] for a step that remasks.
        """
        scale = self.strides[:, None]
        if probs is None:
            change = (self.vocab_size - tokens)[..., None] * scale
            return np.ones_like(change), change
        law = np.zeros_like(probs)
        law[candidates] = sharpen(
            probs[candidates], self.sampler.temperature, self.sampler.top_p
        )
        new = np.arange(self.vocab_size)
        return law, (new - tokens[..., None]) * scale

    def _spread(self, ids, mass, where, rate, symbols):
        """Each position in ``where`` becomes a symbol, or stays as it is."""
        targets, parts = ids[:, None], mass[:, None]
        law, change = symbols
        stays = np.zeros((len(ids), int(rate != 1)), int)
        for i in where:
            columns = np.hstack([law[:, i] * rate, stays + (1 - rate)])
            moved = np.hstack([change[:, i], stays])
            targets = targets[:, :, None] + moved[:, None]
            parts = parts[:, :, None] * columns[:, None]
            targets = targets.reshape(len(ids), -1)
            parts = parts.reshape(len(ids), -1)
        return targets, parts

    def _number(self, value):
        """A float, or a Fraction in an exact run."""
        if not self.exact:
            return float(value)
        value = sympy.sympify(value)
        if not value.is_Rational:
            raise ValueError(
                f"sampler {self.sampler.name!r} uses {value}; an exact law "
                "needs rational numbers: Fractions for times"
            )
        return Fraction(int(value.p), int(value.q))
