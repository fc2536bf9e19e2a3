"""One step: the loss and its gradient, the objectives, the optimizer."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from toyml.train import data
from toyml.train.config import CHOICES
from toyml.train.objective import objective_at
from toyml.train.optimizer import Optimizer
from toyml.train.ranks import Ranks
from toyml.train.run import Run, build
from toyml.train.step import backward, draw
from train_cases import network, tiny

CPU = torch.device("cpu")
ALONE = Ranks(0, 1, CPU)
V, L, B = 8, 6, 8


def case(objective, seed=0, progress=0.0):
    """A network, its data and one drawn batch of an objective."""
    twin = objective == "autoregressive"
    attention = "causal" if twin else "bidirectional"
    config = tiny(objective=objective, attention=attention)
    net = network(V, attention, seed)
    rng = np.random.default_rng(seed)
    law = objective_at(config, progress)
    return config, net, draw(config, law, data.load(config), rng)


def gradients(net):
    return [w.grad.clone() for w in net.parameters()]


# The loss.


@pytest.mark.parametrize("objective", CHOICES["objective"])
def test_loss_and_gradient(objective):
    """Position by position in float64, the slope by finite differences."""
    _, net, batch = case(objective)
    loss = backward(net, V, *batch, ALONE)
    assert loss.shape == () and not loss.requires_grad
    slopes = gradients(net)
    net = net.double()
    x0, masked, weight = batch
    assert x0.shape == (B, L) and masked.shape == weight.shape

    def by_hand():
        total = 0.0
        for b in range(B):
            for hidden, weights in zip(masked[b], weight[b], strict=True):
                shown = torch.tensor(np.where(hidden, V, x0[b]))[None]
                odds = net(shown)[0].detach().numpy()
                odds = np.exp(odds - odds.max(axis=1, keepdims=True))
                for i in range(L):
                    chance = odds[i, x0[b, i]] / odds[i].sum()
                    total -= weights[i] * np.log(chance)
        return total / L

    assert loss.item() == pytest.approx(by_hand(), rel=1e-5)
    rng, h = np.random.default_rng(1), 1e-5
    for w, slope in zip(net.parameters(), slopes, strict=True):
        ways = torch.tensor(rng.normal(size=w.shape))
        with torch.no_grad():
            w += h * ways
            above = by_hand()
            w -= 2 * h * ways
            below = by_hand()
            w += h * ways
        wanted = (above - below) / (2 * h)
        size = (slope.double().norm() * ways.norm()).item()
        got = (slope.double() * ways).sum().item()
        assert got == pytest.approx(wanted, rel=1e-3, abs=1e-4 * size)


@pytest.mark.parametrize("objective", ["uniform_count", "autoregressive"])
def test_slices_add_up(objective):
    """World 4 multiplies by 4, for the mean that DDP takes of gradients."""
    _, net, batch = case(objective)
    whole = backward(net, V, *batch, ALONE)
    wanted = gradients(net)
    net.zero_grad()
    total = 0.0
    for rank in range(4):
        one = Ranks(rank, 4, CPU)
        total += backward(net, V, *one.slice(*batch), one)
    assert total.item() == pytest.approx(whole.item(), rel=1e-5)
    for mine, full in zip(gradients(net), wanted, strict=True):
        error = (mine / 4 - full).abs().max()
        assert error < 1e-5 * full.abs().max() + 1e-8


def test_slices_are_the_rows_in_order():
    rows = np.arange(12), np.arange(24).reshape(12, 2)
    parts = [Ranks(rank, 3, CPU).slice(*rows) for rank in range(3)]
    for whole, pieces in zip(rows, zip(*parts, strict=True), strict=True):
        assert [len(piece) for piece in pieces] == [4, 4, 4]
        assert np.array_equal(np.concatenate(pieces), whole)


def test_gradients_of_passes_add_up():
    """Two passes of one batch: the sum of what each alone gives."""
    _, net, (x0, masked, weight) = case("uniform_count")
    _, _, (_, other, scale) = case("uniform_count", seed=1)
    sums = 0.0
    for passes in ((masked, weight), (other, scale)):
        sums += backward(net, V, x0, *passes, ALONE)
    wanted = gradients(net)
    net.zero_grad()
    hidden = np.concatenate([masked, other], axis=1)
    weights = np.concatenate([weight, scale], axis=1)
    loss = backward(net, V, x0, hidden, weights, ALONE)
    assert loss.item() == pytest.approx(sums.item(), rel=1e-6)
    for mine, full in zip(gradients(net), wanted, strict=True):
        assert torch.allclose(mine, full, rtol=1e-5, atol=1e-7)


class Record(TorchDispatchMode):
    """The dtypes and shapes of whatever an operation returns."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for one in out if isinstance(out, list | tuple) else [out]:
            if isinstance(one, torch.Tensor):
                self.seen.add((one.dtype, tuple(one.shape)))
        return out


@pytest.mark.parametrize("objective", CHOICES["objective"])
def test_no_large_tensor_in_float64(objective):
    twin = objective == "autoregressive"
    config = tiny(
        objective=objective, attention="causal" if twin else "bidirectional"
    )
    run = Run(config, data.load(config))
    with Record() as record:
        run._advance(run.net)
    assert (torch.float32, (B, L, V)) in record.seen
    double = [shape for kind, shape in record.seen if kind is torch.float64]
    assert all(len(shape) < 3 for shape in double), double
    assert all(np.prod(shape) <= B * L for shape in double), double


# Objectives of a run.


def test_the_twin_scores_every_token_once():
    _, _, (_, masked, weight) = case("autoregressive")
    assert masked.shape == (B, 1, L) and not masked.any()
    assert np.all(weight == 1 / B)


@pytest.mark.parametrize("objective", CHOICES["objective"][:-1])
@pytest.mark.parametrize("coupling", CHOICES["coupling"])
def test_every_objective_draws(objective, coupling):
    config = tiny(objective=objective, coupling=coupling)
    law = objective_at(config, 0.3)
    rng = np.random.default_rng(0)
    _, masked, weight = draw(config, law, data.load(config), rng)
    assert masked.shape == weight.shape == (B, 1, L)
    assert np.all(weight >= 0) and weight.any() and not weight[~masked].any()


def test_stratified_batches_spread_their_counts():
    """uniform_count, 12 rows of 6 tokens: each count exactly twice."""
    config = tiny(batch=12)
    rng = np.random.default_rng(0)
    for _ in range(5):
        law = objective_at(config, 0)
        _, masked, _ = draw(config, law, data.load(config), rng)
        seen = np.bincount(masked.sum(axis=(1, 2)), minlength=7)
        assert seen.tolist() == [0, 2, 2, 2, 2, 2, 2]


def test_the_path_ends_at_the_bound():
    """e(k) ~ k^a, a from 1 to 0 on a line, then 0; draws by their power."""
    config = tiny(objective="path", path_end=0.8, draw_power=-0.5)
    k = np.arange(1, 7)
    for progress, power in [
        (0, 1),
        (0.2, 0.75),
        (0.4, 0.5),
        (0.6, 0.25),
        (0.8, 0),
        (0.9, 0),
        (0.999, 0),
    ]:
        law = objective_at(config, progress).law(6)
        wanted = k**power / (k**power).mean()
        got = law.effective_weight
        assert got[1:] == pytest.approx(wanted, rel=1e-12)
        p = k**-0.5 / (k**-0.5).sum()
        assert law.probability[1:] == pytest.approx(p, rel=1e-12)
    at_once = objective_at(tiny(objective="path", path_end=0.0), 0).law(6)
    assert at_once.effective_weight[1:] == pytest.approx([1] * 6)


def test_objectives_by_name():
    means = {
        "uniform_count": (1,) * 6,
        "inverse_t": (1,) * 6,
        "forced_target": (1,) * 6,
        "power_count": (1,) * 6,
        "unweighted": [k / 7 for k in range(1, 7)],
    }
    for name, wanted in means.items():
        one = objective_at(tiny(objective=name, draw_power=0.5), 0.1)
        assert one.name.startswith(name)
        got = one.law(6).effective_weight[1:]
        assert [float(e) for e in got] == pytest.approx(wanted, rel=1e-12)
    p = objective_at(tiny(objective="power_count", draw_power=1.0), 0).law(6)
    assert p.probability == pytest.approx([k / 21 for k in range(7)])
    pooled = objective_at(tiny(objective="pooled_mean", batch=24), 0)
    assert pooled.batch == 24
    _, _, (_, masked, weight) = case("pooled_mean")
    assert np.allclose(weight[masked], L / masked.sum())


# The optimizer.


def trained(steps=4, **changes):
    """A network, its optimizer, and the weights before each of its steps."""
    config = tiny(**changes)
    run = Run(config, data.load(config))
    history = []
    for _ in range(steps):
        history.append([w.detach().clone() for w in run.net.parameters()])
        run._advance(run.net)
    history.append([w.detach().clone() for w in run.net.parameters()])
    return run, history


def test_rates():
    one = Optimizer(network(), tiny(steps=10, warmup=4))
    wanted = [0.25, 0.5, 0.75, 1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    got = [one.rate_factor(number) for number in range(10)]
    assert got == pytest.approx(wanted, rel=1e-12)
    cold = Optimizer(network(), tiny(steps=4, warmup=0))
    got = [cold.rate_factor(number) for number in range(4)]
    assert got == pytest.approx([1, 0.75, 0.5, 0.25])
    short = Optimizer(network(), tiny(steps=3, warmup=10))
    got = [short.rate_factor(number) for number in range(3)]
    assert got == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_rates_reach_every_group(optimizer):
    run, _ = trained(3, optimizer=optimizer, lr=0.01, matrix_lr=0.02)
    factor = run.optimizer.rate_factor(2)
    groups = [
        (type(part).__name__, group["lr"])
        for part in run.optimizer.parts
        for group in part.param_groups
    ]
    wanted = {"Muon": 0.02 * factor, "AdamW": 0.01 * factor}
    assert groups and all(
        rate == pytest.approx(wanted[name]) for name, rate in groups
    )


def test_muon_gets_the_matrices_of_the_blocks():
    net = network()
    muon, adamw = Optimizer(net, tiny(optimizer="muon")).parts
    assert isinstance(muon, torch.optim.Muon)
    names = {id(w): name for name, w in net.named_parameters()}

    def held(part):
        groups = part.param_groups
        return [names[id(w)] for group in groups for w in group["params"]]

    inner = [
        f"blocks.{number}.{name}.weight"
        for number in range(2)
        for name in ("query_key_value", "out", "up", "down")
    ]
    assert sorted(held(muon)) == sorted(inner)
    assert sorted(held(adamw)) == sorted(set(names.values()) - set(inner))
    (alone,) = Optimizer(net, tiny(optimizer="adamw")).parts
    assert isinstance(alone, torch.optim.AdamW)
    assert sorted(held(alone)) == sorted(names.values())


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_weight_decay_falls_on_matrices(optimizer):
    """With no gradient only the decay moves: w (1 - rate decay)."""
    net = network()
    config = tiny(
        optimizer=optimizer,
        lr=0.1,
        matrix_lr=0.2,
        weight_decay=0.5,
        warmup=0,
        ema=0.0,
    )
    one = Optimizer(net, config)
    before = {n: w.detach().clone() for n, w in net.named_parameters()}
    for w in net.parameters():
        w.grad = torch.zeros_like(w)
    one.step(0)
    for name, w in net.named_parameters():
        inner = name.startswith("blocks.") and optimizer == "muon"
        rate = 0.2 if inner else 0.1
        keep = 1 - rate * 0.5 if w.ndim == 2 else 1
        assert torch.allclose(w, before[name] * keep, rtol=1e-5, atol=1e-7)


def test_adamw_by_hand():
    """Bias-corrected moments in float64, betas 0.9 and 0.99, eps 1e-8."""
    net, config = network(), tiny(optimizer="adamw", lr=0.01, clip=0.0)
    one = Optimizer(net, config)
    w = net.head.weight
    x = w.detach().double().numpy().copy()
    m, v = np.zeros_like(x), np.zeros_like(x)
    rng = np.random.default_rng(0)
    for number in range(5):
        g = rng.normal(size=x.shape)
        for other in net.parameters():
            other.grad = torch.zeros_like(other)
        w.grad = torch.tensor(g, dtype=torch.float32)
        one.step(number)
        rate = 0.01 * [1 / 3, 2 / 3, 1, 1, 8 / 9][number]
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
        top = m / (1 - 0.9 ** (number + 1))
        root = np.sqrt(v / (1 - 0.99 ** (number + 1))) + 1e-8
        x = x * (1 - rate * 0.1) - rate * top / root
        assert np.allclose(w.detach().numpy(), x, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("ema", [0.0, 0.15, 0.9])
def test_the_moving_average(ema):
    """keep = min(ema, (1 + n) / (10 + n)), after each step, in float64."""
    run, history = trained(6, ema=ema)
    if ema == 0:
        assert run.optimizer.average is None
        return
    mean = [w.double() for w in history[0]]
    for number, now in enumerate(history[1:]):
        keep = min(ema, (1 + number) / (10 + number))
        mean = [
            keep * a + (1 - keep) * w.double()
            for a, w in zip(mean, now, strict=True)
        ]
    for got, wanted in zip(run.optimizer.average, mean, strict=True):
        assert torch.allclose(got.double(), wanted, rtol=1e-5, atol=1e-7)


def test_the_average_takes_the_place_of_the_weights():
    run, history = trained(3)
    mean = [w.clone() for w in run.optimizer.average]
    run.optimizer.swap_average()
    for w, wanted in zip(run.net.parameters(), mean, strict=True):
        assert torch.equal(w, wanted)
    run.optimizer.swap_average()
    for w, wanted in zip(run.net.parameters(), history[-1], strict=True):
        assert torch.equal(w, wanted)
    for w, wanted in zip(run.optimizer.average, mean, strict=True):
        assert torch.equal(w, wanted)


@pytest.mark.parametrize("clip", [0.0, 0.5, 100.0])
def test_clipping(clip):
    """Through plain SGD: the step is the gradient, scaled if above clip."""
    net = network()
    one = Optimizer(net, tiny(clip=clip, ema=0.0, warmup=0))
    one.parts = [torch.optim.SGD(net.parameters(), lr=1.0)]
    one.rates = [[1.0]]
    rng = np.random.default_rng(0)
    before = [w.detach().clone() for w in net.parameters()]
    grads = [
        torch.tensor(rng.normal(size=w.shape), dtype=torch.float32)
        for w in net.parameters()
    ]
    for w, g in zip(net.parameters(), grads, strict=True):
        w.grad = g.clone()
    size = float(sum((g.double() ** 2).sum() for g in grads) ** 0.5)
    assert float(one.step(0)) == pytest.approx(size, rel=1e-5)
    scale = min(1, clip / size) if clip else 1
    for w, old, g in zip(net.parameters(), before, grads, strict=True):
        assert torch.allclose(w, old - scale * g, rtol=1e-4, atol=1e-6)
        assert w.grad is None


def test_clipped_steps_are_counted():
    none, _ = trained(4, clip=0.0)
    few, _ = trained(4, clip=1e9)
    every, _ = trained(4, clip=1e-9)
    assert (none.clipped, few.clipped, every.clipped) == (0, 0, 4)


def test_the_untrained_network_is_the_seeds():
    one, same, other = (build(tiny(seed=s), V) for s in (1, 1, 2))
    assert torch.equal(one.embedding.weight, same.embedding.weight)
    assert not torch.equal(one.embedding.weight, other.embedding.weight)
