"""Each page of the book in headless Chromium, visited once."""

import re

import pytest

import browser
import page_checks

PAGES = browser.toc()


@pytest.fixture(scope="module", params=PAGES)
def found(request, chromium, site):
    here = PAGES.index(request.param)
    order = [
        f"{site}/{PAGES[i]}.html" if 0 <= i < len(PAGES) else None
        for i in (here - 1, here + 1)
    ]
    return page_checks.visit(chromium, site, request.param, order)


@pytest.mark.parametrize("check", page_checks.CHECKS)
def test_page(found, check):
    assert not found[check], "\n" + "\n".join(found[check])


def search(page, site, words):
    """Type into the search of the first page and return the result links."""
    page.goto(f"{site}/{PAGES[0]}.html")
    page.get_by_role("button", name=re.compile("search", re.I)).first.click()
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")
    page.wait_for_selector("#search-results .search-summary >> text=/found/")
    page.wait_for_selector("ul.search li a")
    browser.settle(page)
    return page.eval_on_selector_all(
        "ul.search li a", "links => links.map(e => e.href)"
    )


def test_search_finds_the_forced_target(chromium, site):
    page = chromium.new_page()
    network, console = browser.listen(page, site)
    links = search(page, site, "forced target")
    assert any("08_forced_target" in link for link in links), links
    assert not network + console
    page.evaluate(page_checks.AXE_SCRIPT)
    found = page_checks.axe(page)
    browser.look(page, browser.WIDE, "dark")
    found += page.evaluate(page_checks.WHITE_BOXES) + page_checks.axe(
        page, "dark"
    )
    browser.look(page, browser.PHONE)
    found += page_checks.axe(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
    assert not found, "\n" + "\n".join(found)


def test_a_link_to_a_cell_shows_that_cell(chromium, site):
    """Below the bar at the top, with a mark, after the formulas are set."""
    page = chromium.new_page()
    name = next(p for p in PAGES if p.startswith("notebooks/"))
    page.goto(f"{site}/{name}.html")
    cells = page.eval_on_selector_all(
        "[id^=cell-]", "cells => cells.map(e => e.id)"
    )
    page.goto("about:blank")
    page.goto(f"{site}/{name}.html#{cells[-3]}")
    browser.settle(page)
    top, bar, height, outline = page.evaluate(
        """() => {
      const cell = document.querySelector(':target');
      const top = cell.getBoundingClientRect().top;
      const bar = document.querySelector('.bd-header-article');
      return [top, bar.getBoundingClientRect().bottom, innerHeight,
        getComputedStyle(cell).outlineStyle];
    }"""
    )
    page.close()
    assert bar < top < height / 2
    assert outline != "none"
