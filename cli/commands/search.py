"""`kernelevolve search`: run or resume a search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import Interrupted, UsageProblem
from cli.options import PROBLEM_HELP, ExecutorOption, JsonFlag, ProfileChoice, complete_target
from cli.output import clean, emit, milliseconds, out, speedup
from cli.session import executor, knowledge_base, state_of

if TYPE_CHECKING:
    from rich.table import Table

    from agent import SearchResult, SearchSettings
    from agent.settings import BestResult
    from harness.executor import Executor
    from kb import KnowledgeBase


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kernelevolve search examples/problems/softmax_scale_mask.py --steps 16")(
        search
    )


def search(
    context: typer.Context,
    problem: Annotated[
        str | None,
        typer.Argument(help=PROBLEM_HELP + " Not with --resume.", show_default=False),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", "-t", help="Where the kernel runs.", autocompletion=complete_target)
    ] = "cpu",
    generator: Annotated[
        list[str] | None,
        typer.Option(
            help="Who writes candidates: recipe (needs no model), a chat model as provider:model or "
            "provider:model@ADDRESS, exchange or exchange:DIR (a folder of prompts and answers), replay:RUN. "
            "Repeat it, or use commas, for several: the better and cheaper ones are asked more.",
            show_default="recipe",
        ),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Address of an OpenAI-compatible server for provider:model.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Sent to chat models, such as temperature=0.7; repeat it. One that a provider rejects is "
            "left out, and that is said.",
        ),
    ] = None,
    stream: Annotated[bool, typer.Option(help="Show how a chat model's answer comes in.")] = False,
    policy: Annotated[
        str,
        typer.Option(
            help="How parents are picked: greedy, beam, mcts, evolutionary, idea-first, linear, one-shot."
        ),
    ] = "greedy",
    drafts: Annotated[
        int,
        typer.Option(min=1, help="Independent drafts that come first; with idea-first, ideas of a round."),
    ] = 4,
    steps: Annotated[int, typer.Option(min=1, help="Stop after so many candidates.")] = 30,
    time_limit: Annotated[float | None, typer.Option(help="Stop after so many seconds.")] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many steps without progress.")
    ] = None,
    target_speedup: Annotated[float | None, typer.Option(help="Stop at this speedup against eager.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many tokens of prompts and answers.")
    ] = None,
    max_cost: Annotated[
        float | None, typer.Option(help="Stop after so many US dollars, as the provider's prices say.")
    ] = None,
    near_roofline: Annotated[
        float | None,
        typer.Option(help="Stop at this share (0 to 1) of what memory or arithmetic allows here."),
    ] = None,
    concurrency: Annotated[
        int,
        typer.Option(min=1, help="Steps under way at once; each device still judges one at a time."),
    ] = 1,
    seed: Annotated[int, typer.Option(help="Everything random in the search comes from it.")] = 0,
    budget_tokens: Annotated[int, typer.Option(min=500, help="Token budget of each prompt.")] = 16_000,
    cascade: Annotated[
        bool, typer.Option(help="Look at a candidate's text and at small sizes before the full evaluation.")
    ] = True,
    profile: Annotated[
        ProfileChoice, typer.Option(help="How closely each new best is looked at; nothing does on cpu.")
    ] = ProfileChoice.none,
    tune: Annotated[
        int,
        typer.Option(
            min=0,
            help="After a model's step, try so many other tile sizes and the like: steps without a model.",
        ),
    ] = 0,
    warm_start: Annotated[
        str,
        typer.Option(
            metavar="0|P|adaptive",
            help="Probability that a step brings in what an earlier run found; it is judged anew.",
        ),
    ] = "0",
    earlier_runs: Annotated[
        bool | None,
        typer.Option(
            "--earlier-runs/--no-earlier-runs",
            help="Tell the model what failed in earlier runs of the problem.  [default: unless recipe]",
            show_default=False,
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Estimate tokens, money and time; generate and store nothing.")
    ] = False,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Continue this run with its own settings; models may be others."),
    ] = None,
    where: ExecutorOption = "local",
    as_json: JsonFlag = False,
) -> None:
    """Search for a fast, correct kernel. Every finished step is kept: an interrupted run can be resumed.

    Exit code 0: a correct kernel was found; 1: none was.
    """
    from cli.search_progress import SearchProgress
    from cli.verdict import problem_weaknesses
    from harness.problem import load_problem
    from harness.problem_checks import stored

    state = state_of(context)
    if (problem is None) == (resume is None):
        raise UsageProblem("give either a PROBLEM or --resume RUN", "kernelevolve search --help")
    models = _models(generator, base_url, parameter, stream)
    changes = {}
    if resume is not None:
        _reject_settings(context)
        changes = {name: models[name] for name in _MODELS if _given(context, _MODELS[name])}
    with knowledge_base(state) as kb, executor(state, where) as judge, SearchProgress() as progress:
        from agent import Search, SearchSettings
        from agent.distil import mark_stale

        mark_stale(kb)  # a skill whose evidence is of another compiler is not recommended

        try:
            if resume is not None:
                result = Search.resume(kb, judge, resume, on_event=progress.on_event, changes=changes)
            else:
                settings = SearchSettings(
                    problem=str(problem),
                    target=target,
                    policy=policy,
                    drafts=drafts,
                    **models,
                    steps=steps,
                    time_limit_s=time_limit,
                    patience=patience,
                    target_speedup=target_speedup,
                    max_tokens=max_tokens,
                    max_cost_usd=max_cost,
                    near_roofline=near_roofline,
                    concurrency=concurrency,
                    seed=seed,
                    budget_tokens=budget_tokens,
                    cascade=cascade,
                    profile=profile.value,
                    tune=tune,
                    warm_start=warm_start,
                    earlier_runs=earlier_runs,
                )
                if plan:
                    _plan(kb, judge, settings, as_json=as_json)
                    return
                begun = Search(kb, judge, settings, on_event=progress.on_event)
                judge.require(target)
                reference = load_problem(str(problem), judge.cache_dir)
                if stored(judge.cache_dir, reference.source) is None:
                    progress.activity("looking for weaknesses of the problem")
                    judge.check(reference.source, reference.name)
                result = begun.run()
        except KeyboardInterrupt:
            if progress.run_id is None:
                raise
            raise Interrupted(
                f"interrupted; run {progress.run_id} keeps every finished step",
                f"kernelevolve search --resume {progress.run_id}",
            ) from None
        progress.activity("writing the report")
        from cli.report import collect, report_path, write

        contents = collect(kb, result.run_id)
        report = write(contents, report_path(kb, result.run_id))
    if as_json:
        weak = problem_weaknesses(contents["nodes"])
        emit({**result.to_json(), "report": report, "problem_weaknesses": weak})
    else:
        _show(result, report, contents["verdict"].text)
    if result.best is None:
        raise typer.Exit(1)


def _plan(kb: KnowledgeBase, judge: Executor, settings: SearchSettings, *, as_json: bool) -> None:
    from agent.generators import make_generator
    from agent.plan import plan
    from harness.problem import load_problem

    generator = make_generator(settings, judge, kb)  # what cannot be used is refused before it is planned for
    judge.require(settings.target)
    problem = load_problem(settings.problem, kb.home / "cache")
    facts = judge.describe(problem.source, problem.name)
    found = plan(kb, settings, problem, facts, hosted=generator.hosted)
    if as_json:
        emit(found.to_json())
        return
    console = out()
    console.print(f"at most {found.steps} steps; the first prompt has {found.prompt_tokens:,} tokens")
    for label, estimate, form in (
        ("tokens", found.tokens, "{:,.0f}"),
        ("cost", found.cost_usd, "${:,.2f}"),
        ("seconds", found.time_s, "{:,.0f}"),
    ):
        if estimate.expected is None or estimate.low is None or estimate.high is None:
            text = "unknown"
        else:
            about, low, high = (form.format(v) for v in (estimate.expected, estimate.low, estimate.high))
            text = about if low == high else f"about {about} ({low} to {high})"
        line = f"{label:<9}{text}: {clean(estimate.basis)}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


# What may change when a run is resumed: the setting and its option.
_MODELS = {"generator": "generator", "base_url": "base_url", "parameters": "parameter", "stream": "stream"}


def _models(
    generators: list[str] | None, base_url: str | None, parameters: list[str] | None, stream: bool
) -> dict[str, Any]:
    """The settings of a run that say who writes its candidates. Raises UsageProblem."""
    chosen = {}
    for entry in parameters or ():
        name, equals, value = entry.partition("=")
        if not (equals and name.isidentifier()):
            raise UsageProblem(f"--parameter {entry!r} is not NAME=VALUE", "such as temperature=0.7")
        try:
            chosen[name] = json.loads(value)
        except ValueError:
            chosen[name] = value  # a word needs no quotes
    return {
        "generator": ",".join(generators or ["recipe"]),
        "base_url": base_url,
        "parameters": chosen,
        "stream": stream,
    }


def _given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _reject_settings(context: typer.Context) -> None:
    """A resumed run goes on as it began; an option that would be ignored is an error instead."""
    free = ("resume", "as_json", "problem", "where", *_MODELS.values())
    given = [name for name in context.params if name not in free and _given(context, name)]
    if given:
        options = ", ".join("--" + name.replace("_", "-") for name in given)
        raise UsageProblem(
            f"{options} cannot be combined with --resume", "a resumed run keeps its own settings"
        )


def _show(result: SearchResult, report: Path, sentence: str) -> None:
    console = out()
    rows = [
        ("run", result.run_id),
        ("steps", f"{result.steps}, {result.valid} correct"),
        ("stopped", result.stop_reason),
    ]
    if result.tokens:
        cost = "" if result.cost_usd is None else f", ${result.cost_usd:.2f}"
        rows.append(("tokens", f"{result.tokens:,}{cost}"))
    if result.best is not None:
        console.print(_table(result.best))
        rows.append(("source", result.best.path))
    rows.append(("report", str(report)))
    console.print(sentence, style="bold", markup=False, highlight=False, soft_wrap=True)
    for label, value in rows:
        console.print(f"{label:<9}{clean(value)}", markup=False, highlight=False, soft_wrap=True)


def _table(best: BestResult) -> Table:
    from rich import box
    from rich.table import Table

    from cli.verdict import against

    table = Table("", "time", "speedup of the best (95 % interval)", box=box.SIMPLE_HEAD, pad_edge=False)
    measured = {"speedups": best.speedups, "speedup": best.speedup, "speedup_ci": best.speedup_ci}
    for label, baseline in (("baseline eager", "eager"), ("baseline torch.compile", "compile")):
        speed = against(measured, baseline)
        number = "–" if speed is None else speedup(speed.value, speed.interval)
        table.add_row(label, milliseconds(best.baselines.get(f"{baseline}_ms")), number)
    label = "best (the compiler's own code)" if best.compiler_made else f"best (step {best.step})"
    table.add_row(label, milliseconds((best.candidate_ms or {}).get("median")), "")
    return table
