"""Two tokens, four answers: order losses, bound, NLL and gap."""

import altair as alt

from .parts import INK, MONO, column, formula, look, point, slider

# Slider, the key of ``TeachingTable``, the question.
_QUESTIONS = (
    ("p1", (0, ()), "p(hot | [M] [M])"),
    ("p2", (1, ()), "p(tea | [M] [M])"),
    ("p1_2", (0, (1,)), "p(hot | [M] tea)"),
    ("p2_1", (1, (0,)), "p(tea | hot [M])"),
)
_FORMULAS = {
    "forward": "-log(p1 * p2_1)",
    "backward": "-log(p2 * p1_2)",
    "nelbo": "(forward + backward) / 2",
    "nll": "-log((p1 * p2_1 + p2 * p1_2) / 2)",
    "gap": "nelbo - nll",
}
_ROWS = {
    "left to right": ("forward", "left_to_right"),
    "right to left": ("backward", "right_to_left"),
    "NELBO": ("nelbo", "nelbo"),
    "NLL": ("nll", "nll"),
}
_NODES = (("[M] [M]", 1, 2), ("hot [M]", 0, 1), ("[M] tea", 2, 1))
_NODES += (("hot tea", 1, 0),)
_EDGES = (
    ("p1", 1, 2, 0, "left_to_right"),
    ("p2_1", 0, 1, 1, "left_to_right"),
    ("p2", 1, 2, 2, "right_to_left"),
    ("p1_2", 2, 1, 1, "right_to_left"),
)


def hot_tea(answers):
    """The two paths around the square, and what they add up to.

    answers: {(0, ()): p, (1, ()): p, (0, (1,)): p, (1, (0,)): p} as for
    ``TeachingTable``, each one of 0.01, 0.02, ..., 0.99; the sliders start
    there. Losses in nats. ValueError for other keys or numbers.
    """
    if set(answers) != {key for _, key, _ in _QUESTIONS}:
        raise ValueError(
            f"answers has the keys {sorted(answers)}: expected (0, ()), "
            "(1, ()), (0, (1,)) and (1, (0,))"
        )
    params = [
        slider(name, float(answers[key]), 0.01, 0.99, 0.01, label)
        for name, key, label in _QUESTIONS
    ]
    params += [formula(*item) for item in _FORMULAS.items()]
    return column(
        [_square(), _losses()],
        params,
        "A square of four mask patterns with two paths from all masks to "
        "the clean sequence hot tea, each edge with the probability of the "
        "token it reveals. Below, the losses of the two orders, the NELBO "
        "halfway between them, and the NLL, which is never above it.",
    )


def _square():
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, 2.5]))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.15, 2.15]))
    layers = []
    for i, (name, left, top, right, symbol) in enumerate(_EDGES):
        step = (right - left) * 0.16
        ends = {"x": left + step, "y": top - 0.16}
        ends |= {"x2": right - step, "y2": top - 0.84}
        middle = {"x": (left + right) / 2, "y": top - 0.5}
        side = "right" if middle["x"] < 1 else "left"
        shift = -8 if side == "right" else 8
        line = alt.Chart(alt.Data(values=[ends])).mark_rule(
            strokeWidth=2, aria=False, **look(symbol)
        )
        layers.append(line.encode(x=x, y=y, x2="x2", y2="y2"))
        label = alt.Chart(alt.Data(values=[middle]), name=f"edge{i}")
        text = alt.expr(f"format({name}, '.2f')")
        label = label.mark_text(align=side, dx=shift, text=text, aria=False)
        layers.append(label.encode(x=x, y=y))
    nodes = [dict(zip(("text", "x", "y"), n, strict=True)) for n in _NODES]
    node = alt.Chart(alt.Data(values=nodes)).encode(x=x, y=y)
    box = {"width": 66, "height": 22, "cornerRadius": 4}
    layers.append(node.mark_rect(fill=None, stroke=INK, aria=False, **box))
    node = node.encode(text="text:N", description="text:N")
    layers.append(node.mark_text(font=MONO))
    return alt.layer(*layers, width=250, height=190)


def _losses():
    values = "{" + ", ".join(f"'{r}': {v}" for r, (v, _) in _ROWS.items())
    rows = [{"row": row} for row in (*_ROWS, "gap")]
    base = (
        alt.Chart(alt.Data(values=rows), width=120, height=110)
        .transform_calculate(value=values + ", gap: gap}[datum.row]")
        .transform_calculate(at="datum.row == 'gap' ? nll : datum.value")
    )
    y = alt.Y("row:N", sort=None, title=None)
    y = y.axis(domain=False, ticks=False, labelFontSize=12, labelPadding=10)
    x = alt.X("at:Q", title="nats").axis(tickCount=4)
    layers = [
        base.transform_filter(f"datum.row == '{row}'")
        .mark_point(size=70, opacity=1, **point(symbol))
        .encode(x=x, y=y)
        for row, (_, symbol) in _ROWS.items()
    ]
    only_gap = base.transform_filter("datum.row == 'gap'")
    only_gap = only_gap.transform_calculate(end="nelbo")
    bar = only_gap.mark_rule(strokeWidth=4, color=INK)
    layers.append(bar.encode(x=x, x2="end:Q", y=y))
    paths = base.transform_filter("datum.row != 'gap'")
    for rows, name, text, place in (
        (base, "nats", "format(datum.value, '.3f')", 172),
        (paths, "products", "format(exp(-datum.value), '.4f')", 240),
    ):
        shown = rows.transform_calculate(text=text).properties(name=name)
        number = shown.mark_text(align="right", font=MONO, aria=False)
        layers.append(number.encode(x=alt.value(place), y=y, text="text:N"))
    for text, place in (("nats", 172), ("exp(−nats)", 240)):
        head = alt.Chart(alt.Data(values=[{}])).mark_text(
            align="right", text=text, fontSize=11, aria=False
        )
        layers.append(head.encode(x=alt.value(place), y=alt.value(-8)))
    return alt.layer(*layers)
