"""The toy model that the audit hands to a loss, and one call of the loss.

The toy returns known random logits that are leaves of the graph, whatever it
is fed. The gradient of the loss with respect to them then says what was
scored, with which weight and against which token (see ``reading``).
"""

import inspect
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import torch

from .heads import Output, scaled

TOKEN_NAMES = ("input_ids", "tokens", "x", "idx", "inputs", "xt", "x_t")


class LossError(Exception):
    """The loss could not be called or read; the text is one line."""


@dataclass
class Call:
    """One call of the toy: tokens int [R, L'], the leaf [R, L', C], extras.

    extras: (name, float64 array) of the other numeric arguments.
    """

    tokens: np.ndarray
    leaf: torch.Tensor
    extras: list


class Toy(torch.nn.Module):
    """Takes tokens and anything else; see ``Head`` for what it returns.

    Logits are multiples of 1/8 in [-2, 2], exact in bfloat16 too, from
    ``rng`` (numpy), so that the loss's own random numbers are untouched.
    """

    def __init__(self, vocab_size, mask_id, head, rng, pad_id=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.head, self.rng, self.calls = head, rng, []
        self.vocab_size, self.mask_id = vocab_size, mask_id
        self.mask_token_id = mask_id
        self.config = SimpleNamespace(
            vocab_size=head.columns,
            mask_token_id=mask_id,
            pad_token_id=pad_id,
            eos_token_id=pad_id,
        )

    @property
    def device(self):
        return self.weight.device

    @property
    def dtype(self):
        return self.weight.dtype

    @property
    def module(self):
        return self

    def forward(self, *args, **kwargs):
        given = [(str(i), v) for i, v in enumerate(args)]
        given += list(kwargs.items())
        name, tokens = _tokens(given)
        noise = self.rng.integers(-16, 17, (*tokens.shape, self.head.columns))
        leaf = torch.from_numpy((noise / 8).astype(np.float32))
        leaf.requires_grad_()
        extras = [
            (key, value.detach().to(torch.float64).numpy())
            for key, value in ((k, _tensor(v)) for k, v in given)
            if key != name and value is not None
        ]
        record = tokens.detach().to(torch.int64).numpy().copy()
        self.calls.append(Call(record, leaf, extras))
        logits = scaled(leaf, self.head.scale, self.vocab_size)
        labels = kwargs.get("labels")
        loss = None
        if labels is not None:
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten()
            )
        if self.head.output == "pair":
            return logits, loss
        if self.head.output == "output" or loss is not None:
            return Output(logits, loss)
        logits.logits = logits
        return logits


@dataclass
class Evaluation:
    """One value of the loss with all that was seen on the way to it."""

    x0: np.ndarray
    value: float
    calls: list
    grads: list
    detached: bool
    wants: dict = field(default_factory=dict)

    @property
    def finite(self):
        whole = all(np.isfinite(g).all() for g in self.grads)
        return np.isfinite(self.value) and whole


def evaluate(loss_fn, toy, x0, **wants):
    """Call the loss once on x0, int64 [B, L]; an ``Evaluation``.

    Whatever the loss raises becomes a ``LossError`` of one line.
    """
    toy.calls = []
    tokens = torch.from_numpy(x0.copy())
    given = {k: torch.from_numpy(v) if k == "editable" else v
             for k, v in wants.items()}
    try:
        with torch.enable_grad():
            out = loss_fn(toy, tokens, toy.mask_id, **given)
            loss = _scalar(out)
            leaves = [call.leaf for call in toy.calls]
            detached = not loss.requires_grad
            if detached:
                grads = [leaf.grad for leaf in leaves]
            elif leaves:
                grads = torch.autograd.grad(loss, leaves, allow_unused=True)
            else:
                grads = []
    except LossError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:160]
        raise LossError(f"{type(error).__name__}: {text}") from error
    grads = [
        np.zeros(leaf.shape) if g is None else g.double().numpy()
        for g, leaf in zip(grads, leaves, strict=True)
    ]
    value = float(loss.detach())
    detached &= not any(g.any() for g in grads)
    return Evaluation(x0, value, toy.calls, grads, detached, wants)


def wanted(loss_fn):
    """Which of ``editable`` and ``pad_id`` the loss accepts, by signature."""
    try:
        names = inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):
        return ()
    return tuple(n for n in ("editable", "pad_id") if n in names)


def _scalar(out):
    if isinstance(out, dict) and "loss" in out:
        out = out["loss"]
    elif not isinstance(out, torch.Tensor) and hasattr(out, "loss"):
        out = out.loss
    elif isinstance(out, tuple | list) and out:
        out = out[0]
    if isinstance(out, float | int | np.number):
        out = torch.tensor(float(out))
    if not isinstance(out, torch.Tensor):
        raise LossError(
            f"the loss returned {type(out).__name__}; expected a scalar tensor"
        )
    if out.numel() != 1:
        raise LossError(
            f"the loss returned shape {tuple(out.shape)}; expected a scalar"
        )
    return out.reshape(())


def _tokens(given):
    """(name, tensor) of the argument that holds the tokens, [R, L']."""
    found = [
        (key, value)
        for key, value in given
        if isinstance(value, torch.Tensor)
        and value.ndim == 2
        and not value.is_floating_point()
        and value.dtype != torch.bool
    ]
    named = [pair for pair in found if pair[0] in TOKEN_NAMES]
    if named or found:
        return (named or found)[0]
    for key, value in given:
        if isinstance(value, torch.Tensor) and value.ndim == 3:
            return key, value.argmax(-1)
    shapes = [
        f"{k}: {tuple(v.shape)} {v.dtype}" if isinstance(v, torch.Tensor)
        else f"{k}: {type(v).__name__}"
        for k, v in given
    ]
    raise LossError(
        f"the model was called with {', '.join(shapes) or 'nothing'}; "
        "expected integer tokens [B, L]"
    )


def _tensor(value):
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, float | np.ndarray):
        return torch.as_tensor(value)
    return None
