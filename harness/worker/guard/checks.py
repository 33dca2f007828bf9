"""The checks behind the static rules: each looks at one node of a file and yields what it finds."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator

from harness.worker.guard.code import look_at_code
from harness.worker.guard.flow import Flow, Invocation
from harness.worker.guard.rules import Finding
from harness.worker.guard.values import (
    Instance,
    Own,
    Path,
    Value,
    Values,
    paths,
    texts,
)

_PATCHED_ROOTS = frozenset(
    {
        *(
            "torch",
            "triton",
            "numpy",
            "harness",
            "builtins",
            "sys",
            "os",
            "io",
            "time",
            "timeit",
            "json",
            "gc",
        ),
        *("inspect", "threading", "_thread", "socket", "struct", "pickle", "marshal", "importlib", "random"),
        *(
            "math",
            "statistics",
            "subprocess",
            "multiprocessing",
            "ctypes",
            "mmap",
            "signal",
            "selectors",
            "array",
        ),
        *("hashlib", "secrets", "resource", "traceback", "typing", "types", "functools", "ast", "abc"),
    }
)
# What lies below these is meant to be set.
_SETTINGS = (
    *("torch.backends.", "torch.ops.", "torch.classes.", "torch._dynamo.config.", "torch._inductor.config."),
    *(
        "torch._functorch.config.",
        "torch.compiler.config.",
        "triton.knobs.",
        "torch.fx.experimental._config.",
    ),
    *("sys.path", "sys.argv", "sys.stdout", "sys.stderr", "sys.dont_write_bytecode", "sys.tracebacklimit"),
    *("torch._logging.", "torch.sparse.check_sparse_tensor_invariants.", "triton.runtime.driver.active"),
)
_MUTATORS = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__", "__ior__"}
_SNOOPING = {
    "gc.get_objects": "walks all objects of the process",
    "gc.get_referrers": "walks all objects of the process",
    "gc.get_referents": "walks other people's objects",
    "sys._getframe": "reads its callers' variables",
    "sys._current_frames": "reads other threads' variables",
    "sys._current_exceptions": "reads other threads' variables",
    "inspect.currentframe": "reads its callers' variables",
    "inspect.stack": "reads its callers' variables",
    "inspect.getouterframes": "reads its callers' variables",
    "inspect.trace": "reads its callers' variables",
    "traceback.walk_stack": "reads its callers' variables",
    "traceback.extract_stack": "reads its callers' names",
    "sys.modules.values": "walks all loaded modules",
    "sys.modules.items": "walks all loaded modules",
    "builtins.object.__subclasses__": "walks all classes",
    "torch.nn.Module.__subclasses__": "walks all modules",
    "sys.addaudithook": "watches what the process does",
}
_FRAMES = {"f_back", "f_locals", "f_globals", "f_builtins", "tb_frame", "gi_frame", "cr_frame", "ag_frame"}
_INTERPRETER = ("Set", "PyDict_", "PyEval_", "PyFrame", "Py_AddPendingCall", "PyThreadState")
_SCHEDULERS = {
    *("sys.setprofile", "sys.settrace", "threading.setprofile", "threading.settrace", "signal.setitimer"),
    *("threading.setprofile_all_threads", "threading.settrace_all_threads", "signal.alarm"),
    *("sys.monitoring.register_callback", "gc.callbacks.append", "gc.callbacks.insert", "signal.sigwait"),
}
_REFERENCE_NAMES = frozenset({"Model", "get_inputs", "get_init_inputs"})
_REFERENCE_MODULES = ("__main__", "problem", "reference", "kernelevolve_problem")
_ASIDE = ("sys.modules", "importlib.util.module_from_spec()", "runpy.", "importlib.machinery.")
_ATEN = ("aten", "prim", "prims", "_", "mkldnn", "quantized")
_REGISTRATIONS = {"torch.library.Library", "torch.library.impl", "torch.library.register_kernel"}
_MODES = ("TorchFunctionMode", "TorchDispatchMode", "BaseTorchFunctionMode")
_PUSHES = (
    "_push_on_torch_function_stack",
    "_push_on_torch_dispatch_stack",
    "_push_mode",
    "_set_dispatch_mode",
)


def inspect_flow(flow: Flow) -> list[Finding]:
    """Everything the rules find, in source order, each line and rule once."""
    found: dict[tuple[str, int], Finding] = {}
    for node in flow.nodes:
        for finding in (*_stores(flow, node), *_calls(flow, node), *_reads(flow, node)):
            found.setdefault((finding.rule, finding.line), finding)
    return sorted(found.values(), key=lambda f: f.line)


# -- what is written to ----------------------------------------------------------------------------------


def _stores(flow: Flow, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
        for owner in paths(flow.values(node.value)):
            yield from _patch(owner, node.attr, node.lineno)
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        for owner in paths(flow.values(node.value)):
            yield from _entry(owner, flow.values(node.slice), node.lineno)


def _entry(owner: str, keys: Values, line: int) -> Iterator[Finding]:
    """`owner[key] = …`"""
    if owner == "sys.modules":
        names = texts(keys)
        if any(_belongs_to_others(name) for name in names):
            yield Finding("replaces-module", f"replaces sys.modules[{names[0]!r}]", line)
    elif owner.endswith(".__dict__") or owner == "builtins":
        for name in texts(keys) or ["?"]:
            yield from _patch(owner.removesuffix(".__dict__"), name, line)
    elif owner.startswith("torch.nn.modules.module._global_"):
        yield Finding("global-hook", f"writes to {owner}", line)


def _belongs_to_others(module: str) -> bool:
    root = module.partition(".")[0]
    return root in sys.stdlib_module_names or root in _PATCHED_ROOTS or root in _REFERENCE_MODULES


def _patch(owner: str, name: str, line: int) -> Iterator[Finding]:
    owner = owner.removesuffix(".__dict__")
    full = f"{owner}.{name}"
    if owner.startswith("ctypes.") and name in ("restype", "argtypes", "errcheck"):
        return  # how a function is to be called
    if (
        "(" in owner
        or "[" in owner
        or owner.partition(".")[0] not in _PATCHED_ROOTS
        or full.startswith(_SETTINGS)
    ):
        return
    if name == "?":
        yield Finding("patches-library", f"replaces attributes of {owner}", line)
    elif _exists(owner, name) or name.startswith("__"):
        yield Finding("patches-library", f"replaces {full}", line)
    else:
        yield Finding("adds-to-library", f"adds {full}", line)


def _exists(owner: str, name: str) -> bool:
    """Whether a loaded library has it; what is not loaded here is taken to have it."""
    root, *rest = owner.split(".")
    here: object = sys.modules.get(root)
    if here is None:
        return True
    missing = object()
    for part in (*rest, name):
        loaded = sys.modules.get(f"{getattr(here, '__name__', '')}.{part}")
        here = loaded or inspect.getattr_static(here, part, missing)
        if here is missing:
            return part != name
    return True


# -- what is called --------------------------------------------------------------------------------------


def _calls(flow: Flow, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, ast.Call):
        return
    for made in flow.invocations(node):
        if isinstance(made.function, Path):
            name = made.function.name
            yield from _setters(name, made, node.lineno)
            yield from _snooping(name, made, node.lineno)
            yield from look_at_code(flow, name, made, node, inspect_flow)
            yield from _global_state(name, made, node.lineno)
    yield from _modes(flow, node)


def _setters(name: str, made: Invocation, line: int) -> Iterator[Finding]:
    base, _, last = name.rpartition(".")
    owners, names = paths(made.argument(0)), texts(made.argument(1)) or ["?"]
    if name in ("builtins.setattr", "builtins.delattr") or last in ("__setattr__", "__delattr__"):
        for owner in owners:
            for attribute in names:
                yield from _patch(owner, attribute, line)
        if not owners and last.startswith("__") and base not in ("builtins.object", "builtins.type"):
            for attribute in texts(made.argument(0)):  # bound: torch.__setattr__("f", g)
                yield from _patch(base, attribute, line)
    elif last in _MUTATORS and (base.endswith(".__dict__") or base == "sys.modules"):
        keys = made.argument(0)
        if base == "sys.modules" and last in ("update", "clear", "popitem"):
            yield Finding("replaces-module", f"calls sys.modules.{last}", line)
        else:
            yield from _entry(base, frozenset() if last == "update" else keys, line)
    elif name in ("operator.setitem", "operator.delitem") or last in ("__setitem__", "__delitem__"):
        for owner in owners:
            yield from _entry(owner, made.argument(1), line)
    elif base.startswith("unittest.mock.patch") or name.startswith(("unittest.mock.patch", "mock.patch")):
        for owner in owners:
            yield from _patch(owner, names[0], line)
        for target in texts(made.argument(0)):
            yield from _patch(*target.rpartition(".")[::2], line)
    elif name.startswith("forbiddenfruit."):
        yield Finding("patches-library", f"calls {name}", line)
    elif base == "ctypes.pythonapi" and any(part in last for part in _INTERPRETER):
        yield Finding("patches-library", f"changes objects through {name}", line)
    elif base in paths(made.argument(0)) and name in ("functools.update_wrapper",):
        yield from _patch(owners[0], "__wrapped__", line)


def _snooping(name: str, made: Invocation, line: int) -> Iterator[Finding]:
    if name in _SNOOPING:
        yield Finding("inspects-harness", f"{name} {_SNOOPING[name]}", line)
    elif name in _SCHEDULERS:
        yield Finding("schedules-code", f"calls {name}", line)
    elif name == "signal.signal":
        handler = paths(made.argument(1))
        if not any(h.startswith("signal.SIG_") for h in handler):
            yield Finding("schedules-code", "installs a signal handler", line)
    elif name in ("builtins.getattr", "operator.attrgetter"):
        asked = [part for values in made.arguments for text in texts(values) for part in text.split(".")]
        for attribute in _FRAMES.intersection(asked):
            yield Finding("inspects-harness", f"reads frames ({attribute})", line)
    elif name in ("builtins.open", "os.open", "io.open", "pathlib.Path"):
        for file in texts(made.argument(0)):
            if file.startswith("/proc/") and file.rpartition("/")[2] in (
                "mem",
                "maps",
                "fd",
                "environ",
                "cmdline",
            ):
                yield Finding("inspects-harness", f"reads {file}", line)


def _global_state(name: str, made: Invocation, line: int) -> Iterator[Finding]:
    last = name.rpartition(".")[2]
    if name.startswith("torch.nn.modules.module.register_module_") or (
        name.startswith("torch.nn.modules.module._global_") and last in (*_MUTATORS, "append")
    ):
        yield Finding("global-hook", f"calls {last}", line)
    elif last in _PUSHES and name.startswith("torch."):
        yield Finding("global-mode", f"calls {name}", line)
    elif name in _REGISTRATIONS:
        for operator in texts(made.argument(0)):
            if operator.partition("::")[0] in _ATEN:
                yield Finding("overrides-operator", f"registers kernels for {operator}", line)
    elif name.startswith("torch.library.Library()") and last == "impl":
        for operator in texts(made.argument(0)):
            if operator.partition("::")[0] in _ATEN and "::" in operator:
                yield Finding("overrides-operator", f"registers a kernel for {operator}", line)
    elif last == "py_impl" and name.startswith("torch.ops.aten."):
        yield Finding("overrides-operator", f"registers a kernel for {name.removesuffix('.py_impl')}", line)


def _modes(flow: Flow, node: ast.Call) -> Iterator[Finding]:
    """A mode that is entered by hand; `with` leaves it again."""
    entered: Values = frozenset()
    if isinstance(node.func, ast.Attribute) and node.func.attr == "__enter__":
        entered = flow.values(node.func.value)
    elif isinstance(node.func, ast.Attribute) and node.func.attr == "enter_context" and node.args:
        within = any(isinstance(item, ast.withitem) for item in _enclosing(flow, node))
        entered = frozenset() if within else flow.values(node.args[0])
    for value in entered:
        if is_mode(flow, value):
            yield Finding("global-mode", "enters a mode by hand that it need not leave", node.lineno)


def _enclosing(flow: Flow, node: ast.AST) -> Iterator[ast.AST]:
    """The items of the `with` statements in the function around a node."""
    scope = flow.scope_of.get(node)
    yield from (n for n in flow.nodes if isinstance(n, ast.withitem) and flow.scope_of.get(n) is scope)


def is_mode(flow: Flow, value: Value) -> bool:
    """Whether an object intercepts torch's functions or operators."""
    if isinstance(value, Instance):
        bases = [base for node in value.of.bases for base in flow.values(node)]
        return any(
            is_mode(flow, Instance(b.node))
            for b in bases
            if isinstance(b, Own) and isinstance(b.node, ast.ClassDef)
        ) or any(isinstance(b, Path) and b.name.endswith(_MODES) for b in bases)
    return isinstance(value, Path) and value.name.removesuffix("()").endswith(_MODES)


# -- what is read ----------------------------------------------------------------------------------------


def _reads(flow: Flow, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.Attribute):
        if node.attr in _FRAMES:
            yield Finding("inspects-harness", f"reads frames ({node.attr})", node.lineno)
        if node.attr in _REFERENCE_NAMES:
            yield from _reference(flow.values(node), node.lineno)
    elif isinstance(node, ast.Subscript):
        for key in _REFERENCE_NAMES.intersection(texts(flow.values(node.slice))):
            owners = paths(flow.values(node.value))
            yield from _reference(frozenset(Path(f"{o}.{key}") for o in owners), node.lineno)
        if "sys.modules" in paths(flow.values(node.value)) and "sys.modules[]" in paths(
            flow.values(node.slice)
        ):
            yield Finding("inspects-harness", "walks all loaded modules", node.lineno)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imports(node)
    elif isinstance(node, ast.Call):
        yield from _reference(flow.values(node), node.lineno)


def _reference(values: Values, line: int) -> Iterator[Finding]:
    for name in paths(values):
        base, _, last = name.rpartition(".")
        if last in _REFERENCE_NAMES and (base.startswith(_ASIDE) or base.split(".")[0] in _REFERENCE_MODULES):
            yield Finding("uses-reference", f"takes {last} from {base}", line)


def _imports(node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    modules = [item.name for item in node.names]
    if isinstance(node, ast.ImportFrom):
        root = (node.module or "").partition(".")[0]
        taken = sorted(_REFERENCE_NAMES.intersection(modules))
        if taken and (node.level or root in _REFERENCE_MODULES):
            yield Finding("uses-reference", f"imports {', '.join(taken)} of the reference", node.lineno)
        modules = [f"{node.module or ''}.{item.name}" for item in node.names]
    for module in modules:
        if module.partition(".")[0] == "kernelevolve_problem":
            yield Finding("uses-reference", "imports the problem", node.lineno)
        elif module.startswith("harness.") and not module.startswith("harness.native"):
            yield Finding("inspects-harness", f"imports {module}", node.lineno)
