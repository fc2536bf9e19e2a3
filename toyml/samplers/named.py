"""The samplers of the book, by name. Each function returns a ``Sampler``."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np

from ..schedules import t as t_symbol
from .sampler import Sampler
from .steps import (
    RULES,
    Step,
    by_confidence,
    in_order,
    independently,
    uniformly,
)


def ancestral(schedule, times):
    """From each time to the one before, every mask by itself.

    times: t_0 < ... < t_K, or a whole number K for the uniform grid j / K: in
    Fractions, which an exact law needs, if rho(t) is a rational function of
    t. In the step from t to s a mask is revealed with probability r(s, t),
    and the denoiser is told t, the larger time. Raises ValueError unless
    rho(t_0) = 0 and alpha(t_K) = 0. Source: MDLM (Sahoo et al. 2024) eq. 7.
    """
    steps = [_back(schedule, s, t) for s, t in _pairs(schedule, times)]
    name = f"ancestral, {schedule.name}, {len(steps)} steps"
    return Sampler(name, lambda length: steps)


def renoised(schedule, times, rounds=1):
    """Ancestral, each step taken again ``rounds`` times after a step forward.

    After the step from t to s, each visible token outside the prompt is
    masked again with probability 1 - alpha(t) / alpha(s), the forward kernel
    from s to t, and the step from t to s is repeated. If the law at s is the
    data with its noise, the forward step makes it the data with the noise of
    t; so the law at s is unchanged if the step from t to s is right for that
    noise. Exact conditionals alone do not make it so: they must also be
    independent given what is seen (as when the step can reveal one token
    only). ``remasked`` needs no such condition.
    Arguments and errors as for ``ancestral``. Source: the corrector of
    Campbell et al. 2022, in discrete steps.
    """
    _check_count("rounds", rounds)
    steps = []
    for s, t in _pairs(schedule, times):
        mask = 1 - schedule.survival(t) / schedule.survival(s)
        forward = Step(independently(mask), remasks=True)
        back = _back(schedule, s, t)
        steps += [back] + [forward, back] * rounds
    name = f"renoised {rounds} times, {schedule.name}"
    return Sampler(name, lambda length: steps)


def first_hitting(schedule):
    """One token at a time, at its own time: the limit of small steps.

    The reveal times of the masks are independent, inverse(u) for uniform u.
    The denoiser is told the time of the reveal, one for each row. The law is
    that of ``random_order`` if the denoiser ignores time. Raises ValueError
    unless rho(0) = 0 and alpha(1) = 0. Source: Zheng et al. 2025.
    """
    if not (schedule.starts_clean and schedule.ends_masked):
        raise ValueError(
            f"schedule {schedule.name!r}: expected rho(0) = 0 and alpha(1) = 0"
        )
    step = Step(uniformly(1), schedule=schedule)
    name = f"first hitting, {schedule.name}"
    return Sampler(name, lambda length: [step] * length)


def random_order(per_step=1):
    """A uniformly random set of masks at each step.

    per_step: how many, or one number for each step. Fewer masks than that are
    all revealed.
    """
    name = f"random order, {per_step} a step"
    return _counted(name, per_step, lambda count, length: uniformly(count))


def fixed_order(order=None, per_step=1):
    """The next masks of an order of the positions.

    order: each position once, first revealed first; None for left to right.
    Within ``blocks`` it counts from the start of the block. per_step: as for
    ``random_order``.
    """
    name = f"order {'left to right' if order is None else list(order)}"

    def select(count, length):
        positions = list(range(length) if order is None else order)
        if sorted(positions) != list(range(length)):
            raise ValueError(
                f"order = {positions}: expected each of the positions "
                f"0..{length - 1} once"
            )
        return in_order(positions, count)

    return _counted(f"{name}, {per_step} a step", per_step, select)


def confidence(rule, per_step=1):
    """The masks of which the denoiser is most certain.

    rule: "probability" (of the likeliest token), "margin" (between the two
    likeliest) or "entropy" (the lowest). Scores are those of the conditionals
    as the denoiser gives them, before temperature and top-p; equal scores go
    to the lower position. MaskGIT and LLaDA score the token that was drawn,
    which is this rule only at temperature 0. per_step: as for
    ``random_order``. Source: Kim et al. 2025, sec. 4.2, for the margin.
    """
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r}: expected one of {list(RULES)}")
    return _counted(
        f"confidence by {rule}, {per_step} a step",
        per_step,
        lambda count, length: by_confidence(rule, count),
    )


def blocks(inner, size):
    """Blocks of ``size`` positions from left to right, each by ``inner``.

    The last block may be shorter. A block begins when the one before is
    complete; later blocks are masked. Source: LLaDA (Nie et al. 2025) app.
    B.4; Arriola et al. 2025.
    """
    _check_count("size", size)

    def steps(length):
        out = []
        for start in range(0, length, size):
            window = start, min(start + size, length)
            for step in inner.steps(window[1] - start):
                out.append(replace(step, window=window))
        return out

    return replace(inner, name=f"blocks of {size}: {inner.name}", steps=steps)


def remasked(inner, count, rounds=1):
    """After ``inner``, mask ``count`` tokens and draw them again, ``rounds``
    times.

    The tokens are a uniformly random set outside the prompt, revealed one at
    a time in random order, without a time. With exact conditionals this
    leaves the data law unchanged and brings any other law nearer to it (the
    KL from the data law never rises): count 1 is Gibbs sampling with a random
    position.
    """
    _check_count("count", count)
    _check_count("rounds", rounds)
    again = [Step(uniformly(count), remasks=True)]
    again += [Step(uniformly(1))] * count
    name = f"{inner.name}, then {count} remasked {rounds} times"

    def steps(length):
        return [*inner.steps(length), *again * rounds]

    return replace(inner, name=name, steps=steps)


def _counted(name, per_step, select):
    counts = [per_step] if np.ndim(per_step) == 0 else list(per_step)
    for count in counts or [0]:
        _check_count("per_step", count)

    def steps(length):
        repeats = -(-length // counts[0]) if np.ndim(per_step) == 0 else 1
        return [Step(select(c, length)) for c in counts * repeats]

    return Sampler(name, steps)


def _check_count(name, value):
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(
            f"{name} = {value}: expected a whole number, at least 1"
        )


def _back(schedule, s, t):
    """The step from t to s; r(s, t) is 1 where rho(s) = 0."""
    reveal = schedule.reveal(s, t)  # raises unless s < t
    rate = 1 if schedule.masked(s) == 0 else reveal
    return Step(independently(rate), time=t)


def _pairs(schedule, times):
    """(s, t) for each step from t to s, the latest first."""
    return list(pairwise(_grid(schedule, times)))[::-1]


def _is_rational(schedule):
    """Whether rho is rational at rational times, as far as its form says."""
    return schedule.masked_form.is_rational_function(t_symbol)


def _grid(schedule, times):
    """The times as floats, or as Fractions where none of them is a float."""
    if isinstance(times, (int, np.integer)):
        _check_count("times", times)
        kind = Fraction if _is_rational(schedule) else np.divide
        times = [kind(j, int(times)) for j in range(times + 1)]
    times = list(times)
    if len(times) < 2:
        raise ValueError(f"times = {times}: expected at least two times")
    whole = [isinstance(v, (int, np.integer)) for v in times]
    if any(isinstance(v, (float, np.floating)) for v in times):
        times = [float(v) for v in times]
    else:
        times = [
            Fraction(int(v)) if w else v
            for v, w in zip(times, whole, strict=True)
        ]
    start, end = schedule.masked(times[0]), schedule.survival(times[-1])
    if start != 0 or end != 0:
        raise ValueError(
            f"times run from {times[0]} to {times[-1]}, where schedule "
            f"{schedule.name!r} has rho = {start} and alpha = {end}; expected "
            "0 for both"
        )
    return times
