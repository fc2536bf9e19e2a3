"""How the weights move: optimizers, learning rates, the moving average."""

from contextlib import contextmanager

import torch


class Optimizer:
    """AdamW, or Muon for the matrices of the blocks and AdamW for the rest.

    The rate of every group rises over ``warmup`` steps and then falls on a
    straight line to zero. Weight decay falls on matrices alone. ``ema`` > 0
    keeps a moving average of the weights, in ``average``; its horizon grows
    with the step, so that early weights are soon forgotten.
    """

    def __init__(self, net, config):
        self.config = config
        self.weights = list(net.parameters())
        self.average = None
        if config.ema:
            self.average = [w.detach().clone() for w in self.weights]
        inside, vectors, rest = [], [], []
        for name, weight in net.named_parameters():
            matrix = weight.ndim == 2
            inner = matrix and name.startswith("blocks.")
            (inside if inner else rest if matrix else vectors).append(weight)
        decay = config.weight_decay
        groups = [
            {"params": rest, "weight_decay": decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.parts = []
        if config.optimizer == "muon":
            muon = torch.optim.Muon(
                inside,
                lr=config.matrix_lr,
                weight_decay=decay,
                adjust_lr_fn="match_rms_adamw",
            )
            self.parts.append(muon)
        else:
            groups.append({"params": inside, "weight_decay": decay})
        self.parts.append(
            torch.optim.AdamW(groups, lr=config.lr, betas=(0.9, 0.99))
        )
        self.rates = [
            [group["lr"] for group in part.param_groups] for part in self.parts
        ]

    def step(self, number):
        """Move by the gradients of step ``number``; returns their norm.

        Gradients above the norm ``clip`` are scaled down to it; the norm
        before that is what is returned and goes into ``metrics.jsonl``.
        """
        limit = self.config.clip or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.weights, limit)
        factor = self.rate_factor(number)
        for part, rates in zip(self.parts, self.rates, strict=True):
            for group, rate in zip(part.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            part.step()
            part.zero_grad(set_to_none=True)
        if self.average is not None:
            keep = min(self.config.ema, (1 + number) / (10 + number))
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.weights, 1 - keep)
        return norm

    def rate_factor(self, number):
        """The share of the full rate at a step, in (0, 1]."""
        warmup, steps = self.config.warmup, self.config.steps
        if number < warmup:
            return (number + 1) / warmup
        return (steps - number) / max(steps - warmup, 1)

    def state(self):
        """What a checkpoint keeps: the state of each part, and the average."""
        average = self.average
        return {
            "parts": [part.state_dict() for part in self.parts],
            "average": None if average is None else list(average),
        }

    def load(self, state):
        """Go on from a state that ``state`` returned."""
        for part, saved in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        if self.average is not None:
            for mine, saved in zip(
                self.average, state["average"], strict=True
            ):
                mine.copy_(saved)

    def swap_average(self):
        """Exchange the weights and their average, to evaluate the latter."""
        if self.average is None:
            return
        with torch.no_grad():
            for weight, mean in zip(self.weights, self.average, strict=True):
                kept = weight.clone()
                weight.copy_(mean)
                mean.copy_(kept)

    @contextmanager
    def averaged(self):
        """Inside, the network has the averaged weights."""
        self.swap_average()
        try:
            yield
        finally:
            self.swap_average()
