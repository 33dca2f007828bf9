"""The judge's view of one child: its memory, its calls, and what went wrong with it."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.worker.device.driver import driver
from harness.worker.jail.processes import LOG_LIMIT, Child, describe_status
from harness.worker.values import Region, layout_bytes
from harness.worker.wire import Closed, Late, WireError

_clock = time.perf_counter
KERNEL_FAULTS = ("out-of-bounds", "race")  # rules of what a kernel did wrong, seen by an interpreter


class ChildFailure(Exception):
    """A child raised, died, was too slow or broke the protocol. `kind`: see Evaluation.status, or
    `memory`, or one of KERNEL_FAULTS.
    """

    def __init__(self, side: Side, kind: str, text: str, log: str = "") -> None:
        super().__init__(text)
        self.side, self.kind, self.log = side, kind, log


class Mismatch(Exception):
    """A candidate returned something else than the reference. `rule`: the name of what is wrong, where it has
    one.
    """

    def __init__(self, text: str, rule: str = "") -> None:
        super().__init__(text)
        self.rule = rule


@dataclass(frozen=True)
class Block:
    """Several calls in a row, in seconds: by the judge's clock, and by what the device's events say of each
    call and of copying its result out. `mismatches`: where results were of another kind.
    """

    wall_s: float
    calls_s: list[float]
    copies_s: list[float]
    mismatches: list[str]


class Side:
    """One child together with the memory it shares with the judge. `device`: where that memory is."""

    def __init__(self, child: Child, rng: random.Random, device: str = "cpu") -> None:
        self.child = child
        self.rng = rng
        self.device = device
        self.slots: list[Region] = []
        self.flats: list[list[torch.Tensor]] = []
        self.results: list[list[torch.Tensor]] = []
        self.outputs: list[torch.Tensor] = []
        self.state: Region | None = None
        self.copied_s = 0.0  # how long the last call's results took to be copied out
        self.alias = ""  # what memory the results of the last call share: `input`, `previous` or none
        self.values: list[Any] = []  # plain values among the results of the last call

    def ask(
        self, message: dict[str, Any], timeout_s: float, fds: Sequence[int] = (), what: str = ""
    ) -> dict[str, Any]:
        """Sends one request and returns its answer; raises ChildFailure."""
        self._settle()
        try:
            self.child.channel.send({**message, "fds": len(fds)} if fds else message)
            if fds:
                self.child.channel.send({}, tuple(fds))
        except WireError as error:
            raise self.failure(error, timeout_s, what or message["op"]) from error
        return self.await_answer(timeout_s, what or message["op"])

    def await_answer(self, timeout_s: float, what: str) -> dict[str, Any]:
        """The answer to what was sent; raises ChildFailure."""
        try:
            answer = self.child.channel.receive(timeout_s)
        except WireError as error:
            raise self.failure(error, timeout_s, what) from error
        self._raise_error(answer, what)
        return answer

    def call(
        self, slot: int, timeout_s: float, which: str, seed: int, finish_s: float | None = None
    ) -> float:
        """Runs one forward; returns the seconds of the round trip by the judge's clock, results copied out
        after. With `finish_s`, that is how long the device may go on after forward has returned.

        Raises ChildFailure, or Mismatch where the results are of another structure, dtype or shape.
        """
        elapsed, answer = self.first_call(slot, timeout_s, which, seed, finish_s)
        if "mismatch" in answer:
            raise Mismatch(str(answer["mismatch"])[:400])
        self.alias = str(answer.get("alias", ""))
        values = answer.get("values", [])
        self.values = values if isinstance(values, list) else [values]
        return elapsed

    def first_call(
        self, slot: int, timeout_s: float, which: str, seed: int, finish_s: float | None = None
    ) -> tuple[float, dict[str, Any]]:
        """Like `call`, with what the child says about its results."""
        nonce = self.rng.getrandbits(62)
        channel = self.child.channel
        message = {"op": "call", "slot": slot, "which": which, "seed": seed, "nonce": nonce}
        if finish_s is not None:
            message["announce"] = True
        self._settle()
        try:
            start = _clock()
            channel.send(message)
            done = channel.receive(timeout_s)
            if finish_s is not None and done.get("returned") == nonce:  # a lie only shortens the wait
                timeout_s = finish_s
                done = channel.receive(timeout_s)
            elapsed = _clock() - start
            if done.get("done") != nonce:
                raise WireError("answered out of turn")
            self._raise_error(done, "forward")
            answer = channel.receive(timeout_s)
            self.copied_s = _clock() - start - elapsed
        except WireError as error:
            raise self.failure(error, timeout_s, "forward") from error
        if answer.get("copied") != nonce:
            raise self.failure(WireError("answered out of turn"), timeout_s, "forward")
        return elapsed, answer

    def block(self, slots: Sequence[int], timeout_s: float, which: str, scrubs: int, seed: int) -> Block:
        """Runs forward on these slots one after the other, each result copied out in its slot's place; raises
        ChildFailure.
        """
        nonce = self.rng.getrandbits(62)
        message = {"op": "block", "slots": list(slots), "which": which, "scrubs": scrubs, "seed": seed}
        message["nonce"] = nonce
        self._settle()
        try:
            start = _clock()
            self.child.channel.send(message)
            answer = self.child.channel.receive(timeout_s)
            elapsed = _clock() - start
        except WireError as error:
            raise self.failure(error, timeout_s, "forward") from error
        self._raise_error(answer, "forward")
        try:
            calls, copies = ([1e-3 * float(ms) for ms in answer[name]] for name in ("calls_ms", "copies_ms"))
            odd = [str(text)[:400] for text in answer["mismatches"]]
            if answer["done"] != nonce or not len(calls) == len(copies) == len(slots):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            raise self.failure(WireError("answered out of turn"), timeout_s, "forward") from error
        return Block(elapsed, calls, copies, odd)

    def noop(self, seed: int) -> float:
        """Seconds of an empty round trip."""
        nonce = self.rng.getrandbits(62)
        try:
            start = _clock()
            self.child.channel.send({"op": "noop", "seed": seed, "nonce": nonce})
            self.child.channel.receive(10.0)
            return _clock() - start
        except WireError as error:
            raise self.failure(error, 10.0, "noop") from error

    def map_inputs(self, structure: Any, layout: list[dict[str, Any]], slots: int, timeout_s: float) -> None:
        """Places for `slots` more sets of inputs."""
        size = layout_bytes(layout)
        regions = [Region.create(size, self.device) for _ in range(slots)]
        self.slots += regions
        self.flats += [[region.flat(entry) for entry in layout] for region in regions]
        sizes = [region.size for region in regions]
        message = {"op": "map_inputs", "structure": structure, "layout": layout, "sizes": sizes}
        self.ask(message, timeout_s, [region.fd for region in regions])

    def map_output(
        self, structure: Any, layout: list[dict[str, Any]], timeout_s: float, copies: int = 1
    ) -> None:
        """Places for `copies` whole results; ordinary calls use the first."""
        regions = [Region.create(layout_bytes(layout), self.device) for _ in range(copies)]
        sizes = [region.size for region in regions]
        message = {"op": "map_output", "layout": layout, "sizes": sizes, "structure": structure}
        self.ask(message, timeout_s, [region.fd for region in regions])
        self.results = [region.views(layout) for region in regions]
        self.outputs = self.results[0]

    def unmap(self, timeout_s: float) -> None:
        """Gives up the places of inputs and results on both sides."""
        self.ask({"op": "unmap"}, timeout_s)
        self.slots, self.flats, self.results, self.outputs = [], [], [], []

    def map_state(self, layout: list[dict[str, Any]], timeout_s: float) -> None:
        self.state = self._share("map_state", layout, timeout_s)

    def map_double(self, layout: list[dict[str, Any]], timeout_s: float) -> list[torch.Tensor]:
        return self._share("map_double", layout, timeout_s).views(layout)

    def _share(self, op: str, layout: list[dict[str, Any]], timeout_s: float, **more: Any) -> Region:
        region = Region.create(layout_bytes(layout), self.device)
        self.ask({"op": op, "layout": layout, "sizes": [region.size], **more}, timeout_s, [region.fd])
        return region

    def _settle(self) -> None:
        """What the judge has written to shared memory is there before a child is asked to read it."""
        if self.device != "cpu":
            driver().synchronize()

    def failure(self, error: WireError, timeout_s: float, what: str) -> ChildFailure:
        """What a broken channel means, from how the process ended."""
        log = self.child.log
        if self.child.condemned is not None:
            return ChildFailure(self, *self.child.condemned)
        if isinstance(error, Late):
            return ChildFailure(self, "timeout", f"{what} took longer than {timeout_s:.3g} s")
        if log.flooded:
            return ChildFailure(
                self, "runtime_error", f"printed more than the output limit of {LOG_LIMIT >> 20} MiB"
            )
        if isinstance(error, Closed):
            status = self.child.exit_status()
            return ChildFailure(self, "runtime_error", f"the process {describe_status(status)} during {what}")
        return ChildFailure(
            self, "runtime_error", f"wrote to the judge's private channel during {what} ({error})"
        )

    def _raise_error(self, answer: dict[str, Any], what: str) -> None:
        error = answer.get("error")
        if error is None:
            return
        if not isinstance(error, dict):
            raise ChildFailure(self, "runtime_error", f"wrote to the judge's private channel during {what}")
        kinds = {"compile": "compile_error", "memory": "memory", **{rule: rule for rule in KERNEL_FAULTS}}
        kind = kinds.get(str(error.get("kind")), "runtime_error")
        raise ChildFailure(self, kind, str(error.get("text"))[:800], str(error.get("log", ""))[-8000:])
