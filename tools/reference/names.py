"""The rooms of toyml, their public names and what they import."""

import ast
import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path

import toyml

# The order of reading. A room that is not named here comes last.
ORDER = (
    "schedules reverse sources tables subsets exact lattice loss objectives "
    "samplers audit model train recorded figures live"
).split()


def rooms():
    """The names of the rooms, in the order of the page."""
    found = {m.name for m in pkgutil.iter_modules(toyml.__path__)}
    found = {name for name in found if not name.startswith("_")}
    known = [name for name in ORDER if name in found]
    return known + sorted(found - set(known))


@cache
def modules(room):
    """The modules that a room shows: itself, or all that its package holds.

    A package that lists its names in ``__all__``, or defines them in its own
    file, is one module to its callers.
    """
    name = f"toyml.{room}"
    package = importlib.import_module(name)
    if hasattr(package, "__all__") or not hasattr(package, "__path__"):
        return (name,)
    parts = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    parts = [part for part in parts if not part.startswith("_")]
    return (name, *(f"{name}.{part}" for part in parts))


def is_function(value):
    return callable(value) and inspect.isfunction(inspect.unwrap(value))


def tree(module):
    return ast.parse(Path(inspect.getsourcefile(module)).read_text())


@cache
def remarks(name):
    """{constant: its ``#:`` comment} of a module."""
    module = importlib.import_module(name)
    lines = Path(inspect.getsourcefile(module)).read_text().splitlines()
    out = {}
    for node in tree(module).body:
        if isinstance(node, ast.Assign):
            start = node.lineno - 1
            while lines[start - 1].startswith("#:"):
                start -= 1
            text = [
                line[2:].strip() for line in lines[start : node.lineno - 1]
            ]
            for target in ast.walk(node.targets[0]):
                if isinstance(target, ast.Name) and text:
                    out[target.id] = text
    return out


def remark(module, name):
    """The comment of a constant, wherever in a package it is defined."""
    package = importlib.import_module(module)
    parts = pkgutil.iter_modules(getattr(package, "__path__", ()))
    for where in (module, *(f"{module}.{part.name}" for part in parts)):
        if name in remarks(where):
            return remarks(where)[name]
    return None


@cache
def public(name):
    """{dotted name: object} of a module: its ``__all__``, or what it defines.

    A constant is shown where a ``#:`` comment explains it.
    """
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        shown = module.__all__
    else:
        shown = [
            n.name
            for n in tree(module).body
            if isinstance(n, ast.FunctionDef | ast.ClassDef)
        ]
        shown = [*remarks(name), *shown]
    found = {n: getattr(module, n) for n in shown if not n.startswith("_")}
    return {
        f"{name}.{n}": value
        for n, value in found.items()
        if inspect.isclass(value) or is_function(value) or remark(name, n)
    }


def methods(cls):
    """The public methods and properties that a class defines itself."""
    kinds = (classmethod, staticmethod, property)
    fields = getattr(cls, "__dataclass_fields__", ())
    return [
        name
        for name, value in vars(cls).items()
        if not (name.startswith("_") or name in fields)
        and (
            inspect.isfunction(value)
            or isinstance(value, kinds)
            or hasattr(value, "attrname")  # a cached property
        )
    ]


@cache
def everything():
    """{dotted name: object} of all names of the page, methods included."""
    out = {}
    for room in rooms():
        for module in modules(room):
            for name, value in public(module).items():
                out[name] = value
                if inspect.isclass(value):
                    for method in methods(value):
                        out[f"{name}.{method}"] = vars(value)[method]
    return out


def imports(room):
    """The other rooms that the files of a room import, in page order."""
    path = Path(toyml.__path__[0])
    files = (path / room).rglob("*.py")
    if not (path / room).is_dir():
        files = [path / f"{room}.py"]
    found = set()
    for file in files:
        here = ("toyml", *file.relative_to(path).parts)[:-1]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = here[: len(here) - node.level + 1]
                base += tuple((node.module or "").split("."))
                names = [".".join(filter(None, base))]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                if name == "toyml":
                    found |= {alias.name for alias in node.names}
                elif name.startswith("toyml."):
                    found.add(name.split(".")[1])
    return [name for name in rooms() if name in found - {room}]
