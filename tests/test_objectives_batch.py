"""What a batch draws: laws against simulation, couplings, pooled means."""

from functools import cache
from itertools import product
from math import comb, inf, pi, sqrt

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import lattice, seeds, tea
from toyml.lattice import MaskLattice
from toyml.objectives import (
    autoregressive,
    batch_variance,
    bert,
    clamped_t,
    clipped_weight,
    forced_target,
    inverse_t,
    inverse_t_truncated,
    maskgit,
    per_example_mean,
    pooled_mean,
    power_count,
    random_order,
    scheduled,
    uniform_count,
)
from toyml.objectives.uniforms import COUPLINGS, draw_uniforms
from toyml.schedules import COSINE, LINEAR, polynomial

SQUARE, EPS = polynomial(2), 0.05
FORCED = [
    forced_target(),
    forced_target(COSINE),
    forced_target(SQUARE, COSINE),
    random_order(),
]
SHARED = [
    scheduled(COSINE),
    scheduled(SQUARE),
    scheduled(LINEAR, polynomial(0.5)),
    inverse_t_truncated(EPS),
    inverse_t_truncated(EPS, rescale=False),
    clamped_t(EPS),
    clipped_weight(EPS),
    per_example_mean(),
    per_example_mean("zero"),
    per_example_mean("redraw_mask_only"),
    power_count(0.7, 0.4),
    power_count(-1.0),
]
OBJECTIVES = FORCED + SHARED
each = pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
couplings = pytest.mark.parametrize("coupling", COUPLINGS)


def costs(one, masked):
    """Cross-entropies of drawn patterns, masked [..., L]."""
    return -np.log(one.table[masked @ (1 << np.arange(one.length))])


@cache
def law(objective, length):
    return objective.law(length)


# Draws against the law, within five standard errors. Fixed seeds.


def near(samples, wanted):
    error = np.std(samples) / sqrt(len(samples))
    return abs(np.mean(samples) - wanted) <= 5 * error + 1e-9 * abs(wanted)


def check_draws(exact, masked, weight, forced):
    """masked and weight [n, L] against a ``CountLaw``, weights times n."""
    n, length = masked.shape
    k = masked.sum(axis=1)
    scored = weight > 0
    if forced:
        assert np.all(scored.sum(axis=1) == 1)
        assert np.all(masked[scored])
    else:
        assert np.array_equal(scored, masked)
        shared = weight.max(axis=1, keepdims=True)
        assert np.array_equal(weight, np.where(masked, shared, 0))
    patterns = np.bincount(
        masked @ (1 << np.arange(length)), minlength=1 << length
    )
    for pattern, seen in enumerate(patterns):
        size = pattern.bit_count()
        p = float(exact.probability[size]) / comb(length, size)
        assert abs(seen - p * n) <= 5 * sqrt(p * (1 - p) * n) + 1e-6
    single = exact.single_squared or (0,) * (length + 1)
    for count in range(1, length + 1):
        kept = weight * (k == count)[:, None]
        # weight[k] is that of a masked position: k of the L are.
        wanted = exact.weight[count] * count / length
        for i in range(length):
            assert near(kept[:, i], float(wanted))
        square = (kept.max(axis=1)) ** 2
        # w^2 of a shared weight, or k E[w_i^2] of a weight on one of k
        wanted = exact.weight_squared[count] + count * single[count]
        assert near(square, float(wanted))


@each
def test_draws_follow_the_law(objective):
    n, length = 60_000, 3
    masked, weight = objective.draw(n, length, np.random.default_rng(7))
    assert masked.shape == weight.shape == (n, 1, length)
    assert masked.dtype == bool and weight.dtype == np.float64
    check_draws(
        law(objective, length),
        masked[:, 0],
        weight[:, 0] * n,
        objective in FORCED,
    )


@each
def test_drawn_losses_have_the_exact_moments(objective):
    one, n = lattice(2, 3, low=10), 60_000
    masked, weight = objective.draw(n, 3, np.random.default_rng(8))
    losses = (n * weight * costs(one, masked)).sum(axis=(1, 2))
    exact = law(objective, 3)
    assert near(losses, exact.mean(one))
    assert near(losses**2, exact.second_moment(one))


@each
def test_only_editable_positions_count(objective):
    """Rows of 1, 2 and 3 editable positions out of 5, in one batch."""
    n = 60_000
    sizes = np.arange(n) % 3 + 1
    places = [[4], [1, 3], [0, 1, 3]]
    editable = np.zeros((n, 5), bool)
    for size, place in enumerate(places, 1):
        editable[np.ix_(sizes == size, place)] = True
    rng = np.random.default_rng(9)
    masked, weight = (v[:, 0] for v in objective.draw(n, 5, rng, editable))
    assert not masked[~editable].any() and not weight[~editable].any()
    for size, place in enumerate(places, 1):
        rows = np.ix_(sizes == size, place)
        # The weights carry 1/n of the whole batch.
        check_draws(
            law(objective, size),
            masked[rows],
            weight[rows] * n,
            objective in FORCED,
        )


def test_every_row_keeps_its_own_rate():
    """A rate near 0 leaves one mask, the least there may be; near 1 all."""
    rng = np.random.default_rng(0)
    u = np.where(rng.random(40) < 0.5, 1e-9, 1 - 1e-9)
    sizes = np.arange(40) // 2 % 3 + 2
    editable = np.arange(5) < sizes[:, None]
    rule = per_example_mean("redraw_mask_only").given(u, sizes)
    masked, weight = rule.draw(editable, rng)
    wanted = np.where(u < 0.5, sizes, 1)
    assert np.array_equal(masked.sum(axis=1), wanted)
    assert weight.max(axis=1) == pytest.approx(sizes / wanted)


@pytest.mark.parametrize(
    "objective",
    [*OBJECTIVES, inverse_t(), pooled_mean(6), autoregressive()],
    ids=lambda o: o.name,
)
def test_one_row_of_editable_positions_serves_all(objective):
    row = np.array([True, False, True, True])
    short, full = (
        objective.draw(6, 4, np.random.default_rng(1), editable)
        for editable in (row, np.tile(row, (6, 1)))
    )
    for a, b in zip(short, full, strict=True):
        assert np.array_equal(a, b)
        assert not a[..., 1].any()


# The uniform numbers of a batch.


@couplings
def test_each_number_is_uniform(coupling):
    """Counts in twelve cells for every row, within five standard errors."""
    batch, n, cells = 4, 6000, 12
    rng = np.random.default_rng(3)
    u = np.array([draw_uniforms(batch, rng, coupling) for _ in range(n)])
    assert u.shape == (n, batch) and u.min() >= 0 and u.max() < 1
    error = sqrt(n / cells * (1 - 1 / cells))
    for row in u.T:
        seen, _ = np.histogram(row, cells, (0, 1))
        assert np.all(abs(seen - n / cells) <= 5 * error)


def test_how_the_numbers_hang_together():
    rng = np.random.default_rng(4)
    for _ in range(50):
        u = np.sort(draw_uniforms(8, rng, "stratified"))
        assert np.array_equal(np.floor(u * 8), np.arange(8))
        u = np.sort(draw_uniforms(8, rng, "lattice"))
        assert np.diff(u) == pytest.approx(1 / 8, abs=1e-15)
        u = draw_uniforms(8, rng, "antithetic").reshape(4, 2)
        assert u.sum(axis=1) == pytest.approx(1, abs=1e-15)
    u = np.array([draw_uniforms(2, rng) for _ in range(4000)])
    assert abs(np.corrcoef(u.T)[0, 1]) < 5 / sqrt(4000)
    u = np.array([draw_uniforms(4, rng, "stratified") for _ in range(4000)])
    # One per cell, whichever row: cell numbers 0..3 have covariance -5/12.
    seen = np.cov(np.floor(4 * u).T)[np.triu_indices(4, 1)]
    assert seen == pytest.approx(-5 / 12, abs=5 * 1.5 / sqrt(4000))
    # The places within the cells are drawn apart.
    inside = np.corrcoef((4 * u % 1).T)[np.triu_indices(4, 1)]
    assert np.all(abs(inside) < 5 / sqrt(4000))


class Extreme:
    """A generator whose uniform numbers are all one end of [0, 1)."""

    def __init__(self, value):
        self.value = value

    def random(self, size=None):
        return np.full(() if size is None else size, self.value)[()]

    def permutation(self, n):
        return np.arange(n)


@couplings
@pytest.mark.parametrize("value", [0.0, 1 - 2**-53])
def test_no_number_rounds_to_one(coupling, value):
    """At u = 1 the rate is 0 and the weight 1/t infinite."""
    for batch in (2, 256, 1000):
        u = draw_uniforms(batch, Extreme(value), coupling)
        assert u.min() >= 0 and u.max() < 1
        for objective in (inverse_t(), scheduled(COSINE), forced_target()):
            weight = objective.draw(batch, 2, Extreme(value), None, coupling)
            assert np.isfinite(weight).all()


# The variance of a coupled batch. The rows share only the numbers u: with
# f(u) = E[loss | u] and s(u) = E[loss^2 | u] the second moment of the sum is
# that of the rows plus f(u_b) f(u_c) for every pair. Both by enumeration of
# the patterns on a fine grid of u, the formulas written in t = u.

STEPS = 72_000


def rates(rate, weight):
    def outcomes(t, length, k):
        p = rate(t)
        return p**k * (1 - p) ** (length - k), weight(t) + 0 * t

    return outcomes


def counted(t, length, k):
    chosen = np.ceil(t * length) == k
    return chosen / comb(length, k), np.full_like(t, length / k)


def power(t, length, k):
    """p(k) = k / 6 and weight 6 / k^2 at L = 3, laid out from t = 0."""
    total = length * (length + 1) / 2
    end = k * (k + 1) / 2 / total
    chosen = (end - k / total <= t) & (t < end)
    return chosen / comb(length, k), np.full_like(t, total / k**2)


def zero(t, length, k):
    return t**k * (1 - t) ** (length - k), np.full_like(t, length / k)


def kept(t, length, k):
    some = 1 - (1 - t) ** length
    return zero(t, length, k)[0] / some, np.full_like(t, length / k)


def ceiling(t, length, k):
    chosen = np.ceil(length * np.cos(pi * t / 2)) == k
    return chosen / comb(length, k), np.ones_like(t)


def sine(t):
    return pi / 2 * np.sin(pi * t / 2)


def half_angle(t):
    return 2 * np.sin(pi * t / 4) ** 2


COUPLED = {
    scheduled(SQUARE): rates(lambda t: t**2, lambda t: 2 / t),
    scheduled(COSINE): rates(half_angle, lambda t: sine(t) / half_angle(t)),
    inverse_t_truncated(EPS): rates(
        lambda t: EPS + (1 - EPS) * t,
        lambda t: (1 - EPS) / (EPS + (1 - EPS) * t),
    ),
    clamped_t(EPS): rates(
        lambda t: np.maximum(t, EPS), lambda t: 1 / np.maximum(t, EPS)
    ),
    clipped_weight(EPS): rates(lambda t: t, lambda t: 1 / np.maximum(t, EPS)),
    bert(0.3): rates(lambda t: 0.3 + 0 * t, lambda t: 1),
    maskgit(True): rates(lambda t: np.cos(pi * t / 2), lambda t: 1),
    maskgit(): ceiling,
    uniform_count(): counted,
    power_count(1.0): power,
    per_example_mean("zero"): zero,
    per_example_mean("redraw_mask_only"): kept,
    forced_target(): (lambda t: t, lambda t: 1),
    forced_target(COSINE): (half_angle, sine),
}


def given_u(one, rule, t):
    """f and s at every t, pattern by pattern and, if forced, target."""
    length = one.length
    f, s = np.zeros_like(t), np.zeros_like(t)
    for pattern in range(1, 1 << length):
        k = pattern.bit_count()
        cost = -np.log(one.table[pattern])
        if not isinstance(rule, tuple):
            p, w = rule(t, length, k)
            f += p * w * cost.sum()
            s += p * (w * cost.sum()) ** 2
            continue
        rate, weight = (part(t) for part in rule)
        p = rate ** (k - 1) * (1 - rate) ** (length - k) / length
        for i in range(length):
            f += p * length * weight * cost[i]  # 0 where i is visible
            s += p * (length * weight * cost[i]) ** 2
    return f, s


def by_grid(f, s, batch, coupling):
    """Variance of the batch mean, f and s on midpoints of equal steps."""
    steps = len(f)
    mean = f.mean()
    if coupling == "independent":
        pairs = batch * (batch - 1) * mean**2
    elif coupling == "stratified":
        cells = f.reshape(batch, -1).mean(axis=1)
        pairs = cells.sum() ** 2 - (cells**2).sum()
    elif coupling == "antithetic":
        together = batch * (f * f[::-1]).mean()
        pairs = together + batch * (batch - 2) * mean**2
    else:
        pairs = sum(
            (f * np.roll(f, (b - c) * steps // batch)).mean()
            for b, c in product(range(batch), repeat=2)
            if b != c
        )
    second = batch * s.mean() + pairs
    return second / batch**2 - mean**2


@pytest.mark.parametrize("objective", COUPLED, ids=lambda o: o.name)
@pytest.mark.parametrize("length", [1, 3])
def test_batch_variance(objective, length):
    """The midpoint rule errs by about 1 / STEPS^2, 1 / STEPS at a jump."""
    one = lattice(5, length, low=3)
    t = (np.arange(STEPS) + 0.5) / STEPS
    f, s = given_u(one, COUPLED[objective], t)
    for coupling in COUPLINGS:
        for batch in (2, 4, 6):
            got = batch_variance(one, objective, batch, coupling)
            wanted = by_grid(f, s, batch, coupling)
            assert got == pytest.approx(wanted, rel=2e-5, abs=1e-8)


@pytest.mark.parametrize("power", [1.01, 1.1, 1.5])
def test_batch_variance_of_a_fractional_power(power):
    """L = 1, cost 1, two rows, rho = t^p: f(t) = p t^(p - 1).

    cross is E[f(t_1) f(t_2)]; a beta integral for antithetic pairs.
    """
    one = MaskLattice(np.array([[1.0], [np.exp(-1)]]))
    early = 2 * 0.5**power  # mean of f over [0, 1/2]
    with mpmath.workdps(30):
        shifted = mpmath.quad(
            lambda t: (t * (t + 0.5)) ** (power - 1), [0, 0.5]
        )
        cross = {
            "independent": 1,
            "stratified": early * (2 - early),
            "antithetic": power**2 * mpmath.beta(power, power),
            "lattice": 2 * power**2 * shifted,
        }
    for coupling in COUPLINGS:
        # E[(x_1 + x_2)^2] / 4 - 1, the second moment p^2 / (p - 1) each
        wanted = power**2 / (power - 1) / 2 + cross[coupling] / 2 - 1
        got = batch_variance(one, scheduled(polynomial(power)), 2, coupling)
        assert got == pytest.approx(float(wanted), rel=1e-12)


@settings(max_examples=10)
@given(st.integers(1, 4), seeds, st.integers(1, 5))
def test_independent_rows(length, seed, batch):
    one = lattice(seed, length)
    for objective in (uniform_count(), forced_target(), clamped_t(EPS)):
        wanted = float(one.variance(objective)) / batch
        got = batch_variance(one, objective, batch)
        assert got == pytest.approx(wanted, rel=1e-12)
    assert batch_variance(lattice(seed, 2, low=1), bert(1), batch) == (
        pytest.approx(0, abs=1e-12)
    )


def test_batch_variance_is_infinite_with_that_of_the_loss():
    for coupling in COUPLINGS:
        assert batch_variance(tea(), inverse_t(), 4, coupling) == inf


@couplings
@pytest.mark.parametrize(
    "objective",
    [
        clamped_t(0.2),
        forced_target(),
        uniform_count(),
        per_example_mean(),
        power_count(1.0, 0.5),
    ],
    ids=lambda o: o.name,
)
def test_coupled_draws(objective, coupling):
    """Mean and variance of drawn batches, five standard errors."""
    one, batch, n = lattice(5, 3, low=3), 4, 4000
    rng = np.random.default_rng(11)
    losses = np.empty(n)
    for i in range(n):
        masked, weight = objective.draw(batch, 3, rng, coupling=coupling)
        losses[i] = (weight * costs(one, masked)).sum()
    assert near(losses, one.mean(objective))
    wanted = batch_variance(one, objective, batch, coupling)
    assert near((losses - one.mean(objective)) ** 2, wanted)


# One mean over all masked tokens of a batch.


def pooled_moments(one, batch, empty):
    """Every pattern of every sequence; t of a sequence integrated out."""
    length = one.length
    first = second = kept = 0
    for chosen in product(range(1 << length), repeat=batch):
        chance, total, loss = 1, 0, 0
        for pattern in chosen:
            k = pattern.bit_count()
            # the integral of t^k (1 - t)^(L - k)
            chance /= (length + 1) * comb(length, k)
            total += k
            loss -= np.log(one.table[pattern]).sum()
        if total:
            kept += chance
            first += chance * length * loss / total
            second += chance * (length * loss / total) ** 2
    if empty == "zero":
        kept = 1
    return first / kept, second / kept


@settings(max_examples=10)
@given(
    st.sampled_from([(1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2)]),
    seeds,
    st.sampled_from(["zero", "redraw"]),
)
def test_pooled_mean(sizes, seed, empty):
    length, batch = sizes
    one, objective = lattice(seed, length), pooled_mean(batch, empty)
    first, second = pooled_moments(one, batch, empty)
    assert one.mean(objective) == pytest.approx(first, rel=1e-12)
    exact = objective.law(length)
    assert exact.second_moment(one) == pytest.approx(second, rel=1e-12)
    got = one.variance(objective)
    assert got == pytest.approx(second - first**2, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("empty", ["zero", "redraw"])
def test_pooled_mean_of_one_sequence(empty):
    one, alone = lattice(6, 4), per_example_mean(empty)
    pooled = pooled_mean(1, empty)
    assert one.mean(pooled) == pytest.approx(one.mean(alone), rel=1e-12)
    assert one.variance(pooled) == pytest.approx(one.variance(alone), rel=1e-9)


def test_pooled_mean_of_many_sequences():
    """It tends to (2/L) times the loss without 1/t, an error like 1/B."""
    both, singles = np.log(50), np.log(2.5)
    per_token = both / 3 + singles / 6  # 2/L = 1 at L = 2
    assert round(per_token, 4) == 1.4567
    one = tea()
    values = [one.mean(pooled_mean(n)) / 2 for n in (100, 200, 400)]
    errors = [v - per_token for v in values]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.02)
    limit = 2 * values[2] - values[1]
    assert limit == pytest.approx(per_token, abs=1e-5)
    # Far from the NELBO, and the variance falls like 1/B.
    assert abs(limit - one.nelbo() / 2) > 0.2
    spread = [n * one.variance(pooled_mean(n)) for n in (200, 400)]
    assert spread[0] == pytest.approx(spread[1], rel=0.02)


@pytest.mark.parametrize("empty", ["zero", "redraw"])
def test_pooled_draws(empty):
    one, batch, n = lattice(2, 2, low=10), 2, 6000
    objective, rng = pooled_mean(batch, empty), np.random.default_rng(12)
    losses, blank = np.empty(n), 0
    for i in range(n):
        masked, weight = objective.draw(batch, 2, rng)
        assert np.array_equal(weight > 0, masked)
        losses[i] = (weight * costs(one, masked)).sum()
        blank += not masked.any()
        if masked.any():
            # L / (sum of all M), the same for all
            wanted = 2 / masked.sum()
            assert np.all(weight[masked] == wanted)
    assert near(losses, one.mean(objective))
    assert near(losses**2, objective.law(2).second_moment(one))
    p = 1 / 9 if empty == "zero" else 0
    assert abs(blank - p * n) <= 5 * sqrt(p * (1 - p) * n)


def test_pooled_draws_among_editable_positions():
    """L is the mean number of editable positions, here 2."""
    editable = np.array([[1, 0, 1, 1], [0, 0, 0, 1]], bool)
    rng = np.random.default_rng(2)
    for _ in range(40):
        masked, weight = pooled_mean(2, "redraw").draw(2, 4, rng, editable)
        assert not masked[:, 0][~editable].any()
        assert np.array_equal(weight > 0, masked)
        assert weight.sum() == pytest.approx(2, rel=1e-12)


# Bad input.


def raises(message, call, *args, **kwargs):
    with pytest.raises(ValueError) as error:
        call(*args, **kwargs)
    assert str(error.value).startswith(message)


def test_bad_couplings():
    rng = np.random.default_rng(0)
    message = "coupling = 'sobol': expected one of independent"
    raises(message, forced_target().draw, 2, 2, rng, coupling="sobol")
    raises(message, pooled_mean(2).draw, 2, 2, rng, coupling="sobol")
    raises(message, batch_variance, tea(), forced_target(), 2, "sobol")
    message = "batch = 3: expected"
    raises(message, forced_target().draw, 3, 2, rng, coupling="antithetic")
    for objective in (forced_target(), inverse_t()):
        raises(message, batch_variance, tea(), objective, 3, "antithetic")
    raises("batch = 0: ", batch_variance, tea(), forced_target(), 0)
    for objective in (pooled_mean(2), autoregressive()):
        raises("objective = ", batch_variance, tea(), objective, 2)


def test_bad_pooled_means():
    raises("batch = 0, empty = 'zero': expected", pooled_mean, 0)
    raises("batch = 2, empty = 'keep': expected", pooled_mean, 2, "keep")
    rng = np.random.default_rng(0)
    raises("batch = 3: this law is one of 2", pooled_mean(2).draw, 3, 2, rng)


@pytest.mark.parametrize(
    "objective",
    [*OBJECTIVES, pooled_mean(2), autoregressive()],
    ids=lambda o: o.name,
)
def test_bad_editable(objective):
    rng = np.random.default_rng(0)
    for shape in ((3,), (3, 4), (2, 1), ()):
        message = f"editable has shape {shape}; expected (4,) or (2, 4)"
        raises(message, objective.draw, 2, 4, rng, np.ones(shape, bool))
    hidden = np.array([[True, False], [False, False]])
    message = "batch = 2, editable positions by row [1, 0]: expected"
    raises(message, objective.draw, 2, 2, rng, hidden)
