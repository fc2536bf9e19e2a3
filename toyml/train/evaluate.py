"""How good a network is: its bound, its gap to the source, its exact loss.

Everything is in nats. Per-token numbers are per-sequence ones over L.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from ..lattice import MaskLattice
from ..model import as_denoiser
from ..objectives import autoregressive, uniform_count

EXACT_LENGTH = 12
ROWS = 256


@dataclass(frozen=True)
class Estimate:
    """A mean over n sequences with its standard error."""

    mean: float
    error: float
    n: int

    @classmethod
    def of(cls, values):
        """The mean of values [n]; the error is infinite for n = 1."""
        n, error = len(values), float("inf")
        if n > 1 and np.isfinite(values).all():
            error = values.std(ddof=1) / n**0.5
        return cls(float(values.mean()), float(error), n)


def loss(net, sequences, rng, draws=1):
    """The network's loss on sequences [n, L], an ``Estimate`` per token.

    A causal network: its exact autoregressive loss. The others: the NELBO by
    ``uniform_count``, the mean of ``masked_losses``. The error is that
    between sequences, masks included.
    """
    if net.attention == "causal":
        return Estimate.of(_costs(net, sequences, sequences).mean(axis=1))
    return Estimate.of(masked_losses(net, sequences, rng, draws)[1].mean(0))


def masked_losses(net, sequences, rng, draws=1):
    """Mask counts and mean cross-entropies of the masks, both [draws, n].

    Each sequence gets ``draws`` mask sets by ``uniform_count``, whose uniform
    numbers lie 1 / draws apart: its counts are spread evenly. The mean over
    everything estimates the NELBO in nats per token.
    """
    n, length = sequences.shape
    allowed = np.ones(sequences.shape, bool)
    first = rng.random(n)
    counts, means = np.empty((draws, n), int), np.empty((draws, n))
    for j in range(draws):
        given = uniform_count().given((first + j / draws) % 1, allowed.sum(1))
        hidden, weight = given.draw(allowed, rng)
        shown = np.where(hidden, net.vocab_size, sequences)
        costs = _costs(net, shown, sequences)
        counts[j] = hidden.sum(axis=1)
        means[j] = (costs * weight).sum(axis=1) / length
    return counts, means


@torch.no_grad()
def _costs(net, tokens, sequences):
    """Cross-entropy of every position, float64 [n, L], in chunks of rows."""
    device = next(net.parameters()).device
    parts = []
    for start in range(0, len(tokens), ROWS):
        part = slice(start, start + ROWS)
        logits = net(torch.from_numpy(tokens[part]).to(device)).float()
        x0 = torch.from_numpy(sequences[part]).to(device)
        costs = cross_entropy(logits.transpose(1, 2), x0, reduction="none")
        parts.append(costs.cpu().double().numpy())
    return np.concatenate(parts)


def gap(denoiser, source, sequences, rng, causal=False):
    """Mean KL(source's conditional || denoiser's), an ``Estimate`` per token.

    Both answer the same patterns: one drawn by ``uniform_count`` for each
    sequence, or, causal, all L prefixes. The source's own bound is the
    entropy, so this is the denoiser's bound minus the entropy in expectation,
    without the noise of either.
    """
    n, length = sequences.shape
    law = autoregressive() if causal else uniform_count()
    coupling = "independent" if causal else "stratified"
    masked, weight = law.draw(n, length, rng, coupling=coupling)
    values = np.zeros(n)
    for hidden, weights in zip(
        masked.swapaxes(0, 1), weight.swapaxes(0, 1), strict=True
    ):
        tokens = np.where(hidden, source.vocab_size, sequences)
        costs = divergence(source(tokens), denoiser(tokens))
        costs = np.where(weights > 0, costs, 0)  # no weight, no infinity
        values += n * (weights * costs).sum(axis=1)
    return Estimate.of(values / length)


def divergence(p, q):
    """KL(p || q) over the last axis; infinite where q misses a token of p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0)
    return terms.sum(axis=-1)


def baselines(data, sequences, seed, untrained):
    """Gaps per token of the uniform, unigram and untrained model, by name.

    The unigram model gives the frequencies of the tokens of a sample of
    20,000 training sequences, whatever is visible.
    """
    v = data.vocab_size
    sample = data.draw(20_000, np.random.default_rng(seed))
    counts = np.bincount(sample.ravel(), minlength=v)
    models = {
        "uniform": constant(np.full(v, 1 / v)),
        "unigram": constant(counts / counts.sum()),
        "untrained": as_denoiser(untrained),
    }
    causal = untrained.attention == "causal"
    out = {}
    for name, model in models.items():
        rng = np.random.default_rng(seed)
        out[name] = gap(model, data.source, sequences, rng, causal).mean
    return out


def constant(row):
    """A denoiser that answers one distribution [V] everywhere."""

    def denoiser(tokens, t=None):
        return np.broadcast_to(row, (*tokens.shape, len(row)))

    return denoiser


def exact(denoiser, sequences, vocab_size, source=None):
    """Exact NELBO and generator NLL per token, and KL by mask count.

    sequences: [n, L], L <= 12, each asked about all of its 2^L patterns.
    Returns a dict: nelbo and nll per token, means over the sequences; with a
    source also nll_source, and kl_by_count [L], the mean KL per masked token
    with k = 1..L masks, exact for these sequences.
    """
    n, length = sequences.shape
    if length > EXACT_LENGTH:
        raise ValueError(
            f"sequences have length {length}: expected at most "
            f"{EXACT_LENGTH}, or 2^L patterns are too many"
        )
    lattices = [
        MaskLattice.from_denoiser(denoiser, x0, vocab_size)
        for x0 in sequences
    ]
    out = {
        "sequences": n,
        "nelbo": float(np.mean([one.nelbo() for one in lattices]) / length),
        "nll": float(
            np.mean([one.generator_nll() for one in lattices]) / length
        ),
    }
    if source is not None:
        out["nll_source"] = float(-source.log_prob(sequences).mean() / length)
        out["kl_by_count"] = kl_by_count(denoiser, source, sequences).tolist()
    return out


def kl_by_count(denoiser, source, sequences):
    """Mean KL per masked token with k = 1..L masks, over all patterns, [L]."""
    length = sequences.shape[1]
    bits = np.arange(1, 1 << length)[:, None] >> np.arange(length)
    hidden = (bits & 1).astype(bool)
    size = hidden.sum(axis=1)
    total = np.zeros(length + 1)
    for x0 in sequences:
        tokens = np.where(hidden, source.vocab_size, x0)
        costs = divergence(source(tokens), denoiser(tokens))
        rows = np.where(hidden, costs, 0).sum(axis=1) / size
        total += np.bincount(size, rows, length + 1)
    count = np.bincount(size, minlength=length + 1)
    return total[1:] / count[1:] / len(sequences)
