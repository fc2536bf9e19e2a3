"""``python -m toyml.train``: train, resume or evaluate a run."""

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from tqdm import tqdm

from . import report
from .config import CHOICES, PRESETS, Config, preset
from .errors import RunError
from .ranks import Ranks
from .run import Run

HELP = {
    "data": "markov, sudoku4, shakespeare, stdlib or the path of a text",
    "objective": "autoregressive trains the causal twin",
    "batch": "sequences a step, over all processes",
    "fixed_sequences": "train on this many sequences only; 0: fresh ones",
}


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message):
        self.exit(2, f"toyml.train: {message}\n")


def main(arguments=None):
    """Run the command; returns the exit code: 2 for what the user can mend."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["evaluate"]:
        options = evaluate_parser().parse_args(arguments[1:])
    else:
        options = parser().parse_args(arguments)
    try:
        return options.call(options)
    except RunError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename or options.out}: {error.strerror}"
    except KeyboardInterrupt:
        print("toyml.train: interrupted", file=sys.stderr)
        return 130
    print(f"toyml.train: {message}", file=sys.stderr)
    return 2


def parser():
    top = Parser(
        prog="python -m toyml.train",
        description="Train a masked-diffusion model, or its twin.",
        epilog="python -m toyml.train evaluate RUN measures a finished run.",
    )
    names = ", ".join(PRESETS)
    top.add_argument("--preset", help=f"{names}; markov by default")
    for field in fields(Config):
        if field.name != "preset":
            top.add_argument(
                "--" + field.name.replace("_", "-"),
                type=field.type,
                help=HELP.get(
                    field.name, ", ".join(CHOICES.get(field.name, ()))
                ),
            )
    top.add_argument("--out", help="a new folder; runs/PRESET by default")
    top.add_argument(
        "--resume", action="store_true", help="go on from its checkpoint"
    )
    top.add_argument("--quiet", action="store_true", help="no progress bar")
    top.set_defaults(call=train)
    return top


def evaluate_parser():
    one = Parser(
        prog="python -m toyml.train evaluate",
        description="Measure the network of a run and write its report.",
    )
    one.add_argument("out", help="the folder of the run")
    one.add_argument(
        "--draws", type=int, default=4, help="masks for each sequence"
    )
    one.add_argument(
        "--device",
        choices=CHOICES["device"],
        help="that of the run by default",
    )
    one.set_defaults(call=evaluate)
    return one


def train(options):
    """Begin or resume a run, train it, and leave its report."""
    changes = {
        field.name: getattr(options, field.name)
        for field in fields(Config)
        if field.name != "preset" and getattr(options, field.name) is not None
    }
    name = options.preset or "markov"
    options.out = Path(options.out or f"runs/{name}")
    try:
        if options.resume:
            if options.preset:
                changes["preset"] = name
            run = Run.resume(options.out, **changes)
        else:
            config = preset(name, **changes)
            run = Run.begin(config, options.out, Ranks.start(config))
        ranks = run.ranks
        if not advance(run, quiet=options.quiet or not ranks.is_first):
            say(ranks, f"stopped at step {run.step}; go on with --resume")
            return 130
        if ranks.is_first:
            finish(run)
    finally:
        Ranks.close()
    return 0


def advance(run, quiet):
    """Train with a progress bar; False if it was stopped."""
    per_step = run.config.batch * run.config.length
    with tqdm(
        total=run.config.steps,
        initial=run.step,
        unit="step",
        disable=quiet,
    ) as bar:

        def show(run):
            bar.update()
            if run.metrics and run.step % 10 == 0:
                rate = bar.format_dict["rate"] or 0
                bar.set_postfix_str(
                    f"loss {run.metrics[-1]['loss']:.3f}, "
                    f"{rate * per_step:,.0f} tokens/s",
                    refresh=False,
                )

        return run.train(show)


def finish(run, draws=4):
    """Measure the run, write its report, print the main lines."""
    out = report.write(run, report.measure(run, draws))
    print(
        f"{run.folder}: {out['loss_per_token']:.4f} +- "
        f"{out['standard_error']:.4f} nats per token "
        f"({out['bits_per_token']:.4f} bits), {out['estimator']}"
    )
    if "gap_per_token" in out:
        base = ", ".join(f"{k} {v:.3f}" for k, v in out["baselines"].items())
        print(
            f"entropy {out['entropy_per_token']:.4f}; gap "
            f"{out['gap_per_token']:.4f} +- {out['gap_standard_error']:.4f} "
            f"({base})"
        )
    if "exact" in out:
        exact = out["exact"]
        print(
            f"exact, {exact['sequences']} sequences: NELBO "
            f"{exact['nelbo']:.4f}, NLL {exact['nll']:.4f}, source "
            f"{exact['nll_source']:.4f}"
        )


def evaluate(options):
    if options.draws < 1:
        raise RunError(f"draws = {options.draws}: expected at least 1")
    finish(Run.resume(options.out, move_to=options.device), options.draws)
    return 0


def say(ranks, text):
    if ranks.is_first:
        print(text, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
