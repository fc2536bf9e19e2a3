"""Calls of one loss under one head, and the choice of that head."""

import sys
import time
from itertools import product

import numpy as np

from . import dice, toy
from .heads import OUTPUTS, SCALES, Head
from .reading import read


class Context:
    """Runs a loss on random clean sequences and reads what it drew.

    run and sample draw x0 uniformly from the clean tokens, or take it.
    broken: the evaluations whose value or gradient was not finite.
    """

    def __init__(self, loss_fn, vocab_size, mask_id, head, seed):
        self.loss_fn, self.vocab_size = loss_fn, vocab_size
        self.mask_id, self.seed = mask_id, seed
        self.accepts = toy.wanted(loss_fn)
        self.pad_id = vocab_size - 1 if "pad_id" in self.accepts else None
        self.use(head)
        self.broken, self.calls = [], 0

    def use(self, head):
        self.head = head
        self.restart()

    def restart(self, seed=None):
        """Clean sequences and logits from a known start."""
        self.rng = np.random.default_rng(self.seed if seed is None else seed)
        self.model = toy.Toy(
            self.vocab_size, self.mask_id, self.head, self.rng, self.pad_id
        )

    def clean(self, batch, length):
        """x0, int64 [B, L]; never the padding token."""
        top = self.vocab_size - (self.pad_id is not None)
        return self.rng.integers(0, top, (batch, length))

    def run(self, batch, length, x0=None, editable=None):
        self.calls += 1
        x0 = self.clean(batch, length) if x0 is None else x0
        wants = {}
        if "editable" in self.accepts:
            everything = np.ones(x0.shape, bool)
            wants["editable"] = everything if editable is None else editable
        if "pad_id" in self.accepts:
            wants["pad_id"] = self.pad_id
        return toy.evaluate(self.loss_fn, self.model, x0, **wants)

    def sample(self, n, batch, length, x0=None, editable=None, tick=None):
        """``Draws`` of n calls; those that are not finite are set aside."""
        kept = []
        for _ in range(n):
            one = self.run(batch, length, x0, editable)
            (kept if one.finite else self.broken).append(one)
            if tick:
                tick()
        if not kept:
            raise toy.LossError("the loss is NaN or infinite in every call")
        if not any(one.calls for one in kept):
            raise toy.LossError("the loss never calls the model")
        if n > 1 and all(one.detached for one in kept):
            raise toy.LossError(
                "the loss has no gradient with respect to the logits; "
                "return the loss tensor itself, before .item() or .detach()"
            )
        scale = self.head.scale
        return read(kept, self.mask_id, self.vocab_size, scale)


def rebuilt(draws):
    """(whether sum w CE + constant gives the values, that constant)."""
    off = draws.value - draws.rebuilt
    slack = 5e-2 if draws.coarse.all() else 2e-3
    size = np.abs(draws.value) + np.abs(draws.rebuilt)
    size += 1e-2 * size.mean() + 1e-12
    constant = float(np.median(off))
    return bool((np.abs(off - constant) < slack * size).all()), constant


def readable(draws):
    return not draws.unread.any() and (
        bool((draws.smoothing > 0).any()) or rebuilt(draws)[0]
    )


def choose_head(ctx, batch, length, mask_column=None):
    """The first head under which the loss runs and can be read.

    V columns come before V + 1, unless mask_column says which. Without a
    readable one, the first head under which the loss runs; else ``LossError``
    with what the first one raised.
    """
    v, first, error, normalised = ctx.vocab_size, None, None, False
    columns = (0, 1) if mask_column is None else (int(mask_column),)
    for n, output, scale, extra in product(
        (12, 200), OUTPUTS, SCALES, columns
    ):
        if n > 12 and first:
            break  # the long trial is for losses that are mostly NaN
        ctx.use(Head(output, v + extra, scale))
        dice.reseed(ctx.seed)
        try:
            draws = ctx.sample(n, batch, length)
        except toy.LossError as problem:
            error = error or problem
            continue
        if scale != "logits" and normalised:
            continue
        # A leak of 1 means that the loss took no softmax of its own.
        normalised |= not (draws.leak > 0.999).any()
        first = first or ctx.head
        if readable(draws) and not draws.wrong_target.any():
            return ctx.head
    if first is None:
        raise error
    ctx.use(first)
    return first


class Ticker:
    """Prints a plain line to stderr when the audit takes long."""

    def __init__(self, progress):
        self.start = self.last = time.monotonic()
        self.progress, self.n = progress, 0

    def __call__(self):
        self.n += 1
        now = time.monotonic()
        late = now - self.start > 3 and now - self.last > 1
        if self.progress or (self.progress is None and late):
            if now - self.last > 1:
                print(f"audit: {self.n} calls", file=sys.stderr)
                self.last = now
