"""A SymPy form evaluated on numbers of any kind.

Floats are computed in float64 and returned in the dtype they came in.
"""

import math
import sys
from functools import cache

import numpy as np
import sympy

from ..exact import is_exact

_FUNCTIONS = "sqrt exp log expm1 log1p sin cos tan asin acos atan".split()


def subtract(later, earlier):
    if is_exact(earlier, later):
        earlier, later = (
            np.asarray(v, dtype=object) for v in (earlier, later)
        )
    return later - earlier


def holds_anywhere(values, condition):
    """Whether a condition holds anywhere; a free symbol decides nothing."""
    if is_exact(values):
        entries = np.asarray(values, dtype=object).flat
        return any(condition(sympy.sympify(v)) == True for v in entries)  # noqa: E712
    if hasattr(values, "detach"):
        return bool(condition(values.detach()).any())
    return bool(np.any(condition(np.asarray(values))))


def check_range(name, values, low=0, high=1):
    """Raise ValueError for a number outside [low, high] or a NaN."""
    if not is_exact(values):
        low, high = float(low), float(high)
    if holds_anywhere(values, lambda x: (x < low) | (x > high) | (x != x)):
        raise ValueError(
            f"{name} = {values}: expected values in [{low}, {high}]"
        )


def evaluate(form, symbols, *values, exact=None):
    """A form at the given values; exact values use the exact form, if any."""
    if is_exact(*values):
        form = form if exact is None else exact
        arrays = np.broadcast_arrays(
            *(np.asarray(v, dtype=object) for v in values)
        )
        out = np.empty(arrays[0].shape, dtype=object)
        for i in np.ndindex(out.shape):
            at = [sympy.sympify(a[i]) for a in arrays]
            out[i] = form.subs(dict(zip(symbols, at, strict=True)))
        return out[()]
    torch = sys.modules.get("torch")
    if torch and any(isinstance(v, torch.Tensor) for v in values):
        return _evaluate_torch(torch, form, symbols, values)
    dtype = np.result_type(
        *(v if np.isscalar(v) else np.asarray(v) for v in values)
    )
    dtype = dtype if dtype.kind == "f" else np.dtype(np.float64)
    arrays = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in values))
    with np.errstate(divide="ignore"):
        out = _compiled(form, symbols, "numpy")(*arrays)
    return np.broadcast_to(out, arrays[0].shape).astype(dtype)[()]


def _evaluate_torch(torch, form, symbols, values):
    device = next(v.device for v in values if isinstance(v, torch.Tensor))
    dtype = torch.result_type(values[0], values[-1])
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    double = {"dtype": torch.double, "device": device}
    tensors = torch.broadcast_tensors(
        *(torch.as_tensor(v, **double) for v in values)
    )
    out = torch.as_tensor(_compiled(form, symbols, "torch")(*tensors))
    return out.broadcast_to(tensors[0].shape).to(dtype)


@cache
def _compiled(form, symbols, library):
    form = form.replace(_rounds_exponent, _split_exponent)
    functions = {name: _function(library, name) for name in _FUNCTIONS}
    return sympy.lambdify(symbols, form, modules=[functions, "math"])


def _function(library, name):
    """A function of arrays or tensors that takes plain numbers too."""

    def apply(x):
        number = type(x) in (int, float)
        return getattr(math if number else sys.modules[library], name)(x)

    return apply


def _rounds_exponent(form):
    """Whether a form is a power like u**(1/3), whose exponent is no float."""
    return (
        form.is_Pow
        and form.exp.is_Rational
        and sympy.Rational(float(form.exp)) != form.exp
    )


def _split_exponent(power):
    """x**(1/3) as x**a * x**b, a a float and b the little that it misses.

    The rounding of 1/3 alone would cost |log x| units in the last place.
    """
    x, q = power.base, power.exp
    a = sympy.Rational(float(q))
    if abs(a) > abs(q):
        a = sympy.Rational(math.nextafter(float(q), 0))
    return sympy.Mul(*(sympy.UnevaluatedExpr(x**e) for e in (a, q - a)))
