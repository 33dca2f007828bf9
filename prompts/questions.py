"""Deciding what to ask the knowledge base, from the diagnosis of the parent and what has failed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kb.diagnoses import TROUBLE
from prompts.request import PromptRequest
from prompts.staging import languages_of, level_of

_MAX_OPERATORS = 12
_REDUCTIONS = frozenset(
    """all amax amin any argmax argmin cumsum linalg_vector_norm log_softmax logsumexp max mean min prod
    softmax std sum var var_mean""".split()  # noqa: SIM905 - a list literal would be one name a line
)
_LAYOUTS = frozenset(("permute", "transpose", "t"))
# Passages asked for at each level of specificity (`prompts.staging.LEVELS`) with the usual budget.
_HARDWARE = (1, 4, 2, 1)
_KERNELS = (1, 1, 2, 4)
_USUAL_BUDGET = 16_000


@dataclass(frozen=True)
class Question:
    """One retrieval: `kinds` None asks for skills. `purpose` is recorded with every passage it brings."""

    slot: str
    text: str
    kinds: tuple[str, ...] | None
    k: int
    purpose: str


def operators(facts: Mapping[str, Any]) -> list[str]:
    """Names of the reference's operators in order of first use, without namespace and overload."""
    seen: dict[str, None] = {}
    for node in facts.get("nodes") or []:
        name = re.sub(r"^(?:torch\.ops\.)?aten[.:]+", "", str(node["op"])).split(".")[0].lstrip("_")
        if name and name != "getitem":
            seen.setdefault(name)
    return list(seen)


def access(facts: Mapping[str, Any]) -> str:
    """How the reference walks its tensors, in the words of documents: reduced dimensions, changed layouts."""
    tensors = [t for part in ("inputs", "parameters", "buffers", "constants") for t in facts.get(part) or []]
    ranks = {str(t["name"]): len(t["shape"]) for t in tensors}
    found: dict[str, None] = {}
    for node in facts.get("nodes") or []:
        args = node["args"]
        first = args[0] if args else None
        rank = ranks.get(str(first["ref"]), 0) if isinstance(first, dict) and "ref" in first else 0
        ranks.update((str(node["name"]), len(t["shape"])) for t in node["outputs"][:1])
        name = re.sub(r"^(?:torch\.ops\.)?aten[.:]+_?", "", str(node["op"])).split(".")[0]
        if name in _REDUCTIONS and rank:
            found.setdefault(_reduced(args[1] if len(args) > 1 else None, rank))
        elif name in _LAYOUTS:
            found.setdefault("transposed or permuted layout")
    return ", ".join(found)


def _reduced(dims: Any, rank: int) -> str:
    listed = [d % rank for d in (dims if isinstance(dims, list) else [dims]) if isinstance(d, int)]
    if not listed or len(set(listed)) == rank:
        return "reduction of everything to one value"
    if rank - 1 in listed:
        return "over the last dimension, row by row"
    return f"over a dimension that is not the last (dim={listed[0]}), strided memory"


def plan(request: PromptRequest) -> list[Question]:
    """A step's questions, dominant trouble first: drafts ask for the overview, later steps for the cure."""
    diagnosis = request.diagnosis or {}
    level = level_of(request)
    ops = " ".join(operators(request.facts)[:_MAX_OPERATORS]) or str(request.facts.get("name", ""))
    walk = access(request.facts)
    dtypes = " ".join(sorted({str(t["dtype"]) for t in request.facts.get("inputs") or []}))
    languages = " ".join(languages_of(request))
    architecture = str(request.target_facts.get("architecture", ""))
    trouble = TROUBLE.get(request.bottleneck, "")
    error = str(diagnosis.get("error") or "")
    place = " ".join(part for part in (request.target, architecture, languages) if part)

    questions = []
    if error:
        kinds = ("guidance", "document", "constraint")
        questions.append(Question("guidance", f"{error} {languages}", kinds, 4, "the error"))
    if request.idea:
        idea = f"{request.idea} {ops}"
        questions.append(Question("guidance", idea, ("guidance", "document"), 4, "the idea"))
    if request.parent is None:
        text = f"{ops} {walk} {dtypes} kernel overview: how to make it fast on {place}"
        purpose = "overview of the operators"
    elif trouble:
        actions = " ".join(str(a) for a in diagnosis.get("actions") or [])
        text, purpose = f"{trouble} {ops} {actions}", f"bottleneck: {request.bottleneck}"
    else:
        text, purpose = f"{ops} {dtypes} faster kernel {place}", "no clear bottleneck"
    questions.append(Question("guidance", text, ("guidance", "document"), 6, purpose))
    lessons = [str(f.get("error") or f.get("hypothesis") or "") for f in request.failed[-2:]]
    if any(lessons):
        text = f"{' '.join(lessons)} {ops}"
        questions.append(Question("guidance", text, ("guidance", "document"), 2, "what failed before"))
    # What earlier runs won with goes into the question, so that retrieval has it beside what fits anyway.
    names = [str(name) for example in request.examples for name in example.get("skills") or ()]
    proven = "".join(f"{name} " for name in dict.fromkeys(names))
    rules = f"rules and limits for candidates on {place} {error or trouble}"
    questions += [
        Question("skills", f"{proven}{ops} {walk} {dtypes} {trouble}", None, 8, "skills for the operators"),
        Question(
            "skills", f"{ops} {dtypes} {languages}", ("kernel",), _KERNELS[level], "kernels for the operators"
        ),
        Question("constraints", rules, ("constraint",), 4, "rules of the target"),
        Question("target", f"{place} {trouble or ops}", ("hardware",), _HARDWARE[level], "the hardware"),
        Question("guidance", f"profile of {ops} {trouble}", ("trace",), 2, "profiles of similar kernels"),
    ]
    more = _share(request.budget_tokens)
    return [replace(question, k=round(question.k * more)) for question in questions]


def _share(budget_tokens: int) -> float:
    """How many times more to ask for than for the usual budget: an eighth of a longer prompt is better than
    all of it that is less and less to the point.
    """
    return 1 + max(0.0, math.log2(budget_tokens / _USUAL_BUDGET))
