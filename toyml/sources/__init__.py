"""Data laws with exact conditionals for every mask pattern.

Each source is a denoiser: ``source(tokens, t=None)`` takes int64 [B, L] with
the mask id V = ``vocab_size`` and returns [B, L, V], the distribution of the
clean token at each position given the visible ones (a visible token is
certain). Time t is ignored: under masking that ignores token values the
conditionals do not depend on it (RADD, Ou et al. 2025, theorem 1).

``Joint`` and ``TeachingTable`` are float64, or exact when made of Fractions.
"""

from .joint import Joint
from .markov import Markov
from .sudoku import Sudoku4
from .teaching import TeachingTable

__all__ = ["Joint", "Markov", "Sudoku4", "TeachingTable"]
