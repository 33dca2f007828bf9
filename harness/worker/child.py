"""What a reference child and a candidate child have in common: one loop that serves calls to a `forward`.

Both run the same code for the same messages, so that what the judge's clock sees besides `forward` is equal
on both sides. The judge never believes a word of a candidate child: it reads the bytes in shared memory.
"""

from __future__ import annotations

import ctypes
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from harness.worker import cute_errors, triton_errors
from harness.worker.device.blocks import BlockRunner
from harness.worker.device.driver import driver, start
from harness.worker.gradients import ForwardBackward
from harness.worker.values import (
    Region,
    Unsupported,
    describe_layout,
    pack,
    plain_values,
    skeleton,
    unpack,
)
from harness.worker.wire import Channel

REASON_LIMIT = 600
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _LARGEST_INT = -1, -3, (1 << 31) - 1
# Exceptions that mean "this does not compile", by class name: their modules need not be installed.
_BUILD_ERRORS = {
    "SyntaxError": "compile",
    "IndentationError": "compile",
    "TabError": "compile",
    "NativeCompileError": "compile",
    "CompilationError": "compile",
    "OutOfResources": "compile",
    "PTXASError": "compile",
    "CppCompileError": "compile",
    "CalledProcessError": "compile",
    "MissingModelNew": "compile",
}


class MissingModelNew(Exception):
    """The candidate file has no usable `ModelNew`."""


def keep_freed_memory() -> None:
    """Makes glibc keep what is freed instead of returning it to the kernel.

    Otherwise large tensors are paged in again, zeroed, in some calls and not in others: that takes several
    times as long as a memory-bound kernel itself and would be all that is measured. Set for both sides alike.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have nothing of the kind
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_INT)
        mallopt(_M_TRIM_THRESHOLD, _LARGEST_INT)


def load_module(name: str, source: str, path: Path) -> ModuleType:
    """Executes a source text as a module that `inspect` and Triton can read back from `path`."""
    path.write_text(source, encoding="utf-8")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def seeded(make: Callable[[], Any], seed: int) -> Any:
    torch.manual_seed(seed)
    return make()


def set_precision(*, tf32: bool) -> None:
    """Whether float32 products and convolutions may be computed in TF32."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32


def float_state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by state-dict name, without ties."""
    state: dict[str, torch.Tensor] = dict(model.named_parameters())
    persistent = model.state_dict(keep_vars=True)
    state.update({name: t for name, t in persistent.items() if isinstance(t, torch.Tensor)})
    return state


def error_message(error: BaseException, path: str = "") -> dict[str, Any]:
    """One line for a person, a class for the judge and the tail of the traceback for the log."""
    kinds = [_BUILD_ERRORS.get(c.__name__, "") for c in type(error).__mro__]
    kind = next((k for k in kinds if k), "")
    text = _first_compiler_error(str(error)) if kind else ""
    text = text or " ".join(str(error).split())
    lowered = text.lower()
    if isinstance(error, RuntimeError) and "error building extension" in lowered:
        kind = "compile"
    if not kind and (triton_errors.while_compiling(error) or cute_errors.while_compiling(error)):
        kind = "compile"
    out_of_memory = ("can't allocate memory", "std::bad_alloc", "out of memory")
    if isinstance(error, MemoryError) or any(words in lowered for words in out_of_memory):
        kind, text = "memory", text or "allocation failed"
    where = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path] if path else []
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})"
        text = error.msg
    elif frames:
        where = f" (line {frames[-1].lineno})"
    said = triton_errors.describe(error, path) or cute_errors.describe(error, path)
    if said is not None:
        text, line = said
        where = f" (line {line})" if line else where
    rule = getattr(error, "rule", "")  # of a kernel's fault: the text names it
    name = "" if rule or type(error) is MissingModelNew else f"{type(error).__name__}: "
    log = "".join(traceback.format_exception(error))[-8000:]
    return {"kind": rule or kind, "text": f"{name}{text[:REASON_LIMIT]}{where}", "log": log}


def _first_compiler_error(text: str) -> str:
    """The first line in which a compiler says `error:`, without the path of the scratch folder."""
    for line in text.splitlines():
        if "error: " in line:
            where, _, what = line.strip().partition(": ")
            return f"{Path(where).name}: {what}" if "/" in where else line.strip()
    return ""


class Server:
    """Serves `call` and `noop`; `handlers` adds what only one kind of child can do. `device`: where tensors
    are.
    """

    def __init__(self, channel: Channel, path: Path, device: str = "cpu") -> None:
        keep_freed_memory()
        self.channel = channel
        self.path = path
        self.device = device
        # torch.manual_seed also formats the stack for each kind of device that is not there: that takes more
        # time than many kernels, and more in a process whose stack is deeper.
        self.seed: Callable[[int], Any] = (
            torch.default_generator.manual_seed if device == "cpu" else torch.manual_seed
        )
        self.synchronize: Callable[[], None] = lambda: None
        self.runner: BlockRunner | None = None
        self.forwards: dict[str, Callable[..., Any]] = {}
        self.arguments: list[Any] = []
        self.input_tensors: list[list[torch.Tensor]] = []
        self.input_regions: list[Region] = []
        self.results: list[list[torch.Tensor]] = []
        self.output_layout: list[dict[str, Any]] = []
        self.output_structure: Any = None
        self.state: Region | None = None
        self.state_layout: list[dict[str, Any]] = []
        self.handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "map_inputs": self.map_inputs,
            "map_output": self.map_output,
            "map_state": self.map_state,
            "start_device": lambda _: self.start_device(),
            "look_again": self.look_again,
            "unmap": lambda _: self.unmap(),
            "differentiate": self.differentiate,
        }
        self.model: Any = None
        self.gradients: dict[str, Any] | None = None
        self._last: list[torch.Tensor] = []
        self._last_place = 0

    def serve(self) -> None:
        """Answers until the judge closes the channel (then WireError leaves this loop)."""
        while True:
            message = self.channel.receive()
            if message.get("fds"):
                # The descriptors travel with a second, tiny frame: plain frames stay plain reads.
                _, message["fd_list"] = self.channel.receive_with_fds(message["fds"])
            op = message["op"]
            if op == "call":
                self.call(message)
            elif op == "block":
                self.block(message)
            elif op == "noop":
                self.seed(message["seed"])
                self.channel.send({"done": message["nonce"]})
            else:
                try:
                    answer = self.handlers[op](message)
                    self.synchronize()
                except BaseException as error:
                    answer = {"error": self.explain(error)}
                self.channel.send(answer)

    def call(self, message: dict[str, Any]) -> None:
        """Runs forward on one input slot: says `done`, then copies the result out and says what it was."""
        nonce = message["nonce"]
        forward = self.forwards[message["which"]]
        arguments = self.arguments[message["slot"]]
        self.seed(message["seed"])
        copied = None
        try:
            with torch.no_grad():
                result = forward(*arguments)
            if message.get("announce"):
                self.channel.send({"returned": nonce})
            if self.device != "cpu":
                # In the order of the current stream and before anything is waited for, as a caller would use
                # it: what another stream has not finished by then is not there.
                copied = self.copy_out(result)
                self.synchronize()
        except BaseException as error:
            self.channel.send({"done": nonce, "error": self.explain(error)})
            return
        self.channel.send({"done": nonce})
        self.channel.send({"copied": nonce, **(copied or self.copy_out(result))})

    def block(self, message: dict[str, Any]) -> None:
        """Several calls in a row, timed by events of the device."""
        forward = self.forwards[message["which"]]
        try:
            assert self.runner is not None
            answer = self.runner.run(self, forward, message["slots"], message["scrubs"], message["seed"])
        except BaseException as error:
            answer = {"error": self.explain(error)}
        self.channel.send({"done": message["nonce"], **answer})

    def explain(self, error: BaseException) -> dict[str, Any]:
        return error_message(error, str(self.path))

    def start_device(self) -> dict[str, Any]:
        """Opens the device; from now on it has finished before anything is answered."""
        start()
        self.synchronize = driver().synchronize
        self.runner = BlockRunner(driver())
        return {"ok": True}

    def look_again(self, message: dict[str, Any]) -> dict[str, Any]:
        """Whether what the last call returned has changed since it was copied out."""
        time.sleep(message["wait_s"])
        self.synchronize()
        if same_memory(self._last, [t for slot in self.input_tensors for t in slot]):
            return {"changed": False}  # inputs that are handed back change whenever the judge rewrites them
        pairs = zip(self.results[self._last_place], self._last, strict=True)
        return {"changed": not all(_same_bytes(kept, now) for kept, now in pairs)}

    def copy_out(self, result: Any, place: int = 0) -> dict[str, Any]:
        """Checks what a call returned against what is expected, and copies it to a place in shared memory."""
        try:
            structure, tensors = pack(result, self.output_structure)
            odd = [type(t).__name__ for t in tensors if type(t) is not torch.Tensor and not _is_parameter(t)]
            if odd:
                return {"mismatch": f"returns a {odd[0]}, not a plain torch.Tensor"}
            layout = describe_layout(tensors, contiguous=True)
        except Unsupported as error:
            return {"mismatch": str(error)}
        if not self.results:
            return {"structure": structure, "layout": layout}
        for i, (entry, expected) in enumerate(zip(layout, self.output_layout, strict=False)):
            if entry["dtype"] != expected["dtype"]:
                return {"mismatch": f"output {i} has dtype {entry['dtype']}, expected {expected['dtype']}"}
            if entry["shape"] != expected["shape"]:
                return {"mismatch": f"output {i} has shape {entry['shape']}, expected {expected['shape']}"}
        if skeleton(structure) != self.output_structure:
            return {"mismatch": "returns another structure of values than the reference"}
        for view, tensor in zip(self.results[place], tensors, strict=True):
            view.copy_(tensor)
        alias = ""
        if same_memory(tensors, [t for slot in self.input_tensors for t in slot]):
            alias = "input"
        elif same_memory(tensors, self._last):
            alias = "previous"
        self._last_place = place
        self._last = tensors  # kept alive during the next call, as a caller's loop variable would be
        return {"alias": alias, "values": plain_values(structure)}

    def use(self, model: Any) -> None:
        """From now on `model` is what is called."""
        raise NotImplementedError

    def differentiate(self, message: dict[str, Any]) -> dict[str, Any]:
        """From now on a call is forward and backward; `names`: the state to differentiate by, `outputs`: what
        cotangents are given for, `structure`: what forward returns.
        """
        self.gradients = {name: message[name] for name in ("names", "outputs", "structure")}
        self.use(self.model)
        return {"ok": True}

    def called(self, model: Any, forward: Any = None) -> Any:
        """What a call of `model` runs; `forward` is the model itself if not given."""
        forward = model if forward is None else forward
        if self.gradients is None:
            return forward
        names = self.gradients["names"]
        state = float_state(model) if names else {}
        parameters = [state[name] for name in names]
        return ForwardBackward(forward, parameters, self.gradients["outputs"], self.gradients["structure"])

    def unmap(self) -> dict[str, Any]:
        """Forgets inputs and places for results: others follow."""
        self.input_regions, self.input_tensors, self.arguments = [], [], []
        self.results, self._last = [], []
        return {"ok": True}

    def map_inputs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Takes one region per slot, all of one layout; they come after those that are there."""
        regions = self._regions(message)
        tensors = [region.views(message["layout"]) for region in regions]
        self.input_regions += regions
        self.input_tensors += tensors
        self.arguments += [unpack(message["structure"], one) for one in tensors]
        return {"ok": True}

    def map_output(self, message: dict[str, Any]) -> dict[str, Any]:
        self.output_layout, self.output_structure = message["layout"], message["structure"]
        self.results = [region.views(self.output_layout) for region in self._regions(message)]
        return {"ok": True}

    def map_state(self, message: dict[str, Any]) -> dict[str, Any]:
        (self.state,) = self._regions(message)
        self.state_layout = message["layout"]
        return {"ok": True}

    def _regions(self, message: dict[str, Any]) -> list[Region]:
        pairs = zip(message["fd_list"], message["sizes"], strict=True)
        return [Region(fd, size, self.device) for fd, size in pairs]


def _is_parameter(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.nn.Parameter


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    first, second = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(first, second)


def same_memory(now: list[torch.Tensor], before: list[torch.Tensor]) -> bool:
    pointers = {t.untyped_storage().data_ptr() for t in before if t.numel()}
    return any(t.untyped_storage().data_ptr() in pointers for t in now if t.numel())
