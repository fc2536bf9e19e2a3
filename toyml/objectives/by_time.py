"""Objectives that draw a time, mask at its rate and weigh by the rate.

Their common parent is the continuous-time bound. With t of distribution
function G (density g) and a schedule rho, mask at rate rho(t) and weigh by
rho'(t) / (rho(t) g(t)): the mean is the NELBO for every schedule and every G
with exact ends. Cut-offs change that, each in its own way.
"""

import math
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import sympy

from .. import schedules
from ..schedules import LINEAR
from ..schedules.evaluate import evaluate
from .laws import CountLaw, Given, Objective, binomial

TIME = schedules.t


def scheduled(schedule=LINEAR, times=LINEAR):
    """t drawn from `times`, masks at rho(t), weight rho' / (rho g).

    times: a ``Schedule`` read as the distribution function G of t, with exact
    ends (ValueError otherwise). Mean: the NELBO where the schedule's ends are
    exact. The variance is infinite where rho'^2 / (rho g) is not integrable,
    as for the linear schedule under uniform t.
    Source: MDLM eq. 10; importance sampling of t.
    """
    density = _density(times)
    if schedule is LINEAR and times is LINEAR:
        law = _inverse_t_law
    else:
        law = _timed_law(schedule, density, forced=False)

    def given(u, sizes):
        t = times.inverse(1 - u)
        weight = schedule.weight(t) / _at(density, t)
        return Given(weight=weight, rate=schedule.masked(t))

    return Objective(f"scheduled({schedule.name}, {times.name})", law, given)


def inverse_t():
    """t uniform on (0, 1], each token masked at rate t, weight 1/t.

    Mean: the NELBO. The variance is infinite: E[1/t^2; k = 1] diverges.
    Source: LLaDA (Nie et al. 2025) eq. 3; MDLM eq. 10, linear schedule.
    """

    def given(u, sizes):
        return Given(weight=1 / (1 - u), rate=1 - u)

    return Objective("inverse_t", _inverse_t_law, given)


def forced_target(schedule=LINEAR, times=LINEAR):
    """A uniform target is masked and scored alone, the others at rate rho(t).

    Weight L rho'(t) / g(t), which is L for the linear schedule under uniform
    t. Mean: the NELBO where the schedule's ends are exact.
    Conditioning on the masked target cancels 1 / rho(t) in ``scheduled``.
    """
    density = _density(times)
    slope = schedule.masked_form.diff(TIME)
    if schedule is LINEAR and times is LINEAR:
        law = _forced_law
    else:
        law = _timed_law(schedule, density, forced=True)

    def given(u, sizes):
        t = times.inverse(1 - u)
        weight = sizes * _at(slope, t) / _at(density, t)
        return Given(weight=weight, rate=schedule.masked(t), forced=True)

    name = f"forced_target({schedule.name}, {times.name})"
    return Objective(name, law, given)


def unweighted():
    """t uniform on (0, 1], each token masked at rate t, weight 1."""

    def law(length):
        p = (Fraction(1, length + 1),) * (length + 1)
        return CountLaw(p, (0, *p[1:]), (0, *p[1:]))

    def given(u, sizes):
        return Given(weight=np.ones(len(u)), rate=1 - u)

    return Objective("unweighted", law, given)


def inverse_t_truncated(eps, rescale=True):
    """t uniform on [eps, 1], masks at rate t, weight 1/t.

    Mean with rescale (weight (1 - eps) / t): the integral of the bound over
    [eps, 1], which misses the part below eps and is no bound; without: that
    integral divided by 1 - eps.
    """
    _check_eps(eps)
    factor = 1 - eps if rescale else 1.0

    def law(length):
        t, mass = _log_nodes(eps, length)
        return _rate_law(length, t, mass / (1 - eps), factor / t)

    def given(u, sizes):
        t = eps + (1 - eps) * (1 - u)
        return Given(weight=factor / t, rate=t)

    name = f"inverse_t_truncated({eps}, rescale={rescale})"
    return Objective(name, law, given)


def clamped_t(eps):
    """t = max(u, eps) for uniform u, masks at rate t, weight 1/t.

    Mean: the integral over [eps, 1] plus the expected cross-entropy at eps.
    It is the bound of a sampler that jumps from eps to clean.
    """
    _check_eps(eps)

    def law(length):
        t, mass = _log_nodes(eps, length)
        t, mass = np.append(t, eps), np.append(mass, eps)
        return _rate_law(length, t, mass, 1 / t)

    def given(u, sizes):
        t = np.maximum(1 - u, eps)
        return Given(weight=1 / t, rate=t)

    return Objective(f"clamped_t({eps})", law, given, lambda _: (1 - eps,))


def clipped_weight(eps):
    """t uniform, masks at rate t, weight 1 / max(t, eps). No bound."""
    _check_eps(eps)

    def law(length):
        t, mass = _log_nodes(eps, length)
        nodes, masses = np.polynomial.legendre.leggauss(length + 8)
        low, low_mass = eps * (nodes + 1) / 2, eps * masses / 2
        t, mass = np.append(t, low), np.append(mass, low_mass)
        return _rate_law(length, t, mass, 1 / np.maximum(t, eps))

    def given(u, sizes):
        return Given(weight=1 / np.maximum(1 - u, eps), rate=1 - u)

    name = f"clipped_weight({eps})"
    return Objective(name, law, given, lambda _: (1 - eps,))


def _inverse_t_law(length):
    ks = range(1, length + 1)
    return CountLaw(
        probability=(Fraction(1, length + 1),) * (length + 1),
        weight=(0, *(Fraction(1, k) for k in ks)),
        weight_squared=(
            0,
            math.inf,
            *(Fraction(length, k * (k - 1)) for k in ks if k > 1),
        ),
    )


def _forced_law(length):
    ks = range(1, length + 1)
    return CountLaw(
        probability=(0, *(Fraction(1, length) for _ in ks)),
        weight=(0, *(Fraction(1, k) for k in ks)),
        weight_squared=(0,) * (length + 1),
        single_squared=(0, *(Fraction(length, k) for k in ks)),
    )


def _rate_law(length, rates, masses, weights):
    """The law of t at nodes with masses, rate t and the given weights."""
    pmf = binomial(length, rates)
    weight, squared = (
        tuple((masses * weights**power) @ pmf) for power in (1, 2)
    )
    return CountLaw(
        tuple(masses @ pmf), (0.0, *weight[1:]), (0.0, *squared[1:])
    )


def _log_nodes(eps, length):
    """Nodes t in [eps, 1] and their masses dt, Gauss-Legendre in log t."""
    x, mass = np.polynomial.legendre.leggauss(2 * length + 64)
    half = -math.log(eps) / 2
    t = np.exp(half * (x - 1))
    return t, mass * half * t


def _timed_law(schedule, density, forced):
    """The law of ``scheduled`` or ``forced_target`` by quadrature over t.

    Each half of [0, 1] is integrated over y = -log of the distance to its
    end, where a power of that distance falls exponentially; whether the
    integral exists is decided by the limit of the distance times the form.
    """
    rho = schedule.masked_form
    slope = rho.diff(TIME)

    def integral(form):
        sides = form, form.subs(TIME, 1 - TIME)
        if any(sympy.limit(TIME * side, TIME, 0) != 0 for side in sides):
            return math.inf
        with mpmath.workdps(25):
            return float(sum(half_integral(side) for side in sides))

    def half_integral(side):
        f = sympy.lambdify(TIME, side, "mpmath")
        return mpmath.quad(
            lambda y: f(mpmath.exp(-y)) * mpmath.exp(-y),
            [mpmath.log(2), mpmath.inf],
        )

    @cache
    def law(length):
        p, w, w2 = [0.0], [0.0], [0.0]
        if not forced:
            p = [integral(density * (1 - rho) ** length)]
        for k in range(1, length + 1):
            ways = math.comb(length - forced, k - forced)
            pattern = ways * rho ** (k - forced) * (1 - rho) ** (length - k)
            value = slope / density
            value *= sympy.Rational(length, k) if forced else 1 / rho
            p.append(integral(density * pattern))
            w.append(integral(sympy.simplify(density * pattern * value)))
            square = density * pattern * value**2 * (k if forced else 1)
            w2.append(integral(sympy.simplify(square)))
        zero = (0.0,) * (length + 1)
        if forced:
            return CountLaw(tuple(p), tuple(w), zero, tuple(w2))
        return CountLaw(tuple(p), tuple(w), tuple(w2))

    return law


def _density(times):
    if not (times.starts_clean and times.ends_masked):
        raise ValueError(
            f"times = {times.name}: expected a distribution function that "
            "runs from 0 to 1"
        )
    return times.masked_form.diff(TIME)


def _at(form, t):
    return evaluate(form, (TIME,), t)


def _check_eps(eps):
    if not 0 < eps < 1:
        raise ValueError(f"eps = {eps}: expected a number in (0, 1)")
