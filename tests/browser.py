"""The built book, served on this machine and shown in headless Chromium."""

import contextlib
import functools
import http.server
import os
import shutil
import tempfile
import threading
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / "_build" / "html"
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


def find_browser():
    """Path of a Chromium: $TOYML_BROWSER, or one on the PATH, or None."""
    named = os.environ.get("TOYML_BROWSER")
    return shutil.which(named) if named else _first(map(shutil.which, NAMES))


def _first(items):
    return next(filter(None, items), None)


def toc():
    """The names of all pages, in reading order."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    chapters = [c["file"] for p in toc["parts"] for c in p["chapters"]]
    return [toc["root"], *chapters]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # one connection for many files
    timeout = 5  # of an idle connection

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serve(folder):
    """Serve a folder on 127.0.0.1 and yield its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def launch(path):
    """One Chromium with a new profile, and nothing kept of it."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            folder,
            executable_path=path,
            headless=True,
            args=FLAGS,
            viewport=WIDE,
            # Colours are read right after a change of mode.
            reduced_motion="reduce",
        )
        yield context
        context.close()


def settle(page):
    """Wait until MathJax has set all formulas and the page is drawn."""
    page.evaluate(
        """() => window.MathJax && MathJax.startup
        && MathJax.startup.promise.then(() => true)"""
    )
    page.evaluate(
        """() => new Promise(done =>
        requestAnimationFrame(() => requestAnimationFrame(done)))"""
    )


def look(page, size, color="light", media="screen"):
    """Change size and mode, and wait until the scripts have answered."""
    resized = page.viewport_size != size
    page.emulate_media(color_scheme=color, media=media)
    page.set_viewport_size(size)
    settle(page)
    if resized and media == "screen":
        # Theme and page.js wait 300 ms by the same clock.
        page.evaluate("() => new Promise(done => setTimeout(done, 350))")


def listen(page, site):
    """Lists of requests that leave the site or fail, and of errors."""
    network, console = [], []

    def requested(request):
        url = request.url
        if not url.startswith((site + "/", "data:", "blob:")):
            network.append(f"asks another host: {url}")

    def answered(response):
        if response.status >= 400:
            network.append(f"status {response.status}: {response.url}")

    def said(message):
        if message.type == "error":
            console.append(message.text)

    page.on("request", requested)
    page.on("response", answered)
    page.on("requestfailed", lambda r: network.append(f"failed: {r.url}"))
    page.on("console", said)
    page.on("pageerror", lambda error: console.append(str(error)))
    return network, console
