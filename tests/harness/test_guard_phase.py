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


def phases(source: str) -> list[str]:
    return [f.detail for f in inspect_candidate(ast.parse(source)).findings if f.rule == "phase-sniffing"]


@pytest.mark.parametrize("source", CAUGHT.values(), ids=CAUGHT)
def test_caught(source: str) -> None:
    assert phases(source)


@pytest.mark.parametrize("source", PASSES.values(), ids=PASSES)
def test_passes(source: str) -> None:
    assert not phases(source)
