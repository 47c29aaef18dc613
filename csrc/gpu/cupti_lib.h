/* cupti_lib: libcupti as a table of functions, found at run time without
 * linking and without NVIDIA's headers.  A function that the release lacks is
 * NULL.  All functions return a CUptiResult. */
#ifndef FP_GPU_CUPTI_LIB_H
#define FP_GPU_CUPTI_LIB_H

#include "core/base.h"
#include "gpu/library.h"

#include <stddef.h>

enum { /* first versions without a defect */
       FP_CUPTI_MAY_BE_REFUSED_BUFFERS = 27,    /* CUDA 12.9 */
       FP_CUPTI_KERNELS_CAN_END = 130001,       /* 13.0 with update 1 */
       FP_CUPTI_GRAPHS_HAVE_THEIR_IDS = 130101, /* 13.1 with update 1 */
};

typedef void (*fp_cupti_callback)(void *user, int domain, uint32_t cbid,
                                  const void *data);
typedef void (*fp_cupti_request)(uint8_t **buffer, size_t *size,
                                 size_t *max_records);
typedef void (*fp_cupti_complete)(void *context, uint32_t stream,
                                  uint8_t *buffer, size_t size, size_t valid);

typedef struct fp_cupti {
    void *handle; /* never closed: CUPTI may still own buffers and threads */
    uint32_t version;
    /* required */
    int (*get_version)(uint32_t *version);
    int (*get_result_string)(int result, const char **text);
    int (*subscribe)(void **subscriber, fp_cupti_callback f, void *user);
    int (*unsubscribe)(void *subscriber);
    int (*enable_callback)(uint32_t enable, void *subscriber, int domain,
                           uint32_t cbid);
    int (*register_buffers)(fp_cupti_request request,
                            fp_cupti_complete complete);
    int (*enable)(int kind);
    int (*disable)(int kind);
    int (*flush_all)(uint32_t flags);
    int (*next_record)(uint8_t *buffer, size_t valid, uint8_t **record);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*get_timestamp)(uint64_t *ns);
    /* optional; NULL if the release lacks it */
    int (*push_external)(int kind, uint64_t id);
    int (*pop_external)(int kind, uint64_t *last);
    int (*enable_runtime_api)(uint32_t cbid, uint8_t enable); /* 12.6 */
    int (*enable_driver_api)(uint32_t cbid, uint8_t enable);  /* 12.6 */
    int (*get_graph_node_id)(void *node, uint64_t *id);
    int (*get_attribute)(int attribute, size_t *size, void *value);
    int (*set_attribute)(int attribute, size_t *size, void *value);
    int (*register_clock)(uint64_t (*now_ns)(void)); /* 11.6 */
} fp_cupti;

/* Opens the library at [path] (see fp_library_open) and reads its version.
 * The CUDA driver must be initialised: without it some releases crash in
 * cuptiGetVersion.  Returns 0, or -1 with [why]. */
int
fp_cupti_open(fp_cupti *c, const char *path, fp_why *why);

/* Writes "code (name)" of a CUptiResult to [text]. */
void
fp_cupti_describe(const fp_cupti *c, int result, char *text, size_t size);

#endif
