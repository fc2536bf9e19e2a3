"""The mask lattice: every quantity of the theory as a sum over one table.

For one clean sequence of L tokens the table holds, for each of the 2^L mask
patterns S and each masked position i, the probability that the denoiser gives
the clean token there. Visible positions hold 1, so they cost nothing. Losses
are in nats per sequence. A table of Fractions or SymPy entries (dtype object)
gives exact results through the same methods.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np
import sympy

from . import exact, subsets
from .schedules import check_range
from .tables import (
    check_column,
    check_denoised,
    check_length,
    clean_sequence,
)


@dataclass(frozen=True)
class GridBound:
    """A finite-grid NELBO by terms, in nats per sequence.

    denoising[j - 1] belongs to the step from times[j] to times[j - 1].
    """

    prior: float
    denoising: tuple
    reconstruction: float

    @property
    def total(self):
        """The sum of all terms, in nats."""
        return self.prior + sum(self.denoising) + self.reconstruction


class MaskLattice:
    """Probabilities of the clean tokens under every mask pattern.

    table: [2^L, L], float or dtype object. Bit i of the row number is set
    where position i is masked; entries at visible positions must be 1.
    Raises ValueError for another shape, a number outside [0, 1], or a visible
    entry other than 1.
    """

    def __init__(self, table):
        table = np.asarray(table)
        if table.dtype != object:
            table = np.ascontiguousarray(table, dtype=np.float64)
        length = table.shape[-1] if table.ndim == 2 else 0
        if length < 1 or len(table) != 1 << length:
            raise ValueError(
                f"table has shape {table.shape}; expected [2^L, L], L >= 1"
            )
        check_length(length)
        for i in range(length):
            check_column(table[:, i], i)
        self.table = table
        self.length = length

    @classmethod
    def from_denoiser(cls, denoiser, x0, vocab_size, editable=None):
        """Ask ``denoiser(tokens)`` about every mask pattern of x0.

        x0: the clean sequence, int [L]. editable: bool [L]; the patterns run
        over those positions only and the others stay visible. A row of
        probabilities that does not sum to 1 (to 1e-6) raises ValueError.
        """
        x0 = clean_sequence(x0, vocab_size)
        open_ = np.ones(len(x0), bool) if editable is None else editable
        where = np.flatnonzero(np.broadcast_to(open_, x0.shape))
        check_length(len(where))
        hidden = subsets.masks(len(where))
        parts = []
        for start in range(0, len(hidden), 4096):
            rows = hidden[start : start + 4096]
            tokens = np.tile(x0, (len(rows), 1))
            tokens[:, where] = np.where(rows, vocab_size, x0[where])
            probs = np.asarray(denoiser(tokens))
            check_denoised(probs, tokens, vocab_size)
            right = probs[:, where, x0[where]]
            one = Fraction(1) if right.dtype == object else 1.0
            parts.append(np.where(rows, right, one))
        return cls(np.concatenate(parts))

    @property
    def is_exact(self):
        """Whether the table holds exact numbers (dtype object)."""
        return self.table.dtype == object

    @cached_property
    def row_losses(self):
        """Summed cross-entropy of the masked positions, [2^L], in nats."""
        losses = subsets.row_losses(self.table)
        losses.flags.writeable = False
        return losses

    def cross_entropy(self):
        """-log of the table, [2^L, L]; 0 at visible positions."""
        return 0 - exact.log(self.table)

    def by_count(self, power=1):
        """The profile: mean of (summed cross-entropy)^power by mask count.

        Returns [L + 1]; entry k averages over the C(L, k) patterns with k
        masks, entry 0 is 0.
        """
        if power == 1:
            return self._profile
        return self._average_by_count(self.row_losses**power)

    def squares_by_count(self):
        """Mean sum of squared cross-entropies by mask count, [L + 1]."""
        return self._average_by_count((self.cross_entropy() ** 2).sum(axis=1))

    @cached_property
    def _profile(self):
        """by_count(1), which every step of a grid asks for again."""
        profile = self._average_by_count(self.row_losses)
        profile.flags.writeable = False
        return profile

    def _average_by_count(self, rows):
        size = subsets.counts(self.length)
        if not self.is_exact:
            return np.bincount(size, rows) / self._binomials
        out = np.empty(self.length + 1, dtype=object)
        for k in range(self.length + 1):
            total = sympy.Add(*rows[size == k])
            out[k] = sympy.expand(total / int(self._binomials[k]))
        return out

    def expected_loss(self, masked_probability):
        """Mean summed cross-entropy when each token is masked independently.

        masked_probability: rho in [0, 1], a scalar.
        """
        rho = masked_probability
        check_range("masked_probability", rho)
        return self._expected_loss(rho, 1 - rho)

    def nelbo(self):
        """The continuous-time bound: sum over S of B(k, L - k + 1) ce(S).

        k = |S|; the Beta weight is (k - 1)! (L - k)! / L!, one over k times
        C(L, k), so that the sum is that of by_count()[k] / k. Source: MDLM
        eq. 11; the integral over t done in closed form.
        """
        return exact.weighted_sum(
            self.numbers(Fraction(1, k) for k in range(1, self.length + 1)),
            self.by_count()[1:],
        )

    def order_loss(self, order):
        """-log of the probability of x0 revealed in one order.

        order: the positions 0..L-1 from first revealed to last.
        """
        if sorted(order) != list(range(self.length)):
            raise ValueError(
                f"order = {list(order)}: expected each of the positions "
                f"0..{self.length - 1} once"
            )
        pattern, path = (1 << self.length) - 1, []
        for i in order:
            path.append(self.table[pattern, i])
            pattern ^= 1 << int(i)
        loss = 0 - exact.log(np.array(path, dtype=self.table.dtype)).sum()
        return loss if self.is_exact else float(loss)

    def any_order_loss(self):
        """The mean of order_loss over all L! orders, by recursion.

        Source: ARDM (Hoogeboom et al. 2022) eq. 2; RADD theorem 2.
        """
        loss = subsets.mean_path_loss(self.table)
        return sympy.expand(loss) if self.is_exact else float(loss)

    def generator_probability(self):
        """Probability that revealing in a uniformly random order gives x0.

        A float below 1e-290 may have lost terms to underflow;
        ``generator_nll`` does not.
        """
        p = subsets.mean_path_product(self.table)
        return p if self.is_exact else float(p)

    def generator_nll(self):
        """-log generator_probability(), infinite where that is 0."""
        p = self.generator_probability()
        if self.is_exact:
            return -exact.log(p)
        if p >= 1e-290:
            return -math.log(p)
        return -float(subsets.log_mean_path_product(self.table))

    def gap(self):
        """nelbo() - generator_nll() >= 0, in nats.

        It is KL(uniform order || posterior over orders given x0). Raises
        ValueError where the generator cannot produce x0: both are infinite.
        """
        nll = self.generator_nll()
        if nll == math.inf:
            raise ValueError(
                "generator_nll is infinite: expected a table that can "
                "produce the sequence"
            )
        return self.nelbo() - nll

    def nelbo_on_grid(self, schedule, times):
        """The bound on a finite grid, term by term, as a ``GridBound``.

        times: t_0 < ... < t_K in [0, 1], K >= 1. The latents are at all K + 1
        times. prior is KL(q(x at t_K) || all masks), infinite unless alpha
        (t_K) = 0. denoising[j - 1] is r(t_{j-1}, t_j) times the expected
        cross-entropy at t_j. reconstruction is the expected cross-entropy at
        t_0, with the denoiser as decoder: 0 if nothing is masked at t_0.
        An exact lattice needs exact times. Source: MDLM eq. 9 and app. B.
        """
        times = list(times)
        if len(times) < 2:
            raise ValueError(f"times = {times}: expected at least two times")
        if self.is_exact:
            times = [sympy.sympify(v) for v in times]
            if any(v.is_Float for v in times):
                raise ValueError(
                    f"times = {times}: an exact lattice needs Fraction or "
                    "SymPy times"
                )
        infinity = sympy.oo if self.is_exact else math.inf
        ends_masked = schedule.survival(times[-1]) == 0
        denoising = []
        for s, t in pairwise(times):
            r = schedule.reveal(s, t)
            denoising.append(exact.weighted_sum(r, self._at(schedule, t)))
        return GridBound(
            prior=(0 if self.is_exact else 0.0) if ends_masked else infinity,
            denoising=tuple(denoising),
            reconstruction=self._at(schedule, times[0]),
        )

    def mean(self, objective):
        """Exact mean of an objective's loss on this sequence, in nats."""
        return objective.law(self.length).mean(self)

    def variance(self, objective):
        """Exact variance of one draw of the loss; inf where it diverges."""
        law = objective.law(self.length)
        second = law.second_moment(self)
        if second == math.inf:
            return second
        return second - law.mean(self) ** 2

    def _at(self, schedule, t):
        return self._expected_loss(schedule.masked(t), schedule.survival(t))

    def _expected_loss(self, rho, alpha):
        k = np.arange(self.length + 1)
        if self.is_exact:
            k = k.astype(object)
            rho, alpha = sympy.sympify(rho), sympy.sympify(alpha)
        law = self._binomials * rho**k * alpha ** (self.length - k)
        return exact.weighted_sum(law, self.by_count())

    @cached_property
    def _binomials(self):
        row = [math.comb(self.length, k) for k in range(self.length + 1)]
        return np.array(row, dtype=object if self.is_exact else float)

    def numbers(self, values):
        """Numbers of the table's kind: floats, or left exact."""
        return np.array(list(values), dtype=self.table.dtype)
