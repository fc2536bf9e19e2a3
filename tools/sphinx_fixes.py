"""Sphinx extension with what this book adds to its builders."""

import re

import nbformat
from docutils import nodes
from publish_url import COLAB, on_github


def offer_colab(app, config):
    """Launch buttons appear with the address of the book, not before."""
    options = config.html_theme_options
    if on_github(options.get("repository_url") or ""):
        options["use_repository_button"] = True
        options["launch_buttons"] = {"colab_url": COLAB}


def anchor(app, doctree):
    """More places that a link `page#name` can lead to.

    `#cell-NAME` is the code cell with that id, `#f5` the row of a table that
    begins with F5, and a label `(q5)=` is known to other pages.
    """
    env = app.env
    slugs = env.metadata[env.docname].setdefault("myst_slugs", {})
    for node, name in [
        *cells(env.doc2path(env.docname), doctree),
        *rows(doctree),
    ]:
        node["ids"].append(name)
        slugs[name] = (node.line, name, name)
    for name, explicit in doctree.nametypes.items():
        if explicit and doctree.nameids[name]:
            slugs.setdefault(name, (None, doctree.nameids[name], name))


def cells(path, doctree):
    """Each code cell of a notebook's page with its anchor."""
    if path.endswith(".ipynb"):
        ids = [cell.id for cell in nbformat.read(path, as_version=4).cells]
        for node in doctree.findall(nodes.container):
            if node.get("nb_element") == "cell_code":
                yield node, f"cell-{ids[node['cell_index']]}"


def rows(doctree):
    """Each row of a table that begins with the number of a claim."""
    for node in doctree.findall(nodes.row):
        number = node.children[0].astext()
        if re.fullmatch(r"[FPR]\d+", number):
            yield node, number.lower()


def keep_formulas(app, doctree, docname):
    """Sphinx puts a formula that holds two lines into a split environment.

    MathJax allows no tag in one. Jupyter adds nothing, and so does the book.
    """
    for formula in doctree.findall(nodes.math_block):
        text = nodes.Text(rf"\[{formula.astext()}\]")
        formula.children = []
        formula.append(text)
        formula["nowrap"] = True


def keep_punctuation(app, doctree, docname):
    """No line begins with the full stop that follows a formula."""
    for formula in list(doctree.findall(nodes.math)):
        after = formula.next_node(descend=False, siblings=True)
        if not isinstance(after, nodes.Text):
            continue
        sign = re.match(r"[^\s\w]+", after)
        if sign:
            parent = formula.parent
            at = parent.index(formula)
            together = nodes.inline("", "", formula, nodes.Text(sign[0]))
            together["classes"].append("together")
            rest = nodes.Text(after[sign.end() :])
            parent[at : at + 2] = [together, rest]


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


def name_list_items(app, pagename, templatename, context, doctree):
    """Docutils makes a list of the citations, but no entry an item of it."""
    if "body" in context:
        context["body"] = context["body"].replace(
            'role="doc-biblioentry"', 'role="listitem"'
        )


def setup(app):
    app.connect("config-inited", offer_colab)
    app.connect("doctree-read", anchor)
    app.connect("doctree-resolved", keep_formulas)
    app.connect("doctree-resolved", keep_punctuation)
    app.connect("html-page-context", drop_thebe)
    app.connect("html-page-context", name_list_items)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
