"""Checks on the table of a mask lattice and on what fills it."""

import numpy as np
import sympy

#: The largest L of a table of 2^L patterns.
MAX_LENGTH = 22


def check_length(length):
    """Raise ValueError, with the memory it would take, past MAX_LENGTH."""
    if length > MAX_LENGTH:
        gib = 8 * length * 2.0**length / 2**30
        raise ValueError(
            f"length = {length}: the table of 2^{length} patterns would take "
            f"{gib:.1f} GiB; expected at most {MAX_LENGTH}"
        )


def check_column(column, i):
    """Raise ValueError unless column i of a table is right, [2^L].

    The entries of visible positions are 1, those of masked ones in [0, 1].
    """
    pairs = column.reshape(-1, 2, 1 << i)
    visible, masked = pairs[:, 0], pairs[:, 1]
    wrong = visible[visible != 1]
    if len(wrong):
        raise ValueError(
            f"table holds {wrong[0]} where position {i} is visible; expected 1"
        )
    if column.dtype == object:
        numbers = [v for v in map(sympy.sympify, masked.flat) if v.is_number]
        wrong = [v for v in numbers if not 0 <= v <= 1]
    else:
        wrong = masked[~((masked >= 0) & (masked <= 1))]
    if len(wrong):
        raise ValueError(
            f"table holds {wrong[0]} at masked position {i}; expected a "
            "probability in [0, 1]"
        )


def clean_sequence(x0, vocab_size):
    """x0 as an array, int [L]; ValueError unless all tokens are clean."""
    x0 = np.asarray(x0)
    if x0.ndim != 1 or x0.dtype.kind not in "iu":
        raise ValueError(f"x0 = {x0}: expected integer tokens [L]")
    if np.any((x0 < 0) | (x0 >= vocab_size)):
        raise ValueError(
            f"x0 = {x0.tolist()}: expected clean tokens in 0.."
            f"{vocab_size - 1} (the mask id {vocab_size} is not one)"
        )
    return x0


def check_denoised(probs, tokens, vocab_size):
    """Raise ValueError unless a denoiser's answer fits its question.

    probs: [B, L, V] for tokens [B, L]; at masks nonnegative rows that sum to
    1, to 1e-6 for floats.
    """
    if probs.shape != (*tokens.shape, vocab_size):
        raise ValueError(
            f"denoiser returned shape {probs.shape}; expected "
            f"{(*tokens.shape, vocab_size)}"
        )
    totals = probs.sum(axis=-1)[tokens == vocab_size]
    slack = 0 if probs.dtype == object else 1e-6
    near = np.abs(totals - 1) <= slack
    if not np.all(near) or np.any(probs < 0):
        raise ValueError(
            f"denoiser returned rows that sum to {totals.min()} up to "
            f"{totals.max()}, with minimum {probs.min()}; expected "
            "nonnegative rows that sum to 1"
        )
