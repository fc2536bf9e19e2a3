"""The lattice by two routes: sums over patterns against sums over orders."""

from fractions import Fraction
from itertools import pairwise, permutations, product
from math import comb, factorial, inf, log, prod

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from cases import (
    EXACT_ENDS,
    LATE,
    denoiser_of,
    exp_exact,
    fraction_distribution,
    lattice,
    lengths,
    order_products,
    paths,
    seeds,
    table,
)
from toyml import lattice as lattice_module
from toyml import reverse
from toyml.exact import combine
from toyml.lattice import MaskLattice
from toyml.schedules import COSINE, LINEAR, log_linear, polynomial
from toyml.sources import Joint, Markov, TeachingTable

TEA = {(0, ()): "1/5", (1, ()): "1/10", (0, (1,)): "1/2", (1, (0,)): "4/5"}
few = settings(max_examples=25)


def tea(kind):
    values = {key: kind(Fraction(p)) for key, p in TEA.items()}
    source = TeachingTable(values, 2)
    return MaskLattice.from_denoiser(source, np.array([0, 0]), 2)


def mean_order_loss(rows):
    losses = [-sum(map(log, path)) for _, path in paths(rows)]
    return sum(losses) / len(losses)


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


# The continuous bound.


@settings(max_examples=20)
@given(st.integers(1, 5), seeds)
def test_nelbo_by_orders_exactly(length, seed):
    one = lattice(seed, length, exact=True)
    n = factorial(length)
    wanted = 1 / prod(order_products(one.table))
    assert exp_exact(one.nelbo(), n) == wanted
    assert exp_exact(one.any_order_loss(), n) == wanted
    assert one.nelbo() == one.any_order_loss()


@settings(max_examples=20)
@given(lengths, seeds)
def test_nelbo_by_orders_in_floats(length, seed):
    one = lattice(seed, length)
    wanted = mean_order_loss(one.table)
    assert one.nelbo() == pytest.approx(wanted, rel=1e-12)
    assert one.any_order_loss() == pytest.approx(wanted, rel=1e-12)


@settings(max_examples=3)
@given(seeds)
def test_nelbo_by_orders_at_length_six_exactly(seed):
    one = lattice(seed, 6, exact=True)
    wanted = 1 / prod(order_products(one.table))
    assert exp_exact(one.nelbo(), factorial(6)) == wanted
    assert one.nelbo() == one.any_order_loss()


@settings(max_examples=15)
@given(st.integers(1, 4), seeds)
def test_nelbo_is_the_limit_of_the_grid_exactly(length, seed):
    one = lattice(seed, length, exact=True)
    totals = [
        one.nelbo_on_grid(LINEAR, grid(k)).total for k in range(1, length + 2)
    ]
    assert sympy.expand(at_infinite_steps(totals[:length])) == one.nelbo()
    # One step count more: the degree in 1/K is at most L - 1.
    assert sympy.expand(at_infinite_steps(totals)) == one.nelbo()


@few
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


@pytest.mark.parametrize("length", [1, 2, 3])
def test_nelbo_is_the_integral_in_sympy(length):
    t = sympy.Symbol("t", positive=True)
    entries = iter(sympy.symbols("p:24", positive=True))
    rows = np.full((1 << length, length), sympy.Integer(1), dtype=object)
    loss = 0
    for pattern in range(1 << length):
        k = pattern.bit_count()
        for i in range(length):
            if pattern >> i & 1:
                rows[pattern, i] = next(entries)
                cost = -sympy.log(rows[pattern, i])
                loss += t ** (k - 1) * (1 - t) ** (length - k) * cost
    wanted = sympy.integrate(sympy.expand(loss), (t, 0, 1))
    assert sympy.expand(MaskLattice(rows).nelbo() - wanted) == 0


@pytest.mark.parametrize("schedule", EXACT_ENDS, ids=lambda x: x.name)
@settings(max_examples=6)
@given(length=lengths, seed=seeds)
def test_nelbo_is_the_integral_for_every_schedule(schedule, length, seed):
    """Gauss-Legendre in x with t = x^2, smooth for t^(3/2) as well."""
    one = lattice(seed, length)
    nodes, masses = np.polynomial.legendre.leggauss(50)
    total = 0.0
    for x, mass in zip((nodes + 1) / 2, masses / 2, strict=True):
        loss = one.expected_loss(schedule.masked(x**2))
        total += mass * 2 * x * schedule.weight(x**2) * loss
    assert total == pytest.approx(one.nelbo(), rel=1e-12)


@few
@given(lengths, seeds)
def test_expected_loss_and_profile_by_patterns(length, seed):
    one = lattice(seed, length, low=0)
    exact = lattice(seed, length, exact=True, low=0)
    rho, rational = 0.3, Fraction(3, 10)
    by_count = np.zeros(length + 1)
    expected = 0.0
    for pattern in range(1 << length):
        k = pattern.bit_count()
        probs = one.table[pattern]
        cost = -sum(log(p) if p else -inf for p in probs)
        by_count[k] += cost / comb(length, k)
        expected += rho**k * (1 - rho) ** (length - k) * cost
    assert one.by_count() == pytest.approx(by_count, rel=1e-12)
    assert one.expected_loss(rho) == pytest.approx(expected, rel=1e-12)
    assert [float(v) for v in exact.by_count()] == pytest.approx(by_count)
    got = float(exact.expected_loss(rational))
    assert got == pytest.approx(expected, rel=1e-12)


# Orders and the generator.


@few
@given(st.integers(1, 5), seeds)
def test_generator_by_orders(length, seed):
    one = lattice(seed, length)
    products = order_products(one.table)
    mean = sum(products) / len(products)
    assert one.generator_probability() == pytest.approx(mean, rel=1e-12)
    assert one.generator_nll() == pytest.approx(-log(mean), rel=1e-12)


@settings(max_examples=15)
@given(st.integers(1, 5), seeds)
def test_generator_by_orders_exactly(length, seed):
    one = lattice(seed, length, exact=True, low=0)
    products = order_products(one.table)
    mean = sum(products) / len(products)
    assert one.generator_probability() == mean
    if mean:
        assert exp_exact(one.generator_nll()) == 1 / mean
    else:
        assert one.generator_nll() == sympy.oo


def test_generator_by_simulation():
    """200,000 runs of the sampler that reveals in a random order."""
    length, n = 4, 200_000
    one = lattice(3, length, low=15)
    rng = np.random.default_rng(11)
    orders = rng.random((n, length)).argsort(axis=1)
    pattern = np.full(n, (1 << length) - 1)
    right = np.ones(n, bool)
    for step in range(length):
        i = orders[:, step]
        right &= rng.random(n) < one.table[pattern, i]
        pattern ^= 1 << i
    p = one.generator_probability()
    assert 0.02 < p < 0.98
    assert abs(right.mean() - p) < 5 * np.sqrt(p * (1 - p) / n)


@few
@given(st.integers(1, 5), seeds)
def test_gap_is_a_kl_between_order_laws(length, seed):
    one = lattice(seed, length)
    products = order_products(one.table)
    uniform = 1 / len(products)
    posterior = [p / sum(products) for p in products]
    kl = sum(uniform * log(uniform / q) for q in posterior)
    assert one.gap() == pytest.approx(kl, rel=1e-9, abs=1e-13)
    assert one.gap() >= -1e-14


@few
@given(st.integers(1, 4), st.integers(1, 3), seeds)
def test_a_joint_has_no_gap(length, vocab_size, seed):
    rng = np.random.default_rng(seed)
    flat = fraction_distribution(rng, vocab_size**length)
    joint = flat.reshape((vocab_size,) * length)
    x0 = rng.integers(vocab_size, size=length)
    one = MaskLattice.from_denoiser(Joint(joint), x0, vocab_size)
    assert combine(one.gap()) == 0
    for order in permutations(range(length)):
        assert exp_exact(one.order_loss(order)) == 1 / joint[tuple(x0)]
    assert exp_exact(one.generator_nll()) == 1 / joint[tuple(x0)]


@few
@given(st.integers(1, 6), seeds)
def test_a_chain_has_no_gap(length, seed):
    rng = np.random.default_rng(seed)
    chain = Markov(rng.dirichlet([1] * 3), rng.dirichlet([1] * 3, 3), length)
    x0 = chain.sample(1, rng)[0]
    one = MaskLattice.from_denoiser(chain, x0, 3)
    wanted = -chain.log_prob(x0[None])[0]
    assert one.nelbo() == pytest.approx(wanted, rel=1e-11)
    assert one.generator_nll() == pytest.approx(wanted, rel=1e-11)
    order = rng.permutation(length)
    assert one.order_loss(order) == pytest.approx(wanted, rel=1e-11)


@few
@given(st.integers(1, 4), seeds)
def test_order_loss(length, seed):
    one, exact = lattice(seed, length), lattice(seed, length, exact=True)
    for order, path in paths(one.table):
        wanted = -sum(map(log, path))
        assert one.order_loss(order) == pytest.approx(wanted, rel=1e-13)
    for order, path in paths(exact.table):
        assert exp_exact(exact.order_loss(list(order))) == 1 / prod(path)


# Hot tea.


def test_tea_exactly():
    one = tea(Fraction)
    assert one.nelbo() == combine(sympy.log(125) / 2)
    assert one.generator_probability() == Fraction(21, 200)
    assert exp_exact(one.order_loss([0, 1])) == Fraction(25, 4)
    assert exp_exact(one.order_loss([1, 0])) == 20
    wanted = sympy.log(125) / 2 + sympy.log(sympy.Rational(21, 200))
    assert combine(one.gap()) == combine(wanted)


def test_tea_in_floats():
    one = tea(float)
    got = [one.order_loss([0, 1]), one.order_loss([1, 0]), one.nelbo()]
    got += [one.generator_nll(), one.gap()]
    assert [round(v, 3) for v in got] == [1.833, 2.996, 2.414, 2.254, 0.16]


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


# The finite grid, from the Markov chain itself.


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
    bound, _ = by_trajectories(tea(float).table, schedule, [0.0, 0.5, 1.0])
    assert bound == inf
    assert one.nelbo_on_grid(LINEAR, times).prior == 0


def test_reconstruction():
    one = tea(float)
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
        tea(float).nelbo_on_grid(LINEAR, times)


@pytest.mark.parametrize("half", [0.5, np.float32(0.5), sympy.Float(0.5)])
def test_an_exact_lattice_needs_exact_times(half):
    with pytest.raises(ValueError, match="exact lattice needs"):
        tea(Fraction).nelbo_on_grid(LINEAR, [0, half, 1])


# Zero and tiny probabilities.


@few
@given(st.integers(1, 4), seeds)
def test_zero_probabilities(length, seed):
    rng = np.random.default_rng(seed)
    rows = table(seed, length)
    rows[(rows < 1) & (rng.random(rows.shape) < 0.3)] = 0
    one = MaskLattice(rows)
    products = order_products(rows)
    for value in (one.nelbo(), one.any_order_loss()):
        if min(products) == 0:
            assert value == inf
        else:
            assert value == pytest.approx(mean_order_loss(rows), rel=1e-12)
    mean = sum(products) / len(products)
    if mean:
        assert one.generator_nll() == pytest.approx(-log(mean), rel=1e-12)
    else:
        assert one.generator_nll() == inf
        with pytest.raises(ValueError, match="generator_nll is infinite"):
            one.gap()
    got = one.nelbo_on_grid(LINEAR, [0.0, 1.0])
    wanted = sum(-log(p) if p else inf for p in rows[-1])
    assert got.total == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("kind", [float, Fraction])
def test_a_pattern_never_visited_costs_nothing(kind):
    """At t = 1 only all masks are seen; the other patterns may be hopeless."""
    half, none, one = kind(1) / 2, kind(0), kind(1)
    rows = np.array([[one, one], [none, one], [one, none], [half, half]])
    hopeless = MaskLattice(rows)
    got = hopeless.nelbo_on_grid(LINEAR, [kind(0), kind(1)])
    assert float(got.total) == pytest.approx(2 * log(2))
    assert got.reconstruction == 0
    assert float(hopeless.expected_loss(kind(1))) == pytest.approx(2 * log(2))
    assert hopeless.expected_loss(kind(0)) == 0
    assert hopeless.expected_loss(half) == inf
    assert hopeless.nelbo() == hopeless.any_order_loss() == inf
    assert hopeless.generator_nll() == inf
    assert list(hopeless.by_count())[1] == inf
    halfway = [kind(0), half, kind(1)]
    assert hopeless.nelbo_on_grid(LINEAR, halfway).total == inf


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("length", [2, 3, 5])
def test_tiny_probabilities_do_not_underflow(length, share):
    """Entries near 1e-200: a product of two is no float any more."""
    rng = np.random.default_rng(length)
    exact = table(length, length, exact=True)
    tiny = (exact != 1) & (rng.random(exact.shape) < share)
    exact[tiny] = exact[tiny] / 10**200
    one = MaskLattice(exact.astype(float))
    products = [prod(path) for _, path in paths(exact)]
    with mp.workdps(30):
        logs = [
            mp.log(mpf(p.numerator) / mpf(p.denominator)) for p in products
        ]
        nelbo = -sum(logs) / len(logs)
        total = sum(products)
        mean = mpf(total.numerator) / mpf(total.denominator) / len(products)
        nll = -mp.log(mean)
    assert one.nelbo() == pytest.approx(float(nelbo), rel=1e-12)
    assert one.any_order_loss() == pytest.approx(float(nelbo), rel=1e-12)
    assert one.generator_nll() == pytest.approx(float(nll), rel=1e-12)
    assert float(MaskLattice(exact).generator_nll()) == pytest.approx(
        float(nll), rel=1e-12
    )


def test_one_hopeless_order_beside_a_good_one():
    rows = np.array([[1, 1], [1e-200, 1], [1, 0.5], [0.25, 1e-200]])
    one = MaskLattice(rows)
    wanted = -log(0.25 * 0.5 / 2)
    assert one.generator_nll() == pytest.approx(wanted, rel=1e-15)


# Building a lattice.


def test_bit_i_of_the_row_is_position_i():
    """A denoiser whose answer says which positions it sees as masks."""
    length, vocab_size = 4, 3

    def denoiser(tokens):
        hidden = tokens == vocab_size
        name = hidden @ np.array([1, 2, 4, 8])
        p = 1 / (2 + name[:, None] + 16 * np.arange(length))
        assert np.all(hidden | (tokens == x0))
        out = np.empty((*tokens.shape, vocab_size))
        out[:] = (1 - p[..., None]) / 2
        out[np.arange(len(tokens))[:, None], np.arange(length), x0] = p
        return out

    x0 = np.array([2, 0, 1, 2])
    rows = MaskLattice.from_denoiser(denoiser, x0, vocab_size).table
    for pattern in range(1 << length):
        masked = [int(b) for b in reversed(f"{pattern:04b}")]
        for i, hidden in enumerate(masked):
            name = 2 + pattern + 16 * i
            assert rows[pattern, i] == (1 / name if hidden else 1)


def test_the_first_order_reveals_position_zero_first():
    one = tea(float)
    assert one.table[3, 0] == 0.2 and one.table[2, 1] == 0.8
    assert one.order_loss([0, 1]) == pytest.approx(-log(0.2 * 0.8), rel=1e-15)


@few
@given(st.integers(1, 4), seeds)
def test_a_prompt_stays_visible(length, seed):
    rng = np.random.default_rng(seed)
    joint = fraction_distribution(rng, 2**length).reshape((2,) * length)
    x0 = rng.integers(2, size=length)
    editable = rng.random(length) < 0.5
    editable[rng.integers(length)] = True
    seen = []

    def source(tokens):
        seen.append(tokens)
        return Joint(joint)(tokens)

    one = MaskLattice.from_denoiser(source, x0, 2, editable)
    size = editable.sum()
    tokens = np.concatenate(seen)
    assert one.table.shape == (1 << size, size)
    assert np.all(tokens[:, ~editable] == x0[~editable])
    assert len(np.unique(tokens, axis=0)) == 1 << size
    agree = tuple(
        slice(None) if e else v for e, v in zip(editable, x0, strict=True)
    )
    wanted = joint[tuple(x0)] / np.sum(joint[agree])
    assert exp_exact(one.nelbo()) == 1 / wanted
    for order in permutations(range(size)):
        assert exp_exact(one.order_loss(order)) == 1 / wanted


@few
@given(lengths, seeds)
def test_from_denoiser_reads_a_table_back(length, seed):
    for exact in (False, True):
        rows = table(seed, length, exact)
        one = MaskLattice.from_denoiser(
            denoiser_of(rows), np.zeros(length, int), 2
        )
        assert one.is_exact is exact
        assert np.all(one.table == rows)


def test_float_tables_are_float64_in_rows():
    one = lattice(1, 3)
    assert one.table.dtype == np.float64 and one.table.flags.c_contiguous
    flipped = MaskLattice(np.asfortranarray(one.table, dtype=np.float32))
    assert flipped.table.dtype == np.float64
    assert flipped.table.flags.c_contiguous
    assert np.all(one.cross_entropy() == 0 - np.log(one.table))


@pytest.mark.parametrize("length", [23, 40])
def test_too_long_for_enumeration(length):
    limit = lattice_module.MAX_LENGTH
    assert limit == 22
    gib = 8 * length * 2**length / 2**30
    message = rf"length = {length}: .* {gib:.1f} GiB; expected at most {limit}"
    with pytest.raises(ValueError, match=message):
        MaskLattice.from_denoiser(None, np.zeros(length, int), 2)
    lattice_module.check_length(limit)
    editable = np.arange(length) < 2
    chain = Markov([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], length)
    one = MaskLattice.from_denoiser(
        chain, np.zeros(length, int), 2, editable
    )
    assert one.nelbo() == pytest.approx(2 * log(2), rel=1e-14)


HALF = Fraction(1, 2)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([[1], [1.5]], "holds 1.5 at masked position 0"),
        ([[1], [-0.5]], "holds -0.5 at masked position 0"),
        ([[1], [np.nan]], "holds nan at masked position 0"),
        ([[0.5], [0.5]], "where position 0 is visible; expected 1"),
        ([[np.nan], [0.5]], "where position 0 is visible; expected 1"),
        ([[1, 1], [0.5, 0.5], [1, 0.5], [0.5, 0.5]], "position 1 is visible"),
        ([[Fraction(1)], [Fraction(3, 2)]], "holds 3/2 at masked position 0"),
        ([[Fraction(1)], [-HALF]], "holds -1/2 at masked position 0"),
        ([[HALF], [HALF]], "holds 1/2 where position 0 is visible"),
        ([[1], [0.5], [0.5]], r"shape \(3, 1\); expected \[2\^L, L\]"),
        ([1, 0.5], r"shape \(2,\)"),
        (np.ones((1, 0)), r"shape \(1, 0\)"),
    ],
)
def test_bad_tables(rows, message):
    with pytest.raises(ValueError, match=message):
        MaskLattice(rows)


def answer(probs):
    return lambda tokens: np.broadcast_to(
        np.array(probs), (*tokens.shape, len(probs))
    )


@pytest.mark.parametrize(
    "denoiser, message",
    [
        (answer([0.5, 0.4]), r"rows that sum to 0.9"),
        (answer([0.5, np.nan]), r"rows that sum to nan"),
        (answer([1.5, -0.5]), r"minimum -0.5"),
        (answer([Fraction(1, 2), Fraction(1, 3)]), r"rows that sum to 5/6"),
        (answer([0.5, 0.3, 0.2]), r"shape \(4, 2, 3\); expected \(4, 2, 2\)"),
    ],
)
def test_bad_denoisers(denoiser, message):
    with pytest.raises(ValueError, match=message):
        MaskLattice.from_denoiser(denoiser, np.array([0, 0]), 2)


@pytest.mark.parametrize(
    "x0, message",
    [
        ([0, 2], r"x0 = \[0, 2\]: .*mask id 2"),
        ([0, -1], r"x0 = \[0, -1\]"),
        ([0.0, 1.0], "expected integer tokens"),
        ([[0, 1]], "expected integer tokens"),
    ],
)
def test_bad_sequences(x0, message):
    with pytest.raises(ValueError, match=message):
        MaskLattice.from_denoiser(answer([0.5, 0.5]), np.array(x0), 2)


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [1, 2], [0, 1, 2]])
def test_bad_orders(order):
    with pytest.raises(ValueError, match=r"order = .*positions 0\.\.1 once"):
        tea(float).order_loss(order)


@pytest.mark.parametrize("rho", [-0.1, 1.1, np.nan, Fraction(3, 2)])
def test_bad_masked_probability(rho):
    with pytest.raises(ValueError, match="masked_probability = "):
        tea(float).expected_loss(rho)


def test_bound_on_a_grid_may_rise():
    """Q3: with odd conditionals more steps can make the bound worse."""
    rows = np.array([[1, 1], [0.1, 1], [1, 0.1], [0.9, 0.9]])
    one = MaskLattice(rows)
    totals = [
        one.nelbo_on_grid(polynomial(2), np.linspace(0, 1, k + 1)).total
        for k in (1, 2, 4, 8)
    ]
    assert totals == sorted(totals) and totals[-1] < one.nelbo()
