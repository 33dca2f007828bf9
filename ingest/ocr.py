"""Optical character recognition through tesseract, where that is installed."""

from __future__ import annotations

import shutil
import subprocess

TIMEOUT_S = 120.0  # one page


class OcrFailed(Exception):
    """Tesseract did not read a page; the message says why in one line."""


def available() -> bool:
    """Whether a tesseract is on the path."""
    return shutil.which("tesseract") is not None


def read(image: bytes) -> str:
    """The text in an image of a format that tesseract knows (PNM, PNG, TIFF …). Raises OcrFailed."""
    program = shutil.which("tesseract")
    if program is None:
        raise OcrFailed("tesseract is not installed")
    try:
        done = subprocess.run(
            [program, "stdin", "stdout"], input=image, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OcrFailed(f"tesseract took longer than {TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise OcrFailed(f"tesseract cannot be run: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OcrFailed(f"tesseract failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
