"""Random cases and slow, literal routes that several tests share."""

from fractions import Fraction
from itertools import permutations
from math import prod

import numpy as np
from hypothesis import strategies as st

from toyml.lattice import MaskLattice
from toyml.schedules import COSINE, LINEAR, Schedule, polynomial, t
from toyml.sources import TeachingTable

# rho runs from 1/4 to 1: some tokens are masked at t = 0 already.
LATE = Schedule("late", (1 + t) ** 2 / 4)
EXACT_ENDS = [LINEAR, COSINE, polynomial(1.5), polynomial(2), polynomial(3)]

seeds = st.integers(0, 2**32 - 1)
lengths = st.integers(1, 6)


def fractions(rng, shape, low=1, high=30):
    """An object array of Fractions n / high, n in low..high."""
    counts = rng.integers(low, high + 1, shape)
    return _divide(counts, np.full(shape, high))


def _divide(top, bottom):
    return np.vectorize(Fraction, otypes=[object])(
        top.astype(object), bottom.astype(object)
    )


def fraction_distribution(rng, shape, zeros=False):
    """Fractions that sum to 1 over the last axis."""
    counts = rng.integers(0 if zeros else 1, 9, shape)
    counts[..., 0] += counts.sum(-1) == 0
    return _divide(counts, counts.sum(-1, keepdims=True))


def table(seed, length, exact=False, low=1):
    """A random lattice table, 1 at visible positions."""
    rng = np.random.default_rng(seed)
    out = fractions(rng, (1 << length, length), low)
    for pattern in range(1 << length):
        for i in range(length):
            if not pattern >> i & 1:
                out[pattern, i] = Fraction(1)
    return out if exact else out.astype(float)


def lattice(seed, length, exact=False, low=1):
    return MaskLattice(table(seed, length, exact, low))


def paths(rows):
    """For every order, the probabilities met while revealing in it."""
    length = rows.shape[1]
    for order in permutations(range(length)):
        hidden = set(range(length))
        path = []
        for i in order:
            path.append(rows[sum(1 << j for j in hidden), i])
            hidden.remove(i)
        yield order, path


def order_products(rows):
    return [prod(path) for _, path in paths(rows)]


def exp_exact(loss, n=1):
    """exp(n loss) as a Fraction, for a loss that is a sum of c log(prime)."""
    out = Fraction(1)
    for term, c in loss.as_coefficients_dict().items():
        if c == 0:
            continue
        assert term.func.__name__ == "log" and (n * c).is_integer
        out *= Fraction(int(term.args[0])) ** int(n * c)
    return out


def denoiser_of(rows):
    """A denoiser for x0 = 0...0 over {0: right, 1: other}, mask id 2."""

    def denoiser(tokens):
        patterns = (tokens == 2) @ (1 << np.arange(tokens.shape[1]))
        return np.stack([rows[patterns], 1 - rows[patterns]], axis=-1)

    return denoiser


def tea(kind=float):
    """The hot-tea lattice, from floats or from Fractions."""
    numbers = (kind(Fraction(p)) for p in ("1/5", "1/10", "1/2", "4/5"))
    keys = (0, ()), (1, ()), (0, (1,)), (1, (0,))
    source = TeachingTable(dict(zip(keys, numbers, strict=True)), 2)
    return MaskLattice.from_denoiser(source, np.array([0, 0]), 2)
