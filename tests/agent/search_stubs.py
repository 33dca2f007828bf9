"""A deterministic judge and generator, a knowledge base without a model, and a program to be killed."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # it is run as a program, too

from letter_embedder import LetterEmbedder

from agent import RunStore, Search, SearchSettings
from agent.generator import Draft, Exhausted, GenerationFailed, GenerationRequest
from agent.place import Place
from harness.worker.model import Evaluation, EvaluationRequest, ProblemFacts, TensorSpec
from kb import KnowledgeBase, Settings

PROBLEM = """import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""
PLACE = Place("cpu", {"languages": ["cpp"]}, {"bandwidth_gb_s": 10.0, "fp32_gflop_s": 100.0})


def open_kb(home: Path) -> KnowledgeBase:
    return KnowledgeBase.open(Settings(home=home), embedder=LetterEmbedder())


class StubExecutor:
    """Reads the verdict from the candidate: `X` decides status and speedup. Logs what it begins to judge."""

    def __init__(self, log: Path | None = None, delay_s: float = 0.0) -> None:
        self.log = log
        self.delay_s = delay_s
        self.requests: list[EvaluationRequest] = []

    def require(self, target: str) -> None:
        pass

    def describe(self, problem_source: str, name: str = "problem") -> ProblemFacts:
        self._note("describe", False)
        x = TensorSpec("x", (8,), "float32", (1,))
        return ProblemFacts(name, [x], [], [], [x], [], [], eager_ms=2.0, bytes_min=64)

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        x = int(re.search(r"X = (\d+)", request.candidate)[1])
        self._note(x, request.measure_compile)
        time.sleep(self.delay_s)
        status = {11: "compile_error", 12: "incorrect", 13: "timeout"}.get(x % 17, "correct")
        evaluation = Evaluation(
            status, log="k.cpp:3:1: error: no such thing" if status == "compile_error" else ""
        )
        if status == "correct":
            speedup = 0.5 + x / 100
            evaluation.speedup, evaluation.speedup_ci = speedup, (speedup * 0.95, speedup * 1.05)
            evaluation.baselines = {"eager_ms": 2.0, "compile_ms": 1.5 if request.measure_compile else None}
            evaluation.candidate_ms = {"median": 2.0 / speedup, "p05": 1.0, "p95": 3.0, "n": 9}
            evaluation.timed = True
        return evaluation

    def _note(self, what: int | str, final: bool) -> None:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write(json.dumps([what, final]) + "\n")


class StubGenerator:
    """Climbs from its parent by random steps; now and then answers nothing or the same as before."""

    name = "stub"
    hosted = False

    def __init__(self, limit: int = 400) -> None:
        self.limit = limit
        self.requests: list[GenerationRequest] = []

    def generate(self, request: GenerationRequest) -> Draft:
        self.requests.append(request)
        rng = random.Random(request.seed)
        kind = rng.random()
        if kind < 0.08:
            raise GenerationFailed("nothing came to mind", raw="hm", tokens_in=5, tokens_out=1)
        x = request.parent.genome["x"] if request.parent else 0
        if x >= self.limit:
            raise Exhausted("as far as it goes")
        x = 20 if kind < 0.16 else x + rng.randrange(1, 30)
        return Draft(
            source=f"class ModelNew:  # step {request.step}\n    X = {x}\n",
            hypothesis=f"x = {x}",
            genome={"x": x},
            tokens_in=10,
            tokens_out=2,
        )


def write_problem(folder: Path) -> Path:
    path = folder / "plus_one.py"
    path.write_text(PROBLEM)
    return path


def graph_of(kb: KnowledgeBase, run_id: str) -> list[Any]:
    """Everything about a run that does not depend on its id or on the clock."""
    run = RunStore(kb).load(run_id)
    nodes = [
        [
            node.step, node.parent_id and run.graph.node(node.parent_id).step, node.status, node.fitness,
            node.digest, node.source_sha, node.genome, node.prompt_sha, node.hypothesis, node.diagnosis,
        ]
        for node in run.graph
    ]  # fmt: skip
    events = [
        [
            event.seq,
            event.kind,
            event.payload.get("step"),
            event.payload.get("outcome"),
            event.payload.get("selected"),
        ]
        for event in run.events
    ]
    totals = [run.info.state, run.info.stop_reason, run.info.tokens, run.info.steps, run.info.cost_usd]
    return [nodes, events, totals]


def main(home: str, log: str, settings: str) -> None:
    """Start the run, or resume the one that is there; to be killed at any moment."""
    with open_kb(Path(home)) as kb:
        runs = RunStore(kb).list_runs()
        executor, generator = StubExecutor(Path(log), delay_s=0.02), StubGenerator()
        if runs:
            Search.resume(kb, executor, runs[0].run_id, generator=generator, place=PLACE)
        else:
            Search(
                kb, executor, SearchSettings(**json.loads(settings)), generator=generator, place=PLACE
            ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
