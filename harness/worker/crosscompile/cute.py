"""Candidates in the CuTe DSL whose device is not here: everything is compiled, nothing is loaded or launched.

The package compiles without a driver once it is told the architecture (`base_dsl/env_manager.py`), and keeps
PTX where it is asked to. A driver is needed only when what was compiled is called
(`cute_runtime.py` takes its place), and for questions about the device, which are answered here. Names are
those of nvidia-cutlass-dsl 4.8.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harness.worker.crosscompile.cuda import NotFollowed, specific
from harness.worker.crosscompile.cute_runtime import AbsentRuntime
from harness.worker.crosscompile.device import on_device
from harness.worker.packages import has_cute
from harness.worker.profiling.cute import kernels_of
from harness.worker.profiling.static import Compiled

_compiled: list[Compiled] = []
_runtimes: list[AbsentRuntime] = []


def kernels() -> list[Compiled]:
    """The kernels that were compiled so far, with the most dynamic shared memory that a launch asked for."""
    for launch in (launch for runtime in _runtimes for launch in runtime.launches):
        for kernel in (k for k in _compiled if k.name == launch.kernel):
            kernel.dynamic_shared_bytes = max(kernel.dynamic_shared_bytes, launch.shared_bytes)
    return list(_compiled)


def grids() -> dict[str, list[int]]:
    """With which grid each kernel was launched last, by its key."""
    last = {launch.kernel: launch.grid for runtime in _runtimes for launch in runtime.launches}
    return {kernel.key: last[kernel.name] for kernel in _compiled if kernel.name in last}


def install(target: dict[str, Any], source: str, scratch: Path) -> None:
    """Makes the CuTe DSL in this process compile for the target; to be called before the candidate is
    imported. The package is not loaded where `source`, the candidate's text, does not speak of it. Raises
    NotFollowed where it is another one than is known here.
    """
    if target["vendor"] != "nvidia" or "cutlass" not in source or not has_cute():
        return
    folder = scratch / "cute_kept"
    folder.mkdir(exist_ok=True)
    os.environ["CUTE_DSL_ARCH"] = specific(target["architecture"])
    os.environ["CUTE_DSL_KEEP"] = "ptx"
    os.environ["CUTE_DSL_DUMP_DIR"] = str(folder)
    runtime = AbsentRuntime(target)
    _runtimes.append(runtime)
    try:
        _prepare(target, runtime, tvm_ffi="tvm" in source.lower())
    except Exception as error:
        raise NotFollowed(
            f"the installed CuTe DSL cannot be used: {type(error).__name__}: {error}"
        ) from error


def _prepare(target: dict[str, Any], runtime: AbsentRuntime, *, tvm_ffi: bool) -> None:
    from cutlass.base_dsl import compiler, jit_executor
    from cutlass.cutlass_dsl import cuda_jit_executor
    from cutlass.utils import hardware_info

    _compile_for(compiler.Compiler, runtime)
    _collect(jit_executor.JitCompiledFunction, target["architecture"])
    _look_at_launches(jit_executor.JitExecutor, runtime)
    cuda_jit_executor.CudaDialectJitCompiledFunction.num_devices = 1
    _answer_questions(hardware_info.HardwareInfo, target)
    if tvm_ffi and importlib.util.find_spec("tvm_ffi"):
        _leave_out_tvm_ffi()


def _leave_out_tvm_ffi() -> None:
    """Functions called by way of TVM FFI are compiled, but not run: its part in C asks tensors for memory."""
    from cutlass.cute import runtime
    from cutlass.cutlass_dsl import tvm_ffi_provider

    construct = runtime._Tensor.__init__
    plain = {"enable_tvm_ffi": False}
    runtime._Tensor.__init__ = lambda self, *args, **more: construct(self, *args, **{**more, **plain})
    for name in ("", "Base", "WithKwargs"):
        kind: Any = getattr(tvm_ffi_provider, f"TVMFFIJitCompiledFunction{name}")
        kind.__call__ = _only_look


def _only_look(function: Any, *args: Any, **_: Any) -> None:
    _look_at_arguments(function, args)


def _look_at_arguments(function: Any, args: Sequence[Any]) -> None:
    for i, value in enumerate(args if function.has_gpu_module else ()):
        if _on_host(value):
            raise ValueError(f"argument {i} is a tensor on the host: a kernel cannot reach it")


def _compile_for(compiler: Any, runtime: AbsentRuntime) -> None:
    jit = compiler.jit

    def with_runtime(*args: Any, **kwargs: Any) -> Any:
        engine = jit(*args, **kwargs)
        runtime.offer_to(engine)
        return engine

    compiler.jit = with_runtime


def _look_at_launches(executor: Any, runtime: AbsentRuntime) -> None:
    run = executor.run_compiled_program

    def checked(self: Any, *args: Any) -> Any:
        runtime.problem = ""
        result = run(self, *args)
        if runtime.problem:
            raise RuntimeError(runtime.problem)
        return result

    executor.run_compiled_program = checked


def _collect(function: Any, architecture: str) -> None:
    """Has everything listed that is compiled from now on, and looks at what it is called with."""
    construct, call = function.__init__, function.__call__

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        known = {kernel.key for kernel in _compiled}
        _compiled.extend(k for k in kernels_of(self, architecture) if k.key not in known)

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        _look_at_arguments(self, args)
        return call(self, *args, **kwargs)

    function.__init__, function.__call__ = initialise, called


def _on_host(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return not on_device(value)
    described = getattr(value, "_dltensor_wrapper", None)  # by `from_dlpack`
    return described is not None and str(value.memspace).endswith("generic")


def _answer_questions(hardware: Any, target: dict[str, Any]) -> None:
    """The facts of the target. Clusters are counted as if the multiprocessors were one pool: the device has
    somewhat fewer, and nothing that is compiled depends on it.
    """
    count = int(target["facts"].get("multiprocessors", 1))
    cache = int(float(target["facts"].get("l2_mib", 0)) * (1 << 20))
    hardware.__init__ = lambda self, device_id=0: setattr(self, "device_id", device_id)
    hardware.get_max_active_clusters = lambda _, cluster_size, *__, **___: count // cluster_size
    hardware.get_device_multiprocessor_count = lambda _: count
    hardware.get_l2_cache_size_in_bytes = lambda _: cache
