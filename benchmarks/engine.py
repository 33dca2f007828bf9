"""What the search engine itself costs, beside openevolve on the same stub model and stub evaluator.

    python benchmarks/engine.py [--nodes 1000 20000] [--resume 10000] [--steps 200] [--out FILE]

Model and evaluator answer at once, and the knowledge base is empty, so that all of the time is the engine's:
policy, prompt, novelty, diagnosis and two durable transactions for each step. openevolve is the extra
`bench-engine`: `make bench-engine`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from agent import RunStore, Search, SearchSession, SearchSettings
from agent.generator import Draft, GenerationRequest
from agent.graph import SearchNode
from agent.judge import judged
from agent.place import Place
from agent.rows import to_row
from agent.store import node_id
from harness.problem import load_problem
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts, TensorSpec
from kb import KnowledgeBase, Settings
from kb.tables import Event, Node

HERE = Path(__file__).parent
PROBLEM = HERE.parent / "examples" / "problems" / "softmax_scale_mask.py"
PLACE = Place("cpu", {"languages": ["cpp"]}, {"bandwidth_gb_s": 10.0, "fp32_gflop_s": 100.0})
# About as long as a kernel that a model writes.
BODY = "\n".join(f"        y = y + {i} * x  # line {i} of the kernel" for i in range(120))
SOURCE = "class ModelNew:\n    def forward(self, x):\n        y = x\n{body}\n        return y * {x}\n"
EXPANSIONS = 40  # steps that are measured at each size


class Letters:
    """An embedding model that costs nothing; there is nothing to retrieve."""

    model_id, passage_tokens, window, cutting, sends_to, runtime = "letters", 220, 256, "words", "", "none"

    def count_tokens(self, texts: Any) -> list[int]:
        return [len(text.split()) for text in texts]

    def embed(self, texts: Any) -> Any:
        import numpy as np

        return np.ones((len(texts), 8), dtype=np.float32) / np.sqrt(8)


def source(x: int) -> str:
    return SOURCE.format(body=BODY, x=x)


def score(text: str) -> float:
    """What the stub evaluator says of a program: a speedup that its last number decides."""
    found = re.search(r"return y \* (\d+)", text)
    return 0.5 + (int(found[1]) if found else 0) % 1009 / 400


class Model:
    """The stub model: another number in the same kernel."""

    name, hosted = "stub", False

    def generate(self, request: GenerationRequest) -> Draft:
        x = random.Random(request.seed).randrange(10**9)
        return Draft(source(x), f"multiply by {x}", tokens_in=4000, tokens_out=1500)


class Evaluator:
    """The stub evaluator, with a verdict as long as a real one."""

    def require(self, target: str) -> None:
        pass

    def describe(self, _source: str, name: str = "problem") -> ProblemFacts:
        x = TensorSpec("x", (1024, 1024), "float32", (1024, 1))
        return ProblemFacts(name, [x], [], [], [x], [], [], eager_ms=2.0, bytes_min=8 << 20)

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return evaluation(score(request.candidate))

    def compiler_source(self, problem_source: str) -> str:
        raise NotImplementedError


def evaluation(speedup: float) -> Evaluation:
    found = Evaluation("correct", log="x" * 2000, timed=True)
    found.speedup, found.speedup_ci = speedup, (speedup * 0.95, speedup * 1.05)
    found.baselines = {"eager_ms": 2.0, "compile_ms": None}
    found.candidate_ms = {"median": 2.0 / speedup, "p05": 0.9, "p95": 1.2, "n": 50}
    found.environment = {"torch": "2.13.0", "compiler": "g++ 12", "python": platform.python_version()}
    return found


def grown(kb: KnowledgeBase, nodes: int, policy: str) -> str:
    """A run that has so many nodes already, as the engine would have stored them."""
    problem = load_problem(PROBLEM)
    settings = SearchSettings(str(PROBLEM), policy=policy, steps=nodes + EXPANSIONS)
    facts = Evaluator().describe(problem.source, problem.name)
    run_id, rng = f"grown-{nodes}-{policy}", random.Random(1)
    RunStore(kb).create(run_id, problem.name, problem.source, facts.to_json(), settings)
    sha, prompt = kb.blobs.put(source(1)), kb.blobs.put("a prompt")
    rows: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    made: list[tuple[float, int]] = []
    for step in range(1, nodes + 1):
        # Mostly the better ones have children, as in a search.
        parent = 0 if step <= settings.drafts else max(rng.sample(made, min(3, len(made))))[1]
        speedup = score(source(rng.randrange(10**9)))
        blank = SearchNode(
            node_id=node_id(run_id, step), parent_id=node_id(run_id, parent), step=step, generator="stub",
            source_sha=sha, digest=f"{step:064x}", status="", hypothesis=f"step {step}", prompt_sha=prompt,
            diagnosis={"bottleneck": "memory", "evidence": ["e"] * 3, "actions": ["a"] * 3, "roofline": {}},
        )  # fmt: skip
        node = judged(blank, evaluation(speedup).to_json())
        made.append((speedup, step))
        rows.append(to_row(run_id, node).model_dump())
        selection = {
            "step": step,
            "parent_id": node.parent_id if parent else None,
            "memory": "siblings" if parent else "none",
            "selected": "x",
        }
        told = {
            **selection, "prompt_sha": prompt, "prompt_cut": [], "prompt_withheld": [], "local_only": False,
            "outcome": "evaluated", "hypothesis": node.hypothesis, "tried": [node.digest], "raw_sha": sha,
            "used": [], "tokens": 5500, "cost_usd": 0.0, "node_id": node.node_id, "elapsed_s": step * 1.0,
        }  # fmt: skip
        for kind, payload in (("asked", {**selection, "pending": []}), ("step", told)):
            events.append({"run_id": run_id, "seq": len(events), "kind": kind, "payload": payload})
    with kb.session() as session:
        for table, content in ((Node, rows), (Event, events)):
            session.connection().execute(table.__table__.insert(), content)  # type: ignore[attr-defined]
        session.commit()
    return run_id


def overhead(kb: KnowledgeBase, nodes: int, policy: str) -> dict[str, Any]:
    """Times of resuming such a run and of its next steps: ask, and tell with the check for novelty."""
    run_id = grown(kb, nodes, policy)
    clock = Clock()
    with SearchSession.resume(kb, run_id, generator="stub", hosted=False, place=PLACE) as session:
        resumed = clock.spent()
        model, evaluator, spent = Model(), Evaluator(), []
        for _ in range(EXPANSIONS):
            clock = Clock()
            step = session.ask()
            assert step is not None, session.stop_reason
            asked = clock.spent()
            draft = model.generate(step.request)
            verdict = evaluator.evaluate(EvaluationRequest(problem="", candidate=draft.source)).to_json()
            clock = Clock()
            session.novel(step, draft)
            session.tell(step, draft, verdict)
            spent.append([a + b for a, b in zip(asked, clock.spent(), strict=True)])
    wall, alone, cpu = (sorted(column) for column in zip(*spent, strict=True))
    p95 = int(0.95 * len(wall))
    return {
        "nodes": nodes,
        "policy": policy,
        "resume_s": dict(zip(Clock.columns, (round(value, 2) for value in resumed), strict=True)),
        "step_ms_median": dict(
            zip(
                Clock.columns,
                (round(1000 * statistics.median(c), 1) for c in (wall, alone, cpu)),
                strict=True,
            )
        ),
        "step_ms_p95": dict(
            zip(Clock.columns, (round(1000 * c[p95], 1) for c in (wall, alone, cpu)), strict=True)
        ),
    }


class Clock:
    """Wall-clock seconds, those without waiting for a CPU that other programs held, and CPU seconds."""

    columns = ("wall", "without_waiting_for_a_cpu", "cpu")

    def __init__(self) -> None:
        self._began = self._now()

    def spent(self) -> tuple[float, float, float]:
        wall, waited, cpu = (now - then for now, then in zip(self._now(), self._began, strict=True))
        return wall, wall - waited, cpu

    @staticmethod
    def _now() -> tuple[float, float, float]:
        waited = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        return time.perf_counter(), waited, time.process_time()


# --- beside openevolve ---

EVALUATOR = """import re

def evaluate(path):
    with open({count!r}, "a") as file:
        file.write(".")
    found = re.search(r"return y \\* (\\d+)", open(path).read())
    return {{"combined_score": 0.5 + (int(found[1]) if found else 0) % 1009 / 400}}
"""


class Client:
    """The same stub model as a client of openevolve."""

    def __init__(self, _config: Any) -> None:
        self.rng = random.Random(os.getpid())  # every worker has one

    async def generate_with_context(self, *_: Any, **__: Any) -> str:
        return f"multiply\n```python\n{source(self.rng.randrange(10**9))}```\n"


def openevolve_steps(folder: Path, steps: int, workers: int) -> None:
    import logging

    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    logging.disable(logging.CRITICAL)
    config = Config(max_iterations=steps, diff_based_evolution=False, random_seed=0, log_level="CRITICAL")
    config.llm.models = [LLMModelConfig(name="stub", init_client=Client)]
    config.llm.evaluator_models = config.llm.models
    config.evaluator.parallel_evaluations = workers
    config.evaluator.cascade_evaluation = False
    path = folder / "evaluator.py"
    path.write_text(EVALUATOR.format(count=str(folder / "count")))
    result = run_evolution(
        source(1), path, config, iterations=steps, output_dir=str(folder / "out"), cleanup=False
    )
    evaluated = len((folder / "count").read_text())
    assert evaluated == steps + 1, f"{evaluated} evaluations for {steps} steps and the program it began with"
    assert result.best_score > 0.6
    logging.disable(logging.NOTSET)


def our_steps(folder: Path, steps: int, workers: int) -> None:
    settings = SearchSettings(str(PROBLEM), policy="evolutionary", steps=steps, concurrency=workers)
    with opened(folder) as kb:
        result = Search(kb, Evaluator(), settings, generator=Model(), place=PLACE).run()
    assert result.steps == steps
    assert result.valid > 0.9 * steps


def beside(steps: int, workers: int) -> dict[str, Any]:
    """Steps per second, and CPU time for each step, of both in turn; twice, the better of each counts."""
    found: dict[str, Any] = {"steps": steps, "workers": workers}
    for name, run in 2 * (("kernelevolve", our_steps), ("openevolve", openevolve_steps)):
        with tempfile.TemporaryDirectory() as folder:
            began, cpu = time.perf_counter(), _cpu_s()
            run(Path(folder), steps, workers)
            measured = {
                "steps_per_s": round(steps / (time.perf_counter() - began), 2),
                "cpu_ms_per_step": round(1000 * (_cpu_s() - cpu) / steps, 1),
            }
        if name not in found or measured["steps_per_s"] > found[name]["steps_per_s"]:
            found[name] = measured
    return found


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def opened(folder: Path) -> KnowledgeBase:
    return KnowledgeBase.open(Settings(home=folder / "home"), embedder=Letters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 20_000])
    parser.add_argument("--resume", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--policies", nargs="*", default=["greedy", "evolutionary"])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "engine.json")
    options = parser.parse_args()
    report: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/engine.py", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "openevolve_version": version("openevolve"),
        "beside_openevolve": [beside(options.steps, workers) for workers in (1, 4)],
        "overhead": [],
    }
    for nodes in sorted({*options.nodes, options.resume}):
        for policy in options.policies:
            with tempfile.TemporaryDirectory() as folder, opened(Path(folder)) as kb:
                report["overhead"].append(overhead(kb, nodes, policy))
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(options.out.read_text())


if __name__ == "__main__":
    main()
