"""One masked sentence and the law of its number of masks."""

import math

import altair as alt
import numpy as np

from .parts import INK, at, column, formula, look, slider, words

WORDS = "the tea is cold but the pot on the stove is hot".split()
DRAWS = 20


def masking(t=0.25, length=4, draw=1, seed=0):
    """A sentence masked at rate t, and the binomial law of its mask count.

    Word i is masked if u_i <= t. The numbers u, [20, 12], are drawn once
    from ``default_rng(seed)`` and kept to three decimals; a slider picks a
    row. t: a step of 0.01 from 0 to 1; length: 1 to 12 words; draw: 1 to 20.
    ValueError otherwise.
    """
    u = np.random.default_rng(seed).random((DRAWS, len(WORDS))).round(3)
    params = [
        slider("t", t, 0, 1, 0.01, "rate t"),
        slider("L", length, 1, len(WORDS), 1, "words L"),
        slider("draw", draw, 1, DRAWS, 1, "draw number"),
        alt.param(name="u", value=u.tolist()),
    ]
    count = "+".join(
        f"(L > {i} && u[draw - 1][{i}] <= t)" for i in range(len(WORDS))
    )
    params.append(formula("M", count))
    return column(
        [_sentence(), _numbers(), _law()],
        params,
        "A sentence in which every word whose uniform number is at most t is "
        "replaced by the mask. Below, bars for the probability of each "
        "number of masks; the bar of the number drawn is filled, a dotted "
        "line stands at the mean.",
    )


def _sentence():
    boxes = [
        {"i": i, "word": word, "x": i % 6, "y": i // 6}
        for i, word in enumerate(WORDS)
    ]
    base = (
        alt.Chart(alt.Data(values=boxes))
        .transform_filter("datum.i < L")
        .transform_calculate(u="u[draw - 1][datum.i]")
        .transform_calculate(
            shown="datum.u <= t ? '[M]' : datum.word",
            under="format(datum.u, '.3f')",
        )
        .encode(
            x=alt.X("x:O", axis=None, scale=alt.Scale(domain=list(range(6)))),
            y=alt.Y("y:O", axis=None, scale=alt.Scale(domain=[0, 1])),
        )
    )
    hidden = base.transform_filter("datum.u <= t")
    box = {"width": 46, "height": 24, "cornerRadius": 4, "yOffset": -7}
    red = look("masked")["color"]
    return alt.layer(
        base.mark_rect(fill=None, stroke=INK, aria=False, **box),
        hidden.mark_rect(fill=red, aria=False, **box),
        base.properties(name="sentence")
        .mark_text(dy=-7)
        .encode(
            text="shown:N",
            description="shown:N",
            color=alt.condition(
                "datum.u <= t", alt.value("black"), alt.value(INK)
            ),
        ),
        base.properties(name="uniforms")
        .mark_text(dy=13, fontSize=10, aria=False)
        .encode(text="under:N"),
        width=300,
        height=96,
    )


def _numbers():
    return words(
        "numbers",
        [
            "'masks drawn M = ' + M + ', mean tL = ' + format(t * L, '.2f')",
            "'P(M = ' + M + ') = ' + format(pow(t, M) * pow(1 - t, L - M)"
            " * ways[L][M], '.4f')",
        ],
    ).add_params(alt.param(name="ways", value=_ways()))


def _ways():
    lengths = range(len(WORDS) + 1)
    return [[math.comb(n, k) for k in range(n + 1)] for n in lengths]


def _law():
    counts = [{"k": k} for k in range(len(WORDS) + 1)]
    base = (
        alt.Chart(alt.Data(values=counts), name="law")
        .transform_filter("datum.k <= L")
        .transform_calculate(
            p="ways[L][datum.k] * pow(t, datum.k) * pow(1 - t, L - datum.k)"
        )
    )
    edge = {"domain": [-0.5, {"expr": "L + 0.5"}], "nice": False}
    x = alt.X("k:Q", title="number of masks M", scale=alt.Scale(**edge))
    x = x.axis(format="d", values=list(range(len(WORDS) + 1)))
    y = alt.Y("p:Q", title="probability", scale=alt.Scale(domain=[0, 1]))
    red = look("masked")["color"]
    bars = base.mark_bar(
        stroke=red, strokeWidth=1.5, size={"expr": "200 / (L + 1)"}
    ).encode(
        x=x,
        y=y.axis(tickCount=4),
        fill=alt.condition("datum.k == M", alt.value(red), alt.value(None)),
    )
    mean = alt.Chart(alt.Data(values=[{}]), name="mean").mark_rule(
        color=INK, strokeDash=[2, 3], strokeWidth=2, aria=False
    )
    mean = mean.encode(x=at("t * L"))
    return alt.layer(bars, mean, width=240, height=110)
