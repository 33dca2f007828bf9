"""The genome: fusion boundaries, a skill with parameters for each region, compiler flags, and what to
avoid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.recipe.skills import Params

_BASE = ("-O3", "-march=native", "-fopenmp")
_QUICK = (*_BASE, "-fno-math-errno", "-fno-trapping-math")
#: Compiler flags by name. None of them changes the treatment of NaN or the order of additions.
FLAGS: dict[str, tuple[str, ...]] = {
    "relaxed": _QUICK,
    "plain": _BASE,
    "eight-lanes": (*_QUICK, "-DKE_WIDTH=8"),
    "unrolled": (*_QUICK, "-funroll-loops"),
}
FLAG_MOVES = {"relax-flags": "relaxed", "wider-vectors": "relaxed"}


@dataclass(frozen=True)
class Gene:
    """How one region or call is computed. `skill` None leaves it to ATen."""

    skill: str | None
    params: Params = field(default_factory=dict)

    def with_param(self, name: str, value: Any) -> Gene:
        return Gene(self.skill, {**self.params, name: value})


@dataclass(frozen=True)
class Change:
    """One mutation: the gene (`region.param`, `region.skill`, `cuts`, `flags`), old and new value, and its
    move.
    """

    gene: str
    before: Any
    after: Any
    move: str | None = None

    @property
    def mark(self) -> str:
        return f"{self.gene}={self.after}"

    def text(self) -> str:
        if self.gene == "cuts":
            added = sorted(set(self.after) - set(self.before))
            removed = sorted(set(self.before) - set(self.after))
            return (
                f"split the fusion after {', '.join(added)}"
                if added
                else f"fuse again across {', '.join(removed)}"
            )
        return f"{self.gene} from {self.before} to {self.after}"


@dataclass(frozen=True)
class Genome:
    """`avoid` holds marks of changes that failed; `change` is the mutation that made this genome."""

    genes: Mapping[str, Gene]
    cuts: tuple[str, ...] = ()
    flags: str = "relaxed"
    avoid: tuple[str, ...] = ()
    change: Change | None = None

    def skills(self) -> set[str]:
        """Names of the skills in use."""
        return {g.skill for g in self.genes.values() if g.skill is not None}

    def to_json(self) -> dict[str, Any]:
        return {
            "genes": {k: {"skill": g.skill, "params": g.params} for k, g in self.genes.items()},
            "cuts": list(self.cuts),
            "flags": self.flags,
            "avoid": list(self.avoid),
            "change": vars(self.change) if self.change else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Genome:
        change = data.get("change")
        return cls(
            {k: Gene(g["skill"], dict(g["params"])) for k, g in data["genes"].items()},
            tuple(data["cuts"]),
            data["flags"],
            tuple(data["avoid"]),
            Change(**change) if change else None,
        )

    def with_gene(self, key: str, gene: Gene) -> Genome:
        return replace(self, genes={**self.genes, key: gene})

    def apply(self, change: Change) -> Genome:
        """The genome after a change."""
        if change.gene == "cuts":
            return replace(self, cuts=tuple(sorted(change.after)), change=change)
        if change.gene == "flags":
            return replace(self, flags=change.after, change=change)
        key, _, name = change.gene.rpartition(".")
        if name == "skill":
            return replace(self.with_gene(key, Gene(change.after)), change=change)
        return replace(self.with_gene(key, self.genes[key].with_param(name, change.after)), change=change)

    def reverted(self) -> Genome:
        """The genome before its last change, which it will avoid from now on."""
        if self.change is None:
            return self
        back = Change(self.change.gene, self.change.after, self.change.before)
        return replace(self.apply(back), change=None, avoid=tuple(sorted({*self.avoid, self.change.mark})))


def flag_changes(genome: Genome) -> Iterator[Change]:
    for name in FLAGS:
        if name != genome.flags:
            move = next((m for m, value in FLAG_MOVES.items() if value == name), None)
            yield Change("flags", genome.flags, name, move)
