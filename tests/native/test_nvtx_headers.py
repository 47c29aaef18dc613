"""Compares csrc/gpu/nvtx_abi.h to NVIDIA's headers."""

from __future__ import annotations

import pytest
from nvtx_kit import compile_c, real_headers

CHECKS = """
#include <stddef.h>
#include <nvtx3/nvToolsExt.h>
#include "gpu/nvtx_abi.h"

#define SAME(a, b) _Static_assert((long long)(a) == (long long)(b), #a)
#define SIZE(ours, real) SAME(sizeof(ours), sizeof(real))
#define FIELD(ours, a, real, b) SAME(offsetof(ours, a), offsetof(real, b))

SAME(FP_NVTX_EXPORT_CALLBACKS, NVTX_ETID_CALLBACKS);
SAME(FP_NVTX_EXPORT_VERSION, NVTX_ETID_VERSIONINFO);
SAME(FP_NVTX_CORE, NVTX_CB_MODULE_CORE);
SAME(FP_NVTX_CORE2, NVTX_CB_MODULE_CORE2);
SAME(FP_NVTX_SYNC, NVTX_CB_MODULE_SYNC);
SAME(FP_NVTX_MODULES, NVTX_CB_MODULE_SIZE);
SAME(FP_NVTX_RANGE_START_EX, NVTX_CBID_CORE_RangeStartEx);
SAME(FP_NVTX_RANGE_START_A, NVTX_CBID_CORE_RangeStartA);
SAME(FP_NVTX_RANGE_START_W, NVTX_CBID_CORE_RangeStartW);
SAME(FP_NVTX_RANGE_END, NVTX_CBID_CORE_RangeEnd);
SAME(FP_NVTX_RANGE_PUSH_EX, NVTX_CBID_CORE_RangePushEx);
SAME(FP_NVTX_RANGE_PUSH_A, NVTX_CBID_CORE_RangePushA);
SAME(FP_NVTX_RANGE_PUSH_W, NVTX_CBID_CORE_RangePushW);
SAME(FP_NVTX_RANGE_POP, NVTX_CBID_CORE_RangePop);
SAME(FP_NVTX_DOMAIN_RANGE_START_EX, NVTX_CBID_CORE2_DomainRangeStartEx);
SAME(FP_NVTX_DOMAIN_RANGE_END, NVTX_CBID_CORE2_DomainRangeEnd);
SAME(FP_NVTX_DOMAIN_RANGE_PUSH_EX, NVTX_CBID_CORE2_DomainRangePushEx);
SAME(FP_NVTX_DOMAIN_RANGE_POP, NVTX_CBID_CORE2_DomainRangePop);
SAME(FP_NVTX_DOMAIN_REGISTER_STRING_A, NVTX_CBID_CORE2_DomainRegisterStringA);
SAME(FP_NVTX_DOMAIN_REGISTER_STRING_W, NVTX_CBID_CORE2_DomainRegisterStringW);
SAME(FP_NVTX_DOMAIN_CREATE_A, NVTX_CBID_CORE2_DomainCreateA);
SAME(FP_NVTX_DOMAIN_CREATE_W, NVTX_CBID_CORE2_DomainCreateW);
SAME(FP_NVTX_NO_LEVELS, NVTX_NO_PUSH_POP_TRACKING);
SAME(FP_NVTX_VERSION, NVTX_VERSION);
SAME(FP_NVTX_MESSAGE_NONE, NVTX_MESSAGE_UNKNOWN);
SAME(FP_NVTX_MESSAGE_ASCII, NVTX_MESSAGE_TYPE_ASCII);
SAME(FP_NVTX_MESSAGE_WIDE, NVTX_MESSAGE_TYPE_UNICODE);
SAME(FP_NVTX_MESSAGE_REGISTERED, NVTX_MESSAGE_TYPE_REGISTERED);

/* How many functions each module has; fp_nvtx_out_module says the same. */
SAME(FP_NVTX_MAX_FUNCTIONS, NVTX_CBID_CORE_SIZE);
SAME(FP_NVTX_MAX_FUNCTIONS, NVTX_CBID_CORE2_SIZE);
SAME(9, NVTX_CBID_CUDA_SIZE);
SAME(15, NVTX_CBID_OPENCL_SIZE);
SAME(7, NVTX_CBID_CUDART_SIZE);
SAME(7, NVTX_CBID_SYNC_SIZE);

SIZE(fp_nvtx_event, nvtxEventAttributes_t);
FIELD(fp_nvtx_event, version, nvtxEventAttributes_t, version);
FIELD(fp_nvtx_event, size, nvtxEventAttributes_t, size);
FIELD(fp_nvtx_event, category, nvtxEventAttributes_t, category);
FIELD(fp_nvtx_event, color_type, nvtxEventAttributes_t, colorType);
FIELD(fp_nvtx_event, color, nvtxEventAttributes_t, color);
FIELD(fp_nvtx_event, payload_type, nvtxEventAttributes_t, payloadType);
FIELD(fp_nvtx_event, payload, nvtxEventAttributes_t, payload);
FIELD(fp_nvtx_event, message_type, nvtxEventAttributes_t, messageType);
FIELD(fp_nvtx_event, message, nvtxEventAttributes_t, message);
SIZE(fp_nvtx_callbacks, NvtxExportTableCallbacks);
FIELD(fp_nvtx_callbacks, get_module, NvtxExportTableCallbacks, GetModuleFunctionTable);
SIZE(fp_nvtx_version_info, NvtxExportTableVersionInfo);
FIELD(fp_nvtx_version_info, version, NvtxExportTableVersionInfo, version);
FIELD(fp_nvtx_version_info, set_tool_version, NvtxExportTableVersionInfo,
      SetInjectionNvtxVersion);
SIZE(fp_nvtx_table, NvtxFunctionTable);
SIZE(uint64_t, nvtxRangeId_t);
"""


def test_numbers_and_layouts_are_the_real_ones(tmp_path) -> None:
    headers = real_headers()
    if headers is None:
        pytest.skip("no nvtx3 headers on this machine")
    source = tmp_path / "checks.c"
    source.write_text(CHECKS)
    compile_c(tmp_path / "checks.o", source, "-c", "-isystem", headers)
