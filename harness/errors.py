"""Errors that the harness raises. A verdict on a candidate is never an exception: it is an `Evaluation`."""

from __future__ import annotations


class HarnessError(Exception):
    """Base of all errors of this package. `hint` says in one line what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ProblemError(HarnessError):
    """The problem cannot be found, read, run or traced."""


class TargetUnknown(HarnessError):
    """No installed target has this name."""


class TargetUnavailable(HarnessError):
    """The target exists, but this machine lacks its device or its toolchain."""


class ExecutorError(HarnessError):
    """The worker process could not be started, died or broke its protocol. `log`: what it left behind."""

    def __init__(self, message: str, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint)
        self.log = log
