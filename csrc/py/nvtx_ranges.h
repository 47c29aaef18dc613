/* nvtx_ranges: what NVTX's functions (nvtx_entry.c) ask of nvtx_in.c.  On any
 * thread, with or without the GIL. */
#ifndef FP_PY_NVTX_RANGES_H
#define FP_PY_NVTX_RANGES_H

#include "py/nvtx_names.h"

/* May a client attach? */
int
fp_nvtx_in_may_attach(void);

/* A range's name. */
typedef struct fp_nvtx_message {
    fp_nvtx_name *registered; /* or NULL */
    const char *text;         /* or NULL */
} fp_nvtx_message;

/* A range of the calling thread in [domain] begins; how many there were before,
 * or less than 0. */
int
fp_nvtx_in_push(const fp_nvtx_name *domain, fp_nvtx_message m);

/* The one that began last ends; how many are left, or less than 0. */
int
fp_nvtx_in_pop(const fp_nvtx_name *domain);

/* A range of the process begins; its number. */
uint64_t
fp_nvtx_in_start(const fp_nvtx_name *domain, fp_nvtx_message m);

void
fp_nvtx_in_end(uint64_t number);

#endif
