"""What the audit found: as words, a table, JSON and a figure."""

import json
import math
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Row:
    """Mask count k: its probability, and the effective weight with interval.

    effective = E[summed weight; k masks]; it is the same for all k >= 1 if
    and only if the loss is a multiple of the NELBO.
    """

    k: int
    probability: float
    effective: float
    low: float
    high: float
    ideal: float


def rows(law, verdict):
    """Effective weights, next to those of the NELBO in the same unit."""
    length = law.length
    ideal = verdict.k or {"token": 1 / length}.get(verdict.unit, 1.0)
    if verdict.kind == "weighting":
        ideal = {"token": 1 / length}.get(verdict.unit, 1.0)
    return [
        Row(j, float(law.probability[j]), float(law.effective[j]),
            float(law.low[j]), float(law.high[j]), ideal if j else 0.0)
        for j in range(length + 1)
    ]


@dataclass
class Report:
    """What an audit found.

    verdict: words. findings: faults. notes: facts. kind: "nelbo", "bound",
    "truncated", "weighting", "other" or "error". k: the factor on the NELBO
    in nats per sequence, or None. law: P(k masks), k = 0..L. measures: bias
    and variance on two tables. how: whether the effective weights are
    "exact", "fitted" (a known law that the samples do not contradict) or
    "estimated" (with intervals).
    """

    length: int
    vocab_size: int
    batch: int
    error_rate: float
    verdict: str = ""
    kind: str = "other"
    findings: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    k: float | None = None
    unit: str | None = None
    how: str = "estimated"
    law: np.ndarray | None = None
    rows: list = field(default_factory=list)
    measures: list = field(default_factory=list)
    calls: int = 0

    def add(self, found):
        """Add a pair (findings, notes), without what is already there."""
        findings, notes = found
        self.findings += [f for f in findings if f not in self.findings]
        self.notes += [n for n in notes if n not in self.notes]

    @property
    def clean(self):
        """Whether there is no finding."""
        return not self.findings

    @property
    def effective_weight(self):
        """The rows for k = 1..L."""
        return self.rows[1:]

    @property
    def bias(self):
        """{table: bias in nats, in the unit of its measure}."""
        return {m.table: m.bias for m in self.measures}

    @property
    def variance(self):
        """{table: exact variance of one sequence's loss, or None}."""
        return {m.table: m.variance for m in self.measures}

    def __str__(self):
        out = [f"Verdict: {self.verdict}"]
        if self.k is not None:
            out.append(f"k = {self.k:.6g} (factor on the NELBO in nats per "
                       "sequence)")
        out.append("")
        out.append("Findings: none" if self.clean else "Findings")
        out += [f"  - {text}" for text in self.findings]
        out += ["Notes", *(f"  - {text}" for text in self.notes)]
        if self.rows:
            out += ["", f"Effective weight by mask count ({self.how})",
                    "   k   P(k)    weight    low       high      ideal"]
        out += [
            f"  {r.k:2d}  {r.probability:6.4f}  {_number(r.effective)}  "
            f"{_number(r.low)}  {_number(r.high)}  {_number(r.ideal)}"
            for r in self.rows
        ]
        if self.measures:
            out += ["", "Nats on known tables (the loss in its unit)",
                    "  table         unit      NELBO     mean      bias      "
                    "+-        variance"]
        for m in self.measures:
            variance = (
                "not known" if m.variance is None else f"{m.variance:.4g}"
            )
            half = _number(m.half) if m.half else "   exact"
            out.append(
                f"  {m.table:12}  {m.unit:8}  {_number(m.nelbo)}  "
                f"{_number(m.mean)}  {_number(m.bias)}  {half}  {variance}"
            )
        out += ["", f"{self.calls} calls, L = {self.length}, V = "
                f"{self.vocab_size}, batch {self.batch}. All statistical "
                f"findings together err with probability at most "
                f"{self.error_rate:g}."]
        return "\n".join(out)

    def to_json(self):
        """The report as a JSON string; inf and nan become strings."""
        data = {
            "verdict": self.verdict, "kind": self.kind, "k": self.k,
            "unit": self.unit, "how": self.how, "clean": self.clean,
            "findings": self.findings, "notes": self.notes,
            "law": None if self.law is None else list(map(float, self.law)),
            "effective_weight": [vars(r) for r in self.effective_weight],
            "measures": [vars(m) | {"bias": m.bias} for m in self.measures],
            "length": self.length, "vocab_size": self.vocab_size,
            "batch": self.batch, "calls": self.calls,
            "error_rate": self.error_rate,
        }
        return json.dumps(_plain(data), indent=2, allow_nan=False)

    def figure(self, path=None):
        """Effective weights beside the ideal; saved to path if given.

        Returns the arrays that are drawn: (k, effective, ideal). A report
        without effective weights raises ValueError.
        """
        if not self.rows:
            raise ValueError(
                f"verdict = {self.verdict!r}: expected a report with "
                "effective weights to draw"
            )
        import matplotlib.pyplot as plt

        from .. import figures

        figures.use()
        rows = self.effective_weight
        k = np.array([r.k for r in rows])
        value = np.array([r.effective for r in rows])
        ideal = np.array([r.ideal for r in rows])
        fig, ax = plt.subplots()
        figures.line(ax, k, ideal, "nelbo", "the NELBO")
        figures.line(ax, k, value, "nll", "this loss")
        ends = np.array([[r.low, r.high] for r in rows])
        ends = np.where(np.isfinite(ends), ends, value[:, None] * 2)
        ax.vlines(k, *ends.T, color=figures.SYMBOLS["nll"]["color"], lw=1)
        ax.set_xlabel("masked tokens k")
        ax.set_ylabel("effective weight")
        ax.set_xticks(k)
        ax.set_ylim(0, 1.25 * max(ideal.max(), np.nanmax(ends)))
        ax.legend()
        if path is not None:
            fig.savefig(path)
            plt.close(fig)
        return k, value, ideal


def _number(value):
    return f"{value:8.4f}"


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    return value
