"""The network against one written by hand, and who sees whom."""

from math import log

import numpy as np
import pytest
import torch

from toyml.model import Transformer, as_denoiser
from train_cases import network, random_tokens

ATTENTIONS = ["bidirectional", "causal", 1, 3]
each = pytest.mark.parametrize("attention", ATTENTIONS)
V, L = 5, 7


def sees(attention, i, j):
    """Whether output i may depend on token j."""
    if attention == "bidirectional":
        return True
    if attention == "causal":
        return j < i
    return j // attention <= i // attention


@each
def test_untrained_is_uniform(attention):
    net = Transformer(V, 2, 16, 2, attention)
    tokens = random_tokens((3, L))
    logits = net(tokens)
    assert logits.shape == (3, L, V)
    assert torch.all(logits == 0)
    costs = -logits.log_softmax(dim=-1)
    assert costs.detach().numpy() == pytest.approx(log(V), rel=1e-6)


@pytest.mark.parametrize(
    "vocab_size, layers, width, heads, wanted",
    [
        # embedding 6 x 8, head 8 x 5, last norm 8; a layer: q, k, v, out
        # 4 x 64, up and down 2 x 256, two norms 2 x 8
        (5, 1, 8, 2, 48 + 40 + 8 + 256 + 512 + 16),
        (8, 2, 64, 4, 99_712),
        (65, 4, 128, 4, 804_352),
    ],
)
def test_parameters(vocab_size, layers, width, heads, wanted):
    net = Transformer(vocab_size, layers, width, heads)
    assert sum(w.numel() for w in net.parameters()) == wanted


@each
def test_who_sees_whom(attention):
    """Change one token: exactly the outputs that may depend on it change."""
    net = network(attention=attention)
    tokens = random_tokens((1, L))
    before = net(tokens)
    for j in range(L):
        other = tokens.clone()
        other[0, j] = (tokens[0, j] + 1) % (V + 1)
        change = (net(other) - before).abs().amax(dim=-1)[0]
        for i in range(L):
            if sees(attention, i, j):
                assert change[i] > 1e-4
            else:
                assert change[i] == 0


@each
def test_gradients_follow_the_attention(attention):
    """The same by the gradient on the embedding of each distinct token."""
    length = V + 1
    net = network(attention=attention)
    tokens = torch.arange(length)[None]  # token j at place j
    for i in range(length):
        net.zero_grad()
        net(tokens)[0, i].square().sum().backward()
        slopes = net.embedding.weight.grad.abs().sum(dim=1)
        for j in range(length):
            if attention == "causal" and j == V:
                continue  # the mask, which is also read before the first
            assert (slopes[j] > 0) == sees(attention, i, j)


# Padding.


@each
@pytest.mark.parametrize("left", [0, 1, 2, 3])
@pytest.mark.parametrize("right", [0, 2])
def test_padding_changes_nothing(attention, left, right):
    net = network(attention=attention)
    tokens = random_tokens((2, L))
    bare = net(tokens)
    size = L + left + right
    for seed in (1, 2):  # whatever the padding holds
        padded = random_tokens((2, size), seed=seed)
        valid = torch.zeros(2, size, dtype=torch.bool)
        padded[:, left : left + L] = tokens
        valid[:, left : left + L] = True
        out = net(padded, valid)[:, left : left + L]
        assert torch.allclose(out, bare, rtol=0, atol=2e-5)


@each
def test_rows_of_several_lengths(attention):
    """Each row padded on its own side, one row of padding alone."""
    net = network(attention=attention)
    tokens = random_tokens((4, L))
    places = [slice(0, L), slice(0, 4), slice(2, L), slice(0, 0)]
    valid = torch.zeros(4, L, dtype=torch.bool)
    for row, place in enumerate(places):
        valid[row, place] = True
    out = net(tokens, valid)
    assert torch.isfinite(out).all()
    for row, place in enumerate(places[:3]):
        bare = net(tokens[row : row + 1, place])
        assert torch.allclose(out[row, place], bare[0], rtol=0, atol=2e-5)
    out.sum().backward()
    assert all(torch.isfinite(w.grad).all() for w in net.parameters())


# The whole network written again in float64, features as complex numbers.


def by_hand(net, tokens):
    """Logits [B, L, V]; no torch but for reading the weights."""
    weights = {
        name: w.detach().double().numpy() for name, w in net.named_parameters()
    }
    tokens = tokens.numpy()
    length = tokens.shape[1]
    i, j = np.indices((length, length))
    if net.attention == "bidirectional":
        allowed = np.ones((length, length), bool)
    elif net.attention == "causal":
        tokens = np.insert(tokens, 0, net.vocab_size, axis=1)[:, :-1]
        allowed = j <= i
    else:
        allowed = j // net.attention <= i // net.attention
    x = weights["embedding.weight"][tokens]
    for number, block in enumerate(net.blocks):
        own = {
            name.split(".")[2]: w
            for name, w in weights.items()
            if name.startswith(f"blocks.{number}.")
        }
        h = normalised(x) * own["attention_norm"]
        parts = np.split(h @ own["query_key_value"].T, 3, axis=-1)
        size, mixed = block.head_width, []
        for head in range(block.heads):
            place = slice(head * size, (head + 1) * size)
            query, key, value = (part[..., place] for part in parts)
            query, key = turned(query), turned(key)
            # Re <q, k> of complex vectors: the plain product of the parts
            score = (query @ key.conj().swapaxes(1, 2)).real / size**0.5
            odds = np.exp(score - score.max()) * allowed
            mixed.append(odds / odds.sum(axis=-1, keepdims=True) @ value)
        x = x + np.concatenate(mixed, axis=-1) @ own["out"].T
        h = normalised(x) * own["feed_norm"] @ own["up"].T
        x = x + np.maximum(h, 0) ** 2 @ own["down"].T
    return normalised(x) * weights["norm.weight"] @ weights["head.weight"].T


def normalised(x):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)


def turned(x):
    """Feature j and j + half as one complex number, turned by p / 10^..."""
    half = x.shape[-1] // 2
    angle = 1e4 ** (-np.arange(half) / half)
    place = np.arange(x.shape[1])[:, None]
    return (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * place * angle)


@each
@pytest.mark.parametrize("shape", [(16, 2), (24, 3), (8, 4)])
def test_the_network_by_hand(attention, shape):
    width, heads = shape
    net = network(attention=attention, width=width, heads=heads, seed=width)
    tokens = random_tokens((3, L), seed=width)
    wanted = by_hand(net, tokens)
    assert wanted.std() > 0.3
    got = net(tokens).detach().numpy()
    assert np.abs(got - wanted).max() < 2e-5 * np.abs(wanted).max()


def test_positions_are_told_apart_by_their_distance():
    """One layer: shifted tokens give shifted outputs, reversed ones do not."""
    net = network(attention=1, layers=1)
    tokens = random_tokens((1, L), mask=0)
    once = net(tokens)
    valid = torch.ones(1, L + 3, dtype=torch.bool)
    valid[:, :3] = False
    later = net(torch.nn.functional.pad(tokens, (3, 0)), valid)
    assert torch.allclose(later[:, 3:], once, atol=2e-5)
    net = network(layers=1)
    ahead, back = net(tokens), net(tokens.flip(1)).flip(1)
    assert (ahead - back).abs().max() > 1e-3


# As a denoiser.


def test_as_denoiser():
    net = network().train()
    tokens = random_tokens((10, L)).numpy()
    tokens.flags.writeable = False
    out = as_denoiser(net)(tokens)
    assert out.shape == (10, L, V) and out.dtype == np.float64
    assert np.allclose(out.sum(axis=-1), 1, rtol=0, atol=1e-14)
    visible = tokens != V
    assert np.array_equal(out[visible], np.eye(V)[tokens[visible]])
    logits = net(torch.tensor(tokens)).detach().double().numpy()
    odds = np.exp(logits)
    wanted = odds / odds.sum(axis=-1, keepdims=True)
    assert np.allclose(out[~visible], wanted[~visible], rtol=0, atol=1e-12)
    for batch in (1, 3, 10):
        parts = as_denoiser(net, batch=batch)(tokens, 0.5)
        assert np.allclose(parts, out, rtol=0, atol=1e-6)
    assert net.training and all(w.grad is None for w in net.parameters())
    assert as_denoiser(net.eval())(tokens).shape and not net.training


def test_as_denoiser_of_a_causal_network():
    """With the tail masked: the next-token law at the first masked place."""
    net = network(attention="causal")
    clean = random_tokens((4, L), mask=0)
    laws = net(clean).double().softmax(dim=-1).detach().numpy()
    for start in range(L):
        tokens = clean.clone()
        tokens[:, start:] = V
        out = as_denoiser(net)(tokens.numpy())
        assert np.allclose(out[:, start], laws[:, start], rtol=0, atol=1e-6)


# Bad input.


@pytest.mark.parametrize(
    "width, heads, attention, message",
    [
        (10, 2, "causal", "width = 10, heads = 2: expected"),
        (12, 4, "causal", "width = 12, heads = 4: expected"),
        (16, 0, "causal", "width = 16, heads = 0: expected"),
        (0, 2, "causal", "width = 0, heads = 2: expected"),
        (16, 2, "prefix", "attention = 'prefix': expected"),
        (16, 2, 0, "attention = 0: expected"),
        (16, 2, -3, "attention = -3: expected"),
        (16, 2, 2.0, "attention = 2.0: expected"),
        (16, 2, None, "attention = None: expected"),
    ],
)
def test_bad_networks(width, heads, attention, message):
    with pytest.raises(ValueError) as error:
        Transformer(V, 1, width, heads, attention)
    assert str(error.value).startswith(message)
