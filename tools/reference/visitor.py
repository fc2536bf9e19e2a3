"""Which public names of toyml the code of a notebook uses."""

import ast
import inspect

from .names import everything, is_function

# What the lower-case functions of a room build, to follow `tea.draw(...)`
# from `tea = uniform_count()`.
BUILDS = {
    "toyml.schedules": "toyml.schedules.Schedule",
    "toyml.objectives": "toyml.objectives.Objective",
    "toyml.samplers": "toyml.samplers.Sampler",
    "toyml.audit": "toyml.audit.Report",
}


class Uses(ast.NodeVisitor):
    """Which public names a notebook uses, cell by cell.

    A name is followed from its import. A method is followed where the class
    of its object is seen: built in the notebook, or looped over.
    """

    def __init__(self):
        self.names = {}  # local name -> dotted name
        self.kinds = {}  # local name -> dotted name of its class
        self.found = []

    def visit_Import(self, node):
        for alias in node.names:
            if alias.asname and alias.name.startswith("toyml."):
                self.names[alias.asname] = alias.name

    def visit_ImportFrom(self, node):
        if (node.module or "").split(".")[0] == "toyml":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                self.names[alias.asname or alias.name] = full

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_For(self, node):
        self.visit(node.iter)
        self.each(node)
        for part in (*node.body, *node.orelse):
            self.visit(part)

    def visit_ListComp(self, node):
        for part in node.generators:
            self.visit(part.iter)
            self.each(part)
        self.generic_visit(node)

    visit_GeneratorExp = visit_ListComp  # noqa: N815
    visit_SetComp = visit_ListComp  # noqa: N815
    visit_DictComp = visit_ListComp  # noqa: N815

    def each(self, loop):
        if isinstance(loop.iter, ast.Tuple | ast.List) and loop.iter.elts:
            self.bind(loop.target, loop.iter.elts[0])

    def bind(self, target, value):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its in zip(target.elts, value.elts, strict=False):
                self.bind(one, its)
        elif isinstance(target, ast.Name):
            self.names.pop(target.id, None)
            self.kinds[target.id] = self.kind(value)

    def visit_Name(self, node):
        self.use(self.dotted(node))

    def visit_Attribute(self, node):
        self.use(self.dotted(node))
        self.visit(node.value)

    def use(self, name):
        if name in everything():
            self.found.append(name)

    def dotted(self, node):
        """The dotted name that an expression means, or None."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        owner = self.dotted(node.value)
        if owner is None or owner in everything():
            owner = self.kind(node.value) or owner
        return owner and f"{owner}.{node.attr}"

    def kind(self, node):
        """The dotted name of the class of an expression's value, or None."""
        if isinstance(node, ast.Name) and self.kinds.get(node.id):
            return self.kinds[node.id]
        if not isinstance(node, ast.Call):
            value = everything().get(self.dotted(node))
            return _named(type(value)) if value is not None else None
        name = self.dotted(node.func)
        value = everything().get(name)
        if inspect.isclass(value):
            return name
        if isinstance(value, classmethod):
            return name.rpartition(".")[0]
        if is_function(value):
            return BUILDS.get(name.rpartition(".")[0])
        return None


def _named(cls):
    found = (n for n, value in everything().items() if value is cls)
    return next(found, None)
