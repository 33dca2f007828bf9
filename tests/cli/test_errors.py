"""From exceptions to exit codes, one line and a hint."""

from __future__ import annotations

import errno

import pytest

from cli.errors import Interrupted, UsageProblem, describe, one_line
from kb.errors import NotFound, SettingsError, StoreLocked


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageProblem("x"), 2),
        (SettingsError("x"), 2),
        (NotFound("x"), 2),
        (StoreLocked("x"), 3),
        (OSError(errno.ENOSPC, "No space left on device", "f"), 3),
        (PermissionError(errno.EACCES, "Permission denied", "f"), 3),
        (FileNotFoundError(errno.ENOENT, "No such file", "f"), 2),
        (KeyboardInterrupt(), 130),
        (Interrupted("x"), 130),
        (ZeroDivisionError("x"), 3),
    ],
)
def test_exit_code(error: BaseException, code: int) -> None:
    assert describe(error)[3] == code


def test_hint_of_a_typed_error_is_kept() -> None:
    assert describe(StoreLocked("held", "wait for it"))[:3] == ("StoreLocked", "held", "wait for it")


def test_full_disk_says_what_to_do() -> None:
    _, message, hint, _ = describe(OSError(errno.ENOSPC, "No space left on device", "/home/x"))
    assert "/home/x" in message
    assert "KERNELEVOLVE_HOME" in hint


def test_defect_is_called_one() -> None:
    _, message, hint, _ = describe(ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError" in message
    assert "--verbose" in hint


def test_message_is_one_bounded_line() -> None:
    assert one_line("a\n  b\n\nc") == "a b c"
    assert len(one_line("x" * 10_000)) == 400
