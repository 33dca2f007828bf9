"""`kernelevolve eval`: the harness's verdict on one candidate."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.options import PROBLEM_HELP, ExecutorOption, JsonFlag, ProfileChoice, TargetOption
from cli.output import clean, emit, milliseconds, out, show_flags, speedup
from cli.session import executor, state_of

if TYPE_CHECKING:
    from rich.console import Console

    from harness import Evaluation


class BaselineChoice(StrEnum):
    """What a candidate's time is divided into."""

    eager = "eager"
    compile = "compile"


class PrecisionChoice(StrEnum):
    """What float32 is held to."""

    strict = "strict"
    tf32 = "tf32"
    as_declared = "as-declared"


class PolicyChoice(StrEnum):
    """Whose kernels may do the work."""

    library = "library"
    pure = "pure"


def register(app: typer.Typer) -> None:
    app.command("eval", epilog="Example: kernelevolve eval problem.py candidate.py --baseline compile")(
        evaluate
    )


def evaluate(
    context: typer.Context,
    problem: Annotated[str, typer.Argument(help=PROBLEM_HELP, show_default=False)],
    candidate: Annotated[Path, typer.Argument(help="A Python file with class ModelNew.", show_default=False)],
    target: TargetOption = "cpu",
    baseline: Annotated[
        BaselineChoice, typer.Option(help="What the speedup is against.")
    ] = BaselineChoice.eager,
    precision: Annotated[
        PrecisionChoice,
        typer.Option(help="What float32 is held to: itself, TF32 on both sides, or what META says."),
    ] = PrecisionChoice.strict,
    profile: Annotated[
        ProfileChoice,
        typer.Option(
            help="Figures of the compiler (static), also of a profiler (light), also counters (deep)."
        ),
    ] = ProfileChoice.none,
    emit_to: Annotated[
        Path | None,
        typer.Option("--emit", help="A folder for what compilers made: ttir, ttgir, ptx, sass, amdgcn …"),
    ] = None,
    policy: Annotated[
        PolicyChoice,
        typer.Option(
            help="pure: every compute kernel is the candidate's own; library: vendor calls are allowed."
        ),
    ] = PolicyChoice.library,
    require_sandbox: Annotated[
        bool, typer.Option("--require-sandbox", help="Fail rather than run with a weaker sandbox.")
    ] = False,
    where: ExecutorOption = "local",
    as_json: JsonFlag = False,
) -> None:
    """Judge one candidate: correctness on fresh inputs, then time against the baseline.

    Exit code 0: correct (or compiled, where the device is absent); 1: any other verdict; 2: the problem is
    invalid; 3: the harness itself failed.
    """
    from cli.files import read_source
    from cli.progress import activity
    from harness import Evaluation, EvaluationRequest
    from harness.errors import ProblemError
    from harness.problem import load_problem
    from harness.target import get_target
    from harness.worker.model import EXIT_CODES

    get_target(target)
    source = read_source(candidate, "candidate")
    try:
        reference = load_problem(problem, state_of(context).settings().home / "cache")
    except ProblemError as error:
        if not Path(problem).is_file():
            raise
        # A file that is no problem is a verdict like any other, not a mistake on the command line.
        evaluation = Evaluation("invalid_problem", str(error), target=target, baseline=baseline.value)
    else:
        request = EvaluationRequest(
            problem=reference.source,
            candidate=source,
            problem_name=reference.name,
            target=target,
            baseline=baseline.value,
            policy=policy.value,
            measure_compile=baseline is BaselineChoice.compile,
            precision=precision.value,
            profile=("static" if emit_to and profile is ProfileChoice.none else profile.value),
            emit=emit_to is not None,
        )
        with (
            executor(state_of(context), where, require_sandbox=require_sandbox) as judge,
            activity("judging the candidate"),
        ):
            evaluation = judge.evaluate(request)
        if emit_to is not None:
            evaluation.write_emitted(emit_to)
    if as_json:
        emit(evaluation.to_json())
    else:
        show_evaluation(out(), evaluation, candidate.name, verbose=state_of(context).verbose)
    raise typer.Exit(EXIT_CODES[evaluation.status])


def show_evaluation(console: Console, evaluation: Evaluation, candidate: str, *, verbose: bool) -> None:
    """A compact verdict: status, what a speedup is worth, numbers, flags and, after a failure, the end of
    the log, in which `candidate` names the file.
    """
    from rich.table import Table

    from cli.tracebacks import own_frames
    from cli.verdict import claim

    good = evaluation.status in ("correct", "compiled")
    verdict = evaluation.status + (f": {evaluation.reason}" if evaluation.reason else "")
    console.print(clean(verdict), style="bold green" if good else "bold red", markup=False, soft_wrap=True)
    if evaluation.speedup is not None:
        said = claim(evaluation.to_json())
        style = "green" if said.level == "good" else "yellow"
        console.print(clean(said.text), style=style, markup=False, highlight=False, soft_wrap=True)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in _rows(evaluation):
        table.add_row(label, clean(value))
    console.print(table)
    show_flags(console, evaluation.flags)
    if not good and evaluation.log.strip():
        log = evaluation.log if verbose else own_frames(evaluation.log, candidate)
        tail = "\n".join(clean(log).strip().splitlines()[-20:])
        console.print(tail, style="dim", markup=False, highlight=False, soft_wrap=True)


def _rows(evaluation: Evaluation) -> list[tuple[str, str]]:
    e = evaluation
    rows: list[tuple[str, str]] = []
    if e.speedup is not None:
        rows.append((f"speedup against {e.baseline}", f"{speedup(e.speedup, e.speedup_ci)} (95 % interval)"))
    rows += [
        (f"speedup against {name}", speedup(other["speedup"], (other["lo"], other["hi"])))
        for name, other in e.speedups.items()
        if name != e.baseline
    ]
    if e.candidate_ms:
        ms: dict[str, Any] = e.candidate_ms
        spread = f"median {milliseconds(ms.get('median'))}, p05 {milliseconds(ms.get('p05'))}"
        rows.append(("candidate", f"{spread}, p95 {milliseconds(ms.get('p95'))}, n {ms.get('n', 0):.0f}"))
    rows += [
        (name.removesuffix("_ms"), milliseconds(value))
        for name, value in e.baselines.items()
        if value is not None
    ]
    for shape in e.per_shape:
        if shape.get("speedup") is not None:
            told = f"{speedup(shape['speedup'], shape['speedup_ci'])}, weight {shape['weight']:g}"
            rows.append((f"shape {shape['name']}", told))
    if e.correctness:
        c = e.correctness
        known = {
            k: c[k] for k in ("rounds", "max_abs_err", "max_rel_err", "atol", "rtol") if c.get(k) is not None
        }
        rows.append(("correctness", ", ".join(f"{k} {v:.3g}" for k, v in known.items())))
    if e.profile:
        rows += _profile_rows(e.profile)
    if e.custom_kernel_share is not None:
        rows.append(("time in custom kernels", f"{100 * e.custom_kernel_share:.0f} %"))
    rows.append(("where", ", ".join(x for x in (e.target, e.device) if x)))
    return rows


def _profile_rows(profile: dict[str, Any]) -> list[tuple[str, str]]:
    """One line for each kernel and configuration that a compiler gave figures for, and what is missing."""
    rows = []
    for kernel in profile.get("static", []):
        config = kernel.get("config", {})
        chosen = {**config.get("constexprs", {}), **{k: v for k, v in config.items() if k != "constexprs"}}
        parts = [f"{kernel['registers']} registers"] if "registers" in kernel else []
        parts.append(f"{kernel.get('shared_bytes', 0)} bytes shared")
        spilled = sum(kernel.get("spills", {}).values())
        parts += [f"spills {spilled}"] if spilled else []
        if "occupancy" in kernel:
            occupancy = kernel["occupancy"]
            parts.append(f"occupancy {occupancy['share']:.0%} ({', '.join(occupancy['limited_by'])})")
        parts += [f"{count} {name}" for name, count in kernel.get("tensor_core", {}).items()]
        settings = " ".join(f"{k}={v}" for k, v in chosen.items())
        rows.append((str(kernel.get("name", "kernel")), f"{settings}: {', '.join(parts)}"))
    return rows + [("missing", str(what)) for what in profile.get("missing", [])]
