"""What this machine offers to evaluations: compilers, torch, Triton, the parts of the jail, measured
ceilings.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.target import broken_targets, list_targets
from harness.targets.cuda_driver import cuda_names
from harness.targets.toolchain import NAMES
from harness.worker import environment
from harness.worker.jail.sandbox import FEATURES

PROBE_LIMIT_S = 60.0


@dataclass(frozen=True)
class Check:
    """One line for a person: `hint` says what to do where `ok` is False. Without what is `essential`, nothing
    can be judged at all; the rest narrows what can be done.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    essential: bool = False


def _check(name: str, ok: bool, detail: str, hint: str, *, essential: bool = False) -> Check:
    return Check(name, ok, detail, "" if ok else hint, essential)


def checks(cache_dir: Path | None = None) -> list[Check]:
    """All checks; with `cache_dir`, also the ceilings that were measured on this CPU before."""
    found = [_compiler(), *_packages(), *_sandbox(), *_targets()]
    if cache_dir is not None:
        found += _calibrations(cache_dir)
    return found


def _compiler() -> Check:
    compiler = environment.cxx()
    if compiler is None:
        hint = "install g++ (Debian: apt install g++) or set CXX"
        return Check("C++ compiler", False, "none found", hint, essential=True)
    version = environment.cxx_version(compiler)
    detail = version or f"{compiler} does not run"
    return _check("C++ compiler", bool(version), detail, "check the compiler", essential=True)


def _packages() -> list[Check]:
    facts = environment.facts()
    ninja = importlib.util.find_spec("ninja") is not None or _on_path("ninja")
    return [
        _check(
            "torch",
            "torch" in facts,
            facts.get("torch", "not installed"),
            "pip install torch",
            essential=True,
        ),
        _check(
            "triton", "triton" in facts, facts.get("triton", "not installed"), "Triton candidates need it"
        ),
        _check(
            "ninja",
            ninja,
            "found" if ninja else "not found",
            "only candidates that use torch's load_inline need it: pip install ninja",
        ),
    ]


def _on_path(name: str) -> bool:
    import shutil

    return shutil.which(name) is not None


def _sandbox() -> list[Check]:
    report = sandbox_report()
    found = []
    for feature, meaning in FEATURES.items():
        problem = report.get(feature, "not known")
        detail = meaning if not problem else f"not active: {problem}"
        hint = "evaluations run with a weaker jail and say so"
        found.append(_check(f"sandbox: {feature}", not problem, detail, hint))
    return found


def sandbox_report() -> dict[str, str]:
    """Feature → "" where active, else why not; found out by a process that jails itself."""
    root = str(Path(__file__).resolve().parents[1])
    command = [sys.executable, "-m", "harness.worker.jail.sandbox"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_LIMIT_S, check=True, cwd=root)
        return dict(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return dict.fromkeys(FEATURES, f"the probe failed ({type(error).__name__})")


def _targets() -> list[Check]:
    found = []
    for target in list_targets():
        available, reason = target.available()
        compiles, obstacle = (True, "") if available else target.compiles()
        what = str(target.facts.get("device", target.architecture))
        what += f"; in {', '.join(NAMES.get(name, name) for name in target.languages)}"
        if available:
            detail, hint = f"runs here: {what}", ""
        elif compiles:
            detail, hint = f"compiles for it here ({what}); does not run: {reason}", ""
        else:
            detail, hint = f"neither runs here ({reason}) nor compiles ({obstacle})", "other targets work"
        found.append(Check(f"target: {target.name}", available or compiles, detail, hint))
    for where, why in broken_targets().items():
        found.append(Check(f"target plug-in: {where}", False, why, "ask whoever made that package"))
    return found


def _calibrations(cache_dir: Path) -> list[Check]:
    from harness.calibrate import stored_ceilings

    found = []
    for device in (None, *cuda_names()):
        ceilings = stored_ceilings(cache_dir, device)
        name = f"measured ceilings: {device or 'cpu'}"
        if ceilings is None:
            hint = "run `kernelevolve doctor --calibrate`"
            found.append(Check(name, False, "not measured yet", hint))
            continue
        rates = [f"{ceilings['bandwidth_gb_s']:.0f} GB/s copy"]
        rates += [
            f"{rate:.0f} GFLOP/s {key.removesuffix('_gflop_s')}"
            for key, rate in ceilings.items()
            if key.endswith("_gflop_s")
        ]
        found.append(Check(name, True, ", ".join(rates)))
    return found
