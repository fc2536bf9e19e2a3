"""Sphinx extension: the live figures of the book without a network.

Vega, Vega-Lite and Vega-Embed are written next to the pages and loaded where
a page has a live figure. The output of such a cell finds their versions in
VEGA_DEBUG and asks no other host for them.
"""

import json
import re
from pathlib import Path

import vl_convert

from toyml.live import VERSIONS

FILE = "_static/vega.js"
FIGURE = re.compile(r'<div id="live-')


def bundle():
    """The three libraries as one script, with their versions announced."""
    minor = VERSIONS["vegalite"].rpartition(".")[0]
    libraries = vl_convert.javascript_bundle(vl_version=minor)
    held = {
        "vega": vl_convert.get_vega_version(),
        "vegaembed": vl_convert.get_vega_embed_version(),
    }
    if not held.items() <= VERSIONS.items() or VERSIONS["vegalite"] not in (
        libraries
    ):
        raise ValueError(
            f"toyml.live.VERSIONS = {VERSIONS}: expected those of "
            f"vl-convert-python, {held} and a Vega-Lite of its own"
        )
    known = {f"{library}_version": v for library, v in VERSIONS.items()}
    announced = f"window.VEGA_DEBUG = {json.dumps(known)};"
    # Its own scope: the bundle names its constants with single letters.
    return f"(() => {{\n{libraries}\n{announced}\n}})();\n"


def write_bundle(app):
    path = Path(app.outdir) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(bundle(), encoding="utf-8")


def load_bundle(app, pagename, templatename, context, doctree):
    """Before the first live figure, so that the text above is read first."""
    source = context["pathto"](FILE, resource=True)
    script = f'<script src="{source}"></script>\n'
    first = FIGURE.search(context.get("body", ""))
    if first:
        at = first.start()
        body = context["body"]
        context["body"] = body[:at] + script + body[at:]


def setup(app):
    app.connect("builder-inited", write_bundle)
    app.connect("html-page-context", load_bundle)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
