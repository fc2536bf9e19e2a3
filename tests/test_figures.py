"""The figure helpers draw what they return, in styles that can be told."""

from itertools import product

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from toyml import figures

matplotlib.use("Agg")
plt = matplotlib.pyplot
PAGES = ["#ffffff", "#14181e"]
COLORS = {style["color"] for style in figures.SYMBOLS.values()}


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def luminance(color):
    """Relative luminance of WCAG 2."""
    channels = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in to_rgb(color)
    ]
    return np.dot([0.2126, 0.7152, 0.0722], channels)


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_black_and_white():
    assert contrast("black", "white") == pytest.approx(21)
    assert contrast("#777777", "white") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    "color, page", list(product(sorted(COLORS | {figures.INK}), PAGES))
)
def test_colors_read_on_light_and_dark_pages(color, page):
    assert contrast(color, page) >= 3


def test_no_two_symbols_look_alike():
    looks = {}
    for name, style in figures.SYMBOLS.items():
        look = style["color"], style["linestyle"], style.get("marker")
        assert look not in looks, f"{name} looks like {looks.get(look)}"
        looks[look] = name


def test_every_objective_and_schedule_has_a_style():
    names = {"linear", "cosine", "polynomial", "log_linear"}
    names |= {"inverse_t", "uniform_count", "unweighted"}
    names |= {"bert", "maskgit", "maskgit_bernoulli"}
    assert names <= set(figures.SYMBOLS)


@pytest.mark.parametrize("symbol", list(figures.SYMBOLS))
def test_line(ax, symbol):
    x, y = figures.line(ax, [0, 1, 2], (3, 1, 2), symbol, label="here")
    (drawn,) = ax.lines
    assert np.array_equal(drawn.get_xydata(), np.stack([x, y], axis=1))
    assert np.array_equal(x, [0, 1, 2]) and np.array_equal(y, [3, 1, 2])
    style = figures.SYMBOLS[symbol]
    assert drawn.get_color() == style["color"]
    assert drawn.get_linestyle() == style["linestyle"]
    assert drawn.get_marker() == style.get("marker", "None")
    assert drawn.get_label() == "here"


def test_sentence(ax):
    words = ["the", "tea", "is", "cold"]
    hidden = [False, True, False, True]
    assert list(figures.sentence(ax, words, hidden, label="t")) == hidden
    shown = [text.get_text() for text in ax.texts]
    assert shown == ["the", "[M]", "is", "[M]", "t"]
    filled = [to_rgb(box.get_facecolor()) for box in ax.patches]
    color = to_rgb(figures.SYMBOLS["masked"]["color"])
    assert [f == color for f in filled] == hidden
    with pytest.raises(ValueError):
        figures.sentence(ax, words, hidden[:3])


@pytest.mark.parametrize("length", [1, 2, 3])
def test_lattice(ax, length):
    rows = np.random.default_rng(0).random((1 << length, length))
    tokens = [f"w{i}" for i in range(length)]
    got = figures.lattice(ax, rows, tokens)
    wanted = {
        (s, i): rows[s, i]
        for s in range(1 << length)
        for i in range(length)
        if s >> i & 1
    }
    assert got == wanted
    assert len(ax.lines) == length << (length - 1)
    texts = [text.get_text() for text in ax.texts]
    assert sorted(t for t in texts if "." in t) == sorted(
        f"{p:.2g}" for p in wanted.values()
    )
    for s in range(1 << length):
        node = " ".join(
            "[M]" if s >> i & 1 else w for i, w in enumerate(tokens)
        )
        assert texts.count(node) == 1


def test_lattice_edges_lead_to_fewer_masks(ax):
    """Downwards, from all masks at the top to the clean sequence."""
    figures.lattice(ax, np.ones((8, 3)), ["a", "b", "c"])
    heights = {
        text.get_text(): text.get_position()[1]
        for text in ax.texts
        if text.get_text() != "1"
    }
    for node, height in heights.items():
        assert height == node.count("[M]")
    for line in ax.lines:
        (_, top), (_, bottom) = line.get_xydata()
        assert 0 < top - bottom < 1


def test_lattice_edges_in_a_symbols_style(ax):
    figures.lattice(
        ax, np.ones((4, 2)), ["a", "b"], {(3, 0): "left_to_right"}
    )
    color = figures.SYMBOLS["left_to_right"]["color"]
    assert [line.get_color() for line in ax.lines].count(color) == 1


def test_the_style_has_no_background():
    with plt.rc_context():
        figures.use()
        assert plt.rcParams["figure.facecolor"] == "none"
        assert plt.rcParams["axes.facecolor"] == "none"
        assert plt.rcParams["text.color"] == figures.INK
