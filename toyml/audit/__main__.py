"""``python -m toyml.audit package.module:loss_fn [--json] [--figure PATH]``.

Exit status: 0 for a clean report, 1 with findings, 2 if nothing could be run.
"""

import argparse
import importlib
import os
import sys

from . import audit


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m toyml.audit")
    parser.add_argument("loss", help="package.module:loss_fn")
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--vocab-size", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--calls", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--error-rate", type=float, default=0.01)
    parser.add_argument("--mask-column", action="store_true", default=None,
                        help="the head has a column for the mask id")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", metavar="PATH")
    options = vars(parser.parse_args(argv))
    spec, as_json, path = (options.pop(k) for k in ("loss", "json", "figure"))
    try:
        report = audit(_load(spec), **options)
    except ValueError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    print(report.to_json() if as_json else report)
    if path and report.rows:
        report.figure(path)
    return 2 if report.kind == "error" else int(not report.clean)


def _load(spec):
    """The function that package.module:name names, from here or the path."""
    module, _, name = spec.partition(":")
    if not module or not name:
        raise ValueError(f"loss = {spec!r}: expected package.module:loss_fn")
    sys.path.insert(0, os.getcwd())
    try:
        out = importlib.import_module(module)
        for part in name.split("."):
            out = getattr(out, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"loss = {spec!r}: {error}") from error
    return out


if __name__ == "__main__":
    sys.exit(main())
