"""What a failed call to a chat model means: wait, leave something out, or give up with one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from kb.errors import ModelError

_PASSING = (408, 409, 425, 429)  # and all from 500 on
_PASSING_KINDS = ("Connection", "Connect", "Timeout", "Protocol", "RateLimit", "Decode", "ReadError")
# What an error says of itself where it has no status, as in the middle of a stream.
_PASSING_TYPES = ("overloaded_error", "rate_limit_error", "api_error", "timeout_error", "server_error")
_CONTEXT = (
    "context_length", "context length", "context window", "context size", "context_size",
    "prompt is too long",
    "maximum number of tokens", "input tokens exceed", "too many tokens", "input is too long",
)  # fmt: skip
# LangChain's names for what it sends under another one.
_ALIASES = {"max_tokens": ("max_completion_tokens", "max_output_tokens"), "stream_usage": ("stream_options",)}


def explain(error: Exception, name: str) -> ModelError | None:
    """The typed error for what a retry cannot mend; None for what may pass (limits, outages, time-outs)."""
    status, text, body = status_of(error), str(error).lower(), _body(error)
    code = str(getattr(error, "code", None) or body.get("code") or "")
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if _is_overflow(status, f"{code} {text}".lower(), kinds):
        return ModelError(f"{name}: the prompt exceeds the model's context", "lower the token budget")
    if code == "insufficient_quota" or status == 402 or "credit balance is too low" in text:
        return ModelError(f"{name}: the account's quota is used up", "check the provider's billing page")
    if _is_about_the_key(status, text, kinds):
        return ModelError(f"{name}: the provider rejected the key", "check the key in the environment")
    if status == 429 and "request too large" in text:
        return ModelError(
            f"{name}: one prompt exceeds the account's rate limit: {short(error)}", "lower the token budget"
        )
    if status == 404:
        return ModelError(f"{name}: no such model or address: {short(error)}", "check name and base URL")
    if status in (400, 422):
        parameter = _named_parameter(error)
        what = f"the provider rejected the parameter {parameter!r}" if parameter else "rejected the request"
        return ModelError(f"{name}: {what}: {short(error)}", "this model cannot be used as it is")
    if status is not None and (status in _PASSING or status >= 500):
        return None
    if status in (None, 200) and body.get("type") in _PASSING_TYPES:
        return None
    if any(word in kind for kind in kinds for word in _PASSING_KINDS) or "null value for `choices`" in text:
        return None
    return ModelError(f"{name}: {short(error)}")


def rejected_parameter(error: Exception, sent: Iterable[str]) -> str | None:
    """Which of the parameters `sent` the provider does not take; None where it complains of anything else."""
    status, kinds = status_of(error), {kind.__name__ for kind in type(error).__mro__}
    text = f"{getattr(error, 'code', '')} {error}".lower()
    # A client that does not know a parameter raises before anything is sent.
    unsent = status is None and isinstance(error, TypeError) and "keyword argument" in text
    if not unsent and (status not in (400, 422) or _is_overflow(status, text, kinds)):
        return None
    named = _named_parameter(error)
    for parameter in sent:
        names = (parameter, *_ALIASES.get(parameter, ()))
        if named in names or (not named and any(_mentions(text, name) for name in names)):
            return parameter
    return None


def retry_after(error: Exception) -> float | None:
    """The seconds that the provider asks to wait, however it says so."""
    headers: Mapping[str, str] = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * unit)
        except ValueError:
            pass
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            continue
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return max(0.0, (when - datetime.now(UTC)).total_seconds())
    return None


def status_of(error: Exception) -> int | None:
    """The HTTP status, or what stands for it in an error that came with a status of 200."""
    for value in (*(getattr(error, n, None) for n in ("status_code", "http_status", "code")), *_codes(error)):
        if isinstance(value, int):
            return value
    return None


def short(error: Exception) -> str:
    """What it says in one line of at most 300 characters."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"


def _is_overflow(status: int | None, text: str, kinds: set[str]) -> bool:
    if "ContextOverflowError" in kinds or status == 413:
        return True
    return status in (400, 422, 500, None) and any(words in text for words in _CONTEXT)


def _is_about_the_key(status: int | None, text: str, kinds: set[str]) -> bool:
    if status in (401, 403) or any("authentication" in kind.lower() for kind in kinds):
        return True
    return status in (400, None) and ("api_key" in text or "api key" in text)


def _named_parameter(error: Exception) -> str:
    return str(getattr(error, "param", None) or _body(error).get("param") or "")


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name.lower())}(?!\w)", text) is not None


def _body(error: Exception) -> dict[str, Any]:
    """The provider's error object: the client's, or what LangChain raises in a ValueError of it."""
    for body in (getattr(error, "body", None), *error.args):
        if isinstance(body, dict):
            inner = body.get("error")
            return inner if isinstance(inner, dict) else body
    return {}


def _codes(error: Exception) -> Iterator[Any]:
    yield from (_body(error).get(key) for key in ("status", "code"))
