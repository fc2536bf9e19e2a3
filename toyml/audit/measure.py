"""Means, biases and variances on two tables of known losses."""

from dataclasses import dataclass

import numpy as np

from ..lattice import MaskLattice
from ..subsets import masks
from .stats import normal_quantile
from .toy import LossError
from .verdict import unit_of


@dataclass(frozen=True)
class Measure:
    """One table: the mean loss, what the NELBO is in the same unit, bias.

    All in nats, in ``unit``. half is the half-width of the interval of mean
    and bias, 0 where exact. variance: of one sequence's loss, or None.
    """

    table: str
    unit: str
    nelbo: float
    mean: float
    half: float
    variance: float | None

    @property
    def bias(self):
        return self.mean - self.nelbo


def hot_tea():
    """Two tokens: 1/5 and 1/10 when both are masked, 1/2 and 4/5 after."""
    rows = [[1, 1], [0.5, 1], [1, 0.8], [0.2, 0.1]]
    return MaskLattice(np.array(rows))


def random_table(seed=0):
    """L = 4, probabilities uniform on (0.05, 1)."""
    table = np.random.default_rng(seed).uniform(0.05, 1, (16, 4))
    return MaskLattice(np.where(masks(4), table, 1.0))


def measure(name, lattice, law, patterns, draws, unit, level, scale):
    """``Measure`` on one table; scale turns the loss into the unit."""
    length = lattice.length
    nelbo = lattice.nelbo() / (length if unit == "token" else 1)
    alike = not patterns.uneven and patterns.order is None
    variance, half = None, 0.0
    ce = lattice.cross_entropy()
    if alike and law.known:
        k = np.arange(1, length + 1)
        mean = (law.effective[1:] * lattice.by_count()[1:] / k).sum()
        if law.second is not None:
            variance = _second(law, lattice) - mean**2
    elif patterns.fixed and patterns.table is not None:
        mean = (patterns.table * ce).sum()
        variance = 0.0
    else:
        code = draws.masked @ (1 << np.arange(length))
        weight = draws.weight * draws.masked
        values = (weight * ce[code]).sum((2, 3)).mean(1)
        mean = values.mean()
        half = normal_quantile(level) * values.std(ddof=1)
        half /= np.sqrt(len(values))
    if variance is not None:
        variance = max(float(variance), 0.0) / scale**2
    return Measure(
        name, unit, float(nelbo), float(mean) / scale, float(half) / scale,
        variance,
    )


def _second(law, lattice):
    """E[loss^2] of one sequence."""
    k = np.arange(1, lattice.length + 1)
    if law.single:
        squares = lattice.squares_by_count()[1:] / k
    else:
        squares = lattice.by_count(power=2)[1:] / k**2
    return (law.second[1:] * squares).sum()


def measures(ctx, report, main, calls, find, level):
    """Add both tables to the report.

    main: (draws, law, patterns, verdict) at the length of the audit; find
    gives the last three for draws at another length.
    """
    verdict = main[-1]
    for name, lattice in (("hot tea", hot_tea()),
                          ("random L = 4", random_table())):
        size, here = lattice.length, main
        if size != report.length:
            try:
                draws = ctx.sample(calls, report.batch, size)
            except LossError as error:
                report.notes.append(f"{name}: not measured, {error}")
                continue
            here = (draws, *find(draws))
        draws, law, patterns, its = here
        unit = verdict.unit or unit_of(law.effective, size)
        scale, k = 1.0, None
        if verdict.kind == "nelbo":
            k = its.k
        elif verdict.unit is None:
            k = verdict.k
        if k:
            scale = k * (size if unit == "token" else 1)
        report.measures.append(measure(
            name, lattice, law, patterns, draws, unit, level, scale
        ))
