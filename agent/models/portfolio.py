"""Several generators as one: whoever the step names answers, and where that one cannot, another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.generator import Draft, Exhausted, GenerationFailed, GenerationRequest, Generator
from kb.errors import ModelError, ModelUnavailable

# How long one that did not answer is left alone while others do.
_REST_S = 120.0


class Portfolio:
    """Asks `request.generators` in that order. One whose key, name or request is rejected is not asked again
    in this process; one that does not answer rests. While all rest, they are waited for, at most
    `patience_s`.
    """

    def __init__(
        self,
        members: Mapping[str, Generator],
        *,
        patience_s: float,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = ",".join(members)
        self.hosted = any(member.hosted for member in members.values())
        self._members = dict(members)
        self._patience_s = patience_s
        self._sleep, self._clock = sleep, clock
        self._out: set[str] = set()
        self._rests_until: dict[str, float] = {}

    def generate(self, request: GenerationRequest) -> Draft:
        """A draft, with who made it.

        Raises GenerationFailed as the one does that answered; Exhausted when all have nothing new; ModelError
        when all are out, ModelUnavailable when patience is at its end.
        """
        order = [name for name in request.generators if name in self._members] or list(self._members)
        started = self._clock()
        troubles: dict[str, str] = {}
        while True:
            exhausted: Exhausted | None = None
            error: ModelError | None = None
            for name in order:
                if name in self._out or self._rests_until.get(name, 0.0) > self._clock():
                    continue
                try:
                    draft = self._members[name].generate(request)
                except Exhausted as failure:
                    exhausted = failure
                except GenerationFailed as failure:
                    failure.generator = name
                    failure.notes = _with(failure.notes, troubles)
                    raise
                except ModelUnavailable as failure:
                    self._rests_until[name] = self._clock() + _REST_S
                    error, troubles[name] = failure, f"{failure}"
                except ModelError as failure:
                    self._out.add(name)
                    error, troubles[name] = failure, f"{failure}; it is not asked again"
                else:
                    return replace(draft, generator=name, notes=_with(draft.notes, troubles))
            if exhausted is not None:
                raise exhausted
            left = [name for name in order if name not in self._out]
            if not left:
                raise error or ModelError("no model is left to ask", "; ".join(troubles.values()))
            pause = min(self._rests_until[name] for name in left) - self._clock()
            if self._clock() + pause - started > self._patience_s:
                raise error or ModelUnavailable(
                    f"none of {', '.join(left)} answered for {self._patience_s:.0f} s", "resume the run later"
                )
            self._sleep(max(0.0, pause))


def _with(notes: dict[str, object], troubles: Mapping[str, str]) -> dict[str, object]:
    if not troubles:
        return notes
    said = notes.get("model")
    return {**notes, "model": [*(said if isinstance(said, list) else []), *troubles.values()]}
