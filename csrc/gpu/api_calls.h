/* api_calls: the CUDA calls that launch work or wait for it, by CUPTI's
 * numbers.  The numbers are the same in every release; the names are not. */
#ifndef FP_GPU_API_CALLS_H
#define FP_GPU_API_CALLS_H

#include "core/base.h"
#include "gpu/cupti_abi.h"

typedef enum fp_api_class {
    FP_API_NONE,      /* neither launches nor waits */
    FP_API_LAUNCH,    /* kernel, copy or memset that runs later */
    FP_API_GRAPH,     /* one call, many activities */
    FP_API_SYNC,      /* waits for the device */
    FP_API_COPY_SYNC, /* both: a copy that returns when it is done */
} fp_api_class;

typedef struct fp_api_call {
    uint8_t domain; /* FP_CUPTI_DOMAIN_RUNTIME or _DRIVER */
    uint8_t api_class;
    uint16_t cbid;
} fp_api_call;

/* All of them, with their per-thread-default-stream variants.  A library
 * rejects the numbers of calls that are newer than itself. */
extern const fp_api_call fp_api_calls[];
extern const uint32_t fp_api_call_count;

/* Above all numbers of calls. */
enum { FP_API_CALLS = 1024 };

extern const uint8_t fp_api_runtime_class[FP_API_CALLS];
extern const uint8_t fp_api_driver_class[FP_API_CALLS];

/* The class of a call; FP_API_NONE if it is not in the table.  Any thread,
 * constant time. */
static inline fp_api_class
fp_api_class_of(int domain, uint32_t cbid)
{
    if (cbid >= FP_API_CALLS || (domain != FP_CUPTI_DOMAIN_DRIVER &&
                                 domain != FP_CUPTI_DOMAIN_RUNTIME)) {
        return FP_API_NONE;
    }
    return (fp_api_class)(domain == FP_CUPTI_DOMAIN_DRIVER
                              ? fp_api_driver_class[cbid]
                              : fp_api_runtime_class[cbid]);
}

/* Does a call of this class block the host? */
static inline int
fp_api_waits(fp_api_class what)
{
    return what == FP_API_SYNC || what == FP_API_COPY_SYNC;
}

#endif
