"""Reads torch's operator database and writes problems; run as `python -m harness.opinfo.generate`.

A question on standard input, an answer as the last line of standard output, both JSON.
"""

from __future__ import annotations

import difflib
import json
import random
import resource
import sys
from pathlib import Path
from typing import Any

import torch

from harness.errors import HarnessError, ProblemError
from harness.opinfo.calls import Call, Unfit, call_of, tensors_in
from harness.opinfo.sizes import scalings
from harness.opinfo.trial import accept
from harness.opinfo.writing import problem_text

DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64, torch.float64)
MANY = 6  # samples that are tried before an operator is given up
SEED = 0
MEMORY = 4 << 30  # bytes beyond what the process has at its start; a scaled operator may ask for terabytes


def database() -> list[Any]:
    """The entries. Raises ModuleNotFoundError for a package that torch's test support needs."""
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def find(name: str, variant: str | None) -> Any:
    """The entry of this name; `nn.functional.` and the like may be left out. Raises ProblemError."""
    entries = database()
    wanted = name if any(op.name == name for op in entries) else name.removeprefix("torch.")
    for prefix in ("", "nn.functional.", "linalg.", "special.", "fft."):
        found = {op.variant_test_name: op for op in entries if op.name == prefix + wanted}
        if not found:
            continue
        chosen = variant or ("" if "" in found or len(found) > 1 else next(iter(found)))
        if chosen in found:
            return found[chosen]
        said = f"has no variant {chosen}" if chosen else "has several variants"
        listed = ", ".join(f"aten:{prefix}{wanted}/{v}" for v in found if v)
        raise ProblemError(f"aten:{prefix}{wanted} {said}", f"write one of: {listed or 'none'}")
    close = difflib.get_close_matches(wanted, {op.name.rpartition(".")[2] for op in entries})
    hint = f"did you mean {', '.join(close)}?" if close else "names: kernelevolve problem list aten"
    raise ProblemError(f"OpInfo has no operator {name}", hint)


def source(name: str, variant: str | None, sample: int | None, elements: int) -> str:
    """The problem's text. Raises ProblemError, which says what cannot be expressed."""
    op = find(name, variant)
    where = f"aten:{op.name}" + (f"/{op.variant_test_name}" if op.variant_test_name else "")
    samples = _samples(op)
    if sample is not None and sample >= len(samples):
        raise ProblemError(f"{where} has {len(samples)} samples", f"write {where}:0 to :{len(samples) - 1}")
    chosen = [sample] if sample is not None else _largest_first(samples)[:MANY]
    reasons = [] if chosen else ["the database has no samples"]
    for index in chosen:
        try:
            return _fitting(call_of(op, samples[index]), f"{where}, sample {index}", elements)
        except (Unfit, HarnessError) as error:
            reasons.append(f"sample {index}: {error}")
    raise ProblemError(
        f"{where} cannot be written as a problem: {reasons[0]}", "try another sample or variant"
    )


def _samples(op: Any) -> list[Any]:
    import numpy as np

    dtypes = op.supported_dtypes("cpu")
    dtype = next((d for d in DTYPES if d in dtypes), None)
    if dtype is None:
        raise ProblemError(f"{op.name} takes none of the usual dtypes on the CPU", "choose another operator")
    torch.manual_seed(SEED)
    random.seed(SEED)
    np.random.seed(SEED)
    return list(op.sample_inputs("cpu", dtype, requires_grad=False))


def _largest_first(samples: list[Any]) -> list[int]:
    def elements(index: int) -> int:
        sample = samples[index]
        return sum(t.numel() for t in tensors_in((sample.input, sample.args, sample.kwargs)))

    return sorted(range(len(samples)), key=lambda i: -elements(i))


def _fitting(call: Call, where: str, elements: int) -> str:
    """The first text, from large sizes to the sample's own, that runs as the sample does. Raises Unfit."""
    tensors = call.tensors
    if not tensors:
        raise Unfit("it takes no tensor")
    reason = ""
    for what, shapes in scalings([tuple(t.shape) for t in tensors], elements):
        sizes = {id(tensor): shape for tensor, shape in zip(tensors, shapes, strict=True)}
        text = problem_text(call.text, call.args, call.kwargs, sizes, f"{where}; {what}")
        try:
            accept(text, elements, finite=call.finite)
        except Unfit as error:
            reason = str(error)
        else:
            return text
    raise Unfit(reason)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    question = json.load(sys.stdin)
    answer: dict[str, Any]
    try:
        entries = database()
        _limit_memory()
        if question:
            answer = {"source": source(**question)}
        else:
            answer = {"operators": [_listed(op) for op in entries]}
    except ModuleNotFoundError as error:
        answer = {"missing": error.name}
    except HarnessError as error:
        answer = {"error": str(error), "hint": error.hint}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


def _listed(op: Any) -> dict[str, Any]:
    dtypes = sorted(str(dtype).removeprefix("torch.") for dtype in op.supported_dtypes("cpu"))
    return {"name": op.name, "variant": op.variant_test_name, "dtypes": dtypes}


if __name__ == "__main__":
    main()
