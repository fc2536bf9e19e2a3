"""Variance of the cut 1/t loss, beside two laws that have none."""

import altair as alt

from .parts import INK, at, column, formula, look, point, slider, words

_PER_TOKEN = "-1 / {L} + log(1 / {eps}) / ({L} * (1 - {eps}))"


def variance(log_eps=-3, log_length=0):
    """Variance per token of the 1/t loss for t in [eps, 1], cost 1 nat.

    eps = 10^log_eps, log_eps a step of 0.1 from -6 to -0.5; L = 2^log_length
    tokens, log_length 0 to 10. t is uniform on [eps, 1], the weight 1/t, so
    the mean is 1 nat a token (``inverse_t_truncated(eps, rescale=False)``).
    ValueError for other numbers.
    """
    now = _PER_TOKEN.format(L="L", eps="eps")
    params = [
        slider("log_eps", log_eps, -6, -0.5, 0.1, "cut-off: log₁₀ ε"),
        slider("log_length", log_length, 0, 10, 1, "length: log₂ L"),
        formula("eps", "pow(10, log_eps)"),
        formula("L", "pow(2, log_length)"),
        formula("spread", now),
    ]
    numbers = words(
        "numbers",
        [
            "'ε = ' + format(eps, '.2e') + ', L = ' + L",
            "'cut 1/t, variance per token: ' + format(spread, '.4g')",
            "'sequences for a 1% error: ' + format(ceil(spread * 1e4), 'd')",
            "'uniform count, forced target: 0'",
        ],
    )
    return column(
        [numbers, _by_cutoff(), _by_length()],
        params,
        "Two curves of the variance per token of the cut 1/t loss. Against "
        "the logarithm of the cut-off it is almost a straight line that "
        "rises as the cut-off falls; against the length, on two logarithmic "
        "axes, a straight line that falls. A marker stands at the sliders' "
        "values. The uniform count and the forced target have variance 0.",
    )


def _by_cutoff():
    grid = alt.sequence(-6, -0.45, 0.1, as_="x")
    each = _PER_TOKEN.format(L="L", eps="pow(10, datum.x)")
    curve = alt.Chart(grid, name="by_cutoff").transform_calculate(y=each)
    x = alt.X("x:Q", title="log₁₀ ε", scale=alt.Scale(domain=[-6, 0]))
    highest = _PER_TOKEN.format(L="L", eps="1e-6")
    scale = alt.Scale(domain=[0, {"expr": highest}], nice=False)
    y = alt.Y("y:Q", title="variance, nats²", scale=scale)
    x, y = x.axis(tickCount=6), y.axis(tickCount=4)
    zero = alt.Chart(alt.Data(values=[{}])).mark_rule(
        strokeWidth=2, aria=False, **look("uniform_count")
    )
    label = alt.Chart(alt.Data(values=[{}])).mark_text(
        align="left", dy=-9, text="uniform count, forced target", aria=False
    )
    zero = zero.encode(y=at(0))
    label = label.encode(x=alt.value(2), y=at(0))
    layers = [curve.mark_line(aria=False, **look("inverse_t")), zero, label]
    layers[0] = layers[0].encode(x=x, y=y)
    layers.append(_marker("log_eps", "spread"))
    return alt.layer(*layers, width=240, height=110)


def _by_length():
    grid = alt.sequence(0, 10.5, 1, as_="x")
    each = _PER_TOKEN.format(L="pow(2, datum.x)", eps="eps")
    curve = alt.Chart(grid, name="by_length").transform_calculate(y=each)
    x = alt.X("x:Q", title="log₂ L", scale=alt.Scale(domain=[0, 10]))
    y = alt.Y("y:Q", title="variance, nats²").axis(format="~e", tickCount=4)
    y = y.scale(type="log", domain=[1e-4, 20], nice=False)
    line = curve.mark_line(aria=False, **look("inverse_t")).encode(x=x, y=y)
    return alt.layer(
        line, _marker("log_length", "spread"), width=240, height=110
    )


def _marker(x, y):
    mark = alt.Chart(alt.Data(values=[{}]), name=f"at_{x}").mark_point(
        size=90, opacity=1, stroke=INK, aria=False, **point("inverse_t")
    )
    return mark.encode(x=at(x), y=at(y))
