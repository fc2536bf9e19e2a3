"""One coordinate of the reverse process: posterior, model step and their KL.

The state of a position is one of V clean tokens 0..V-1 or the mask, id V.
Distributions over states have V + 1 columns, the mask last. A denoiser head
has V columns; a head of V + 1 columns leaks probability to the mask. All of
it works on floats and on exact numbers (Fractions, SymPy numbers, symbols).

Source: D3PM (Austin et al. 2021) app. A.2.2; MDLM (Sahoo et al. 2024) eq. 6-8.
"""

import numpy as np
import sympy

from . import exact


def forward_kernel(schedule, s, t, vocab_size):
    """q(x_t | x_s) as a matrix [V + 1, V + 1], rows x_s, columns x_t.

    A clean token survives with probability alpha(t) / alpha(s) and is masked
    otherwise; the mask stays. Raises ValueError unless s < t.
    """
    schedule.reveal(s, t)  # raises unless s < t
    keep = schedule.survival(t) / schedule.survival(s)
    kernel = np.zeros((vocab_size + 1, vocab_size + 1), dtype=_dtype(keep))
    kernel[range(vocab_size), range(vocab_size)] = keep
    kernel[:vocab_size, vocab_size] = 1 - keep
    kernel[vocab_size, vocab_size] = 1
    return kernel


def posterior(schedule, s, t, x_t, x_0, vocab_size):
    """q(x_s | x_t, x_0), shape [..., V + 1], for integer arrays x_t and x_0.

    A visible x_t stays as it is; a mask is revealed as x_0 with probability
    r(s, t). Raises ValueError unless s < t, for a token outside the
    vocabulary, for a mask in x_0, and for evidence of probability zero: a
    visible x_t other than x_0, or a visible token where none is left.
    """
    schedule.reveal(s, t)  # raises unless s < t
    x_t = _tokens("x_t", x_t, vocab_size)
    x_0 = _tokens("x_0", x_0, vocab_size - 1)
    x_t, x_0 = np.broadcast_arrays(x_t, x_0)
    visible = x_t != vocab_size
    changed = visible & (x_t != x_0)
    none_left = visible & (np.asarray(schedule.survival(t)) == 0)
    if np.any(changed | none_left):
        raise ValueError(
            f"x_t = {x_t.tolist()} at t = {t} has probability 0 given x_0 = "
            f"{x_0.tolist()}; expected x_0 itself or the mask"
        )
    return _step(schedule, s, t, x_t, _one_hot(x_0, vocab_size + 1))


def transition(schedule, s, t, x_t, probs, vocab_size):
    """The model's p(x_s | x_t), shape [..., V + 1].

    x_t: integer array [...], the mask being id V.
    probs: the head's distribution at each position, [..., V] or [..., V + 1].
    Raises ValueError unless s < t, for a token outside the vocabulary, and
    for a row of probs that is not a distribution. Source: MDLM eq. 7.
    """
    x_t = _tokens("x_t", x_t, vocab_size)
    return _step(schedule, s, t, x_t, _head(probs, vocab_size))


def coordinate_kl(schedule, s, t, x_t, x_0, probs, vocab_size):
    """KL(q(x_s | x_t, x_0) || p(x_s | x_t)) in nats, shape [...].

    Zero at a visible position. At a mask, with r = r(s, t) and a head mu,
    it is -r log mu(x_0) - (1 - r) log(1 + r mu(mask) / (1 - r)): the second
    part is there only when the head leaks. Infinite where mu(x_0) = 0.
    Arguments and errors as for ``posterior`` and ``transition``.
    """
    posterior(schedule, s, t, x_t, x_0, vocab_size)  # raises on bad evidence
    probs = _head(probs, vocab_size)
    x_t, x_0 = np.broadcast_arrays(x_t, x_0)
    r, stay = _reveal_and_stay(schedule, s, t)
    rows = _one_hot(x_0, vocab_size + 1).astype(bool)
    right = np.broadcast_to(probs, rows.shape)[rows].reshape(x_0.shape)
    leak = r * probs[..., vocab_size]
    masked = x_t == vocab_size
    if exact.is_exact(probs, r):
        gain = exact.log(_not_zero(stay + leak)) - exact.log(_not_zero(stay))
        saved = stay * gain
    else:
        saved = stay * np.log1p(leak / _not_zero(stay))
    return np.where(masked, -r * exact.log(right) - saved, 0)[()]


def kl(p, q):
    """KL(p || q) in nats over the last axis; 0 log 0 is 0.

    Infinite where q is 0 and p is not.
    """
    p, q = np.broadcast_arrays(p, q)
    terms = exact.log(_not_zero(p)) - exact.log(np.where(p == 0, 1, q))
    return np.sum(np.where(p == 0, 0, p * terms), axis=-1)


def _reveal_and_stay(schedule, s, t):
    """r(s, t), and 1 - r = rho(s) / rho(t) without cancellation."""
    r = np.asarray(schedule.reveal(s, t))
    return r, np.asarray(schedule.masked(s) / schedule.masked(t))


def _step(schedule, s, t, x_t, clean):
    """(1 - r) delta_mask + r clean where x_t is the mask, else delta_x_t."""
    r, stay = _reveal_and_stay(schedule, s, t)
    states = clean.shape[-1]
    mask = _one_hot(np.int64(states - 1), states)
    moved = r[..., None] * clean + stay[..., None] * mask
    hidden = (x_t == states - 1)[..., None]
    return np.where(hidden, moved, _one_hot(x_t, states))


def _head(probs, vocab_size):
    """Check a head's rows and give a clean head its zero mask column."""
    probs = np.asarray(probs)
    if probs.shape[-1] not in (vocab_size, vocab_size + 1):
        raise ValueError(
            f"probs has {probs.shape[-1]} columns; expected {vocab_size} or, "
            f"for a head that leaks, {vocab_size + 1}"
        )
    totals = probs.sum(axis=-1)
    if probs.dtype == object:
        off = [sympy.simplify(v - 1) != 0 for v in np.ravel(totals)]
        off += [v.is_negative for v in map(sympy.sympify, probs.flat)]
    else:
        off = ~np.isclose(totals, 1, rtol=0, atol=1e-6) | (probs < 0).any(-1)
    if np.any(off):
        raise ValueError(
            f"probs sums to {np.ravel(totals).tolist()} by row; expected "
            "nonnegative rows that sum to 1"
        )
    if probs.shape[-1] == vocab_size:
        zero = np.zeros((*probs.shape[:-1], 1), dtype=probs.dtype)
        probs = np.concatenate([probs, zero], axis=-1)
    return probs


def _tokens(name, tokens, largest):
    tokens = np.asarray(tokens)
    if tokens.dtype.kind not in "iu":
        raise ValueError(f"{name} = {tokens}: expected integer token ids")
    if np.any((tokens < 0) | (tokens > largest)):
        raise ValueError(
            f"{name} = {tokens.tolist()}: expected ids in 0..{largest}"
        )
    return tokens


def _one_hot(tokens, states):
    return (np.asarray(tokens)[..., None] == np.arange(states)).astype(int)


def _not_zero(values):
    return np.where(values == 0, 1, values)


def _dtype(value):
    return object if exact.is_exact(value) else float
