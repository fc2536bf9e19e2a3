"""The live figures without a browser: specification, output, numbers.

vl-convert draws a chart by the same libraries as the page. Sliders are moved
in ``test_browser_live.py``.
"""

import json
import math
import re

import numpy as np
import pytest
import vl_convert
from bs4 import BeautifulSoup

import live_cases
from live_cases import STARTS
from toyml import figures, live

CASES = [
    (figure, settings)
    for figure, start in STARTS.items()
    for settings in (start, *live_cases.POSITIONS[figure])
]


def draw(chart):
    picture = vl_convert.vegalite_to_svg(chart.to_dict())
    return BeautifulSoup(picture, "html.parser")


def view(picture, name):
    """The mark group of a named view."""
    return picture.find("g", class_=re.compile(rf"role-mark {name}_"))


def texts(picture, names):
    found = {}
    for name in names:
        if name == "labels":
            labels = [e["aria-label"] for e in picture.select("[aria-label]")]
            kept = ("nats: ", "number of masks M: ")
            found[name] = [x for x in labels if x.startswith(kept)]
        else:
            group = picture.find("g", class_=re.compile(rf" {name}_"))
            found[name] = [e.get_text() for e in group.find_all("text")]
    return found


@pytest.mark.parametrize("figure, settings", CASES)
def test_numbers(figure, settings):
    wanted = live_cases.expected(figure, settings)
    picture = draw(live_cases.chart(figure, settings))
    shown = texts(picture, wanted)
    assert live_cases.differences(shown, wanted) == []


def test_a_wrong_digit_is_seen():
    wanted = {"nats": [("#", [2.2538])], "edge0": [("#", [0.2])]}
    right = {"nats": ["2.254"], "edge0": ["0.20"]}
    assert live_cases.differences(right, wanted) == []
    for wrong in ({"nats": ["2.253"]}, {"nats": []}, {"edge0": ["0,20"]}):
        assert len(live_cases.differences(right | wrong, wanted)) == 1


def points(picture, name):
    """The points of a curve, [n, 2], in pixels of its panel."""
    path = view(picture, name).find("path")["d"]
    pairs = re.findall(r"[ML](-?[\d.]+),(-?[\d.]+)", path)
    return np.array(pairs, dtype=float)


def log_place(values, low, high, height):
    return height * (1 - np.log(values / low) / math.log(high / low))


@pytest.mark.parametrize(
    "kind, p", [("power t^p", 0.25), ("power t^p", 3.2), ("cosine", 1)]
)
def test_curves_of_the_schedule(kind, p):
    picture = draw(live.schedule(p=p, t=0.4, kind=kind))
    law, x = live_cases.named(kind, p), np.arange(1, 101) / 100
    weight = np.array(law.weight(x), float)
    at_ratio = np.array(law.weight(law.inverse(x)), float)
    for name, wanted in (
        ("rho", 100 * law.survival(x)),
        ("alpha", 100 * law.masked(x)),
        ("weight", log_place(weight, 0.1, 400, 100)),
        ("w", log_place(at_ratio, 0.02, 200, 120)),
        ("d", log_place(1 / x / at_ratio, 0.02, 200, 120)),
        ("product", log_place(1 / x, 0.02, 200, 120)),
    ):
        got = points(picture, name)
        np.testing.assert_allclose(got[:, 0], 220 * x, atol=1e-2)
        np.testing.assert_allclose(got[:, 1], wanted, atol=1e-2)


@pytest.mark.parametrize("log_eps, log_length", [(-6, 0), (-2.4, 3)])
def test_curves_of_the_variance(log_eps, log_length):
    picture = draw(live.variance(log_eps, log_length))
    got = points(picture, "by_cutoff")
    x = np.arange(56) / 10 - 6
    values = [live_cases.spread(10**v, 2**log_length) for v in x]
    np.testing.assert_allclose(got[:, 0], 40 * (x + 6), atol=1e-2)
    place = 110 * (1 - np.array(values) / values[0])
    np.testing.assert_allclose(got[:, 1], place, atol=1e-2)
    got, lengths = points(picture, "by_length"), np.arange(8)
    values = [live_cases.spread(10**log_eps, 2**k) for k in lengths]
    place = log_place(np.array(values), 1e-4, 20, 110)
    np.testing.assert_allclose(got[:8, 0], 24 * lengths, atol=1e-2)
    np.testing.assert_allclose(got[:8, 1], place, atol=1e-2)
    for name, point in (
        ("at_log_eps", log_eps * 40 + 240),
        ("at_log_length", 24 * log_length),
    ):
        moved = view(picture, name).find("path")["transform"]
        across = float(re.match(r"translate\(([-\d.]+)", moved).group(1))
        assert across == pytest.approx(point, abs=1e-6)


@pytest.mark.parametrize("figure", STARTS)
def test_output_of_a_cell(figure):
    chart = live_cases.chart(figure, STARTS[figure])
    html = live.show(chart, f"live-{figure}").data
    again = live_cases.chart(figure, STARTS[figure])
    assert live.show(again, f"live-{figure}").data == html
    assert len(html) < 20_000
    page = BeautifulSoup(html, "html.parser")
    assert [d["id"] for d in page.find_all("div")] == [f"live-{figure}"]
    assert page.noscript
    # One host, and versions to the last digit.
    hosts = set(re.findall(r"https?://[^\"`\s]+", page.script.string))
    hosts -= {chart.to_dict()["$schema"]}
    libraries = ("vega", "vega-lite", "vega-embed")
    cdn = "https://cdn.jsdelivr.net/npm"
    for library in libraries:
        version = live.VERSIONS[library.replace("-", "")]
        assert f"{cdn}/{library}@{version}?noext" in hosts
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert all(host.startswith(f"{cdn}/vega") for host in hosts)


def test_the_versions_are_those_that_the_book_serves():
    held = vl_convert.get_vega_version(), vl_convert.get_vega_embed_version()
    assert held == (live.VERSIONS["vega"], live.VERSIONS["vegaembed"])


@pytest.mark.parametrize("figure", STARTS)
def test_controls_are_labelled_and_described(figure):
    spec = live_cases.chart(figure, STARTS[figure]).to_dict()
    bound = {p["name"]: p for p in spec["params"] if "bind" in p}
    assert list(bound) == list(STARTS[figure])
    assert all(p["bind"]["name"].strip() for p in bound.values())
    values = {name: p["value"] for name, p in bound.items()}
    assert values == STARTS[figure]
    assert len(spec["description"]) > 100


def test_colours_are_those_of_the_book():
    known = {style["color"] for style in figures.SYMBOLS.values()}
    for figure, start in STARTS.items():
        text = json.dumps(live_cases.chart(figure, start).to_dict())
        used = set(re.findall(r'"(#[0-9a-fA-F]+)"', text))
        assert used and used <= known


def bad(argument, value):
    return pytest.raises(ValueError, match=f"{argument} = {value}")


def test_bad_input():
    tea = {live_cases.TEA[k]: v for k, v in STARTS["hot-tea"].items()}
    with pytest.raises(ValueError, match="answers has the keys"):
        live.hot_tea({(0, ()): 0.2})
    for value in (0.0, 1.0, 0.205, math.nan):
        with bad("p2", value):
            live.hot_tea(tea | {(1, ()): value})
    with bad("t", 1.01):
        live.masking(t=1.01)
    with bad("L", 13):
        live.masking(length=13)
    with bad("draw", 0):
        live.masking(draw=0)
    with bad("log_eps", -0.45):
        live.variance(log_eps=-0.45)
    with bad("log_length", 11):
        live.variance(log_length=11)
    with bad("p", 0.27):
        live.schedule(p=0.27)
    with bad("t", 0):
        live.schedule(t=0)
    with bad("kind", "'sine'"):
        live.schedule(kind="sine")
    with pytest.raises(ValueError, match="name = 'Live 1'"):
        live.show(live.schedule(), "Live 1")
