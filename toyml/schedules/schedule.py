"""The schedule itself, from its masked probability."""

from dataclasses import dataclass
from functools import cached_property

import sympy

from .evaluate import check_range, evaluate, holds_anywhere, subtract

#: The symbol of a form: an earlier time s, a time t, or a probability u.
s, t, u = sympy.symbols("s t u", nonnegative=True)
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
        return evaluate(self.masked_form, (t,), time)

    def survival(self, time):
        """alpha(t) = 1 - rho(t), the probability that a token is clean."""
        check_range("time", time)
        exact = 1 - self.masked_form
        return evaluate(self.survival_form, (t,), time, exact=exact)

    def weight(self, time):
        """-alpha'(t) / (1 - alpha(t)), the weight of the loss at time t.

        Raises ValueError at t = 0 where the weight is infinite there.
        Source: MDLM eq. 10; MD4 eq. 4.
        """
        check_range("time", time)
        if self.starts_clean and holds_anywhere(time, lambda x: x == 0):
            raise ValueError(
                f"time = {time}: at 0 the weight {self.weight_form} is "
                "infinite; expected time > 0"
            )
        return evaluate(self.weight_form, (t,), time)

    def reveal(self, earlier, later):
        """r(s, t): the probability that a mask at t = later is clean at s.

        Raises ValueError unless earlier < later. Source: MDLM eq. 6.
        """
        check_range("earlier", earlier)
        check_range("later", later)
        if holds_anywhere(subtract(later, earlier), lambda x: x <= 0):
            raise ValueError(
                f"earlier = {earlier}, later = {later}: expected "
                "earlier < later"
            )
        return evaluate(
            self.reveal_form, (s, t), earlier, later, exact=self._plain_reveal
        )

    def inverse(self, probability):
        """The time t at which the masked probability rho(t) is given."""
        low, high = (self.masked_form.subs(t, end) for end in (0, 1))
        check_range("probability", probability, low, high)
        return evaluate(self.inverse_form, (u,), probability)


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
