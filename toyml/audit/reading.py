"""From gradients to draws: which pattern, which weights, which targets.

For a loss that is the sum of w CE over rows of logits, the gradient of one
row is w (softmax - onehot). So one call tells w and the target of every row,
and whether softmax mass goes to a column outside the clean tokens. The value
of the loss, rebuilt from what was read, must equal the value returned.
"""

from dataclasses import dataclass, fields

import numpy as np

from .align import align, window_of
from .rows import COARSE, FINE, is_bfloat16, read_rows


@dataclass
class Draws:
    """What n calls of the loss drew, on B examples in P passes.

    x0: int [n, B, L]. masked, replaced: bool [n, B, P, L], what the model
    was fed; weight: float [n, B, P, L], by position of the target, times B,
    so that a mean over the batch of the loss per sequence has weights of its
    own; time: [n, B], nan where none is passed; the rest: one entry a call.
    """

    x0: np.ndarray
    masked: np.ndarray
    replaced: np.ndarray
    weight: np.ndarray
    time: np.ndarray
    value: np.ndarray
    rebuilt: np.ndarray
    leak: np.ndarray
    smoothing: np.ndarray
    wrong_target: np.ndarray
    unread: np.ndarray
    shift: np.ndarray
    ended: np.ndarray
    coarse: np.ndarray
    shown: np.ndarray
    extra: np.ndarray
    copy: np.ndarray

    def __len__(self):
        return len(self.value)


def read(evaluations, mask_id, vocab_size, scale="logits"):
    """``Draws`` of evaluations on the same batch shape, in their order."""
    groups = {}
    for n, one in enumerate(evaluations):
        key = tuple(g.shape for g in one.grads)
        groups.setdefault(key, []).append(n)
    parts, order = [], []
    for members in groups.values():
        some = [evaluations[n] for n in members]
        parts.append(_read_group(some, mask_id, vocab_size, scale))
        order += members
    passes = max(part.masked.shape[2] for part in parts)
    out = {}
    for name in (f.name for f in fields(Draws)):
        values = [getattr(part, name) for part in parts]
        if name in ("masked", "replaced", "weight"):
            values = [_pad(v, passes) for v in values]
        out[name] = np.concatenate(values)[np.argsort(order)]
    return Draws(**out)


def _pad(values, passes):
    width = [(0, 0)] * 4
    width[2] = (0, passes - values.shape[2])
    return np.pad(values, width)


def _read_group(evaluations, mask_id, vocab_size, scale):
    x0 = np.stack([e.x0 for e in evaluations])
    n, batch, length = x0.shape
    passes, fed_all = [], []
    facts = dict.fromkeys(("rebuilt", "leak", "smoothing"), np.zeros(n))
    facts |= dict.fromkeys(("wrong_target", "unread"), np.zeros(n, int))
    flags = dict.fromkeys(("shift", "ended", "extra", "shown", "copy"),
                          np.zeros(n, int))
    coarse, time = np.ones(n, bool), None
    for c in range(len(evaluations[0].calls)):
        calls = [e.calls[c] for e in evaluations]
        fed = np.stack([call.tokens for call in calls])
        grad = np.stack([e.grads[c] for e in evaluations])
        if n > 1 and not grad.any():
            continue
        logits = np.stack([call.leaf.detach().numpy() for call in calls])
        coarse &= is_bfloat16(grad)
        slack = COARSE if coarse.all() else FINE
        row = read_rows(grad, logits.astype(float), vocab_size, scale, slack)
        example, part, offset = align(fed, x0, mask_id, row)
        window = window_of(fed, offset, length, mask_id)
        truth = x0[np.arange(n)[:, None], example]
        d = _shift(row, truth, offset)
        w, wrong = _place(row, truth, offset, d)
        hidden = window == mask_id
        other = ~hidden & (window != truth)
        for p in np.unique(part):
            here = np.arange(n)[:, None], example[:, part == p]
            values = np.zeros((3, n, batch, length))
            fed_here = np.zeros((n, batch), bool)
            fed_here[here] = True
            for out, new in zip(values, (hidden, other, w), strict=True):
                out[here] = new[:, part == p]
            passes.append(values)
            fed_all.append(fed_here)
        new = {
            "rebuilt": (row["w"] * row["ce"]).sum((1, 2)),
            "leak": row["leak"],
            "smoothing": np.where(row["on"], row["smoothing"], 0).max((1, 2)),
            "wrong_target": wrong,
            "unread": (row["on"] & ~row["ok"]).sum((1, 2)),
        }
        facts = {k: facts[k] + v for k, v in new.items()}
        new = {
            "shift": np.full(n, abs(d)),
            "ended": np.full(n, fed.shape[2] < length),
            "extra": np.full(n, fed.shape[2] > length),
            "shown": (fed == mask_id).any((1, 2)),
            "copy": _copied(fed, truth, offset),
        }
        flags = {k: np.maximum(flags[k], v) for k, v in new.items()}
        if time is None:
            time = _time(calls, fed.shape[1], example, batch)
    if not passes:
        passes, fed_all = [np.zeros((3, n, batch, length))], []
    if fed_all and (np.sum(fed_all, axis=0) <= 1).all():
        passes = [np.sum(passes, axis=0)]  # the batch went in parts
    masked, replaced, weight = np.stack(passes, 3)
    return Draws(
        x0=x0,
        masked=masked > 0,
        replaced=replaced > 0,
        weight=weight * batch,
        time=np.full((n, batch), np.nan) if time is None else time,
        value=np.array([e.value for e in evaluations]),
        coarse=coarse,
        **facts,
        **flags,
    )


def _copied(fed, truth, offset):
    """Whether all of x0 stands elsewhere in the input, [n]."""
    length = truth.shape[-1]
    found = np.zeros(len(fed), bool)
    for start in range(fed.shape[2] - length + 1):
        if start != offset:
            part = fed[..., start : start + length]
            found |= (part == truth).all((1, 2))
    return found


def _shift(row, truth, offset):
    """0, 1 or -1: the row of logits at i is scored against token i + d."""
    wrong = [_place(row, truth, offset, d)[1].sum() for d in (0, 1, -1)]
    return 0 if wrong[0] <= min(wrong) else (1, -1)[int(np.argmin(wrong[1:]))]


def _place(row, truth, offset, d):
    """Weights by position of the target, and the number of wrong targets."""
    length, width = truth.shape[-1], row["w"].shape[-1]
    where = np.arange(width) - offset + d
    inside = (where >= 0) & (where < length)
    w = np.zeros(truth.shape)
    w[..., where[inside]] = row["w"][..., inside]
    right = np.zeros(row["on"].shape, bool)
    right[..., inside] = row["target"][..., inside] == truth[
        ..., where[inside]
    ]
    return w, (row["on"] & row["ok"] & ~right).sum((1, 2))


def _time(calls, rows, example, batch):
    """The per-example number that was passed beside the tokens, [n, B]."""
    for j in range(len(calls[0].extras)):
        values = [call.extras[j][1] for call in calls if len(call.extras) > j]
        if len(values) < len(calls) or values[0].size not in (1, rows):
            continue
        flat = np.stack([np.broadcast_to(v.ravel(), rows) for v in values])
        out = np.full((len(calls), batch), np.nan)
        out[np.arange(len(calls))[:, None], example] = flat
        return None if np.isnan(out).any() else out
    return None
