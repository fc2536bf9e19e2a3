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

import math
import sys
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
import sympy
from sympy.codegen.cfunctions import expm1, log1p

from .exact import is_exact

s, t, u = sympy.symbols("s t u", nonnegative=True)
_FUNCTIONS = "sqrt exp log expm1 log1p sin cos tan asin acos atan".split()
_POINTS = [sympy.Rational(n, 17) for n in (1, 5, 9, 14)]


@dataclass(frozen=True, eq=False)
class Schedule:
    """A masking schedule, from its masked probability rho(t).

    masked_form: SymPy expression in ``schedules.t``, increasing on [0, 1],
        with values in [0, 1], in a form without cancellation near t = 0.
    survival_form: alpha(t) = 1 - rho(t), accurate where alpha is small.
    reveal_form: r(s, t) = (rho(t) - rho(s)) / rho(t) in ``schedules.s`` and
        ``schedules.t``, accurate as s approaches t.
    inverse_form: the t at which rho(t) = u, in ``schedules.u``.

    The last three are derived when not given; a given form that disagrees
    with masked_form raises ValueError.
    Source: MDLM (Sahoo et al. 2024) section 3; MD4 (Shi et al. 2024) sec. 2.
    """

    name: str
    masked_form: sympy.Expr
    survival_form: sympy.Expr = None
    reveal_form: sympy.Expr = None
    inverse_form: sympy.Expr = None

    def __post_init__(self):
        rho = sympy.sympify(self.masked_form)
        low, high = rho.subs(t, 0), rho.subs(t, 1)
        if rho.free_symbols - {t} or not 0 <= low < high <= 1:
            raise ValueError(
                f"masked_form = {rho}: expected an expression in t alone that "
                f"rises within [0, 1]; it runs from {low} to {high}"
            )
        derived = {
            "survival_form": 1 - rho,
            "reveal_form": (rho - rho.subs(t, s)) / rho,
        }
        object.__setattr__(self, "masked_form", rho)
        for name, form in derived.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, sympy.factor(form))
            _check_equal(name, getattr(self, name), form)
        if self.inverse_form is None:
            object.__setattr__(self, "inverse_form", _solve(rho))
        _check_equal("inverse_form", self.inverse_form.subs(u, rho), t)

    @cached_property
    def weight_form(self):
        """The weight -alpha'(t) / (1 - alpha(t)) = rho'(t) / rho(t)."""
        return sympy.simplify(self.masked_form.diff(t) / self.masked_form)

    @cached_property
    def _plain_reveal(self):
        rho = self.masked_form
        return sympy.together((rho - rho.subs(t, s)) / rho)

    @property
    def starts_clean(self):
        """Whether no token is masked at t = 0, exactly."""
        return self.masked_form.subs(t, 0) == 0

    @property
    def ends_masked(self):
        """Whether every token is masked at t = 1, exactly."""
        return self.masked_form.subs(t, 1) == 1

    def masked(self, time):
        """rho(t), the probability that a token is masked at time t."""
        check_range("time", time)
        return _evaluate(self.masked_form, (t,), time)

    def survival(self, time):
        """alpha(t) = 1 - rho(t), the probability that a token is clean."""
        check_range("time", time)
        exact = 1 - self.masked_form
        return _evaluate(self.survival_form, (t,), time, exact=exact)

    def weight(self, time):
        """-alpha'(t) / (1 - alpha(t)), the weight of the loss at time t.

        Raises ValueError at t = 0 where the weight is infinite there.
        Source: MDLM eq. 10; MD4 eq. 4.
        """
        check_range("time", time)
        if self.starts_clean and _any(time, lambda x: x == 0):
            raise ValueError(
                f"time = {time}: at 0 the weight {self.weight_form} is "
                "infinite; expected time > 0"
            )
        return _evaluate(self.weight_form, (t,), time)

    def reveal(self, earlier, later):
        """r(s, t): the probability that a mask at t = later is clean at s.

        Raises ValueError unless earlier < later. Source: MDLM eq. 6.
        """
        check_range("earlier", earlier)
        check_range("later", later)
        if _any(_subtract(later, earlier), lambda x: x <= 0):
            raise ValueError(
                f"earlier = {earlier}, later = {later}: expected "
                "earlier < later"
            )
        return _evaluate(
            self.reveal_form, (s, t), earlier, later, exact=self._plain_reveal
        )

    def inverse(self, probability):
        """The time t at which the masked probability rho(t) is given."""
        low, high = (self.masked_form.subs(t, end) for end in (0, 1))
        check_range("probability", probability, low, high)
        return _evaluate(self.inverse_form, (u,), probability)


def _check_equal(name, given, wanted):
    """Compare two expressions in s < t to 20 digits at a few points."""
    for later in _POINTS:
        for earlier in _POINTS[: _POINTS.index(later)]:
            at = {s: earlier, t: later}
            got, want = (
                sympy.N(form.subs(at), 30) for form in (given, wanted)
            )
            if not abs(got - want) < 1e-20:
                raise ValueError(
                    f"{name} is {got} at s = {earlier}, t = {later}; "
                    f"expected {want}, which follows from masked_form"
                )


def _solve(rho):
    try:
        roots = sympy.solve(sympy.Eq(rho, u), t)
    except NotImplementedError:
        roots = []
    for root in roots:
        try:
            _check_equal("root", root.subs(u, rho), t)
        except (ValueError, TypeError):
            continue
        return root
    raise ValueError(
        f"inverse_form = None, and sympy.solve finds no inverse of {rho}; "
        "expected it as an argument"
    )


def _subtract(later, earlier):
    if is_exact(earlier, later):
        earlier, later = (
            np.asarray(v, dtype=object) for v in (earlier, later)
        )
    return later - earlier


def _any(values, condition):
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
    if _any(values, lambda x: (x < low) | (x > high) | (x != x)):
        raise ValueError(
            f"{name} = {values}: expected values in [{low}, {high}]"
        )


def _evaluate(form, symbols, *values, exact=None):
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


LINEAR = Schedule("linear", t, 1 - t, (t - s) / t, u)

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
