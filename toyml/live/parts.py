"""What the live figures share: sliders, looks, the common configuration."""

import math

import altair as alt

from ..figures import SYMBOLS

# The text colour of the page, light or dark.
INK = "currentColor"
MONO = "monospace"
_DASHES = {"-": [1, 0], "--": [6, 3], "-.": [7, 3, 2, 3], ":": [2, 3]}
_PADDING = {"left": 2, "top": 2, "right": 2, "bottom": 6}
_SHAPES = {
    "o": "circle",
    "s": "square",
    ">": "triangle-right",
    "<": "triangle-left",
    "P": "cross",
}


def slider(name, value, low, high, step, label):
    """A number of the page, moved by a labelled slider.

    Raises ValueError unless value is one of low, low + step, ..., high.
    """
    steps = (value - low) / step
    if not (low <= value <= high and math.isclose(steps, round(steps))):
        raise ValueError(
            f"{name} = {value}: expected a step of {step} from {low} to {high}"
        )
    bind = alt.binding_range(min=low, max=high, step=step, name=label)
    return alt.param(name=name, value=value, bind=bind)


def formula(name, expression):
    """A number that follows from the sliders."""
    return alt.param(name=name, expr=expression)


def at(value):
    """A place on a quantitative axis: a number, or an expression."""
    value = alt.expr(value) if isinstance(value, str) else value
    return alt.datum(value, type="quantitative")


def look(symbol):
    """Colour and dashes of a symbol in the book's figures."""
    style = SYMBOLS[symbol]
    dash = _DASHES[style["linestyle"]]
    return {"color": style["color"], "strokeDash": dash}


def point(symbol):
    """Colour and shape of a symbol's marker."""
    style = SYMBOLS[symbol]
    shape = _SHAPES[style["marker"]]
    return {"color": style["color"], "shape": shape, "filled": True}


def words(name, rows):
    """Lines of text; each of rows is an expression. Named for the tests."""
    data = alt.Data(values=[{"line": i} for i in range(len(rows))])
    texts = ", ".join(rows)
    return (
        alt.Chart(data, name=name, width=280, height=17 * len(rows))
        .transform_calculate(text=f"[{texts}][datum.line]")
        .mark_text(align="left", font=MONO)
        .encode(
            x=alt.value(0),
            y=alt.Y(
                "line:Q",
                axis=None,
                scale=alt.Scale(domain=[len(rows) - 0.5, -0.5]),
            ),
            text="text:N",
            description="text:N",
        )
    )


def column(charts, params, description):
    """Charts below one another with their parameters and a description."""
    chart = alt.vconcat(*charts, spacing=12, description=description)
    ink = {"labelColor": INK, "titleColor": INK}
    return (
        chart.add_params(*params)
        .resolve_scale(x="independent", y="independent")
        .configure(background="transparent", padding=_PADDING)
        .configure_view(stroke=None)
        .configure_text(color=INK, fontSize=12)
        .configure_axis(
            **ink,
            domainColor=INK,
            tickColor=INK,
            grid=False,
            labelFontSize=11,
            titleFontSize=11,
            titleFontWeight="normal",
        )
        # Labels may change, the size of the picture may not.
        .configure_axisLeft(minExtent=44, maxExtent=44)
    )
