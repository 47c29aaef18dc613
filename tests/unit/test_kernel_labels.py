"""Short names of kernels: real names of torch, cuBLAS and cuDNN on an H100."""

from __future__ import annotations

import time

import pytest
from fastprof.names import ends_cut
from fastprof.report.kernel_labels import short_kernel, short_kernels
from fastprof.report.model_gpu import OTHER_KERNELS_NAME
from fastprof.results.report import build_report
from fastprof.tables.gpu import kernels
from fastprof.tables.layout import table_lines
from hypothesis import example, given
from hypothesis import strategies as st
from unit.gpu_runs import gpu_training_run
from unit.snapshots import MS, kernel, replaced

_AT = "at::native::"
_ANY = "at::native::(anonymous namespace)::"
_COPY = (
    f"{_AT}direct_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#3}}::operator()() const::"
    "{lambda()#7}::operator()() const::{lambda(float)#1}"
)
_CAST = (
    "std::array<char*, 2ul>, 4, TrivialOffsetCalculator<1, unsigned int>, "
    f"TrivialOffsetCalculator<1, unsigned int>, {_AT}memory::LoadWithCast<1>, "
    f"{_AT}memory::StoreWithCast<1> "
)
_SUM = (
    f"{_AT}func_wrapper_t<c10::BFloat16, {_AT}sum_functor<c10::BFloat16, float, c10::BFloat16>::"
    "operator()(at::TensorIterator&)::{lambda(float, float)#1}>"
)
UNROLLED_COPY = f"void {_AT}unrolled_elementwise_kernel<{_COPY}, {_CAST}>(int, {_COPY}, {_CAST})"
_MUL = f"{_AT}binary_internal::MulFunctor<float> >"
_UNARY = f"{_AT}AUnaryFunctor<float, float, float, {_MUL}"
_BINARY = f"{_AT}BinaryFunctor<float, float, float, {_MUL}"
_POINTWISE = f"{_ANY}PointwiseOpScalarListFunctor<float, 3, 3, 0>"
_FUSED_ADAM = f"{_ANY}FusedAdamMathFunctor<float, 4, ({_AT}ADAM_MODE)1, false>"
_ADD = f"void {_AT}vectorized_elementwise_kernel<4, {_AT}CUDAFunctor_add<float>, std::array<char*>>"
_UNROLLED_ADD = (
    f"void {_AT}unrolled_elementwise_kernel<{_AT}CUDAFunctor_add<float>, std::array<char*, 3ul>>"
)
NVJET = "nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT"
XMMA = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma"
CUTLASS = "cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64_32x4_nhwc_align8"

NAMES = [
    (UNROLLED_COPY, "elementwise direct_copy<float>"),
    ((f"void {_AT}vectorized_elementwise_kernel<4, {_AT}FillFunctor<float>, std::array<char*, 1ul> "
     f">(int, {_AT}FillFunctor<float>, std::array<char*, 1ul>)"), "elementwise Fill<float>"),
    (f"void {_AT}vectorized_elementwise_kernel<4, {_UNARY}, std::array<char*, 2ul> >(int)",
     "elementwise Mul<float>"),
    ((f"void {_AT}vectorized_elementwise_kernel<8, {_AT}GeluBackwardCUDAKernelImpl("
     f"at::TensorIteratorBase&, {_AT}GeluType)::{{lambda()#2}}::operator()() const::{{lambda()#4}}"
     "::operator()() const::{lambda(c10::BFloat16, c10::BFloat16)#1}, std::array<char*>>(int)"),
     "elementwise GeluBackward<bf16>"),
    ((f"void {_AT}elementwise_kernel<128, 4, {_AT}gpu_kernel_impl_nocast<{_COPY}>("
     f"at::TensorIteratorBase&, {_COPY} const&)::{{lambda(int)#1}}>(int)"),
     "elementwise direct_copy<float>"),
    (("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out("
     "c10::Scalar const&)::{lambda()#1}::operator()() const::{lambda(long)#1}>(int)"),
     "elementwise arange<long>"),
    ((f"void {_AT}reduce_kernel<128, 4, {_AT}ReduceOp<c10::BFloat16, {_SUM}, unsigned int, "
     f"c10::BFloat16, 4, 8> >({_AT}ReduceOp<c10::BFloat16, {_SUM}>)"), "reduce sum<bf16>"),
    ((f"void {_AT}reduce_kernel<512, 1, {_AT}ReduceOp<float, {_AT}MeanOps<float, float, float, "
     "float>, unsigned int, float, 4, 4> >(int)"), "reduce Mean<float>"),
    ((f"void {_ANY}multi_tensor_apply_kernel<{_ANY}FusedOptimizerTensorListMetadata<4>, "
     f"{_FUSED_ADAM}, float const*>(int)"), "multi_tensor_apply FusedAdamMath<float>"),
    ((f"void {_ANY}multi_tensor_apply_kernel<{_ANY}TensorListScalarListMetadata<float, 3>, "
     f"{_POINTWISE}, std::divides<float> >(int)"),
     "multi_tensor_apply PointwiseOpScalarList<float> divides"),
    (f"void {_ANY}vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)",
     "vectorized_layer_norm_kernel<float>"),
    ((f"void {_ANY}cunn_SoftMaxForwardReg<c10::BFloat16, float, c10::BFloat16, {_ANY}"
     "LogSoftMaxForwardEpilogue, long, 5>(c10::BFloat16*)"),
     "cunn_SoftMaxForwardReg<bf16> LogSoftMaxForward"),
    # The whole number is an index, not the data.
    (f"void {_ANY}CatArrayBatchedCopy<{_ANY}OpaqueType<2u>, unsigned int, 4, 64, 64>(int)",
     "CatArrayBatchedCopy"),
    (f"void {_ANY}GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u, false>(long)",
     "GammaBetaBackwardCUDAKernelTemplate<float>"),
    (f"void {_ANY}krn_partials_per_segment<long>(long*, long)", "krn_partials_per_segment<long>"),
    (("void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<at_cuda_detail::"
     "cub::detail::radix::policy_hub<long, at::cuda::cub::detail::OpaqueType<8>, unsigned long "
     "long>::Policy1000, (at_cuda_detail::cub::SortOrder)0, long>(int*)"),
     "DeviceRadixSortOnesweepKernel"),
    (f"void cutlass__5x_cudnn::Kernel<{CUTLASS}>({CUTLASS}::Params)", CUTLASS),
    ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>>>(int)",
     "GemmUniversal"),
    (("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22"
     "ImplicitGemmMultistageINS_4gemm9GemmShapeILi64ELi128ELi32EEE"), "ImplicitGemmConvolution"),
    ("at::cuda::philox::unpack_cudnn(at::PhiloxCudaState, long*, long*)", "unpack_cudnn"),
    ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)",
     "fmha_cutlassF_f32_aligned_64x64_rf_sm80"),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
     "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
    (NVJET, NVJET),
    (XMMA, XMMA),
    ("triton_poi_fused_add_mul_relu_4", "triton_poi_fused_add_mul_relu_4"),
    ("(other kernels)", "(other kernels)"),
    ("my_kernel(float*, int)", "my_kernel"),
    ("kernel(float*, int)", "kernel"),
    ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "label"), NAMES)
def test_a_short_name_says_what_a_kernel_does_and_on_which_type(name, label):
    assert short_kernel(name) == label


def test_variants_of_a_kernel_and_kernels_that_look_alike_are_told_apart():
    plain = f"void {_AT}elementwise_kernel<128, 2, {_AT}CUDAFunctor_add<float>>(int)"
    assert set(short_kernels([_ADD, _UNROLLED_ADD, plain]).values()) == {
        "vectorized_elementwise add<float>", "unrolled_elementwise add<float>",
        "elementwise add<float>",
    }  # fmt: skip
    unary = f"void {_AT}vectorized_elementwise_kernel<4, {_UNARY}, std::array<char*, 2ul> >(int)"
    binary = f"void {_AT}vectorized_elementwise_kernel<4, {_BINARY}, std::array<char*, 3ul> >(int)"
    made = short_kernels([binary, unary, unary])
    assert made[unary] == "vectorized_elementwise Mul<float>"
    assert made[binary] == "vectorized_elementwise Mul<float> #2"
    assert short_kernels([unary])[unary] == "elementwise Mul<float>"


_PARTS = ["<", ">", "(", ")", "{", "}", "::", ",", " ", "_Z", "12", "float", "void ", "f", "kernel",
          "{lambda(", "(anonymous namespace)::", "->", "ab #2"]  # fmt: skip


@given(st.lists(st.one_of(st.text(max_size=3), st.sampled_from(_PARTS)), max_size=30).map("".join))
@example("Kernel<")
@example("a<b(c>d")
def test_any_name_has_a_short_one(name):
    label = short_kernel(name)
    assert bool(label) == bool(name)


@given(st.lists(st.sampled_from([name for name, _ in NAMES] + ["a #2()", "a()", "a(int)"])))
def test_short_names_of_different_kernels_differ(names):
    made = short_kernels(names)
    assert set(made) == set(names)
    assert len(set(made.values())) == len(set(names))


def test_a_damaged_name_takes_no_time():
    began = time.perf_counter()
    for name in ("a" + "<" * 60_000, "a<" + "b<c," * 15_000, "_Z" + "9" * 60_000, "a<" * 30_000):
        assert short_kernel(name)
    assert time.perf_counter() - began < 5


def test_names_that_lose_their_ends_stay_apart():
    names = ["abcdefghij", "abcdefghix", "abcdefghij", "short", "abcdefghiy"]
    assert ends_cut(names, 9) == ["abcdef...", "abcd...#2", "abcdef...", "short", "abcd...#3"]
    assert ends_cut(names, 10) == names


@pytest.mark.parametrize("width", [80, 100])
def test_a_kernel_has_one_line_that_begins_like_its_name(width):
    long = [
        f"sm90_xmma_wgrad_indexed_implicit_gemm_bf16bf16_bf16f32_{'x' * 90}_{i}" for i in (1, 2)
    ]
    run = gpu_training_run()
    made = tuple(kernel(name, 9 * MS, 3) for name in (*long, UNROLLED_COPY, NVJET))
    report = build_report(replaced(run, gpu=replaced(run.gpu, kernels=made)))
    rows = [row for row in report.kernels if row.name != OTHER_KERNELS_NAME]
    table = kernels(rows, report.gpu)
    lines = table_lines(table, width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 2 + 4
    first = [line.split("  ")[0] for line in lines[2:]]
    assert len(set(first)) == 4
    assert all(
        name.startswith(("sm90_xmma_wgrad_in", "elementwise dir", NVJET[:28])) for name in first
    )
    assert "est. occupancy %" not in lines[0]


def test_the_type_of_the_result_is_no_name() -> None:
    gemv = (
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, "
        "float, 128>(cublasGemvParamsEx<int>)"
    )
    assert short_kernel(gemv) == "gemvx<bf16>"
