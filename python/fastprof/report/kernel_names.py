"""Classifies kernels by their names: the kind of work, and use of tensor cores.

The parts of names come from the kernels of cuBLAS, cuDNN, CUTLASS, PyTorch, Triton, FlashAttention,
NCCL, and other libraries that communicate.  Nothing else is known about a kernel, so a wrong guess
is possible and "unknown" is an answer.
"""

import re
from functools import lru_cache


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


#: Inductor names a kernel after everything fused into it; only templates (``tem``) are the
#: operation in their name.
_TRITON_FUSED = _any(r"triton_(?!tem_)\w*fused")

#: The first match is the kind.
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fused", _TRITON_FUSED),
    # The names of csrc/gpu/communication.c, which decides for timelines and ranks.
    (
        "communication",
        _any("nccl", "rcclGeneric", "msccl", "nvshmem", "all_?reduce", "all_?gather",
             "reduce_?scatter", "cross_device_reduce", "all_?to_?all", "deep_?ep", "multimem"),
    ),
    (
        "attention",
        # The last two prepare and end cuDNN's backward of attention.
        _any("fmha", "attention", "flash", "sdpa", r"(?<![a-z])mha_", "dot_do_o", "convert_dq_"),
    ),
    (
        "copy",
        _any("memcpy", "memset", r"direct_copy", r"copy_kernel", r"copy_device", "CatArray",
             "FillFunctor", "nchwToNhwc", "nhwcToNchw", r"nhwc\w*Padding"),
    ),
    ("normalization", _any(r"layer_?norm", r"batch_?norm", r"group_?norm", r"rms_?norm",
                           r"(?<![a-z])bn_(?:fw|bw)", "softmax", r"welford", "GammaBeta")),
    (
        "convolution",
        _any(r"conv(?!er)", "fprop", "dgrad", "wgrad", "winograd", "implicit_gemm"),
    ),
    (
        "gemm",
        _any("gemm", "gemv", "nvjet", "cutlass", r"split_?k_?reduce", r"matmul", r"xmma",
             r"(?<![a-z])(?:b|add|baddb|scaled_)?mm(?![a-z])"),
    ),
    ("fused", _any(r"(?<!un)(?<!non_)fused")),
    # What torch._foreach_... run, mostly for optimizers and gradient clipping.
    ("foreach", _any("multi_tensor_apply", "lpnorm_cleanup")),
    ("loss", _any(r"(?<![a-z])loss(?![a-z])", "cross_entropy")),
    ("pooling", _any(r"(?<![a-z])(?:max|avg|average|adaptive)_?pool")),
    ("sort and scan", _any("RadixSort", "MergeSort", r"bitonic_?sort", "UniqueByKey", "topk",
                           "DeviceScan", "DeviceCompact", "kernel_scan_")),
    # The kernels with segments are those of embedding's backward.
    ("indexing", _any("embedding", "gather", "scatter", r"index_?(?:select|put|add|copy|fill)",
                      r"(?<![a-z])index_elementwise", "compute_grad_weight",
                      r"partials?_(?:per_)?segments?")),
    ("reduction", _any("reduce_kernel", "DeviceReduce")),
    ("elementwise", _any("elementwise")),
)  # fmt: skip

#: Matrix instructions of each generation, and libraries that only use these.
_TENSOR = _any(
    r"[hsic]884", r"[hsic]1688", r"16816", r"i?8816", r"16832", r"(?<![a-z])[hidbq]?g?mma(?![a-z])",
    r"wgmma", "hmma", "imma", "bmma", "dmma", "utc[a-z]*mma", "tcgen05", "nvjet", "tensor_?op",
    r"xmma_(?!.*simt)", "flash_(?:fwd|bwd)", "FlashAttn", "fmha_cutlass", r"sm90_\w*gmma",
)  # fmt: skip

#: Matrix products on the ordinary units.
_SIMT = _any(
    r"simt", r"_ffma(?![a-z])", r"(?:volta|ampere|maxwell|turing|pascal|kepler)_[sdcz]gemm", "gemv"
)

#: Kernels of PyTorch that work element by element or reduce.
_PLAIN = _any(r"elementwise", r"reduce_kernel", r"multi_tensor_apply", r"softmax", r"layer_?norm")


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str:
    """Return the kind of a kernel: a name in ``_KINDS``, else ``other``."""
    for kind, pattern in _KINDS:
        if pattern.search(name):
            return kind
    return "other"


@lru_cache(maxsize=4096)
def uses_tensor_cores(name: str) -> bool | None:
    """Return whether a kernel uses tensor cores; None: the name does not tell.

    As PyTorch's TensorBoard plugin did: by the matrix instruction in the name.
    """
    if _SIMT.search(name):
        return False
    kind = kind_of(name)
    if kind in ("copy", "communication"):
        return False
    if kind in ("gemm", "convolution", "attention", "fused", "other") and _TENSOR.search(name):
        return True
    return False if kind != "attention" and _PLAIN.search(name) else None
