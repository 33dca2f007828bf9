"""Facts about problem, target and attempts as lines of the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prompts.questions import operators
from prompts.quoting import one_line


def problem_lines(facts: Mapping[str, Any]) -> list[str]:
    """Interface, operators, data volume, eager time and weaknesses, as far as they are known."""
    lines = []
    for title, key in (
        ("inputs", "inputs"),
        ("parameters", "parameters"),
        ("buffers", "buffers"),
        ("outputs", "outputs"),
    ):
        specs = facts.get(key) or []
        if specs:
            lines.append(f"{title}: " + ", ".join(_spec(spec) for spec in specs))
    ops = operators(facts)
    if ops:
        lines.append("operators: " + ", ".join(ops))
    if facts.get("trace_error"):
        lines.append("the reference could not be traced: " + one_line(str(facts["trace_error"])))
    if facts.get("bytes_min"):
        lines.append(f"inputs, state and outputs together: {facts['bytes_min'] / 1e6:.2f} MB")
    if facts.get("eager_ms"):
        lines.append(f"the reference takes {facts['eager_ms']:.4g} ms")
    for flag in facts.get("flags") or []:
        lines.append(one_line(f"weakness: {flag.get('rule', '')}: {flag.get('detail', '')}"))
    return lines


def target_lines(facts: Mapping[str, Any]) -> list[str]:
    """`name: value` for every known fact; nested mappings are flattened."""
    return [one_line(f"{name}: {value}") for name, value in _flat(facts)]


def parent_summary(parent: Mapping[str, Any]) -> str:
    """Status, speedup with interval and hypothesis of the candidate that the step starts from."""
    parts = [str(parent["status"])]
    if parent.get("speedup") is not None:
        parts.append(f"{parent['speedup']:.2f}x eager")
        if parent.get("speedup_ci"):
            low, high = parent["speedup_ci"]
            parts.append(f"95 % interval {low:.2f} to {high:.2f}")
    if parent.get("candidate_ms"):
        parts.append(f"{parent['candidate_ms']['median']:.4g} ms")
    if parent.get("hypothesis"):
        parts.append(f"its hypothesis: {one_line(str(parent['hypothesis']))}")
        if parent.get("verdict"):
            parts.append(one_line(str(parent["verdict"])))
    return ", ".join(parts)


def attempt_line(attempt: Mapping[str, Any]) -> str:
    """One earlier attempt: step, what it tried, what came of it."""
    idea = attempt.get("hypothesis") or "no hypothesis"
    line = f"step {attempt.get('step')}, {attempt.get('outcome')}: {idea}"
    if attempt.get("error"):
        line += f" ({attempt['error']})"
    return one_line(line, 400)


def lesson_line(lesson: Mapping[str, Any]) -> str:
    """A hypothesis and what its measurement said of it."""
    return one_line(f"step {lesson.get('step')}, {lesson.get('verdict')}: {lesson.get('hypothesis')}", 400)


def avoid_line(known: Mapping[str, Any]) -> str:
    """A strategy that failed on this problem before, and why."""
    return one_line(f"{known.get('strategy')}: {known.get('why')}", 400)


def example_summary(example: Mapping[str, Any]) -> str:
    """Where another candidate comes from and how it did."""
    return one_line(f"From {example.get('origin')}: ", 120) + " " + parent_summary(example)


def _spec(spec: Mapping[str, Any]) -> str:
    return f"{spec['name']} {spec['dtype']}[{', '.join(str(n) for n in spec['shape'])}]"


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, ", ".join(str(v) for v in value)
        elif value not in (None, ""):
            yield prefix + name, value
