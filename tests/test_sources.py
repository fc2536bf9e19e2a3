"""Data laws against sums over every sequence."""

from fractions import Fraction
from itertools import product
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import exp_exact, fraction_distribution, seeds
from toyml.sources import Joint, Markov, TeachingTable

few = settings(max_examples=25)


def joint_table(rng, length, vocab_size, zeros=True):
    flat = fraction_distribution(rng, vocab_size**length, zeros)
    return flat.reshape((vocab_size,) * length)


def random_chain(rng, length, vocab_size):
    """A chain of Fractions with zeros among its entries."""
    return Markov(
        fraction_distribution(rng, vocab_size, zeros=True),
        fraction_distribution(rng, (vocab_size, vocab_size), zeros=True),
        length,
    )


def chain_table(chain):
    """Every sequence's probability, multiplied out."""
    table = np.zeros((chain.vocab_size,) * chain.length)
    for x in np.ndindex(table.shape):
        table[x] = chain.initial[x[0]]
        for a, b in zip(x, x[1:], strict=False):
            table[x] *= chain.transition[a, b]
    return table


def patterns(length, vocab_size):
    return np.array(list(product(range(vocab_size + 1), repeat=length)))


def conditional(table, tokens):
    """[L, V] by summing over the sequences that agree; None if none does."""
    mask = table.shape[0]
    out = np.zeros((len(tokens), mask), dtype=object)
    for x in np.ndindex(table.shape):
        if all(v in (mask, w) for v, w in zip(tokens, x, strict=True)):
            for i, w in enumerate(x):
                out[i, w] += table[x]
    total = sum(out[0])
    return out / total if total else None


def possible(table, length, vocab_size):
    rows = [(x, conditional(table, x)) for x in patterns(length, vocab_size)]
    kept = [(x, c) for x, c in rows if c is not None]
    impossible = [x for x, c in rows if c is None]
    return np.array([x for x, _ in kept]), [c for _, c in kept], impossible


@few
@given(st.integers(1, 3), st.integers(1, 3), seeds)
def test_joint_conditionals(length, vocab_size, seed):
    table = joint_table(np.random.default_rng(seed), length, vocab_size)
    tokens, wanted, impossible = possible(table, length, vocab_size)
    assert np.all(Joint(table)(tokens) == np.array(wanted))
    floats = Joint(table.astype(float))(tokens)
    assert np.allclose(floats, np.array(wanted, float), rtol=0, atol=1e-14)
    for x in impossible:
        with pytest.raises(ValueError, match="row 1, .*probability 0"):
            Joint(table)(np.array([tokens[0], x]))


@few
@given(st.integers(1, 3), seeds, st.integers(1, 9), st.integers(1, 9))
def test_posterior_is_the_same_at_any_time(length, seed, a, b):
    """p(x_0 | x_t), by Bayes on the masking process, does not depend on t."""
    table = joint_table(np.random.default_rng(seed), length, 2)
    tokens, _, _ = possible(table, length, 2)
    for t in (Fraction(a, 10), Fraction(b, 10)):
        for x_t, wanted in zip(tokens, Joint(table)(tokens, t), strict=True):
            seen = np.zeros_like(table)
            for x in np.ndindex(table.shape):
                seen[x] = table[x]
                for v, w in zip(x_t, x, strict=True):
                    seen[x] *= t if v == 2 else (1 - t) * int(v == w)
            seen = seen / seen.sum()
            for i in range(length):
                marginal = np.moveaxis(seen, i, 0).reshape(2, -1).sum(axis=1)
                assert list(marginal) == list(wanted[i])


@few
@given(st.integers(1, 3), st.integers(1, 3), seeds)
def test_joint_log_prob_and_entropy(length, vocab_size, seed):
    table = joint_table(np.random.default_rng(seed), length, vocab_size)
    everything = np.array(list(np.ndindex(table.shape)))
    exact, floats = Joint(table), Joint(table.astype(float))
    for x, got in zip(everything, exact.log_prob(everything), strict=True):
        p = table[tuple(x)]
        assert exp_exact(got) == p if p else got == -np.inf
    by_hand = -sum(float(p) * log(p) for p in table.flat if p)
    assert floats.entropy() == pytest.approx(by_hand, rel=1e-12)
    assert float(exact.entropy()) == pytest.approx(by_hand, rel=1e-12)
    with np.errstate(divide="ignore"):
        wanted = np.log(table.astype(float).ravel())
    assert np.allclose(floats.log_prob(everything), wanted, rtol=1e-14)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 3), seeds)
def test_markov_conditionals(length, vocab_size, seed):
    chain = random_chain(np.random.default_rng(seed), length, vocab_size)
    table = chain_table(chain)
    tokens = patterns(length, vocab_size)
    agree = (tokens[:, None] == tokens) | (tokens[:, None] == vocab_size)
    clean = np.all(tokens != vocab_size, axis=1)
    mass = np.all(agree[:, clean], axis=2) @ table.ravel()
    kept = tokens[mass > 0]
    got = chain(kept)
    assert np.allclose(got, Joint(table)(kept), rtol=0, atol=1e-12)
    one_by_one = np.concatenate([chain(row[None]) for row in kept[:30]])
    assert np.allclose(got[:30], one_by_one, rtol=0, atol=1e-15)
    for row in tokens[mass == 0][:5]:
        with pytest.raises(ValueError, match="^row 2, .*probability 0"):
            chain(np.array([kept[0], kept[-1], row]))


@few
@given(st.integers(1, 5), st.integers(1, 3), seeds)
def test_markov_log_prob_and_entropy(length, vocab_size, seed):
    chain = random_chain(np.random.default_rng(seed), length, vocab_size)
    table = chain_table(chain)
    everything = np.array(list(np.ndindex(table.shape)))
    with np.errstate(divide="ignore"):
        wanted = np.log(table.ravel())
    assert np.allclose(chain.log_prob(everything), wanted, rtol=1e-12)
    by_hand = -sum(p * log(p) for p in table.flat if p)
    assert chain.entropy() == pytest.approx(by_hand, rel=1e-12, abs=1e-12)


def test_sampling_frequencies():
    """Chi-square of 20,000 draws, five standard deviations allowed."""
    rng = np.random.default_rng(8)
    chain = random_chain(rng, 4, 3)
    table = chain_table(chain)
    assert (table == 0).sum() > 20
    for source in (chain, Joint(table), Joint(joint_table(rng, 2, 3))):
        law = np.ravel(getattr(source, "probabilities", table)).astype(float)
        draws = source.sample(20_000, np.random.default_rng(1))
        assert draws.dtype == np.int64
        shape = (source.vocab_size,) * source.length
        seen = np.bincount(
            np.ravel_multi_index(draws.T, shape), minlength=law.size
        )
        assert np.all(seen[law == 0] == 0)
        expected = 20_000 * law[law > 0]
        chi_square = np.sum((seen[law > 0] - expected) ** 2 / expected)
        freedom = len(expected) - 1
        assert chi_square < freedom + 5 * sqrt(2 * freedom)


def test_a_long_chain_neither_under_nor_overflows():
    length, a, b = 2000, 0.999, 1e-3
    chain = Markov([0.5, 0.5], [[a, b], [b, a]], length)
    nothing = chain(np.full((1, length), 2))
    assert np.allclose(nothing, 0.5, rtol=0, atol=1e-12)
    ends = np.full((1, length), 2)
    ends[0, [0, -1]] = 0
    got = chain(ends)[0, :, 0]
    # Powers of the matrix: (1 + lam^n) / 2 on the diagonal, lam = a - b.
    n = np.arange(length)
    stay = (1 + (a - b) ** n) / 2
    wanted = stay * stay[::-1] / stay[-1]
    assert np.allclose(got, wanted, rtol=0, atol=1e-12)
    # Every visible step is a rare one: the evidence has probability 1e-5997.
    rare = np.arange(length)[None] % 2
    rare[0, 1000] = 2
    wanted = b**2 / (a**2 + b**2)  # both neighbours are 1
    assert chain(rare)[0, 1000, 0] == pytest.approx(wanted, rel=1e-12)
    clean = np.arange(length)[None] % 2
    wanted = log(0.5) + (length - 1) * log(b)
    assert chain.log_prob(clean)[0] == pytest.approx(wanted, rel=1e-12)
    step = -a * log(a) - b * log(b)
    wanted = log(2) + (length - 1) * step
    assert chain.entropy() == pytest.approx(wanted, rel=1e-12)


def right_contexts(table):
    """The conditionals of x = 0...0 wherever the visible tokens have mass."""
    length = table.ndim
    out = {}
    for visible in product([False, True], repeat=length):
        seen = tuple(i for i in range(length) if visible[i])
        row = np.where(visible, 0, 2)
        probs = conditional(table, row)
        if probs is not None:
            for i in set(range(length)) - set(seen):
                out[i, seen] = probs[i, 0]
    return out


@settings(max_examples=60)
@given(st.integers(1, 4), seeds)
def test_tables_of_a_joint_are_consistent(length, seed):
    rng = np.random.default_rng(seed)
    joint = joint_table(rng, length, 2)
    contexts = right_contexts(joint)
    found = TeachingTable(contexts, length).is_consistent()
    assert np.all(found.probabilities == joint)
    floats = {key: float(p) for key, p in contexts.items()}
    found = TeachingTable(floats, length).is_consistent()
    close = np.abs(found.probabilities - joint.astype(float)) <= 1e-12
    assert np.all(close)


@settings(max_examples=60)
@given(st.integers(1, 4), seeds)
def test_contexts_of_mass_zero_are_free(length, seed):
    rng = np.random.default_rng(seed)
    joint = joint_table(rng, length, 2)
    contexts = right_contexts(joint)
    for visible in product([False, True], repeat=length):
        seen = tuple(i for i in range(length) if visible[i])
        for i in set(range(length)) - set(seen):
            contexts.setdefault((i, seen), Fraction(int(rng.integers(9)), 8))
    found = TeachingTable(contexts, length).is_consistent()
    assert np.all(found.probabilities == joint)


@settings(max_examples=60)
@given(st.integers(2, 4), seeds)
def test_one_changed_conditional_breaks_a_square(length, seed):
    """The last token's path to the full set no longer agrees with others."""
    rng = np.random.default_rng(seed)
    contexts = right_contexts(joint_table(rng, length, 2, zeros=False))
    last = int(rng.integers(length))
    key = last, tuple(i for i in range(length) if i != last)
    contexts[key] = contexts[key] / 2
    assert TeachingTable(contexts, length).is_consistent() is None
    floats = {k: float(p) for k, p in contexts.items()}
    assert TeachingTable(floats, length).is_consistent() is None


@pytest.mark.parametrize("kind", [float, Fraction])
def test_squares_may_commute_and_no_joint_fit(kind):
    high, half = kind(9) / 10, kind(1) / 2
    table = {(0, ()): high, (1, ()): high, (1, (0,)): half, (0, (1,)): half}
    assert TeachingTable(table, 2).is_consistent() is None
    table[0, ()] = table[1, ()] = half  # both others: 1 - 1/2 - 1/2 + 1/4
    found = TeachingTable(table, 2).is_consistent()
    assert np.all(found.probabilities == kind(1) / 4)


@pytest.mark.parametrize("kind", [float, Fraction])
def test_equal_order_products_are_not_enough(kind):
    """All six products are 0, yet the square at the start does not commute."""
    half, fifth = kind(1) / 2, kind(1) / 5
    table = {(i, ()): half for i in range(3)}
    table |= {(i, (j,)): half for i in range(3) for j in range(3) if i != j}
    table |= {(0, (1, 2)): kind(0), (1, (0, 2)): kind(0), (2, (0, 1)): kind(0)}
    assert TeachingTable(table, 3).is_consistent() is not None
    table[0, (1,)] = fifth
    for order in ((0, 1, 2), (1, 0, 2), (2, 1, 0)):
        a, b, c = order
        steps = table[a, ()], table[b, (a,)], table[c, tuple(sorted((a, b)))]
        assert steps[0] * steps[1] * steps[2] == 0
    assert TeachingTable(table, 3).is_consistent() is None


def test_teaching_table_as_a_denoiser():
    tea = TeachingTable(
        {(0, ()): 0.2, (1, ()): 0.1, (0, (1,)): 0.5, (1, (0,)): 0.8}, 2
    )
    got = tea(np.array([[2, 2], [0, 2], [2, 0], [0, 0]]))
    wanted = [
        [[0.2, 0.8], [0.1, 0.9]],
        [[1, 0], [0.8, 0.2]],
        [[0.5, 0.5], [1, 0]],
        [[1, 0], [1, 0]],
    ]
    assert np.allclose(got, wanted, rtol=0, atol=1e-15)
    assert tea.is_consistent() is None
    with pytest.raises(ValueError, match=r"row 1, \[1, 2\]: .*right"):
        tea(np.array([[0, 2], [1, 2]]))


def test_a_context_that_is_not_there():
    part = TeachingTable({(0, ()): 0.2, (1, (0,)): 0.8}, 2)
    with pytest.raises(ValueError, match=r"position 1 given visible \[\]"):
        part(np.array([[2, 2]]))
    with pytest.raises(ValueError, match=r"position 0 given visible \[1\]"):
        part.probability(0, (1,))
    with pytest.raises(ValueError, match=r"position 1 given visible \[\]"):
        part.is_consistent()


@pytest.mark.parametrize(
    "table, message",
    [
        ({(0, (0,)): 0.5}, r"key \(0, \(0,\)\)"),
        ({(2, ()): 0.5}, r"key \(2, \(\)\)"),
        ({(0, ()): 1.5}, r"= 1.5: expected a probability"),
        ({(0, ()): -0.5}, r"= -0.5: expected a probability"),
        ({(0, ()): float("nan")}, r"= nan: expected a probability"),
        ({(0, ()): 0.5, (1, ()): Fraction(1, 2)}, "mixes floats"),
    ],
)
def test_teaching_table_bad_input(table, message):
    with pytest.raises(ValueError, match=message):
        TeachingTable(table, 2)


SOURCES = [
    Joint(np.full((2, 2, 2), 1 / 8)),
    Markov([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], 3),
    TeachingTable({(0, ()): 0.5}, 3),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize(
    "tokens",
    [[[0, 1, 3]], [[0, -1, 2]], [[0, 1]], [0, 1, 2], [[0.0, 1.0, 2.0]]],
    ids=str,
)
def test_tokens_outside_the_vocabulary(source, tokens):
    with pytest.raises(ValueError, match=r"0\.\.2 \(mask id 2\)"):
        source(np.array(tokens))


@pytest.mark.parametrize("source", SOURCES[:2])
def test_log_prob_of_a_mask(source):
    with pytest.raises(ValueError, match=r"expected integers .* in 0\.\.1"):
        source.log_prob(np.array([[0, 1, 2]]))


@pytest.mark.parametrize(
    "table",
    [
        [0.5, 0.6],
        [1.5, -0.5],
        [np.nan, 1.0],
        [Fraction(1, 2), Fraction(1, 3)],
        [[0.5, 0.25, 0.25]],
        1.0,
    ],
    ids=str,
)
def test_joint_bad_input(table):
    with pytest.raises(ValueError, match="^probabilities has"):
        Joint(table)


@pytest.mark.parametrize(
    "initial, transition, length, message",
    [
        ([0.5, 0.6], np.eye(2), 2, "initial has .*sums 1.1"),
        ([0.5, 0.5], [[1, 0], [0.5, 0.4]], 2, r"transition has .*0\.9"),
        ([0.5, 0.5], [[1, 0], [1.5, -0.5]], 2, "transition has minimum -0.5"),
        ([0.5, 0.5], np.eye(3), 2, r"transition \(3, 3\)"),
        ([0.5, 0.5], np.eye(2), 0, "length 0"),
    ],
)
def test_markov_bad_input(initial, transition, length, message):
    with pytest.raises(ValueError, match=message):
        Markov(initial, transition, length)
