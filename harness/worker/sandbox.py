"""The jail of a candidate: what the kernel offers, through ctypes alone, reported feature by feature.

A `Report` maps a feature to "" where it is active, or to why it is not. Nothing here raises because a feature
is missing: the judge decides what a weaker jail means.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
import tempfile
from pathlib import Path

Report = dict[str, str]

FEATURES = {
    "pid-namespace": "own process tree, killed as a whole",
    "network-namespace": "no network",
    "ipc-namespace": "no shared IPC objects",
    "private-proc": "sees only its own processes",
    "landlock": "writes only to its scratch directory, cannot read home",
    "no-new-privileges": "set-uid programs gain nothing",
    "capabilities-dropped": "root without root's powers",
    "limits": "memory, file size, core and (not for root) process limits",
}

_CLONE = {"pid-namespace": 0x20000000, "network-namespace": 0x40000000, "ipc-namespace": 0x08000000}
_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 24, 38, 36
_LAST_CAPABILITY = 63
FILE_SIZE_LIMIT = 2 << 30
TASK_LIMIT = 1024  # threads and processes of a candidate

_libc = ctypes.CDLL(None, use_errno=True)

# One number for all architectures that use the generic table (x86-64, arm64, riscv64 …).
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_ACCESS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many access rights each Landlock ABI knows; later ones: 16
_READABLE = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/proc", "/sys")
_READABLE_FILES = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


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


def private_proc(report: Report) -> None:
    """Mounts a /proc of its own; to be called by the first process of the new PID namespace."""
    problem = _unshare(_CLONE_NEWNS)
    if not problem and _libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None):
        problem = os.strerror(ctypes.get_errno())
    if not problem and _libc.mount(b"proc", b"/proc", b"proc", 0, None):
        problem = os.strerror(ctypes.get_errno())
    report["private-proc"] = problem


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


def limit_resources(report: Report, memory: int, tasks: int | None) -> None:
    """Limits growth of the address space to `memory` bytes, files to 2 GiB, and forbids core dumps.

    `tasks` is how many threads the user may have in all (None: as before). The kernel does not hold root to
    that: there, only a pids limit of the container or of the control group stops a fork bomb.
    """
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        ceiling = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (ceiling, ceiling))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE_LIMIT, FILE_SIZE_LIMIT))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
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


def restrict_files(report: Report, scratch: Path, readable: list[str]) -> None:
    """Landlock: `scratch` is the only writable place; system folders and `readable` may be read and
    executed.
    """
    report["landlock"] = _landlock(scratch, readable)


def _landlock(scratch: Path, readable: list[str]) -> str:
    if platform.machine() not in ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x"):
        return f"no system call numbers for {platform.machine()}"
    abi = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return f"the kernel does not offer it ({os.strerror(ctypes.get_errno())})"
    every = (1 << _ACCESS_BITS.get(abi, 16)) - 1
    network = 0b11 if abi >= 4 else 0
    scoped = 0b11 if abi >= 6 else 0  # abstract sockets and signals stay inside
    attributes = struct.pack("QQQ", every, network, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return os.strerror(ctypes.get_errno())
    read = _READ_FILE | _READ_DIR | _EXECUTE
    device = (_READ_FILE | _WRITE_FILE | _TRUNCATE) & every
    grants = [(path, read) for path in (*_READABLE, *_READABLE_FILES, *readable)]
    grants += [(path, device) for path in _DEVICES]
    grants.append((str(scratch), every))
    try:
        for path, access in grants:
            problem = _allow(ruleset, path, access)
            if problem and path == str(scratch):
                return problem
        if _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0):
            return os.strerror(ctypes.get_errno())
    finally:
        os.close(ruleset)
    return ""


def _allow(ruleset: int, path: str, access: int) -> str:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or str(error)
    try:
        if not Path(path).is_dir():
            access &= _READ_FILE | _WRITE_FILE | _EXECUTE | _TRUNCATE
        rule = struct.pack("=Qi", access, fd)
        failed = _libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, 0)
        return os.strerror(ctypes.get_errno()) if failed else ""
    finally:
        os.close(fd)


def _unshare(flag: int) -> str:
    return os.strerror(ctypes.get_errno()) if _libc.unshare(flag) else ""


def readable_paths() -> list[str]:
    """What a candidate may read besides system folders: the interpreter, installed packages and this
    package.
    """
    paths = {sys.prefix, sys.base_prefix, str(Path(__file__).resolve().parents[1])}
    paths.update(
        p for p in sys.path if Path(p).name in ("site-packages", "dist-packages") or p.endswith(".zip")
    )
    return sorted(p for p in paths if p not in ("", "/") and p != str(Path.home()))


def environment(
    scratch: Path, threads: int, keep: tuple[str, ...] = ("PATH", "LANG", "LC_ALL", "CXX")
) -> dict[str, str]:
    """A candidate's environment: no secrets, every cache and temporary file in `scratch`."""
    kept = {name: os.environ[name] for name in keep if name in os.environ}
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
    pid = os.fork()
    if pid == 0:
        enter_namespaces(report)
        first = os.fork()
        if first == 0:
            private_proc(report)
            limit_resources(report, 1 << 30, None)
            restrict_files(report, Path(tempfile.gettempdir()), [])
            drop_privileges(report)
            os.write(write_end, json.dumps(report).encode())
            os._exit(0)
        os.waitpid(first, 0)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return dict(json.loads(text)) if text else dict.fromkeys(FEATURES, "the probe died")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe()))
