"""The audit against losses whose law is known from elsewhere."""

import itertools
import json
import math
import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
import torch

import museum
from cases import tea
from toyml import objectives
from toyml.audit import Report, __main__, audit, stats
from toyml.lattice import MaskLattice
from toyml.schedules import LINEAR
from toyml.subsets import masks

torch.set_num_threads(1)
CASES = {case.name: case for case in museum.RIGHT + museum.WRONG}


@cache
def report(name, **options):
    return audit(CASES[name].loss, **({"calls": 900} | dict(options)))


def weights(name):
    return [row.effective for row in report(name).effective_weight]


@pytest.mark.parametrize("name", CASES)
def test_museum(name):
    case, found = CASES[name], report(name)
    text = f"\n{found}"
    assert found.kind == case.kind, text
    assert len(found.findings) == len(case.findings), text
    for words in case.findings:
        assert any(words in finding for finding in found.findings), text
    assert case.verdict in found.verdict, text
    for words in case.notes:
        assert any(words in note for note in found.notes), text
    if case.k is None:
        assert found.k is None, text
    else:
        assert math.isclose(found.k, case.k, rel_tol=1e-4), text
    if case.kind == "nelbo":
        assert np.allclose(weights(name), case.k, rtol=1e-4), text
        assert np.allclose(list(found.bias.values()), 0, atol=1e-4), text
    if case.effective:
        assert np.allclose(weights(name), case.effective, atol=1e-4), text


def binomial(length, r):
    """P(k of L) at rates r, [n, L + 1]."""
    return np.array([
        math.comb(length, k) * r**k * (1 - r) ** (length - k)
        for k in range(length + 1)
    ]).T


def integral(f, a=0.0, b=1.0, n=400_000):
    """Midpoint rule over [a, b] of f(t) [n, ...]."""
    t = a + (b - a) * (np.arange(n) + 0.5) / n
    return (b - a) * f(t).mean(axis=0)


def by_rate(rate, weight, a=0.0, b=1.0, length=4):
    """e(1..L) for t uniform on [a, b], Bernoulli(rate(t)), weight(t)."""
    k = np.arange(length + 1)

    def one(t):
        return binomial(length, rate(t)) * weight(t)[:, None] * k / (b - a)

    return integral(one, a, b)[1:]


def test_effective_weights_of_truncated_laws():
    def inverse(t):
        return 1 / t

    def same(t):
        return t

    eps = 1e-3
    truth = {
        "llada": by_rate(same, inverse, eps) / 4,
        "dllm": by_rate(same, lambda t: 1 / (t + 1e-6), eps) / 4,
        "truncated_multiplied": 0.9 * by_rate(same, inverse, 0.1),
        "mdlm": by_rate(lambda t: (1 - eps) * t, inverse, eps) / 4,
        "md4": 0.98 * by_rate(same, inverse, 0.01, 0.99),
        "clipped_weight": by_rate(same, lambda t: 1 / np.maximum(t, 0.1)),
        "clamped_time": by_rate(
            lambda t: np.maximum(t, 0.05), lambda t: 1 / np.maximum(t, 0.05)
        ),
        "maskgit_bernoulli": by_rate(
            lambda r: np.cos(np.pi * r / 2), np.ones_like
        ),
        "fixed_rate": by_rate(lambda t: 0 * t + 0.15, np.ones_like),
    }
    for name, expected in truth.items():
        assert np.allclose(weights(name), expected, rtol=2e-4), name


def test_effective_weights_of_known_objectives():
    for name, law in (
        ("maskgit", objectives.maskgit()),
        ("unweighted", objectives.unweighted()),
        ("uniform_count", objectives.uniform_count()),
        ("inverse_t_sequence", objectives.inverse_t()),
    ):
        expected = [
            k * float(w) for k, w in enumerate(law.law(4).weight)
        ][1:]
        assert np.allclose(weights(name), expected, rtol=1e-4), name


def test_pooled_mean_by_enumeration():
    """w = 1 / (masks of the batch), times B: all counts of 7 mates."""
    mates = np.bincount(
        np.indices((5,) * 7).reshape(7, -1).sum(0), minlength=29
    ) / 5**7
    expected = [
        sum(8 * k / (k + j) * p for j, p in enumerate(mates)) / 5
        for k in range(1, 5)
    ]
    assert np.allclose(weights("realised_count_pooled"), expected, rtol=1e-4)


def test_mask_redrawn_by_integral():
    def one(t):
        p = binomial(4, t)
        return p[:, 1:] / (1 - p[:, :1])

    assert np.allclose(weights("mask_redrawn"), integral(one), rtol=1e-3)


def test_means_and_variances_on_hot_tea():
    """Against the figures of the book, found there by other routes."""
    for name, variance in (
        ("forced_target", 2.594), ("uniform_count", 2.354),
        ("inverse_t_sequence", math.inf), ("antithetic", math.inf),
        ("random_order", 0.0), ("inverse_t_numpy", math.inf),
    ):
        if name != "random_order":
            assert report(name).variance["hot tea"] == pytest.approx(
                variance, abs=6e-4
            ), name
    (measured, _) = report("unweighted").measures
    assert measured.mean == pytest.approx(1.457, abs=5e-4)
    assert measured.nelbo == pytest.approx(math.log(125) / 2)


def truncated(model, x0, mask_id):
    """t on [0.001, 1], the mean times 0.999."""
    t = 1e-3 + (1 - 1e-3) * torch.rand(len(x0), 1)
    masked = torch.rand(x0.shape) < t
    noisy = torch.where(masked, mask_id, x0)
    logp = torch.log_softmax(model(noisy), -1)
    ce = -logp.gather(-1, x0[..., None])[..., 0]
    return 0.999 * (ce * masked / t).sum(1).mean()


def test_truncated_mean_and_variance():
    found = audit(truncated, calls=300)
    (tea_, _) = found.measures
    assert tea_.mean == pytest.approx(2.4132, abs=5e-5)
    assert tea_.variance == pytest.approx(12.58, abs=6e-3)


def moments(lattice, rate, weight):
    """Mean and second moment of w(t) sum of CE, by the pattern."""
    hidden = masks(lattice.length)
    size = hidden.sum(1)

    def one(t):
        r, w = rate(t)[:, None], weight(t)[:, None]
        p = r**size * (1 - r) ** (lattice.length - size)
        x = w * lattice.row_losses
        return np.stack([(p * x).sum(1), (p * x * x).sum(1)], 1)

    return integral(one)


def test_mean_and_variance_of_a_schedule():
    def rate(t):
        return 2 * np.sin(np.pi * t / 4) ** 2

    def weight(t):
        return np.pi / 2 * np.sin(np.pi * t / 2) / rate(t)

    lattice = tea()
    mean, second = moments(lattice, rate, weight)
    found = report("cosine_schedule")
    assert mean == pytest.approx(lattice.nelbo(), rel=1e-5)
    assert found.variance["hot tea"] == pytest.approx(
        second - mean**2, rel=1e-3
    )
    mean, second = moments(
        lattice, lambda t: np.maximum(t, 0.05),
        lambda t: 1 / np.maximum(t, 0.05),
    )
    found = report("clamped_time")
    (measured, _) = found.measures
    assert measured.mean == pytest.approx(mean, rel=1e-3)
    assert measured.variance == pytest.approx(second - mean**2, rel=2e-3)


def test_finite_steps_on_hot_tea():
    """The K-step bound, term by term, from the lattice."""
    times = np.arange(9) / 8
    bound = tea().nelbo_on_grid(LINEAR, times)
    measured = report("eight_steps").measures[0]
    assert measured.mean == pytest.approx(bound.total, rel=1e-5)


def test_orders_on_hot_tea():
    first = report("autoregressive").measures[0]
    assert first.mean == pytest.approx(tea().order_loss([0, 1]))
    assert first.variance == 0


def test_random_table_is_the_one_measured():
    """The mean of an unweighted loss: all patterns of t uniform."""
    from toyml.audit.measure import random_table

    lattice = random_table()
    total = sum(
        lattice.row_losses[s] / (5 * math.comb(4, int(s).bit_count()))
        for s in range(16)
    )
    assert report("unweighted").measures[1].mean == pytest.approx(total)
    assert isinstance(lattice, MaskLattice)


def test_scale_changes_k_alone():
    def scaled(model, x0, mask_id):
        return 7.3 * museum.uniform_count(model, x0, mask_id)

    one, other = report("uniform_count"), audit(scaled, calls=900)
    assert other.k == pytest.approx(7.3 * one.k, rel=1e-5)
    assert other.kind == one.kind and other.findings == one.findings
    assert other.notes == one.notes
    for a, b in zip(one.measures, other.measures, strict=True):
        assert b.bias == pytest.approx(a.bias, abs=1e-5)


def test_name_and_source_are_not_read():
    namespace = {"museum": museum}
    exec("other = lambda m, x, i: museum.pooled(m, x, i)", namespace)
    namespace["museum"] = type("M", (), {
        "pooled": staticmethod(museum.realised_count_pooled)
    })
    assert str(audit(namespace["other"], calls=900)) == str(
        report("realised_count_pooled")
    )


def test_states_are_restored_and_runs_repeat():
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    expected = torch.rand(3), np.random.rand(3), random.random()
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    one = audit(museum.inverse_t_numpy, calls=200, seed=5)
    assert torch.equal(torch.rand(3), expected[0])
    assert (np.random.rand(3) == expected[1]).all()
    assert random.random() == expected[2]
    other = audit(museum.inverse_t_numpy, calls=200, seed=5)
    assert one.to_json() == other.to_json()


def test_mask_column_can_be_required():
    clean = report("inverse_t_sequence")
    assert any("mask_column=True" in note for note in clean.notes)
    wide = audit(museum.inverse_t_sequence, calls=200, mask_column=True)
    assert len(wide.findings) == 1 and museum.MASK in wide.findings[0]


def test_other_lengths_and_vocabularies():
    for length, vocab_size in ((3, 4), (7, 11), (2, 3)):
        found = audit(
            museum.inverse_t_token, length, vocab_size, calls=300
        )
        assert found.clean, str(found)
        assert found.k == pytest.approx(1 / length, rel=1e-4)
        assert len(found.effective_weight) == length


def test_unread_options_are_said_to_be_untested():
    notes = " ".join(report("inverse_t_sequence").notes)
    for words in ("Prompt: not tested", "Padding: not tested",
                  "Attention mask: not tested", "t is not passed"):
        assert words in notes


def test_intervals_hold_the_truth():
    """A law that is not fitted: intervals, which hold e(k) = 1."""
    found = report("block_diffusion")
    assert found.how == "estimated"
    for row in found.effective_weight:
        assert row.low < 1 < row.high
        assert row.high - row.low < 0.3


def test_report_prints_and_draws(tmp_path):
    found = report("llada")
    data = json.loads(found.to_json())
    assert data["kind"] == "truncated" and len(data["measures"]) == 2
    assert [row["k"] for row in data["effective_weight"]] == [1, 2, 3, 4]
    text = str(found)
    assert "Findings: none" in text and "hot tea" in text
    assert max(map(len, str(report("inverse_t_token")).split("\n"))) < 200
    path = tmp_path / "law.png"
    k, value, ideal = found.figure(path)
    assert path.stat().st_size > 1000
    assert k.tolist() == [1, 2, 3, 4] and (ideal == 0.25).all()
    assert np.allclose(value, weights("llada"))
    assert "inf" in report("inverse_t_token").to_json()
    with pytest.raises(ValueError, match="expected a report with"):
        report("raises").figure()


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "law.png"
    rest = ["--calls", "100", "--json", "--figure", str(path)]
    assert __main__.main(["museum:inverse_t_token", *rest]) == 0
    assert json.loads(capsys.readouterr().out)["clean"] and path.exists()
    assert __main__.main(["museum:mask_in_softmax", "--calls", "100"]) == 1
    assert museum.MASK in capsys.readouterr().out
    assert __main__.main(["museum:raises"]) == 2
    assert __main__.main(["museum:nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_command_line_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "toyml.audit", "nowhere:loss"],
        capture_output=True, text=True,
    )
    assert done.returncode == 2 and "nowhere" in done.stderr


@pytest.mark.parametrize("options, words", [
    ({"length": 1}, "length = 1"), ({"vocab_size": 2}, "vocab_size = 2"),
    ({"batch": 1}, "batch = 1"), ({"calls": 3}, "calls = 3"),
    ({"error_rate": 0}, "error_rate = 0"),
])
def test_bad_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        audit(museum.inverse_t_token, **options)
    with pytest.raises(ValueError, match="expected a function"):
        audit(3)


def test_report_is_exported():
    assert isinstance(report("raises"), Report)


# The statistics, against sums and known quantiles.


def test_chi2_tail():
    for x, df, p in ((3.841459, 1, 0.05), (5.991465, 2, 0.05),
                     (11.34487, 3, 0.01), (18.30704, 10, 0.05)):
        assert stats.chi2_tail(x, df) == pytest.approx(p, rel=1e-5)
    assert stats.normal_quantile(0.05) == pytest.approx(1.959964, abs=1e-6)


def test_beta_cdf():
    assert stats.beta_cdf(0.3, 2, 3) == pytest.approx(0.3483)
    x = np.linspace(0, 1, 9)
    assert np.allclose(stats.beta_cdf(x, 1, 4), 1 - (1 - x) ** 4)


def test_p_values_are_uniform():
    """800 tests of a true hypothesis: 5% below 0.05, 3 sigma is 2.3%."""
    rng = np.random.default_rng(0)
    wald, kolmogorov = [], []
    for _ in range(800):
        counts = rng.multinomial(8, [0.1, 0.2, 0.3, 0.4], size=300) / 8
        wald.append(stats.wald(counts, np.array([0.1, 0.2, 0.3, 0.4])))
        kolmogorov.append(
            stats.kolmogorov(rng.random(200), lambda x: x)
        )
    for p in (wald, kolmogorov):
        assert 0.027 < np.mean(np.array(p) < 0.05) < 0.073


def test_wald_rejects_a_constant_that_is_off():
    same = np.ones((100, 2))
    assert stats.wald(same, np.array([1, 1])) == 1
    assert stats.wald(same, np.array([1, 1.1])) == 0
    assert stats.wald(0 * same, np.array([0, 1e-4])) > 0.9


def test_museum_is_complete():
    """One for each public project of the table and each numbered item."""
    public = ("mdlm", "llada", "md4", "radd_count", "tiny_diffusion", "dllm",
              "maskgit", "block_diffusion")
    assert set(public) <= set(CASES)
    documents = [case.loss.__doc__ or "" for case in museum.WRONG]
    for item in (1, 2, 6, 7, 8, 11, 12, 13, 14):
        assert any(f"Item {item}:" in text for text in documents), item
    assert len(list(itertools.chain(museum.RIGHT, museum.WRONG))) == len(CASES)
