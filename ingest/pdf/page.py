"""What is on a page: words, ruling lines and images, in points from the top left corner of the page as shown.

pdfium gives characters in the order of the content stream. They are joined to words here, as everything
further on asks where things are, not in which order they were written.
"""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ingest.pdf.drawing import Box, Place, Rule, read_drawing
from ingest.pdf.fields import field_words

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

# Names of fonts with letters of one width, for the many files that do not set the flag.
_MONO_NAME = re.compile(
    r"mono|courier|consol|typewriter|menlo|inconsolata|cmtt|cmsltt|fixed|terminal|sourcecode|firacode"
    r"|lettergothic|ocrb|cascadia|hack-|nimbusmon|txtt|pcrr|ectt|lmtt",
    re.IGNORECASE,
)
_BOLD_NAME = re.compile(r"bold|black|heavy|semibold|demi|cmbx|medi(?=-|$)|-bd|,bd", re.IGNORECASE)
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18  # PDF 32000-1:2008, table 123
_LIGATURES = dict(
    zip(
        "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06",
        ["ff", "fi", "fl", "ffi", "ffl", "st", "st"],
        strict=True,
    )
)
_HYPHENS = {2, 0xFFFE, 0xAD}  # how pdfium marks the hyphen at a line's end


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


@dataclass
class PageContent:
    """`images` is the share of the page that its largest image covers; `unmapped` the share of characters of
    which the file does not say what they mean.
    """

    width: float
    height: float
    words: list[Word] = field(default_factory=list)
    dashes: list[Rule] = field(default_factory=list)  # lines as short as a letter
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
    content.words += field_words(page, place)
    content.rules, content.dashes, content.images = read_drawing(page, place, content.width * content.height)
    if content.dashes:
        _draw_underscores(content)
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
    spaced, restyled = True, False
    last: Box = (0.0, 0.0, 0.0, 0.0)
    unmapped = 0
    count = raw.FPDFText_CountChars(handle)
    address = ctypes.cast(handle, ctypes.c_void_p)
    for i in range(count):
        code = code_of(handle, i)
        if code in (32, 13, 10, 9, 160, 0x3000) or 0x2000 <= code <= 0x200A:
            spaced = True
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
                style, restyled = styles[found], True
        if style.turn < 0:
            continue
        if code in (0, 0xFFFD) or (0xE000 <= code <= 0xF8FF and not 0xF0A0 <= code <= 0xF0FF):
            unmapped += 1  # symbol fonts have their bullets from F0A0 on
        text = "-" if code in _HYPHENS else _letter(code)
        if not text:
            continue
        place_of_char = (x0, y0, x1, y1)
        near = word is not None and not spaced and _continues(word, last, style, place_of_char)
        last = place_of_char
        if word is not None and near and not restyled:
            word.text += text
            word.x0, word.x1 = min(word.x0, x0), max(word.x1, x1)
            word.top, word.bottom = min(word.top, y0), max(word.bottom, y1)
            continue
        baseline = y1
        if style.turn == 0 and origin_of(handle, i, x_at, y_at):
            baseline = place(x.value, y.value)[1]
        word = Word(
            text, x0, x1, y0, y1, baseline, style.size, style.bold, style.mono, not near, style.turn > 0
        )
        spaced = restyled = False
        if -1 < x0 + x1 < 2 * content.width + 2 and -1 < y0 + y1 < 2 * content.height + 2:
            content.words.append(word)
    content.unmapped = unmapped / count if count else 0.0


def _continues(word: Word, last: Box, style: _Style, box: Box) -> bool:
    """Whether a character follows the word so closely that no blank can be between them. The letters of a
    ligature all have its place.
    """
    x0, y0, x1, y1 = box
    reach = 0.22 * max(style.size, word.size)
    if style.turn == 0:
        return last[0] - 0.01 <= x0 <= word.x1 + reach and abs(y1 - word.bottom) < 2.5 * reach
    if style.turn == 2:
        return word.x0 - reach <= x1 <= last[2] + 0.01 and abs(y1 - word.bottom) < 2.5 * reach
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


def _draw_underscores(content: PageContent) -> None:
    """Fonts of TeX have no underscore: it is drawn as a line between two letters, and belongs to the name."""
    by_start: dict[int, list[Word]] = {}
    by_end: dict[int, list[Word]] = {}
    for word in content.words:
        if not word.turned:
            by_start.setdefault(round(word.x0), []).append(word)
            by_end.setdefault(round(word.x1), []).append(word)
    gone: set[int] = set()
    for dash in sorted(content.dashes, key=lambda d: -d.start):
        after = _beside(by_start, dash, dash.end, gone)
        if after is None:
            continue
        before = _beside(by_end, dash, dash.start, gone)
        if before is None:
            after.text, after.x0 = "_" + after.text, dash.start
            by_start.setdefault(round(after.x0), []).append(after)
        else:
            before.text, before.x1 = f"{before.text}_{after.text}", after.x1
            gone.add(id(after))
    content.words = [w for w in content.words if id(w) not in gone]


def _beside(words: dict[int, list[Word]], dash: Rule, x: float, gone: set[int]) -> Word | None:
    """A word that begins or ends at `x`, with the line where an underscore would be."""
    for word in (w for key in (-1, 0, 1) for w in words.get(round(x) + key, ())):
        edge = min(abs(word.x0 - x), abs(word.x1 - x))
        low = -0.05 * word.size < dash.at - word.baseline < 0.35 * word.size
        if (
            edge < 0.15 * word.size
            and low
            and dash.end - dash.start < 0.8 * word.size
            and id(word) not in gone
        ):
            return word
    return None
