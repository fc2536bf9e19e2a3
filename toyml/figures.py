"""The one figure style of the book.

Figures have no background of their own and use mid tones, so that they read
on a light and on a dark page. Each symbol has one colour and one line style
through the whole book; a symbol is never told by colour alone. The helpers
return the arrays they draw.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

#: The colour of text and axes, which reads on light and on dark.
INK = "#7a7a7a"
_BLUE, _RED, _GREEN = "#2f7fc1", "#d55e00", "#159a74"
_PURPLE, _AMBER, _ROSE = "#a763b8", "#b8860b", "#c9507c"

#: The colour, line style and marker of each symbol, as matplotlib arguments.
SYMBOLS = {
    "masked": {"color": _RED, "linestyle": "-"},
    "survival": {"color": _BLUE, "linestyle": "--"},
    "reveal": {"color": _GREEN, "linestyle": "-."},
    "uniform_state": {"color": _GREEN, "linestyle": "--"},
    "weight": {"color": _PURPLE, "linestyle": ":"},
    "nelbo": {"color": _RED, "linestyle": "-", "marker": "o"},
    "nelbo_other": {
        "color": _RED,
        "linestyle": ":",
        "marker": "o",
        "markerfacecolor": "none",
    },
    "nll": {"color": _BLUE, "linestyle": "--", "marker": "s"},
    "nll_other": {
        "color": _BLUE,
        "linestyle": ":",
        "marker": "s",
        "markerfacecolor": "none",
    },
    "left_to_right": {"color": _GREEN, "linestyle": "-.", "marker": ">"},
    "right_to_left": {"color": _PURPLE, "linestyle": ":", "marker": "<"},
    "linear": {"color": _AMBER, "linestyle": "-"},
    "cosine": {"color": _ROSE, "linestyle": "--"},
    "polynomial": {"color": _BLUE, "linestyle": "-."},
    "log_linear": {"color": _GREEN, "linestyle": ":"},
    "inverse_t": {"color": _RED, "linestyle": "-", "marker": "P"},
    "uniform_count": {"color": _BLUE, "linestyle": "--", "marker": "X"},
    "unweighted": {"color": _GREEN, "linestyle": "-.", "marker": "^"},
    "bert": {"color": _PURPLE, "linestyle": ":", "marker": "D"},
    "maskgit": {"color": _AMBER, "linestyle": "-", "marker": "v"},
    "maskgit_bernoulli": {"color": _ROSE, "linestyle": "--", "marker": "x"},
    "forced_target": {"color": _PURPLE, "linestyle": "-", "marker": "*"},
    "pooled_mean": {"color": _AMBER, "linestyle": "-.", "marker": "d"},
    "redraw_mask_only": {"color": _GREEN, "linestyle": ":", "marker": "h"},
    "random_order": {"color": _GREEN, "linestyle": "-", "marker": "o"},
    "ancestral": {"color": _AMBER, "linestyle": "--", "marker": "s"},
    "top_probability": {"color": _ROSE, "linestyle": "-", "marker": "D"},
    "margin": {"color": _BLUE, "linestyle": "-.", "marker": "v"},
}


#: The settings of matplotlib that ``use`` makes.
STYLE = {
    "figure.figsize": (5.2, 3.2),
    "figure.dpi": 140,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "figure.constrained_layout.use": True,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.labelcolor": INK,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 11,
    "axes.titlesize": 11,
    "lines.linewidth": 2,
    "lines.markersize": 5,
}


def use():
    """Set the style for the figures that follow."""
    plt.rcParams.update(STYLE)


def line(ax, x, y, symbol, label=None):
    """Draw y against x in the style of a symbol; returns (x, y) as arrays."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    ax.plot(x, y, label=label, **SYMBOLS[symbol])
    return x, y


def sentence(ax, tokens, masked, row=0, label=None):
    """A row of boxes, one a token; masked ones are filled and say [M].

    tokens: strings; masked: bool [L]. Returns masked as an array.
    """
    masked = np.asarray(masked, bool)
    fill = SYMBOLS["masked"]["color"]
    for i, (word, hidden) in enumerate(zip(tokens, masked, strict=True)):
        _box(ax, i, -row, 0.86, 0.62, fill if hidden else "none")
        text = "[M]" if hidden else word
        _centred(ax, i, -row, text, "white" if hidden else INK)
    if label is not None:
        ax.text(-0.65, -row, label, ha="right", va="center")
    ax.set_xlim(-0.7, len(tokens) - 0.4)
    ax.set_ylim(-row - 0.6, 0.6)
    ax.set_axis_off()
    return masked


def lattice(ax, table, tokens, symbols=None):
    """The mask lattice: a node a pattern, an edge a token that is revealed.

    table: [2^L, L] probabilities of the clean tokens; tokens: strings [L].
    All masks at the top, the clean sequence at the bottom; each edge carries
    the probability of the token it reveals. symbols: {(S, i): symbol} for
    edges drawn in a symbol's style. Returns {(S, i): probability}.
    """
    length = len(tokens)
    patterns = range(1 << length)
    levels = [[] for _ in range(length + 1)]
    for pattern in sorted(patterns, reverse=True):
        levels[pattern.bit_count()].append(pattern)
    place = {
        pattern: (j - (len(level) - 1) / 2, float(k))
        for k, level in enumerate(levels)
        for j, pattern in enumerate(level)
    }
    drawn = {}
    for pattern in patterns:
        for i in range(length):
            if pattern >> i & 1:
                drawn[pattern, i] = float(table[pattern, i])
                ends = place[pattern], place[pattern ^ 1 << i]
                style = {"color": INK, "linewidth": 1}
                if symbols and (pattern, i) in symbols:
                    style = SYMBOLS[symbols[pattern, i]] | {"marker": None}
                _edge(ax, *ends, f"{drawn[pattern, i]:.2g}", style)
    for pattern, (x, y) in place.items():
        words = [
            "[M]" if pattern >> i & 1 else tokens[i] for i in range(length)
        ]
        _box(ax, x, y, 0.86, 0.26, "none")
        _centred(ax, x, y, " ".join(words), INK, size=9)
    ax.set_xlim(-(length + 1.2) / 2, (length + 1.2) / 2)
    ax.set_ylim(-0.3, length + 0.3)
    ax.set_axis_off()
    return drawn


def _box(ax, x, y, width, height, fill):
    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0,rounding_size=0.06"
    box = FancyBboxPatch(
        corner, width, height, boxstyle=style, facecolor=fill, edgecolor=INK
    )
    ax.add_patch(box)


def _centred(ax, x, y, text, color, size=None):
    ax.text(x, y, text, ha="center", va="center", color=color, fontsize=size)


def _edge(ax, top, bottom, text, style, reach=0.13):
    """A line between two boxes; its label keeps clear of crossing lines."""
    (x0, y0), (x1, y1) = top, bottom
    at = 0.55 if x0 == x1 else 0.23
    ax.plot([x0, x1], [y0 - reach, y1 + reach], **style)
    x, y = x0 + at * (x1 - x0), y0 + at * (y1 - y0)
    side = "right" if x1 < x0 else "left"
    shift = -0.04 if x1 < x0 else 0.04
    ax.text(x + shift, y, text, ha=side, va="center", fontsize=9)
