"""The rounds of correctness: fresh seeds, other distributions, edits in place, other weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from harness.worker.admission import equal_weights, renew, share_state
from harness.worker.compare import Comparison, Tolerance, compare
from harness.worker.inputs import DISTRIBUTIONS, rewrite, sparse_edit
from harness.worker.side import ChildFailure, Mismatch, Side
from harness.worker.trial import LOAD_LIMIT_S, Trial, same_bytes

MIN_ROUNDS = 5
POOL = 4  # input sets that are kept for timed calls
# Elements of outputs and inputs from which on no double-precision result is computed.
DOUBLE_LIMITS = {"cpu": 1 << 26, "cuda": 1 << 29}


class Rounds:
    """Runs the rounds of one trial; raises Mismatch for the first that fails. `exact`: in double precision,
    too.
    """

    def __init__(self, trial: Trial, *, exact: bool = True) -> None:
        self.trial = trial
        self.latest = 0
        self.double: list[torch.Tensor] | None = self._double_outputs() if exact else None
        trial.exact = self._exact if self.double is not None else None

    def run(self) -> None:
        """At least five rounds: two fresh seeds, each distribution that fits, edits in place, new weights."""
        trial, last = self.trial, self.trial.slots - 1
        trial.fresh(0)
        self._round(0, "fresh inputs")
        trial.fresh(last)
        self._round(last, "fresh inputs")
        for i, name in enumerate(DISTRIBUTIONS):
            slot = i % trial.slots
            if self._redistribute(slot, name):
                self._round(slot, f"inputs of {name}")
        # In the slot that was used last: a candidate that keeps one answer still has that one.
        edit = sparse_edit(trial.reference.flats, self.latest, trial.generator)
        if self._try_edit(edit):
            self._round(edit.slot, "a few elements changed in place")
        if trial.matching.needed and trial.matching.names is not None:
            equal_weights(trial)
            trial.fresh(last)
            self._round(last, "weights loaded anew")
        if trial.matching.names:
            self._compare_state(last)
        while trial.rounds < max(MIN_ROUNDS, trial.request.rounds):
            self.one_more()

    def one_more(self) -> None:
        """Another round with fresh inputs."""
        slot = self.trial.rounds % self.trial.slots
        self.trial.fresh(slot)
        self._round(slot, "fresh inputs")

    def _round(self, slot: int, what: str) -> None:
        trial = self.trial
        contents = trial.contents(slot) if len(trial.pool) < POOL or trial.stateful else []
        if trial.stateful:
            renew(trial)
            self.call_both(slot, f"{what}, first call")
            rewrite(trial.reference.flats[slot], contents)
            self.call_both(slot, f"{what}, second call")
        else:
            self.call_both(slot, what)
        trial.rounds += 1
        if len(trial.pool) < POOL:
            trial.pool.append(contents)

    def call_both(self, slot: int, what: str) -> None:
        """One call of each side on what the reference's slot holds; raises Mismatch where they disagree."""
        trial = self.trial
        self.latest = slot
        seed = trial.seed()
        trial.hand_over(slot)
        given = trial.contents(slot) if trial.mutates else None
        exact = self._exact(slot, seed)
        seconds = trial.candidate.call(slot, trial.request.run_limit_s, "candidate", seed)
        trial.typical_s["candidate"] = min(seconds, trial.typical_s.get("candidate", math.inf))
        seconds = trial.call_reference(slot, seed)
        trial.typical_s["eager"] = min(seconds, trial.typical_s["eager"])
        check_alias(trial)
        result = compare_all(trial, trial.candidate.outputs, trial.reference.outputs, trial.tolerance, exact)
        trial.comparison.absorb(result)
        if result.problem:
            raise Mismatch(f"{result.problem} ({what})", result.rule)
        if trial.candidate.values != trial.reference.values and (trial.stable or trial.stateful):
            _compare_values(trial.candidate.values, trial.reference.values, what)
        check_inputs(trial, slot, trial.tolerance, what, given)

    # -- other contents --------------------------------------------------------------------------------

    def _redistribute(self, slot: int, name: str) -> bool:
        """Rewrites the floating inputs of a slot; keeps only what the reference takes and stays finite
        with.
        """
        trial = self.trial
        flats = trial.reference.flats[slot]
        chosen = [i for i, t in enumerate(flats) if t.is_floating_point()]
        if not chosen or not trial.reference_takes(slot):
            return False
        saved = [t.clone() for t in flats]
        changed = {i: DISTRIBUTIONS[name](flats[i], trial.generator) for i in chosen}
        attempts = [chosen] if len(chosen) == 1 else [chosen, *([i] for i in chosen)]
        for attempt in attempts:
            for i, flat in enumerate(flats):
                flat.copy_(changed[i] if i in attempt else saved[i])
            if trial.reference_takes(slot):
                return True
        for flat, value in zip(flats, saved, strict=True):
            flat.copy_(value)
        trial.flag("distribution-skipped", "info", f"the reference does not take inputs of {name}")
        return False

    def _try_edit(self, edit: Any) -> bool:
        undo = edit.apply(self.trial.reference.flats)
        if self.trial.reference_takes(edit.slot):
            return True
        undo.apply(self.trial.reference.flats)
        self.trial.refuse_edits()
        return False

    # -- state that forward changes -------------------------------------------------------------------

    def _compare_state(self, slot: int) -> None:
        """One call of both sides from equal state: what forward changes of it should be equal, too."""
        trial = self.trial
        assert trial.matching.names is not None
        share_state(trial)
        before = self._saved(trial.reference)
        seed = trial.seed()
        trial.hand_over(slot)
        trial.call_reference(slot, seed)
        trial.reference.ask({"op": "save_state"}, LOAD_LIMIT_S)
        theirs = self._saved(trial.reference)
        changed = [i for i, old in enumerate(before) if not same_bytes([old], [theirs[i]])]
        if not changed:
            return
        trial.candidate.call(slot, trial.request.run_limit_s, "candidate", seed)
        trial.candidate.ask({"op": "save_state", "names": trial.matching.names}, LOAD_LIMIT_S)
        mine = self._saved(trial.candidate)
        wrong = [i for i in changed if compare(mine[i], theirs[i], trial.tolerance).problem]
        if wrong and trial.stable:
            listed = ", ".join(trial.state[i][0] for i in wrong[:4])
            trial.flag(
                "state-not-updated", "warning", f"leaves another {listed} than the reference's forward"
            )
        share_state(trial)

    def _saved(self, side: Side) -> list[torch.Tensor]:
        assert side.state is not None
        return [side.state.flat(entry).clone() for entry in self.trial.state_layout]

    # -- double precision ------------------------------------------------------------------------------

    def _double_outputs(self) -> list[torch.Tensor] | None:
        trial = self.trial
        layout, offset = [], 0
        elements = sum(e["span"] for e in (*trial.output_layout, *trial.layout))
        floating = [
            e for e in trial.output_layout if e["dtype"] in ("float64", "float32", "float16", "bfloat16")
        ]
        if elements > DOUBLE_LIMITS[trial.device] or not floating:
            return None
        for entry in trial.output_layout:
            dtype = "float64" if entry in floating else entry["dtype"]
            layout.append({**entry, "dtype": dtype, "offset": offset})
            offset += entry["span"] * 16 + 256
        return trial.reference.map_double(layout, LOAD_LIMIT_S)

    def _exact(self, slot: int, seed: int) -> list[torch.Tensor] | None:
        """The reference's outputs in double precision, as long as it can be run that way."""
        if self.double is None:
            return None
        message = {"op": "call_double", "slot": slot, "seed": seed}
        try:
            self.trial.reference.ask(message, 4 * self.trial.request.run_limit_s)
        except ChildFailure as failure:
            if not failure.log:
                raise
            self.double = self.trial.exact = None
            text = f"the reference does not run in double precision ({failure})"
            self.trial.flag("no-fp64-reference", "info", text[:300])
        return self.double


def compare_all(
    trial: Trial,
    candidate: Sequence[torch.Tensor],
    reference: Sequence[torch.Tensor],
    tolerance: Tolerance,
    double: Sequence[torch.Tensor] | None = None,
) -> Comparison:
    """All outputs of one call."""
    result = Comparison()
    for i, (mine, theirs) in enumerate(zip(candidate, reference, strict=True)):
        exact = double[i] if double is not None and double[i].dtype == torch.float64 else None
        result.absorb(compare(mine, theirs, tolerance, exact, trial.labels[i]))
    return result


def check_inputs(
    trial: Trial, slot: int, tolerance: Tolerance, what: str, given: Sequence[torch.Tensor] | None = None
) -> None:
    """Inputs must be left as the reference leaves them, or untouched where `given` says what they were."""
    for i, (mine, theirs) in enumerate(
        zip(trial.candidate.flats[slot], trial.reference.flats[slot], strict=True)
    ):
        if same_bytes([mine], [theirs]):
            continue
        if given is not None and same_bytes([mine], [given[i]]):
            if not any(flag["rule"] == "input-not-updated" for flag in trial.result.flags):
                detail = f"leaves input {i} as it is, which the reference changes"
                trial.flag("input-not-updated", "warning", detail)
            continue
        if not trial.mutates:
            raise Mismatch(f"changes its input {i}, which the reference does not ({what})")
        problem = compare(mine, theirs, tolerance, label=f"input {i} after the call").problem
        if problem:
            raise Mismatch(f"{problem}: the reference changes its inputs ({what})")


def check_alias(trial: Trial) -> None:
    """Results may share memory with inputs or earlier results only where the reference's do."""
    alias = trial.candidate.alias
    if alias in ("", trial.reference.alias):
        return
    if alias == "input" and trial.gradients is not None:
        return  # a gradient may well be the cotangent itself
    if alias == "input":
        raise Mismatch("returns memory of its input, which the reference does not")
    raise Mismatch("returns the same memory on every call: a caller's earlier result would change")


def _compare_values(candidate: Sequence[Any], reference: Sequence[Any], what: str) -> None:
    if len(candidate) != len(reference):
        raise Mismatch(f"returns {len(candidate)} plain values, the reference {len(reference)} ({what})")
    for mine, theirs in zip(candidate, reference, strict=True):
        close = (
            isinstance(theirs, float)
            and isinstance(mine, float)
            and (math.isclose(mine, theirs, rel_tol=1e-5) or (math.isnan(mine) and math.isnan(theirs)))
        )
        if mine != theirs and not close:
            raise Mismatch(
                f"returns {str(mine)[:40]} where the reference returns {str(theirs)[:40]} ({what})"
            )
