/* base: status codes and branch hints shared by the whole core.  Knows nothing
 * else; every other header may include it. */
#ifndef FP_CORE_BASE_H
#define FP_CORE_BASE_H

#include <stdint.h>

/* 0 or negative; odd codes are explained at the prototype that returns them. */
typedef enum fp_status {
    FP_OK = 0,
    FP_ENOMEM = -1,
    FP_ENOTFOUND = -2,
} fp_status;

#if defined(__GNUC__)
#define FP_LIKELY(x) __builtin_expect(!!(x), 1)
#define FP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Never inlined, so that what calls it last saves no registers for it. */
#define FP_COLD __attribute__((noinline, cold))
#else
#define FP_LIKELY(x) (x)
#define FP_UNLIKELY(x) (x)
#define FP_COLD
#endif

#endif
