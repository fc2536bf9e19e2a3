"""How a run survives a stop: checkpoints, written whole or not at all."""

import io
import json
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path

import torch

from .errors import RunError

NAME = "checkpoint.pt"


def save(folder, state):
    """Write ``folder/checkpoint.pt``: a stop leaves the old one or the new."""
    # Through memory: torch answers a half-written file with RuntimeError.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with whole(Path(folder) / NAME) as part:
        part.write_bytes(buffer.getbuffer())


@contextmanager
def whole(path):
    """Write a file whole or not at all: yields the path to write to.

    The bytes go to a second file, reach the disk, and then take the name in
    one step. Where that fails, a full disk for one, the old file stays and
    the error goes on.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(folder, device="cpu"):
    """The state in ``folder/checkpoint.pt``; RunError where there is none.

    Loaded with ``weights_only=True``: no code in the file is run. The check
    sums are compared, which torch does not do.
    """
    path = Path(folder) / NAME
    if not path.exists():
        raise RunError(f"{path}: no such file; expected a checkpoint there")
    try:
        with zipfile.ZipFile(path) as file:
            if file.testzip():
                raise ValueError
        state = torch.load(path, map_location=device, weights_only=True)
        missing = KEYS.difference(state)
    except Exception as error:
        raise RunError(
            f"{path}: not a readable checkpoint ({type(error).__name__})"
        ) from None
    if missing:
        raise RunError(
            f"{path}: no {', '.join(sorted(missing))} in it; expected a "
            "checkpoint of toyml.train"
        )
    return state


KEYS = {
    "config",
    "vocabulary",
    "step",
    "seconds",
    "clipped",
    "metrics",
    "net",
    "optimizer",
    "numpy",
    "torch",
}


def numpy_state(rng):
    """The state of a numpy generator as text, its integers being too long."""
    return json.dumps(rng.bit_generator.state)


def set_numpy_state(rng, text):
    """Bring a generator to a state that ``numpy_state`` wrote."""
    rng.bit_generator.state = json.loads(text)
