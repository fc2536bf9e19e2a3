"""The simulations: against the exact laws, and what they ask and keep."""

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest

from test_samplers import inconsistent, memo, random_joint, random_markov
from toyml import samplers
from toyml.samplers import Sampler, Selection, Step
from toyml.schedules import COSINE, LINEAR, polynomial

N = 100_000
SAMPLERS = {
    s.name: s
    for s in (
        samplers.ancestral(LINEAR, 1),
        samplers.ancestral(COSINE, 3),
        samplers.ancestral(polynomial(2), [0, 0.2, 0.7, 1]),
        samplers.first_hitting(COSINE),
        samplers.fixed_order([2, 0, 1]),
        samplers.fixed_order(per_step=2),
        samplers.random_order(),
        samplers.random_order([1, 2]),
        samplers.confidence("probability"),
        samplers.confidence("margin", 2),
        samplers.confidence("entropy"),
        samplers.blocks(samplers.confidence("margin"), 2),
        samplers.blocks(samplers.first_hitting(LINEAR), 2),
        samplers.renoised(LINEAR, 2),
        samplers.remasked(samplers.random_order(3), 2, 2),
    )
}
DENOISERS = {
    "joint": random_joint(1, 3, 3),
    "markov": random_markov(2, 3, 3),
    "inconsistent": inconsistent(3, 3, 3, exact=False),
}


def fast(name):
    """The denoiser in float64, one table look-up a call."""
    denoiser = DENOISERS[name]
    return memo(lambda x: np.asarray(denoiser(x), np.float64), 3, 3)


def check_frequencies(draws, law):
    """Chi-square, five standard deviations; none where the law is 0."""
    n, law = len(draws), law.ravel()
    side = round(len(law) ** (1 / draws.shape[1]))
    cells = np.ravel_multi_index(draws.T, (side,) * draws.shape[1])
    seen = np.bincount(cells, minlength=len(law))
    assert np.all(seen[law == 0] == 0)
    expected = n * law[law > 0]
    assert expected.min() > 5
    chi_square = np.sum((seen[law > 0] - expected) ** 2 / expected)
    freedom = len(expected) - 1
    assert chi_square <= freedom + 5 * sqrt(2 * freedom)


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_frequencies(sampler, name):
    denoiser = fast(name)
    rng = np.random.default_rng(11)
    draws = sampler.sample(denoiser, N, 3, 3, rng, batch=30_000)
    assert draws.shape == (N, 3) and draws.dtype == np.int64
    check_frequencies(draws, sampler.law(denoiser, 3, 3))


@pytest.mark.parametrize("temperature, top_p", [(0.6, 1), (0, 1), (1.5, 0.7)])
def test_sharpened_frequencies(temperature, top_p):
    """And the positions go by the conditionals before they are sharpened."""
    denoiser = inconsistent(25, 3, 3, exact=False)
    by_top = samplers.confidence("probability")
    right = by_top.sharpened(temperature, top_p).law(denoiser, 3, 3)
    wrong = by_top.law(
        lambda x: samplers.sharpen(denoiser(x), temperature, top_p), 3, 3
    )
    assert np.abs(right - wrong).max() > 0.1
    for sampler in (
        samplers.random_order(),
        samplers.ancestral(LINEAR, 2),
        by_top,
        samplers.confidence("entropy", 2),
    ):
        sharp = sampler.sharpened(temperature, top_p)
        draws = sharp.sample(denoiser, N, 3, 3, np.random.default_rng(2))
        law = sharp.law(denoiser, 3, 3)
        assert np.any(law == 0) == ((temperature, top_p) != (0.6, 1))
        check_frequencies(draws, law)


def test_frequencies_with_prompts():
    denoiser = fast("inconsistent")
    for sampler in SAMPLERS.values():
        if "[1, 2]" in sampler.name:
            continue
        law = sampler.law(denoiser, 3, 3, prompt=[3, 1, 3])
        rng = np.random.default_rng(4)
        draws = sampler.sample(denoiser, 20_000, 3, 3, rng, prompt=[3, 1, 3])
        check_frequencies(draws, law)


def test_exact_denoisers_are_drawn_from_too():
    joint = random_joint(1, 2, 2)
    sampler = samplers.confidence("margin")
    draws = sampler.sample(joint, 2000, 2, 2, np.random.default_rng(0))
    check_frequencies(draws, joint.probabilities.astype(float))


class Recorder:
    """Keeps what it was asked; answers with a table."""

    def __init__(self, length, vocab_size, seed=0):
        self.table = inconsistent(seed, length, vocab_size, exact=False)
        self.calls = []

    def __call__(self, tokens, t=None):
        self.calls.append((tokens.copy(), t))
        answer = self.table(tokens)
        tokens[:] = 0  # its own copy: nothing must come of this
        return answer


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_visible_tokens_stay_and_masks_go(sampler):
    v = 2
    prompt = np.array([2, 1, 2])
    remasks = any(step.remasks for step in sampler.steps(3))
    for seed in range(30):
        denoiser = Recorder(3, v, seed)
        rng = np.random.default_rng(seed)
        (final,) = sampler.sample(denoiser, 1, 3, v, rng, prompt=prompt)
        assert final[1] == 1 and np.all((final >= 0) & (final < v))
        seen = [x[0] for x, _ in denoiser.calls] + [final]
        assert np.all(seen[0] == prompt)
        for before, after in pairwise(seen):
            assert after[1] == 1
            if not remasks:
                kept = before != v
                assert np.all(after[kept] == before[kept])
        for x in seen[:-1]:
            assert np.any(x == v)


def test_remasking_changes_visible_tokens():
    """A wrong token that nothing else can repair."""
    denoiser = Recorder(3, 2)
    sampler = samplers.remasked(samplers.random_order(3), 1, 20)
    sampler.sample(denoiser, 1, 3, 2, np.random.default_rng(0))
    seen = np.array([x[0] for x, _ in denoiser.calls])
    assert {0, 1, 2} <= set(seen[:, 0].tolist())


def test_each_prompt_of_a_batch_is_kept():
    rng = np.random.default_rng(0)
    prompts = rng.integers(0, 4, (500, 3))
    for sampler in SAMPLERS.values():
        if "[1, 2]" in sampler.name:
            continue
        draws = sampler.sample(
            fast("joint"), 500, 3, 3, np.random.default_rng(1), prompt=prompts
        )
        given = prompts != 3
        assert np.all(draws[given] == prompts[given])
        assert draws.max() == 2 and draws.min() == 0
    assert np.any(prompts == 3)  # the caller's array is not filled in


@pytest.mark.parametrize("renoise", [False, True])
def test_times_run_from_noise_to_clean(renoise):
    """The all-mask input gets the largest t, and each step the larger one."""
    times = [0, 0.1, 0.5, 0.8, 1]
    build = samplers.renoised if renoise else samplers.ancestral
    denoiser = Recorder(3, 2)
    rng = np.random.default_rng(0)
    build(COSINE, times).sample(denoiser, 1000, 3, 2, rng)
    told = [t for _, t in denoiser.calls]
    assert all(type(t) is float for t in told)
    wanted = [1, 1, 0.8, 0.8, 0.5, 0.5, 0.1, 0.1] if renoise else times[:0:-1]
    assert told == wanted
    first, t = denoiser.calls[0]
    assert np.all(first == 2) and t == 1.0


def test_samplers_without_time_pass_none():
    for sampler in (samplers.random_order(), samplers.confidence("margin")):
        denoiser = Recorder(2, 2)
        sampler.sample(denoiser, 5, 2, 2, np.random.default_rng(0))
        assert [t for _, t in denoiser.calls] == [None, None]


@pytest.mark.parametrize("schedule", [LINEAR, COSINE, polynomial(2)])
def test_first_hitting_times(schedule):
    """rho of the times: uniforms in falling order, means j / (L + 1)."""
    n, length = 20_000, 3
    denoiser = Recorder(length, 2)
    sampler = samplers.first_hitting(schedule)
    rng = np.random.default_rng(5)
    sampler.sample(denoiser, n, length, 2, rng, prompt=[2, 2, 2])
    levels = np.array([schedule.masked(t) for _, t in denoiser.calls])
    assert levels.shape == (3, n)
    assert np.all(np.diff(levels, axis=0) <= 0)
    for level, j in zip(levels, (3, 2, 1), strict=True):
        variance = j * (4 - j) / (16 * 5)  # of a Beta(j, 4 - j)
        slack = 5 * sqrt(variance / n)
        assert abs(level.mean() - j / 4) < slack
        square = variance + (j / 4) ** 2
        assert abs((level**2).mean() - square) < 5 / sqrt(n)


def test_first_hitting_times_with_a_prompt_and_blocks():
    """Only masks have times; each block has its own, from 1 again."""
    n = 20_000
    prompts = np.full((n, 4), 2)
    prompts[: n // 2, :3] = [0, 1, 0]
    denoiser = Recorder(4, 2)
    blocks = samplers.blocks(samplers.first_hitting(LINEAR), 2)
    blocks.sample(denoiser, n, 4, 2, np.random.default_rng(0), prompt=prompts)
    means = [float(np.mean(t)) for _, t in denoiser.calls]
    sizes = [len(t) for _, t in denoiser.calls]
    assert sizes == [n // 2, n // 2, n, n // 2]
    wanted = [2 / 3, 1 / 3, (1 / 2 + 2 / 3) / 2, 1 / 3]
    assert np.allclose(means, wanted, rtol=0, atol=0.01)


def test_first_hitting_is_the_limit_of_small_steps():
    """For a denoiser that reads t, the law at 1/K -> 0 by Richardson."""
    one, two = (inconsistent(s, 2, 2, exact=False) for s in (7, 8))

    def denoiser(tokens, t):
        t = np.reshape(t, (-1, 1, 1))
        return t**2 * one(tokens) + (1 - t**2) * two(tokens)

    coarse, fine = (
        samplers.ancestral(COSINE, k).law(denoiser, 2, 2) for k in (64, 128)
    )
    sampler = samplers.first_hitting(COSINE)
    draws = sampler.sample(denoiser, N, 2, 2, np.random.default_rng(0))
    check_frequencies(draws, 2 * fine - coarse)
    wrong = samplers.first_hitting(LINEAR)
    draws = wrong.sample(denoiser, N, 2, 2, np.random.default_rng(0))
    with pytest.raises(AssertionError):
        check_frequencies(draws, 2 * fine - coarse)


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_the_batch_does_not_change_the_draws(sampler):
    def run(batch):
        rng = np.random.default_rng(0)
        return sampler.sample(fast("joint"), 200, 3, 3, rng, batch=batch)

    whole = run(None)
    for batch in (1, 7, 199, 200, 1000):
        assert np.all(run(batch) == whole)


def test_one_call_a_step_for_the_rows_that_have_masks():
    denoiser = Recorder(3, 2)
    rng = np.random.default_rng(0)
    prompts = np.array([[2, 2, 2], [0, 0, 0], [0, 1, 2], [2, 1, 2]])
    samplers.random_order().sample(denoiser, 4, 3, 2, rng, prompt=prompts)
    assert [len(x) for x, _ in denoiser.calls] == [3, 2, 1]
    denoiser.calls.clear()
    samplers.random_order().sample(denoiser, 10, 3, 2, rng, batch=4)
    assert [len(x) for x, _ in denoiser.calls] == [4, 4, 2] * 3


def test_stops_when_nothing_is_masked():
    denoiser, steps = Recorder(2, 2), []
    rng = np.random.default_rng(0)
    sampler = samplers.ancestral(LINEAR, np.linspace(0, 1, 1001))
    sampler.sample(
        denoiser, 1, 2, 2, rng, progress=lambda done, total: steps.append(done)
    )
    assert len(denoiser.calls) < 1000 and steps[-1] == 1000
    denoiser.calls.clear()
    for sampler in SAMPLERS.values():
        if not any(step.remasks for step in sampler.steps(3)):
            got = sampler.sample(Recorder(3, 2), 2, 3, 2, rng, [0, 1, 0])
            assert got.tolist() == [[0, 1, 0]] * 2
    assert denoiser.calls == []


def test_progress():
    told = []
    samplers.random_order().sample(
        fast("joint"),
        10,
        3,
        3,
        np.random.default_rng(0),
        batch=4,
        progress=lambda done, total: told.append((done, total)),
    )
    done = [4, 8, 10, 14, 18, 20, 24, 28, 30, 30]
    assert told == [(k, 30) for k in done]


def test_draws_are_made_in_float64():
    """Uniforms next to an edge, on the side that float32 cannot see."""

    class Edge:
        def __init__(self, u):
            self.u = u

        def random(self, shape):
            return np.full(shape, self.u)

    for p, u, token in ((1 - 1e-12, 1 - 1e-13, 1), (0.5 + 1e-9, 0.5, 0)):
        row = [p, 1 - p]
        got = samplers.random_order().sample(
            lambda tokens, row=row: np.broadcast_to(row, (*tokens.shape, 2)),
            *(1, 2, 2, Edge(u)),
        )
        assert got.tolist() == [[token, token]]


def test_a_selection_of_one_own():
    """Steps are open: every second candidate, then the rest."""

    def select(candidates, probs):
        return Selection(candidates & (np.arange(4) % 2 == 1))

    step = Step(select), Step(lambda c, p: Selection(c))
    sampler = Sampler("comb", lambda length: step)
    denoiser = Recorder(4, 2)
    sampler.sample(denoiser, 1, 4, 2, np.random.default_rng(0))
    (first, _), (second, _) = denoiser.calls
    assert (first == 2).tolist() == [[True] * 4]
    assert (second == 2).tolist() == [[True, False, True, False]]
    law = sampler.law(denoiser, 4, 2)
    assert law.sum() == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n": 0}, "n = 0: expected at least 1"),
        ({"batch": 0}, "batch = 0: expected at least 1"),
        ({"length": 0}, "length = 0, vocab_size = 2"),
        ({"vocab_size": 0}, "length = 3, vocab_size = 0"),
        ({"prompt": 0}, r"shape \(\) "),
        ({"prompt": [2, 2]}, r"shape \(2,\) .*\(3,\) or \(4, 3\)"),
        ({"prompt": [0.0, 1.0, 2.0]}, "dtype float64; expected integers"),
        ({"prompt": [0, 1, 3]}, r"holds 0 to 3; .* 0\.\.2 \(mask id 2\)"),
        ({"prompt": [0, -1, 2]}, "holds -1 to 2"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"n": 4, "length": 3, "vocab_size": 2} | change
    with pytest.raises(ValueError, match=message):
        samplers.random_order().sample(
            Recorder(3, 2), rng=np.random.default_rng(0), **arguments
        )


@pytest.mark.parametrize("prompt", [[2, 2], [[2, 2, 2]], [0, 1, 3]])
def test_bad_prompts_of_a_law(prompt):
    with pytest.raises(ValueError, match="^prompt"):
        samplers.random_order().law(Recorder(3, 2), 3, 2, prompt=prompt)
