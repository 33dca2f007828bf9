"""Does a recorded run follow from its own log? Every decision is made again, in the recorded order."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from agent.experience import Experience
from agent.policies import Selection, load_policy
from agent.progress import RunProgress
from agent.rows import StoredEvent, StoredRun
from agent.step import step_rng
from agent.store import RunStore

if TYPE_CHECKING:
    from kb import KnowledgeBase


@dataclass(frozen=True)
class Divergence:
    """At event `seq` the log says `recorded`, and what went before leads to `found`."""

    seq: int
    step: int
    what: str
    recorded: Any
    found: Any


@dataclass(frozen=True)
class ReplayReport:
    """`asked` decisions were made again and `told` results accounted for, in order of completion."""

    run_id: str
    asked: int
    told: int
    divergences: tuple[Divergence, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(kb: KnowledgeBase, run_id: str) -> ReplayReport:
    """Make every decision of a run again from its events alone: no model, no judge, nothing is stored.

    Raises RunNotFound.
    """
    stored = RunStore(kb).load(run_id)
    settings = stored.settings
    progress = RunProgress(load_policy(settings.policy, settings.drafts), Experience.of(settings))
    progress.graph.add(stored.graph.root)
    found: list[Divergence] = []
    asked = 0
    for event in stored.events:
        if event.kind == "asked":
            asked += 1
            found += _decide(kb, progress, stored, event)
        progress.apply(event, stored.graph)
    info, last = stored.info, stored.events[-1].seq if stored.events else 0
    for what, recorded, computed in (
        ("steps", info.steps, progress.steps),
        ("tokens", info.tokens, progress.tokens),
        ("cost_usd", info.cost_usd, progress.cost_usd or 0.0),
    ):
        if recorded != computed:
            found.append(Divergence(last, progress.last_step, what, recorded, computed))
    return ReplayReport(info.run_id, asked, progress.steps, tuple(found))


def _decide(
    kb: KnowledgeBase, progress: RunProgress, stored: StoredRun, event: StoredEvent
) -> list[Divergence]:
    payload = event.payload
    step = payload["step"]
    chosen = progress.choose(RunStore(kb).source, step_rng(stored.settings, step))
    models = payload.get("generators", [])
    pairs = [
        ("step", step, progress.last_step + 1),
        ("pending", payload["pending"], list(progress.pending)),
        ("generators", models, progress.bandit.order(models, list(progress.asked_of.values()))),
        ("selection", Selection.from_json(payload).to_json(), chosen.to_json() if chosen else None),
    ]
    return [
        Divergence(event.seq, step, what, recorded, computed)
        for what, recorded, computed in pairs
        if recorded != computed
    ]
