from __future__ import annotations

from pathlib import Path

import pytest

from ingest.chunking import breadcrumb
from ingest.document import FileContent, LoadedDocument
from ingest.loaders.python_code import PythonLoader
from ingest.loaders.tablegen import TableGenLoader

SOURCE = '''"""Row kernels.

More.
"""
import triton
import triton.language as tl

# Rows per program.
BLOCK = 128
__all__ = ["scale", "Runner"]


def _helper(x):
    return x


# What autotuning tries.
@triton.autotune(configs=[], key=["n"])
@triton.jit
def scale(x_ptr, n: int, *, BLOCK: tl.constexpr = 32) -> None:
    """Multiply in place, see :func:`~triton.language.load`."""
    pass


class Runner(Base):
    """Runs it."""

    limit = 3

    class Options:
        """Of a run."""

        def show(self): ...

    @overload
    def run(self, x: int) -> int: ...
    @overload
    def run(self, x: str) -> str: ...
    def run(self, x):
        return x


if True:
    def late(a): return a
'''


def load(text: str, name: str | Path = "rows.py", root: Path | None = None) -> LoadedDocument:
    return PythonLoader().load(FileContent(Path(name), text.encode(), text, (), root))


def test_one_section_per_definition_public_ones_first() -> None:
    document = load(SOURCE)
    spans = [(s.heading_path, s.start_line, s.end_line) for s in document.sections]
    assert spans == [
        ("rows", 1, 12),
        ("rows", 15, 16),
        ("rows.scale(x_ptr, n: int, *, BLOCK: tl.constexpr=32) -> None", 17, 22),
        ("rows", 23, 24),
        ("class rows.Runner(Base)", 25, 29),
        ("class rows.Runner.Options", 30, 32),
        ("rows.Runner.Options.show(self)", 33, 33),
        ("class rows.Runner(Base)", 34, 34),
        ("rows.Runner.run(self, x)", 35, 40),
        ("rows", 41, 43),
        ("rows", 45, 45),
        ("rows._helper(x)", 13, 14),
        ("rows.late(a)", 44, 44),
    ]
    covered = sorted(line for _, a, b in spans for line in range(a, b + 1))
    assert covered == list(range(1, SOURCE.count("\n") + 2))


def test_what_is_known_of_a_module() -> None:
    document = load(SOURCE)
    assert document.kind == "kernel"
    assert document.meta == {
        "language": "triton", "module": "rows", "summary": "Row kernels.", "kernels": ["scale"],
    }  # fmt: skip


def test_modules_are_named_within_their_packages(tmp_path: Path) -> None:
    package = tmp_path / "src" / "pkg" / "sub"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    assert load("x = 1\n", package / "core.py", tmp_path).title == "pkg.sub.core"
    assert load("x = 1\n", package / "__init__.py", tmp_path).title == "pkg.sub"
    assert load("x = 1\n", package / "core.py", package).title == "sub.core"
    assert load("x = 1\n", tmp_path / "run.py", tmp_path).title == "run"


@pytest.mark.parametrize(
    ("imports", "decorator", "language"),
    [
        ("import triton", "triton.jit", "triton"),
        ("from triton import jit", "jit", "triton"),
        ("import triton\nfrom triton.experimental import gluon", "gluon.jit", "gluon"),
        ("from triton.experimental.gluon import jit", "jit(debug=True)", "gluon"),
        ("import cutlass\nimport cutlass.cute as cute", "cute.kernel", "cute"),
        ("from jax.experimental import pallas as pl", "pl.kernel(mesh=m)", "pallas"),
        ("import functools, jax.experimental.pallas as pl", "functools.partial(pl.kernel, a=1)", "pallas"),
        ("import neuronxcc.nki as nki", "nki.jit", "nki"),
        ("from neuronxcc import nki", "nki.jit", "nki"),
        ("import nki", "nki.jit", "nki"),
        ("import ttl", "ttl.operation(grid=(1, 1))", "tt-lang"),
        ("import helion", "helion.kernel()", "helion"),
        ("from numba import cuda", "cuda.jit", "cuda-python"),
        ("from mine import kernel", "kernel", None),
        ("import jax", "jax.jit", None),
        ("from functools import cache", "cache", None),
    ],
)
def test_kernel_languages(imports: str, decorator: str, language: str | None) -> None:
    document = load(f"{imports}\n\n@{decorator}\ndef f(x):\n    pass\n")
    assert document.meta["language"] == (language or "python")
    assert document.meta.get("kernels") == (["f"] if language else None)
    assert document.kind == ("kernel" if language else "document")


def test_kernels_are_never_private() -> None:
    text = (
        "import triton\n\ndef f(): pass\n\n@triton.jit\ndef _k(x): pass\n\ndef _g(): pass\n\ndef h(): pass\n"
    )
    named = [s.heading_path for s in load(text).sections if "(" in s.heading_path]
    assert named == ["rows.f()", "rows._k(x)", "rows.h()", "rows._g()"]


def test_an_import_alone_tells_the_language_but_makes_no_kernel() -> None:
    document = load("import nki.language as nl\n\ndef f(x):\n    return nl.exp(x)\n")
    assert (document.meta["language"], document.kind) == ("nki", "document")


def test_calls_that_take_kernels() -> None:
    assert load("pl.pallas_call(f)(x)\n").kind == "kernel"
    assert load("from torch.utils.cpp_extension import load_inline\nload_inline(s)\n").kind == "kernel"


def test_long_definitions_are_cut_after_their_documentation() -> None:
    body = "\n".join(f"    y{i} = x + {i}" for i in range(200))
    document = load(f'def f(x):\n    """Adds.\n\n    Much.\n    """\n{body}\n')
    assert [(s.start_line, s.end_line) for s in document.sections[:2]] == [(1, 5), (6, 205)]


def test_long_signatures_keep_their_names() -> None:
    arguments = ", ".join(f"argument{i}: Optional[Sequence[int]] = None" for i in range(40))
    heading = load(f"def f({arguments}, *rest, **options): ...\n").sections[0].heading_path
    assert heading.startswith("rows.f(argument0, argument1, ")
    assert heading.endswith(", …)")
    assert len(heading) < 130


def test_breadcrumb_does_not_repeat_the_module() -> None:
    assert breadcrumb("a.b", "class a.b.C") == "class a.b.C"
    assert breadcrumb("a.b", "a.b.f(x)") == "a.b.f(x)"
    assert breadcrumb("Guide", "Part") == "Guide › Part"


def test_the_embedding_model_sees_no_roles_but_all_code() -> None:
    document = load(SOURCE)
    assert document.plain is not None
    assert document.plain("see :func:`~a.b` of x ** 2 * y ** 3") == "see a.b of x ** 2 * y ** 3"


GALLERY = '''"""
Title
=====
"""

# %%
# Motivations
# -----------
#
# Text of :code:`A`.
#
# Details
# ~~~~~~~
#
# More.
import x

# Setup
# of a sort
# ---

########################################
# Benchmark
# ---------
def bench():
    pass


bench()

# %% [markdown]
# no title
# %% Last one
y = 1
'''


def test_scripts_that_are_documents_have_headings_in_comments() -> None:
    document = load(GALLERY, "tutorial.py")
    assert [(s.heading_path, s.start_line, s.end_line) for s in document.sections] == [
        ("tutorial", 1, 5),
        ("tutorial › Motivations", 6, 11),
        ("tutorial › Motivations › Details", 12, 21),
        ("tutorial.bench()", 22, 26),
        ("tutorial › Benchmark", 27, 32),
        ("tutorial › Last one", 33, 35),
    ]
    assert document.plain is not None
    assert document.plain("  # Text of :code:`A`.") == "  Text of A."


TABLEGEN = """\
include "mlir/IR/OpBase.td"

def TT_Dialect : Dialect {
  let name = "tt";
}

// Dot.
def TT_DotOp : TT_Op<"dot", [Pure,
                             SameOperands]> {
  let summary = "dot";
  let description = [{
    Multiplies. Written as:
def not_a_record {
    }
  }];
}

class TT_Op<string mnemonic> : Op<TT_Dialect, mnemonic> {}
"""


def test_tablegen_records_become_sections() -> None:
    document = TableGenLoader().load(FileContent(Path("Ops.td"), b"", TABLEGEN))
    spans = [(s.heading_path, s.start_line, s.end_line) for s in document.sections]
    assert spans == [
        ("Ops.td", 1, 2),
        ("TT_Dialect", 3, 6),
        ("TT_DotOp (dot): dot", 7, 17),
        ("TT_Op", 18, 19),
    ]
    assert document.meta == {"language": "tablegen", "dialect": "tt"}


def test_tablegen_without_records_is_read() -> None:
    document = TableGenLoader().load(FileContent(Path("Ops.td"), b"", "// nothing\n  def indented : X;\n"))
    assert [(s.start_line, s.end_line) for s in document.sections] == [(1, 3)]
    assert document.notes == ["no records recognised; cut by lines"]
