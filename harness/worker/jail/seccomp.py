"""A filter on system calls, through ctypes alone: what neither a kernel nor a compiler needs is refused.

Sources: Linux kernel documentation, "Seccomp BPF"; numbers from asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Each call with its numbers on x86-64 and on arm64.
Calls = dict[str, tuple[int, int]]
_REFUSED: Calls = {
    # other processes' insides
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    # other views of the file system
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    # other namespaces, where one has powers that the jail took away
    "unshare": (272, 97),
    "setns": (308, 268),
    # large parts of the kernel that only services use
    "bpf": (321, 280),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine itself
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}
# Calls that name another process by its number, and in which argument. Without a PID namespace each process
# may only name itself.
_SIGNALS: dict[str, tuple[int, int, int]] = {
    "kill": (62, 129, 0),
    "tkill": (200, 130, 0),
    "tgkill": (234, 131, 0),
    "rt_sigqueueinfo": (129, 138, 0),
    "rt_tgsigqueueinfo": (297, 240, 0),
}
_SIGNALS_OTHERWISE: Calls = {"pidfd_send_signal": (424, 424)}
_INFLUENCE: dict[str, tuple[int, int, int]] = {
    "prlimit64": (302, 261, 0),
    "sched_setaffinity": (203, 122, 0),
    "sched_setscheduler": (144, 119, 0),
    "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
    "setpriority": (141, 140, 1),
    "ioprio_set": (251, 30, 1),
    "migrate_pages": (256, 238, 0),
    "move_pages": (279, 239, 0),
}
_INFLUENCE_OTHERWISE: Calls = {"process_madvise": (440, 440), "process_mrelease": (448, 448)}
_FCNTL, _IOCTL = (72, 25), (16, 29)
_SET_OWNERS = (
    8,
    15,
)  # F_SETOWN, F_SETOWN_EX: who gets a signal, any signal, when a file has something to read
_SET_OWNERS_BY_IOCTL = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP

_SOCKET, _CONNECT, _CLONE, _CLONE3, _SECCOMP = (41, 198), (42, 203), (56, 220), (435, 435), (317, 277)
_UNIX = 1
_CONNECTED_TYPES = (1, 5)  # SOCK_STREAM, SOCK_SEQPACKET: the others send to an address without connecting
_LOCAL_FAMILIES = (2, 10, 16)  # IPv4, IPv6, netlink: harmless in a network namespace of one's own
_CLONE_NEW_ANYTHING = 0x7E020000
_X32 = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _MASK, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data
_SET_MODE_FILTER = 1
# All threads; and speculation stays allowed: kernels before 5.16 would slow the candidate down otherwise.
_FLAGS = 0b101

Program = list[tuple[int, int, int, int]]
_libc = ctypes.CDLL(None, use_errno=True)


def install(*, own_pids: bool, own_network: bool, signals_scoped: bool) -> str:
    """Filters this process and its descendants from now on; needs no_new_privs. Returns an empty string, or
    why there is no filter.

    `own_pids`, `own_network`: it is in such a namespace. `signals_scoped`: Landlock holds its signals back.
    """
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        return f"no system call numbers for {machine}"
    program = build(machine, os.getpid(), own_pids, own_network, signals_scoped)
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
    number = _SECCOMP[list(_AUDIT_ARCH).index(machine)]
    failed = _libc.syscall(number, _SET_MODE_FILTER, _FLAGS, header)
    return os.strerror(ctypes.get_errno()) if failed else ""


def build(machine: str, pid: int, own_pids: bool, own_network: bool, signals_scoped: bool) -> Program:
    """The filter program, line by line: (operation, jump if true, jump if false, operand)."""
    column = list(_AUDIT_ARCH).index(machine)
    refuse = _refuse(errno.EPERM)
    program: Program = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),  # 32-bit programs have other numbers
        *refuse,
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), *refuse]
    calls = dict(_REFUSED)
    named: dict[str, tuple[int, int, int]] = {}
    if not own_pids:
        named |= _INFLUENCE
        calls |= _INFLUENCE_OTHERWISE
        if not signals_scoped:
            named |= _SIGNALS
            calls |= _SIGNALS_OTHERWISE
            program += _when(_FCNTL[column], _none_of(1, _SET_OWNERS))
            program += _when(_IOCTL[column], _none_of(1, _SET_OWNERS_BY_IOCTL))
    for numbers in calls.values():
        program += _when(numbers[column], refuse)
    for *both, argument in named.values():
        program += _when(both[column], _one_of(argument, (0, pid)))
    # Paths of sockets are invisible to a filter, and no other part of the jail guards them: a container
    # engine's, say. ENOENT is what is usual where no service runs; libraries take it as that.
    program += _when(_CONNECT[column], _refuse(errno.ENOENT))
    families = _LOCAL_FAMILIES if own_network else ()
    unix = [_argument(1), (_MASK, 0, 0, 0xF), *_members(_CONNECTED_TYPES), *refuse]
    program += _when(_SOCKET[column], [_argument(0), *_when(_UNIX, unix), *_members(families), *refuse])
    program += _when(_CLONE[column], [_argument(0), (_ANY_BIT, 0, 1, _CLONE_NEW_ANYTHING), *refuse, _allow()])
    program += _when(
        _CLONE3[column], _refuse(errno.ENOSYS)
    )  # its flags are out of sight: C libraries use clone
    return [*program, _allow()]


def _argument(index: int) -> tuple[int, int, int, int]:
    """Loads the lower half of an argument: the kernel takes these arguments as 32-bit numbers."""
    return (_LOAD, 0, 0, 16 + 8 * index)


def _allow() -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ALLOW)


def _refuse(code: int) -> Program:
    return [(_RETURN, 0, 0, _ERRNO | code)]


def _when(value: int, body: Program) -> Program:
    """Runs `body`, which returns, if what was loaded last equals `value`."""
    return [(_EQUAL, 0, len(body), value), *body]


def _members(values: tuple[int, ...]) -> Program:
    return [line for value in values for line in _when(value, [_allow()])]


def _one_of(index: int, values: tuple[int, ...]) -> Program:
    return [_argument(index), *_members(values), *_refuse(errno.EPERM)]


def _none_of(index: int, values: tuple[int, ...]) -> Program:
    refused = [line for value in values for line in _when(value, _refuse(errno.EPERM))]
    return [_argument(index), *refused, _allow()]
