"""Masking schedules: how likely a token is to be masked at time t.

A schedule is one increasing function rho(t) on [0, 1], the probability that
a token is masked at time t; survival is alpha(t) = 1 - rho(t). Weight, reveal
probability and inverse follow from rho by SymPy. Where the plain formula
cancels (1 - cos x for small x, say) the schedule is given an equal form that
does not, and the two are compared.

Each method takes floats, numpy arrays, torch tensors, and SymPy or Fraction
numbers. Floats are computed in float64 and returned in the dtype they came
in; exact input gives a SymPy result.
"""

from .evaluate import check_range
from .named import COSINE, LINEAR, log_linear, polynomial
from .schedule import Schedule, s, t, u

__all__ = [
    "COSINE",
    "LINEAR",
    "Schedule",
    "check_range",
    "log_linear",
    "polynomial",
    "s",
    "t",
    "u",
]
