"""A run from its first step to its report; stops, spoilt files, full disks."""

import errno
import json
import math
import os
import pickle
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from toyml.train import checkpoint, data, evaluate, report
from toyml.train.__main__ import main
from toyml.train.config import Config
from toyml.train.errors import RunError
from toyml.train.run import Run
from toyml.train.samples import samples
from train_cases import command, flags, network, same, tiny

SEED = 3  # of the report's masks
WAIT = 300  # seconds for another process, on a machine that is busy


def state_of(run):
    """All that a step depends on, and what it left."""
    return {
        "step": run.step,
        "metrics": run.metrics,
        "clipped": run.clipped,
        "net": {k: v.clone() for k, v in run.net.state_dict().items()},
        "optimizer": run.optimizer.state(),
        "numpy": run.rng.bit_generator.state,
    }


def bytes_of(folder):
    """What lies in a folder, and since when."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(Path(folder).iterdir())
    }


def refused(capsys, *words):
    assert main(list(map(str, words))) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    head, _, message = err.partition(": ")
    assert head == "toyml.train"
    return message.rstrip()


# Resuming.


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "muon"},
        {"optimizer": "adamw", "objective": "path"},
        {"optimizer": "muon", "ema": 0.0, "fixed_sequences": 20},
        {"objective": "autoregressive", "attention": "causal"},
    ],
    ids=["muon", "adamw", "fixed", "twin"],
)
def test_a_stopped_run_goes_on_bitwise(changes, tmp_path):
    config = tiny(**changes)
    straight = Run.begin(config, tmp_path / "straight")
    assert straight.train()
    stopped = Run.begin(config, tmp_path / "stopped")
    assert stopped.train(until=4)
    torch.manual_seed(99)  # another process has other state
    middle = Run.resume(tmp_path / "stopped")
    assert same(state_of(middle), state_of(stopped))
    middle.train(until=7)  # past the checkpoint at 5
    last = Run.resume(tmp_path / "stopped")
    assert last.step == 7
    last.train()
    assert last.step == 12 and same(state_of(last), state_of(straight))
    a, b = (checkpoint.load(tmp_path / n) for n in ("straight", "stopped"))
    assert a.pop("seconds") > 0 and b.pop("seconds") > 0
    assert same(a, b)
    lines = (tmp_path / "stopped" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == straight.metrics


def test_looking_changes_nothing():
    """The validation of the average leaves no trace in the training."""
    runs = []
    for every in (1, 100):
        config = tiny(evaluate_every=every)
        runs.append(Run(config, data.load(config)))
        runs[-1].train()
    a, b = map(state_of, runs)
    a.pop("metrics"), b.pop("metrics")
    assert same(a, b)


def test_metrics():
    config = tiny(steps=22, evaluate_every=8, objective="unweighted")
    run = Run(config, data.load(config))
    steps = []
    run.train(lambda run: steps.append(run.step))
    assert steps == list(range(1, 23))
    assert [row["step"] for row in run.metrics] == [8, 10, 16, 20, 22]
    looked = [row["step"] for row in run.metrics if "validation" in row]
    assert looked == [8, 16, 22]
    assert [row["rate"] for row in run.metrics] == pytest.approx(
        [(22 - n) / 19 for n in (7, 9, 15, 19, 21)]
    )
    run.optimizer.swap_average()
    rng = np.random.default_rng(2)
    got = evaluate.loss(run.net, run.data.validation[:512], rng).mean
    assert run.metrics[-1]["validation"] == got


def test_it_learns():
    """150 steps take the bound far below the unigram's, towards the truth."""
    config = tiny(
        steps=150,
        batch=64,
        warmup=10,
        lr=0.01,
        matrix_lr=0.03,
        evaluate_every=150,
    )
    loaded = data.load(config)
    run = Run(config, loaded)
    run.train()
    start = evaluate.loss(
        Run(config, loaded).net, loaded.validation, np.random.default_rng(0)
    )
    assert start.mean == pytest.approx(math.log(8), rel=1e-6)
    p = loaded.source.initial
    unigram = -(p @ np.log(p))
    entropy = loaded.source.entropy() / 6
    got = run.metrics[-1]["validation"]
    assert entropy - 0.05 < got < unigram - 0.5 * (unigram - entropy)


# The report.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run by the command, resumed in the middle, and what it printed."""
    out = tmp_path_factory.mktemp("runs") / "one"
    config = tiny()
    run = Run.begin(config, out)
    run.train(until=5)
    assert main(["--resume", "--quiet", "--out", str(out)]) == 0
    return out


def test_what_a_run_leaves(finished):
    assert sorted(path.name for path in finished.iterdir()) == [
        "checkpoint.pt",
        "config.json",
        "curve.png",
        "metrics.jsonl",
        "report.json",
        "report.md",
        "samples.txt",
    ]
    config = Config.from_json((finished / "config.json").read_text())
    assert config == tiny()
    assert (finished / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    state = torch.load(finished / "checkpoint.pt", weights_only=True)
    assert state["step"] == 12 and state["vocabulary"] == list("01234567")


def test_the_report(finished):
    out = json.loads((finished / "report.json").read_text())
    run = Run.resume(finished)
    x0, source = run.data.validation, run.data.source
    run.optimizer.swap_average()  # the averaged weights are measured
    found = evaluate.loss(run.net, x0, np.random.default_rng(SEED), 4)
    assert out["loss_per_token"] == pytest.approx(found.mean, rel=1e-6)
    assert out["standard_error"] == pytest.approx(found.error, rel=1e-6)
    bits = out["loss_per_token"] / math.log(2)
    assert out["bits_per_token"] == pytest.approx(bits)
    assert out["entropy_per_token"] == pytest.approx(source.entropy() / 6)
    assert 0 < out["gap_per_token"] < out["baselines"]["uniform"]
    apart = out["loss_per_token"] - out["entropy_per_token"]
    assert abs(out["gap_per_token"] - apart) < 5 * out["standard_error"]
    assert out["baselines"]["untrained"] == pytest.approx(
        out["baselines"]["uniform"], rel=1e-5
    )
    exact = out["exact"]
    assert exact["nelbo"] >= exact["nll"] and len(exact["kl_by_count"]) == 6
    for name, wanted in {
        "sequences": 4096,
        "preset": "markov",
        "data": "markov",
        "objective": "uniform_count",
        "seed": 0,
        "parameters": 17 * 16 + 16 + 12 * 16**2 + 32,
        "steps": 12,
        "planned_steps": 12,
        "tokens": 12 * 8 * 6,
    }.items():
        assert out[name] == wanted
    assert out["tokens_per_second"] == pytest.approx(
        576 / out["training_seconds"]
    )
    assert {"machine", "commit", "estimator", "steps_clipped"} <= set(out)
    assert out["machine"]["torch"] == torch.__version__
    assert out["machine"]["threads"] == torch.get_num_threads()


def test_the_report_as_a_table(finished):
    out = json.loads((finished / "report.json").read_text())
    rows = dict(
        line.strip("| ").split(" | ", 1)
        for line in (finished / "report.md").read_text().splitlines()
        if line.startswith("| ")
    )
    assert rows["loss per token"] == f"{out['loss_per_token']:.5g}"
    assert rows["gap per token"] == f"{out['gap_per_token']:.5g}"
    assert rows["parameters"] == str(out["parameters"])
    assert f"torch {torch.__version__}" in rows["machine"]
    missing = {name.replace("_", " ") for name in out} - set(rows)
    assert not missing


def test_evaluating_again(finished, capsys):
    before = bytes_of(finished)
    assert main(["evaluate", str(finished), "--draws", "2"]) == 0
    printed = capsys.readouterr().out
    out = json.loads((finished / "report.json").read_text())
    old = json.loads(before["report.json"][0])
    assert f"{out['loss_per_token']:.4f} +- {out['standard_error']:.4f}" in (
        printed
    )
    assert "2 masks a sequence" in out["estimator"]
    assert out["standard_error"] > old["standard_error"]
    assert out["exact"] == old["exact"]
    assert bytes_of(finished)["checkpoint.pt"] == before["checkpoint.pt"]
    assert main(["evaluate", str(finished), "--draws", "4"]) == 0
    again = json.loads((finished / "report.json").read_text())
    assert again == old
    capsys.readouterr()
    message = refused(capsys, "evaluate", finished, "--draws", 0)
    assert message == "draws = 0: expected at least 1"
    message = refused(capsys, "evaluate", finished / "none")
    assert message.endswith("no such file; expected a checkpoint there")


def test_a_text_and_its_twin(tmp_path, capsys):
    """No entropy is known: no gap. The twin's loss is exact."""
    path = tmp_path / "text.txt"
    path.write_text("so much depends upon a red wheel barrow " * 30)
    for objective, attention, estimator in (
        ("pooled_mean", "bidirectional", "NELBO, uniform count, 4 masks a"),
        ("autoregressive", "causal", "exact autoregressive loss"),
    ):
        out = tmp_path / objective
        words = flags(
            out, data=path, objective=objective, attention=attention, seed=5
        )
        assert main(words) == 0
        found = json.loads((out / "report.json").read_text())
        assert found["estimator"].startswith(estimator)
        assert found["sequences"] == 120 // 6 and found["seed"] == 5
        assert "gap_per_token" not in found and "exact" not in found
        assert len(capsys.readouterr().out.splitlines()) == 1
        assert main(["evaluate", str(out)]) == 0
        capsys.readouterr()


def test_progress(tmp_path, capsys):
    """The bar shows the loss and the speed, and nothing goes to stdout."""
    out = tmp_path / "run"
    words = [word for word in flags(out) if word != "--quiet"]
    assert main(words) == 0
    written, err = capsys.readouterr()
    assert "12/12" in err and "loss 2." in err and "tokens/s" in err
    assert "\r" not in written and str(out) in written


def test_the_samples_are_those_of_the_averaged_weights(saved):
    run = Run.resume(saved)
    other = network(8, layers=1)
    for mine, far in zip(
        run.optimizer.average, other.parameters(), strict=True
    ):
        mine.copy_(far.detach())
    before = state_of(run)
    report.write(run, {})
    text = (saved / "samples.txt").read_text()
    assert text == samples(other, run.data, 6, 4)
    assert text != samples(run.net, run.data, 6, 4)
    assert text.count("--- ") == 2 * 4 and same(state_of(run), before)


# Folders and checkpoints that cannot serve.


def test_a_folder_in_use_is_left_alone(tmp_path, capsys):
    out = tmp_path / "run"
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    before = bytes_of(out)
    message = refused(capsys, *flags(out))
    assert message.startswith(f"out = {out}: the folder is not empty")
    assert bytes_of(out) == before
    message = refused(capsys, *flags(out / "thesis.tex"))
    assert str(out / "thesis.tex") in message
    message = refused(capsys, *flags(out), "--resume")
    assert message.endswith("expected a checkpoint there")
    assert bytes_of(out) == before


@pytest.fixture
def saved(tmp_path):
    """The folder of a run that was stopped after 4 steps."""
    out = tmp_path / "saved"
    Run.begin(tiny(), out).train(until=4)
    return out


def test_an_empty_folder_will_do(tmp_path):
    (tmp_path / "run").mkdir()
    assert Run.begin(tiny(), tmp_path / "run").step == 0


class Trap:
    """Unpickling it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def spoils(folder):
    """Bytes that are no checkpoint."""
    whole = (folder / "checkpoint.pt").read_bytes()
    yield whole[: len(whole) // 2]
    yield whole[:-1]
    yield b""
    yield b"no zip file" * 99
    middle = len(whole) // 2
    yield whole[: middle - 200] + bytes(400) + whole[middle + 200 :]
    yield pickle.dumps(Trap(folder.parent / "trap"))
    other = folder.parent / "other.pt"
    for content in ({"net": Trap(folder.parent / "trap")}, 3, [], None):
        torch.save(content, other)
        yield other.read_bytes()


def test_broken_checkpoints(saved, capsys, monkeypatch):
    path = saved / "checkpoint.pt"
    for content in spoils(saved):
        path.write_bytes(content)
        before = bytes_of(saved)
        for words in (
            ["--resume", "--quiet", "--out", saved],
            ["evaluate", saved],
        ):
            message = refused(capsys, *words)
            assert message.startswith(f"{path}: no")
            assert bytes_of(saved) == before
    assert not (saved.parent / "trap").exists()


def test_checkpoints_that_miss_a_part(saved, capsys):
    state = checkpoint.load(saved)
    for name in state:
        left = {k: v for k, v in state.items() if k != name}
        torch.save(left, saved / "checkpoint.pt")
        message = refused(capsys, "evaluate", saved)
        assert f"no {name} in it" in message


def test_checkpoints_with_odd_parts(saved, capsys):
    state = checkpoint.load(saved)
    wide = Run(tiny(width=32), data.load(tiny())).net.state_dict()
    values = json.loads(state["config"])
    for changes in (
        {"config": "{"},
        {"config": json.dumps(values | {"colour": "red"})},
        {"config": json.dumps(values | {"layers": 0})},
        {"net": wide},
        {"net": {}},
        {"optimizer": {}},
        {"optimizer": state["optimizer"] | {"parts": []}},
        {"numpy": "{}"},
        {"torch": torch.zeros(3)},
        {"vocabulary": list("abc")},
    ):
        checkpoint.save(saved, state | changes)
        message = refused(capsys, "evaluate", saved)
        words = ("checkpoint", "config", "layers = 0")
        assert any(word in message for word in words)


def test_resuming_with_other_choices(saved, capsys):
    before = bytes_of(saved)
    for name, value, had in [
        ("lr", 0.5, 0.003),
        ("batch", 16, 8),
        ("objective", "'unweighted'", "'uniform_count'"),
        ("preset", "'text-cpu'", "'markov'"),
    ]:
        words = ["--resume", "--out", saved, f"--{name}"]
        message = refused(capsys, *words, str(value).strip("'"))
        assert message == (
            f"{name} = {value}: the checkpoint in {saved} has {had}; "
            "expected the same"
        )
    assert bytes_of(saved) == before
    words = [*flags(saved), "--resume"]  # the same choices, spelt out
    assert main(words) == 0


def test_a_vocabulary_that_differs(tmp_path, capsys):
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text("abcde" * 40)
    Run.begin(tiny(data=str(path)), out).train(until=3)
    path.write_text("abcdef" * 40)
    before = bytes_of(out)
    message = refused(capsys, "--resume", "--out", out)
    assert message == (
        f"data = {str(path)!r}: its vocabulary of 6 tokens is not the "
        "checkpoint's of 5; expected the same"
    )
    path.write_text("vwxyz" * 40)  # as many, but others
    assert "vocabulary" in refused(capsys, "evaluate", out)
    assert bytes_of(out) == before


def test_the_device_is_that_of_the_checkpoint(tmp_path, monkeypatch, capsys):
    """A run begun with --device cpu goes on there without being told."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path, out = tmp_path / "text.txt", tmp_path / "run"
    path.write_text("abcde" * 40)
    config = tiny(preset="text-gpu", data=str(path), device="cpu")
    Run.begin(config, out).train(until=3)
    assert main(["--resume", "--quiet", "--out", str(out)]) == 0
    words = ["--resume", "--quiet", "--preset", "text-gpu", "--out"]
    assert main([*words, str(out)]) == 0
    capsys.readouterr()


# Numbers that are not finite.


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("every", [4, 7])
def test_a_run_that_diverges(tmp_path, capsys, optimizer, every):
    out = tmp_path / "run"
    words = flags(
        out,
        optimizer=optimizer,
        lr=1e30,
        matrix_lr=1e30,
        checkpoint_every=every,
        steps=40,
        warmup=0,
        evaluate_every=40,
    )
    message = refused(capsys, *words)
    assert message.startswith("step ") and "try a lower lr" in message
    state = checkpoint.load(out)
    assert all(w.isfinite().all() for w in state["net"].values())
    assert not (out / "report.json").exists()
    assert not list(out.glob("*.part"))


# A full disk.


def test_a_full_disk_keeps_the_checkpoint(saved, capsys, monkeypatch):
    """Half of the bytes arrive, then there is no space."""
    before = checkpoint.load(saved)
    real = Path.write_bytes

    def full(path, content):
        if path.name.startswith("checkpoint.pt"):
            real(path, bytes(content)[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    message = refused(capsys, "--resume", "--quiet", "--out", saved)
    assert message == f"{saved}: No space left on device"
    assert same(checkpoint.load(saved), before) and before["step"] == 4
    assert not list(saved.glob("*.part"))
    monkeypatch.undo()
    assert main(["--resume", "--quiet", "--out", str(saved)]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux alone")
def test_a_device_without_space(saved, capsys):
    """The kernel itself says no to the second file."""
    before = checkpoint.load(saved)
    (saved / "checkpoint.pt.part").symlink_to("/dev/full")
    message = refused(capsys, "--resume", "--quiet", "--out", saved)
    assert message == f"{saved}: No space left on device"
    assert same(checkpoint.load(saved), before)
    assert not (saved / "checkpoint.pt.part").is_symlink()


def test_a_limit_on_the_size_of_files(saved, capsys):
    """Some bytes are written, the rest are not: EFBIG."""
    resource = pytest.importorskip("resource")
    before = checkpoint.load(saved)
    size = (saved / "checkpoint.pt").stat().st_size
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, old[1]))
    try:
        code = main(["--resume", "--quiet", "--out", str(saved)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert code == 2
    assert capsys.readouterr().err == (
        f"toyml.train: {saved}: File too large\n"
    )
    assert same(checkpoint.load(saved), before)
    assert not list(saved.glob("*.part"))


def test_a_failure_anywhere_in_a_save(saved, monkeypatch):
    """Each call to the system fails once: the old or the new, nothing else."""
    run = Run.resume(saved)
    old = checkpoint.load(saved)
    run.step = 77
    for name in ("fsync", "replace"):

        def fail(*_):
            raise OSError(errno.EIO, "broken")

        monkeypatch.setattr(os, name, fail)
        with pytest.raises(OSError, match="broken"):
            run.save()
        monkeypatch.undo()
        assert same(checkpoint.load(saved), old)
        assert not list(saved.glob("*.part"))
    run.save()
    assert checkpoint.load(saved)["step"] == 77


# Signals, in real processes.


def started(out, **changes):
    """A long run in a process of its own, once it has saved some metrics."""
    words, environment = command(
        "toyml.train", *flags(out, steps=100_000, **changes)
    )
    process = subprocess.Popen(
        words, env=environment, stderr=subprocess.PIPE, text=True
    )
    metrics = out / "metrics.jsonl"
    patience = time.monotonic() + WAIT
    while time.monotonic() < patience:
        if metrics.exists() and metrics.stat().st_size:
            return process
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"no metrics after {WAIT} s")


def check_resumed(out, step):
    """Thirty steps more, as a run in this process that never stopped."""
    resumed = Run.resume(out)
    assert resumed.step == step
    resumed.train(until=step + 30)
    straight = Run(resumed.config, data.load(resumed.config))
    straight.train(until=step + 30)
    assert same(state_of(resumed), state_of(straight))


def test_sigint(tmp_path):
    out = tmp_path / "run"
    process = started(out, checkpoint_every=10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    step = checkpoint.load(out)["step"]
    assert err == f"stopped at step {step}; go on with --resume\n"
    assert not list(out.glob("*.part"))
    check_resumed(out, step)


def test_sigkill(tmp_path):
    """With a checkpoint at each step, it often falls into the middle."""
    out = tmp_path / "run"
    process = started(out, checkpoint_every=1, evaluate_every=5)
    process.kill()
    process.communicate(timeout=WAIT)
    assert process.returncode == -signal.SIGKILL
    check_resumed(out, checkpoint.load(out)["step"])


def test_signals_in_this_process(tmp_path):
    """SIGTERM too: the step at hand is finished and saved."""
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    for number in (signal.SIGINT, signal.SIGTERM):
        out = tmp_path / str(int(number))
        run = Run.begin(tiny(), out)

        def stop(run, number=number):
            if run.step == 3:
                os.kill(os.getpid(), number)

        assert not run.train(stop)
        assert checkpoint.load(out)["step"] == 3
    again = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    assert again == handlers


def test_an_error_in_a_step_reaches_the_caller(saved):
    run = Run.resume(saved)
    with pytest.raises(RunError, match="^from outside"):

        def show(run):
            raise RunError("from outside")

        run.train(show)
    assert checkpoint.load(saved)["step"] in (4, 5)
