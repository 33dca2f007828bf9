"""Compressed files as blocks of plain bytes: bounded memory, whatever their headers ask for."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol

from backports import zstd

BLOCK = 1 << 16
_XZ_MEMORY = 256 << 20
_ZSTD_WINDOW = 27  # the logarithm of 128 MB, which is what `zstd` itself accepts unasked


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def decompressed(path: Path, name: str) -> Iterator[bytes]:
    """The content of the file at `path`, which is called `name`, in blocks of at most 64 KiB.

    Raises what the decompressors raise for damaged data, EOFError where it ends early.
    """
    suffix = name.lower().rsplit(".", 1)[-1]
    with path.open("rb") as file:
        if suffix in ("xz", "txz"):
            yield from _streams(file, lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY), padding=b"\x00")
        elif suffix in ("zst", "tzst"):
            options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW}
            yield from _streams(file, lambda: zstd.ZstdDecompressor(options=options))
        elif suffix in ("bz2", "tbz2", "tbz"):
            yield from _streams(file, bz2.BZ2Decompressor)
        else:
            yield from _streams(file, _GzipDecompressor, padding=b"\x00")


class _GzipDecompressor:
    """zlib's, in the form that the others have. The module `gzip` loses the block in which damage begins."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _streams(file: IO[bytes], new: Callable[[], _Decompressor], padding: bytes = b"") -> Iterator[bytes]:
    """One stream or several, with `padding` between. `lzma.open` and its like set no limit on memory.

    An OSError is what the decompressor says of damaged data.
    """
    decompressor = new()
    data = file.read(BLOCK)
    while data or not decompressor.needs_input:
        block = decompressor.decompress(data, BLOCK)
        if block:
            yield block
        if decompressor.eof:
            data = (decompressor.unused_data or file.read(BLOCK)).lstrip(padding)
            while padding and not data and (more := file.read(BLOCK)):
                data = more.lstrip(padding)
            if not data:
                return
            decompressor = new()
        else:
            data = file.read(BLOCK) if decompressor.needs_input else b""
    raise EOFError("ends early")
