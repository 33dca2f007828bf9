"""HIP C++ to code objects by hipcc; CUDA C++ is translated first, as torch's extensions do it."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

# As torch's own build calls hipcc (`COMMON_HIP_FLAGS`, `COMMON_HIPCC_FLAGS` of torch.utils.cpp_extension).
FLAGS = (
    *("-DWITH_HIP", "-D__HIP_PLATFORM_AMD__=1", "-DUSE_ROCM=1", "-DHIPBLAS_V2", "-DCUDA_HAS_FP16=1"),
    *(
        "-D__HIP_NO_HALF_OPERATORS__=1",
        "-D__HIP_NO_HALF_CONVERSIONS__=1",
        "-DHIP_ENABLE_WARP_SYNC_BUILTINS=1",
    ),
)
_KERNEL = re.compile(r"^\s+(?:- )?\.symbol:\s+'?([\w.$]+)\.kd'?$", re.MULTILINE)


def find_hipcc() -> str | None:
    """hipcc: of $ROCM_PATH or $ROCM_HOME, on the path, or in the usual place."""
    for folder in (os.environ.get("ROCM_PATH"), os.environ.get("ROCM_HOME"), None, "/opt/rocm"):
        found = shutil.which("hipcc") if folder is None else shutil.which(f"{folder}/bin/hipcc")
        if found:
            return found
    return None


def command(hipcc: str, architecture: str) -> list[str]:
    """Compiles device code alone, to one code object, and leaves its assembly beside it."""
    device = ("--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={architecture}")
    return [hipcc, "-x", "hip", "-c", *device, "-save-temps=obj", "-std=c++20", *FLAGS]


def translated(source: Path) -> Path:
    """A CUDA file, alone in its folder, as HIP."""
    from torch.utils.hipify import hipify_python

    folder = str(source.parent)
    done = hipify_python.hipify(
        project_directory=folder,
        output_directory=folder,
        extra_files=[str(source)],
        show_progress=False,
        is_pytorch_extension=True,
    )
    path = done[str(source)].hipified_path
    return Path(path) if path else source


def assembly(folder: Path, architecture: str) -> str:
    """What `command` has left in a folder; empty where there is none."""
    texts = [path.read_text(encoding="utf-8") for path in folder.glob(f"*{architecture}*.s")]
    return texts[0] if texts else ""


def kernel_names(text: str) -> list[str]:
    """The kernels of an assembly, by its metadata."""
    return _KERNEL.findall(text)
