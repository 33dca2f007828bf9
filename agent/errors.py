"""What can go wrong in a search. Every message is one line; `hint` says what to do."""

from __future__ import annotations


class AgentError(Exception):
    """Base of everything that `agent` raises on purpose."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class SettingsInvalid(AgentError):
    """A search setting is unknown or out of range."""


class RunNotFound(AgentError):
    """No run, or not exactly one, has this id."""


class RunBusy(AgentError):
    """Another live process is working on the same run."""


class EvaluationUnavailable(AgentError):
    """The harness could not judge several candidates in a row; the run can be resumed."""


class RunOver(AgentError):
    """The run is finished: there is nothing to resume."""


class StepNotPending(AgentError):
    """A step was told that was told already, or that was not asked of this session."""


class NothingToExport(AgentError):
    """The runs hold nothing of the format that was asked for, or nothing of it may leave this machine."""


class ExchangeError(AgentError):
    """The folder of an exchange cannot be used, or a prompt that is named does not wait there."""


class SkillNotStored(AgentError):
    """A distilled skill could not be brought into the knowledge base."""


class SkillNotMeasurable(AgentError):
    """A skill has nothing that could be run."""
