"""A skill's evidence and credit for people; all that was measured is in `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cli.output import clean, speedup

if TYPE_CHECKING:
    from rich.table import Table

    from kb.credit import Standing


def evidence_table(evidence: Sequence[Mapping[str, Any]]) -> Table:
    """One line for each measurement, as wide as a terminal."""
    from rich.table import Table

    table = Table(
        *("problem", "sizes", "verdict", "speedup", "time", "measured on", "from"),
        title="evidence", box=None, header_style="bold", title_justify="left",
    )  # fmt: skip
    for record in evidence:
        device = " ".join(str(record[key]) for key in ("device", "date") if record.get(key))
        table.add_row(
            clean(str(record.get("problem") or "–")),
            _sizes(record),
            clean(str(record.get("status") or "–")) + (" (stale)" if record.get("stale") else ""),
            speedup(record.get("speedup"), record.get("speedup_ci")),
            _times(record),
            clean(device) or "–",
            clean(str(record.get("run") or record.get("origin") or "–")),
        )
    return table


def credit_line(standing: Standing) -> str:
    """How the skill fared where searches showed it, and why it is retired if it is."""
    if standing.retired:
        return f"{standing.retired}. It is not shown to searches: kernelevolve skills restore brings it back"
    return (
        f"shown for {standing.uses} candidates: {standing.wins} better than what they started from, "
        f"{standing.losses} worse; credit {standing.mean:+.2f} a time, {standing.average:+.2f} on average"
    )


def _sizes(record: Mapping[str, Any]) -> str:
    if record.get("size"):
        return clean(str(record["size"]))
    shapes = record.get("shapes")
    if not isinstance(shapes, list):
        return "–"
    return clean(" ".join("x".join(map(str, s)) if isinstance(s, list) else str(s) for s in shapes))


def _times(record: Mapping[str, Any]) -> str:
    """Milliseconds of the candidate and of eager."""
    candidate = (record.get("candidate_ms") or {}).get("median")
    eager = (record.get("baselines") or {}).get("eager_ms")
    parts = [f"{candidate:.3g} ms"] if candidate else []
    parts += [f"eager {eager:.3g}"] if eager else []
    return ", ".join(parts) or "–"
