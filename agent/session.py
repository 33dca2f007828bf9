"""The search as a durable ask/tell session: whoever has a generator and a judge can drive it.

    with SearchSession.create(kb, settings, problem, facts) as session:
        while (step := session.ask()) is not None:
            draft = ...  # from step.prompt.prompt
            session.tell(step, draft, executor.evaluate(...).to_json())
        result = session.finish(session.progress.best)

No threads and no I/O beyond the store: several steps may be pending, told in any order and from one thread.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agent import events as ev
from agent.credit import earned
from agent.earlier import look_back
from agent.errors import RunOver, StepNotPending
from agent.experience import Experience
from agent.generator import Draft, GenerationFailed, OutOfAnswers
from agent.generators import generator_names
from agent.graph import SearchNode
from agent.novelty import program_digest
from agent.outcome import accounts, candidate, drafted, failed
from agent.place import Place
from agent.policies import Selection, load_policy
from agent.progress import RunProgress
from agent.rows import StepRecord, StoredRun
from agent.settings import SearchResult, SearchSettings
from agent.step import Asked, Step, StepWriter, step_rng
from agent.stop import CLOSED, EXHAUSTED
from agent.store import RunStore
from kb.errors import KnowledgeBaseError
from kb.tables import RunState
from kb.upkeep.quota import Quota
from prompts.replay import keep

if TYPE_CHECKING:
    from harness.problem import Problem
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase

OnEvent = Callable[[ev.SearchEvent], None]
STEP_BYTES = 1_000_000  # about what a step stores: prompt, answer, source, evaluation; asked of the quota


class SearchSession:
    """One run. Every `ask` and every `tell` is durable when it returns.

    `generator` is the name that nodes carry, `hosted` whether prompts leave this machine. A run that was
    killed goes on with `resume`: steps that were pending are handed out again, with the same prompts.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        settings: SearchSettings,
        *,
        generator: str | None = None,
        hosted: bool = True,
        place: Place | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        """Use `create` or `resume`."""
        self.settings = settings
        self.store = RunStore(kb)
        self.progress = RunProgress(load_policy(settings.policy, settings.drafts), Experience.of(settings))
        self.run_id = ""
        self.stop_reason: str | None = None
        self.resumed = False
        self._kb = kb
        self._generators = generator_names(generator or settings.generator)
        self._hosted = hosted
        self._place = place or Place.of(settings.target, kb.home / "cache")
        self._emit: OnEvent = on_event or (lambda _event: None)
        self._quota = Quota(kb)
        self._unissued: deque[Asked] = deque()
        self._issued: dict[int, Step] = {}
        self._digests: dict[str, int] = {}  # of programs that are being judged: their steps

    @classmethod
    def create(
        cls,
        kb: KnowledgeBase,
        settings: SearchSettings,
        problem: Problem,
        facts: ProblemFacts,
        *,
        generator: str | None = None,
        hosted: bool = True,
        place: Place | None = None,
        on_event: OnEvent | None = None,
    ) -> Self:
        """A new run for `problem`, stored and claimed; `facts` is what `Executor.describe` says of it.

        Raises SettingsInvalid, and QuotaExceeded where the home is full already.
        """
        session = cls(kb, settings, generator=generator, hosted=hosted, place=place, on_event=on_event)
        session._quota.reserve()
        run_id = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
        root = session.store.create(run_id, problem.name, problem.source, facts.to_json(), settings)
        session.progress.graph.add(root)
        session.store.claim(run_id)
        session._begin(run_id, problem.name, problem.source, facts)
        session._look_back()
        return session

    @classmethod
    def resume(
        cls,
        kb: KnowledgeBase,
        run_id: str,
        *,
        settings: SearchSettings | None = None,
        generator: str | None = None,
        hosted: bool = True,
        place: Place | None = None,
        on_event: OnEvent | None = None,
    ) -> Self:
        """Continue an unfinished run (an id, a unique prefix, or `last`) with the settings it was made with,
        or with `settings`, which are stored in their place.

        Raises RunNotFound, RunBusy while another live process works on the run, RunOver for a finished one.
        """
        from harness.worker.model import ProblemFacts

        run_id = RunStore(kb).resolve(run_id)
        before = RunStore(kb).settings(run_id)
        settings = settings or before
        session = cls(kb, settings, generator=generator, hosted=hosted, place=place, on_event=on_event)
        session.run_id = run_id
        session.store.claim(run_id)
        try:
            if session.store.result(run_id) is not None:
                raise RunOver(f"run {run_id} is finished", "see: kernelevolve runs show " + run_id)
            stored = session.store.load(run_id)  # as it is now that nobody else works on it
            session._begin(
                run_id, stored.info.problem, stored.problem_source, ProblemFacts.from_json(stored.facts)
            )
            session.resumed = True
            session._replay(stored)
            if settings != before:
                session.store.reconfigure(run_id, session.progress.seq, settings)
                session.progress.seq += 1
            session.store.set_state(run_id, RunState.RUNNING)
        except BaseException:
            session.close()
            raise
        return session

    def _begin(self, run_id: str, name: str, source: str, facts: ProblemFacts) -> None:
        self.run_id, self.problem_name, self.problem_source, self.facts = run_id, name, source, facts
        self._facts_json = facts.to_json()
        self._writer = StepWriter(
            self._kb, self.settings, source, facts, self._place, run_id=run_id, hosted=self._hosted
        )
        self._started = time.monotonic()  # no wall clock: that may jump

    def _look_back(self) -> None:
        """Take over what earlier runs teach, for good: a resumed run knows what it knew when it began."""
        wanted = self.progress.experience.warm.wanted
        if not (self.settings.recalls or wanted):
            return
        earlier = look_back(
            self._kb,
            self.run_id,
            self.problem_source,
            self._facts_json,
            self.settings.target,
            failures=self.settings.recalls,
            matches=wanted,
            hosted=self._hosted,
        )
        if earlier.avoid or earlier.matches:
            self.store.note(self.run_id, self.progress.seq, "earlier", earlier.to_json())
            self.progress.seq += 1
            self.progress.experience.begin(earlier)

    def _replay(self, stored: StoredRun) -> None:
        """Live through the events again; what was asked and never told is to be handed out again."""
        told = {event.payload["step"] for event in stored.events if event.kind == "step"}
        for event in self.progress.replay(stored):
            if event.kind == "asked" and event.payload["step"] not in told:
                number, selection = event.payload["step"], Selection.from_json(event.payload)
                order = [n for n in event.payload.get("generators", ()) if n in self._generators]
                order += [n for n in self._generators if n not in order]
                self._unissued.append(self._writer.decide(self.progress, number, selection, order))
        self._started -= self.progress.elapsed_s

    # --- ask ---

    @property
    def pending(self) -> tuple[int, ...]:
        """The steps that were asked and not told yet."""
        return tuple(self.progress.pending)

    def ask(self) -> Step | None:
        """The next step, or None: for good when `stop_reason` is set, else until a pending step is told.

        Raises QuotaExceeded before a step that would exceed the home's quota, RunBusy when another process
        has taken the run, and what retrieval raises; asking again then hands out the same step.
        """
        if not self._unissued:
            decided = self._decide()
            if decided is None:
                return None
            self._unissued.append(decided)
        step = self._issue(self._unissued[0])
        self._unissued.popleft()
        self._issued[step.number] = step
        return step

    def _decide(self) -> Asked | None:
        progress = self.progress
        rules = self.settings.stop_rules
        if self.stop_reason is None:
            self.stop_reason = rules.check(progress.snapshot(self.elapsed_s))
        if self.stop_reason is not None or rules.check(progress.snapshot(self.elapsed_s, foreseen=True)):
            return None  # what is pending may be the last
        number = progress.last_step + 1
        selection = progress.choose(self.store.source, step_rng(self.settings, number))
        if selection is None:
            if not progress.pending:
                self.stop_reason = EXHAUSTED
            return None
        self._quota.reserve(STEP_BYTES)
        order = progress.bandit.order(
            () if selection.unasked else self._generators, list(progress.asked_of.values())
        )
        asked = self._writer.decide(progress, number, selection, order)
        payload = {
            "step": number,
            **selection.to_json(),
            "pending": list(progress.pending),
            "generators": order,
        }
        self.store.ask(self.run_id, progress.seq, number, payload)
        progress.asked(number, selection, order[0] if order else "")
        progress.seq += 1
        return asked

    def _issue(self, asked: Asked) -> Step:
        parent_step = asked.parent.step if asked.parent else None
        self._emit(ev.StepStarted(asked.number, parent_step, asked.selection.reason))
        step = self._writer.write(asked)
        prompt = step.prompt
        self._emit(ev.PromptReady(step.number, prompt.tokens, len(prompt.provenance), len(prompt.withheld)))
        return step

    # --- tell ---

    def novel(self, step: Step, draft: Draft) -> bool:
        """Whether the draft needs to be judged: neither the run nor another pending step has this program.

        A draft that is not novel is told without an evaluation, and so are ideas in words.
        """
        if draft.ideas:
            return False
        digest = program_digest(draft.source)
        taken = self._twin(digest, step.number)
        if taken is None:
            self._digests[digest] = step.number
        return taken is None

    def _twin(self, digest: str, number: int) -> int | None:
        node = self.progress.by_digest.get(digest)
        if node is not None:
            return self.progress.graph.node(node).step
        other = self._digests.get(digest)
        return other if other != number else None

    def tell(
        self, step: Step, made: Draft | GenerationFailed, evaluation: Mapping[str, Any] | None = None
    ) -> SearchNode | None:
        """What came of a step: a draft with its evaluation (JSON), or why there is none. Returns the node.

        A program that the run has already makes no node. Numbers that are not finite become None. When the
        store raises, nothing has happened: the same can be told again. Raises StepNotPending for a step that
        was told already or was not asked of this session, RunBusy when another process has taken the run.
        """
        if step.number not in self._issued:
            raise StepNotPending(
                f"step {step.number} of run {self.run_id} is not pending", "tell each step once"
            )
        source = made.source if isinstance(made, Draft) else ""
        texts = self._blobs(step.prompt.prompt, made.raw, source)
        payload: dict[str, Any] = {
            "step": step.number,
            **step.selection.to_json(),
            "prompt_sha": texts[step.prompt.prompt],
            "raw_sha": texts[made.raw],
            "prompt_cut": step.prompt.cut,
            "prompt_withheld": step.prompt.withheld,
            "prompt_deferred": step.prompt.deferred,
            "replay": keep(self._kb, step.prompt.composition) if step.prompt.composition else None,
            "local_only": step.prompt.local_only,
        }
        if isinstance(made, Draft) and made.ideas:
            node, outcome = None, {"outcome": "ideas", "ideas": list(made.ideas)}
        elif isinstance(made, Draft):
            node, outcome = self._judged(step, made, evaluation, texts[made.source])
        else:
            node, outcome = None, failed(made)
        payload |= outcome | accounts(made, self._generators)
        payload["elapsed_s"] = round(self.elapsed_s, 3)
        progress = self.progress
        before = progress.best_id
        tokens, cost, best_id = progress.after(payload, node)
        credit = earned(node, step.parent) if node is not None else None
        payload["credit"] = credit
        record = StepRecord(payload, tokens, cost or 0.0, node, step.prompt, best_id, credit)
        self.store.append(self.run_id, progress.seq, step.number, record)
        progress.account(payload, node)
        progress.seq += 1
        del self._issued[step.number]
        self._digests = {d: n for d, n in self._digests.items() if n != step.number}
        for line in payload["said"]:
            self._emit(ev.Noted(step.number, line))
        if isinstance(made, OutOfAnswers) and self.stop_reason is None:
            self.stop_reason = f"exhausted: {made}"
        if payload["outcome"] == "ideas":
            self._emit(ev.Ideas(step.number, tuple(payload["ideas"]), payload["elapsed_s"]))
        elif node is None:
            self._emit(ev.Skipped(step.number, payload["outcome"], payload["error"], payload["elapsed_s"]))
        else:
            is_best = progress.best_id != before
            self._emit(ev.Evaluated(step.number, node, is_best, progress.best, payload["elapsed_s"]))
        return node

    def _blobs(self, *texts: str) -> dict[str, str]:
        """Store texts, all at once as each flush costs. Returns their digests, "" for an empty one."""
        kept = [text for text in dict.fromkeys(texts) if text]
        return {"": "", **dict(zip(kept, self._kb.blobs.put_all(kept), strict=True))}

    def _judged(
        self, step: Step, draft: Draft, evaluation: Mapping[str, Any] | None, source_sha: str
    ) -> tuple[SearchNode | None, dict[str, Any]]:
        """The node and its part of the step's event; no node for a program the run already has."""
        outcome = drafted(draft)
        twin = self._twin(program_digest(draft.source), step.number)
        if twin is not None:
            return None, {**outcome, "outcome": "duplicate", "error": f"the same program as step {twin}"}
        if evaluation is None:
            raise ValueError("a draft that the run does not have is told with its evaluation")
        node = candidate(
            self.run_id,
            step,
            draft,
            evaluation,
            source_sha=source_sha,
            generator=self._generators[0],
            facts=self._facts_json,
            ceilings=self._place.ceilings,
        )
        return node, {**outcome, "node_id": node.node_id}

    # --- the end ---

    def finish(self, winner: SearchNode | None) -> SearchResult:
        """Close the run. `winner`, such as `progress.best`, is written to `<home>/runs/RUN/best.py`."""
        progress = self.progress
        reason = self.stop_reason or CLOSED
        path = None
        if winner is not None:
            path = self._kb.home / "runs" / self.run_id / "best.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.store.source(winner), encoding="utf-8", errors="surrogatepass")
        result = progress.result(self.run_id, reason, self.elapsed_s, winner, path)
        self.store.finish(self.run_id, progress.seq, reason, result, winner)
        progress.seq += 1
        return result

    def abandon(self, state: RunState, reason: str) -> None:
        """Mark the run; whatever goes wrong here must not hide why it was abandoned."""
        with contextlib.suppress(KnowledgeBaseError):
            self.store.set_state(self.run_id, state, reason)

    def close(self) -> None:
        """Let go of the run; it can be resumed by anybody then."""
        with contextlib.suppress(KnowledgeBaseError):
            self.store.release(self.run_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def elapsed_s(self) -> float:
        """Seconds of work on the run, pauses between resumes excluded."""
        return time.monotonic() - self._started
