"""The texts of a distilled skill's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.export.sources import UNKNOWN
from agent.export.steps import Step, fenced

if TYPE_CHECKING:
    from agent.graph import SearchNode
    from agent.rows import StoredRun

EVIDENCE, SPEC = "evidence.json", "skill.toml"
KERNEL, PROBLEM, PROVENANCE = "kernel.py", "problem.py", "provenance.json"
_MAX_DESCRIPTION = 900  # the layout allows 1024
_MAX_FAILED = 5
_MAX_KERNEL = 8_000  # characters that a prompt has room for; a longer file is named alone


@dataclass(frozen=True)
class Origin:
    """The step that a skill comes from; `source` is its candidate, `private` are nodes of the run whose words
    must stay on this machine.
    """

    run: StoredRun
    step: Step
    source: str
    private: frozenset[str]


def provenance(origin: Origin) -> list[dict[str, Any]]:
    """The node and its ancestors, the winner first, each with the digests of its artefacts."""
    graph = origin.run.graph
    node = graph.node(origin.step.node.node_id)
    return [_traced(n) for n in (node, *graph.lineage(node.node_id))]


def _traced(node: SearchNode) -> dict[str, Any]:
    artifacts = {"source": node.source_sha, **({"prompt": node.prompt_sha} if node.prompt_sha else {})}
    return {
        "node": node.node_id,
        "parent": node.parent_id,
        "step": node.step,
        "generator": node.generator,
        "status": node.status,
        "speedup": node.speedup,
        "hypothesis": node.hypothesis,
        "artifacts": artifacts,
    }


def skill_md(name: str, language: str, origin: Origin, spec: Mapping[str, Any]) -> str:
    """For people and coding agents: what it does, when it applies, what is beside it, how it came about."""
    import yaml

    applies = spec["applies"]
    devices = ", ".join(applies["devices"])
    operators, node = ", ".join(applies["operators"]) or "custom operators", origin.step.node
    idea = " ".join(node.hypothesis.split())
    description = (
        f"{operators} in {', '.join(applies['dtypes'])} on {applies['target']}, in {language}: {idea}"
    )
    licences = sorted(origin.step.licences)
    front: dict[str, Any] = {"name": name, "description": description[:_MAX_DESCRIPTION]}
    if licences and UNKNOWN not in licences:
        front["license"] = " AND ".join(licences)
    front["metadata"] = {
        "scope": applies["target"],
        "language": language,
        "version": spec["version"],
        "distilled-from": node.node_id,
    }
    lines = [
        "---", yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=110).rstrip(), "---", "",
        f"# {name}", "", idea, "",
        "## When it applies", "",
        f"- operators: {operators}",
        f"- dtypes: {', '.join(applies['dtypes'])}",
        f"- target: {applies['target']} ({applies['architecture']}); seen on {devices or 'no named device'}",
        *(f"- input {i}: sizes from {r['min']} to {r['max']}" for i, r in enumerate(applies["inputs"])),
        "", "Outside of these sizes nothing was measured to be faster.", "",
    ]  # fmt: skip
    if spec.get("parameters"):
        lines += ["## Parameters", ""]
        for key, parameter in spec["parameters"].items():
            values = ", ".join(map(str, parameter["values"]))
            lines.append(f"- `{key}` in `{KERNEL}`: {parameter['default']}; right with {values}")
        lines.append("")
    elif spec["kind"] == "kernel":
        lines += ["No parameters: its numbers are part of the kernel.", ""]
    if spec["kind"] == "kernel" and len(origin.source) <= _MAX_KERNEL:
        lines += ["## Kernel", "", fenced(origin.source), ""]
    if spec.get("genome"):
        genes = {g["skill"]: g["params"] for g in spec["genome"]["genes"].values() if g["skill"]}
        lines += ["## Composed of", ""]
        for skill, chosen in genes.items():
            lines.append(
                f"- `{skill}` with {', '.join(f'{k} {v}' for k, v in chosen.items()) or 'no parameters'}"
            )
        lines.append("")
    lines += [
        "## Files", "",
        f"- `{KERNEL}`: the kernel that was measured, `class ModelNew` beside `class Model` of `{PROBLEM}`",
        f"- `{EVIDENCE}`: every measurement, with device, compiler and date",
        f"- `{PROVENANCE}`: the steps that led to it",
        "", "## How it came about", "",
    ]  # fmt: skip
    steps = [n for n in origin.run.graph.lineage(node.node_id)[::-1] if not n.is_root]
    for earlier in (*steps, origin.run.graph.node(node.node_id)):
        speed = f"{earlier.speedup:.2f}x eager" if earlier.speedup is not None else earlier.status
        lines.append(f"{earlier.step}. {speed}: {' '.join(earlier.hypothesis.split())}")
    beside = origin.run.graph.children(node.parent_id) if node.parent_id else []
    hidden = origin.private if not origin.step.private else frozenset()
    failed = [n for n in beside if not n.correct and n.node_id not in hidden]
    if failed:
        lines += ["", "## What failed beside it", ""]
        for sibling in failed[:_MAX_FAILED]:
            why = str(sibling.diagnosis.get("error") or sibling.evaluation.get("reason") or sibling.status)
            lines.append(f"- {' '.join(sibling.hypothesis.split())}: {' '.join(why.split())[:200]}")
    return "\n".join(lines) + "\n"


def toml(spec: Mapping[str, Any]) -> str:
    """TOML of nested tables; JSON's texts, numbers and arrays are TOML's as well."""
    lines: list[str] = []

    def table(path: str, values: Mapping[str, Any]) -> None:
        plain = {k: v for k, v in values.items() if not isinstance(v, Mapping) and v is not None}
        if path and plain:
            lines.append(f"\n[{path}]")
        lines.extend(f"{_key(k)} = {_value(v)}" for k, v in plain.items())
        for key, value in values.items():
            if isinstance(value, Mapping):
                table(f"{path}.{_key(key)}" if path else _key(key), value)

    table("", spec)
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return json.dumps(value, ensure_ascii=False)
