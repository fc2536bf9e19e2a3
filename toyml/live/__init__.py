"""Figures with sliders that the page itself computes.

A chart is a Vega-Lite specification, made by Altair. Its few formulas are
expressions of that language, so a figure answers without a kernel; the tests
compare every number it shows with the rest of ``toyml``. ``show`` turns a
chart into the output of a cell.
"""

from .cutoff import variance
from .page import VERSIONS, show
from .ratio import schedule
from .sentence import masking
from .square import hot_tea

__all__ = ["VERSIONS", "hot_tea", "masking", "schedule", "show", "variance"]
