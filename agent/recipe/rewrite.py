"""Rewrites of a program that widen what can be fused."""

from __future__ import annotations

from agent.recipe.graph import Builder, Program, Value


def push_slices(b: Builder, program: Program) -> None:
    """Moves slices in front of the maps that they cut: slice(f(x)) becomes f(slice(x)).

    So the halves of `(x + bias).chunk(2)` need no intermediate tensor. Only maps whose every use is cut this
    way are touched, and nothing is computed that was not computed before.
    """
    users = program.users()
    outputs = set(program.output_values())
    pushed: set[Value] = set()
    for value in reversed(program.values):
        if value.kind == "map" and value not in outputs and users[value]:
            cut = [u for u in users[value] if (u.kind == "view" and u.fn == "slice") or u in pushed]
            if len(cut) == len(users[value]):
                pushed.add(value)
    replaced: dict[Value, Value] = {}
    for value in program.values:
        if value.kind == "view" and value.fn == "slice" and (source := next(value.operands())) in pushed:
            replaced[value] = _cut(b, source, value, pushed)
    for value in b.values:
        value.args = tuple(replaced.get(a, a) if isinstance(a, Value) else a for a in value.args)
    program.outputs = [replaced.get(o, o) if isinstance(o, Value) else o for o in program.outputs]
    program.values = b.values
    _sort(program)


def _cut(b: Builder, value: Value, like: Value, pushed: set[Value]) -> Value:
    """`value` restricted as the slice `like` restricts its operand."""
    dim, start, step = (like.attrs[k] for k in ("dim", "start", "step"))
    stop = start + step * like.shape[dim]
    if value not in pushed:
        return b.slice(value, dim, start, min(stop, value.shape[dim]), step)
    args: list[object] = []
    for arg in value.args:
        here = dim - (len(value.shape) - len(arg.shape)) if isinstance(arg, Value) else -1
        if not isinstance(arg, Value) or here < 0 or arg.shape[here] == 1:
            args.append(arg)  # the same for all positions along the dimension
            continue
        piece = Value("", "view", (), "", "slice", (arg,), {"dim": here, "start": start, "step": step})
        piece.shape = tuple(like.shape[dim] if i == here else s for i, s in enumerate(arg.shape))
        args.append(_cut(b, arg, piece, pushed))
    shape = [like.shape[dim] if i == dim else s for i, s in enumerate(value.shape)]
    return b.add("map", shape, value.dtype, value.fn, tuple(args))  # type: ignore[arg-type]


def _sort(program: Program) -> None:
    """Puts every value behind its operands, otherwise in the order in which they were made."""
    done: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value not in done:
            for operand in value.operands():
                visit(operand)
            done[value] = None

    for value in program.values:
        visit(value)
    program.values = list(done)
