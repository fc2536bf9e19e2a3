"""The bound on a finite grid, against its own Markov chain and its limit."""

from fractions import Fraction
from itertools import pairwise, product
from math import inf, log

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import EXACT_ENDS, LATE, lattice, lengths, seeds, tea
from toyml import reverse
from toyml.exact import combine
from toyml.lattice import MaskLattice
from toyml.schedules import COSINE, LINEAR, log_linear, polynomial


def at_infinite_steps(values):
    """The constant term of the polynomial in 1/K through K = 1, 2, ..."""
    total = 0
    for k, value in enumerate(values, 1):
        weight = Fraction(1)
        for m in range(1, len(values) + 1):
            if m != k:
                weight *= Fraction(1, m) / (Fraction(1, m) - Fraction(1, k))
        total += value * weight
    return total


def grid(steps):
    return [Fraction(j, steps) for j in range(steps + 1)]


@settings(max_examples=10)
@given(lengths, seeds)
def test_nelbo_is_the_limit_of_the_grid_exactly(length, seed):
    one = lattice(seed, length, exact=True)
    totals = [
        one.nelbo_on_grid(LINEAR, grid(k)).total for k in range(1, length + 2)
    ]
    assert sympy.expand(at_infinite_steps(totals[:length])) == one.nelbo()
    # One step count more: the degree in 1/K is at most L - 1.
    assert sympy.expand(at_infinite_steps(totals)) == one.nelbo()


@settings(max_examples=25)
@given(lengths, seeds)
def test_nelbo_is_the_limit_of_the_grid_in_floats(length, seed):
    one = lattice(seed, length)
    totals = [
        one.nelbo_on_grid(LINEAR, map(float, grid(k))).total
        for k in range(1, length + 1)
    ]
    got = sum(
        float(at_infinite_steps([int(j == k) for j in range(length)])) * v
        for k, v in enumerate(totals)
    )
    assert one.nelbo() == pytest.approx(got, rel=1e-12)


@pytest.mark.parametrize(
    "steps, digits", [(1, 3.912), (2, 3.163), (4, 2.789), (10, 2.564)]
)
def test_tea_on_a_grid(steps, digits):
    hard, easy = log(50), log(2 / 0.8)
    wanted = (hard * (steps + 1) + easy * (steps - 1)) / (2 * steps)
    assert round(wanted, 3) == digits
    for kind in (float, Fraction):
        times = [kind(v) for v in grid(steps)]
        got = tea(kind).nelbo_on_grid(LINEAR, times)
        assert float(got.total) == pytest.approx(wanted, rel=1e-14)
        assert (got.prior, got.reconstruction) == (0, 0)
        assert len(got.denoising) == steps
    assert tea(Fraction).nelbo_on_grid(LINEAR, [0, 1]).total == combine(
        sympy.log(50)
    )


def trajectory_matrices(rows, schedule, times):
    """q(S_0), q(S_j | S_j-1), p(S_j-1 | S_j) and p(x_0 | S_0) by patterns.

    A pattern stands for x_0 = 0...0 with its positions masked; q comes from
    the survival at each time, p from reverse.transition, position by position.
    """
    length = rows.shape[1]
    patterns = range(1 << length)
    bits = np.array([[s >> i & 1 for i in range(length)] for s in patterns])
    rho, alpha = schedule.masked(times[0]), schedule.survival(times[0])
    start = np.prod(np.where(bits, rho, alpha), axis=1)
    forward, model = [], []
    for s, t in pairwise(times):
        keep = schedule.survival(t) / schedule.survival(s)
        q = np.zeros((len(bits), len(bits)))
        p = np.zeros((len(bits), len(bits)))
        for now in patterns:
            probs = np.stack([rows[now], 1 - rows[now]], axis=-1)
            x_t = 2 * bits[now]
            step = reverse.transition(schedule, s, t, x_t, probs, 2)
            for then in patterns:
                x_s = 2 * bits[then]
                p[now, then] = np.prod(step[range(length), x_s])
                fates = np.where(bits[now], 1 - keep, keep)
                fates = np.where(bits[then], bits[now], fates)
                q[then, now] = np.prod(fates)
        forward.append(q)
        model.append(p)
    return start, forward, model, np.prod(rows, axis=1)


def by_trajectories(rows, schedule, times):
    """E_q[log q - log p] and p(x_0), over every path of the latents."""
    start, forward, model, decoder = trajectory_matrices(rows, schedule, times)
    all_masked = len(rows) - 1
    bound = probability = 0.0
    for path in product(range(len(rows)), repeat=len(times)):
        q, p = start[path[0]], decoder[path[0]]
        p *= path[-1] == all_masked
        for j, (a, b) in enumerate(pairwise(path)):
            q *= forward[j][a, b]
            p *= model[j][b, a]
        probability += p
        if q > 0:
            bound += q * log(q / p) if p > 0 else inf
    return bound, probability


steps = st.lists(
    st.integers(1, 99).map(lambda n: n / 100),
    min_size=1,
    max_size=3,
    unique=True,
).map(sorted)


@settings(max_examples=40)
@given(
    st.sampled_from([*EXACT_ENDS, LATE]), steps, st.integers(1, 2), seeds
)
def test_grid_bound_by_trajectories(schedule, times, length, seed):
    one = lattice(seed, length)
    for grid_times in ([*times, 1.0], [0.0, *times[1:], 1.0]):
        got = one.nelbo_on_grid(schedule, grid_times)
        bound, p = by_trajectories(one.table, schedule, grid_times)
        assert got.prior == 0
        assert got.total == pytest.approx(bound, rel=1e-11)
        assert got.total >= -log(p) - 1e-12
        start, _, _, decoder = trajectory_matrices(
            one.table, schedule, grid_times
        )
        wanted = -np.sum(start * np.log(decoder))
        assert got.reconstruction == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=6)
@given(st.sampled_from([COSINE, LATE]), seeds)
def test_grid_bound_by_trajectories_of_three_tokens(schedule, seed):
    one = lattice(seed, 3)
    times = [0.15, 0.6, 1.0]
    got = one.nelbo_on_grid(schedule, times).total
    bound, p = by_trajectories(one.table, schedule, times)
    assert got == pytest.approx(bound, rel=1e-11)
    assert got >= -log(p)


@settings(max_examples=20)
@given(st.sampled_from([*EXACT_ENDS, LATE]), steps, st.integers(1, 3), seeds)
def test_each_denoising_term_is_a_kl(schedule, times, length, seed):
    """Term j - 1: over what is seen at t_j, the KL of every position."""
    one = lattice(seed, length)
    grid_times = [0.0, *times, 1.0]
    got = one.nelbo_on_grid(schedule, grid_times).denoising
    assert len(got) == len(grid_times) - 1
    clean = np.zeros(length, int)
    for term, (s, t) in zip(got, pairwise(grid_times), strict=True):
        rho, alpha = schedule.masked(t), schedule.survival(t)
        wanted = 0.0
        for pattern, row in enumerate(one.table):
            hidden = pattern >> np.arange(length) & 1 == 1
            seen = np.prod(np.where(hidden, rho, alpha))
            probs = np.stack([row, 1 - row], axis=-1)
            if seen:
                wanted += seen * np.sum(
                    reverse.coordinate_kl(
                        schedule, s, t, 2 * hidden, clean, probs, 2
                    )
                )
        assert term == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_generator_is_the_limit_of_the_grid_sampler(length):
    """p_K is a polynomial in 1/K; matrices carry the K steps at once."""
    one = lattice(5, length)
    values = []
    for k in range(1, length + 1):
        times = [j / k for j in range(k + 1)]
        _, _, model, decoder = trajectory_matrices(one.table, LINEAR, times)
        law = np.eye(1 << length)[-1]
        for p in reversed(model):
            law = law @ p
        values.append(law @ decoder)
    got = float(at_infinite_steps([Fraction(v) for v in values]))
    assert got == pytest.approx(one.generator_probability(), rel=1e-12)


@pytest.mark.parametrize("kind", [float, Fraction])
def test_prior_is_infinite_unless_all_is_masked(kind):
    one = tea(kind)
    times = [kind(0), kind(Fraction(1, 2)), kind(1)]
    schedule = log_linear(1e-3)
    got = one.nelbo_on_grid(schedule, times)
    assert got.prior == inf and got.total == inf
    assert all(0 < v < inf for v in got.denoising)
    assert one.nelbo_on_grid(LINEAR, times[:2]).prior == inf
    bound, _ = by_trajectories(tea().table, schedule, [0.0, 0.5, 1.0])
    assert bound == inf
    assert one.nelbo_on_grid(LINEAR, times).prior == 0


def test_reconstruction():
    one = tea()
    for schedule in EXACT_ENDS:
        assert one.nelbo_on_grid(schedule, [0.0, 1.0]).reconstruction == 0
    hard, easy = log(50), log(2 / 0.8)
    for start, schedule, rho in ((0.0, LATE, 0.25), (0.5, LINEAR, 0.5)):
        got = one.nelbo_on_grid(schedule, [start, 1.0]).reconstruction
        wanted = rho**2 * hard + rho * (1 - rho) * easy
        assert got == pytest.approx(wanted, rel=1e-14)
    exact = tea(Fraction).nelbo_on_grid(LATE, [0, 1])
    assert not exact.reconstruction.has(sympy.Float)
    assert float(exact.total) == pytest.approx(
        one.nelbo_on_grid(LATE, [0.0, 1.0]).total, rel=1e-14
    )


@pytest.mark.parametrize(
    "times, message",
    [
        ([1.0], "times = .*at least two"),
        ([], "times = .*at least two"),
        ([0.5, 0.5, 1.0], "earlier = 0.5, later = 0.5"),
        ([0.5, 0.2, 1.0], "earlier = 0.5, later = 0.2"),
        ([0.0, 1.5], "1.5: expected values in"),
        ([-0.5, 1.0], "-0.5: expected values in"),
    ],
)
def test_bad_times(times, message):
    with pytest.raises(ValueError, match=message):
        tea().nelbo_on_grid(LINEAR, times)


@pytest.mark.parametrize("half", [0.5, np.float32(0.5), sympy.Float(0.5)])
def test_an_exact_lattice_needs_exact_times(half):
    with pytest.raises(ValueError, match="exact lattice needs"):
        tea(Fraction).nelbo_on_grid(LINEAR, [0, half, 1])


def test_bound_on_a_grid_may_rise():
    """Q3: with odd conditionals more steps can make the bound worse."""
    rows = np.array([[1, 1], [0.1, 1], [1, 0.1], [0.9, 0.9]])
    one = MaskLattice(rows)
    totals = [
        one.nelbo_on_grid(polynomial(2), np.linspace(0, 1, k + 1)).total
        for k in (1, 2, 4, 8)
    ]
    assert totals == sorted(totals) and totals[-1] < one.nelbo()
