"""A run's best kernels as documents: a folder of sources with their times, like any other."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from sqlmodel import Session, col, select

from ingest.errors import RunNotIngestible
from kb import KnowledgeBase
from kb.tables import LOCAL_ONLY, Chunk, Document, Node, PromptUse, Run, Source

PREFIX = "run:"
MAX_KERNELS = 5  # of one run: the rest are variants of these, and would crowd out other documents


def names_run(path: str | Path) -> bool:
    """Whether `run:ID` was said, rather than the name of a file."""
    return str(path).startswith(PREFIX) and not Path(path).exists()


@dataclass(frozen=True)
class RunFolder:
    """What was written: `folder` below the home's `runs/`, the run's id and target, and whether its kernels
    must stay on this machine because a prompt of the run held passages that must.
    """

    folder: Path
    run_id: str
    target: str
    local_only: bool


def write_run(kb: KnowledgeBase, run_id: str) -> RunFolder:
    """Write the fastest correct, timed kernels of a run with a table of their times.

    Of equal programs only one, and none that a compiler made. Raises RunNotIngestible.
    """
    with kb.session() as session:
        ids = session.exec(select(Run.id).where(col(Run.id).startswith(run_id, autoescape=True))).all()
        exact = run_id if run_id in ids else ids[0] if len(ids) == 1 else None
        run = session.get(Run, exact) if run_id and exact else None
        if run is None:
            what = "no run" if not ids else f"{len(ids)} runs"
            raise RunNotIngestible(f"{what} with id {run_id!r}", "see: kernelevolve runs list")
        nodes = session.exec(
            select(Node)
            .where(Node.run_id == run.id, Node.status == "correct", col(Node.speedup).is_not(None))
            .order_by(col(Node.speedup).desc(), col(Node.step))
        ).all()
        chosen: dict[str, Node] = {}
        for node in nodes:
            if not node.compiler_made and node.evaluation.get("timed", True) and len(chosen) < MAX_KERNELS:
                chosen.setdefault(node.digest, node)
        local_only = _is_local_only(session, run.id)
    if not chosen:
        raise RunNotIngestible(f"run {run.id} has no correct kernel with a speedup", "let it search longer")
    folder = kb.home / "runs" / run.id / "kernels"
    folder.mkdir(parents=True, exist_ok=True)
    slug = re.sub(r"\W+", "_", run.problem_name).strip("_")[:60] or "kernel"
    texts = {f"{slug}_{node.step:04d}.py": kb.blobs.text(node.source_sha) for node in chosen.values()}
    lines = [json.dumps(_record(name, node, run)) for name, node in zip(texts, chosen.values(), strict=True)]
    texts["timings.jsonl"] = "\n".join(lines) + "\n"
    for file in folder.iterdir():
        if file.name not in texts:
            file.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
    return RunFolder(folder, run.id, run.target, local_only)


def _record(name: str, node: Node, run: Run) -> dict[str, object]:
    """In the form that `ingest.measurements` documents."""
    evaluation = node.evaluation
    baseline = evaluation.get("baseline") or "eager"
    record = {
        "kernel": name,
        "target": run.target,
        "device": evaluation.get("device"),
        "shape": run.problem_name,
        "time_ms": (evaluation.get("candidate_ms") or {}).get("median"),
        "baseline_ms": (evaluation.get("baselines") or {}).get(f"{baseline}_ms"),
        "speedup": node.speedup,
        "baseline": baseline,
        "run": run.id,
        "hypothesis": node.hypothesis[:80],
    }
    return {key: value for key, value in record.items() if value not in (None, "")}


def _is_local_only(session: Session, run_id: str) -> bool:
    shown = session.exec(
        select(PromptUse.id)
        .join(Node, col(Node.id) == col(PromptUse.node_id))
        .join(Chunk, col(Chunk.id) == col(PromptUse.chunk_id))
        .join(Document, col(Document.id) == col(Chunk.document_id))
        .join(Source, col(Source.id) == col(Document.source_id))
        .where(Node.run_id == run_id, Source.visibility == LOCAL_ONLY)
        .limit(1)
    ).first()
    notes = session.exec(select(Node.notes).where(Node.run_id == run_id)).all()
    return shown is not None or any(note.get("local_only") for note in notes)
