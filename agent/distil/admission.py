"""From a run's winner to a skill: the admission test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sqlmodel import select

from agent.distil.evidence import Case, Measurer, Record
from agent.distil.library import Found, SkillFolders, applicability
from agent.distil.patterns import Composition, Kernel, Pattern, parameters, with_parameters
from agent.distil.sizes import variants
from agent.distil.writing import Origin
from agent.errors import RunNotFound
from agent.export.steps import Step, steps_of
from agent.recipe.genome import Genome
from agent.recipe.library import curated
from agent.recipe.skills import ExecutableSkill
from agent.store import RunStore
from harness.errors import ProblemError
from kb.skill_states import is_win
from kb.tables import Node

if TYPE_CHECKING:
    from agent.judge import Executor
    from agent.rows import StoredRun
    from harness.worker.model import ProblemFacts
    from kb import KnowledgeBase

Outcome = Literal["added", "strengthened", "rejected"]
_OTHER_SIZES = 2  # at which a kernel is looked at besides its own
_ATTEMPTS = 8  # sizes that are tried until so many work


@dataclass(frozen=True)
class Distilled:
    """What became of a winner. `name` is the skill that was added or strengthened, None for neither."""

    node_id: str
    outcome: Outcome
    reason: str
    name: str | None = None
    state: str = ""
    root: Path | None = None
    evidence: list[Record] = field(default_factory=list)


class Rejected(Exception):
    """The winner fails the admission test; the text says why in one line."""


def distil(
    kb: KnowledgeBase,
    executor: Executor,
    reference: str,
    *,
    timing_s: float = 4.0,
    tell: Callable[[str], None] = lambda _: None,
) -> Distilled:
    """Make a skill of a node, or of the best node of a run (an id, a unique prefix, or `last`).

    It is measured again on fresh seeds, where it must win, and on other sizes of the problem, at one of which
    at least it must be right and at none wrong. A pattern that a skill has already strengthens that one's
    evidence. Raises RunNotFound, ProblemError, TargetUnavailable, and what storing raises.
    """
    run, step, private = _winner(kb, reference)
    node = step.node
    try:
        measurer = Measurer(executor, run.info.target, timing_s)
        executor.require(run.info.target)
        return _Admission(kb, measurer, run, step, private, tell).examine()
    except Rejected as reason:
        return Distilled(node.node_id, "rejected", str(reason))


def _winner(kb: KnowledgeBase, reference: str) -> tuple[StoredRun, Step, frozenset[str]]:
    """The run, the step that is meant, and the nodes whose words must stay on this machine."""
    with kb.session() as session:
        row = session.exec(select(Node).where(Node.id == reference)).first()
    store = RunStore(kb)
    run = store.load(row.run_id if row is not None else reference)
    wanted = reference if row is not None else run.info.best_node_id
    steps = steps_of(kb, run)
    step = next((s for s in steps if s.node.node_id == wanted), None)
    if step is None:
        what = (
            f"{reference} is the problem itself"
            if row is not None
            else f"run {run.info.run_id} has no winner"
        )
        raise RunNotFound(f"{what}: there is nothing to make a skill of", "see: kernelevolve runs show RUN")
    return run, step, frozenset(s.node.node_id for s in steps if s.private)


@dataclass(frozen=True)
class _Admission:
    kb: KnowledgeBase
    measurer: Measurer
    run: StoredRun
    step: Step
    private: frozenset[str]
    tell: Callable[[str], None]

    def examine(self) -> Distilled:
        node = self.step.node
        if node.compiler_made:
            raise Rejected("the compiler made it: torch.compile has it already")
        if not node.correct or self.step.refuted:
            raise Rejected(
                f"it is not correct: {node.status if not node.correct else 'refuted when measured again'}"
            )
        pattern = self._pattern()
        own = Case(self.run.info.problem, self.run.problem_source)
        self.tell("measuring it again on fresh seeds")
        facts = self.measurer.facts(own)
        first = self._measured(pattern, own, facts)
        if not is_win(first):
            raise Rejected(f"its win is not confirmed: {_words(first)}")
        others = self._at_other_sizes(pattern, own, facts, named=len(first.get("per_shape") or ()) > 1)
        records = [first, *others]
        folders = SkillFolders(self.kb)
        twin = folders.twin(pattern)
        if twin is not None:
            folders.strengthen(twin, records, self.run.info.run_id)
            reason = f"{twin} says the same: its evidence has {len(records)} more measurements"
            skill = self.kb.skill(twin)
            return Distilled(node.node_id, "strengthened", reason, twin, skill.state, skill.root, records)
        applies = applicability(facts, records, self.run.info.target)
        found = Found(records, applies, self._tried(pattern, own))
        source = RunStore(self.kb).source(self.step.node)
        name = folders.add(pattern, Origin(self.run, self.step, source, self.private), found)
        skill = self.kb.skill(name)
        reason = "a win on a problem other than its own makes it recommended: kernelevolve skills verify"
        return Distilled(node.node_id, "added", reason, name, skill.state, skill.root, records)

    def _pattern(self) -> Pattern:
        node = self.step.node
        if node.genome is None or "genes" not in node.genome:
            return Kernel(RunStore(self.kb).source(self.step.node))
        genome = Genome.from_json(node.genome)
        if not genome.skills():
            raise Rejected("it is made of library calls alone")
        records = {r.name: r for r in curated(genome.skills())}
        for name in genome.skills() - set(records):
            records[name] = self.kb.skill(name)
        return Composition(genome, tuple(ExecutableSkill(records[name]) for name in sorted(records)))

    def _measured(self, pattern: Pattern, case: Case, facts: ProblemFacts) -> Record:
        about: dict[str, Any] = {"run": self.run.info.run_id, "node": self.step.node.node_id}
        if isinstance(pattern, Composition):
            genes = pattern.genome.genes.items()
            about["params"] = {key: gene.params for key, gene in genes if gene.skill is not None}
        return self.measurer.measure(pattern, case, facts, about)

    def _at_other_sizes(
        self, pattern: Pattern, own: Case, facts: ProblemFacts, *, named: bool
    ) -> list[Record]:
        """Measurements at other sizes of the problem; there need be none where its META has `named` some,
        which were judged with its own. Raises Rejected.
        """
        records: list[Record] = []
        shapes = {_shapes(facts)}
        refused = ""
        for number, (size, source) in enumerate(variants(own.source)):
            if len(records) >= _OTHER_SIZES or number >= _ATTEMPTS:
                break
            case = Case(own.name, source, size)
            try:
                other = self.measurer.facts(case)
            except ProblemError:
                continue  # sizes that do not fit together
            if _shapes(other) in shapes:
                continue
            shapes.add(_shapes(other))
            self.tell(f"measuring it at other sizes: {size}")
            record = self._measured(pattern, case, other)
            if record["status"] in ("incorrect", "rejected"):
                raise Rejected(f"it is wrong at other sizes ({size}): {_words(record)}")
            if record["status"] != "correct":
                refused = refused or f"{size}: {_words(record)}"
                continue
            records.append(record)
        if not records and not named:
            why = (
                f"it works at its own sizes alone ({refused})"
                if refused
                else "the problem has no other sizes"
            )
            raise Rejected(why)
        return records

    def _tried(self, pattern: Pattern, own: Case) -> dict[str, list[int]]:
        """The values of each parameter that are right: the winner's, half and twice of it."""
        if not isinstance(pattern, Kernel):
            return {}
        found: dict[str, list[int]] = {}
        for name, value in parameters(pattern.source).items():
            self.tell(f"trying other values of {name}")
            others = [v for v in (value // 2, value * 2) if v > 0]
            right = [
                v for v in others if self.measurer.correct(own, with_parameters(pattern.source, {name: v}))
            ]
            found[name] = sorted([value, *right])
        return found


def _shapes(facts: ProblemFacts) -> tuple[tuple[int, ...], ...]:
    return tuple(spec.shape for spec in facts.inputs)


def _words(record: Mapping[str, Any]) -> str:
    if record["status"] == "correct":
        interval = record.get("speedup_ci")
        return f"{record['speedup']:.2f}x [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else "not timed"
    return f"{record['status']}: {record.get('reason')}" if record.get("reason") else str(record["status"])
