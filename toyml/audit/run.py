"""The audit itself: calls, reading, law, verdict, report."""

import numpy as np

from . import blocks, checks, context, dice, mates, measure, prompts
from .control import curve
from .heads import Head
from .law import analyse
from .patterns import patterns
from .report import Report, rows
from .stats import wald
from .toy import LossError
from .verdict import judge

TESTS = 24  # statistical tests in one audit; the error rate is split evenly


def audit(
    loss_fn,
    length=4,
    vocab_size=5,
    *,
    batch=8,
    calls=1200,
    seed=0,
    error_rate=0.01,
    mask_column=None,
    progress=None,
):
    """Say what a masked-diffusion training loss optimises: a ``Report``.

    loss_fn(model, x0, mask_id) -> scalar tensor, where x0 is int64 [B, L] on
    the CPU and model is a toy that takes tokens and anything else. It may
    also accept editable= (bool [B, L], the positions to learn) and pad_id=.
    length, vocab_size: of the toy; the mask id is vocab_size. batch: B.
    calls: how many calls sample the law; in all it is a few times that.
    error_rate: of all statistical findings together, split over the tests.
    mask_column: whether the head has a column for the mask id; None tries a
    head without one first. progress: print a line while it runs; None does
    so past 3 seconds. A bad argument raises ValueError; a loss that fails
    gives a report that says so.
    """
    for name, value, least in (
        ("length", length, 2), ("vocab_size", vocab_size, 3),
        ("batch", batch, 2), ("calls", calls, 50),
    ):
        if not isinstance(value, int) or value < least:
            raise ValueError(
                f"{name} = {value}: expected an integer of at least {least}"
            )
    if not 0 < error_rate < 1:
        raise ValueError(
            f"error_rate = {error_rate}: expected a number in (0, 1)"
        )
    if not callable(loss_fn):
        raise ValueError(f"loss_fn = {loss_fn}: expected a function")
    head = Head("tensor", vocab_size + bool(mask_column), "logits")
    ctx = context.Context(loss_fn, vocab_size, vocab_size, head, seed)
    level = error_rate / TESTS
    tick = context.Ticker(progress)
    report = Report(length, vocab_size, batch, error_rate)
    with dice.seeded(seed):
        try:
            _audit(ctx, report, calls, level, mask_column, tick)
        except LossError as error:
            report.verdict = f"The loss could not be audited. {error}"
            report.kind = "error"
            report.findings.append(f"The loss could not be read: {error}")
    report.calls = ctx.calls
    return report


def _audit(ctx, report, calls, level, mask_column, tick):
    length, batch = report.length, report.batch
    context.choose_head(ctx, batch, length, mask_column)
    ctx.broken.clear()
    ctx.restart()
    dice.reseed(ctx.seed)
    draws = ctx.sample(calls, batch, length, tick=tick)
    add = report.add
    add(checks.scored_positions(draws))
    broken = len(ctx.broken)
    if broken:
        add(([checks.not_finite(ctx.broken, ctx.mask_id)],
             [f"{broken} of {calls} calls were not finite; the law is that "
              "of the others."]))
    nothing = not draws.shown.any() and (draws.weight * ~draws.masked).any()
    whole, constant = context.rebuilt(draws)
    if draws.unread.any():
        _unreadable(report, "not a weighted cross-entropy: the gradient of "
                    "some rows is no multiple of softmax minus one-hot.")
        return
    add(checks.softmax(ctx, draws, batch, length))
    if (draws.smoothing > 0).any():
        eps = float(np.median(draws.smoothing[draws.smoothing > 0]))
        report.findings.append(
            f"Targets are smoothed (label smoothing {eps:.3g}): the loss is "
            "no log-likelihood bound."
        )
    elif not whole and not (draws.leak > 0.999).any():
        _unreadable(report, "not a weighted cross-entropy: its value is not "
                    "the weighted sum that its gradient shows (a focal or "
                    "another transformed loss, or an added term).")
        return
    elif abs(constant) > 1e-3 * np.abs(draws.value).mean():
        report.notes.append(f"A constant of {constant:.4g} is added.")
    if not (draws.weight != 0).any():
        raise LossError("no call scored anything")
    if nothing:
        _no_masks(report, draws)
        return
    touched, compared = mates.mates(ctx, batch, length)
    if not compared:
        touched = mates.leans_on_mates(draws, level)
    dice.reseed(ctx.seed + 1)
    ctx.restart(ctx.seed + 1)
    if draws.copy.all() and draws.masked.shape[2] == 1:
        found = blocks.find(draws, level)
        if len(found) > 1:
            draws = blocks.unroll(draws, found)
            report.notes.append(
                "The masks fall in blocks of "
                f"{[end - start for start, end in found]}. The verdict "
                "assumes that a block sees the clean blocks before it and "
                "nothing of those after it."
            )
    law, shape, verdict = _law(ctx, draws, level, touched)
    report.verdict, report.kind = verdict.text, verdict.kind
    report.k, report.unit = verdict.k, verdict.unit
    reason = _spoilt(draws)
    if reason:
        report.kind, report.k = "other", None
        report.verdict = f"{reason} On the masked ones it is {verdict.text}"
    if touched or law.kind in ("pooled", "nonempty") and not (
        law.probability > 1 - 1e-9
    ).any():
        report.findings.append(
            "The loss of one example depends on its batch mates: a "
            "normaliser is pooled over the batch."
        )
    elif not compared and not shape.fixed:
        report.notes.append("Batch mates were compared by statistics only: "
                            "the loss draws outside torch.")
    if shape.never:
        report.findings.append(
            f"Some positions are never masked: {list(shape.never)}."
        )
    add(checks.time(draws, level))
    add(([], checks.coupling(draws, level)))
    report.notes.append(f"Law of mask counts: {law.counts_name} "
                        f"({law.counts_how}).")
    report.notes += law.notes
    report.law = law.probability
    report.how = law.how
    report.rows = rows(law, verdict)
    measure.measures(
        ctx, report, (draws, law, shape, verdict), max(calls // 3, 50),
        # One verdict is given, at the length of the audit; a second test
        # must not turn the way of measuring by chance.
        lambda some: _law(ctx, some, level / 100, touched), level,
    )
    add(prompts.prompts(ctx, batch, verdict.unit))
    add(checks.empty(ctx, batch))


def _spoilt(draws):
    """Why the loss is no weighting of the masked positions alone, or None."""
    if draws.replaced.any():
        return ("not a function of the mask pattern only: inputs are also "
                "replaced by other tokens (as BERT does).")
    if (draws.weight * ~draws.masked).any():
        return ("not a function of the mask pattern only: positions without "
                "the mask are scored.")
    if checks.by_token(draws):
        return ("not a function of the mask pattern only: the weight also "
                "depends on the clean token.")
    if draws.smoothing.any():
        return ("no cross-entropy of the clean tokens: the targets are "
                "smoothed.")
    if draws.wrong_target.any():
        return "scored against tokens that are not those of the positions."
    return None


def _law(ctx, draws, level, touched):
    length = draws.masked.shape[-1]
    found = None
    if draws.masked.shape[2] == 1:
        found = curve(ctx, length)
    law = analyse(draws, found, level, touched)
    shape = patterns(draws, level)
    flat = 1.0
    if not law.known and length > 1:
        k = draws.masked.sum(-1)
        total = (draws.weight * draws.masked).sum(-1)
        sums = [np.where(k == j, total, 0).sum(2).mean(1)
                for j in range(1, length + 1)]
        steps = np.diff(np.stack(sums, 1), axis=1)
        flat = wald(steps, np.zeros(length - 1))
    verdict = judge(law, shape, draws.masked.shape[1], level, flat)
    if verdict.kind == "nelbo" and law.known:
        ratio = verdict.k / law.effective[1:].mean()
        law.low, law.high = law.low * ratio, law.high * ratio
        law.effective = np.where(law.effective > 0, verdict.k, 0)
    return law, shape, verdict


def _unreadable(report, text):
    report.kind, report.verdict = "other", text
    report.findings.append(text[0].upper() + text[1:])


def _no_masks(report, draws):
    report.kind = "other"
    if draws.shift.any():
        report.verdict = (
            "the next-token loss of an autoregressive model: no mask is ever "
            "shown. It is exact if the model is causal, which is not seen "
            "here."
        )
        return
    report.verdict = "no mask is ever shown: not masked diffusion."
    report.findings.append(
        "Visible positions are scored: nothing is ever masked."
    )
