"""Objectives with another ratio law and weight 1: BERT and MaskGIT."""

import numpy as np

from .laws import CountLaw, Given, Objective, binomial


def bert(rate=0.15):
    """Each token selected at one fixed rate, weight 1 on the selected.

    On the lattice every selected token is shown as a mask. BERT itself shows
    a mask for 80% of them only: see ``bert_inputs``.
    Source: BERT (Devlin et al. 2019), known at second hand.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate = {rate}: expected a number in (0, 1]")

    def law(length):
        return _weight_one(binomial(length, [rate])[0])

    def given(u, sizes):
        return Given(weight=np.ones(len(u)), rate=np.full(len(u), rate))

    return Objective("bert", law, given)


def bert_inputs(x0, selected, vocab_size, rng):
    """The inputs BERT shows: a third array beside selected and weight.

    A selected token becomes the mask (id vocab_size) with probability 0.8, a
    uniform vocabulary token with 0.1, and stays as it is with 0.1.
    x0, selected: [..., L]. Returns int64 of the same shape. A token of x0
    outside 0..vocab_size - 1 raises ValueError.
    """
    x0 = np.asarray(x0)
    if np.any((x0 < 0) | (x0 >= vocab_size)):
        raise ValueError(
            f"x0 = {x0.tolist()}: expected clean tokens in 0.."
            f"{vocab_size - 1}"
        )
    fate = rng.random(x0.shape)
    shown = np.where(
        fate < 0.8,
        vocab_size,
        np.where(fate < 0.9, rng.integers(vocab_size, size=x0.shape), x0),
    )
    return np.where(selected, shown, x0)


def maskgit(bernoulli=False):
    """Mask ratio cos(pi r / 2), r uniform on [0, 1), weight 1.

    ceil(ratio L) uniformly chosen positions are masked, or, with bernoulli,
    each position independently at that ratio.
    Source: MaskGIT (Chang et al. 2022), the cosine ratio, unweighted loss.
    """

    def edges(length):
        """The r at which the count steps down from k to k - 1, k = 0..L."""
        return np.arccos(np.arange(length + 1) / length) * 2 / np.pi

    def law(length):
        if bernoulli:
            nodes, masses = np.polynomial.legendre.leggauss(length + 64)
            ratio = np.cos(np.pi * (nodes + 1) / 4)
            return _weight_one(masses / 2 @ binomial(length, ratio))
        return _weight_one(np.append(0.0, -np.diff(edges(length))))

    def given(u, sizes):
        ratio, one = np.cos(np.pi / 2 * u), np.ones(len(u))
        if bernoulli:
            return Given(weight=one, rate=ratio)
        return Given(weight=one, count=np.ceil(ratio * sizes).astype(int))

    name = "maskgit_bernoulli" if bernoulli else "maskgit"
    inner = (lambda _: ()) if bernoulli else lambda n: edges(n)[1:-1]
    return Objective(name, law, given, inner)


def _weight_one(probability):
    p = tuple(probability)
    return CountLaw(p, (0, *p[1:]), (0, *p[1:]))
