"""Packs this package into one file that judges candidates wherever Python, torch and Triton are."""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

from harness import bootstrap

PACKAGE = Path(__file__).resolve().parent
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal sources make equal archives, whenever they are packed


def pack(path: Path) -> int:
    """Writes the archive and returns its size in bytes; an existing file is replaced as a whole. Raises
    OSError.
    """
    files = sorted(p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    main = Path(bootstrap.__file__).read_bytes()
    contents = {f"harness/{p.relative_to(PACKAGE).as_posix()}": p.read_bytes() for p in files}
    handle, scratch = tempfile.mkstemp(prefix=path.name, dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(_SHEBANG)
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
                for name, data in {bootstrap.MAIN: main, **contents}.items():
                    packed.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
            size = stream.tell()
        Path(scratch).chmod(0o755)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
    return size
