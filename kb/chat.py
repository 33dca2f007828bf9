"""Chat models through LangChain: opening them, and calling them with bounded patience.

Keys come from the environment alone, from the variable that the provider's package reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kb.errors import ModelError
from kb.privacy import is_this_machine

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

_ATTEMPTS = 5
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 30.0
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Reply:
    """An answer without its tool and reasoning blocks; tokens and `cost_usd` (None: not given) as billed.

    `finish` is `stop`, `length`, `refusal` or the provider's own word.
    """

    text: str
    finish: str
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


class ChatModel:
    """A chat model that is asked with back-off. `hosted` is False where nothing leaves this machine."""

    def __init__(
        self,
        name: str,
        model: BaseChatModel,
        *,
        hosted: bool,
        attempts: int = _ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.hosted = hosted
        self._attempts = attempts
        self._model = model
        self._sleep = sleep

    def ask(self, messages: Sequence[BaseMessage]) -> Reply:
        """One answer. Raises ModelError: at once for what a retry cannot mend, else after all attempts."""
        wait = _FIRST_WAIT_S
        for attempt in range(1, self._attempts + 1):
            try:
                return _reply(self._model.invoke(list(messages)))
            except Exception as error:
                fatal = explain(error, self.name)
                if fatal is not None:
                    raise fatal from error
                if attempt == self._attempts:
                    raise ModelError(
                        f"{self.name} did not answer in {self._attempts} attempts: {_short(error)}",
                        "try again when the model is reachable; a run can be resumed then",
                    ) from error
                self._sleep(min(_retry_after(error) or wait, _LONGEST_WAIT_S))
                wait = min(wait * 2, _LONGEST_WAIT_S)
        raise AssertionError("unreachable")


def open_model(
    name: str, base_url: str | None = None, *, timeout_s: float = _TIMEOUT_S, attempts: int = _ATTEMPTS
) -> ChatModel:
    """The model `provider:model`; each of `attempts` may take `timeout_s`.

    Raises ModelError when it cannot be opened, e.g. for want of a key.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise ModelError("langchain is not installed", "pip install langchain") from error
    # No sampling parameter is sent: several providers reject them for some of their models.
    options: dict[str, Any] = {"max_retries": 0, "timeout": timeout_s}
    if base_url is not None:
        options["base_url"] = base_url
    try:
        model = init_chat_model(name, **options)
    except ImportError as error:
        raise ModelError(f"{name}: {_short(error)}", "install the provider's LangChain package") from error
    except Exception as error:
        hint = "set the provider's key in the environment, such as OPENAI_API_KEY"
        if base_url is not None:
            hint += " (any value for a local server that needs none)"
        raise ModelError(f"{name} cannot be used: {_short(error)}", hint) from error
    near = base_url is not None and is_this_machine(base_url) and not _traced()
    return ChatModel(name, model, hosted=not near, attempts=attempts)


def _traced() -> bool:
    """Whether LangChain reports every call, with its text, to LangSmith."""
    from langsmith.utils import tracing_is_enabled

    return bool(tracing_is_enabled())


def explain(error: Exception, name: str) -> ModelError | None:
    """The typed error for what a retry cannot mend; None for what may pass (limits, outages, time-outs)."""
    status = _status(error)
    text = str(error).lower()
    body = getattr(error, "body", None)
    body = body if isinstance(body, dict) else {}
    code = str(getattr(error, "code", None) or body.get("code") or "")
    if status in (401, 403) or "api_key" in text or "authentication" in type(error).__name__.lower():
        return ModelError(f"{name}: the provider rejected the key", "check the key in the environment")
    if "context_length" in code or "maximum context length" in text or "prompt is too long" in text:
        return ModelError(f"{name}: the prompt exceeds the model's context", "lower the token budget")
    if code == "insufficient_quota" or status == 402:
        return ModelError(f"{name}: the account's quota is used up", "check the provider's billing page")
    if status == 404:
        return ModelError(f"{name}: no such model or address: {_short(error)}", "check name and base URL")
    if status in (400, 422):
        parameter = str(getattr(error, "param", None) or body.get("param") or "")
        what = f"the provider rejected the parameter {parameter!r}" if parameter else "rejected the request"
        return ModelError(f"{name}: {what}: {_short(error)}", "this model cannot be used as it is")
    if status in (408, 409, 425, 429) or (status is not None and status >= 500):
        return None
    return None if _is_connection_trouble(error) else ModelError(f"{name}: {_short(error)}")


def _is_connection_trouble(error: Exception) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    names = " ".join(kind.__name__ for kind in type(error).__mro__)
    return any(word in names for word in ("Connection", "Connect", "Timeout", "Protocol", "RateLimit"))


def _status(error: Exception) -> int | None:
    for name in ("status_code", "http_status", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return None


def _retry_after(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers["retry-after"]))
    except (KeyError, TypeError, ValueError):
        return None


def _reply(message: AIMessage) -> Reply:
    usage: Any = message.usage_metadata or {}
    metadata = message.response_metadata or {}
    finish = str(metadata.get("finish_reason") or metadata.get("stop_reason") or "stop").lower()
    if finish in ("max_tokens", "max_output_tokens"):
        finish = "length"
    refusal = message.additional_kwargs.get("refusal")
    if refusal or finish in ("content_filter", "safety", "refusal"):
        finish = "refusal"
    cost = (metadata.get("token_usage") or {}).get("cost")
    return Reply(
        text=str(message.text) or str(refusal or ""),
        finish=finish,
        tokens_in=int(usage.get("input_tokens", 0)),
        tokens_out=int(usage.get("output_tokens", 0)),
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
    )


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:299] + "…"
