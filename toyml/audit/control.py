"""The law of a loss by setting its random numbers, without sampling.

Most losses draw one number a sequence (the time) and one a token (the noise),
and mask where the noise is below a rate. Setting the time to a grid u and
bisecting the noise gives the rate r(u); reading the weights with k tokens
masked gives T(u, k). Every moment is then a one-dimensional integral.
"""

from dataclasses import replace

import numpy as np

from .curves import Curve
from .dice import AbortError, Dice, Fixed, plain
from .toy import LossError

TOP = 1 - 2.0**-24  # the largest float32 below 1


def curve(ctx, length):
    """The ``Curve`` of the loss at this length, or None."""
    try:
        return _curve(ctx, length)
    except (AbortError, LossError):
        return None


def _curve(ctx, length):
    batch = 8 if length != 8 else 7
    with Dice(plain) as dice:
        ctx.run(batch, length)
    sizes = [int(np.prod(shape)) for _, shape in dice.log]
    if sizes.count(batch * length) != 1 or len(sizes) > 2:
        return None
    times = [n for n in sizes if n != batch * length]
    if not times:
        return _read(ctx, length, np.full(batch, 0.5), _even(batch))
    probe = _Probe(ctx, length, batch)
    probe(np.full(batch, 0.5), np.zeros((batch, length)))
    if times == [1]:
        return _shared(ctx, length, probe.range)
    if batch % times[0]:
        return None
    copies = batch // times[0]
    u, mass = _grid(probe.range, 1024 // copies)
    order = np.random.default_rng(0).permutation(len(u))
    try:
        first = _read(ctx, length, u, mass, copies)
        other = _read(ctx, length, u[order], mass[order], copies)
    except LossError:
        first = other = None
    if first is not None and other is not None:
        rate = first.rate.reshape(copies, -1)[:, order].ravel()
        if np.allclose(rate, other.rate, atol=1e-6):
            size = _size(ctx, length, batch, first, len(rate))
            total = first.total * size
            return replace(first, total=total, steps=probe.range)
    return _strata(ctx, length) if copies == 1 else None


def _size(ctx, length, batch, read, rows):
    """1, or batch / rows for a sum over the batch: weights follow B then."""
    probe = _Probe(ctx, length, batch)
    for noise in (0.0, TOP):
        masked, weight = probe(
            np.full(batch, 0.5), np.full((batch, length), noise)
        )
        if masked.all():
            ratio = weight[0].sum() / read.total[rows // 2, length]
            for size in (1.0, batch / rows):
                if abs(ratio / size - 1) < 0.1:
                    return size
    raise AbortError("weights depend on the batch size")


def _strata(ctx, length, rows=511, blind=False):
    """A time drawn in the stratum of its row: all rows get the same u.

    blind: the rows share one number, so that the smallest times, below
    1 / (4 rows), are not reached.
    """
    nodes = np.array([1e-3, 0.25, 0.5, 0.75, 1 - 1e-3])
    masses = np.array([1, 2, 2, 2, 1]) / 8
    parts = [_read(ctx, length, np.full(rows, u), np.full(rows, q / rows))
             for u, q in zip(nodes, masses, strict=True)]
    if any(part is None or np.ptp(part.rate) < 0.5 for part in parts):
        return None
    rate = np.concatenate([part.rate for part in parts])
    order = np.argsort(rate)
    return Curve(
        np.concatenate([part.mass for part in parts])[order],
        rate[order],
        np.concatenate([part.total for part in parts])[order],
        stepped=True,
        blind=blind,
    )


def _even(n):
    return np.full(n, 1 / n)


def _grid(integers, m):
    """Points on (0, 1), dense at both ends, and their masses."""
    if integers:
        if integers > 4096:
            raise AbortError("too many integers")
        copies = -(-64 // integers)
        u = np.repeat((np.arange(integers) + 0.5) / integers, copies)
        return u, _even(len(u))
    x = np.linspace(-15.5, 15.5, m)
    u = 1 / (1 + np.exp(-x))
    mass = u * (1 - u)
    return u, mass / mass.sum()


class _Probe:
    """One call with set numbers; masked [B, L] and weights [B, L]."""

    def __init__(self, ctx, length, batch, times=None):
        self.ctx, self.length, self.batch = ctx, length, batch
        self.range, self.times = None, times

    def __call__(self, times, noise):
        times = times if self.times is None else self.times
        policy = Fixed((self.batch, self.length), times, noise)
        with Dice(policy):
            draws = self.ctx.sample(1, self.batch, self.length)
        self.range = policy.range
        if draws.masked.shape[2] != 1 or draws.unread.any():
            raise AbortError("not one readable pass")
        masked, weight = draws.masked[0, :, 0], draws.weight[0, :, 0]
        scored = weight * masked
        top = scored.max(1, keepdims=True)
        if (np.abs(scored - top)[masked & (scored != 0)] > 2e-2 * np.abs(
            np.broadcast_to(top, scored.shape)
        )[masked & (scored != 0)]).any():
            raise AbortError("weights differ inside an example")
        return masked, weight


def _read(ctx, length, u, mass, copies=1):
    """Rate and weights with the time of row j set to u[j].

    With copies, len(u) numbers are drawn for copies len(u) rows.
    """
    probe = _Probe(ctx, length, copies * len(u), u)
    mass = np.tile(mass / copies, copies)
    u = np.tile(u, copies)
    rate = _bisect(probe, u, np.zeros(len(u)), np.ones(len(u)), length)
    if rate is None:
        return None
    rate, below = rate
    total = np.full((len(u), length + 1), np.nan)
    for k in range(length + 1):
        noise = np.full((len(u), length), TOP if below else 0.0)
        noise[:, :k] = 0.0 if below else TOP
        masked, weight = probe(u, noise)
        here = masked.sum(1) == k
        total[here, k] = (weight * masked).sum(1)[here]
    return Curve(mass, rate, total)


def _bisect(probe, u, low, high, length):
    """The rate of each row, and whether a token is masked by low noise."""
    masked, _ = probe(u, np.zeros((len(u), length)))
    top, _ = probe(u, np.full((len(u), length), TOP))
    if not (_uniform(masked) and _uniform(top)):
        return None
    below = bool(masked[:, 0].mean() >= top[:, 0].mean())
    for _ in range(26):
        middle = (low + high) / 2
        masked, _ = probe(u, np.repeat(middle[:, None], length, 1))
        if not _uniform(masked):
            return None
        up = masked[:, 0] == below
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    middle = (low + high) / 2
    return (middle if below else 1 - middle), below


def _uniform(masked):
    return (masked == masked[:, :1]).all()


def _shared(ctx, length, integers):
    """One time for the whole batch: a call for each point of the grid."""
    u, mass = _grid(integers, 64)
    if len(u) > 130:
        return None
    rows, batch = [], 200 if length != 200 else 199
    probe = _Probe(ctx, length, batch)
    for value in u:
        time = np.array([value])
        masked, _ = probe(time, np.zeros((batch, length)))
        low, high, below = 0.0, 1.0, bool(masked.all())
        for _ in range(3):
            levels = np.linspace(low, high, batch + 2)[1:-1]
            masked, _ = probe(time, np.repeat(levels[:, None], length, 1))
            if not _uniform(masked):
                return None
            n = int((masked[:, 0] == below).sum())
            if not (masked[:n, 0] == below).all():
                return _strata(ctx, length, blind=True)
            edges = np.concatenate([[low], levels, [high]])
            low, high = edges[n], edges[n + 1]
        middle = (low + high) / 2
        total = np.full(length + 1, np.nan)
        counts = np.arange(batch) % (length + 1)
        hidden = np.arange(length) < counts[:, None]
        noise = np.where(hidden == below, 0.0, TOP)
        masked, weight = probe(time, noise)
        k = masked.sum(1)
        total[k] = (weight * masked).sum(1)
        rows.append((middle if below else 1 - middle, total))
    rate, total = zip(*rows, strict=True)
    return Curve(mass, np.array(rate), np.array(total))
