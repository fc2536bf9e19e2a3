"""Faults and facts that need no law: each returns (findings, notes)."""

from itertools import product

import numpy as np

from .heads import Head
from .stats import normal_quantile
from .toy import LossError


def scored_positions(draws):
    """Which positions are scored, and against what."""
    findings, notes = [], []
    hidden, weight = draws.masked, draws.weight
    on = weight != 0
    if draws.shift.any() and draws.shown.any():
        if draws.ended.any():
            notes.append("The model is fed prefixes: next-token rows.")
        else:
            findings.append(
                "Labels are shifted: the row of one position is scored "
                "against the token of the next or the previous one. That is "
                "right only for a network whose rows are shifted too."
            )
    if draws.unread.any():
        return findings, notes
    if draws.wrong_target.any():
        findings.append(
            "Targets are not the clean tokens of their positions, in "
            f"{np.mean(draws.wrong_target > 0):.0%} of the calls."
        )
    if draws.replaced.any():
        notes.append(
            "Some inputs are replaced by other tokens instead of the mask, "
            f"{draws.replaced.mean():.1%} of all positions."
        )
    elif draws.shown.any():
        seen = on & ~hidden
        if seen.any():
            active = on.any(-1, keepdims=True) & ~hidden
            part = seen.sum() / active.sum()
            if part > 0.9:
                findings.append(
                    "Visible positions are scored: the model is asked for "
                    "tokens that it is shown."
                )
            else:
                findings.append(
                    "A target lies outside the masked set: "
                    f"{part:.0%} of the visible positions are scored."
                )
    if 0 < draws.ended.mean() < 1:
        notes.append("Some calls feed less than the whole sequence.")
    if draws.extra.any():
        notes.append(
            "The input holds a clean copy of x0: only the attention pattern "
            "hides the answers, and that is not seen here."
            if draws.copy.any() else "The input is longer than x0."
        )
    return findings, notes


def softmax(ctx, draws, batch, length):
    """Whether mass goes to a column outside the clean tokens."""
    leak = float(np.median(draws.leak[draws.leak > 0])) if (
        (draws.leak > 0).any()
    ) else 0.0
    if leak > 0.999:
        return [], ["The outputs are read as log-probabilities."]
    text = ("The mask id takes softmax mass: its column stays in the softmax. "
            "A bound stays valid, but looser.")
    if leak:
        return [text], []
    notes = []
    if ctx.head.scale != "logits":
        words = ctx.head.scale.replace("log_probs", "log-probabilities")
        words = words.replace("probs", "probabilities")
        notes.append(f"The outputs of the model are read as {words}.")
    if ctx.head.columns > ctx.vocab_size or ctx.head.scale != "logits":
        return [], notes
    before = ctx.head
    ctx.use(Head(before.output, ctx.vocab_size + 1, before.scale))
    try:
        wide = ctx.sample(8, batch, length)
        if wide.leak.any():
            notes.append(
                "The softmax runs over all columns of the head. This head "
                "had none for the mask id. If yours has one, the mask id "
                "takes softmax mass: audit with mask_column=True."
            )
    except LossError:
        pass
    finally:
        ctx.use(before)
    return [], notes


def empty(ctx, batch):
    """NaN, infinity or an error when nothing is masked."""
    fine = False
    for size, length in product((2, 1), (1, 2)):
        broken, errors, good = [], [], 0
        for _ in range(80):
            try:
                one = ctx.run(size, length)
            except LossError as error:
                errors.append(str(error))
                if len(errors) == 10 and not good:
                    break
                continue
            good += one.finite
            if not one.finite:
                broken.append(one)
        fine = fine or good > 0
        if broken and good:
            return [not_finite(broken, ctx.mask_id)], []
        if errors and good:
            return [f"The loss raises on some draws: {errors[0]}"], []
    if fine:
        return [], []
    return [], ["NaN without a mask: not tested, the loss needs longer x0."]


def not_finite(broken, mask_id):
    """The finding for evaluations that were NaN or infinite."""
    bare = [
        np.concatenate(
            [~(call.tokens == mask_id).any(1).ravel() for call in one.calls]
        )
        for one in broken
    ]
    words = (
        "The loss or its gradient is NaN or infinite when nothing is masked"
    )
    if all(rows.all() for rows in bare):
        return f"{words} in the whole batch."
    if all(rows.any() for rows in bare):
        return f"{words} in an example."
    return "The loss or its gradient is NaN or infinite in some calls."


def time(draws, level):
    """What is passed as time, and in which direction."""
    tau = draws.time
    if np.isnan(tau).all():
        return [], ["t is not passed to the model."]
    if np.ptp(tau) == 0:
        return [], ["The number passed beside the tokens is constant."]
    notes = []
    if np.ptp(tau, axis=1).max() == 0 and tau.shape[1] > 1:
        notes.append("One t for the whole batch: more variance, no bias.")
    k = draws.masked.sum(-1).mean(-1)
    rank = tau.ravel().argsort().argsort().reshape(tau.shape) / tau.size
    both = ((rank - rank.mean()) * (k - k.mean())).mean(1)
    spread = both.std(ddof=1) / np.sqrt(len(both))
    if both.mean() < -normal_quantile(level) * spread:
        return [
            "The time passed is reversed: it falls as more is masked "
            "(1 - t in place of t, or a survival probability)."
        ], notes
    return [], notes


def coupling(draws, level):
    """How the examples of one batch hang together; a fact, no fault."""
    k = draws.masked.sum((2, 3)).astype(float)
    n, batch = k.shape
    if batch < 2 or np.ptp(k) == 0:
        return []
    if (k == k[:, :1]).all():
        return ["One mask count for the whole batch."]
    k = k - k.mean()
    pairs = (k.sum(1) ** 2 - (k**2).sum(1)) / (batch * (batch - 1))
    z = pairs.mean() / (pairs.std(ddof=1) / np.sqrt(n))
    if abs(z) < normal_quantile(level):
        return []
    if z > 0:
        return ["One t for the whole batch, or nearly: the mask counts of a "
                "batch go together (more variance, no bias)."]
    return ["The times of a batch are spread out (stratified or antithetic)."]


def by_token(draws):
    """Whether weights inside one example follow the clean token.

    Two masked positions of one example with the same token have the same
    weight, and some with different tokens have not.
    """
    weight = draws.weight * draws.masked
    n, batch, passes, length = weight.shape
    slack = 5e-2 if draws.coarse.all() else 1e-3
    x = np.broadcast_to(draws.x0[:, :, None], weight.shape)
    x, weight = x.reshape(-1, length), weight.reshape(-1, length)
    unlike = {True: 0, False: 0}
    for i in range(length):
        for j in range(i):
            a, b = weight[:, i], weight[:, j]
            both = (a != 0) & (b != 0)
            off = np.abs(a - b) > slack * np.abs(a)
            same = x[:, i] == x[:, j]
            unlike[True] += (both & off & same).sum()
            unlike[False] += (both & off & ~same).sum()
    return unlike[False] > 0 and unlike[True] == 0
