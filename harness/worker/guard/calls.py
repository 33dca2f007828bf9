"""What calls return, as far as a guard must know: look-ups by name, imports, decoders, texts put together."""

from __future__ import annotations

import ast
import re
import string
from typing import TYPE_CHECKING

from harness.worker.guard.values import (
    NOTHING,
    UNKNOWN,
    Decoded,
    Instance,
    Items,
    Own,
    Partial,
    Path,
    Table,
    Template,
    Text,
    Value,
    Values,
    element,
    elements,
    joined,
    path,
    spelled,
    text,
    texts,
    union,
)

if TYPE_CHECKING:
    from harness.worker.guard.flow import Flow, Invocation

_DECODERS = (
    *("base64.", "zlib.decompress", "gzip.decompress", "bz2.decompress", "lzma.decompress", "binascii."),
    *(
        "marshal.load",
        "pickle.load",
        "codecs.decode",
        "bytes.fromhex",
        "builtins.bytes",
        "builtins.bytearray",
    ),
    *(
        "int.to_bytes",
        "struct.pack",
        "builtins.int.to_bytes",
        "urllib.request.",
        "zlib.",
        "dill.",
    ),
)
_PASSED_ON = {"list", "tuple", "set", "frozenset", "iter", "sorted", "reversed", "dict", "copy"}
_TEXT_METHODS = {"lower", "upper", "strip", "lstrip", "rstrip", "replace", "title", "capitalize", "swapcase"}
_LOOKED_UP = {"importlib.import_module", "builtins.__import__", "importlib.__import__"}
_SAME_TEXT = {
    *("builtins.str", "builtins.repr", "textwrap.dedent", "textwrap.indent", "inspect.cleandoc"),
    *("builtins.compile", "ast.parse"),
}
_SEPARATORS = "builtins.str.maketrans(separators)"
_DOLLAR = re.compile(r"\$(?:\w+|\{\w+\})")
_PARTIAL = {"functools.partial", "functools.partialmethod"}


def result(flow: Flow, made: Invocation, call: ast.Call) -> Values:
    """The values one invocation by a call gives."""
    function = made.function
    if isinstance(function, Own):
        node = function.node
        return (
            frozenset({Instance(node)}) if isinstance(node, ast.ClassDef) else flow.results.get(node, NOTHING)
        )
    if isinstance(function, Path):
        if function.name == "builtins.chr":
            return _character(call)
        return _of_library(flow, function.name, made)
    return NOTHING


def of_method(flow: Flow, call: ast.Call) -> Values:
    """Methods of texts, lists and tables."""
    if not isinstance(call.func, ast.Attribute):
        return NOTHING
    name = call.func.attr
    if name == "tobytes":  # of a tensor, an array, a buffer
        return frozenset({Decoded(name)})
    arguments = [flow.values(a) for a in call.args]
    return union(_method(value, name, arguments) for value in flow.values(call.func.value))


def _method(value: Value, name: str, arguments: list[Values]) -> Values:
    if isinstance(value, Decoded):
        return frozenset({value})
    if isinstance(value, Text | Template):
        return _text_method(value, name, arguments)
    if isinstance(value, Table):
        if name == "items":
            return frozenset({Items((frozenset({Items((value.keys, value.items))}),))})
        if name in ("values", "keys"):
            return frozenset({Items((value.items if name == "values" else value.keys,))})
        return value.items if name in ("get", "pop", "setdefault") else NOTHING
    if isinstance(value, Items):
        return union(value.items) if name == "pop" else frozenset({value}) if name == "copy" else NOTHING
    return NOTHING


def _text_method(value: Text | Template, name: str, arguments: list[Values]) -> Values:
    plain = value.value
    if name == "join" and arguments:
        return _joined_by(value, arguments[0])
    if name in ("decode", "encode"):
        if isinstance(plain, bytes) == (name == "decode"):
            try:
                return text(plain.decode() if isinstance(plain, bytes) else plain.encode())
            except (UnicodeError, ValueError):
                return frozenset({Decoded(name)})
        return frozenset({value}) if isinstance(value, Template) else NOTHING
    if name == "translate":
        harmless = arguments == [path(_SEPARATORS)] and isinstance(plain, str)
        return frozenset({Template(plain) if harmless else Decoded("translate")})  # type: ignore[arg-type]
    if name in ("split", "splitlines", "partition", "rsplit") and isinstance(value, Text):
        given = [a.value for v in arguments for a in v if isinstance(a, Text)]
        try:
            return frozenset({Items(tuple(text(t) for t in getattr(plain, name)(*given)[:64]))})
        except (TypeError, ValueError):
            return NOTHING
    if name in ("format", "format_map") and isinstance(plain, str):
        return frozenset({Template(_filled(plain))})
    if name in ("substitute", "safe_substitute"):
        return frozenset({value})
    if name in _TEXT_METHODS:
        given = [a.value for v in arguments for a in v if isinstance(a, Text)]
        if isinstance(value, Text) and len(given) == len(arguments):
            try:
                return text(getattr(plain, name)(*given))
            except (TypeError, ValueError):
                return NOTHING
        return frozenset({Template(plain)}) if isinstance(plain, str) else NOTHING
    return NOTHING


def _joined_by(separator: Text | Template, rows: Values) -> Values:
    """`separator.join(rows)`; of several rows that a name may be, all items."""
    ordered = sorted(rows, key=repr)
    parts = [part for row in ordered if isinstance(row, Items) for part in row.items]
    parts += [frozenset({row}) for row in ordered if isinstance(row, Decoded)]
    if separator.value in ("", b""):
        return joined([spelled(part) for part in parts])
    between: Values = frozenset({separator})
    whole = joined([p for part in parts for p in (between, part)][1:])
    # `", ".join(chr(97 + i) for i in axes)` is a list of names.
    names = {v.how for part in parts for v in part if isinstance(v, Decoded) and v.character}
    return frozenset(
        Decoded(v.how, character=True) if isinstance(v, Decoded) and v.how in names else v for v in whole
    )


def _of_library(flow: Flow, name: str, made: Invocation) -> Values:
    first, second = made.argument(0), made.argument(1)
    base, _, last = name.rpartition(".")
    if name == "builtins.getattr":
        names = texts(second)
        found = [flow.attribute(owner, n) for owner in first for n in names]
        found += [path(f"{owner.name}.?") for owner in first if isinstance(owner, Path) and not names]
        return union([*found, made.argument(2)])
    if name in _LOOKED_UP:
        whole = name.endswith("import_module") or bool(made.argument(3, "fromlist"))
        return union(
            path(t if whole else t.partition(".")[0]) for t in texts(first or made.argument(0, "name"))
        )
    if name == "builtins.vars" and first:
        return union(path(f"{v.name}.__dict__") for v in first if isinstance(v, Path))
    if name == "builtins.type":
        return union(_type_of(v) for v in first)
    if name in _PARTIAL and first:
        return frozenset({Partial(first, tuple(made.arguments[1:]))})
    if name == "operator.attrgetter" and texts(first):
        return frozenset({Partial(path("builtins.getattr?"), (first,))})
    if name == "builtins.getattr?":  # attrgetter(name)(owner)
        return union(_followed(flow, owner, name) for owner in second for name in texts(first))
    if base == "builtins" and last in _PASSED_ON:
        return first
    if name == "builtins.enumerate":
        return frozenset({Items((frozenset({Items((NOTHING, elements(first)))}),))})
    if name in ("builtins.zip", "itertools.product"):
        return frozenset({Items((frozenset({Items(tuple(elements(a) for a in made.arguments))}),))})
    if name in ("builtins.map", "builtins.filter"):
        values = [flow.results.get(f.node, NOTHING) for f in first if isinstance(f, Own)]
        return frozenset({Items((union(values) | (elements(second) if last == "filter" else NOTHING),))})
    if name in _SAME_TEXT:
        return first
    if name == "string.Template":
        return frozenset(Template(_DOLLAR.sub(UNKNOWN, t)) for t in texts(first))
    if name == "builtins.str.maketrans" and texts(first) and not any(map(_letters, texts(first))):
        return path(_SEPARATORS)
    if name == "builtins.super":
        return NOTHING
    if name.startswith(_DECODERS) or (last == "to_bytes" and not base.startswith("torch")):
        return _decoded(name, made)
    if last in ("get", "__getitem__", "pop") and (base.endswith(".__dict__") or base == "sys.modules"):
        return union(element(Path(base), key) for key in texts(first)) or path(f"{base}[]")
    if last == "copy" and base.endswith(".__dict__"):
        return NOTHING
    return path(f"{name}()")


def _followed(flow: Flow, owner: Value, names: str) -> Values:
    """`owner.a.b` for "a.b"."""
    here: Values = frozenset({owner})
    for part in names.split("."):
        here = union(flow.attribute(value, part) for value in here)
    return here


def _character(call: ast.Call) -> Values:
    """`chr(10)` is written for what is awkward in a literal; letters are not."""
    try:
        character = chr(ast.literal_eval(call.args[0]))
    except (ValueError, TypeError, IndexError, OverflowError):
        return frozenset({Decoded("chr", character=True)})
    return frozenset({Decoded("chr", character=True)}) if _letters(character) else text(character)


def _letters(value: str) -> bool:
    return any(c.isalnum() for c in value)


def _filled(template: str) -> str:
    """A format string with its fields replaced."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return template
    return "".join(literal + (UNKNOWN if field is not None else "") for literal, field, _, _ in parts)


def _decoded(name: str, made: Invocation) -> Values:
    if name in ("builtins.bytes", "builtins.bytearray"):
        given = made.argument(0)
        readable = frozenset(v for v in given if isinstance(v, Text | Template))
        encodes = len(made.arguments) > 1 or bool(made.keywords)  # a text, then
        return readable or (NOTHING if encodes else frozenset({Decoded("bytes")}))
    if "encode" in name or (name.startswith("zlib.") and "decompress" not in name):
        return NOTHING
    return frozenset({Decoded(name.removesuffix("()"))})


def _type_of(value: Value) -> Values:
    if isinstance(value, Instance):
        return frozenset({Own(value.of)})
    if isinstance(value, Path):
        made = value.name.startswith("torch.") and value.name.endswith("()")
        return path("torch.Tensor" if made else f"{value.name}.__class__")
    return NOTHING
