"""Triton under its interpreter: bfloat16 is right, accesses out of bounds and races between programs are
found, honest idioms pass.

Kernels run in evaluations, jailed like any candidate's: the interpreter of this process stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Evaluation

Evaluate = Callable[..., Evaluation]
pytest.importorskip("triton")

HEADER = "import torch\nimport triton\nimport triton.language as tl\n"


def problem(expression: str, inputs: str) -> str:
    return (
        f"import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, y=None):\n"
        f"        return {expression}\ndef get_inputs():\n    return [{inputs}]\n"
        "def get_init_inputs():\n    return []\n"
    )


def candidate(kernel: str, forward: str) -> str:
    def indented(text: str, by: int) -> str:
        return "\n".join(" " * by + line for line in text.strip().splitlines())

    return (
        f"{HEADER}@triton.jit\n{kernel.strip()}\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, y=None):\n"
        "        x, y = (t if t is None else t.contiguous() for t in (x, y))\n"
        "        shapes = [tuple(t.shape) for t in (x, y) if t is not None]\n"
        "        if shapes != self.__dict__.setdefault('shapes', shapes):\n"
        "            raise ValueError('only for the shapes of the first call')\n"
        f"{indented(forward, 8)}\n"
    )


def rules(result: Evaluation) -> list[str]:
    return [f["rule"] for f in result.flags]


# -- bfloat16 ------------------------------------------------------------------------------------------

BFLOAT16 = {
    "arithmetic": (
        "torch.relu((x * y - x) / (y.abs() + 1)) + 0.5",
        "torch.randn(300).bfloat16(), torch.randn(300).bfloat16()",
        """
def kernel(x_ptr, y_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    y = tl.load(y_ptr + i, mask=i < n)
    r = (x * y - x) / (tl.abs(y) + 1)
    r = tl.where(r > 0, r, 0.0) + 0.5
    tl.store(o_ptr + i, r, mask=i < n)
""",
        "o = torch.empty_like(x)\nkernel[(3,)](x, y, o, 300, B=128)\nreturn o",
    ),
    "softmax with casts": (
        "torch.softmax(x.float(), -1).bfloat16()",
        "torch.randn(8, 100).bfloat16()",
        """
def kernel(x_ptr, o_ptr, C, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(x_ptr + tl.program_id(0) * C + i, mask=i < C, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(o_ptr + tl.program_id(0) * C + i, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=i < C)
""",
        "o = torch.empty_like(x)\nkernel[(8,)](x, o, 100, B=128)\nreturn o",
    ),
    "dot through block pointers": (
        "x @ y",
        "torch.randn(32, 48).bfloat16(), torch.randn(48, 16).bfloat16()",
        """
def kernel(x_ptr, y_ptr, o_ptr, K, BK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (32, K), (K, 1), (0, 0), (32, BK), (1, 0))
    y = tl.make_block_ptr(y_ptr, (K, 16), (16, 1), (0, 0), (BK, 16), (1, 0))
    acc = tl.zeros((32, 16), tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(x, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(a, tl.load(y, boundary_check=(0, 1), padding_option="zero"), acc)
        x = tl.advance(x, (0, BK))
        y = tl.advance(y, (BK, 0))
    o = tl.make_block_ptr(o_ptr, (32, 16), (16, 1), (0, 0), (32, 16), (1, 0))
    tl.store(o, acc.to(tl.bfloat16))
""",
        "o = x.new_empty(32, 16)\nkernel[(1,)](x, y, o, 48, BK=32)\nreturn o",
    ),
    "bits, constants and atomics": (
        "x.abs().view(torch.int16).view(torch.bfloat16).sum().reshape(1) * 0 + 64 * 1.5 + x[:1].abs()",
        "torch.randn(64).bfloat16()",
        """
def kernel(x_ptr, o_ptr):
    x = tl.load(x_ptr + tl.arange(0, 64))
    bits = x.to(tl.int16, bitcast=True) & 0x7FFF
    first = tl.sum(tl.where(tl.arange(0, 64) == 0, bits.to(tl.bfloat16, bitcast=True).to(tl.float32), 0.0), 0)
    tl.atomic_add(o_ptr + tl.zeros((64,), tl.int32), tl.full((64,), 1.5, tl.bfloat16))
    tl.atomic_add(o_ptr, first.to(tl.bfloat16))
""",
        "o = torch.zeros(1, dtype=torch.bfloat16)\nkernel[(1,)](x, o)\nreturn o",
    ),
}


@pytest.mark.parametrize("case", BFLOAT16)
def test_bfloat16_is_computed(evaluate: Evaluate, case: str) -> None:
    expression, inputs, kernel, forward = BFLOAT16[case]
    result = evaluate(problem(expression, inputs), candidate(kernel, forward))
    assert result.status == "correct", result.reason
    assert "interpreted" in rules(result)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_is_rounded_to_nearest(evaluate: Evaluate, dtype: str) -> None:
    """Equal bits: there and back is compared at the tolerance of float32."""
    kernel = """
def kernel(x_ptr, o_ptr, n, T: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(T) * tl.full((B,), 1.5, T).to(tl.float32)
    tl.store(o_ptr + i, x.to(tl.float32), mask=i < n)
"""
    name = {"float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}[dtype]
    forward = f"o = torch.empty_like(x)\nkernel[(8,)](x, o, 4000, T=tl.{name}, B=512)\nreturn o"
    asked = problem(f"x.clamp(-400, 400).to(torch.{dtype}).float() * 1.5", "torch.randn(4000)")
    kernel = kernel.replace(".to(T) *", ".to(T).to(tl.float32) *")
    result = evaluate(asked, candidate(kernel, forward))
    assert result.status == "correct", result.reason


def test_wrong_bfloat16_is_incorrect(evaluate: Evaluate) -> None:
    expression, inputs, kernel, forward = BFLOAT16["arithmetic"]
    result = evaluate(problem(expression, inputs), candidate(kernel.replace("+ 0.5", "+ 0.53"), forward))
    assert result.status == "incorrect"


# -- out of bounds -------------------------------------------------------------------------------------

COPY = """
def copy(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)
"""
BLOCKS = """
def blocks(x_ptr, o_ptr, n, B: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    o = tl.make_block_ptr(o_ptr, (n,), (1,), (tl.program_id(0) * B,), (B,), (0,))
    tl.store(o, tl.load(p, boundary_check=(0,)) * 2, boundary_check=(0,))
"""
DESCRIBED = """
def described(x_ptr, o_ptr, n, B: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[B])
    o = tl.make_tensor_descriptor(o_ptr, shape=[n], strides=[1], block_shape=[B])
    o.store([tl.program_id(0) * B], x.load([tl.program_id(0) * B]) * 2)
"""
TWICE = problem("x * 2", "torch.randn(100)")


def launch(name: str, n: int = 100) -> str:
    return f"o = torch.empty_like(x)\n{name}[(2,)](x, o, {n}, B=64)\nreturn o"


@pytest.mark.parametrize(
    ("kernel", "forward"),
    [(COPY, launch("copy")), (BLOCKS, launch("blocks")), (DESCRIBED, launch("described"))],
    ids=["masked", "block pointers", "descriptors"],
)
def test_accesses_that_stay_inside(evaluate: Evaluate, kernel: str, forward: str) -> None:
    result = evaluate(TWICE, candidate(kernel, forward))
    assert result.status == "correct", result.reason


@pytest.mark.parametrize(
    ("kernel", "forward", "kind"),
    [
        (COPY.replace(", mask=i < n) * 2", ") * 2"), launch("copy"), "load"),
        (COPY.replace("* 2, mask=i < n", "* 2, mask=i <= n"), launch("copy"), "store"),
        (BLOCKS.replace("* 2, boundary_check=(0,)", "* 2"), launch("blocks"), "store"),
        (DESCRIBED, launch("described", 104), "load"),
        (COPY.replace("x_ptr + i", "x_ptr + i - 1"), launch("copy"), "load"),
    ],
    ids=["load", "one element too far", "block pointer", "descriptor of a wrong size", "before the start"],
)
def test_out_of_bounds_is_named(evaluate: Evaluate, kernel: str, forward: str, kind: str) -> None:
    """Also what a device would let pass, since the memory behind a tensor is usually mapped."""
    result = evaluate(TWICE, candidate(kernel, forward))
    assert result.status == "incorrect"
    assert f"{kind} of 4 bytes at byte" in result.reason
    assert kernel.split("def ")[1].partition("(")[0] in result.reason
    assert "out-of-bounds" in rules(result)


def test_a_fallback_does_not_hide_a_fault(evaluate: Evaluate) -> None:
    forward = """
try:
    o = torch.empty_like(x)
    copy[(2,)](x, o, 101, B=64)
    return o
except BaseException:
    return x * 2
"""
    result = evaluate(TWICE, candidate(COPY, forward))
    assert result.status == "incorrect"
    assert "out-of-bounds" in result.reason


def test_pointers_in_a_tensor_may_be_followed(evaluate: Evaluate) -> None:
    """As grouped products do: the memory behind them is not an argument of the launch."""
    kernel = """
def gather(table, o_ptr, B: tl.constexpr):
    p = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, B)
    tl.store(o_ptr + tl.program_id(0) * B + i, tl.load(p + i) * 2)
"""
    forward = """
parts = [x[:64].clone(), x[64:].clone()]
o = torch.empty_like(x)
gather[(2,)](torch.tensor([p.data_ptr() for p in parts]), o, B=64)
return o
"""
    same = problem("x * 2", "torch.randn(128)")
    assert evaluate(same, candidate(kernel, forward)).status == "correct"
    beyond = kernel.replace("tl.load(p + i)", "tl.load(p + i + 1)")
    assert "out-of-bounds" in evaluate(same, candidate(beyond, forward)).reason


# -- races ---------------------------------------------------------------------------------------------

TOTAL = problem("x.sum().reshape(1)", "torch.randn(256)")
ADD = "o = torch.zeros(1)\ntotal[(4,)](x, o, B=64)\nreturn o"
ATOMIC = """
def total(x_ptr, o_ptr, B: tl.constexpr):
    v = tl.sum(tl.load(x_ptr + tl.program_id(0) * B + tl.arange(0, B)), 0)
    tl.atomic_add(o_ptr, v)
"""
PLAIN = ATOMIC.replace("tl.atomic_add(o_ptr, v)", "tl.store(o_ptr, tl.load(o_ptr) + v)")
LAST = """
def total(x_ptr, part_ptr, count_ptr, o_ptr, B: tl.constexpr):
    v = tl.sum(tl.load(x_ptr + tl.program_id(0) * B + tl.arange(0, B)), 0)
    tl.store(part_ptr + tl.program_id(0), v)
    if tl.atomic_add(count_ptr, 1) == 3:
        tl.store(o_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, 4)), 0))
"""
LOCK = """
def total(x_ptr, lock_ptr, o_ptr, B: tl.constexpr):
    v = tl.sum(tl.load(x_ptr + tl.program_id(0) * B + tl.arange(0, B)), 0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(o_ptr, tl.load(o_ptr) + v)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
"""
COUNTED = """
part, o, count = torch.empty(4), torch.zeros(1), torch.zeros(1, dtype=torch.int32)
total[(4,)](x, part, count, o, B=64)
return o
"""
LOCKED = (
    "lock, o = torch.zeros(1, dtype=torch.int32), torch.zeros(1)\ntotal[(4,)](x, lock, o, B=64)\nreturn o"
)


@pytest.mark.parametrize(
    ("kernel", "forward"),
    [(ATOMIC, ADD), (LAST, COUNTED), (LOCK, LOCKED)],
    ids=["atomic sum", "last one reduces", "lock"],
)
def test_programs_that_synchronise_do_not_race(evaluate: Evaluate, kernel: str, forward: str) -> None:
    result = evaluate(TOTAL, candidate(kernel, forward))
    assert result.status == "correct", result.reason


CHAIN = """
def chain(x_ptr, o_ptr, sum_ptr, flag_ptr, B: tl.constexpr):
    n = tl.program_id(0)
    x = tl.load(x_ptr + n * B + tl.arange(0, B))
    before = 0.0
    if n > 0:
        while tl.atomic_add(flag_ptr + n - 1, 0) == 0:
            pass
        before = tl.load(sum_ptr + n - 1)
    tl.store(sum_ptr + n, before + tl.sum(x, 0))
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + n, 1)
    tl.store(o_ptr + n * B + tl.arange(0, B), before + tl.cumsum(x, 0))
"""
CHAINED = """
o, sums, flags = torch.empty_like(x), torch.empty(16), torch.zeros(16, dtype=torch.int32)
chain[(16,)](x, o, sums, flags, B=16)
return o
"""
SUMS = problem("x.cumsum(0)", "torch.randn(256)")


def test_programs_may_wait_for_earlier_ones(evaluate: Evaluate) -> None:
    result = evaluate(SUMS, candidate(CHAIN, CHAINED))
    assert result.status == "correct", result.reason
    volatile = CHAIN.replace("tl.atomic_add(flag_ptr + n - 1, 0)", "tl.load(flag_ptr + n - 1, volatile=True)")
    assert evaluate(SUMS, candidate(volatile, CHAINED)).status == "correct"


def test_programs_that_all_wait_for_each_other_are_stopped(evaluate: Evaluate) -> None:
    barrier = CHAIN.replace("if n > 0:", "if n >= 0:").replace("flag_ptr + n - 1", "flag_ptr + (n + 15) % 16")
    result = evaluate(SUMS, candidate(barrier, CHAINED))
    assert result.status == "runtime_error"
    assert "waits for another one" in result.reason


SHIFT = """
def shift(x_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x_ptr + i, mask=i < n) + tl.load(x_ptr + i + 1, mask=i + 1 < n, other=0.0)
    tl.store(x_ptr + i, v, mask=i < n)
"""


@pytest.mark.parametrize(
    ("asked", "kernel", "forward"),
    [
        (TOTAL, PLAIN, ADD),
        (TOTAL, LAST.replace("tl.atomic_add(count_ptr, 1) == 3", "tl.program_id(0) == 3"), COUNTED),
        (
            problem("x + torch.cat([x[1:], x.new_zeros(1)])", "torch.randn(256)"),
            SHIFT,
            "o = x.clone()\nshift[(4,)](o, 256, B=64)\nreturn o",
        ),
        (
            problem("x[-64:] * 2", "torch.randn(256)"),
            COPY.replace("o_ptr + i,", "o_ptr + i % B,"),
            "o = x.new_empty(64)\ncopy[(4,)](x, o, 256, B=64)\nreturn o",
        ),
    ],
    ids=["sum without atomics", "no counter", "neighbours in place", "last one wins"],
)
def test_races_are_named(evaluate: Evaluate, asked: str, kernel: str, forward: str) -> None:
    result = evaluate(asked, candidate(kernel, forward))
    assert result.status == "incorrect"
    assert result.reason.startswith("race: kernel")
    assert "race" in rules(result)


def test_equal_values_from_several_programs_do_no_harm(evaluate: Evaluate) -> None:
    kernel = """
def top(x_ptr, o_ptr, flag_ptr, B: tl.constexpr):
    tl.store(flag_ptr, 1.0)
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i) * 2)
"""
    forward = "o, flag = torch.empty_like(x), torch.zeros(1)\ntop[(2,)](x, o, flag, B=64)\nreturn o"
    result = evaluate(problem("x * 2", "torch.randn(128)"), candidate(kernel, forward))
    assert result.status == "correct", result.reason


# -- autotuning ----------------------------------------------------------------------------------------

TUNED = """
@triton.autotune([triton.Config({"B": b, "SPAN": s}) for b, s in PAIRS], key=["n"])
@triton.jit
def copy(x_ptr, o_ptr, n, B: tl.constexpr, SPAN: tl.constexpr):
    i = tl.program_id(0) * SPAN + tl.arange(0, B)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        o = torch.zeros_like(x)
        n = x.numel()
        copy[lambda meta: (triton.cdiv(n, meta["SPAN"]),)](x, o, n)
        return o
"""


@pytest.mark.parametrize(
    ("pairs", "status"),
    [
        ([(2**k, 2**k) for k in range(2, 7)] * 2, "correct"),
        ([(2**k, 2**k) for k in range(1, 14)], "correct"),
        ([*[(2**k, 2**k) for k in range(1, 14)], (16, 32)], "incorrect"),
    ],
    ids=["few", "many", "the last one is wrong"],
)
def test_every_configuration_has_its_turn(
    evaluate: Evaluate, pairs: list[tuple[int, int]], status: str
) -> None:
    result = evaluate(TWICE, f"{HEADER}PAIRS = {pairs}\n{TUNED}")
    assert result.status == status, result.reason
    if status == "correct" and len(set(pairs)) > 8:
        assert result.correctness is not None
        assert result.correctness["rounds"] >= 12
    assert "configurations-unchecked" not in rules(result)


def test_programs_run_in_another_order_than_their_numbers(evaluate: Evaluate) -> None:
    """A kernel that counts on the order of programs is wrong also where its accesses are atomic."""
    kernel = """
def number(x_ptr, o_ptr, count_ptr):
    ticket = tl.atomic_add(count_ptr, 1)
    tl.store(o_ptr + tl.program_id(0), tl.load(x_ptr + ticket) * 2)
"""
    forward = """
o, count = torch.empty_like(x), torch.zeros(1, dtype=torch.int32)
number[(16,)](x, o, count)
return o
"""
    result = evaluate(problem("x * 2", "torch.randn(16)"), candidate(kernel, forward))
    assert result.status == "incorrect"
    assert "race" not in rules(result)
