"""Names as profilers of NVIDIA and AMD devices and of the CPU report them."""

from __future__ import annotations

import pytest

from harness.worker.evidence.kernel_names import kernel_kind, operator_kind

LIBRARY = """
ampere_sgemm_128x64_tn
volta_scudnn_128x64_relu_interior_nn_v1
sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel
sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_warpgroupsize1x1x1_kernel
nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT
cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4
void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(int)
void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, false>(float)
void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const>>(float)
void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float)
void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(float const*)
cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1
void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, true, true>(int, int)
void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float>>(int)
void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, false, false>(float*)
void at_cuda_detail::cub::DeviceReduceKernel<int>(int)
fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)
void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>(pytorch_flash::Flash_fwd_params)
void regular_fft<256u, 8u, 32u>(float)
ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)
Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0
void rocblas_gemvt_kernel<false, 256, float>(int, int)
MIOpenConv1x1u
miopenSp3AsmConv_v21_1_2_gfx9_fp32_stride1
naive_conv_fwd_nchw_float_double_float
void ck::kernel_gemm_xdl_cshuffle_v1<int>(int)
""".strip().splitlines()

MEMORY = """
Memcpy DtoD (Device -> Device)
Memset (Device)
[CUDA memcpy Device-to-Device]
[CUDA memset]
__amd_rocclr_copyBuffer
__amd_rocclr_fillBufferAligned
void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)
void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda(int)::l>(int)
""".strip().splitlines()

OWN = """
softmax_like_cudnn
my_gemm_kernel
matmul_kernel
fused_layer_norm_0d1d2d3de
triton_poi_fused_add_relu_0
void row_sum<float>(float const*, float*, long)
(anonymous namespace)::tile_kernel(float*)
kernel_cutlass_elementwise_add_kernel_tensorptrf32gmem_o_0
gemv_tiled
conv_direct
samplewise_norm
sm90_persistent_softmax
ckpt_scale
""".strip().splitlines()


@pytest.mark.parametrize("name", LIBRARY)
def test_kernels_of_libraries(name: str) -> None:
    assert kernel_kind(name) == "library"


@pytest.mark.parametrize("name", MEMORY)
def test_memory_operations(name: str) -> None:
    assert kernel_kind(name) == "memory"


@pytest.mark.parametrize("name", OWN)
def test_own_kernels_whatever_they_mention(name: str) -> None:
    assert kernel_kind(name) == "own"


def test_a_kernel_known_to_be_launched_by_the_candidate_is_its_own() -> None:
    name = "void gemv2T_kernel_val<int>(float)"
    assert kernel_kind(name) == "library"
    assert kernel_kind(name, own={"gemv2T_kernel_val"}) == "own"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "library"),
        ("aten::_softmax", "library"),
        ("aten::add_", "library"),
        ("mkldnn::_linear_pointwise", "library"),
        ("aten::view", "memory"),
        ("aten::empty_strided", "memory"),
        ("aten::copy_", "memory"),
        ("aten::fill_", "memory"),
        ("hx_gated::gated_sum", "own"),
        ("ProfilerStep#1", "other"),
        ("profiler::_record_function_enter_new", "other"),
        ("my annotation", "other"),
    ],
)
def test_operators(name: str, kind: str) -> None:
    assert operator_kind(name) == kind
