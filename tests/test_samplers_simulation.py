"""The simulations: against the exact laws, and what they ask and keep."""

import time
from itertools import pairwise
from math import exp, log, sqrt

import numpy as np
import pytest
import torch

from test_samplers import (
    inconsistent,
    memo,
    random_joint,
    random_markov,
    timed,
)
from toyml import samplers
from toyml.model import Transformer, as_denoiser
from toyml.samplers import Sampler, Selection, Step
from toyml.schedules import COSINE, LINEAR, polynomial

N = 100_000
# Each of about 200 checks fails by chance with at most this probability.
FALSE_ALARM = 1e-6
SAMPLERS = {
    s.name: s
    for s in (
        samplers.ancestral(LINEAR, 1),
        samplers.ancestral(LINEAR, 6),
        samplers.ancestral(COSINE, 3),
        samplers.ancestral(polynomial(2), [0, 0.2, 0.7, 1]),
        samplers.renoised(LINEAR, 2),
        samplers.renoised(COSINE, [0, 0.3, 1], rounds=2),
        samplers.first_hitting(LINEAR),
        samplers.first_hitting(COSINE),
        samplers.fixed_order(),
        samplers.fixed_order([2, 0, 1]),
        samplers.fixed_order(per_step=2),
        samplers.random_order(),
        samplers.random_order([1, 2]),
        *(
            samplers.confidence(rule, count)
            for rule in samplers.RULES
            for count in (1, 2)
        ),
        samplers.blocks(samplers.random_order(2), 2),
        samplers.blocks(samplers.ancestral(COSINE, 2), 2),
        samplers.blocks(samplers.first_hitting(LINEAR), 2),
        samplers.blocks(samplers.confidence("margin"), 2),
        samplers.remasked(samplers.random_order(3), 2, 2),
        samplers.remasked(samplers.confidence("entropy"), 1, 2),
    )
}
SHARPENED = {
    f"{s.name}, T = {temperature}, top-p {top_p}": s.sharpened(
        temperature, top_p
    )
    for s, temperature, top_p in (
        (samplers.ancestral(COSINE, 3), 0.6, 1),
        (samplers.first_hitting(COSINE), 0, 1),
        (samplers.random_order(), 1, 0.8),
        (samplers.random_order(2), 1.5, 0.7),
        (samplers.fixed_order([2, 0, 1]), 0.6, 0.9),
        (samplers.confidence("probability"), 1.5, 1),
        (samplers.confidence("margin", 2), 1, 0.7),
        (samplers.confidence("entropy"), 0.6, 0.9),
        (samplers.blocks(samplers.random_order(2), 2), 0.6, 0.9),
        (samplers.renoised(LINEAR, 2), 1.5, 0.8),
        (samplers.remasked(samplers.random_order(3), 1), 0.6, 0.9),
    )
}


def random_network(length, vocab_size):
    """Float32 logits; its conditionals fit no joint law."""
    torch.manual_seed(4)
    net = Transformer(vocab_size, layers=1, width=8, heads=2)
    for w in net.parameters():
        torch.nn.init.normal_(w, std=0.7)
    return memo(as_denoiser(net), length, vocab_size)


DENOISERS = {
    "joint": random_joint(1, 3, 3),
    "markov": random_markov(2, 3, 3),
    "inconsistent": inconsistent(3, 3, 3, exact=False),
    "network": random_network(3, 3),
}


def fast(name):
    """The denoiser in float64, one table look-up a call."""
    denoiser = DENOISERS[name]
    return memo(lambda x: np.asarray(denoiser(x), np.float64), 3, 3)


def chance(draws, law):
    """At most so likely are frequencies as far from the law as these.

    For n draws from a law over m + 1 cells, and KL = KL(frequencies || law),
    P(n KL >= x) <= exp(-x) (e x / m)^m where x > m. It holds for every n:
    source Agrawal 2020, Finite-sample concentration of the multinomial in
    relative entropy, theorem 1.2. 0 if the law excludes a cell that was seen.
    """
    n, law = len(draws), law.ravel()
    side = round(len(law) ** (1 / draws.shape[1]))
    cells = np.ravel_multi_index(draws.T, (side,) * draws.shape[1])
    seen = np.bincount(cells, minlength=len(law))
    if np.any(seen[law == 0]):
        return 0.0
    m, hit = np.count_nonzero(law) - 1, seen > 0
    x = np.sum(seen[hit] * np.log(seen[hit] / (n * law[hit])))
    return 1.0 if x <= m or m == 0 else exp(m - x + m * log(x / m))


def check_frequencies(draws, law):
    """With N draws over 27 cells: KL up to 6.3e-4, so total variation up to
    0.018 (Pinsker)."""
    assert chance(draws, law) >= FALSE_ALARM


def test_the_check_finds_small_errors_and_raises_no_alarm():
    """A hundredth of the probability moved between two of 27 cells."""
    rng = np.random.default_rng(0)
    law = rng.dirichlet(np.full(27, 2.0))
    first, second = np.argsort(law)[-2:]
    wrong = law.copy()
    wrong[first] -= 0.01
    wrong[second] += 0.01

    def draw(p, n):
        cells = rng.choice(27, n, p=p)
        return np.stack(np.unravel_index(cells, (3, 3, 3)), axis=1)

    for _ in range(10):
        assert chance(draw(law, N), law) > 1e-3
        assert chance(draw(wrong, N), law) < FALSE_ALARM
    # A bound on a tail: u or less at most u of the time, few draws or many.
    for n in (20, 2000):
        found = np.array([chance(draw(law, n), law) for _ in range(400)])
        assert np.mean(found <= 0.1) <= 0.1
    without = np.where(np.arange(27) == second, 0, law)
    assert chance(draw(law, 1000), without / without.sum()) == 0


@pytest.mark.parametrize("name", DENOISERS)
@pytest.mark.parametrize(
    "sampler",
    [*SAMPLERS.values(), *SHARPENED.values()],
    ids=[*SAMPLERS, *SHARPENED],
)
def test_frequencies(sampler, name):
    denoiser = fast(name)
    rng = np.random.default_rng(11)
    draws = sampler.sample(denoiser, N, 3, 3, rng, batch=30_000)
    assert draws.shape == (N, 3) and draws.dtype == np.int64
    check_frequencies(draws, sampler.law(denoiser, 3, 3))


def test_each_sampler_is_compared():
    """All that the package builds are in the list above."""
    names = " ".join(SAMPLERS)
    for kind in (
        *("ancestral", "renoised", "first hitting", "order left to right"),
        *("order [2", "random order", "blocks of", "remasked"),
        *(f"by {rule}" for rule in samplers.RULES),
    ):
        assert kind in names
    assert len(SAMPLERS) == 25 and len(SHARPENED) == 11


@pytest.mark.parametrize("schedule", [LINEAR, COSINE, polynomial(2)])
def test_frequencies_of_a_denoiser_that_reads_the_time(schedule):
    denoiser = timed(fast("inconsistent"), fast("network"))
    times = [0, 0.2, 0.5, 1]
    for sampler in (
        samplers.ancestral(schedule, times),
        samplers.renoised(schedule, times),
        samplers.blocks(samplers.ancestral(schedule, times), 2),
    ):
        rng = np.random.default_rng(6)
        draws = sampler.sample(denoiser, N, 3, 3, rng)
        check_frequencies(draws, sampler.law(denoiser, 3, 3))


@pytest.mark.parametrize("temperature, top_p", [(0.6, 1), (0, 1), (1.5, 0.7)])
def test_positions_go_by_what_is_not_sharpened(temperature, top_p):
    """By the conditionals as the denoiser gives them."""
    denoiser = inconsistent(25, 3, 3, exact=False)
    by_top = samplers.confidence("probability")
    right = by_top.sharpened(temperature, top_p)
    law = right.law(denoiser, 3, 3)
    wrong = by_top.law(
        lambda x: samplers.sharpen(denoiser(x), temperature, top_p), 3, 3
    )
    assert np.abs(law - wrong).max() > 0.1
    assert np.any(law == 0) == ((temperature, top_p) != (0.6, 1))
    draws = right.sample(denoiser, N, 3, 3, np.random.default_rng(2))
    check_frequencies(draws, law)
    assert chance(draws, wrong) < FALSE_ALARM


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


def test_the_progress_bar(capsys):
    """It names the sampler, counts to the end, and leaves an empty line."""
    rng, asked = np.random.default_rng(0), []

    def slow(tokens):
        time.sleep(0.06)  # the bar is drawn again every tenth of a second
        asked.append(len(tokens))
        return fast("joint")(tokens)

    sampler = samplers.random_order()
    sampler.sample(slow, 20, 3, 3, rng, batch=10, progress=True)
    out, shown = capsys.readouterr()
    assert len(asked) == 6 and out == ""
    frames = shown.split("\r")
    assert any("random order, 1 a step" in frame for frame in frames)
    assert any("/60" in frame and "%" in frame for frame in frames)
    assert "\n" not in shown and frames[-1].strip() == ""
    # So too when the denoiser fails: the next line begins on its own.
    with pytest.raises(ValueError, match="returned shape"):
        sampler.sample(lambda x: x, 20, 3, 3, rng, progress=True)
    assert capsys.readouterr().err.split("\r")[-1].strip() == ""
    for quiet in (None, False):
        sampler.sample(fast("joint"), 20, 3, 3, rng, progress=quiet)
    assert capsys.readouterr() == ("", "")


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
