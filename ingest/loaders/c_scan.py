"""Where the definitions and documented declarations of a C-like file are: a scan over braces and semicolons.

Why no parser: a file is read without its headers, and vendors' code is full of macros that stand for
attributes, types or whole functions. Of 858 headers of PyTorch, tree-sitter's CUDA grammar parses 349 without
errors and loses 6 % of the bytes in error nodes, in the same time; braces balance in all of them once
comments, literals and preprocessor lines are hidden (`blank_out`) and of alternative branches only one is
counted (`_one_branch`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

_HIDDEN = re.compile(
    r"""//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|R"([^\s()\\]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
    r"""|^[ \t]*\#(?:\\\n|/\*.*?\*/|(?!//|/\*)[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*(?:\([^)\n]*\))?)", re.MULTILINE)
_CONDITIONAL = re.compile(r"[ \t]*#[ \t]*(if|elif|else|endif)")
_NAMESPACE = re.compile(
    r"\b(?:inline\s+)?namespace\b\s*(?:\[\[[^\]]*\]\]\s*)?([\w:]*)[^;{}()]*$|\bextern\s*\"C\"\s*$"
)
_ATTRIBUTE = re.compile(
    r"\[\[[^\]]*\]\]"
    r"|\b(?:alignas|__align__|__attribute__|__declspec|__launch_bounds__|__maxnreg__|__cluster_dims__"
    r"|__block_size__|amdgpu_\w+|reqd_work_group_size|requires|noexcept|explicit|decltype|throw)"
    r"\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)
_TYPE = re.compile(
    r"\b(class|struct|union|enum)\s+(?:class\s+|struct\s+)?(?:[A-Za-z_]\w*\s+)*?([A-Za-z_][\w:]*)\s*(?:final\s*)?"
    r"(?:<[^{};]*>\s*)?(?::[^:].*)?$"
)
_ANONYMOUS = re.compile(r"\btypedef\s+(struct|union|enum)\b[^;()]*$")
_NAME = (
    r"(?:[A-Za-z_]\w*(?:<[^<>()]*>)?::)*"
    r"(?:operator\s*(?:\(\s*\)|[^\s\w(]+|[A-Za-z_][\w ]*)|~?[A-Za-z_]\w*)"
)
_FUNCTION = re.compile(rf"({_NAME})\s*\(")
_NOT_FUNCTIONS = {
    "if", "for", "while", "switch", "catch", "return", "sizeof", "defined", "static_assert", "using",
    "typeof", "asm", "__asm__", "do", "else",
}  # fmt: skip
_NO_FUNCTION = re.compile(r"(?:using|typedef|return|else|goto)\b")
_ENTRY = re.compile(r"\b(__global__|__kernel|kernel(?=\s+void\b))")
_ARGUMENT_CHARACTERS = 100
_MAX_NESTING = 3  # types within types that are looked into
_LARGE = 1600  # characters; the members of a larger type get sections of their own


@dataclass(frozen=True)
class Definition:
    """Lines `first`..`last`, 1-based and inclusive, the comment above included. `entry`: a kernel's name."""

    first: int
    last: int
    heading: str
    entry: str = ""


def blank_out(text: str) -> str:
    """The text with comments, literals and preprocessor lines turned into blanks of the same length."""
    # `extern "C"` must survive as what it is: a brace that opens no function.
    return _HIDDEN.sub(lambda m: '"C"' if m[0] == '"C"' else re.sub(r"[^\n]", " ", m[0]), text)


def definitions(text: str) -> tuple[list[Definition], bool]:
    """Functions and types, declarations and macros with a comment above them, in order, without overlap; and
    whether the braces balance.
    """
    scan = _Scan(text)
    found: list[Definition] = []
    after = 0
    macros = scan.macros()
    for d in sorted([*scan.scan(0, len(text), ""), *macros], key=lambda d: (d.first, -d.last)):
        first = max(d.first, after + 1)
        if first <= d.last:
            found.append(replace(d, first=first))
            after = d.last
    return found, scan.balanced


def _one_branch(text: str, code: str) -> str:
    """`code` without the `#else` and `#elif` branches that open or close braces: another branch does, too."""
    if "#" not in text:
        return code
    lines = code.split("\n")
    starts: list[int | None] = []  # for every open conditional where its later branch begins
    for i, line in enumerate(text.split("\n")):
        directive = _CONDITIONAL.match(line)
        if directive is None or lines[i].strip():
            continue
        if directive[1] == "if":
            starts.append(None)
        elif starts:
            start = starts.pop()
            if start is not None:
                branch = "".join(lines[start:i])
                if branch.count("{") != branch.count("}"):
                    lines[start:i] = [" " * len(x) for x in lines[start:i]]
            if directive[1] != "endif":
                starts.append(i + 1)
    return "\n".join(lines)


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = text.split("\n")
        self._code = _one_branch(text, blank_out(text))
        self.balanced = True
        self._bare = self._code.split("\n")
        self._ends = [m.start() for m in re.finditer(r"\n", text)]

    def line_of(self, position: int) -> int:
        return bisect_left(self._ends, position) + 1

    def scan(self, start: int, end: int, outer: str) -> Iterator[Definition]:
        """The definitions between two positions; `outer` is the heading of the type around them."""
        code = self._code
        depth = 0  # inside a definition; namespaces and extern "C" do not count
        stack: list[str | None] = []  # for every open brace that does not count its namespace, else None
        begin = start  # where the text of the current declaration starts
        opened = start
        for match in re.finditer(r"[{};]", code[start:end]):
            char, at = match[0], start + match.start()
            if char == "{":
                # Inside a definition nobody asks what the brace belongs to; slicing would cost a square.
                space = _NAMESPACE.search(code[begin:at].rstrip()) if depth == 0 else None
                if space:
                    stack.append(space[1] or "")
                    begin = at + 1
                    continue
                opened = at if depth == 0 else opened
                stack.append(None)
                depth += 1
            elif char == "}":
                if not stack:
                    self.balanced = False
                    begin = at + 1
                    continue
                counted = stack.pop() is None
                depth -= counted
                if depth:
                    continue
                if counted:
                    yield from self._definition(begin, opened, at, stack, outer)
                begin = at + 1
            elif depth == 0:
                yield from self._declaration(begin, at, stack, outer)
                begin = at + 1
        self.balanced = self.balanced and not stack

    def _definition(
        self, begin: int, opened: int, closed: int, stack: list[str | None], outer: str
    ) -> Iterator[Definition]:
        declaration = self._code[begin:opened]
        heading, entry, is_type = _heading(declaration, "::".join(s for s in stack if s))
        anonymous = _ANONYMOUS.search(declaration) if not heading else None
        if anonymous:
            name = re.match(r"\s*(\w+)", self._code[closed + 1 : closed + 200])
            heading, is_type = (f"{anonymous[1]} {name[1]}" if name else ""), True
        if not heading:
            return
        heading = f"{outer} › {heading}" if outer else heading
        first, last = self._first_line(begin, declaration), self.line_of(closed)
        if not is_type or closed - opened <= _LARGE or heading.count(" › ") >= _MAX_NESTING:
            yield Definition(first, last, heading, entry)
            return
        after = first
        for member in definitions_within(self.scan(opened + 1, closed, heading)):
            if member.first > after:
                yield Definition(after, member.first - 1, heading)
            yield replace(member, first=max(member.first, after))
            after = member.last + 1
        if after <= last:
            yield Definition(after, last, heading)

    def _declaration(self, begin: int, at: int, stack: list[str | None], outer: str) -> Iterator[Definition]:
        """A declaration without body, where a comment above documents it."""
        declaration = self._code[begin:at]
        if not declaration.strip():
            return
        own = self.line_of(begin + len(declaration) - len(declaration.lstrip()))
        first = self._first_line(begin, declaration)
        if first == own:
            return
        heading, entry, _ = _heading(declaration, "::".join(s for s in stack if s))
        if heading:
            yield Definition(first, self.line_of(at), f"{outer} › {heading}" if outer else heading, entry)

    def _first_line(self, begin: int, declaration: str) -> int:
        """That of the comment directly above, if there is one."""
        line = self.line_of(begin + len(declaration) - len(declaration.lstrip()))
        return self._above(line)

    def _above(self, line: int) -> int:
        while line > 1 and self._is_comment(line - 1):
            line -= 1
        return line

    def _is_comment(self, line: int) -> bool:
        """A line that holds nothing but (a part of) a comment."""
        own = self._lines[line - 1].strip()
        return (
            bool(own)
            and not self._bare[line - 1].strip()
            and not own.startswith("#")
            and not own.endswith("\\")
        )

    def macros(self) -> Iterator[Definition]:
        """Macros with a comment above, with those that follow line by line; and long ones."""
        last = 0
        for match in _DEFINE.finditer(self._text):
            own = self.line_of(match.start() + 1 if match[0].startswith("\n") else match.start())
            first = self._above(own)
            if own <= last:
                continue
            end = self._end_of_macros(own)
            if first < own or end - own >= 3:
                yield Definition(first, end, f"#define {match[1]}")
                last = end

    def _end_of_macros(self, line: int) -> int:
        lines = self._lines
        while line < len(lines):
            following = lines[line].lstrip()
            if not (lines[line - 1].endswith("\\") or re.match(r"#\s*define\b", following)):
                break
            line += 1
        return line


def definitions_within(found: Iterator[Definition]) -> list[Definition]:
    return sorted(found, key=lambda d: d.first)


def _heading(declaration: str, namespace: str) -> tuple[str, str, bool]:
    """(heading, name of a kernel, whether it is a type); an empty heading for anything else."""
    entry = _ENTRY.search(declaration)
    text = " ".join(_ATTRIBUTE.sub(" ", declaration).split())
    text = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", "", text).strip()
    bare = _without_template(text)
    kind = None if "(" in bare or "=" in bare else _TYPE.search(bare)
    if kind:
        return f"{kind[1]} {_qualified(kind[2], namespace)}", "", True
    candidates = [m for m in _FUNCTION.finditer(bare) if m[1].strip() not in _NOT_FUNCTIONS]
    if (
        not candidates
        or re.match(r"(?:using|typedef|return|else|goto)\b", bare)
        or "=" in bare[: candidates[0].start()]
    ):
        return "", "", False
    # Macros stand before the name, and in capitals; what follows the arguments is a list of initialisers.
    found = next((m for m in candidates if not m[1].isupper()), candidates[0])
    name = _qualified(found[1].strip(), namespace)
    heading = f"{name}({_arguments(bare, found.end())})"
    return (f"{entry[1]} {heading}", found[1], False) if entry else (heading, "", False)


def _qualified(name: str, namespace: str) -> str:
    return f"{namespace}::{name}" if namespace else name


def _without_template(text: str) -> str:
    """Without `template <…>` at the beginning, however nested."""
    while text.startswith("template"):
        depth = 0
        for i, char in enumerate(text):
            depth += (char == "<") - (char == ">" and text[i - 1] not in "-=")
            if char == ">" and depth == 0:
                text = text[i + 1 :].lstrip()
                break
        else:
            return text
    return text


def _arguments(text: str, start: int) -> str:
    """From behind the opening parenthesis to its partner."""
    depth = 1
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            arguments = text[start:i].strip()
            break
    else:
        arguments = text[start:].strip()
    if len(arguments) > _ARGUMENT_CHARACTERS:
        arguments = arguments[:_ARGUMENT_CHARACTERS].rpartition(",")[0] + ", …"
    return arguments
