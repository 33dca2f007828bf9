"""What is drawn on a page beside its text: ruling lines and images, in points from the top left corner."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pypdfium2 import PdfPage

Place = Callable[[float, float], tuple[float, float]]  # from the file's coordinates to those of the page
Box = tuple[float, float, float, float]
_MAX_OBJECTS = 6_000  # more are a drawing, not the lines of a table


@dataclass(slots=True)
class Rule:
    """A straight line or an edge of a box; `across` for horizontal ones. `at` is y for these, else x.

    `faint`: only the edge of a coloured ground.
    """

    across: bool
    at: float
    start: float
    end: float
    faint: bool = False


def read_drawing(page: PdfPage, place: Place, area: float) -> tuple[list[Rule], list[Rule], float]:
    """Lines, dashes as short as a letter, and the share of the `area` that the largest image covers."""
    from pypdfium2 import raw

    rules: list[Rule] = []
    dashes: list[Rule] = []
    images = 0.0
    for number, (handle, kind, matrix) in enumerate(_objects(page)):
        if number > _MAX_OBJECTS:
            return [], dashes, images
        bounds = _bounds(handle, matrix, place)
        if bounds is None:
            continue
        x0, y0, x1, y1 = bounds
        if kind == raw.FPDF_PAGEOBJ_IMAGE:
            images = max(images, (x1 - x0) * (y1 - y0) / max(1.0, area))
            continue
        stroked, filled = _painted(handle)
        if not stroked and not filled:
            continue
        if x1 - x0 >= 3 and y1 - y0 >= 3:
            edges = list(_edges(handle, matrix, place))
            for edge in edges:
                edge.faint = not stroked
            rules += edges
            continue
        across = x1 - x0 >= y1 - y0  # a line, or a box as thin as one
        span = (x0, x1) if across else (y0, y1)
        line = Rule(across, (y0 + y1) / 2 if across else (x0 + x1) / 2, *span)
        if span[1] - span[0] > 4:
            rules.append(line)
        if across and 1.5 < span[1] - span[0] < 12:
            dashes.append(line)
    return rules, dashes, images


def _painted(handle: Any) -> tuple[bool, bool]:
    """Whether a path is stroked, and whether it is filled with a colour that is seen on white."""
    from pypdfium2 import raw

    mode, stroke = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(handle, mode, stroke)
    if not mode.value:
        return bool(stroke.value), False
    colour = [ctypes.c_uint() for _ in range(4)]
    known = raw.FPDFPageObj_GetFillColor(handle, *colour)
    *shades, alpha = (c.value for c in colour)
    return bool(stroke.value), not known or (min(shades) < 250 and alpha > 10)


def _objects(page: PdfPage) -> Iterator[tuple[Any, int, Any]]:
    """Paths and images of the page and of the forms in it, each with the matrix of its form (None: none)."""
    from pypdfium2 import raw

    stack = [
        (raw.FPDFPage_GetObject(page.raw, i), None, 0) for i in range(raw.FPDFPage_CountObjects(page.raw))
    ]
    stack.reverse()
    while stack:
        handle, matrix, depth = stack.pop()
        kind = raw.FPDFPageObj_GetType(handle)
        if kind == raw.FPDF_PAGEOBJ_FORM and depth < 8:
            own = raw.FS_MATRIX()
            raw.FPDFPageObj_GetMatrix(handle, own)
            inner = own if matrix is None else _product(own, matrix)
            inside = raw.FPDFFormObj_CountObjects(handle)
            stack += [(raw.FPDFFormObj_GetObject(handle, i), inner, depth + 1) for i in range(inside)]
        elif kind in (raw.FPDF_PAGEOBJ_PATH, raw.FPDF_PAGEOBJ_IMAGE):
            yield handle, kind, matrix


def _product(m: Any, n: Any) -> Any:
    from pypdfium2 import raw

    return raw.FS_MATRIX(
        m.a * n.a + m.b * n.c, m.a * n.b + m.b * n.d, m.c * n.a + m.d * n.c, m.c * n.b + m.d * n.d,
        m.e * n.a + m.f * n.c + n.e, m.e * n.b + m.f * n.d + n.f,
    )  # fmt: skip


def _applied(matrix: Any, x: float, y: float) -> tuple[float, float]:
    if matrix is None:
        return x, y
    return matrix.a * x + matrix.c * y + matrix.e, matrix.b * x + matrix.d * y + matrix.f


def _bounds(handle: Any, matrix: Any, place: Place) -> Box | None:
    from pypdfium2 import raw

    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    if not raw.FPDFPageObj_GetBounds(handle, left, bottom, right, top):
        return None
    a = place(*_applied(matrix, left.value, bottom.value))
    b = place(*_applied(matrix, right.value, top.value))
    return min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])


def _edges(handle: Any, form: Any, place: Place) -> Iterator[Rule]:
    """The straight, axis-parallel pieces of a path; none of one with curves, which draws something else."""
    from pypdfium2 import raw

    count = raw.FPDFPath_CountSegments(handle)
    if not 1 < count <= 2000:
        return
    own = raw.FS_MATRIX()
    raw.FPDFPageObj_GetMatrix(handle, own)
    matrix = own if form is None else _product(own, form)
    x, y = ctypes.c_float(), ctypes.c_float()
    start = last = (0.0, 0.0)
    found: list[Rule] = []
    for i in range(count):
        segment = raw.FPDFPath_GetPathSegment(handle, i)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_BEZIERTO:
            return
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = place(*_applied(matrix, x.value, y.value))
        if kind == raw.FPDF_SEGMENT_MOVETO:
            start = point
        else:
            found += _rule(last, point)
        if raw.FPDFPathSegment_GetClose(segment):
            found += _rule(point, start)
        last = point
    yield from found


def _rule(a: tuple[float, float], b: tuple[float, float]) -> list[Rule]:
    if abs(a[1] - b[1]) < 0.6 and abs(a[0] - b[0]) > 4:
        return [Rule(True, (a[1] + b[1]) / 2, min(a[0], b[0]), max(a[0], b[0]))]
    if abs(a[0] - b[0]) < 0.6 and abs(a[1] - b[1]) > 4:
        return [Rule(False, (a[0] + b[0]) / 2, min(a[1], b[1]), max(a[1], b[1]))]
    return []
