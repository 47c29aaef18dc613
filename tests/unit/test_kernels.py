"""Classifying kernels by name, and the occupancy of a launch."""

from __future__ import annotations

import pytest
from fastprof.report.kernel_names import kind_of, uses_tensor_cores
from fastprof.report.occupancy import achieved_occupancy, blocks_per_sm, blocks_that_fit
from hypothesis import given
from hypothesis import strategies as st
from unit.snapshots import h200, kernel

KINDS = (
    "gemm", "convolution", "attention", "fused", "normalization", "copy", "communication",
    "elementwise", "reduction", "foreach", "loss", "pooling", "indexing", "sort and scan", "other",
)  # fmt: skip

#: Name, kind, tensor cores.
NAMES = [
    ("volta_sgemm_128x64_nn", "gemm", False),
    ("ampere_sgemm_128x128_tn", "gemm", False),
    ("volta_h884gemm_128x128_ldg8_nn", "gemm", True),
    ("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn", "gemm", True),
    ("ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_nn", "gemm", True),
    ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)",
     "gemm", True),
    ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)", "gemm", False),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<...sm90...>>", "gemm", None),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4", "gemm", True),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4",
     "gemm", False),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
     "gemm", True),
    ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT", "gemm", True),
    ("void gemv2T_kernel_val<int, int, float>(int)", "gemm", False),
    ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(int)", "gemm", False),
    ("triton_tem_fused_addmm_3", "gemm", None),
    ("triton_mm_kernel", "gemm", None),
    ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", "convolution", True),
    ("cudnn::winograd_nonfused::winogradForwardData4x4<float>", "convolution", None),
    ("void implicit_convolve_sgemm<float, 128, 5, 5, 3>(int)", "convolution", None),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)", "attention", True),
    ("fmha_v2_flash_attention_fp16_64_32_S_128", "attention", None),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention", True),
    ("void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<...>", "attention", True),
    ("scaled_dot_product_attention", "attention", None),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7", "attention", True),
    ("triton_tem_fused_flex_attention_2", "attention", None),
    ("triton_poi_fused__scaled_dot_product_flash_attention_0", "fused", None),
    ("triton_poi_fused_add_mul_relu_4", "fused", None),
    ("triton_red_fused_native_layer_norm_1", "fused", False),
    ("triton_per_fused__softmax_2", "fused", False),
    ("fused_dropout_add_layer", "fused", None),
    ("void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>(int)", "fused", False),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>",
     "normalization", False),
    ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512>", "normalization", None),
    ("void at::native::batch_norm_collect_statistics_kernel<InvStd>", "normalization", None),
    ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8>",
     "normalization", False),
    ("rms_norm_kernel", "normalization", None),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", "communication", False),
    ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "communication", False),
    ("void vllm::cross_device_reduce_1stage<half, 8>(int)", "communication", False),
    ("void multimem_one_shot_reduce_kernel<float>", "communication", False),
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "communication", False),
    ("rcclGenericKernel<1, false>", "communication", False),
    ("triton_poi_fused_add_all_reduce_0", "fused", None),
    ("void at::native::elementwise_kernel<128, 2, direct_copy_kernel_cuda(TensorIterator&)>",
     "copy", False),
    ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", "copy", False),
    ("void at::native::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>", "copy", False),
    ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "elementwise",
     False),
    ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", "reduction", False),
    ("void at::native::unrolled_elementwise_kernel<direct_conversion, float_to_half>",
     "elementwise", False),
    (("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, "
     "BinaryOpScalarFunctor<float, 1, 1, 0>>(int)"), "foreach", False),
    ("void at::native::lpnorm_cleanup<float, (at::native::NormType)1>(float const*)",
     "foreach", None),
    ("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float>",
     "normalization", None),
    ("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>",
     "loss", None),
    ("void at::native::(anonymous namespace)::max_pool_backward_nhwc<c10::BFloat16, float>",
     "pooling", None),
    ("void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<long>",
     "sort and scan", None),
    ("void at::native::(anonymous namespace)::embedding_backward_feature_kernel<float, long>",
     "indexing", None),
    ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", "indexing", None),
    ("void at::native::(anonymous namespace)::krn_partials_per_segment<long>", "indexing", None),
    ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)", "attention", None),
    ("void cudnn::engines_precompiled::nchwToNhwcKernel<__nv_bfloat16>(int)", "copy", False),
    ("unfused_op", "other", None),
    ("my_kernel(float*, int)", "other", None),
    ("comma_separated", "other", None),
    ("", "other", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "tensor"), NAMES)
def test_s1_14_names_tell_the_kind_and_the_tensor_cores(name, kind, tensor):
    assert kind in KINDS
    assert (kind_of(name), uses_tensor_cores(name)) == (kind, tensor)


@given(st.text(max_size=80))
def test_s1_14_any_name_has_a_kind(name):
    assert kind_of(name) in KINDS
    assert uses_tensor_cores(name) in (True, False, None)


# Blocks that fit, from the CUDA occupancy calculator.
FITS = [
    # threads, registers, shared, capability -> blocks
    (256, 32, 0, (9, 0), 8),  # 64 warps / 8
    (128, 32, 0, (9, 0), 16),
    (1024, 32, 0, (9, 0), 2),
    (32, 16, 0, (9, 0), 32),  # the limit on blocks
    (33, 16, 0, (9, 0), 32),  # two warps
    (256, 64, 0, (9, 0), 4),
    (256, 128, 0, (9, 0), 2),
    (256, 168, 0, (9, 0), 1),  # 5376 registers per warp: 3 in each quarter of 16384
    (256, 255, 0, (9, 0), 1),
    (384, 168, 0, (9, 0), 1),
    (128, 32, 100 * 1024, (9, 0), 2),  # 101 of 228 KiB
    (128, 32, 48 * 1024, (9, 0), 4),  # 49 KiB with the system's own
    (128, 32, 227 * 1024, (9, 0), 1),
    (256, 33, 0, (9, 0), 6),  # 40 registers are given: 1280 per warp, 12 per quarter
]


@pytest.mark.parametrize(("threads", "registers", "shared", "capability", "blocks"), FITS)
def test_s1_12_blocks_that_fit_follow_the_occupancy_calculator(
    threads, registers, shared, capability, blocks
):
    made = kernel("k", 100, block_x=threads, registers=registers, dynamic_shared=shared)
    assert blocks_that_fit(h200(capability=capability), made) == blocks


def test_s1_12_shared_memory_before_8_0_has_no_part_of_the_system():
    volta = h200(capability=(7, 0), shared_bytes_per_multiprocessor=96 * 1024)
    assert blocks_that_fit(volta, kernel("k", 1, static_shared=48 * 1024)) == 2
    assert blocks_that_fit(volta, kernel("k", 1, static_shared=257)) == 8


def test_s1_12_p100_has_two_partitions():
    made = kernel("k", 1, block_x=32, registers=255)
    assert blocks_that_fit(h200(capability=(6, 0), blocks_per_multiprocessor=0), made) == 8
    made = kernel("k", 1, block_x=32, registers=168)
    assert blocks_that_fit(h200(capability=(6, 0)), made) == 12
    assert blocks_that_fit(h200(capability=(6, 1)), made) == 12


def test_s1_12_occupancy_is_the_lesser_of_what_fits_and_what_there_is():
    device = h200()
    full = kernel("k", 100, blocks_ns=132.0 * 100 * 100)  # 100 blocks per SM, 8 fit
    assert achieved_occupancy(device, (full,)) == 1
    few = kernel("k", 300, blocks_ns=66.0 * 300)  # half a block per SM
    assert achieved_occupancy(device, (few,)) == pytest.approx(0.5 * 8 / 64)
    both = (100 * 1 + 300 * 0.5 * 8 / 64) / 400
    assert achieved_occupancy(device, (full, few)) == pytest.approx(both)
    assert blocks_per_sm(device, (full, few)) == pytest.approx((100 * 100 + 300 * 0.5) / 400)


@pytest.mark.parametrize(
    "unknown",
    [
        {"multiprocessors": 0},
        {"warp_size": 0},
        {"threads_per_multiprocessor": 0},
        {"threads_per_multiprocessor": 16},
        {"registers_per_multiprocessor": 4},
        {"shared_bytes_per_multiprocessor": 4},
    ],
)
def test_s1_12_a_device_that_does_not_tell_gives_no_estimate(unknown):
    assert achieved_occupancy(h200(**unknown), (kernel("k", 100),)) is None
    assert achieved_occupancy(None, (kernel("k", 100),)) is None
    assert blocks_per_sm(None, (kernel("k", 100),)) is None


def test_s1_12_kernels_without_time_or_threads_give_no_estimate():
    assert achieved_occupancy(h200(), (kernel("k", 0),)) is None
    assert achieved_occupancy(h200(), (kernel("k", 5, block_y=0),)) is None
    assert achieved_occupancy(h200(), ()) is None
