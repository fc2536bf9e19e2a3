"""The schedules of the book."""

import sympy
from sympy.codegen.cfunctions import expm1, log1p

from .schedule import Schedule, s, t, u


def _exact_number(name, value):
    """Read a parameter as the rational that its decimals spell."""
    try:
        number = sympy.Rational(str(value))
    except TypeError:
        number = sympy.nan
    if not number.is_positive:
        raise ValueError(f"{name} = {value}: expected a positive number")
    return number


def polynomial(power):
    """rho(t) = t**power; power 1 is the linear schedule."""
    p = _exact_number("power", power)
    if p == 1:
        return LINEAR
    return Schedule(
        f"polynomial({power})",
        masked_form=t**p,
        # SymPy must not turn this back into 1 - t**p, which cancels.
        survival_form=-expm1(p * sympy.log(t), evaluate=False),
        reveal_form=-expm1(p * log1p((s - t) / t)),
        inverse_form=u ** (1 / p),
    )


def log_linear(eps):
    """rho(t) = (1 - eps) t, so that alpha(1) = eps is not an exact end.

    Source: MDLM appendix (log-linear noise); its code uses eps = 1e-3.
    """
    e = _exact_number("eps", eps)
    if e >= 1:
        raise ValueError(f"eps = {eps}: expected a number in (0, 1)")
    return Schedule(
        f"log_linear({eps})",
        masked_form=(1 - e) * t,
        survival_form=sympy.Add(1 - t, e * t, evaluate=False),
        reveal_form=(t - s) / t,
        inverse_form=u / (1 - e),
    )


#: The linear schedule: rho(t) = t.
LINEAR = Schedule("linear", t, 1 - t, (t - s) / t, u)

#: The cosine schedule: rho(t) = 1 - cos(pi t / 2) = 2 sin^2(pi t / 4).
COSINE = Schedule(
    "cosine",
    masked_form=2 * sympy.sin(sympy.pi * t / 4) ** 2,
    survival_form=sympy.sin(sympy.pi * (1 - t) / 2),
    reveal_form=sympy.sin(sympy.pi * (t - s) / 4)
    * sympy.sin(sympy.pi * (t + s) / 4)
    / sympy.sin(sympy.pi * t / 4) ** 2,
    # The arcsine of sqrt(u / 2) would pass 1 by rounding at u = 1.
    inverse_form=4 * sympy.atan(sympy.sqrt(u / (2 - u))) / sympy.pi,
)
