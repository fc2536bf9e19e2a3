"""The built book in _build/html, which `make test` builds before."""

import re
from itertools import pairwise
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from browser import HTML, toc

PAGES = toc()
_parsed = {}


def parse(path):
    if path not in _parsed:
        _parsed[path] = BeautifulSoup(path.read_text(), "html.parser")
    return _parsed[path]


@pytest.fixture(params=PAGES)
def page(request):
    return HTML / f"{request.param}.html"


def article(page):
    return parse(page).find("article")


def test_one_page_for_each_entry():
    built = {
        str(path.relative_to(HTML).with_suffix(""))
        for folder in ("book", "notebooks")
        for path in (HTML / folder).rglob("*.html")
    }
    assert built == set(PAGES)


def test_the_root_leads_to_the_first_page():
    text = (HTML / "index.html").read_text()
    assert f"{PAGES[0]}.html" in text


def test_one_title(page):
    assert len(article(page).find_all("h1")) == 1


def test_headings_do_not_jump(page):
    levels = [
        int(h.name[1]) for h in article(page).find_all(re.compile("^h[1-6]$"))
    ]
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_nothing_is_left_raw(page):
    body = BeautifulSoup(str(article(page)), "html.parser")
    assert not body.select(".problematic, .system-message")
    everything = body.get_text()
    assert not re.search(r"\{[a-z][\w:+-]*\}`|```|^:::", everything, re.M)
    for element in body.select("pre, code, script, style, .math"):
        element.decompose()
    assert "$" not in body.get_text()
    assert not re.search(r"\\(?:tag|frac|sum|begin)\b", body.get_text())


def test_formulas_of_the_source_are_in_the_page(page):
    source = HTML / "_sources" / page.relative_to(HTML).with_suffix("")
    files = [source.with_suffix(s) for s in (".md", ".ipynb")]
    text = next(f for f in files if f.exists()).read_text()
    tags = re.findall(r"\\tag\{", text)
    assert len(tags) == str(article(page)).count(r"\tag{")


def test_no_formula_is_rewritten(page):
    """Sphinx's split environment makes MathJax refuse a tag."""
    for formula in article(page).select("div.math"):
        assert formula.get_text().strip().startswith(r"\["), formula
        assert r"\begin{split}" not in formula.get_text(), formula


def resolve(page, link):
    """The file and the anchor that a link of the page leads to."""
    parts = urlsplit(link)
    path = unquote(parts.path)
    target = (page.parent / path).resolve() if path else page
    return target, unquote(parts.fragment)


def is_local(link):
    return not urlsplit(link).scheme and not link.startswith("//")


def test_links_lead_somewhere(page):
    broken = []
    for link in parse(page).find_all("a", href=True):
        if not is_local(link["href"]):
            continue
        target, anchor = resolve(page, link["href"])
        if not target.is_file():
            broken.append(link["href"])
        elif anchor and target.suffix == ".html":
            if not parse(target).find(id=anchor):
                broken.append(link["href"])
    assert broken == []


def test_images_are_there_and_described(page):
    for image in parse(page).find_all("img"):
        assert is_local(image["src"]), image["src"]
        assert resolve(page, image["src"])[0].is_file(), image["src"]
        alt = image.get("alt", "").strip()
        assert alt and not re.search(r"\.(png|svg|jpe?g)$", alt), image


def test_no_page_needs_another_host(page):
    soup = parse(page)
    needed = [
        element.get("src") or element.get("href")
        for element in soup.select(
            "script[src], iframe[src], source[src], link[href]"
        )
    ]
    assert needed
    for link in needed:
        assert is_local(link), link
        assert resolve(page, link)[0].is_file(), link
    # A live figure names another host for Jupyter; that the book asks for
    # nothing there is seen in the browser.
    inline = " ".join(
        s.get_text()
        for s in soup.select("script, style")
        if not s.find_parent(class_="cell_output")
    )
    assert not re.search(r"https?://(?!www\.w3\.org)", inline)


def test_styles_need_no_other_host():
    sheets = list(HTML.rglob("*.css"))
    assert sheets
    for sheet in sheets:
        text = sheet.read_text()
        links = re.findall(r"(?:url\(|@import\s+)[\"']?(https?:|//)", text)
        assert not links, sheet


def test_mathjax_is_served_by_the_book(page):
    scripts = [s["src"] for s in parse(page).select("script[src]")]
    mathjax = [s for s in scripts if "mathjax" in s.lower()]
    has_formulas = bool(article(page).select(".math"))
    assert len(mathjax) == has_formulas
    assert all(resolve(page, s)[0].is_file() for s in mathjax)


def test_one_header_and_one_search(page):
    """pydata-sphinx-theme 0.17 draws a second header and search field."""
    soup = parse(page)
    headers = soup.select("header.bd-header")
    assert len(headers) <= 1
    assert not any(header.find(True) for header in headers)
    assert len(soup.select("form.bd-search")) == 1
    assert len(soup.select(".search-button-field")) == 1
