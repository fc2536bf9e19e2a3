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
from torch.nn.functional import cross_entropy, nll_loss, one_hot


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
    ce = cross_entropy(
        logits.reshape(-1, mask_id + 1), x0.reshape(-1), reduction="none"
    ).reshape(x0.shape)
    return (torch.where(masked, ce, 0) / t).mean()


def inverse_t_flat(model, x0, mask_id):
    """The masked rows are picked by a boolean index; t is never passed."""
    model.train()
    t = _t(x0).expand(x0.shape)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id))[..., :mask_id]
    ce = cross_entropy(logits[masked], x0[masked], reduction="none")
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
    ce = cross_entropy(logits.float().flatten(0, 1), x0.flatten(),
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


def substituted_head(model, x0, mask_id):
    """Mask and visible positions are fixed in the logits before the loss."""
    t = 1 - torch.rand(len(x0))
    noisy = _hide(x0, _bernoulli(x0, t[:, None]), mask_id)
    logits = model(noisy, t)
    logits[:, :, mask_id] += -1e6
    logits = logits - torch.logsumexp(logits, -1, keepdim=True)
    seen = noisy != mask_id
    logits[seen] = -1e6
    logits[seen, noisy[seen]] = 0
    logp = logits.gather(-1, x0[:, :, None])[..., 0]
    return (-logp / t[:, None]).sum() / x0.numel()


def micro_batches(model, x0, mask_id):
    """The batch goes through the model in two parts."""
    parts = x0.chunk(2)
    return sum(
        inverse_t_sequence(model, part, mask_id) for part in parts
    ) / len(parts)


def empty_dropped(model, x0, mask_id):
    """Examples without a mask are not fed; the denominator keeps them."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    keep = masked.any(1)
    x, masked, t = x0[keep], masked[keep], t[keep]
    if not len(x):
        return torch.zeros(())
    ce = _ce(model(_hide(x, masked, mask_id)), x)
    return (ce * masked / t).sum() / len(x0)


def begin_token(model, x0, mask_id):
    """A begin token is put in front and its row of logits dropped."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    fed = torch.cat([x0[:, :1] * 0, _hide(x0, masked, mask_id)], 1)
    ce = _ce(model(fed)[:, 1:], x0)
    return (ce * masked / t).sum(1).mean()


def one_hot_input(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    fed = one_hot(_hide(x0, masked, mask_id), mask_id + 1).float()
    p = model(fed)[..., :mask_id].softmax(-1)
    ce = -(one_hot(x0, mask_id) * torch.log(p + 1e-10)).sum(-1)
    return (ce * masked / t).sum(1).mean()


def peeks_first(model, x0, mask_id):
    """A call without gradient on the clean input comes first."""
    with torch.no_grad():
        model.eval()(x0).softmax(-1)
    return inverse_t_sequence(model, x0, mask_id)


def sampled_time(model, x0, mask_id):
    """Rate (1 - u)^2 and the importance weight that belongs to it."""
    t = _t(x0) ** 2
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked * 2 / t.sqrt()).sum(1).mean()


def eight_steps(model, x0, mask_id):
    """A grid of eight times: the bound of a sampler with eight steps."""
    step = torch.randint(1, 9, (len(x0), 1))
    masked = _bernoulli(x0, step / 8)
    ce = _ce(model(_hide(x0, masked, mask_id), step.flatten()), x0)
    return (ce * masked * 8 / step).sum(1).mean()


def batch_sum(model, x0, mask_id):
    """Summed over the batch, not averaged."""
    return len(x0) * inverse_t_sequence(model, x0, mask_id)


def block_copy(model, x0, mask_id):
    """Blocks of two in one pass, beside a clean copy of x0."""
    batch, length = x0.shape
    t = 1 - torch.rand(batch, length // 2)
    t = t.repeat_interleave(2, 1)
    masked = torch.rand(x0.shape) < t
    fed = torch.cat([_hide(x0, masked, mask_id), x0], 1)
    ce = _ce(model(fed)[:, :length], x0)
    return (ce * masked / t).sum(1).mean()


# Wrong or different losses: first the numbered items, then the table.


def mask_in_softmax(model, x0, mask_id):
    """Item 1: the vocabulary of the softmax includes the mask."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id)).view(-1, mask_id + 1)
    ce = cross_entropy(logits, x0.view(-1), reduction="none").view_as(x0)
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
    place = torch.arange(x0.shape[1]).expand(x0.shape)
    noisy = _hide(x0, masked, mask_id)
    ce = _ce(model(noisy, t.flatten(), position_ids=place), x0)
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


def local_numpy(model, x0, mask_id):
    """The same, with random numbers from numpy."""
    t = torch.from_numpy(1 - np.random.rand(len(x0), 1)).float()
    masked = torch.from_numpy(np.random.rand(*x0.shape)).float() < t
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
    return cross_entropy(
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
    ce = cross_entropy(logits[masked], x0[masked], reduction="none")
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
    ce = nll_loss(logp.transpose(1, 2), x0, reduction="none")
    return (length / k * ce * masked).sum(1).mean()


def tiny_diffusion(model, x0, mask_id):
    """A grid of 128 times, no 1/t, the pooled mean, mask in the softmax."""
    batch = len(x0)
    step = torch.randint(0, 128, (batch,))
    masked = torch.rand(x0.shape) < ((step + 1) / 128)[:, None]
    logits = model(_hide(x0, masked, mask_id), step)
    ce = cross_entropy(
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
    total = cross_entropy(
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
    ce = cross_entropy(
        model(_hide(x0, masked, mask_id)).transpose(1, 2), x0,
        reduction="none", label_smoothing=0.1,
    )
    return (ce * masked / t).sum(1).mean()


def next_token(model, x0, mask_id):
    logits = model(x0[:, :-1])
    return cross_entropy(logits.flatten(0, 1), x0[:, 1:].flatten())


def raises(model, x0, mask_id):
    raise RuntimeError("no such\ncolumn")


def detached(model, x0, mask_id):
    return inverse_t_sequence(model, x0, mask_id).item()


def class_weights(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = cross_entropy(
        model(_hide(x0, masked, mask_id)).transpose(1, 2), x0,
        reduction="none", weight=torch.linspace(0.5, 1.5, mask_id),
    )
    return (ce * masked / t).sum(1).mean()


def position_weights(model, x0, mask_id):
    t = _t(x0)
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    weight = torch.linspace(1, 2, x0.shape[1])
    return (ce * masked * weight / t).sum(1).mean()


def span_masks(model, x0, mask_id):
    """One contiguous span of a uniform length."""
    batch, length = x0.shape
    count = torch.randint(1, length + 1, (batch, 1))
    start = (torch.rand(batch, 1) * (length - count + 1)).long()
    place = torch.arange(length)
    masked = (place >= start) & (place < start + count)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return ((ce * masked).sum(1) / count[:, 0]).mean()


def added_term(model, x0, mask_id):
    """A penalty on the log-normaliser of all rows."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id))
    ce = _ce(logits, x0)
    return (ce * masked / t).sum(1).mean() + 0.1 * logits.logsumexp(-1).mean()


def uniform_state(model, x0, mask_id):
    """Tokens are replaced by random ones; no mask is shown."""
    other = torch.randint_like(x0, mask_id)
    noisy = torch.where(_bernoulli(x0, _t(x0)), other, x0)
    return cross_entropy(model(noisy).transpose(1, 2), x0)


def model_computes(model, x0, mask_id):
    """The model is given labels and returns the loss, a mean over them."""
    masked = torch.bernoulli(torch.full(x0.shape, 0.5)).bool()
    labels = torch.where(masked, x0, -100)
    return model(input_ids=_hide(x0, masked, mask_id), labels=labels).loss


def copied_row(model, x0, mask_id):
    """The first row is scored twice, against two tokens."""
    t = _t(x0)
    masked = _bernoulli(x0, t)
    logits = model(_hide(x0, masked, mask_id))
    logits = torch.cat([logits[:, :1], logits[:, :-1]], 1)
    return (_ce(logits, x0) * masked / t).sum(1).mean()


def noisy_weight(model, x0, mask_id):
    """t drawn from Beta(2, 1) with the weight 1 / t: not its density."""
    t = torch.rand(len(x0), 2).max(1, keepdim=True).values
    masked = _bernoulli(x0, t)
    ce = _ce(model(_hide(x0, masked, mask_id)), x0)
    return (ce * masked / t).sum(1).mean()


NELBO = "unbiased for the NELBO"
MATES = "depends on its batch mates"
NAN = "NaN or infinite when nothing is masked"
MASK = "mask id takes softmax mass"
BROKEN = "Not a weighted cross-entropy"

# The verdict may be right; no fault may be found.
RIGHT = (
    Case(inverse_t_sequence, "nelbo", 1),
    Case(inverse_t_token, "nelbo", 1 / 4),
    Case(inverse_t_flat, "nelbo", 1 / 4),
    Case(inverse_t_numpy, "nelbo", 1),
    Case(uniform_count, "nelbo", 1, notes=("k uniform on 1..L",)),
    Case(uniform_count_python, "nelbo", 1 / 4, notes=("whole batch",)),
    Case(per_example_mean, "nelbo", 1 / 4),
    Case(per_example_mean_zero, "nelbo", 1 / 5, verdict="L / (L + 1)"),
    Case(forced_target, "nelbo", 1),
    Case(cosine_schedule, "nelbo", 1, notes=("cosine",)),
    Case(log_probabilities, "nelbo", 1, notes=("as log-prob", "stratified")),
    Case(one_time, "nelbo", 1, notes=("One t for the whole batch",)),
    Case(antithetic, "nelbo", 1, notes=("antithetic",)),
    Case(random_order, "nelbo", 1),
    Case(autoregressive, "bound", 1, verdict="left to right"),
    Case(clamped_time, "bound", 1, verdict="jumps from t = 0.05"),
    Case(block_diffusion, "bound", 1, verdict="block-wise"),
    Case(half_precision, "nelbo", 1),
    Case(editable_prompt, "nelbo", 1 / 4),
    Case(padded_batch, "nelbo", 1),
    Case(radd_count, "nelbo", 1),
    Case(substituted_head, "nelbo", 1 / 4),
    Case(micro_batches, "nelbo", 1),
    Case(empty_dropped, "nelbo", 1),
    Case(begin_token, "nelbo", 1),
    Case(one_hot_input, "nelbo", 1),
    Case(peeks_first, "nelbo", 1),
    Case(sampled_time, "nelbo", 1),
    Case(eight_steps, "bound", 1, verdict="sampler with 8 steps"),
    Case(batch_sum, "nelbo", 8, verdict="summed over the batch of 8"),
    Case(block_copy, "bound", 1, verdict="block-wise",
         notes=("blocks of [2, 2]",)),
)

WRONG = (
    Case(mask_in_softmax, "nelbo", 1, (MASK,)),
    Case(reversed_time, "nelbo", 1, ("time passed is reversed",)),
    Case(realised_count_pooled, "weighting", None, (MATES,), "pooled mean"),
    Case(padding_scored, "nelbo", 1, ("padding is scored",)),
    Case(padding_counted, "nelbo", 1 / 4,
         ("padding is counted in the denominator",)),
    Case(prompt_scored, "nelbo", 1, ("prompt is scored",)),
    Case(prompt_counted, "nelbo", 1 / 4,
         ("prompt is counted in the denominator",)),
    Case(no_attention_mask, "nelbo", 1, ("attention mask is not passed",)),
    Case(nan_without_masks, "nelbo", 1 / 4, (NAN,)),
    Case(local_normaliser, "weighting", None, (MATES,), "pooled"),
    Case(local_numpy, "weighting", None, (MATES,), "pooled"),
    Case(wrong_normaliser, "nelbo", 3.7, (), "k = 3.7 per sequence"),
    Case(half_masked, "weighting", None, (), "fixed ratio",
         effective=(0, 1, 0, 0)),
    Case(mdlm, "truncated", None, (), "[0.001, 0.99"),
    Case(llada, "truncated", None, (), "without the factor 0.999"),
    Case(truncated_multiplied, "truncated", None, (), "with the factor 0.9"),
    Case(md4, "truncated", None, (), "[0.01, 0.99]", ("constant of 0.06438",)),
    Case(tiny_diffusion, "weighting", None, (MASK, MATES, NAN),
         "pooled mean"),
    Case(dllm, "truncated", None, (), "without the factor 0.999"),
    Case(maskgit, "weighting", None, (), "MaskGIT, ceil"),
    Case(maskgit_bernoulli, "weighting", None, (), "MaskGIT ratio, Bern"),
    Case(bert, "other", None, (MATES,), "replaced by other tokens"),
    Case(unweighted, "weighting", None, (), "unweighted",
         effective=(1 / 5, 2 / 5, 3 / 5, 4 / 5)),
    Case(fixed_rate, "weighting", None, (), "one fixed mask rate"),
    Case(clipped_weight, "weighting", None, (), "clipped at 10"),
    Case(mask_redrawn, "weighting", None, (), "redrawn while empty"),
    Case(visible_scored, "other", None, ("Visible positions are scored",)),
    Case(unforced_target, "other", None, ("outside the masked set",)),
    Case(shifted_labels, "other", None, ("Labels are shifted",)),
    Case(first_kept, "other", None, ("never masked: [0]",)),
    Case(focal, "other", None, (BROKEN,)),
    Case(smoothed, "other", None, ("label smoothing 0.1",)),
    Case(next_token, "other", None, (), "next-token loss"),
    Case(raises, "error", None, ("RuntimeError: no such column",)),
    Case(detached, "error", None, ("before .item()",)),
    Case(class_weights, "other", None, (), "depends on the clean token"),
    Case(position_weights, "other", None, (), "not treated alike"),
    Case(span_masks, "other", None, (), "not treated alike"),
    Case(added_term, "other", None, (BROKEN,)),
    Case(uniform_state, "other", None, ("nothing is ever masked",)),
    Case(model_computes, "weighting", None, (MATES, NAN), "pooled mean"),
    Case(copied_row, "other", None, ("Labels are shifted", BROKEN)),
    Case(noisy_weight, "weighting", None, (), "not the NELBO"),
)
