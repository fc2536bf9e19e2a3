"""Sphinx extension: the page that lists the public names of toyml.

A line ``% toyml`` of a page becomes a section for each room of the module:
what it is, what it imports, and its public names with their docstrings. Each
name leads to the notebook cell where it is first used. Rooms, names, imports
and cells are read from the sources, so that the page follows them.
"""

import importlib
import inspect
import re

from docutils import nodes

from .docstrings import formatted
from .names import (
    imports,
    is_function,
    methods,
    modules,
    public,
    remark,
    rooms,
)
from .places import NOTEBOOKS, place, title, uses

MARK = "% toyml"


def explained(name):
    """The line with the link of a name, in reStructuredText."""
    notebook, cell, used = place(name)
    start = "Explained in" if used else "Background in"
    return f"{start} :cell:`{notebook}#{cell}`."


def entries(module):
    """The directives of a module's public names, in reStructuredText."""
    lines = []
    for name, value in public(module).items():
        if inspect.isclass(value):
            lines += [f".. autoclass:: {name}", "   :member-order: bysource"]
            if methods(value):
                lines.append(f"   :members: {', '.join(methods(value))}")
        elif is_function(value):
            lines += [f".. autofunction:: {name}"]
        else:
            short = name.rpartition(".")[2]
            lines += [f".. py:data:: {short}", f"   :module: {module}", ""]
            text = [*formatted(remark(module, short)), explained(name)]
            lines += [f"   {line}".rstrip() for line in text]
        lines.append("")
    return lines


def page():
    """The sections of all rooms, in MyST Markdown."""
    lines = [" · ".join(f"[{room}](#{room})" for room in rooms()), ""]
    for room in rooms():
        for module in modules(room):
            short = module.removeprefix("toyml.")
            level = 2 if short == room else 3
            doc = importlib.import_module(module).__doc__
            lines += ["#" * level + f" {short}", ""]
            lines += fenced(formatted(inspect.cleandoc(doc).splitlines()))
            if short == room:
                known = [f"[{name}](#{name})" for name in imports(room)]
                given = ", ".join(known) or "no other room"
                lines += [f"Imports {given}.", ""]
            lines += fenced(entries(module))
    return "\n".join(lines)


def fenced(lines):
    return ["```{eval-rst}", *lines, "```", ""] if lines else []


def fill_page(app, docname, source):
    source[0] = re.sub(
        f"^{re.escape(MARK)}$", lambda _: page(), source[0], flags=re.M
    )


def cell_role(role, rawtext, text, lineno, inliner, options=None, content=()):
    """``:cell:`05_hot_tea#gap-proof` ``: a link that says the chapter."""
    notebook, _, cell = text.partition("#")
    env = inliner.document.settings.env
    uri = env.app.builder.get_relative_uri(
        env.docname, f"{NOTEBOOKS.name}/{notebook}"
    )
    link = nodes.reference(
        rawtext, title(notebook), refuri=f"{uri}#cell-{cell}", internal=True
    )
    return [link], []


def process(app, what, name, obj, options, lines):
    """Plain text becomes reStructuredText, and the link is added."""
    lines[:] = formatted(lines, arguments(obj))
    if name in uses() or what in ("class", "function"):
        lines += ["", explained(name)]


def shorten(app, what, name, obj, options, signature, result):
    """A default without a text of its own is shown as three dots."""
    plain = re.sub("<factory>|<function .*?<lambda>>", "...", signature or "")
    return plain or signature, result


def arguments(obj):
    """The names that a docstring may explain as ``name: ...``."""
    try:
        names = set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        names = set()
    return names | set(getattr(obj, "__dataclass_fields__", ()))


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.add_css_file("reference.css")
    app.add_role("cell", cell_role)
    app.connect("source-read", fill_page)
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
