"""In the candidate's child: further forwards, run once everything else has been measured.

`observed` runs the candidate while the process looks as if it were timed, and watches its kernels and
operators. `counted` does the latter alone. `ablated` runs it with its own kernels switched off.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.profiler import profile

from harness.worker.child import same_memory
from harness.worker.evidence.ablation import Launches, Loaded, Mode, spoil_free_memory
from harness.worker.evidence.calls import operator_log
from harness.worker.evidence.kernel_names import operator_kind
from harness.worker.jail.places import Places
from harness.worker.values import Unsupported, pack

# What a candidate might take for the sign that it is being timed.
_SIGNS = {
    **{"PHASE": "timing", "STAGE": "benchmark", "MODE": "performance", "TASK": "measure", "STEP": "profile"},
    **{"EVAL_PHASE": "timing", "EVAL_MODE": "benchmark", "RUN_MODE": "perf", "TEST_MODE": "speed"},
    **{
        "BENCHMARK": "1",
        "BENCH": "1",
        "TIMING": "1",
        "PROFILE": "1",
        "PERF": "1",
        "MEASURE": "1",
        "WARMUP": "0",
    },
}
_ARGUMENTS = ["--benchmark", "--mode=timing", "--perf", "--measure", "--profile", "speed"]
_KEPT = 64  # names of operators
_KEPT_BYTES = 8 << 30  # of results

Forward = Callable[..., Any]


class Experiments:
    """Forwards by name for the server, and what the last of them saw.

    `all_threads`: operators are to be seen on every thread, not only on the calling one.
    """

    def __init__(
        self, forward: Forward, places: Places, like: list[torch.Tensor], *, all_threads: bool
    ) -> None:
        self._forward, self._places, self._like = forward, places, like
        self._all_threads = all_threads or threading.active_count() > 1
        self.loaded = Loaded.find(places)
        self._kept: list[list[torch.Tensor]] = []  # results, as a caller might keep them
        self.seen: dict[str, Any] = {}
        self.forwards: dict[str, Forward] = {
            "observed": lambda *arguments: benchmark(lambda: self._watched("count", arguments)),
            "counted": lambda *arguments: self._watched("count", arguments),
            "ablated": self._ablated,
        }

    def _ablated(self, *arguments: Any) -> Any:
        self.loaded = Loaded.find(self._places)  # what has been loaded since, too
        spoil_free_memory(self._like)
        return self._watched("skip", arguments)

    def _watched(self, mode: Mode, arguments: tuple[Any, ...]) -> Any:
        launches = Launches(self._places, self.loaded)
        self.seen = {}
        if self._like[0].device.type != "cpu":  # torch's profiler would take seconds to start
            with launches.watched(mode), operator_log() as log:
                result = self._forward(*arguments)
            called = [name for name in dict.fromkeys(log.names) if operator_kind(name) == "library"]
            watched = {"own_us": 0.0, "library_us": 0.0, "library": called[:_KEPT]}
            self.seen = {"launches": launches.counts(), "reused": self._keep(result), **watched}
            return result
        with launches.watched(mode), _profiler(all_threads=self._all_threads) as profiler:
            result = self._forward(*arguments)
        reused = self._keep(result)
        self.seen = {"launches": launches.counts(), "reused": reused}
        self.seen |= _operators(profiler.function_events or [])
        return result

    def _keep(self, result: Any) -> bool:
        """Whether a result lies where an earlier one of these forwards still does."""
        try:
            _, tensors = pack(result)
        except Unsupported:
            return False
        reused = any(same_memory(tensors, earlier) for earlier in self._kept)
        held = sum(t.nbytes for earlier in self._kept for t in earlier)
        if held + sum(t.nbytes for t in tensors) <= _KEPT_BYTES:
            self._kept.append(tensors)
        return reused


def _profiler(*, all_threads: bool) -> profile:
    """Kineto alone sees all threads, and needs a second to start in a forked process."""
    if not all_threads:
        return profile(use_kineto=False)
    from torch._C._profiler import _ExperimentalConfig

    return profile(use_kineto=True, experimental_config=_ExperimentalConfig(profile_all_threads=True))


def _operators(events: Any) -> dict[str, Any]:
    """Microseconds in own code and in library operators, and the names of the latter.

    Operators within a Triton launch are its interpreter's; those within a function of C++ are the library's.
    """
    own = library = 0.0
    names: dict[str, float] = {}
    for event in events:
        kind = "own" if event.name.startswith("own:") else operator_kind(event.name)
        if kind == "own":
            own += event.self_cpu_time_total
        elif kind == "library" and not _interpreted(event):
            library += event.self_cpu_time_total
            names[event.name] = names.get(event.name, 0.0) + event.self_cpu_time_total
    ranked = sorted(names, key=lambda name: -names[name])
    return {"own_us": own, "library_us": library, "library": ranked[:_KEPT]}


def _interpreted(event: Any) -> bool:
    parent = event.cpu_parent
    while parent is not None:
        if parent.name.startswith("own:triton:"):
            return True
        parent = parent.cpu_parent
    return False


@contextmanager
def _signs() -> Iterator[None]:
    """Environment and command line of a benchmark."""
    environment, arguments = dict(os.environ), list(sys.argv)
    os.environ.update(_SIGNS)
    sys.argv[1:] = _ARGUMENTS
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[:] = arguments


def benchmark(call: Callable[[], Any]) -> Any:
    """The names of its frames are part of the disguise."""

    def measure_time() -> Any:
        def do_bench() -> Any:
            return call()

        return do_bench()

    with _signs():
        return measure_time()
