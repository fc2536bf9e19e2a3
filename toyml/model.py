"""A tiny Transformer: bidirectional, causal or block-causal by one argument.

Pre-norm blocks, rotary positions, squared-ReLU feed-forward of width 4 d, no
biases. Every matrix that writes to the residual stream starts at zero, so an
untrained network gives the uniform distribution: its loss is ln V.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import (
    relu,
    scaled_dot_product_attention,
)

ROTARY_BASE = 10_000.0


class Transformer(nn.Module):
    """Conditionals of the clean tokens given the visible ones.

    vocab_size: V, clean tokens 0..V - 1. The mask, id V, has an input
        embedding and no output column.
    attention: "bidirectional"; "causal"; or an integer n for blocks of n
        positions, each attending to its own block and the earlier ones.
    The causal network reads its tokens one place to the left, behind a mask:
    output i depends on the tokens before i alone, as an autoregressive model
    needs. The other two see position i itself, which is a mask where it is to
    be predicted. Raises ValueError for a width that the heads do not divide
    into even parts, and for another attention.
    """

    def __init__(
        self, vocab_size, layers, width, heads, attention="bidirectional"
    ):
        super().__init__()
        if min(width, heads) < 1 or width % (2 * heads):
            raise ValueError(
                f"width = {width}, heads = {heads}: expected a width that is "
                "a multiple of twice the heads"
            )
        named = attention in ("bidirectional", "causal")
        if not named and not (isinstance(attention, int) and attention > 0):
            raise ValueError(
                f"attention = {attention!r}: expected 'bidirectional', "
                "'causal' or a positive block size"
            )
        self.vocab_size = vocab_size
        self.attention = attention
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocab_size, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.02)
        nn.init.zeros_(self.head.weight)

    def forward(self, tokens, valid=None):
        """Logits [B, L, V] for int64 tokens [B, L], masks as id V.

        valid: bool [B, L], False at padding. No position attends to padding,
        and positions are relative, so padding on either side changes no
        output at valid positions. Outputs at padding mean nothing.
        """
        if self.attention == "causal":
            if valid is not None:
                tokens = tokens.where(valid, self.vocab_size)
            first = torch.full_like(tokens[:, :1], self.vocab_size)
            tokens = torch.cat([first, tokens[:, :-1]], dim=1)
        x = self.embedding(tokens)
        rotary = self._rotary(tokens.shape[1], x)
        allowed = self._allowed(tokens.shape[1], x.device, valid)
        for block in self.blocks:
            x = block(x, rotary, allowed)
        return self.head(self.norm(x))

    def _rotary(self, length, x):
        """cos and sin of position times frequency, [L, head width / 2]."""
        half = self.blocks[0].head_width // 2
        powers = torch.arange(half, device=x.device) / half
        angles = torch.outer(
            torch.arange(length, device=x.device), ROTARY_BASE**-powers
        )
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def _allowed(self, length, device, valid):
        """Who may attend to whom: None for all, or bool [.., L, L]."""
        allowed = None
        if self.attention != "bidirectional":
            size = 1 if self.attention == "causal" else self.attention
            places = torch.arange(length, device=device)
            if valid is not None:  # blocks begin at the first valid place
                places = valid[:, None].cumsum(dim=2) - 1
            block = places.div(size, rounding_mode="floor")
            allowed = block[..., :, None] >= block[..., None, :]
        if valid is None:
            return allowed
        pairs = valid[:, None, None, :]
        if allowed is not None:
            pairs = pairs & allowed
        # A padded place attends to itself, or its softmax would be empty.
        return pairs | torch.eye(length, dtype=torch.bool, device=device)


class Block(nn.Module):
    """Attention, then feed-forward, each added to what came in."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.feed_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.down.weight)

    def forward(self, x, rotary, allowed):
        """What leaves the block, [B, L, width], for x of that shape.

        rotary: cos and sin, [L, head width / 2]. allowed: None, or bool
        [.., L, L], who may attend to whom.
        """
        x = x + self._attend(self.attention_norm(x), rotary, allowed)
        return x + self.down(relu(self.up(self.feed_norm(x))).square())

    def _attend(self, x, rotary, allowed):
        batch, length, width = x.shape
        split = self.query_key_value(x).view(
            batch, length, 3, self.heads, self.head_width
        )
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(
            rotate(query, rotary), rotate(key, rotary), value, allowed
        )
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


def rotate(x, rotary):
    """Turn each pair of features by an angle that grows with the position.

    x: [..., L, head width]. Source: RoFormer (Su et al. 2021).
    """
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)
    return torch.cat(
        [first * cos - second * sin, first * sin + second * cos], dim=-1
    )


def as_denoiser(net, batch=None):
    """Wrap a network as a denoiser: numpy tokens to numpy probabilities.

    Returns ``denoiser(tokens, t=None)``: int64 [B, L] with mask id V to
    float64 [B, L, V], rows that sum to 1, visible tokens certain. The time is
    ignored. The network runs on its own device in evaluation mode, ``batch``
    rows at a time, without gradients; the softmax is taken in float64, where
    there is a mask. None is 64 rows on a CPU, whose cache should hold them,
    and 256 elsewhere. A causal network is right only where the masks are a
    tail of the sequence.
    """
    device = next(net.parameters()).device
    if batch is None:
        batch = 64 if device.type == "cpu" else 256

    @torch.no_grad()
    def denoiser(tokens, t=None):
        tokens = torch.tensor(np.asarray(tokens))
        masked = tokens == net.vocab_size
        was_training = net.training
        net.eval()
        parts = [
            net(part.to(device))[here.to(device)].double().softmax(-1).cpu()
            for part, here in zip(
                tokens.split(batch), masked.split(batch), strict=True
            )
        ]
        net.train(was_training)
        # The mask has the row after the last token: zeros, filled in here.
        out = np.eye(net.vocab_size + 1, net.vocab_size)[tokens.numpy()]
        out[masked.numpy()] = torch.cat(parts).numpy()
        return out

    return denoiser
