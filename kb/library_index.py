"""Makes `kb/library/index.md` from the documents' front matter: `python -m kb.library_index`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

LIBRARY = Path(__file__).parent / "library"
_TITLES = {
    "constraint": "Constraints: what every candidate must keep to",
    "guidance": "Guidance: what makes kernels fast, and what symptoms mean",
    "hardware": "Hardware: facts of the targets",
    "skill": "Skills: parametrised kernels with measured evidence",
}
_HEAD = """# Index of the curated library

Made by `python -m kb.library_index` from the front matter of the documents. Do not edit.
"""


def generate(root: Path = LIBRARY) -> str:
    """The index as Markdown: one table per kind, one line per document, ordered by path.

    Raises ValueError for a document without the front matter that the index needs.
    """
    tables: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.md")):
        relative = path.relative_to(root)
        is_skill = path.name == "SKILL.md"
        inside_skill = relative.parts[0] == "skills"
        if relative.as_posix() == "index.md" or (inside_skill and not is_skill):
            continue
        meta = _front_matter(path)
        if is_skill:
            details = meta.get("metadata") or {}
            label = meta.get("scope") or details.get("scope") or "generic"
            row = (meta["name"], relative, label, str(meta["description"]).strip())
            tables["skill"].append(_row(*row))
        else:
            about = ", ".join(meta.get("bottleneck") or []) or "any"
            tables[meta["kind"]].append(_row(meta["title"], relative, meta["scope"], about))
    parts = [_HEAD]
    for kind in [*_TITLES, *sorted(set(tables) - set(_TITLES))]:
        if tables[kind]:
            last = "what for" if kind == "skill" else "bottleneck"
            head = f"| document | scope | {last} |\n|---|---|---|"
            parts.append("\n".join([f"## {_TITLES.get(kind, kind)}\n", head, *tables[kind]]) + "\n")
    return "\n".join(parts)


def _row(title: str, path: Path, scope: str, about: str) -> str:
    cells = (f"[{title}]({path.as_posix()})", f"`{scope}`", about)
    return "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"


def _front_matter(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    parts = text.split("---\n", 2)
    meta = yaml.safe_load(parts[1]) if text.startswith("---\n") and len(parts) == 3 else None
    if not isinstance(meta, dict):
        raise ValueError(f"{path}: no front matter")
    required = ("name", "description") if path.name == "SKILL.md" else ("title", "kind", "scope")
    missing = [key for key in required if not meta.get(key)]
    if missing:
        raise ValueError(f"{path}: front matter lacks {', '.join(missing)}")
    return meta


def write(root: Path = LIBRARY) -> Path:
    """Write the index and return its path."""
    target = root / "index.md"
    target.write_text(generate(root), encoding="utf-8")
    return target


if __name__ == "__main__":
    write()
