"""A device that is not here, as far as a candidate's Python code can tell.

Its tensors are meta tensors (shape, strides and dtype without contents) that say they are on `cuda:0`;
tensors on the host are real. Nothing is computed: a candidate is followed to find out what it compiles and
launches.
"""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.overrides import TorchFunctionMode

from harness.worker.crosscompile import dlpack

_DEVICE = torch.device("cuda", 0)
_META = torch.device("meta")
_KINDS = ("cuda", "hip")
_PAGE = 512  # what the caching allocator of a device aligns tensors to, in bytes
_EXAMPLES = 5
T = torch.Tensor
# What reads contents of a device tensor, which are not known here.
_READS: set[Any] = {
    *(T.item, T.tolist, T.cpu, T.__bool__, T.__int__, T.__float__, T.__index__, T.__complex__, T.__contains__)
}
_COMPARES: set[Any] = {torch.equal, torch.allclose, T.equal, T.allclose}


class AbsentDevice(TorchFunctionMode):
    """While active, device arguments mean this device. `target`: what `Target.plain` gives.

    `assumed` lists the places where contents of a device tensor were needed: there, they were taken as ones.
    """

    def __init__(self, target: dict[str, Any]) -> None:
        super().__init__()
        self.assumed: list[str] = []
        self.path = ""  # the candidate's file, to name lines of
        self._operators = set(OPDEFS)  # torch's own
        _replace_cuda_module(target)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        first = args[0] if args else None
        if isinstance(first, T):
            answer = _PROPERTIES.get(func)
            if answer is not None:
                return answer(first)
            if func is T.to and first.is_meta and _host(args[1:], kwargs):
                return self._contents(first, func).to(*args[1:], **kwargs)
            if func is T.copy_ and not first.is_meta and len(args) > 1 and _on_meta(args[1]):
                return first.copy_(self._contents(args[1], func))
            if func in _READS and first.is_meta:
                return getattr(self._contents(first, func), func.__name__)(*args[1:], **kwargs)
            if func is T.numpy and first.is_meta:
                raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
            if func in _COMPARES and any(map(_on_meta, args)):
                self._note(func)
                return True
            if func in (T.cuda, T.pin_memory):
                return first.to(_META) if func is T.cuda else first
        body = self._custom_operator(func)
        if body is not None:
            with self:
                return body(*args, **kwargs)
        strings = func is T.to
        args = tuple(_here(a, strings) for a in args)
        kwargs = {name: _here(value, name == "device") for name, value in kwargs.items()}
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            if "device" in str(error):  # tensors of both kinds in one operator
                raise RuntimeError(re.sub(r"\bmeta\b", str(_DEVICE), str(error))) from None
            raise

    def _custom_operator(self, func: Any) -> Callable[..., Any] | None:
        """The Python body behind a candidate's operator of `torch.library.custom_op`: it launches kernels."""
        name = getattr(func, "_qualified_op_name", None) or getattr(
            getattr(func, "_schema", None), "name", ""
        )
        definition = None if name in self._operators else OPDEFS.get(name)
        if definition is None:
            return None
        bodies = definition._backend_fns
        body: Callable[..., Any] = bodies.get("cuda") or bodies.get(None) or definition._init_fn
        return body

    def _contents(self, tensor: torch.Tensor, func: Any) -> torch.Tensor:
        self._note(func)
        return torch.ones(tensor.shape, dtype=tensor.dtype)

    def _note(self, func: Any) -> None:
        frames = [f for f in traceback.extract_stack() if f.filename == self.path]
        where = f"line {frames[-1].lineno}: {func.__name__}" if frames else str(func.__name__)
        if where not in self.assumed and len(self.assumed) < _EXAMPLES:
            self.assumed.append(where)


def on_device(tensor: torch.Tensor) -> bool:
    """Whether a tensor is on the absent device."""
    return tensor.is_cuda


def not_followed(error: BaseException, path: str) -> bool:
    """Whether torch says that it needs contents, or that an operator has no shape function: what comes after
    cannot be found out without the device. What the candidate's file raises itself, it means.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or frames[-1].filename == path:
        return False
    says = str(error).lower()
    return isinstance(error, NotImplementedError) or (
        isinstance(error, RuntimeError) and "meta tensor" in says
    )


def _on_meta(value: Any) -> bool:
    return isinstance(value, T) and value.device.type == "meta"


def _address(tensor: torch.Tensor) -> int:
    """An address that no other storage has, aligned as an allocator would."""
    if tensor.device.type != "meta":
        return tensor.data_ptr()
    storage = int(tensor.untyped_storage()._cdata)
    return storage * _PAGE + int(tensor.storage_offset()) * tensor.element_size()


_PROPERTIES: dict[Any, Callable[[torch.Tensor], Any]] = {
    T.device.__get__: lambda t: _DEVICE if t.device.type == "meta" else t.device,
    T.is_cuda.__get__: _on_meta,  # type: ignore[attr-defined]
    T.is_meta.__get__: lambda _: False,  # type: ignore[attr-defined]
    T.get_device: lambda t: 0 if _on_meta(t) else -1,
    T.data_ptr: _address,
    T.__dlpack__: lambda t: dlpack.capsule(t, _address(t)) if _on_meta(t) else t.__dlpack__(),
    T.__dlpack_device__: lambda t: dlpack.CUDA if _on_meta(t) else t.__dlpack_device__(),
}


def _here(value: Any, strings: bool) -> Any:
    if isinstance(value, torch.device):
        return _META if value.type in _KINDS else value
    if strings and isinstance(value, str) and value.partition(":")[0] in _KINDS:
        return _META
    if strings and isinstance(value, int) and not isinstance(value, bool):
        return _META  # `device=0`
    return value


def _host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether arguments of `Tensor.to` name the host."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.device | str) and torch.device(value).type == "cpu":
            return True
        if isinstance(value, T) and value.device.type == "cpu":
            return True
    return False


class _Stream:
    """Work is done at once and nothing is done: there is nothing to wait for."""

    cuda_stream = 0
    stream_id = 0
    device = _DEVICE

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        pass

    def wait(self, stream: Any = None) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0


class _Graph:
    """Captures nothing: what is called meanwhile is followed like any other code."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def replay(self) -> None:
        pass

    def reset(self) -> None:
        pass


def _replace_cuda_module(target: dict[str, Any]) -> None:
    """Makes `torch.cuda` describe the target, in this process only."""
    cuda: Any = torch.cuda
    properties = _properties(target)
    groups: list[tuple[str, Any]] = [
        ("is_available is_initialized is_bf16_supported", True),
        ("init _lazy_init set_device synchronize empty_cache set_stream", None),
        ("manual_seed manual_seed_all reset_peak_memory_stats", None),
        ("memory_allocated max_memory_allocated memory_reserved current_device", 0),
        ("device_count", 1),
        ("is_current_stream_capturing", False),
        ("current_stream default_stream", _Stream()),
        ("get_device_name", properties.name),
        ("get_device_capability", (properties.major, properties.minor)),
        ("get_device_properties", properties),
        ("mem_get_info", (properties.total_memory, properties.total_memory)),
    ]
    answers = {name: _answering(value) for names, value in groups for name in names.split()}
    contexts = {name: _answering(contextlib.nullcontext()) for name in ("stream", "device", "graph")}
    classes = {"Stream": _Stream, "Event": _Event, "CUDAGraph": _Graph}
    for name, answer in {**answers, **contexts, **classes}.items():
        setattr(cuda, name, answer)
    tensor: Any = T
    tensor.record_stream = _answering(None)
    if target["vendor"] == "amd":
        torch.version.hip = torch.version.hip or "7.0"  # what code asks to tell the vendors apart
    default = torch.set_default_device
    torch.set_default_device = lambda device: default(_here(device, True))


def _answering(value: Any) -> Callable[..., Any]:
    """A function of its own (torch keeps tables of them) that gives one answer."""
    return lambda *_, **__: value


def _properties(target: dict[str, Any]) -> SimpleNamespace:
    limits, facts = target["limits"], target["facts"]
    # sm_90 is 9.0, sm_100 is 10.0; gfx90a is 9.0, gfx942 is 9.4 (its last digit is the stepping).
    digits = target["architecture"].removeprefix("sm_").removeprefix("gfx")
    major, minor = divmod(int(digits[:-1] if target["vendor"] == "amd" else digits), 10)
    shared = limits["shared_memory_bytes_per_block"]
    return SimpleNamespace(
        name=str(facts.get("device", target["name"])),
        major=major,
        minor=minor,
        multi_processor_count=int(facts.get("multiprocessors", 1)),
        total_memory=int(float(facts.get("memory_gb", 16)) * 1e9),
        warp_size=limits["warp_size"],
        max_threads_per_block=limits["threads_per_block"],
        max_threads_per_multi_processor=limits.get("threads_per_sm", 2048),
        regs_per_multiprocessor=limits.get("registers_per_sm", 65_536),
        shared_memory_per_block=min(shared, 48 << 10),
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=limits["shared_memory_bytes_per_sm"],
        L2_cache_size=int(float(facts.get("l2_mib", 0)) * (1 << 20)),
        gcnArchName=target["architecture"],
        is_integrated=False,
        is_multi_gpu_board=False,
    )
