"""Landlock through ctypes: which files a process and its descendants may use from now on.

Source: Linux kernel documentation, "Landlock: unprivileged access control".
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

# One number for all architectures that use the generic table (x86-64, arm64, riscv64 …).
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_MACHINES = ("x86_64", "aarch64", "riscv64", "ppc64le", "s390x")
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ACCESS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many access rights each ABI knows; later ones: 16

_READABLE = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/proc", "/sys")
_READABLE_FILES = (
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
)
_NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# torch calls AMD's GPUs cuda too. On a machine without the device there is nothing to find.
_DEVICE_NODES = {"cuda": ("nvidia*", "kfd", "dri")}

_libc = ctypes.CDLL(None, use_errno=True)


def restrict(writable: list[Path], readable: list[str], device: str) -> str:
    """Makes `writable` folders the only such ones; system folders and `readable` may be read and executed,
    the device's nodes used. Returns an empty string, or why it is not active.
    """
    if platform.machine() not in _MACHINES:
        return f"no system call numbers for {platform.machine()}"
    abi = _abi()
    if abi < 1:
        return f"the kernel does not offer it ({os.strerror(ctypes.get_errno())})"
    every = (1 << _ACCESS_BITS.get(abi, 16)) - 1
    network = 0b11 if abi >= 4 else 0
    scoped = 0b11 if scopes_signals() else 0  # abstract sockets and signals stay inside
    attributes = struct.pack("QQQ", every, network, scoped)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return os.strerror(ctypes.get_errno())
    read = _READ_FILE | _READ_DIR | _EXECUTE
    node = (_READ_FILE | _WRITE_FILE | _TRUNCATE) & every
    use = (_READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL) & every
    grants = [(path, read) for path in (*_READABLE, *_READABLE_FILES, *readable)]
    grants += [(path, node) for path in _NODES]
    patterns = _DEVICE_NODES.get(device, ())
    grants += [(str(path), use) for pattern in patterns for path in Path("/dev").glob(pattern)]
    grants += [(str(path), every) for path in writable]
    try:
        for path, access in grants:
            problem = _allow(ruleset, path, access)
            if problem and access == every:
                return problem
        if _libc.syscall(_RESTRICT, ruleset, 0):
            return os.strerror(ctypes.get_errno())
    finally:
        os.close(ruleset)
    return ""


def scopes_signals() -> bool:
    """Whether this kernel's Landlock keeps signals inside."""
    return _abi() >= 6


def _abi() -> int:
    return int(_libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def _allow(ruleset: int, path: str, access: int) -> str:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        return error.strerror or str(error)
    try:
        if not Path(path).is_dir():
            access &= _READ_FILE | _WRITE_FILE | _EXECUTE | _TRUNCATE | _IOCTL
        rule = struct.pack("=Qi", access, fd)
        failed = _libc.syscall(_ADD, ruleset, 1, rule, 0)
        return os.strerror(ctypes.get_errno()) if failed else ""
    finally:
        os.close(fd)
