"""Whose work is it? Names of GPU kernels and of torch operators, sorted into the candidate's own, a
library's, and mere memory operations.

Kernel names were taken from profiles of torch on NVIDIA and AMD devices and from the vendors' naming schemes.
They are matched at their start or as a namespace, never anywhere inside: a kernel of one's own may well be
called `softmax_like_cudnn`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

Kind = Literal["own", "library", "memory", "other"]

_MEMORY_KERNEL = re.compile(
    r"""
    (?:\[?(?:CUDA|HIP)\ )?(?:mem(?:cpy|set)\b|Memcpy|Memset)
    | (?:void\ )?at::native::.*(?:direct_copy_kernel|FillFunctor)
    | __amd_rocclr_(?:copy|fill) | CopyHostTo | CopyDeviceTo | FillBuffer | CopyBuffer
    """,
    re.VERBOSE,
)
_LIBRARY_KERNEL = re.compile(
    r"""(?:void\ )?(?:
    # torch's own kernels, and what it bundles
    \(?(?:at|at_cuda_detail|at_hip_detail|c10|caffe2|torch|pytorch_flash|cub|thrust|rocprim|hipcub)::
    | fmha_ | flash_(?:fwd|bwd) | efficient_attention
    # cuBLAS, cuDNN, cuFFT, cuSPARSE, cuSOLVER, NCCL and the CUTLASS instances they are made of
    | (?:cublas|cublasLt|cudnn|cufft|cusparse|cusolver|curand|nccl|cask|xmma|magma)\w*(?:::|_|[A-Z])
    | (?:sm\d+|volta|turing|ampere|ada|hopper|blackwell|maxwell|pascal|kepler)_\w*
      (?:xmma|gemm|gemv|cudnn|conv|wgrad|dgrad|fprop|fp16|bf16|int8|s\d+|h\d+)
    | cutlass_\d | cutlass::Kernel2?< | nvjet_ | nvfuser_
    | (?:gemmk1|gemmSN|gemv|dot_kernel|reduce_1Block|splitKreduce|scal_kernel|axpy_kernel|asum_kernel
      |nrm2_kernel|ger_kernel|symv|trsm|trmm|syrk|getrf|getrs|potrf|geqrf|larf)\w*[<(]
    | implicit_convolve_sgemm | explicit_convolve | winograd_ | conv2d_grouped_direct | conv_depthwise
    | nhwcToNchw | nchwToNhwc | vector_fft | regular_fft | fft\dd_
    # rocBLAS, hipBLASLt (Tensile), MIOpen, composable kernel
    | Cijk_ | Custom_Cijk_ | rocblas | hipblas | rocsparse | rocsolver | rocfft | rccl | miopen | MIOpen
    | igemm_(?:fwd|bwd|wrw) | gridwise_ | batched_transpose_\d | naive_conv_ | SubTensorOp | ck::|ck_tile::
    )""",
    re.VERBOSE,
)

# Namespaces of operators that come with torch. Everything else was registered by somebody else.
_TORCH = """
aten prim prims inductor inductor_prims mkldnn onednn mkldnn_prepacked mkl quantized _quantized quantization
sparse _native static_runtime c10d _c10d_functional _c10d_functional_autograd symm_mem rngprims debugprims
torchvision torchao fbgemm xnnpack prepacked torch_attn metal higher_order
"""
_NO_OPERATORS = "profiler record_param_comms onnx export _dtensor debug_mode_ops _test"

# ATen operators that compute nothing: they look at memory in another way, allocate, copy or fill it, or ask.
_VIEWS = """
alias as_strided _reshape_alias adjoint broadcast_to chunk conj _conj resolve_conj resolve_neg contiguous
detach detach_ diagonal dsplit expand expand_as flatten hsplit imag real lift lift_fresh lift_fresh_copy mH mT
matrix_H moveaxis movedim narrow numpy_T permute pin_memory positive ravel reshape reshape_as
select slice split
split_with_sizes squeeze squeeze_ swapaxes swapdims t t_ tensor_split to transpose transpose_ unbind unflatten
unfold unsqueeze unsqueeze_ view view_as view_as_complex view_as_real vsplit _unsafe_view broadcast_tensors
meshgrid atleast_1d atleast_2d atleast_3d data _neg_view
"""
_ALLOCATIONS = """
empty empty_like empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full
zeros zeros_like ones ones_like full full_like fill fill_ zero zero_ scalar_tensor tensor as_tensor
eye arange linspace
resize_ resize_as_ set_ _efficientzerotensor
"""
_COPIES = """
copy copy_ _to_copy _copy_from _copy_from_and_resize clone _to_cpu _autocast_to_full_precision
_autocast_to_reduced_precision type_as float half double
"""
_QUESTIONS = """
item _local_scalar_dense is_nonzero size stride numel dim sym_size sym_stride sym_numel sym_storage_offset
is_same_size is_floating_point is_complex is_contiguous result_type can_cast record_stream requires_grad_
retain_grad _version output_nr is_leaf _has_compatible_shallow_copy_type is_pinned _is_zerotensor is_conj
is_neg is_inference manual_seed
"""
_TORCH_NAMESPACES = frozenset(_TORCH.split())
_NOT_WORK = frozenset(_NO_OPERATORS.split())
VIEWS, ALLOCATIONS = frozenset(_VIEWS.split()), frozenset(_ALLOCATIONS.split())
_MEMORY_OPERATORS = VIEWS | ALLOCATIONS | frozenset((_COPIES + _QUESTIONS).split())


def kernel_kind(name: str, own: Collection[str] = ()) -> Kind:
    """The kind of a GPU kernel (or copy engine operation) of a profile, by its demangled name.

    `own` are names of kernels the candidate is known to have launched: they are its own, whatever they look
    like. A name that no library uses is the candidate's own, too.
    """
    if own and re.split(r"[<(]", name.removeprefix("void "), maxsplit=1)[0].rpartition("::")[2] in own:
        return "own"
    if _MEMORY_KERNEL.match(name):
        return "memory"
    return "library" if _LIBRARY_KERNEL.match(name) else "own"


def operator_kind(name: str) -> Kind:
    """The kind of an operator of a profile: `aten::mm` is library, `aten::view` memory, `mine::f` own.

    `other` is what is no operator: annotations, the profiler's own marks.
    """
    namespace, separator, rest = name.partition("::")
    if not separator or namespace in _NOT_WORK or not namespace.isidentifier():
        return "other"
    if namespace not in _TORCH_NAMESPACES:
        return "own"
    return "memory" if rest.partition(".")[0] in _MEMORY_OPERATORS else "library"
