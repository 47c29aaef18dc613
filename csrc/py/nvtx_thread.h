/* nvtx_thread: what one thread has open in NVTX, both ways.  Touched by that
 * thread alone, with or without the GIL; freed when it ends. */
#ifndef FP_PY_NVTX_THREAD_H
#define FP_PY_NVTX_THREAD_H

#include "py/nvtx_names.h"
#include "py/state.h"

#include "gpu/nvtx_out.h"

/* A range of the program and the section that it became. */
typedef struct fp_nvtx_range {
    uint64_t epoch;    /* of the recording; 0: it became none */
    uint64_t serial;   /* of the thread's record in it */
    const void *owner; /* compared only: the task */
    uint32_t id;       /* of the section */
} fp_nvtx_range;

/* The stack of one domain. */
typedef struct fp_nvtx_levels {
    const fp_nvtx_name *domain; /* NULL: the default one */
    fp_nvtx_range *range;       /* owned */
    uint32_t length;
    uint32_t capacity;
    uint32_t beyond; /* levels above them that found no room */
} fp_nvtx_levels;

typedef struct fp_nvtx_thread {
    fp_nvtx_levels *domain; /* owned */
    uint32_t domains;
    fp_nvtx_stack out;
} fp_nvtx_thread;

/* This thread's; NULL if it has none yet and [make] is 0, or without memory. */
fp_nvtx_thread *
fp_nvtx_thread_get(int make);

/* Its stack for [domain], likewise. */
fp_nvtx_levels *
fp_nvtx_thread_levels(const fp_nvtx_name *domain, int make);

#endif
