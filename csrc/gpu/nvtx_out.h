/* nvtx_out: sections as NVTX ranges: a client of whatever tool listens.
 *
 * Ranges go into a domain of our own, so that they cannot be mixed up with the
 * program's own pushes and pops; for a tool without domains, into the default one.  A domain has one stack per thread; sections
 * need not nest.  So a range ends with the section around it at the latest. */
#ifndef FP_GPU_NVTX_OUT_H
#define FP_GPU_NVTX_OUT_H

#include "core/alloc.h"
#include "core/base.h"
#include "gpu/library.h"
#include "gpu/nvtx_abi.h"

typedef struct fp_nvtx_out {
    void *library; /* never closed: the tool may have threads */
    void *domain;  /* the tool's handle; NULL: none was made so far */
    /* What the tool fills, some of them (CUPTI) later and from another thread,
     * and the tables through which it does. */
    fp_nvtx_function function[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS];
    fp_nvtx_function *entry[FP_NVTX_MODULES][FP_NVTX_MAX_FUNCTIONS + 1];
} fp_nvtx_out;

/* Loads the tool at [path] and lets it attach.  [get_export] gives the tables,
 * of which fp_nvtx_out_module is the callback; a tool whose entry is [own] is
 * refused.  0, or -1 with [why]. */
int
fp_nvtx_out_open(fp_nvtx_out *o, const char *path,
                 fp_nvtx_get_export get_export, fp_nvtx_init own, fp_why *why);

/* fp_nvtx_callbacks.get_module. */
int
fp_nvtx_out_module(fp_nvtx_out *o, int module, fp_nvtx_table *table,
                   unsigned *count);

/* A range that a thread has open. */
typedef struct fp_nvtx_open {
    const void *owner; /* compared only: the task; NULL: before any */
    uint64_t epoch;    /* of the recording */
    uint32_t id;       /* of the section */
    uint32_t
        module; /* set by fp_nvtx_out_push: whose stack it is on; 0: none */
} fp_nvtx_open;

typedef struct fp_nvtx_stack {
    fp_nvtx_open *open; /* owned */
    uint32_t length;
    uint32_t capacity;
} fp_nvtx_stack;

/* Begins a range called [name] (UTF-8); without memory there is none. */
void
fp_nvtx_out_push(fp_nvtx_out *o, fp_nvtx_stack *s, const fp_alloc *a,
                 const char *name, fp_nvtx_open what);

/* Ends the innermost such range, if there is one.  Returns how many inner ranges
 * had to end with it. */
uint32_t
fp_nvtx_out_pop(const fp_nvtx_out *o, fp_nvtx_stack *s, fp_nvtx_open what);

/* Ends all of the thread's ranges. */
void
fp_nvtx_out_end(const fp_nvtx_out *o, fp_nvtx_stack *s);

void
fp_nvtx_stack_free(fp_nvtx_stack *s, const fp_alloc *a);

#endif
