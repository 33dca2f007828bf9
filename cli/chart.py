"""Coordinates of a report's drawings; the template only writes them down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT_PAD, TOP, BOTTOM_PAD = 900.0, 260.0, 44.0, 12.0, 16.0, 26.0
# A drawing with more nodes than this is unreadable and makes the file heavy; the table has them all.
MAX_TREE_NODES = 600
ROOT = "root"


def progress_chart(
    nodes: Sequence[Mapping[str, Any]], compile_speedup: float | None
) -> dict[str, Any] | None:
    """Speedup against eager by step, the best so far as a line; None if nothing was timed.

    `nodes` are report nodes in step order. `compile_speedup` is eager time divided by torch.compile time.
    """
    timed = [n for n in nodes if n["vs_eager"]]
    if not timed:
        return None
    right, bottom = WIDTH - RIGHT_PAD, HEIGHT - BOTTOM_PAD
    highest = [float(n["vs_eager"]["hi"] or n["vs_eager"]["value"]) for n in timed]
    top = max(*highest, 1.0, compile_speedup or 0.0) * 1.08
    step = _nice_step(top)
    last = max(n["step"] for n in nodes) or 1

    def x(value: float) -> float:
        return round(LEFT + (right - LEFT) * value / last, 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - TOP) * min(value, top) / top, 1)

    references = [{"y": y(1.0), "label": "eager"}]
    if compile_speedup and abs(y(compile_speedup) - y(1.0)) > 8:
        references.append({"y": y(compile_speedup), "label": "torch.compile"})
    ticks = [i * step for i in range(int(top / step) + 1)]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": right,
        "bottom": bottom,
        "y_ticks": [{"y": y(t), "label": f"{t:g}x"} for t in ticks],
        "x_ticks": [{"x": x(t), "label": str(t)} for t in range(0, last + 1, max(1, math.ceil(last / 12)))],
        "references": references,
        "best": _best_line(nodes, x, y),
        "points": [_point(n, x, y, bottom) for n in nodes],
    }


def search_tree(nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Layered drawing: depth downwards, leaves side by side, a parent over the middle of its children.

    On top stands the specification itself (`ROOT`), the parent of every independent draft.
    """
    if not 1 < len(nodes) <= MAX_TREE_NODES:
        return None
    children: dict[str, list[Mapping[str, Any]]] = {}
    for n in nodes:
        children.setdefault(n["parent_id"] or ROOT, []).append(n)
    columns, depths = _place(children)
    gap_x, gap_y, pad = 46, 58, 26
    points = {i: (round(pad + columns[i] * gap_x, 1), pad + depths[i] * gap_y) for i in columns}
    drawn: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for n in nodes:
        px, py = points[n["node_id"]]
        drawn.append(
            {
                "node_id": n["node_id"],
                "x": px,
                "y": py,
                "css": css_class(n),
                "title": node_title(n),
                "label": f"{n['vs_eager']['value']:.2f}" if n["vs_eager"] else str(n["step"]),
            }
        )
        qx, qy = points[n["parent_id"] or ROOT]
        edges.append({"x1": qx, "y1": qy, "x2": px, "y2": py, "mid": (qy + py) / 2})
    width = max(p[0] for p in points.values()) + pad
    height = max(p[1] for p in points.values()) + pad + 8
    root_x, root_y = points[ROOT]
    return {
        "width": width,
        "height": height,
        "nodes": drawn,
        "edges": edges,
        "root": {"x": root_x, "y": root_y},
    }


def css_class(node: Mapping[str, Any]) -> str:
    if not node["good"]:
        return "s-failed"
    return "s-compiler" if node["compiler_made"] else f"s-{node['status']}"


def node_title(node: Mapping[str, Any]) -> str:
    speed = f", {node['vs_eager']['value']:.2f}x against eager" if node["vs_eager"] else ""
    return f"step {node['step']}: {node['status']}{speed}"


def _place(children: Mapping[str, list[Mapping[str, Any]]]) -> tuple[dict[str, float], dict[str, int]]:
    """Column and depth of each node. Iterative: a lineage may be longer than Python's stack."""
    columns: dict[str, float] = {}
    depths: dict[str, int] = {}
    free = 0.0
    stack = [(ROOT, 0, False)]
    while stack:
        name, depth, expanded = stack.pop()
        below = [n["node_id"] for n in children.get(name, [])]
        if below and not expanded:
            stack.append((name, depth, True))
            stack += [(child, depth + 1, False) for child in reversed(below)]
            continue
        depths[name] = depth
        if below:
            columns[name] = (columns[below[0]] + columns[below[-1]]) / 2
        else:
            columns[name], free = free, free + 1
    return columns, depths


def _best_line(nodes: Sequence[Mapping[str, Any]], x: Any, y: Any) -> str:
    """The best so far; the compiler's own code is no find of the run and does not raise it."""
    points: list[tuple[float, float]] = []
    best = None
    for n in nodes:
        counts = n["vs_eager"] and n["good"] and not n["compiler_made"]
        value = n["vs_eager"]["value"] if counts else None
        if value is not None and (best is None or value > best):
            if best is not None:
                points.append((x(n["step"]), y(best)))
            best = value
        if best is not None:
            points.append((x(n["step"]), y(best)))
    return " ".join(f"{px},{py}" for px, py in points)


def _point(node: Mapping[str, Any], x: Any, y: Any, bottom: float) -> dict[str, Any]:
    speed = node["vs_eager"]
    has_interval = bool(speed) and speed["lo"] is not None
    return {
        "x": x(node["step"]),
        "y": y(speed["value"]) if speed else bottom,
        "lo_y": y(speed["lo"]) if has_interval else None,
        "hi_y": y(speed["hi"]) if has_interval else None,
        "css": css_class(node),
        "title": node_title(node),
    }


def _nice_step(top: float) -> float:
    raw = top / 5
    scale = 10 ** math.floor(math.log10(raw))
    return float(next(m * scale for m in (1, 2, 2.5, 5, 10) if m * scale >= raw))
