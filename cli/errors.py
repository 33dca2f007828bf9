"""From an exception to one line for a person, or an error document for a program, and an exit code."""

from __future__ import annotations

import errno
import traceback
from typing import Any

USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 130

# Base classes of the packages, and the exceptions that differ from their base. By name, so that reporting an
# error imports nothing; the first match along the exception's own bases decides.
EXIT_CODES = {
    "ProblemError": USAGE,
    "TargetUnknown": USAGE,
    "JobError": USAGE,
    "HarnessError": ENVIRONMENT,
    "SettingsError": USAGE,
    "NotFound": USAGE,
    "BenchmarkInvalid": USAGE,
    "Refused": USAGE,
    "BackupInvalid": USAGE,
    "LabelUnknown": USAGE,
    "LocalOnly": USAGE,
    "KnowledgeBaseError": ENVIRONMENT,
    "IngestError": USAGE,
    "TokenizerMissing": ENVIRONMENT,
    "PromptError": USAGE,
    "RunBusy": ENVIRONMENT,
    "EvaluationUnavailable": ENVIRONMENT,
    "ModelError": ENVIRONMENT,
    "AgentError": USAGE,
    "FileNotFoundError": USAGE,
    "IsADirectoryError": USAGE,
    "UnicodeDecodeError": USAGE,
    "ValidationError": USAGE,
}


class CliError(Exception):
    """Something that a command itself found wrong. `hint` says what to do."""

    def __init__(self, message: str, hint: str = "", exit_code: int = USAGE) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


class UsageProblem(CliError):
    """The command line or a file that it names is wrong."""


class Interrupted(CliError):
    """Ctrl-C during work that can be taken up again."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, INTERRUPTED)


def report(error: BaseException, *, as_json: bool, verbose: bool) -> int:
    """Tell what went wrong on stderr, or as a JSON document, and return the exit code."""
    from cli.output import emit, note

    kind, message, hint, code = describe(error)
    if as_json:
        emit({"error": {"type": kind, "message": message, "hint": hint}})
    else:
        note(f"error: {message}" if code != INTERRUPTED else message, style="bold red")
        if hint:
            note(f"hint: {hint}")
    if verbose:
        note("".join(traceback.format_exception(error)))
    return code


def describe(error: BaseException) -> tuple[str, str, str, int]:
    """(type, message in one line, hint, exit code) of an exception."""
    kind = type(error).__name__
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted", "interrupted", "", INTERRUPTED
    if hasattr(error, "format_message"):  # the parser's own errors
        return "UsageError", *_usage(error), USAGE
    names = [c.__name__ for c in type(error).__mro__]
    code = next((EXIT_CODES[name] for name in names if name in EXIT_CODES), None)
    code = getattr(error, "exit_code", code)
    hint = str(getattr(error, "hint", ""))
    if isinstance(error, OSError) and not hint:
        return kind, *_os_error(error), code or ENVIRONMENT
    message = one_line(str(error)) or kind
    if code is None:
        hint = (
            hint
            or "this is a defect of KernelEvolve; run again with `kernelevolve --verbose …` for the details"
        )
        return kind, f"unexpected {kind}: {message}", hint, ENVIRONMENT
    return kind, message, hint, code


def one_line(text: str, limit: int = 400) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _usage(error: Any) -> tuple[str, str]:
    message = one_line(error.format_message())
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "kernelevolve"
    if any(option in message for option in ("--home", "--verbose")):
        return message, "--home and --verbose go before the command: kernelevolve --home DIR COMMAND …"
    if "--json" in message:
        return message, "--json goes after the command: kernelevolve COMMAND --json"
    return message, f"{path} --help"


def _os_error(error: OSError) -> tuple[str, str]:
    message = f"{error.strerror}: {error.filename}" if error.filename else one_line(str(error))
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return message, "free some space, or point KERNELEVOLVE_HOME to another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return message, "check the permissions, or point KERNELEVOLVE_HOME to a folder that you may write"
    return message, ""
