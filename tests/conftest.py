"""Settings for all tests, and the browser that some of them need."""

import pytest
from hypothesis import settings

# The same cases on every run, and no failure because a machine is busy.
settings.register_profile("book", deadline=None, derandomize=True)
settings.load_profile("book")

NO_BROWSER = (
    "no Chromium found: install Debian's package chromium or name one in "
    "TOYML_BROWSER"
)


# Not for the whole session: Playwright holds an event loop while it lives, and
# nbval needs one in the same process.
@pytest.fixture(scope="module")
def chromium():
    import browser

    path = browser.find_browser()
    if path is None:
        pytest.skip(NO_BROWSER)
    with browser.launch(path) as context:
        yield context


@pytest.fixture(scope="module")
def site(chromium):
    import browser

    with browser.serve(browser.HTML) as address:
        yield address


def pytest_terminal_summary(terminalreporter):
    """One loud line, also under -q, where browser tests were skipped."""
    skipped = [
        report
        for report in terminalreporter.stats.get("skipped", [])
        if "no Chromium" in str(report.longrepr)
    ]
    if skipped:
        terminalreporter.write_line(
            f"!!! {len(skipped)} BROWSER TESTS SKIPPED, {NO_BROWSER} !!!",
            red=True,
            bold=True,
        )
