from __future__ import annotations

import array
from pathlib import Path

import pytest

from ingest.errors import Unreadable
from ingest.reading import decode, read_bytes

GERMAN = "Die Größe der Blöcke ist für den Cache wesentlich. " * 3
FRENCH = "La mémoire partagée est divisée en bancs de même taille : évitez les conflits grâce à un décalage."
POLISH = "Każdy wątek używa wspólnej pamięci. Jeśli wiele wątków żąda tego samego banku, powstaje konflikt."
RUSSIAN = "Все потоки блока используют общую память; при обращении к одному банку возникает конфликт."
JAPANESE = "同じバンクに同時にアクセスすると、バンクコンフリクトが発生して帯域幅が低下します。"
KOREAN = "여러 스레드가 같은 뱅크에 동시에 접근하면 충돌이 발생하여 대역폭이 낮아진다."
TRADITIONAL = "多個執行緒同時存取同一個記憶庫時，會發生衝突，因而降低頻寬。"
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
        (CHINESE, "gb18030", "gbk"),
        ("这里有生僻字㐂𠀀，程序读取文件并返回结果。", "gb18030", "gb18030"),
        (CHINESE, "utf-16-le", "utf-16-le"),
        (CHINESE, "utf-16-be", "utf-16-be"),
        (TRADITIONAL, "big5", "big5"),
        (TRADITIONAL, "utf-16-le", "utf-16-le"),
        (JAPANESE, "shift_jis", "shift_jis"),
        (JAPANESE, "euc_jp", "euc_jp"),
        (JAPANESE, "utf-16-be", "utf-16-be"),
        (KOREAN, "euc_kr", "euc_kr"),
        (KOREAN, "utf-16-le", "utf-16-le"),
        (RUSSIAN, "cp1251", "cp1251"),
        (RUSSIAN, "koi8-r", "koi8-r"),
        (POLISH, "cp1250", "cp1250"),
        (FRENCH, "latin-1", "cp1252"),  # which is Latin-1 but for marks that Latin-1 does not have
        ("plain ASCII in four bytes each", "utf-32-le", "utf-32-le"),
        ("Größe", "cp1252", "cp1252"),
        ("für", "cp1252", "cp1252"),
        ("CODIFICAÇÃO", "cp1252", "cp1252"),
        ("5 µs at 85 °C ± 2 %", "cp1252", "cp1252"),
        ("线程块", "gbk", "gbk"),
        ("記憶體頻寬", "big5", "big5"),
        ("テンソルコア", "shift_jis", "shift_jis"),
        ("行列乗算命令", "euc_jp", "euc_jp"),
        ("공유 메모리", "euc_kr", "euc_kr"),
    ],
)
def test_encodings(text: str, encoding: str, note: str | None) -> None:
    decoded, notes = decode(text.encode(encoding), Path("a.txt"))
    assert decoded == text
    assert bool(notes) == (note is not None)
    if note:
        assert note in notes[0]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHINESE, "gbk"),
        (TRADITIONAL, "big5"),
        (JAPANESE, "shift_jis"),
        (KOREAN, "euc_kr"),
        (FRENCH, "cp1252"),
    ],
)
def test_comments_among_code_and_damage_do_not_mislead(text: str, encoding: str) -> None:
    code = b"for (int i = 0; i < n; ++i) out[i] = a[i] + b[i];\n" * 3000
    comment = b"// " + text[:12].encode(encoding) + b"\n"
    decoded, notes = decode(code + comment + code, Path("a.cu"))
    assert text[:12] in decoded
    assert encoding in notes[0]
    cut = text.encode(encoding)[:-1] + b"\xff"
    decoded, notes = decode(cut, Path("a.txt"))
    assert decoded.startswith(text[:-2])
    assert encoding != "shift_jis" or "invalid sequences replaced" in notes[-1]


def test_what_a_file_says_of_itself_is_believed_unless_it_is_wrong() -> None:
    source = "# -*- coding: iso-8859-15 -*-\nprice = '5 €'\n"
    assert decode(source.encode("iso-8859-15"), Path("a.py")) == (
        source, ("read as iso-8859-15, as the file says",),
    )  # fmt: skip
    wrong = "# coding: ascii\n# " + CHINESE
    assert decode(wrong.encode("gbk"), Path("a.py"))[0] == wrong
    assert decode(("# coding: gbk\n# " + GERMAN).encode(), Path("a.py"))[1] == (), "UTF-8 is UTF-8"


def test_noise_is_no_text() -> None:
    import random

    for seed in range(5):
        with pytest.raises(Unreadable, match="binary"):
            decode(random.Random(seed).randbytes(20_000), Path("a.txt"))
        numbers = array.array("i", [random.Random(seed).randrange(1 << 16) for _ in range(2000)])
        with pytest.raises(Unreadable, match="binary"):
            decode(numbers.tobytes(), Path("a.txt"))


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
    ("data", "text", "note"),
    [
        ("# S\n\nlone \ud800 and \udfff here\n", "# S\n\nlone � and � here\n", "2 lone surrogates replaced"),
        ("pair \ud83d\ude00 here", "pair 😀 here", "surrogate pairs joined"),
        ("# A\x00B\n\nsome \x00 text here\n", "# AB\n\nsome  text here\n", "NUL characters removed"),
        ("page one\x0cpage two\x0bmore\x1a", "page one\x0cpage two\x0bmore\x1a", None),
    ],
)
def test_short_texts_with_what_is_none(data: str, text: str, note: str | None) -> None:
    assert decode(data.encode("utf-8", "surrogatepass"), Path("a.md")) == (text, (note,) if note else ())


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
