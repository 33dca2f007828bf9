from __future__ import annotations

import time
from pathlib import Path

import pytest

from ingest.document import FileContent, LoadedDocument
from ingest.loaders.c_code import CLoader

CUDA = """\
#include <cuda.h>
// a brace in a comment {
namespace deep { namespace er {

/** Scales.
 *  @param x where {
 */
template <typename T, int N = (3 > 2)>
__global__ void __launch_bounds__(256) scale(T* x, int n) {
  const char* s = "}{";
  asm volatile("mov.u32 %0, {%1};" : : "r"(n));
  if (n > 0) { x[0] = '}'; }
}

struct Tile {
  int rows;
  int area() const { return rows; }
};
}}  // namespaces
extern "C" {
void launch(float* x) { scale<<<1, 256>>>(x, 1); }
}
int constant = 3;
"""

HEADER = """\
#pragma once

/// Waits for all copies.
/// Blocks.
CUTLASS_DEVICE void wait_all(int stage, void (*then)(int));

int undocumented(int);

/* Bits of a mask. */
#define MASK_A 1
#define MASK_B(x) \\
  (2 + x)

/**
 * A pair.
 */
typedef struct {
  int a;
} pair_t;

// Adds.
Pair operator+(const Pair& a, const Pair& b) { return a; }

Pair::Pair(int a) : first(a), second(make(a)) {
}

enum class Mode : int { A, B };
int table[] = {1, 2};
auto f = [](int x) { return x; };
"""


def load(text: str, name: str = "tile.cu") -> LoadedDocument:
    return CLoader().load(FileContent(Path(name), text.encode(), text))


def named(document: LoadedDocument) -> list[tuple[str, int, int]]:
    return [
        (s.heading_path.partition(" › ")[2], s.start_line, s.end_line)
        for s in document.sections
        if " › " in s.heading_path
    ]


def covers(document: LoadedDocument, text: str) -> bool:
    lines = [line for s in document.sections for line in range(s.start_line, s.end_line + 1)]
    return lines == list(range(1, text.count("\n") + 2))


def test_definitions_with_namespaces_templates_and_the_comment_above() -> None:
    document = load(CUDA)
    assert named(document) == [
        ("__global__ deep::er::scale(T* x, int n)", 5, 13),
        ("struct deep::er::Tile", 15, 18),
        ("launch(float* x)", 21, 21),
    ]
    assert covers(document, CUDA)
    assert document.kind == "kernel"
    assert document.meta == {"language": "cuda", "kernels": ["scale"]}
    assert document.notes == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("  /// Waits.", "  Waits."),
        (" * @param x", " @param x"),
        ("/** Sum */", "Sum */"),
        ("*p = a * b;",) * 2,
    ],
)
def test_the_embedding_model_sees_no_comment_marks(line: str, words: str) -> None:
    plain = load(CUDA).plain
    assert plain is not None
    assert plain(line) == words


def test_documented_declarations_macros_and_anonymous_types() -> None:
    document = load(HEADER, "pair.h")
    assert named(document) == [
        ("wait_all(int stage, void (*then)(int))", 3, 5),
        ("#define MASK_A", 9, 12),
        ("struct pair_t", 14, 19),
        ("operator+(const Pair& a, const Pair& b)", 21, 22),
        ("Pair::Pair(int a)", 24, 25),
        ("enum Mode", 27, 27),
    ]
    assert covers(document, HEADER)


def test_members_of_a_large_class_get_sections() -> None:
    filler = "\n".join(f"    int v{i} = {i};" for i in range(120))
    run = f"  // Runs.\n  void run(int x) {{\n{filler}\n  }}\n"
    text = f"struct Big {{\n{run}  /// Stops.\n  void stop();\n}};\n"
    assert named(load(text, "big.hpp")) == [
        ("struct Big", 1, 1),
        ("struct Big › run(int x)", 2, 124),
        ("struct Big › stop()", 125, 126),
        ("struct Big", 127, 127),
    ]


def test_branches_that_open_the_same_brace_twice() -> None:
    text = "#ifdef A\nvoid f(int x) {\n#else\nvoid f() {\n#endif\n  g();\n}\nvoid h() {\n}\n"
    document = load(text, "a.cpp")
    assert named(document) == [("f(int x)", 2, 7), ("h()", 8, 9)]
    assert document.notes == []


def test_whole_definitions_in_branches_are_found() -> None:
    text = "#ifdef A\nvoid f(int x) {\n}\n#else\nvoid g() {\n}\n#endif\n"
    assert [heading for heading, _, _ in named(load(text, "a.cpp"))] == ["f(int x)", "g()"]


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("a.cu", "int x;", "cuda"),
        ("a.h", "__device__ int f();", "cuda"),
        ("a.hip", "int x;", "hip"),
        ("a.cpp", "#include <hip/hip_runtime.h>\n__global__ void f() {}", "hip"),
        ("a.cl", "__kernel void f(__global int* x) {}", "opencl"),
        ("a.c", "int x;", "c"),
        ("a.hpp", "int x;", "c++"),
    ],
)
def test_languages(name: str, text: str, language: str) -> None:
    assert load(text, name).meta["language"] == language


@pytest.mark.parametrize(
    "text",
    ["}}}}{{{{", "int f( {", '"unclosed { string', "/* unclosed {", "#define X {\nint y;", "#if\n#else\n{"],
)
def test_unbalanced_text_is_still_read(text: str) -> None:
    document = load(text, "a.cpp")
    assert covers(document, text)


def test_a_stray_brace_costs_its_definition_alone() -> None:
    document = load("}\nvoid f() {\n}\n", "a.cpp")
    assert named(document) == [("f()", 2, 3)]
    assert document.notes == ["braces do not balance; some definitions are cut by lines"]


def test_large_files_take_linear_time() -> None:
    for text in (
        "void first() {\n" + "if (x) { y = 1; }\n" * 12_000 + "}\n" + "void f() {}\n" * 2000,
        "struct A {\n" * 300 + "int x;\n" * 12_000 + "};\n" * 300,
        "// c\nint f(int a);\n" * 10_000,
        "#if A\n{\n" * 10_000,
        "template<" * 10_000 + "{",
    ):
        started = time.monotonic()
        load(text, "k.cpp")
        assert time.monotonic() - started < 5, text[:40]
