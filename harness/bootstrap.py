"""The first lines that a packed worker runs: unpack once, then hand over to `harness.__main__`.

A packed worker is one zip file (`harness.pack`), with this module as its `__main__.py`. It cannot run from
inside the zip: compilers need the headers as files, and worker processes start with `-m`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from pathlib import Path

MAIN = "__main__.py"


def unpack(archive: Path, base: Path) -> Path:
    """The folder below `base` that holds the archive's files, unpacked unless it is there and intact.

    Temporary folders are cleaned by age, file by file: what is there is compared with the archive. Raises
    PermissionError where `base` belongs to somebody else or is open to others.
    """
    _private(base)
    root = base / f"worker-{hashlib.sha256(archive.read_bytes()).hexdigest()[:24]}"
    with zipfile.ZipFile(archive) as packed:
        if not _intact(root, packed):
            _place(root, packed)
    return root


def _place(root: Path, packed: zipfile.ZipFile) -> None:
    fresh = Path(tempfile.mkdtemp(prefix="unpacking-", dir=root.parent))
    try:
        packed.extractall(fresh)
        if root.exists():
            root.rename(fresh / "spoilt")
        fresh.rename(root)
    except OSError:  # another process may have done the same meanwhile
        if not _intact(root, packed):
            raise
    finally:
        shutil.rmtree(root / "spoilt", ignore_errors=True)
        shutil.rmtree(fresh, ignore_errors=True)


def _private(base: Path) -> None:
    base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{base} is not a private folder of this user: remove it, or set TMPDIR")


def _intact(root: Path, packed: zipfile.ZipFile) -> bool:
    try:
        return all((root / name).read_bytes() == packed.read(name) for name in packed.namelist())
    except OSError:
        return False


def main() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 - nothing was installed that would have checked it
        sys.exit(_failed("Python 3.11 or later is needed"))
    archive = Path(__file__).resolve().parent
    try:
        root = unpack(archive, Path(tempfile.gettempdir()) / f"kernelevolve-{os.getuid()}")
    except (OSError, zipfile.BadZipFile) as error:
        sys.exit(_failed(str(error)))
    sys.path[:] = [str(root), *(p for p in sys.path if p != str(archive))]
    from harness.__main__ import main as run

    sys.exit(run(sys.argv[1:], program=Path(sys.argv[0]).name))


def _failed(message: str) -> int:
    sys.stderr.write(f"error: {message}\n")
    return 3


if __name__ == "__main__":
    main()
