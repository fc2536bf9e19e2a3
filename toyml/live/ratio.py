"""A schedule, its weight, and where its training time goes."""

import altair as alt

from .parts import INK, at, column, formula, look, slider, words

_POWER, _COSINE = "power t^p", "cosine"
_RHO = ("pow({0}, p)", "1 - cos(PI * {0} / 2)")
_SLOPE = ("p * pow({0}, p - 1)", "PI / 2 * sin(PI * {0} / 2)")
_INVERSE = ("pow({0}, 1 / p)", "2 / PI * acos(1 - {0})")


def _of(forms, argument):
    power, cosine = (form.format(argument) for form in forms)
    return f"(kind == '{_COSINE}' ? {cosine} : {power})"


def schedule(p=1.0, t=0.5, kind=_POWER):
    """rho(t) = t^p or the cosine schedule, read at time t.

    p: a step of 0.05 from 0.25 to 4; t: a step of 0.01 from 0.01 to 1;
    kind: "power t^p" or "cosine". ValueError for other values.
    """
    kinds = [_POWER, _COSINE]
    if kind not in kinds:
        raise ValueError(f"kind = {kind!r}: expected one of {kinds}")
    select = alt.binding_select(options=kinds, name="schedule")
    params = [
        alt.param(name="kind", value=kind, bind=select),
        slider("p", p, 0.25, 4, 0.05, "power p"),
        slider("t", t, 0.01, 1, 0.01, "time t"),
        formula("rho", _of(_RHO, "t")),
        formula("slope", _of(_SLOPE, "t")),
    ]
    numbers = words(
        "numbers",
        [
            "'ρ = ' + format(rho, '.4f') + ', α = ' + format(1 - rho, '.4f')",
            "'weight w = ' + format(slope / rho, '.3f')",
            "'density at ratio ρ: d = ' + format(1 / slope, '.3f')",
            "'w d = ' + format(slope / rho * (1 / slope), '.3f') + ' = 1/ρ'",
        ],
    )
    return column(
        [numbers, _in_time(), _weight(), _in_ratio()],
        params,
        "Three panels. Masked probability and survival against time; the "
        "weight against time; and, against the masked ratio, how often a "
        "ratio is drawn when t is uniform, the weight it then has, and their "
        "product, which is the same curve for every schedule.",
    )


def _grid():
    return alt.Chart(alt.sequence(0.01, 1.005, 0.01, as_="x"))


def _line(base, name, title, y, **style):
    mark = base.properties(name=name).mark_line(
        clip=True, strokeWidth=2, aria=False, **style
    )
    x = alt.X("x:Q", title=title, scale=alt.Scale(domain=[0, 1]))
    return mark.encode(x=x.axis(tickCount=5), y=y)


def _at(x):
    mark = alt.Chart(alt.Data(values=[{}]), name=f"at_{x}").mark_rule(
        color=INK, strokeWidth=1, aria=False
    )
    return mark.encode(x=at(x))


def _keys(*lines):
    """A short line with a name for each, to the right of the panel."""
    marks = []
    for i, (text, style) in enumerate(lines):
        empty = alt.Chart(alt.Data(values=[{}]))
        y = alt.value(10 + 18 * i)
        rule = empty.mark_rule(strokeWidth=2, aria=False, **style)
        name = empty.mark_text(align="left", text=text, aria=False)
        marks.append(rule.encode(x=alt.value(226), x2=alt.value(250), y=y))
        marks.append(name.encode(x=alt.value(255), y=y))
    return marks


def _in_time():
    base = _grid().transform_calculate(rho=_of(_RHO, "datum.x"))
    base = base.transform_calculate(alpha="1 - datum.rho")
    scale = alt.Scale(domain=[0, 1])
    lines = [
        _line(base, f, "time t", _axis(f, "probability", scale), **look(s))
        for f, s in (("rho", "masked"), ("alpha", "survival"))
    ]
    keys = _keys(("ρ", look("masked")), ("α", look("survival")))
    return alt.layer(*lines, _at("t"), *keys, width=220, height=100)


def _weight():
    base = _grid().transform_calculate(
        w=f"{_of(_SLOPE, 'datum.x')} / {_of(_RHO, 'datum.x')}"
    )
    scale = alt.Scale(type="log", domain=[0.1, 400], nice=False)
    y = _axis("w", "weight", scale)
    line = _line(base, "weight", "time t", y, **look("weight"))
    keys = _keys(("w", look("weight")))
    return alt.layer(line, _at("t"), *keys, width=220, height=100)


def _in_ratio():
    inverse = _of(_INVERSE, "datum.x")
    base = _grid().transform_calculate(time=inverse)
    base = base.transform_calculate(slope=_of(_SLOPE, "datum.time"))
    base = base.transform_calculate(
        d="1 / datum.slope",
        w="datum.slope / datum.x",
        product="datum.w * datum.d",
    )
    scale = alt.Scale(type="log", domain=[0.02, 200], nice=False)
    style = {"d": {"color": INK, "strokeDash": [6, 3]}, "w": look("weight")}
    style["product"] = {"color": INK}
    lines = [
        _line(base, f, "ratio u", _axis(f, "density, weight", scale), **s)
        for f, s in style.items()
    ]
    names = ("d", "w", "w d")
    keys = _keys(*zip(names, style.values(), strict=True))
    return alt.layer(*lines, _at("rho"), *keys, width=220, height=120)


def _axis(field, title, scale):
    y = alt.Y(f"{field}:Q", title=title, scale=scale)
    log = "log" in str(scale.type)
    return y.axis(values=[0.1, 1, 10, 100]) if log else y.axis(tickCount=4)
