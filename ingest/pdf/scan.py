"""The picture of a page, as a program that recognises text wants it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

_DPI = 300
_MAX_PIXELS = 40_000_000


def image_of(page: PdfPage) -> bytes:
    """The page in grey as a binary PGM, at 300 dots per inch unless that would be too large."""
    width, height = page.get_size()
    scale = min(_DPI / 72, math.sqrt(_MAX_PIXELS / max(1.0, width * height)))
    bitmap = page.render(scale=scale, grayscale=True)
    try:
        data, stride = bytes(bitmap.buffer), bitmap.stride
        if stride != bitmap.width:
            data = b"".join(data[i : i + bitmap.width] for i in range(0, stride * bitmap.height, stride))
        return b"P5\n%d %d\n255\n%b" % (bitmap.width, bitmap.height, data)
    finally:
        bitmap.close()
