"""The process that Nsight Compute watches: `python -m harness.worker.profiling.profiled FOLDER`.

It calls a candidate twice, the second time under the profiler.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from harness.worker.child import load_module, seeded
from harness.worker.jail import sandbox
from harness.worker.reference import draw_inputs, load_problem_module
from harness.worker.values import pack, unpack


def main(folder: Path) -> None:
    """Reads `job.json`, `problem.py` and `candidate.py` of the folder."""
    job = json.loads((folder / "job.json").read_text())
    device = job["device"]
    module = load_problem_module((folder / "problem.py").read_text(encoding="utf-8"), folder / "problem.py")
    structure, tensors = pack(list(draw_inputs(module, job["seed"], device)))
    arguments = unpack(structure, [t.to(device) for t in tensors])
    init = list(module.get_init_inputs())
    os.environ.update(sandbox.environment(folder, job["threads"]))
    report: sandbox.Report = {}
    sandbox.restrict_files(report, folder, sandbox.readable_paths(), device)
    source = (folder / "candidate.py").read_text(encoding="utf-8")
    candidate = load_module("candidate", source, folder / "candidate.py")
    model = seeded(lambda: candidate.ModelNew(*init), job["seed"])
    model = model.to(device) if isinstance(model, torch.nn.Module) else model
    with torch.no_grad():
        model(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        model(*arguments)
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
