"""The harness's data model: plain dataclasses that travel as JSON between processes and machines."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from harness.worker.text import one_line, printable

SCHEMA_VERSION = 1

Status = Literal[
    "correct",
    "compiled",
    "incorrect",
    "compile_error",
    "runtime_error",
    "timeout",
    "rejected",
    "invalid_problem",
    "harness_error",
]
# Of commands that end with one verdict: 1 judged and found wanting, 2 wrong input, 3 the harness failed.
EXIT_CODES: dict[Status, int] = {
    "correct": 0,
    "compiled": 0,
    "incorrect": 1,
    "compile_error": 1,
    "runtime_error": 1,
    "timeout": 1,
    "rejected": 1,
    "invalid_problem": 2,
    "harness_error": 3,
}
Baseline = Literal["eager", "compile"]
Policy = Literal["library", "pure"]
Precision = Literal["strict", "tf32", "as-declared"]
Profile = Literal["none", "static", "light", "deep"]


@dataclass(frozen=True)
class TensorSpec:
    """Shape, strides (in elements) and dtype (`float32`, `int64`, …) of one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...]


@dataclass(frozen=True)
class GraphNode:
    """One ATen call of the traced reference; `op` is the overload's name, such as `aten.add.Tensor`.

    `args` and `kwargs` are JSON values; a reference to another value is `{"ref": name}`, where the name is
    that of an input, parameter, buffer, constant or node (all names of one graph differ). A dtype is
    `{"dtype": "float32"}`, likewise `device`, `layout` and `memory_format`. `outputs` has one spec for each
    tensor the call returns; a multi-output call is read through nodes with `op == "getitem"` and args [ref,
    index].
    """

    name: str
    op: str
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: list[TensorSpec]


@dataclass(frozen=True)
class ProblemFacts:
    """What one trusted look at the reference tells: interface, ATen graph, weaknesses, eager time.

    `inputs` holds the tensor arguments of `forward` in order; `parameters` and `buffers` carry the
    state-dict names. `trace_error` says why `nodes` is empty when the reference could not be exported.
    `bytes_min` counts inputs, state and outputs once each.

    `output_refs` holds, in order, a reference (or a plain value) for each leaf of what forward returns, and
    `output_structure` how the leaves are nested: `{"t": i}` is leaf tensor i, `{"v": type}` a plain value,
    `{"list"|"tuple": [...]}`, `{"dict": [[key, ...], ...]}`. `input_structure` is the same for forward's
    positional arguments (a list), with plain values in full: `{"v": 0.25}`. `argument_names` are forward's
    own. Constants (tensors that are neither parameters nor buffers of the state dict) have their values in
    `constant_values`, as nested lists. `training` is the mode the reference is in. `ops` and `notes` are
    what the problem's META says for people and models.
    """

    name: str
    inputs: list[TensorSpec]
    parameters: list[TensorSpec]
    buffers: list[TensorSpec]
    outputs: list[TensorSpec]
    nodes: list[GraphNode]
    output_refs: list[Any]
    constants: list[TensorSpec] = field(default_factory=list)
    flags: list[dict[str, str]] = field(default_factory=list)
    eager_ms: float | None = None
    bytes_min: int = 0
    trace_error: str | None = None
    constant_values: dict[str, Any] = field(default_factory=dict)
    input_structure: Any = None
    output_structure: Any = None
    argument_names: list[str] = field(default_factory=list)
    training: bool = True
    ops: list[str] = field(default_factory=list)
    notes: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProblemFacts:
        specs: dict[str, Any] = {
            k: [_spec(s) for s in data[k]]
            for k in ("inputs", "parameters", "buffers", "outputs", "constants")
        }
        nodes = [GraphNode(**{**n, "outputs": [_spec(s) for s in n["outputs"]]}) for n in data["nodes"]]
        known = {f.name for f in fields(cls)} - set(specs) - {"nodes"}
        rest = {name: value for name, value in data.items() if name in known}
        return cls(**specs, nodes=nodes, **rest)


@dataclass(frozen=True)
class EvaluationRequest:
    """One question to the judge. Sources are texts, so that a request can travel to another machine.

    Time limits are in seconds, memory in bytes. `seed` is None for a secret one. `timing_budget_s` bounds the
    time spent measuring; 0 checks correctness only. With `measure_compile`, torch.compile is timed beside
    eager. `policy`: `pure` wants every compute kernel to be the candidate's own, `library` allows calls of
    vendor libraries. `precision`: `strict` holds float32 to float32, `tf32` allows TF32 products on both
    sides, `as-declared` takes what the problem's META says. `profile`: how closely a correct candidate is
    looked at. `require_sandbox`: a weaker jail is an error instead of a flag. With `emit`, what compilers
    made of the candidate's kernels comes back too (on a device: of a correct candidate's, with a profile).

    `screen` is a first look for those who judge in full later: build and rounds (and a profile), no times, no
    evidence against cheating, no other inputs; `correct` then carries the flag `screened`. `sizes` sets
    module-level names of the problem to smaller numbers, instead of the shapes of META.
    """

    problem: str
    candidate: str
    problem_name: str = "problem"
    target: str = "cpu"
    baseline: Baseline = "eager"
    measure_compile: bool = False
    rounds: int = 5
    seed: int | None = None
    build_limit_s: float = 120.0
    run_limit_s: float = 30.0
    memory_limit: int = 8 << 30
    timing_budget_s: float = 3.0
    threads: int | None = None
    policy: Policy = "library"
    precision: Precision = "strict"
    profile: Profile = "none"
    require_sandbox: bool = False
    emit: bool = False
    screen: bool = False
    sizes: dict[str, int] | None = None


@dataclass
class Evaluation:
    """The verdict on one candidate (field meanings: docs/architecture.md, "Evaluation")."""

    status: Status
    reason: str = ""
    speedup: float | None = None
    speedup_ci: tuple[float, float] | None = None
    win: bool | None = None
    spent_s: dict[str, float] = field(default_factory=dict)
    baseline: Baseline = "eager"
    baselines: dict[str, float | None] = field(default_factory=lambda: {"eager_ms": None, "compile_ms": None})
    speedups: dict[str, dict[str, float]] = field(default_factory=dict)
    per_shape: list[dict[str, Any]] = field(default_factory=list)
    cost: float | None = None
    candidate_ms: dict[str, float] | None = None
    correctness: dict[str, Any] | None = None
    flags: list[dict[str, str]] = field(default_factory=list)
    custom_kernel_share: float | None = None
    profile: dict[str, Any] | None = None
    target: str = "cpu"
    device: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    timed: bool = False
    log: str = ""
    emitted: dict[str, str] = field(default_factory=dict)  # files in base 64, by name

    def write_emitted(self, folder: Path) -> None:
        """Moves what compilers made out of the evaluation into a folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.emitted.items():
            (folder / Path(name).name).write_bytes(base64.b64decode(content))
        self.emitted = {}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON, its texts free of what could steer a terminal, its reason one line."""
        data = printable(asdict(self))
        return {"schema_version": SCHEMA_VERSION, **data, "reason": one_line(self.reason)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evaluation:
        known = {f.name for f in fields(cls)}
        kwargs = {k: v for k, v in data.items() if k in known}
        if kwargs.get("speedup_ci") is not None:
            kwargs["speedup_ci"] = tuple(kwargs["speedup_ci"])
        return cls(**kwargs)


def _spec(data: dict[str, Any]) -> TensorSpec:
    return TensorSpec(data["name"], tuple(data["shape"]), data["dtype"], tuple(data["stride"]))
