"""Tests of the tests: a page that someone spoilt does not pass."""

import os
import subprocess
import sys

import pytest

import browser
import page_checks

PAGE = "book/notation"
LONG = "word" * 100
WHITE = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' "
    "width='100' height='100'%3E%3Crect width='100' height='100' "
    "fill='white'/%3E%3C/svg%3E"
)
# The check, what it must say, and what is added at the end of the article.
SPOILT = [
    ("network", "another host", '<img src="https://e.invalid/" alt="far">'),
    ("network", "404", '<img src="none.png" alt="not there">'),
    ("console", "console", "<script>console.error('console')</script>"),
    ("console", "thrown", "<script>throw new Error('thrown')</script>"),
    ("formulas", "error", r'<div class="math">\[\frac{1}\]</div>'),
    ("formulas", "unknown", r'<div class="math">\[\nowhere\]</div>'),
    ("formulas", "not typeset", '<div class="math">no delimiter</div>'),
    (
        "keyboard",
        "no mark",
        '<button style="outline:none!important;box-shadow:none!important">'
        "no ring</button>",
    ),
    (
        "white boxes",
        "white div",
        '<div style="background:white;width:90px">white div</div>',
    ),
    ("white boxes", "light picture", f'<img src="{WHITE}" alt="white">'),
    (
        "white boxes",
        "rect",
        '<svg width="90" height="90"><rect width="90" height="90" '
        'fill="white"/></svg>',
    ),
    ("narrow", "sideways", f"<p>{LONG}</p>"),
    ("narrow", "reaches", f"<p>reaches {LONG}</p>"),
    (
        "narrow",
        "cut by",
        f'<div style="overflow:hidden;width:90px">{LONG}</div>',
    ),
    (
        "narrow",
        "scrolls by",
        r'<div class="math">\[a' + "+b" * 40 + r"\]</div>",
    ),
    (
        "narrow",
        "scrolls by",
        r'<p>x <span class="math">\(\text{' + "y" * 90 + r"}\)</span></p>",
    ),
    (
        "scrolling by keyboard",
        "wide div",
        '<div style="overflow-x:scroll;width:90px">'
        '<div style="width:900px">wide div</div></div>',
    ),
    ("paper layout", "reaches", '<div style="width:900px">wide</div>'),
    (
        "paper layout",
        "scrolling",
        '<div style="overflow-x:scroll;width:90px">scrolling'
        '<div style="width:100px"></div></div>',
    ),
    (
        "paper layout",
        "folded",
        "<style>.shut::details-content{content-visibility:hidden!important}"
        '</style><details class="shut"><p>shut</p></details>',
    ),
    (
        "paper layout",
        "hidden picture",
        f'<img class="d-print-none" src="{WHITE}" alt="hidden picture">',
    ),
    ("axe", "button-name", "<button></button>"),
    ("axe", "image-alt", f'<img src="{WHITE}">'),
    ("axe", "1280 light: color", '<p style="color:#ccc">pale</p>'),
    ("axe", "1280 dark: color", '<p style="color:#333">dim</p>'),
    ("PDF", "last words", '<p class="d-print-none">last words</p>'),
]


def spoil(context, site, change):
    """Findings of a page after a change of its text on the way."""

    def answer(route):
        text = (browser.HTML / f"{PAGE}.html").read_text()
        assert change(text) != text
        route.fulfill(body=change(text), content_type="text/html")

    address = f"{site}/{PAGE}.html"
    context.route(address, answer)
    order = browser.toc()
    here = order.index(PAGE)
    found = page_checks.visit(
        context,
        site,
        PAGE,
        [f"{site}/{order[i]}.html" for i in (here - 1, here + 1)],
    )
    context.unroute(address)
    return found


@pytest.fixture(scope="module")
def added(chromium, site):
    """Findings of a page with all faults: each has its own words."""
    faults = "".join(fault for _, _, fault in SPOILT)
    return spoil(
        chromium,
        site,
        lambda t: t.replace("</article>", faults + "</article>"),
    )


@pytest.mark.parametrize(("check", "words"), [line[:2] for line in SPOILT])
def test_a_fault_is_found(added, check, words):
    assert any(words in line for line in added[check]), added[check]


@pytest.fixture(scope="module")
def damaged(chromium, site):
    """Findings of a page without its skip link and with a wrong neighbour."""
    return spoil(
        chromium,
        site,
        lambda t: t.replace('href="#main-content"', "").replace(
            'class="right-next"\n       href="', 'class="right-next" href="x'
        ),
    )


def test_a_lost_skip_link_is_found(damaged):
    assert any("first Tab" in line for line in damaged["keyboard"])


def test_a_wrong_neighbour_is_found(damaged):
    assert any("right-next" in line for line in damaged["neighbours"])


def test_other_checks_stay_silent(damaged):
    kept = set(page_checks.CHECKS) - {
        "keyboard",
        "neighbours",
        "network",
        "axe",
    }
    assert not [line for check in sorted(kept) for line in damaged[check]]


def test_a_missing_browser_is_told_loudly():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, "-k", "stay_silent"],
        cwd=browser.ROOT,
        env=os.environ | {"TOYML_BROWSER": "no-such-browser"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    loud = [n for n in done.stdout.splitlines() if "TESTS SKIPPED" in n]
    assert len(loud) == 1 and "1 BROWSER" in loud[0], done.stdout
