"""Plain docstrings as reStructuredText."""

import re


def formatted(lines, names=()):
    """Plain text as reStructuredText.

    Paragraphs are kept. An argument, ``name: ...``, becomes an item of a
    list; a sentence on errors, results or sources begins a paragraph; an
    indented paragraph is shown as it is.
    """
    out = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        rows = block.splitlines()
        if rows and all(row.startswith(" ") for row in rows):
            out += [".. code-block:: text", ""]
            out += [*(f"   {row.strip()}" for row in rows), ""]
            continue
        for text in _parts(rows, names):
            name, colon, rest = text.partition(": ")
            if colon and _is_argument(name, names):
                words = ", ".join(f"``{n}``" for n in name.split(", "))
                out += [f"- {words}: {inline(rest)}", ""]
            else:
                out += [_plain(inline(text)), ""]
    return out


def _parts(rows, names):
    """The paragraphs and arguments of one block of text."""
    parts, deeper = [], False
    for row in rows:
        inside = row.startswith(" ")
        begins = _is_argument(row.partition(": ")[0], names)
        if not parts or begins or (deeper and not inside):
            parts.append(row.strip())
        else:
            parts[-1] += " " + row.strip()
        deeper = inside
    split = []
    for part in parts:
        start = 0
        for stop in re.finditer(r"[.;] (?=\w)", part):
            after = part[stop.end() :]
            if re.match("Raises |Returns |Source: |Units: ", after) or (
                _is_argument(after.partition(": ")[0], names)
            ):
                split.append(part[start : stop.end()].strip())
                start = stop.end()
        split.append(part[start:])
    return split


def _is_argument(text, names):
    return bool(text) and all(n in names for n in text.split(", "))


_CODE = re.compile(
    r"``(?P<double>.+?)``|`(?P<single>[^`]+)`|(?P<bare>"
    # a call or an entry of an array: rho(t), table[S, i]
    r"(?<![\w.])[A-Za-z_][\w.']*"
    r"(?:\((?:[^()]|\([^()]*\))*\)|\[(?:[^\[\]()]|\([^()]*\))*\])+"
    # a shape or a closed interval: [B, L]
    r"|\[(?:[^\[\]()]|\([^()]*\))*\]"
    # a string: "redraw"
    r"|(?<!\w)\"[\w-]+\""
    # a derivative: rho'
    r"|(?<![\w.])[A-Za-z]+'(?!\w)"
    # a name with an underscore: x_0
    r"|(?<![\w.])[A-Za-z]\w*_\w*[A-Za-z0-9](?!\w))"
)


def inline(text):
    """Names, calls and shapes as literals, the rest with nothing special."""
    out, end = [], 0
    for match in _CODE.finditer(text):
        code = match["double"] or match["single"] or match["bare"]
        out += [_escape(text[end : match.start()]), f"\\ ``{code}``\\ "]
        end = match.end()
    out.append(_escape(text[end:]))
    return "".join(out).removesuffix("\\ ").strip()


def _escape(text):
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def _plain(text):
    """A paragraph that no sign at its start turns into a list."""
    return f"\\{text}" if text[:1] in "-+.:>=" else text
