# ruff: noqa: E501 - pages are easier to read unbroken
from __future__ import annotations

import hashlib
import random
import re
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingest import ingest_paths
from ingest.document import LoadedDocument
from ingest.registry import content_of, loader_for
from kb import KnowledgeBase

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
        for content, rotate in zip(self.pages, self.rotations, strict=True):
            data = "\n".join(content)
            stream = add(f"<</Length {len(data)}>>\nstream\n{data}\nendstream")
            pages.append(
                add(
                    f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 {WIDTH} {HEIGHT}]/Rotate {rotate}/Contents {stream} 0 R"
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
        objects[0] = f"<</Type/Catalog/Pages 2 0 R{outlines}>>".encode()
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


# --- reading order ---


@pytest.mark.parametrize("order", ["columns", "rows", "shuffled"])
@pytest.mark.parametrize("columns", [2, 3])
def test_columns_are_read_one_after_the_other(columns: int, order: str) -> None:
    pdf = Pdf().page()
    pdf.text(150, 60, "A title across the columns", 20, "bold")
    width = 500 / columns
    words = 4 if columns == 2 else 3
    placed = [
        (60 + width * c, 100 + 12 * i, line)
        for c in range(columns)
        for i, line in enumerate(sentences("abc"[c], 30, words))
    ]
    if order == "rows":
        placed.sort(key=lambda p: p[1])
    elif order == "shuffled":
        random.Random(3).shuffle(placed)
    for x, y, line in placed:
        pdf.text(x, y, line, 9 if columns == 2 else 7)
    pdf.text(
        60, 500, "What follows below spans the whole page again and is read last, as it is wide enough.", 9
    )
    found = text(pdf).replace("\n", " ").split()
    expected = [f"{c}{i}word{j}" for c in "abc"[:columns] for i in range(30) for j in range(words - 1)]
    assert [w for w in found if "word" in w] == expected
    assert found[-1] == "enough."
    assert load(pdf).title == "A title across the columns"


@pytest.mark.parametrize("by_rows", [False, True])
def test_wide_blanks_of_justified_lines_are_no_gutters(by_rows: bool) -> None:
    placed = []
    for c in range(2):
        for i in range(24):
            if i % 3:
                placed.append(
                    (60 + 260 * c, 100 + 12 * i, f"{'ab'[c]}{i} running text of the column that goes")
                )
            else:
                parts = [f"{'ab'[c]}{i} short", "words set", "wide apart"]
                placed += [(60 + 260 * c + 80 * k, 100 + 12 * i, part) for k, part in enumerate(parts)]
    pdf = Pdf().page()
    for x, y, part in sorted(placed, key=lambda p: (p[1], p[0])) if by_rows else placed:
        pdf.text(x, y, part)
    assert re.findall(r"\b[ab]\d+\b", text(pdf)) == [f"{c}{i}" for c in "ab" for i in range(24)]


def test_a_table_without_lines_is_read_by_rows() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Some words come before the table here.")
    rows = [
        ("Register", "Width", "Meaning"),
        ("CTRL", "32", "control of the unit"),
        ("STAT", "16", "status"),
        ("DATA", "64", "payload"),
    ]
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            pdf.text(72 + 130 * j, 110 + 14 * i, cell)
    pdf.text(72, 190, "Some words come after the table here.")
    assert text(pdf) == (
        "Some words come before the table here.\n\n| Register | Width | Meaning |\n| --- | --- | --- |\n"
        "| CTRL | 32 | control of the unit |\n| STAT | 16 | status |\n| DATA | 64 | payload |\n\n"
        "Some words come after the table here."
    )


@pytest.mark.parametrize("middle", [False, True])
def test_wrapped_cells_of_a_table_without_lines_stay_in_their_row(middle: bool) -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Some words come before the table here.")
    for x, cell in ((72, "Register"), (200, "Meaning")):
        pdf.text(x, 110, cell)
    for i in range(4):
        y = 130 + 45 * i
        pdf.text(72, y + (12 if middle else 0), f"CTRL{i}")
        pdf.lines(200, y, [f"controls the unit {i} in all", "the ways that there are", "and some more"])
    rows = "\n".join(
        f"| CTRL{i} | controls the unit {i} in all the ways that there are and some more |" for i in range(4)
    )
    assert text(pdf).endswith(f"\n\n| Register | Meaning |\n| --- | --- |\n{rows}")


@pytest.mark.parametrize("rotate", [90, 180, 270])
def test_pages_are_read_as_they_are_shown(rotate: int) -> None:
    """The text is written turned, and the page turned back."""
    pdf = Pdf().page(rotate)
    matrices = {90: "0 1 -1 0 {y} {x}", 180: "-1 0 0 -1 {rx} {y}", 270: "0 -1 1 0 {ry} {rx}"}
    for i, line in enumerate(["First line of the page.", "Second line of the page."]):
        x, y = 72, 80 + 12 * i
        matrix = matrices[rotate].format(x=x, y=y, rx=(WIDTH if rotate == 180 else HEIGHT) - x, ry=WIDTH - y)
        if rotate == 90:
            matrix = f"0 1 -1 0 {y} {x}"
        pdf.pages[-1].append(f"BT /plain 10 Tf {matrix} Tm ({line}) Tj ET")
    assert text(pdf) == "First line of the page. Second line of the page."


# --- paragraphs, headings, pages ---


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


def test_headings_running_heads_hyphens_and_pages() -> None:
    document = load(report())
    assert document.text is not None
    lines = document.text.split("\n")
    assert [s.heading_path for s in document.sections][:4] == [
        "Chapter B", "Chapter B › 1.1 Details", "Chapter C", "Chapter C › 2.1 Details",
    ]  # fmt: skip
    assert "Words of chapter 1 about interconnects and how they are used in practice, with an end." in lines
    assert (
        "The details of chapter 1 are many and the last of them continues here on page 2 until its end."
        in lines
    )
    for gone in ("Vendor Guide", "Revision", "\n1\n", "\n4"):
        assert gone not in document.text + "\n"
    third = next(s for s in document.sections if s.heading_path == "Chapter D")
    assert document.page_of(third.start_line) == 3
    assert document.page_of(lines.index("## 2.1 Details") + 1) == 2


def test_the_outline_tells_the_level_of_headings() -> None:
    pdf = Pdf()
    for i, name in enumerate(["Alpha", "Beta"]):
        pdf.page().text(72, 80, f"{i + 1} {name}", 11, "bold")
        pdf.lines(
            72, 110, ["Words about it that are many enough to be", "the running text of this little page."]
        )
    pdf.outline = [("1 Alpha", 1), ("Beta", 2)]
    assert [s.heading_path for s in load(pdf).sections] == ["1 Alpha", "2 Beta"]


def test_the_title_is_what_the_file_says_unless_that_is_a_file_name() -> None:
    for title, expected in (
        ("Memory Guide", "Memory Guide"),
        ("Microsoft Word - x.docx", "Chapter B"),
        ("", "Chapter B"),
    ):
        pdf = report(2)
        pdf.title = title
        assert load(pdf).title == expected


def test_code_keeps_its_indentation() -> None:
    pdf = Pdf().page()
    pdf.lines(72, 80, ["A loop that adds is written like this, with a fixed width:", ""])
    pdf.lines(
        72,
        120,
        ["for i in range(n):", "    if x[i] > 0:", "        total += x[i]", "", "print(total)"],
        9,
        "mono",
    )
    pdf.lines(72, 200, ["And some more words follow after the listing, enough of them to be text."])
    code = "```\nfor i in range(n):\n    if x[i] > 0:\n        total += x[i]\n\nprint(total)\n```"
    assert f":\n\n{code}\n\nAnd" in text(pdf)


def test_documents_in_one_width_throughout() -> None:
    prose = Pdf().page()
    prose.lines(
        72,
        80,
        [
            "This is a specification as they were set in former",
            "times, with a typewriter and without any code.",
        ],
        10,
        "mono",
    )
    assert "```" not in text(prose)
    listing = Pdf().page()
    listing.lines(72, 80, ["int add(int a, int b) {", "  return a + b;", "}"], 10, "mono")
    assert text(listing) == "```\nint add(int a, int b) {\n  return a + b;\n}\n```"


def test_ligatures_powers_and_underscores_that_are_drawn() -> None:
    pdf = Pdf().page().text(72, 80, "speci\xdec names are found by", font="ligature")
    pdf.text(72, 92, "asn").line(88.3, 93, 91.5, 93).text(91.7, 92, "node in less than 10").text(
        182.3, 88, "6", 6
    )
    pdf.text(190, 92, "steps")
    assert text(pdf) == "specific names are found by asn_node in less than 10^6 steps"


def test_lists_are_items() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "The steps to be taken are these, in order of their weight:")
    for i, item in enumerate(["load the tile into memory", "compute on it and then"]):
        pdf.text(80, 100 + 30 * i, "\x95").text(92, 100 + 30 * i, item).text(
            92, 112 + 30 * i, "go on with the next"
        )
    assert text(pdf).endswith(
        "\n\n- load the tile into memory go on with the next\n- compute on it and then go on with the next"
    )


# --- tables ---


def test_a_table_with_lines_and_a_wrapped_cell() -> None:
    pdf = Pdf().page()
    pdf.text(72, 80, "Before the table.")
    pdf.grid([72, 172, 272, 472], [100, 116, 144, 160])
    for x, y, cell in [(75, 111, "Field"), (175, 111, "Bits"), (275, 111, "Meaning"), (75, 127, "KIND"), (175, 127, "8"),
                       (275, 127, "kind of the page, which"), (275, 139, "may be | compressed"), (75, 155, "VOL"), (175, 155, "1")]:  # fmt: skip
        pdf.text(x, y, cell)
    pdf.text(72, 190, "After the table.")
    assert text(pdf) == (
        "Before the table.\n\n| Field | Bits | Meaning |\n| --- | --- | --- |\n"
        "| KIND | 8 | kind of the page, which may be \\| compressed |\n| VOL | 1 |  |\n\nAfter the table."
    )


@pytest.mark.parametrize("repeated", [True, False])
def test_a_table_that_goes_on_has_its_header_on_every_page(repeated: bool) -> None:
    pdf = Pdf()
    header = ["Name", "Offset", "Use"]
    for n in range(3):
        rows = [[f"REG{n}{i}", f"0x{n}{i}", f"use {n}{i}"] for i in range(8)]
        pdf.page().table(72, 100, [header, *rows] if repeated or n == 0 else rows)
    document = load(pdf)
    assert document.text is not None
    tables = document.text.split("\n\n")
    assert [t.split("\n")[0] for t in tables] == ["| Name | Offset | Use |"] * 3
    assert [len(t.split("\n")) for t in tables] == [10] * 3
    line = document.text.split("\n").index("| REG23 | 0x23 | use 23 |") + 1
    assert document.page_of(line) == 3


def test_a_cell_over_several_columns_and_rows() -> None:
    pdf = Pdf().page()
    for x0, y0, x1, y1 in [(72, 100, 372, 100), (172, 116, 372, 116), (72, 132, 372, 132), (72, 148, 372, 148),
                           (72, 100, 72, 148), (172, 100, 172, 148), (272, 116, 272, 148), (372, 100, 372, 148)]:  # fmt: skip
        pdf.line(x0, y0, x1, y1)
    for x, y, cell in [
        (75, 120, "Chip"),
        (200, 111, "Rate"),
        (175, 127, "FP16"),
        (275, 127, "FP8"),
        (75, 143, "A"),
        (175, 143, "1"),
        (275, 143, "2"),
    ]:
        pdf.text(x, y, cell)
    assert text(pdf) == "| Chip | Rate / FP16 | Rate / FP8 |\n| --- | --- | --- |\n| A | 1 | 2 |"


# --- scanned pages ---


def scanned() -> Pdf:
    pdf = Pdf().page()
    pdf.lines(
        72, 80, ["A page with text on it, enough that nobody", "would take it for a scanned one at all."]
    )
    return pdf.page().image(0, 0, WIDTH, HEIGHT).text(72, 40, "3").page()


@pytest.fixture
def path_without_tesseract(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def install_tesseract(folder: Path, body: str) -> None:
    program = folder / "tesseract"
    program.write_text(f"#!{sys.executable}\nimport sys\ndata = sys.stdin.buffer.read()\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


RECOGNISE = """
kind, size, depth, pixels = data.split(b"\\n", 3)
width, height = map(int, size.split())
assert (kind, depth, len(pixels)) == (b"P5", b"255", width * height), data[:40]
print(f"Recognised words from a picture.\\n\\nIts size: {width} by {height}; grey {pixels[len(pixels) // 2]}.")
"""


def test_scanned_pages_wait_for_tesseract(
    kb: KnowledgeBase, tmp_path: Path, path_without_tesseract: Path
) -> None:
    (tmp_path / "s.pdf").write_bytes(scanned().build())
    report = ingest_paths(kb, [tmp_path / "s.pdf"])
    assert (report.added, report.failed, report.needs_ocr) == (1, [], [str(tmp_path / "s.pdf")])
    assert report.notes == [{"path": "s.pdf", "notes": ["page 2 scanned, needs OCR"]}]
    again = ingest_paths(kb, [tmp_path / "s.pdf"])
    assert (again.unchanged, again.needs_ocr) == (1, [str(tmp_path / "s.pdf")])
    install_tesseract(path_without_tesseract, RECOGNISE)
    report = ingest_paths(kb, [tmp_path / "s.pdf"])
    assert (report.updated, report.needs_ocr) == (1, [])
    assert report.notes == [{"path": "s.pdf", "notes": ["page 2 read by OCR"]}]
    hit = kb.query("recognised words picture").hits[0]
    assert re.search(r"Its size: 2550 by 330\d; grey 128\.", hit.text)
    assert ingest_paths(kb, [tmp_path / "s.pdf"]).unchanged == 1


def test_a_file_of_scanned_pages_only(
    kb: KnowledgeBase, tmp_path: Path, path_without_tesseract: Path
) -> None:
    (tmp_path / "s.pdf").write_bytes(Pdf().page().image(0, 0, WIDTH, HEIGHT).build())
    report = ingest_paths(kb, [tmp_path / "s.pdf"])
    assert (report.added, report.failed, report.chunks) == (1, [], 0)
    assert report.needs_ocr == [str(tmp_path / "s.pdf")]
    install_tesseract(path_without_tesseract, "sys.exit('no language data')")
    report = ingest_paths(kb, [tmp_path / "s.pdf"])
    assert report.needs_ocr == [str(tmp_path / "s.pdf")]
    assert "page 1: tesseract failed: no language data" in report.notes[0]["notes"]


def test_tesseract_has_limited_time(monkeypatch: pytest.MonkeyPatch, path_without_tesseract: Path) -> None:
    monkeypatch.setattr("ingest.ocr.TIMEOUT_S", 0.3)
    install_tesseract(path_without_tesseract, "import time; time.sleep(60)")
    document = load(Pdf().page().image(0, 0, WIDTH, HEIGHT))
    assert document.needs_ocr == [1]
    assert "longer than" in document.notes[-1]


# --- bad input ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (report().build(b"secret"), "password-protected PDF"),
        (report().build()[:-400], "truncated PDF: its end is missing"),
        (report().build()[:2000], "truncated PDF: its end is missing"),
        (b"%PDF-1.7\n" + b"rubbish " * 400 + b"%%EOF", "damaged PDF: it cannot be opened"),
        (b"%PDF-1.7 ...", "truncated PDF: its end is missing"),
        (b"<html>not found</html>", "not a PDF"),
        (Pdf().page().build(), "no text in it"),
        (Pdf().build(), "damaged PDF"),
    ],
)
def test_bad_files_are_one_clear_line(kb: KnowledgeBase, tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "bad.pdf").write_bytes(data)
    report = ingest_paths(kb, [tmp_path / "bad.pdf"])
    assert [f["path"] for f in report.failed] == [str(tmp_path / "bad.pdf")]
    assert message in report.failed[0]["error"]
    assert "\n" not in report.failed[0]["error"]
    (tmp_path / "bad.pdf").write_bytes(b"")
    assert ingest_paths(kb, [tmp_path / "bad.pdf"]).failed[0]["error"] == "empty file"


def test_random_damage_never_ends_the_run(kb: KnowledgeBase, tmp_path: Path) -> None:
    source = bytearray(report().build())
    generator = random.Random(7)
    for n in range(12):
        data = bytearray(source)
        for _ in range(40):
            data[generator.randrange(9, len(data) - 20)] = generator.randrange(256)
        (tmp_path / f"{n}.pdf").write_bytes(data)
    done = ingest_paths(kb, [tmp_path / f"{n}.pdf" for n in range(12)])
    assert done.added + len(done.failed) == 12
    assert not any("loader failed" in f["error"] for f in done.failed)


def test_pages_are_counted(kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "r.pdf").write_bytes(report().build())
    seen: list[Any] = []
    ingest_paths(kb, [tmp_path / "r.pdf"], progress=seen.append)
    assert seen[-1].pages == 4


# --- size, and real files ---


def manual(pages: int) -> Pdf:
    pdf = Pdf()
    for n in range(pages):
        pdf.page().text(72, 40, "Reference Manual").text(300, 770, str(n + 1))
        pdf.text(72, 80, f"{n + 1} Unit number {n}", 14, "bold")
        y = pdf.lines(
            72, 105, [" ".join(f"word{(n * 31 + i * 7 + j) % 997}" for j in range(11)) for i in range(22)]
        )
        pdf.table(
            72,
            y + 10,
            [["Name", "Offset", "Use"], *([f"R{n}_{i}", f"0x{i:02x}", f"use {i}"] for i in range(12))],
        )
    return pdf


@pytest.mark.full
def test_300_pages_in_20_seconds_and_700_megabytes(tmp_path: Path) -> None:
    """In a process of its own. Not `ru_maxrss`: a child begins with what its parent held when it forked."""
    file = tmp_path / "f.pdf"
    file.write_bytes(manual(300).build())
    program = """
import re, sys, time
from pathlib import Path
from ingest.registry import content_of, loader_for
path = Path(sys.argv[1])
file = content_of(path, path.read_bytes())
begin = time.process_time()
document = loader_for(file).load(file)
seconds = time.process_time() - begin
peak_kib = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
print(seconds, peak_kib / 1024, len(document.sections), document.text.count("| Name | Offset | Use |"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True
    )
    seconds, megabytes, sections, tables = map(float, done.stdout.split())
    assert seconds < 20
    assert megabytes < 700
    assert (sections, tables) == (300, 300)


def test_real_documents(shared: Path) -> None:
    documents = {p.name: load(p.read_bytes()) for p in sorted((shared / "documents").glob("*.pdf"))}
    assert documents
    for name, document in documents.items():
        assert document.text is not None
        assert document.needs_ocr == [], name
        assert len(document.sections) > 2, name
        assert all(document.page_of(s.start_line) for s in document.sections)
