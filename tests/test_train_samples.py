"""What a network writes, at several numbers of steps."""

import re

import numpy as np
import pytest

from toyml.sources import Markov
from toyml.train import samples as module
from toyml.train.data import FromSource
from toyml.train.samples import samplers, samples
from train_cases import network

HEAD = r"--- (.*), (\d+) steps, sample (\d+) of (\d+)"


def counted(source, calls):
    """The source's conditionals; calls lists the masks of each question."""

    def denoiser(tokens, t=None):
        calls.append((tokens == source.vocab_size).sum(axis=1).tolist())
        return source(tokens)

    return denoiser


@pytest.mark.parametrize("causal", [False, True])
def test_samples(monkeypatch, causal):
    """A wheel of five: each token is followed by the next one, always."""
    length = 20
    source = Markov(np.full(5, 0.2), np.roll(np.eye(5), 1, axis=1), length)
    calls = []
    asked = counted(source, calls)
    monkeypatch.setattr(module, "as_denoiser", lambda net: asked)
    net = network(5, "causal" if causal else "bidirectional")
    if not causal:  # revealed together, its tokens need not fit together
        monkeypatch.setattr(module, "STEPS", ())
    text = samples(net, FromSource(source, None), length, 3)
    lines = text.splitlines()
    assert len(lines) == 6
    for number, (head, line) in enumerate(
        zip(lines[::2], lines[1::2], strict=True), 1
    ):
        how, *numbers = re.fullmatch(HEAD, head).groups()
        assert how == ("left to right" if causal else "random order")
        assert list(map(int, numbers)) == [20, number, 3]
        tokens = np.array(line.split(" "), int)
        assert tokens.shape == (20,)
        assert np.all(np.diff(tokens) % 5 == 1)
    masks = [20 - step for step in range(20)]
    assert calls == [[left] * 3 for left in masks]
    again = samples(net, FromSource(source, None), length, 3)
    assert again == text


@pytest.mark.parametrize(
    "length, steps", [(1, [1]), (4, [4]), (6, [4, 6]), (64, [4, 16, 64])]
)
def test_numbers_of_steps(length, steps, monkeypatch):
    """The steps share the positions evenly, and reveal them all."""
    names = list(samplers(length, causal=False))
    assert names == [f"random order, {k} steps" for k in steps]
    assert len(samplers(length, causal=True)) == 1
    source = Markov(np.ones(2) / 2, np.full((2, 2), 0.5), length)
    calls = []
    asked = counted(source, calls)
    monkeypatch.setattr(module, "as_denoiser", lambda net: asked)
    samples(network(2), FromSource(source, None), length, 1)
    wanted = [
        [length - length * step // k] for k in steps for step in range(k)
    ]
    assert calls == wanted
