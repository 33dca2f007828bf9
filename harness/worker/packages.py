"""Packages that candidates may be written in and that the harness does without: where they are, and how to
say that one is not.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

# By the name under which it is imported: what it is, and what to install.
_OPTIONAL = {
    "triton": ("Triton", "triton"),
    "cutlass": ("the CuTe DSL", "nvidia-cutlass-dsl"),
    "cuda": ("CUDA Python", "cuda-bindings"),
    "tvm_ffi": ("TVM FFI", "apache-tvm-ffi"),
}
_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def missing_package(failure: str) -> str:
    """What to say about a candidate that failed because one of these packages is not installed here; an empty
    string for every other failure, and where the package is here after all.
    """
    found = _NOT_FOUND.match(failure)
    name = found[1] if found else ""
    if name not in _OPTIONAL or importlib.util.find_spec(name) is not None:
        return ""
    what, package = _OPTIONAL[name]
    return f"the candidate needs {what}, which is not installed here: pip install {package}"


def package_folders() -> set[str]:
    """Where torch and the packages above lie: a folder on the path need not be called site-packages."""
    folders: set[str] = set()
    for name in ("torch", "nvidia_cutlass_dsl", *_OPTIONAL):
        spec = importlib.util.find_spec(name)
        places = spec.submodule_search_locations if spec is not None else None
        for place in map(Path, places or ()):
            folders |= {str(place.parent), str(place.resolve().parent)}
    return folders


def has_cute() -> bool:
    """Whether the CuTe DSL is installed. Other packages have modules called cutlass, too."""
    spec = importlib.util.find_spec("cutlass")
    places = spec.submodule_search_locations if spec is not None else None
    return any((Path(place) / "cute").is_dir() for place in places or ())
