"""Chat models through LangChain: opening them, and calling them with bounded patience.

Keys come from the environment alone, from the variable that the provider's package reads.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kb.chat_errors import explain, rejected_parameter, retry_after, short
from kb.errors import ModelError, ModelUnavailable
from kb.privacy import is_this_machine

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, BaseMessage

    from kb.settings import Price

_ATTEMPTS = 5
_PATIENCE_S = 120.0
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_TIMEOUT_S = 600.0
_REFUSED = ("content_filter", "safety", "refusal", "prohibited_content", "blocklist", "recitation", "spii")
_CUT_OFF = ("max_tokens", "max_output_tokens", "model_context_window_exceeded", "incomplete")

OnText = Callable[[str], None]


@dataclass(frozen=True)
class Reply:
    """An answer without its tool and reasoning blocks.

    `finish` is `stop`, `length` (cut off), `refusal` or the provider's own word. Tokens are as billed;
    `metered` is False where the provider gave no usage figures. `cost_usd` is the provider's, else from the
    price in the settings, else None. `notes` says what was done to get the answer.
    """

    text: str
    finish: str
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    metered: bool = True
    notes: tuple[str, ...] = ()


class ChatModel:
    """A chat model that is asked with back-off; several threads may ask at a time.

    `make` opens it with the parameters that it is given. `hosted` is False where nothing leaves this machine.
    After `attempts` calls, or where the next one would come later than `patience_s` after the first, it is
    given up; a provider that names a time to wait is not asked before.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[dict[str, Any]], BaseChatModel],
        parameters: Mapping[str, Any] | None = None,
        *,
        hosted: bool,
        price: Price | None = None,
        attempts: int = _ATTEMPTS,
        patience_s: float = _PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.hosted = hosted
        self._make = make
        self._parameters = dict(parameters or {})
        self._price = price
        self._attempts, self._patience_s = attempts, patience_s
        self._sleep, self._clock = sleep, clock
        self._lock = threading.Lock()
        self._model = make(self._parameters)

    def ask(
        self,
        messages: Sequence[BaseMessage],
        on_text: OnText | None = None,
        on_wait: OnText | None = None,
    ) -> Reply:
        """One answer; with `on_text` it is streamed, and each piece told as it comes. `on_wait` is told in a
        line before every wait.

        A parameter that the provider rejects is left out from then on. Raises ModelError: at once for what a
        retry cannot mend, ModelUnavailable when patience is at its end.
        """
        started, wait, attempt = self._clock(), _FIRST_WAIT_S, 0
        notes: list[str] = []
        while True:
            sent, model = self._parameters, self._model
            try:
                message = _stream(model, messages, on_text) if on_text else model.invoke(list(messages))
                return self._reply(message, notes)
            except Exception as error:
                parameter = rejected_parameter(error, [*sent, "stream_usage"])
                if parameter is not None and self._leave_out(parameter, sent):
                    notes.append(f"{self.name} does not take {parameter!r}: it was left out")
                    continue
                fatal = explain(error, self.name)
                if fatal is not None:
                    raise fatal from error
                attempt += 1
                # Not before the provider wants it, and not ever more often where it wants it at once.
                pause = max(retry_after(error) or 0.0, wait * random.uniform(0.5, 1.0))
                wait = min(wait * 2, _LONGEST_WAIT_S)
                spent = self._clock() - started
                if attempt >= self._attempts or spent + pause > self._patience_s:
                    raise ModelUnavailable(
                        f"{self.name} did not answer in {attempt} attempts within {spent:.0f} s; the next "
                        f"would be in {pause:.0f} s: {short(error)}",
                        "try again when the model is reachable; a run can be resumed then",
                    ) from error
                if attempt == 1:
                    notes.append(f"{self.name} had to be asked again: {short(error)}")
                if on_wait is not None:
                    on_wait(f"{self.name} is asked again in {pause:.0f} s: {short(error)}")
                self._sleep(pause)

    def _leave_out(self, parameter: str, sent: dict[str, Any]) -> bool:
        """Open the model again without it. False where that was done before: the cause is another."""
        with self._lock:
            if parameter not in self._parameters:
                if self._parameters is not sent:
                    return True  # another thread has just done it
                if parameter != "stream_usage" or not getattr(self._model, parameter, False):
                    return False
            kept = {key: value for key, value in self._parameters.items() if key != parameter}
            if parameter == "stream_usage":
                kept[parameter] = False
            self._model, self._parameters = self._make(kept), kept
            return True

    def _reply(self, message: AIMessage, notes: Sequence[str]) -> Reply:
        usage: Any = message.usage_metadata or {}
        tokens_in, tokens_out = int(usage.get("input_tokens", 0)), int(usage.get("output_tokens", 0))
        metadata = message.response_metadata or {}
        cost = (metadata.get("token_usage") or {}).get("cost")
        if not isinstance(cost, int | float):
            cached = int((usage.get("input_token_details") or {}).get("cache_read") or 0)
            known = bool(usage) and self._price is not None
            cost = self._price.cost(tokens_in, tokens_out, cached) if known and self._price else None
        refusal = _refusal(message)
        return Reply(
            text=str(message.text) or refusal,
            finish="refusal" if refusal else _finish(metadata),
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            cost_usd=None if cost is None else float(cost),
            metered=bool(usage),
            notes=tuple(notes),
        )


def open_model(
    name: str,
    base_url: str | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    price: Price | None = None,
    timeout_s: float = _TIMEOUT_S,
    attempts: int = _ATTEMPTS,
    patience_s: float = _PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ChatModel:
    """The model `provider:model`; each call may take `timeout_s`, `parameters` are sent with every one.

    Raises ModelError when it cannot be opened, e.g. for want of a key.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise ModelError("langchain is not installed", "pip install langchain") from error
    # No sampling parameter is sent unasked: several providers reject them for some of their models.
    options: dict[str, Any] = {"max_retries": 0, "timeout": timeout_s}
    if base_url is not None:
        _check_address(base_url)
        options["base_url"] = base_url

    def make(chosen: dict[str, Any]) -> BaseChatModel:
        try:
            model: BaseChatModel = init_chat_model(name, **options, **chosen)
        except ImportError as error:
            hint = "install the provider's LangChain package"
            raise ModelError(f"{name}: {short(error)}", hint) from error
        except Exception as error:
            hint = "set the provider's key in the environment, such as OPENAI_API_KEY"
            if base_url is not None:
                hint += " (any value for a local server that needs none)"
            if chosen:
                hint += f"; or are the parameters wrong: {', '.join(chosen)}?"
            raise ModelError(f"{name} cannot be used: {short(error)}", hint) from error
        # Without it, streamed answers of OpenAI-compatible servers come without usage figures.
        if getattr(model, "stream_usage", True) is None:
            model.stream_usage = True  # type: ignore[attr-defined]
        return model

    near = base_url is not None and is_this_machine(base_url) and not _traced()
    return ChatModel(
        name,
        make,
        parameters,
        hosted=not near,
        price=price,
        attempts=attempts,
        patience_s=patience_s,
        sleep=sleep,
        clock=clock,
    )


def _stream(model: BaseChatModel, messages: Sequence[BaseMessage], on_text: OnText) -> AIMessage:
    whole: Any = None
    for chunk in model.stream(list(messages)):
        whole = chunk if whole is None else whole + chunk
        if text := str(chunk.text):
            on_text(text)
    if whole is None:
        raise ConnectionError("the stream ended before it began")
    metadata: dict[str, Any] = whole.response_metadata
    if not any(metadata.get(key) for key in ("finish_reason", "stop_reason", "status", "done_reason")):
        metadata["finish_reason"] = "length"  # it broke off without a word: what came may not be all
    message: AIMessage = whole
    return message


def _refusal(message: AIMessage) -> str:
    """What the model says in place of an answer, wherever the provider puts it."""
    blocks = message.content if isinstance(message.content, list) else []
    said = [str(b.get("refusal")) for b in blocks if isinstance(b, dict) and b.get("type") == "refusal"]
    return str(message.additional_kwargs.get("refusal") or " ".join(said))


def _finish(metadata: Mapping[str, Any]) -> str:
    reason = (metadata.get("incomplete_details") or {}).get("reason")
    named = (metadata.get(key) for key in ("finish_reason", "stop_reason", "done_reason", "status"))
    finish = str(reason or next((word for word in named if word), "stop")).lower()
    if finish in _CUT_OFF:
        return "length"
    return "refusal" if finish in _REFUSED else finish


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelError(f"{url!r} is no address of a server", "such as http://127.0.0.1:8080/v1")
    if parts.username or parts.password:  # it would be stored with the run
        raise ModelError("no credentials in an address", "set the provider's key in the environment")


def _traced() -> bool:
    """Whether LangChain reports every call, with its text, to LangSmith."""
    from langsmith.utils import tracing_is_enabled

    return bool(tracing_is_enabled())
