"""What every source checks of its input and fills in its output."""

import numpy as np


def fill_visible(out, tokens):
    """Make every visible token certain in [B, L, V] conditionals."""
    v = out.shape[-1]
    visible = tokens != v
    out[visible] = (tokens[visible][:, None] == np.arange(v)).astype(int)
    return out


def check_tokens(source, tokens, clean=False):
    tokens = np.asarray(tokens)
    largest = source.vocab_size - clean
    if (
        tokens.dtype.kind not in "iu"
        or tokens.ndim != 2
        or tokens.shape[1] != source.length
        or np.any((tokens < 0) | (tokens > largest))
    ):
        raise ValueError(
            f"tokens of shape {tokens.shape} and dtype {tokens.dtype}, values "
            f"{np.unique(tokens)[:8].tolist()}: expected integers [B, "
            f"{source.length}] in 0..{largest}"
            + ("" if clean else f" (mask id {largest})")
        )
    return tokens


def impossible(row, sequence):
    return ValueError(
        f"row {row}, tokens {sequence.tolist()}: the visible tokens have "
        "probability 0; expected possible evidence"
    )


def check_probabilities(name, values, axis=-1):
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        values = values.astype(float)
    totals = np.asarray(values.sum(axis=axis))
    slack = 0 if values.dtype == object else 1e-9
    off = np.abs(totals - 1) > slack
    if np.any(values < 0) or np.any(off) or np.any(values != values):
        raise ValueError(
            f"{name} has minimum {values.min()} and sums {totals.tolist()}; "
            "expected nonnegative numbers that sum to 1"
        )
    return values
