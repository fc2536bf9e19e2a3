"""The lattice by two routes: sums over patterns against sums over orders."""

from fractions import Fraction
from itertools import permutations
from math import comb, factorial, inf, log, prod

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from cases import (
    EXACT_ENDS,
    denoiser_of,
    exp_exact,
    fraction_distribution,
    lattice,
    lengths,
    order_products,
    paths,
    seeds,
    table,
    tea,
)
from toyml import tables
from toyml.exact import combine
from toyml.lattice import MaskLattice
from toyml.schedules import LINEAR
from toyml.sources import Joint, Markov
from toyml.subsets import counts, masks

few = settings(max_examples=25)


def mean_order_loss(rows):
    losses = [-sum(map(log, path)) for _, path in paths(rows)]
    return sum(losses) / len(losses)


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
    one = MaskLattice(rows)
    assert sympy.expand(one.expected_loss(t) / t - loss) == 0
    assert sympy.expand(one.nelbo() - wanted) == 0


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


@pytest.mark.parametrize("vocab_size", [2, 50])
def test_a_uniform_model_reports_log_v_a_token(vocab_size):
    """Peers, 13: the first loss of a run; another says a wrong normaliser."""
    rows = np.where(masks(5), 1 / vocab_size, 1)
    one, wanted = MaskLattice(rows), 5 * log(vocab_size)
    got = one.nelbo(), one.generator_nll(), one.order_loss(range(5))
    assert got == pytest.approx([wanted] * 3, rel=1e-14)
    assert one.gap() == pytest.approx(0, abs=1e-13)


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
    one = tea()
    got = [one.order_loss([0, 1]), one.order_loss([1, 0]), one.nelbo()]
    got += [one.generator_nll(), one.gap()]
    assert [round(v, 3) for v in got] == [1.833, 2.996, 2.414, 2.254, 0.16]


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


@pytest.mark.parametrize("length", [1, 3, 6])
def test_patterns_and_their_counts(length):
    for pattern in range(1 << length):
        bits = [pattern // 2**i % 2 == 1 for i in range(length)]
        assert list(masks(length)[pattern]) == bits
        assert counts(length)[pattern] == sum(bits)


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
    one = tea()
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
    limit = tables.MAX_LENGTH
    assert limit == 22
    gib = 8 * length * 2**length / 2**30
    message = rf"length = {length}: .* {gib:.1f} GiB; expected at most {limit}"
    with pytest.raises(ValueError, match=message):
        MaskLattice.from_denoiser(None, np.zeros(length, int), 2)
    tables.check_length(limit)
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
        ([[0.5], [0.5]], "holds 0.5 where position 0 is visible; expected 1"),
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
        tea().order_loss(order)


@pytest.mark.parametrize("rho", [-0.1, 1.1, np.nan, Fraction(3, 2)])
def test_bad_masked_probability(rho):
    with pytest.raises(ValueError, match="masked_probability = "):
        tea().expected_loss(rho)
