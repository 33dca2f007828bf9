# ruff: noqa: E501 - pages are easier to read unbroken
"""Whole files: scanned, damaged, large and real ones."""

from __future__ import annotations

import random
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pdf_writer import HEIGHT, WIDTH, Pdf, load, report

from ingest import ingest_paths
from kb import KnowledgeBase

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


def test_what_is_filled_into_a_form_is_read_where_it_stands() -> None:
    pdf = Pdf().page()
    pdf.text(72, 100, "Board:").field(110, 100, 200, "Wormhole n300")
    pdf.text(72, 120, "Ready:").field(110, 120, 20, "Yes", kind="Btn")
    pdf.text(72, 160, "The form ends with a sentence in its last line.")
    read = load(pdf).text or ""
    assert "Board: Wormhole n300" in read
    assert "Yes" not in read
    assert "last line" in read
