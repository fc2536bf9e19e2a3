"""Objectives that draw a time: moments by integrals and by enumeration."""

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from math import e, exp, inf, log, pi

import mpmath
import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cases import LATE, lattice, lengths, seeds, tea
from toyml.lattice import MaskLattice
from toyml.objectives import (
    clamped_t,
    clipped_weight,
    forced_target,
    inverse_t,
    inverse_t_truncated,
    scheduled,
)
from toyml.schedules import COSINE, LINEAR, log_linear, polynomial

SQUARE, ROOT = polynomial(2), polynomial(0.5)
EPS = 0.05

# Hot tea: the cross-entropies of the four questions, in nats.
FIRST, SECOND = sympy.log(5), sympy.log(10)
FIRST_GIVEN, SECOND_GIVEN = sympy.log(2), sympy.log(sympy.Rational(5, 4))


@cache
def law(objective, length):
    return objective.law(length)


def variance(objective, one):
    exact = law(objective, one.length)
    return exact.second_moment(one) - exact.mean(one) ** 2


def constant(length, cost):
    """A lattice on which every masked token costs the same."""
    patterns = np.arange(1 << length)[:, None] >> np.arange(length)
    return MaskLattice(np.where(patterns & 1, exp(-cost), 1.0))


# Every law on random tables: patterns and targets one by one, each with a
# numerical integral over t. The formulas are written anew, in t.


@dataclass(frozen=True)
class Rival:
    """density, rate and weight as functions of t; weight is per L if forced.

    cuts: where the integral over t begins, is cut, and ends. atom: a time of
    positive probability, EPS.
    """

    density: object
    rate: object
    weight: object
    forced: bool = False
    cuts: tuple = (0, 1)
    atom: float = None

    @cache  # noqa: B019
    def integral(self, masked, seen, power):
        """E[w^power; these positions masked, those seen]."""

        def at(t):
            chance = self.rate(t) ** masked * (1 - self.rate(t)) ** seen
            return chance * self.weight(t) ** power

        with mpmath.workdps(40):
            total = mpmath.quad(lambda t: self.density(t) * at(t), self.cuts)
            if self.atom is not None:
                total += EPS * at(mpmath.mpf(self.atom))
        return float(total)

    def moment(self, one, power):
        total, length = 0, one.length
        for pattern in range(1, 1 << length):
            k = pattern.bit_count()
            costs = -np.log(one.table[pattern])
            if not self.forced:
                chance = self.integral(k, length - k, power)
                total += chance * costs.sum() ** power
                continue
            for target in range(length):
                if pattern >> target & 1:
                    chance = self.integral(k - 1, length - k, power) / length
                    total += chance * (length * costs[target]) ** power
        return total


def half_angle(t):
    return 2 * mpmath.sin(mpmath.pi * t / 4) ** 2


def sine(t):
    return mpmath.pi / 2 * mpmath.sin(mpmath.pi * t / 2)


def cut_off(density, rate, weight, atom=None):
    return Rival(density, rate, weight, cuts=(EPS, 1), atom=atom)


RIVALS = {
    scheduled(COSINE): Rival(
        lambda t: 1,
        half_angle,
        lambda t: mpmath.pi / 2 * mpmath.cot(mpmath.pi * t / 4),
    ),
    scheduled(SQUARE): Rival(lambda t: 1, lambda t: t**2, lambda t: 2 / t),
    scheduled(times=ROOT): Rival(
        lambda t: t**-0.5 / 2, lambda t: t, lambda t: 2 / mpmath.sqrt(t)
    ),
    scheduled(polynomial(3), SQUARE): Rival(
        lambda t: 2 * t, lambda t: t**3, lambda t: 3 / t / (2 * t)
    ),
    forced_target(): Rival(lambda t: 1, lambda t: t, lambda t: 1, True),
    forced_target(COSINE): Rival(lambda t: 1, half_angle, sine, True),
    forced_target(SQUARE): Rival(
        lambda t: 1, lambda t: t**2, lambda t: 2 * t, True
    ),
    forced_target(times=ROOT): Rival(
        lambda t: t**-0.5 / 2,
        lambda t: t,
        lambda t: 2 * mpmath.sqrt(t),
        True,
    ),
    forced_target(SQUARE, COSINE): Rival(
        sine, lambda t: t**2, lambda t: 2 * t / sine(t), True
    ),
    inverse_t_truncated(EPS): cut_off(
        lambda t: 1 / (1 - EPS), lambda t: t, lambda t: (1 - EPS) / t
    ),
    inverse_t_truncated(EPS, rescale=False): cut_off(
        lambda t: 1 / (1 - EPS), lambda t: t, lambda t: 1 / t
    ),
    clamped_t(EPS): cut_off(
        lambda t: 1, lambda t: t, lambda t: 1 / t, atom=EPS
    ),
    clipped_weight(EPS): Rival(
        lambda t: 1,
        lambda t: t,
        lambda t: 1 / max(t, EPS),
        cuts=(0, EPS, 1),
    ),
}


@pytest.mark.parametrize("objective", RIVALS, ids=lambda o: o.name)
@settings(max_examples=8)
@given(length=st.sampled_from([1, 2, 4]), seed=seeds)
def test_moments(objective, length, seed):
    one, rival = lattice(seed, length), RIVALS[objective]
    exact = law(objective, length)
    first, second = rival.moment(one, 1), rival.moment(one, 2)
    assert exact.mean(one) == pytest.approx(first, rel=1e-12)
    assert exact.second_moment(one) == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize("objective", RIVALS, ids=lambda o: o.name)
def test_probabilities_of_counts(objective):
    length, rival = 4, RIVALS[objective]
    exact = law(objective, length)
    wanted = [0] * (length + 1)
    for pattern in range(1 << length):
        k = pattern.bit_count()
        if not rival.forced:
            wanted[k] += rival.integral(k, length - k, 0)
            continue
        for target in range(length):
            if pattern >> target & 1:
                chance = rival.integral(k - 1, length - k, 0)
                wanted[k] += chance / length
    assert exact.probability == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "objective",
    [inverse_t(), scheduled(times=SQUARE), forced_target(times=SQUARE)],
    ids=lambda o: o.name,
)
def test_infinite_variance(objective):
    """The integral of 1/t, or of more, over (0, 1] diverges."""
    for length in (1, 3):
        one = constant(length, 1.0)
        assert one.variance(objective) == inf
        assert one.mean(objective) == pytest.approx(length, rel=1e-12)


# The mean is the NELBO for every schedule and every density of t.

UNBIASED = [
    build(schedule, times)
    for build in (scheduled, forced_target)
    for schedule, times in (
        (LINEAR, LINEAR),
        (COSINE, LINEAR),
        (SQUARE, LINEAR),
        (LINEAR, SQUARE),
        (LINEAR, COSINE),
    )
]


@pytest.mark.parametrize("objective", UNBIASED, ids=lambda o: o.name)
@settings(max_examples=5)
@given(length=st.integers(1, 3), seed=seeds)
def test_the_mean_is_the_nelbo(objective, length, seed):
    one = lattice(seed, length)
    got = law(objective, length).mean(one)
    assert got == pytest.approx(one.nelbo(), rel=1e-12)


# Hot tea by SymPy. At time t the loss is 1/t-like times FIRST + SECOND with
# probability rate^2, and so on; q is slope^2 / (rate density).

x = sympy.Symbol("x", positive=True)
BOTH, SINGLES = FIRST + SECOND, FIRST_GIVEN + SECOND_GIVEN
BOTH_2 = FIRST**2 + SECOND**2
SINGLES_2 = FIRST_GIVEN**2 + SECOND_GIVEN**2
COS = sympy.cos(sympy.pi * x / 2)
RAMP = sympy.pi / 2 * sympy.sin(sympy.pi * x / 2)


def integrate(form, low=0):
    return sympy.integrate(sympy.expand(form), (x, low, 1))


@pytest.mark.parametrize(
    "objective, rate, q",
    [
        (inverse_t(), x, 1 / x),
        (scheduled(times=SQUARE), x, 1 / (2 * x**2)),
        (scheduled(times=ROOT), x, 2 / sympy.sqrt(x)),
        (scheduled(SQUARE), x**2, sympy.Integer(4)),
        # sin^2 / (1 - cos) = 1 + cos
        (scheduled(COSINE), 1 - COS, (sympy.pi / 2) ** 2 * (1 + COS)),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_tea_by_time(objective, rate, q):
    slope = rate.diff(x)
    mean = integrate(slope * (rate * BOTH + (1 - rate) * SINGLES))
    assert sympy.N(mean - sympy.log(125) / 2, 30, chop=True) == 0
    assert tea().mean(objective) == pytest.approx(float(mean), rel=1e-12)
    second = integrate(q * (rate * BOTH**2 + (1 - rate) * SINGLES_2))
    if second == sympy.oo:
        assert tea().variance(objective) == inf
    else:
        wanted = float(second - mean**2)
        assert tea().variance(objective) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    "objective, rate, density, digits",
    [
        (forced_target(), x, 1, 2.594),
        (forced_target(SQUARE), x**2, 1, None),
        (forced_target(COSINE), 1 - COS, 1, None),
        (forced_target(times=ROOT), x, 1 / (2 * sympy.sqrt(x)), None),
    ],
    ids=lambda v: getattr(v, "name", ""),
)
def test_tea_by_target(objective, rate, density, digits):
    """Either target, weight 2 rate' / density; the other one at rate."""
    weight = 2 * rate.diff(x) / density
    mean, second = (
        integrate(density * weight**power * cost / 2)
        for power, cost in (
            (1, rate * BOTH + (1 - rate) * SINGLES),
            (2, rate * BOTH_2 + (1 - rate) * SINGLES_2),
        )
    )
    assert tea().mean(objective) == pytest.approx(float(mean), rel=1e-12)
    wanted = float(second - mean**2)
    assert tea().variance(objective) == pytest.approx(wanted, rel=1e-12)
    assert digits is None or round(wanted, 3) == digits


def test_tea_truncated():
    eps = sympy.Rational(1, 1000)
    mean = integrate(x * BOTH + (1 - x) * SINGLES, eps)
    second = (1 - eps) * integrate(BOTH**2 + (1 / x - 1) * SINGLES_2, eps)
    spread = float(second - mean**2)
    assert round(float(mean), 4) == 2.4132 and round(spread, 2) == 12.58
    short = inverse_t_truncated(1e-3)
    assert tea().mean(short) == pytest.approx(float(mean), rel=1e-12)
    assert tea().variance(short) == pytest.approx(spread, rel=1e-12)
    plain = inverse_t_truncated(1e-3, rescale=False)
    got = tea().mean(plain)
    assert got == pytest.approx(float(mean) / 0.999, rel=1e-12)
    assert tea().variance(plain) == pytest.approx(spread / 0.999**2, rel=1e-12)


# A constant loss: what the weights alone do.


@pytest.mark.parametrize("power", [1.01, 1.1, 1.5, 2, 3, 5])
def test_second_moment_of_a_power(power):
    """rho = t^p: the integral of p^2 t^(p - 2) is p^2 / (p - 1).

    p^2 / (p - 1) - 4 = (p - 2)^2 / (p - 1), so 4 c^2 is the least, at p = 2.
    """
    cost = 1.7
    second = law(scheduled(polynomial(power)), 1).second_moment(
        constant(1, cost)
    )
    wanted = cost**2 * power**2 / (power - 1)
    assert second == pytest.approx(wanted, rel=1e-12)
    excess = cost**2 * (power - 2) ** 2 / (power - 1)
    assert second - 4 * cost**2 == pytest.approx(excess, abs=1e-9)


def test_second_moment_of_the_cosine():
    """The integral of (pi/2)^2 (1 + cos(pi t / 2))."""
    second = law(scheduled(COSINE), 1).second_moment(constant(1, 1.0))
    assert second == pytest.approx(pi**2 / 4 + pi / 2, rel=1e-12)
    assert round(second, 2) == 4.04
    assert law(inverse_t(), 1).second_moment(constant(1, 1.0)) == inf


@pytest.mark.parametrize("eps", [0.2, 1e-3, 1e-8])
@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_truncated_second_moment_by_length(length, eps):
    """Per token, t uniform on [eps, 1], weight 1/(L t), constant loss c."""
    cost = 0.8
    one = constant(length, cost)
    second = 1 - 1 / length + log(1 / eps) / (length * (1 - eps))
    for rescale, factor in ((False, 1), (True, 1 - eps)):
        objective = inverse_t_truncated(eps, rescale)
        mean, got = one.mean(objective), one.variance(objective)
        assert mean / length == pytest.approx(factor * cost, rel=1e-11)
        wanted = factor**2 * cost**2 * (second - 1)
        assert got / length**2 == pytest.approx(wanted, rel=1e-9)
    if length == 1 and eps == 1e-3:
        assert round((second - 1), 1) == 5.9


def test_truncated_second_moment_of_a_long_sequence():
    """No lattice: with a constant loss c the loss is w k c."""
    length, eps = 200, 1e-3
    squares = inverse_t_truncated(eps, rescale=False).law(length)
    got = (
        sum(w * k**2 for k, w in enumerate(squares.weight_squared)) / length**2
    )
    wanted = 1 - 1 / length + log(1 / eps) / (length * (1 - eps))
    assert got == pytest.approx(wanted, rel=1e-11)


@given(lengths, st.floats(0.01, 3))
def test_forced_target_of_a_constant_loss(length, cost):
    one = constant(length, cost)
    exact = law(forced_target(), length)
    second = exact.second_moment(one)
    assert second == pytest.approx((length * cost) ** 2, rel=1e-12)
    assert exact.mean(one) == pytest.approx(length * cost, rel=1e-12)


# Cut-offs, against the sampler that reveals one by one from t = 1 to eps and
# then everything left at once.


def jumps(one, eps):
    """(chance, path probabilities, leftover set) of every course of it."""
    length = one.length
    for left in range(1 << length):
        shown = [i for i in range(length) if not left >> i & 1]
        k = length - len(shown)
        orders = list(permutations(shown))
        for order in orders:
            pattern, path = (1 << length) - 1, []
            for i in order:
                path.append(one.table[pattern, i])
                pattern ^= 1 << i
            chance = eps**k * (1 - eps) ** (length - k) / len(orders)
            yield chance, path, pattern


@settings(max_examples=20)
@given(st.integers(1, 4), seeds, st.sampled_from([1e-6, 1e-3, 0.1, 0.6]))
def test_cut_offs(length, seed, eps):
    one = lattice(seed, length)
    truncated = jump = probability = 0
    for chance, path, left in jumps(one, eps):
        last = one.table[left]
        truncated -= chance * np.log(path).sum()
        jump -= chance * np.log(last).sum()
        probability += chance * np.prod(path) * np.prod(last)
    mean = one.mean(inverse_t_truncated(eps))
    assert mean == pytest.approx(truncated, rel=1e-10)
    plain = one.mean(inverse_t_truncated(eps, rescale=False))
    assert plain == pytest.approx(truncated / (1 - eps), rel=1e-10)
    clamped = one.mean(clamped_t(eps))
    assert clamped == pytest.approx(truncated + jump, rel=1e-10)
    assert clamped >= -log(probability) - 1e-12
    clipped = one.mean(clipped_weight(eps))
    assume(one.nelbo() > 1e-9)
    # Clipping pays a part of what it misses below eps.
    assert mean < clipped < one.nelbo()


@settings(max_examples=5)
@given(st.integers(1, 4), seeds)
def test_clamped_t_is_the_limit_of_grids_that_end_at_eps(length, seed):
    """Grids of K steps from eps to 1; Richardson removes 1/K, 1/K^2, ..."""
    one, eps = lattice(seed, length), 0.1
    values = []
    for steps in (16, 32, 64, 128, 256):
        times = np.linspace(eps, 1, steps + 1)
        values.append(one.nelbo_on_grid(LINEAR, times).total)
    for order in range(1, len(values)):
        f = 2**order
        values = [
            (f * b - a) / (f - 1)
            for a, b in zip(values, values[1:], strict=False)
        ]
    assert one.mean(clamped_t(eps)) == pytest.approx(values[0], rel=1e-7)


def test_truncation_is_no_bound():
    """L = 1, a right denoiser: (1 - eps) c is below c, clipping too."""
    coin = constant(1, log(2))
    assert coin.mean(inverse_t_truncated(0.1)) == pytest.approx(
        0.9 * log(2), rel=1e-12
    )
    # 1/0.1 times the integral of t over [0, 0.1]
    wanted = (0.9 + 0.05) * log(2)
    assert coin.mean(clipped_weight(0.1)) == pytest.approx(wanted, rel=1e-12)
    assert coin.mean(clamped_t(0.1)) == pytest.approx(log(2), rel=1e-12)


def test_clamped_t_of_a_constant_loss():
    """The integral of 1/t over [1/e, 1] is 1; the atom: eps eps / eps^2."""
    second = law(clamped_t(1 / e), 1).second_moment(constant(1, 1.0))
    assert second == pytest.approx(1 + 1, rel=1e-12)


# Bad input.


@pytest.mark.parametrize("eps", [0, 1, -0.1, 2, float("nan")])
@pytest.mark.parametrize(
    "build", [inverse_t_truncated, clamped_t, clipped_weight]
)
def test_bad_eps(build, eps):
    with pytest.raises(ValueError, match=f"^eps = {eps}: expected"):
        build(eps)


@pytest.mark.parametrize("build", [scheduled, forced_target])
@pytest.mark.parametrize("times", [LATE, log_linear(0.1)])
def test_bad_times(build, times):
    with pytest.raises(ValueError) as error:
        build(LINEAR, times)
    assert str(error.value).startswith(f"times = {times.name}: expected")
