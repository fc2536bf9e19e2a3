"""The claims of the book: each toy is linked, tagged, run and right.

A check of this file computes by another route what the linked cell prints.
nbval sees to it that the committed outputs are what the cells compute.
"""

import math
import re
from collections import Counter
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product

import numpy as np
import pytest
import sympy as sp

from notebook_checks import ROOT, read, stream_text
from toyml import recorded
from toyml.train.config import preset
from toyml.train.data import load, markov

IDS = [
    *(f"F{n}" for n in range(1, 47)),
    *(f"P{n}" for n in range(1, 6)),
    *(f"R{n}" for n in range(1, 5)),
]
LINK = re.compile(
    r"\[(\d\d)\]\(\.\./notebooks/(\d\d_\w+)\.ipynb#cell-([a-z0-9-]+)\)"
)
NO_TOY = {"not reproduced here", "–"}
# Rows whose source is no entry of the references.
NAMED_SOURCES = {
    "F44": "no source counts this",
    "P5": "LLaDA's public code",
}
SYSTEMS = (
    "Autoregressive",
    "BERT",
    "MaskGIT",
    "D3PM, absorbing",
    "D3PM, uniform",
    "ARDM",
    "MDLM",
    "MD4",
    "RADD",
    "SEDD",
    "LLaDA",
    "Block Diffusion",
    "Dream 7B",
    "LLaDA2.0",
    "DiffusionGemma",
)


# The pages.


def page(name):
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


def tables(text):
    """Each table as a list of rows of cells, the head first, no rule."""
    found = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in table.splitlines()
            if not line.startswith("|---")
        ]
        for table in found
    ]


def body(table):
    return table[1:]


def claim_rows():
    """(id, claim, source and status, toy) in the order of the page."""
    rows = [row for t in tables(page("claims")) for row in body(t)]
    return [row for row in rows if re.fullmatch(r"[FPR]\d+", row[0])]


def links(text):
    """(notebook, cell) of each link; the label is the chapter's number."""
    found = LINK.findall(text)
    assert all(stem.startswith(label) for label, stem, _ in found)
    return [(stem, cell) for _, stem, cell in found]


def linked():
    return [
        (row, stem, cell)
        for row, _, _, toy in claim_rows()
        for stem, cell in links(toy)
    ]


@cache
def cells_of(stem):
    notebook = read(ROOT / "notebooks" / f"{stem}.ipynb")
    return {c.id: c for c in notebook.cells if c.cell_type == "code"}


def output(stem, cell):
    return stream_text(cells_of(stem)[cell])


def claim_tags(cell):
    tags = cell.metadata.get("tags", [])
    return {t.removeprefix("claim-") for t in tags if t.startswith("claim-")}


def links_to_cells(text):
    return re.findall(r"\]\(\.\./notebooks/[^)]*\)", text)


def problems_of_row(row):
    number, claim, source, toy = row
    problems = [] if claim else ["no claim"]
    if number.startswith("R"):
        if not re.match(r"measured on |not measured: ", source):
            problems.append("no status")
    else:
        words = [row[0] for row in body(tables(page("claims"))[0])]
        if not any(re.search(rf"\b{word}\b", source) for word in words):
            problems.append("no status")
        keys = re.findall(r"\{cite:p\}`(\w+)`", source)
        if any(f"{{{key}," not in references() for key in keys):
            problems.append("unknown source")
        if not keys and NAMED_SOURCES.get(number, "\0") not in source:
            problems.append("no source")
    if bool(links(toy)) == (toy in NO_TOY):
        problems.append("neither a toy nor 'not reproduced here'")
    if len(links(toy)) != len(links_to_cells(toy)):
        problems.append("a link without a cell")
    return problems


@cache
def references():
    return (ROOT / "book" / "references.bib").read_text(encoding="utf-8")


def test_each_claim_has_one_row():
    assert Counter(row[0] for row in claim_rows()) == Counter(IDS)


def test_rows_are_complete():
    problems = {row[0]: problems_of_row(row) for row in claim_rows()}
    assert {k: v for k, v in problems.items() if v} == {}


@pytest.mark.parametrize(
    ("place", "text", "problem"),
    [
        (2, "{cite:p}`austin2021d3pm` §3.1", "no status"),
        (2, "A paper. Verified", "no source"),
        (2, "{cite:p}`nobody2020`. Verified", "unknown source"),
        (3, "a chapter", "neither a toy nor 'not reproduced here'"),
        (
            3,
            "[01](../notebooks/01_masking.ipynb#cell-kernel), "
            "[02](../notebooks/02_reverse_posterior.ipynb)",
            "a link without a cell",
        ),
    ],
)
def test_an_incomplete_row_is_seen(place, text, problem):
    row = list(claim_rows()[0])
    assert problems_of_row(row) == []
    row[place] = text
    assert problems_of_row(row) == [problem]


def test_linked_cells_are_tagged_and_were_run():
    for row, stem, name in linked():
        cell = cells_of(stem)[name]
        assert row in claim_tags(cell), (row, stem, name)
        assert cell.execution_count and stream_text(cell).strip()


def test_each_tag_has_a_row_that_leads_back():
    tagged = [
        (row, path.stem, name)
        for path in sorted((ROOT / "notebooks").glob("*.ipynb"))
        for name, cell in cells_of(path.stem).items()
        for row in claim_tags(cell)
    ]
    assert Counter(tagged) == Counter(linked())


def test_tags_stand_on_code_cells_only():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in read(path).cells:
            assert cell.cell_type == "code" or not claim_tags(cell)


def system_of(cell):
    return re.sub(r" \{cite:p\}`\w+`", "", cell)


def neighbour_tables():
    found = tables(page("neighbours"))
    return [table for table in found if table[0][0] == "system"]


def test_each_neighbour_has_a_row_in_each_table():
    assert len(neighbour_tables()) == 3
    for table in neighbour_tables():
        assert [system_of(row[0]) for row in body(table)] == list(SYSTEMS)
        assert all(c for row in body(table) for c in row)


def test_each_neighbour_runs_in_a_cell():
    for row in body(neighbour_tables()[-1]):
        found = links(row[-1])
        assert found and len(found) == len(links_to_cells(row[-1])), row
        for stem, name in found:
            assert cells_of(stem)[name].execution_count
            assert output(stem, name).strip(), (stem, name)


def test_each_bound_is_yes_no_or_not_verified():
    for row in body(neighbour_tables()[1]):
        assert re.match(r"(yes|no|not verified)\b", row[-1]), row


def test_errata_lead_to_cells():
    rows = body(tables(page("errata"))[0])
    assert [row[0] for row in rows] == [f"[Q{n}](#q{n})" for n in range(1, 16)]
    for _, about, status, shown in rows:
        assert about and status
        assert links(shown) or shown == "not reproduced here"
    for stem, name in links(page("errata")):
        assert output(stem, name).strip(), (stem, name)
    found = re.findall(r"(?m)^\(q(\d+)\)=$", page("errata"))
    assert sorted(map(int, found)) == list(range(1, 16))


# The checks of the outputs.

CHECKED = {}


def claim(rows, stem, name):
    """Register what the output of a cell must hold for these claims."""

    def register(function):
        for row in rows.split():
            assert (row, stem, name) not in CHECKED
            CHECKED[row, stem, name] = function
        return function

    return register


def squeezed(text):
    return " ".join(text.split())


def missing(pieces, text):
    """The pieces, with single spaces, that the text lacks as a whole."""
    text = squeezed(text)
    return [
        piece
        for piece in pieces
        if not re.search(rf"(?<![\w.]){re.escape(piece)}(?![\w]|\.\d)", text)
    ]


@cache
def pieces_of(function):
    pieces = [squeezed(piece) for piece in function()]
    assert pieces and all(re.search(r"\d", piece) for piece in pieces)
    return pieces


def checks(function):
    return pytest.mark.parametrize(
        ("row", "stem", "name"), CHECKED, ids=map("-".join, CHECKED)
    )(function)


# Hot tea: the costs of the four questions.

TEA = {"1": 0.2, "2": 0.1, "1|2": 0.5, "2|1": 0.8}
COST = {name: -math.log(p) for name, p in TEA.items()}
NELBO = math.log(1 / math.prod(TEA.values())) / 2
NLL = -math.log((0.2 * 0.8 + 0.1 * 0.5) / 2)
BOTH, ONE = COST["1"] + COST["2"], COST["1|2"] + COST["2|1"]


def by_orders(table):
    """(mean over orders of the loss, -log of the mean probability)."""
    length = table.shape[1]
    found = []
    for order in permutations(range(length)):
        pattern, p = 2**length - 1, 1.0
        for i in order:
            p *= table[pattern, i]
            pattern ^= 1 << i
        found.append(p)
    return -np.log(found).mean(), -math.log(np.mean(found))


def scored(ratio_law, length):
    """e(k) from a law of the count: k P(k)."""
    return [k * ratio_law[k] for k in range(1, length + 1)]


def coins(rate, length):
    """The law of the count, pattern by pattern."""
    law = [0] * (length + 1)
    for pattern in product((0, 1), repeat=length):
        k = sum(pattern)
        law[k] += rate**k * (1 - rate) ** (length - k)
    return law


def rounded_up_cosine(length, n=1_000_000):
    """The law of ceil(L cos(pi r / 2)) on a fine grid of r."""
    r = (np.arange(n) + 0.5) / n
    counts = np.ceil(length * np.cos(np.pi * r / 2)).astype(int)
    return np.bincount(counts, minlength=length + 1) / n


def numbers(values, form):
    return " ".join(f"{v:{form}}" for v in values)


# The process and the bound.


@claim("F1", "01_masking", "kernel")
def absorbing_kernel():
    keep = Fraction(1, 2) / Fraction(3, 4)  # survival at 1/2 over at 1/4
    rows = [[keep if i == j else 0 for j in range(4)] for i in range(4)]
    yield " ".join(map(str, sum((r + [1 - keep] for r in rows), [])))
    yield "0 0 0 0 1 True"


@claim("F1", "19_uniform_state", "kernels")
def both_kernels():
    half, other = Fraction(1, 2), Fraction(1, 2) / 3
    stay = half + other  # the uniform draw may hit the same token
    for a in ("absorbing", "uniform"):
        rows = []
        for i, j in product(range(3), repeat=2):
            entry = half if a == "absorbing" else stay
            rows.append(entry if i == j else (a == "uniform") * other)
        lines = [rows[n : n + 3] for n in (0, 3, 6)]
        if a == "absorbing":
            lines = [line + [half] for line in lines] + [[0, 0, 0, 1]]
        yield f"{a} " + " ".join(str([str(v) for v in r]) for r in lines)


@claim("F2 F12", "05_hot_tea", "order-losses")
def loss_of_both_orders():
    losses = [COST["1"] + COST["2|1"], COST["2"] + COST["1|2"]]
    yield numbers(losses, ".3f")
    yield f"1/125 and 3*log(5)/2 = {sum(losses) / 2:.3f}"
    assert math.isclose(1.5 * math.log(5), sum(losses) / 2)


@claim("F2", "06_weights_compared", "laws-check")
def weights_of_the_bound():
    count = [Fraction(0)] + 4 * [Fraction(1, 4)]
    weight = [4 * e / k for k, e in enumerate(scored(count, 4), start=1)]
    yield f"uniform_count {numbers(map(float, weight), '.3f')} True"
    # 1/t: e(k) = k C(4, k) B(k, 5 - k)
    e = [
        k * math.comb(4, k) * math.gamma(k) * math.gamma(5 - k) / 24
        for k in range(1, 5)
    ]
    yield f"inverse_t {numbers(e, '.3f')} True"


@claim("F6", "06_weights_compared", "laws-check")
def weights_of_bert():
    yield f"bert {numbers(scored(coins(0.15, 4), 4), '.3f')} True"
    # a uniform rate gives each count 0..4 the probability 1/5
    yield f"unweighted {numbers(scored(5 * [1 / 5], 4), '.3f')} True"


@claim("P2", "06_weights_compared", "laws-check")
def weights_of_maskgit():
    law = rounded_up_cosine(4)
    yield f"maskgit {numbers(scored(law, 4), '.3f')} True"


@claim("F3", "01_masking", "law-proof")
def independent_masks():
    law = coins(Fraction(1, 4), 4)
    yield f"expected {160_000 * law[0]}"
    yield f"expected {160_000 * law[4]}"


@claim("F3", "01_masking", "schedule-proof")
def masked_shares():
    alpha = {
        "linear": lambda t: 1 - t,
        "cosine": lambda t: math.cos(math.pi * t / 2),
        "polynomial(2)": lambda t: 1 - t**2,
    }
    for name, survival in alpha.items():
        for t in (0.2, 0.5, 0.8):
            yield f"{name} {t} {round(1000 * (1 - survival(t)))} True"


@claim("F4", "02_reverse_posterior", "matrices-any-schedule")
def reverse_posterior():
    a_s, a_t = sp.symbols("a_s a_t")
    clean_then_masked, masked_already = a_s - a_t, 1 - a_s
    masked = clean_then_masked + masked_already
    yield str([0, clean_then_masked / masked, 0, masked_already / masked])


@claim("F4", "04_schedules", "weight-proof")
def weights_of_schedules():
    forms = {
        "linear": (lambda t: 1 - t, "1/t"),
        "cosine": (lambda t: math.cos(math.pi * t / 2), "pi/(2*tan(pi*t/4))"),
        "polynomial(2)": (lambda t: 1 - t**2, "2/t"),
        "polynomial(3)": (lambda t: 1 - t**3, "3/t"),
    }
    for name, (alpha, form) in forms.items():
        for t in (0.2, 0.7):
            slope = (alpha(t + 1e-6) - alpha(t - 1e-6)) / 2e-6
            value = eval(form, {"pi": math.pi, "tan": math.tan, "t": t})
            assert math.isclose(-slope / (1 - alpha(t)), value, rel_tol=1e-6)
        yield f"{name} {form} True"


@claim("F5", "04_schedules", "two-token-integral")
def bound_of_two_tokens():
    # each order asks one question with both masked and one with one
    orders = list(permutations(range(2)))
    asked = {
        k: Fraction(len(orders), math.comb(2, k) * math.factorial(2))
        for k in (1, 2)
    }
    assert asked == {1: Fraction(1, 2), 2: 1}
    share = [asked[k] * math.comb(2, k) / k for k in (1, 2)]
    assert share == [1, Fraction(1, 2)]
    for name in ("linear", "cosine", "polynomial(2)", "polynomial(3)"):
        yield f"{name} C1 + C2/{share[1].denominator}"


def four_tokens():
    rng = np.random.default_rng(0)
    size = np.array([n.bit_count() for n in range(16)])
    hidden = np.arange(16)[:, None] >> np.arange(4) & 1
    answers = rng.uniform(0.4, 0.95, (16, 4)) ** size[:, None]
    return np.where(hidden, answers, 1.0)


@claim("F5", "04_schedules", "quadrature-check")
def bound_under_four_schedules():
    nelbo, _ = by_orders(four_tokens())
    yield f"by counts {nelbo:.6f}"
    for name in ("linear", "cosine", "polynomial(2)", "polynomial(3)"):
        yield f"{name} {nelbo:.6f} True"


def rate_given_count(count, length):
    """Mean and deviation of a uniform rate, given the count of masks."""
    mean = Fraction(count + 1, length + 2)
    square = mean * Fraction(count + 2, length + 3)
    return mean, math.sqrt(square - mean**2)


@claim("F7", "10_what_the_network_learns", "count-draw")
def count_and_time():
    yield f"F7: log(23.21 / 23.05) = {math.log(23.21) - math.log(23.05):.3f}"
    mean, deviation = rate_given_count(2, 4)
    yield f"mean {mean} as drawn: True"
    yield f"exact: {deviation:.3f}"
    for length in (4, 64, 1024):
        _, deviation = rate_given_count(length // 2, length)
        at = f"L = {length}, half masked: t = 0.5"
        yield f"{at} with deviation {deviation:.3f}"


@claim("F8", "10_what_the_network_learns", "replace-show")
def conditional_without_time():
    p = {0: Fraction(2, 10), 1: Fraction(3, 10)}  # first word, second is 1
    value = p[0] / sum(p.values())
    yield f"mask, one rate {value} " + numbers(3 * [float(value)], ".3f")
    rows = []
    for t in (0.1, 0.5, 0.9):
        masked = {v: float(p[v]) * t ** (v + 1) for v in p}
        rows.append(masked[0] / sum(masked.values()))
    yield f"mask, t and t^2 2/(3*t + 2) {numbers(rows, '.3f')}"


@claim("F8", "19_uniform_state", "score-proof")
def score_and_conditional():
    rng = np.random.default_rng(7)
    law = dict(zip(product((0, 1), repeat=3), rng.random(8), strict=True))
    questions = 0
    for t in (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)):
        scalar = (1 - t) / t
        questions = 0
        noisy = Counter()
        for x, p in law.items():
            for m in product((0, 1), repeat=3):
                z = tuple(2 if h else v for v, h in zip(x, m, strict=True))
                noisy[z] += p * float(t ** sum(m) * (1 - t) ** (3 - sum(m)))
        for z, i, v in product(product(range(3), repeat=3), range(3), (0, 1)):
            if z[i] != 2:
                continue
            questions += 1
            y = (*z[:i], v, *z[i + 1 :])
            fits = [
                x
                for x in law
                if all(a in (b, 2) for a, b in zip(z, x, strict=True))
            ]
            clean = sum(law[x] for x in fits if x[i] == v)
            clean /= sum(law[x] for x in fits)
            assert math.isclose(noisy[y] / noisy[z], scalar * clean)
        yield f"F8: t = {t}, scalar {scalar}, {questions} True"


@claim("F9", "05_hot_tea", "beta-proof")
def every_question_counted():
    asked = sum(n * 2 ** (n - 1) for n in range(1, 6))
    for n in range(1, 6):  # the weights of one length add up to n
        f = math.factorial
        total = sum(
            k * math.comb(n, k) * Fraction(f(k - 1) * f(n - k), f(n))
            for k in range(1, n + 1)
        )
        assert total == n
    yield f"{asked} questions True"


@claim("F10", "05_hot_tea", "any-order-check")
def any_order_loss():
    rng = np.random.default_rng(11)
    for n in range(1, 7):
        hidden = np.arange(2**n)[:, None] >> np.arange(n) & 1
        table = np.where(hidden, rng.uniform(0.1, 0.9, hidden.shape), 1.0)
        size = hidden.sum(axis=1)
        sets = [math.comb(n, k) * k for k in size]
        loss = -np.log(table).sum(axis=1)
        counted = sum(v / s for v, s in zip(loss[1:], sets[1:], strict=True))
        assert math.isclose(counted, by_orders(table)[0])
        yield f"{n} True True"


@claim("F11", "03_likelihood_bound", "k-limit")
def limit_of_the_bound():
    assert math.isclose(NELBO, math.log(125) / 2)
    yield f"True {NELBO:.3f}"
    yield "a/2 + b/2"


@claim("F11", "04_schedules", "value-schedule")
def rate_that_reads_the_token():
    for t in (Fraction(1, 10), Fraction(1, 2), Fraction(1)):
        masked = [t / 2, t**2 / 2]
        yield f"at t = {t} is {masked[0] / sum(masked)}"


@claim("F12", "06_weights_compared", "examples")
def two_losses():
    yield f"= {math.log(1 / (0.4 * 0.5)) * 2:.3f}"
    yield f"= {math.log(1 / 0.6) * 4:.3f}"


def in_steps(K):
    """NELBO and NLL of hot tea when each token picks one of K steps."""
    bound, p = 0.0, 0.0
    for first, second in product(range(K), repeat=2):
        if first == second:
            answers = TEA["1"], TEA["2"]
        elif first < second:
            answers = TEA["1"], TEA["2|1"]
        else:
            answers = TEA["2"], TEA["1|2"]
        bound -= math.log(math.prod(answers)) / K**2
        p += math.prod(answers) / K**2
    return bound, -math.log(p)


@claim("F13", "03_likelihood_bound", "k-table")
def bound_in_steps():
    for K in (1, 2, 4, 8, 10, 16, 32, 64):
        bound, nll = in_steps(K)
        assert bound > nll - 1e-12
        yield f"{K} {bound:.3f} {nll:.3f}"


@claim("F13", "05_hot_tea", "generator-proof")
def nll_and_gap():
    p = Fraction(1, 2) * (Fraction(4, 25) + Fraction(1, 20))
    assert NELBO > NLL
    yield f"{p} {p}"
    yield f"{NLL:.3f} {round(NELBO - NLL, 3)}"


def uniform_count_moments(costs):
    """Mean and variance of L/k times the loss, over all draws."""
    length = len(costs) and len(next(iter(costs)))
    draws = []
    for mask, loss in costs.items():
        k = sum(mask)
        if k:
            p = 1 / length / math.comb(length, k)
            draws.append((p, length / k * loss))
    mean = sum(p * v for p, v in draws)
    return mean, sum(p * v**2 for p, v in draws) - mean**2


def tea_costs():
    return {(0, 0): 0, (1, 0): COST["1|2"], (0, 1): COST["2|1"], (1, 1): BOTH}


@claim("F46", "06_weights_compared", "effective-proof")
def mean_of_uniform_count():
    mean, _ = uniform_count_moments(tea_costs())
    yield f"uniform_count exact {mean:.3f}, simulated: True"


def truncated_moments(eps):
    """(1 - eps)/t times the loss of hot tea, t uniform on [eps, 1]."""
    single = COST["1|2"] ** 2 + COST["2|1"] ** 2
    log = math.log(1 / eps)
    second = BOTH**2 * (1 - eps) + single * (log - (1 - eps))
    mean = BOTH * (1 - eps**2) / 2 + ONE * (1 - eps) ** 2 / 2
    return mean, (1 - eps) * second - mean**2


@claim("F46", "08_forced_target_and_rivals", "rival-table")
def variance_of_uniform_count():
    _, variance = uniform_count_moments(tea_costs())
    yield f"uniform count {variance:.3f}"
    yield "1/t inf"


@claim("F30", "08_forced_target_and_rivals", "rival-table")
def variances_of_estimators():
    _, count = uniform_count_moments(tea_costs())
    forced = sum((2 * v) ** 2 for v in COST.values()) / 4 - NELBO**2
    _, cut = truncated_moments(1e-3)
    assert count < forced < cut
    yield f"uniform count {count:.3f}"
    yield f"forced target {forced:.3f}"
    yield f"1/t truncated at 0.001 {cut:.3f}"


@claim("F46", "12_a_known_answer", "race-law")
def both_moments_on_eight_tokens():
    length, chain = 8, markov(8)
    config = preset(
        "markov", seed=0, length=length, batch=64, steps=300, device="cpu"
    )
    x = load(config).validation[0]
    p = chain.initial[x[0]]
    for a, b in pairwise(x):
        p *= chain.transition[a, b]
    costs = {}
    for mask in product((0, 1), repeat=length):
        answers = chain_conditionals(chain, x, mask)
        costs[mask] = -sum(map(math.log, answers))
    mean, variance = uniform_count_moments(costs)
    assert math.isclose(mean, -math.log(p))
    yield f"NELBO of the sequence {mean:.2f}"
    yield f"uniform_count mean {mean:.2f}, variance {variance:.2f}"
    yield f"inverse_t mean {mean:.2f}, variance inf"


def chain_conditionals(chain, x, mask):
    """p(x_i | visible) for each masked i, by powers of the matrix."""
    P, pi = chain.transition, chain.initial
    shown = [i for i, hidden in enumerate(mask) if not hidden]
    power = [np.linalg.matrix_power(P, n) for n in range(len(x) + 1)]
    for i in np.flatnonzero(mask):
        left = max((j for j in shown if j < i), default=None)
        right = min((j for j in shown if j > i), default=None)
        law = pi @ power[i] if left is None else power[i - left][x[left]]
        if right is not None:
            law = law * power[right - i][:, x[right]]
        yield law[x[i]] / law.sum()


# BERT, MaskGIT and the weights.


@claim("F15", "06_weights_compared", "effective-proof")
def maskgit_is_no_bound():
    law = rounded_up_cosine(2)
    value = law[1] * ONE / 2 + law[2] * BOTH
    assert not math.isclose(value, NELBO, abs_tol=0.1)
    yield f"maskgit exact {value:.3f}, simulated: True"
    yield f"unweighted exact {ONE / 6 + BOTH / 3:.3f}, simulated: True"


@claim("F45", "06_weights_compared", "gibbs")
def bert_rarely_sees_all_masks():
    selected = math.exp(16 * math.log(0.15))
    yield f"BERT, all 16 masked: probability {selected:.1e}"
    shown = selected * 0.8**16
    yield f"with 80% shown as masks: {shown:.1e}"


@claim("F45", "06_weights_compared", "full")
def bert_weight_of_all_masks():
    yield f"e(4): {1:.4f} {scored(coins(0.15, 4), 4)[3]:.4f}"
    text = output("06_weights_compared", "full")
    inverse_t, bert = re.findall(r"with 1/t (\S+), with BERT (\S+)", text)[0]
    assert 0 < float(inverse_t) < float(bert)  # BERT's weights write worse


@claim("P1", "06_weights_compared", "bert-inputs")
def fates_of_a_selected_token():
    other = Fraction(1, 10) * Fraction(3, 4)
    same = 1 - Fraction(8, 10) - other
    yield f"'mask': '4/5', 'own token': '{same}', 'wrong token': '{other}'"


@claim("P3", "03_likelihood_bound", "break-leak")
def cost_of_a_leak():
    q = [0.5, 0.5]  # stays, reveals the right token
    p = [0.5 + 0.5 * 0.2, 0.5 * 0.5]
    kl = sum(a * math.log(a / b) for a, b in zip(q, p, strict=True))
    yield f"divergence {kl:.3f}"
    yield f"-r log mu {math.log(2) / 2:.3f}"


@claim("P4", "03_likelihood_bound", "truncation-hot-tea")
def cut_and_repaired():
    eps = 0.1
    cut = BOTH * (1 - eps**2) / 2 + ONE * (1 - eps) ** 2 / 2
    jump = eps**2 * BOTH + eps * (1 - eps) * ONE
    assert cut < NELBO < cut + jump
    yield f"integral alone {cut:.3f}"
    yield f"with the jump {cut + jump:.3f}"
    yield f"full bound {NELBO:.3f}"
    yield f"plain mean {cut / (1 - eps):.3f}"


def cut_four_tokens(eps):
    """Truncated integral and reconstruction of the four tokens."""
    table, integral, jump = four_tokens(), 0.0, 0.0
    for row in range(1, 16):
        k = row.bit_count()
        loss = -np.log(table[row]).sum()
        power = np.polynomial.Polynomial([0, 1]) ** (k - 1)
        power *= np.polynomial.Polynomial([1, -1]) ** (4 - k)
        whole = power.integ()
        integral += loss * (whole(1) - whole(eps))
        jump += loss * eps**k * (1 - eps) ** (4 - k)
    return integral, jump


@claim("P4", "04_schedules", "cut-mean")
def reconstruction_of_four_tokens():
    integral, jump = cut_four_tokens(1e-3)
    nelbo, _ = by_orders(four_tokens())
    assert integral < nelbo < integral + jump < nelbo + 1e-5
    yield f"truncated integral {integral:.6f}"
    yield f"integral, reconstruction {integral + jump:.6f}"
    yield f"continuous bound {nelbo:.6f}"


@claim("P5", "04_schedules", "cut-mean")
def mean_without_the_factor():
    integral, _ = cut_four_tokens(1e-3)
    yield f"mean over draws {integral / (1 - 1e-3):.6f}"


# LLaDA.


@claim("F14", "13_prompts_padding_length", "prompt")
def questions_about_a_response():
    tea_now = {("tea", "please"): 7, ("tea", "now"): 2}
    milk = {("milk", "please"): 1, ("milk", "now"): 4}
    law = tea_now | milk  # given hot, out of 14

    def share(event, given):
        kept = {x: n for x, n in law.items() if given <= set(x)}
        hit = sum(n for x, n in kept.items() if event in x)
        return Fraction(hit, sum(kept.values()))

    tea, please = share("tea", set()), share("please", set())
    yield f"hot [M] [M] {tea} {please}"
    yield f"hot [M] please {share('tea', {'please'})} 1"
    yield f"hot tea [M] 1 {share('please', {'tea'})}"


@claim("F14", "13_prompts_padding_length", "bound-proof")
def bound_of_a_response():
    yield f"{2**3} True"
    yield f"NELBO {NELBO:.3f} NLL {NLL:.3f}"


def chain_entropy(length):
    start, step = [2 / 3, 1 / 3], [[0.9, 0.1], [0.2, 0.8]]
    total = 0.0
    for x in product((0, 1), repeat=length):
        p = start[x[0]] * math.prod(step[a][b] for a, b in pairwise(x))
        total -= p * math.log(p)
    return total


@claim("F17", "13_prompts_padding_length", "crop-mixture")
def random_lengths():
    h = [chain_entropy(n) for n in range(1, 6)]
    yield f"mixture {sum(h) / 5:.3f}, entropy of five {h[4]:.3f}"
    token = [v / n for n, v in enumerate(h, start=1)]
    yield f"mixture {sum(token) / 5:.3f}, five tokens {token[4]:.3f}"


@claim("F19", "13_prompts_padding_length", "readings-proof")
def four_readings_of_padding():
    one = Fraction(1, 2) * Fraction(2, 3)  # one word, and it is tea
    readings = {
        "a 4": (one, "p(x)"),
        "b 2": (one / Fraction(1, 2), "p(x | n)"),
        "c 2": (one / Fraction(3, 4), "p(x | n <= 2)"),
        "d 2": (one, "p(x)"),
    }
    for name, (p, event) in readings.items():
        yield f"{name} positions {-math.log(p):.4f} {event} = {p} True"


@claim("F24", "16_parallel_decoding", "steps-table")
def calls_of_a_sampler():
    n = 512
    pairs = sum(range(1, n + 1))
    for K in (512, 256, 64, 8, 1):
        per = round(sum([n * n] * K) / pairs)
        yield f"masked, {K} steps {K} {K * n} {K * n * n} {K}, {per}"
    yield f"AR, cached {n} {n} {pairs} 1, 1"
    yield f"512 steps for {n} answer tokens, 1 token a step"


@claim("F25", "17_order_confidence_blocks", "poem-proof")
def poems_backward():
    poems = {"01 23": 3, "01 32": 2, "02 11": 2}
    poems |= {"20 30": 2, "13 00": 2, "33 12": 1}
    law = {tuple(x.split()): Fraction(n, 12) for x, n in poems.items()}
    first, second = Counter(), Counter()
    for (a, b), p in law.items():
        first[a] += p
        second[b] += p
    forward = sum(p * p / first[a] for (a, _), p in law.items())
    backward = sum(p * p / second[b] for (_, b), p in law.items())
    blind = sum(p * first[a] for (a, _), p in law.items())
    yield f"masked backward {backward} forward {forward}"
    yield f"left to right backward {blind} forward {forward}"


WORDS = {1: 0.1, 2: 0.2, 3: 0.2, 4: 0.2, 5: 0.3}  # lengths of the answers
CANVAS = {
    (*words, *[2] * (6 - n)): share * (2 - words[0]) / 3 / 2 ** (n - 1)
    for n, share in WORDS.items()
    for words in product((0, 1), repeat=n)
}


def next_token(state, size):
    """The surest hidden position of the first open block, and its answers."""
    fits = {
        x: p
        for x, p in CANVAS.items()
        if all(b in (None, a) for a, b in zip(x, state, strict=True))
    }
    hidden = [i for i, token in enumerate(state) if token is None]
    block = [i for i in hidden if i // size == hidden[0] // size]
    answers = {
        i: [sum(p for x, p in fits.items() if x[i] == v) for v in range(3)]
        for i in block
    }
    best = max(block, key=lambda i: (round(max(answers[i]), 9), -i))
    return best, answers[best]


def written_lengths(size, state=(None,) * 6):
    """The law of the length, by confidence in blocks, temperature 1/2."""
    if None not in state:
        return Counter({state.index(2): 1.0})
    i, answers = next_token(state, size)
    sharp, law = [p**2 for p in answers], Counter()
    for v in np.flatnonzero(sharp):
        after = written_lengths(size, (*state[:i], int(v), *state[i + 1 :]))
        for n, p in after.items():
            law[n] += p * sharp[v] / sum(sharp)
    return law


@claim("F26", "17_order_confidence_blocks", "blocks-claim")
def blocks_against_an_early_end():
    for size in (1, 2, 3, 6):
        law = written_lengths(size)
        mean = sum(n * p for n, p in law.items())
        kl = sum(p * math.log(p / law[n]) for n, p in WORDS.items())
        yield f"blocks of {size}: mean {mean:.2f} words"
        yield f"KL from the data's lengths {kl:.2f} blocks of"


# What any order costs and brings.

ORDERS = "15_orders_and_their_cost"


def runs(experiment, kind, **where):
    rows = recorded.load("orders")[experiment]
    wanted = {"kind": kind} | where
    return [r for r in rows if wanted.items() <= r.items()]


def last(experiment, kind):
    return [r["curve"][-1][1] for r in runs(experiment, kind)]


def flops_to(run, target):
    """6 N T at the first crossing of the target, steps on a log scale."""
    before = None
    for step, excess in run["curve"]:
        if excess <= target:
            share = (before[1] - target) / (before[1] - excess)
            step = before[0] ** (1 - share) * step**share
            return 6 * run["parameters"] * run["tokens_per_step"] * step
        before = step, excess
    raise AssertionError("the target is not reached")


@claim("F28", ORDERS, "compute-table")
def compute_ratios():
    for width in (32, 64, 96):
        row = []
        for target in (0.2, 0.1, 0.05):
            masked, twin = (
                np.mean([flops_to(r, target) for r in runs(*key, width=width)])
                for key in (
                    ("size", "uniform_count"),
                    ("size", "autoregressive"),
                )
            )
            row.append(masked / twin)
        assert min(row) > 1
        yield f"{width} {numbers(row, '.1f')}"


@claim("F29", ORDERS, "block-lattices")
def block_one_on_hot_tea():
    costs = COST["1"], COST["2|1"]
    eps = 1e-3
    second = math.log(1 / eps) / (1 - eps)  # of 1/t, cut, one token
    variance = sum(c * c * (second - 1) for c in costs)
    yield f"uniform count mean {sum(costs):.3f} variance {0:.3f}"
    yield f"1/t from 0.001 mean {sum(costs):.3f} variance {variance:.3f}"
    yield f"1/t mean {sum(costs):.3f} variance inf"


@claim("F29", ORDERS, "block-table")
def block_one_trains_worse():
    every = last("block", "every position")
    block = last("block", "block size 1")
    assert all(a < b for a, b in zip(every, block, strict=True))
    yield f"every position {numbers(every, '.4f')}"
    yield f"block size 1 {numbers(block, '.4f')}"


@claim("F30", ORDERS, "block-table")
def half_of_the_labels_in_training():
    half, block = last("block", "half"), last("block", "block size 1")
    assert all(a < b for a, b in zip(half, block, strict=True))
    yield f"half {numbers(half, '.4f')}"
    yield f"block size 1 {numbers(block, '.4f')}"


@claim("F29", "18_block_by_block", "block-one")
def block_one_gaps():
    curves = [row["curves"] for row in recorded.load("blocks")["rows"]]
    for step in (40, 100, 200):
        always, cut = (
            [{s: gap for s, _, gap in run[name]}[step] for run in curves]
            for name in ("twin", "block 1, cut 1/t")
        )
        ratio = min(np.divide(cut, always))
        assert ratio > 1
        yield f"step {step}, gaps scored always {numbers(always, '.3f')}"
        yield f"cut {numbers(cut, '.3f')} ratio at least {ratio:.1f}"


@claim("F30", "01_masking", "uniform-proof")
def half_is_masked():
    f = math.factorial
    law = [math.comb(4, k) * Fraction(f(k) * f(4 - k), f(5)) for k in range(5)]
    yield " ".join(map(str, law))
    yield f"mean count {sum(k * p for k, p in enumerate(law))}"


@claim("F30", "18_block_by_block", "labels")
def labels_of_clipped_laws():
    for a in (0.001, 0.1, 0.5, 0.9, 0.999):
        labels, factor = 8 * (a + 1) / 2, math.log(1 / a) / (1 - a) - 1
        yield f"t in [{a:5}, 1]: {labels:.1f} of 8 labels"
        yield f"= {factor:.3f} x sum of squares"


@claim("F31", ORDERS, "hard-table")
def a_hard_order():
    found = {}
    for name in ("left to right", "right to left", "masked"):
        found[name] = last("hard", name)
        yield f"{name} {numbers(found[name], '.4f')}"
    easy, hard, masked = map(np.array, found.values())
    assert (easy < hard).all() and (hard < masked).all()


@claim("F31", "17_order_confidence_blocks", "kim")
def order_on_grids():
    for clues, k in ((6, 1), (6, 2), (9, 1), (9, 2), (9, 4)):
        valid = {
            r["rule"]: r["valid"] / r["n"]
            for r in recorded.load("sudoku")["runs"][0]["rows"]
            if (r["clues"], r["per_step"]) == (clues, k)
        }
        noise = {rule: p * (1 - p) / 2000 for rule, p in valid.items()}
        counts = [f"{rule} {2000 * p:.0f}" for rule, p in valid.items()]
        yield f"{clues} clues, {k} a step: " + ", ".join(counts)
        for a, b in (("probability", "random"), ("margin", "probability")):
            z = (valid[a] - valid[b]) / math.sqrt(noise[a] + noise[b])
            yield f"{a} - {b} {z:+.1f} errors"


@claim("F32", ORDERS, "repeat-table")
def repeated_data():
    lows = {}
    for kind in ("autoregressive", "uniform_count"):
        for run in runs("repeat", kind):
            value, epoch = min((v, e) for e, v in run["curve"])
            lows.setdefault(kind, []).append((epoch, value))
            end_epoch, end = run["curve"][-1]
            at_best = f"at best {value:.3f}, epoch {epoch}"
            at_end = f"in the end {end:.3f}, epoch {end_epoch}"
            yield f"{kind} {run['seed']}: {at_best}; {at_end}"
    assert max(lows["autoregressive"])[0] < min(lows["uniform_count"])[0]


# Later systems.


@claim("F33", "18_block_by_block", "start")
def start_from_a_twin():
    P, pi = markov(8).transition, markov(8).initial
    rate = -(pi[:, None] * P * np.log(np.where(P > 0, P, 1))).sum()
    entropy = (7 * rate - (pi * np.log(pi)).sum()) / 8
    yield f"'untrained': {math.log(len(pi)) - entropy:.1f}"
    curves = [row["curves"] for row in recorded.load("blocks")["rows"]]
    kept = np.mean([run["direct"][0][2] for run in curves])
    yield f"'shift kept': {kept:.1f}"


@claim("F34", "18_block_by_block", "shrink")
def grown_and_shrunk():
    record = recorded.load("blocks")
    gaps = [row["gaps"] for row in record["rows"]]
    for name in gaps[0]:
        yield f"{name} {numbers([g[name] for g in gaps], '.3f')}"
    assert all(g["shrunk, block 4"] < g["grown, block 4"] for g in gaps)
    sizes = [size for _, size in record["setting"]["growing"]]
    assert sizes == sorted(sizes)
    yield str(record["setting"]["growing"])


PAIRS = {(0, 0): 0.4, (0, 1): 0.2, (1, 0): 0.1, (1, 1): 0.3}


def flipped(a, b, keep):
    """Probability that replacement shows b for a, of two words."""
    return keep * (a == b) + (1 - keep) / 2


def answers_of(seen, keep, power=1):
    """Law of each clean word given two replaced ones, [2][2]."""
    law = {
        x: p * flipped(x[0], seen[0], keep) * flipped(x[1], seen[1], keep)
        for x, p in PAIRS.items()
    }
    found = []
    for i in (0, 1):
        row = [sum(p for x, p in law.items() if x[i] == v) for v in (0, 1)]
        row = [(v / sum(law.values())) ** power for v in row]
        found.append([v / sum(row) for v in row])
    return found


@claim("F38", "19_uniform_state", "canvas")
def canvas_and_confidence():
    yield "F38: canvas at t = 1: 1/4 1/4 1/4 1/4"
    for t in (Fraction(3, 4), Fraction(1, 4)):
        for x in PAIRS:
            mu = answers_of(x, float(1 - t))
            sure = [mu[i][x[i]] for i in (0, 1)]
            marks = ["renoise" if c < 0.5 else "keep" for c in sure]
            shown = f"{numbers(sure, '.3f')} {' '.join(marks)}"
            yield f"t = {t} text {x[0]} {x[1]} confidence {shown}"


@claim("F40", "19_uniform_state", "gemma-law")
def law_of_a_replaced_token():
    for kappa in (Fraction(1), Fraction(1, 2), Fraction(0)):
        other = (1 - kappa) * Fraction(1, 4)
        law = [1 - 3 * other, other, other, other]
        yield f"kappa {kappa} " + " ".join(map(str, law))


@claim("F42", "17_order_confidence_blocks", "tau-network")
def commit_order():
    for row in recorded.load("sudoku")["order"]:
        taus = [row["tau"][g] for g in ("1", "2", "4")]
        assert all(-1 <= m <= 1 for m, _ in taus)
        shown = [
            f"g={g}: {m:5.2f} +- {e:.2f}"
            for g, (m, e) in zip((1, 2, 4), taus, strict=True)
        ]
        yield f"seed {row['seed']} " + " ".join(shown)


def masked_pair(power, K=16):
    """Mean bound and NLL of the pairs when K steps fill the masks."""
    first = {0: 0.6, 1: 0.4}  # of word 1; of word 2 the halves are even
    second = {0: 0.5, 1: 0.5}

    def sharp(p, q):
        return p**power / (p**power + q**power)

    bound = nll = 0.0
    for (a, b), p in PAIRS.items():
        alone = sharp(first[a], first[1 - a]) * sharp(second[b], 1 - second[b])
        a_first = sharp(first[a], first[1 - a]) * sharp(p, PAIRS[a, 1 - b])
        b_first = sharp(second[b], 1 - second[b]) * sharp(p, PAIRS[1 - a, b])
        ways = ((1 / K, alone), ((1 - 1 / K) / 2, a_first))
        ways += (((1 - 1 / K) / 2, b_first),)
        bound -= p * sum(w * math.log(v) for w, v in ways)
        nll -= p * math.log(sum(w * v for w, v in ways))
    return bound, nll


def replaced_pair(power, K=16):
    """The same for replacement, by sums over all pairs."""
    words = list(PAIRS)

    def back(x_0, x_t, x_s, keep_s, keep_t):
        """One word: q(x_s | x_t, x_0)."""
        step = flipped(x_s, x_t, keep_t / keep_s)
        return step * flipped(x_0, x_s, keep_s) / flipped(x_0, x_t, keep_t)

    law, bound = dict.fromkeys(words, 0.25), 0.0
    for j in range(K, 0, -1):
        keep_t, keep_s = 1 - j / K, 1 - (j - 1) / K
        after = dict.fromkeys(words, 0.0)
        for x_t in words:
            mu = answers_of(x_t, keep_t, power)
            one = [
                [
                    sum(
                        mu[i][v] * back(v, x_t[i], b, keep_s, keep_t)
                        for v in (0, 1)
                    )
                    for b in (0, 1)
                ]
                for i in (0, 1)
            ]
            for x_s in words:
                after[x_s] += law[x_t] * one[0][x_s[0]] * one[1][x_s[1]]
            for x, i, b in product(words, (0, 1), (0, 1)):
                q = back(x[i], x_t[i], b, keep_s, keep_t)
                seen = PAIRS[x]
                for n in (0, 1):
                    seen *= flipped(x[n], x_t[n], keep_t)
                if q > 0:
                    bound += seen * q * math.log(q / one[i][b])
        law = after
    return bound, -sum(p * math.log(law[x]) for x, p in PAIRS.items())


@claim("F43", "19_uniform_state", "families")
def two_families():
    for power in (0.5, 2):
        found = masked_pair(power), replaced_pair(power)
        assert found[0][0] < found[1][0] and found[0][1] > found[1][1]
        for name, nats in (("masking", found[0]), ("uniform-state", found[1])):
            row = numbers([math.exp(v / 2) for v in nats], ".3f")
            yield f"gamma {power} {name} {row} nats {numbers(nats, '.3f')}"


# Measured here.


@claim("R1", "12_a_known_answer", "recorded")
def recorded_markov():
    row, chain = recorded.load("markov"), markov(16)
    assert row["tokens"] == row["steps"] * 256 * 16
    P, pi = chain.transition, chain.initial
    rate = -(pi[:, None] * P * np.log(np.where(P > 0, P, 1))).sum()
    entropy = (15 * rate - (pi * np.log(pi)).sum()) / 16
    assert math.isclose(row["entropy_per_token"], entropy, abs_tol=1e-9)
    assert 0 < row["gap_per_token"] < 0.01
    yield f"{row['steps']} steps, {row['tokens']:,} tokens"
    yield f"{row['parameters']:,} parameters, seed {row['seed']}"
    yield f"gap {row['gap_per_token']:.3f}, error below 0.001: True"
    uniform = math.log(8) - entropy
    yield f"'uniform': {uniform:.2f}"


@claim("R2", "14_text", "reports")
def recorded_text():
    record = recorded.load("text")
    masked, twin = (record[n]["report"] for n in ("path", "autoregressive"))
    assert masked["tokens"] == twin["tokens"]
    losses = [r["loss_per_token"] for r in (masked, twin)]
    assert losses[0] > losses[1]
    yield f"loss_per_token {numbers(losses, '.3f')}"
    yield f"bits_per_token {numbers(np.divide(losses, math.log(2)), '.3f')}"
    yield f"tokens {masked['tokens']:,} {twin['tokens']:,}"


def race(recipe):
    rows = recorded.load("race")["rows"]
    rows = [r for r in rows if r["recipe"].startswith(recipe)]
    return [r["nelbo"] for r in sorted(rows, key=lambda r: r["seed"])]


@claim("R3", ORDERS, "race-table")
def recorded_race():
    for recipe in ("path, Muon", "pooled_mean, Muon"):
        yield f"{recipe} {numbers(race(recipe), '.3f')}"
    (alone,) = race("uniform_count, Muon")
    yield f"uniform_count, Muon {alone:.3f}"


@claim("R3", ORDERS, "race-errors")
def recorded_race_means():
    path, pooled = race("path, Muon"), race("pooled_mean, Muon")
    yield f"path, Muon mean of three seeds {sum(path) / 3:.3f}"
    yield f"pooled_mean, Muon mean of three seeds {sum(pooled) / 3:.3f}"
    less = numbers(np.subtract(path, pooled), "+.3f")
    yield f"path minus pooled mean: {less}"


# What holds of every check.


def test_every_linked_cell_has_a_check():
    assert set(CHECKED) == set(linked())


@checks
def test_output_is_right(row, stem, name):
    pieces = pieces_of(CHECKED[row, stem, name])
    assert missing(pieces, output(stem, name)) == []


@checks
def test_an_output_without_its_digits_fails(row, stem, name):
    pieces = pieces_of(CHECKED[row, stem, name])
    bare = re.sub(r"\d", "#", output(stem, name))
    assert missing(pieces, bare) == pieces


@checks
def test_an_output_with_a_wrong_digit_fails(row, stem, name):
    """In each number of each piece the last digit counts."""
    for piece in pieces_of(CHECKED[row, stem, name]):
        for number in re.finditer(r"\d+", piece):
            at = number.end() - 1
            digit = str((int(piece[at]) + 1) % 10)
            wrong = piece[:at] + digit + piece[at + 1 :]
            text = squeezed(output(stem, name)).replace(piece, wrong)
            assert missing([piece], text) == [piece]
