"""The live figures in the pages of the built book: sliders and numbers."""

import re

import nbformat
import pytest

import live_cases
from browser import HTML, ROOT, listen
from live_cases import CHAPTERS, POSITIONS, STARTS
from toyml.live import VERSIONS

MOVE = """(control, value) => {
  control.value = value;
  control.dispatchEvent(new Event('input', {bubbles: true}));
  control.dispatchEvent(new Event('change', {bubbles: true}));
}"""
TEXTS = """([id, names]) => Object.fromEntries(names.map(name => [name,
  name === 'labels'
  ? [...document.querySelectorAll(`#${id} svg [aria-label]`)]
    .map(e => e.getAttribute('aria-label'))
    .filter(text => /^(nats|number of masks M): /.test(text))
  : [...document.querySelectorAll(`#${id} svg g[class*=" ${name}_"] text`)]
    .map(e => e.textContent)]))"""
NAMES = """id => [...document.querySelectorAll(
  `#${id} input, #${id} select`)].map(e => [e.name, e.labels[0].innerText])"""


@pytest.fixture(scope="module", params=STARTS)
def live(request, chromium, site):
    """A figure in its page: (name, page, requests that left the site)."""
    page = chromium.new_page()
    network, console = listen(page, site)
    page.goto(f"{site}/notebooks/{CHAPTERS[request.param]}.html")
    page.wait_for_selector(f"#live-{request.param} svg")
    yield request.param, page, network + console
    page.close()


def shown(page, figure, names):
    return page.evaluate(TEXTS, [f"live-{figure}", list(names)])


def control(page, figure, name):
    return page.locator(f"#live-{figure} [name='{name}']")


def move(page, figure, settings):
    for name, value in settings.items():
        control(page, figure, name).evaluate(MOVE, str(value))


def differences(page, figure, settings):
    """What is not as expected, once the page has had time to draw."""
    wanted = live_cases.expected(figure, settings)
    for _ in range(100):
        found = live_cases.differences(shown(page, figure, wanted), wanted)
        if not found:
            break
        page.wait_for_timeout(50)
    return found


def test_the_page_starts_as_the_cell_says(live):
    figure, page, _ = live
    assert differences(page, figure, STARTS[figure]) == []


def test_sliders(live):
    figure, page, _ = live
    for settings in POSITIONS[figure]:
        move(page, figure, settings)
        assert differences(page, figure, settings) == [], settings


def test_keys_move_a_slider(live):
    figure, page, _ = live
    settings = STARTS[figure]
    move(page, figure, settings)
    name, step = {
        "hot-tea": ("p2", 0.01),
        "masking": ("L", 1),
        "variance": ("log_length", 1),
        "schedule": ("t", 0.01),
    }[figure]
    control(page, figure, name).focus()
    page.keyboard.press("ArrowRight")
    moved = settings | {name: round(settings[name] + step, 2)}
    assert differences(page, figure, moved) == []


def test_controls_have_names_and_the_picture_a_description(live):
    figure, page, _ = live
    names = page.evaluate(NAMES, f"live-{figure}")
    assert [name for name, _ in names] == list(STARTS[figure])
    assert all(label.strip() for _, label in names)
    box = page.locator(f"#live-{figure}")
    assert box.get_attribute("role") == "graphics-document"
    assert len(box.get_attribute("aria-label")) > 100


def test_size_stays_and_text_follows_the_page(live):
    figure, page, _ = live
    sizes, inks = set(), []
    for settings in POSITIONS[figure]:
        move(page, figure, settings)
        assert differences(page, figure, settings) == []
        box = page.locator(f"#live-{figure} svg").bounding_box()
        sizes.add((round(box["width"]), round(box["height"])))
    assert len(sizes) == 1
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector(f"html[data-theme={scheme}]")
        inks.append(
            page.evaluate(
                """id => {
          const seen = e => getComputedStyle(e);
          const text = document.querySelector(
            `#${id} svg .role-axis-label text`);
          const box = document.getElementById(id).parentElement;
          return [seen(text).fill, seen(document.body).color,
            seen(box).backgroundColor];
        }""",
                f"live-{figure}",
            )
        )
    page.emulate_media(color_scheme="light")
    for fill, color, ground in inks:
        assert fill == color
        assert ground == "rgba(0, 0, 0, 0)"
    assert inks[0][0] != inks[1][0]


def test_no_request_and_no_error(live):
    _, page, found = live
    assert found == []


def test_the_scripts_are_on_the_pages_that_need_them():
    for path in (HTML / "notebooks").glob("*.html"):
        needed = path.stem in CHAPTERS.values()
        assert path.read_text().count("_static/vega.js") == needed, path


@pytest.mark.parametrize("figure", STARTS)
def test_alone_it_asks_for_the_pinned_versions(figure, chromium, tmp_path):
    """A notebook's own output, in a page that has no Vega."""
    notebook = nbformat.read(
        ROOT / "notebooks" / f"{CHAPTERS[figure]}.ipynb", 4
    )
    (cell,) = (c for c in notebook.cells if c.id == "live")
    (html,) = (o.data["text/html"] for o in cell.outputs if "data" in o)
    (tmp_path / "alone.html").write_text(
        f"<!doctype html><meta charset=utf-8><body>{html}"
    )
    asked = []

    def answer(route):
        asked.append(route.request.url)
        route.fulfill(body="", content_type="text/javascript")

    page = chromium.new_page()
    page.route(re.compile("^https:"), answer)
    page.goto((tmp_path / "alone.html").as_uri())
    page.wait_for_function("() => window.VEGA_DEBUG.vegaembed_version")
    known = {f"{name}_version": v for name, v in VERSIONS.items()}
    assert page.evaluate("() => VEGA_DEBUG") == known
    assert asked == [
        f"https://cdn.jsdelivr.net/npm/{library}@"
        f"{VERSIONS[library.replace('-', '')]}?noext"
        for library in ("vega", "vega-lite", "vega-embed")
    ]
    page.close()
