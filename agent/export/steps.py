"""A run as a sequence of steps, each with what was known when it was taken and nothing of what came later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.export.sources import UNKNOWN, Used, used_by
from agent.graph import SearchNode
from agent.judge import UNJUDGED
from agent.store import RunStore
from agent.verify import first_judged
from kb.tables import Node

if TYPE_CHECKING:
    from agent.rows import StoredRun
    from kb import KnowledgeBase


@dataclass(frozen=True)
class Step:
    """One candidate. `node` is as it was first judged; `refuted` says that a later, longer look disagreed.
    `base` is the source that it started from, None for a draft.

    `state` is what the run knew before: see `steps_of`. `sources` are the documents that shaped prompt or
    answer, directly or through an earlier step that the prompt told of; `private` where one of them must stay
    on this machine.
    """

    node: SearchNode
    prompt: str
    base: str | None
    answer: str
    state: dict[str, Any]
    sources: frozenset[Used]
    private: bool
    refuted: bool

    @property
    def licences(self) -> set[str]:
        return {used.licence for used in self.sources}

    @property
    def reward(self) -> float | None:
        """The measured fitness, 0 for a failure; None where nothing was measured, or nobody's doing."""
        node = self.node
        untimed = node.correct and not node.fitness
        unmeasured = untimed or node.status == "compiled" or node.status in UNJUDGED
        return node.fitness if self.written and not unmeasured else None

    @property
    def written(self) -> bool:
        """Whether it answers a prompt: the engine tunes numbers and takes kernels over without one."""
        return bool(self.prompt) and not self.node.compiler_made

    @property
    def outcome(self) -> dict[str, Any]:
        """What came of the step as it was measured then."""
        node = self.node
        interval = list(node.speedup_ci) if node.speedup_ci else None
        return {
            "node_id": node.node_id,
            "step": node.step,
            "status": node.status,
            "speedup": node.speedup,
            "speedup_ci": interval,
            "reward": self.reward,
        }


def steps_of(kb: KnowledgeBase, run: StoredRun) -> list[Step]:
    """The candidates of a run in the order in which they were finished.

    `state` has `step`; `steps_done`, `valid`, `best_speedup` and `best_step` of the run when this step was
    asked for, without what was in flight; `eager_ms` of the reference as first seen; `memory`; and
    `parent` (null for a draft): its `step`, `status`, `speedup`, `speedup_ci` and `bottleneck` as this step
    met them.
    """
    return list(_steps(kb, run))


def _steps(kb: KnowledgeBase, run: StoredRun) -> Iterator[Step]:
    store, used = RunStore(kb), used_by(kb, run.info.run_id)
    nodes: dict[str, SearchNode] = {}
    shaped: dict[str, frozenset[Used]] = {}  # what shaped a node
    told: dict[str | None, frozenset[Used]] = {}  # what shaped the children of a parent so far
    secret: set[str] = set()
    secret_families: set[str | None] = set()  # parents of which a child must stay here
    done = valid = 0
    best: SearchNode | None = None
    seen: dict[int, dict[str, Any]] = {}  # what was known when a step was asked for
    for event in run.events:
        payload = event.payload
        known = {
            "steps_done": done,
            "valid": valid,
            "best_speedup": best.speedup if best else None,
            "best_step": best.step if best else None,
        }
        if event.kind == "asked":
            seen[payload["step"]] = known
        if event.kind != "step":
            continue
        parent_id, memory = payload.get("parent_id"), payload.get("memory", "lineage")
        node_id = payload.get("node_id")
        if node_id is None:
            done += 1
            if payload.get("local_only"):
                secret_families.add(parent_id)
            continue
        final = run.graph.node(node_id)
        node = nodes[node_id] = first_judged(final)
        parent = nodes.get(node.parent_id or "")  # None for a draft: the root is no candidate
        parent_id = parent.node_id if parent else None
        sources = used.get(node_id, frozenset()) | shaped.get(parent_id or "", frozenset())
        private = final.local_only or parent_id in secret
        if taken_from := (payload.get("injected") or {}).get("node"):  # by the engine, from another run
            taken, hidden = _elsewhere(kb, str(taken_from))
            sources, private = sources | taken, private or hidden
        if memory != "none" or payload.get("idea"):  # an idea is of an earlier step's answer
            sources |= told.get(parent_id, frozenset())
            private |= bool(secret_families)  # what to avoid may be from anywhere in the run
        private |= any(source.local_only for source in sources)
        state = {
            "step": node.step,
            **seen.get(node.step, known),
            "eager_ms": run.facts.get("eager_ms"),
            "memory": memory,
            "parent": _met(parent) if parent else None,
        }
        yield Step(
            node=node,
            prompt=store.prompt(node),
            base=store.source(parent) if parent else None,
            answer=answer(node.hypothesis, store.source(node)),
            state=state,
            sources=sources,
            private=private,
            refuted=node.correct and not final.correct,
        )
        shaped[node_id] = sources
        told[parent_id] = told.get(parent_id, frozenset()) | sources
        if private:
            secret.add(node_id)
            secret_families.add(parent_id)
        done += 1
        valid += node.correct
        if node.correct and not node.compiler_made and (best is None or node.rank > best.rank):
            best = node


def _elsewhere(kb: KnowledgeBase, node_id: str) -> tuple[frozenset[Used], bool]:
    """What shaped a node of another run, and whether that must stay here; one that is gone is not known to
    be free.
    """
    with kb.session() as session:
        row = session.get(Node, node_id)
    if row is None:
        return frozenset({Used(node_id, UNKNOWN, False)}), False
    graph, used = RunStore(kb).load(row.run_id).graph, used_by(kb, row.run_id)
    line = [graph.node(node_id), *graph.lineage(node_id)]
    sources: frozenset[Used] = frozenset().union(*(used.get(n.node_id, frozenset()) for n in line))
    return sources, any(n.local_only for n in line)


def _met(parent: SearchNode) -> dict[str, Any]:
    return {
        "step": parent.step,
        "status": parent.status,
        "speedup": parent.speedup,
        "speedup_ci": list(parent.speedup_ci) if parent.speedup_ci else None,
        "bottleneck": parent.diagnosis.get("bottleneck"),
    }


def answer(hypothesis: str, source: str) -> str:
    """A candidate as the prompt asks for it: the hypothesis on one line, then one fenced file."""
    return f"HYPOTHESIS: {' '.join(hypothesis.split())}\n\n{fenced(source)}\n"


def fenced(source: str) -> str:
    """A Python file as a fenced block that nothing in it can end."""
    longest = max((len(run) for run in re.findall("`+", source)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{source.rstrip()}\n{fence}"
