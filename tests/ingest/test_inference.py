"""Scopes concluded from content: right or generic, never another vendor's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingest.inference import infer_scope

FILLER = "The loop runs over rows and keeps partial sums in registers for as long as it can. " * 3


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("CUDA kernels use ldmatrix and wgmma; nvcc emits PTX.", "nvidia"),
        ("On CDNA3, MFMA reads LDS with ds_read_b128; hipcc allocates VGPRs.", "amd"),
        ("In NKI, nl.load moves a tile; a NeuronCore of Trainium runs nki.isa.nc_matmul.", "aws-neuron"),
        ("pl.pallas_call with BlockSpec; on TPU, pltpu.VMEM holds it. Pallas lowers it.", "tpu/gpu-pallas"),
        ("Tenstorrent Wormhole: each Tensix runs TT-Metal kernels through ttnn.matmul.", "tenstorrent"),
        ("import triton\n@triton.jit\ndef k(): tl.load(p); tl.store(p, x); tl.arange(0, 4)", "triton"),
        ("clEnqueueNDRangeKernel runs a __kernel; get_global_id(0) in OpenCL; cl_mem m;", "opencl"),
        ("AVX-512 and NEON: _mm512_fmadd_ps, vld1q_f32, #pragma omp simd", "cpu"),
    ],
)
def test_a_text_of_one_family(text: str, scope: str) -> None:
    guess = infer_scope(FILLER + text)
    assert guess is not None
    assert guess.scope == scope
    assert "×" in guess.why


@pytest.mark.parametrize(
    "text",
    [
        "",
        FILLER,
        "Shared memory tiles, warps, kernels and blocks.",
        "Porting from CUDA to HIP: cudaMalloc is hipMalloc, nvcc is hipcc; PTX, LDS, ROCm.",
        "Works with CUDA, ROCm, OpenCL, Triton, Pallas and AVX-512.",
        "CUDA CUDA CUDA CUDA CUDA CUDA",
        "CUDA, nvcc, PTX, ldmatrix. " + FILLER * 60,
        "The hip joint, an instinct, a neon sign, a hopper, an ampere, mosaic tiles, the class clear.",
    ],
)
def test_in_doubt_it_is_generic(text: str) -> None:
    assert infer_scope(text) is None


def test_an_architecture_comes_from_the_name_alone() -> None:
    text = "CUDA on sm_90: wgmma, ldmatrix, nvcc and PTX. Also sm_80 and sm_100."
    assert infer_scope(text, "tuning.md Hopper notes").scope == "nvidia"  # type: ignore[union-attr]
    assert infer_scope(text, "sm90-tuning.md").scope == "nvidia:sm_90"  # type: ignore[union-attr]
    assert infer_scope(text, "sm_80 and sm_90").scope == "nvidia"  # type: ignore[union-attr]
    amd = "MFMA on gfx942, LDS, hipcc, VGPRs, ROCm."
    assert infer_scope(amd, "GFX942.md").scope == "amd:gfx942"  # type: ignore[union-attr]


def test_vendors_documents_are_never_put_under_another_vendor() -> None:
    shared = Path(os.environ.get("KERNELEVOLVE_SHARED") or Path(__file__).resolve().parents[3] / "shared")
    root = shared / "retrieval" / "corpora"
    if not root.is_dir():
        pytest.skip(f"no sample material at {root}")
    allowed = {
        "nki": {"aws-neuron"}, "rocm": {"amd"}, "rocprof-compute": {"amd"}, "cutlass": {"nvidia"},
        "pallas": {"tpu/gpu-pallas"}, "triton": {"triton", "amd", "nvidia"}, "tt-lang": {"tenstorrent"},
        "tt-isa": {"tenstorrent"},
    }  # fmt: skip
    wrong, labelled, total = [], 0, 0
    for corpus, right in allowed.items():
        for file in sorted(p for p in (root / corpus).rglob("*") if p.is_file())[::4]:
            guess = infer_scope(file.read_text(errors="replace"), file.name)
            total += 1
            labelled += guess is not None
            if guess is not None and guess.scope.split(":")[0] not in right:
                wrong.append((file.name, guess))
    assert wrong == []
    assert labelled > 0.3 * total


@pytest.mark.parametrize(
    ("path", "text", "scope"),
    [
        ("trn2.md", "Engines and their buffers.", "aws-neuron:trn2"),
        ("gfx942.rst", "Registers and wave sizes.", "amd:gfx942"),
        ("sm_90/notes.md", "What we measured.", "nvidia:sm_90"),
        ("guides/gfx90a/tuning/occupancy.md", "What we measured.", "amd:gfx90a"),
        ("h100.md", "CUDA cores.", "nvidia:sm_90"),
        ("mi300x/notes.md", "LDS sizes.", "amd:gfx942"),
        ("sm_90/triton.md", "triton tl.dot ttgir triton.jit tl.load", "nvidia:sm_90"),
        ("h100.md", "Tiles and banks.", None),  # a product's name may stand for something else
        ("t4.md", "The fourth table.", None),
        ("sm_90_and_sm_100.md", "What changed.", None),
        ("gfx942-vs-sm_90.md", "Which is faster.", None),
        ("sm_90/port.md", "On gfx942 with hipcc, the LDS, MFMA and VGPRs of ROCm.", "amd"),
        ("sm_90/compare.md", "MFMA of ROCm.", None),
        ("plasma_90.md", "Nothing.", None),
        ("notes.md", "Tiles.", None),
    ],
)
def test_a_document_named_like_an_architecture(path: str, text: str, scope: str | None) -> None:
    guess = infer_scope(text, Path(path).name, path)
    assert (guess.scope if guess else None) == scope
