"""How good a network is, against sums over all sequences and patterns."""

from itertools import product
from math import comb, inf, log

import numpy as np
import pytest

from toyml.lattice import MaskLattice
from toyml.model import Transformer, as_denoiser
from toyml.sources import Joint, Markov
from toyml.train import evaluate
from toyml.train.data import FromSource
from train_cases import network

V, L = 3, 4


def chain(length=L, vocab_size=V, seed=0, zeros=False):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(vocab_size, 0.7), size=vocab_size)
    if zeros:
        rows[0] = np.eye(vocab_size)[1]
    return Markov(rng.dirichlet(np.ones(vocab_size)), rows, length)


def everything(source):
    """All V^L sequences and their probabilities, multiplied out."""
    x = np.array(list(product(range(source.vocab_size), repeat=source.length)))
    p = source.initial[x[:, 0]]
    for i in range(1, source.length):
        p = p * source.transition[x[:, i - 1], x[:, i]]
    return x, p


def near(got, wanted, error, errors=4):
    assert error > 0
    assert abs(got - wanted) <= errors * error


# The loss.


@pytest.mark.parametrize("attention", ["bidirectional", "causal", 2])
def test_the_loss_of_the_uniform_network(attention):
    """Each sequence scores k tokens at L / k: L ln V, whatever is drawn."""
    net = Transformer(V, 1, 16, 2, attention)
    rng = np.random.default_rng(0)
    for draws in (1, 3):
        x0 = rng.integers(V, size=(300, L))
        got = evaluate.loss(net, x0, rng, draws)
        assert got.mean == pytest.approx(log(V), rel=1e-6)
        assert got.error < 1e-6 and got.n == 300


def test_an_estimate():
    """Of 1, 2, 3, 6: variance (4 + 1 + 0 + 9) / 3, over 4."""
    got = evaluate.Estimate.of(np.array([1.0, 2.0, 3.0, 6.0]))
    assert (got.mean, got.n) == (3.0, 4)
    assert got.error == pytest.approx((14 / 3 / 4) ** 0.5)
    assert evaluate.Estimate.of(np.array([2.0])) == (
        evaluate.Estimate(2.0, inf, 1)
    )


@pytest.mark.parametrize("draws", [1, 4])
def test_the_loss_approaches_the_bound(draws):
    """A few sequences, each many times, against their lattices."""
    net = network(V)
    some = np.random.default_rng(1).integers(V, size=(5, L))
    bound = np.mean(
        [
            MaskLattice.from_denoiser(as_denoiser(net), x0, V).nelbo()
            for x0 in some
        ]
    )
    got = evaluate.loss(
        net, np.tile(some, (800, 1)), np.random.default_rng(2), draws
    )
    near(got.mean, bound / L, got.error)
    assert got.error < 0.02 * got.mean and got.n == 4000


def test_the_error_is_that_of_the_mean():
    """It covers: the spread of repeated means, the counts stratified."""
    net = network(V)
    x0 = chain().sample(64, np.random.default_rng(0))
    found = [
        evaluate.loss(net, x0, np.random.default_rng(s), 1) for s in range(60)
    ]
    spread = np.std([one.mean for one in found])
    errors = [one.error for one in found]
    # sequences stay, so the spread is smaller; it is not a tenth of it
    assert 0.1 * np.mean(errors) < spread < 1.3 * np.mean(errors)


def test_masked_losses():
    """By count they average to the lattice's profile over the count."""
    net, n = network(V), 4000
    x0 = np.array([0, 1, 2, 0])
    profile = MaskLattice.from_denoiser(as_denoiser(net), x0, V).by_count()
    counts, means = evaluate.masked_losses(
        net, np.tile(x0, (n, 1)), np.random.default_rng(0), draws=2
    )
    assert counts.shape == means.shape == (2, n)
    for k in range(1, L + 1):
        some = means[counts == k]
        assert abs(len(some) - 2 * n / L) < 5 * (2 * n / L) ** 0.5
        wanted = pytest.approx(profile[k] / k, rel=1e-5)
        if k < L:
            near(some.mean(), profile[k] / k, some.std() / len(some) ** 0.5)
        else:  # all are masked: one set alone
            assert some.min() == wanted and some.max() == wanted


def test_the_counts_of_a_sequence_are_spread():
    """L draws: each count once. Two draws: two apart, wrapped."""
    x0 = np.zeros((50, L), int)
    for draws, differ in ((L, {1, L - 1}), (2, {2})):
        counts, _ = evaluate.masked_losses(
            network(V), x0, np.random.default_rng(0), draws
        )
        assert set(abs(np.diff(counts, axis=0)).ravel()) == differ
        if draws == L:
            assert np.all(np.sort(counts, axis=0).T == np.arange(1, L + 1))
        assert set(counts[0]) == set(range(1, L + 1))


def test_more_draws_lower_the_error():
    net, rng = network(V), np.random.default_rng(0)
    x0 = np.tile([[0, 1, 2, 0]], (2000, 1))  # masks are all the noise
    one, four = (evaluate.loss(net, x0, rng, draws).error for draws in (1, 4))
    # by half if the draws were apart; their counts are spread besides
    assert 1.8 < one / four


def test_the_loss_of_the_twin_is_the_chain_rule():
    net = network(V, "causal")
    x0 = np.random.default_rng(0).integers(V, size=(300, L))
    got = evaluate.loss(net, x0, np.random.default_rng(1), draws=4)
    costs = np.zeros(len(x0))
    for i in range(L):
        tokens = x0.copy()
        tokens[:, i:] = V  # what comes later is hidden
        law = as_denoiser(net)(tokens)[:, i]
        costs -= np.log(law[np.arange(len(x0)), x0[:, i]])
    assert got.mean == pytest.approx(costs.mean() / L, rel=1e-5)
    error = costs.std(ddof=1) / len(x0) ** 0.5 / L
    assert got.error == pytest.approx(error, rel=1e-4)


# The gap to a source.


def exact_gap(net, source):
    """The mean bound over all sequences minus the entropy, per token."""
    bound, entropy = 0.0, 0.0
    for x0, p in zip(*everything(source), strict=True):
        if p > 0:
            one = MaskLattice.from_denoiser(as_denoiser(net), x0, V)
            bound += p * one.nelbo()
            entropy -= p * log(p)
    return (bound - entropy) / source.length


def exact_causal_gap(net, source):
    """KL of the two laws of sequences, by the chain rule of the twin."""
    total = 0.0
    for x0, p in zip(*everything(source), strict=True):
        if p > 0:
            cost = evaluate.loss(net, x0[None], None).mean * source.length
            total += p * (log(p) + cost)
    return total / source.length


@pytest.mark.parametrize("seed, zeros", [(0, False), (1, True)])
def test_the_gap(seed, zeros):
    net, source = network(V, seed=seed), chain(seed=seed, zeros=zeros)
    wanted = exact_gap(net, source)
    assert wanted > 0.05
    x0 = source.sample(4000, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    got = evaluate.gap(as_denoiser(net), source, x0, rng)
    near(got.mean, wanted, got.error)
    assert got.n == 4000 and got.error < 0.05 * wanted


def test_the_gap_of_the_twin():
    net, source = network(V, "causal"), chain()
    wanted = exact_causal_gap(net, source)
    assert wanted > 0.05
    x0 = source.sample(4000, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    got = evaluate.gap(as_denoiser(net), source, x0, rng, causal=True)
    near(got.mean, wanted, got.error)
    # All prefixes of all sequences, weighted by the law: no noise is left.
    total = 0.0
    for one, p in zip(*everything(source), strict=True):
        if p > 0:
            value = evaluate.gap(
                as_denoiser(net), source, one[None], rng, causal=True
            )
            total += p * value.mean
    assert total == pytest.approx(wanted, rel=1e-5)


def test_the_gap_is_a_kl_of_the_same_patterns():
    """By hand over every pattern: P(k) = 1 / L, a set 1 / C(L, k), L / k."""
    net, source = network(V), chain()
    total = 0.0
    for x0, p in zip(*everything(source), strict=True):
        for hidden in product([False, True], repeat=L):
            k = sum(hidden)
            if not k or not p:
                continue
            tokens = np.where(hidden, V, x0)[None]
            truth, guess = source(tokens)[0], as_denoiser(net)(tokens)[0]
            for i in np.flatnonzero(hidden):
                kl = sum(
                    a * log(a / b)
                    for a, b in zip(truth[i], guess[i], strict=True)
                    if a
                )
                total += p / L / comb(L, k) * L / k * kl
    assert total / L == pytest.approx(exact_gap(net, source), rel=1e-6)


def test_the_source_has_no_gap():
    source = chain(zeros=True)
    x0 = source.sample(200, np.random.default_rng(0))
    for causal in (False, True):
        rng = np.random.default_rng(1)
        got = evaluate.gap(source, source, x0, rng, causal)
        assert got.mean == got.error == 0


def test_divergence():
    p = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    q = np.array([[0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [0.5, 0.25, 0.25]])
    assert evaluate.divergence(p, q) == pytest.approx([log(2), inf, 0])


def test_the_gap_of_a_model_that_misses_a_token():
    source = chain()
    never = evaluate.constant(np.array([0.5, 0.5, 0.0]))
    x0 = source.sample(50, np.random.default_rng(0))
    got = evaluate.gap(never, source, x0, np.random.default_rng(1))
    assert got.mean == got.error == inf


def test_baselines():
    """Of independent tokens: uniform ln V - H, and the unigram none."""
    row = np.array([0.7, 0.2, 0.1])
    source = Markov(row, np.tile(row, (3, 1)), L)
    x0 = source.sample(2000, np.random.default_rng(0))
    untrained = Transformer(V, 1, 16, 2)
    got = evaluate.baselines(FromSource(source, x0), x0, 3, untrained)
    assert list(got) == ["uniform", "unigram", "untrained"]
    wanted = log(3) + row @ np.log(row)
    assert got["uniform"] == pytest.approx(wanted, rel=1e-9)
    assert got["untrained"] == pytest.approx(wanted, rel=1e-5)
    assert 0 < got["unigram"] < 1e-3
    # The twin's: the same patterns for all, prefixes.
    causal = Transformer(V, 1, 16, 2, "causal")
    got = evaluate.baselines(FromSource(source, x0), x0, 3, causal)
    assert got["uniform"] == pytest.approx(wanted, rel=1e-9)


def test_baselines_of_few_fixed_sequences():
    """The unigram model of one sequence may miss a token: no warning."""
    source = chain()
    x0 = source.sample(50, np.random.default_rng(0))
    data = FromSource(source, x0, np.zeros((1, L), int))
    got = evaluate.baselines(data, x0, 3, Transformer(V, 1, 16, 2))
    assert got["unigram"] == inf and np.isfinite(got["uniform"])


# The exact numbers.


def test_kl_by_count():
    net, source = network(V), chain()
    x0 = source.sample(3, np.random.default_rng(0))
    got = evaluate.kl_by_count(as_denoiser(net), source, x0)
    assert got.shape == (L,)
    for k in range(1, L + 1):
        values = []
        for row, hidden in product(x0, product([False, True], repeat=L)):
            if sum(hidden) == k:
                tokens = np.where(hidden, V, row)[None]
                truth, guess = source(tokens)[0], as_denoiser(net)(tokens)[0]
                values += [
                    truth[i] @ np.log(truth[i] / guess[i])
                    for i in np.flatnonzero(hidden)
                ]
        assert len(values) == 3 * k * comb(L, k)
        assert got[k - 1] == pytest.approx(np.mean(values), rel=1e-9)


def test_kl_by_count_adds_up_to_the_gap():
    """Over all sequences: mean of k = 1..L, as each count weighs L / k."""
    net = network(V)
    table = np.random.default_rng(3).dirichlet(np.ones(V**L))
    source = Joint(table.reshape((V,) * L))
    bound = total = 0.0
    for x0 in np.ndindex(source.probabilities.shape):
        x0 = np.array(x0)
        p = source.probabilities[tuple(x0)]
        one = MaskLattice.from_denoiser(as_denoiser(net), x0, V)
        bound += p * one.nelbo()
        counts = evaluate.kl_by_count(as_denoiser(net), source, x0[None])
        total += p * counts.mean()
    assert total == pytest.approx((bound - source.entropy()) / L, rel=1e-6)


def test_exact():
    net, source = network(V), chain()
    x0 = source.sample(5, np.random.default_rng(0))
    got = evaluate.exact(as_denoiser(net), x0, V, source)
    bounds, likelihoods, own = [], [], []
    p = dict(zip(map(tuple, everything(source)[0]), everything(source)[1]))  # noqa: B905
    for row in x0:
        one = MaskLattice.from_denoiser(as_denoiser(net), row, V)
        bounds.append(one.any_order_loss())
        likelihoods.append(-log(one.generator_probability()))
        own.append(-log(p[tuple(row)]))
    assert got["sequences"] == 5
    assert got["nelbo"] == pytest.approx(np.mean(bounds) / L, rel=1e-9)
    assert got["nll"] == pytest.approx(np.mean(likelihoods) / L, rel=1e-9)
    assert got["nll_source"] == pytest.approx(np.mean(own) / L, rel=1e-9)
    assert got["nelbo"] >= got["nll"]
    assert len(got["kl_by_count"]) == L
    bare = evaluate.exact(as_denoiser(net), x0, V)
    assert set(bare) == {"sequences", "nelbo", "nll"}


def test_exact_has_a_limit():
    net = as_denoiser(network(V))
    with pytest.raises(ValueError, match="^sequences have length 13: expect"):
        evaluate.exact(net, np.zeros((1, 13), int), V)
    assert evaluate.EXACT_LENGTH == 12
    got = evaluate.exact(net, np.zeros((1, 12), int), V)
    assert got["nelbo"] >= got["nll"] > 0
