"""Evidence at run time: what changed in the process, which kernels ran, and whether they mattered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness import Evaluation, EvaluationRequest, LocalExecutor
from harness.worker.evidence.experiments import Experiments
from harness.worker.jail.places import Places
from harness.worker.jail.sandbox import readable_paths

Evaluate = Callable[..., Evaluation]
Body = Callable[..., str]

HONEST = "return torch.relu(self.ln(x))"
# Reaches an object in a way that no static rule follows.
HIDDEN = "def find(name): return [v for k, v in globals().items() if k == name][0]\n"
# Text that nothing but the static rules can object to, made in a way that they do not follow.
FRAMES = HIDDEN + "import runpy\nFRAMES = ''.join(map(str, ['def g(e): return e.', 'tb_', 'frame']))\n"

PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        return torch.tanh(a @ b) * 2
def get_inputs():
    return [torch.rand(32, 48), torch.rand(48, 16)]
def get_init_inputs():
    return []
"""
TRITON = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
@triton.jit
def double_tanh(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, 4 * tl.sigmoid(2 * v) - 2, mask=i < n)
@triton.jit
def show(flag_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(flag_ptr + i, tl.load(flag_ptr + i, mask=i < 1), mask=i < 1)
def launch(x):
    y = torch.empty_like(x)
    double_tanh[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.flag = torch.zeros(1)
    def forward(self, a, b):
"""
NATIVE = '''
import torch
import torch.nn as nn
from harness.native import load_cpp
lib = load_cpp(r"""
#include <cmath>
#include <cstdint>
extern "C" void double_tanh(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * std::tanh(x[i]);
}
extern "C" void show(const float* x, int64_t n) {}
""", flags=("-O1",))
double_tanh = lib.double_tanh  # kept under another name
class ModelNew(nn.Module):
    def forward(self, a, b):
'''
BUILT = """
import ctypes, subprocess
import torch
import torch.nn as nn
open("/tmp/k.c", "w").write("void show(long n) {}")
subprocess.run(["gcc", "-shared", "-fPIC", "/tmp/k.c", "-o", "/tmp/k.so"], check=True)
show = ctypes.CDLL("/tmp/k.so").show
class ModelNew(nn.Module):
    def forward(self, a, b):
"""
LIBRARY = "return torch.tanh(a @ b) * 2"

BARE = "\nimport torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, a, b):\n"


def with_forward(head: str, forward: str) -> str:
    return head + "\n".join("        " + line for line in forward.splitlines()) + "\n"


@pytest.mark.parametrize(
    ("rule", "top", "forward"),
    [
        ("patches-library", HIDDEN + "find('torch').allclose = print", HONEST),
        ("patches-library", HIDDEN + "find('torch').Tensor.sum = lambda *a: 0", HONEST),
        ("patches-library", HIDDEN + "find('nn').Module.__call__ = lambda s, *a: s.forward(*a)", HONEST),
        ("patches-library", HIDDEN + "find('time').perf_counter = lambda: 0.0", HONEST),
        ("patches-library", HIDDEN + "import json\nfind('json').dumps = print", HONEST),
        (
            "patches-library",
            HIDDEN + "def f(*a, **k): return 0\nfind('nn').functional.layer_norm.__code__ = f.__code__",
            "y = x - x.mean(-1, keepdim=True)\n"
            "y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-5)\n"
            "return torch.relu(y * self.ln.weight + self.ln.bias)",
        ),
        ("replaces-module", HIDDEN + "find('sys').modules['socket'] = os", HONEST),
        ("inspects-harness", HIDDEN + "import gc\nfind('gc').get_objects()", HONEST),
        ("inspects-harness", HIDDEN, "f = find('sys')\nf = getattr(f, '_getframe')(0)\n" + HONEST),
        ("hidden-code", HIDDEN + "import marshal\nfind('marshal').loads(marshal.dumps(3))", HONEST),
        (
            "patches-library",
            HIDDEN + "t = ''.join(map(str, ['torch.equal', '=1']))\nfind('run')(t)\n",
            HONEST,
        ),
        ("inspects-harness", FRAMES + "find('run')('#' * 30000 + chr(10) + FRAMES)", HONEST),
        (
            "inspects-harness",
            FRAMES + "open('h.py', 'w').write(FRAMES)\nsys.path.append('.')\nimport h",
            HONEST,
        ),
        (
            "inspects-harness",
            FRAMES + "open('/tmp/h.py', 'w').write(FRAMES)\nrunpy.run_path('/tmp/h.py')",
            HONEST,
        ),
        (
            "hidden-code",
            "import importlib.machinery as m, py_compile\nopen('h.py', 'w').write('x = 1')\n"
            "py_compile.compile('h.py', 'g.pyc')\nm.SourcelessFileLoader('g', 'g.pyc').load_module()",
            HONEST,
        ),
        ("global-hook", HIDDEN + "find('nn').modules.module.register_module_forward_hook(print)", HONEST),
        ("global-mode", HIDDEN + "find('M')().__enter__()", HONEST),
        ("schedules-code", HIDDEN, "find('sys').setprofile(None)\n" + HONEST),
        ("schedules-code", HIDDEN + "import signal\nfind('signal').signal(14, print)", HONEST),
        (
            "overrides-operator",
            HIDDEN + "L = find('torch').library.Library('aten', 'IMPL')\n"
            "L.impl('hardswish', lambda x: x, 'CPU')",
            HONEST,
        ),
        (
            "background-work",
            "import threading\ndef spin():\n    while True: pass\n"
            "threading.Thread(target=spin, daemon=True).start()",
            HONEST,
        ),
        (
            "background-work",
            "if os.fork() == 0:\n    while True: pass",
            HONEST,
        ),
    ],
)
def test_what_static_rules_do_not_see(  # noqa: PLR0917  (pytest passes them by name)
    evaluate: Evaluate, body: Body, norm_problem: str, rule: str, top: str, forward: str
) -> None:
    mode = "class M(torch.overrides.TorchFunctionMode):\n"
    mode += "    def __torch_function__(self, f, t, a=(), k=None): return f(*a, **(k or {}))\n"
    top = f"run = [exec][-1]\n{mode}{top}"
    result = evaluate(norm_problem, body(forward, top=top))
    assert result.status == "rejected", result.reason
    assert rule in result.reason


@pytest.mark.parametrize(
    ("top", "forward"),
    [
        (
            "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)",
            "return pool.submit(torch.relu, self.ln(x)).result()",
        ),
        (
            "import queue, threading\nq = queue.SimpleQueue()\ndef serve():\n"
            "    while True:\n        f, e = q.get()\n"
            "        f()\n        e.set()\nthreading.Thread(target=serve, daemon=True).start()",
            "e = threading.Event()\nout = []\nq.put((lambda: out.append(torch.relu(self.ln(x))), e))\n"
            "e.wait()\n"
            "return out[0]",
        ),
        (
            "import dataclasses, collections, inspect, warnings, gc\nP = collections.namedtuple('P', 'a b')\n"
            "@dataclasses.dataclass\nclass C:\n    a: int = 1\ninspect.signature(print)\ngc.collect()",
            HONEST,
        ),
        (
            "ns = {}\nexec('def act(x): return torch.relu(x)', {'torch': torch}, ns)",
            "return ns['act'](self.ln(x))",
        ),
        (
            "import torch.utils.benchmark, torch.testing, torch.func, torch.distributed\n"
            "torch.set_default_device('cpu')\ntorch.set_flush_denormal(True)",
            HONEST,
        ),
        (
            "lib = torch.library.Library('mine', 'DEF')\nlib.define('act(Tensor x) -> Tensor')\n"
            "lib.impl('act', lambda x: torch.relu(x), 'CPU')",
            "return torch.ops.mine.act(self.ln(x))",
        ),
    ],
)
def test_honest_lookalikes(evaluate: Evaluate, body: Body, norm_problem: str, top: str, forward: str) -> None:
    result = evaluate(norm_problem, body(forward, top=top))
    assert result.status == "correct", result.reason
    assert not [f for f in result.flags if f["severity"] == "reject"]


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        ("decoy-kernel", with_forward(TRITON, f"show[(1,)](self.flag, BLOCK=16)\n{LIBRARY}")),
        ("decoy-kernel", with_forward(TRITON, f"unused = launch(a)\n{LIBRARY}")),
        ("decoy-kernel", with_forward(NATIVE, f"lib.show(a, 3)\n{LIBRARY}")),
        (
            "decoy-kernel",
            "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
            + with_forward(
                NATIVE, "lib.show(a, 3)\nreturn pool.submit(lambda: torch.tanh(a @ b) * 2).result()"
            ),
        ),
        ("decoy-kernel", with_forward(NATIVE, f"y = torch.empty_like(a)\ndouble_tanh(a, y, 3)\n{LIBRARY}")),
        ("decoy-kernel", with_forward(BUILT, f"show(3)\n{LIBRARY}")),
        ("kernel-never-launched", with_forward(BUILT, LIBRARY)),
        ("kernel-never-launched", with_forward(TRITON, LIBRARY)),
        (
            "kernel-never-launched",
            with_forward(TRITON, f"try:\n    return launch(a @ b, 1)\nexcept Exception:\n    {LIBRARY}"),
        ),
        (
            "kernel-never-launched",
            with_forward(TRITON, f"try:\n    double_tanh[(1,)](a)\nexcept BaseException:\n    {LIBRARY}"),
        ),
        ("kernel-never-launched", with_forward(TRITON, f"if False:\n    return launch(a @ b)\n{LIBRARY}")),
        ("kernel-never-launched", with_forward(NATIVE, LIBRARY)),
    ],
)
def test_kernels_for_show(evaluate: Evaluate, rule: str, source: str) -> None:
    result = evaluate(PROBLEM, source)
    assert result.status == "rejected", result.reason
    assert rule in result.reason


@pytest.mark.parametrize(
    "source",
    [
        with_forward(TRITON, "return launch(a @ b)"),
        with_forward(
            TRITON,
            "run = double_tanh.run\nx = a @ b\ny = torch.empty_like(x)\n"
            "run(x, y, x.numel(), grid=(2,), warmup=False, BLOCK=256)\nreturn y",
        ),
        with_forward(NATIVE, "x = a @ b\ny = torch.empty_like(x)\ndouble_tanh(x, y, x.numel())\nreturn y"),
        with_forward(NATIVE, "x = a @ b\nlib.double_tanh(x, x, x.numel())\nreturn x"),
        with_forward(
            NATIVE,
            "x = a @ b\ny = torch.full_like(x, float('nan'))\ndouble_tanh(x, y, x.numel())\n"
            "return y if bool(y.isfinite().all()) else torch.tanh(x) * 2",
        ),
        with_forward(NATIVE, f"if a.dtype == torch.float64:\n    return double_tanh(a, b, 3)\n{LIBRARY}"),
        with_forward("import ctypes.util\nctypes.CDLL(ctypes.util.find_library('c'))" + BARE, LIBRARY),
        "import torch\nimport torch.nn as nn\ntry:\n    import triton\nexcept ImportError:\n    pass\n"
        f"class ModelNew(nn.Module):\n    def forward(self, a, b):\n        {LIBRARY}\n",
    ],
)
def test_kernels_that_matter_or_are_not_claimed(evaluate: Evaluate, source: str) -> None:
    result = evaluate(PROBLEM, source)
    assert result.status == "correct", result.reason


def test_share_of_own_code(evaluate: Evaluate) -> None:
    library = evaluate(
        PROBLEM,
        with_forward(
            "import torch\nimport torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, a, b):\n",
            LIBRARY,
        ),
    )
    assert library.custom_kernel_share == 0.0
    both = "x = a @ b\ny = torch.empty_like(x)\ndouble_tanh(x, y, x.numel())\nreturn y"
    mixed = evaluate(PROBLEM, with_forward(NATIVE, both))
    assert mixed.custom_kernel_share is not None
    assert 0 < mixed.custom_kernel_share < 0.98


def test_policy_pure(evaluate: Evaluate) -> None:
    both = "x = a @ b\ny = torch.empty_like(x)\ndouble_tanh(x, y, x.numel())\nreturn y"
    rejected = evaluate(PROBLEM, with_forward(NATIVE, both), policy="pure")
    assert rejected.status == "rejected"
    assert "library-call" in rejected.reason
    assert "aten::mm" in rejected.reason
    only_tanh = (
        PROBLEM.replace("a @ b", "a.t()").replace("b):", "b=None):").replace(", torch.rand(48, 16)", "")
    )
    own = "x = a.t().contiguous()\ny = torch.empty_like(x)\ndouble_tanh(x, y, x.numel())\nreturn y"
    accepted = evaluate(only_tanh, with_forward(NATIVE, own).replace("b):", "b=None):"), policy="pure")
    assert accepted.status == "correct", accepted.reason
    assert accepted.custom_kernel_share == 1.0


def test_result_that_depends_on_signs_of_timing(evaluate: Evaluate, body: Body, norm_problem: str) -> None:
    top = HIDDEN + "def timed(): return '--perf' in find('sys').argv or 'PERF' in find('os').environ"
    forward = "y = torch.relu(self.ln(x))\nreturn y.half().float() if timed() else y"
    result = evaluate(norm_problem, body(forward, top=top))
    assert result.status == "rejected"
    assert "phase-sniffing" in result.reason


def test_what_is_seen_is_complete_on_every_kind_of_device(tmp_path: Path) -> None:
    """An answer without one of these would be taken for none, and no decoy would be looked for."""
    for like in (torch.empty(1), torch.empty(1, device="meta")):
        places = Places(tmp_path, readable_paths())
        tried = Experiments(lambda x: torch.relu(x) + 1, places, [like], all_threads=False)
        tried.forwards["counted"](torch.randn(4))
        assert {"launches", "reused", "own_us", "library_us", "library"} <= set(tried.seen)
        assert any(name.startswith("aten::relu") for name in tried.seen["library"])


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_compiled_code_runs_while_it_is_watched(tmp_path: Path, device: str) -> None:
    """Also where no graph break is allowed, and where operators of its own are watched."""

    @torch.library.custom_op("watched::act", mutates_args=())
    def act(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    act.register_fake(torch.empty_like)

    @torch.compile(fullgraph=True, backend="eager")
    def run(x: torch.Tensor) -> torch.Tensor:
        return act(x * 2) + 1

    like = torch.empty(1, device=device)
    tried = Experiments(run, Places(tmp_path, readable_paths()), [like], all_threads=False)
    for _ in range(2):
        result = tried.forwards["counted"](torch.tensor([-1.0, 3.0]))
        assert result.tolist() == [1.0, 7.0]
        assert tried.seen["launches"]["attempted"] == 1
        assert {"aten::mul", "aten::add"} <= {name.partition(".")[0] for name in tried.seen["library"]}


def test_operators_of_torch_are_nobody_elses() -> None:
    """A mode that sees all operators imports TorchDynamo, for seconds: torch's own are no reason for it."""
    program = """
import torch, torch.distributed._functional_collectives
from harness.worker.evidence.ablation import _custom_operators
seen = [any(name.startswith("c10d_functional::") for name in torch.library._defs), _custom_operators("/x")]
library = torch.library.Library("mine", "DEF")
if way == "library":
    library.define("g(Tensor x) -> Tensor")
else:
    torch.library.custom_op("mine::g", lambda x: x.clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
print(*seen, _custom_operators("/x"))
"""
    for way in ("library", "custom_op"):
        done = subprocess.run(
            [sys.executable, "-c", f"way = {way!r}\n{program}"], capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["True", "False", "True"]


def test_packages_on_the_path_are_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, norm_problem: str, body: Body
) -> None:
    """A candidate may import them, wherever they lie; what they ask the interpreter for is their business."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "asks_who_calls.py").write_text("import sys\ncaller = sys._getframe(0).f_code.co_name\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    with LocalExecutor(tmp_path / "cache") as executor:
        candidate = body(top="import asks_who_calls")
        result = executor.evaluate(EvaluationRequest(norm_problem, candidate, timing_budget_s=0.0))
        assert result.status == "correct", result.reason
        own = body("sys._getframe(0)\nreturn torch.relu(self.ln(x))")
        result = executor.evaluate(EvaluationRequest(norm_problem, own, timing_budget_s=0.0))
        assert result.status == "rejected"
