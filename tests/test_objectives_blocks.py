"""Block laws against orders, enumeration and simulation."""

from fractions import Fraction
from itertools import permutations, product
from math import factorial, inf, log, prod

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import lattice, seeds, tea
from toyml.lattice import MaskLattice
from toyml.objectives import (
    autoregressive,
    bert,
    block_diffusion,
    forced_target,
    inverse_t,
    inverse_t_truncated,
    per_example_mean,
    pooled_mean,
    uniform_count,
    unweighted,
)
from toyml.sources import Markov

few = settings(max_examples=20)
lengths = st.integers(1, 5)
sizes = st.integers(1, 6)
COUNT = uniform_count()


def blocks_of(length, size):
    every = range(length)
    return [every[i : i + size] for i in every if i % size == 0]


def orders(length, size):
    """Every order that finishes each block before the next."""
    choices = [permutations(block) for block in blocks_of(length, size)]
    for parts in product(*choices):
        yield [i for part in parts for i in part]


def outcomes(one, size, chance):
    """(probability, loss) of every choice of a set in every block.

    chance(k, n): probability and weight of one given set of k in a block of
    n. The costs are read from the table of the whole sequence.
    """
    per_block = []
    for block in blocks_of(one.length, size):
        later = [i for i in range(one.length) if i > block[-1]]
        found = []
        for flags in product((0, 1), repeat=len(block)):
            hidden = [i for i, f in zip(block, flags, strict=True) if f]
            row = sum(1 << i for i in hidden + later)
            p, weight = chance(len(hidden), len(block))
            cost = sum(-log(one.table[row, i]) for i in hidden)
            found.append((p, weight * cost))
        per_block.append(found)
    for choice in product(*per_block):
        yield prod(p for p, _ in choice), sum(loss for _, loss in choice)


def moments(pairs):
    pairs = list(pairs)
    assert sum(p for p, _ in pairs) == pytest.approx(1, rel=1e-12)
    mean = sum(p * loss for p, loss in pairs)
    return mean, sum(p * (loss - mean) ** 2 for p, loss in pairs)


def by_count(k, n):
    if k == 0:
        return 0, 0
    return factorial(k) * factorial(n - k) / factorial(n) / n, n / k


def by_half(k, n):
    """Every set alike at rate 1/2, weight 1: a stand-in for any rate law."""
    return 0.5**n, 1.0


# The mean, by orders.


@few
@given(lengths, sizes, seeds)
def test_mean_is_the_average_over_orders_within_blocks(length, size, seed):
    one = lattice(seed, length)
    losses = [one.order_loss(o) for o in orders(length, size)]
    for inner in (COUNT, per_example_mean(), inverse_t(), forced_target()):
        got = one.mean(block_diffusion(size, inner))
        assert got == pytest.approx(np.mean(losses), rel=1e-12)


@settings(max_examples=5)
@given(st.integers(1, 3), st.integers(1, 3), seeds)
def test_mean_in_fractions(length, size, seed):
    one = lattice(seed, length, exact=True)
    losses = [one.order_loss(o) for o in orders(length, size)]
    for inner in (COUNT, inverse_t()):
        got = one.mean(block_diffusion(size, inner))
        wanted = sympy.expand(sympy.Add(*losses) / len(losses))
        assert sympy.expand(got) == wanted


def test_a_consistent_table_has_one_bound():
    rng = np.random.default_rng(0)
    chain = Markov(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3), 3), 6)
    x = chain.sample(1, rng)[0]
    one = MaskLattice.from_denoiser(chain, x, 3)
    wanted = -chain.log_prob([x])[0]
    for size in range(1, 8):
        got = one.mean(block_diffusion(size, COUNT))
        assert got == pytest.approx(wanted, rel=1e-12)


# The variance, by enumeration.


@few
@given(lengths, sizes, seeds)
def test_moments_by_enumeration(length, size, seed):
    one = lattice(seed, length)
    mean, variance = moments(outcomes(one, size, by_count))
    objective = block_diffusion(size, COUNT)
    assert one.mean(objective) == pytest.approx(mean, rel=1e-11)
    got = one.variance(objective)
    assert got == pytest.approx(variance, rel=1e-8, abs=1e-10)


@few
@given(lengths, sizes, seeds, st.sampled_from([0.001, 0.1, 0.6]))
def test_cut_moments_by_integrals(length, size, seed, eps):
    """t in [eps, 1]: the moments of each set, integrated by SymPy."""
    one, t = lattice(seed, length), sympy.Symbol("t", positive=True)
    low = sympy.Rational(str(eps))

    def integral(form):
        return float(sympy.integrate(sympy.expand(form), (t, low, 1)))

    mean = variance = 0
    for block in blocks_of(length, size):
        n, first, second = len(block), 0, 0
        later = sum(1 << i for i in range(block[-1] + 1, length))
        for flags in list(product((0, 1), repeat=n))[1:]:
            hidden = [i for i, f in zip(block, flags, strict=True) if f]
            row = later + sum(1 << i for i in hidden)
            cost = sum(-log(one.table[row, i]) for i in hidden)
            k = len(hidden)
            chance = t**k * (1 - t) ** (n - k) / (1 - low)
            first += cost * integral(chance / t)
            second += cost**2 * integral(chance / t**2)
        mean, variance = mean + first, variance + second - first**2
    cut = inverse_t_truncated(eps, rescale=False)
    got = one.mean(block_diffusion(size, cut))
    assert got == pytest.approx(mean, rel=1e-10)
    got = one.variance(block_diffusion(size, cut))
    assert got == pytest.approx(variance, rel=1e-8, abs=1e-9)


def test_variance_in_fractions():
    """Three tokens in blocks of two: one block varies, the last does not."""
    one = lattice(3, 3, exact=True)
    objective = block_diffusion(2, COUNT)
    costs = one.cross_entropy()
    single = [2 * costs[0b101, 0], 2 * costs[0b110, 1]]
    both = costs[0b111, 0] + costs[0b111, 1]
    mean = (single[0] + single[1] + 2 * both) / 4
    wanted = sum((v - mean) ** 2 for v in (*single, both, both)) / 4
    got = sympy.expand(one.variance(objective))
    assert sympy.expand(got - wanted) == 0
    assert sympy.expand(one.variance(block_diffusion(1, COUNT))) == 0


# Simulation.


def losses(one, masked, weight):
    """The loss of each drawn row, from the table."""
    bits = 1 << np.arange(one.length)
    costs = one.cross_entropy()[masked @ bits]
    return len(masked) * (weight * costs).sum(axis=(1, 2))


@pytest.mark.parametrize("length, size", [(5, 2), (4, 1), (4, 3), (3, 3)])
@pytest.mark.parametrize(
    "inner",
    [
        COUNT,
        inverse_t_truncated(0.2),
        forced_target(),
        per_example_mean("redraw_mask_only"),
    ],
    ids=lambda o: o.name,
)
def test_draws_follow_the_law(inner, length, size):
    one, n = lattice(1, length), 60_000
    objective = block_diffusion(size, inner)
    drawn = losses(
        one, *objective.draw(n, length, np.random.default_rng(2))
    )
    mean, variance = one.mean(objective), one.variance(objective)
    assert abs(drawn.mean() - mean) < 4 * (variance / n) ** 0.5 + 1e-12
    fourth = ((drawn - mean) ** 4).mean()
    error = max(fourth - variance**2, 0) ** 0.5 / n**0.5
    assert abs(drawn.var() - variance) < 5 * error + 1e-12


@pytest.mark.parametrize("coupling", ["stratified", "antithetic", "lattice"])
def test_couplings_keep_the_mean(coupling):
    one, n = lattice(1, 4), 20_000
    objective = block_diffusion(2, COUNT)
    rng = np.random.default_rng(0)
    drawn = losses(one, *objective.draw(n, 4, rng, coupling=coupling))
    error = (one.variance(objective) / n) ** 0.5
    assert abs(drawn.mean() - one.mean(objective)) < 4 * error


def test_stratified_counts_are_even_in_each_block():
    rng = np.random.default_rng(0)
    masked, _ = block_diffusion(2, COUNT).draw(
        8, 4, rng, coupling="stratified"
    )
    for j in (0, 1):
        count = masked[:, j, 2 * j : 2 * j + 2].sum(axis=1)
        assert sorted(count) == [1] * 4 + [2] * 4


def test_blocks_are_drawn_independently():
    rng = np.random.default_rng(0)
    masked, _ = block_diffusion(2, COUNT).draw(40_000, 4, rng)
    first, second = (masked[:, j, 2 * j : 2 * j + 2].sum(1) for j in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.02


# The two ends.


@few
@given(lengths, seeds)
def test_size_one_is_autoregressive(length, seed):
    one = lattice(seed, length)
    objective = block_diffusion(1, COUNT)
    wanted = one.mean(autoregressive())
    assert one.mean(objective) == pytest.approx(wanted, rel=1e-13)
    assert one.variance(objective) == pytest.approx(0, abs=1e-11)
    editable = np.random.default_rng(seed).random((3, length)) < 0.6
    editable[:, 0] |= ~editable.any(axis=1)
    drawn = objective.draw(3, length, np.random.default_rng(seed), editable)
    left = autoregressive().draw(3, length, None, editable)
    for mine, theirs in zip(drawn, left, strict=True):
        assert np.array_equal(mine, theirs)


@few
@given(lengths, st.integers(0, 3), seeds)
def test_the_whole_length_is_the_inner_law(length, more, seed):
    one = lattice(seed, length)
    for inner in (COUNT, inverse_t_truncated(0.01), unweighted()):
        objective = block_diffusion(length + more, inner)
        assert one.mean(objective) == pytest.approx(one.mean(inner))
        assert one.variance(objective) == pytest.approx(
            one.variance(inner), abs=1e-10
        )
        mine = objective.draw(4, length, np.random.default_rng(seed))
        theirs = inner.draw(4, length, np.random.default_rng(seed))
        for a, b in zip(mine, theirs, strict=True):
            assert np.array_equal(a, b)


def test_size_one_under_the_cut():
    """Mean that of autoregressive, variance (ln(1/eps)/(1-eps) - 1) sum."""
    one = lattice(5, 4)
    costs = [-log(one.table[0b1111 ^ ((1 << i) - 1), i]) for i in range(4)]
    for eps in (1e-6, 1e-3, 0.5, 0.99):
        cut = block_diffusion(1, inverse_t_truncated(eps, rescale=False))
        assert one.mean(cut) == pytest.approx(sum(costs), rel=1e-12)
        factor = log(1 / eps) / (1 - eps) - 1
        wanted = factor * sum(c * c for c in costs)
        assert one.variance(cut) == pytest.approx(wanted, rel=1e-8)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_without_a_cut_the_variance_is_infinite(size):
    one = lattice(5, 3)
    objective = block_diffusion(size, inverse_t())
    assert one.variance(objective) == inf
    mean = one.mean(block_diffusion(size, COUNT))
    assert one.mean(objective) == pytest.approx(mean, rel=1e-13)
    exact = lattice(5, 3, exact=True)
    assert exact.variance(objective) == inf


def test_tea():
    """1.833 in blocks of one, 2.414 in one block."""
    for size, wanted in ((1, log(25 / 4)), (2, log(125) / 2)):
        assert tea().mean(block_diffusion(size, COUNT)) == pytest.approx(
            wanted, rel=1e-13
        )
        exact = tea(Fraction).mean(block_diffusion(size, COUNT))
        assert float(exact) == pytest.approx(wanted, rel=1e-13)


def test_inner_law_of_half():
    """A weight-1 inner law, every set alike: no mean of orders."""
    one = lattice(2, 5)
    objective = block_diffusion(3, bert(0.5))
    mean, variance = moments(outcomes(one, 3, by_half))
    assert one.mean(objective) == pytest.approx(mean, rel=1e-12)
    assert one.variance(objective) == pytest.approx(variance, rel=1e-10)


# Shapes.


def test_passes():
    """Five positions in blocks of two: three passes, the last of one."""
    rng = np.random.default_rng(0)
    masked, weight = block_diffusion(2, COUNT).draw(6, 5, rng)
    assert masked.shape == weight.shape == (6, 3, 5)
    assert masked.dtype == bool
    for j in range(3):
        start, stop = 2 * j, min(2 * j + 2, 5)
        assert not masked[:, j, :start].any()
        assert masked[:, j, stop:].all()
        inside = masked[:, j, start:stop]
        assert inside.any(axis=1).all()
        assert np.array_equal(weight[:, j, start:stop] > 0, inside)
        assert not weight[:, j, :start].any()
        assert not weight[:, j, stop:].any()
        total = weight[:, j].sum(axis=1)
        assert total == pytest.approx((stop - start) / 6)


def test_blocks_count_editable_positions():
    editable = np.array([[0, 1, 1, 0, 1], [0, 0, 0, 1, 0]], bool)
    rng = np.random.default_rng(0)
    masked, weight = block_diffusion(2, COUNT).draw(2, 5, rng, editable)
    assert masked.shape == (2, 2, 5)
    assert not masked[:, :, 0].any()
    assert not masked[0, :, 3].any()
    assert masked[0, 0, 4] and weight[0, 0, 4] == 0
    assert masked[0, 1].tolist() == [False] * 4 + [True]
    assert weight[0, 1].tolist() == [0, 0, 0, 0, 0.5]
    assert weight[0, 0, [1, 2]].sum() == pytest.approx(1)
    assert masked[1, 0].tolist() == [False, False, False, True, False]
    assert weight[1, 0].tolist() == [0, 0, 0, 0.5, 0]
    assert not masked[1, 1].any() and not weight[1, 1].any()


def test_same_editable_row_for_all():
    rng = np.random.default_rng(0)
    masked, _ = block_diffusion(1, COUNT).draw(3, 3, rng, [True, False, True])
    assert masked.shape == (3, 2, 3)
    assert not masked[:, :, 1].any()


# Bad input.


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", None, True])
def test_bad_size(size):
    with pytest.raises(ValueError, match=f"^size = {size}: expected"):
        block_diffusion(size, COUNT)


@pytest.mark.parametrize(
    "inner", [None, uniform_count, autoregressive(), pooled_mean(2)]
)
def test_bad_inner(inner):
    with pytest.raises(ValueError, match="^inner = .*: expected an Objective"):
        block_diffusion(2, inner)


def test_lattice_of_another_length():
    law = block_diffusion(2, COUNT).law(3)
    with pytest.raises(ValueError, match="^lattice.length = 4: expected 3"):
        law.mean(lattice(0, 4))


def test_bad_editable_positions():
    objective, rng = block_diffusion(2, COUNT), np.random.default_rng(0)
    with pytest.raises(ValueError, match="editable has shape"):
        objective.draw(2, 3, rng, np.ones(2, bool))
    with pytest.raises(ValueError, match="expected at least one of each"):
        objective.draw(1, 3, rng, np.zeros(3, bool))


def test_name():
    got = block_diffusion(4, COUNT).name
    assert got == "block_diffusion(4, uniform_count)"
