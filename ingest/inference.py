"""Which accelerator a text is about, by counting words that only one family of them has.

Conservative on purpose: a document under the wrong label is hidden from those who need it, a generic one is
seen by everybody. What is concluded is reported, and `kernelevolve kb scope` corrects it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

VERSION = 1  # raise it when the same text would get another label: files are then read again
# Label -> names that vendors chose (products, tools, instructions), in any case, and identifiers as they are
# spelt. Words that several of them use (warp, shared memory, tile, kernel) decide nothing and are left out.
_VOCABULARY: dict[str, tuple[str, str]] = {
    "nvidia": (
        r"""nvidia | cuda | cu(?:blas|dnn|sparse|fft|rand)\w* | cutlass\w* | nvcc | nvrtc | nvlink | nsight
        | ptx | ptxas | sass | sm_?\d{2,3}[af]? | compute_\d{2,3}[af]? | wgmma(?:\.\w+)* | mma\.sync(?:\.\w+)*
        | ldmatrix | cp\.async(?:\.\w+)* | tcgen05(?:\.\w+)* | tensor\ cores? | compute\ capability""",
        r"""cuda[A-Z]\w+ | cute::\w+ | __syncthreads | __\w+_sync | cooperative_groups | Hopper | Ampere
        | Blackwell | [AHB][12]00 | V100 | G[HB]200 | CuTe""",
    ),
    "amd": (
        r"""rocm | hipcc | roc(?:blas|prof\w*|wmma|prim|tx|gdb|minfo)\w* | gfx\d{3,4}[a-f]? | (?:v_)?mfma\w*
        | wavefronts? | ds_(?:read|write)\w* | [vsa]gprs? | cdna\d? | rdna\d? | amdgcn\w* | amdgpu\w*
        | s_waitcnt | omniperf | composable_kernel""",
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
_FAMILIES = {
    label: re.compile(rf"(?<![\w.])(?:(?i:{names})|(?:{identifiers}))(?!\w)", re.VERBOSE)
    for label, (names, identifiers) in _VOCABULARY.items()
}
_ARCHITECTURE = {
    "nvidia": re.compile(r"(?<![A-Za-z0-9])sm_?(\d{2,3})(?![0-9])", re.IGNORECASE),
    "amd": re.compile(r"(?<![A-Za-z0-9])(gfx\d{3,4}[a-f]?)(?![A-Za-z0-9])", re.IGNORECASE),
}
_CHARACTERS = 200_000  # of the beginning: enough to tell, and a large file costs no more
_REPEATS = 10  # a word counts this often at most: a name in every page header says no more than that
_WORDS, _DISTINCT = 4, 3  # that are found at least
_SHARE = 0.8  # of everything found, so that comparisons and porting guides stay generic
_DENSITY = 3 / 1000  # of the words of the text, so that a passing mention decides nothing


@dataclass(frozen=True)
class Guess:
    """A scope with the words that speak for it."""

    scope: str
    why: str


def infer_scope(text: str, name: str = "") -> Guess | None:
    """What `text` (of a file called `name`, or with this title) is about; None: nothing in particular.

    The architecture becomes part of the label only where the name says it, and says only one.
    """
    sample = text[:_CHARACTERS]
    found = {label: _count(pattern, sample) for label, pattern in _FAMILIES.items()}
    totals = {label: counts.total() for label, counts in found.items()}
    best = max(totals, key=lambda label: totals[label])
    counts = found[best]
    if totals[best] < _WORDS or len(counts) < _DISTINCT:
        return None
    if totals[best] < _SHARE * sum(totals.values()) or totals[best] < _DENSITY * len(sample.split()):
        return None
    words = ", ".join(f"{word} {n}×" for word, n in counts.most_common(3))
    architectures = {m.lower() for m in _ARCHITECTURE[best].findall(name)} if best in _ARCHITECTURE else set()
    if len(architectures) == 1:
        architecture = architectures.pop()
        prefix = "sm_" if best == "nvidia" else ""
        return Guess(f"{best}:{prefix}{architecture}", f"{words}, and its name")
    return Guess(best, words)


def _count(pattern: re.Pattern[str], text: str) -> Counter[str]:
    counts = Counter(" ".join(m.group().lower().split()) for m in pattern.finditer(text))
    return Counter({word: min(n, _REPEATS) for word, n in counts.items()})
