"""The training loss of a drawn objective, in torch."""

import torch
from torch.nn import functional


def weighted_cross_entropy(logits, x0, weight):
    """Sum over scored positions of weight times cross-entropy, a scalar.

    logits: [B, L, V] or wider (extra columns, such as a mask symbol at -inf,
    are never targets). x0: clean tokens, int64 [B, L]. weight: [B, L], what
    ``Objective.draw`` returns for one pass; its numbers carry the whole
    normaliser, so the losses of the parts of a split batch add up to that of
    the batch. Only positions with weight > 0 enter: an infinite logit
    elsewhere never meets a zero, and a batch without any gives 0 with a zero
    gradient. Units: nats per sequence. A weight of another shape than x0, a
    negative or a NaN one raises ValueError.
    """
    weight = torch.as_tensor(weight, device=logits.device)
    if not weight.shape == x0.shape == logits.shape[:-1]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)}; expected that of x0, "
            f"{tuple(x0.shape)}, for logits {tuple(logits.shape)}"
        )
    if not bool((weight >= 0).all()):
        raise ValueError(
            f"weight has minimum {weight.min().item()}; expected nonnegative "
            "numbers"
        )
    weight = weight.reshape(-1)
    scored = weight.nonzero().squeeze(1)
    costs = functional.cross_entropy(
        logits.flatten(0, -2).index_select(0, scored),
        x0.reshape(-1).index_select(0, scored),
        reduction="none",
    )
    weight = weight.index_select(0, scored)
    return (weight.to(costs.dtype) * costs).sum()
