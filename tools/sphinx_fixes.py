"""Sphinx extension with two corrections for this book."""

from docutils import nodes


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
    app.connect("doctree-resolved", keep_formulas)
    app.connect("html-page-context", drop_thebe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
