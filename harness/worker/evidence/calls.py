"""Which functions of torch a piece of Python calls, and how many operations its products take.

A function mode sees calls from Python alone, not what they are made of; it starts at once, where torch's
profiler (on a GPU) and its dispatch modes take seconds to be imported or initialised.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = {"matmul", "__matmul__", "mm", "bmm", "linear", "addmm", "baddbmm", "addmv", "mv", "dot", "inner"}
_CONVOLUTIONS = {"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
# What is asked of a tensor or makes another view of it, by names that are no operators.
_NO_WORK = {
    "__get__",
    "__set__",
    "__getitem__",
    "__len__",
    "__bool__",
    "data_ptr",
    "element_size",
    "get_device",
}
_NO_WORK |= {
    "untyped_storage",
    "storage_offset",
    "nelement",
    "cuda",
    "cpu",
    "__dlpack__",
    "__dlpack_device__",
    "__repr__",
    "__format__",
    "__hash__",
}


class CallLog(TorchFunctionMode):
    """`names` as of operators (`aten::mm`), in order; `operations` of products, convolutions and attention.

    Operations: two for each multiply-add. Products count rows x columns x depth of the result and its
    arguments, convolutions the weights that meet each element of the result, attention both of its products.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.operations = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name not in _NO_WORK:
            self.names.append(f"aten::{name}")
        count = _COUNTS.get(name)
        if count is not None and isinstance(result, torch.Tensor):
            tensors = [a for a in (*args, *(kwargs or {}).values()) if isinstance(a, torch.Tensor)]
            self.operations += count(name, tensors, result)
        return result


class OperatorLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`names` of the operators that were dispatched, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else torch.compile would not compile within, and raise where no graph break is allowed."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(f"{func.namespace}::{func.__name__}")
        return func(*args, **(kwargs or {}))


def operator_log() -> CallLog | OperatorLog:
    """Entering a dispatch mode imports TorchDynamo, which takes seconds. Where that is there already,
    compiled code may run, which it would not in a function mode: Dynamo would follow the mode.
    """
    return OperatorLog() if "torch._dynamo" in sys.modules else CallLog()


def _product(name: str, tensors: list[torch.Tensor], result: torch.Tensor) -> int:
    left = tensors[1] if name.startswith(("add", "badd")) and len(tensors) > 2 else tensors[0]
    return 2 * result.numel() * left.shape[-1] if left.dim() else 0


def _convolution(name: str, tensors: list[torch.Tensor], result: torch.Tensor) -> int:
    weight = tensors[1]
    meets = math.prod(weight.shape[1:])
    return 2 * (tensors[0] if "transpose" in name else result).numel() * meets


def _attention(_name: str, tensors: list[torch.Tensor], result: torch.Tensor) -> int:
    query, key = tensors[0], tensors[1]
    return 2 * query.numel() * key.shape[-2] + 2 * result.numel() * key.shape[-2]


_COUNTS: dict[str, Callable[[str, list[torch.Tensor], torch.Tensor], int]] = {
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "scaled_dot_product_attention": _attention,
}
