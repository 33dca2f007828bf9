"""What earlier runs of the store teach a new one: what failed on its problem, and nodes that match."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlmodel import Session, col, select

from agent.errors import RunNotFound
from agent.generator import Draft
from agent.graph import SearchNode
from agent.memory import FAILURES, NegativeMemory
from agent.novelty import program_digest
from agent.policies.base import WARM_START
from agent.rows import from_row
from agent.store import shown_local_only
from agent.warm_start import (
    MOST,
    Match,
    alike_enough,
    claim_of,
    fits,
    same_vendor,
    similarity,
)
from kb.tables import Node, Run

if TYPE_CHECKING:
    from kb import KnowledgeBase

# Of the latest runs and of their latest nodes, so many are looked at.
_RUNS = 200
_NODES = 400
# Strategies to avoid that a run takes over from earlier ones.
_AVOID = 12


@dataclass(frozen=True)
class Earlier:
    """Taken when a run begins and stored with it: what other runs do meanwhile does not change it."""

    avoid: list[dict[str, Any]] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {"avoid": self.avoid, "matches": [match.to_json() for match in self.matches]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Earlier:
        return cls(list(data["avoid"]), [Match.from_json(match) for match in data["matches"]])


def look_back(
    kb: KnowledgeBase,
    run_id: str,
    problem_source: str,
    facts: dict[str, Any],
    target: str,
    *,
    failures: bool,
    matches: bool,
    hosted: bool,
) -> Earlier:
    """What the runs before `run_id` say: with `failures`, what failed on the same problem and target; with
    `matches`, the best nodes of runs for alike problems on targets of the same vendor. A `hosted` model is
    shown no local-only ones as examples.
    """
    avoid: list[dict[str, Any]] = []
    found: list[Match] = []
    with kb.session() as session:
        latest = select(Run).where(Run.id != run_id).order_by(col(Run.created).desc()).limit(_RUNS)
        runs = [run for run in session.exec(latest) if same_vendor(run.target, target)]
        digest = program_digest(problem_source)
        own = {run.id for run in runs if _same_problem(kb, run, problem_source, digest)}
        if failures:
            avoid = _failures(session, [run.id for run in runs if run.id in own and run.target == target])
        if matches:
            for run in runs:
                match = _match(kb, session, run, facts, same_problem=run.id in own)
                if match is not None and not (hosted and match.local_only and match.kind == "alike"):
                    found.append(match)
    found.sort(key=lambda match: (match.kind != "fits", -match.similarity, -match.speedup))
    return Earlier(avoid, found[:MOST])


def _same_problem(kb: KnowledgeBase, run: Run, source: str, digest: str) -> bool:
    theirs = kb.blobs.text(run.problem_sha)
    return theirs == source or program_digest(theirs) == digest


def _failures(session: Session, run_ids: list[str]) -> list[dict[str, Any]]:
    """Judged failures and refuted hypotheses of these runs, the most frequent ones."""
    memory = NegativeMemory()
    told = (*FAILURES, "correct")
    statement = (
        select(Node)
        .where(col(Node.run_id).in_(run_ids), col(Node.status).in_(told))
        .order_by(col(Node.created).desc())
        .limit(_NODES)
    )
    rows = list(session.exec(statement))
    private = {node for run_id in run_ids for node in shown_local_only(session, run_id)}
    for row in reversed(rows):
        node = from_row(row)
        if row.id in private:
            node.notes["local_only"] = True
        memory.tell(node, row.run_id)
    return memory.entries(limit=_AVOID)


def _match(
    kb: KnowledgeBase, session: Session, run: Run, facts: dict[str, Any], *, same_problem: bool
) -> Match | None:
    row = session.get(Node, run.best_node_id) if run.best_node_id else None
    if row is None or row.status != "correct" or row.compiler_made or not row.speedup:
        return None
    theirs = json.loads(kb.blobs.text(run.facts_sha))
    value = 1.0 if same_problem else similarity(facts, theirs)
    kind = "fits" if same_problem or fits(facts, theirs) else "alike"
    if kind == "alike" and not alike_enough(value):
        return None
    genes = (row.genome or {}).get("genes") or {}
    return Match(
        node_id=row.id,
        run_id=run.id,
        problem=run.problem_name,
        target=run.target,
        speedup=row.speedup,
        similarity=round(value, 4),
        kind="fits" if kind == "fits" else "alike",
        skills=tuple(sorted({str(g["skill"]) for g in genes.values() if g.get("skill")})),
        local_only=bool(row.notes.get("local_only")) or row.id in shown_local_only(session, run.id),
    )


def taken_over(kb: KnowledgeBase, match: Match) -> Draft:
    """A node of an earlier run as a candidate of this one, to be judged like any other."""
    node = _node(kb, match)
    claim = claim_of(match, node)
    notes = {"taken_over": {"run": match.run_id, "node": match.node_id}}
    return Draft(
        source=kb.blobs.text(node.source_sha),
        hypothesis=claim.text,
        genome=node.genome,
        claim=claim,
        generator=WARM_START,
        notes={**notes, "local_only": True} if match.local_only else notes,
    )


def example(kb: KnowledgeBase, match: Match) -> dict[str, Any]:
    """A kernel of another problem as `prompts.PromptRequest.examples` takes it."""
    node = _node(kb, match)
    return {
        "origin": f"run {match.run_id}, for another problem ({match.problem}) on {match.target}",
        "status": node.status,
        "speedup": match.speedup,
        "hypothesis": node.hypothesis,
        "source": kb.blobs.text(node.source_sha),
        "skills": list(match.skills),
        "local_only": match.local_only,
    }


def _node(kb: KnowledgeBase, match: Match) -> SearchNode:
    with kb.session() as session:
        row = session.get(Node, match.node_id)
        if row is None:
            raise RunNotFound(
                f"step {match.node_id} of an earlier run is gone, and this run was told of it",
                "start a new run",
            )
        return from_row(row)
