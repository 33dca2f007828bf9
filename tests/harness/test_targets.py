"""Targets: tables, other packages' entry points, what the driver says."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.doctor import checks
from harness.target import get_target, list_targets
from harness.targets import cuda_driver

BUILT_IN = {
    "cpu",
    *(f"nvidia:sm_{n}" for n in (80, 90, 100)),
    *(f"amd:gfx{n}" for n in ("90a", "942", "950")),
}


def test_every_accelerator_has_the_same_limits() -> None:
    targets = {t.name: t for t in list_targets()}
    assert set(targets) >= BUILT_IN
    for target in (targets[name] for name in BUILT_IN - {"cpu"}):
        limits = target.limits
        assert 0 < limits["shared_memory_bytes_per_block"] <= limits["shared_memory_bytes_per_sm"]
        assert limits["threads_per_block"] == 1024
        assert target.triton is not None
        assert limits["warp_size"] == target.triton[2]
        assert target.facts["multiprocessors"]
        assert "triton" in target.languages


def _with_plugin(tmp_path: Path, repository: Path, module: str, script: str) -> str:
    """Runs a script beside an installed distribution that announces targets."""
    info = tmp_path / "abacus-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelevolve.targets]\nbeads = abacus_target:beads\n")
    (tmp_path / "abacus_target.py").write_text(module)
    paths = [str(repository), str(tmp_path)]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_package_adds_a_target(tmp_path: Path, repository: Path) -> None:
    module = (
        "from harness.target import Target\n"
        "def beads(): return [Target('abacus:b1', 'abacus', 'b1', ('beads',), {'rods': 13})]\n"
    )
    script = (
        "from harness.target import broken_targets, get_target, list_targets\n"
        "print(get_target('abacus:b1').limits['rods'], len(list_targets()), broken_targets())"
    )
    assert _with_plugin(tmp_path, repository, module, script) == f"13 {len(BUILT_IN) + 1} {{}}\n"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import no_such_module", "no_such_module"),
        ("from harness.target import Target\ndef beads(): return Target('cpu', 'x', 'y', ())", "is taken"),
    ],
)
def test_a_broken_package_is_named_and_harms_nothing(
    module: str, reason: str, tmp_path: Path, repository: Path
) -> None:
    script = (
        "from harness.target import broken_targets, get_target\n"
        "print(get_target('cpu').vendor, broken_targets()['abacus_target:beads'])"
    )
    out = _with_plugin(tmp_path, repository, module, script)
    assert out.startswith("generic")
    assert reason in out


class _Driver:
    """libcuda with one device of compute capability 9.0."""

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 1
        return 0

    def cuDeviceGetName(self, name: Any, size: int, ordinal: int) -> int:  # noqa: N802
        name.value = b"NVIDIA H200"
        return 0

    def cuDeviceGetAttribute(self, value: Any, which: int, ordinal: int) -> int:  # noqa: N802
        value._obj.value = {75: 9, 76: 0}[which]
        return 0


def test_the_device_must_have_the_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: _Driver())
    monkeypatch.setattr(cuda_driver, "torch_cuda", lambda: "13.0")
    cuda_driver.devices.cache_clear()
    try:
        assert get_target("nvidia:sm_90").available() == (True, "")
        here, reason = get_target("nvidia:sm_100").available()
        assert not here
        assert "10.0" in reason
        assert "NVIDIA H200 (9.0)" in reason
        monkeypatch.setattr(cuda_driver, "torch_cuda", lambda: None)
        assert "not built for CUDA" in get_target("nvidia:sm_90").available()[1]
    finally:
        cuda_driver.devices.cache_clear()


def test_torch_is_asked_for_its_build_without_importing_it(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "torch" / "version.py").write_text("cuda: Optional[str] = '13.0'\nhip = None\n")
    script = (
        f"import sys; sys.path[:0] = {[str(tmp_path), str(repository)]}\n"
        "from harness.targets.cuda_driver import torch_cuda; print(torch_cuda())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "13.0\n"


def test_doctor_says_what_each_target_can_do() -> None:
    found = {c.name: c for c in checks()}
    assert found["target: cpu"].detail.startswith("runs here")
    amd = found["target: amd:gfx942"]
    assert amd.ok
    assert "compiles for it here" in amd.detail
    assert "does not run" in amd.detail
