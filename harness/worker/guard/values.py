"""What an expression of a Python file may be, as far as a look at the file tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_VALUES = 48  # of one expression
MAX_DEPTH = 16  # parts of a path
MAX_TEXT = 1 << 16
UNKNOWN = "_0"  # stands in a template for what is not known: a name, wherever one may stand
_PLACE = re.compile(r"%[-+ #0-9.]*[a-zA-Z]")


@dataclass(frozen=True)
class Path:
    """Something of a library, by its dotted name. `()` is the result of a call, `[]` an element, `?` an
    unknown attribute: `torch.Tensor`, `sys._getframe().f_back`, `sys.modules.values()[]`.
    """

    name: str


@dataclass(frozen=True)
class Text:
    """A literal, or what literals are put together to."""

    value: str | bytes


@dataclass(frozen=True)
class Template:
    """A text of which parts are literal (joined here) and others are not known."""

    value: str


@dataclass(frozen=True)
class Decoded:
    """What a decoder made out of data: nobody can read it in the file.

    A single character made of a number is no code yet (`chr(105 + axis)` may name a variable); a text that is
    spelled by such characters alone is.
    """

    how: str
    character: bool = False


@dataclass(frozen=True)
class Own:
    """A function, lambda or class of this file."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


@dataclass(frozen=True)
class Instance:
    """An object of a class of this file."""

    of: ast.ClassDef


@dataclass(frozen=True)
class Items:
    """A list, tuple or set, item by item."""

    items: tuple[Values, ...]


@dataclass(frozen=True)
class Table:
    """A dictionary."""

    keys: Values
    items: Values


@dataclass(frozen=True)
class Partial:
    """A function with its first arguments."""

    function: Values
    arguments: tuple[Values, ...]


Value = Path | Text | Template | Decoded | Own | Instance | Items | Table | Partial
Values = frozenset[Value]
NOTHING: Values = frozenset()


def path(name: str) -> Values:
    """A library's object; nothing, where the name has become too long to be one."""
    return frozenset({Path(name)}) if name.count(".") < MAX_DEPTH and len(name) < 400 else NOTHING


def text(value: str | bytes) -> Values:
    return frozenset({Text(value)}) if len(value) <= MAX_TEXT else NOTHING


def union(parts: Iterable[Values]) -> Values:
    result = NOTHING.union(*parts)
    return result if len(result) <= MAX_VALUES else frozenset(sorted(result, key=repr)[:MAX_VALUES])


def texts(values: Values) -> list[str]:
    return sorted(v.value for v in values if isinstance(v, Text) and isinstance(v.value, str))


def paths(values: Values) -> list[str]:
    return sorted(v.name for v in values if isinstance(v, Path))


def element(base: Path, key: str | None) -> Values:
    """`base[key]`: namespaces and the table of modules are looked through."""
    if key is not None:
        if base.name == "sys.modules":
            return path(key)
        if key == "__builtins__":
            return path("builtins")
        if base.name.endswith(".__dict__"):
            return path(f"{base.name.removesuffix('.__dict__')}.{key}")
        if base.name == "builtins":
            return path(f"builtins.{key}")
    return path(f"{base.name}[]")


def elements(values: Values) -> Values:
    """What iterating gives."""
    found: list[Values] = []
    for value in values:
        if isinstance(value, Items):
            found.extend(value.items)
        elif isinstance(value, Table):
            found.append(value.keys)
        elif isinstance(value, Path):
            found.append(path(f"{value.name}[]"))
        elif isinstance(value, Decoded):
            found.append(frozenset({value}))
    return union(found)


def sliced(base: Text, node: ast.Slice) -> Values:
    """A literal's slice with literal bounds."""
    try:
        bounds = [None if b is None else ast.literal_eval(b) for b in (node.lower, node.upper, node.step)]
        return text(base.value[slice(*bounds)])
    except (ValueError, TypeError):
        return NOTHING


def spelled(values: Values) -> Values:
    """A text that grows by these, one after the other."""
    return frozenset(Decoded(v.how) if isinstance(v, Decoded) else v for v in values)


def combined(operator: ast.operator, left: Values, right: Values) -> Values:
    """`left + right` and `left % right`."""
    decoded = _decoded([left, right])
    if isinstance(operator, ast.Mod):
        return decoded or frozenset(Template(_PLACE.sub(UNKNOWN, t)) for t in texts(left))
    if isinstance(operator, ast.Mult):  # a repeated list or text
        return frozenset(v for v in left if isinstance(v, Items | Decoded))
    if not isinstance(operator, ast.Add):
        return NOTHING
    if decoded:
        return decoded
    rows = [v for v in left if isinstance(v, Items)], [v for v in right if isinstance(v, Items)]
    if rows[0] or rows[1]:
        return frozenset(
            {Items(tuple(i for side in rows for row in side[:1] for i in row.items)[:MAX_VALUES])}
        )
    return joined([left, right])


def joined(parts: list[Values]) -> Values:
    """The concatenation of texts: a literal if each part is exactly one, else a template of what is known."""
    decoded = _decoded(parts)
    if decoded:
        return decoded
    single = [next(iter(part)) for part in parts if len(part) == 1]
    literals = [v.value for v in single if isinstance(v, Text)]
    if len(literals) == len(parts) and len({type(t) for t in literals}) <= 1:
        empty: str | bytes = b"" if literals and isinstance(literals[0], bytes) else ""
        return text(empty.join(literals))  # type: ignore[arg-type]
    known = [_known(part) for part in parts]
    characters = spelled(frozenset(v for part in parts for v in part if isinstance(v, Decoded)))
    if len(parts) > 1 and characters and not any(c.isalpha() for k in known if k != UNKNOWN for c in k):
        return characters
    return frozenset({Template("".join(known)[:MAX_TEXT])}) if any(k != UNKNOWN for k in known) else NOTHING


def _decoded(parts: list[Values]) -> Values:
    return frozenset(v for part in parts for v in part if isinstance(v, Decoded) and not v.character)


def _known(part: Values) -> str:
    for value in part:
        if isinstance(value, Text | Template) and isinstance(value.value, str):
            return value.value
    return UNKNOWN
