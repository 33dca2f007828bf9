from __future__ import annotations

from pathlib import Path

import pytest

from ingest.errors import Unreadable
from ingest.reading import decode, read_bytes

GERMAN = "Die Größe der Blöcke ist für den Cache wesentlich. " * 3
CHINESE = "共享内存的存储体冲突会降低带宽，线程块的大小需要仔细选择。" * 3


@pytest.mark.parametrize(
    ("text", "encoding", "note"),
    [
        (GERMAN, "utf-8", None),
        (GERMAN, "utf-8-sig", None),
        (GERMAN, "utf-16", "utf-16"),
        (GERMAN, "utf-16-le", "utf-16-le"),
        (GERMAN, "utf-16-be", "utf-16-be"),
        (GERMAN, "utf-32", "utf-32"),
        (GERMAN, "cp1252", "cp1252"),
        ("naïve “quotes” – dash €5", "cp1252", "cp1252"),
        (CHINESE, "gbk", "gbk"),
        (CHINESE, "utf-8", None),
        ("plain ascii\x0cwith a form feed", "ascii", None),
    ],
)
def test_encodings(text: str, encoding: str, note: str | None) -> None:
    decoded, notes = decode(text.encode(encoding), Path("a.txt"))
    assert decoded == text
    assert bool(notes) == (note is not None)
    if note:
        assert note in notes[0]


def test_line_ends_are_unified() -> None:
    assert decode(b"a\r\nb\rc\n", Path("a.txt"))[0] == "a\nb\nc\n"


def test_what_cannot_be_text_is_repaired_with_a_note() -> None:
    text, notes = decode(b"a\x00b", Path("a.txt"))
    assert (text, notes) == ("ab", ("NUL characters removed",))
    text, notes = decode("é".encode() * 20 + b"\xff" + "é".encode() * 20, Path("a.txt"))
    assert "�" in text
    assert "invalid UTF-8 at byte 40" in notes[0]
    text, notes = decode(
        "surrogate \ud800 alone, größer größer größer".encode("utf-8", "surrogatepass"), Path("a.txt")
    )
    assert text.encode("utf-8")
    assert notes


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (b"\x7fELF\x02\x01", "a", "binary file"),
        (bytes(range(256)) * 10, "a.txt", "binary file"),
    ],
)
def test_refused_with_a_reason(data: bytes, name: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message):
        decode(data, Path(name))


def test_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(Unreadable, match=r"too large: 1074 MB \(limit 1 MB\)"):
        read_bytes(path, 1_000_000)


def test_special_files(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Unreadable, match="regular"):
        read_bytes(tmp_path / "pipe", 100)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(Unreadable, match="symbolic"):
        read_bytes(tmp_path / "loop", 100)
    (tmp_path / "empty").write_bytes(b" \n")
    with pytest.raises(Unreadable, match="empty"):
        read_bytes(tmp_path / "empty", 100)
