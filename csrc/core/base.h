/* base: status codes and branch hints for the whole core.  Includes no other
 * header of fastprof, so every header may include it. */
#ifndef FP_CORE_BASE_H
#define FP_CORE_BASE_H

#include <stdint.h>

/* 0 or negative.  A prototype explains any unusual code that it returns. */
typedef enum fp_status {
    FP_OK = 0,
    FP_ENOMEM = -1,
    FP_ENOTFOUND = -2,
} fp_status;

#if defined(__GNUC__)
#define FP_LIKELY(x) __builtin_expect(!!(x), 1)
#define FP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Never inlined: a function that only tail-calls it saves no registers for
 * it. */
#define FP_COLD __attribute__((noinline, cold))
#else
#define FP_LIKELY(x) (x)
#define FP_UNLIKELY(x) (x)
#define FP_COLD
#endif

#endif
