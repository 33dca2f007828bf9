"""Short texts of one language: a heading and a sentence are all that there is to tell the encoding from."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.reading import decode

POLISH = (
    "Pamięć współdzielona jest szybka.",
    "Jądro używa rejestrów i pamięci podręcznej.",
    "# Wątki\n\nŁączą się.",
)
CZECH = ("Sdílená paměť je rychlá, čtení řádků.", "# Přístup k paměti\n\nVlákna čtou sousední adresy.")
HUNGARIAN = ("A gyorsítótár mérete és a szálak száma fontos, őrző.",)
RUSSIAN = (
    "Общая память быстрая.",
    "# Банки памяти\n\nПотоки читают соседние адреса.",
    "общая память (shared)",
)
UKRAINIAN = ("Спільна пам'ять є швидкою.",)
GREEK = ("Η κοινόχρηστη μνήμη είναι γρήγορη.", "# Μνήμη\n\nΤα νήματα διαβάζουν γειτονικές διευθύνσεις.")
TURKISH = ("Paylaşılan bellek hızlıdır, iş parçacığı.",)
WESTERN = (
    "Die Größe der Kachel wählt man für den Cache.", "La mémoire partagée est très rapide, où ça.",
    "La memoria compartida es rápida, año señal.", "A memória é rápida; as instruções são não alinhadas.",
    "Använd delat minne så går det fortare, å ä ö.", "Written by José Müller, 2020",
)  # fmt: skip
CASES = [
    *((text, encoding) for text in POLISH + CZECH + HUNGARIAN for encoding in ("cp1250", "iso8859-2")),
    *((text, encoding) for text in RUSSIAN for encoding in ("cp1251", "koi8-r", "cp866")),
    *((text, "iso8859-5") for text in RUSSIAN[:2]),
    *((text, encoding) for text in UKRAINIAN for encoding in ("cp1251", "koi8-u")),
    *((text, encoding) for text in GREEK for encoding in ("cp1253", "iso8859-7")),
    *((text, encoding) for text in TURKISH for encoding in ("cp1254", "iso8859-9")),
    *((text, "cp1252") for text in WESTERN),
]


@pytest.mark.parametrize(("text", "encoding"), CASES)
def test_short_texts(text: str, encoding: str) -> None:
    read, notes = decode(text.encode(encoding), Path("a.txt"))
    assert read == text
    assert len(notes) == 1
