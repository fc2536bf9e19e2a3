"""Exact logarithms: equal losses are equal expressions."""

from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from cases import exp_exact
from toyml import exact

positive = st.builds(Fraction, st.integers(1, 5000), st.integers(1, 5000))


@given(positive)
def test_log_of_a_fraction_is_a_sum_over_primes(value):
    loss = exact.log(np.array([value], dtype=object))[0]
    assert exp_exact(loss) == value
    assert all(
        sympy.isprime(term.args[0]) for term in loss.atoms(sympy.log)
    )


@given(st.lists(positive, min_size=1, max_size=5), st.integers(1, 6))
def test_equal_sums_of_logs_have_one_form(values, n):
    apart = sum(sympy.log(sympy.Rational(v)) for v in values) / n
    product = Fraction(1)
    for v in values:
        product *= v
    together = sympy.log(sympy.Rational(product)) / n
    assert exact.combine(apart) == exact.combine(together)
    other = sympy.log(sympy.Rational(product * 7919)) / n
    assert exact.combine(apart) != exact.combine(other)


def test_the_log_of_a_huge_number_does_not_wait_for_its_factors():
    big = 2**521 - 1  # prime, as is the next; their product is no easy one
    value = Fraction(big * (2**607 - 1) * 3**200 * 4099, 7**300)
    loss = exact.log(np.array([value], dtype=object))[0]
    assert exp_exact(loss) == value
    assert loss.coeff(sympy.log(3)) == 200 and loss.coeff(sympy.log(7)) == -300


def test_sympy_alone_does_not_see_the_equality():
    half = sympy.Rational(1, 2)
    sums = half * sympy.log(5) + sympy.log(25) / 2
    assert sums != sympy.log(125) / 2
    assert exact.combine(sums) == exact.combine(sympy.log(125) / 2)


@pytest.mark.parametrize("zero", [0, Fraction(0), sympy.Integer(0)])
def test_log_of_zero(zero):
    assert exact.log(np.array([zero], dtype=object))[0] == -sympy.oo
    assert exact.log(0.0) == -np.inf


def test_log_leaves_symbols_alone():
    p = sympy.Symbol("p", positive=True)
    assert exact.log(np.array([[p]], dtype=object))[0, 0] == sympy.log(p)


def test_weighted_sum_takes_zero_times_infinity_as_zero():
    inf = np.inf
    assert exact.weighted_sum([0, 1, inf, 2], [inf, 3, 0, 5]) == 13
    assert exact.weighted_sum([1.0, 0], [inf, 3]) == inf
    third = Fraction(1, 3)
    got = exact.weighted_sum(
        np.array([0, third, sympy.oo], dtype=object),
        np.array([sympy.oo, third, 0], dtype=object),
    )
    assert got == sympy.Rational(1, 9)


@pytest.mark.parametrize(
    "value, expected",
    [
        (0.5, False),
        (1, False),
        (np.ones(2), False),
        ([0.5, 1], False),
        (Fraction(1, 2), True),
        (sympy.pi, True),
        (np.ones(2, dtype=object), True),
        ([0.5, Fraction(1, 2)], True),
    ],
)
def test_is_exact(value, expected):
    assert exact.is_exact(value) is expected
    assert exact.is_exact(0.0, value) is expected
