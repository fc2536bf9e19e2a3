"""The law of mask counts and weights: set, fitted or estimated.

Three ways, the strongest that works: exact integrals over the ``Curve`` of a
loss whose random numbers can be set; a known law of counts that the sampled
counts do not contradict, with weights that are a function of the count; and
estimates with intervals.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from .counts import candidates, count_name, inverse, inverse_second
from .stats import normal_quantile, wald


@dataclass
class Law:
    """What is known about the draws at one length.

    probability: P(k masks), k = 0..L; effective: E[total weight; k] with low
    and high; second: E[total weight^2; k] or None. kind: "count" (weights a
    function of the own count), "pooled" (of the batch's count), "nonempty"
    (of the number of examples with a mask), "other". how: "exact", "fitted"
    or "estimated". single: one of the masked positions is scored.
    """

    length: int
    probability: np.ndarray
    effective: np.ndarray
    low: np.ndarray
    high: np.ndarray
    second: np.ndarray | None
    kind: str
    how: str
    counts_name: str
    counts_how: str
    single: bool
    weights: np.ndarray
    pooled: bool = False
    curve: object = None
    notes: list = field(default_factory=list)

    @property
    def known(self):
        return self.how != "estimated"


def analyse(draws, curve, level, mates=None, batch_fixed=None):
    """The ``Law`` behind draws; curve: a ``Curve`` or None.

    level: the error rate of one test. mates: whether the weight of one
    example was seen to depend on the others.
    """
    n, batch, passes, length = draws.masked.shape
    k = draws.masked.sum(-1)
    weight = draws.weight * draws.masked
    total = weight.sum(-1)
    scored = (weight != 0).sum(-1)
    slack = 5e-2 if draws.coarse.all() else 5e-4
    each = np.divide(total, scored, out=np.zeros_like(total),
                     where=scored > 0)
    kind, tau = _kind(k, total, each, draws, slack, batch)
    live = k[scored > 0]
    single = bool((scored[scored > 0] == 1).all() and (live > 1).any())
    counts = np.stack([(k == j).sum((1, 2)) for j in range(length + 1)], 1)
    counts = counts / batch
    if passes > 1:
        counts[:, 0] = 0
    sums = np.stack(
        [np.where(k == j, total, 0).sum((1, 2)) for j in range(length + 1)], 1
    ) / batch
    p, name, p_how = _counts(counts, curve, level, length, passes)
    law = _estimate(sums, counts, level, length)
    law |= {
        "probability": p, "kind": kind, "counts_name": name,
        "counts_how": p_how, "single": single, "weights": tau,
        "length": length, "how": "estimated", "second": None,
    }
    if kind == "count" and p_how != "estimated":
        law |= _exact(p * tau, p * tau**2, p_how)
    elif kind == "pooled" and p_how != "estimated" and passes == 1:
        law |= _exact(_pooled(p, tau, batch), None, p_how)
    elif kind == "nonempty" and p_how != "estimated" and passes == 1:
        law |= _exact(p * tau * _mean_share(p[0], batch), None, p_how)
    elif kind == "other" and not mates and _agrees(curve, sums, level):
        law |= _exact(curve.moment(1), curve.moment(2), "exact")
    elif kind == "other" and not mates and passes == 1:
        scale = inverse(k, each, total, scored, level, length)
        if scale:
            flat = np.full(length + 1, scale)
            flat[0] = 0
            law |= _exact(flat, None, "fitted")
            law["counts_name"] = "Bernoulli(t), t uniform"
            law["notes"] = [
                "The law c / t with t uniform was fitted, not set. The "
                f"largest weight seen was {each.max():.3g}: a cut-off past "
                "it would not show."
            ]
            law["second"] = inverse_second(scale, length)
    if law["how"] == "fitted":
        law |= _counted(law["effective"], p, counts, level)
    if curve is not None and curve.stepped:
        law.setdefault("notes", []).append(
            "Times were read on an even grid: a cut-off below "
            f"{1 / 2000 if curve.blind else 1e-5:g} would not show."
        )
    if curve is not None and curve.blind and kind == "other":
        law["second"] = None
    if p_how != "exact" or law["how"] == "estimated":
        curve = None
    out = Law(curve=curve, pooled=bool(mates), **law)
    if mates and out.kind == "other":
        out.curve = None
    return out


def _agrees(curve, sums, level):
    """Whether the sampled weights do not contradict those of the curve.

    At one mask the variance may be infinite, so k >= 2 is compared.
    """
    if curve is None:
        return False
    return wald(sums[:, 2:], curve.moment(1)[2:]) > level


def _exact(effective, second, how):
    effective = np.asarray(effective, float)
    return {"effective": effective, "low": effective, "high": effective,
            "second": second, "how": how}


def _estimate(sums, counts, level, length):
    """Means by count, with intervals that are honest about rare weights."""
    n = len(sums)
    mean = sums.mean(0)
    half = normal_quantile(level) * sums.std(0, ddof=1) / math.sqrt(n)
    high = mean + half
    # One value holds much of the sum: its like may not have been seen yet.
    top = np.abs(sums).max(0) / np.maximum(np.abs(sums).sum(0), 1e-30)
    high[(top > 0.02) & (counts.sum(0) > 50)] = np.inf
    return {"effective": mean, "low": mean - half, "high": high}


def _counted(effective, p, counts, level):
    """Intervals from the mask counts: rare large weights do not enter."""
    half = normal_quantile(level) * counts.std(0, ddof=1)
    half /= math.sqrt(len(counts))
    with np.errstate(all="ignore"):
        ratio = np.where(p > 0, effective / p, 0)
    seen = counts.mean(0)
    return {"low": ratio * (seen - half), "high": ratio * (seen + half)}


def _kind(k, total, each, draws, slack, batch):
    """How weights depend on counts, and the total weight by count."""
    length = draws.masked.shape[-1]
    if _varies(k, total, slack, length) is not None:
        return "count", _varies(k, total, slack, length)
    pool = draws.masked.sum((1, 2, 3))[:, None, None]
    tau = _varies(k, each * pool / batch, slack, length)
    if tau is not None and _same(tau):
        return "pooled", tau
    filled = (k > 0).any(2).sum(1)[:, None, None]
    tau = _varies(k, total * filled / batch, slack, length)
    if tau is not None:
        return "nonempty", tau
    return "other", np.full(length + 1, np.nan)


def _varies(k, values, slack, length):
    """The one value for each count [L + 1], or None if there are several."""
    tau = np.zeros(length + 1)
    for j in range(1, length + 1):
        some = values[k == j]
        if not len(some):
            continue
        tau[j] = np.median(some)
        if np.abs(some - tau[j]).max() > slack * np.abs(tau[j]) + 1e-12:
            return None
    return tau


def _same(tau):
    seen = tau[tau != 0]
    return len(seen) > 0 and np.ptp(seen) < 5e-2 * abs(seen[0])


def _pooled(p, tau, batch):
    """E[own total weight; own k] for w = tau B / (all masks of the batch)."""
    others = np.array([1.0])
    for _ in range(batch - 1):
        others = np.convolve(others, p)
    j = np.arange(len(others))
    c = tau[tau != 0][0]
    k = np.arange(len(p))
    with np.errstate(all="ignore"):
        share = batch * c * k[:, None] / (k[:, None] + j)
    return p * (np.where(k[:, None] > 0, share, 0) @ others)


def _mean_share(empty, batch):
    """E[B / (number of examples with a mask)], given that one has."""
    q = 1 - empty
    return sum(
        math.comb(batch - 1, j) * q**j * empty ** (batch - 1 - j)
        * batch / (1 + j)
        for j in range(batch)
    )


def _counts(counts, curve, level, length, passes):
    """P(k masks), a name for it, and how it is known."""
    seen = counts.mean(0)
    if curve is not None and passes == 1:
        p = curve.probability()
        if wald(counts, p) > level:
            return p, count_name(p, curve), "exact"
    if (counts == counts[:1]).all():
        return seen, "the same counts in every call", "exact"
    if passes == 1:
        for name, p in candidates(length, seen):
            if wald(counts, p) > level:
                return p, name, "fitted"
    return seen, "no known law", "estimated"
