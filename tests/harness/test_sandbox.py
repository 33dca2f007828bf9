"""The jail from inside: what a candidate tries and must not get, and what it must be able to do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Evaluation
from harness.worker.jail import seccomp
from harness.worker.jail.places import Places

# Enters the jail as a candidate does, runs the given statements in it and prints what they put into `found`.
SCRIPT = """
import json, os, shutil, sys, tempfile
from pathlib import Path
from harness.worker.jail import landlock
from harness.worker.jail import sandbox
from harness.worker.jail.processes import fork_jailed, kill_descendants
absent = json.loads(sys.argv[2])
unshare = sandbox._unshare
if "namespaces" in absent:
    sandbox._unshare = lambda flag: "not permitted here"
if "landlock" in absent:
    landlock.restrict = lambda *_: "not offered here"
PARENT = os.getpid()

def run(channel, report):
    scratch = Path(tempfile.mkdtemp(prefix=f"jail-{PARENT}-"))
    os.environ["TMPDIR"] = str(scratch)
    readable = [*sandbox.readable_paths(), *sys.argv[3:]]
    sandbox.private_temporary(report, scratch, readable)
    os.chdir(scratch)
    sandbox.restrict_files(report, scratch, readable)
    sandbox.drop_privileges(report)
    sandbox.limit_resources(report, 1 << 33, sandbox.user_tasks() + 1000)
    sandbox.filter_calls(report)
    found = {}
    try:
        exec(sys.argv[1], {"found": found, "PARENT": PARENT, "channel_fd": channel.sock.fileno()})
    except BaseException as error:
        found["error"] = repr(error)
    channel.send({"found": found, "report": report})
    channel.receive()

child = fork_jailed(run)
child.log.start()
try:
    print(json.dumps(child.channel.receive(60)))
finally:
    kill_descendants()
    for scratch in Path(tempfile.gettempdir()).glob(f"jail-{PARENT}-*"):
        shutil.rmtree(scratch)
"""
CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    result = libc.syscall(number, *[ctypes.c_long(a) for a in arguments])
    return errno.errorcode[ctypes.get_errno()] if result < 0 else "allowed"
"""


@pytest.fixture
def inside(repository: Path) -> Callable[..., dict[str, Any]]:
    def run(statements: str, *absent: str, readable: tuple[Path, ...] = ()) -> dict[str, Any]:
        command = [sys.executable, "-c", SCRIPT, CALLS + statements, json.dumps(absent), *map(str, readable)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, cwd=repository
        )
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["report"]["seccomp"] == ""
        return dict(answer["found"])

    return run


Inside = Callable[..., dict[str, Any]]


def test_refused_calls(inside: Inside) -> None:
    column = list(seccomp._AUDIT_ARCH).index(os.uname().machine)
    numbers = {name: both[column] for name, both in seccomp._REFUSED.items()}
    found = inside(f"for name, n in {numbers}.items(): found[name] = call(n, 0, 0, 0, 0, 0)")
    assert found == dict.fromkeys(numbers, "EPERM")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other machines have one set of calls")
def test_other_sets_of_calls_are_refused(inside: Inside) -> None:
    """The x32 calls, and those of 32-bit programs by `int 0x80` (getpid is 20 there)."""
    found = inside("""
import mmap
found["x32"] = call(0x40000000 + 39)
code = bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3])  # mov eax, 20; int 0x80; ret
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(code)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
found["i386"] = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
""")
    assert found == {"x32": "EPERM", "i386": -1}


@pytest.mark.parametrize("absent", [(), ("namespaces",), ("namespaces", "landlock")])
def test_nobody_outside_can_be_signalled(inside: Inside, absent: tuple[str, ...]) -> None:
    """Not by any of the calls that can; own processes can, unless only the filter is there."""
    found = inside(
        """
import fcntl, signal, subprocess
def attempt(name, what):
    try:
        what()
        found[name] = "allowed"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
attempt("kill", lambda: os.kill(PARENT, 9))
attempt("everybody", lambda: os.kill(-1, 0))
attempt("group", lambda: os.killpg(PARENT, 0))
attempt("limits", lambda: __import__("resource").prlimit(PARENT, 0, (0, 0)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, PARENT, 19))
attempt("affinity", lambda: os.sched_setaffinity(PARENT, {0}))
def owner():
    read, write = os.pipe()
    fcntl.fcntl(read, fcntl.F_SETOWN, PARENT)
    fcntl.fcntl(read, 10, 9)  # F_SETSIG
    fcntl.fcntl(read, fcntl.F_SETFL, os.O_ASYNC)
    os.write(write, b"x")
attempt("owner", owner)
attempt("self", lambda: os.kill(os.getpid(), 0))
def child():
    process = subprocess.Popen(["/bin/sleep", "9"])
    process.kill()
    process.wait()
attempt("child", child)
""",
        *absent,
    )
    assert "error" not in found
    for name in ("kill", "limits", "priority", "affinity"):
        assert found[name] in ("EPERM", "ESRCH"), name
    assert found["self"] == "allowed"
    if absent != ("namespaces", "landlock"):
        assert found["child"] == "allowed"
    else:
        assert {found[name] for name in ("kill", "everybody", "group", "owner")} == {"EPERM"}


@pytest.mark.parametrize("absent", [(), ("namespaces",)])
def test_no_way_to_a_service(inside: Inside, absent: tuple[str, ...], tmp_path: Path) -> None:
    datagram_path = str(tmp_path / "datagram")
    with (
        socket.socket(socket.AF_UNIX) as stream,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagram,
    ):
        stream.bind(str(tmp_path / "stream"))
        stream.listen()
        datagram.bind(datagram_path)
        datagram.setblocking(False)
        found = inside(
            f"""
import socket
def attempt(name, what):
    try:
        what()
        found[name] = "allowed"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
attempt("stream", lambda: socket.socket(socket.AF_UNIX).connect({str(tmp_path / "stream")!r}))
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    attempt(kind.name, lambda: socket.socket(socket.AF_UNIX, kind).sendto(b"x", {datagram_path!r}))
attempt("internet", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("crypto", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
pair = socket.socketpair()
attempt("pair", lambda: pair[0].send(b"x"))
""",
            *absent,
        )
        with pytest.raises(BlockingIOError):
            datagram.recv(1)
    assert found.pop("pair") == "allowed"
    assert found.pop("stream") == "ENOENT"
    assert found.pop("internet") in (("EPERM",) if absent else ("ENETUNREACH", "EPERM"))
    assert set(found.values()) == {"EPERM"}


def test_new_namespaces_are_refused(inside: Inside) -> None:
    found = inside("""
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
found["user"] = call(CLONE, 0x10000000 | 17, 0, 0, 0, 0)
found["clone3"] = call(435, 0, 0)
found["fork"] = os.waitpid(os.fork() or os._exit(3), 0)[1] >> 8
""")
    assert found == {"user": "EPERM", "clone3": "ENOSYS", "fork": 3}


def test_files_outside_are_out_of_reach(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    shared = Path("/dev/shm") / f"kernelevolve-test-{os.getpid()}"
    found = inside(f"""
def attempt(name, what):
    try:
        what()
        found[name] = "allowed"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
attempt("read", lambda: open({str(tmp_path / "secret")!r}))
attempt("write", lambda: open({str(tmp_path / "new")!r}, "w"))
attempt("link", lambda: os.link({str(tmp_path / "secret")!r}, "link"))
attempt("home", lambda: os.listdir(os.path.expanduser("~")))
attempt("truncate", lambda: os.truncate({str(tmp_path / "secret")!r}, 0))
attempt("var", lambda: open("/var/tmp/new", "w"))
attempt("scratch", lambda: open("new", "w"))
attempt("shared", lambda: open({str(shared)!r}, "w"))
""")
    assert found.pop("scratch") == found.pop("shared") == "allowed"
    assert set(found.values()) <= {"EACCES", "EXDEV", "ENOENT"}, found
    assert not shared.exists()


TEMPORARY = """
import subprocess, sys
name = f"/tmp/kernelevolve-test-{PARENT}"
def attempt(what, action):
    try:
        found[what] = action()
    except OSError as error:
        found[what] = errno.errorcode[error.errno]
def build():
    os.makedirs(name)
    with open(f"{name}/k.c", "w") as source:
        source.write("int seven(void) { return 7; }")
    subprocess.run(["gcc", "-shared", "-fPIC", f"{name}/k.c", "-o", f"{name}/k.so"], check=True)
    return ctypes.CDLL(f"{name}/k.so").seven()
attempt("built", build)
attempt("before", lambda: os.path.exists(sys.argv[3]))
attempt("interpreter", lambda: subprocess.run([sys.executable, "-c", "import torch"]).returncode)
def own():
    with open("here", "w") as file:
        file.write("x")
    return open(os.path.join(os.environ["TMPDIR"], "here")).read()
attempt("scratch", own)
"""


def test_tmp_is_its_own(inside: Inside, tmp_path: Path) -> None:
    """Libraries can be built and loaded there; nothing of it is seen outside, and nothing of the outside but
    what must be.
    """
    found = inside(TEMPORARY.replace("sys.argv[3]", repr(str(tmp_path))))
    assert found == {"built": 7, "before": False, "interpreter": 0, "scratch": "x"}
    assert not list(Path("/tmp").glob("kernelevolve-test-*"))


def test_what_is_installed_below_tmp_is_only_read(inside: Inside, tmp_path: Path) -> None:
    """The folder itself, and one that is a link."""
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/lib.py").write_text("x = 1")
    (tmp_path / "link").symlink_to("installed")
    found = inside(
        f"""
def attempt(name, what):
    try:
        found[name] = what()
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
for folder in ({str(tmp_path / "installed")!r}, {str(tmp_path / "link")!r}):
    attempt(f"read {{len(found)}}", lambda: open(folder + "/lib.py").read())
    attempt(f"write {{len(found)}}", lambda: open(folder + "/lib.py", "a"))
    attempt(f"make {{len(found)}}", lambda: os.mkdir(folder + "/new"))
    attempt(f"remove {{len(found)}}", lambda: os.unlink(folder + "/lib.py"))
    attempt(f"change {{len(found)}}", lambda: os.chmod(folder + "/lib.py", 0))
""",
        readable=(tmp_path / "installed", tmp_path / "link"),
    )
    assert list(found.values()) == ["x = 1", "EROFS", "EROFS", "EROFS", "EROFS"] * 2, found
    assert (tmp_path / "installed/lib.py").read_text() == "x = 1"


def test_without_namespaces_nothing_is_written_to_tmp(inside: Inside) -> None:
    found = inside(
        "try: os.makedirs('/tmp/kernelevolve-test')\nexcept OSError as e: found['e'] = str(e)", "namespaces"
    )
    assert "Permission denied" in found["e"]
    assert "tempfile.gettempdir()" in Places.advice(OSError(found["e"]))
    assert not Places.advice(OSError("No such file"))


def test_whose_file_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "site-packages"
    places = Places(tmp_path / "scratch", [str(installed)])
    for file in (tmp_path / "scratch/a.so", "/tmp/k.so", "/tmp/deep/k.so"):
        assert str(file) in places
    for file in (installed / "torch.so", "/usr/lib/libm.so.6", "/tmpfile", "/tmp/../usr/lib/libm.so.6"):
        assert str(file) not in places
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path / "scratch")
    assert "./k.so" in places


def test_what_a_candidate_sees(inside: Inside) -> None:
    """Its own processes, no descriptor but its own, no environment but its own."""
    found = inside("""
found["processes"] = sorted(int(p) for p in os.listdir("/proc") if p.isdigit())
found["self"] = os.getpid()
found["descriptors"] = sorted(set(map(int, os.listdir("/proc/self/fd"))) - {channel_fd})
found["environments"] = []
for pid in found["processes"]:
    try:
        found["environments"].append(open(f"/proc/{pid}/environ").read().count("HIDDEN="))
    except OSError:
        pass
""")
    assert found["processes"] == [1, found["self"]]
    assert found["descriptors"][:3] == [0, 1, 2]
    assert len(found["descriptors"]) == 4  # the fourth is the listing itself
    assert sum(found["environments"]) == 0


CANDIDATE = """
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        {init}
    def forward(self, x):
        return torch.relu(self.ln(x))
"""


def test_compilers_processes_and_threads_work(inside: Inside) -> None:
    found = inside("""
import multiprocessing, subprocess, threading
open("a.cpp", "w").write("int main() { return 7; }")
subprocess.run(["g++", "a.cpp", "-o", "a"], check=True)
found["compiled"] = subprocess.run(["./a"]).returncode
found["thread"] = []
thread = threading.Thread(target=found["thread"].append, args=[1])
thread.start()
thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool:
    found["pool"] = pool.map(abs, [-1, -2])
""")
    assert found == {"compiled": 7, "thread": [1], "pool": [1, 2]}


@pytest.mark.full
def test_load_inline_works(evaluate: Callable[..., Evaluation], norm_problem: str) -> None:
    candidate = (
        "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"
        "m = load_inline('m', 'torch::Tensor f(torch::Tensor x) { return x.relu(); }', functions=['f'])\n"
        + CANDIDATE.format(init="").replace("torch.relu", "m.f")
    )
    evaluation = evaluate(norm_problem, candidate)
    assert evaluation.status == "correct", evaluation.reason + evaluation.log
    assert not [f for f in evaluation.flags if f["rule"] == "sandbox"]


def test_the_filter_for_the_other_machine_is_complete() -> None:
    """Every jump lands inside, every path ends in a verdict."""
    for machine in seccomp._AUDIT_ARCH:
        for pids in (True, False):
            program = seccomp.build(machine, 7, pids, pids, pids)
            assert program[-1][0] == seccomp._RETURN
            for place, (code, true, false, _) in enumerate(program):
                if code in (seccomp._EQUAL, seccomp._AT_LEAST, seccomp._ANY_BIT):
                    assert place + 1 + max(true, false) < len(program)
                    assert max(true, false) < 256
