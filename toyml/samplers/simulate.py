"""A sampler run by chance, many sequences at once."""

from contextlib import contextmanager

import numpy as np

from ..tables import check_denoised
from .choice import draw_tokens, sharpen


def ask(denoiser, tokens, time, vocab_size):
    """The denoiser's answer, checked: float64 or object [n, L, V]."""
    answer = denoiser(tokens) if time is None else denoiser(tokens, time)
    probs = np.asarray(answer)
    if probs.dtype != object:
        probs = probs.astype(np.float64, copy=False)
    check_denoised(probs, tokens, vocab_size)
    return probs


def left_masked(sampler, count):
    return ValueError(
        f"sampler {sampler.name!r} leaves up to {count} masks in a sequence; "
        "expected steps that reveal all of them"
    )


@contextmanager
def bar(name):
    """A progress bar, as the function that ``simulate`` calls.

    It is cleared when the block ends, and also when it fails.
    """
    from tqdm import tqdm  # only ``toyml[train]`` brings it

    with tqdm(desc=name, unit=" row steps", leave=False) as shown:

        def show(done, total):
            shown.total = total
            shown.update(done - shown.n)

        yield show


def simulate(sampler, denoiser, tokens, vocab_size, rng, batch, progress):
    """Fill the masks of tokens, int64 [n, L], in place; returns it."""
    editable = tokens == vocab_size
    steps = sampler.steps(tokens.shape[1])
    timed = any(step.schedule for step in steps)
    levels = rng.random(tokens.shape) if timed else None
    total = len(steps) * len(tokens)
    for number, step in enumerate(steps):
        hidden = tokens == vocab_size
        candidates = step.candidates(hidden, editable)
        if step.remasks:
            noise = rng.random(tokens.shape)
            tokens[step.selection(candidates).draw(noise)] = vocab_size
            continue
        rows = np.flatnonzero(candidates.any(axis=1))
        times = _times(step, levels, editable, hidden, rows)
        noise = rng.random((2, len(rows), tokens.shape[1]))
        for start in range(0, len(rows), batch):
            part = slice(start, start + batch)
            at = rows[part]
            time = times[part] if step.schedule else times
            seen = tokens[at]
            probs = ask(denoiser, seen.copy(), time, vocab_size)
            selection = step.selection(candidates[at], probs)
            chosen = selection.draw(noise[0, part])
            law = sharpen(
                probs[chosen].astype(np.float64),
                sampler.temperature,
                sampler.top_p,
            )
            seen[chosen] = draw_tokens(law, noise[1, part][chosen])
            tokens[at] = seen
            if progress:
                progress(number * len(tokens) + int(at[-1]) + 1, total)
    left = (tokens == vocab_size).sum(axis=1).max()
    if left:
        raise left_masked(sampler, left)
    if progress:
        progress(total, total)
    return tokens


def _times(step, levels, editable, hidden, rows):
    """What the denoiser is told: None, one float, or float64 [rows].

    levels: independent uniforms [n, L], the masked probability at which each
    position of the window is revealed. Going back in time the largest comes
    first; so many of them are past as positions have been revealed.
    """
    if step.schedule is None:
        return None if step.time is None else float(step.time)
    inside = editable[rows, step.columns]
    falling = -np.sort(-np.where(inside, levels[rows, step.columns], 0.0))
    past = (inside & ~hidden[rows, step.columns]).sum(axis=1)
    return step.schedule.inverse(falling[np.arange(len(rows)), past])
