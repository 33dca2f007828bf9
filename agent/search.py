"""The search loop: ask the policy, write the prompt, generate, judge, tell, store, until a rule stops it."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agent import events as ev
from agent.diagnose import diagnose_evaluation
from agent.errors import RunBusy
from agent.generator import Draft, Exhausted, GenerationFailed, GenerationRequest, Generator, ParentView
from agent.generators import make_generator
from agent.graph import SearchNode
from agent.judge import UNJUDGED_LIMIT, Executor, Judge, judged, unavailable
from agent.memory import failed_attempts, parent_context
from agent.novelty import genome_digest, program_digest
from agent.place import Place
from agent.policies import Selection, load_policy
from agent.progress import RunProgress
from agent.rows import StepRecord
from agent.settings import SearchResult, SearchSettings
from agent.stop import EXHAUSTED, INTERRUPTED
from agent.store import RunStore, node_id
from agent.verify import FinalVerification
from kb.errors import KnowledgeBaseError
from kb.tables import RunState
from kb.upkeep.quota import Quota
from prompts import PromptRecord, PromptRequest, Synthesizer

if TYPE_CHECKING:
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase

OnEvent = Callable[[ev.SearchEvent], None]
STEP_BYTES = 1_000_000  # about what a step stores: prompt, answer, source, evaluation; asked of the quota


class Search:
    """One run. `executor` judges; `generator` and `place` replace what the settings name.

    Every finished step is durable before the next one starts, so that a run that was killed, interrupted or
    failed goes on with `Search.resume` as if nothing had happened.

        result = Search(kb, executor, SearchSettings("softmax.py", steps=20)).run()
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        executor: Executor,
        settings: SearchSettings,
        *,
        on_event: OnEvent | None = None,
        generator: Generator | None = None,
        place: Place | None = None,
    ) -> None:
        self._kb = kb
        self._executor = executor
        self._settings = settings
        self._emit: OnEvent = on_event or _ignore
        self._generator = generator or make_generator(settings.generator, executor, settings.base_url)
        self._place = place or Place.of(settings.target, kb.home / "cache")
        self._store = RunStore(kb)
        self._quota = Quota(kb)
        self._synthesizer = Synthesizer(kb)
        self._progress = RunProgress(load_policy(settings.policy, settings.drafts))

    def run(self) -> SearchResult:
        """Search from the beginning.

        Raises TargetUnavailable or ProblemError (nothing is stored then), ModelError, EvaluationUnavailable,
        QuotaExceeded before the step that would exceed the home's quota, and KeyboardInterrupt after the run
        was marked as interrupted.
        """
        from harness.problem import load_problem

        self._quota.reserve()
        self._executor.require(self._settings.target)  # before anything is run or stored for it
        problem = load_problem(self._settings.problem, self._kb.home / "cache")
        facts = self._executor.describe(problem.source, problem.name)
        run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
        root = self._store.create(run_id, problem.name, problem.source, facts.to_json(), self._settings)
        self._progress.graph.add(root)
        with self._claimed(run_id):
            return self._drive(run_id, problem.name, problem.source, facts, resumed=False)

    @classmethod
    def resume(
        cls,
        kb: KnowledgeBase,
        executor: Executor,
        run_id: str,
        *,
        on_event: OnEvent | None = None,
        generator: Generator | None = None,
        place: Place | None = None,
    ) -> SearchResult:
        """Continue a run where its last finished step left it; a finished run returns its result again.

        Raises RunNotFound, and RunBusy while another live process works on the run.
        """
        stored = RunStore(kb).load(run_id)
        if (result := stored.result()) is not None:
            return result
        search = cls(kb, executor, stored.settings, on_event=on_event, generator=generator, place=place)
        return search._continue(stored.info.run_id)

    def _continue(self, run_id: str) -> SearchResult:
        from harness.worker.model import ProblemFacts

        with self._claimed(run_id):
            stored = self._store.load(run_id)  # as it is now that nobody else works on it
            if (result := stored.result()) is not None:
                return result
            self._progress.replay(stored)
            self._store.set_state(run_id, RunState.RUNNING)
            facts = ProblemFacts.from_json(stored.facts)
            return self._drive(run_id, stored.info.problem, stored.problem_source, facts, resumed=True)

    @contextlib.contextmanager
    def _claimed(self, run_id: str) -> Iterator[None]:
        """The run is this process's, from before its first step to after its final verification."""
        self._store.claim(run_id)
        try:
            yield
        finally:
            with contextlib.suppress(KnowledgeBaseError):
                self._store.release(run_id)

    # --- the loop ---

    def _drive(
        self, run_id: str, name: str, source: str, facts: ProblemFacts, *, resumed: bool
    ) -> SearchResult:
        self._run_id, self._source, self._facts = run_id, source, facts
        self._facts_json = facts.to_json()
        self._judge = Judge(self._executor, self._settings, name, source)
        progress, settings = self._progress, self._settings
        self._started = time.monotonic() - progress.elapsed_s
        self._emit(
            ev.RunStarted(
                run_id=run_id,
                problem=name,
                target=settings.target,
                done=progress.steps,
                steps=settings.steps,
                time_limit_s=settings.time_limit_s,
                eager_ms=facts.eager_ms,
                resumed=resumed,
            )
        )
        try:
            reason = None
            while reason is None:
                reason = settings.stop_rules.check(progress.snapshot(self._elapsed())) or self._step()
            return self._finish(reason)
        except KeyboardInterrupt:
            self._abandon(RunState.INTERRUPTED, INTERRUPTED)
            raise
        except RunBusy:
            raise  # its state is the other process's business
        except Exception as error:
            self._abandon(RunState.FAILED, f"error: {' '.join(str(error).split())[:300]}")
            raise

    def _step(self) -> str | None:
        """One step; the reason to stop when the policy has nothing left."""
        progress = self._progress
        step = progress.steps + 1
        selection = progress.policy.ask(progress.graph, random.Random(self._seed(step, "policy")))
        if selection is None:
            return EXHAUSTED
        self._quota.reserve(STEP_BYTES)
        parent = progress.graph.node(selection.parent_id) if selection.parent_id else None
        self._store.lease(self._run_id, step, {"step": step, "parent_id": selection.parent_id})
        parent_step = parent.step if parent else None
        self._emit(ev.StepStarted(step, parent_step, selection.reason))

        prompt = self._prompt(step, selection, parent)
        self._emit(ev.PromptReady(step, prompt.tokens, len(prompt.provenance), len(prompt.withheld)))
        payload: dict[str, Any] = {
            "step": step,
            "parent_id": selection.parent_id,
            "memory": selection.memory,
            "selected": selection.reason,
            "prompt_sha": self._kb.blobs.put(prompt.prompt),
            "prompt_cut": prompt.cut,
            "prompt_withheld": prompt.withheld,
            "local_only": prompt.local_only,
        }
        node = None
        try:
            draft = self._generator.generate(self._request(step, prompt, parent))
            self._emit(ev.Generated(step, draft.hypothesis))
            node, outcome = self._evaluate(step, draft, parent, prompt)
            payload |= outcome
        except GenerationFailed as failure:
            payload |= {
                "outcome": "exhausted" if isinstance(failure, Exhausted) else "no_candidate",
                "error": str(failure),
                "raw_sha": self._kb.blobs.put(failure.raw) if failure.raw else "",
                "tokens": failure.tokens_in + failure.tokens_out,
                "cost_usd": failure.cost_usd,
            }
        payload["elapsed_s"] = round(self._elapsed(), 3)
        before = progress.best_id
        progress.account(payload, node)
        self._store.append(
            self._run_id,
            progress.seq,
            step,
            StepRecord(payload, progress.tokens, progress.cost_usd or 0.0, node, prompt, progress.best_id),
        )
        progress.seq += 1
        self._report_step(step, payload, node, is_best=progress.best_id != before)
        if node is not None and progress.unjudged >= UNJUDGED_LIMIT:
            raise unavailable(node.evaluation)
        return None

    def _evaluate(
        self, step: int, draft: Draft, parent: SearchNode | None, prompt: PromptRecord
    ) -> tuple[SearchNode | None, dict[str, Any]]:
        """The judged node and its part of the step's event; no node for a program the run already has."""
        digest = program_digest(draft.source)
        outcome: dict[str, Any] = {
            "outcome": "evaluated",
            "hypothesis": draft.hypothesis,
            "tried": [digest, *([genome_digest(draft.genome)] if draft.genome is not None else [])],
            "raw_sha": self._kb.blobs.put(draft.raw) if draft.raw else "",
            "used": list(draft.used),
            "tokens": draft.tokens_in + draft.tokens_out,
            "cost_usd": draft.cost_usd,
        }
        twin = self._progress.by_digest.get(digest)
        if twin is not None:
            error = f"the same program as step {self._progress.graph.node(twin).step}"
            return None, {**outcome, "outcome": "duplicate", "error": error}
        evaluation = self._judge.verdict(draft.source)
        node = SearchNode(
            node_id=node_id(self._run_id, step),
            parent_id=(parent or self._progress.graph.root).node_id,
            step=step,
            generator=self._generator.name,
            source_sha=self._kb.blobs.put(draft.source),
            digest=digest,
            status="",
            hypothesis=draft.hypothesis,
            genome=draft.genome,
            prompt_sha=prompt.digest,
            compiler_made=draft.compiler_made,
            diagnosis=diagnose_evaluation(evaluation, self._facts_json, self._place.ceilings),
            notes={**draft.notes, "local_only": True} if prompt.local_only else draft.notes,
        )
        return judged(node, evaluation), {**outcome, "node_id": node.node_id}

    def _finish(self, reason: str) -> SearchResult:
        winner = FinalVerification(self._store, self._judge, self._emit).choose(self._run_id, self._progress)
        progress = self._progress
        path = None
        if winner is not None:
            path = self._kb.home / "runs" / self._run_id / "best.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._store.source(winner), encoding="utf-8", errors="surrogatepass")
        result = progress.result(self._run_id, reason, self._elapsed(), winner, path)
        self._store.finish(self._run_id, progress.seq, reason, result, winner)
        self._emit(ev.Stopped(self._run_id, reason, result.to_json()))
        return result

    def _abandon(self, state: RunState, reason: str) -> None:
        """Mark the run; whatever goes wrong here must not hide why it was abandoned."""
        with contextlib.suppress(KnowledgeBaseError):
            self._store.set_state(self._run_id, state, reason)

    # --- parts of a step ---

    def _prompt(self, step: int, selection: Selection, parent: SearchNode | None) -> PromptRecord:
        progress = self._progress
        return self._synthesizer.synthesize(
            PromptRequest(
                problem_source=self._source,
                facts=self._facts_json,
                target=self._settings.target,
                target_facts=dict(self._place.facts),
                parent=parent_context(parent, self._store.source(parent)) if parent else None,
                diagnosis=parent.diagnosis if parent else None,
                failed=failed_attempts(
                    progress.graph, progress.skipped, selection.parent_id, selection.memory
                ),
                budget_tokens=self._settings.budget_tokens,
                step=step,
                hosted=self._generator.hosted,
            )
        )

    def _request(self, step: int, prompt: PromptRecord, parent: SearchNode | None) -> GenerationRequest:
        view = None
        if parent is not None:
            view = ParentView(
                node_id=parent.node_id,
                source=self._store.source(parent),
                evaluation=parent.evaluation,
                diagnosis=parent.diagnosis,
                genome=parent.genome,
                generator=parent.generator,
            )
        return GenerationRequest(
            prompt=prompt,
            facts=self._facts,
            problem_source=self._source,
            target=self._settings.target,
            parent=view,
            step=step,
            seed=self._seed(step, "generator"),
            tried=frozenset(self._progress.tried),
        )

    def _report_step(
        self, step: int, payload: dict[str, Any], node: SearchNode | None, *, is_best: bool
    ) -> None:
        if node is None:
            self._emit(ev.Skipped(step, payload["outcome"], payload["error"], payload["elapsed_s"]))
        else:
            best = self._progress.best
            self._emit(ev.Evaluated(step, node, is_best, best, payload["elapsed_s"]))

    def _seed(self, step: int, purpose: str) -> int:
        """Everything random in a step comes from the run's seed and the step's number."""
        text = f"{self._settings.seed}:{step}:{purpose}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])

    def _elapsed(self) -> float:
        return time.monotonic() - self._started


def _ignore(_event: ev.SearchEvent) -> None:
    """Nobody watches."""
