"""Where a problem comes from: a path, `kernelbench:LEVEL/ID`."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ProblemError

SIZE_LIMIT = 4 << 20
KERNELBENCH_VARIABLE = "KERNELEVOLVE_KERNELBENCH"
_REQUIRED = ("Model", "get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Problem:
    """A reference program with its input generator (the KernelBench contract)."""

    name: str
    source: str
    path: Path | None = None


def load_problem(spec: str | Path) -> Problem:
    """Reads a problem and checks that it could be one, without running it.

    `spec` is a path, or `kernelbench:LEVEL/ID` for a file of a KernelBench checkout to which the environment
    variable KERNELEVOLVE_KERNELBENCH points. Raises ProblemError.
    """
    path = _kernelbench(str(spec)) if str(spec).startswith("kernelbench:") else Path(spec).expanduser()
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


def _kernelbench(spec: str) -> Path:
    match = re.fullmatch(r"kernelbench:(?:level)?(\d+)/(\d+)", spec)
    if not match:
        raise ProblemError(
            f"{spec} is no KernelBench problem", "write kernelbench:LEVEL/ID, e.g. kernelbench:1/40"
        )
    root = os.environ.get(KERNELBENCH_VARIABLE)
    if not root:
        raise ProblemError("no KernelBench checkout is known", f"set {KERNELBENCH_VARIABLE} to its folder")
    level, number = match.groups()
    for folder in (Path(root) / "KernelBench" / f"level{level}", Path(root) / f"level{level}"):
        for path in sorted(folder.glob(f"{number}_*.py")):
            return path
    raise ProblemError(f"{root} holds no problem {level}/{number}", f"check {KERNELBENCH_VARIABLE}")
