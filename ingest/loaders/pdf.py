"""PDF: text in reading order as Markdown, cited by page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ingest import ocr
from ingest.document import FileContent, LoadedDocument, Loader
from ingest.errors import Unreadable
from ingest.pdf.assemble import write_pages
from ingest.pdf.blocks import Block, blocks_of
from ingest.pdf.furniture import furniture
from ingest.pdf.headings import OutlineEntry
from ingest.pdf.page import PageContent, Word, read_page
from ingest.pdf.scan import image_of
from ingest.rendering import MarkdownWriter, clean

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument

_MAGIC = b"%PDF-"
_FEW_LETTERS = 50  # a page with fewer, and an image, is a scanned one
_IMAGE_SHARE = 0.05
_CODE_SIGNS = re.compile(r"[{}();=<>#&]|->|::")
_NO_TITLE = re.compile(
    r"(?:microsoft (?:word|powerpoint)|powerpoint presentation|untitled|title|document\d*|slide \d+)\b.*"
    r"|\W*(?:anonymous|unspecified)\W*|.*\.(?:docx?|pptx?|pdf|tex|dvi|indd|fm|html?|md|rtf|odt)",
    re.IGNORECASE,
)


class PdfLoader(Loader):
    """PDF files, by their first bytes."""

    name = "pdf"
    version = 2
    priority = 90
    reads_bytes = True

    def accepts(self, file: FileContent) -> bool:
        return _MAGIC in file.data[:1024] or file.suffix == ".pdf"

    def load(self, file: FileContent) -> LoadedDocument:
        pdf = _open(file.data)
        try:
            return _load(pdf, file)
        finally:
            pdf.close()


def _open(data: bytes) -> PdfDocument:
    import pypdfium2

    if _MAGIC not in data[:1024]:
        raise Unreadable("not a PDF: it does not begin with %PDF-")
    try:
        pdf = pypdfium2.PdfDocument(data)
        count = len(pdf)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise Unreadable("password-protected PDF", "save a copy without the password") from error
        if b"%%EOF" not in data[-2048:]:
            raise Unreadable("truncated PDF: its end is missing", "fetch it again") from error
        raise Unreadable("damaged PDF: it cannot be opened", "fetch it again") from error
    if b"%%EOF" not in data[-2048:]:  # what is left would open, but pages would be lost unseen
        pdf.close()
        raise Unreadable("truncated PDF: its end is missing", "fetch it again")
    if count == 0:
        pdf.close()
        raise Unreadable("damaged PDF: it has no pages", "fetch it again")
    return pdf


def _load(pdf: PdfDocument, file: FileContent) -> LoadedDocument:
    notes: list[str] = []
    contents, scans, needs_ocr = _read(pdf, notes)
    words = [word for page in contents for word in page.words]
    code = _tells_code(words)
    dropped = furniture(contents, _body_size(words))
    pages = [
        blocks_of(content, number, dropped, code=code) + ([scans[number]] if number in scans else [])
        for number, content in enumerate(contents, start=1)
    ]
    writer = MarkdownWriter()
    heading = write_pages(writer, pages, _outline(pdf))
    if writer.empty and not needs_ocr:
        raise Unreadable("no text in it: its pages are blank or drawings")
    document = writer.document(_title(pdf) or heading or file.path.stem)
    document.meta = {"pages": len(pdf)}
    document.notes = notes
    document.needs_ocr = needs_ocr
    return document


def _read(pdf: PdfDocument, notes: list[str]) -> tuple[list[PageContent], dict[int, Block], list[int]]:
    """Every page's content, what was recognised in scanned ones, the numbers of those still to recognise."""
    import pypdfium2

    contents: list[PageContent] = []
    scans: dict[int, Block] = {}
    needs_ocr: list[int] = []
    lost: list[int] = []
    failures: list[str] = []
    for number in range(1, len(pdf) + 1):
        try:
            page = pdf[number - 1]
        except pypdfium2.PdfiumError:
            lost.append(number)
            contents.append(PageContent(0, 0))
            continue
        try:
            content = read_page(page)
            contents.append(content)
            if not _is_scan(content):
                continue
            if content.unmapped > 0.5:
                content.words = []  # signs without meaning
            if not ocr.available():
                needs_ocr.append(number)
                continue
            try:
                text = ocr.read(image_of(page))
            except ocr.OcrFailed as error:
                failures.append(f"page {number}: {error}")
                needs_ocr.append(number)
                continue
            if text.strip():
                content.words = []
                scans[number] = Block("scan", number, scan=text)
        finally:
            page.close()
    if len(lost) == len(contents):
        raise Unreadable("damaged PDF: none of its pages can be read", "fetch it again")
    for numbers, what in (
        (lost, "unreadable"),
        (sorted(scans), "read by OCR"),
        (needs_ocr, "scanned, needs OCR"),
    ):
        if numbers:
            notes.append(f"{_ranges(numbers)} {what}")
    notes += failures[:3]
    return contents, scans, needs_ocr


def _is_scan(content: PageContent) -> bool:
    letters = sum(len(w.text) for w in content.words)
    return (letters < _FEW_LETTERS and content.images >= _IMAGE_SHARE) or content.unmapped > 0.5


def _tells_code(words: list[Word]) -> bool:
    """Whether letters of one width mean code: not in a document that sets all of its prose in them."""
    mono = [word for word in words if word.mono]
    if sum(len(w.text) for w in mono) < 0.7 * sum(len(w.text) for w in words):
        return True
    return sum(_CODE_SIGNS.search(w.text) is not None for w in mono) > 0.15 * len(mono)


def _body_size(words: list[Word]) -> float:
    total: dict[float, int] = {}
    for word in words:
        total[word.size] = total.get(word.size, 0) + len(word.text)
    return max(total, key=lambda size: total[size], default=10.0)


def _outline(pdf: PdfDocument) -> list[OutlineEntry]:
    import pypdfium2

    entries: list[OutlineEntry] = []
    try:
        for bookmark in pdf.get_toc():
            destination = bookmark.get_dest()
            index = destination.get_index() if destination is not None else None
            entries.append(
                OutlineEntry(
                    clean(bookmark.get_title()),
                    bookmark.level + 1,
                    (index or 0) + 1 if index is not None else 0,
                )
            )
    except pypdfium2.PdfiumError:  # a damaged outline; sizes still tell headings
        return entries
    return entries


def _title(pdf: PdfDocument) -> str:
    title = " ".join(clean(pdf.get_metadata_value("Title")).split())
    return "" if len(title) < 3 or _NO_TITLE.fullmatch(title) else title


def _ranges(numbers: list[int]) -> str:
    """`page 3`, or `pages 1-4, 7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    shown = ", ".join("-".join(map(str, part)) for part in parts)
    return f"page{'s' if len(numbers) > 1 else ''} {shown}"
