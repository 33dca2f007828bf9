"""Where a problem comes from: a path, `kernelbench:LEVEL/ID`, `aten:OP`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ProblemError

SIZE_LIMIT = 4 << 20
ATEN, KERNELBENCH = "aten:", "kernelbench:"
KERNELBENCH_VARIABLE = "KERNELEVOLVE_KERNELBENCH"
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Problem:
    """A reference program with its input generator (the KernelBench contract)."""

    name: str
    source: str
    path: Path | None = None


def load_problem(spec: str | Path, cache_dir: Path | None = None) -> Problem:
    """Reads a problem and checks that it could be one, without running it.

    `spec` is a path; `kernelbench:LEVEL/ID` for a file of a KernelBench checkout to which the environment
    variable KERNELEVOLVE_KERNELBENCH points; or `aten:OP[/VARIANT][:SAMPLE][@ELEMENTS]` for an operator with
    inputs from PyTorch's OpInfo database (see `harness.opinfo`; `cache_dir` keeps what that answers). Raises
    ProblemError.
    """
    if str(spec).startswith(ATEN):
        from harness.opinfo import problem_source

        source = problem_source(str(spec), cache_dir)
        return Problem(re.sub(r"\W+", "_", str(spec)), source)
    path = _kernelbench(str(spec)) if str(spec).startswith(KERNELBENCH) else Path(spec).expanduser()
    try:
        if not path.is_file():
            kind = "is a folder" if path.is_dir() else "does not exist"
            raise ProblemError(f"{path} {kind}", "give the path of a Python file with Model and get_inputs")
        if path.stat().st_size > SIZE_LIMIT:
            raise ProblemError(
                f"{path} is larger than {SIZE_LIMIT >> 20} MiB", "a problem is a small Python file"
            )
        source = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProblemError(f"{path} is not UTF-8 text", "a problem is a Python file") from error
    except OSError as error:
        raise ProblemError(f"{path} cannot be read: {error.strerror}") from error
    check_source(source, str(path))
    return Problem(path.stem, source, path)


def check_source(source: str, where: str = "the problem") -> None:
    """Raises ProblemError for a syntax error or a missing part."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ProblemError(f"{where}: syntax error{line}: {text}", "mend the file, then try again") from error
    defined = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            defined.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined.update(item.asname or item.name for item in node.names)
    missing = [name for name in _REQUIRED if name not in defined]
    if missing and "*" not in defined:
        raise ProblemError(
            f"{where} defines no {', '.join(missing)}",
            "a problem has class Model(nn.Module), get_inputs() and get_init_inputs()",
        )


def expand(specs: Sequence[str]) -> list[str]:
    """Each problem that the specs name: a folder means its Python files, `*` and the like in a path are
    expanded, and `kernelbench:1/*` or `kernelbench:1/3-7` mean several of a level.

    Raises ProblemError for a spec that names none.
    """
    found: list[str] = []
    for spec in specs:
        if spec.startswith(ATEN):
            several = [spec]
        elif spec.startswith(KERNELBENCH):
            several = _kernelbench_range(spec)
        elif Path(spec).is_dir():
            several = [str(path) for path in sorted(Path(spec).glob("*.py")) if path.name != "__init__.py"]
        else:
            several = sorted(map(str, _matches(spec))) if set(spec) & set("*?[") else [spec]
        if not several:
            raise ProblemError(f"{spec} names no problem", "check the folder or the pattern")
        found += several
    return list(dict.fromkeys(found))


def _matches(pattern: str) -> Iterator[Path]:
    path = Path(pattern).expanduser()
    return Path(path.anchor).glob(str(path.relative_to(path.anchor)))


def _kernelbench_range(spec: str) -> list[str]:
    match = re.fullmatch(r"kernelbench:(?:level)?(\d+)/(?:(\*)|(\d+)-(\d+))", spec)
    if match is None:
        return [spec]
    level, every, first, last = match.groups()
    names = [path.name for folder in _kernelbench_folders(level) for path in folder.glob("*.py")]
    numbers = {int(name.partition("_")[0]) for name in names if name.partition("_")[0].isdecimal()}
    chosen = [n for n in sorted(numbers) if every or int(first) <= n <= int(last)]
    return [f"{KERNELBENCH}{level}/{n}" for n in chosen]


def _kernelbench_folders(level: str) -> list[Path]:
    root = os.environ.get(KERNELBENCH_VARIABLE)
    if not root:
        raise ProblemError("no KernelBench checkout is known", f"set {KERNELBENCH_VARIABLE} to its folder")
    return [
        Path(root).expanduser() / "KernelBench" / f"level{level}",
        Path(root).expanduser() / f"level{level}",
    ]


def _kernelbench(spec: str) -> Path:
    match = re.fullmatch(r"kernelbench:(?:level)?(\d+)/(\d+)", spec)
    if not match:
        raise ProblemError(
            f"{spec} is no KernelBench problem", "write kernelbench:LEVEL/ID, e.g. kernelbench:1/40"
        )
    level, number = match.groups()
    folders = _kernelbench_folders(level)
    for folder in folders:
        for path in sorted(folder.glob(f"{number}_*.py")):
            return path
    raise ProblemError(
        f"{folders[0].parent} holds no problem {level}/{number}", f"check {KERNELBENCH_VARIABLE}"
    )
