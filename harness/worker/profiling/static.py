"""What a compiler says about kernels: registers, spills, shared memory, instructions, occupancy.

Works on kernels that Triton holds in this process, compiled for a device that is here or for one that is not,
and on plain CUDA binaries.
"""

from __future__ import annotations

import gc
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.worker.profiling import occupancy, sass

ARTIFACTS = "artifacts"
MOST_KERNELS = 256
TOP_INSTRUCTIONS = 12
_TEXTS = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
_BINARIES = ("cubin", "hsaco")
# Matrix instructions by vendor: HMMA, HGMMA, UTCHMMA …; v_mfma_…, v_smfmac_….
_MATRIX = re.compile(r"\w*MMA\b|v_s?mfma\w*|v_wmma\w*")


@dataclass
class Compiled:
    """One kernel in one configuration. `texts` and `binaries` are by kind: `ptx`, `amdgcn`, `cubin` …

    `shared_bytes` is what one block needs; None where the binary knows it, apart from what a launch adds.
    """

    name: str
    language: str
    architecture: str
    key: str
    config: dict[str, Any] = field(default_factory=dict)
    warps: int | None = None
    shared_bytes: int | None = None
    dynamic_shared_bytes: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    binaries: dict[str, bytes] = field(default_factory=dict)


def triton_kernels() -> list[Compiled]:
    """Everything that Triton has compiled in this process, in the order of names."""
    if "triton.runtime.jit" not in sys.modules:
        return []
    from triton.runtime.jit import JITFunction

    # By type: `isinstance` would ask objects for their class, and some of torch's warn then.
    functions = [f for f in gc.get_objects() if issubclass(type(f), JITFunction)]
    found = []
    for function in sorted(functions, key=lambda f: str(f.__name__)):
        for caches in function.device_caches.values():
            found += [_of_triton(function, k) for k in caches[0].values() if hasattr(k, "asm")]
    return found


def cuda_kernels() -> list[Compiled]:
    """The kernels of `load_cuda` in this process: one entry for each shape of block that was launched."""
    binding = sys.modules.get("harness.native_cuda")
    found = []
    for library in binding.loaded if binding is not None else ():
        for entry in library.parameters:
            used = [kernel for kernel in library.kernels.values() if kernel.entry == entry]
            shapes = dict.fromkeys(shape[1:] for kernel in used for shape in kernel.launches)
            found += [_of_cuda(library, entry, *shape) for shape in shapes or [((), 0)]]
    return found


def _of_cuda(library: Any, entry: str, block: tuple[int, ...], shared: int) -> Compiled:
    warp = 32
    return Compiled(
        name=entry,
        language="cuda",
        architecture=library.architecture,
        key=f"{entry} {block} {shared}",
        config={"block": list(block), "dynamic_shared_bytes": shared} if block else {},
        warps=-(-math.prod(block) // warp) if block else None,
        dynamic_shared_bytes=shared,
        texts={"ptx": library.binary.ptx},
        binaries={"cubin": library.binary.cubin},
    )


def _of_triton(function: Any, kernel: Any) -> Compiled:
    metadata = kernel.metadata
    names = list(function.arg_names)
    constants = getattr(kernel.src, "constants", None) or getattr(kernel.src, "constexprs", {})
    config: dict[str, Any] = {
        name: getattr(metadata, name)
        for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")
        if getattr(metadata, name, None) is not None
    }
    config["constexprs"] = {_constant_name(path, names): _plain(value) for path, value in constants.items()}
    asm = kernel.asm
    return Compiled(
        name=str(function.__name__),
        language="gluon" if function.is_gluon() else "triton",
        architecture=_architecture(metadata.target),
        key=str(metadata.hash),
        config=config,
        warps=int(metadata.num_warps),
        shared_bytes=int(metadata.shared),
        texts={kind: asm[kind] for kind in _TEXTS if kind in asm},
        binaries={kind: asm[kind] for kind in _BINARIES if kind in asm},
    )


def _architecture(target: Any) -> str:
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch).partition(":")[0]


def _constant_name(path: Any, names: list[str]) -> str:
    if isinstance(path, tuple):
        rest = "".join(f"[{i}]" for i in path[1:])
        return names[path[0]] + rest if isinstance(path[0], int) else str(path[0])
    return names[path] if isinstance(path, int) else str(path)


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def figures(kernel: Compiled, limits: dict[str, int], missing: list[str]) -> dict[str, Any]:
    """One entry of a static profile. A tool that is not there is named in `missing`, and what it would have
    told is left out.

    `spills`: bytes that one thread stores to and loads from local memory, each instruction counted once (with
    indexed local arrays, on NVIDIA). `instructions` counts what stands in the code, not what is executed.
    """
    entry: dict[str, Any] = {
        "name": kernel.name,
        "language": kernel.language,
        "architecture": kernel.architecture,
        "config": kernel.config,
    }
    counts: Counter[str] = Counter()
    if "amdgcn" in kernel.texts:
        found, counts = _of_amdgcn(kernel.texts["amdgcn"], kernel.name)
        entry |= found
    elif "cubin" in kernel.binaries:
        tool = sass.find("cuobjdump")
        if tool is None:
            missing.append("cuobjdump: not found; no registers, spills, instructions and occupancy")
        else:
            found, counts, text = sass.disassemble(tool, kernel.binaries["cubin"], kernel.name)
            entry |= found
            kernel.texts["sass"] = text
    shared = kernel.shared_bytes
    if shared is None:
        shared = entry.get("shared_bytes", 0) + kernel.dynamic_shared_bytes
    entry["shared_bytes"] = shared
    if counts:
        entry["tensor_core"] = {n: c for n, c in sorted(counts.items()) if _MATRIX.fullmatch(n)}
        top = dict(counts.most_common(TOP_INSTRUCTIONS))
        entry["instructions"] = {"total": counts.total(), "top": top}
    if kernel.warps and "registers" in entry:
        entry["occupancy"] = occupancy.of(limits, kernel.warps, entry["registers"], shared)
    return entry


def _of_amdgcn(text: str, kernel: str) -> tuple[dict[str, Any], Counter[str]]:
    """Figures of one kernel, from the metadata at the end of the assembly: these cover vector and accumulator
    registers in one number, as they share one file since CDNA 2.
    """
    entry = _metadata_of(text, kernel)
    code = re.search(rf"^{re.escape(kernel)}:.*?^\.Lfunc_end", text, re.MULTILINE | re.DOTALL)

    def number(key: str) -> int:
        found = re.search(rf"^\s*\.{key}:\s*(\d+)", entry, re.MULTILINE)
        return int(found[1]) if found else 0

    counts = Counter(re.findall(r"^\t([a-z]+_[a-z0-9_]+)", code[0] if code else text, re.MULTILINE))
    found: dict[str, Any] = {
        "registers": number("vgpr_count"),
        "accumulator_registers": number("agpr_count"),
        "scalar_registers": number("sgpr_count"),
        "spills": {
            "vector_registers": number("vgpr_spill_count"),
            "scalar_registers": number("sgpr_spill_count"),
        },
        "stack_bytes": number("private_segment_fixed_size"),
        "shared_bytes": number("group_segment_fixed_size"),
    }
    return found, counts


def _metadata_of(text: str, kernel: str) -> str:
    """One kernel's entry of `amdhsa.kernels`; the whole text where it has none of that name."""
    named = re.compile(rf"^\s*\.name:\s+{re.escape(kernel)}$", re.MULTILINE)
    entries = re.split(r"^  - ", text, flags=re.MULTILINE)
    return next((entry for entry in entries if named.search(entry)), text)


def registers_of(binary: bytes) -> int:
    """Registers per thread of one binary; 0 where nothing here can tell."""
    # In AMD's metadata note, which is MessagePack: the key, then an integer.
    note = re.search(rb"\.vgpr_count(?:\xcc(.)|\xcd(..)|([\x00-\x7f]))", binary, re.DOTALL)
    if note:
        return int.from_bytes(next(g for g in note.groups() if g is not None), "big")
    tool = sass.find("cuobjdump")
    return sass.registers(tool, binary) if tool else 0


class KernelFigures:
    """Answers a judge's questions about the kernels that `collect` has found in this process; `grids` tells
    with which grid one was launched, by its key.
    """

    def __init__(self, scratch: Callable[[], Path]) -> None:
        self._scratch = scratch
        self._kernels: list[Compiled] = []
        self.grids: dict[str, list[int]] = {}
        self.handlers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "figures": self.figures,
            "texts": lambda _: self.texts(),
        }

    def collect(self, more: Sequence[Compiled] = ()) -> dict[str, Any]:
        """The names of the kernels; the other questions are about them by number."""
        self._kernels = [*triton_kernels(), *cuda_kernels(), *more]
        return {"kernels": [kernel.name for kernel in self._kernels][:MOST_KERNELS]}

    def figures(self, message: dict[str, Any]) -> dict[str, Any]:
        """The compiler's figures for one kernel."""
        kernel = self._kernels[message["index"]]
        missing: list[str] = []
        found = figures(kernel, message["limits"], missing)
        grid = self.grids.get(kernel.key)
        return {"figures": found | ({"grid": grid} if grid else {}), "missing": missing}

    def texts(self) -> dict[str, Any]:
        """Leaves what the compiler made in the scratch folder: ttir, ttgir, llir, ptx, sass, amdgcn and
        binaries, one file each. `figures` has to be asked first: that adds the SASS.
        """
        folder = self._scratch() / ARTIFACTS
        folder.mkdir(exist_ok=True)
        for number, kernel in enumerate(self._kernels):
            name = re.sub(r"[^A-Za-z0-9_]", "_", kernel.name)[:60]
            stem = f"{number:03}-{name}.{kernel.architecture}"
            for kind, text in kernel.texts.items():
                (folder / f"{stem}.{kind}").write_text(text, encoding="utf-8")
            for kind, binary in kernel.binaries.items():
                (folder / f"{stem}.{kind}").write_bytes(binary)
        return {"ok": True}
