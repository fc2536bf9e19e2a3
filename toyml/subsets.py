"""Sums over the 2^L mask patterns of a sequence.

Pattern S is an integer whose bit i is set when position i is masked: 0 is the
clean sequence, 2^L - 1 is all masks. A table has one row a pattern and one
column a position, [2^L, L].
"""

from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import sympy

from . import exact

_TINY = np.finfo(float).tiny
_CHUNK = 4096


def masks(length):
    """The patterns as booleans [2^L, L], True where masked."""
    patterns = np.arange(1 << length)[:, None]
    return (patterns >> np.arange(length)) & 1 == 1


@cache
def counts(length):
    """The number of masks |S| of each pattern, [2^L]."""
    out = np.zeros(1, dtype=np.uint8)
    for _ in range(length):
        out = np.concatenate([out, out + 1])
    out.flags.writeable = False
    return out


def row_losses(table):
    """-sum_i log table[S, i] in nats, [2^L].

    One log a row: the logarithm of the product of the row. Where a float
    product underflows, the logs are summed one by one.
    """
    if table.dtype == object:
        return -exact.log(table).sum(axis=1)
    out = np.empty(len(table))
    for start in range(0, len(table), _CHUNK):
        rows = table[start : start + _CHUNK]
        products = _row_products(rows)
        low = products < _TINY
        losses = 0.0 - exact.log(products)
        losses[low] = -exact.log(rows[low]).sum(axis=1)
        out[start : start + _CHUNK] = losses
    return out


def _row_products(rows):
    """Products over the last axis, pairing neighbours in long flat passes."""
    width = rows.shape[1]
    flat = rows.ravel()
    while width > 1:
        if width % 2:
            wide = flat.reshape(-1, width)
            flat = wide[:, :-1].ravel()
            flat[:: width - 1] *= wide[:, -1]
            width -= 1
        else:
            flat = flat[0::2] * flat[1::2]
            width //= 2
    return flat


def mean_path_product(table):
    """The mean over all L! orders of the product of probabilities.

    An order starts from all masks and reveals one position a step:
    f(S) = (1/|S|) sum over i in S of table[S, i] f(S - i), f(clean) = 1.
    A float mean below 1e-290 may have lost terms to underflow.
    """
    one = Fraction(1) if table.dtype == object else 1.0
    return _over_patterns(
        table, lambda row, f, k: np.einsum("ij,ij->i", row, f) / k, one, 0
    )


def log_mean_path_product(table):
    """The log of ``mean_path_product`` for float tables, without underflow."""

    def step(row, log_f, k):
        return np.logaddexp.reduce(exact.log(row) + log_f, axis=1) - np.log(k)

    return _over_patterns(table, step, 0.0, -np.inf)


def mean_path_loss(table):
    """The mean over all L! orders of the summed cross-entropy, in nats.

    g(S) = (1/|S|) sum over i in S of (-log table[S, i] + g(S - i)).
    """
    zero = sympy.Integer(0) if table.dtype == object else 0.0
    return _over_patterns(
        table, lambda row, g, k: (g - exact.log(row)).sum(axis=1) / k, zero, 0
    )


def _over_patterns(table, step, clean, pending):
    """The value at all masks of a recursion over |S| = 1, 2, ..., L.

    step(rows [n, L], values with one bit flipped [n, L], |S|) -> [n]. A
    visible position's flip has more masks than S: it still holds ``pending``,
    which must add nothing where the table says 1.
    """
    length = table.shape[1]
    bits = 1 << np.arange(length)
    size = counts(length)
    order = np.argsort(size, kind="stable")
    ends = np.cumsum(np.bincount(size))
    values = np.full(len(table), pending, dtype=table.dtype)
    values[0] = clean
    for k, (low, high) in enumerate(pairwise(ends), start=1):
        for start in range(low, high, _CHUNK):
            at = order[start : min(start + _CHUNK, high)]
            rows = table.take(at, axis=0)
            flipped = values.take(at[:, None] ^ bits)
            values[at] = step(rows, flipped, k)
    return values[-1]
