"""`kernelevolve skills`: the skill library and what was measured with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from cli.commands.skills_distil import distil_winner, verify_skills
from cli.options import JsonFlag, OptionalTarget
from cli.output import clean, emit, out
from cli.session import checked_target, knowledge_base, state_of

_STATES = {
    "curated": "written by people, shown wherever it fits",
    "candidate": "distilled from a run; not shown to searches until it has won on another problem",
    "recommended": "distilled from a run, and a win on another problem",
    "stale": "its wins on other problems were measured elsewhere: kernelevolve skills verify",
}


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The skill library and its measured evidence.", rich_markup_mode="rich")
    group.command("list", epilog="Example: kernelevolve skills list --target cpu")(list_skills)
    group.command("show", epilog="Example: kernelevolve skills show softmax-resident")(show_skill)
    group.command("candidates", epilog="Example: kernelevolve skills candidates --target nvidia:sm_90")(
        list_candidates
    )
    group.command("distil", epilog="Example: kernelevolve skills distil last")(distil_winner)
    group.command(
        "verify", epilog="Example: kernelevolve skills verify softmax-resident --problem other_softmax.py"
    )(verify_skills)
    group.command("restore", epilog="Example: kernelevolve skills restore my-skill")(restore_skill)
    app.add_typer(group, name="skills")


def list_skills(context: typer.Context, target: OptionalTarget = None, as_json: JsonFlag = False) -> None:
    """List the skills."""
    with knowledge_base(state_of(context), wait=False) as kb:
        from agent.distil import mark_stale

        checked_target(kb, target)
        mark_stale(kb)
        skills = kb.skills(target=target)
        from kb.credit import retired

        with kb.session() as session:
            gone = retired(session, skills)
    if as_json:
        emit({"skills": [{**_summary(s), "retired": s.name in gone} for s in skills]})
        return
    from rich.table import Table

    table = Table(
        "skill", "target", "language", "state", "evidence", "what it does", box=None, header_style="bold"
    )
    for s in skills:
        stale = _stale(s)
        evidence = f"{len(s.evidence)}, {stale} stale" if stale else str(len(s.evidence))
        state = "retired" if s.name in gone else s.state
        table.add_row(s.name, s.target, s.language, state, evidence, clean(s.description), style=None)
    out().print(table)


def show_skill(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the skill.")],
    as_json: JsonFlag = False,
) -> None:
    """Show one skill: its text, parameter space and evidence."""
    with knowledge_base(state_of(context), wait=False) as kb:
        from agent.distil import mark_stale
        from kb.credit import standing

        mark_stale(kb)
        skill = kb.skill(name)
        credit = standing(kb, skill)
    if as_json:
        emit(
            {
                **_summary(skill),
                "root": skill.root,
                "spec": skill.spec,
                "body": skill.body,
                "evidence": skill.evidence,
                "credit": asdict(credit) if credit else None,
            }
        )
        return
    from rich.markdown import Markdown

    from cli.evidence import credit_line, evidence_table

    console = out()
    console.print(
        f"{skill.name} {skill.version} ({skill.target}, {skill.language})", style="bold", markup=False
    )
    console.print(clean(f"{skill.state}: {_STATES[skill.state]}"), markup=False, soft_wrap=True)
    if credit is not None:
        style = "bold yellow" if credit.retired else None
        console.print(credit_line(credit), style=style, markup=False, highlight=False, soft_wrap=True)
    if origin := skill.spec.get("origin"):
        console.print(clean(f"distilled from {origin['node']}, {origin['problem']}"), markup=False)
    console.print(clean(skill.description), markup=False)
    console.print(Markdown(clean(skill.body)))
    if not skill.evidence:
        console.print("no evidence recorded", style="yellow")
        return
    console.print(evidence_table(skill.evidence))


def restore_skill(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a retired skill.")],
    as_json: JsonFlag = False,
) -> None:
    """Show a retired skill to searches again; what it did before is forgotten."""
    with knowledge_base(state_of(context)) as kb:
        from kb.credit import restore

        restore(kb, kb.skill(name))
    if as_json:
        emit({"restored": name})
    else:
        out().print(f"{name} is shown again", markup=False)


def list_candidates(context: typer.Context, target: OptionalTarget = None, as_json: JsonFlag = False) -> None:
    """List ingested kernels that beat their baseline: what a skill could be made from."""
    with knowledge_base(state_of(context), wait=False) as kb:
        from kb.kernels import skill_candidates

        checked_target(kb, target)
        found = skill_candidates(kb, target)
    if as_json:
        emit({"candidates": [asdict(record) for record in found]})
        return
    from rich.table import Table

    table = Table("kernel", "source", "target", "language", "speedup", box=None, header_style="bold")
    for record in found:
        cells = (record.path, record.source, record.target, record.language, f"{record.best_speedup:.3g}")
        table.add_row(*map(clean, cells))
    out().print(table if found else "no kernel with a measured speedup; ingest sources with their times")


def _summary(skill: Any) -> dict[str, Any]:
    keys = ("skill_id", "name", "version", "description", "target", "language")
    return {
        **{key: getattr(skill, key) for key in keys},
        "state": skill.state,
        "evidence_count": len(skill.evidence),
        "stale": _stale(skill),
    }


def _stale(skill: Any) -> int:
    return sum(bool(record.get("stale")) for record in skill.evidence)
