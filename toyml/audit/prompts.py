"""Prompt and padding: what a loss does with positions that are no targets."""

import numpy as np

from .toy import LossError


def prompts(ctx, batch, unit):
    """Prompt and padding: scored, masked, in the denominator, attended.

    unit is that of the base loss. Six positions, three of them to be learnt.
    """
    length, part = 6, 3
    findings, notes = [], []
    for name in ("editable", "pad_id"):
        words = "prompt" if name == "editable" else "padding"
        if name not in ctx.accepts:
            notes.append(f"{words.capitalize()}: not tested, the loss does "
                         f"not accept {name}.")
            continue
        open_ = np.zeros((batch, length), bool)
        if name == "editable":
            open_[:, part:] = True
            x0 = None
        else:
            open_[:, :part] = True
            x0 = ctx.clean(batch, length)
            x0[:, part:] = ctx.pad_id
        try:
            whole = ctx.sample(300, batch, length)
            draws = ctx.sample(300, batch, length, x0, open_)
            probe = ctx.run(batch, length, x0, open_), ctx.run(batch, length)
        except LossError as error:
            findings.append(f"With {words} the loss fails: {error}")
            continue
        where = ~open_[None, :, None]
        if (draws.weight * where).any():
            text = f"The {words} is scored"
            if name == "pad_id":
                text += " (right only if the model must emit it)"
            findings.append(text + ".")
        elif (draws.masked & where & (draws.weight != 0).any(
            -1, keepdims=True
        )).any():
            findings.append(f"The {words} is masked, though not scored.")
        else:
            side = slice(part, None) if name == "editable" else slice(part)
            findings += _denominator(
                _estimate(whole, slice(None)), _estimate(draws, side), unit,
                length / part, words,
            )
        if name == "pad_id" and not _attends(*probe, batch * length):
            findings.append(
                "The attention mask is not passed: the padding is attended."
            )
    if "pad_id" not in ctx.accepts:
        notes.append("Attention mask: not tested, the loss does not accept "
                     "pad_id.")
    return findings, notes


def _denominator(whole, part, unit, ratio, words):
    if unit is None or whole <= 0 or part <= 0:
        return []
    grew = part / whole > np.sqrt(ratio)
    if unit == "token" and not grew:
        return [f"The {words} is counted in the denominator."]
    if unit == "sequence" and grew:
        return [f"The weight counts the {words}: it grows with its length."]
    return []


def _attends(padded, plain, size):
    """Whether an argument of the model shows where the padding is."""
    for with_pad, without in zip(padded.calls, plain.calls, strict=False):
        for (_, a), (_, b) in zip(
            with_pad.extras, without.extras, strict=False
        ):
            if a.size >= size and np.ptp(a) > 0 and np.ptp(b) == 0:
                return True
    return False


def _estimate(draws, side):
    """Mean effective weight over counts of two and more."""
    masked = draws.masked[..., side]
    total = (draws.weight[..., side] * masked).sum(-1)
    k = masked.sum(-1)
    length = masked.shape[-1]
    return float(np.mean([
        np.where(k == j, total, 0).sum(2).mean()
        for j in range(2, length + 1)
    ]))
