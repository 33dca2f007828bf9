"""The loop that drives a session: generate, judge, tell, until a rule stops it; then verify the winner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agent import events as ev
from agent.cascade import Cascade
from agent.crew import Crew
from agent.errors import RunBusy, RunOver, SettingsInvalid
from agent.generator import Draft, GenerationFailed, GenerationRequest, Generator
from agent.generators import make_generator, settled
from agent.judge import UNJUDGED_LIMIT, Executor, Judge, unavailable
from agent.place import Place
from agent.policies import load_policy
from agent.session import OnEvent, SearchSession
from agent.settings import SearchResult, SearchSettings
from agent.step import Step
from agent.stop import INTERRUPTED
from agent.store import RunStore
from agent.verify import FinalVerification
from kb.tables import RunState
from kb.upkeep.quota import Quota

if TYPE_CHECKING:
    from kb import KnowledgeBase


class Search:
    """One run. `executor` judges; `generator` and `place` replace what the settings name.

    `settings.concurrency` steps are under way at once, without a barrier; a worker still judges one candidate
    at a time. Every finished step is durable, so that a run that was killed, interrupted or failed goes on
    with `Search.resume` as if nothing had happened.

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
        self._emit: OnEvent = on_event or _ignore
        if generator is None:
            settings = replace(settings, generator=settled(settings.generator, kb))
            generator = make_generator(settings, executor, kb)
        self._generator = generator
        self._settings = settings
        self._place = place or Place.of(settings.target, kb.home / "cache")
        load_policy(settings.policy, settings.drafts)  # an unknown one is refused before anything runs
        if settings.near_roofline is not None and not self._place.ceilings:
            raise SettingsInvalid(
                f"near_roofline needs the ceilings of {settings.target}, which are not known here",
                "stop by another rule",
            )

    def run(self) -> SearchResult:
        """Search from the beginning.

        Raises TargetUnavailable or ProblemError (nothing is stored then), ModelError, EvaluationUnavailable,
        QuotaExceeded before the step that would exceed the home's quota, and KeyboardInterrupt after the run
        was marked as interrupted.
        """
        from harness.problem import load_problem

        Quota(self._kb).reserve()
        self._executor.require(self._settings.target)  # before anything is run or stored for it
        problem = load_problem(self._settings.problem, self._kb.home / "cache")
        facts = self._executor.describe(problem.source, problem.name)
        with SearchSession.create(
            self._kb,
            self._settings,
            problem,
            facts,
            generator=self._generator.name,
            hosted=self._generator.hosted,
            place=self._place,
            on_event=self._emit,
        ) as session:
            return self._drive(session)

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
        changes: Mapping[str, Any] | None = None,
    ) -> SearchResult:
        """Continue a run where its last finished step left it; a finished run returns its result again.

        `changes` are settings of its models that are others from now on: `generator`, `base_url`,
        `parameters`, `stream`. Raises RunNotFound, and RunBusy while another live process works on the run.
        """
        store = RunStore(kb)
        run_id = store.resolve(run_id)
        if (result := store.result(run_id)) is not None:
            return result
        settings = replace(store.settings(run_id), **(changes or {}))
        search = cls(kb, executor, settings, on_event=on_event, generator=generator, place=place)
        try:
            session = SearchSession.resume(
                kb,
                run_id,
                settings=search._settings,
                generator=search._generator.name,
                hosted=search._generator.hosted,
                place=search._place,
                on_event=search._emit,
            )
        except RunOver:  # another process has finished it in the meantime
            if (result := store.result(run_id)) is not None:
                return result
            raise
        with session:
            return search._drive(session)

    # --- the loop ---

    def _drive(self, session: SearchSession) -> SearchResult:
        settings = self._settings
        judge = Judge(self._executor, settings, session.problem_name, session.problem_source)
        cascade = Cascade(
            judge.ask,
            session.problem_source,
            eager_ms=session.facts.eager_ms if settings.target == "cpu" else None,  # it was measured there
            profile=settings.profile,
            on=settings.cascade,
        )
        self._emit(
            ev.RunStarted(
                run_id=session.run_id,
                problem=session.problem_name,
                target=settings.target,
                done=session.progress.steps,
                steps=settings.steps,
                time_limit_s=settings.time_limit_s,
                eager_ms=session.facts.eager_ms,
                resumed=session.resumed,
            )
        )
        try:
            self._steps(session, cascade)
            winner = FinalVerification(session.store, judge, self._emit).choose(
                session.run_id, session.progress
            )
            result = session.finish(winner)
        except KeyboardInterrupt:
            session.abandon(RunState.INTERRUPTED, INTERRUPTED)
            raise
        except RunBusy:
            raise  # its state is the other process's business
        except Exception as error:
            session.abandon(RunState.FAILED, f"error: {' '.join(str(error).split())[:300]}")
            raise
        self._emit(ev.Stopped(session.run_id, result.stop_reason, result.to_json()))
        return result

    def _candidate(self, step: Step) -> Draft:
        return step.ready or self._generator.generate(self._request(step))

    def _steps(self, session: SearchSession, cascade: Cascade) -> None:
        """Ask, generate, judge and tell until nothing more is asked. The session stays in this thread.

        Once something fails nothing new is begun; what is under way is told, as it may have been paid for.
        """
        crew = Crew(self._settings.concurrency)
        underway: dict[int, Step] = {}
        drafts: dict[int, Draft] = {}  # that are being judged
        failure: Exception | None = None
        while True:
            try:
                while failure is None and not crew.full and (step := session.ask()) is not None:
                    underway[step.number] = step
                    crew.start(step.number, partial(self._candidate, step))
            except Exception as error:
                failure = error
            if not crew.busy:
                break
            number, outcome = crew.finished()
            try:
                step = underway[number]
                if isinstance(outcome, Draft):
                    if not outcome.ideas:
                        self._emit(ev.Generated(number, outcome.hypothesis))
                    if session.novel(step, outcome):
                        drafts[number] = outcome
                        best = session.progress.best
                        beat = best.fitness if best else 0.0
                        brief = {"timing_budget_s": self._settings.step_timing_s / 2} if outcome.brief else {}
                        crew.start(number, partial(cascade.verdict, outcome.source, best=beat, **brief))
                        continue
                    session.tell(step, outcome)
                elif isinstance(outcome, GenerationFailed):
                    session.tell(step, outcome)
                elif isinstance(outcome, Exception):
                    raise outcome
                else:
                    session.tell(step, drafts.pop(number), outcome)
                    if session.progress.unjudged >= UNJUDGED_LIMIT:
                        raise unavailable(outcome)
                del underway[number]
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _request(self, step: Step) -> GenerationRequest:
        """The step's request, with what is to be told while it is answered."""
        number, come = step.number, 0

        def on_text(piece: str) -> None:
            nonlocal come
            come += len(piece)
            self._emit(ev.Writing(number, come))

        def on_wait(why: str) -> None:
            self._emit(ev.Noted(number, why))

        return replace(step.request, on_text=on_text if self._settings.stream else None, on_wait=on_wait)


def _ignore(_event: ev.SearchEvent) -> None:
    """Nobody watches."""
