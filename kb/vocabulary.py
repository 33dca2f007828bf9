"""The words by which vendors are told apart, and the products that have an architecture of their own.

Public names only: what vendors call their products, tools, instructions and interfaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Label -> names that vendors chose (products, tools, instructions), in any case, and identifiers as they are
# spelt. Words that several of them use (warp, shared memory, tile, kernel) decide nothing and are left out.
_WORDS: dict[str, tuple[str, str]] = {
    "nvidia": (
        r"""nvidia | cuda | cu(?:blas|dnn|sparse|fft|rand)\w* | cutlass\w* | nvcc | nvrtc | nvlink | nsight
        | ptx | ptxas | sass | sm_?\d{2,3}[af]? | compute_\d{2,3}[af]? | wgmma(?:\.\w+)* | mma\.sync(?:\.\w+)*
        | ldmatrix | cp\.async(?:\.\w+)* | tcgen05(?:\.\w+)* | tensor\ cores? | compute\ capability""",
        r"""cuda[A-Z]\w+ | cute::\w+ | __syncthreads | __\w+_sync | cooperative_groups | Hopper | Ampere
        | Blackwell | [AHB][12]00 | V100 | G[HB]200 | CuTe""",
    ),
    "amd": (
        r"""rocm | hipcc | roc(?:blas|prof\w*|wmma|prim|tx|gdb|minfo)\w* | gfx(?:\d{3,4} | \d\d[a-f])
        | (?:v_)?mfma\w* | wavefronts? | ds_(?:read|write)\w* | [vsa]gprs? | cdna\d? | rdna\d? | amdgcn\w*
        | amdgpu\w* | s_waitcnt | omniperf | composable_kernel""",
        r"""AMD | HIP | hip[A-Z]\w+ | LDS | GCN | Instinct | MI\d{3}[XA]? | v_\w+_f(?:16|32|64)
        | __builtin_amdgcn_\w+""",
    ),
    "aws-neuron": (
        r"""nki | nki\.\w[\w.]* | neuronx\w* | neuroncores? | trainium\d? | inferentia\d? | trn[12]""",
        r"""nl\.[a-z]\w+ | nisa\.[a-z]\w+ | Neuron""",
    ),
    "tpu/gpu-pallas": (
        r"""pallas | pallas_call | tpus? | sparsecores?""",
        r"""pl\.[a-z]\w+ | pl\.BlockSpec | BlockSpecs? | pltpu\.\w+ | plgpu\.\w+ | Mosaic""",
    ),
    "tenstorrent": (
        r"""tenstorrent | tt[-_](?:metal\w*|lang|mlir|isa|forge|llk|smi) | ttnn(?:\.\w+)? | tensix | wormhole
        | metalium""",
        r"""ttl\.[a-z]\w+ | Blackhole | SFPU | SFPI | SFP[A-Z]{2,}\w*""",
    ),
    "triton": (
        r"""triton | triton\.\w[\w.]* | ttgir | ttir""",
        r"""tl\.[a-z]\w+ | Gluon | gl\.[a-z]\w+""",
    ),
    "opencl": (
        r"""opencl\w* | ndrange | spir-?v""",
        r"""cl(?:Create|Enqueue|Get|Build|Set|Release|Wait)[A-Z]\w+ | cl_(?:mem|kernel|event|int|uint|khr\w*)
        | __kernel | get_(?:global|local|group)_id""",
    ),
    "cpu": (
        r"""avx(?:2|-?512\w*|10\w*)? | x86(?:[-_]64)? | openmp | aarch64 | simd""",
        r"""SSE\d?(?:\.\d)? | NEON | SVE2? | AMX | _mm(?:256|512)?_\w+ | v(?:ld|st)\dq_\w+ | vfmadd\w* | MKL
        | oneDNN | \#pragma\ omp""",
    ),
}
WORDS = {
    label: re.compile(rf"(?<![\w.])(?:(?i:{names})|(?:{identifiers}))(?!\w)", re.VERBOSE)
    for label, (names, identifiers) in _WORDS.items()
}
ARCHITECTURES = {
    "nvidia": re.compile(r"(?<![A-Za-z0-9])sm_?(\d{2,3})(?![0-9])", re.IGNORECASE),
    "amd": re.compile(r"(?<![A-Za-z0-9])(gfx(?:\d{3,4}|\d\d[a-f]))(?![A-Za-z0-9])", re.IGNORECASE),
}

# Architecture -> names of products and generations that have it, in any case.
_PRODUCTS: dict[str, str] = {
    # NVIDIA, "CUDA GPU Compute Capability" (developer.nvidia.com/cuda-gpus); generations by their data centre
    # products.
    "nvidia:sm_70": r"v100 | volta",
    "nvidia:sm_75": r"t4 | turing",
    "nvidia:sm_80": r"a100 | a30 | ampere",
    "nvidia:sm_86": r"a10g? | a40 | rtx[ -]?30\d\d",
    "nvidia:sm_89": r"l4 | l40s? | rtx[ -]?40\d\d | ada[ ]lovelace",
    "nvidia:sm_90": r"h100 | h200 | h20 | h800 | gh200 | hopper",
    "nvidia:sm_100": r"b100 | b200 | gb200 | blackwell",
    "nvidia:sm_103": r"b300 | gb300",
    "nvidia:sm_120": r"rtx[ -]?50\d\d",
    # AMD, ROCm documentation, "Accelerator and GPU hardware specifications".
    "amd:gfx906": r"mi50 | mi60",
    "amd:gfx908": r"mi100 | cdna[ -]?1",
    "amd:gfx90a": r"mi2[15]0x? | mi200 | cdna[ -]?2",
    "amd:gfx942": r"mi30[08][ax]? | mi325x? | cdna[ -]?3",
    "amd:gfx950": r"mi35[05]x? | cdna[ -]?4",
    "amd:gfx1100": r"rx[ -]?7900 | rdna[ -]?3",
    "amd:gfx1201": r"rx[ -]?9070 | rdna[ -]?4",
    # AWS Neuron documentation, "Neuron architecture guide".
    "aws-neuron:trn1": r"trn1n? | trainium[ -]?1 | neuroncore-v2",
    "aws-neuron:trn2": r"trn2 | trainium[ -]?2 | neuroncore-v3",
    "aws-neuron:trn3": r"trn3 | trainium[ -]?3 | neuroncore-v4",
    "aws-neuron:inf2": r"inf2 | inferentia[ -]?2",
    # Google Cloud documentation, "TPU versions".
    "tpu:v4": r"tpu[ -]?v4",
    "tpu:v5e": r"(?:tpu[ -]?)?v5(?:e|[ -]lite)",
    "tpu:v5p": r"(?:tpu[ -]?)?v5p",
    "tpu:v6e": r"(?:tpu[ -]?)?v6e | trillium",
    "tpu:v7": r"tpu[ -]?v?7x? | ironwood",
    # Tenstorrent documentation, "Hardware".
    "tenstorrent:wormhole": r"n150 | n300 | wormhole",
    "tenstorrent:blackhole": r"p100a? | p150[abc]? | blackhole",
    # Intel, "oneAPI GPU optimization guide" and data sheets.
    "intel": r"oneapi | sycl | xe2? | xe[ -]hp[cg] | ponte[ ]vecchio | dpc\+\+ | level[ -]zero | xmx",
}
PRODUCTS = {
    label: re.compile(rf"(?<![\w.])(?i:{names})(?!\w)", re.VERBOSE) for label, names in _PRODUCTS.items()
}


def named(text: str) -> Iterator[tuple[str, str]]:
    """(label, the word as it stands in `text`) for all that names an accelerator or its language.

    A product or an architecture gives its own label, everything else its family's.
    """
    for label, pattern in PRODUCTS.items():
        yield from ((label, m.group()) for m in pattern.finditer(text))
    for family, pattern in ARCHITECTURES.items():
        for m in pattern.finditer(text):
            architecture = m.group(1).lower()
            yield f"{family}:{'sm_' if family == 'nvidia' else ''}{architecture}", m.group()
    for label, pattern in WORDS.items():
        yield from ((label, m.group()) for m in pattern.finditer(text))
