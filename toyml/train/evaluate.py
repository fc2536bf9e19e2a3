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
        n = len(values)
        error = values.std(ddof=1) / n**0.5 if n > 1 else float("inf")
        return cls(float(values.mean()), float(error), n)


@torch.no_grad()
def loss(net, sequences, rng, draws=1):
    """The network's loss on sequences [n, L], an ``Estimate`` per token.

    A causal network: its exact autoregressive loss. The others: the NELBO by
    ``uniform_count``, ``draws`` masks for each sequence, the counts spread
    evenly. The error is that between sequences, masks included.
    """
    device = next(net.parameters()).device
    n, length = sequences.shape
    values = np.zeros(n)
    causal = net.attention == "causal"
    for _ in range(1 if causal else draws):
        hidden = np.zeros(sequences.shape, bool)
        weight = np.ones(sequences.shape)
        if not causal:
            hidden, weight = (
                array[:, 0]
                for array in uniform_count().draw(
                    n, length, rng, coupling="stratified"
                )
            )
            weight = weight * n / draws
        for start in range(0, n, ROWS):
            part = slice(start, start + ROWS)
            x0 = torch.from_numpy(sequences[part]).to(device)
            shown = x0.masked_fill(
                torch.from_numpy(hidden[part]).to(device), net.vocab_size
            )
            costs = cross_entropy(
                net(shown).float().transpose(1, 2), x0, reduction="none"
            )
            rows = costs.cpu().double().numpy() * weight[part]
            values[part] += rows.sum(axis=1)
    return Estimate.of(values / length)


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
        values += n * np.where(weights > 0, weights * costs, 0).sum(axis=1)
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
