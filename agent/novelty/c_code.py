"""C-like source (C, C++, CUDA, HIP, OpenCL) as one token sequence, up to names, comments and formatting.

No parser of C++ fits here. Only names that are certainly declared in the text are numbered, each in its
scope; every other word stays as it is, so that another program is never taken for the same one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
      (?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
    | (?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
    | (?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    | (?P<word>[A-Za-z_]\w*)
    | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
    | (?P<operator><<<|>>>|<<=|>>=|\.\.\.|->\*|<=>|::|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S)
    | (?P<space>\s+)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
HOLE = "ke_hole_"  # what stands for a value in a formatted text; a name made with one is not known
_DIRECTIVE_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINE = re.compile(r"\#\s*define\s+(?P<name>\w+)(?P<params>\([^)]*\))?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_PROTOTYPE = re.compile(r"\s*(?:[\w:<>,*&\s]+\([^(){}]*\)\s*;\s*)+")

_QUALIFIERS = frozenset(
    """const constexpr static inline extern volatile register mutable thread_local typename restrict
    __restrict__ __restrict __global__ __device__ __host__ __shared__ __constant__ __managed__
    __forceinline__ __noinline__ __kernel __global __local __private __inline__ friend virtual
    explicit""".split()  # noqa: SIM905
)
_WITH_ARGUMENTS = frozenset(("__launch_bounds__", "__attribute__", "alignas", "__align__", "__declspec"))
_BUILTIN = frozenset(
    "void bool char short int long float double unsigned signed auto size_t half wchar_t".split()  # noqa: SIM905
)
_KEYWORDS = frozenset(
    """return else case goto delete new throw using namespace if for while do switch break continue default
    operator sizeof template this public private protected class struct union enum typedef true false nullptr
    try catch static_cast reinterpret_cast const_cast dynamic_cast decltype asm and or not""".split()  # noqa: SIM905
)
_POINTERS = frozenset(("*", "&", "&&", "const", "__restrict__", "__restrict", "restrict", "volatile"))
_TYPE = re.compile(
    r"(?:u?int(?:8|16|32|64)|s?size|ptrdiff|scalar|index|accscalar)_t|Tensor|(?:__)?(?:nv_|hip_)?bfloat16|dim3"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double|(?:__)?half|(?:__)?(?:nv_|hip_)?bfloat16)(?:[1-4]|8|16)"
)


@dataclass
class CNames:
    """What the texts of one file declare. `keep` and `linked` are spellings; see `normalise`."""

    keep: Collection[str] = ()
    linked: Collection[str] = ()
    top: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def label(self) -> str:
        self.count += 1
        return f"§c{self.count}"


def looks_like_c(text: str) -> bool:
    """Whether a string is C-like: statements in braces over several lines, or nothing but prototypes."""
    return ("\n" in text and ";" in text and "{" in text) or bool(_PROTOTYPE.fullmatch(text))


def normalise_c(text: str, names: CNames | None = None) -> str:
    """The text without comments, white space reduced, directives on own lines, declared names numbered.

    Without `names`, no name is changed. Spellings in `names.keep` stay, as others refer to them; so do
    functions that are `extern "C"` unless `names.linked` has them.
    """
    return _Text(text, names).normal()


@dataclass
class _Scope:
    names: dict[str, str]
    parens: int = 0
    more: int | None = None  # within so many brackets, a comma is followed by another declarator
    members: bool = False  # in a struct: its members are reached by their names


class _Text:
    def __init__(self, text: str, names: CNames | None) -> None:
        self._tokens: list[tuple[str, str]] = []
        for match in _TOKEN.finditer(text):
            kind = "raw" if match.lastgroup == "tag" else str(match.lastgroup)
            if kind not in ("comment", "space"):
                self._tokens.append((kind, match.group()))
        self._names = names
        # A macro's body is read where the macro is used: what it names cannot be renamed apart from it.
        self._keep = set(names.keep) if names else set()
        for kind, token in self._tokens:
            if kind == "directive" and names and "pragma" not in token[:12]:
                self._keep |= set(_words_of_directive(token))
        self._pending: dict[str, str] = {}  # parameters and loop variables of the block that follows
        self._types: set[str] = set()
        self._scopes = [_Scope(names.top if names else {})]

    def normal(self) -> str:
        parts: list[str] = []
        start = True  # of a statement
        template_end = 0
        declared: dict[int, str] = {}
        for i, (kind, token) in enumerate(self._tokens):
            scope = self._scopes[-1]
            if kind == "directive":
                parts.append("\n" + self._directive(token) + "\n")
                start = True
                continue
            if kind == "word":
                if token == "template" and self._at(i + 1) == "<":
                    template_end = self._closing(i + 1, "<", ">")
                inside = scope.parens > 0 or i < template_end
                before = self._at(i - 1)
                if self._names and (start or (inside and before in ("(", ",", "<"))):
                    self._declaration(i, declared, inside=inside)
                if scope.more == scope.parens and i not in declared:
                    self._declarator(i, declared)
                parts.append(declared.get(i) or self._resolve(i, token))
                # Nothing of `template <…>` and `extern "C"` is the statement itself.
                start = False
                continue
            parts.append(token)
            start = self._punctuation(i, token, kind)
        return " ".join(parts)

    def _at(self, i: int) -> str:
        return self._tokens[i][1] if 0 <= i < len(self._tokens) else ""

    def _is_word(self, i: int) -> bool:
        return 0 <= i < len(self._tokens) and self._tokens[i][0] == "word"

    def _punctuation(self, i: int, token: str, kind: str) -> bool:
        """Follow scopes; whether a statement begins after this token."""
        scope = self._scopes[-1]
        if kind != "operator":
            return False
        if token == "(":
            scope.parens += 1
        elif token == ")":
            scope.parens = max(0, scope.parens - 1)
        elif token == "{":
            linkage = self._at(i - 1) == '"C"'
            self._scopes.append(
                _Scope(
                    scope.names if linkage else dict(self._pending),
                    members=self._opens_struct(i),
                )
            )
            self._pending = {}
            return True
        elif token == "}":
            if len(self._scopes) > 1:
                self._scopes.pop()
            return True
        elif token == ";":
            scope.more = None
            if not scope.parens:
                self._pending = {}
            return True
        elif token == ">" and self._closes_template(i):
            return True
        return False

    def _opens_struct(self, i: int) -> bool:
        j = i - 1
        while j >= 0 and self._at(j) not in (";", "{", "}", "(", ")"):
            if self._at(j) in ("struct", "class", "union", "enum"):
                return True
            j -= 1
        return False

    def _closes_template(self, i: int) -> bool:
        depth = 0
        for j in range(i, max(-1, i - 200), -1):
            token = self._at(j)
            depth += (token == ">") - (token == "<")
            if depth == 0:
                return self._at(j - 1) == "template"
            if token in (";", "{", "}"):
                return False
        return False

    def _resolve(self, i: int, token: str) -> str:
        if self._at(i - 1) in (".", "->", "::") or token in _KEYWORDS:
            return token
        return self._look_up(token)

    def _look_up(self, token: str) -> str:
        for names in (self._pending, *(scope.names for scope in reversed(self._scopes))):
            if token in names:
                return names[token]
        return token

    # --- declarations ---

    def _declaration(self, i: int, declared: dict[int, str], *, inside: bool) -> None:
        """Note the name that the tokens from `i` on declare, if they certainly declare one."""
        j, c_linkage = i, self._scopes[-1].names is self._scopes[0].names and len(self._scopes) > 1
        known = False
        while self._at(j) in _QUALIFIERS or self._at(j) in _WITH_ARGUMENTS:
            known = known or self._at(j) in ("const", "__restrict__")
            if self._at(j) in _WITH_ARGUMENTS:
                j = self._closing(j + 1, "(", ")")
            elif self._at(j) == "extern" and self._at(j + 1) == '"C"':
                c_linkage = True
                j += 1
            j += 1
        if self._at(j - 1) == "typename" and self._at(j + 1) in (",", ">", "="):
            self._types.add(self._at(j))
            self._note(j, declared, inside=inside)
            return
        if self._at(j) in ("struct", "class", "union", "enum"):
            return  # types are named in too many ways
        if self._at(j) in _BUILTIN:
            known = True
            while self._at(j) in _BUILTIN:
                j += 1
        elif self._is_word(j) and self._at(j) not in _KEYWORDS:
            known = known or self._at(j) in self._types or self._is_type(self._at(j))
            j += 1
            while self._at(j) == "::" and self._is_word(j + 1):
                j += 2
            if self._at(j) == "<":
                closing = self._closing(j, "<", ">")
                if closing == j:
                    return  # a comparison
                j = closing + 1
                while self._at(j) == "::" and self._is_word(j + 1):
                    j += 2
        else:
            return
        pointers = j
        while self._at(j) in _POINTERS:
            j += 1
        if pointers != j and inside and not known:
            return  # may as well be a product
        if not self._is_word(j) or self._at(j) in _KEYWORDS or self._at(j) in _BUILTIN:
            return
        followers = (",", ")", "=", "[", ">", ":", ";") if inside else ("=", ";", ",", "(", "[", "{", ":")
        if j == i or self._at(j + 1) not in followers:
            return
        function = self._at(j + 1) == "(" and not inside
        if function and c_linkage and not (self._names and self._at(j) in self._names.linked):
            return
        self._note(j, declared, inside=inside)
        if (not inside and not function) or self._at(i - 2) == "for":
            self._scopes[-1].more = self._scopes[-1].parens

    def _is_type(self, word: str) -> bool:
        """A type that everybody knows, unless a variable has its name."""
        known = any(word in names for names in (self._pending, *(s.names for s in self._scopes)))
        return not known and _TYPE.fullmatch(word) is not None

    def _declarator(self, i: int, declared: dict[int, str]) -> None:
        j = i - 1
        while self._at(j) in _POINTERS:
            j -= 1
        if (
            self._at(j) == ","
            and self._at(i) not in _QUALIFIERS
            and self._at(i + 1) in ("=", ";", ",", "[", "{", "(")
        ):
            self._note(i, declared, inside=self._scopes[-1].parens > 0)

    def _note(self, i: int, declared: dict[int, str], *, inside: bool) -> None:
        name, scope = self._at(i), self._scopes[-1]
        target = self._pending if inside else scope.names
        if name in self._keep or HOLE in name or scope.members or self._names is None:
            target[name] = name  # hides a numbered one of an outer scope
            return
        outermost = target is self._scopes[0].names
        if not (outermost and name in target):  # a prototype and its definition are one name
            target[name] = self._names.label()
        declared[i] = target[name]

    def _closing(self, i: int, left: str, right: str) -> int:
        """The index of the bracket that closes the one at `i`; `i` itself when none does within reach."""
        depth = 0
        for j in range(i, min(len(self._tokens), i + 200)):
            token = self._at(j)
            depth += (token == left) - (token == right)
            if token == ">>" and right == ">":
                depth -= 2
            if depth <= 0:
                return j
            if token in (";", "{", "}"):
                break
        return i

    # --- directives ---

    def _directive(self, token: str) -> str:
        line = _line(token)
        if self._names is None:
            return line
        define = _DEFINE.match(line)
        if define is None:
            if re.match(r"#\s*pragma\b", line):
                return _WORD.sub(lambda m: self._look_up(m.group()), line)
            return line
        name, params, body = define["name"], define["params"] or "", line[define.end() :]
        own = {p: f"§p{k}" for k, p in enumerate(_WORD.findall(params))}
        if name not in self._keep and HOLE not in name:
            self._scopes[0].names.setdefault(name, self._names.label())
        label = self._scopes[0].names.get(name, name)
        head = "#define " + label
        return head + _WORD.sub(lambda m: own.get(m.group(), m.group()), params + body)


def _line(directive: str) -> str:
    # `#define f(x)` and `#define f (x)` differ, so white space is reduced, not removed.
    return " ".join(_DIRECTIVE_COMMENT.sub(" ", directive.replace("\\\n", " ")).split())


def _words_of_directive(token: str) -> Sequence[str]:
    line = _line(token)
    define = _DEFINE.search(line)
    if define is None:
        return _WORD.findall(line)
    own = {define["name"], *_WORD.findall(define["params"] or "")}
    return [word for word in _WORD.findall(line[define.end() :]) if word not in own]
