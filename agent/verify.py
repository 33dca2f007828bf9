"""The final measurement of the winner: more inputs, a longer clock, and torch.compile beside eager.

Candidates are measured briefly on the way, and the best of many brief measurements is partly the luckiest.
What a run reports is therefore measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agent.events import SearchEvent, Verifying
from agent.graph import SearchNode
from agent.judge import UNJUDGED, UNJUDGED_LIMIT, Judge, judged, unavailable

if TYPE_CHECKING:
    from agent.progress import RunProgress
    from agent.store import RunStore

# How many candidates are measured again before the best of them is taken.
_LIMIT = 3
_FIRST = "first_evaluation"
# What the final measurement does not look at again.
_KEPT = ("stages", "profile", "custom_kernel_share")


def verified(node: SearchNode, evaluation: dict[str, Any]) -> SearchNode:
    """The node with its final verdict; the first one is kept in its notes, and what only it has stays."""
    first = node.notes.get(_FIRST, node.evaluation)
    kept = {k: first[k] for k in _KEPT if first.get(k) is not None and evaluation.get(k) is None}
    evaluation = {**evaluation, **kept}
    return replace(judged(node, evaluation), notes={**node.notes, _FIRST: first})


def first_judged(node: SearchNode) -> SearchNode:
    """The node as it was before any verification, which is how the policy has seen it."""
    if _FIRST not in node.notes:
        return node
    notes = {k: v for k, v in node.notes.items() if k != _FIRST}
    return replace(judged(node, node.notes[_FIRST]), notes=notes)


class FinalVerification:
    """Chooses the winner of a run. Verdicts are stored one by one, so that a resumed run keeps them."""

    def __init__(self, store: RunStore, judge: Judge, emit: Callable[[SearchEvent], None]) -> None:
        self._store = store
        self._judge = judge
        self._emit = emit

    def choose(self, run_id: str, progress: RunProgress) -> SearchNode | None:
        """The best node that passes, or None.

        Goes on to the next candidate when one fails, or when its confirmed speedup is below what another one
        showed at the lower end of its interval. One that the harness cannot judge keeps its first verdict and
        is passed over; EvaluationUnavailable is raised when that leaves none.
        """
        unjudged: dict[str, dict[str, Any]] = {}
        while True:
            ranking = [node for node in progress.graph.ranking() if node.node_id not in unjudged]
            confirmed = [node for node in ranking if _FIRST in node.notes]
            waiting = [node for node in ranking if _FIRST not in node.notes]
            winner = confirmed[0] if confirmed else None
            looked_at = sum(_FIRST in node.notes for node in progress.graph)
            if (
                not waiting
                or len(unjudged) >= UNJUDGED_LIMIT
                or (winner and (looked_at >= _LIMIT or not _promises_more(waiting[0], winner)))
            ):
                if winner is None and unjudged:
                    raise unavailable(next(reversed(unjudged.values())))
                return winner
            verdict = self._judge_again(waiting[0])
            if verdict["status"] in UNJUDGED:
                unjudged[waiting[0].node_id] = verdict
            else:
                self._record(run_id, progress, verified(waiting[0], verdict))

    def _judge_again(self, node: SearchNode) -> dict[str, Any]:
        self._emit(Verifying(node))
        return self._judge.verdict(self._store.source(node), final=True)

    def _record(self, run_id: str, progress: RunProgress, final: SearchNode) -> None:
        payload = {"node_id": final.node_id, "status": final.status, "speedup": final.speedup}
        self._store.amend(run_id, progress.seq, "verification", payload, final)
        progress.seq += 1
        progress.amend(final)


def _promises_more(node: SearchNode, winner: SearchNode) -> bool:
    if node.compiler_made != winner.compiler_made:
        return winner.compiler_made
    return node.speedup_ci is not None and node.speedup_ci[0] > (winner.speedup or 0.0)
