"""Pieces of work under way at once. One at a time needs no thread: it is done when its result is wanted."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class Crew:
    """Up to `size` pieces of work, each with a key; `finished` returns them in order of completion.

    Work that waits for a model or a judge overlaps; what may be used from one thread only has no place here.
    Threads are daemons: a program that is interrupted does not wait for an answer that may take minutes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._later: deque[tuple[int, Callable[[], Any]]] = deque()
        self._done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self.busy = 0

    @property
    def full(self) -> bool:
        return self.busy >= self._size

    def start(self, key: int, work: Callable[[], Any]) -> None:
        """Begin `work`, whose result or exception `finished` hands over."""
        self.busy += 1
        if self._size == 1:
            self._later.append((key, work))
        else:
            threading.Thread(target=self._run, args=(key, work), daemon=True, name=f"step-{key}").start()

    def finished(self) -> tuple[int, Any]:
        """The next piece of work that is over, with what it returned or raised (an Exception).

        Waits for it. What is no Exception, such as KeyboardInterrupt, is raised here.
        """
        if self._later:
            self._run(*self._later.popleft())
        key, outcome = self._done.get()
        self.busy -= 1
        if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
            raise outcome
        return key, outcome

    def _run(self, key: int, work: Callable[[], Any]) -> None:
        try:
            outcome: Any = work()
        except BaseException as error:
            outcome = error
        self._done.put((key, outcome))
