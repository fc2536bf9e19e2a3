"""The loss and the gradient of one batch."""

from contextlib import nullcontext

import numpy as np
import torch

from ..loss import weighted_cross_entropy


def draw(config, objective, data, rng):
    """x0 [B, L], and masked and weight [B, passes, L], for the whole batch.

    For the autoregressive twin the network is causal, reads the clean tokens
    one place to the left and scores all L in one pass.
    """
    x0 = data.draw(config.batch, rng)
    if config.objective == "autoregressive":
        masked = np.zeros((config.batch, 1, config.length), bool)
        return x0, masked, np.full(masked.shape, 1 / config.batch)
    masked, weight = objective.draw(
        config.batch, config.length, rng, coupling=config.coupling
    )
    return x0, masked, weight


def backward(net, vocab_size, x0, masked, weight, ranks):
    """Add the gradient of the batch's loss per token; returns the loss.

    The slices of all ranks are weighted by the whole batch, and the wrapped
    network averages gradients, hence the factor ``world``. The loss returned
    is this rank's share, a detached scalar in nats per token.
    """
    length = x0.shape[1]
    x0 = to_device(x0, ranks.device)
    total = torch.zeros((), device=ranks.device)
    for hidden, weights in zip(
        masked.swapaxes(0, 1), weight.swapaxes(0, 1), strict=True
    ):
        hidden = to_device(hidden, ranks.device)
        weights = to_device(weights.astype(np.float32), ranks.device)
        shown = torch.where(hidden, vocab_size, x0)
        with autocast(ranks.device):
            logits = net(shown)
        loss = weighted_cross_entropy(logits.float(), x0, weights) / length
        (loss * ranks.world).backward()
        total += loss.detach()
    return total


def to_device(array, device):
    """A numpy array as a tensor on a device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def autocast(device):
    """bf16 on a GPU, float32 on a CPU."""
    if device.type == "cuda":
        return torch.autocast("cuda", torch.bfloat16)
    return nullcontext()
