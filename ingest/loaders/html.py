"""HTML pages: their content as Markdown, sections by headings and by entries of API references."""

from __future__ import annotations

import codecs
import re

from ingest.document import FileContent, LoadedDocument, Loader
from ingest.errors import Unreadable
from ingest.html.content import content_of
from ingest.html.render import Renderer, inline_text
from ingest.html.tree import parse
from ingest.rendering import MarkdownWriter

_SUFFIXES = {".html", ".htm", ".xhtml", ".shtml"}
_OPENING = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
_CHARSET = re.compile(
    rb"<meta[^>]+?charset\s*=\s*[\"']?\s*([\w:.-]+)|<\?xml[^>]+?encoding\s*=\s*[\"']([\w:.-]+)", re.I
)
# What pages that claim the first are written in.
_AS_BROWSERS = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030",
    "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs", "tis-620": "cp874",
}  # fmt: skip
_SITE = re.compile(r"\s+(?:[—–|·»]|-{1,2}|::)\s+.*$", re.DOTALL)


class HtmlLoader(Loader):
    """HTML and XHTML, by name or by how the text begins."""

    name = "html"
    version = 2
    priority = 60

    def accepts(self, file: FileContent) -> bool:
        if file.suffix in _SUFFIXES:
            return True
        return file.suffix in ("", ".txt", ".php", ".aspx", ".jsp") and _OPENING.match(file.head) is not None

    def load(self, file: FileContent) -> LoadedDocument:
        text, notes = _decoded(file)
        body, page_title = parse(text)
        headings = [e for e in body.walk() if e.tag == "h1"]
        content = content_of(body)
        inside = [e for e in content.walk() if e.tag == "h1"]
        title = next((t for e in inside + headings if (t := inline_text(e).strip("¶# \n"))), "")
        title = " ".join(title.split()) or _SITE.sub("", page_title) or file.path.stem
        writer = MarkdownWriter()
        Renderer(writer, title).render(content)
        if writer.empty:
            raise Unreadable("no text in the page; a script may write it when it is opened")
        document = writer.document(title)
        document.notes = notes
        return document


def _decoded(file: FileContent) -> tuple[str, list[str]]:
    """The text as the page declares its encoding, unless that is wrong or the bytes say it themselves."""
    declared = _CHARSET.search(file.data[:4096])
    name = (declared[1] or declared[2]).decode("ascii", "replace") if declared else ""
    doubtful = any("guessed" in note or "replaced" in note for note in file.notes)
    if not name or not (doubtful or name.lower().startswith("iso-2022")):
        return file.text, list(file.notes)
    try:
        codec = _AS_BROWSERS.get(codec := codecs.lookup(name).name, codec)
        if codec in ("utf-8", "utf-16", "utf-16-le", "utf-16-be"):
            return file.text, list(file.notes)
        text = file.data.decode(codec, "replace")
    except (LookupError, ValueError):
        return file.text, [*file.notes, f"unknown encoding {name!r} declared"]
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", ""), [
        f"read as {name}, as the page says"
    ]
