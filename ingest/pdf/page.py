"""What is on a page: words, ruling lines and images, in points from the top left corner of the page as shown.

pdfium gives characters in the order of the content stream. They are joined to words here, as everything
further on asks where things are, not in which order they were written.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

# Names of fonts with letters of one width, for the many files that do not set the flag.
_MONO_NAME = re.compile(
    r"mono|courier|consol|typewriter|menlo|inconsolata|cmtt|cmsltt|fixed|terminal|sourcecode|firacode"
    r"|lettergothic|ocrb|cascadia|hack-|nimbusmon|txtt|pcrr|ectt|lmtt",
    re.IGNORECASE,
)
_BOLD_NAME = re.compile(r"bold|black|heavy|semibold|demi|cmbx|medi(?=-|$)|-bd|,bd", re.IGNORECASE)
Place = Callable[[float, float], tuple[float, float]]
Box = tuple[float, float, float, float]
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18  # PDF 32000-1:2008, table 123
_LIGATURES = dict(
    zip(
        "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06",
        ["ff", "fi", "fl", "ffi", "ffl", "st", "st"],
        strict=True,
    )
)
_HYPHENS = {2, 0xFFFE, 0xAD}  # how pdfium marks the hyphen at a line's end
_MAX_OBJECTS = 20_000  # more are a drawing, not the lines of a table


@dataclass(slots=True)
class Word:
    """`baseline` is where its letters stand; `spaced`: a blank is before it."""

    text: str
    x0: float
    x1: float
    top: float
    bottom: float
    baseline: float
    size: float
    bold: bool = False
    mono: bool = False
    spaced: bool = True
    turned: bool = False  # written upwards or downwards


@dataclass(slots=True)
class Rule:
    """A straight line or an edge of a box; `across` for horizontal ones. `at` is y for these, else x."""

    across: bool
    at: float
    start: float
    end: float


@dataclass
class PageContent:
    """`images` is the share of the page that its largest image covers; `unmapped` the share of characters of
    which the file does not say what they mean.
    """

    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    images: float = 0.0
    unmapped: float = 0.0


@dataclass(frozen=True, slots=True)
class _Style:
    size: float
    bold: bool
    mono: bool
    turn: int  # quarter turns of the text as shown; -1 for any other angle


def read_page(page: PdfPage) -> PageContent:
    """Everything on one page that the analysis of its layout needs."""
    left, bottom, right, top = page.get_bbox()
    turns = page.get_rotation() // 90
    content = PageContent(*((top - bottom, right - left) if turns % 2 else (right - left, top - bottom)))
    place = _placing(turns, left, bottom, right, top)
    textpage = page.get_textpage()
    try:
        _read_words(textpage, content, place, turns)
    finally:
        textpage.close()
    _read_objects(page, content, place)
    return content


def _placing(turns: int, left: float, bottom: float, right: float, top: float) -> Place:
    """From the file's coordinates (y upwards) to those of the page as shown (y downwards)."""
    return (
        lambda x, y: (x - left, top - y),
        lambda x, y: (y - bottom, x - left),
        lambda x, y: (right - x, y - bottom),
        lambda x, y: (top - y, right - x),
    )[turns % 4]


def _read_words(
    textpage: PdfTextPage,
    content: PageContent,
    place: Place,
    turns: int,
) -> None:
    from pypdfium2 import raw

    handle = textpage.raw
    box = raw.FS_RECTF()
    box_at = ctypes.byref(box)
    x, y = ctypes.c_double(), ctypes.c_double()
    x_at, y_at = ctypes.byref(x), ctypes.byref(y)
    # The same function with an integer for a result: comparing handles would take most of the time.
    object_of = ctypes.cast(
        raw.FPDFText_GetTextObject, ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    )
    code_of, box_of, origin_of = (
        raw.FPDFText_GetUnicode,
        raw.FPDFText_GetLooseCharBox,
        raw.FPDFText_GetCharOrigin,
    )
    styles: dict[int, _Style] = {}
    fonts: dict[int, tuple[bool, bool]] = {}
    word: Word | None = None
    current: int | None = None
    style = _Style(0, False, False, -1)
    spaced = True
    unmapped = 0
    count = raw.FPDFText_CountChars(handle)
    address = ctypes.cast(handle, ctypes.c_void_p)
    for i in range(count):
        code = code_of(handle, i)
        if code in (32, 13, 10, 9, 160, 0x3000) or 0x2000 <= code <= 0x200A:
            word, spaced = None, True
            continue
        found = object_of(address, i)
        if found is None and code not in _HYPHENS:
            continue  # a character that pdfium made up
        box_of(handle, i, box_at)
        x0, y0 = place(box.left, box.top)
        x1, y1 = place(box.right, box.bottom)
        x0, x1, y0, y1 = min(x0, x1), max(x0, x1), min(y0, y1), max(y0, y1)
        if found is not None and found != current:
            current = found
            if found not in styles:
                styles[found] = _style_of(found, fonts, turns)
            if styles[found] != style:
                style, word = styles[found], None
        if style.turn < 0:
            continue
        if code in (0, 0xFFFD) or (0xE000 <= code <= 0xF8FF and not 0xF0A0 <= code <= 0xF0FF):
            unmapped += 1  # symbol fonts have their bullets from F0A0 on
        text = "-" if code in _HYPHENS else _letter(code)
        if not text:
            continue
        if word is not None and _continues(word, style, (x0, y0, x1, y1)):
            word.text += text
            word.x0, word.x1 = min(word.x0, x0), max(word.x1, x1)
            word.top, word.bottom = min(word.top, y0), max(word.bottom, y1)
            continue
        baseline = y1
        if style.turn == 0 and origin_of(handle, i, x_at, y_at):
            baseline = place(x.value, y.value)[1]
        near = word is not None and not spaced
        word = Word(
            text, x0, x1, y0, y1, baseline, style.size, style.bold, style.mono, not near, style.turn > 0
        )
        spaced = False
        if -1 < x0 + x1 < 2 * content.width + 2 and -1 < y0 + y1 < 2 * content.height + 2:
            content.words.append(word)
    content.unmapped = unmapped / count if count else 0.0


def _continues(word: Word, style: _Style, box: Box) -> bool:
    """Whether a character follows the word so closely that no blank can be between them."""
    x0, y0, x1, y1 = box
    reach = 0.22 * style.size
    if style.turn == 0:
        return -reach <= x0 - word.x1 <= reach and abs(y1 - word.bottom) < 2 * reach
    if style.turn == 2:
        return -reach <= word.x0 - x1 <= reach and abs(y1 - word.bottom) < 2 * reach
    return max(y0, word.top) - min(y1, word.bottom) <= reach and abs(x0 - word.x0) < 2 * reach


def _letter(code: int) -> str:
    if code < 32 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF or code in (0x200B, 0xFEFF):
        return ""
    letter = chr(code)
    return _LIGATURES.get(letter, letter)


def _style_of(text_object: int, fonts: dict[int, tuple[bool, bool]], turns: int) -> _Style:
    from pypdfium2 import raw

    handle = ctypes.cast(text_object, raw.FPDF_PAGEOBJECT)
    size = ctypes.c_float()
    raw.FPDFTextObj_GetFontSize(handle, size)
    matrix = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(handle, matrix)
    font = raw.FPDFTextObj_GetFont(handle)
    key = ctypes.cast(font, ctypes.c_void_p).value or 0
    if key not in fonts:
        fonts[key] = _font_style(font)
    bold, mono = fonts[key]
    a, b = matrix.a, matrix.b
    across, down = ((a, -b), (b, a), (-a, b), (-b, -a))[turns % 4]
    length = math.hypot(across, down) or 1.0
    turn = -1
    if abs(down) < 0.02 * length:
        turn = 0 if across > 0 else 2
    elif abs(across) < 0.02 * length:
        turn = 1 if down > 0 else 3
    return _Style(round(size.value * math.hypot(matrix.c, matrix.d), 1), bold, mono, turn)


def _font_style(font: Any) -> tuple[bool, bool]:
    from pypdfium2 import raw

    if not font:
        return False, False
    needed = raw.FPDFFont_GetBaseFontName(font, None, 0)
    buffer = ctypes.create_string_buffer(max(1, needed))
    raw.FPDFFont_GetBaseFontName(font, buffer, needed)
    name = buffer.value.decode("utf-8", "replace")
    flags = max(0, raw.FPDFFont_GetFlags(font))
    bold = bool(_BOLD_NAME.search(name)) or bool(flags & _FORCE_BOLD) or raw.FPDFFont_GetWeight(font) >= 600
    return bold, bool(flags & _FIXED_PITCH) or bool(_MONO_NAME.search(name))


# --- lines and images ---


def _read_objects(page: PdfPage, content: PageContent, place: Place) -> None:
    from pypdfium2 import raw

    area = max(1.0, content.width * content.height)
    for number, (handle, kind, matrix) in enumerate(_objects(page)):
        if number > _MAX_OBJECTS:
            content.rules.clear()
            return
        bounds = _bounds(handle, matrix, place)
        if bounds is None:
            continue
        x0, y0, x1, y1 = bounds
        if kind == raw.FPDF_PAGEOBJ_IMAGE:
            content.images = max(content.images, (x1 - x0) * (y1 - y0) / area)
        elif x1 - x0 < 3 or y1 - y0 < 3:  # a line, or a box as thin as one
            across = x1 - x0 >= y1 - y0
            span = (x0, x1) if across else (y0, y1)
            if span[1] - span[0] > 4:
                at = (y0 + y1) / 2 if across else (x0 + x1) / 2
                content.rules.append(Rule(across, at, *span))
        else:
            content.rules += _edges(handle, matrix, place)


def _objects(page: PdfPage) -> Iterator[tuple[Any, int, Any]]:
    """Paths and images of the page and of the forms in it, each with the matrix of its form (None: none)."""
    from pypdfium2 import raw

    stack = [
        (raw.FPDFPage_GetObject(page.raw, i), None, 0) for i in range(raw.FPDFPage_CountObjects(page.raw))
    ]
    stack.reverse()
    while stack:
        handle, matrix, depth = stack.pop()
        kind = raw.FPDFPageObj_GetType(handle)
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < 8:
            own = raw.FS_MATRIX()
            raw.FPDFPageObj_GetMatrix(handle, own)
            inner = own if matrix is None else _product(own, matrix)
            inside = raw.FPDFFormObj_CountObjects(handle)
            stack += [(raw.FPDFFormObj_GetObject(handle, i), inner, depth + 1) for i in range(inside)]
        elif kind in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE):
            yield handle, kind, matrix


def _product(m: Any, n: Any) -> Any:
    from pypdfium2 import raw

    return raw.FS_MATRIX(
        m.a * n.a + m.b * n.c, m.a * n.b + m.b * n.d, m.c * n.a + m.d * n.c, m.c * n.b + m.d * n.d,
        m.e * n.a + m.f * n.c + n.e, m.e * n.b + m.f * n.d + n.f,
    )  # fmt: skip


def _applied(matrix: Any, x: float, y: float) -> tuple[float, float]:
    if matrix is None:
        return x, y
    return matrix.a * x + matrix.c * y + matrix.e, matrix.b * x + matrix.d * y + matrix.f


def _bounds(handle: Any, matrix: Any, place: Place) -> Box | None:
    from pypdfium2 import raw

    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    if not raw.FPDFPageObj_GetBounds(handle, left, bottom, right, top):
        return None
    a = place(*_applied(matrix, left.value, bottom.value))
    b = place(*_applied(matrix, right.value, top.value))
    return min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])


def _edges(handle: Any, form: Any, place: Place) -> Iterator[Rule]:
    """The straight, axis-parallel pieces of a path; none of one with curves, which draws something else."""
    from pypdfium2 import raw

    count = raw.FPDFPath_CountSegments(handle)
    if not 1 < count <= 2000:
        return
    own = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(handle, own)
    matrix = own if form is None else _product(own, form)
    x, y = ctypes.c_float(), ctypes.c_float()
    start = last = (0.0, 0.0)
    found: list[Rule] = []
    for i in range(count):
        segment = raw.FPDFPath_GetPathSegment(handle, i)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_BEZIERTO:
            return
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = place(*_applied(matrix, x.value, y.value))
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        else:
            found += _rule(last, point)
        if raw.FPDFPathSegment_GetClose(segment):
            found += _rule(point, start)
        last = point
    yield from found


def _rule(a: tuple[float, float], b: tuple[float, float]) -> list[Rule]:
    if abs(a[1] - b[1]) < 0.6 and abs(a[0] - b[0]) > 4:
        return [Rule(True, (a[1] + b[1]) / 2, min(a[0], b[0]), max(a[0], b[0]))]
    if abs(a[0] - b[0]) < 0.6 and abs(a[1] - b[1]) > 4:
        return [Rule(False, (a[0] + b[0]) / 2, min(a[1], b[1]), max(a[1], b[1]))]
    return []
