"""The loop: train, look, save, and stop when told to."""

import json
import math
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..model import Transformer
from . import checkpoint
from .config import Config
from .data import load as load_data
from .errors import RunError
from .evaluate import loss as validation_loss
from .objective import objective_at
from .optimizer import Optimizer
from .ranks import Ranks
from .step import backward, draw

CONFIG, METRICS = "config.json", "metrics.jsonl"
LOG_EVERY = 10
LOOK_SIZE, LOOK_SEED = 512, 2


def build(config, vocab_size):
    """The untrained network of a configuration, the same for one seed."""
    torch.manual_seed(config.seed)
    return Transformer(
        vocab_size,
        config.layers,
        config.width,
        config.heads,
        config.attention,
    )


class Run:
    """A training run in a folder; ``folder=None`` leaves nothing behind.

    ``begin`` and ``resume`` make one, ``train`` moves it to its last step,
    ``net`` is the network and ``step`` the number of steps behind. ``metrics``
    lists what was recorded: dicts with step, loss (nats per token, of the
    objective), norm (of the gradient, before clipping), rate, and at some
    steps validation (nats per token, of the averaged weights).
    """

    def __init__(self, config, data, folder=None, ranks=None):
        self.config = config
        self.data = data
        self.folder = None if folder is None else Path(folder)
        self.ranks = ranks or Ranks.start(config)
        self.net = build(config, data.vocab_size).to(self.ranks.device)
        self.optimizer = Optimizer(self.net, config)
        self.rng = np.random.default_rng(config.seed)
        self.step = 0
        self.seconds = 0.0
        self.clipped = 0
        self.metrics = []
        self.stopping = False

    @classmethod
    def begin(cls, config, folder, ranks=None):
        """A new run in a new folder, with its first checkpoint."""
        data = load_data(config)
        run = cls(config, data, folder, ranks)
        if run.ranks.is_first:
            if run.folder.exists() and any(run.folder.iterdir()):
                raise RunError(
                    f"out = {folder}: the folder is not empty; expected a new "
                    "one, or --resume"
                )
            run.folder.mkdir(parents=True, exist_ok=True)
            (run.folder / CONFIG).write_text(config.to_json())
            run.save()
        return run

    @classmethod
    def resume(cls, folder, ranks=None, move_to=None, **changes):
        """The run in a folder, at its last checkpoint.

        changes: choices that the caller asks for; RunError for one that is
        not the checkpoint's, and for data with another vocabulary. move_to:
        another device, to measure a run where it was not trained.
        """
        state = checkpoint.load(folder)
        config = Config.from_json(state["config"])
        for name, value in changes.items():
            if getattr(config, name) != value:
                raise RunError(
                    f"{name} = {value!r}: the checkpoint in {folder} has "
                    f"{getattr(config, name)!r}; expected the same"
                )
        if move_to is not None:
            config = replace(config, device=move_to)
        data = load_data(config)
        check_vocabulary(data, state, config)
        run = cls(config, data, folder, ranks)
        try:
            run._restore(state)
        except Exception as error:
            raise RunError(
                f"{folder}: the parts of its checkpoint do not fit together "
                f"({type(error).__name__})"
            ) from None
        return run

    def _restore(self, state):
        self.net.load_state_dict(state["net"])
        self.optimizer.load(state["optimizer"])
        checkpoint.set_numpy_state(self.rng, state["numpy"])
        torch.set_rng_state(state["torch"].cpu())
        self.step, self.seconds = state["step"], state["seconds"]
        self.clipped, self.metrics = state["clipped"], state["metrics"]

    def save(self):
        """Write a checkpoint and the metrics up to it.

        Raises RunError where the weights are not finite any more.
        """
        if not all(w.isfinite().all() for w in self.net.parameters()):
            raise RunError(
                f"step {self.step}: weights that are not finite. The last "
                "checkpoint is from before; try a lower lr"
            )
        checkpoint.save(
            self.folder,
            {
                "config": self.config.to_json(),
                "vocabulary": self.data.vocabulary,
                "step": self.step,
                "seconds": self.seconds,
                "clipped": self.clipped,
                "metrics": self.metrics,
                "net": self.net.state_dict(),
                "optimizer": self.optimizer.state(),
                "numpy": checkpoint.numpy_state(self.rng),
                "torch": torch.get_rng_state(),
            },
        )
        lines = [json.dumps(row) + "\n" for row in self.metrics]
        (self.folder / METRICS).write_text("".join(lines))

    def train(self, show=lambda run: None, until=None):
        """Train to the last step, or to step ``until``; True if it got there.

        show is called after each step. SIGINT and SIGTERM stop the run after
        the step at hand, with a checkpoint.
        """
        config, last = self.config, until or self.config.steps
        net = self.ranks.wrap(self._compiled())
        with self._signals():
            start = time.perf_counter()
            while self.step < last and not self.ranks.any(self.stopping):
                row = self._advance(net)
                now = time.perf_counter()
                self.seconds, start = self.seconds + now - start, now
                if self.step % config.evaluate_every == 0 or (
                    self.step == config.steps
                ):
                    row["validation"] = self.look()
                    start = time.perf_counter()
                if self.step % LOG_EVERY == 0 or "validation" in row:
                    self.metrics.append(self._finite(row))
                due = self.step % config.checkpoint_every == 0
                if self.folder and due and self.step < last:
                    self._save_first()
                show(self)
        if self.folder:
            self._save_first()
        return self.step >= last

    def look(self):
        """The validation loss of the averaged weights, nats per token."""
        rng = np.random.default_rng(LOOK_SEED)
        part = self.data.validation[:LOOK_SIZE]
        with self.optimizer.averaged():
            return validation_loss(self.net, part, rng).mean

    def _advance(self, net):
        objective = objective_at(self.config, self.step / self.config.steps)
        batch = draw(self.config, objective, self.data, self.rng)
        batch = self.ranks.slice(*batch)
        loss = backward(net, self.data.vocab_size, *batch, self.ranks)
        norm = self.optimizer.step(self.step)
        self.clipped += bool(0 < self.config.clip < norm)
        self.step += 1
        self.loss = self.ranks.total(loss)
        rate = self.optimizer.rate_factor(self.step - 1)
        return {"step": self.step, "rate": rate, "norm": norm}

    def _finite(self, row):
        row = {**row, "norm": float(row["norm"]), "loss": float(self.loss)}
        if not all(map(math.isfinite, row.values())):
            raise RunError(
                f"step {self.step}: {row}; expected finite numbers. The last "
                "checkpoint is from before; try a lower lr"
            )
        return row

    def _compiled(self):
        """On a GPU the network is compiled; on a CPU it runs as it is."""
        if self.ranks.device.type == "cuda":
            return torch.compile(self.net)
        return self.net

    def _save_first(self):
        if self.ranks.is_first:
            self.save()

    @contextmanager
    def _signals(self):
        def stop(number, frame):
            self.stopping = True

        names = signal.SIGINT, signal.SIGTERM
        old = [signal.signal(name, stop) for name in names]
        try:
            yield
        finally:
            for name, handler in zip(names, old, strict=True):
                signal.signal(name, handler)


def check_vocabulary(data, state, config):
    """Raise RunError unless the data has the checkpoint's vocabulary."""
    if data.vocabulary != state["vocabulary"]:
        raise RunError(
            f"data = {config.data!r}: its vocabulary of "
            f"{len(data.vocabulary)} tokens is not the checkpoint's of "
            f"{len(state['vocabulary'])}; expected the same"
        )
