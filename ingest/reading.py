"""From bytes to text: encodings, binary files, and what had to be assumed."""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from ingest.encodings import guess
from ingest.errors import Unavailable, Unreadable

VERSION = 3  # raise it when the same bytes would give another text: all files are then read again
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAGIC = (
    (b"PK\x03\x04", ".zip"),
    (b"\x1f\x8b", ".gz"),
    (b"\x7fELF", "compiled program"),
    (b"\x89PNG", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"SQLite format 3", "SQLite database"),
)
# What Python, Emacs and Vim read in the first lines of a file.
_DECLARED = re.compile(rb"\A(?:.*\n){0,2}?.*coding[:=][ \t]*([-\w.]+)")
_FEW = 6  # control characters that a short text may have, too
# Formats that need a reader of their own; taking them as plain text would store markup, not content.
_NEEDS_READER = {".docx", ".pptx", ".xlsx", ".zip", ".gz", ".tar", ".tgz"}


def read_bytes(path: Path, max_bytes: int, first: int | None = None) -> bytes:
    """The file's content, or the `first` bytes of it.

    Raises Unreadable for what is too large, special or gone, Unavailable for what cannot be read now.
    """
    try:
        stat = path.stat()
        if not path.is_file():
            raise Unreadable("not a regular file")
        if stat.st_size > max_bytes:
            raise Unreadable(
                f"too large: {stat.st_size / 1e6:.0f} MB (limit {max_bytes / 1e6:.0f} MB)",
                "raise KERNELEVOLVE_MAX_FILE_MB to read it",
            )
        with path.open("rb") as file:
            data = file.read(max_bytes + 1 if first is None else first)  # it may grow while we read
    except FileNotFoundError as error:
        raise Unreadable(error.strerror or str(error)) from error
    except PermissionError:
        raise Unavailable("permission denied") from None
    except OSError as error:
        raise Unavailable(error.strerror or str(error)) from error
    if len(data) > max_bytes:
        raise Unreadable(f"too large: over {max_bytes / 1e6:.0f} MB")
    if not data.strip():
        raise Unreadable("empty file")
    return data


def decode(data: bytes, path: Path) -> tuple[str, tuple[str, ...]]:
    """Text with `\\n` line ends, and notes on what was assumed. Raises Unreadable for a binary file."""
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise Unreadable(f"no loader for {what}" if what[0] == "." else f"binary file ({what})")
    if path.suffix.lower() in _NEEDS_READER:
        raise Unreadable(f"no loader for {path.suffix.lower()}")
    text, notes = _decode(data)
    if "\x00" in text:
        text = text.replace("\x00", "")
        notes += ("NUL characters removed",)
    # Only these end a line; str.splitlines would also split at form feeds and Unicode separators.
    return text.replace("\r\n", "\n").replace("\r", "\n"), notes


def _decode(data: bytes) -> tuple[str, tuple[str, ...]]:
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                text = data.decode(encoding)
            except UnicodeDecodeError:
                text = data.decode(encoding, "replace")
                return text, (f"invalid {encoding} sequences replaced",)
            return text, () if encoding == "utf-8-sig" else (f"read as {encoding}",)
    if _looks_binary(data):
        wide = guess(data, wide_only=True)
        if not wide.plausible:
            raise Unreadable("binary file")
        return _guessed(data, wide.encoding)
    try:
        return data.decode("utf-8"), ()
    except UnicodeDecodeError as error:
        with_surrogates = _surrogates(data)
        if with_surrogates is not None:
            return with_surrogates
        if _mostly_utf8(data):
            return data.decode("utf-8", "replace"), (f"invalid UTF-8 at byte {error.start} replaced",)
    declared = _DECLARED.search(data[:1024])
    if declared:
        try:
            name = declared[1].decode("ascii")
            return data.decode(name), (f"read as {name}, as the file says",)
        except (LookupError, ValueError):
            pass  # a wrong claim
    return _guessed(data, guess(data).encoding)


def _guessed(data: bytes, encoding: str) -> tuple[str, tuple[str, ...]]:
    text = data.decode(encoding, "replace")
    notes = (f"read as {encoding}, which was guessed",)
    broken = text.count("\ufffd")
    return text, (*notes, f"{broken} invalid sequences replaced") if broken else notes


def _surrogates(data: bytes) -> tuple[str, tuple[str, ...]] | None:
    """UTF-8 but for surrogates, which pairs are written in by some; lone ones stand for nothing."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    lone = joined.count("\ufffd") - text.count("\ufffd")
    return joined, (f"{lone} lone surrogates replaced",) if lone else ("surrogate pairs joined",)


def _looks_binary(data: bytes) -> bool:
    sample = data[:65536]
    control = sum(sample.count(bytes([b])) for b in range(32) if b not in (0, 7, 8, 9, 10, 11, 12, 13, 27))
    return max(control, sample.count(0)) > max(_FEW, 0.02 * len(sample))


def _mostly_utf8(data: bytes) -> bool:
    """UTF-8 with a few broken bytes, rather than another encoding altogether."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    valid = sum(1 for c in text if c > "\x7f" and c != "\ufffd")
    return valid > 4 * broken
