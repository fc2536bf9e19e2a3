"""Which example a row of the model's input belongs to, and where it starts."""

import numpy as np

from .toy import LossError


def align(fed, x0, mask_id, row):
    """Example [n, R] and pass [R] of each row, and x0's place in a row.

    The rows may be the batch, copies of it, or a part of it in its order.
    What is fed beside masks must be x0; so must the targets.
    """
    n, batch, length = x0.shape
    rows, width = fed.shape[1:]
    every = np.arange(rows)
    if rows % batch == 0:
        maps = [(every % batch, every // batch)]
        if rows > batch:
            copies = rows // batch
            maps.append((every // copies, every % copies))
    elif rows < batch and batch % rows == 0:
        maps = [(every + s, 0 * every) for s in range(0, batch, rows)]
    elif rows < batch:
        maps = []
    else:
        raise LossError(
            f"the model was fed {rows} rows for a batch of {batch}; expected "
            "the batch, copies of it or a part of it"
        )
    if rows < batch:
        if width > length or batch > 64:
            raise LossError(
                f"the model was fed {rows} rows of {width} tokens for a batch "
                f"of {batch} with {length}; expected the same shape"
            )
        known = np.where(fed == mask_id, -1, fed)
        hit = row["on"] & row["ok"]
        known = np.where(hit, row["target"], known)[..., :length]
        known = np.pad(known, ((0, 0), (0, 0), (0, length - known.shape[2])),
                       constant_values=-1)
        for example, part in maps:
            if not ((known >= 0) & (known != x0[:, example])).any():
                return np.broadcast_to(example, (n, rows)), part, 0
        example = [_match(k, x) for k, x in zip(known, x0, strict=True)]
        return np.stack(example), 0 * every, 0
    best = None
    for offset in range(max(width - length, 0) + 1):
        window = window_of(fed, offset, length, mask_id)
        on = row["on"][..., offset : offset + length].sum()
        for example, part in maps:
            wrong = (window != mask_id) & (window != x0[:, example])
            key = (wrong.sum(), -on)
            if best is None or key < best[0]:
                best = key, example, part, offset
    _, example, part, offset = best
    return np.broadcast_to(example, (n, rows)), part, offset


def _match(known, x0):
    """The rows of x0, in order, that known tokens (-1: unknown) fit best."""
    cost = ((known[:, None] >= 0) & (known[:, None] != x0)).sum(-1)
    rows, batch = cost.shape
    best = np.full((rows + 1, batch + 1), np.inf)
    best[0] = 0
    for r in range(rows):
        for b in range(r, batch):
            best[r + 1, b + 1] = min(best[r + 1, b], best[r, b] + cost[r, b])
    out, b = [], batch
    for r in range(rows, 0, -1):
        while best[r, b - 1] == best[r, b]:
            b -= 1
        b -= 1
        out.append(b)
    return np.array(out[::-1])


def window_of(fed, offset, length, mask_id):
    """Tokens [n, R, L] at x0's places; what was cut off counts as masked."""
    window = fed[..., offset : offset + length]
    missing = length - window.shape[-1]
    return np.pad(
        window, ((0, 0), (0, 0), (0, missing)), constant_values=mask_id
    )
