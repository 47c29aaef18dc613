/* nvtx_ranges: the functions of nvtx_in.c that nvtx_entry.c calls.  They run
 * on any thread, with or without the GIL. */
#ifndef FP_PY_NVTX_RANGES_H
#define FP_PY_NVTX_RANGES_H

#include "py/nvtx_names.h"

/* May a client attach? */
int
fp_nvtx_in_may_attach(void);

/* The name of a range; both fields may be NULL. */
typedef struct fp_nvtx_message {
    fp_nvtx_name *registered;
    const char *text;
} fp_nvtx_message;

/* Begins a range of the calling thread in [domain].  Returns the number of
 * ranges that were open before, or a negative number. */
int
fp_nvtx_in_push(const fp_nvtx_name *domain, fp_nvtx_message m);

/* Ends the latest range of the calling thread in [domain].  Returns the number
 * of ranges still open, or a negative number. */
int
fp_nvtx_in_pop(const fp_nvtx_name *domain);

/* Begins a range of the process and returns its number. */
uint64_t
fp_nvtx_in_start(const fp_nvtx_name *domain, fp_nvtx_message m);

void
fp_nvtx_in_end(uint64_t number);

#endif
