"""One row of gradient: its weight, its target and its softmax."""

import numpy as np

COARSE = 5e-2  # relative error allowed where gradients have bfloat16 digits
FINE = 1e-3


def read_rows(grad, logits, v, scale, slack):
    """w, target, leak, smoothing, ce of every row, [n, R, L'] each.

    The row must be w (s p - onehot), with p the softmax over the clean
    tokens and 1 - s the mass that other columns take; else, with s = 1 and
    the one-hot target smoothed by eps / V.
    """
    z = logits[..., :v] - logits[..., :v].max(-1, keepdims=True)
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    clean = grad[..., :v]
    size = np.abs(grad).max(-1)
    on = size > 1e-10 * size.max(axis=(1, 2), keepdims=True)
    smooth = slack == FINE
    fit = _fit(clean, p, clean.argmin(-1), smooth)
    with np.errstate(all="ignore"):
        bad = on & ~(fit["error"] < slack)
    if bad.any():
        other = _fit(clean, p, clean.argmax(-1), smooth)
        better = bad & (other["error"] < fit["error"])
        fit = {k: np.where(better, other[k], fit[k]) for k in fit}
    w = np.where(on, fit["w"], 0)
    smoothing = np.where(on, fit["smoothing"], 0)
    py = np.take_along_axis(p, fit["target"][..., None], -1)[..., 0]
    with np.errstate(all="ignore"):
        ce = -np.log(py * (1 - fit["leak"]))
    ce = np.where(on & np.isfinite(ce), ce, 0)
    if scale == "probs":
        ce = np.where(on, -np.log(py), 0)
    return {
        "leak": _leak(on & (fit["error"] < slack), fit["leak"], slack),
        "on": on, "w": w, "target": fit["target"],
        "smoothing": smoothing, "ce": ce, "ok": fit["error"] < slack,
        "error": fit["error"],
    }


def _leak(on, leak, slack):
    """The largest mass outside the clean tokens [n], 0 within the noise."""
    leak = np.where(on, leak, 0).max((1, 2))
    return np.where(leak > slack, leak, 0)


def _fit(clean, p, target, smoothed):
    """Weight, leak and relative error of each row for given targets."""
    v = p.shape[-1]
    hot = target[..., None] == np.arange(v)
    off_g, off_p = np.where(hot, 0, clean), np.where(hot, 0, p)
    g_y = np.where(hot, clean, 0).sum(-1)
    p_y = np.where(hot, p, 0).sum(-1)
    with np.errstate(all="ignore"):
        ws = off_g.sum(-1) / off_p.sum(-1)
        w = ws * p_y - g_y
        left = np.abs(off_g - ws[..., None] * off_p).max(-1)
        error = np.where(w == 0, np.inf, left / np.abs(w))
        leak = 1 - ws / w
    # Smoothed targets: off the target g = A p - B.
    mean_g, mean_p = off_g.sum(-1) / (v - 1), off_p.sum(-1) / (v - 1)
    dg = np.where(hot, 0, clean - mean_g[..., None])
    dp = np.where(hot, 0, p - mean_p[..., None])
    with np.errstate(all="ignore"):
        slope = (dg * dp).sum(-1) / (dp**2).sum(-1)
        below = slope * mean_p - mean_g
        left = np.abs(dg - slope[..., None] * dp).max(-1) / np.abs(slope)
        total = np.abs(clean.sum(-1) / slope)
        eps = v * below / slope
    smooth = (
        (error > FINE) & (left < FINE) & (total < FINE)
        & (eps > FINE) & (eps < 1)
    ) if smoothed and v > 3 else np.zeros(error.shape, bool)
    return {
        "target": target,
        "w": np.where(smooth, slope, w),
        "leak": np.where(smooth, 0, leak),
        "smoothing": np.where(smooth, eps, 0),
        "error": np.where(smooth, left, error),
    }


def is_bfloat16(grad):
    """Per call: whether all gradients have at most 8 significant bits."""
    mantissa, _ = np.frexp(grad)
    whole = mantissa * 256
    return (whole == np.round(whole)).all((1, 2, 3))
