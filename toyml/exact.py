"""One logarithm for float64 arrays and for exact (dtype object) arrays.

numpy's own ``log`` fails on Fractions and SymPy numbers. Here the log of a
positive rational is written over the primes, log(12/5) = 2 log 2 + log 3 -
log 5, and like terms add up by themselves. The logs of the primes are
linearly independent over the rationals, so two exact losses are equal if and
only if their expanded forms are the same expression (integers past 100 bits
aside: see ``_log_integer``).
"""

from fractions import Fraction
from functools import cache

import numpy as np
import sympy


def is_exact(*values):
    """Whether any value is a Fraction, a SymPy object or an object array.

    A list or tuple is exact where one of its entries is.
    """
    return any(
        isinstance(v, (Fraction, sympy.Basic))
        or getattr(v, "dtype", None) == object
        or (isinstance(v, (list, tuple)) and is_exact(*v))
        for v in values
    )


@cache
def _log_integer(n):
    """log n over the primes.

    Past 100 bits factoring may take for ever: the primes below 4096 are
    divided out, and what then still has more than 100 bits stays one log.
    """
    factors = {}
    for p in sympy.primerange(4096) if n.bit_length() > 100 else ():
        factors[p] = sympy.multiplicity(p, n)
        n //= p ** factors[p]
    factors |= sympy.factorint(n) if n.bit_length() <= 100 else {n: 1}
    return sympy.Add(*(e * sympy.log(p) for p, e in factors.items()))


def _log_one(value):
    value = sympy.sympify(value)
    if value == 0:
        return -sympy.oo
    if value.is_Rational and value > 0:
        return _log_integer(value.p) - _log_integer(value.q)
    return sympy.log(value)


def log(values):
    """Natural logarithm, elementwise; log(0) is minus infinity.

    values: a number or array, of floats or (dtype object) of Fractions or
    SymPy expressions. Returns the same shape and kind, SymPy for exact.
    """
    values = np.asarray(values)
    if values.dtype == object:
        out = np.empty(values.shape, dtype=object)
        for index in np.ndindex(values.shape):
            out[index] = _log_one(values[index])
        return out[()]
    with np.errstate(divide="ignore"):
        return np.log(values)


def combine(expression):
    """The canonical form of a sum of rational multiples of logs.

    Every log of a positive rational is split over the primes and the like
    terms are collected; equal losses then compare equal with ``==``.
    """
    expression = sympy.sympify(expression)
    split = expression.replace(
        lambda e: isinstance(e, sympy.log) and e.args[0].is_Rational,
        lambda e: _log_one(e.args[0]),
    )
    return sympy.expand(split)


def weighted_sum(weights, values):
    """Sum of weights times values in which 0 times infinity is 0.

    Two arrays that broadcast together, float or exact; either may hold the
    infinity. A number of the same kind.
    """
    weights, values = np.broadcast_arrays(weights, values)
    if is_exact(weights, values):
        terms = [
            sympy.sympify(w) * v
            for w, v in zip(weights.flat, values.flat, strict=True)
            if w != 0 and v != 0
        ]
        return sympy.expand(sympy.Add(*terms))
    kept = (weights != 0) & (values != 0)
    return float(np.sum(weights[kept] * values[kept]))
