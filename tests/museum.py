"""Right and wrong training losses, one small function each, own code.

Each has the signature of the audit, loss(model, x0, mask_id). ``RIGHT`` and
``WRONG`` hold what a report must say about them; the truth comes from the
derivations in the book, never from the audit. The laws described for public
code bases are written from the description, not copied.
"""

import math
import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Case:
    """kind and k (nats per sequence) of the verdict; the words that some
    finding, the verdict or some note must hold; effective weights e(1..4)
    at L = 4, or None."""

    loss: object
    kind: str
    k: float | None = None
    findings: tuple = ()
    verdict: str = ""
    notes: tuple = ()
    effective: tuple | None = None

    @property
    def name(self):
        return self.loss.__name__


def _hide(x0, masked, mask_id):
    return torch.where(masked, mask_id, x0)


def _ce(logits, x0):
    """[B, L] in nats."""
    logp = torch.log_softmax(logits, -1)
    return -logp.gather(-1, x0[..., None])[..., 0]


def _bernoulli(x0, t):
    return torch.rand(x0.shape) < t


def _choose(x0, count):
    """Masks of the given sizes, uniform sets."""
    rank = torch.rand(x0.shape).argsort(1).argsort(1)
    return rank < count


def _t(x0):
    return 1 - torch.rand(len(x0), 1)


# Right losses.


def inverse_t_sequence(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def inverse_t_token(model, x0, mask_id):
    t = _t(x0)
    masked = torch.bernoulli(t.expand(x0.shape)).bool()
    logits = model(input_ids=_hide(x0, masked, mask_id), timesteps=t).logits
    logits[..., mask_id] = -math.inf
    ce = F.cross_entropy(
        logits.reshape(-1, mask_id + 1), x0.reshape(-1), reduction="none"
    ).reshape(x0.shape)
    return (torch.where(masked, ce, 0) / t).mean()


def inverse_t_flat(model, x0, mask_id):
    """The masked rows are picked by a boolean index; t is never passed."""
    model.train()
    t = _t(x0).expand(x0.shape)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id))[..., :mask_id]
    ce = F.cross_entropy(logits[masked], x0[masked], reduction="none")
    return (ce / t[masked]).sum() / x0.numel()


def inverse_t_numpy(model, x0, mask_id):
    """All random numbers come from numpy's global state."""
    t = torch.from_numpy(1 - np.random.rand(len(x0), 1)).float()
    masked = torch.from_numpy(np.random.rand(*x0.shape)).float() < t
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def uniform_count(model, x0, mask_id):
    batch, length = x0.shape
    count = torch.randint(1, length + 1, (batch, 1))
    masked = _choose(x0, count)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked * length / count).sum(1).mean()


def uniform_count_python(model, x0, mask_id):
    """Counts and sets come from the module ``random``; one count a batch."""
    length = x0.shape[1]
    count = random.randint(1, length)
    masked = torch.zeros(x0.shape, dtype=torch.bool)
    for row in masked:
        row[random.sample(range(length), count)] = True
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum(1).mean() / count


def per_example_mean(model, x0, mask_id):
    """Time and mask are redrawn together until something is masked."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    while not masked.any(1).all():
        empty = ~masked.any(1)
        masked[empty] = _bernoulli(x0[empty], _t(x0[empty]))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked).sum(1) / masked.sum(1)).mean()


def per_example_mean_zero(model, x0, mask_id):
    """An example without a mask counts as zero: a constant factor."""
    masked = _bernoulli(x0, _t(x0))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked).sum(1) / masked.sum(1).clamp(min=1)).mean()


def forced_target(model, x0, mask_id):
    batch, length = x0.shape
    target = torch.randint(length, (batch,))
    masked = _bernoulli(x0, _t(x0))
    masked[torch.arange(batch), target] = True
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return length * ce[torch.arange(batch), target].mean()


def cosine_schedule(model, x0, mask_id):
    """Survival cos(pi t / 2): the weight is -alpha' / (1 - alpha)."""
    t = _t(x0).double()
    rate = 2 * torch.sin(math.pi * t / 4) ** 2
    weight = math.pi / 2 * torch.sin(math.pi * t / 2) / rate
    masked = torch.rand(x0.shape) < rate
    ce = _ce(model(_hide(x0, masked, mask_id), t[:, 0]), x0)
    return (ce * masked * weight).sum(1).mean()


def log_probabilities(model, x0, mask_id):
    """The network returns log-probabilities; t is stratified."""
    batch = len(x0)
    t = (torch.rand(batch) + torch.arange(batch)) / batch
    t = (1 - t)[:, None]
    masked = _bernoulli(x0, t)
    logp = model(_hide(x0, masked, mask_id), t.squeeze(1))
    ce = -logp.gather(-1, x0.unsqueeze(-1)).squeeze(-1)
    return (ce * masked / t).sum(1).mean()


def one_time(model, x0, mask_id):
    """One t for the whole batch."""
    t = 1 - torch.rand(1)
    masked = torch.rand(x0.shape) < t
    logits, _ = model(_hide(x0, masked, mask_id), t.expand(len(x0)))
    ce = _ce(logits, x0)
    return (ce * masked).sum(1).mean() / t.squeeze()


def antithetic(model, x0, mask_id):
    half = torch.rand(len(x0) // 2, 1)
    t = torch.cat([half, 1 - half]).clamp(min=1e-7)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def random_order(model, x0, mask_id):
    """All L steps of one random order of reveal for each example."""
    rank = torch.rand(x0.shape).argsort(1).argsort(1)
    loss = 0
    for step in range(x0.shape[1]):
        ce = _ce(model(_hide(x0, rank >= step, mask_id)), x0)
        loss = loss + (ce * (rank == step)).sum(1).mean()
    return loss


def autoregressive(model, x0, mask_id):
    """The chain rule from left to right, on masked suffixes."""
    place = torch.arange(x0.shape[1])
    loss = 0
    for i in range(len(place)):
        hidden = (place >= i).expand(x0.shape)
        loss = loss + _ce(model(_hide(x0, hidden, mask_id)), x0)[:, i].mean()
    return loss


def clamped_time(model, x0, mask_id):
    """t clamped in the mask and in the weight."""
    t = _t(x0).clamp(min=0.05)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def block_diffusion(model, x0, mask_id):
    """Blocks of two: clean before, masks after, counts inside a block."""
    batch, length = x0.shape
    loss = 0
    for start in range(0, length, 2):
        count = torch.randint(1, 3, (batch, 1))
        inside = _choose(x0[:, :2], count)
        masked = torch.arange(length).expand(batch, length) >= start
        masked = masked.clone()
        masked[:, start : start + 2] = inside
        ce = _ce(model(_hide(x0, masked, mask_id)), x0)
        scored = ce[:, start : start + 2] * inside * 2 / count
        loss = loss + scored.sum(1).mean()
    return loss


def half_precision(model, x0, mask_id):
    """Logits in bfloat16; the corruption runs without gradients."""
    with torch.no_grad():
        t = _t(x0)
        masked = _bernoulli(x0, t)
        noisy = _hide(x0, masked, mask_id)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(noisy).to(torch.bfloat16)
    ce = F.cross_entropy(logits.float().flatten(0, 1), x0.flatten(),
                         reduction="none").view_as(x0)
    return (ce * masked / t).sum() / len(x0)


def editable_prompt(model, x0, mask_id, editable):
    """Only the editable positions are masked, scored and counted."""
    t = _t(x0)
    masked = _bernoulli(x0, t) & editable
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked / t).sum(1) / editable.sum(1)).mean()


def padded_batch(model, x0, mask_id, pad_id):
    real = x0 != pad_id
    t = _t(x0)
    masked = _bernoulli(x0, t) & real
    noisy = _hide(x0, masked, mask_id)
    ce = _ce(model(noisy, attention_mask=real.long()).logits, x0)
    return (ce * masked / t).sum(1).mean()


# Wrong or different losses: first the numbered items, then the table.


def mask_in_softmax(model, x0, mask_id):
    """Item 1: the vocabulary of the softmax includes the mask."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id)).view(-1, mask_id + 1)
    ce = F.cross_entropy(logits, x0.view(-1), reduction="none").view_as(x0)
    return (ce * masked / t).sum(1).mean()


def reversed_time(model, x0, mask_id):
    """Item 2: the model is told 1 - t."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id), 1 - t.flatten()), x0)
    return (ce * masked / t).sum(1).mean()


def realised_count_pooled(model, x0, mask_id):
    """Item 6: the realised count of the whole batch as denominator."""
    masked = _bernoulli(x0, _t(x0))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum() / masked.sum().clamp(min=1)


def padding_scored(model, x0, mask_id, pad_id):
    """Item 7: padding is masked and scored like text."""
    real = (x0 != pad_id).long()
    t = _t(x0)
    masked = _bernoulli(x0, t)
    noisy = _hide(x0, masked, mask_id)
    ce = _ce(model(noisy, attention_mask=real), x0)
    return (ce * masked / t).sum(1).mean()


def padding_counted(model, x0, mask_id, pad_id):
    """Item 7: padding is not scored, yet it is in the denominator."""
    real = x0 != pad_id
    t = _t(x0)
    masked = _bernoulli(x0, t) & real
    noisy = _hide(x0, masked, mask_id)
    ce = _ce(model(noisy, attention_mask=real.long()), x0)
    return (ce * masked / t).mean()


def prompt_scored(model, x0, mask_id, editable):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def prompt_counted(model, x0, mask_id, editable):
    t = _t(x0)
    masked = _bernoulli(x0, t) & editable
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).mean()


def no_attention_mask(model, x0, mask_id, pad_id):
    """Item 8: the model never learns where the padding is."""
    t = _t(x0)
    masked = _bernoulli(x0, t) & (x0 != pad_id)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def nan_without_masks(model, x0, mask_id):
    """Item 11: 0 / 0 for an example without a mask."""
    masked = _bernoulli(x0, _t(x0))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked).sum(1) / masked.sum(1)).mean()


def local_normaliser(model, x0, mask_id):
    """Item 12: 1/t weights over the masks of this batch alone."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum() / masked.sum().clamp(min=1)


def wrong_normaliser(model, x0, mask_id):
    """Item 13: 1/t and once more a sum over the batch, without a mean."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return 3.7 * (ce * masked / t).sum(1).mean()


def half_masked(model, x0, mask_id):
    """Item 14: always one half of the tokens."""
    masked = _choose(x0, x0.shape[1] // 2)
    return F.cross_entropy(
        model(_hide(x0, masked, mask_id))[masked], x0[masked]
    )


def mdlm(model, x0, mask_id):
    """t on [1e-3, 1], stratified; masks at (1 - eps) t, weight 1/t."""
    eps, batch = 1e-3, len(x0)
    t = torch.rand(batch) / batch + torch.arange(batch) / batch
    t = (1 - eps) * t + eps
    sigma = -torch.log1p(-(1 - eps) * t)
    masked = torch.rand(x0.shape) < (1 - torch.exp(-sigma))[:, None]
    ce = _ce(model(_hide(x0, masked, mask_id), sigma), x0)
    return (ce * masked / t[:, None]).sum() / x0.numel()


def llada(model, x0, mask_id):
    """p = (1 - eps) u + eps; the sum of CE / p over batch times length."""
    batch, length = x0.shape
    p = (1 - 1e-3) * torch.rand(batch) + 1e-3
    p = p[:, None].repeat(1, length)
    masked = torch.rand(batch, length) < p
    logits = model(input_ids=_hide(x0, masked, mask_id)).logits
    ce = F.cross_entropy(logits[masked], x0[masked], reduction="none")
    return (ce / p[masked]).sum() / (batch * length)


def truncated_multiplied(model, x0, mask_id):
    """t on [0.1, 1], and the mean multiplied by 0.9."""
    t = 0.1 + 0.9 * torch.rand(len(x0), 1)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return 0.9 * (ce * masked / t).sum(1).mean()


def md4(model, x0, mask_id):
    """Survival squeezed into [eps, 1 - eps], plus a constant term."""
    eps, t = 0.01, torch.rand(len(x0), 1)
    survival = (1 - 2 * eps) * (1 - t) + eps
    masked = torch.rand(x0.shape) < 1 - survival
    ce = _ce(model(_hide(x0, masked, mask_id), t.flatten()), x0)
    weight = (1 - 2 * eps) / (1 - survival)
    constant = eps * x0.shape[1] * math.log(mask_id)
    return (ce * masked * weight).sum(1).mean() + constant


def radd_count(model, x0, mask_id):
    """A count k on 1..L, weight L / k, mean over the batch."""
    batch, length = x0.shape
    k = torch.randint(1, length + 1, (batch, 1))
    masked = _choose(x0, k)
    logp = torch.log_softmax(model(_hide(x0, masked, mask_id)), -1)
    ce = F.nll_loss(logp.transpose(1, 2), x0, reduction="none")
    return (length / k * ce * masked).sum(1).mean()


def tiny_diffusion(model, x0, mask_id):
    """A grid of 128 times, no 1/t, the pooled mean, mask in the softmax."""
    batch = len(x0)
    step = torch.randint(0, 128, (batch,))
    masked = torch.rand(x0.shape) < ((step + 1) / 128)[:, None]
    logits = model(_hide(x0, masked, mask_id), step)
    ce = F.cross_entropy(
        logits.view(-1, mask_id + 1), x0.view(-1), reduction="none"
    )
    hidden = masked.view(-1).float()
    return (ce * hidden).sum() / hidden.sum()


def dllm(model, x0, mask_id):
    """Linear schedule with 1 - alpha + 1e-6, mean over the tokens."""
    t = 1e-3 + (1 - 1e-3) * torch.rand(len(x0))
    masked = torch.rand(x0.shape) < t[:, None]
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    weight = 1 / (t[:, None] + 1e-6)
    return (ce * masked * weight).sum() / x0.numel()


def maskgit(model, x0, mask_id):
    """ceil(L cos(pi r / 2)) tokens, the mean over the masks."""
    batch, length = x0.shape
    ratio = torch.cos(math.pi / 2 * torch.rand(batch, 1))
    masked = _choose(x0, (ratio * length).ceil())
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum(1).mean()


def maskgit_bernoulli(model, x0, mask_id):
    ratio = torch.cos(math.pi / 2 * torch.rand(len(x0), 1))
    masked = _bernoulli(x0, ratio)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum(1).mean()


def bert(model, x0, mask_id):
    """Rate 0.15, 80% masks, 10% random, 10% kept; the pooled mean."""
    chosen = torch.rand(x0.shape) < 0.15
    fate = torch.rand(x0.shape)
    noisy = torch.where(chosen & (fate < 0.8), mask_id, x0)
    other = torch.randint(mask_id, x0.shape)
    noisy = torch.where(chosen & (fate > 0.9), other, noisy)
    labels = torch.where(chosen, x0, -100)
    total = F.cross_entropy(
        model(noisy).flatten(0, 1), labels.flatten(), reduction="sum"
    )
    return total / chosen.sum().clamp(min=1)


def unweighted(model, x0, mask_id):
    masked = _bernoulli(x0, _t(x0))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum(1).mean()


def fixed_rate(model, x0, mask_id):
    masked = torch.rand(x0.shape) < 0.15
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked).sum(1).mean()


def clipped_weight(model, x0, mask_id):
    """Only the denominator is cut off."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t.clamp(min=0.1)).sum(1).mean()


def mask_redrawn(model, x0, mask_id):
    """t is kept and only the mask redrawn, so small t are too frequent."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    while not masked.any(1).all():
        empty = ~masked.any(1)
        masked[empty] = _bernoulli(x0[empty], t[empty])
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked).sum(1) / masked.sum(1)).mean()


def visible_scored(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce / t).sum(1).mean()


def unforced_target(model, x0, mask_id):
    """A forced target that nobody masked."""
    batch, length = x0.shape
    target = torch.randint(length, (batch,))
    masked = _bernoulli(x0, _t(x0))
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return length * ce[torch.arange(batch), target].mean()


def shifted_labels(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id))
    ce = _ce(logits[:, :-1], x0[:, 1:])
    return (ce * masked[:, 1:] / t).sum(1).mean()


def first_kept(model, x0, mask_id):
    """The first token is never masked."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    masked[:, 0] = False
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


def focal(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((1 - (-ce).exp()) ** 2 * ce * masked / t).sum(1).mean()


def smoothed(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = F.cross_entropy(
        model(_hide(x0, masked, mask_id)).transpose(1, 2), x0,
        reduction="none", label_smoothing=0.1,
    )
    return (ce * masked / t).sum(1).mean()


def next_token(model, x0, mask_id):
    logits = model(x0[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), x0[:, 1:].flatten())


def raises(model, x0, mask_id):
    raise RuntimeError("no such\ncolumn")


def detached(model, x0, mask_id):
    return inverse_t_sequence(model, x0, mask_id).item()
