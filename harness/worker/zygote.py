"""The zygote: a process that has torch loaded and forks a judge for each request.

It stays single-threaded and never runs a tensor operator: after a multi-threaded one, forked children hang.
Started by the executor as `python -m harness.worker.zygote FD [MODULE …]`, FD being one end of a stream
socket.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.worker import environment
from harness.worker.jail import sandbox
from harness.worker.wire import LARGE_FRAME, Channel, Closed, WireError

LOG_TAIL = 6000  # of what a failure of the judge itself leaves


def main(fd: int, preload: Sequence[str] = ()) -> None:
    """Serves until the executor goes away. Each message comes with one descriptor: the request's own
    channel.
    """
    import torch  # noqa: F401  (what makes a fork cheap)

    with contextlib.suppress(ImportError):  # a vendor's container may have none
        import triton.language  # noqa: F401

    for name in preload:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)

    import harness.worker.judge
    import harness.worker.reference  # noqa: F401

    # No death signal here: it would fire when the thread ends that started this process. The end of `control`
    # says that the executor is gone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    environment.facts()
    control = Channel(socket.socket(fileno=fd))
    try:
        control.send({"ready": True})
    except WireError:  # the executor was closed while torch was being loaded
        return
    while True:
        try:
            message, fds = control.receive_with_fds(1)
        except (WireError, OSError):
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _run_judge(str(message["kind"]), str(message["device"]), fds[0])
        os.close(fds[0])
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _run_judge(kind: str, device: str, fd: int) -> None:
    code = 70
    try:
        sandbox.die_with_parent()
        sandbox.adopt_orphans()
        os.setsid()
        channel = Channel(socket.socket(fileno=fd), LARGE_FRAME)
        _answer(kind, device, channel)
        code = 0
    except BaseException:  # the executor is gone, after Ctrl-C for example: nobody waits for the answer
        pass
    finally:
        os._exit(code)


def _answer(kind: str, device: str, channel: Channel) -> None:
    from harness.worker.jail.processes import kill_descendants

    try:
        _JOBS[kind](channel, device)
    except Closed:
        raise
    except Exception as error:
        import traceback

        kill_descendants()
        log = "".join(traceback.format_exception(error))[-LOG_TAIL:]
        channel.send({"defect": f"{type(error).__name__}: {error}", "log": log})


def _evaluate(channel: Channel, device: str) -> None:
    from harness.worker.candidate import CandidateServer
    from harness.worker.jail.processes import fork_jailed, kill_descendants
    from harness.worker.judge import judge
    from harness.worker.model import EvaluationRequest
    from harness.worker.profiling.figures import artifacts
    from harness.worker.trial import Trial

    # Both children first: they inherit neither the request nor any thread.
    reference = _fork_reference(device)
    candidate = fork_jailed(lambda c, report: CandidateServer(c, report, device).serve())
    children = [reference, candidate]
    for child in children:
        child.log.start()
    message = channel.receive()
    _watch(channel)

    import random

    import torch

    from harness.worker.child import keep_freed_memory
    from harness.worker.side import Side

    scratch = Path(message["scratch"])
    request = EvaluationRequest(**message["request"])
    rng = random.SystemRandom()
    sides = Side(reference, rng, device), Side(candidate, rng, device)
    trial = Trial(request, *sides, _folder(scratch / "candidate"), device)
    trial.target = message["target"]
    torch.set_num_threads(trial.threads)
    keep_freed_memory()
    _enter(trial.reference, message)
    try:
        evaluation = judge(trial, require_sandbox=message["require_sandbox"])
    finally:
        kill_descendants()
    evaluation.emitted = artifacts(trial.scratch)
    channel.send({"evaluation": evaluation.to_json()})


def _compile(channel: Channel, _: str) -> None:
    from harness.worker.crosscompile.child import CompileServer, InterfaceServer
    from harness.worker.crosscompile.judge import compile_candidate
    from harness.worker.jail.processes import fork_child, fork_jailed, kill_descendants
    from harness.worker.model import EvaluationRequest
    from harness.worker.profiling.figures import artifacts
    from harness.worker.trial import Trial

    reference = fork_child(lambda c: InterfaceServer(c, Path()).serve())
    reference.channel.limit = LARGE_FRAME
    candidate = fork_jailed(lambda c, report: CompileServer(c, report).serve())
    for child in (reference, candidate):
        child.log.start()
    message = channel.receive()
    _watch(channel)

    import random

    from harness.worker.side import Side

    rng = random.SystemRandom()
    sides = Side(reference, rng), Side(candidate, rng)
    scratch = _folder(Path(message["scratch"]) / "candidate")
    trial = Trial(EvaluationRequest(**message["request"]), *sides, scratch)
    trial.target = message["target"]
    trial.device = "cuda"  # what the candidate is for; nothing here is on a device
    _enter(trial.reference, message)
    try:
        evaluation = compile_candidate(trial, require_sandbox=message["require_sandbox"])
    finally:
        kill_descendants()
    evaluation.emitted = artifacts(scratch)
    channel.send({"evaluation": evaluation.to_json()})


def _look(op: str) -> Callable[[Channel, str], None]:
    """A job that asks the reference child one question about a problem."""

    def job(channel: Channel, device: str) -> None:
        import random

        from harness.worker.jail.processes import kill_descendants
        from harness.worker.side import ChildFailure, Side

        child = _fork_reference(device)
        child.log.start()
        message = channel.receive()
        _watch(channel)
        side = Side(child, random.SystemRandom())
        _enter(side, message)
        question = {
            "op": op,
            "source": message["problem"],
            "name": message["name"],
            "threads": message["threads"],
        }
        try:
            answer = side.ask(question, message["limit_s"], what=message["what"])
        except ChildFailure as failure:
            answer = {"failure": str(failure).removeprefix("InvalidProblem: "), "log": failure.log}
        finally:
            kill_descendants()
        channel.send(answer)

    return job


def _fork_reference(device: str) -> Any:
    from harness.worker.jail.processes import fork_child
    from harness.worker.reference import ReferenceServer

    child = fork_child(lambda c: ReferenceServer(c, Path(), device).serve())
    child.channel.limit = LARGE_FRAME
    return child


def _enter(reference: Any, message: dict[str, Any]) -> None:
    """Gives the reference child its own folder and a persistent cache for what torch.compile builds."""
    folder = _folder(Path(message["scratch"]) / "reference")
    cache = _folder(Path(message["cache"]) / "inductor")
    question = {"op": "enter", "folder": str(folder), "cache": str(cache), "memory": message["memory"]}
    reference.ask(question, 30.0)


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _watch(channel: Channel) -> None:
    """Ends everything when the executor closes its end, as it does on Ctrl-C."""
    from harness.worker.jail.processes import kill_descendants

    def wait() -> None:
        with contextlib.suppress(OSError):
            channel.sock.recv(1, socket.MSG_PEEK)
        kill_descendants()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


_JOBS: dict[str, Callable[[Channel, str], None]] = {
    "evaluate": _evaluate,
    "compile": _compile,
    "describe": _look("describe"),
    "compiler_source": _look("compiler_source"),
    "check": _look("check"),
}

if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
