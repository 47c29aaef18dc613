/* api_calls: the CUDA calls that matter here, by CUPTI's numbers.  The numbers
 * are the same in every release; the names are not. */
#ifndef FP_GPU_API_CALLS_H
#define FP_GPU_API_CALLS_H

#include "core/base.h"

typedef enum fp_api_class {
    FP_API_NONE,      /* of no interest */
    FP_API_LAUNCH,    /* kernel, copy or memset that the device does later */
    FP_API_GRAPH,     /* one call, many activities */
    FP_API_SYNC,      /* the host waits for the device */
    FP_API_COPY_SYNC, /* both: a copy that returns when it is done */
} fp_api_class;

typedef struct fp_api_call {
    uint8_t domain; /* FP_CUPTI_DOMAIN_RUNTIME or _DRIVER */
    uint8_t api_class;
    uint16_t cbid;
} fp_api_call;

/* All of them, per-thread-default-stream twins included.  A library refuses the
 * numbers of calls that are newer than itself. */
extern const fp_api_call fp_api_calls[];
extern const uint32_t fp_api_call_count;

/* FP_API_NONE for what is not in the table.  Any thread, constant time. */
fp_api_class
fp_api_class_of(int domain, uint32_t cbid);

#endif
