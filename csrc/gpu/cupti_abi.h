/* cupti_abi: the part of CUPTI's binary interface that fastprof uses, declared
 * without NVIDIA's headers.  cupti_records.h describes the records.
 *
 * tests/gpu/test_abi_headers.py compares each number to the real headers if
 * they are installed. */
#ifndef FP_GPU_CUPTI_ABI_H
#define FP_GPU_CUPTI_ABI_H

#include "core/base.h"

#include <stddef.h>

enum { /* CUpti_ActivityKind */
       FP_CUPTI_MEMCPY = 1,
       FP_CUPTI_MEMSET = 2,
       FP_CUPTI_DRIVER = 4,
       FP_CUPTI_RUNTIME = 5,
       FP_CUPTI_CONCURRENT_KERNEL = 10,
       FP_CUPTI_MEMCPY2 = 22, /* between devices */
       FP_CUPTI_EXTERNAL_CORRELATION = 39,
       FP_CUPTI_GRAPH_TRACE = 51, /* instead of the records of its nodes */
};

enum { /* CUpti_ActivityAttribute */
       FP_CUPTI_DEVICE_BUFFER_SIZE = 0,
       FP_CUPTI_DEVICE_BUFFER_POOL_LIMIT = 2,
};

enum { /* CUptiResult */
       FP_CUPTI_SUCCESS = 0,
       FP_CUPTI_INVALID_PARAMETER = 1,
       FP_CUPTI_MAX_LIMIT_REACHED = 12, /* end of the buffer */
       FP_CUPTI_NOT_COMPATIBLE =
           14, /* another client uses the second interface */
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

/* CUpti_ExternalCorrelationKind: other tools use 0 to 4. */
enum { FP_CUPTI_EXTERNAL_CUSTOM2 = 5 };

/* ---- argument of an API callback (CUpti_CallbackData) ---- */

typedef struct fp_cupti_call {
    int site; /* FP_CUPTI_API_ENTER or _EXIT */
    const char *function_name;
    const void *params;
    void *return_value;
    const char *symbol_name;
    void *context;
    uint32_t context_uid;
    uint64_t *shared; /* one word, kept from enter to exit */
    uint32_t correlation;
} fp_cupti_call;

_Static_assert(offsetof(fp_cupti_call, correlation) == 64, "as in CUPTI");

/* Argument of a resource callback (CUpti_ResourceData), and its descriptor for
 * graph nodes (CUpti_GraphData). */
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

#endif
