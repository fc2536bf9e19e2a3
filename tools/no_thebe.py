"""Sphinx extension: keep sphinx-thebe's scripts out of the pages.

Jupyter Book always loads sphinx-thebe, which names a script on another host
and declares one constant twice. The book offers no live kernel.
"""


def drop_thebe(app, pagename, templatename, context, doctree):
    context["script_files"][:] = [
        script
        for script in context["script_files"]
        if "thebe" not in (script.filename or "")
        and "thebe" not in script.attributes.get("body", "")
    ]


def setup(app):
    app.connect("html-page-context", drop_thebe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
