"""Objectives that divide by a count or follow an order, by enumeration."""

from fractions import Fraction
from itertools import permutations
from math import comb, factorial, log

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import lattice, lengths, seeds, tea
from toyml.objectives import (
    autoregressive,
    forced_target,
    per_example_mean,
    power_count,
    random_order,
    uniform_count,
    unweighted,
)

REDRAW, ZERO = per_example_mean(), per_example_mean("zero")
MASK_ONLY = per_example_mean("redraw_mask_only")
few = settings(max_examples=20)

x = sympy.Symbol("x", positive=True)


def chance_of(k, length, divisor=1):
    """P(one given set of k is masked) at uniform rate, by SymPy."""
    chance = x**k * (1 - x) ** (length - k) / divisor
    return sympy.integrate(sympy.cancel(sympy.expand(chance)), (x, 0, 1))


def patterns(one):
    """(k, summed cost, costs of the masked positions) of every pattern."""
    for pattern in range(1, 1 << one.length):
        costs = [
            -np.log(one.table[pattern, i])
            for i in range(one.length)
            if pattern >> i & 1
        ]
        yield len(costs), sum(costs), costs


def moments(one, chances):
    """Of the mean cost of a masked token times L; chances by set size."""
    return [
        sum(
            float(chances[k]) * (one.length * total / k) ** power
            for k, total, _ in patterns(one)
        )
        for power in (1, 2)
    ]


def check(one, objective, chances):
    mean, second = moments(one, chances)
    assert one.mean(objective) == pytest.approx(mean, rel=1e-12)
    wanted = second - mean**2
    got = one.variance(objective)
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    return mean


# Dividing by the count of masked tokens. Three rules for no mask at all.


@few
@given(st.integers(1, 4), seeds)
def test_per_example_mean_redrawn_whole(length, seed):
    """t and the mask again: divide by P(some mask) over both."""
    one = lattice(seed, length)
    kept = 1 - chance_of(0, length)
    chances = [chance_of(k, length) / kept for k in range(length + 1)]
    mean = check(one, REDRAW, chances)
    assert mean == pytest.approx(one.nelbo(), rel=1e-12)


@few
@given(st.integers(1, 4), seeds)
def test_per_example_mean_with_zeros(length, seed):
    one = lattice(seed, length)
    chances = [chance_of(k, length) for k in range(length + 1)]
    mean = check(one, ZERO, chances)
    wanted = one.nelbo() * length / (length + 1)
    assert mean == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=8)
@given(st.integers(1, 4), seeds)
def test_per_example_mean_with_the_rate_kept(length, seed):
    """The mask alone again: divide by P(some mask | t), inside."""
    one = lattice(seed, length)
    some = 1 - (1 - x) ** length
    chances = [0] + [
        sympy.N(chance_of(k, length, some), 25) for k in range(1, length + 1)
    ]
    check(one, MASK_ONLY, chances)
    law = MASK_ONLY.law(length)
    for k in range(1, length + 1):
        wanted = comb(length, k) * float(chances[k])
        assert law.probability[k] == pytest.approx(wanted, rel=1e-12)
    assert law.probability[0] == law.weight[0] == law.weight_squared[0] == 0


def test_the_rate_kept_is_biased():
    """L = 2: P(one mask) = the integral of 2 (1 - t) / (2 - t)."""
    single = 2 * (1 - log(2))
    assert MASK_ONLY.law(2).probability[1] == pytest.approx(single, rel=1e-13)
    assert round(single, 3) == 0.614
    first, second, given_first, given_second = (
        -log(p) for p in (0.2, 0.1, 0.5, 0.8)
    )
    # either of the two masked at weight 2, or both at weight 1
    wanted = single * (given_first + given_second)
    wanted += (1 - single) * (first + second)
    assert tea().mean(MASK_ONLY) == pytest.approx(wanted, rel=1e-12)
    assert abs(wanted - log(125) / 2) > 0.3


def test_the_laws_of_counts_are_exact():
    for length in (1, 2, 5):
        law = ZERO.law(length)
        assert law.probability == (Fraction(1, length + 1),) * (length + 1)
    exact = tea(Fraction)
    assert sympy.expand(3 * exact.mean(ZERO) - 2 * exact.nelbo()) == 0


@few
@given(st.integers(1, 4), seeds)
def test_dividing_by_the_count_averages_over_the_target(length, seed):
    """Variance of the forced target = that, + the variance given the set."""
    one = lattice(seed, length)
    within = 0
    for k, _, costs in patterns(one):
        # k uniform on 1..L, then the set, then the target in the set
        chance = 1 / length / comb(length, k)
        within += chance * np.var(length * np.array(costs))
    forced, mean = one.variance(forced_target()), one.variance(REDRAW)
    assert forced - mean == pytest.approx(within, rel=1e-8, abs=1e-11)
    assert mean <= forced + 1e-12


def test_tea_by_count():
    """2.354 against 2.594, from the four questions."""
    first, second, given_first, given_second = (
        -log(p) for p in (0.2, 0.1, 0.5, 0.8)
    )
    average = [2 * given_first, 2 * given_second] + [first + second] * 2
    single = [2 * v for v in (first, second, given_first, given_second)]
    for objective, losses, digits in (
        (REDRAW, average, 2.354),
        (uniform_count(), average, 2.354),
        (forced_target(), single, 2.594),
        (random_order(), single, 2.594),
    ):
        variance = np.var(losses)
        assert round(variance, 3) == digits
        got = tea().variance(objective)
        assert got == pytest.approx(variance, rel=1e-13)
        exact = tea(Fraction).variance(objective)
        assert float(exact) == pytest.approx(variance, rel=1e-13)


# Counts drawn by a power law.

powers = st.floats(-3, 3, allow_subnormal=False)


@few
@given(st.integers(1, 5), seeds, powers)
def test_power_count_without_a_power_on_the_weight(length, seed, draw):
    """The mean is the NELBO, however the counts are drawn."""
    one = lattice(seed, length)
    got = one.mean(power_count(draw))
    assert got == pytest.approx(one.nelbo(), rel=1e-11)
    assert got == pytest.approx(one.any_order_loss(), rel=1e-11)


@few
@given(st.integers(1, 4), seeds, powers, powers)
def test_power_count(length, seed, draw, power):
    """Every set: chance p(k) / C(L, k), loss e(k) / (k p(k)) times cost."""
    one = lattice(seed, length)
    objective = power_count(draw, power)
    draws = [k**draw for k in range(1, length + 1)]
    totals = [k**power for k in range(1, length + 1)]
    first = second = 0
    for k, total, _ in patterns(one):
        p = draws[k - 1] / sum(draws)
        e = totals[k - 1] * length / sum(totals)
        first += p / comb(length, k) * e / k / p * total
        second += p / comb(length, k) * (e / k / p * total) ** 2
    assert one.mean(objective) == pytest.approx(first, rel=1e-11)
    wanted = second - first**2
    got = one.variance(objective)
    assert got == pytest.approx(wanted, rel=1e-8, abs=1e-10 * second)
    law = objective.law(length)
    assert sum(law.probability) == pytest.approx(1, rel=1e-12)
    assert sum(law.effective_weight) == pytest.approx(length, rel=1e-12)


@pytest.mark.parametrize("draw", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("length", [1, 4, 11])
def test_power_count_where_every_masked_token_counts_alike(draw, length):
    """e(k) = 2 k / (L + 1); unweighted has k / (L + 1), half of it."""
    law = power_count(draw, 1.0).law(length)
    wanted = [2 * k / (length + 1) for k in range(length + 1)]
    assert law.effective_weight == pytest.approx(wanted, rel=1e-13)
    half = unweighted().law(length).effective_weight
    assert law.effective_weight == pytest.approx(
        [2 * float(e) for e in half], rel=1e-13
    )


def test_power_count_by_hand():
    """L = 3, both powers 1: p = k / 6, e = k / 2, weights 3, 3/2, 1."""
    objective = power_count(1.0, 1.0)
    law = objective.law(3)
    assert law.probability == pytest.approx((0, 1 / 6, 2 / 6, 3 / 6))
    assert law.weight == pytest.approx((0, 1 / 2, 1 / 2, 1 / 2))
    assert law.weight_squared == pytest.approx((0, 9 / 6, 9 / 12, 1 / 2))
    assert objective.breaks(3) == pytest.approx([1 / 6, 1 / 2])
    u = np.array([0, 0.16, 0.17, 0.49, 0.51, 1 - 2**-53])
    given_u = objective.given(u, np.full(6, 3))
    assert given_u.count.tolist() == [1, 1, 2, 2, 3, 3]
    assert given_u.weight == pytest.approx([3, 3, 1.5, 1.5, 1, 1])
    # one editable position, or two: p = 1/3, 2/3 and e = 2/3, 4/3
    given_u = objective.given(np.array([0.9, 0.3, 0.4]), np.array([1, 2, 2]))
    assert given_u.count.tolist() == [1, 1, 2]
    assert given_u.weight == pytest.approx([1, 2, 1])


def test_power_count_at_zero_is_uniform_count():
    for length in (1, 2, 5):
        law, flat = power_count().law(length), uniform_count().law(length)
        for name in ("probability", "weight", "weight_squared"):
            wanted = [float(v) for v in getattr(flat, name)]
            assert getattr(law, name) == pytest.approx(wanted, rel=1e-14)


# Orders.


@few
@given(st.integers(1, 4), seeds)
def test_random_order(length, seed):
    """Every order and every step of it, weight L."""
    one = lattice(seed, length)
    moments = [0, 0, 0]
    for order in permutations(range(length)):
        pattern = (1 << length) - 1
        for i in order:
            loss = -length * np.log(one.table[pattern, i])
            for power in range(3):
                moments[power] += loss**power / factorial(length) / length
            pattern ^= 1 << i
    for objective in (random_order(), forced_target()):
        law = objective.law(length)
        assert float(sum(law.probability)) == pytest.approx(1, abs=1e-14)
        assert law.mean(one) == pytest.approx(moments[1], rel=1e-12)
        assert law.second_moment(one) == pytest.approx(moments[2], rel=1e-12)
    assert random_order().law(length) == forced_target().law(length)


@few
@given(lengths, seeds)
def test_autoregressive(length, seed):
    one = lattice(seed, length)
    loss, pattern = 0, (1 << length) - 1
    for i in range(length):
        loss -= log(one.table[pattern, i])
        pattern ^= 1 << i
    assert one.mean(autoregressive()) == pytest.approx(loss, rel=1e-12)
    variance = one.variance(autoregressive())
    assert variance == pytest.approx(0, abs=1e-12 * (1 + loss**2))
    exact = lattice(seed, length, exact=True)
    order = exact.order_loss(range(length))
    assert exact.mean(autoregressive()) == order


def test_autoregressive_passes():
    """One pass for each token, everything from it on masked."""
    rng = np.random.default_rng(0)
    masked, weight = autoregressive().draw(2, 3, rng)
    hidden = [[1, 1, 1], [0, 1, 1], [0, 0, 1]]
    assert masked.astype(int).tolist() == [hidden, hidden]
    assert weight.tolist() == [(np.eye(3) / 2).tolist()] * 2
    editable = np.array([[False, True, False, True], [True, True, True, True]])
    masked, weight = autoregressive().draw(2, 4, rng, editable)
    assert masked.shape == weight.shape == (2, 4, 4)
    hidden = [[0, 1, 0, 1], [0, 0, 0, 1], [0] * 4, [0] * 4]
    assert masked[0].astype(int).tolist() == hidden
    scored = [[0, 0.5, 0, 0], [0, 0, 0, 0.5], [0] * 4, [0] * 4]
    assert weight[0].tolist() == scored
    assert weight[1].tolist() == (np.eye(4) / 2).tolist()


# Bad input.


@pytest.mark.parametrize("empty", ["", "skip", None])
def test_bad_empty_rule(empty):
    with pytest.raises(ValueError, match=f"^empty = {empty!r}: expected"):
        per_example_mean(empty)
