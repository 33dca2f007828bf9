"""The static rules: for each, candidates that it catches (plain, renamed, indirect) and look-alikes."""

from __future__ import annotations

import ast
import textwrap

import pytest
import torch  # noqa: F401  (rules look up what a library has, where it is loaded)

from harness.worker.guard.inspection import RULES, Inspection, inspect_candidate

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
WORK = "torch.relu(x)"


def module(top: str = "", forward: str = f"return {WORK}", init: str = "pass") -> str:
    """A candidate with these statements at module level, in forward and in the constructor."""

    def block(text: str) -> str:
        return textwrap.indent(textwrap.dedent(text).strip(), " " * 8)

    return (
        f"{HEAD}{textwrap.dedent(top)}\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n"
        f"        super().__init__()\n{block(init)}\n    def forward(self, x):\n{block(forward)}\n"
    )


def look(source: str) -> Inspection:
    return inspect_candidate(ast.parse(source))


def rules_of(source: str) -> set[str]:
    return {f.rule for f in look(source).findings}


CAUGHT: dict[str, list[tuple[str, str]]] = {
    "patches-library": [
        ("plain", module("torch.allclose = lambda *a, **k: True")),
        ("renamed", module("import torch as t\nfrom torch import Tensor as _T\n_T.equal = t.equal = print")),
        ("alias", module("_T = torch.Tensor\nsetattr(_T, 'abs', print)")),
        ("tuple", module("a, b = torch, 3\na.isclose = print")),
        ("loop over names", module("for n in ('zero_', 'fill_'):\n    setattr(torch.Tensor, n, print)")),
        ("loop over owners", module("for o in [torch, F]:\n    o.relu = print")),
        ("loop target", module("for torch.equal in [print]:\n    pass")),
        ("helper's parameter", module("def put(o, n, f):\n    setattr(o, n, f)\nput(torch, 'equal', print)")),
        ("helper's result", module("def lib():\n    return torch.cuda\nlib().synchronize = print")),
        ("import by name", module("import importlib\nimportlib.import_module('torch').equal = print")),
        ("__import__", module("__import__('torch.nn').nn.Module.__call__ = print")),
        ("getattr", module("getattr(torch, 'Ten' + 'sor').sum = print")),
        ("reversed name", module("getattr(torch, 'rosneT'[::-1]).sum = print")),
        ("namespace", module("vars(torch)['equal'] = print")),
        ("__dict__", module("d = torch.__dict__\nd.update(equal=print)")),
        ("sys.modules", module("import sys\nsys.modules['time'].time = print")),
        ("object.__setattr__", module("object.__setattr__(torch, 'equal', print)")),
        ("type.__setattr__", module("type.__setattr__(torch.Tensor, 'sum', print)")),
        ("bound __setattr__", module("torch.__setattr__('equal', print)")),
        ("partial", module("import functools\nput = functools.partial(setattr, torch)\nput('equal', print)")),
        ("map", module("list(map(setattr, [torch], ['equal'], [print]))")),
        ("lambda", module("(lambda o: setattr(o, 'equal', print))(torch)")),
        (
            "attrgetter",
            module("import operator\nsetattr(operator.attrgetter('nn.Module')(torch), 'eval', print)"),
        ),
        ("operator.setitem", module("import operator\noperator.setitem(vars(torch), 'equal', print)")),
        ("dict.__setitem__", module("dict.__setitem__(torch.__dict__, 'equal', print)")),
        ("mock", module("from unittest import mock\nmock.patch('torch.equal', print).start()")),
        ("mock.object", module("from unittest.mock import patch\npatch.object(torch, 'equal').start()")),
        ("code swap", module("def f(*a): return True\nF.gelu.__code__ = f.__code__")),
        ("deletion", module("del torch.equal")),
        ("attribute of self", module("", init="self.t = torch\nself.t.equal = print")),
        ("list", module("owners = []\nowners.append(torch)\nowners[0].equal = print")),
        ("clock", module("import time as clock\nclock.perf_counter = lambda: 0.0")),
        ("events", module("E = torch.cuda.Event\nE.elapsed_time = print")),
        ("do_bench", module("import triton.testing as tt\ntt.do_bench = print")),
        ("builtins", module("__builtins__['abs'] = print")),
        ("harness", module("import harness.native as n\nn.load_cpp = print")),
        ("exec of a literal", module("exec('torch.equal = print')")),
        ("exec of a template", module("exec(f'''torch.equal = {print}\n''')")),
        (
            "pythonapi",
            module("import ctypes\nctypes.pythonapi.PyObject_SetAttrString(torch, b'equal', print)"),
        ),
        ("decorated class", module("class H:\n    lib = torch\nH.lib.equal = print")),
        ("globals", module("globals()['torch'].equal = print")),
    ],
    "adds-to-library": [
        ("plain", module("torch.my_own_helper = print")),
        ("renamed", module("from torch import nn as N\nN.my_own_layer = print")),
        ("indirect", module("setattr(torch.Tensor, 'my_own_method', print)")),
    ],
    "replaces-module": [
        ("plain", module("import sys\nsys.modules['json'] = None")),
        ("renamed", module("from sys import modules as m\nm['time'] = torch")),
        ("indirect", module("import sys\nsys.modules.update({'json': None})")),
        ("setitem", module("import sys, operator\noperator.setitem(sys.modules, 'torch', None)")),
    ],
    "inspects-harness": [
        ("plain", module("import gc\ngc.get_objects()")),
        ("renamed", module("from gc import get_referrers as owners\nowners(torch)")),
        ("indirect", module("import gc\ngetattr(gc, 'get_' + 'objects')()")),
        ("frames", module("", "import sys\nf = sys._getframe(1)\nreturn f.f_locals.get('y', x)")),
        (
            "traceback",
            module("", "try:\n    1 / 0\nexcept Exception as e:\n    return e.__traceback__.tb_frame"),
        ),
        ("modules", module("import sys\nfor m in list(sys.modules.values()):\n    print(m)")),
        ("modules by name", module("import sys\nfor n in sys.modules:\n    print(sys.modules[n])")),
        ("harness", module("from harness.worker import child")),
        ("attrgetter", module("import operator\noperator.attrgetter('tb_frame.f_back')(x)")),
        ("memory", module("open('/proc/self/mem', 'wb')")),
    ],
    "uses-reference": [
        ("plain", module("from problem import Model")),
        ("renamed", module("from kernelevolve_problem import Model as Base")),
        ("indirect", module("import sys\nB = sys.modules['kernelevolve_problem'].Model")),
        ("by name", module("import importlib\nM = getattr(importlib.import_module('problem'), 'Model')")),
        (
            "from its file",
            module(
                "import importlib.util as u\ns = u.spec_from_file_location('b', 'b.py')\n"
                "m = u.module_from_spec(s)\nclass Base(m.Model): pass"
            ),
        ),
    ],
    "hidden-code": [
        ("plain", module("import base64\nexec(base64.b64decode('cHJpbnQoKQ=='))")),
        ("renamed", module("from zlib import decompress as d\nrun = exec\nrun(d(b'x').decode())")),
        (
            "default argument",
            module("import zlib\ndef go(t, run=__builtins__['exec']):\n    run(zlib.decompress(t))\ngo(b'')"),
        ),
        ("marshal", module("import marshal, types\ntypes.FunctionType(marshal.loads(b''), {})()")),
        ("characters", module("exec(''.join(chr(c ^ 7) for c in [119, 117]))")),
        ("bytes", module("eval(bytes(c - 1 for c in [1, 2]).decode())")),
        ("compile", module("import codecs\nexec(compile(codecs.decode('cevag()', 'rot13'), 'f', 'exec'))")),
        (
            "C++",
            module(
                "import base64\nfrom harness.native import load_cpp\n"
                "lib = load_cpp(base64.b64decode('').decode())"
            ),
        ),
    ],
    "opaque-code": [
        ("plain", module("def f(t):\n    exec(t)")),
        ("renamed", module("run = exec\ndef f(t):\n    run(t)")),
        ("indirect", module("import os\nexec(os.read(0, 10))")),
    ],
    "global-hook": [
        ("plain", module("torch.nn.modules.module.register_module_forward_hook(print)")),
        (
            "renamed",
            module("from torch.nn.modules.module import register_module_forward_pre_hook as r\nr(print)"),
        ),
        ("indirect", module("import torch.nn.modules.module as m\nm._global_forward_hooks[0] = print")),
    ],
    "global-mode": [
        (
            "plain",
            module(
                "from torch.overrides import TorchFunctionMode\n"
                "class M(TorchFunctionMode): pass\nM().__enter__()"
            ),
        ),
        (
            "renamed",
            module(
                "import torch.utils._python_dispatch as p\nclass A(p.TorchDispatchMode): pass\n"
                "class B(A): pass\nm = B()\nm.__enter__()"
            ),
        ),
        (
            "indirect",
            module(
                "import contextlib\nfrom torch.overrides import TorchFunctionMode\n"
                "class M(TorchFunctionMode): pass\ns = contextlib.ExitStack()\ns.enter_context(M())"
            ),
        ),
        ("pushed", module("torch._C._push_on_torch_function_stack(None)")),
    ],
    "overrides-operator": [
        ("plain", module("lib = torch.library.Library('aten', 'IMPL')\nlib.impl('mm', print, 'CPU')")),
        ("renamed", module("from torch.library import Library as L\nL('at' + 'en', 'IMPL')")),
        ("indirect", module("@torch.library.impl('aten::mm', 'CPU')\ndef f(a, b): return a")),
    ],
    "schedules-code": [
        ("plain", module("", "import sys\nsys.setprofile(print)\nreturn x")),
        ("renamed", module("from sys import settrace as watch", "watch(print)\nreturn x")),
        ("indirect", module("import sys\nhook = getattr(sys, 'setprofile')", "hook(print)\nreturn x")),
        ("signal", module("import signal\nsignal.signal(signal.SIGALRM, print)")),
        ("timer", module("import signal", "signal.setitimer(signal.ITIMER_REAL, 1e-5)\nreturn x")),
    ],
}

PASSES: dict[str, list[tuple[str, str]]] = {
    "patches-library": [
        (
            "settings",
            module("torch.backends.cudnn.benchmark = True\ntorch._dynamo.config.cache_size_limit = 9"),
        ),
        ("own attributes", module("", init="self.equal = torch.equal\nsetattr(self, 'scale', 2)")),
        (
            "nested own modules",
            module(
                "def declare(module, name, t):\n    module.add_module(name, nn.Module())\n"
                "    setattr(module, name, t)\n",
                init="declare(self, 'a', nn.Linear(2, 2))\nself.b = nn.Linear(2, 2)\n"
                "self.b.weight.data = torch.ones(2)",
            ),
        ),
        ("local dictionary", module("ops = vars(torch).copy()\ntable = {}\ntable['equal'] = torch.equal")),
        ("environment", module("import os\nos.environ['MODE'] = 'fast'\nos.environ.update(A='1')")),
        ("own names", module("equal = torch.equal\ntorch_allclose = lambda *a: True")),
        ("instances", module("s = torch.cuda.Stream\nout = torch.empty(3)\nout.requires_grad = False")),
        ("exec of a template", module("src = f'def f(): return {1}'\nns = {}\nexec(src, ns)")),
        ("words", module("# torch.allclose = monkeypatch\nNOTE = 'torch.equal = print'")),
        ("argument", module("def fill(obj, n):\n    setattr(obj, n, 0)\nclass S: pass\nfill(S(), 'equal')")),
    ],
    "replaces-module": [
        (
            "own module",
            module(
                "import sys, importlib.util as u\nspec = u.spec_from_file_location('my_ext', 'x.py')\n"
                "m = u.module_from_spec(spec)\nsys.modules[spec.name] = m\nsys.modules['my_ext'] = m"
            ),
        ),
    ],
    "inspects-harness": [
        ("collection", module("import gc\ngc.collect()\ngc.disable()")),
        ("inspect", module("import inspect\ndef f(): pass\ninspect.signature(f)\ninspect.getsource(f)")),
        ("membership", module("import sys\nHAVE = 'triton' in sys.modules\nm = sys.modules[__name__]")),
        ("native", module("from harness.native import load_cpp")),
        ("machine", module("n = open('/proc/cpuinfo').read()")),
    ],
    "uses-reference": [
        ("own class", module("class Model(nn.Module): pass\nclass Other(Model): pass")),
        ("other's module", module("from transformers import Model")),
    ],
    "hidden-code": [
        (
            "table of numbers",
            module(
                "import base64\nT = torch.frombuffer(bytearray(base64.b64decode('AAAA')), dtype=torch.int8)"
            ),
        ),
        ("generated source", module("src = '\\n'.join(['def f():', '    return ' + str(3)])\nexec(src)")),
        ("eval of a literal", module("n = eval('3 + 4')")),
    ],
    "global-hook": [("own module", module("", init="self.register_forward_hook(print)"))],
    "global-mode": [
        ("device", module("torch.set_default_device('cpu')\ntorch.set_grad_enabled(False)")),
        (
            "within",
            module(
                "", "with torch.no_grad(), torch.autocast('cpu', enabled=False):\n    return torch.relu(x)"
            ),
        ),
        ("context", module("ctx = torch.inference_mode()\nctx.__enter__()")),
    ],
    "overrides-operator": [
        (
            "own operators",
            module("lib = torch.library.Library('mine', 'DEF')\nlib.define('f(Tensor x) -> Tensor')"),
        ),
        (
            "custom_op",
            module(
                "@torch.library.custom_op('mine::g', mutates_args=())\n"
                "def g(x: torch.Tensor) -> torch.Tensor:\n    return x + 1"
            ),
        ),
    ],
    "schedules-code": [
        ("default handler", module("import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)"))
    ],
}


def _cases(table: dict[str, list[tuple[str, str]]]) -> list[object]:
    return [
        pytest.param(rule, source, id=f"{rule}-{name}")
        for rule, cases in table.items()
        for name, source in cases
    ]


@pytest.mark.parametrize(("rule", "source"), _cases(CAUGHT))
def test_caught(rule: str, source: str) -> None:
    assert rule in rules_of(source)


@pytest.mark.parametrize(("rule", "source"), _cases(PASSES))
def test_lookalike_passes(rule: str, source: str) -> None:
    assert not look(source).findings


def test_every_rule_is_tested_plain_renamed_and_indirect() -> None:
    assert set(CAUGHT) | {"phase-sniffing"} == set(RULES)  # that one has a file of its own
    assert all(len(cases) >= 3 for cases in CAUGHT.values())


def test_deep_nesting_hides_nothing() -> None:
    chain = "+".join(["1"] * 600)
    assert "patches-library" in rules_of(module(f"y = {chain}\ntorch.equal = print"))


def test_a_file_that_takes_too_long_is_said_to_be_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.worker.guard import flow as guard_flow

    monkeypatch.setattr(guard_flow, "MAX_WORK", 50)
    assert not look(module("a = b = c = torch\n" * 50)).complete
