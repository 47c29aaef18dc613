/* nvtx_out: emits sections as NVTX ranges for any tool that listens.
 *
 * Ranges go to fastprof's own domain, separate from the program's pushes and
 * pops; a tool without domains gets them in the default one.  A domain has one
 * stack per thread, but sections need not nest.  So a range ends at the latest
 * with the range around it. */
#ifndef FP_GPU_NVTX_OUT_H
#define FP_GPU_NVTX_OUT_H

#include "core/alloc.h"
#include "core/base.h"
#include "gpu/library.h"
#include "gpu/nvtx_abi.h"

typedef struct fp_nvtx_out {
    void *library; /* never closed: the tool may have threads */
    void *domain;  /* the tool's handle; NULL: not created yet */
    /* Pointers that the tool sets, through the tables in `entry`.  Some tools
     * (CUPTI) set them later and from another thread. */
    fp_nvtx_function function[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS];
    fp_nvtx_function *entry[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS + 1];
} fp_nvtx_out;

/* Loads the tool at [path] and lets it attach.  [get_export] returns the
 * export tables; fp_nvtx_out_module serves as their callback.  Refuses a tool
 * whose entry function is [own].  Returns 0, or -1 with [why]. */
int
fp_nvtx_out_open(fp_nvtx_out *o, const char *path,
                 fp_nvtx_get_export get_export, fp_nvtx_init own, fp_why *why);

/* Implements fp_nvtx_callbacks.get_module. */
int
fp_nvtx_out_module(fp_nvtx_out *o, int module, fp_nvtx_table *table,
                   unsigned *count);

/* An open range of a thread. */
typedef struct fp_nvtx_open {
    const void *owner; /* the task, compared only; NULL: no task yet */
    uint64_t epoch;    /* of the recording */
    uint32_t id;       /* of the section */
    /* set by fp_nvtx_out_push: the module whose stack holds it; 0: none */
    uint32_t module;
} fp_nvtx_open;

typedef struct fp_nvtx_stack {
    fp_nvtx_open *open; /* owned */
    uint32_t length;
    uint32_t capacity;
} fp_nvtx_stack;

/* Begins a range with [name] (UTF-8).  Without memory there is no range. */
void
fp_nvtx_out_push(fp_nvtx_out *o, fp_nvtx_stack *s, const fp_alloc *a,
                 const char *name, fp_nvtx_open what);

/* Ends the innermost matching range, if any, and the ranges inside it.
 * Returns the number of the latter. */
uint32_t
fp_nvtx_out_pop(const fp_nvtx_out *o, fp_nvtx_stack *s, fp_nvtx_open what);

/* Ends all ranges of the thread. */
void
fp_nvtx_out_end(const fp_nvtx_out *o, fp_nvtx_stack *s);

/* Frees the stack without ending its ranges. */
void
fp_nvtx_stack_free(fp_nvtx_stack *s, const fp_alloc *a);

#endif
