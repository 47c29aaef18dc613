#include "gpu/communication.h"

#include <stddef.h>

/* A part of names, in lower case and without underscores. */
typedef struct mark {
    const char *part;
    fp_communication is;
} mark;

/* The first match decides.  report/kernel_names.py has the same names. */
static const mark marks[] = {
    /* Inductor names a kernel after the operations next to it, too. */
    {"triton", FP_COMMUNICATION_NONE},
    /* ncclDevKernel_AllReduce_..., oneShotAllReduceKernel (TensorRT-LLM),
     * allreduce_fusion_kernel_... (FlashInfer), and in torch's symmetric memory
     * one_shot_all_reduce_kernel, multimem_all_gather_kernel. */
    {"allreduce", FP_COMMUNICATION_COLLECTIVE},
    {"allgather", FP_COMMUNICATION_COLLECTIVE},
    {"reducescatter", FP_COMMUNICATION_COLLECTIVE},
    /* the all-reduce of vLLM, SGLang and AITER */
    {"crossdevicereduce", FP_COMMUNICATION_COLLECTIVE},
    {"nccl", FP_COMMUNICATION_OTHER},
    {"rcclgeneric", FP_COMMUNICATION_OTHER},
    {"msccl", FP_COMMUNICATION_OTHER},
    {"nvshmem", FP_COMMUNICATION_OTHER},
    {"alltoall", FP_COMMUNICATION_OTHER},
    /* deep_ep::intranode::dispatch, ...::combine: experts' all-to-all */
    {"deepep", FP_COMMUNICATION_OTHER},
    /* multimem_one_shot_reduce_kernel */
    {"multimem", FP_COMMUNICATION_OTHER},
};

static int
lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Does [name] go on with [part]? */
static int
goes_on(const char *name, const char *part)
{
    for (; *part != '\0'; name++) {
        if (*name == '_') {
            continue;
        }
        if (lower(*name) != *part) {
            return 0;
        }
        part++;
    }
    return 1;
}

static int
has(const char *name, const char *part)
{
    for (; *name != '\0'; name++) {
        if (goes_on(name, part)) {
            return 1;
        }
    }
    return 0;
}

fp_communication
fp_communication_of(const char *name)
{
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (has(name, marks[i].part)) {
            return marks[i].is;
        }
    }
    return FP_COMMUNICATION_NONE;
}
