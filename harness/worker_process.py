"""A zygote as the executor sees it: started ahead, asked, restarted when it died, stopped with its folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from harness.errors import ExecutorError
from harness.worker.jail.sandbox import KEPT_VARIABLES
from harness.worker.text import one_line
from harness.worker.wire import LARGE_FRAME, Channel, WireError, channel_pair

START_LIMIT_S = 120.0
DEFECT_LIMIT = 400
# How long an OpenMP thread busy-waits at a barrier before it sleeps. The default (milliseconds) makes two
# threads that share a CPU wait for the scheduler's tick, ten times the run time of a small kernel, on one
# side or the other.
SPIN_COUNT = "1000"
# Nothing else of the user's environment reaches a worker: a candidate could read it from /proc/self/environ.
_KEPT_VARIABLES = (*KEPT_VARIABLES, "HOME")


def _search_path() -> list[str]:
    """This package first, then what the user added: in some containers torch is found no other way."""
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(__file__).resolve().parents[1]), *(str(Path(p).absolute()) for p in added if p)]


class WorkerProcess:
    """Runs `harness.worker.zygote`, one request at a time.

    Triton reads once, when it is imported, whether it interprets or compiles: processes for the CPU
    (`interpret`) and for devices are therefore different ones. `visible` is the one device that it sees, as
    CUDA_VISIBLE_DEVICES names it; `preload` are modules that every request would load otherwise.
    """

    def __init__(self, *, interpret: bool, visible: str | None = None, preload: tuple[str, ...] = ()) -> None:
        self.interpret, self.visible, self.preload = interpret, visible, preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: Channel | None = None
        self._request: Channel | None = None
        self._awaiting_ready = False
        self._stopped = False
        self._scratch: Path | None = None

    def ask(self, kind: str, device: str, message: dict[str, Any], timeout_s: float | None) -> dict[str, Any]:
        """The answer of a judge of its own, which gets a folder for the time. Raises ExecutorError."""
        with self._lock:
            control, scratch = self._running()
            folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=scratch))
            self._request, theirs = channel_pair()
            self._request.limit = LARGE_FRAME
            try:
                if self._stopped:  # looked at after `_request` is there for `interrupt`
                    raise ExecutorError("the executor was closed")
                control.send({"kind": kind, "device": device}, (theirs.sock.fileno(),))
                theirs.close()
                self._request.send({"scratch": str(folder), **message})
                answer = self._request.receive(timeout_s)
            except WireError as error:
                reason = one_line(str(error)) or "no answer"
                raise ExecutorError(f"the judge died: {reason}", "please report this") from error
            finally:
                self._request.close()
                shutil.rmtree(folder, ignore_errors=True)
        if "defect" in answer:
            defect = one_line(str(answer["defect"]))[:DEFECT_LIMIT]
            raise ExecutorError(f"the judge failed: {defect}", "please report this", str(answer["log"]))
        return answer

    def interrupt(self) -> None:
        """Ends what runs now, in whichever thread it was asked for; nothing more can be asked."""
        self._stopped = True
        for channel in (self._request, self._control):
            if channel is not None:
                with contextlib.suppress(OSError):  # it has just ended
                    channel.sock.shutdown(socket.SHUT_RDWR)

    def start(self) -> None:
        """Returns at once; the process loads torch meanwhile. Raises ExecutorError."""
        try:
            self._scratch = Path(tempfile.mkdtemp(prefix="kernelevolve-"))
        except OSError as error:
            raise ExecutorError(f"no place to work: {error}", "free disk space or set TMPDIR") from error
        ours, theirs = channel_pair()
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        fd = theirs.sock.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "harness.worker.zygote", str(fd), *self.preload],
            env={
                **kept,
                **({"TRITON_INTERPRET": "1"} if self.interpret else {}),
                **({"CUDA_VISIBLE_DEVICES": self.visible} if self.visible is not None else {}),
                "PYTHONPATH": os.pathsep.join(_search_path()),
                "OPENBLAS_NUM_THREADS": "1",
                "GOMP_SPINCOUNT": SPIN_COUNT,
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=self._scratch,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(fd,),
            start_new_session=True,  # Ctrl-C reaches the executor alone, which then closes the channels
        )
        theirs.close()
        self._control, self._awaiting_ready = ours, True

    def _running(self) -> tuple[Channel, Path]:
        """The zygote's channel and a folder for requests, restarted if it died and waited for if it is still
        loading torch.
        """
        if self._process is None or self._process.poll() is not None:
            self._end()
            self.start()
        assert self._control is not None
        assert self._scratch is not None
        if self._awaiting_ready:
            try:
                self._control.receive(START_LIMIT_S)
            except WireError as error:
                self._end()
                raise ExecutorError(
                    "the worker process did not start", "check `kernelevolve doctor`"
                ) from error
            self._awaiting_ready = False
        return self._control, self._scratch

    def stop(self) -> None:
        """Ends the process, whatever it does, and removes its scratch folder."""
        self.interrupt()
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
