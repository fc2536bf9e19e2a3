"""Each objective's draws against its law, and the law against integrals."""

from fractions import Fraction
from itertools import combinations
from math import comb, cos, inf, log, pi, sqrt

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import lattice, lengths, seeds, tea
from toyml.exact import combine
from toyml.lattice import MaskLattice
from toyml.objectives import (
    bert,
    bert_inputs,
    inverse_t,
    maskgit,
    uniform_count,
    unweighted,
)
from toyml.sources import Joint

OBJECTIVES = [
    inverse_t(),
    unweighted(),
    uniform_count(),
    bert(),
    maskgit(),
    maskgit(bernoulli=True),
]
each = pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
few = settings(max_examples=20)

# Hot tea: the cross-entropies of the four questions, in nats.
FIRST, SECOND = -log(0.2), -log(0.1)
FIRST_GIVEN, SECOND_GIVEN = -log(0.5), -log(0.8)


def three_coins():
    joint = np.zeros((2, 2, 2))
    joint[0, 0, 0] = joint[1, 1, 1] = 1 / 2
    return MaskLattice.from_denoiser(Joint(joint), np.array([0, 0, 0]), 2)


# The laws, by integrals and enumeration.


@each
@pytest.mark.parametrize("length", [1, 2, 3, 4, 9, 20, 100])
def test_probabilities_sum_to_one(objective, length):
    law = objective.law(length)
    for part in (law.probability, law.weight, law.weight_squared):
        assert len(part) == length + 1
        assert all(v >= 0 for v in part)
    assert float(sum(law.probability)) == pytest.approx(1, abs=1e-12)
    assert law.weight[0] == law.weight_squared[0] == 0


def integrate(rate, weight, length, k):
    """P(k), E[w; k] and E[w^2; k] for a rate and a weight drawn over x."""
    x = sympy.Symbol("x", positive=True)
    p, w = rate(x), weight(x)
    mass = comb(length, k) * p**k * (1 - p) ** (length - k)
    return [
        sympy.integrate(sympy.expand(mass * w**power), (x, 0, 1))
        for power in (0, 1, 2)
    ]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "objective, rate, weight",
    [
        (inverse_t(), lambda x: x, lambda x: 1 / x),
        (unweighted(), lambda x: x, lambda x: x**0),
        (maskgit(True), lambda x: sympy.cos(sympy.pi * x / 2), lambda x: x**0),
        (bert(0.25), lambda x: sympy.Rational(1, 4), lambda x: x**0),
    ],
    ids=["inverse_t", "unweighted", "maskgit_bernoulli", "bert"],
)
def test_laws_with_a_rate(objective, rate, weight, length):
    law = objective.law(length)
    for k in range(length + 1):
        p, w, w2 = integrate(rate, weight, length, k)
        got = law.probability[k], law.weight[k], law.weight_squared[k]
        # Without a mask no position carries a weight.
        wanted = (p, w, w2) if k else (p, 0, 0)
        for a, b in zip(got, wanted, strict=True):
            if b == sympy.oo:
                assert a == inf
            elif isinstance(a, Fraction):
                assert a == b
            else:
                assert float(a) == pytest.approx(float(b), rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_uniform_count_law(length):
    law = uniform_count().law(length)
    assert law.probability == (0, *[Fraction(1, length)] * length)
    for k in range(1, length + 1):
        w = Fraction(length, k)
        assert law.weight[k] == w / length
        assert law.weight_squared[k] == w * w / length


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_maskgit_law(length):
    """A million ratios at the midpoints of equal steps, rounded up."""
    n = 10**6
    ratio = np.cos(np.pi / 2 * (np.arange(n) + 0.5) / n)
    seen = np.bincount(np.ceil(ratio * length).astype(int)) / n
    law = maskgit().law(length)
    assert np.allclose(law.probability, seen, rtol=0, atol=2e-6)
    assert law.weight == law.weight_squared == law.probability
    if length == 2:  # cos(pi r / 2) > 1/2 for r < 2/3
        assert law.probability == pytest.approx([0, 1 / 3, 2 / 3], rel=1e-14)


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_effective_weights(length):
    ones = (0, *[1] * length)
    assert inverse_t().law(length).effective_weight == ones
    assert uniform_count().law(length).effective_weight == ones
    got = unweighted().law(length).effective_weight
    assert got == tuple(Fraction(k, length + 1) for k in range(length + 1))
    for objective, mean in ((bert(), 0.15), (maskgit(True), 2 / pi)):
        total = sum(objective.law(length).effective_weight)
        assert total == pytest.approx(mean * length, rel=1e-12)


# Means and variances on a lattice.


def moments_by_patterns(one, rate, weight):
    """Mean and second moment, averaged over nodes x and every pattern."""
    nodes, masses = np.polynomial.legendre.leggauss(60)
    length = one.length
    first = second = 0.0
    for x, mass in zip((nodes + 1) / 2, masses / 2, strict=True):
        p, w = rate(x), weight(x)
        for pattern in range(1 << length):
            k = pattern.bit_count()
            loss = -w * np.log(one.table[pattern]).sum()
            chance = mass * p**k * (1 - p) ** (length - k)
            first += chance * loss
            second += chance * loss**2
    return first, second


@pytest.mark.parametrize(
    "objective, rate, weight",
    [
        (inverse_t(), lambda x: x, lambda x: 1 / x),
        (unweighted(), lambda x: x, lambda x: 1),
        (maskgit(True), lambda x: cos(pi * x / 2), lambda x: 1),
        (bert(), lambda x: 0.15, lambda x: 1),
    ],
    ids=["inverse_t", "unweighted", "maskgit_bernoulli", "bert"],
)
@settings(max_examples=6)
@given(length=st.integers(1, 4), seed=seeds)
def test_moments_with_a_rate(objective, rate, weight, length, seed):
    one = lattice(seed, length)
    first, second = moments_by_patterns(one, rate, weight)
    assert one.mean(objective) == pytest.approx(first, rel=1e-12)
    variance = one.variance(objective)
    if objective.name == "inverse_t":
        single = one.by_count()[1] > 0  # else the last blank is free
        assert (variance == inf) == single
    else:
        wanted = second - first**2
        assert variance == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@few
@given(st.integers(1, 5), seeds)
def test_moments_with_a_count(length, seed):
    one = lattice(seed, length)
    edges = [2 / pi * np.arccos(k / length) for k in range(length + 1)]
    laws = {
        uniform_count(): lambda k: (1 / length, length / k),
        maskgit(): lambda k: (edges[k - 1] - edges[k], 1),
    }
    for objective, rule in laws.items():
        first = second = 0.0
        for k in range(1, length + 1):
            chance, w = rule(k)
            for chosen in combinations(range(length), k):
                row = one.table[sum(1 << i for i in chosen)]
                loss = -w * np.log(row).sum()
                first += chance / comb(length, k) * loss
                second += chance / comb(length, k) * loss**2
        assert one.mean(objective) == pytest.approx(first, rel=1e-12)
        wanted = second - first**2
        got = one.variance(objective)
        assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)


@few
@given(lengths, seeds)
def test_the_nelbo_is_the_mean_of_two_objectives(length, seed):
    for one in (lattice(seed, length), lattice(seed, length, exact=True)):
        for objective in (inverse_t(), uniform_count()):
            assert one.mean(objective) == pytest.approx(one.nelbo(), rel=1e-14)
    assert one.mean(inverse_t()) == one.nelbo()
    assert one.mean(uniform_count()) == one.nelbo()


def test_tea_without_one_over_t():
    both, single = FIRST + SECOND, FIRST_GIVEN + SECOND_GIVEN
    wanted = both / 3 + single / 6
    assert round(wanted, 3) == 1.457
    assert tea().mean(unweighted()) == pytest.approx(wanted, rel=1e-14)
    exact = tea(Fraction).mean(unweighted())
    assert exact == combine(
        sympy.log(50) / 3 + sympy.log(sympy.Rational(5, 2)) / 6
    )


def test_tea_by_hand():
    """Uniform count: one blank at weight 2, either one, or both at 1."""
    losses = [2 * FIRST_GIVEN, 2 * SECOND_GIVEN] + [FIRST + SECOND] * 2
    mean = sum(losses) / 4
    variance = sum((v - mean) ** 2 for v in losses) / 4
    assert round(mean, 3) == 2.414 and round(variance, 3) == 2.354
    assert tea().mean(uniform_count()) == pytest.approx(mean, rel=1e-14)
    got = tea().variance(uniform_count())
    assert got == pytest.approx(variance, rel=1e-13)
    exact = tea(Fraction).variance(uniform_count())
    assert float(exact) == pytest.approx(variance, rel=1e-13)
    assert tea().variance(inverse_t()) == inf
    assert tea(Fraction).variance(inverse_t()) == sympy.oo


def test_tea_as_maskgit():
    """Two blanks for r < 2/3, else one of the two."""
    losses = [FIRST + SECOND] * 4 + [FIRST_GIVEN, SECOND_GIVEN]
    mean = sum(losses) / 6
    variance = sum((v - mean) ** 2 for v in losses) / 6
    assert tea().mean(maskgit()) == pytest.approx(mean, rel=1e-14)
    got = tea().variance(maskgit())
    assert got == pytest.approx(variance, rel=1e-12)


def test_a_fixed_rate_is_no_bound():
    """Three copies of one coin, half of the tokens masked (peers, 14)."""
    coins = three_coins()
    # All three masked: probability 1/8, each token costs log 2.
    half = 3 / 8 * log(2)
    assert coins.expected_loss(0.5) == pytest.approx(half, rel=1e-14)
    assert coins.mean(bert(0.5)) == pytest.approx(half, rel=1e-14)
    per_masked_token = coins.mean(bert(0.5)) / (0.5 * 3)
    assert per_masked_token == pytest.approx(log(2) / 4, rel=1e-14)
    assert per_masked_token < coins.nelbo() / 3
    assert coins.nelbo() == pytest.approx(log(2), rel=1e-14)


def test_variance_is_finite_where_the_last_blank_is_free():
    """1/t, three coins: E[w^2; 3 masks] (3 log 2)^2 is all there is."""
    second = 3 / 6 * (3 * log(2)) ** 2
    got = three_coins().variance(inverse_t())
    assert got == pytest.approx(second - log(2) ** 2, rel=1e-13)


def test_infinite_losses_have_infinite_moments():
    rows = np.array([[1, 1], [0, 1], [1, 0.5], [0.5, 0.5]])
    one = MaskLattice(rows)
    for objective in OBJECTIVES:
        assert one.mean(objective) == inf
        assert one.variance(objective) == inf


# Draws.


def draws(objective, length=4, n=60_000, seed=5):
    masked, weight = objective.draw(n, length, np.random.default_rng(seed))
    assert masked.shape == weight.shape == (n, 1, length)
    assert masked.dtype == bool and weight.dtype == np.float64
    return masked[:, 0], weight[:, 0] * n


@each
def test_draws_follow_the_law(objective):
    """Mask counts and sets, within five standard errors."""
    masked, _ = draws(objective)
    n = len(masked)
    law = [float(p) for p in objective.law(4).probability]
    patterns = np.bincount(masked @ [1, 2, 4, 8], minlength=16)
    for pattern, seen in enumerate(patterns):
        k = pattern.bit_count()
        p = law[k] / comb(4, k)
        error = sqrt(p * (1 - p) * n)
        assert abs(seen - p * n) <= 5 * error
    counts = np.bincount(masked.sum(axis=1), minlength=5)
    for p, seen in zip(law, counts, strict=True):
        assert abs(seen - p * n) <= 5 * sqrt(p * (1 - p) * n)


@each
def test_drawn_weights(objective):
    masked, weight = draws(objective)
    k = masked.sum(axis=1, keepdims=True)
    assert np.all((weight > 0) == masked)
    if objective.name == "uniform_count":
        wanted = np.where(masked, 4 / k, 0)
    elif objective.name == "inverse_t":
        row = weight.max(axis=1, keepdims=True)
        assert np.all(row[k > 0] >= 1 - 1e-12)
        wanted = np.where(masked, row, 0)
    else:
        wanted = masked.astype(float)
    assert np.allclose(weight, wanted, rtol=1e-12, atol=0)


def test_drawn_weights_of_inverse_t():
    """1/w is the rate: given k masks of L, t is Beta(k + 1, L - k + 1)."""
    masked, weight = draws(inverse_t())
    k = masked.sum(axis=1)
    for count in range(1, 5):
        t = 1 / weight[k == count].max(axis=1)
        a, b = count + 1, 4 - count + 1
        mean, variance = a / (a + b), a * b / (a + b) ** 2 / (a + b + 1)
        assert abs(t.mean() - mean) < 5 * sqrt(variance / len(t))
        assert t.var() == pytest.approx(variance, rel=0.05)


@each
def test_drawn_loss_has_the_exact_mean(objective):
    """(weight * ce).sum() over one big batch; five standard errors."""
    one = lattice(2, 4, low=15)
    masked, weight = draws(objective)
    cost = -np.log(one.table[masked @ [1, 2, 4, 8]])
    losses = (weight * cost).sum(axis=1)
    error = losses.std() / sqrt(len(losses))
    assert abs(losses.mean() - one.mean(objective)) < 5 * error


@pytest.mark.parametrize(
    "objective", OBJECTIVES[1:], ids=[o.name for o in OBJECTIVES[1:]]
)
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_a_split_batch_adds_up(objective, parts):
    """The weights carry 1/B: parts sum to the mean of the rows' losses."""
    one, batch = lattice(4, 4), 8
    rng = np.random.default_rng(3)
    masked, weight = (v[:, 0] for v in objective.draw(batch, 4, rng))
    cost = -np.log(one.table[masked @ [1, 2, 4, 8]])
    losses = [
        (w * c).sum()
        for w, c in zip(
            np.split(weight, parts), np.split(cost, parts), strict=True
        )
    ]
    rows = cost.sum(axis=1)
    if objective.name == "uniform_count":
        rows *= 4 / masked.sum(axis=1)
    assert len(losses) == parts
    assert sum(losses) == pytest.approx(rows.mean(), rel=1e-12)


@each
@settings(max_examples=15)
@given(seed=seeds)
def test_only_editable_positions_are_masked(objective, seed):
    rng = np.random.default_rng(seed)
    editable = rng.random((50, 6)) < 0.5
    editable[:, rng.integers(6)] = True
    masked, weight = objective.draw(50, 6, rng, editable)
    assert np.all(masked[:, 0] <= editable)
    assert np.all((weight > 0) == masked)
    one_row = objective.draw(50, 6, rng, editable[0])[0][:, 0]
    assert np.all(one_row <= editable[0])


@each
def test_length_is_the_number_of_editable_positions(objective):
    """Two editable positions of five: the law of length 2."""
    n = 30_000
    editable = np.array([False, True, False, False, True])
    masked, weight = objective.draw(n, 5, np.random.default_rng(9), editable)
    masked, weight = masked[:, 0], weight[:, 0] * n
    law = objective.law(2)
    counts = np.bincount(masked.sum(axis=1), minlength=3)
    for p, seen in zip(law.probability, counts, strict=True):
        assert abs(seen - p * n) <= 5 * sqrt(p * (1 - p) * n)
    pair = masked.sum(axis=1) == 1
    assert abs(masked[pair, 1].mean() - 0.5) < 5 / sqrt(4 * pair.sum())
    if objective.name == "uniform_count":
        assert np.all(weight[pair][masked[pair]] == pytest.approx(2))


def test_rows_of_one_batch_may_differ_in_length():
    editable = np.tri(3, 3, dtype=bool)
    rng = np.random.default_rng(0)
    for _ in range(50):
        masked, weight = uniform_count().draw(3, 3, rng, editable)
        k = masked[:, 0].sum(axis=1)
        assert np.all((k >= 1) & (k <= [1, 2, 3]))
        assert weight.max(axis=(1, 2)) == pytest.approx([1, 2, 3] / k / 3)


@each
def test_draws_repeat_with_the_generator(objective):
    a = objective.draw(5, 7, np.random.default_rng(4))
    b = objective.draw(5, 7, np.random.default_rng(4))
    c = objective.draw(5, 7, np.random.default_rng(5))
    assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    assert not np.array_equal(a[0], c[0])


# BERT's inputs.


def test_bert_inputs():
    """80% masks, 10% random tokens, 10% left; five standard errors."""
    n, vocab_size = 100_000, 5
    rng = np.random.default_rng(6)
    x0 = rng.integers(vocab_size, size=(n // 10, 10))
    selected = rng.random(x0.shape) < 0.5
    shown = bert_inputs(x0, selected, vocab_size, rng)
    assert shown.dtype == np.int64 and shown.shape == x0.shape
    assert np.array_equal(shown[~selected], x0[~selected])
    chosen, clean = shown[selected], x0[selected]
    n = len(chosen)
    # A random token is the clean one once in five.
    wanted = {"mask": 0.8, "same": 0.1 + 0.1 / 5, "other": 0.1 * 4 / 5}
    seen = {
        "mask": np.mean(chosen == vocab_size),
        "same": np.mean(chosen == clean),
        "other": np.mean((chosen != clean) & (chosen != vocab_size)),
    }
    for name, p in wanted.items():
        assert abs(seen[name] - p) < 5 * sqrt(p * (1 - p) / n)
    other = chosen[(chosen != clean) & (chosen != vocab_size)]
    assert np.ptp(np.bincount(other) / len(other)) < 0.05


# Bad input.


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, float("nan")])
def test_bert_rate(rate):
    with pytest.raises(ValueError, match=f"^rate = {rate}: "):
        bert(rate)


@pytest.mark.parametrize("token", [5, -1])
def test_bert_inputs_outside_the_vocabulary(token):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"x0 = .*expected clean tokens"):
        bert_inputs([0, token], [True, False], 5, rng)


@each
def test_bad_draws(objective):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="batch = 0"):
        objective.draw(0, 3, rng)
    with pytest.raises(ValueError, match=r"positions by row \[0, 0\]"):
        objective.draw(2, 0, rng)
    hidden = np.array([[True, False], [False, False]])
    with pytest.raises(ValueError, match=r"positions by row \[1, 0\]"):
        objective.draw(2, 2, rng, hidden)
