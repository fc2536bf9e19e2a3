"""The training loss in torch: values, gradients, split batches, infinities."""

from math import exp, inf, log, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import seeds
from toyml.loss import weighted_cross_entropy
from toyml.objectives import (
    autoregressive,
    bert,
    clamped_t,
    clipped_weight,
    forced_target,
    inverse_t,
    inverse_t_truncated,
    maskgit,
    per_example_mean,
    pooled_mean,
    random_order,
    scheduled,
    uniform_count,
    unweighted,
)
from toyml.schedules import COSINE

BATCH, LENGTH, VOCAB = 8, 5, 3
OBJECTIVES = [
    autoregressive(),
    bert(),
    clamped_t(0.1),
    clipped_weight(0.1),
    forced_target(),
    forced_target(COSINE),
    inverse_t(),
    inverse_t_truncated(0.1),
    maskgit(),
    per_example_mean(),
    per_example_mean("zero"),
    per_example_mean("redraw_mask_only"),
    pooled_mean(BATCH),
    random_order(),
    scheduled(COSINE),
    uniform_count(),
    unweighted(),
]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def case(seed, batch=3, length=LENGTH, columns=VOCAB):
    """Random logits and clean tokens; about half of the weights are 0."""
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(batch, length, columns)))
    x0 = torch.tensor(rng.integers(VOCAB, size=(batch, length)))
    weight = rng.exponential(size=(batch, length))
    weight *= rng.random(weight.shape) < 0.5
    return logits.requires_grad_(), x0, torch.tensor(weight)


def by_hand(logits, x0, weight):
    """The loss, position by position, and its gradient w (softmax - 1)."""
    logits, x0 = logits.detach().numpy(), x0.numpy()
    weight = np.asarray(weight)
    loss, gradient = 0.0, np.zeros_like(logits)
    for at in np.ndindex(weight.shape):
        if weight[at] == 0:
            continue
        odds = [exp(v) for v in logits[at]]
        target = x0[at]
        loss -= weight[at] * log(odds[target] / sum(odds))
        for v, odd in enumerate(odds):
            share = odd / sum(odds) - (v == target)
            gradient[(*at, v)] = weight[at] * share
    return loss, gradient


@settings(max_examples=20)
@given(seeds, st.integers(1, 4), st.integers(1, 4))
def test_loss_and_gradient(seed, batch, length):
    logits, x0, weight = case(seed, batch, length)
    wanted, slope = by_hand(logits, x0, weight)
    for given_weight in (weight, weight.numpy()):
        logits.grad = None
        loss = weighted_cross_entropy(logits, x0, given_weight)
        loss.backward()
        assert loss.shape == ()
        assert loss.item() == pytest.approx(wanted, rel=1e-12, abs=1e-14)
        got = logits.grad.numpy()
        assert np.allclose(got, slope, rtol=1e-12, atol=1e-14)


def test_the_loss_keeps_the_logits_precision():
    logits, x0, weight = case(0)
    wanted, _ = by_hand(logits, x0, weight)
    loss = weighted_cross_entropy(logits.float(), x0, weight)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wanted, rel=1e-5)


def gradient(net, drawn, x0, rows):
    """Gradient of the loss of some rows of a drawn batch, flattened."""
    masked, weight = (v[rows] for v in drawn)
    passes = masked.shape[1]
    tokens = x0[rows, None].expand(-1, passes, -1)
    shown = torch.where(torch.from_numpy(masked), VOCAB, tokens)
    net.zero_grad()
    logits, weight = net(shown.flatten(0, 1)), weight.reshape(-1, LENGTH)
    weighted_cross_entropy(logits, tokens.flatten(0, 1), weight).backward()
    return torch.cat([p.grad.ravel() for p in net.parameters()])


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: o.name)
@pytest.mark.parametrize("prompt", [False, True], ids=["all", "prompt"])
def test_a_split_batch_has_the_same_gradient(objective, prompt):
    """Parts that share the weights of one network, down to single rows."""
    torch.manual_seed(0)
    rng = np.random.default_rng(5)
    net = torch.nn.Sequential(
        torch.nn.Embedding(VOCAB + 1, 4),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * LENGTH, VOCAB * LENGTH),
        torch.nn.Unflatten(1, (LENGTH, VOCAB)),
    ).double()
    x0 = torch.tensor(rng.integers(VOCAB, size=(BATCH, LENGTH)))
    editable = None
    if prompt:  # rows of one to four editable positions
        editable = np.arange(LENGTH) > np.arange(BATCH)[:, None] % 4
    drawn = objective.draw(BATCH, LENGTH, rng, editable)
    whole = gradient(net, drawn, x0, np.arange(BATCH))
    assert whole.abs().max() > 1e-3
    for parts in (2, 4, BATCH):
        rows = np.split(np.arange(BATCH), parts)
        total = sum(gradient(net, drawn, x0, part) for part in rows)
        assert torch.allclose(total, whole, rtol=1e-12, atol=1e-14)


def test_nothing_masked():
    """Loss 0 and a gradient of zeros, not NaN and not None."""
    for logits, x0, weight in (case(1), case(1, batch=1, length=1)):
        loss = weighted_cross_entropy(logits, x0, torch.zeros_like(weight))
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_one_example_without_a_mask():
    logits, x0, weight = case(2)
    weight[1] = 0
    weight[0] += 1
    loss = weighted_cross_entropy(logits, x0, weight)
    loss.backward()
    assert torch.isfinite(loss) and loss > 0
    assert torch.equal(logits.grad[1], torch.zeros_like(logits[1]))
    assert (logits.grad[0] != 0).all()


def test_a_mask_column_at_minus_infinity():
    """It adds nothing to the loss and gets no gradient."""
    logits, x0, weight = case(3)
    wanted, slope = by_hand(logits, x0, weight)
    column = torch.full((*x0.shape, 1), -inf, dtype=torch.double)
    wide = torch.cat([logits.detach(), column], dim=-1).requires_grad_()
    loss = weighted_cross_entropy(wide, x0, weight)
    loss.backward()
    assert loss.item() == pytest.approx(wanted, rel=1e-12)
    assert np.allclose(wide.grad[..., :-1], slope, rtol=1e-12, atol=1e-14)
    assert torch.equal(wide.grad[..., -1], torch.zeros_like(wide[..., -1]))


@pytest.mark.parametrize("value", [-inf, inf, nan])
def test_infinite_logits_at_visible_positions(value):
    """They never meet their zero weight in a product."""
    logits, x0, weight = case(4)
    wanted, slope = by_hand(logits, x0, weight)
    visible = weight == 0
    assert visible.any() and not visible.all()
    bad = logits.detach().clone()
    bad[visible] = value
    bad.requires_grad_()
    loss = weighted_cross_entropy(bad, x0, weight)
    loss.backward()
    assert loss.item() == pytest.approx(wanted, rel=1e-12)
    assert np.allclose(bad.grad, slope, rtol=1e-12, atol=1e-14)


def test_an_impossible_target_costs_infinity():
    logits, x0, weight = case(5)
    weight[0, 0] = 1
    with torch.no_grad():
        logits[0, 0, x0[0, 0]] = -inf
    assert weighted_cross_entropy(logits, x0, weight).item() == inf


# Bad input.


@pytest.mark.parametrize("value", [-0.5, nan])
def test_bad_weights(value):
    logits, x0, weight = case(6)
    weight[1, 2] = value
    message = f"^weight has minimum {value}; expected nonnegative"
    with pytest.raises(ValueError, match=message):
        weighted_cross_entropy(logits, x0, weight)


@pytest.mark.parametrize(
    "shape", [(3,), (3, 1, 5), (1, 5), (5, 3), (3, 5, 1), ()]
)
def test_weights_of_another_shape(shape):
    logits, x0, _ = case(7)
    with pytest.raises(ValueError) as error:
        weighted_cross_entropy(logits, x0, torch.ones(shape))
    assert str(error.value).startswith(f"weight has shape {shape}; expected")


def test_logits_of_another_shape():
    logits, x0, weight = case(8)
    for wrong in (logits[:2], logits[:, :-1], logits[..., 0]):
        with pytest.raises(ValueError, match=r"for logits \("):
            weighted_cross_entropy(wrong, x0, weight)
