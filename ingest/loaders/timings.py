"""Tables of kernels' times become kernel records: one section per kernel, a sentence per measurement."""

from __future__ import annotations

from ingest.document import FileContent, LoadedDocument, LoadedSection, Loader
from ingest.measurements import SUFFIXES, Measurement, parse


class TimingsLoader(Loader):
    """JSON, JSON lines, CSV and TSV whose columns name kernels and times; see `ingest.measurements`."""

    name = "timings"
    version = 1
    priority = 60

    def accepts(self, file: FileContent) -> bool:
        return file.suffix in SUFFIXES and bool(parse(file.text, file.suffix))

    def load(self, file: FileContent) -> LoadedDocument:
        kernels: dict[str, list[Measurement]] = {}
        for measurement in parse(file.text, file.suffix):
            kernels.setdefault(measurement.kernel, []).append(measurement)
        last = len(file.text.split("\n"))
        sections = []
        for name, found in kernels.items():
            places = [(m.line, m.line) if file.suffix != ".json" else (1, last) for m in found]
            sections.append(
                LoadedSection(
                    name,
                    min(a for a, _ in places),
                    max(b for _, b in places),
                    text="\n".join(m.sentence() for m in found),
                    origins=tuple(places),
                )
            )
        targets = sorted({m.target for found in kernels.values() for m in found if m.target})
        return LoadedDocument(
            title=f"Measurements {file.path.stem}",
            sections=sections,
            kind="kernel",
            meta={"kernels": sorted(kernels), "targets": targets},
            notes=list(file.notes),
        )
