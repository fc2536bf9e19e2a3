"""Two processes on one batch, started by torchrun, against one."""

import json
import subprocess

import pytest
import torch

from ddp_gradient import one_step
from toyml.train import checkpoint, data
from toyml.train.__main__ import main
from toyml.train.errors import RunError
from toyml.train.ranks import Ranks
from toyml.train.run import Run
from train_cases import ROOT, command, flags, tiny

ALONE = Ranks(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two ranks: a gradient each, then a whole run by the command."""
    folder = tmp_path_factory.mktemp("ranks")
    words, environment = command(
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(ROOT / "tests" / "ddp_gradient.py"),
        str(folder),
        *flags(folder / "run", steps=3, evaluate_every=1),
    )
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" nats per token ") == 1
    return folder


def test_the_gradient_of_two_ranks(folder):
    loss, slopes = one_step(tiny(), ALONE)
    for rank in range(2):
        total, mine = torch.load(folder / f"rank{rank}.pt")
        assert total.item() == pytest.approx(loss.item(), rel=1e-6)
        for got, wanted in zip(mine, slopes, strict=True):
            assert wanted.abs().max() > 0
            error = (got - wanted).abs().max()
            assert error < 1e-5 * wanted.abs().max() + 1e-8
    other = torch.load(folder / "rank0.pt")[1]
    assert all(torch.equal(a, b) for a, b in zip(other, mine, strict=True))


def test_the_run_of_two_ranks(folder):
    """Same losses, norms, draws; weights to what Adam makes of rounding."""
    config = tiny(steps=3, evaluate_every=1)
    alone = Run(config, data.load(config))
    alone.train()
    state = checkpoint.load(folder / "run")
    assert [row["step"] for row in state["metrics"]] == [1, 2, 3]
    for got, wanted in zip(state["metrics"], alone.metrics, strict=True):
        assert got == pytest.approx(wanted, rel=1e-4)
    assert state["numpy"] == checkpoint.numpy_state(alone.rng)
    for name, wanted in alone.net.state_dict().items():
        error = (state["net"][name] - wanted).abs().max()
        assert error < 0.01 * wanted.abs().max()
    files = {path.name for path in (folder / "run").iterdir()}
    assert {"report.json", "report.md", "curve.png"} <= files
    report = json.loads((folder / "run" / "report.json").read_text())
    assert report["tokens"] == 3 * 8 * 6


def test_two_ranks_resumed_by_one(folder, tmp_path, capsys):
    """A finished run is evaluated, and its checkpoint is anyone's."""
    run = Run.resume(folder / "run")
    assert run.step == 3 and run.ranks.world == 1


def test_a_batch_that_the_ranks_do_not_divide(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(RunError, match="^batch = 8: expected a multiple"):
        Ranks.start(tiny())
    assert main(flags(tmp_path / "run")) == 2
    err = capsys.readouterr().err
    assert err == (
        "toyml.train: batch = 8: expected a multiple of the 3 processes\n"
    )
    assert not (tmp_path / "run").exists()
