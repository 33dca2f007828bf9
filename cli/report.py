"""The report of a run: one self-contained HTML file, or Markdown for a pull request."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.chart import progress_chart, search_tree
from cli.rundata import load_run, passages
from cli.verdict import Speed, against, verdict

if TYPE_CHECKING:
    from jinja2 import Environment

    from kb import KnowledgeBase

TEMPLATES = Path(__file__).parent / "templates"
PRIVATE = "(withheld: this step was shown local-only passages)"
# A compiler's log or a generated source may run to megabytes; a report stays readable.
MAX_LOG, MAX_SOURCE, MAX_DIFF_LINES = 8_000, 200_000, 600


def report_path(kb: KnowledgeBase, run_id: str, format: str = "html") -> Path:
    """Where a run's report lies unless someone says otherwise."""
    return kb.home / "runs" / run_id / f"report.{format}"


def render(contents: dict[str, Any], format: str = "html") -> str:
    """The report's text from what `collect` returns. `format` is html or md."""
    environment = _environment(escape=format == "html")
    return environment.get_template(f"report.{format}.j2").render(**contents)


def write(contents: dict[str, Any], path: Path, format: str = "html") -> Path:
    """Render and store; a reader never sees half a file."""
    text = render(contents, format)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)
    return path


def collect(kb: KnowledgeBase, run_id: str) -> dict[str, Any]:
    """Everything the templates need, as plain values.

    Raises RunNotFound.
    """
    run = load_run(kb, run_id)
    steps = {c["node_id"]: c["step"] for c in run.candidates}
    retrieved, private = passages(kb, {c["node_id"]: c["hypothesis"] for c in run.candidates})
    private |= {c["node_id"] for c in run.candidates if c["local_only"]}
    candidates = [_without_words(c) if c["node_id"] in private else c for c in run.candidates]
    sources = {c["node_id"]: c["source"] for c in candidates if c["node_id"] not in private}
    nodes = [_node(c, steps, sources, retrieved.get(c["node_id"], [])) for c in candidates]
    best = next((n for n in nodes if n["node_id"] == run.info.best_node_id), None)
    measured = best or next((n for n in nodes if n["evaluation"].get("device")), None)
    evaluation = measured["evaluation"] if measured else {}
    compiled = None
    if best and best["eager_ms"] and best["compile_ms"]:
        compiled = best["eager_ms"] / best["compile_ms"]
    return {
        "run": run.info,
        "created": run.info.created.strftime("%Y-%m-%d %H:%M UTC"),
        "problem_source": run.problem_source,
        "eager_ms": best["eager_ms"] if best else run.eager_ms,
        "skipped": [{**s, "error": PRIVATE} if _may_quote(s) else s for s in run.skipped],
        "verdict": verdict(nodes, best),
        "nodes": nodes,
        "correct": sum(n["good"] for n in nodes),
        "best": best,
        "chart": progress_chart(nodes, compiled),
        "tree": search_tree(nodes),
        "device": evaluation.get("device", ""),
        "environment": sorted((k, _text(v)) for k, v in (evaluation.get("environment") or {}).items()),
    }


def _without_words(row: dict[str, Any]) -> dict[str, Any]:
    """A candidate without what its author wrote and what quotes that; the verdict and its numbers stay."""
    flags = [{**flag, "detail": ""} for flag in row["evaluation"].get("flags") or []]
    return {
        **row,
        "hypothesis": PRIVATE,
        "source": PRIVATE,
        "evaluation": {**row["evaluation"], "reason": "", "log": "", "flags": flags},
        "diagnosis": {"bottleneck": row["diagnosis"].get("bottleneck")},
    }


def _may_quote(skipped: Mapping[str, Any]) -> bool:
    """Whether a step without a candidate tells what a model said about local-only passages."""
    return bool(skipped.get("local_only")) and skipped["outcome"] == "no_candidate"


def _node(
    row: dict[str, Any], steps: Mapping[str, int], sources: Mapping[str, str], passages: list[dict[str, Any]]
) -> dict[str, Any]:
    e = row["evaluation"]
    parent = row["parent_id"] if row["parent_id"] in steps else None
    facts = [(k, e.get(k)) for k in ("correctness", "custom_kernel_share", "profile", "per_shape")]
    facts += [("genome", row["genome"])]
    log = str(e.get("log") or "")
    before = sources.get(parent or "")
    return {
        **row,
        "parent_id": parent,
        "parent_step": steps.get(parent) if parent else None,
        "good": row["status"] in ("correct", "compiled"),
        "reason": e.get("reason", ""),
        "vs_eager": _speed(against(e, "eager")),
        "vs_compile": _speed(against(e, "compile")),
        "candidate_ms": (e.get("candidate_ms") or {}).get("median"),
        "eager_ms": (e.get("baselines") or {}).get("eager_ms"),
        "compile_ms": (e.get("baselines") or {}).get("compile_ms"),
        "facts": [(label.replace("_", " "), _text(value)) for label, value in facts if value],
        "flags": e.get("flags") or [],
        "diagnosis": [(k.replace("_", " "), _text(v)) for k, v in row["diagnosis"].items() if v],
        "log": log if len(log) <= MAX_LOG else "…" + log[-MAX_LOG:],
        "source": row["source"][:MAX_SOURCE],
        "diff": _diff(before, row["source"]) if before and row["node_id"] in sources else [],
        "passages": passages,
    }


def _speed(speed: Speed | None) -> dict[str, Any] | None:
    return None if speed is None else {"value": speed.value, "lo": speed.lo, "hi": speed.hi}


def _diff(before: str, after: str) -> list[dict[str, str]]:
    css = {"+": "add", "-": "del", "@": "at"}
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=3, lineterm="")
    shown = [{"css": css.get(line[:1], ""), "text": line} for line in list(lines)[2:]]
    if len(shown) > MAX_DIFF_LINES:
        shown = [
            *shown[:MAX_DIFF_LINES],
            {"css": "at", "text": f"… {len(shown) - MAX_DIFF_LINES} more lines"},
        ]
    return shown


def _text(value: Any) -> str:
    """A JSON value as one readable line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        return "; ".join(_text(v) for v in value)
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _environment(*, escape: bool) -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=escape,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = _markdown_cell
    environment.filters["fenced"] = _fenced
    return environment


def _markdown_cell(value: Any) -> str:
    """Text that cannot leave its table cell or start markup."""
    text = " ".join(str(value).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_|\[\]#])", r"\\\1", text)


def _fenced(source: str) -> str:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", source)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{source.rstrip()}\n{fence}"
