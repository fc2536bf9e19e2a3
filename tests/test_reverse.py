"""The reverse step against Bayes on the forward matrices."""

from fractions import Fraction
from math import inf, log

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cases import EXACT_ENDS, LATE, fraction_distribution, seeds
from toyml import exact, reverse, schedules
from toyml.schedules import COSINE, LINEAR, log_linear, polynomial

EXACT = [LINEAR, polynomial(2), log_linear(1e-3), LATE]
FLOAT = [*EXACT_ENDS, log_linear(1e-3), LATE]
HALF = Fraction(1, 2)

vocab_sizes = st.integers(1, 4)
fractions = st.integers(1, 60).map(lambda n: Fraction(n, 60))
triples = st.sets(fractions, min_size=3, max_size=3).map(sorted)
exact_pairs = st.tuples(st.just(Fraction(0)) | fractions, fractions)
float_pairs = st.tuples(st.just(0.0) | st.floats(0.01, 0.9), st.floats(0.1, 1))


def step_matrix(schedule, s, t, vocab_size):
    """Stay with alpha(t) / alpha(s), else go to the mask, and stay there."""
    keep = schedule.survival(t) / schedule.survival(s)
    rows = np.eye(vocab_size + 1, dtype=object) * keep
    rows[:, vocab_size] = 1 - keep
    rows[vocab_size, vocab_size] = 1
    return rows


def by_bayes(schedule, s, t, x_t, x_0, vocab_size):
    """q(x_s | x_t, x_0) from q(x_s | x_0) q(x_t | x_s), normalised."""
    first = np.zeros(vocab_size + 1, dtype=object)
    first[x_0] = schedule.survival(s)
    first[vocab_size] = schedule.masked(s)
    joint = first * step_matrix(schedule, s, t, vocab_size)[:, x_t]
    return joint / joint.sum()


def close(got, want):
    return np.allclose(
        np.asarray(got, float), np.asarray(want, float), rtol=0, atol=1e-12
    )


@given(st.sampled_from(EXACT), exact_pairs, vocab_sizes, seeds)
def test_posterior_by_two_routes_exactly(schedule, pair, vocab_size, seed):
    s, t = pair
    assume(s < t)
    x_0 = seed % vocab_size
    for x_t in (x_0, vocab_size):
        if x_t == x_0 and schedule.survival(t) == 0:
            continue
        got = reverse.posterior(schedule, s, t, x_t, x_0, vocab_size)
        want = by_bayes(schedule, s, t, x_t, x_0, vocab_size)
        assert list(got) == [sympy.sympify(v) for v in want]


@given(st.sampled_from(FLOAT), float_pairs, vocab_sizes, seeds)
def test_posterior_by_two_routes_in_floats(schedule, pair, vocab_size, seed):
    s, t = pair
    assume(s < t)
    rng = np.random.default_rng(seed)
    x_0 = rng.integers(vocab_size, size=(2, 3))
    hide = rng.random((2, 3)) < 0.5
    hide |= schedule.survival(t) == 0
    x_t = np.where(hide, vocab_size, x_0)
    got = reverse.posterior(schedule, s, t, x_t, x_0, vocab_size)
    assert got.shape == (2, 3, vocab_size + 1)
    for at in np.ndindex(2, 3):
        want = by_bayes(schedule, s, t, x_t[at], x_0[at], vocab_size)
        assert close(got[at], want)


@given(st.sampled_from(EXACT), triples)
def test_forward_kernels_compose(schedule, times):
    s, u, t = times
    a, b, c = (
        reverse.forward_kernel(schedule, *pair, 3)
        for pair in ((s, u), (u, t), (s, t))
    )
    assert np.all(a @ b == c)
    assert np.all(a.sum(axis=1) == 1)
    assert np.all(a == step_matrix(schedule, s, u, 3))


def test_forward_kernel_in_floats():
    got = reverse.forward_kernel(COSINE, 0.2, 0.7, 3)
    assert got.dtype == float
    assert close(got, step_matrix(COSINE, 0.2, 0.7, 3))


def test_forward_kernel_needs_an_earlier_time():
    with pytest.raises(ValueError, match="earlier < later"):
        reverse.forward_kernel(LINEAR, 0.5, 0.5, 2)


@given(st.sampled_from(EXACT), triples)
def test_two_reverse_steps_compose_to_one(schedule, times):
    s, u, t = times
    x_0, mask = 1, 2
    middle = reverse.posterior(schedule, u, t, mask, x_0, 2)
    given_middle = [
        reverse.posterior(schedule, s, u, x_u, x_0, 2) for x_u in (x_0, mask)
    ]
    got = middle[x_0] * given_middle[0] + middle[mask] * given_middle[1]
    want = reverse.posterior(schedule, s, t, mask, x_0, 2)
    assert middle[0] == 0
    assert [sympy.expand(v) for v in got] == list(want)


@given(st.sampled_from(EXACT), triples, seeds)
def test_two_model_steps_compose_to_one(schedule, times, seed):
    s, u, t = times
    probs = fraction_distribution(np.random.default_rng(seed), 3)
    states = np.arange(4)
    first = reverse.transition(schedule, u, t, states, probs, 3)
    second = reverse.transition(schedule, s, u, states, probs, 3)
    direct = reverse.transition(schedule, s, t, states, probs, 3)
    assert np.all(np.vectorize(sympy.expand)(first @ second) == direct)


@given(st.sampled_from(EXACT), exact_pairs, vocab_sizes, seeds, st.booleans())
def test_transition_averages_the_posterior(
    schedule, pair, vocab_size, seed, leaks
):
    s, t = pair
    assume(s < t)
    rng = np.random.default_rng(seed)
    probs = fraction_distribution(rng, vocab_size + leaks)
    got = reverse.transition(schedule, s, t, vocab_size, probs, vocab_size)
    want = sum(
        probs[x] * reverse.posterior(schedule, s, t, vocab_size, x, vocab_size)
        for x in range(vocab_size)
    )
    if leaks:  # a leaked token is one that stays a mask
        want[vocab_size] += probs[vocab_size]
    assert [sympy.expand(v) for v in got] == [sympy.expand(v) for v in want]


def kl_by_hand(p, q):
    total = 0.0
    for a, b in zip(p, q, strict=True):
        if a > 0:
            total += a * log(a / b) if b > 0 else inf
    return total


@given(
    st.sampled_from(FLOAT), float_pairs, vocab_sizes, seeds, st.booleans()
)
def test_coordinate_kl_over_the_whole_vocabulary(
    schedule, pair, vocab_size, seed, leaks
):
    s, t = pair
    assume(s < t)
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(vocab_size + leaks), size=5)
    x_0 = rng.integers(vocab_size, size=5)
    x_t = np.full(5, vocab_size)
    if schedule.survival(t) > 0:
        x_t[0] = x_0[0]
    got = reverse.coordinate_kl(schedule, s, t, x_t, x_0, probs, vocab_size)
    q = reverse.posterior(schedule, s, t, x_t, x_0, vocab_size)
    p = reverse.transition(schedule, s, t, x_t, probs, vocab_size)
    r = schedule.reveal(s, t)
    cross_entropy = -np.log(probs[range(5), x_0])
    for i in range(5):
        assert got[i] == pytest.approx(kl_by_hand(q[i], p[i]), rel=1e-10)
        assert reverse.kl(q, p)[i] == pytest.approx(got[i], rel=1e-10)
        if x_t[i] != vocab_size:
            assert got[i] == 0
        elif not leaks:
            assert got[i] == pytest.approx(r * cross_entropy[i], rel=1e-12)
        elif s > 0:
            assert 0 <= got[i] < r * cross_entropy[i]


@given(exact_pairs, seeds, st.booleans())
def test_coordinate_kl_exactly(pair, seed, leaks):
    s, t = pair
    assume(s < t)
    rng = np.random.default_rng(seed)
    probs = fraction_distribution(rng, 2 + leaks)
    got = reverse.coordinate_kl(LINEAR, s, t, 2, 1, probs, 2)
    r = sympy.Rational(t - s) / sympy.Rational(t)
    q = [r, 1 - r]
    p = [r * probs[1], 1 - r + (r * probs[2] if leaks else 0)]
    want = sum(a * sympy.log(a / b) for a, b in zip(q, p, strict=True) if a)
    assert exact.combine(got) == exact.combine(want)
    assert not got.has(sympy.nan)


def test_kl_is_minus_r_log_mu_in_sympy():
    s, t = schedules.s, schedules.t
    a, b = sympy.symbols("a b", positive=True)
    head = np.array([a, b, 1 - a - b], dtype=object)
    q = reverse.posterior(LINEAR, s, t, 3, 1, 3)
    p = reverse.transition(LINEAR, s, t, 3, head, 3)
    r = (t - s) / t
    long = sympy.expand_log(reverse.kl(q, p), force=True)
    assert sympy.simplify(long + r * sympy.log(b)) == 0
    short = reverse.coordinate_kl(LINEAR, s, t, 3, 1, head, 3)
    assert sympy.simplify(short + r * sympy.log(b)) == 0


def test_leakage_per_unit_rate():
    """Q4: as r goes to 0, KL / r tends to -log mu(x0) - mu(mask)."""
    head, t = np.array([0.5, 0.2, 0.3]), 0.5
    s = t * (1 - 1e-9)
    got = reverse.coordinate_kl(LINEAR, s, t, 2, 0, head, 2)
    assert got / LINEAR.reveal(s, t) == pytest.approx(log(2) - 0.3, rel=1e-8)


def test_no_mass_on_the_truth_is_infinite():
    for head in ([0.0, 1.0], [0.0, 0.5, 0.5]):
        assert reverse.coordinate_kl(LINEAR, 0.2, 0.5, 2, 0, head, 2) == inf
    head = np.array([Fraction(0), Fraction(1)])
    got = reverse.coordinate_kl(LINEAR, Fraction(0), HALF, 2, 0, head, 2)
    assert got == sympy.oo


@pytest.mark.parametrize("schedule", EXACT_ENDS, ids=lambda x: x.name)
def test_at_time_zero_all_is_revealed(schedule):
    got = reverse.posterior(schedule, 0.0, 0.7, 2, 1, 2)
    assert list(got) == [0, 1, 0]
    head = np.array([0.25, 0.5, 0.25])
    got = reverse.coordinate_kl(schedule, 0.0, 0.7, 2, 1, head, 2)
    assert got == pytest.approx(log(2), rel=1e-15)
    assert reverse.coordinate_kl(schedule, 0.0, 0.7, 1, 1, head, 2) == 0


def test_a_quarter_of_the_masks_a_fifth_of_the_sequence():
    s, t = Fraction(3, 5), Fraction(4, 5)
    got = reverse.posterior(LINEAR, s, t, 2, 0, 2)
    assert list(got) == [Fraction(1, 4), 0, Fraction(3, 4)]
    assert t * got[0] == Fraction(1, 5)


@settings(max_examples=30)
@given(st.floats(1e-8, 1), st.floats(0, 15))
def test_posterior_keeps_its_digits_as_s_nears_t(t, k):
    s = t * (1 - 10.0**-k)
    assume(s < t)
    for schedule in (LINEAR, COSINE, polynomial(3)):
        got = reverse.posterior(schedule, s, t, 1, 0, 1)
        assert got[0] == schedule.reveal(s, t)
        assert got.sum() == pytest.approx(1, abs=1e-15)


BAD = [
    (dict(s=0.5), r"earlier = 0.5, later = 0.5"),
    (dict(s=0.6), r"earlier = 0.6, later = 0.5"),
    (dict(t=1.5), r"later = 1.5"),
    (dict(s=-0.1), r"earlier = -0.1"),
    (dict(x_t=4), r"x_t = 4: expected ids in 0..3"),
    (dict(x_t=-1), r"x_t = -1"),
    (dict(x_t=0.0), r"x_t = 0.0: expected integer"),
]
BAD_CLEAN = [
    (dict(x_0=3), r"x_0 = 3: expected ids in 0..2"),
    (dict(x_0=-1), r"x_0 = -1"),
    (dict(x_t=1), r"x_t = 1 at t = 0.5 has probability 0"),
    (dict(x_t=0, t=1.0), r"x_t = 0 at t = 1.0 has probability 0"),
]
BAD_HEAD = [
    (dict(probs=[0.5, 0.5, 0.1]), r"probs sums to \[1.1\]"),
    (dict(probs=[1.5, -0.5, 0.0]), r"probs .*nonnegative"),
    (dict(probs=[np.nan, 0.5, 0.5]), r"probs sums to \[nan\]"),
    (dict(probs=[0.5, 0.5]), r"probs has 2 columns; expected 3 or"),
    (dict(probs=[HALF, HALF, HALF]), r"probs sums to \[Fraction\(3, 2\)\]"),
    (dict(probs=[Fraction(2), Fraction(-1), Fraction(0)]), r"nonnegative"),
]
GOOD = dict(
    schedule=LINEAR,
    s=0.25,
    t=0.5,
    x_t=3,
    x_0=0,
    probs=[0.25, 0.5, 0.25],
    vocab_size=3,
)


def check_raises(function, names, change, message):
    arguments = {**GOOD, **change}
    with pytest.raises(ValueError, match=message):
        function(**{name: arguments[name] for name in names})


POSTERIOR = ("schedule", "s", "t", "x_t", "x_0", "vocab_size")
TRANSITION = ("schedule", "s", "t", "x_t", "probs", "vocab_size")


@pytest.mark.parametrize("change, message", BAD + BAD_CLEAN)
def test_posterior_bad_input(change, message):
    check_raises(reverse.posterior, POSTERIOR, change, message)


@pytest.mark.parametrize("change, message", BAD + BAD_HEAD)
def test_transition_bad_input(change, message):
    check_raises(reverse.transition, TRANSITION, change, message)


@pytest.mark.parametrize("change, message", BAD + BAD_CLEAN + BAD_HEAD)
def test_coordinate_kl_bad_input(change, message):
    check_raises(reverse.coordinate_kl, GOOD, change, message)
