"""What is filled into the fields of a form: pdfium's text of a page is without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.pdf.drawing import Place

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

    from ingest.pdf.page import Word

_WRITTEN = ("Tx", "Ch")  # text and choices; of a box, a tick is no word
_SIZE = 10.0  # points, at most: many fields leave their size to the reader
_LETTER = 0.5  # of the size, about


def field_words(page: PdfPage, place: Place) -> list[Word]:
    """The words in a page's fields, where the fields are."""
    from pypdfium2 import raw

    words: list[Word] = []
    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        try:
            if raw.FPDFAnnot_GetSubtype(annotation) != raw.FPDF_ANNOT_WIDGET:
                continue
            value = _string(annotation, b"V")
            if not value.strip() or _string(annotation, b"FT") not in _WRITTEN:
                continue
            box = raw.FS_RECTF()
            if not raw.FPDFAnnot_GetRect(annotation, box):
                continue
            (xa, ya), (xb, yb) = place(box.left, box.top), place(box.right, box.bottom)
            words += _lines(value, min(xa, xb), min(ya, yb), max(ya, yb))
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
    return words


def _lines(value: str, left: float, top: float, bottom: float) -> list[Word]:
    from ingest.pdf.page import Word

    words = []
    lines = value.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    height = (bottom - top) / len(lines)
    size = min(_SIZE, height)
    for number, line in enumerate(lines):
        end = top + height * (number + 1)
        baseline = end - (height - size) / 2 - 0.2 * size  # as if centred
        x = left + 2
        for text in line.split():
            width = _LETTER * size * len(text)
            words.append(Word(text, x, x + width, baseline - size, baseline + 0.2 * size, baseline, size))
            x += width + _LETTER * size
    return words


def _string(annotation: Any, key: bytes) -> str:
    from pypdfium2 import raw

    size = raw.FPDFAnnot_GetStringValue(annotation, key, None, 0)  # bytes of UTF-16, with the end
    buffer = (raw.FPDF_WCHAR * (size // 2 + 1))()
    raw.FPDFAnnot_GetStringValue(annotation, key, buffer, size)
    return bytes(buffer)[: max(0, size - 2)].decode("utf-16-le", "replace")
