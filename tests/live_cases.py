"""What the live figures must show at a position of their sliders.

``expected(figure, settings)`` computes it with ``toyml`` and returns, for
each named view, its texts with the numbers left out and the numbers.
``differences(shown, wanted)`` compares them with the texts of a picture.
"""

import math
import re
from decimal import Decimal

import numpy as np

from toyml import live, objectives
from toyml.lattice import MaskLattice
from toyml.schedules import COSINE, polynomial, t
from toyml.sources import TeachingTable

TEA = {
    "p1": (0, ()),
    "p2": (1, ()),
    "p1_2": (0, (1,)),
    "p2_1": (1, (0,)),
}
# Where the figures of the notebooks start.
STARTS = {
    "hot-tea": {"p1": 0.2, "p2": 0.1, "p1_2": 0.5, "p2_1": 0.8},
    "masking": {"t": 0.25, "L": 4, "draw": 1},
    "variance": {"log_eps": -3, "log_length": 0},
    "schedule": {"kind": "power t^p", "p": 2, "t": 0.5},
}
CHAPTERS = {
    "hot-tea": "05_hot_tea",
    "masking": "01_masking",
    "variance": "07_second_moment",
    "schedule": "04_schedules",
}
POSITIONS = {
    "hot-tea": [
        {"p1": 0.2, "p2": 0.32, "p1_2": 0.5, "p2_1": 0.8},
        {"p1": 0.01, "p2": 0.99, "p1_2": 0.01, "p2_1": 0.99},
        {"p1": 0.99, "p2": 0.01, "p1_2": 0.01, "p2_1": 0.99},
        {"p1": 0.37, "p2": 0.84, "p1_2": 0.06, "p2_1": 0.53},
    ],
    "masking": [
        {"t": 0, "L": 1, "draw": 1},
        {"t": 1, "L": 12, "draw": 20},
        {"t": 0.37, "L": 12, "draw": 7},
        {"t": 0.82, "L": 9, "draw": 13},
        # One of these words has u = t.
        {"t": 0.5, "L": 12, "draw": 7},
    ],
    "variance": [
        {"log_eps": -6, "log_length": 0},
        {"log_eps": -0.5, "log_length": 8},
        {"log_eps": -4.3, "log_length": 3},
        {"log_eps": -1.7, "log_length": 5},
    ],
    "schedule": [
        {"kind": "cosine", "p": 2, "t": 0.01},
        {"kind": "cosine", "p": 0.25, "t": 0.73},
        {"kind": "power t^p", "p": 4, "t": 0.35},
        {"kind": "power t^p", "p": 0.25, "t": 1},
        {"kind": "power t^p", "p": 1, "t": 0.44},
        {"kind": "power t^p", "p": 1.65, "t": 0.01},
    ],
}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def chart(figure, settings):
    """The figure with its sliders at these positions."""
    if figure == "hot-tea":
        return live.hot_tea({TEA[name]: v for name, v in settings.items()})
    if figure == "masking":
        return live.masking(
            settings["t"], settings["L"], draw=settings["draw"]
        )
    return {"variance": live.variance, "schedule": live.schedule}[figure](
        **settings
    )


def expected(figure, settings):
    """{view: [(text with # for each number, numbers), ...]}."""
    return {
        "hot-tea": hot_tea,
        "masking": masking,
        "variance": variance,
        "schedule": schedule,
    }[figure](**settings)


def hot_tea(**answers):
    table = TeachingTable({TEA[k]: v for k, v in answers.items()}, length=2)
    lattice = MaskLattice.from_denoiser(table, [0, 0], vocab_size=2)
    forward, backward = (lattice.order_loss(o) for o in ([0, 1], [1, 0]))
    nelbo, nll = lattice.nelbo(), lattice.generator_nll()
    losses = {
        "left to right": forward,
        "right to left": backward,
        "NELBO": nelbo,
        "NLL": nll,
    }
    shown = {
        f"edge{i}": [("#", [answers[name]])]
        for i, name in enumerate(("p1", "p2_1", "p2", "p1_2"))
    }
    shown["nats"] = [("#", [x]) for x in (*losses.values(), lattice.gap())]
    products = [
        answers["p1"] * answers["p2_1"],
        answers["p2"] * answers["p1_2"],
        math.exp(-nelbo),
        lattice.generator_probability(),
    ]
    shown["products"] = [("#", [x]) for x in products]
    shown["labels"] = [
        (f"nats: #; row: {row}", [loss]) for row, loss in losses.items()
    ]
    shown["labels"] += [("nats: #; row: gap; end: #", [nll, nelbo])]
    return shown


def masking(t, L, draw):
    words = "the tea is cold but the pot on the stove is hot".split()[:L]
    u = np.random.default_rng(0).random((20, 12)).round(3)[draw - 1, :L]
    hidden = u <= t
    law = np.ones(1)
    for _ in range(L):
        law = np.convolve(law, [1 - t, t])
    masks = int(hidden.sum())
    text = ["[M]" if h else w for w, h in zip(words, hidden, strict=True)]
    return {
        "sentence": [(word, []) for word in text],
        "uniforms": [("#", [v]) for v in u],
        "numbers": [
            ("masks drawn M = #, mean tL = #", [masks, t * L]),
            ("P(M = #) = #", [masks, law[masks]]),
        ],
        "labels": [
            ("number of masks M: #; probability: #", [k, p])
            for k, p in enumerate(law)
        ],
    }


def spread(eps, length):
    """Variance per token at cost 1 by the law of mask counts."""
    law = objectives.inverse_t_truncated(eps, rescale=False).law(length)
    k = np.arange(length + 1)
    mean = np.asarray(law.weight) @ k / length
    return float(np.asarray(law.weight_squared) @ k**2 / length**2 - mean**2)


def variance(log_eps, log_length):
    eps, length = 10**log_eps, 2**log_length
    value = spread(eps, length)
    return {
        "numbers": [
            ("ε = #, L = #", [eps, length]),
            ("cut 1/t, variance per token: #", [value]),
            ("sequences for a 1% error: #", [math.ceil(value * 1e4)]),
            ("uniform count, forced target: #", [0]),
        ]
    }


def named(kind, p):
    return COSINE if kind == "cosine" else polynomial(p)


def slope(law, time):
    return float(law.masked_form.diff(t).subs(t, time))


def schedule(kind, p, t):
    law = named(kind, p)
    rho, weight = float(law.masked(t)), float(law.weight(t))
    return {
        "numbers": [
            ("ρ = #, α = #", [rho, float(law.survival(t))]),
            ("weight w = #", [weight]),
            ("density at ratio ρ: d = #", [1 / slope(law, t)]),
            ("w d = # = 1/ρ", [1 / rho]),
        ]
    }


def differences(shown, wanted):
    """Where texts differ from what is wanted; numbers to the last digit."""
    found = []
    for view, lines in wanted.items():
        texts = shown.get(view, [])
        if len(texts) != len(lines):
            found.append(f"{view}: {texts}, expected {len(lines)} texts")
            continue
        for text, (words, numbers) in zip(texts, lines, strict=True):
            text = text.replace("−", "-")
            fixed = words.split("#")
            pattern = f"({NUMBER.pattern})".join(map(re.escape, fixed))
            match = re.fullmatch(pattern, text)
            if not match or not all(map(agrees, match.groups(), numbers)):
                found.append(f"{view}: {text!r}, expected {words} {numbers}")
    return found


def agrees(digits, number):
    """Whether a number is shown rightly to the digits that are shown."""
    unit = float(Decimal(1).scaleb(Decimal(digits).as_tuple().exponent))
    room = 0.5 * unit * (1 + 1e-6) + 1e-9 * abs(number)
    return abs(float(digits) - number) <= room
