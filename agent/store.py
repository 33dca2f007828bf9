"""Runs in the knowledge base's tables. Every step is one transaction, durable before the next one starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, SQLModel, col, func, select, update

from agent.credit import shares
from agent.errors import RunBusy, RunNotFound
from agent.graph import ROOT, SearchGraph, SearchNode
from agent.owner import alive, this_process
from agent.rows import RunInfo, StepRecord, StoredEvent, StoredRun, from_row, to_row
from agent.settings import SearchResult, SearchSettings
from kb.credit import give
from kb.tables import (
    LOCAL_ONLY,
    Chunk,
    Document,
    Event,
    Node,
    PromptUse,
    Run,
    RunState,
    Source,
    WorkItem,
    now,
)

if TYPE_CHECKING:
    from sqlalchemy import Table

    from kb import KnowledgeBase

# A step of another host that has not reported for so long is taken over.
LEASE = timedelta(minutes=15)
# The run's own lease is that of the step that its root stands for.
_RUN = 0


class RunStore:
    """Reads and writes runs. `kb` is an open KnowledgeBase."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._kb = kb
        self._owner = this_process()

    # --- writing ---

    def create(
        self,
        run_id: str,
        problem_name: str,
        problem_source: str,
        facts: dict[str, Any],
        settings: SearchSettings,
    ) -> SearchNode:
        """Store a new run with its root, whose evaluation carries the reference's time. Returns the root."""
        problem_sha = self._kb.blobs.put(problem_source)
        facts_sha = self._kb.blobs.put(json.dumps(facts, sort_keys=True))
        root = SearchNode(
            node_id=node_id(run_id, 0),
            parent_id=None,
            step=0,
            generator="problem",
            source_sha=problem_sha,
            digest=hashlib.sha256(problem_source.encode("utf-8", "surrogatepass")).hexdigest(),
            status=ROOT,
            evaluation={"baselines": {"eager_ms": facts.get("eager_ms"), "compile_ms": None}},
        )
        with self._session() as session:
            # The latest run is the latest, even where the clock has been set back.
            latest = session.exec(select(func.max(col(Run.created)))).one()
            session.add(
                Run(
                    id=run_id,
                    created=max(now(), latest + timedelta(microseconds=1)) if latest else now(),
                    problem_name=problem_name,
                    problem_sha=problem_sha,
                    facts_sha=facts_sha,
                    target=settings.target,
                    policy=settings.policy,
                    generator=settings.generator,
                    settings=settings.to_json(),
                    seed=settings.seed,
                )
            )
            session.flush()
            session.add(to_row(run_id, root))
            session.commit()
        return root

    def claim(self, run_id: str) -> None:
        """Take the run itself, until `release`. Raises RunBusy while another live process has it."""
        self.lease(run_id, _RUN, {})

    def lease(self, run_id: str, step: int, payload: dict[str, Any]) -> None:
        """Take a step and renew what this process holds of the run.

        Raises RunBusy while another live process holds anything of it.
        """
        with self._session() as session:
            self._lease(session, run_id, step, payload)
            session.commit()

    def ask(self, run_id: str, seq: int, step: int, payload: dict[str, Any]) -> None:
        """Record that a step was decided, and take it. Raises RunBusy as `lease` and `append` do."""
        with self._session() as session:
            self._lease(session, run_id, step, payload)
            self._event(session, run_id, seq, "asked", payload)
            session.commit()

    def _lease(self, session: Session, run_id: str, step: int, payload: dict[str, Any]) -> None:
        # Writing first takes the lock, so that two processes cannot both see a free lease.
        session.execute(update(Run).where(col(Run.id) == run_id).values(updated=now()))
        held = session.exec(
            select(WorkItem).where(WorkItem.run_id == run_id, WorkItem.state == "leased")
        ).all()
        for item in held:
            if item.lease_owner == self._owner:
                item.lease_until = now() + LEASE
                session.add(item)
            elif alive(item.lease_owner, item.lease_until):
                raise RunBusy(
                    f"run {run_id} is being worked on by {item.lease_owner}",
                    "wait for that search, or stop it first",
                )
            elif item.key != work_key(run_id, step):
                session.delete(item)
        item = session.get(WorkItem, work_key(run_id, step)) or WorkItem(
            key=work_key(run_id, step), run_id=run_id
        )
        item.state, item.lease_owner, item.lease_until = "leased", self._owner, now() + LEASE
        item.attempts += 1
        item.payload = payload
        session.add(item)

    def release(self, run_id: str) -> None:
        """Give up what this process has leased of the run and not finished."""
        with self._session() as session:
            mine = select(WorkItem).where(
                WorkItem.run_id == run_id, WorkItem.state == "leased", WorkItem.lease_owner == self._owner
            )
            for item in session.exec(mine).all():
                item.state, item.lease_owner, item.lease_until = "open", "", None
                session.add(item)
            session.commit()

    def append(self, run_id: str, seq: int, step: int, record: StepRecord) -> None:
        """Finish a step: event, node, prompt uses, totals and lease in one transaction.

        Raises RunBusy when another process has finished a step of the run in the meantime.
        """
        with self._session() as session:
            self._event(session, run_id, seq, "step", record.payload)
            if record.node is not None:
                session.add(to_row(run_id, record.node))
                session.flush()
                for use in record.prompt.provenance if record.prompt else []:
                    session.add(
                        PromptUse(
                            node_id=record.node.node_id,
                            slot=use.slot,
                            chunk_id=use.chunk_id,
                            citation=use.citation,
                            score=use.score,
                        )
                    )
                if record.prompt and record.credit is not None:
                    give(session, shares(record.prompt, record.payload.get("used", ())), record.credit)
            run = self._run(session, run_id)
            run.tokens, run.cost_usd, run.updated = record.tokens, record.cost_usd, now()
            run.best_node_id = record.best_node_id
            session.add(run)
            self._done(session, run_id, step)
            session.commit()

    def note(self, run_id: str, seq: int, kind: str, payload: dict[str, Any]) -> None:
        """Record an event that is no step. Raises RunBusy as `append` does."""
        with self._session() as session:
            self._event(session, run_id, seq, kind, payload)
            session.commit()

    def amend(self, run_id: str, seq: int, kind: str, payload: dict[str, Any], node: SearchNode) -> None:
        """Record a later look at a node that exists: its verdict, numbers and notes are replaced.

        Raises RunBusy as `append` does.
        """
        with self._session() as session:
            self._event(session, run_id, seq, kind, payload)
            row, new = session.get_one(Node, node.node_id), to_row(run_id, node)
            for name in ("status", "fitness", "speedup", "speedup_lo", "speedup_hi", "evaluation", "notes"):
                setattr(row, name, getattr(new, name))
            session.add(row)
            session.commit()

    def set_state(self, run_id: str, state: RunState, stop_reason: str = "") -> None:
        """Mark a run as running, interrupted or failed, and why."""
        with self._session() as session:
            run = self._run(session, run_id)
            run.state, run.stop_reason, run.updated = state, stop_reason, now()
            session.add(run)
            session.commit()

    def reconfigure(self, run_id: str, seq: int, settings: SearchSettings) -> None:
        """The run goes on with other settings; the event says with which. Raises RunBusy as `append` does."""
        with self._session() as session:
            run = self._run(session, run_id)
            changed = {k: v for k, v in settings.to_json().items() if run.settings.get(k) != v}
            self._event(session, run_id, seq, "settings", changed)
            run.settings, run.generator, run.updated = settings.to_json(), settings.generator, now()
            session.add(run)
            session.commit()

    def finish(
        self, run_id: str, seq: int, stop_reason: str, result: SearchResult, best: SearchNode | None
    ) -> None:
        """Close a run with its result; the root learns the baselines that the winner was measured against.

        Raises RunBusy as `append` does.
        """
        with self._session() as session:
            self._event(session, run_id, seq, "finished", result.to_json())
            self._done(session, run_id, _RUN)
            run = self._run(session, run_id)
            run.state, run.stop_reason, run.updated = RunState.FINISHED, stop_reason, now()
            run.best_node_id = best.node_id if best else None
            session.add(run)
            if best is not None and best.evaluation.get("baselines"):
                root = session.get_one(Node, node_id(run_id, 0))
                root.evaluation = {"baselines": best.evaluation["baselines"]}
                session.add(root)
            session.commit()

    # --- reading ---

    def list_runs(self) -> list[RunInfo]:
        """All runs, latest first."""
        with self._session() as session:
            runs = session.exec(select(Run).order_by(col(Run.created).desc(), col(Run.id).desc())).all()
            return [self._info(session, run) for run in runs]

    def resolve(self, run_id: str) -> str:
        """The id that `run_id` means: an id, a unique prefix, or `last`. Raises RunNotFound."""
        with self._session() as session:
            if run_id == "last":
                statement = select(Run.id).order_by(col(Run.created).desc(), col(Run.id).desc()).limit(1)
            else:
                statement = select(Run.id).where(col(Run.id).startswith(run_id, autoescape=True))
            found: Sequence[str] = session.exec(statement).all()
        if run_id and run_id in found:
            return run_id
        if len(found) == 1:
            return found[0]
        what = "no run" if not found else f"{len(found)} runs"
        raise RunNotFound(f"{what} with id {run_id!r}", "see: kernelevolve runs list")

    def settings(self, run_id: str) -> SearchSettings:
        """What a run was asked to do. Raises RunNotFound."""
        with self._session() as session:
            return SearchSettings.from_json(dict(self._run(session, self.resolve(run_id)).settings))

    def result(self, run_id: str) -> SearchResult | None:
        """What a finished run came to; None for one that can be continued. Raises RunNotFound."""
        run_id = self.resolve(run_id)
        with self._session() as session:
            if self._run(session, run_id).state != RunState.FINISHED:
                return None
            events = select(Event).where(Event.run_id == run_id, Event.kind == "finished")
            last = session.exec(events.order_by(col(Event.seq).desc())).first()
        return SearchResult.from_json(last.payload) if last else None

    def load(self, run_id: str) -> StoredRun:
        """A run with its graph and events. Raises RunNotFound."""

        run_id = self.resolve(run_id)
        with self._session() as session:
            run = self._run(session, run_id)
            info = self._info(session, run)
            graph = SearchGraph()
            private = shown_local_only(session, run_id)
            # Plain rows: objects of the mapper would take most of the time of a run with 10,000 nodes.
            nodes = _table(Node).select().where(col(Node.run_id) == run_id).order_by(col(Node.step))
            for row in session.connection().execute(nodes):
                node = from_row(row)
                if node.node_id in private:  # its source may have become local-only since
                    node = replace(node, notes={**node.notes, "local_only": True})
                graph.add(node)
            logged = _table(Event).select().where(col(Event.run_id) == run_id).order_by(col(Event.seq))
            events = [
                StoredEvent(event.seq, event.kind, event.payload)
                for event in session.connection().execute(logged)
            ]
            problem_sha, facts_sha, stored = run.problem_sha, run.facts_sha, dict(run.settings)
        return StoredRun(
            info=info,
            settings=SearchSettings.from_json(stored),
            problem_source=self._kb.blobs.text(problem_sha),
            facts=json.loads(self._kb.blobs.text(facts_sha)),
            graph=graph,
            events=events,
        )

    def source(self, node: SearchNode) -> str:
        """The candidate's source."""
        return self._kb.blobs.text(node.source_sha) if node.source_sha else ""

    def answer(self, event: Mapping[str, Any]) -> str:
        """What a step's generator said, word by word; empty where it said nothing."""
        return self._kb.blobs.text(event["raw_sha"]) if event.get("raw_sha") else ""

    def prompt(self, node: SearchNode) -> str:
        """The text of the prompt that led to the node; empty for the root."""
        return self._kb.blobs.text(node.prompt_sha) if node.prompt_sha else ""

    def prompt_uses(self, node_id: str) -> list[dict[str, Any]]:
        """Provenance of the node's prompt: slot, chunk_id, citation, score."""
        with self._session() as session:
            uses = session.exec(
                select(PromptUse).where(PromptUse.node_id == node_id).order_by(col(PromptUse.id))
            ).all()
            return [
                {"slot": u.slot, "chunk_id": u.chunk_id, "citation": u.citation, "score": u.score}
                for u in uses
            ]

    def best(self, run_id: str) -> SearchNode | None:
        """The run's best correct node so far, or its verified winner; None when nothing is correct."""
        run = self.load(run_id)
        return run.graph.node(run.info.best_node_id) if run.info.best_node_id else None

    # --- helpers ---

    def _event(self, session: Session, run_id: str, seq: int, kind: str, payload: dict[str, Any]) -> None:
        session.add(Event(run_id=run_id, seq=seq, kind=kind, payload=payload))
        try:
            session.flush()
        except IntegrityError as error:
            raise RunBusy(f"run {run_id} was continued by another process", "resume it again") from error

    def _done(self, session: Session, run_id: str, step: int) -> None:
        item = session.get(WorkItem, work_key(run_id, step))
        if item is not None:
            item.state, item.lease_owner, item.lease_until = "done", "", None
            session.add(item)

    def _session(self) -> Session:
        return self._kb.session()

    def _run(self, session: Session, run_id: str) -> Run:

        run = session.get(Run, run_id)
        if run is None:
            raise RunNotFound(f"no run with id {run_id!r}", "see: kernelevolve runs list")
        return run

    def _info(self, session: Session, run: Run) -> RunInfo:

        steps = session.exec(
            select(func.count()).select_from(Event).where(Event.run_id == run.id, col(Event.kind) == "step")
        ).one()
        best = session.get(Node, run.best_node_id) if run.best_node_id else None
        return RunInfo(
            run_id=run.id,
            problem=run.problem_name,
            target=run.target,
            policy=run.policy,
            generator=run.generator,
            state=run.state,
            stop_reason=run.stop_reason,
            steps=steps,
            best_node_id=run.best_node_id,
            best_speedup=best.speedup if best else None,
            tokens=run.tokens,
            cost_usd=run.cost_usd,
            seed=run.seed,
            created=run.created,
            updated=run.updated,
        )


def _table(model: type[SQLModel]) -> Table:
    """The table of a model."""
    found: Table = model.__table__  # type: ignore[attr-defined]
    return found


def shown_local_only(session: Session, run_id: str) -> set[str]:
    """Nodes of a run whose prompt had passages of sources that are local-only now."""
    statement = (
        select(PromptUse.node_id)
        .join(Node, col(Node.id) == col(PromptUse.node_id))
        .join(Chunk, col(Chunk.id) == col(PromptUse.chunk_id))
        .join(Document, col(Document.id) == col(Chunk.document_id))
        .join(Source, col(Source.id) == col(Document.source_id))
        .where(Node.run_id == run_id, Source.visibility == LOCAL_ONLY)
    )
    return set(session.exec(statement))


def node_id(run_id: str, step: int) -> str:
    """The id of a run's node: run and step."""
    return f"{run_id}-{step:04d}"


def work_key(run_id: str, step: int) -> str:
    """Content hash of a step: its run (problem, settings, seed) and its number decide it."""
    return hashlib.sha256(f"step:{run_id}:{step}".encode()).hexdigest()
