"""Evidence holds for the machine it was measured on: another compiler, driver or device makes it stale."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlmodel import col, select

from harness.target import get_target, list_targets
from harness.worker import environment
from kb.tables import Skill, SkillEvidence

if TYPE_CHECKING:
    from kb import KnowledgeBase

#: What compiles a kernel of each language. Everything else of an environment may change without doubt.
_COMPILERS = {
    "cpp": ("compiler",),
    "triton": ("triton", "cuda"),
    "cuda": ("compiler", "cuda"),
    "cute": ("nvidia-cutlass-dsl", "cuda"),
}
_ANY = ("compiler", "triton", "cuda", "nvidia-cutlass-dsl")
_DRIVERS = {"nvidia": Path("/sys/module/nvidia/version"), "amd": Path("/sys/module/amdgpu/version")}


def mark_stale(kb: KnowledgeBase) -> int:
    """Compare all evidence with this machine, and write into each record that differs why it is `stale`.

    Evidence of targets that this machine does not have stays as it is. Returns how many records are stale.
    """
    machines: dict[str, Mapping[str, str] | None] = {}
    stale = 0
    with kb.session() as session:
        rows = session.exec(
            select(SkillEvidence, Skill).join(Skill, col(Skill.id) == col(SkillEvidence.skill_id))
        ).all()
        for evidence, skill in rows:
            target = str(evidence.record.get("target") or skill.scope)
            if target not in machines:
                machines[target] = machine(target)
            here = machines[target]
            if here is None:
                continue
            reason = difference(evidence.record, here, skill.language)
            stale += reason is not None
            if evidence.record.get("stale") != reason:
                record = {k: v for k, v in evidence.record.items() if k != "stale"}
                evidence.record = {**record, "stale": reason} if reason else record
                session.add(evidence)
        session.commit()
    return stale


def machine(target: str) -> dict[str, str] | None:
    """Device, driver and compilers as a measurement for `target` would name them; None if it is not here."""
    if target not in {t.name for t in list_targets()} or not get_target(target).available()[0]:
        return None
    found = environment.facts()
    place = get_target(target)
    if place.device == "cpu":
        return {**found, "device": environment.cpu_name()}
    import torch

    found["device"] = torch.cuda.get_device_name()
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    driver = _DRIVERS.get(place.vendor)
    if driver is not None and driver.is_file():
        found["driver"] = driver.read_text().strip()
    return found


def difference(record: Mapping[str, Any], here: Mapping[str, str], language: str) -> str | None:
    """What of this machine differs from the one that a record is of, in words; None if nothing that counts.

    A value that either side does not tell is no difference.
    """
    there = {**(record.get("environment") or {}), "device": record.get("device")}
    for key in ("device", "driver", *_COMPILERS.get(language, _ANY)):
        if there.get(key) and here.get(key) and there[key] != here[key]:
            return f"{key} was {there[key]}, is {here[key]}"
    return None
