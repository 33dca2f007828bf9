"""What each directive renders to."""

from __future__ import annotations

import csv
from collections.abc import Callable

from ingest.loaders.rst import objects, tables
from ingest.loaders.rst.lines import Line, dedent, fenced
from ingest.loaders.rst.scanner import Directive, Scanner

_ADMONITIONS = {
    "note", "warning", "important", "tip", "hint", "caution", "attention", "danger", "error", "todo",
    "seealso",
}  # fmt: skip
_VERSIONS = {
    "versionadded": "Added in version",
    "versionchanged": "Changed in version",
    "deprecated": "Deprecated since version",
    "versionremoved": "Removed in version",
}
_CODE = {
    "code-block",
    "code",
    "sourcecode",
    "parsed-literal",
    "prompt",
    "doctest",
    "testcode",
    "testoutput",
    "code-tab",
}
# Containers whose argument, if any, is layout rather than text.
_PLAIN = {
    "only", "ifconfig", "container", "compound", "grid", "grid-item", "tab-set", "tabs", "hlist", "epigraph",
    "pull-quote", "highlights", "glossary", "rst-class", "div", "card-carousel", "button-ref", "button-link",
    "toggle",
}  # fmt: skip
_TITLED = {
    "admonition", "topic", "sidebar", "rubric", "centered", "tab-item", "tab", "group-tab", "dropdown",
    "card", "grid-item-card", "collapse", "details", "exercise", "solution",
}  # fmt: skip
_DROPPED = {
    "toctree", "contents", "highlight", "index", "sectnum", "tabularcolumns", "role", "default-role",
    "header", "footer", "sectionauthor", "codeauthor", "moduleauthor", "title", "tags", "ghcontributors",
    "program", "default-domain", "local", "section-numbering", "target-notes", "date", "unicode", "replace",
    "bibliography", "youtube", "video", "iframe",
}  # fmt: skip
# Options of API directives that say nothing about the object; others, such as `type`, are shown.
_OBJECT_LAYOUT = {
    "noindex", "no-index", "noindexentry", "no-index-entry", "nocontentsentry", "no-contents-entry", "module",
    "canonical", "async", "abstractmethod", "abstract", "classmethod", "staticmethod", "final",
    "single-line-parameter-list", "no-typesetting", "notypesetting",
}  # fmt: skip
_MODULES = {"module", "py:module", "currentmodule", "py:currentmodule"}


def run(scanner: Scanner, d: Directive) -> None:
    """Render `d` into the scanner's current section."""
    kind = objects.kind_of(d.name)
    if d.name in _HANDLERS:
        _HANDLERS[d.name](scanner, d)
    elif kind is not None:
        _object(scanner, d, kind)
    elif objects.automatic(d.name):
        _automatic(scanner, d)
    elif d.name in _ADMONITIONS:
        text = [d.place.at(d.argument)] if d.argument else []
        _titled(scanner, d, d.name.capitalize(), [*text, *dedent(d.lead)])
    elif d.name in _VERSIONS:
        _titled(scanner, d, f"{_VERSIONS[d.name]} {d.argument}".strip(), dedent(d.lead))
    elif d.name in _CODE:
        _code(scanner, d)
    elif d.name in _PLAIN:
        scanner.scan(d.body, d.prefix, nested=True)
    elif d.name in _MODULES:
        scanner.module = "" if d.argument == "None" else d.argument
        if not d.name.endswith("currentmodule"):
            synopsis = d.options.get("synopsis", "")
            about = f"Module ``{d.argument}``: {synopsis}" if synopsis else f"Module ``{d.argument}``"
            scanner.emit_all([d.place.at(about)], d.prefix)
        scanner.scan(d.body, d.prefix, nested=True)
    elif d.name not in _DROPPED:
        if d.name not in _TITLED:
            scanner.unknown[d.name] += 1
        _titled(scanner, d, d.argument, dedent(d.lead))


def _titled(scanner: Scanner, d: Directive, title: str, first: list[Line]) -> None:
    """The title in bold, then the text."""
    if title:
        text = scanner.definitions.apply(title)
        scanner.emit(d.place.at(""))
        scanner.emit(d.place.at(text if "*" in text or "`" in text else f"**{text}**"), d.prefix)
    scanner.scan(first, d.prefix, nested=True)
    if first and d.content:
        scanner.emit(d.content[0].at(""))
    scanner.scan(d.content, d.prefix, nested=True)
    scanner.emit(Line("", d.last, d.last))


def _code(scanner: Scanner, d: Directive) -> None:
    language = d.argument if " " not in d.argument else ""
    _caption(scanner, d, d.options.get("caption", ""))
    scanner.emit_all(fenced(d.body, language), d.prefix)


def _caption(scanner: Scanner, d: Directive, text: str) -> None:
    if text:
        scanner.emit_all([d.place.at(scanner.definitions.apply(text))], d.prefix)


def _math(scanner: Scanner, d: Directive) -> None:
    body = [d.place.at(d.argument), *d.body] if d.argument else d.body
    if body:
        scanner.emit_all([body[0].at("$$"), *body, body[-1].at("$$")], d.prefix)


def _picture(scanner: Scanner, d: Directive) -> None:
    alt = d.options.get("alt", "")
    if alt:
        scanner.emit_all([d.place.at(f"{d.name.capitalize()}: {alt}")], d.prefix)
    scanner.scan(d.content, d.prefix, nested=True)
    scanner.emit(Line("", d.last, d.last))


def _raw(scanner: Scanner, d: Directive) -> None:
    """Markup for one output format is layout, but for tables that reStructuredText could not express."""
    if d.argument.lower() != "html" or not any("<table" in line.text.lower() for line in d.content):
        return
    from ingest.html.render import Renderer
    from ingest.html.tree import parse
    from ingest.rendering import MarkdownWriter

    writer = MarkdownWriter()
    Renderer(writer, "").render(parse("\n".join(line.text for line in d.content))[0])
    text = writer.document("").text or ""
    scanner.emit_all([Line(line, d.place.first, d.last) for line in text.strip().split("\n")], d.prefix)


def _meta(scanner: Scanner, d: Directive) -> None:
    """What authors wrote for search engines serves search here, too."""
    for key, value in d.options.items():
        name = key.split(" ")[0]
        if name in ("description", "keywords") and value:
            scanner.hold(Line(f"{name.capitalize()}: {value}", d.place.first, d.last))


def _table(scanner: Scanner, d: Directive) -> None:
    scanner.scan(_table_content(scanner, d), d.prefix, nested=True)


def _table_content(scanner: Scanner, d: Directive) -> list[Line]:
    """Its title is emitted; without one, rows may follow the directive without a blank line."""
    if d.lead and not d.content and not d.argument:
        return dedent(d.lead)
    _caption(scanner, d, " ".join([d.argument, *(line.text.strip() for line in d.lead)]).strip())
    return d.content


def _list_table(scanner: Scanner, d: Directive) -> None:
    content = _table_content(scanner, d)
    table = tables.list_table(content, _number(d.options.get("header-rows", "")))
    if table is None:
        scanner.unknown["list-table that is no list of lists"] += 1
        scanner.scan(content, d.prefix, nested=True)
    else:
        scanner.emit_all(tables.render(table, scanner.capture), d.prefix)


def _csv_table(scanner: Scanner, d: Directive) -> None:
    content = _table_content(scanner, d)
    delimiter = {"tab": "\t", "space": " "}.get(d.options.get("delim", ","), d.options.get("delim", ","))
    if "file" in d.options:
        content = scanner.files.lines(d.options["file"], d.place)
    try:
        headers = _number(d.options.get("header-rows", ""))
        table = tables.csv_table(content, d.options.get("header", ""), headers, delimiter[:1] or ",", d.place)
        scanner.emit_all(tables.render(table, scanner.capture), d.prefix)
    except csv.Error:
        scanner.unknown["csv-table that is not CSV"] += 1
        scanner.emit_all(fenced(content), d.prefix)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _object(scanner: Scanner, d: Directive, kind: str) -> None:
    """An API object: its signatures, then its text; with text, a section of its own."""
    signatures = [s for s in (d.place.at(d.argument), *(x.at(x.text.strip()) for x in d.lead)) if s.text]
    signatures = _continued(signatures)
    if not signatures:
        scanner.scan(d.content, d.prefix, nested=True)
        return
    name = objects.object_name(d.name, kind, signatures[0].text)
    python = not d.name.startswith(("c:", "cpp:"))
    full = objects.qualify(name, scanner.module if python else "", scanner.enclosing_object)
    fields = [
        Line(f":{key}: {value}".rstrip(), d.place.first, d.last)
        for key, value in d.options.items()
        if key not in _OBJECT_LAYOUT
    ]
    section = objects.has_section(kind) and bool(d.content) and not d.prefix
    if section:
        scanner.begin_object(full)
    scanner.emit_all([s.at(f"class {s.text}" if kind == "class" else s.text) for s in signatures], d.prefix)
    inner = d.prefix + ("" if section else "  ")
    scanner.emit_all(fields, inner)
    scanner.scan(d.content, inner, nested=True)
    if section:
        scanner.end_object()


def _continued(signatures: list[Line]) -> list[Line]:
    """Signatures that end with a backslash go on in the next line."""
    joined: list[Line] = []
    for line in signatures:
        if joined and joined[-1].text.endswith("\\"):
            joined[-1] = Line(joined[-1].text[:-1].rstrip() + " " + line.text, joined[-1].first, line.last)
        else:
            joined.append(line)
    return joined


def _automatic(scanner: Scanner, d: Directive) -> None:
    """Text that autodoc would take from the source: it is found there, in the object's own documentation."""
    kind = objects.automatic(d.name) or ""
    python = d.name.startswith("auto")
    name = objects.qualify(d.argument, scanner.module if python and kind != "module" else "", "")
    scanner.emit_all([d.place.at(f"``{name}`` ({kind}; documented in its source)")], d.prefix)
    if kind == "module":
        scanner.module = d.argument
    scanner.scan(d.content, d.prefix, nested=True)


def _autosummary(scanner: Scanner, d: Directive) -> None:
    entries = []
    for line in [*d.lead, *d.content]:
        name = line.text.strip().lstrip("~")
        if name and "{" not in name:
            entries.append(line.at(f"- ``{objects.qualify(name, scanner.module, '')}``"))
    scanner.emit_all(entries, d.prefix)


def _include(scanner: Scanner, d: Directive) -> None:
    scanner.files.include(scanner, d)


def _literalinclude(scanner: Scanner, d: Directive) -> None:
    code = scanner.files.literal(d)
    if code:
        _caption(scanner, d, d.options.get("caption", ""))
        scanner.emit_all(fenced(dedent(code), d.options.get("language", "")), d.prefix)


_HANDLERS: dict[str, Callable[[Scanner, Directive], None]] = {
    "math": _math,
    "image": _picture,
    "figure": _picture,
    "meta": _meta,
    "table": _table,
    "list-table": _list_table,
    "flat-table": _list_table,
    "csv-table": _csv_table,
    "autosummary": _autosummary,
    "raw": _raw,
    "include": _include,
    "literalinclude": _literalinclude,
}
