"""Regions behind a matrix product: the product's rows stay in cache until the region has consumed them."""

from __future__ import annotations

from collections.abc import Mapping

from agent.recipe.graph import Value
from agent.recipe.kernel import Argument, Kernel
from agent.recipe.layout import layout
from agent.recipe.module import Body
from agent.recipe.partition import Partition
from agent.recipe.region import Access, Region
from agent.recipe.skills import ExecutableSkill, Params

PRODUCTS = ("aten.mm.default", "aten.addmm.default")


def producer(region: Region, partition: Partition) -> Value | None:
    """The matrix product (M x N) whose rows are exactly this region's rows, and which nobody else reads."""
    if region.mode not in ("rows", "pointwise"):
        return None
    for access in region.loads:
        value = access.where.buffer
        if value.fn not in PRODUCTS or value.dtype != "float32" or access.where.offset:
            continue
        alone = sum(a.where.buffer is value for a in region.loads) == 1
        if alone and _plain(value) and _by_rows(region, access, value) and _private(value, region, partition):
            return value
    return None


def _by_rows(region: Region, access: Access, value: Value) -> bool:
    """Whether the region's rows are the product's rows; a flat elementwise region can be cut into them."""
    rows, cols = value.shape
    if len(region.inner) != 1 or min(rows, cols) < 2:
        return False
    (inner,) = region.inner
    if not region.outer and region.mode == "pointwise":
        return region.sizes[inner] == rows * cols and all(
            a.stride == {inner: 1} for a in (*region.loads, *region.stores) if a.stride
        )
    outer = region.outer[0]
    shaped = region.sizes[outer] == rows and region.sizes[inner] == cols
    return len(region.outer) == 1 and shaped and access.stride == {outer: cols, inner: 1}


def _private(value: Value, region: Region, partition: Partition) -> bool:
    def readers(v: Value) -> set[Value]:
        found: set[Value] = set()
        for user in partition.users[v]:
            found |= readers(user) if user.kind == "view" else {user}
        return found

    return value not in partition.outputs and readers(value) <= set(region.members)


def _plain(value: Value) -> bool:
    """No scaling factors, and a bias (if any) that is one row."""
    operands = list(value.operands())
    if value.attrs["raw_kwargs"]:
        return False
    return len(operands) == 2 or (len(operands) == 3 and operands[0].shape == (value.shape[1],))


def factors(value: Value) -> tuple[Value | None, Value, Value]:
    """(bias, A, B) of the product."""
    operands = list(value.operands())
    return (operands[0], operands[1], operands[2]) if len(operands) == 3 else (None, operands[0], operands[1])


def emit(
    product: Value,
    kernel: Kernel,
    origin: Mapping[Value, Value],
    *,
    skill: ExecutableSkill,
    params: Params,
    body: Body,
) -> str:
    """Writes the calls into `body` and returns the kernel's C++."""
    bias, a, b = factors(product)
    rows, cols = product.shape
    produced = next(x for x in kernel.arguments if not x.store and x.access.where.buffer is product)
    own = skill.spec.get("product") == "own"
    facts = {"rows": rows, "cols": cols, "depth": a.shape[1], "bias": bias is not None}
    where_b = layout(b)
    facts["b_row"], facts["b_col"] = where_b.strides
    text = skill.render(k=kernel, p=params, produced=produced, gemm=facts)
    if own:
        matrix_a, matrix_b = body.memory(_whole(a)), body.memory(where_b.buffer)
        if where_b.offset:
            matrix_b = f"{matrix_b}.view(-1)[{where_b.offset}:]"
        given = [matrix_a, matrix_b, body.memory(bias) if bias is not None else "None"]
        others = [x for x in kernel.arguments if x is not produced]
        arguments = [*given, *_arguments(others, origin, body)]
        body.lines.append(f"_lib.{kernel.name}({', '.join(arguments)})")
        return text
    block = min(int(params["block"]), rows)
    left, right = body.ref(a), body.ref(b)
    added = f"torch.addmm({body.ref(bias)}, " if bias is not None else "torch.mm("
    buffer = f"{product.name}_rows"
    arguments = _arguments(kernel.arguments, origin, body, {id(produced): buffer})
    body.lines += [
        f"{buffer} = torch.empty(({block}, {cols}))",
        f"for row in range(0, {rows}, {block}):",
        f"    stop = min(row + {block}, {rows})",
        f"    {added}{left}[row:stop], {right}, out={buffer}[: stop - row])",
        f"    _lib.{kernel.name}({', '.join(arguments)}, row, stop)",
    ]
    return text


def _whole(value: Value) -> Value:
    """What to pass for a contiguous operand: its buffer where the view starts there, else a copy of
    the view.
    """
    where = layout(value)
    same = not where.offset and where.buffer.numel == value.numel and where.strides[-1] == 1
    return where.buffer if same else value


def _arguments(
    arguments: list[Argument],
    origin: Mapping[Value, Value],
    body: Body,
    given: Mapping[int, str] | None = None,
) -> list[str]:
    def text(argument: Argument) -> str:
        if given and id(argument) in given:
            return given[id(argument)]
        access: Access = argument.access
        return body.allocate(origin[access.value]) if argument.store else body.memory(access.where.buffer)

    return [text(a) for a in arguments]
