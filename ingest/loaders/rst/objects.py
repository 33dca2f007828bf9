"""API directives of Sphinx's domains: which there are, and what the object of a signature is called."""

from __future__ import annotations

import re

_PYTHON = {
    "function", "class", "method", "staticmethod", "classmethod", "exception", "decorator",
    "decoratormethod", "property", "attribute", "data",
}  # fmt: skip
_C = {
    "function", "class", "struct", "union", "enum", "enum-class", "enum-struct", "enumerator", "type",
    "macro", "member", "var", "concept", "alias",
}  # fmt: skip
_DOMAINS = {"py": _PYTHON, "c": _C, "cpp": _C, "js": _PYTHON}
# Objects that get no section of their own: a line or two each, best read beside their neighbours.
_SMALL = {"property", "attribute", "data", "enumerator", "member", "var", "alias"}
_STANDARD = {"option", "cmdoption", "confval", "envvar"}
_TYPES = {"class", "exception", "struct", "union", "enum", "enum-class", "enum-struct", "concept"}
_AUTOMATIC = re.compile(
    r"auto(function|class|module|method|data|attribute|exception|property|decorator)"
    r"|doxygen(function|class|struct|union|enum|typedef|define|variable|group|file|namespace|index|concept)"
)


def kind_of(directive: str) -> str | None:
    """`function` for `py:function`, `c:function` and, Python being Sphinx's default domain, `function`."""
    domain, _, name = directive.rpartition(":")
    if directive in _STANDARD:
        return directive
    return name if name in _DOMAINS.get(domain or "py", ()) else None


def has_section(kind: str) -> bool:
    return kind not in _SMALL | _STANDARD


def is_type(kind: str) -> bool:
    return kind in _TYPES


def automatic(directive: str) -> str | None:
    """The kind of object whose text autodoc or Breathe would take from the source."""
    match = _AUTOMATIC.fullmatch(directive)
    return (match[1] or match[2]) if match else None


def object_name(directive: str, kind: str, signature: str) -> str:
    """What the signature declares: `a.b` of `a.b(x) -> int`, `ns::f` of `template<class T> int ns::f(T)`."""
    if kind in _STANDARD:
        return signature.partition(",")[0].strip()
    if directive.startswith(("c:", "cpp:")):
        return _c_name(kind, _without_angles(signature)) or signature
    match = re.match(r"(?:(?:async|abstract|final|static|classmethod|class|def)\s+)*([\w.]+)", signature)
    return match[1] if match else signature


def _c_name(kind: str, text: str) -> str:
    if is_type(kind):
        match = re.match(r"(?:(?:class|struct|union|enum|final)\s+)*((?:::)?[A-Za-z_][\w:]*\w|\w)", text)
        return match[1] if match else ""
    match = re.search(r"((?:[A-Za-z_]\w*::)*(?:operator\s*[^\s\w(]+|operator\(\)|~?[A-Za-z_]\w*))\s*\(", text)
    if match:
        return match[1]
    text = re.split(r"[=\[{]", text)[0]
    names = re.findall(r"[A-Za-z_][\w:]*", text)
    return names[0] if kind in ("type", "macro") and "=" in text else names[-1] if names else ""


def _without_angles(text: str) -> str:
    """Without template parameters and arguments."""
    kept, depth = [], 0
    text = re.sub(r"^template\s*", "", text) if text.startswith("template") else text
    for i, char in enumerate(text):
        if char == "<" and not text[:i].rstrip().endswith("operator"):
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif not depth:
            kept.append(char)
    return "".join(kept).strip()


def qualify(name: str, module: str, outer: str) -> str:
    """The full name within an enclosing class and the current module, unless it is full already."""
    if outer:
        separator = "::" if "::" in outer or "::" in name else "."
        last = outer.rpartition(separator)[2]
        if name.startswith(outer + separator):
            return name
        return outer + separator + name.removeprefix(last + separator)
    if module and name != module and not name.startswith(module + "."):
        return f"{module}.{name}"
    return name
