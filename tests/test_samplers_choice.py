"""Temperature, top-p and the draw of a token."""

from fractions import Fraction
from math import exp, log

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import fraction_distribution, seeds
from toyml.samplers import draw_tokens, sharpen

HALF = Fraction(1, 2)


def test_temperature_0_takes_the_lowest_of_equals():
    rows = np.array([[0.2, 0.4, 0.4], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]])
    for p in (rows, rows.astype(np.float32)):
        got = sharpen(p, temperature=0)
        assert got.dtype == np.float64
        assert got.argmax(axis=1).tolist() == [1, 0, 2]
        assert np.all(np.sort(got, axis=1) == [0, 0, 1])
    sevenths = np.array([[Fraction(3, 7), Fraction(3, 7), Fraction(1, 7)]])
    got = sharpen(sevenths, 0)
    assert got.tolist() == [[1, 0, 0]]
    assert all(isinstance(v, Fraction) for v in got[0])


@given(seeds, st.sampled_from([0.2, 0.5, 0.9, 1.0, 1.7, 10.0]))
def test_temperature_is_a_power(seed, temperature):
    rng = np.random.default_rng(seed)
    p = fraction_distribution(rng, (3, 4), zeros=True).astype(float)
    got = sharpen(p, temperature)
    for row, out in zip(p, got, strict=True):
        powers = [v ** (1 / temperature) for v in row]
        wanted = np.array(powers) / sum(powers)
        assert np.allclose(out, wanted, rtol=1e-12, atol=0)
        assert np.all((out == 0) == (row == 0))


@given(seeds, st.sampled_from([Fraction(1), HALF, Fraction(1, 3)]))
def test_exact_temperature(seed, temperature):
    p = fraction_distribution(np.random.default_rng(seed), (2, 4), zeros=True)
    got = sharpen(p, temperature)
    assert np.all(got.sum(axis=-1) == 1)
    floats = sharpen(p.astype(float), float(temperature))
    assert np.allclose(got.astype(float), floats, rtol=1e-12, atol=0)
    power = int(1 / temperature)
    top = p.max(axis=-1, keepdims=True)
    best = got.max(axis=-1, keepdims=True)
    assert np.all(got / best == (p / top) ** power)


def test_extreme_temperatures():
    p = np.array([1e-300, 0.3, 0.7 - 1e-300, 0.0])
    assert sharpen(p, 1e-308).tolist() == [0, 0, 1, 0]
    assert sharpen(p, 1e-3).tolist()[2] == pytest.approx(1)
    hot = sharpen(p, 1e6)
    assert np.allclose(hot[:3], 1 / 3, rtol=1e-3) and hot[3] == 0
    by_hand = exp((log(1e-300) - log(0.7)) / 100)
    got = sharpen(p, 100)
    assert got[0] / got[2] == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize(
    "top_p, kept",
    [
        ("1/10", [1]),
        ("4/10", [1]),  # reached exactly: no second token
        ("41/100", [0, 1]),  # the one that crosses is kept
        ("6/10", [0, 1]),  # 0, 2 and 3 are equal: in that order
        ("61/100", [0, 1, 2]),
        ("8/10", [0, 1, 2]),
        ("81/100", [0, 1, 2, 3]),
        ("1", [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_token_that_crosses(top_p, kept):
    p = np.array([[Fraction(n, 10) for n in (2, 4, 2, 2)]])
    got = sharpen(p, top_p=Fraction(top_p))
    assert np.flatnonzero(got[0]).tolist() == kept
    assert np.all(got[0, kept] == p[0, kept] / p[0, kept].sum())
    eighths = np.array([[0.25, 0.5, 0.125, 0.125]])
    for cut, ids in ((0.5, [1]), (0.51, [0, 1]), (0.75, [0, 1])):
        got = sharpen(eighths, top_p=cut)
        assert np.flatnonzero(got[0]).tolist() == ids
        wanted = eighths[0, ids] / eighths[0, ids].sum()
        assert np.allclose(got[0, ids], wanted, rtol=1e-15)


def test_top_p_comes_after_temperature():
    p = np.array([0.5, 0.3, 0.2])
    cold = p**2 / np.sum(p**2)  # 0.658, 0.237, 0.105
    assert np.count_nonzero(sharpen(p, 0.5, top_p=0.6)) == 1
    assert np.count_nonzero(sharpen(p, 1, top_p=0.6)) == 2
    got = sharpen(p, 0.5, top_p=0.8)
    assert np.allclose(got, [*(cold[:2] / cold[:2].sum()), 0], rtol=1e-14)


def test_nothing_asked_nothing_changed():
    p = np.array([[0.25, 0.75], [1.0, 0.0]])
    before = p.copy()
    assert np.all(sharpen(p) == p)
    exact = fraction_distribution(np.random.default_rng(0), (5, 3))
    assert np.all(sharpen(exact) == exact)
    sharpen(p, 0.5, 0.5), sharpen(p, 0)
    assert np.all(p == before)
    assert sharpen(np.empty((0, 3)), 0.5, 0.5).shape == (0, 3)


@pytest.mark.parametrize(
    "temperature, top_p, message",
    [
        (-0.1, 1, "temperature = -0.1"),
        (float("inf"), 1, "temperature = inf"),
        (float("nan"), 1, "temperature = nan"),
        (1, 0, "top_p = 0"),
        (1, 1.01, "top_p = 1.01"),
        (1, float("nan"), "top_p = nan"),
    ],
)
def test_bad_choices(temperature, top_p, message):
    with pytest.raises(ValueError, match=message):
        sharpen(np.array([0.5, 0.5]), temperature, top_p)


def test_exact_rows_need_exact_choices():
    p = np.array([Fraction(1, 4), Fraction(3, 4)])
    with pytest.raises(ValueError, match="temperature = 2: .*whole number"):
        sharpen(p, 2)
    with pytest.raises(ValueError, match="top_p = 0.5: .*Fraction"):
        sharpen(p, top_p=0.5)


@settings(max_examples=50)
@given(seeds, st.booleans())
def test_draws_invert_the_distribution_function(seed, zeros):
    """Token v for u in [F(v - 1), F(v)), in Fractions."""
    rng = np.random.default_rng(seed)
    p = fraction_distribution(rng, (20, 4), zeros)
    u = rng.integers(0, 1 << 20, 20)
    got = draw_tokens(p.astype(float), u / (1 << 20))
    assert got.dtype == np.int64
    for row, numerator, token in zip(p, u.tolist(), got, strict=True):
        below = sum(row[:token], Fraction(0))
        assert below <= Fraction(numerator, 1 << 20) < below + row[token]


def test_draws_at_the_edges():
    """u = 0 and the largest u below 1; a zero is never drawn."""
    last = np.nextafter(1, 0)
    rows = np.array([[0, 0.5, 0, 0.5, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]])
    for row, ends in zip(rows, ([1, 3], [0, 0], [4, 4]), strict=True):
        got = draw_tokens(np.array([row, row]), np.array([0, last]))
        assert got.tolist() == ends
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(50, 0.1), 1000)
    p[:, 40:] = 0
    for total in (1, 1 - 1e-7, 1 + 1e-7):
        got = draw_tokens(p * total / p.sum(1, keepdims=True), [last] * 1000)
        assert np.all(got < 40)


def test_rare_tokens_keep_their_probability():
    """One token at 0.999, 100,000 at 1e-8 each: cells of 1e-8 are hit.

    A Gumbel draw in float32 never gives one: -log u is at least 6e-8.
    """
    p = np.full(100_001, 1e-8)
    p[0] = 0.999
    rare = np.array([1, 2, 50_000, 99_999, 100_000])
    u = 0.999 + (rare - 0.5) * 1e-8
    got = draw_tokens(np.broadcast_to(p, (5, len(p))), u)
    assert got.tolist() == rare.tolist()
    assert draw_tokens(p, np.float64(0.9989999)) == 0


def gumbel(u):
    """A Gumbel number from a uniform u in (0, 1), in float64."""
    return -np.log(-np.log1p(u - 1))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gumbel_draws_have_the_sharpened_law(temperature):
    """Two ways to write them, the same tokens; and the law of ``sharpen``."""
    rng = np.random.default_rng(3)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    n = 200_000
    u = rng.random((n, 4))
    logits = np.log(p)
    added = np.argmax(logits + temperature * gumbel(u), axis=1)
    divided = np.argmax(np.exp(logits) / (-np.log(u)) ** temperature, axis=1)
    assert np.all(added == divided)
    law = sharpen(p, temperature)
    seen = np.bincount(added, minlength=4)
    slack = 5 * np.sqrt(n * law * (1 - law))
    assert np.all(np.abs(seen - n * law) < slack)
    drawn = draw_tokens(np.broadcast_to(law, (n, 4)), rng.random(n))
    seen = np.bincount(drawn, minlength=4)
    assert np.all(np.abs(seen - n * law) < slack)
