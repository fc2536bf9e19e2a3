"""The verdict in words, from what was read and the law behind it."""

from dataclasses import dataclass

import numpy as np

FLAT = 2e-4  # relative; exact laws only


@dataclass(frozen=True)
class Verdict:
    """kind: "nelbo", "bound", "truncated", "weighting" or "other".

    k: the factor on the NELBO in nats per sequence, None where the loss is
    not a multiple of it. unit: "sequence", "token" or None.
    """

    kind: str
    text: str
    k: float | None
    unit: str | None


def factor(c, length, batch, slack=3e-4):
    """(words, unit, c) for a factor c on the NELBO per sequence.

    A factor within slack of a common one is taken to be that one.
    """
    named = [
        (1, "in nats per sequence", "sequence"),
        (1 / length, "in nats per token", "token"),
        (1 / (length + 1), "times L / (L + 1) in nats per token (an example "
         "without a mask counts as zero)", "token"),
        (batch, f"summed over the batch of {batch}", "sequence"),
    ]
    for value, words, unit in named:
        if abs(c / value - 1) < slack:
            return words, unit, value
    nats = f"times k = {c:.4g} per sequence, {c * length:.4g} per token"
    return nats, None, c


def unit_of(effective, length):
    """Whether a loss that is no multiple is nearer to a sum or to a mean."""
    total = max(np.nansum(effective[1:]), 1e-30)
    near = abs(np.log(total / length)) < abs(np.log(total)) + 1e-2
    return "sequence" if near else "token"


def judge(law, patterns, batch, level, flat_p):
    """A ``Verdict`` for a loss that was readable.

    flat_p: p-value that all effective weights are equal, for estimates.
    """
    length, e = law.length, law.effective[1:]
    if patterns.uneven or patterns.order is not None:
        return _uneven(patterns, length, batch)
    if law.kind == "other" and law.curve is not None:
        found = _from_curve(law, batch)
        if found:
            return found
    c = float(e.mean())
    flat = c != 0 and (
        np.abs(e / c - 1).max() < FLAT if law.known else flat_p > level
    )
    if law.pooled and not law.known:
        flat = False  # the weights are no law of one example
    if flat and (law.known or length > 1):
        words, unit, c = factor(c, length, batch)
        how = "" if law.how == "exact" else (
            " The law was fitted and not contradicted."
            if law.known else " Estimated: no known law was found."
        )
        rare = "" if np.isfinite(law.high[1:]).all() else (
            " Rare large weights carry much of it: the factor is uncertain."
        )
        if law.known:
            text = f"unbiased for the NELBO {words}."
            if unit is None:
                text = f"a constant factor of the NELBO: {words}."
            return Verdict("nelbo", text + how, c, unit)
        return Verdict(
            "nelbo", f"consistent with a constant factor k of about {c:.3g} "
            f"of the NELBO per sequence.{how}{rare}", c, None,
        )
    return Verdict(
        "weighting", "a different weighting, not the NELBO: "
        + _weighting(law) + ".", None, unit_of(law.effective, length),
    )


def _uneven(patterns, length, batch):
    if patterns.order == tuple(range(length)):
        words, unit, c = factor(patterns.flow, length, batch)
        return Verdict(
            "bound", "another valid bound: the chain rule from left to "
            f"right (autoregressive), {words}.", c, unit,
        )
    if patterns.order is not None:
        words, unit, c = factor(patterns.flow, length, batch)
        return Verdict(
            "bound", "another valid bound: the chain rule in the one order "
            f"{list(patterns.order)}, {words}.", c, unit,
        )
    if patterns.flow:
        words, unit, c = factor(patterns.flow, length, batch, 0.05)
        return Verdict(
            "bound", "another valid bound: it averages over orders of reveal "
            f"that are not uniform (block-wise, for example), {words}. "
            "Estimated.", c, unit,
        )
    return Verdict(
        "other", "a different weighting, not the NELBO: patterns of the same "
        "size are not treated alike, and no law of orders fits the weights.",
        None, unit_of(np.array([0, patterns.table.sum()])
                      if patterns.table is not None else np.ones(2), length),
    )


def _from_curve(law, batch):
    """Verdicts that show in the rates and weights at each time."""
    curve, length = law.curve, law.length
    k = np.arange(1, length + 1)
    each = curve.total[:, 1:] / k * (1 if not law.single else k)
    with np.errstate(all="ignore"):
        some = np.isfinite(each).any(1)
        w = np.full(len(each), np.nan)
        w[some] = np.nanmedian(each[some], axis=1)
        off = np.abs(each / w[:, None] - 1)
        same = np.nanmax(off, initial=0) < 1e-3
    use = np.isfinite(w) & (curve.rate > 0)
    if not same or law.single or use.sum() < 50:
        return None
    r, w, q = curve.rate[use], w[use], curve.mass[use]
    q = q / q.sum()
    order = np.argsort(r, kind="stable")
    r, w, q = r[order], w[order], q[order]
    if curve.steps:
        return _grid(r, w, q, length, batch)
    below = np.cumsum(q) - q / 2
    a, b = r[0], r[-1]
    product = w * r
    atom = q[np.abs(r - a) < 1e-6 * max(a, 1e-3)].sum()
    level = float(np.median(product[r > 1e-4]))
    seen = 1e-3 if curve.blind else 5e-6  # smaller rates were not reached
    if np.abs(product / level - 1)[r > 1e-5].max() < 2e-3:
        rest = (r > a * (1 + 1e-4)) & (q > 0)
        if a > seen and abs(atom / a - 1) < 0.2:
            ideal = np.abs(r - below)[rest].max(initial=0) < 5e-3
            if ideal:
                words, unit, level = factor(level, length, batch)
                return Verdict(
                    "bound", "another valid bound, of a sampler that jumps "
                    f"from t = {a:.3g} (t is clamped there), {words}.",
                    level, unit,
                )
        uniform = np.abs(r - a - (b - a) * below).max() < 5e-3
        if uniform and (a > seen or b < 1 - seen):
            return _truncated(level, a, b, length, batch)
    end = w.max()
    clip = level / end
    if clip > 2e-6 and a < clip / 2:
        clipped = np.minimum(level / r, end)
        if np.abs(clipped / w - 1).max() < 2e-2:
            words, unit, _ = factor(level, length, batch)
            return Verdict(
                "weighting", "a different weighting, no bound: the weight "
                f"1/t is clipped at {end / level:.4g} while t is not "
                f"(clipped weight), {words}.", None, unit or "sequence",
            )
    return None


def _grid(r, w, q, length, batch):
    """The bound of a K-step sampler: mass times weight is 1 - r' / r."""
    first = np.append(True, np.diff(r) > 1e-7)
    start = np.flatnonzero(first)
    rate, mass = r[first], np.add.reduceat(q, start)
    reveal = np.diff(rate, prepend=0) / rate
    c = mass * w[first] / reveal
    if np.ptp(c) > 1e-3 * c[0] or abs(rate[-1] - 1) > 1e-6:
        return None
    words, unit, c = factor(float(np.median(c)), length, batch)
    return Verdict(
        "bound", f"another valid bound, of the sampler with {len(rate)} "
        f"steps, {words}.", c, unit,
    )


def _truncated(level, a, b, length, batch):
    """Weights level / r with the rate r uniform on [a, b] only."""
    width = b - a
    for c in (level, level / width):
        words, unit, c = factor(c, length, batch, 2e-3 * (c == level) + 3e-4)
        if unit:
            break
    ratio = level / c / width
    if abs(ratio - 1) < 1e-4:
        how = f"with the factor {width:.6g} (1 - eps), the integral itself"
    elif abs(ratio * width - 1) < 1e-5:
        how = f"without the factor {width:.6g} (1 - eps), an average over it"
    else:
        how = f"times {ratio:.6g}"
    return Verdict(
        "truncated", "a truncated integral of the NELBO over mask rates in "
        f"[{a:.3g}, {b:.6g}], {words}, {how}. The rest is missing, so it is "
        "no bound.", None,
        unit or unit_of(np.full(length + 1, level), length),
    )


def _weighting(law):
    """Known names for a law of counts and weights."""
    tau, k = law.weights, np.arange(law.length + 1)
    counts = law.counts_name
    if law.kind == "pooled":
        return f"the pooled mean over all masks of the batch ({counts})"
    if law.kind == "nonempty":
        return f"the mean over the examples that have a mask ({counts})"
    if law.kind == "other":
        if law.curve is not None:
            return f"the weight varies with t ({counts})"
        if law.pooled:
            return f"its normaliser is pooled over the batch ({counts})"
        return f"the weight is no function of the mask count ({counts})"
    on = tau[1:] != 0
    each = tau[1:][on] / (1 if law.single else k[1:][on])
    if "Bernoulli at one rate" in counts:
        kind = "one fixed mask rate (as BERT)"
    elif "same counts" in counts or (law.probability > 0.999).any():
        kind = "one fixed ratio"
    elif "MaskGIT" in counts:
        kind = "the ratio law of MaskGIT"
    else:
        kind = "mask counts"
    if np.ptp(each) <= 1e-2 * abs(each[0]):
        words = "unweighted"
    elif np.ptp(each * k[1:][on]) <= 1e-2 * abs(each[0] * k[1:][on][0]):
        words = "the mean over the masks of each example"
    else:
        words = "weights by count"
    return f"{words}, {kind} ({counts})"
