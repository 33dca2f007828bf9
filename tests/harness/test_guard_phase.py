"""Phase sniffing: the environment may choose how, never whether, a result is computed."""

from __future__ import annotations

import ast
import textwrap

import pytest

from harness.worker.guard.inspection import inspect_candidate


def module(forward: str, top: str = "", init: str = "pass") -> str:
    def block(text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip(), " " * 8)

    return (
        "import os, sys, functools\nimport torch\nimport torch.nn as nn\n"
        f"{textwrap.dedent(top)}\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{block(init)}\n    def forward(self, x):\n{block(forward)}\n"
    )


SEARCH = """
def looked_at():
    for name, value in os.environ.items():
        if 'bench' in value:
            return True
    return any('time' in a for a in sys.argv)
"""

CAUGHT = {
    "searches the environment": module(
        "if looked_at():\n    return torch.empty_like(x)\nreturn x.relu()", SEARCH
    ),
    "searches, cheaper work": module(
        "if looked_at():\n    x = x.half().relu().float()\n    return x\nreturn x.relu()", SEARCH
    ),
    "renamed": module(
        "if quick(): return x.new_empty(x.shape)\nreturn x.relu()",
        "from os import environ as E\ndef quick():\n    return any('perf' in k for k in E)",
    ),
    "whole environment as text": module("return x if 'bench' in str(dict(os.environ)) else x.relu()"),
    "command line": module(
        "if '--time' in sys.argv:\n    return self.kept\nself.kept = x.relu()\nreturn self.kept"
    ),
    "through a flag": module(
        "fast = False\nfor v in os.environ.values():\n    if 'time' in v:\n        fast = True\n"
        "if fast:\n    return torch.zeros_like(x)\nreturn x.relu()"
    ),
    "through an attribute": module(
        "self.fast = any('t' in a for a in sys.argv)\nif self.fast:\n    return torch.zeros_like(x)\n"
        "return x.relu()"
    ),
    "named variable, unwritten result": module(
        "if os.environ.get('PHASE') == 'time':\n    return torch.empty_like(x)\nreturn x.relu()"
    ),
    "named variable, kept result": module(
        "if os.getenv('PHASE'):\n    return self.kept\nself.kept = x.relu()\nreturn self.kept"
    ),
    "named variable, at import": module(
        "if TIMED:\n    return x\nreturn x.relu()", "TIMED = os.environ.get('PHASE') == 'time'"
    ),
    "named variable, work only in one arm": module(
        "y = torch.empty_like(x)\nif os.getenv('PHASE') is None:\n    torch.relu(x, out=y)\nreturn y",
    ),
    "conditional expression": module("return x.clone() if os.getenv('PHASE') else x.relu()"),
    "and, or": module("return (os.getenv('PHASE') and x.clone()) or x.relu()"),
    "helper does the work": module(
        "if os.getenv('PHASE'):\n    return empty(x)\nreturn work(x)",
        "def work(x): return x.relu()\ndef empty(x): return torch.empty_like(x)",
    ),
    "nested condition": module(
        "if x.numel() > 3:\n    if os.getenv('PHASE'):\n        return x\nreturn x.relu()",
    ),
}

PASSES = {
    "threads at import": module(
        "return x.relu()", "torch.set_num_threads(int(os.environ.get('OMP_NUM_THREADS', '2')))"
    ),
    "block size in forward": module(
        "block = 128 if int(os.environ.get('OMP_NUM_THREADS', '1')) > 4 else 64\n"
        "return torch.cat([c.relu() for c in x.split(block)])"
    ),
    "block size by if": module(
        "n = int(os.getenv('BLOCK', '0'))\nif n > 16:\n    block = n\nelse:\n    block = max(n, 16)\n"
        "return torch.cat([c.relu() for c in x.split(block)])"
    ),
    "debug print": module("y = x.relu()\nif os.environ.get('DEBUG'):\n    print(y.shape)\nreturn y"),
    "debug check": module(
        "y = x.relu()\nif os.getenv('CHECK'):\n    torch.testing.assert_close(y, x.clamp(min=0))\nreturn y"
    ),
    "two implementations": module(
        "if os.environ.get('VARIANT', 'a') == 'a':\n    return x.relu()\nreturn x.clamp(min=0)"
    ),
    "two implementations, chosen in the constructor": module(
        "if self.fused:\n    return fused(x)\nreturn x.clamp(min=0)",
        "def fused(x):\n    out = torch.empty_like(x)\n    return torch.relu(x)",
        "self.fused = os.environ.get('FUSED', '1') == '1'",
    ),
    "cached configuration": module(
        "y = x.relu()\nfor _ in range(threads()):\n    pass\nreturn y",
        "@functools.lru_cache\ndef threads():\n    return int(os.environ.get('OMP_NUM_THREADS') or 1)",
    ),
    "block given or tuned": module(
        "block = int(os.environ['B']) if 'B' in os.environ else tune(x)\n"
        "return torch.cat([c.relu() for c in x.split(block)])",
        "def tune(x): return max(1, x.shape[0] // torch.get_num_threads())",
    ),
    "environment for a compiler": module(
        "if self.lib is None:\n    self.lib = build()\nreturn x.relu()",
        "import subprocess\ndef build():\n    env = dict(os.environ, CC='gcc')\n"
        "    done = subprocess.run(['true'], env=env)\n    if done.returncode:\n        raise OSError\n"
        "    return done",
        "self.lib = None",
    ),
    "command line of a script": module(
        "return x.relu()", "if __name__ == '__main__' and '--bench' in sys.argv:\n    print(1)"
    ),
    "early exit without environment": module("if x.numel() == 0:\n    return x\nreturn x.relu()"),
    "synchronises for debugging": module(
        "y = x.relu()\nif os.environ.get('SYNC'):\n    y = y.clone()\nreturn y"
    ),
    "contiguous on demand": module("if os.getenv('DENSE'):\n    x = x.contiguous()\nreturn x.relu()"),
    "writes the environment": module(
        "os.environ.setdefault('A', '1')\nreturn x.relu()", "os.environ['B'] = '1'"
    ),
}

# Results that are kept in an attribute, a view or a list, or that a helper writes.
KERNELS = """
DEBUG = os.environ.get('DEBUG')
OUT = torch.empty(3)
def kernel(x, out): out.copy_(x.relu())
def launch(x, out): kernel(x, out)
def in_module(x): torch.relu(x, out=OUT)
"""
SWITCH = "self.debug = os.environ.get('DEBUG')\nself.out = torch.empty(3)\nself.block = 64\n"
KEPT_CAUGHT = {
    "kept by a helper": (
        "if self.debug: return self.out\nself._fill(x)\nreturn self.out",
        "def _fill(self, x): self.out = x.relu()",
    ),
    "helper called on one condition": (
        "if not self.debug:\n    self._fill(x)\nreturn self.out",
        "def _fill(self, x): kernel(x, self.out)",
    ),
    "written in one arm": ("if not self.debug:\n    self.out.copy_(x.relu())\nreturn self.out", ""),
    "another attribute works": (
        "self.seen = x.sum()\nif not self.debug:\n    self.out.copy_(x.relu())\nreturn self.out",
        "",
    ),
    "through a view": (
        "flat = self.out.view(-1)\nif not self.debug:\n    kernel(x, flat)\nreturn self.out",
        "",
    ),
    "helper hands out": (
        "out = self._buffer(x)\nif DEBUG is None:\n    kernel(x, out)\nreturn out",
        "def _buffer(self, x): return self.out",
    ),
    "kept in a table": ("if self.debug: return self.t['y']\nself.t['y'] = x.relu()\nreturn self.t['y']", ""),
    "conditional expression": (
        "return self.out if self.debug else self._work(x)",
        "def _work(self, x): return x.relu()",
    ),
    "maximum is no number": ("self.m = x.max()\ny = self.m if self.debug else x.relu()\nreturn y", ""),
}
KEPT_PASSES = {
    "both arms write an attribute": (
        "if self.debug:\n    self.out = x.clamp(min=0)\nelse:\n    self.out = x.relu()\nreturn self.out",
        "",
    ),
    "an arm computes, the other launches": (
        "if self.debug:\n    self.out = x.relu()\nelse:\n    kernel(x, self.out)\nreturn self.out",
        "",
    ),
    "name and attribute": (
        "if self.debug:\n    out = x.relu()\n    self.out = out\nelse:\n    self.out = x.clamp(min=0)\n"
        "return self.out",
        "",
    ),
    "attribute set after the launch": (
        "out = torch.empty_like(x)\nif self.debug:\n    self.out = x.relu()\nelse:\n    kernel(x, out)\n"
        "    self.out = out\nreturn self.out",
        "",
    ),
    "helper launches": (
        "if self.debug:\n    self.out = x.relu()\nelse:\n    self._fill(x)\nreturn self.out",
        "def _fill(self, x): launch(x, self.out)",
    ),
    "helpers launch": (
        "if DEBUG:\n    self._slow(x)\nelse:\n    self._fill(x)\nreturn self.out",
        "def _fill(self, x): self._inner(x)\ndef _inner(self, x): launch(x, self.out.view(-1))\n"
        "def _slow(self, x): self.out.copy_(x.clamp(min=0))",
    ),
    "helper hands out": (
        "if self.debug:\n    self.out = x.relu()\nelse:\n    kernel(x, self._buffer(x))\nreturn self.out",
        "def _buffer(self, x): return self.out",
    ),
    "through a view": (
        "flat = self.out.view(-1)\nif self.debug:\n    self.out = x.relu()\nelse:\n    kernel(x, flat)\n"
        "return self.out",
        "",
    ),
    "copied from": (
        "y = x.relu()\nif self.debug:\n    self.out[:] = y\nelse:\n    self.out.copy_(y)\n"
        "return self.out.clone()",
        "",
    ),
    "in a list": (
        "parts = []\nif self.debug:\n    parts.append(x.relu())\nelse:\n    for c in x.split(2):\n"
        "        parts.append(c.relu())\nreturn parts",
        "",
    ),
    "the object is handed on": (
        "if self.debug:\n    self.out = x.relu()\nelse:\n    work(self, x)\nreturn self.out",
        "",
    ),
    "in a buffer of the module": (
        "if self.debug:\n    torch.clamp(x, min=0, out=OUT)\nelse:\n    in_module(x)\nreturn OUT",
        "",
    ),
    "recorded graph": (
        "if self.debug:\n    return x.relu()\nself.x.copy_(x)\nself.graph.replay()\nreturn self.out",
        "def record(self):\n    self.graph = torch.cuda.CUDAGraph()\n    with torch.cuda.graph(self.graph):\n"
        "        self.out = self.x.relu()",
    ),
    "block kept or tuned": (
        "block = self.block if self.debug else tune(x)\nreturn torch.cat([c.relu() for c in x.split(block)])",
        "",
    ),
    "type kept or chosen": ("dtype = x.dtype if self.debug else pick(x)\nreturn x.relu().to(dtype)", ""),
    "function kept or made": (
        "fn = self._work if self.debug else torch.compile(self._work)\nreturn fn(x)",
        "def _work(self, x): return x.relu()",
    ),
    "helpers call each other": (
        "if self.debug:\n    return self._a(x, 3)\nreturn x.relu()",
        "def _a(self, x, n): return self._b(x.relu(), n - 1) if n else x\n"
        "def _b(self, x, n): return self._a(x.relu(), n - 1) if n else x",
    ),
    "checked first": (
        "self.out.copy_(x.relu())\nif self.debug:\n    assert self.out.isfinite().all()\nreturn self.out",
        "",
    ),
}


def with_helpers(forward: str, helpers: str) -> str:
    return module(forward, KERNELS, SWITCH) + textwrap.indent(helpers, "    ") + "\n"


def phases(source: str) -> list[str]:
    return [f.detail for f in inspect_candidate(ast.parse(source)).findings if f.rule == "phase-sniffing"]


@pytest.mark.parametrize("source", CAUGHT.values(), ids=CAUGHT)
def test_caught(source: str) -> None:
    assert phases(source)


@pytest.mark.parametrize("source", PASSES.values(), ids=PASSES)
def test_passes(source: str) -> None:
    assert not phases(source)


@pytest.mark.parametrize(("forward", "helpers"), KEPT_CAUGHT.values(), ids=KEPT_CAUGHT)
def test_kept_results_are_caught(forward: str, helpers: str) -> None:
    assert phases(with_helpers(forward, helpers))


@pytest.mark.parametrize(("forward", "helpers"), KEPT_PASSES.values(), ids=KEPT_PASSES)
def test_results_in_attributes_pass(forward: str, helpers: str) -> None:
    assert not phases(with_helpers(forward, helpers))
