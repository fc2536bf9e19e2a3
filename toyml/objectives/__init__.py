"""Training objectives, each a law for drawing (masked set, weights).

``laws`` says what an objective is; ``by_time``, ``by_count``, ``fixed`` and
``blocks`` hold the objectives; ``batch`` what happens between the sequences
of a batch.
"""

from .batch import batch_variance, pooled_mean
from .blocks import block_diffusion
from .by_count import (
    autoregressive,
    per_example_mean,
    power_count,
    random_order,
    uniform_count,
)
from .by_time import (
    clamped_t,
    clipped_weight,
    forced_target,
    inverse_t,
    inverse_t_truncated,
    scheduled,
    unweighted,
)
from .fixed import bert, bert_inputs, maskgit
from .laws import CountLaw, Objective, OutcomeLaw

__all__ = [
    "CountLaw",
    "Objective",
    "OutcomeLaw",
    "autoregressive",
    "batch_variance",
    "bert",
    "bert_inputs",
    "block_diffusion",
    "clamped_t",
    "clipped_weight",
    "forced_target",
    "inverse_t",
    "inverse_t_truncated",
    "maskgit",
    "per_example_mean",
    "pooled_mean",
    "power_count",
    "random_order",
    "scheduled",
    "uniform_count",
    "unweighted",
]
