"""Schedules against plain formulas at 80 digits."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import sympy
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from cases import EXACT_ENDS, LATE
from toyml import schedules
from toyml.schedules import COSINE, LINEAR, Schedule, log_linear, polynomial

LOG_LINEAR = log_linear(1e-3)

# rho(t) and rho'(t), written as in the papers; 80 digits forgive what cancels.
PLAIN = [
    (LINEAR, lambda x: x, lambda x: mpf(1)),
    (
        COSINE,
        lambda x: 1 - mp.cos(mp.pi * x / 2),
        lambda x: mp.pi / 2 * mp.sin(mp.pi * x / 2),
    ),
    (polynomial(1.5), lambda x: x * mp.sqrt(x), lambda x: 1.5 * mp.sqrt(x)),
    (polynomial(2), lambda x: x**2, lambda x: 2 * x),
    (polynomial(3), lambda x: x**3, lambda x: 3 * x**2),
    (LOG_LINEAR, lambda x: x - x / 1000, lambda x: 1 - mpf(1) / 1000),
    (LATE, lambda x: (1 + x) ** 2 / 4, lambda x: (1 + x) / 2),
]
SCHEDULES = [schedule for schedule, _, _ in PLAIN]
every_schedule = pytest.mark.parametrize(
    "schedule, rho, slope", PLAIN, ids=lambda x: getattr(x, "name", "")
)
each = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda x: x.name)

times = st.one_of(
    st.floats(1e-8, 1),
    st.builds(lambda x: 10.0**-x, st.floats(0, 8)),
    st.builds(lambda x: 1 - 10.0**-x, st.floats(0.1, 15)),
)
pairs = st.one_of(
    st.tuples(times, times).map(sorted),
    st.builds(lambda t, k: [t * (1 - 10.0**-k), t], times, st.floats(0, 12.5)),
    st.builds(lambda t: [0.0, t], times),
)


@pytest.fixture(autouse=True)
def eighty_digits():
    with mpmath.workdps(80):
        yield


def wanted(rho, slope, t):
    t = mpf(float(t))
    return {
        "masked": rho(t),
        "survival": 1 - rho(t),
        "weight": slope(t) / rho(t),
    }


def relative(got, want):
    if abs(want) < mpf(10) ** -70:  # 0, but for the rounding of pi
        return abs(float(got))
    return abs(mpf(float(got)) - want) / abs(want)


def ulps(got, want, unit):
    """The error in units in the last place at the wanted value."""
    return abs(mpf(float(got)) - want) / float(np.spacing(unit(want)))


@every_schedule
@given(t=times)
def test_float64(schedule, rho, slope, t):
    for name, want in wanted(rho, slope, t).items():
        plain = getattr(schedule, name)(t)
        tensor = getattr(schedule, name)(torch.tensor([t], dtype=torch.double))
        assert relative(plain, want) <= 1e-12, name
        assert relative(tensor, want) <= 1e-12, name


@every_schedule
@given(t=times)
def test_float32(schedule, rho, slope, t):
    t = np.float32(t)
    for name, want in wanted(rho, slope, t).items():
        plain = getattr(schedule, name)(t)
        tensor = getattr(schedule, name)(torch.tensor([t]))
        assert plain.dtype == np.float32 and tensor.dtype == torch.float32
        assert ulps(plain, want, np.float32) <= 4, name
        assert ulps(tensor, want, np.float32) <= 4, name


@every_schedule
@given(pair=pairs)
def test_reveal(schedule, rho, slope, pair):
    s, t = pair
    assume(s < t)
    want = (rho(mpf(t)) - rho(mpf(s))) / rho(mpf(t))
    tensors = (torch.tensor(v, dtype=torch.double) for v in pair)
    assert relative(schedule.reveal(s, t), want) <= 1e-12
    assert relative(schedule.reveal(*tensors), want) <= 1e-12


@every_schedule
@given(pair=pairs)
def test_reveal_in_float32(schedule, rho, slope, pair):
    s, t = map(np.float32, pair)
    assume(s < t)
    x, y = mpf(float(s)), mpf(float(t))
    tensor = schedule.reveal(torch.tensor(s), torch.tensor(t))
    for got in (schedule.reveal(s, t), tensor.numpy()):
        assert got.dtype == np.float32
        assert ulps(got, (rho(y) - rho(x)) / rho(y), np.float32) <= 4


@every_schedule
@settings(max_examples=25)
@given(pair=pairs)
def test_exact_numbers(schedule, rho, slope, pair):
    s, t = pair
    assume(s < t)
    x, y = Fraction(s), sympy.Rational(t)
    want = wanted(rho, slope, t)
    want["reveal"] = (rho(mpf(t)) - rho(mpf(s))) / rho(mpf(t))
    for name in want:
        at = (x, y) if name == "reveal" else (y,)
        value = getattr(schedule, name)(*at)
        assert isinstance(value, sympy.Basic) and not value.has(sympy.Float)
        assert abs(mpf(sympy.N(value, 60)) - want[name]) < mpf(10) ** -50
    back = schedule.inverse(schedule.masked(y))
    assert abs(mpf(sympy.N(back, 60)) - mpf(t)) < mpf(10) ** -50


def test_exact_answers():
    half = Fraction(1, 2)
    assert LINEAR.reveal(Fraction(3, 5), Fraction(4, 5)) == Fraction(1, 4)
    assert polynomial(2).weight(half) == 4
    assert polynomial(2).inverse(Fraction(1, 4)) == half
    assert LOG_LINEAR.survival(sympy.Integer(1)) == Fraction(1, 1000)
    assert COSINE.masked(half) == 1 - 1 / sympy.sqrt(2)
    assert list(LINEAR.masked([half, 1])) == [half, 1]


@every_schedule
@given(t=times)
def test_inverse_after_masked(schedule, rho, slope, t):
    # Where rho(0) > 0 a small t is lost in rho: there one ulp is that of 1.
    unit = float if schedule.starts_clean else lambda _: 1.0
    assert ulps(schedule.inverse(schedule.masked(t)), mpf(t), unit) <= 8
    tensor = torch.tensor([t], dtype=torch.double)
    assert ulps(schedule.inverse(schedule.masked(tensor)), mpf(t), unit) <= 8


@every_schedule
@given(p=st.floats(-24, 0).map(lambda x: 10.0**x) | times)
def test_masked_after_inverse(schedule, rho, slope, p):
    low, high = float(rho(mpf(0))), float(rho(mpf(1)))
    p = low + p * (high - low) if low else p * high
    tensor = torch.tensor([p], dtype=torch.double)
    assert ulps(schedule.masked(schedule.inverse(p)), mpf(p), float) <= 8
    assert ulps(schedule.masked(schedule.inverse(tensor)), mpf(p), float) <= 8


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_round_trip_at_the_ends(schedule, dtype):
    ends = torch.tensor([0.0, 1.0], dtype=dtype)
    there = schedule.masked(ends)
    for p in (there, there.numpy()):
        back = schedule.inverse(p)
        assert back.dtype == p.dtype
        assert np.allclose(back, ends, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("schedule", EXACT_ENDS, ids=lambda x: x.name)
@pytest.mark.parametrize("kind", [float, np.float32, torch.tensor])
def test_exact_ends(schedule, kind):
    assert schedule.starts_clean and schedule.ends_masked
    assert schedule.survival(kind(1.0)) == 0
    assert schedule.survival(kind(0.0)) == 1
    assert schedule.masked(kind(0.0)) == 0
    assert schedule.reveal(kind(0.0), kind(0.7)) == 1
    assert abs(schedule.masked(kind(1.0)) - 1) <= 2**-52


def test_ends_that_are_not_exact():
    assert LOG_LINEAR.starts_clean and not LOG_LINEAR.ends_masked
    assert LOG_LINEAR.survival(1.0) == 1e-3
    assert LATE.ends_masked and not LATE.starts_clean
    assert LATE.survival(0.0) == 0.75


@each
def test_weight_at_zero(schedule):
    if not schedule.starts_clean:
        assert schedule.weight(0.0) == 2
        return
    for zero in (0, 0.0, Fraction(0), torch.zeros(2), np.array([0.5, 0])):
        with pytest.raises(ValueError, match=r"time = .*infinite"):
            schedule.weight(zero)


@each
def test_shapes_and_dtypes(schedule):
    grid = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
    assert schedule.weight(grid).shape == (2, 3)
    assert schedule.reveal(0.05, grid).dtype == np.float32
    assert schedule.reveal(grid[:1], grid[:1].T + 0.5).shape == (3, 3)
    assert schedule.masked(1).dtype == np.float64
    assert schedule.masked([0, 1]).dtype == np.float64
    for dtype in (torch.float32, torch.double, torch.bfloat16):
        tensor = torch.tensor([[0.25], [0.5]], dtype=dtype)
        for got in (schedule.weight(tensor), schedule.reveal(0.1, tensor)):
            assert got.dtype == dtype and got.shape == tensor.shape
            assert got.device == tensor.device


@each
def test_python_numbers_beside_tensors_keep_their_digits(schedule):
    t = torch.tensor([0.8], dtype=torch.double)
    got, want = schedule.reveal(0.3, t), schedule.reveal(0.3, 0.8)
    assert relative(got, mpf(want)) < 1e-15


@each
def test_gradients_flow(schedule):
    t = torch.tensor([0.3, 0.9], dtype=torch.double, requires_grad=True)
    schedule.masked(t).log().sum().backward()
    assert np.allclose(t.grad, schedule.weight(t.detach()), rtol=1e-12)


OUTSIDE = [-0.1, 1.5, float("nan"), Fraction(3, 2), torch.tensor([0.5, 2.0])]


@each
@pytest.mark.parametrize("bad", OUTSIDE, ids=str)
def test_times_outside_the_unit_interval(schedule, bad):
    for name in ("masked", "survival", "weight"):
        with pytest.raises(ValueError, match=r"^time = .*expected values in"):
            getattr(schedule, name)(bad)
    with pytest.raises(ValueError, match=r"^earlier = .*expected values in"):
        schedule.reveal(bad, 0.9)
    with pytest.raises(ValueError, match=r"^later = .*expected values in"):
        schedule.reveal(0.1, bad)
    with pytest.raises(ValueError, match=r"^probability = .*expected values"):
        schedule.inverse(bad)


def test_the_message_names_the_value():
    with pytest.raises(ValueError, match=r"time = 1\.25: .*\[0\.0, 1\.0\]"):
        LINEAR.masked(1.25)


@each
@pytest.mark.parametrize("s, t", [(0.5, 0.5), (0.6, 0.5), (0, 0)])
def test_reveal_needs_an_earlier_time(schedule, s, t):
    for a, b in ((s, t), (Fraction(s), Fraction(t)), (s, torch.tensor(t))):
        with pytest.raises(ValueError, match=r"earlier = .*, later = "):
            schedule.reveal(a, b)


@pytest.mark.parametrize("schedule, p", [(LATE, 0.2), (LOG_LINEAR, 0.9995)])
def test_inverse_out_of_reach(schedule, p):
    for value in (p, np.float32(p), torch.tensor([p]), Fraction(p)):
        with pytest.raises(ValueError, match=r"probability = "):
            schedule.inverse(value)


@pytest.mark.parametrize(
    "form, value",
    [
        ("survival_form", 1 - schedules.t),
        ("reveal_form", (schedules.t - schedules.s) / schedules.t),
        ("inverse_form", schedules.u),
    ],
)
def test_forms_must_agree(form, value):
    with pytest.raises(ValueError, match=rf"^{form} is .*masked_form"):
        Schedule("wrong", schedules.t**2, **{form: value})


@pytest.mark.parametrize(
    "form",
    [
        1 - schedules.t,
        2 * schedules.t,
        schedules.t - 1,
        sympy.Integer(1),
        schedules.t * schedules.s,
    ],
)
def test_masked_form_must_rise_within_the_unit_interval(form):
    with pytest.raises(ValueError, match="masked_form = "):
        Schedule("wrong", form)


def test_an_inverse_that_sympy_cannot_find_must_be_given():
    hard = (schedules.t + sympy.sin(sympy.pi * schedules.t / 2)) / 2
    with pytest.raises(ValueError, match="inverse_form = None"):
        Schedule("hard", hard)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "two"])
def test_bad_parameters(bad):
    with pytest.raises(ValueError, match=f"^power = {bad}: "):
        polynomial(bad)
    with pytest.raises(ValueError, match=f"^eps = {bad}: "):
        log_linear(bad)


def test_eps_must_stay_below_one():
    with pytest.raises(ValueError, match="eps = 1"):
        log_linear(1)


def test_polynomial_of_power_one_is_linear():
    assert polynomial(1) is LINEAR
