"""Sphinx extension with what this book adds to its builders."""

import nbformat
from docutils import nodes
from publish_url import COLAB, on_github


def offer_colab(app, config):
    """Launch buttons appear with the address of the book, not before."""
    options = config.html_theme_options
    if on_github(options.get("repository_url") or ""):
        options["use_repository_button"] = True
        options["launch_buttons"] = {"colab_url": COLAB}


def anchor_cells(app, doctree):
    """A link `chapter.ipynb#cell-NAME` leads to the code cell with that id."""
    env = app.env
    path = env.doc2path(env.docname)
    if not path.endswith(".ipynb"):
        return
    cells = nbformat.read(path, as_version=4).cells
    slugs = env.metadata[env.docname].setdefault("myst_slugs", {})
    for node in doctree.findall(nodes.container):
        if node.get("nb_element") == "cell_code":
            name = f"cell-{cells[node['cell_index']].id}"
            node["ids"].append(name)
            slugs[name] = (node.line, name, name)


def keep_formulas(app, doctree, docname):
    """Sphinx puts a formula that holds two lines into a split environment.

    MathJax allows no tag in one. Jupyter adds nothing, and so does the book.
    """
    for formula in doctree.findall(nodes.math_block):
        text = nodes.Text(rf"\[{formula.astext()}\]")
        formula.children = []
        formula.append(text)
        formula["nowrap"] = True


def drop_thebe(app, pagename, templatename, context, doctree):
    """Jupyter Book always loads sphinx-thebe.

    It names a script on another host and declares one constant twice. The
    book offers no live kernel.
    """
    context["script_files"][:] = [
        script
        for script in context["script_files"]
        if "thebe" not in (script.filename or "")
        and "thebe" not in script.attributes.get("body", "")
    ]


def setup(app):
    app.connect("config-inited", offer_colab)
    app.connect("doctree-read", anchor_cells)
    app.connect("doctree-resolved", keep_formulas)
    app.connect("html-page-context", drop_thebe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
