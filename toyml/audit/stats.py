"""The few statistics the audit needs, without SciPy.

Calls of a loss are independent; examples of one call need not be. So a test
takes one vector a call, and the covariance between calls.
"""

import math

import numpy as np


def chi2_tail(x, df):
    """P(chi^2 with df degrees of freedom > x)."""
    x = max(float(x), 0.0) / 2
    if x > 700:
        return 0.0
    if df % 2:
        total, a = math.erfc(math.sqrt(x)), 0.5
    else:
        total, a = math.exp(-x), 1.0
    while a < df / 2:
        total += x**a * math.exp(-x) / math.gamma(a + 1)
        a += 1
    return min(total, 1.0)


def normal_quantile(tail):
    """z with P(|N| > z) = tail, by bisection."""
    low, high = 0.0, 40.0
    for _ in range(100):
        middle = (low + high) / 2
        if math.erfc(middle / math.sqrt(2)) > tail:
            low = middle
        else:
            high = middle
    return low


def wald(samples, expected):
    """p-value of the hypothesis that the mean of samples [n, d] is expected.

    A component that never varies must be equal to its expectation (or be so
    rare that n calls cannot show it). The covariance is estimated, so the
    statistic is scaled as Hotelling's.
    """
    samples = np.asarray(samples, float)
    n = len(samples)
    off = samples.mean(0) - expected
    cov = np.cov(samples.T).reshape(off.size, off.size)
    still = np.diag(cov) <= 1e-14
    if (still & (np.abs(off) > 1e-6)).any():
        missed = np.abs(off[still]).max()
        rare = math.exp(-n * missed) if (samples[:, still] == 0).all() else 0
        if rare < 1:
            return rare
    if still.all():
        return 1.0
    off, cov = off[~still], cov[np.ix_(~still, ~still)]
    values, vectors = np.linalg.eigh(cov)
    keep = values > 1e-9 * values.max()
    d = int(keep.sum())
    along = vectors.T @ off
    if (np.abs(along[~keep]) > 1e-6).any():
        return 0.0
    t2 = n * (along[keep] ** 2 / values[keep]).sum()
    return chi2_tail(t2 * (n - d) / (n - 1), d)


def kolmogorov(values, cdf):
    """p-value that values come from the law with this cdf (asymptotic)."""
    x = np.sort(cdf(np.asarray(values, float)))
    n = len(x)
    if n < 20:
        return 1.0
    steps = np.arange(n + 1) / n
    d = max((steps[1:] - x).max(), (x - steps[:-1]).max())
    z = d * (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n))
    terms = ((-1) ** (j - 1) * math.exp(-2 * (j * z) ** 2)
             for j in range(1, 101))
    return min(1.0, max(0.0, 2 * sum(terms))) if z > 0.2 else 1.0


def beta_cdf(x, a, b):
    """The cdf of Beta(a, b) for integers a, b, by its binomial sum."""
    n = a + b - 1
    x = np.clip(x, 0, 1)
    return sum(
        math.comb(n, j) * x**j * (1 - x) ** (n - j) for j in range(a, n + 1)
    )
