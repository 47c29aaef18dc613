/* cupti_abi: what CUPTI's binary interface looks like, in our own words.
 *
 * CUPTI writes records of its own newest layout, whatever the client was built
 * with, and only ever appends fields.  So records are read by offset, with the
 * offsets that hold in every release from 11.8 to 13.5, and the iterator of the
 * library that wrote them finds the next one.  tests/gpu/test_abi_headers.py
 * asserts each number against real headers where there are any. */
#ifndef FP_GPU_CUPTI_ABI_H
#define FP_GPU_CUPTI_ABI_H

#include "core/base.h"

#include <stddef.h>
#include <string.h>

enum { /* CUpti_ActivityKind */
       FP_CUPTI_MEMCPY = 1,
       FP_CUPTI_MEMSET = 2,
       FP_CUPTI_DRIVER = 4,
       FP_CUPTI_RUNTIME = 5,
       FP_CUPTI_CONCURRENT_KERNEL = 10,
       FP_CUPTI_MEMCPY2 = 22, /* between devices */
       FP_CUPTI_EXTERNAL_CORRELATION = 39,
};

enum { /* CUptiResult */
       FP_CUPTI_SUCCESS = 0,
       FP_CUPTI_INVALID_PARAMETER = 1,
       FP_CUPTI_MAX_LIMIT_REACHED = 12, /* end of the buffer */
       FP_CUPTI_NOT_COMPATIBLE =
           14, /* another client uses the other interface */
       FP_CUPTI_NOT_INITIALIZED = 15,
       FP_CUPTI_INVALID_KIND = 21,
       FP_CUPTI_MULTIPLE_SUBSCRIBERS = 39,
       FP_CUPTI_UNKNOWN = 999,
};

enum { /* CUpti_CallbackDomain */
       FP_CUPTI_DOMAIN_DRIVER = 1,
       FP_CUPTI_DOMAIN_RUNTIME = 2,
       FP_CUPTI_DOMAIN_RESOURCE = 3,
};

enum { /* CUpti_CallbackIdResource */
       FP_CUPTI_GRAPHNODE_CREATED = 13,
       FP_CUPTI_GRAPHNODE_CLONED = 20,
};

enum { /* CUpti_ApiCallbackSite */
       FP_CUPTI_API_ENTER = 0,
       FP_CUPTI_API_EXIT = 1,
};

enum { FP_CUPTI_FLUSH_FORCED = 1 };

/* CUpti_ExternalCorrelationKind: 0 to 4 are used by others. */
enum { FP_CUPTI_EXTERNAL_CUSTOM2 = 5 };

/* ---- records: where a field begins ---- */

enum {
    FP_AT_KIND = 0, /* u32, every record */

    FP_AT_KERNEL_REGISTERS = 6, /* u16 */
    FP_AT_KERNEL_START = 16,    /* u64 ns, as all times */
    FP_AT_KERNEL_END = 24,
    FP_AT_KERNEL_DEVICE = 40, /* u32, as what follows */
    FP_AT_KERNEL_STREAM = 48,
    FP_AT_KERNEL_GRID = 52,           /* 3 x i32 */
    FP_AT_KERNEL_BLOCK = 64,          /* 3 x i32 */
    FP_AT_KERNEL_STATIC_SHARED = 76,  /* bytes */
    FP_AT_KERNEL_DYNAMIC_SHARED = 80, /* bytes */
    FP_AT_KERNEL_CORRELATION = 92,
    FP_AT_KERNEL_NAME = 104,       /* const char *, mangled */
    FP_AT_KERNEL_GRAPH_NODE = 144, /* u64; 0: not in a graph */

    FP_AT_MEMCPY_COPY_KIND = 4, /* u8 */
    FP_AT_MEMCPY_BYTES = 8,     /* u64 */
    FP_AT_MEMCPY_START = 16,
    FP_AT_MEMCPY_END = 24,
    FP_AT_MEMCPY_DEVICE = 32,
    FP_AT_MEMCPY_STREAM = 40,
    FP_AT_MEMCPY_CORRELATION = 44,
    FP_AT_MEMCPY_GRAPH_NODE = 64, /* u64 */

    FP_AT_MEMCPY2_BYTES = 8,
    FP_AT_MEMCPY2_START = 16,
    FP_AT_MEMCPY2_END = 24,
    FP_AT_MEMCPY2_DEVICE = 32,
    FP_AT_MEMCPY2_STREAM = 40,
    FP_AT_MEMCPY2_CORRELATION = 60,
    FP_AT_MEMCPY2_GRAPH_NODE = 72,

    FP_AT_MEMSET_BYTES = 8,
    FP_AT_MEMSET_START = 16,
    FP_AT_MEMSET_END = 24,
    FP_AT_MEMSET_DEVICE = 32,
    FP_AT_MEMSET_STREAM = 40,
    FP_AT_MEMSET_CORRELATION = 44,
    FP_AT_MEMSET_GRAPH_NODE = 64,

    FP_AT_API_CBID = 4,
    FP_AT_API_START = 8,
    FP_AT_API_END = 16,
    FP_AT_API_THREAD = 28, /* u32, as cuptiSetThreadIdType says */
    FP_AT_API_CORRELATION = 32,

    FP_AT_EXTERNAL_KIND = 4,
    FP_AT_EXTERNAL_ID = 8, /* u64 */
    FP_AT_EXTERNAL_CORRELATION = 16,
};

/* CUpti_ActivityMemcpyKind */
enum {
    FP_COPY_HTOD = 1,
    FP_COPY_DTOH = 2,
    FP_COPY_HTOA = 3,
    FP_COPY_ATOH = 4,
    FP_COPY_ATOA = 5,
    FP_COPY_ATOD = 6,
    FP_COPY_DTOA = 7,
    FP_COPY_DTOD = 8,
    FP_COPY_HTOH = 9,
    FP_COPY_PTOP = 10,
};

/* ---- what an API callback is given (CUpti_CallbackData) ---- */

typedef struct fp_cupti_call {
    int site; /* FP_CUPTI_API_ENTER or _EXIT */
    const char *function_name;
    const void *params;
    void *return_value;
    const char *symbol_name;
    void *context;
    uint32_t context_uid;
    uint64_t *shared; /* one word from enter to exit */
    uint32_t correlation;
} fp_cupti_call;

_Static_assert(offsetof(fp_cupti_call, correlation) == 64, "as in CUPTI");

/* What a resource callback is given (CUpti_ResourceData), and what its
 * descriptor is for graph nodes (CUpti_GraphData). */
typedef struct fp_cupti_resource {
    void *context;
    void *stream;
    void *descriptor;
} fp_cupti_resource;

typedef struct fp_cupti_graph {
    void *graph;
    void *original_graph;
    void *node;
    void *original_node;
    int node_type;
    void *dependency;
    void *exec;
} fp_cupti_graph;

/* ---- reading ---- */

static inline uint64_t
fp_read_u64(const uint8_t *record, size_t at)
{
    uint64_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

static inline uint32_t
fp_read_u32(const uint8_t *record, size_t at)
{
    uint32_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

static inline uint16_t
fp_read_u16(const uint8_t *record, size_t at)
{
    uint16_t v;
    memcpy(&v, record + at, sizeof(v));
    return v;
}

#endif
