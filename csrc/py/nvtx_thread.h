/* nvtx_thread: the open NVTX ranges of one thread, in both directions.  Only
 * that thread uses them, with or without the GIL; they are freed when it
 * ends. */
#ifndef FP_PY_NVTX_THREAD_H
#define FP_PY_NVTX_THREAD_H

#include "py/nvtx_names.h"
#include "py/state.h"

#include "gpu/nvtx_out.h"

/* A range of the program and its section. */
typedef struct fp_nvtx_range {
    uint64_t epoch;    /* of the recording; 0: the range has no section */
    uint64_t serial;   /* of the thread's record in that recording */
    const void *owner; /* the task; only to be compared */
    uint32_t id;       /* of the section */
} fp_nvtx_range;

/* The open ranges of one domain. */
typedef struct fp_nvtx_levels {
    const fp_nvtx_name *domain; /* NULL: the default domain */
    fp_nvtx_range *range;       /* owned */
    uint32_t length;
    uint32_t capacity;
    uint32_t beyond; /* number of levels above them without memory */
} fp_nvtx_levels;

typedef struct fp_nvtx_thread {
    fp_nvtx_levels *domain; /* owned */
    uint32_t domains;
    fp_nvtx_stack out;
} fp_nvtx_thread;

/* The calling thread's ranges; NULL: it has none and [make] is 0, or no
 * memory. */
fp_nvtx_thread *
fp_nvtx_thread_get(int make);

/* The calling thread's stack for [domain]; NULL: as above. */
fp_nvtx_levels *
fp_nvtx_thread_levels(const fp_nvtx_name *domain, int make);

/* Makes room for one more level.  Returns 0 if there is none. */
int
fp_nvtx_levels_room(fp_nvtx_levels *l);

#endif
