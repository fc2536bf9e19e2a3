"""What a run leaves behind: reports, the curve and samples."""

import json
import math
import os
import platform
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from .. import figures
from ..model import as_denoiser
from . import evaluate
from .checkpoint import whole
from .run import build
from .samples import samples

SEED = 3
EXACT_SEQUENCES, GAP_SEQUENCES, PREFIX_SEQUENCES = 16, 4096, 512


def measure(run, draws=4):
    """The numbers of a report, as a dict; the averaged weights are measured.

    loss_per_token with its standard error and estimator; where the source is
    known entropy_per_token, gap_per_token and baselines, the gaps of the
    uniform, unigram and untrained models; for L <= 12 the exact part.
    """
    with run.optimizer.averaged():
        return _measure(run, draws)


def _measure(run, draws):
    net, data = run.net, run.data
    causal = net.attention == "causal"
    found = evaluate.loss(net, data.validation, fresh(), draws)
    out = {
        "loss_per_token": found.mean,
        "standard_error": found.error,
        "bits_per_token": found.mean / math.log(2),
        "sequences": found.n,
        "estimator": (
            "exact autoregressive loss"
            if causal
            else f"NELBO, uniform count, {draws} masks a sequence"
        ),
    }
    if data.source is None:
        return out
    length = data.source.length
    entropy = data.source.entropy() / length
    some = data.validation[: PREFIX_SEQUENCES if causal else GAP_SEQUENCES]
    paired = evaluate.gap(
        as_denoiser(net), data.source, some, fresh(), causal
    )
    out |= {
        "entropy_per_token": entropy,
        "gap_per_token": paired.mean,
        "gap_standard_error": paired.error,
        "baselines": evaluate.baselines(
            data, some, SEED, build(run.config, data.vocab_size)
        ),
    }
    if length <= evaluate.EXACT_LENGTH and not causal:
        out["exact"] = evaluate.exact(
            as_denoiser(net),
            data.validation[:EXACT_SEQUENCES],
            data.vocab_size,
            data.source,
        )
    return out


def fresh():
    """The generator from which every measurement starts."""
    return np.random.default_rng(SEED)


def report(run, measured):
    """All of ``report.json``: what was measured, of what, on what."""
    config = run.config
    tokens = run.step * config.batch * config.length
    return {
        **measured,
        "preset": config.preset,
        "data": config.data,
        "objective": config.objective,
        "seed": config.seed,
        "parameters": sum(w.numel() for w in run.net.parameters()),
        "steps": run.step,
        "planned_steps": config.steps,
        "tokens": tokens,
        "training_seconds": run.seconds,
        "tokens_per_second": tokens / run.seconds if run.seconds else 0.0,
        "steps_clipped": run.clipped,
        "machine": machine(run.ranks.device),
        "commit": commit(),
    }


def machine(device):
    """Processor, cores and threads in use, GPU if any, and versions."""
    out = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
    if device.type == "cuda":
        out["gpu"] = torch.cuda.get_device_name(device)
    return out


def processor():
    """The name of the processor, or of its architecture."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit():
    """The commit of the code, with "+" where it was changed since."""
    folder = Path(__file__).parent
    git = ["git", "-C", str(folder)]
    try:
        head = _output([*git, "rev-parse", "--short", "HEAD"])
        changed = _output([*git, "status", "--porcelain", "--", "."])
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + ("+" if changed else "")


def _output(command):
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


def write(run, measured):
    """Write the reports, the curve and the samples; returns the report."""
    out = report(run, measured)
    config = run.config
    if config.samples:
        with run.optimizer.averaged():
            text = samples(run.net, run.data, config.length, config.samples)
        with whole(run.folder / "samples.txt") as part:
            part.write_text(text, encoding="utf-8")
    with whole(run.folder / "report.json") as part:
        part.write_text(json.dumps(out, indent=2) + "\n")
    with whole(run.folder / "report.md") as part:
        part.write_text(markdown(out))
    with whole(run.folder / "curve.png") as part:
        curve(run.metrics, out.get("entropy_per_token"), part)
    return out


def markdown(out):
    """The report as a table of two columns."""
    rows = ["| what | value |", "|---|---|"]
    for name, value in out.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {_short(v)}" for k, v in value.items())
        rows.append(f"| {name.replace('_', ' ')} | {_short(value)} |")
    rows.append("")
    rows.append("Losses, entropies and gaps in nats; all tokens counted.")
    return "\n".join(rows) + "\n"


def _short(value):
    return f"{value:.5g}" if isinstance(value, float) else value


def curve(metrics, entropy, path):
    """The validation loss by step over that of each batch, as a PNG."""
    with plt.rc_context(figures.STYLE | {"savefig.facecolor": "white"}):
        fig, ax = plt.subplots()
        step = [row["step"] for row in metrics]
        loss = [row["loss"] for row in metrics]
        ax.plot(step, loss, color=figures.INK, lw=0.6, label="one batch")
        looks = [row for row in metrics if "validation" in row]
        step = [row["step"] for row in looks]
        loss = [row["validation"] for row in looks]
        figures.line(ax, step, loss, "nelbo", "validation")
        if entropy is not None:
            ax.axhline(entropy, ls="--", color="black", label="entropy")
        ax.set(xlabel="step", ylabel="nats per token")
        ax.legend()
        fig.savefig(path, format="png")
        plt.close(fig)
