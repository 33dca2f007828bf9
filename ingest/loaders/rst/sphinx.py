"""What Sphinx's `conf.py` adds to every document: prolog and epilog, version numbers, short links.

The file is a program that is never run: only assignments at its top level of what can be read off (texts,
numbers, what is put together of them) count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from ingest.loaders.rst.includes import Refused, SourceFolder, named_files
from ingest.loaders.rst.inline import Definitions

_MAX_CHARACTERS = 1_000_000  # of a text that is put together; doubling one has no end


@dataclass(frozen=True)
class Settings:
    """`around` is the prolog and the epilog, `numbers` the names that Sphinx itself defines."""

    around: str = ""
    numbers: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)


def definitions(folder: SourceFolder) -> Definitions:
    """What is defined for the documents of the project that `folder` is about; nothing without a project.

    Of prolog and epilog only definitions count: their text is the same on every page.
    """
    found = Definitions()
    configuration = folder.configuration()
    if configuration is None:
        return found
    try:
        settings = _settings(folder.read(configuration))
    except Refused:
        return found
    found.words |= settings.numbers
    found.links |= settings.links
    for text in [_text(folder, f) for f in named_files(settings.around, configuration, folder)]:
        found.add(text)
    found.add(settings.around)
    return found


def files(folder: SourceFolder) -> list[Path]:
    """The files that `definitions` depends on."""
    configuration = folder.configuration()
    if configuration is None:
        return []
    try:
        around = _settings(folder.read(configuration)).around
    except Refused:
        return [configuration]
    return [configuration, *named_files(around, configuration, folder)]


def _text(folder: SourceFolder, file: Path) -> str:
    try:
        return folder.read(file)
    except Refused:
        return ""


@lru_cache(maxsize=64)
def _settings(program: str) -> Settings:
    values = _assigned(program)
    around = [values.get(name) for name in ("rst_prolog", "rst_epilog")]
    links = values.get("extlinks")
    return Settings(
        "\n\n".join(text for text in around if isinstance(text, str)),
        {name: v for name in ("version", "release") if isinstance(v := values.get(name), str)},
        {
            role: (pair[0], _caption(pair[1]))
            for role, pair in (links.items() if isinstance(links, dict) else ())
            if isinstance(role, str)
            and isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
        },
    )


def _caption(said: Any) -> str | None:
    """Before Sphinx 4 the caption was a prefix."""
    if not isinstance(said, str) or not said:
        return None
    return said if "%s" in said else said + "%s"


class _Unknown(Exception):
    """A value that only running the program would tell."""


def _assigned(program: str) -> dict[str, Any]:
    """The values of names at the program's top level, of those that can be read off."""
    try:
        body = ast.parse(program).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    values: dict[str, Any] = {}
    for statement in body:
        targets: list[ast.expr] = []
        value: ast.expr | None = None
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            targets = [statement.target]
            value = ast.BinOp(ast.Name(ast.unparse(statement.target)), ast.Add(), statement.value)
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                try:
                    values[target.id] = _value(value, values)
                except (_Unknown, RecursionError):
                    values.pop(target.id, None)
    return values


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Raises _Unknown for what is no literal, and not put together of literals."""
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return node.value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Tuple() | ast.List():
            return tuple(_value(e, names) for e in node.elts)
        case ast.Dict():
            return dict(_entries(node, names))
        case ast.BinOp(op=ast.Add()):
            return _joined([_value(node.left, names), _value(node.right, names)])
        case ast.BinOp(op=ast.Mod()):
            return _joined(_percent(_value(node.left, names), _value(node.right, names)))
        case ast.JoinedStr():
            return _joined(_part(part, names) for part in node.values)
        case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args, keywords=keywords):
            given = {str(i): _value(a, names) for i, a in enumerate(args)}
            given |= {k.arg: _value(k.value, names) for k in keywords if k.arg}
            return _joined(_formatted(_value(text, names), given))
        case ast.Call(func=ast.Attribute(value=glue, attr="join"), args=[parts]):
            between, pieces = _value(glue, names), _value(parts, names)
            if not isinstance(pieces, tuple):
                raise _Unknown
            return _joined(p for n, piece in enumerate(pieces) for p in ((between, piece) if n else (piece,)))
    raise _Unknown


def _entries(node: ast.Dict, names: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Those that can be read off."""
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant):
            try:
                yield key.value, _value(value, names)
            except _Unknown:
                continue


def _joined(parts: Iterable[Any]) -> str:
    found: list[str] = []
    size = 0
    for part in parts:
        if not isinstance(part, str) or (size := size + len(part)) > _MAX_CHARACTERS:
            raise _Unknown
        found.append(part)
    return "".join(found)


def _part(part: ast.expr, names: Mapping[str, Any]) -> Any:
    if not isinstance(part, ast.FormattedValue):
        return _value(part, names)
    if part.conversion != -1 or part.format_spec is not None:
        raise _Unknown
    return _shown(_value(part.value, names))


def _shown(value: Any) -> str:
    """Not of collections: one that holds another twice, and so on, has no end."""
    if not isinstance(value, str | int | float | None):
        raise _Unknown
    try:
        return str(value)
    except ValueError:  # a number of thousands of digits
        raise _Unknown from None


def _percent(text: Any, given: Any) -> Iterator[str]:
    """`text % given`, where it only puts texts in place."""
    values = list(given) if isinstance(given, tuple) else [given]
    pieces = re.split(r"(%.?)", text) if isinstance(text, str) else []
    if not set(pieces[1::2]) <= {"%s", "%%"} or pieces[1::2].count("%s") != len(values):
        raise _Unknown
    for piece in pieces:
        yield "%" if piece == "%%" else _shown(values.pop(0)) if piece == "%s" else piece


def _formatted(text: Any, given: Mapping[str, Any]) -> Iterator[str]:
    """`text.format(…)`, where it only puts texts in place."""
    if not isinstance(text, str):
        raise _Unknown
    numbers = count()
    for piece in re.split(r"(\{\w*\}|\{\{|\}\}|[{}])", text):
        if piece in ("{{", "}}"):
            yield piece[0]
        elif piece[:1] not in ("{", "}"):
            yield piece
        else:
            name = piece[1:-1] or str(next(numbers))
            if name not in given:
                raise _Unknown
            yield _shown(given[name])
