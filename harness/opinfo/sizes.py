"""Other sizes for the inputs of a sample: OpInfo's are a few elements long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

Shape = tuple[int, ...]


def scalings(shapes: Sequence[Shape], elements: int) -> Iterator[tuple[str, list[Shape]]]:
    """Sets of shapes, larger ones first, the sample's own last, each with what was done.

    Equal sizes stay equal and 1 stays 1, so that what is contracted or broadcast still is: every size is
    multiplied by one factor, or only the first size of the largest input and where else it is the first.
    """
    largest = max(shapes, key=math.prod)
    for goal in dict.fromkeys((elements, elements >> 4, elements >> 8)):
        if math.prod(largest) == 0 or goal <= math.prod(largest):
            continue
        growing = sum(size > 1 for size in largest)
        factor = int((goal / math.prod(largest)) ** (1 / growing)) if growing else 1
        if factor > 1:
            scaled = [tuple(n * factor if n > 1 else n for n in shape) for shape in shapes]
            yield f"all sizes times {factor}", scaled
        factor = goal // math.prod(largest)
        if factor > 1 and len(largest) > 1 and largest[0] > 0:
            first = largest[0]
            yield (
                f"first size times {factor}",
                [(n[0] * factor, *n[1:]) if n and n[0] == first and first else n for n in shapes],
            )
    yield "sizes as they are", list(shapes)
