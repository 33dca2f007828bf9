# ruff: noqa: E501 - pages are easier to read unbroken
"""Writes PDF files for the tests, and reads them as the loader does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from ingest.document import LoadedDocument
from ingest.registry import content_of, loader_for

FONTS = {"plain": "Helvetica", "bold": "Helvetica-Bold", "mono": "Courier"}
LIGATURE = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Type/Encoding/Differences[222/fi]>>>>"
WIDTH, HEIGHT = 612, 792


class Pdf:
    """Writes just enough of the format. Coordinates are points from the top left corner."""

    def __init__(self) -> None:
        self.pages: list[list[str]] = []
        self.rotations: list[int] = []
        self.outline: list[tuple[str, int]] = []
        self.title = ""
        self.fields: list[tuple[int, str]] = []  # page, entries of the field's dictionary

    def page(self, rotate: int = 0) -> Pdf:
        self.pages.append([])
        self.rotations.append(rotate)
        return self

    def text(self, x: float, y: float, text: str, size: float = 10, font: str = "plain") -> Pdf:
        escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        self.pages[-1].append(f"BT /{font} {size} Tf 1 0 0 1 {x} {HEIGHT - y} Tm ({escaped}) Tj ET")
        return self

    def lines(self, x: float, y: float, texts: Sequence[str], size: float = 10, font: str = "plain") -> float:
        for text in texts:
            if text:
                self.text(x, y, text, size, font)
            y += 1.2 * size
        return y

    def line(self, x0: float, y0: float, x1: float, y1: float) -> Pdf:
        self.pages[-1].append(f"{x0} {HEIGHT - y0} m {x1} {HEIGHT - y1} l S")
        return self

    def grid(self, xs: Sequence[float], ys: Sequence[float]) -> Pdf:
        for y in ys:
            self.line(xs[0], y, xs[-1], y)
        for x in xs:
            self.line(x, ys[0], x, ys[-1])
        return self

    def table(
        self, x: float, y: float, rows: Sequence[Sequence[str]], width: float = 120, step: float = 16
    ) -> float:
        xs = [x + width * i for i in range(len(rows[0]) + 1)]
        ys = [y + step * i for i in range(len(rows) + 1)]
        self.grid(xs, ys)
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                self.text(xs[j] + 3, ys[i] + 11, cell, 9, "plain" if i else "bold")
        return ys[-1]

    def image(self, x: float, y: float, width: float, height: float) -> Pdf:
        self.pages[-1].append(f"q {width} 0 0 {height} {x} {HEIGHT - y - height} cm /Im Do Q")
        return self

    def field(self, x: float, y: float, width: float, value: str, kind: str = "Tx") -> Pdf:
        box = f"{x} {HEIGHT - y - 4} {x + width} {HEIGHT - y + 12}"
        self.fields.append((len(self.pages), f"/FT/{kind}/T(f{len(self.fields)})/V({value})/Rect[{box}]"))
        return self

    def build(self, password: bytes = b"") -> bytes:
        objects: list[bytes] = []

        def add(body: str | bytes) -> int:
            objects.append(body.encode("latin-1") if isinstance(body, str) else body)
            return len(objects)

        add("")  # the catalogue, known last
        add("")  # the page tree
        fonts = f"/ligature {add(LIGATURE)} 0 R " + " ".join(
            f"/{key} {add(f'<</Type/Font/Subtype/Type1/BaseFont/{name}/Encoding/WinAnsiEncoding>>')} 0 R"
            for key, name in FONTS.items()
        )
        image = add(
            b"<</Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8/Length 1>>\n"
            b"stream\n\x80\nendstream"
        )
        pages = []
        fields = [(page, add(f"<</Type/Annot/Subtype/Widget{entries}>>")) for page, entries in self.fields]
        for number, (content, rotate) in enumerate(zip(self.pages, self.rotations, strict=True), start=1):
            widgets = " ".join(f"{field} 0 R" for page, field in fields if page == number)
            data = "\n".join(content)
            stream = add(f"<</Length {len(data)}>>\nstream\n{data}\nendstream")
            pages.append(
                add(
                    f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {WIDTH} {HEIGHT}]/Rotate {rotate}/Annots[{widgets}]/Contents {stream} 0 R"
                    f"/Resources<</Font<<{fonts}>>/XObject<</Im {image} 0 R>>>>>>"
                )
            )
        objects[1] = (
            f"<</Type/Pages/Count {len(pages)}/Kids[{' '.join(f'{p} 0 R' for p in pages)}]>>".encode()
        )
        outlines = ""
        if self.outline:
            root = len(objects) + 1
            first, last = root + 1, root + len(self.outline)
            add(f"<</Type/Outlines/First {first} 0 R/Last {last} 0 R/Count {len(self.outline)}>>")
            for i, (title, page) in enumerate(self.outline):
                links = (f"/Prev {first + i - 1} 0 R" if i else "") + (
                    f"/Next {first + i + 1} 0 R" if first + i < last else ""
                )
                add(f"<</Title({title})/Parent {root} 0 R/Dest[{pages[page - 1]} 0 R/Fit]{links}>>")
            outlines = f"/Outlines {root} 0 R"
        form = f"/AcroForm<</Fields[{' '.join(f'{field} 0 R' for _, field in fields)}]>>" if fields else ""
        objects[0] = f"<</Type/Catalog/Pages 2 0 R{outlines}{form}>>".encode()
        trailer = f"/Info {add(f'<</Title({self.title})>>')} 0 R" if self.title else ""
        if password:
            trailer += f"/ID[<{'00' * 16}><{'00' * 16}>]/Encrypt {add(encryption(password))} 0 R"
        result = b"%PDF-1.4\n"
        offsets = []
        for number, body in enumerate(objects, start=1):
            offsets.append(len(result))
            result += b"%d 0 obj\n%b\nendobj\n" % (number, body)
        table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
        count = len(objects) + 1
        end = f"xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<</Size {count}/Root 1 0 R{trailer}>>\n"
        return result + f"{end}startxref\n{len(result)}\n%%EOF\n".encode()


PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def rc4(key: bytes, data: bytes) -> bytes:
    state = list(range(256))
    j = 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i = j = 0
    out = bytearray()
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def encryption(password: bytes) -> bytes:
    """The dictionary of the standard handler, revision 2: enough for a reader to ask for the password."""
    padded = (password + PADDING)[:32]
    owner = rc4(hashlib.md5(padded).digest()[:5], padded)
    key = hashlib.md5(padded + owner + (-4 & 0xFFFFFFFF).to_bytes(4, "little") + bytes(16)).digest()[:5]
    user = rc4(key, PADDING)
    return b"<</Filter/Standard/V 1/R 2/O<%b>/U<%b>/P -4>>" % (owner.hex().encode(), user.hex().encode())


def load(pdf: Pdf | bytes) -> LoadedDocument:
    file = content_of(Path("f.pdf"), pdf.build() if isinstance(pdf, Pdf) else pdf)
    return loader_for(file).load(file)


def text(pdf: Pdf | bytes) -> str:
    loaded = load(pdf).text
    assert loaded is not None
    return loaded


def sentences(name: str, count: int, words: int = 6) -> list[str]:
    return [" ".join(f"{name}{i}word{j}" for j in range(words - 1)) + " and" for i in range(count)]


def report(pages: int = 4) -> Pdf:
    """Running heads and page numbers, chapters by size, a paragraph over each page break."""
    pdf = Pdf()
    for n in range(1, pages + 1):
        pdf.page().text(72, 40, "Vendor Guide").text(480, 40, f"Revision {n}.0", 8).text(300, 760, f"{n}", 9)
        y = 80
        if n > 1:
            y = pdf.lines(72, y, [f"continues here on page {n} until its end."])
        pdf.text(72, y + 20, f"Chapter {'ABCDEFG'[n]}", 16, "bold")
        y = pdf.lines(
            72,
            y + 44,
            [
                f"Words of chapter {n} about inter-",
                "connects and how they are used in",
                "practice, with an end.",
            ],
        )
        pdf.text(72, y + 14, f"{n}.1 Details", 12, "bold")
        pdf.lines(72, y + 34, [f"The details of chapter {n} are many and the last of them"])
    return pdf
