"""Profiler outputs become documents of kind `trace`: one section per kernel, rendered from its diagnosis."""

from __future__ import annotations

from typing import Any

from ingest.diagnose import diagnose_text, unsupported_format
from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.errors import Unsupported
from ingest.traces import ncu


class NsightComputeLoader(Loader):
    """Nsight Compute's CSV, raw and details pages."""

    name = "nsight-compute"
    version = 1
    priority = 80

    def accepts(self, file: FileContent) -> bool:
        # A manual that quotes the profiler's header is no trace.
        return file.suffix in (".csv", ".log", ".txt", "") and ncu.sniff(file.text)

    def load(self, file: FileContent) -> LoadedDocument:
        diagnosis = diagnose_text(file.text)
        kernels = diagnosis["kernels"]
        targets = sorted({kernel["target"] for kernel in kernels})
        return LoadedDocument(
            title=f"Nsight Compute trace {file.path.stem}",
            sections=[
                LoadedSection(k["name"], k["lines"][0], k["lines"][1], text=render(k)) for k in kernels
            ],
            kind="trace",
            scope=targets[0] if len(targets) == 1 else "nvidia",
            meta={"format": diagnosis["format"], "kernels": [kernel["name"] for kernel in kernels]},
            notes=[*file.notes, *diagnosis["errors"]],
            traces=[{"format": diagnosis["format"], **kernel} for kernel in kernels],
        )


class UnsupportedTraceLoader(Loader):
    """Says which profiler wrote a file that nothing here can parse, instead of storing it as text."""

    name = "unsupported-trace"
    version = 1
    priority = 70

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in (".json", ".csv", ".hatchet") and bool(unsupported_format(file.text))

    def load(self, file: FileContent) -> LoadedDocument:
        raise Unsupported(f"unsupported profiler format: {unsupported_format(file.text)}")


def render(kernel: dict[str, Any]) -> str:
    """A kernel's diagnosis as text that can be found and read."""
    duration = kernel["duration_us"]
    lines = [
        f"Kernel {kernel['name']} on {kernel['target']}, grid {kernel['grid']}, block {kernel['block']}",
        f"Duration: {duration:.2f} us" if duration is not None else "Duration: not recorded",
        f"Bottleneck: {kernel['bottleneck']}",
        "Evidence: " + "; ".join(kernel["evidence"]) if kernel["evidence"] else "Evidence: none recorded",
        "What to try: " + "; ".join(kernel["actions"]),
        "Metrics: " + ", ".join(f"{k}={v:g}" for k, v in kernel["metrics"].items()),
    ]
    if kernel["missing"]:
        lines.append("Not recorded: " + ", ".join(kernel["missing"]))
    return "\n\n".join(lines)
