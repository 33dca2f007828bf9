"""Ingest a folder of many short files, then again: as it is, with one file changed, with a tenth gone.

    python benchmarks/small_files.py --files 100000

Files are Markdown and plain text of 8 to 150 words. One line of JSON for each run: seconds of wall time and
of processors, files per second of each, and the process's largest memory so far in MB.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from ingest import ingest_paths
from kb import KnowledgeBase, Settings

TEXT = """
tile kernel warp block memory shared register thread grid launch stride bank conflict load store
vector matrix accumulate pipeline stage buffer prefetch cache line latency throughput occupancy
scalar reduce scan softmax norm attention fuse loop unroll predicate mask align pad copy async
barrier fence atomic queue stream event
"""
WORDS = TEXT.split()
FOLDER = 500  # files in each


def fill(root: Path, count: int) -> list[Path]:
    rng = random.Random(7)
    files = []
    for i in range(count):
        folder = root / f"{i // FOLDER:04}"
        folder.mkdir(parents=True, exist_ok=True)
        body = " ".join(rng.choices(WORDS, k=rng.choice([8, 12, 20, 40, 80, 150])))
        title = f"Note {i} on {rng.choice(WORDS)}"
        name, text = (
            (f"{i}.txt", f"{title}: {body}.\n") if i % 3 == 0 else (f"{i}.md", f"# {title}\n\n{body}.\n")
        )
        files.append(folder / name)
        files[-1].write_text(text)
    return files


def run(kb: KnowledgeBase, root: Path, what: str) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    report = ingest_paths(kb, [root])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    files = report.added + report.updated + report.unchanged + report.removed
    counts = {name: getattr(report, name) for name in ("added", "updated", "unchanged", "removed")}
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000
    figures = {"wall_s": wall, "cpu_s": cpu, "files_per_s": files / wall, "files_per_cpu_s": files / cpu}
    rounded = {name: round(value, 1) for name, value in figures.items()}
    sys.stdout.write(json.dumps({"run": what, **counts, **rounded, "peak_mb": peak_mb}) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "notes"
        files = fill(root, args.files)
        with KnowledgeBase.open(Settings(home=Path(scratch) / "home")) as kb:
            kb.embedder.embed(["warm", "up"])
            run(kb, root, "first")
            run(kb, root, "again")
            files[0].write_text(files[0].read_text() + "One more sentence.\n")
            run(kb, root, "one changed")
            for file in files[::10]:
                file.unlink()
            run(kb, root, "a tenth gone")


if __name__ == "__main__":
    main()
