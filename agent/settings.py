"""What a search is asked to do, and what it answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_args

from agent.errors import SettingsInvalid
from agent.stop import StopRules
from agent.warm_start import parse_probability
from harness.worker.model import Profile

# Parameters of models that the search itself decides, and endings of names that say that they are secrets.
_OURS = ("model", "model_provider", "base_url", "timeout", "max_retries", "stream_usage", "streaming", "n")
_SECRET = ("key", "secret", "password", "headers", "credentials", "auth_token", "access_token")


@dataclass(frozen=True)
class SearchSettings:
    """The settings of one run; stored with it, so nothing secret belongs here.

    `problem` is a path or problem spec. `generator` names one or, separated by commas, several
    (`agent.generators`); `base_url` is the address of an OpenAI-compatible server, `parameters` are sent to
    chat models, whose answers are streamed with `stream`. `drafts` independent candidates come first.
    `budget_tokens` bounds each prompt. `step_timing_s` bounds the time spent measuring one candidate; the
    winner is measured longer. `threads` is the number of CPU threads, None for all. Time limits are in
    seconds, memory in bytes. `concurrency` steps are under way at once; a run with one is reproducible from
    its seed. `max_tokens` counts prompts and answers; `near_roofline` is the share, at most 1, of the nearest
    ceiling that is good enough. With `cascade`, cheap looks come before the full evaluation of a candidate;
    `profile` is for each new best. After a model's step, `tune` evaluations go to numbers in its kernel; they
    count as steps. `warm_start` is the probability that a step brings in what an earlier run found, or
    `adaptive`; with `earlier_runs`, prompts tell what failed in earlier runs of the problem (None: unless the
    generator is `recipe`, which reads no prompt).
    """

    problem: str
    target: str = "cpu"
    policy: str = "greedy"
    generator: str = "recipe"
    base_url: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    stream: bool = False
    steps: int = 30
    time_limit_s: float | None = None
    patience: int | None = None
    target_speedup: float | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    near_roofline: float | None = None
    concurrency: int = 1
    drafts: int = 4
    seed: int = 0
    budget_tokens: int = 16_000
    step_timing_s: float = 2.0
    build_limit_s: float = 120.0
    run_limit_s: float = 30.0
    memory_limit: int = 8 << 30
    threads: int | None = None
    cascade: bool = True
    profile: str = "none"
    tune: int = 0
    warm_start: str = "0"
    earlier_runs: bool | None = None

    def __post_init__(self) -> None:
        positive = (
            "steps", "budget_tokens", "step_timing_s", "build_limit_s", "run_limit_s", "memory_limit",
            "concurrency",
        )  # fmt: skip
        optional = (
            "time_limit_s", "patience", "target_speedup", "threads", "max_tokens", "max_cost_usd",
            "near_roofline",
        )  # fmt: skip
        for name in positive + optional:
            value = getattr(self, name)
            if (value is None and name not in optional) or (value is not None and not value > 0):
                raise SettingsInvalid(f"{name} must be greater than 0, not {value}")
        if self.near_roofline is not None and self.near_roofline > 1:
            raise SettingsInvalid(f"near_roofline is a share of 1, not {self.near_roofline:g}")
        if self.drafts < 1:
            raise SettingsInvalid(f"drafts must be at least 1, not {self.drafts}")
        for name in self.parameters:
            if name in _OURS:
                raise SettingsInvalid(f"the parameter {name} is set by the search", "see: search --help")
            if name.lower().endswith(_SECRET):
                raise SettingsInvalid(
                    f"no credentials such as {name} in parameters: they are stored with the run",
                    "set the provider's key in the environment",
                )
        if self.tune < 0:
            raise SettingsInvalid(f"tune must not be negative, not {self.tune}")
        parse_probability(self.warm_start)
        if self.profile not in get_args(Profile):
            raise SettingsInvalid(
                f"unknown profile {self.profile!r}", f"one of {', '.join(get_args(Profile))}"
            )

    @property
    def recalls(self) -> bool:
        """Whether earlier runs of the problem are looked up for what failed in them."""
        return self.generator != "recipe" if self.earlier_runs is None else self.earlier_runs

    @property
    def stop_rules(self) -> StopRules:
        return StopRules(
            steps=self.steps,
            time_limit_s=self.time_limit_s,
            patience=self.patience,
            target_speedup=self.target_speedup,
            tokens=self.max_tokens,
            cost_usd=self.max_cost_usd,
            near_roofline=self.near_roofline,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SearchSettings:
        unknown = set(data) - {f.name for f in fields(cls)}
        if unknown:
            raise SettingsInvalid(
                f"the run was made with settings unknown here: {', '.join(sorted(unknown))}",
                "use the version that made it",
            )
        return cls(**data)


@dataclass(frozen=True)
class BestResult:
    """The winner as measured last. `verified` tells whether that was the long final measurement.

    `speedup` and its 95 % interval are against eager; `speedups` has every baseline that was timed.
    `baselines` are milliseconds. `path` is the winning source.
    """

    node_id: str
    speedup: float | None
    speedup_ci: tuple[float, float] | None
    baselines: dict[str, float | None]
    path: str
    step: int
    candidate_ms: dict[str, float] | None
    speedups: dict[str, dict[str, float]]
    compiler_made: bool
    verified: bool


@dataclass(frozen=True)
class SearchResult:
    """What a search comes to. `valid` counts correct candidates; `cost_usd` is None when unknown."""

    run_id: str
    best: BestResult | None
    steps: int
    valid: int
    stop_reason: str
    tokens: int
    cost_usd: float | None
    elapsed_s: float
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SearchResult:
        best = data["best"]
        if best is not None:
            ci = best["speedup_ci"]
            best = BestResult(**{**best, "speedup_ci": tuple(ci) if ci else None})
        return cls(**{**data, "best": best, "notes": tuple(data["notes"])})
