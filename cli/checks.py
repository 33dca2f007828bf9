"""The checks behind `doctor`. Each looks at the real thing; none repairs anything."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.session import AppState

OK, WARN, FAIL = "ok", "warn", "fail"
PACKAGES = ("kb", "ingest", "prompts", "agent", "harness", "cli")
# The embedding model, the indexes and compiled candidates need room to grow.
LOW_DISK_BYTES = 2 << 30


@dataclass(frozen=True)
class Check:
    """`status` is ok, warn (something is narrower than it could be) or fail (essential)."""

    name: str
    status: str
    detail: str
    hint: str = ""


def all_checks(state: AppState) -> list[Check]:
    groups: tuple[Callable[[], Iterable[Check]], ...] = (
        _python,
        _packages,
        lambda: _harness(state),
        lambda: _embedding(state),
        lambda: _home(state),
        _gpu,
    )
    checks: list[Check] = []
    for group in groups:
        try:
            checks += group()
        except Exception as error:  # a check that breaks is itself a finding
            from cli.errors import describe

            kind, message, hint, _ = describe(error)
            checks.append(Check(kind, FAIL, message, hint))
    return checks


def _python() -> Iterator[Check]:
    version = platform.python_version()
    good = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Check(
        "python", OK if good else FAIL, f"{version} on {platform.platform()}", "use Python 3.11 to 3.13"
    )


def _packages() -> Iterator[Check]:
    """The packages have plain names: another `agent` earlier on the path would be imported instead."""
    root = Path(__file__).resolve().parent.parent
    strangers = [f"{name} → {where}" for name in PACKAGES if (where := origin(name)) != root / name]
    yield Check(
        "packages",
        FAIL if strangers else OK,
        f"shadowed: {', '.join(strangers)}" if strangers else f"all from {root}",
        "use an environment of its own, and do not run it from a folder with these names",
    )


def origin(package: str) -> Path | None:
    """The folder that `import package` would read, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent


def _harness(state: AppState) -> Iterator[Check]:
    from harness.doctor import checks

    for c in checks(state.settings().home / "cache"):
        yield Check(c.name, OK if c.ok else FAIL if c.essential else WARN, c.detail, c.hint)


def _embedding(state: AppState) -> Iterator[Check]:
    from kb.serving import open_embedder

    settings = state.settings()
    name, embedder = settings.embedding_model, open_embedder(settings)
    length = len(embedder.embed(["a kernel"])[0])
    what = f"{name or 'bundled model'} ({embedder.model_id}), vectors of {length}, by {embedder.runtime}"
    yield Check("embedding", OK, what)


def _home(state: AppState) -> Iterator[Check]:
    settings = state.settings()
    home = settings.home
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        yield Check(
            "home", FAIL, f"{home}: {error.strerror}", "point KERNELEVOLVE_HOME to a folder you may write"
        )
        return
    free = shutil.disk_usage(home).free
    room = f"{home}, {free / 2**30:.1f} GiB free"
    yield Check(
        "home", OK if free > LOW_DISK_BYTES else WARN, room, "free some space: less than 2 GiB is left"
    )

    from kb import KnowledgeBase

    with KnowledgeBase.open(settings) as kb:
        stats = kb.stats()
    counts = ", ".join(f"{stats['counts'][table]} {table}s" for table in ("document", "skill", "run"))
    yield Check("database", OK, f"{counts}, {stats['bytes'] / 2**20:.0f} MiB")


def _gpu() -> Iterator[Check]:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Check("gpu", OK, ", ".join(names))
    elif torch.version.cuda is None and torch.version.hip is None:
        yield Check("gpu", OK, "none used: this torch is built for the CPU")
    else:
        yield Check(
            "gpu",
            WARN,
            "torch has GPU support but finds no device",
            "check the driver with nvidia-smi or rocm-smi",
        )
