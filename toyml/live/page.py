"""A chart as the output of a notebook cell."""

import re

from altair.utils.html import spec_to_html
from IPython.display import HTML

# What the output asks for: from the book's own bundle if the page has it,
# from the network elsewhere.
VERSIONS = {"vega": "6.2.0", "vegalite": "6.4.1", "vegaembed": "7.0.2"}

_AFTER = """<style>
#NAME.vega-embed { display: block; max-width: 29rem; }
#NAME svg { width: 100%; height: auto; }
#NAME label { display: flex; gap: 0.6rem; align-items: center; margin: 0; }
#NAME .vega-bind-name { flex: 0 0 9.5rem; }
#NAME input { flex: 1 1 6rem; min-width: 5rem; margin: 0.4rem 0; }
#NAME label > span:last-child { flex: 0 0 3rem; text-align: right; }
/* The book's theme lays dark pages a light ground under HTML. */
[data-theme="dark"] .text_html:has(> #NAME) {
  background: none; color: inherit; padding: 0;
}
</style>
<noscript>This figure needs JavaScript. The numbers printed above are those
of its first position.</noscript>
"""


def show(chart, name):
    """The chart as HTML for a cell's output, in a div with the id ``name``.

    The id is fixed, so that the same chart gives the same output. Raises
    ValueError unless name is lower-case words joined by hyphens.
    """
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", name):
        raise ValueError(
            f"name = {name!r}: expected lower-case words joined by hyphens"
        )
    html = spec_to_html(
        chart.to_dict(),
        mode="vega-lite",
        template="universal",
        fullhtml=False,
        output_div=name,
        embed_options={"actions": False, "renderer": "svg"},
        **{f"{library}_version": v for library, v in VERSIONS.items()},
    )
    return HTML(html.strip() + "\n" + _AFTER.replace("NAME", name))
