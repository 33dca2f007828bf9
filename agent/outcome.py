"""What a step came to: its node, and its part of the step's event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.behaviour import behaviour
from agent.diagnose import diagnose_evaluation
from agent.generator import Draft, Exhausted, GenerationFailed
from agent.graph import SearchNode
from agent.hypothesis import with_verdict
from agent.judge import finite, judged
from agent.novelty import genome_digest, program_digest
from agent.step import Step
from agent.store import node_id


def accounts(made: Draft | GenerationFailed, generators: Sequence[str]) -> dict[str, Any]:
    """Who answered what, and what that cost; `generator` is empty where nobody in particular did."""
    return {
        "generator": made.generator or (generators[0] if len(generators) == 1 else ""),
        "used": list(made.used) if isinstance(made, Draft) else [],
        "tokens": made.tokens_in + made.tokens_out,
        "tokens_in": made.tokens_in,
        "tokens_out": made.tokens_out,
        **finite({"cost_usd": made.cost_usd}),
        "unmetered": bool(made.notes.get("unmetered")),
        "said": list(made.notes.get("model", ())),
    }


def failed(failure: GenerationFailed) -> dict[str, Any]:
    """A step without a candidate."""
    return {
        "outcome": "exhausted" if isinstance(failure, Exhausted) else "no_candidate",
        "error": str(failure),
    }


def drafted(draft: Draft) -> dict[str, Any]:
    """A step with a candidate, and the digests that it is known by from now on."""
    digests = [program_digest(draft.source)]
    if draft.genome is not None:
        digests.append(genome_digest(draft.genome))
    return {"outcome": "evaluated", "hypothesis": draft.hypothesis, "tried": digests}


def candidate(
    run_id: str,
    step: Step,
    draft: Draft,
    evaluation: Mapping[str, Any],
    *,
    source_sha: str,
    generator: str,
    facts: Mapping[str, Any],
    ceilings: Mapping[str, Any],
) -> SearchNode:
    """The node of a draft with its evaluation (JSON), diagnosis and the verdict on its hypothesis."""
    verdict, prompt = finite(evaluation), step.prompt
    node = SearchNode(
        node_id=node_id(run_id, step.number),
        parent_id=step.parent.node_id if step.parent else node_id(run_id, 0),
        step=step.number,
        generator=draft.generator or generator,
        source_sha=source_sha,
        digest=program_digest(draft.source),
        status="",
        hypothesis=draft.hypothesis,
        genome=draft.genome,
        prompt_sha=prompt.digest,
        compiler_made=draft.compiler_made,
        diagnosis=diagnose_evaluation(verdict, facts, ceilings),
        notes={
            **finite(draft.notes),
            "behaviour": behaviour(draft.source),
            **({"local_only": True} if prompt.local_only else {}),
        },
    )
    return with_verdict(judged(node, verdict), draft.stated(), step.parent)
