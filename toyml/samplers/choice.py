"""From a conditional to a token: temperature, top-p, and the draw itself."""

import math
from fractions import Fraction

import numpy as np

from .. import exact


def check_choice(temperature, top_p):
    if not 0 <= temperature < math.inf:
        raise ValueError(
            f"temperature = {temperature}: expected a finite number >= 0"
        )
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p = {top_p}: expected a number in (0, 1]")


def sharpen(probabilities, temperature=1, top_p=1):
    """Conditionals changed by temperature, then cut by top-p.

    probabilities: [..., V], rows that sum to 1. Returns the same shape,
    float64, or Fractions for an exact array. Row by row:

    temperature: T > 0 gives what is proportional to p^(1/T), by logs in
        float64; 0 puts all on the most likely token, the lowest id among
        equals.
    top_p: keeps the most likely tokens, equals by lower id first, until their
        sum reaches top_p. The token that reaches it is kept. 1 keeps all.

    The result is divided by its sum. So are float rows left as they are: a
    float32 softmax misses 1 by about 1e-7.

    Raises ValueError for a temperature below 0 or infinite, for top_p outside
    (0, 1], and for exact rows with a float top_p or without whole 1 / T.
    Source: Holtzman et al. 2020 for top-p.
    """
    check_choice(temperature, top_p)
    p = np.asarray(probabilities)
    if p.dtype != object:
        p = p.astype(np.float64, copy=False)
    if temperature == 0:
        return _largest(p)
    if temperature != 1:
        p = _tempered(p, temperature)
    if top_p != 1:
        p = _cut(p, top_p)
    return p / p.sum(axis=-1, keepdims=True)


def draw_tokens(probabilities, uniforms):
    """Tokens by the inverse distribution function, in float64, int64 [...].

    probabilities: [..., V], nonnegative; uniforms: [...], in [0, 1). The
    token v has sum(p before v) <= u total < sum(p up to v): one of
    probability 0 is never drawn. No logarithm of u is taken, so that rare
    tokens keep their probability to about 1e-16.
    """
    edges = np.cumsum(np.asarray(probabilities, np.float64), axis=-1)
    # A float u < 1 times the total rounds to less than the total.
    reached = np.asarray(uniforms)[..., None] * edges[..., -1:]
    return np.sum(edges <= reached, axis=-1)


def _largest(p):
    one = Fraction(1) if p.dtype == object else 1.0
    at = np.argmax(p, axis=-1)[..., None] == np.arange(p.shape[-1])
    return np.where(at, one, 0 * one)


def _tempered(p, temperature):
    if p.dtype == object:
        power = 1 / Fraction(temperature)
        if power.denominator != 1:
            raise ValueError(
                f"temperature = {temperature}: an exact law needs 1 / "
                "temperature to be a whole number"
            )
        p = p ** int(power)
    else:
        logs = exact.log(p)
        logs = logs - logs.max(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            p = np.exp(logs / temperature)
    return p / p.sum(axis=-1, keepdims=True)


def _cut(p, top_p):
    if p.dtype == object and isinstance(top_p, float):
        raise ValueError(
            f"top_p = {top_p}: an exact law needs a Fraction, not a float"
        )
    order = np.argsort(-p, axis=-1, kind="stable")
    ranked = np.take_along_axis(p, order, axis=-1)
    short = np.cumsum(ranked, axis=-1) < top_p
    first = np.ones_like(short[..., :1])
    before_short = np.concatenate([first, short[..., :-1]], axis=-1)
    kept = np.empty(p.shape, bool)
    np.put_along_axis(kept, order, before_short, axis=-1)
    return np.where(kept, p, 0 * p)
