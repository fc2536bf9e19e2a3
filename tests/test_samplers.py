"""The exact laws of the samplers against literal ones.

A literal law is a dictionary {state: probability} moved by hand-written
steps, or a product of matrices from ``reverse``; it shares nothing with
``toyml.samplers`` but the denoiser.
"""

from collections import defaultdict
from fractions import Fraction
from functools import reduce
from itertools import combinations, pairwise, permutations, product
from math import log, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import LATE, fraction_distribution, seeds
from toyml import reverse, samplers
from toyml.lattice import MaskLattice
from toyml.samplers import Sampler, Selection, Step
from toyml.schedules import COSINE, LINEAR, log_linear, polynomial
from toyml.sources import Joint, Markov

few = settings(max_examples=12)
cases = st.sampled_from([(1, 3), (2, 2), (2, 3), (3, 2)])


def memo(denoiser, length, vocab_size):
    """A denoiser that looks every answer up in a table, [(V + 1)^L, L, V]."""
    table = np.asarray(denoiser(states(length, vocab_size)))
    strides = (vocab_size + 1) ** np.arange(length)[::-1]
    return lambda tokens, t=None: table[tokens @ strides]


def states(length, vocab_size):
    return np.array(list(product(range(vocab_size + 1), repeat=length)))


def inconsistent(seed, length, vocab_size, exact=True):
    """A denoiser whose conditionals fit no joint law."""
    rng = np.random.default_rng(seed)
    shape = ((vocab_size + 1) ** length, length, vocab_size)
    table = fraction_distribution(rng, shape)
    table = table if exact else table.astype(float)
    return memo(lambda tokens: table, length, vocab_size)


def random_joint(seed, length, vocab_size, zeros=False):
    rng = np.random.default_rng(seed)
    flat = fraction_distribution(rng, vocab_size**length, zeros)
    return Joint(flat.reshape((vocab_size,) * length))


def random_markov(seed, length, vocab_size):
    rng = np.random.default_rng(seed)
    return Markov(
        fraction_distribution(rng, vocab_size),
        fraction_distribution(rng, (vocab_size, vocab_size)),
        length,
    )


def row(denoiser, state):
    return denoiser(np.array([state]))[0]


def masks_of(state, vocab_size):
    return [i for i, v in enumerate(state) if v == vocab_size]


def fill(state, chosen, probs):
    """Every way to fill the chosen positions, as (state, probability)."""
    for tokens in product(range(len(probs[0])), repeat=len(chosen)):
        new = list(state)
        for i, v in zip(chosen, tokens, strict=True):
            new[i] = v
        p = prod(
            (probs[i][v] for i, v in zip(chosen, tokens, strict=True)),
            start=Fraction(1),
        )
        yield tuple(new), p


def literal(start, moves, vocab_size):
    """[V] * L of the states reached by the moves, each (state) -> pairs."""
    law = {tuple(start): Fraction(1)}
    for move in moves:
        new = defaultdict(Fraction)
        for state, p in law.items():
            for to, q in move(state):
                new[to] += p * q
        law = new
    out = np.full((vocab_size,) * len(start), Fraction(0))
    for state, p in law.items():
        out[state] += p
    return out


def random_sets(denoiser, count, vocab_size, inside=None):
    """A move: a uniformly random set of masks, of that many at most."""

    def move(state):
        masked = masks_of(state, vocab_size)
        masked = [i for i in masked if inside is None or i in inside]
        sets = list(combinations(masked, min(count, len(masked))))
        probs = row(denoiser, state) if masked else [[1]]
        for chosen in sets:
            for to, p in fill(state, chosen, probs):
                yield to, p / len(sets)

    return move


def best(denoiser, key, count, vocab_size):
    """A move: the masks of lowest key(row, position)."""

    def move(state):
        probs = row(denoiser, state)
        masked = masks_of(state, vocab_size)
        ranked = sorted(masked, key=lambda i: key(probs[i].tolist(), i))
        yield from fill(state, ranked[:count], probs)

    return move


def entropy(p):
    return -sum(float(v) * log(v) for v in sorted(p) if v)


KEYS = {
    "probability": lambda p, i: (-max(p), i),
    "margin": lambda p, i: (sorted(p)[-2] - max(p), i),
    "entropy": lambda p, i: (entropy(p), i),
}


def all_masks(length, vocab_size):
    return (vocab_size,) * length


def kron_rows(factors):
    """The matrix of independent positions, from one [V + 1, V + 1] each."""
    return reduce(np.kron, factors)


def step_matrix(schedule, s, t, denoiser, length, vocab_size):
    """p(x_s | x_t) over all states, a row for each x_t."""
    x = states(length, vocab_size)
    probs = denoiser(x, t)
    rows = reverse.transition(schedule, s, t, x, probs, vocab_size)
    return np.array([reduce(np.kron, r) for r in rows])


def clean_part(law, length, vocab_size):
    law = law.reshape((vocab_size + 1,) * length)
    return law[(slice(vocab_size),) * length]


def timed(denoiser, other):
    """A denoiser that depends on time: a mixture, weight t on the second."""

    def mixed(tokens, t):
        return (1 - t) * denoiser(tokens) + t * other(tokens)

    return mixed


def exact_grid(steps):
    return [Fraction(j, steps) for j in range(steps + 1)]


GRIDS = [
    (LINEAR, [0.0, 1.0]),
    (LINEAR, [0.0, 0.3, 0.4, 1.0]),
    (COSINE, [0.0, 0.25, 0.5, 0.75, 1.0]),
    (polynomial(2), [0.0, 0.5, 1.0]),
]


@pytest.mark.parametrize("schedule, times", GRIDS)
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_ancestral_and_renoised_by_matrices(schedule, times, rounds):
    """Also for a denoiser that reads t: each step gets the larger time."""
    for length, v in ((1, 3), (2, 2), (3, 2)):
        denoiser = timed(
            inconsistent(1, length, v, exact=False),
            inconsistent(2, length, v, exact=False),
        )
        wanted = np.eye((v + 1) ** length)[-1]
        for s, t in list(pairwise(times))[::-1]:
            back = step_matrix(schedule, s, t, denoiser, length, v)
            kernel = reverse.forward_kernel(schedule, s, t, v)
            forward = kron_rows([kernel] * length)
            wanted = wanted @ back
            for _ in range(rounds):
                wanted = wanted @ forward @ back
        if rounds:
            sampler = samplers.renoised(schedule, times, rounds)
        else:
            sampler = samplers.ancestral(schedule, times)
        got = sampler.law(denoiser, length, v)
        assert got.dtype == np.float64
        wanted = clean_part(wanted, length, v)
        assert np.allclose(got, wanted, rtol=0, atol=1e-14)


def mean_product(denoiser, x, orders):
    """The mean over orders of the product of the probabilities of x."""
    length, total = len(x), Fraction(0)
    v = row(denoiser, x).shape[1]
    for order in orders:
        state, p = [v] * length, Fraction(1)
        for i in order:
            p *= row(denoiser, state)[i][x[i]]
            state[i] = x[i]
        total += p
    return total / len(orders)


@few
@given(cases, seeds)
def test_one_at_a_time_by_orders(case, seed):
    length, v = case
    denoiser = inconsistent(seed, length, v)
    everything = list(permutations(range(length)))
    order = everything[seed % len(everything)]
    laws = {
        name: sampler.law(denoiser, length, v)
        for name, sampler in {
            "random": samplers.random_order(),
            "hitting": samplers.first_hitting(COSINE),
            "fixed": samplers.fixed_order(order),
            "right": samplers.fixed_order(),
        }.items()
    }
    assert np.all(laws["hitting"] == laws["random"])
    for x in np.ndindex(laws["random"].shape):
        lattice = MaskLattice.from_denoiser(denoiser, np.array(x), v)
        assert laws["random"][x] == lattice.generator_probability()
        assert laws["random"][x] == mean_product(denoiser, x, everything)
        assert laws["fixed"][x] == mean_product(denoiser, x, [order])
        left_to_right = tuple(range(length))
        assert laws["right"][x] == mean_product(denoiser, x, [left_to_right])


@few
@given(cases, seeds, st.sampled_from([1, 2, 5, (1, 2), (2, 1), (1, 1, 1)]))
def test_several_a_step(case, seed, per_step):
    length, v = case
    denoiser = inconsistent(seed, length, v)
    counts = [per_step] * length if isinstance(per_step, int) else per_step
    start = all_masks(length, v)
    moves = [random_sets(denoiser, c, v) for c in counts]
    got = samplers.random_order(per_step).law(denoiser, length, v)
    assert np.all(got == literal(start, moves, v))
    order = np.random.default_rng(seed).permutation(length)
    rank = np.argsort(order)
    moves = [best(denoiser, lambda p, i: rank[i], c, v) for c in counts]
    got = samplers.fixed_order(order, per_step).law(denoiser, length, v)
    assert np.all(got == literal(start, moves, v))


@few
@given(cases, seeds, st.sampled_from(sorted(KEYS)), st.integers(1, 3))
def test_confidence(case, seed, rule, per_step):
    """The answers are sevenths or so: equal scores are common."""
    length, v = case
    denoiser = inconsistent(seed, length, v)
    move = best(denoiser, KEYS[rule], per_step, v)
    wanted = literal(all_masks(length, v), [move] * length, v)
    got = samplers.confidence(rule, per_step).law(denoiser, length, v)
    assert np.all(got == wanted)


def test_equal_scores_go_to_the_lower_position():
    """Positions 1 and 2 tie under each rule, and beat position 0."""
    certain, flat = [0.7, 0.2, 0.1], [0.4, 0.3, 0.3]
    rows = np.array([flat, certain, [0.1, 0.7, 0.2]])
    candidates = np.array([[True, True, True], [True, False, True]])
    for rule in samplers.RULES:
        (step,) = samplers.confidence(rule, 3).steps(3)
        two = step.selection(candidates, np.array([rows, rows]))
        assert np.all(two.positions == candidates)
        step = samplers.confidence(rule).steps(3)[0]
        got = step.selection(candidates, np.array([rows, rows])).positions
        assert got.tolist() == [[False, True, False], [False, False, True]]


def test_equal_entropies_are_equal_floats():
    """The same numbers in another order do not win by rounding."""
    rng = np.random.default_rng(0)
    step = samplers.confidence("entropy").steps(2)[0]
    for _ in range(100):
        p = rng.dirichlet(np.ones(6))
        probs = np.array([[p, rng.permutation(p)]])
        got = step.selection(np.ones((1, 2), bool), probs).positions
        assert got.tolist() == [[True, False]]


def test_one_token_in_the_vocabulary():
    denoiser = inconsistent(0, 3, 1)
    for rule in samplers.RULES:
        got = samplers.confidence(rule).law(denoiser, 3, 1)
        assert got.shape == (1, 1, 1) and got[0, 0, 0] == 1


@few
@given(seeds)
def test_blocks(seed):
    length, v = 3, 2
    denoiser = inconsistent(seed, length, v)
    plain = [
        samplers.random_order(),
        samplers.confidence("margin"),
        samplers.ancestral(LINEAR, 2),
        samplers.first_hitting(LINEAR),
    ]
    left_to_right = samplers.fixed_order().law(denoiser, length, v)
    for inner in plain:
        one = samplers.blocks(inner, 1).law(denoiser, length, v)
        assert np.all(one == left_to_right)
        for size in (3, 7):
            whole = samplers.blocks(inner, size).law(denoiser, length, v)
            assert np.all(whole == inner.law(denoiser, length, v))
    inside = [{0, 1}, {0, 1}, {2}]
    moves = [random_sets(denoiser, 1, v, block) for block in inside]
    wanted = literal(all_masks(length, v), moves, v)
    for inner in (plain[0], plain[3]):
        got = samplers.blocks(inner, 2).law(denoiser, length, v)
        assert np.all(got == wanted)
    backwards = samplers.blocks(samplers.fixed_order([1, 0]), 2)
    with pytest.raises(ValueError, match=r"order = \[1, 0\]: .*0\.\.0 once"):
        backwards.law(denoiser, length, v)
    for x in np.ndindex((2,) * 4):
        four = inconsistent(seed, 4, v)
        got = backwards.law(four, 4, v)[x]
        assert got == mean_product(four, x, [(1, 0, 3, 2)])
        break


def gibbs(denoiser, count, vocab_size, fixed=()):
    """A move: mask a random set of tokens, draw them again one by one."""

    def move(state):
        free = [i for i in range(len(state)) if i not in fixed]
        sets = list(combinations(free, min(count, len(free))))
        for chosen in sets:
            orders = list(permutations(chosen))
            for order in orders:
                new = list(state)
                for i in chosen:
                    new[i] = vocab_size
                paths = [(tuple(new), Fraction(1, len(sets) * len(orders)))]
                for i in order:
                    paths = [
                        (to, p * q)
                        for now, p in paths
                        for to, q in fill(now, [i], row(denoiser, now))
                    ]
                yield from paths

    return move


@few
@given(cases, seeds, st.integers(1, 4), st.integers(1, 2))
def test_remasked(case, seed, count, rounds):
    length, v = case
    denoiser = inconsistent(seed, length, v)
    start = all_masks(length, v)
    first = [random_sets(denoiser, length, v)]
    moves = first + [gibbs(denoiser, count, v)] * rounds
    inner = samplers.random_order(length)
    got = samplers.remasked(inner, count, rounds).law(denoiser, length, v)
    assert np.all(got == literal(start, moves, v))


def test_remasked_keeps_the_prompt():
    denoiser = inconsistent(3, 3, 2)
    prompt = (2, 1, 2)
    moves = [random_sets(denoiser, 3, 2), gibbs(denoiser, 1, 2, fixed={1})]
    inner = samplers.random_order(3)
    got = samplers.remasked(inner, 1).law(denoiser, 3, 2, prompt=prompt)
    assert np.all(got == literal(prompt, moves, 2))
    assert np.all(got[:, 0] == 0)


def kl(p, q):
    return float(np.sum(p * np.log(p / q)))


def test_remasking_repairs_the_law_of_parallel_steps():
    """KL from the joint falls from round to round, down to nothing."""
    joint = random_joint(1, 3, 2)
    p = joint.probabilities.astype(float)
    inner = samplers.random_order(3)
    kls = [kl(p, inner.law(joint, 3, 2).astype(float))]
    for rounds in (1, 2, 4, 8, 32):
        sampler = samplers.remasked(inner, 1, rounds)
        kls.append(kl(p, sampler.law(Joint(p), 3, 2)))
    assert all(b < a for a, b in pairwise(kls))
    assert kls[0] > 0.02 and kls[-1] < 1e-4


def product_joint(seed, length, vocab_size):
    rows = fraction_distribution(
        np.random.default_rng(seed), (length, vocab_size)
    )
    return Joint(reduce(np.multiply.outer, rows))


def test_renoising_keeps_the_law_of_independent_tokens():
    for joint in (product_joint(1, 3, 2), product_joint(2, 1, 4)):
        for rounds in (1, 3):
            sampler = samplers.renoised(LINEAR, 3, rounds)
            got = sampler.law(joint, joint.length, joint.vocab_size)
            assert np.all(got == joint.probabilities)


def test_renoising_does_not_keep_a_joint_with_large_steps():
    """One step fills all at once: the product of the marginals, again."""
    joint = random_joint(1, 2, 2)
    p = joint.probabilities
    marginals = np.multiply.outer(p.sum(axis=1), p.sum(axis=0))
    got = samplers.renoised(LINEAR, 1).law(joint, 2, 2)
    assert np.all(got == marginals) and np.any(got != p)


def whimsical(seed):
    """An order that depends on everything: tokens, their probabilities."""

    def select(candidates, probs):
        noise = np.sin(seed + 1e3 * probs.astype(float).cumsum(axis=1))
        keys = np.where(candidates, noise.sum(axis=2), np.inf)
        best = np.argmin(keys, axis=1)[:, None]
        return Selection(best == np.arange(candidates.shape[1]))

    return Sampler("whimsical", lambda length: [Step(select)] * length)


def one_at_a_time(seed):
    rules = [samplers.confidence(rule) for rule in samplers.RULES]
    return [
        *rules,
        whimsical(seed),
        samplers.random_order(),
        samplers.first_hitting(LINEAR),
        samplers.fixed_order([2, 0, 1]),
        samplers.blocks(rules[0], 2),
        samplers.remasked(rules[1], 2, 2),
        samplers.blocks(samplers.remasked(rules[2], 1), 2),
    ]


@settings(max_examples=6)
@given(seeds, st.booleans())
def test_with_exact_conditionals_every_order_gives_the_joint(seed, zeros):
    """Also with zeros: impossible evidence is never met."""
    joint = random_joint(seed, 3, 2, zeros)
    for sampler in one_at_a_time(seed):
        got = sampler.law(joint, 3, 2)
        assert np.all(got == joint.probabilities), sampler.name


@settings(max_examples=3)
@given(seeds)
def test_with_a_markov_chain_every_order_gives_the_chain(seed):
    chain = random_markov(seed, 3, 3)
    everything = np.array(list(np.ndindex(3, 3, 3)))
    wanted = np.exp(chain.log_prob(everything)).reshape(3, 3, 3)
    for sampler in one_at_a_time(seed):
        got = sampler.law(chain, 3, 3)
        assert np.allclose(got, wanted, rtol=0, atol=1e-14), sampler.name


def at_zero(values):
    """Lagrange: the value at 1/K = 0 from the values at K = 1, 2, ..."""
    nodes = [Fraction(1, k) for k in range(1, len(values) + 1)]
    return sum(
        y * prod(b / (b - a) for b in nodes if b != a)
        for a, y in zip(nodes, values, strict=True)
    )


@settings(max_examples=6)
@given(cases, seeds)
def test_ancestral_is_a_polynomial_in_one_over_k(case, seed):
    """Of degree L - 1; its constant term is the random-order law."""
    length, v = case
    denoiser = inconsistent(seed, length, v)
    laws = [
        samplers.ancestral(LINEAR, k).law(denoiser, length, v)
        for k in range(1, length + 2)
    ]
    limit = samplers.random_order().law(denoiser, length, v)
    assert np.all(at_zero(laws[:length]) == limit)
    assert np.all(at_zero(laws) == limit)  # one more point changes nothing
    for x in np.ndindex(limit.shape):
        lattice = MaskLattice.from_denoiser(denoiser, np.array(x), v)
        assert limit[x] == lattice.generator_probability()


def hot_tea(kind=Fraction):
    """Two tokens, {0: right, 1: other}; after a wrong one a fair coin."""
    table = {
        (0, 2): "1/5",
        (1, 2): "1/10",
        (1, 0): "4/5",
        (0, 0): "1/2",
        (0, 1): "1/2",
        (1, 1): "1/2",
    }

    def denoiser(tokens):
        out = np.empty((*tokens.shape, 2), object)
        for r, state in enumerate(tokens.tolist()):
            for i in range(2):
                p = kind(Fraction(table[i, state[1 - i]]))
                out[r, i] = p, 1 - p
        return out if kind is Fraction else out.astype(float)

    return memo(denoiser, 2, 2)


def test_hot_tea():
    tea = hot_tea()
    for k in (1, 2, 3, 4, 7, 100):
        got = samplers.ancestral(LINEAR, k).law(tea, 2, 2)[0, 0]
        assert got == Fraction(2, 100 * k) + Fraction(105, 1000) * (
            1 - Fraction(1, k)
        )
    assert samplers.random_order().law(tea, 2, 2)[0, 0] == Fraction(21, 200)
    got = samplers.ancestral(LINEAR, 4).law(hot_tea(float), 2, 2)[0, 0]
    assert log(got) == pytest.approx(-2.480, abs=5e-4)


def test_the_law_with_a_prompt_is_conditional():
    joint = random_joint(5, 3, 3)
    for sampler in one_at_a_time(5):
        got = sampler.law(joint, 3, 3, prompt=[3, 2, 3])
        wanted = np.zeros_like(joint.probabilities)
        wanted[:, 2] = joint.probabilities[:, 2]
        assert np.all(got == wanted / wanted.sum()), sampler.name
    got = samplers.random_order().law(joint, 3, 3, prompt=[0, 1, 2])
    assert got.dtype == np.float64 and got[0, 1, 2] == got.sum() == 1


def literal_sharpen(probs, temperature, top_p):
    """Row by row in plain Python, for Fractions and whole 1 / T."""
    out = np.full(probs.shape, Fraction(0))
    for at in np.ndindex(probs.shape[:-1]):
        p = list(probs[at])
        if temperature == 0:
            p = [Fraction(int(i == p.index(max(p)))) for i in range(len(p))]
        else:
            p = [v ** int(1 / temperature) for v in p]
        p = [v / sum(p) for v in p]
        kept, total = [], Fraction(0)
        for v, i in sorted((-v, i) for i, v in enumerate(p)):
            if total < top_p:
                kept.append(i)
                total -= v
        for i in kept:
            out[*at, i] = p[i] / total
    return out


@few
@given(
    seeds,
    st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 2)]),
    st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(4, 5)]),
)
def test_laws_are_sharpened(seed, temperature, top_p):
    """Tokens are; the positions go by the conditionals as they are."""
    length, v = 2, 3
    denoiser = inconsistent(seed, length, v)

    def changed(tokens):
        return literal_sharpen(denoiser(tokens), temperature, top_p)

    def move(state):
        probs, masked = row(denoiser, state), masks_of(state, v)
        i = min(masked, key=lambda i: KEYS["margin"](probs[i].tolist(), i))
        yield from fill(state, [i], row(changed, state))

    start = all_masks(length, v)
    sharp = samplers.confidence("margin").sharpened(temperature, top_p)
    got = sharp.law(denoiser, length, v)
    assert np.all(got == literal(start, [move] * length, v))
    sharp = samplers.random_order(2).sharpened(temperature, top_p)
    got = sharp.law(denoiser, length, v)
    wanted = literal(start, [random_sets(changed, 2, v)], v)
    assert np.all(got == wanted)
    block = samplers.blocks(sharp, 2).law(denoiser, length, v)
    assert np.all(block == wanted)


def test_a_float32_answer_is_divided_by_its_sum():
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(7), (64, 2)).astype(np.float32)
    denoiser = memo(lambda tokens: table, 2, 7)
    law = samplers.random_order().law(denoiser, 2, 7)
    assert law.dtype == np.float64
    assert law.sum() == pytest.approx(1, abs=1e-14)


def test_exact_laws_need_exact_numbers():
    tea = hot_tea()
    ok = samplers.ancestral(LINEAR, [0, Fraction(1, 3), 1])
    assert ok.law(tea, 2, 2).dtype == object
    third = samplers.ancestral(COSINE, [0, Fraction(2, 3), 1])
    assert third.law(tea, 2, 2).sum() == 1  # rho(2/3) is 1/2
    for sampler, message in (
        (samplers.ancestral(LINEAR, [0, 0.3, 1]), "uses 0.7.*Fractions"),
        (samplers.ancestral(COSINE, 3), "needs rational numbers"),
        (samplers.random_order().sharpened(0.3), "temperature = 0.3: an exac"),
        (samplers.random_order().sharpened(1, 0.3), "top_p = 0.3: an exact"),
    ):
        with pytest.raises(ValueError, match=message):
            sampler.law(tea, 2, 2)


def test_the_limit_of_the_states():
    denoiser = inconsistent(0, 2, 2)
    sampler = samplers.random_order()
    message = "length = 12, vocab_size = 2: .* = 531441 states; .* 200000"
    with pytest.raises(ValueError, match=message):
        sampler.law(denoiser, 12, 2)
    assert 3**11 < samplers.MAX_STATES < 3**12


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: samplers.ancestral(LINEAR, [0.1, 1.0]), "rho = 0.1"),
        (lambda: samplers.ancestral(LINEAR, [0.0, 0.9]), "alpha = 0.0?9*"),
        (lambda: samplers.ancestral(log_linear(1e-3), 4), "alpha = 1/1000"),
        (lambda: samplers.ancestral(LATE, 4), "rho = 1/4"),
        (lambda: samplers.ancestral(LINEAR, [1.0]), "at least two times"),
        (lambda: samplers.ancestral(LINEAR, 0), "times = 0"),
        (lambda: samplers.ancestral(LINEAR, [0, 0.6, 0.4, 1]), "earlier <"),
        (lambda: samplers.renoised(LINEAR, 3, 0), "rounds = 0"),
        (lambda: samplers.first_hitting(log_linear(1e-3)), "alpha.1. = 0"),
        (lambda: samplers.first_hitting(LATE), "rho.0. = 0"),
        (lambda: samplers.random_order(0), "per_step = 0"),
        (lambda: samplers.random_order(1.5), "per_step = 1.5"),
        (lambda: samplers.random_order([2, 0]), "per_step = 0"),
        (lambda: samplers.random_order([]), "per_step = 0"),
        (lambda: samplers.confidence("top"), "rule = 'top'.*'margin'"),
        (lambda: samplers.blocks(samplers.random_order(), 0), "size = 0"),
        (lambda: samplers.remasked(samplers.random_order(), 0), "count = 0"),
        (
            lambda: samplers.fixed_order([0, 0]).steps(2),
            r"order = \[0, 0\]: expected each of the positions 0\.\.1",
        ),
        (lambda: samplers.random_order().sharpened(-1), "temperature = -1"),
        (lambda: samplers.random_order().sharpened(1, 0), "top_p = 0"),
    ],
)
def test_bad_samplers(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def run_law(sampler, denoiser):
    return sampler.law(denoiser, 2, 2)


def run_sample(sampler, denoiser):
    return sampler.sample(denoiser, 5, 2, 2, np.random.default_rng(0))


@pytest.mark.parametrize("run", [run_law, run_sample])
def test_bad_answers(run):
    """A column for the mask, rows off 1, negative numbers, masks left."""
    sampler = samplers.random_order()

    def answer(last):
        return lambda tokens: np.broadcast_to(last, (*tokens.shape, len(last)))

    with pytest.raises(ValueError, match=r"returned shape \(., 2, 3\)"):
        run(sampler, answer([0.2, 0.3, 0.5]))
    for wrong in ([0.5, 0.4], [1.5, -0.5], [np.nan, 1.0]):
        with pytest.raises(ValueError, match="rows that sum to"):
            run(sampler, answer(wrong))
    with pytest.raises(ValueError, match=r"'random order, \[1\].* up to 1 m"):
        run(samplers.random_order([1]), answer([0.5, 0.5]))


def test_answers_of_two_kinds():
    tea = hot_tea()

    def denoiser(tokens):
        exact = tea(tokens)
        return exact if np.all(tokens == 2) else exact.astype(float)

    with pytest.raises(ValueError, match="dtype float64; expected one kind"):
        run_law(samplers.random_order(), denoiser)


def test_impossible_evidence_raises():
    """Two tokens always equal: filled together they may differ.

    The source has no answer then for the third.
    """
    twins = np.array([[0.5, 0.0], [0.0, 0.5]])
    joint = Joint(np.multiply.outer(twins, [0.5, 0.5]))
    with pytest.raises(ValueError, match="have probability 0"):
        samplers.fixed_order(per_step=[2, 1]).law(joint, 3, 2)
