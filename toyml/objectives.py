"""Training objectives, each a law for drawing (masked set, weights).

An objective's loss on one sequence is the sum over positions of weight times
cross-entropy. ``draw`` samples the law for a batch; ``law`` enumerates it.
All laws here treat positions alike: given the mask count k the masked set is
uniform among the sets of size k, and every masked position has one weight.

``draw`` returns masked (bool) and weight (float64), both [B, passes, L] with
one pass. The weights carry the whole normaliser, 1 / B included, so that the
loss of the batch is ``(weight * ce).sum()``, the mean over sequences of the
loss in nats per sequence, and any split of the batch adds up to it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np


@dataclass(frozen=True)
class CountLaw:
    """The law of an objective by mask count k = 0..L.

    probability[k] = P(k masks); weight[k] = E[w; k masks] and
    weight_squared[k] = E[w^2; k masks] for the weight w of one masked
    position (the event's probability is included). An entry may be inf.
    """

    probability: tuple
    weight: tuple
    weight_squared: tuple

    @property
    def effective_weight(self):
        """e(k) = k E[w; k masks]: expected total weight on count k.

        It is 1 for k = 1..L if and only if the mean loss is the NELBO on
        every lattice; then the mean is sum over k of e(k) by_count[k] / k.
        """
        return tuple(k * w for k, w in enumerate(self.weight))


@dataclass(frozen=True)
class Objective:
    """A law of (masked set, weights). Build one by the functions below.

    law(length) returns the ``CountLaw``. _draw(sizes, rng) returns, for the
    numbers of editable positions [B], a masking rule and the weights [B]:
    either ("rate", rates) or ("count", counts).
    """

    name: str
    law: Callable
    _draw: Callable

    def draw(self, batch, length, rng, editable=None):
        """Draw masked and weight, both [batch, 1, length].

        editable: bool [length] or [batch, length]; only those positions can
        be masked, and L is their number. A row without any raises ValueError.
        """
        allowed = np.ones((batch, length), bool)
        if editable is not None:
            allowed &= np.asarray(editable, bool)
        sizes = allowed.sum(axis=1)
        if batch < 1 or not sizes.all():
            raise ValueError(
                f"batch = {batch}, editable positions by row "
                f"{sizes.tolist()}: expected at least one of each"
            )
        noise = rng.random((batch, length))
        rule, amount, weight = self._draw(sizes, rng)
        if rule == "rate":
            masked = allowed & (noise < amount[:, None])
        else:
            noise[~allowed] = 2
            masked = noise.argsort(axis=1).argsort(axis=1) < amount[:, None]
        weights = np.where(masked, weight[:, None] / batch, 0.0)
        return masked[:, None], weights[:, None]


def inverse_t():
    """t uniform on (0, 1], each token masked at rate t, weight 1/t.

    Mean: the NELBO. The variance is infinite: E[1/t^2; k = 1] diverges.
    Source: LLaDA (Nie et al. 2025) eq. 3; MDLM eq. 10, linear schedule.
    """

    def law(length):
        ks = range(1, length + 1)
        return CountLaw(
            probability=_uniform_rate(length),
            weight=(0, *(Fraction(1, k) for k in ks)),
            weight_squared=(
                0,
                math.inf,
                *(Fraction(length, k * (k - 1)) for k in ks if k > 1),
            ),
        )

    def draw(sizes, rng):
        t = 1 - rng.random(len(sizes))
        return "rate", t, 1 / t

    return Objective("inverse_t", law, draw)


def unweighted():
    """t uniform on (0, 1], each token masked at rate t, weight 1."""

    def law(length):
        p = _uniform_rate(length)
        return CountLaw(p, (0, *p[1:]), (0, *p[1:]))

    def draw(sizes, rng):
        return "rate", 1 - rng.random(len(sizes)), np.ones(len(sizes))

    return Objective("unweighted", law, draw)


def uniform_count():
    """k uniform on 1..L, a uniform set of k positions, weight L/k.

    Mean: the NELBO. Source: LLaDA eq. 6 and 14; ARDM section 3.
    """

    def law(length):
        ks = range(1, length + 1)
        return CountLaw(
            probability=(0, *(Fraction(1, length) for _ in ks)),
            weight=(0, *(Fraction(1, k) for k in ks)),
            weight_squared=(0, *(Fraction(length, k * k) for k in ks)),
        )

    def draw(sizes, rng):
        k = 1 + rng.integers(sizes)
        return "count", k, sizes / k

    return Objective("uniform_count", law, draw)


def bert(rate=0.15):
    """Each token selected at one fixed rate, weight 1 on the selected.

    On the lattice every selected token is shown as a mask. BERT itself shows
    a mask for 80% of them only: see ``bert_inputs``.
    Source: BERT (Devlin et al. 2019) section 3.1.
    """
    if not 0 < rate <= 1:
        raise ValueError(f"rate = {rate}: expected a number in (0, 1]")

    def law(length):
        p = _binomial(length, np.array([rate]))[0]
        return CountLaw(tuple(p), (0, *p[1:]), (0, *p[1:]))

    def draw(sizes, rng):
        return "rate", np.full(len(sizes), rate), np.ones(len(sizes))

    return Objective("bert", law, draw)


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

    def law(length):
        if bernoulli:
            nodes, masses = np.polynomial.legendre.leggauss(length + 64)
            ratio = np.cos(np.pi * (nodes + 1) / 4)
            p = masses / 2 @ _binomial(length, ratio)
        else:
            edges = np.arccos(np.arange(length + 1) / length)
            p = np.concatenate([[0.0], -np.diff(edges) * 2 / np.pi])
        return CountLaw(tuple(p), (0, *p[1:]), (0, *p[1:]))

    def draw(sizes, rng):
        ratio = np.cos(np.pi / 2 * rng.random(len(sizes)))
        one = np.ones(len(sizes))
        if bernoulli:
            return "rate", ratio, one
        return "count", np.ceil(ratio * sizes).astype(int), one

    name = "maskgit_bernoulli" if bernoulli else "maskgit"
    return Objective(name, law, draw)


def _uniform_rate(length):
    """P(k masks) when the rate is uniform: 1 / (L + 1) for k = 0..L."""
    return (Fraction(1, length + 1),) * (length + 1)


def _binomial(length, rates):
    """P(k masks) at each rate, [n, L + 1]."""
    k = np.arange(length + 1)
    row = np.array([math.comb(length, j) for j in k], dtype=float)
    return row * rates[:, None] ** k * (1 - rates[:, None]) ** (length - k)
