"""What a run is: every choice, by name, and the presets."""

import json
import math
from dataclasses import asdict, dataclass, fields, replace

from .errors import RunError


@dataclass(frozen=True)
class Config:
    """Every choice of a run; ``config.json`` holds exactly this.

    length is the context L; batch the sequences of one step over all ranks.
    fixed_sequences: train on this many sequences again and again; 0 draws
    fresh ones. draw_power, weight_power: for the objective "power_count" and
    the path to it. matrix_lr is Muon's rate on the matrices of the blocks, lr
    AdamW's on the rest.
    """

    preset: str
    data: str
    objective: str = "uniform_count"
    coupling: str = "stratified"
    seed: int = 0
    length: int = 64
    layers: int = 4
    width: int = 128
    heads: int = 4
    attention: str = "bidirectional"
    batch: int = 48
    steps: int = 2500
    warmup: int = 100
    optimizer: str = "muon"
    lr: float = 3e-3
    matrix_lr: float = 6e-3
    weight_decay: float = 0.1
    clip: float = 1.0
    ema: float = 0.99
    draw_power: float = 0.0
    path_end: float = 0.8
    fixed_sequences: int = 0
    device: str = "auto"
    checkpoint_every: int = 250
    evaluate_every: int = 250
    samples: int = 4

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, field.type) or isinstance(value, bool):
                raise RunError(
                    f"{field.name} = {value!r}: expected {field.type.__name__}"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise RunError(
                    f"{field.name} = {value}: expected a finite number"
                )
            least = LEAST.get(field.name)
            if least is not None and value < least:
                raise RunError(
                    f"{field.name} = {value}: expected at least {least}"
                )
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise RunError(
                    f"{name} = {getattr(self, name)!r}: expected one of "
                    f"{', '.join(allowed)}"
                )
        if self.width % (2 * self.heads):
            raise RunError(
                f"width = {self.width}, heads = {self.heads}: expected a "
                "width that is a multiple of twice the heads"
            )
        if not self.ema < 1:
            raise RunError(f"ema = {self.ema}: expected a number below 1")
        twin = self.objective == "autoregressive"
        if twin != (self.attention == "causal"):
            raise RunError(
                f"objective = {self.objective!r}, attention = "
                f"{self.attention!r}: expected causal attention with "
                "autoregressive and with nothing else"
            )

    def to_json(self):
        """The choices as JSON, the text of ``config.json``."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text):
        """Raises RunError for a name it does not know or one it misses."""
        try:
            values = dict(json.loads(text))
        except (TypeError, ValueError):
            raise RunError("config: expected a JSON object") from None
        known = {field.name for field in fields(cls)}
        odd = sorted(known.symmetric_difference(values))
        if odd:
            raise RunError(
                f"config names {', '.join(odd)}: expected exactly the "
                "choices of this version"
            )
        return cls(**values)


LEAST = dict.fromkeys(
    [
        "length",
        "layers",
        "width",
        "heads",
        "batch",
        "steps",
        "checkpoint_every",
        "evaluate_every",
    ],
    1,
) | dict.fromkeys(
    [
        "seed",
        "warmup",
        "lr",
        "matrix_lr",
        "weight_decay",
        "clip",
        "ema",
        "path_end",
        "fixed_sequences",
        "samples",
    ],
    0,
)

CHOICES = {
    "objective": (
        "uniform_count",
        "inverse_t",
        "forced_target",
        "power_count",
        "path",
        "pooled_mean",
        "unweighted",
        "autoregressive",
    ),
    "coupling": ("independent", "stratified", "lattice"),
    "attention": ("bidirectional", "causal"),
    "optimizer": ("adamw", "muon"),
    "device": ("auto", "cpu", "cuda"),
}

#: The configurations of the runs in this book, by name.
PRESETS = {
    "markov": Config(
        preset="markov",
        data="markov",
        length=16,
        layers=2,
        width=64,
        batch=256,
        steps=1200,
        checkpoint_every=300,
    ),
    "text-cpu": Config(
        preset="text-cpu",
        data="shakespeare",
        objective="path",
        steps=4000,
        checkpoint_every=500,
    ),
    "text-gpu": Config(
        preset="text-gpu",
        data="shakespeare",
        objective="path",
        length=256,
        layers=6,
        width=384,
        heads=6,
        batch=64,
        steps=5000,
        device="cuda",
        checkpoint_every=1000,
        evaluate_every=500,
    ),
}


def preset(name, **changes):
    """A preset with some choices changed; RunError for an unknown one.

    The objective "autoregressive" makes the twin: the same network, causal.
    """
    if name not in PRESETS:
        raise RunError(
            f"preset = {name!r}: expected one of {', '.join(PRESETS)}"
        )
    if changes.get("objective") == "autoregressive":
        changes.setdefault("attention", "causal")
    return replace(PRESETS[name], **changes)
