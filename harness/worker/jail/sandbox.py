"""The jail of a candidate: what the kernel offers, through ctypes alone, reported feature by feature.

A `Report` maps a feature to "" where it is active, or to why it is not. Nothing here raises because a feature
is missing: the judge decides what a weaker jail means.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
from pathlib import Path

from harness.worker.jail import landlock, places, seccomp
from harness.worker.packages import package_folders

Report = dict[str, str]

FEATURES = {
    "pid-namespace": "own process tree, killed as a whole",
    "network-namespace": "no network",
    "ipc-namespace": "no shared IPC objects",
    "private-proc": "sees only its own processes",
    "private-tmp": "a /tmp of its own",
    "landlock": "writes only to its scratch directory and such a /tmp, cannot read home",
    "seccomp": "no calls to other processes, other namespaces, services or rare parts of the kernel",
    "no-new-privileges": "set-uid programs gain nothing",
    "capabilities-dropped": "root without root's powers",
    "limits": "memory, file size, core and (not for root) process limits",
}

_CLONE = {"pid-namespace": 0x20000000, "network-namespace": 0x40000000, "ipc-namespace": 0x08000000}
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 24, 38, 36
_LAST_CAPABILITY = 63
SHARED_MEMORY = Path("/dev/shm")  # semaphores of multiprocessing are files there
_OURS = b"kernelevolve"
FILE_SIZE_LIMIT = 2 << 30
TASK_LIMIT = 1024  # threads and processes of a candidate

_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """SIGKILL for this process as soon as the thread that forked it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Descendants whose parent died become children of this process, so that it can find and kill them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespaces(report: Report) -> None:
    """New PID (for later children), network and IPC namespaces; through a user namespace where one may not
    have them otherwise.
    """
    uid, gid = os.getuid(), os.getgid()
    for feature, flag in _CLONE.items():
        report[feature] = _unshare(flag)
    if any(report[feature] == "" for feature in _CLONE):
        return
    if _unshare(_CLONE_NEWUSER) == "":
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            try:
                Path(f"/proc/self/{name}").write_text(text)
            except OSError as error:
                report["user-namespace"] = f"{name}: {error.strerror}"
    for feature, flag in _CLONE.items():
        report[feature] = _unshare(flag)


def private_mounts(report: Report) -> None:
    """Mounts /proc and /dev/shm anew; to be called by the first process of the new PID namespace. What is
    mounted later on is seen by nobody else.
    """
    problem = _unshare(_CLONE_NEWNS) or _mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE)
    report["private-tmp"] = problem
    report["private-proc"] = problem or _mount(b"proc", b"/proc", b"proc")
    if not problem and SHARED_MEMORY.is_dir():
        _mount(_OURS, bytes(SHARED_MEMORY), b"tmpfs", options=b"size=1g,mode=1777")


def _mount(source: bytes, target: bytes, kind: bytes | None, flags: int = 0, options: bytes = b"") -> str:
    failed = _libc.mount(source, target, kind, ctypes.c_ulong(flags), options or None)
    return os.strerror(ctypes.get_errno()) if failed else ""


def _shared_memory_is_private() -> bool:
    """Where it is not, Landlock keeps a candidate from writing there."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, mounted = line.partition(" - ")
        if place.split()[4] == str(SHARED_MEMORY) and mounted.split()[1] == _OURS.decode():
            return True
    return False


def user_tasks() -> int:
    """How many threads this user has on the machine, as far as /proc shows them."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == os.getuid():
                    count += sum(1 for _ in (entry / "task").iterdir())
            except OSError:
                continue
    return count


def limit_resources(report: Report, memory: int | None, tasks: int | None, cpu_s: int | None = None) -> None:
    """Limits growth of the address space to `memory` bytes, CPU time to `cpu_s` seconds (both per process),
    files to 2 GiB, and forbids core dumps.

    `tasks` is how many threads the user may have in all (None: as before). The kernel does not hold root to
    that: `watch.Watch` does.
    """
    try:
        if memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            ceiling = pages * resource.getpagesize() + memory
            resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT, FILE_SIZE_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        if tasks is not None:
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            tasks = tasks if hard == resource.RLIM_INFINITY else min(tasks, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
        report["limits"] = ""
    except (OSError, ValueError) as error:
        report["limits"] = str(error)


def drop_privileges(report: Report) -> None:
    """Gives up every capability and the possibility to gain one."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    failed = _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    report["no-new-privileges"] = os.strerror(ctypes.get_errno()) if failed else ""
    header = struct.pack("Ii", 0x20080522, 0)
    failed = _libc.capset(header, bytes(24))
    report["capabilities-dropped"] = os.strerror(ctypes.get_errno()) if failed else ""


def private_temporary(report: Report, scratch: Path, readable: list[str]) -> None:
    """Gives the process a /tmp of its own, a folder of `scratch`, if `private_mounts` could do its part."""
    if report["private-tmp"] == "":
        report["private-tmp"] = places.mount_temporary(scratch, [*readable, *_library_folders()])


def restrict_files(report: Report, scratch: Path, readable: list[str], device: str = "cpu") -> None:
    """Landlock: `scratch` and what is private are the only writable places; system folders and `readable` may
    be read and executed, the nodes of the kind of `device` used.
    """
    writable = [scratch, SHARED_MEMORY] if _shared_memory_is_private() else [scratch]
    if report.get("private-tmp") == "":
        writable.append(places.TEMPORARY)
    report["landlock"] = landlock.restrict(writable, [*readable, *_library_folders()], device)


def filter_calls(report: Report) -> None:
    """Refuses system calls; to be called last, when namespaces, Landlock and no_new_privs are settled."""
    report["seccomp"] = seccomp.install(
        own_pids=report["pid-namespace"] == "",
        own_network=report["network-namespace"] == "",
        signals_scoped=report["landlock"] == "" and landlock.scopes_signals(),
    )


def _library_folders() -> list[str]:
    """Where the dynamic linker and compilers were told to look."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    folders += [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "ROCM_HOME")]
    return [folder for folder in folders if folder.startswith("/") and folder != "/"]


def _unshare(flag: int) -> str:
    return os.strerror(ctypes.get_errno()) if _libc.unshare(flag) else ""


def readable_paths() -> list[str]:
    """What a candidate may read besides system folders: the interpreter, installed packages (wherever torch,
    Triton and the CuTe DSL are), what PYTHONPATH names, and this package.

    To be called in the worker's own folder: nothing that holds it is among them.
    """
    paths = {sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[2])}
    paths.update(
        p for p in sys.path if Path(p).name in ("site-packages", "dist-packages") or p.endswith(".zip")
    )
    paths |= package_folders()
    here = f"{Path.cwd()}/"
    paths |= {
        p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not here.startswith(f"{p}/")
    }
    return sorted(p for p in paths if p not in ("", "/") and p != str(Path.home()))


# What reaches a worker process and its candidates: how to find compilers, libraries and devices, and nothing
# that may be secret.
KEPT_VARIABLES = (
    "PATH",
    "LANG",
    "LC_ALL",
    "CC",
    "CXX",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ROCM_HOME",
    "ROCM_PATH",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "TRITON_PTXAS_PATH",
)


def environment(scratch: Path, threads: int) -> dict[str, str]:
    """A candidate's environment: no secrets, every cache and temporary file in `scratch`."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    home = str(scratch)
    return {
        **kept,
        "HOME": home,
        "TMPDIR": home,
        "USER": "candidate",
        "LOGNAME": "candidate",
        "XDG_CACHE_HOME": home,
        "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",  # else Inductor compiles test programs for seconds, every time
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        "CUDA_CACHE_PATH": str(scratch / "cuda"),
        "CUTE_DSL_CACHE_DIR": str(scratch / "cute"),
        "KERNELEVOLVE_NATIVE_CACHE": str(scratch / "native"),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "MAX_JOBS": str(threads),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def probe() -> Report:
    """Which features this machine grants, found out by a child process that jails itself and exits."""
    report: Report = {}
    read_end, write_end = os.pipe()
    scratch = Path(tempfile.mkdtemp())
    pid = os.fork()
    if pid == 0:
        enter_namespaces(report)
        first = os.fork()
        if first == 0:
            private_mounts(report)
            private_temporary(report, scratch, [])
            limit_resources(report, 1 << 30, None, 60)
            restrict_files(report, scratch, [])
            drop_privileges(report)
            filter_calls(report)
            os.write(write_end, json.dumps(report).encode())
            os._exit(0)
        os.waitpid(first, 0)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    return dict(json.loads(text)) if text else dict.fromkeys(FEATURES, "the probe died")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
