"""Samplers, each as a simulation and as an exact law over all sequences.

A denoiser is ``denoiser(tokens, t=None)``: int64 [B, L] with the mask id V
gives [B, L, V], the distribution of the clean token at each position. A
sampler is a sequence of steps. A step selects positions by a stated law,
``Selection``, given the tokens and the denoiser's answer; then each selected
position is drawn by itself from its sharpened conditional, or is masked again
if the step remasks. ``Sampler.sample`` draws from these laws and
``Sampler.law`` sums over them, so both have one definition.

``choice`` sharpens conditionals and draws tokens; ``steps`` holds the step
and its selections; ``named`` builds the samplers; ``simulate`` and ``law``
run them.
"""

from .choice import draw_tokens, sharpen
from .law import MAX_STATES
from .named import (
    ancestral,
    blocks,
    confidence,
    first_hitting,
    fixed_order,
    random_order,
    remasked,
    renoised,
)
from .sampler import Sampler
from .steps import RULES, Selection, Step

__all__ = [
    "MAX_STATES",
    "RULES",
    "Sampler",
    "Selection",
    "Step",
    "ancestral",
    "blocks",
    "confidence",
    "draw_tokens",
    "first_hitting",
    "fixed_order",
    "random_order",
    "remasked",
    "renoised",
    "sharpen",
]
