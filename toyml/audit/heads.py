"""The forms in which a model may return its logits."""

from dataclasses import dataclass

import torch

OUTPUTS = ("tensor", "output", "pair")
SCALES = ("logits", "log_probs", "probs")


@dataclass(frozen=True)
class Head:
    """What the toy returns: form, number of columns and scale.

    output: a tensor (that also has .logits), an object with .logits, or the
    pair (logits, None). columns: V or V + 1. scale: logits, log-probabilities
    over the clean tokens, or probabilities.
    """

    output: str
    columns: int
    scale: str


class Output:
    """An output in the manner of Hugging Face: .logits, [0], ["logits"]."""

    def __init__(self, logits, loss=None):
        self.logits, self.loss = logits, loss

    def __getitem__(self, key):
        if isinstance(key, str):
            return getattr(self, key)
        return self.to_tuple()[key]

    def __iter__(self):
        return iter(self.to_tuple())

    def to_tuple(self):
        both = (self.loss, self.logits)
        return both if self.loss is not None else (self.logits,)


def scaled(leaf, scale, vocab_size):
    """The outputs as the head has them; a copy, so that writes are safe."""
    if scale == "logits":
        return leaf.clone()
    clean = torch.log_softmax(leaf[..., :vocab_size], -1)
    if leaf.shape[-1] > vocab_size:
        rest = torch.full_like(leaf[..., vocab_size:], -1e6)
        clean = torch.cat([clean, rest], -1)
    return clean.exp() if scale == "probs" else clean
